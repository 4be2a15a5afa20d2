package crashtest_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/idemstore/idemstore/internal/crashtest"
	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/internal/server"
	"github.com/idemstore/idemstore/internal/store"
)

// soon is when what must happen at once has happened also on a busy machine.
const soon = 20 * time.Second

// newStore is an idemstore that lives as long as the test. Its second token may only read.
func newStore(t *testing.T) (s crashtest.Store, reader string) {
	t.Helper()
	backend, err := store.Open(t.Context(), "sqlite::memory:", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(backend.Close)
	keeper := store.NewBatcher(backend, idem.Policy{Retention: time.Hour, InDoubtRetention: 24 * time.Hour}, store.Lanes(backend))
	t.Cleanup(keeper.Close)
	worker, first, err := server.NewToken("worker", []server.Role{server.RoleWorker})
	if err != nil {
		t.Fatal(err)
	}
	reader, second, err := server.NewToken("reader", []server.Role{server.RoleAuditor})
	if err != nil {
		t.Fatal(err)
	}
	tokens := new(server.Tokens)
	if err := tokens.Load(first + "\n" + second); err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &http.Server{Handler: server.New(keeper, backend, tokens, zerolog.Nop(), server.Config{
		MaxBodyBytes: server.DefaultMaxBodyBytes, KeyTemplate: server.DefaultKeyTemplate,
	})}
	ended := make(chan struct{})
	go func() { _ = h.Serve(l); close(ended) }()
	t.Cleanup(func() { h.Close(); <-ended })
	return crashtest.Store{URL: "http://" + l.Addr().String(), Token: worker}, reader
}

// options are a run of one kind of worker. A case mostly waits, so many run at a time.
func options(t *testing.T, kind string, args ...string) crashtest.Options {
	t.Helper()
	s, _ := newStore(t)
	return crashtest.Options{
		Command: append([]string{os.Args[0], beWorker, kind}, args...), Handlers: []string{crashtest.HTTPCall}, Store: s,
		Parallel: 6, LockTTL: time.Second, MaxLease: 2 * time.Second, Settle: 2 * time.Second, Patience: time.Minute, StartTimeout: soon,
		LogDir: t.TempDir(),
	}
}

// run makes the run, which must be one that can be made.
func run(t *testing.T, opts crashtest.Options) *crashtest.Report {
	t.Helper()
	report, err := crashtest.Run(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			var table strings.Builder
			_ = report.WriteTable(&table)
			t.Log("\n" + table.String())
		}
	})
	return report
}

// All that is right passes, at every point, and each point but none is really one at which it was killed.
func TestRightWorkers(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{good, explicit, oneShot} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			report := run(t, options(t, kind))
			if len(report.Results) != 20 {
				t.Errorf("%d cases, want 20", len(report.Results))
			}
			for _, r := range report.Results {
				if r.Verdict != crashtest.Pass || r.Killed != (r.Point != crashtest.NoKill) {
					t.Errorf("%s: %s (%s), killed %v", r.Case, r.Verdict, r.Detail, r.Killed)
				}
			}
		})
	}
}

// A worker that leaves its doubts to the operator shows where exactly it was killed: what was done by then stays done.
func TestPointsAreExact(t *testing.T) {
	t.Parallel()
	opts := options(t, modest)
	opts.Scenarios = []crashtest.Scenario{crashtest.Plain, crashtest.Slow}
	got := make(map[string]string)
	for _, r := range run(t, opts).Results {
		got[fmt.Sprint(r.Scenario, " ", r.Point)] = fmt.Sprintf("%s, killed %v: %d effects, %d replayed, %d in doubt", r.Verdict, r.Killed, r.Effects, r.Replayed, len(r.InDoubt))
	}
	for c, want := range map[string]string{
		"plain none":                "pass, killed false: 1 effects, 0 replayed, 0 in doubt",
		"plain before-reserve":      "pass, killed true: 1 effects, 0 replayed, 0 in doubt",
		"plain after-reserve":       "in doubt, reported, killed true: 0 effects, 0 replayed, 1 in doubt",
		"plain before-effect":       "in doubt, reported, killed true: 0 effects, 0 replayed, 1 in doubt",
		"plain after-effect":        "in doubt, reported, killed true: 1 effects, 0 replayed, 1 in doubt",
		"plain before-record":       "in doubt, reported, killed true: 1 effects, 0 replayed, 1 in doubt",
		"plain after-record":        "pass, killed true: 1 effects, 1 replayed, 0 in doubt",
		"plain before-complete":     "pass, killed true: 1 effects, 1 replayed, 0 in doubt",
		"slow none":                 "pass, killed false: 1 effects, 0 replayed, 0 in doubt",
		"slow during-renewed-lease": "in doubt, reported, killed true: 1 effects, 0 replayed, 1 in doubt",
	} {
		if got[c] != want {
			t.Errorf("%s:\n got %s\nwant %s", c, got[c], want)
		}
	}
}

