// Package pgtest gives tests a real Postgres: a fresh database in some 30 ms, on a server that is started once a test process.
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
//	func TestSomething(t *testing.T) {
//		url := pgtest.New(t) // migrated, empty, this test's own, dropped when the test ends
//	}
//
// The server is the first of these that works. None is a failure and never a skip: a test that did not run has proved nothing.
//
//  1. the one at IDEMSTORE_TEST_DATABASE_URL, as a user who may create databases. It keeps one template database a schema, for the next run.
//  2. a container of IDEMSTORE_TEST_POSTGRES_IMAGE (postgres:17-alpine). It is removed by [Main]; for one that survives a panic as well,
//     let testcontainers start its reaper: TESTCONTAINERS_RYUK_DISABLED=false.
//  3. the server programs of an installed PostgreSQL, also when the tests run as root.
//
// IDEMSTORE_TEST_POSTGRES=url, container or local allows only that one. A server that was asked for by name or by URL and fails is an error.
//
// With IDEMSTORE_TEST_PGBOUNCER=1 the URLs lead through a PgBouncer in transaction mode.
package pgtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// patience bounds every single thing that a test asks of the server.
const patience = time.Minute

// shared is the server of this test process.
var shared struct {
	promised atomic.Bool // somebody will stop it
	mu       sync.Mutex
	tried    bool
	server   *server
	err      error
}

// Main runs the tests of a package, stops the server if they needed one, and exits.
func Main(m *testing.M) { os.Exit(Wrap(m).Run()) }

// Runner is what testing.M does.
type Runner interface{ Run() int }

// Wrap returns m with the stopping of the server behind it, for those who take a Runner, such as goleak.VerifyTestMain.
func Wrap(m Runner) Runner {
	shared.promised.Store(true)
	return wrapped{m}
}

type wrapped struct{ Runner }

func (w wrapped) Run() int {
	code := w.Runner.Run()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil {
		return code
	}
	if err := shared.server.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest: stop the server:", err)
		code = max(code, 1)
	}
	shared.server = nil
	return code
}

// New returns the URL of a migrated database that is this test's own. It is dropped when the test ends, whoever is still connected.
func New(t testing.TB) string {
	t.Helper()
	s, name := database(t, (*server).clone)
	if s.pooler != nil {
		return s.pooler.before(databaseURL(s.url, name))
	}
	return databaseURL(s.url, name)
}

// Direct returns the URL of the same database past a pooler, for what a test asks of a session, or sets for one. It keeps the parameters.
func Direct(t testing.TB, given string) string {
	t.Helper()
	s, err := theServer()
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(given)
	if err != nil {
		t.Fatal(err)
	}
	direct, err := url.Parse(databaseURL(s.url, strings.TrimPrefix(u.Path, "/")))
	if err != nil {
		t.Fatal(err)
	}
	asked := direct.Query()
	for name, values := range u.Query() {
		if name != "sslmode" && name != execMode {
			asked[name] = values
		}
	}
	direct.RawQuery = asked.Encode()
	return direct.String()
}

// Empty returns the URL of a database without anything in it, for tests of the migrations. It never leads through a pooler: what keeps two
// migrations apart is a lock of the session's.
func Empty(t testing.TB) string {
	t.Helper()
	s, name := database(t, (*server).empty)
	return databaseURL(s.url, name)
}

func database(t testing.TB, create func(*server, context.Context) (string, error)) (*server, string) {
	t.Helper()
	s, err := theServer()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	name, err := create(s, ctx)
	if err != nil {
		t.Fatalf("pgtest: create a database: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.drop(ctx, name); err != nil {
			t.Errorf("pgtest: %v", err)
		}
	})
	return s, name
}

// theServer starts the shared server on first use. A failure stays: what did not start for one test will not for the next.
func theServer() (*server, error) {
	if !shared.promised.Load() {
		return nil, fmt.Errorf("pgtest: nobody would stop the server: the package needs func TestMain(m *testing.M) { pgtest.Main(m) }")
	}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !shared.tried {
		shared.tried = true
		shared.server, shared.err = environmentFromOS().find(context.Background())
		if shared.err == nil && wantsPooler() {
			shared.err = shared.server.pool(context.Background())
		}
	}
	return shared.server, shared.err
}
