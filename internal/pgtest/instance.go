package pgtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// An Instance is a server of one test's own, to be stopped and started under the feet of what uses it. Unlike the shared server it keeps
// its promises: what it has committed is there after a crash.
type Instance struct {
	postmaster *postmaster
	database   string
	url        string // that tests are given
}

// Server starts an Instance from installed programs, whatever the shared server is: a container cannot come back on the same port, and
// somebody's own server is not ours to kill. It goes when the test ends.
func Server(t testing.TB) *Instance {
	t.Helper()
	p, err := newPostmaster(t.Context())
	if err != nil {
		t.Fatalf("pgtest: start a server of the test's own (needs PostgreSQL's programs: scripts/install-test-deps.sh): %v", err)
	}
	destroyed(t, p)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	name, err := (&server{url: p.url()}).empty(ctx)
	if err == nil {
		err = migrate(ctx, databaseURL(p.url(), name))
	}
	if err != nil {
		t.Fatalf("pgtest: create a database: %v", err)
	}
	i := &Instance{postmaster: p, database: name, url: databaseURL(p.url(), name)}
	if wantsPooler() {
		i.url = i.PoolerURL(t)
	}
	return i
}

// destroyed takes away with the test what was started for it.
func destroyed(t testing.TB, p interface{ destroy() error }) {
	t.Helper()
	t.Cleanup(func() {
		if err := p.destroy(); err != nil {
			t.Errorf("pgtest: remove what the test had of its own: %v", err)
		}
	})
}

// URL is of a migrated database, the same before and after a restart.
func (i *Instance) URL() string { return i.url }

// DirectURL is of the same database, past a pooler.
func (i *Instance) DirectURL() string { return databaseURL(i.postmaster.url(), i.database) }

// PoolerURL is of the same database, through a PgBouncer that this starts. It stays when the server goes.
func (i *Instance) PoolerURL(t testing.TB) string {
	t.Helper()
	p, err := newPooler(t.Context(), i.postmaster.url())
	if err != nil {
		t.Fatalf("pgtest: start a PgBouncer: %v", err)
	}
	destroyed(t, p)
	return p.before(i.DirectURL())
}

// Stop ends the server at once, as a crash would: connections break, and transactions that have not committed are lost.
func (i *Instance) Stop() error { return i.postmaster.crash() }

// Kill ends the server by SIGKILL, which leaves its sessions to find out by themselves.
func (i *Instance) Kill() error { return i.postmaster.stop(syscall.SIGKILL) }

// Shutdown ends the server as an operator would: sessions are ended, and standbys get all that was committed.
func (i *Instance) Shutdown() error { return i.postmaster.stop(syscall.SIGINT) }

// Start brings a stopped server back on the same port with the same data, and returns when it answers.
func (i *Instance) Start() error {
	deadline := time.Now().Add(startPatience)
	for {
		err := i.postmaster.start(context.Background())
		// After Kill it exits again until those that were left behind have seen that they were.
		if !errors.Is(err, errExited) || time.Now().After(deadline) {
			return err
		}
		<-time.After(50 * time.Millisecond)
	}
}

// Log is what the server has written to its log so far, in all its lives.
func (i *Instance) Log() ([]byte, error) { return os.ReadFile(filepath.Join(i.postmaster.dir, "log")) }
