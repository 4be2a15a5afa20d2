// Command idemstore runs the service, migrates its database, makes its tokens and asks it what happened.
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

	"github.com/idemstore/idemstore/internal/audit"
	"github.com/idemstore/idemstore/internal/server"
)

// Exit statuses.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2 // flags, environment or configuration that cannot be

	// Of audit alone.
	exitNothing = 3 // there is no such thing
	exitRefused = 4 // by the state of the key
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// cli is the command line: flags, the environment, their defaults and their help.
type cli struct {
	Serve       serveCmd       `cmd:"" help:"Run the service until SIGTERM or SIGINT."`
	Migrate     migrateCmd     `cmd:"" help:"Bring the database's schema to this program's version."`
	Purge       purgeCmd       `cmd:"" help:"Delete now what is past its retention. serve does so by itself, a little at a time."`
	Token       tokenCmd       `cmd:"" help:"Make tokens."`
	Audit       auditCmd       `cmd:"" help:"Ask a running service what happened, and settle keys in doubt."`
	Crashtest   crashtestCmd   `cmd:"" help:"Kill a worker at every point where it hurts, and see whether each side effect happens once."`
	Healthcheck healthcheckCmd `cmd:"" help:"Ask a running service whether it can serve; exit 0 if so, 1 if not."`
	Version     versionCmd     `cmd:"" help:"Print the version."`
}

// env is what subcommands run in.
type env struct {
	ctx    context.Context //nolint:containedctx // kong hands each subcommand one value
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
}

// usageError is a fault of the command line or of the configuration.
type usageError struct{ error }

// run is the whole program; main only gives it the world.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) (code int) {
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
	parser := c.parser(stdout, stderr, func(code int) { panic(exit{code}) })
	cmd, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintf(stderr, "idemstore: %v\nRun \"idemstore --help\" for what there is.\n", err)
		return exitUsage
	}
	err = cmd.Run(&env{ctx: ctx, stdin: stdin, stdout: stdout, stderr: stderr})
	if err != nil {
		fmt.Fprintf(stderr, "idemstore: %v\n", err)
	}
	return status(err)
}

// parser reads the command line into c.
func (c *cli) parser(stdout, stderr io.Writer, exit func(int)) *kong.Kong {
	parser, err := kong.New(c,
		kong.Name("idemstore"),
		kong.Description("One shared, durable table (task_id, attempt) -> response, by which a fleet of workers performs each side effect once."),
		kong.Writers(stdout, stderr),
		kong.Exit(exit),
		kong.Vars{"denied": strings.Join(server.DefaultDeniedHeaders, ",")}.CloneWith(crashtestVars()),
	)
	if err != nil {
		panic(err) // a fault of the struct tags above
	}
	return parser
}

// status is the exit status of how a subcommand ended.
func status(err error) int {
	var usage usageError
	var failure *audit.Error
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		return exitUsage
	case !errors.As(err, &failure):
		return exitFailed
	}
	switch failure.Class {
	case audit.Usage:
		return exitUsage
	case audit.Nothing:
		return exitNothing
	case audit.Refused:
		return exitRefused
	default:
		return exitFailed
	}
}
