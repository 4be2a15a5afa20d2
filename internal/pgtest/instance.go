package pgtest

import (
	"context"
	"testing"
)

// An Instance is a server of one test's own, to be stopped and started under the feet of what uses it. Unlike the shared server it keeps
// its promises: what it has committed is there after a crash.
type Instance struct {
	postmaster *postmaster
	database   string
}

// Server starts an Instance from installed programs, whatever the shared server is: a container cannot come back on the same port, and
// somebody's own server is not ours to kill. It goes when the test ends.
func Server(t testing.TB) *Instance {
	t.Helper()
	p, err := newPostmaster(t.Context())
	if err != nil {
		t.Fatalf("pgtest: start a server of the test's own (needs PostgreSQL's programs: scripts/install-test-deps.sh): %v", err)
	}
	t.Cleanup(func() {
		if err := p.destroy(); err != nil {
			t.Errorf("pgtest: remove the test's own server: %v", err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	name, err := (&server{url: p.url()}).empty(ctx)
	if err == nil {
		err = migrate(ctx, databaseURL(p.url(), name))
	}
	if err != nil {
		t.Fatalf("pgtest: create a database: %v", err)
	}
	return &Instance{postmaster: p, database: name}
}

// URL is of a migrated database, the same before and after a restart.
func (i *Instance) URL() string { return databaseURL(i.postmaster.url(), i.database) }

// Stop ends the server at once, as a crash would: connections break, and transactions that have not committed are lost.
func (i *Instance) Stop() error { return i.postmaster.stop() }

// Start brings a stopped server back on the same port with the same data, and returns when it answers.
func (i *Instance) Start() error { return i.postmaster.start(context.Background()) }
