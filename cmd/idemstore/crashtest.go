//go:build unix

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/idemstore/idemstore/internal/crashtest"
	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/internal/server"
	"github.com/idemstore/idemstore/internal/store"
)

type crashtestCmd struct {
	Handler       []string             `default:"http.call" help:"Topic of the tasks, which says what the worker is to do: http.call, http.call.keyed, http.get, csv.read, csv.write, or one of your own. Repeat it for several."`
	Variable      map[string]string    `mapsep:"none" placeholder:"NAME=VALUE" help:"Variable of every task, for handlers of your own. Repeat it for several."`
	VariablesFile string               `type:"existingfile" help:"File with a JSON object of such variables, of any type."`
	Point         []crashtest.Point    `help:"Kill the worker at these points only: ${points}."`
	Scenario      []crashtest.Scenario `help:"Have the upstream behave in these ways only: ${scenarios}."`
	Store         *string              `placeholder:"URL" help:"A running idemstore, instead of one of the test's own on a temporary SQLite file. The keys stay in it, and so do the doubts of a worker that leaves them to the operator."`
	Token         string               `env:"IDEMSTORE_TOKEN" help:"Token of role worker for --store (${env})."`
	Output        string               `enum:"table,json,junit" default:"table" help:"table, json or junit, to standard output."`
	Parallel      int                  `default:"${cpus}" help:"How many cases run at a time, each with a worker of its own."`
	LockTTL       time.Duration        `name:"lock-ttl" default:"1s" help:"The engine's locks last no longer, whatever the worker asks for."`
	MaxLease      time.Duration        `default:"2s" help:"Leases of keys last no longer, whatever the worker asks for; whole seconds."`
	Settle        time.Duration        `default:"2s" help:"How long a doubt must stand to count as left to the operator."`
	Patience      time.Duration        `default:"30s" help:"How long one case may take, beside the time that the worker takes to start."`
	StartTimeout  time.Duration        `default:"10s" help:"How long the worker may take from its start to its first fetch-and-lock."`
	LogDir        string               `type:"path" placeholder:"DIR" help:"Keep the worker's output here, a file a case."`
	Elsewhere     bool                 `name:"effects-elsewhere" help:"The effects of your own handlers cannot be seen from here, and you count them yourself."`
	Command       []string             `arg:"" help:"The command that starts the worker."`
}

// Help implements kong's HelpProvider.
func (*crashtestCmd) Help() string {
	return `Starts a small engine, an upstream that counts effects, and an idemstore, all on free ports of loopback; starts your worker, hands it tasks,
kills it at exact points, starts it again, and reports what happened to each task. The worker finds them in CONDUIT_URL, UPSTREAM_URL,
IDEMSTORE_URL and IDEMSTORE_TOKEN, and in CRASHTEST_DIR a directory that is empty but for the file of
csv.read.

Exit status: 0 if nothing went wrong, 1 on any duplicate, loss or hidden doubt, 2 if the test could not be made.

Examples:

  idemstore crashtest -- python3 worker.py
  idemstore crashtest --handler http.call --handler csv.write --output junit -- ./worker > crashtest.xml
  idemstore crashtest --point after-effect --scenario plain --log-dir logs -- node worker.mjs
  idemstore crashtest --handler mail.send --variable to=ada@example.org -- ./mailer
  IDEMSTORE_TOKEN=... idemstore crashtest --store https://idemstore.example.org -- ./worker`
}

// Validate implements kong's interface.
func (c *crashtestCmd) Validate() error {
	for name, d := range map[string]time.Duration{
		"--lock-ttl": c.LockTTL, "--settle": c.Settle, "--patience": c.Patience, "--start-timeout": c.StartTimeout,
	} {
		if d <= 0 {
			return fmt.Errorf("%s must be above 0, not %s", name, d)
		}
	}
	if c.MaxLease < time.Second || c.MaxLease%time.Second != 0 {
		return fmt.Errorf("--max-lease must be whole seconds, at least 1s, not %s", c.MaxLease)
	}
	if c.Store != nil {
		if u, err := url.Parse(*c.Store); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return fmt.Errorf("--store must be a URL such as http://127.0.0.1:8080, not %q", *c.Store)
		}
	}
	if c.Parallel < 1 {
		return fmt.Errorf("--parallel must be at least 1, not %d", c.Parallel)
	}
	return nil
}

