package server_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/idemstore/idemstore/internal/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Wrap(suite{m})) }

// suite is the tests of this package, and behind them the end of what they share.
type suite struct{ pgtest.Runner }

func (s suite) Run() int {
	code := s.Runner.Run()
	for _, fault := range shared.close() {
		fmt.Fprintln(os.Stderr, "after the tests:", fault)
		code = max(code, 1)
	}
	client.CloseIdleConnections()
	return code
}

// client has room for every waiter of every test.
var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000, DisableCompression: true}}

// shared is what the tests of this process have in common.
var shared process

type process struct {
	mu       sync.Mutex
	cleanups []func()
	faults   []string
	services map[string]*service   // by engine: one clock that nobody moves
	movable  map[string][]*service // by engine: at rest, to be borrowed
	postgres string                // URL
}

// lasting is a testing.TB for what outlives the test that needs it first.
type lasting struct{ testing.TB }

func (lasting) Context() context.Context { return context.Background() }

func (lasting) Cleanup(f func()) { shared.cleanups = append(shared.cleanups, f) }

func (lasting) Errorf(format string, args ...any) {
	shared.faults = append(shared.faults, fmt.Sprintf(format, args...))
}

// service is the one of an engine whose clock nobody moves.
func (p *process) service(t testing.TB, engine string) *service {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.services[engine] == nil {
		if p.services == nil {
			p.services = make(map[string]*service)
		}
		p.services[engine] = start(lasting{t}, setup{database: p.database(t, engine)})
	}
	return p.services[engine]
}

// borrow is a service of an engine whose clock is the test's own to move. Time only moves on, and each test has its own
// tasks, so that one after the other can use it.
func (p *process) borrow(t testing.TB, engine string) *service {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	var s *service
	if idle := p.movable[engine]; len(idle) > 0 {
		s, p.movable[engine] = idle[len(idle)-1], idle[:len(idle)-1]
	} else {
		s = start(lasting{t}, setup{database: p.database(t, engine)})
	}
	t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.movable == nil {
			p.movable = make(map[string][]*service)
		}
		p.movable[engine] = append(p.movable[engine], s)
	})
	return s
}

// inMemory is a database of a service's own.
const inMemory = "sqlite::memory:"

// database is where a service of the engine keeps its keys: on Postgres they share one database, each with its own
// clock, as a task is one test's alone.
func (p *process) database(t testing.TB, engine string) string {
	t.Helper()
	if engine == "sqlite" {
		return inMemory
	}
	if p.postgres == "" {
		p.postgres = pgtest.New(lasting{t})
	}
	return p.postgres
}

// postgresURL is the database that services on Postgres share.
func (p *process) postgresURL(t testing.TB) string {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.database(t, "postgres")
}

func (p *process) close() []string {
	for len(p.cleanups) > 0 {
		last := len(p.cleanups) - 1
		f := p.cleanups[last]
		p.cleanups = p.cleanups[:last]
		f()
	}
	return p.faults
}