// Each wrong worker is caught, with the verdict that says what it does.
func TestWrongWorkers(t *testing.T) {
	t.Parallel()
	type at = map[string]crashtest.Verdict
	for _, c := range []struct {
		kind, handler string
		want          at
	}{
		{noReserve, crashtest.HTTPCall, at{
			"plain none": crashtest.Hidden, "plain after-effect": crashtest.Duplicate, "plain before-complete": crashtest.Duplicate,
		}},
		{clockKey, crashtest.HTTPCall, at{
			"plain after-effect": crashtest.Duplicate, "plain before-record": crashtest.Duplicate,
			"plain after-record": crashtest.Duplicate, "plain after-reserve": crashtest.Hidden,
		}},
		{clockKey, crashtest.HTTPCallKeyed, at{
			"plain none": crashtest.Pass, "plain after-effect": crashtest.Duplicate, "drops none": crashtest.Duplicate,
		}},
		{deliveryKey, crashtest.HTTPCall, at{
			"plain none": crashtest.Pass, "plain after-record": crashtest.Duplicate, "plain before-complete": crashtest.Duplicate,
			"declines after-record": crashtest.Duplicate,
		}},
		{recordFirst, crashtest.HTTPCall, at{
			"plain none": crashtest.Hidden, "plain before-effect": crashtest.Lost, "plain after-record": crashtest.Lost,
		}},
		{blind, crashtest.HTTPCall, at{
			"plain none": crashtest.Pass, "plain after-effect": crashtest.Duplicate, "plain before-effect": crashtest.Hidden,
		}},
		{skipsErrors, crashtest.HTTPCall, at{
			"plain none": crashtest.Pass, "declines none": crashtest.Hidden, "fails none": crashtest.Hidden, "drops none": crashtest.Hidden,
		}},
		{noRenewal, crashtest.HTTPCall, at{"plain none": crashtest.Pass, "slow none": crashtest.Hidden}},
		{washes, crashtest.HTTPCall, at{"plain none": crashtest.Pass, "drops none": crashtest.Duplicate}},
		{givesUp, crashtest.HTTPCall, at{"plain before-effect": crashtest.Lost, "plain after-effect": crashtest.Hidden}},
		{failsDoubt, crashtest.HTTPCall, at{"plain before-effect": crashtest.Hidden, "plain after-effect": crashtest.Hidden}},
		{renewsLate, crashtest.HTTPCall, at{"plain none": crashtest.Pass, "slow none": crashtest.Hidden}},
		{sleeps, crashtest.HTTPCall, at{"plain none": crashtest.Hidden}},
		{looksFirst, crashtest.HTTPCall, at{"plain none": crashtest.Pass, "plain after-reserve": crashtest.Hidden, "plain after-effect": crashtest.Hidden}},
		{releases5xx, crashtest.HTTPCall, at{"plain none": crashtest.Pass, "falters none": crashtest.Duplicate}},
		{instanceKey, crashtest.HTTPCall, at{"plain none": crashtest.Lost}},
		{always200, crashtest.HTTPCall, at{"plain none": crashtest.Pass, "declines none": crashtest.Hidden}},
		{invents, crashtest.HTTPCall, at{"plain none": crashtest.Hidden}},
		{naturalKey, crashtest.HTTPCall, at{"plain none": crashtest.Hidden, "plain after-effect": crashtest.Hidden}},
		{completer, crashtest.HTTPCall, at{"plain none": crashtest.Pass, "plain before-record": crashtest.Hidden}},
		{appends, crashtest.CSVWrite, at{"plain none": crashtest.Pass, "plain before-complete": crashtest.Duplicate}},
		{crashes, crashtest.HTTPCall, at{"plain none": crashtest.Lost}},
		{clockKey, "some.thing", at{"plain none": crashtest.Pass, "plain after-effect": crashtest.Duplicate}},
	} {
		t.Run(c.kind+" "+c.handler, func(t *testing.T) {
			t.Parallel()
			opts := options(t, c.kind)
			opts.Handlers = []string{c.handler}
			for name := range c.want {
				var scenario crashtest.Scenario
				var point crashtest.Point
				_, _ = fmt.Sscan(name, &scenario, &point)
				opts.Scenarios, opts.Points = append(opts.Scenarios, scenario), append(opts.Points, point)
			}
			seen := 0
			for _, r := range run(t, opts).Results {
				want, ok := c.want[fmt.Sprint(r.Scenario, " ", r.Point)]
				if ok && r.Verdict != want {
					t.Errorf("%s: %s (%s), want %s", r.Case, r.Verdict, r.Detail, want)
				}
				if ok {
					seen++
				}
			}
			if seen != len(c.want) {
				t.Errorf("%d of %d cases were run", seen, len(c.want))
			}
		})
	}
}