// Run implements the subcommand.
func (c *crashtestCmd) Run(e *env) error {
	variables, err := c.variables()
	if err != nil {
		return usageError{err}
	}
	tell, end := progress(e.stderr)
	opts := crashtest.Options{
		Command: c.Command, Handlers: c.Handler, Variables: variables, Points: c.Point, Scenarios: c.Scenario,
		Parallel: c.Parallel, LockTTL: c.LockTTL, MaxLease: c.MaxLease, Settle: c.Settle, Patience: c.Patience,
		StartTimeout: c.StartTimeout, LogDir: c.LogDir, Elsewhere: c.Elsewhere, Progress: tell,
	}
	ctx, stop := signal.NotifyContext(e.ctx, syscall.SIGHUP) // a terminal that is closed leaves no worker behind
	defer stop()
	if c.Store != nil {
		opts.Store = crashtest.Store{URL: *c.Store, Token: c.Token}
	} else {
		own, err := startOwnStore(ctx)
		if err != nil && ctx.Err() != nil {
			return usageError{crashtest.ErrInterrupted}
		}
		if err != nil {
			return usageError{fmt.Errorf("the test's own store does not start: %w", err)}
		}
		defer own.close()
		opts.Store = own.Store
	}
	report, err := crashtest.Run(ctx, opts)
	end()
	if err != nil {
		return usageError{err}
	}
	if err := c.write(e.stdout, report); err != nil {
		return err
	}
	if bad := report.Bad(); bad > 0 {
		return fmt.Errorf("%d of %d tasks went wrong", bad, len(report.Results))
	}
	return nil
}

func (c *crashtestCmd) write(w io.Writer, report *crashtest.Report) error {
	switch c.Output {
	case "json":
		return report.WriteJSON(w)
	case "junit":
		return report.WriteJUnit(w)
	default:
		return report.WriteTable(w)
	}
}

// variables are those of the file, and over them those of the command line.
func (c *crashtestCmd) variables() (map[string]any, error) {
	variables := make(map[string]any)
	if c.VariablesFile != "" {
		text, err := os.ReadFile(c.VariablesFile)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(text, &variables); err != nil || variables == nil {
			return nil, fmt.Errorf("%s must hold a JSON object of variables (%w)", c.VariablesFile, cmp.Or(err, errors.New("it holds null")))
		}
	}
	for name, value := range c.Variable {
		variables[name] = value
	}
	return variables, nil
}

// progress tells how far the test is: on a terminal in one line, which end takes away, elsewhere in a line a case.
func progress(w io.Writer) (tell func(done, all int, c crashtest.Case), end func()) {
	if f, ok := w.(*os.File); ok && terminal(f) {
		const wipe = "\r\x1b[K"
		tell = func(done, all int, c crashtest.Case) { fmt.Fprintf(w, "%s%d/%d %s", wipe, done, all, c) }
		return tell, func() { fmt.Fprint(w, wipe) }
	}
	return func(done, all int, c crashtest.Case) { fmt.Fprintf(w, "%d/%d %s\n", done, all, c) }, func() {}
}

// ownStore is an idemstore in this process, on a temporary file.
type ownStore struct {
	crashtest.Store
	close func()
}

func startOwnStore(ctx context.Context) (*ownStore, error) {
	dir, err := os.MkdirTemp("", "idemstore-crashtest-store-")
	if err != nil {
		return nil, err
	}
	backend, err := store.Open(ctx, "sqlite:"+filepath.Join(dir, "store.db"), store.Options{})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	secret, line, err := server.NewToken("worker", []server.Role{server.RoleWorker})
	if err != nil {
		return nil, err
	}
	tokens := new(server.Tokens)
	if err := tokens.Load(line); err != nil {
		return nil, err
	}
	l, err := listen(ctx, "127.0.0.1:0")
	if err != nil {
		backend.Close()
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	keeper := store.NewBatcher(backend, idem.Policy{Retention: time.Hour, InDoubtRetention: minInDoubtRetention}, store.Lanes(backend))
	api := server.New(keeper, backend, tokens, zerolog.Nop(), server.Config{
		MaxBodyBytes: server.DefaultMaxBodyBytes, KeyTemplate: server.DefaultKeyTemplate, DeniedHeaders: server.DefaultDeniedHeaders,
	})
	h := &http.Server{Handler: api, ReadHeaderTimeout: headerTime}
	ended := make(chan struct{})
	go func() { _ = h.Serve(l); close(ended) }() // until it is closed
	own := &ownStore{Store: crashtest.Store{URL: "http://" + l.Addr().String(), Token: secret}}
	own.close = func() {
		api.Drain()
		h.Close()
		<-ended
		keeper.Close()
		backend.Close()
		_ = os.RemoveAll(dir) // the system clears its temporary files
	}
	return own, nil
}

// crashtestVars are the words of its help.
func crashtestVars() map[string]string {
	var points, scenarios []string
	for _, p := range crashtest.Points {
		points = append(points, string(p))
	}
	for _, s := range crashtest.Scenarios {
		scenarios = append(scenarios, string(s))
	}
	return map[string]string{"cpus": strconv.Itoa(runtime.NumCPU()), "points": strings.Join(points, ", "), "scenarios": strings.Join(scenarios, ", ")}
}
