package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/internal/pgtest"
)

// outcome is what a swap in another goroutine came to.
type outcome struct {
	written []bool
	err     error
}

func swapAside(t *testing.T, b Backend, changes ...idem.Change) <-chan outcome {
	done := make(chan outcome, 1)
	ctx := t.Context()
	go func() {
		written, _, err := b.Swap(ctx, changes)
		done <- outcome{written, err}
	}()
	return done
}

// untilBlocked waits for the store to wait for a lock, and returns the process that does.
func untilBlocked(t *testing.T, conn *pgx.Conn) (pid int) {
	t.Helper()
	until(t, "a statement that waits", func() bool {
		pid = ask[int](t, conn, `
			SELECT coalesce(max(pid), 0) FROM pg_stat_activity
			WHERE application_name = 'idemstore' AND datname = current_database() AND wait_event_type = 'Lock'`)
		return pid > 0
	})
	return pid
}

// What a row is judged by must still hold when its lock was got, however long that took.
func TestPostgresWaitsForAnother(t *testing.T) {
	t.Parallel()
	key := func(e *idem.Entry) []any { return []any{e.TaskID} }
	for name, c := range map[string]struct {
		fresh bool   // the change is of a row that is not there
		block string // what another session does to the row meanwhile
		end   string
		want  bool
	}{
		"the row was locked, in time":                    {block: `SELECT FROM entries WHERE task_id = $1 FOR UPDATE`, end: "ROLLBACK", want: true},
		"the row was locked for too long":                {block: `SELECT FROM entries WHERE task_id = $1 FOR UPDATE`, end: "LATE ROLLBACK"},
		"the row was changed":                            {block: `UPDATE entries SET version = 5 WHERE task_id = $1`, end: "COMMIT"},
		"the row was changed, and too long":              {block: `UPDATE entries SET version = 5 WHERE task_id = $1`, end: "LATE ROLLBACK"},
		"the row was not changed in the end":             {block: `UPDATE entries SET version = 5 WHERE task_id = $1`, end: "ROLLBACK", want: true},
		"the row was deleted":                            {block: `DELETE FROM entries WHERE task_id = $1`, end: "COMMIT"},
		"the row was deleted, too late":                  {block: `DELETE FROM entries WHERE task_id = $1`, end: "LATE COMMIT"},
		"the row was inserted":                           {fresh: true, block: insertBare, end: "COMMIT"},
		"the row was not inserted in the end":            {fresh: true, block: insertBare, end: "ROLLBACK", want: true},
		"the row was not inserted, but it took too long": {fresh: true, block: insertBare, end: "LATE ROLLBACK"},
	} {
		for _, form := range []struct{ events, neighbours int }{{0, 0}, {0, 1}, {1, 1}} { // each is another statement
			t.Run(fmt.Sprintf("%s, %+v", name, form), func(t *testing.T) {
				t.Parallel()
				databaseURL := pgtest.New(t)
				b, conn, watch := openPG(t, databaseURL), session(t, databaseURL), session(t, databaseURL)
				old := reserved(fresh())
				n := *old
				n.Version++
				change := over(old, &n, slices.Repeat([]idem.Event{happened(old.Key, idem.EventReplayed)}, form.events)...)
				if c.fresh {
					change.Base = 0
				} else {
					swap(t, b, over(nil, old))
				}
				must(t, conn, `BEGIN`)
				must(t, conn, c.block, key(old)...)
				late := strings.HasPrefix(c.end, "LATE ")
				change.Before = now(t, b).Add(time.Hour)
				if late {
					change.Before = now(t, b).Add(200 * time.Millisecond)
				}
				changes := []idem.Change{change}
				if form.neighbours > 0 {
					changes = append(changes, over(nil, reserved(fresh())))
				}
				done := swapAside(t, b, changes...)
				untilBlocked(t, watch)
				if late {
					until(t, "the end of the time", func() bool { return !now(t, b).Before(change.Before) })
				}
				must(t, conn, strings.TrimPrefix(c.end, "LATE "))
				got := <-done
				if got.err != nil || got.written[0] != c.want || slices.Contains(got.written[1:], false) {
					t.Fatalf("got %v, %v; want %v and the neighbour", got.written, got.err, c.want)
				}
				if events := eventsOf(t, b, old.TaskID); len(events) > 0 != (c.want && form.events > 0) {
					t.Errorf("%d events", len(events))
				}
				after := loadOne(t, b, old.Key)
				if gone := strings.HasPrefix(c.block, "DELETE") || c.fresh && !c.want && c.end != "COMMIT"; (after == nil) != gone {
					t.Errorf("the row is %+v", after)
				}
				if changed := after != nil && after.Version == n.Version; changed != c.want {
					t.Errorf("the row is at version %d", after.Version)
				}
			})
		}
	}
}

const insertBare = `
	INSERT INTO entries (task_id, attempt, version, state, reservation_id, owner, fence, handler, request_hash, explicit, task_scope,
		lease_seconds, reserved_at, lease_until, late, doubts, expires_at)
	VALUES ($1, 0, 5, 'reserved', '', 'b', 1, '', '', false, false, 1, now(), now(), false, 0, now())`

