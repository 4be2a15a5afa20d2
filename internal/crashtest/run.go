package crashtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
)

// Options are what a run is made of.
type Options struct {
	Command   []string // starts the worker
	Handlers  []string
	Variables map[string]any // of every task, beside those of its handler
	Points    []Point        // none: all
	Scenarios []Scenario     // none: all
	Store     Store

	Parallel     int           // cases at a time
	LockTTL      time.Duration // no lock lasts longer
	MaxLease     time.Duration // no lease lasts longer; whole seconds
	Settle       time.Duration // how long a doubt must stand to be called reported
	Patience     time.Duration // how long a case may take
	StartTimeout time.Duration // how long a worker may take from its start to its first fetch
	LogDir       string        // where the worker's output is kept; "": nowhere
	Elsewhere    bool          // the effects of handlers that are not the test's own cannot be seen, and somebody else counts them

	Progress func(done, all int, c Case) // may be nil
}

// ErrInterrupted says that a run was broken off.
var ErrInterrupted = errors.New("interrupted; nothing of it is left running")

// Run puts the worker through every case. An error says that the test could not be made; what the worker did wrong is in
// the report. Nothing that was started is running any more when Run returns.
func Run(ctx context.Context, opts Options) (*Report, error) {
	cases, err := opts.cases()
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	if _, _, err := opts.Store.look(ctx, client, key{uuid.NewString(), "0"}); ctx.Err() != nil {
		return nil, ErrInterrupted
	} else if err != nil {
		return nil, err
	}
	root, err := os.MkdirTemp("", "idemstore-crashtest-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(root) }() // the system clears its temporary files

	began := time.Now()
	seen := make([]Evidence, len(cases))
	group, running := errgroup.WithContext(ctx)
	group.SetLimit(max(1, opts.Parallel))
	var mu sync.Mutex
	done := 0
	for i, c := range cases {
		group.Go(func() error {
			if running.Err() != nil {
				return running.Err()
			}
			started := time.Now()
			e, err := runCase(running, &opts, client, c, filepath.Join(root, fmt.Sprint(i)))
			if err != nil {
				return err
			}
			if c.usual() && e.Ended == completed && e.Effects == 0 && !opts.Elsewhere {
				return fmt.Errorf("a task of %s was completed, and no effect of it was seen, so there is nothing to judge by; "+
					"send the effect to the task's url, append a line for it to the file effects in CRASHTEST_DIR, or, where you count effects "+
					"yourself, say --effects-elsewhere", c.Handler)
			}
			mu.Lock()
			defer mu.Unlock()
			e.Seconds = time.Since(started).Seconds()
			seen[i] = e
			done++
			if opts.Progress != nil {
				opts.Progress(done, len(cases), c)
			}
			return nil
		})
	}
	err = group.Wait()
	if ctx.Err() != nil {
		return nil, ErrInterrupted
	}
	if err != nil {
		return nil, err
	}
	return report(cases, seen, opts.Patience, time.Since(began)), nil
}

// runCase gives one worker a world of its own, and sees it through.
func runCase(ctx context.Context, opts *Options, client *http.Client, c Case, dir string) (Evidence, error) {
	t := &trial{
		Case: c, opts: opts, client: client, over: make(chan struct{}), lease: opts.MaxLease,
		keys: make(map[key]bool), recorded: make(map[key]bool), sent: make(map[key]bool),
	}
	var err error
	if t.files, err = newFiles(dir, c.Handler); err != nil {
		return Evidence{}, err
	}
	if t.log, err = openLog(opts.LogDir, dir, c); err != nil {
		return Evidence{}, err
	}
	defer t.log.Close()
	t.upstream = &upstream{
		path: "/orders/" + uuid.NewString(), scenario: c.Scenario, keyed: c.Handler == HTTPCallKeyed, exists: c.Handler == HTTPGet,
		watch: t, byKey: make(map[string]string),
	}
	t.engine = &engine{
		taskID: uuid.NewString(), instance: uuid.NewString(), execution: uuid.NewString(),
		topic: c.Handler, lockTTL: opts.LockTTL, watch: t, over: t.over, changed: make(chan struct{}),
	}
	var s servers
	defer s.close()
	defer close(t.over)
	if err := t.serve(&s); err != nil {
		return Evidence{}, err
	}
	defer t.letConnect() // so that its port is closed with the others
	if err := t.live(ctx); err != nil {
		return Evidence{}, err
	}
	return t.evidence(), nil
}

// serve brings engine, store and upstream up, and tells the worker where they are.
func (t *trial) serve(s *servers) error {
	engineURL, err := s.start(t.engine.handler())
	if err != nil {
		return err
	}
	storeURL, err := s.start(&storeProxy{store: t.opts.Store, client: t.client, maxLease: t.opts.MaxLease, watch: t})
	if err != nil {
		return err
	}
	var upstreamURL string
	if t.Scenario == Refuses {
		port, err := reservePort()
		if err != nil {
			return fmt.Errorf("no free port for the upstream: %w", err)
		}
		upstreamURL = "http://" + port.addr
		t.open = func() error { return s.startLater(port, t.upstream.handler()) }
	} else {
		t.opened = true
		if upstreamURL, err = s.start(t.upstream.handler()); err != nil {
			return err
		}
	}
	t.engine.variables = t.variables(upstreamURL + t.upstream.path)
	t.environ = slices.Concat(os.Environ(), direct(os.Getenv), []string{ // of two values the last counts
		"CONDUIT_URL=" + engineURL, "UPSTREAM_URL=" + upstreamURL, "IDEMSTORE_URL=" + storeURL,
		"IDEMSTORE_TOKEN=" + t.opts.Store.Token, t.mark(), "TMPDIR=" + t.files.tmp,
	})
	return nil
}

// mark tells the worker its directory, and is what the processes of the case are known by.
func (t *trial) mark() string { return "CRASHTEST_DIR=" + t.files.dir }

// direct has a worker call the case without the proxy that its environment may name.
func direct(getenv func(string) string) []string {
	upper, lower := getenv("NO_PROXY"), getenv("no_proxy")
	without := func(hosts string) string {
		switch hosts {
		case "", "*":
			return cmp.Or(hosts, "127.0.0.1")
		default:
			return hosts + ",127.0.0.1"
		}
	}
	return []string{"NO_PROXY=" + without(cmp.Or(upper, lower)), "no_proxy=" + without(cmp.Or(lower, upper))}
}

// variables are what the task tells its handler.
func (t *trial) variables(target string) []variable {
	own := map[string]any{}
	switch t.Handler {
	case CSVRead:
		own["path"] = t.files.path
	case CSVWrite:
		own["path"], own["rows"] = t.files.path, rows
	case HTTPGet:
		own["url"], own["method"] = target, http.MethodGet
	default:
		own["url"], own["method"] = target, http.MethodPost
		own["body"] = `{"amount":1200,"currency":"EUR"}`
	}
	for name, value := range t.opts.Variables {
		if _, taken := own[name]; !taken || !t.known() {
			own[name] = value
		}
	}
	return variablesOf(own)
}

// evidence is what was seen, when all is over.
func (t *trial) evidence() Evidence {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.seen
	e.InDoubt = append([]string{}, e.InDoubt...) // in JSON: a list, if an empty one
	e.Ended, e.Failures = t.engine.end(), t.engine.failures()
	e.Effects = len(t.upstream.receipts())
	switch t.Handler {
	case HTTPGet:
		e.Effects = e.Reads
	case CSVWrite:
		e.Effects, e.Torn = t.files.written()
	}
	if !t.known() {
		e.Effects += t.files.told()
	}
	return e
}

// servers are what listens for one case.
type servers struct {
	mu      sync.Mutex
	servers []*http.Server
	done    sync.WaitGroup
}

func (s *servers) start(h http.Handler) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is there at once, or not at all
	if err != nil {
		return "", fmt.Errorf("no free port on loopback: %w", err)
	}
	s.serve(l, h)
	return "http://" + l.Addr().String(), nil
}

// startLater serves on a port that has refused connections until now.
func (s *servers) startLater(port closedPort, h http.Handler) error {
	l, err := port.listen()
	if err == nil {
		s.serve(l, h)
	}
	return err
}

func (s *servers) serve(l net.Listener, h http.Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	server := &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0)}
	s.servers = append(s.servers, server)
	s.done.Go(func() { _ = server.Serve(l) }) // until it is closed
}

func (s *servers) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, server := range s.servers {
		server.Close()
	}
	s.done.Wait()
}
