package store

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/internal/pgtest"
)

// A PgBouncer outlives those who hang up while their questions are answered, and everybody else is served through it.
func TestPostgresPoolerOutlivesWhoHangsUp(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	b := openTest(t, server.PoolerURL(t), new(atomic.Int64)).(*Postgres)
	conn, watch := sessionAt(t, server.DirectURL()), sessionAt(t, server.DirectURL())
	for range 5 {
		must(t, conn, `BEGIN`)
		must(t, conn, `LOCK TABLE events IN ACCESS EXCLUSIVE MODE`)
		ctx, hangUp := context.WithCancel(t.Context())
		var asking sync.WaitGroup
		for range pgReadConns {
			asking.Go(func() {
				if _, err := b.Events(ctx, idem.EventQuery{}); err == nil {
					t.Error("a locked trail was read")
				}
			})
		}
		until(t, "all readers wait", func() bool { return ask[int](t, watch, waiting) == pgReadConns })
		hangUp()
		asking.Wait()
		must(t, conn, `COMMIT`)
		wantWritten(t, b, []idem.Change{over(nil, reserved(fresh()))}, true)
	}
	if _, err := b.Events(t.Context(), idem.EventQuery{}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// A standby may be behind, so nothing is answered from what it knows, whichever way a connection came to lead to it.
func TestPostgresStandbyAnswersNothing(t *testing.T) {
	t.Parallel()
	primary := pgtest.Server(t)
	standby := primary.Standby(t)
	b := openTest(t, standby.URL(), new(atomic.Int64)).(*Postgres)
	e := reserved(fresh())
	swap(t, openTest(t, primary.DirectURL(), new(atomic.Int64)), over(nil, e))
	if _, _, err := b.Load(t.Context(), []idem.Key{e.Key}); !errors.Is(err, errStandby) {
		t.Errorf("load: got %v, want %v", err, errStandby)
	}
	if _, _, err := b.Swap(t.Context(), []idem.Change{over(nil, reserved(fresh()))}); !errors.Is(err, errStandby) || !errors.Is(err, idem.ErrNotWritten) {
		t.Errorf("swap: got %v, want %v", err, errStandby)
	}
	if _, err := b.Events(t.Context(), idem.EventQuery{}); !errors.Is(err, errStandby) || !errors.Is(err, idem.ErrUnavailable) {
		t.Errorf("events: got %v, want %v", err, errStandby)
	}
	if err := b.Ready(t.Context()); !errors.Is(err, errStandby) {
		t.Errorf("ready: got %v, want %v", err, errStandby)
	}
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantEntry(t, loadOne(t, b, e.Key), e)
	wantWritten(t, b, []idem.Change{over(nil, reserved(fresh()))}, true)
	if _, err := b.Events(t.Context(), idem.EventQuery{}); err != nil {
		t.Error(err)
	}
}

// A pooler that has no server to give takes nothing: that is known, and not left open.
func TestPostgresPoolerWithoutAServer(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	b := openTest(t, server.PoolerURL(t), new(atomic.Int64))
	swap(t, b, over(nil, reserved(fresh())))
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	refused := func() error {
		_, _, err := b.Swap(t.Context(), []idem.Change{over(nil, reserved(fresh()))})
		return err
	}
	until(t, "the pooler says that it has no server", func() bool {
		err := refused()
		return errors.Is(err, idem.ErrNotWritten) && strings.Contains(err.Error(), "server login has been failing")
	})
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "changes are taken again", func() bool { return refused() == nil })
}