// A row that stays locked is an error that wrote nothing, and soon enough for the caller to hear of it.
func TestPostgresRowStaysLocked(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.New(t)
	b, conn := openPG(t, databaseURL), session(t, databaseURL)
	old, neighbour := reserved(fresh()), reserved(idem.Key{TaskID: "0"})
	swap(t, b, over(nil, old))
	must(t, conn, `BEGIN`)
	must(t, conn, `SELECT FROM entries FOR UPDATE`)
	n := *old
	n.Version++
	_, _, err := b.Swap(t.Context(), []idem.Change{over(old, &n), over(nil, neighbour)})
	var pgErr *pgconn.PgError
	if !errors.Is(err, idem.ErrNotWritten) || !errors.As(err, &pgErr) || pgErr.Code != "55P03" {
		t.Fatalf("got %v, want %v by the lock's timeout", err, idem.ErrNotWritten)
	}
	if got := load(t, b, old.Key, neighbour.Key); len(got) != 1 || got[old.Key].Version != old.Version {
		t.Errorf("the rows are %+v", got)
	}
	must(t, conn, `ROLLBACK`)
	wantWritten(t, b, []idem.Change{over(old, &n), over(nil, neighbour)}, true, true)
}

// Rows are locked in the order of their keys, whatever the order of the changes: two replicas never hold what the other waits for.
func TestPostgresLocksInOrder(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.New(t)
	b, conn, watch := openPG(t, databaseURL), session(t, databaseURL), session(t, databaseURL)
	var changes []idem.Change
	for i := range 50 {
		e := reserved(idem.Key{TaskID: "t", Attempt: int32(i * 10)})
		swap(t, b, over(nil, e))
		n := *e
		n.Version++
		changes = append(changes, over(e, &n))
	}
	rand.Shuffle(len(changes), func(i, j int) { changes[i], changes[j] = changes[j], changes[i] })
	must(t, conn, `BEGIN`)
	must(t, conn, `SELECT FROM entries WHERE attempt = 100 FOR UPDATE`)
	done := swapAside(t, b, changes...)
	untilBlocked(t, watch)
	must(t, conn, `SELECT FROM entries WHERE attempt >= 100 FOR UPDATE NOWAIT`)
	must(t, conn, `COMMIT`)
	if got := <-done; got.err != nil || slices.Contains(got.written, false) {
		t.Errorf("got %v, %v", got.written, got.err)
	}
}

// The statement has succeeded and its commit fails.
func TestPostgresCommitFails(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.New(t)
	b, conn := openPG(t, databaseURL), session(t, databaseURL)
	must(t, conn, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''not today''; END'`)
	must(t, conn, `CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON entries DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()`)
	e := reserved(fresh())
	if _, _, err := b.Swap(t.Context(), []idem.Change{over(nil, e)}); !errors.Is(err, idem.ErrNotWritten) {
		t.Errorf("got %v, want %v", err, idem.ErrNotWritten)
	}
	if loadOne(t, b, e.Key) != nil {
		t.Error("it was written")
	}
}

func TestPostgresConnectionKilled(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.New(t)
	b, conn := openPG(t, databaseURL), session(t, databaseURL)
	old := reserved(fresh())
	swap(t, b, over(nil, old))
	n := *old
	n.Version++
	must(t, conn, `BEGIN`)
	must(t, conn, `SELECT FROM entries FOR UPDATE`)
	done := swapAside(t, b, over(old, &n))
	pid := untilBlocked(t, conn)
	if !ask[bool](t, conn, `SELECT pg_terminate_backend($1)`, pid) {
		t.Fatal("it was not killed")
	}
	if got := <-done; !errors.Is(got.err, idem.ErrNotWritten) {
		t.Errorf("killed before it was done: got %v, want %v", got.err, idem.ErrNotWritten)
	}
	must(t, conn, `ROLLBACK`)
	if got := loadOne(t, b, old.Key); got.Version != old.Version {
		t.Errorf("the row is at version %d", got.Version)
	}
	wantWritten(t, b, []idem.Change{over(old, &n)}, true)
}

// A caller that gives up knows nothing, and the next one is served.
func TestPostgresCallerGivesUp(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.New(t)
	b, conn := openPG(t, databaseURL), session(t, databaseURL)
	old := reserved(fresh())
	swap(t, b, over(nil, old))
	n := *old
	n.Version++
	must(t, conn, `BEGIN`)
	must(t, conn, `SELECT FROM entries FOR UPDATE`)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, _, err := b.Swap(ctx, []idem.Change{over(old, &n)})
		failed <- err
	}()
	untilBlocked(t, conn)
	cancel()
	if err := <-failed; err == nil || errors.Is(err, idem.ErrNotWritten) {
		t.Errorf("given up under way: got %v, want one that leaves it open", err)
	}
	if _, _, err := b.Swap(ctx, []idem.Change{over(old, &n)}); !errors.Is(err, idem.ErrNotWritten) {
		t.Errorf("given up before: got %v, want %v", err, idem.ErrNotWritten)
	}
	must(t, conn, `ROLLBACK`)
	wantWritten(t, b, []idem.Change{over(nil, reserved(fresh()))}, true)
}