func TestOtherHandlers(t *testing.T) {
	t.Parallel()
	opts := options(t, good)
	opts.Handlers = []string{crashtest.HTTPCallKeyed, crashtest.HTTPGet, crashtest.CSVRead, crashtest.CSVWrite, "some.thing"}
	effects := make(map[string]int)
	for _, r := range run(t, opts).Results {
		if r.Verdict != crashtest.Pass {
			t.Errorf("%s: %s (%s)", r.Case, r.Verdict, r.Detail)
		}
		if r.Scenario == crashtest.Plain && r.Point == crashtest.BeforeEnd {
			effects[r.Handler] = r.Effects
			if !r.Killed {
				t.Errorf("%s: was not killed", r.Case)
			}
		}
	}
	if fmt.Sprint(effects) != "map[csv.read:0 csv.write:1 http.call.keyed:1 http.get:2 some.thing:1]" {
		t.Errorf("effects: %v", effects)
	}
}

// Whoever counts effects himself is not asked for them.
func TestEffectsElsewhere(t *testing.T) {
	t.Parallel()
	opts := options(t, pretends)
	opts.Handlers, opts.Points, opts.Elsewhere = []string{"mail.send"}, []crashtest.Point{crashtest.BeforeReserve}, true
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if report, err := crashtest.Run(ctx, opts); err != nil || report.Verdicts[crashtest.Pass] == 0 {
		t.Errorf("%v, %+v", err, report)
	}
}

