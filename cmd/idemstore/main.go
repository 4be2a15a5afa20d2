// Command idemstore runs the service, migrates its database and makes its tokens.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/idemstore/idemstore/internal/server"
)

// Exit statuses.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2 // flags, environment or configuration that cannot be
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// cli is the command line: flags, the environment, their defaults and their help.
type cli struct {
	Serve       serveCmd       `cmd:"" help:"Run the service until SIGTERM or SIGINT."`
	Migrate     migrateCmd     `cmd:"" help:"Bring the database's schema to this program's version."`
	Token       tokenCmd       `cmd:"" help:"Make tokens."`
	Healthcheck healthcheckCmd `cmd:"" help:"Ask a running service whether it can serve; exit 0 if so, 1 if not."`
	Version     versionCmd     `cmd:"" help:"Print the version."`
}

// env is what subcommands run in.
type env struct {
	ctx    context.Context //nolint:containedctx // kong hands each subcommand one value
	stdout io.Writer
	stderr io.Writer
}

// usageError is a fault of the command line or of the configuration.
type usageError struct{ error }

// run is the whole program; main only gives it the world.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (code int) {
	type exit struct{ code int }
	defer func() {
		if p := recover(); p != nil {
			e, ok := p.(exit)
			if !ok {
				panic(p)
			}
			code = e.code
		}
	}()
	var c cli
	parser, err := kong.New(&c,
		kong.Name("idemstore"),
		kong.Description("One shared, durable table (task_id, attempt) -> response, by which a fleet of workers performs each side effect once."),
		kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { panic(exit{code}) }),
		kong.Vars{"denied": strings.Join(server.DefaultDeniedHeaders, ",")},
	)
	if err != nil {
		panic(err) // a fault of the struct tags above
	}
	cmd, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintf(stderr, "idemstore: %v\nRun \"idemstore --help\" for what there is.\n", err)
		return exitUsage
	}
	err = cmd.Run(&env{ctx: ctx, stdout: stdout, stderr: stderr})
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "idemstore: %v\n", err)
		return exitUsage
	default:
		fmt.Fprintf(stderr, "idemstore: %v\n", err)
		return exitFailed
	}
}