// A connection that breaks while the answer is awaited leaves open what was written.
func TestPostgresAnswerIsLost(t *testing.T) {
	t.Parallel()
	direct := pgtest.New(t)
	way, databaseURL := cutOff(t, direct)
	b, check := openPG(t, with(databaseURL, "pool_max_conns", "1")), openPG(t, direct)
	swap(t, b, over(nil, reserved(fresh()))) // connected, and the statement is prepared
	for cut, written := range map[*atomic.Bool]bool{&way.answer: true, &way.ask: false} {
		e := reserved(fresh())
		cut.Store(true)
		_, _, err := b.Swap(t.Context(), []idem.Change{over(nil, e)})
		if err == nil || errors.Is(err, idem.ErrNotWritten) {
			t.Errorf("got %v, want one that leaves it open", err)
		}
		until(t, "what became of it", func() bool { return loadOne(t, check, e.Key) != nil == written })
		swap(t, b, over(nil, reserved(fresh())))
	}
}

func TestPostgresServerComesBack(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t) // past a pooler, which waits for a second before it tries again
	b := openPG(t, server.DirectURL())
	before := reserved(fresh())
	swap(t, b, over(nil, before))
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		down := reserved(fresh())
		if _, _, err := b.Swap(t.Context(), []idem.Change{over(nil, down)}); err == nil {
			t.Error("a stopped server took a change")
		}
		if _, _, err := b.Load(t.Context(), []idem.Key{down.Key}); err == nil {
			t.Error("a stopped server was read")
		}
	}
	if _, _, err := b.Swap(t.Context(), []idem.Change{over(nil, reserved(fresh()))}); !errors.Is(err, idem.ErrNotWritten) {
		t.Errorf("nobody to connect to: got %v, want %v", err, idem.ErrNotWritten)
	}
	if err := b.Ready(t.Context()); err == nil {
		t.Error("ready without a server")
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	swap(t, b, over(nil, reserved(fresh())))
	if err := b.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	wantEntry(t, loadOne(t, b, before.Key), before)
}

// After a failover the sessions with the old primary only read. They are given up, so that others find the new one.
func TestPostgresReadOnly(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.Direct(t, pgtest.New(t)) // a pooler's sessions outlive the change of a database's setting
	conn := session(t, databaseURL)
	readOnly := func(to string) {
		must(t, conn, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = `+to+`', current_database()); END $$`)
	}
	readOnly("on")
	b := openPG(t, databaseURL)
	e := reserved(fresh())
	if loadOne(t, b, e.Key) != nil {
		t.Error("something was there")
	}
	if _, _, err := b.Swap(t.Context(), []idem.Change{over(nil, e)}); !errors.Is(err, idem.ErrNotWritten) {
		t.Errorf("got %v, want %v", err, idem.ErrNotWritten)
	}
	must(t, conn, `SET default_transaction_read_only = off`)
	readOnly("off")
	wantWritten(t, b, []idem.Change{over(nil, e)}, true)

	readOnly("on")
	b = openPG(t, databaseURL)
	if err := b.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("ready: %v", err)
	}
	readOnly("off")
	if err := b.Ready(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestCertainlyNotWritten(t *testing.T) {
	t.Parallel()
	fault := func(severity, code string) error {
		return fmt.Errorf("swap: %w", &pgconn.PgError{SeverityUnlocalized: severity, Code: code})
	}
	for _, c := range []struct {
		err       error
		completed bool
		want      bool
	}{
		{err: fault("ERROR", "55P03"), want: true},                  // lock_not_available
		{err: fault("ERROR", "57014"), want: true},                  // query_canceled, by statement_timeout
		{err: fault("ERROR", "53100"), want: true},                  // disk_full
		{err: fault("ERROR", "25006"), want: true},                  // read_only_sql_transaction
		{err: fault("ERROR", "40001"), want: true},                  // serialization_failure
		{err: fault("ERROR", "40P01"), want: true},                  // deadlock_detected
		{err: fault("ERROR", "40001"), completed: true, want: true}, // at commit, which rolled back
		{err: fault("ERROR", "40003")},                              // statement_completion_unknown
		{err: fault("ERROR", "XXA00")},                              // CockroachDB: the same
		{err: fault("ERROR", "08006")},                              // connection_failure, of a pooler's connection
		{err: fault("FATAL", "08P01")},                              // PgBouncer: server conn crashed?
		{err: fault("FATAL", "57P01"), want: true},                  // admin_shutdown
		{err: fault("FATAL", "57P01"), completed: true},
		{err: fault("PANIC", "53100"), completed: true},
		{err: fault("PANIC", "53100")},
		{err: io.ErrUnexpectedEOF},
		{err: context.DeadlineExceeded},
	} {
		if got := certainlyNotWritten(c.err, c.completed); got != c.want {
			t.Errorf("%v, completed %v: got %v, want %v", c.err, c.completed, got, c.want)
		}
	}
}