// A test that cannot be made says why in a line, at once.
func TestCannotBeMade(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script := func(name, text string, mode os.FileMode) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return file
	}
	command := func(words ...string) func(*crashtest.Options) {
		return func(o *crashtest.Options) { o.Command = words }
	}
	for _, c := range []struct {
		name   string
		change func(*crashtest.Options)
		want   []string
	}{
		{"ends at once", command(os.Args[0], beWorker, exits), []string{"ended before it called fetch-and-lock", "exit status 3", "worker: no configuration"}},
		{"says nothing", command("false"), []string{"ended before", "exit status 1", "It wrote nothing."}},
		{"never fetches", func(o *crashtest.Options) {
			o.Command[2], o.StartTimeout = idles, time.Second
		}, []string{"did not call fetch-and-lock at CONDUIT_URL within 1s", "waiting for a sign"}},
		{"other topic", func(o *crashtest.Options) {
			o.Command, o.StartTimeout = append(o.Command[:2:2], picky, "mail.send"), time.Second
		}, []string{"fetches the topics mail.send and never http.call"}},
		{"no effect", func(o *crashtest.Options) {
			o.Command[2], o.Handlers = pretends, []string{"mail.send"}
		}, []string{"mail.send was completed, and no effect of it was seen", "the file effects in CRASHTEST_DIR"}},
		{"no command", command("no-such-command"), []string{`no command "no-such-command" in PATH`}},
		{"no file", command(filepath.Join(dir, "nothing")), []string{"there is no file"}},
		{"not executable", command(script("plain", "#!/bin/sh\n", 0o600)), []string{"may not be executed"}},
		{"no interpreter", command(script("script", "#!/no/such/interpreter\n", 0o700)), []string{"the interpreter that the first line of"}},
		{"no store", func(o *crashtest.Options) { o.Store.URL = "http://127.0.0.1:1" }, []string{"the store at http://127.0.0.1:1 cannot be reached", "refused"}},
		{"no URL", func(o *crashtest.Options) { o.Store.URL = "localhost" }, []string{"the store at localhost cannot be reached", "scheme"}},
		{"wrong token", func(o *crashtest.Options) { o.Store.Token = "wrong" }, []string{"does not know the token"}},
		{"no such point", func(o *crashtest.Options) { o.Points = []crashtest.Point{"lunch"} }, []string{`no kill point "lunch"`, "before-reserve"}},
		{"no such scenario", func(o *crashtest.Options) { o.Scenarios = []crashtest.Scenario{"rain"} }, []string{`no scenario "rain"`, "plain"}},
		{"no handler", func(o *crashtest.Options) { o.Handlers = nil }, []string{"no handler is named", "--handler"}},
		{"no log directory", func(o *crashtest.Options) { o.LogDir = os.Args[0] }, []string{"--log-dir: ", "not a directory"}},
		{"twice", func(o *crashtest.Options) { o.Handlers = []string{"a", "a"} }, []string{"named once"}},
		{"no case", func(o *crashtest.Options) {
			o.Handlers, o.Points = []string{crashtest.CSVRead}, []crashtest.Point{crashtest.WhileRenewed}
		}, []string{"csv.read has no case"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			opts := options(t, good)
			c.change(&opts)
			ctx, cancel := context.WithTimeout(t.Context(), soon)
			defer cancel()
			report, err := crashtest.Run(ctx, opts)
			if err == nil {
				t.Fatalf("a report: %v", report.Verdicts)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q has no %q", err, want)
				}
			}
			if lines := strings.Count(err.Error(), "\n"); lines > 2 {
				t.Errorf("%d lines", lines)
			}
		})
	}
}

func TestReaderMayNot(t *testing.T) {
	t.Parallel()
	s, reader := newStore(t)
	opts := options(t, good)
	opts.Store = s
	opts.Store.Token = reader
	if _, err := crashtest.Run(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "role worker") {
		t.Errorf("%v", err)
	}
}

// What a worker takes to start is not held against it.
func TestSlowStart(t *testing.T) {
	t.Parallel()
	opts := options(t, starts, "3s")
	opts.Patience = 4 * time.Second // of which a kill and a lease take two
	opts.Scenarios, opts.Points = []crashtest.Scenario{crashtest.Plain}, []crashtest.Point{crashtest.BeforeReserve}
	for _, r := range run(t, opts).Results {
		if r.Verdict != crashtest.Pass || !r.Killed || r.Seconds < 6 {
			t.Errorf("%s: %s (%s), killed %v, in %.1f s", r.Case, r.Verdict, r.Detail, r.Killed, r.Seconds)
		}
	}
}

// The worker's output can be kept, a file a case.
func TestLogsAreKept(t *testing.T) {
	t.Parallel()
	opts := options(t, noReserve)
	opts.LogDir = filepath.Join(opts.LogDir, "logs")
	opts.Handlers, opts.Points = []string{crashtest.CSVRead}, []crashtest.Point{crashtest.NoKill}
	var told []string
	opts.Progress = func(done, all int, c crashtest.Case) { told = append(told, fmt.Sprint(done, "/", all, " ", c)) }
	run(t, opts)
	if _, err := os.Stat(filepath.Join(opts.LogDir, "csv.read-plain-none.log")); err != nil {
		t.Error(err)
	}
	if !slices.Equal(told, []string{"1/1 csv.read plain none"}) {
		t.Errorf("progress: %q", told)
	}
}
