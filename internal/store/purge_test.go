package store

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idemstore/idemstore/internal/idem"
)

// sweepAll sweeps the whole table once, and more where tables are so small that one step is all.
func sweepAll(t *testing.T, p *Purger) (deleted int) {
	t.Helper()
	for steps := 1; steps > 0; steps-- {
		swept, err := p.Step(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if deleted == 0 && steps == 1 {
			steps = swept.Steps
		}
		deleted += swept.Deleted
	}
	return deleted
}

// Entries, keys in doubt and released keys leave by their own age, nothing else does, and the end of a doubt is told.
func TestPurge(t *testing.T) {
	t.Parallel()
	onEveryKeeper(t, func(k *keeper) {
		p := NewPurger(k.backend, k, 90*24*time.Hour)
		const each = 40
		var recorded, doubtful, live, let []*idem.Reserve
		for i := range each {
			a, b, c, d := reserve(fresh(), "a"), reserve(fresh(), "b"), reserve(fresh(), "c"), reserve(fresh(), "d")
			c.Explicit = i%2 == 0
			k.want(k.ask(a, record(a, "x"), b, d, &idem.Release{Call: callOn(d.Key), ReservationID: d.ReservationID}),
				idem.CodeReserved, idem.CodeRecorded, idem.CodeReserved, idem.CodeReserved, idem.CodeReleased)
			recorded, doubtful, live, let = append(recorded, a), append(doubtful, b), append(live, c), append(let, d)
		}
		if n := sweepAll(k.t, p); n != 0 {
			t.Errorf("%d entries were deleted before their time", n)
		}
		k.pass(idem.DefaultPolicy.Retention + time.Second)
		if n := sweepAll(k.t, p); n != 2*each {
			k.t.Errorf("deleted %d entries, want the %d recorded and the %d released", n, each, each)
		}
		k.want(k.ask(replay(doubtful[0].Key)), idem.CodeInDoubt)
		for _, r := range live {
			k.want(k.ask(r), idem.CodeReserved)
		}
		k.pass(idem.DefaultPolicy.InDoubtRetention - time.Minute)
		if n := sweepAll(k.t, p); n != 0 {
			k.t.Errorf("%d: a key in doubt must be told of before it goes", n)
		}
		k.pass(2 * time.Hour) // the memory of those that were told ends
		sweepAll(k.t, p)
		for _, r := range [][]*idem.Reserve{recorded, doubtful, let} {
			k.want(k.ask(replay(r[0].Key)), idem.CodeNotFound)
		}
		if n := countRows(k.t, k.url, "SELECT count(*) FROM entries"); n > each {
			k.t.Errorf("%d rows are left, want the %d that are not old enough at the most", n, each)
		}
		if n := countRows(k.t, k.url, "SELECT count(*) FROM events WHERE kind = 'purged'"); n < each {
			k.t.Errorf("%d doubts ended by retention in the trail, want %d", n, each)
		}
	})
}

// Replicas that purge at once share the work, and those that serve meanwhile notice nothing.
func TestPurgeFromManyReplicasUnderLoad(t *testing.T) {
	t.Parallel()
	onEveryKeeper(t, func(k *keeper) {
		const entries = 3000
		var cmds []idem.Command
		for range entries {
			r := reserve(fresh(), "a")
			cmds = append(cmds, r, record(r, "x"))
		}
		for len(cmds) > 0 {
			n := min(500, len(cmds))
			k.ask(cmds[:n]...)
			cmds = cmds[n:]
		}
		k.pass(idem.DefaultPolicy.Retention + time.Second)
		var purgers, load sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		for range 3 {
			purgers.Go(func() {
				p := NewPurger(k.backend, k, 90*24*time.Hour)
				p.Run(ctx, func(err error) { k.t.Errorf("purge: %v", err) })
			})
		}
		for w := range 4 {
			load.Go(func() {
				for range 50 {
					r := reserve(fresh(), fmt.Sprint("w", w))
					for _, res := range k.Do(ctx, r, record(r, "y")) {
						if res.Err != nil {
							k.t.Errorf("under the purge: %v", res.Err)
						}
					}
				}
			})
		}
		load.Wait()
		deadline := time.Now().Add(time.Minute)
		for countRows(k.t, k.url, "SELECT count(*) FROM entries") > 200 {
			if time.Now().After(deadline) {
				k.t.Fatal("it does not come to an end")
			}
		}
		stop()
		purgers.Wait()
	})
}

func TestPurgeOfEvents(t *testing.T) {
	t.Parallel()
	onEveryKeeper(t, func(k *keeper) {
		retention := 30 * 24 * time.Hour
		p := NewPurger(k.backend, k, retention)
		tell := func() {
			r := reserve(fresh(), "a")
			k.want(k.ask(r, record(r, "x"), replay(r.Key)), idem.CodeReserved, idem.CodeRecorded, idem.CodeRecorded)
		}
		tell()
		if err := p.Events(t.Context()); err != nil {
			t.Fatal(err)
		}
		const count = "SELECT count(*) FROM events"
		if n := countRows(k.t, k.url, count); n != 1 {
			k.t.Errorf("%d events, want 1", n)
		}
		k.pass(retention + 8*24*time.Hour) // by the week
		tell()
		if err := p.Events(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := countRows(k.t, k.url, count); n != 1 {
			k.t.Errorf("%d events are left, want the young one", n)
		}
		tell() // into a table of which a part was dropped
	})
}

// countRows asks the database itself.
func countRows(t *testing.T, url, query string) int {
	t.Helper()
	if path, ok := strings.CutPrefix(url, "sqlite:"); ok {
		db, err := sql.Open("sqlite3", "file:"+path+"?_pragma=busy_timeout(10000)")
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		var n int
		if err := db.QueryRowContext(context.Background(), query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var n int
	if err := conn.QueryRow(context.Background(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
