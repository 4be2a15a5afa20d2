package store

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idemstore/idemstore/internal/idem"
)

const events90 = 90 * 24 * time.Hour

// whole sweeps the whole table once.
func whole(t *testing.T, p *Purger, dry bool) Purged {
	t.Helper()
	purged, err := p.Whole(t.Context(), dry, func(float64, Purged) {})
	if err != nil {
		t.Error(err)
	}
	return purged
}

// share takes as many steps of the shared sweep as there are.
func share(t *testing.T, p *Purger) {
	t.Helper()
	for i, steps := 0, 1; i < steps; i++ {
		swept, err := p.Step(t.Context())
		if err != nil {
			t.Error(err)
		}
		steps = swept.Steps
	}
}

// replica is a purger with a store and a keeper of its own, as another process has.
func (k *keeper) replica() *Purger {
	b := openTest(k.t, k.url, k.shift)
	batcher := NewBatcher(b, idem.DefaultPolicy, Lanes(b))
	k.t.Cleanup(batcher.Close)
	return NewPurger(b, batcher, events90)
}

// hear lets the keeper hear the store's time, after the test has moved it.
func (k *keeper) hear() {
	k.t.Helper()
	k.want(k.ask(replay(fresh())), idem.CodeNotFound)
}

// Replicas sweep at once, by the shared place and over the whole table: each entry is deleted once, and the end of each
// doubt is told once, with its last holder's name.
func TestPurgersShareTheWork(t *testing.T) {
	t.Parallel()
	onEveryKeeper(t, func(k *keeper) {
		const entries, doubts = 1500, 60
		var cmds []idem.Command
		for range entries {
			r := reserve(fresh(), "a")
			cmds = append(cmds, r, record(r, "x"))
		}
		holders := make(map[idem.Key]string)
		for range doubts {
			r := reserve(fresh(), "first")
			cmds = append(cmds, r)
			holders[r.Key] = "first"
		}
		k.ask(cmds...)
		k.pass(time.Minute)
		for key := range holders {
			if key.TaskID[0] < '8' {
				over := reserve(key, "second")
				over.Takeovers = []idem.Takeover{{Fence: 1}}
				k.want(k.ask(over), idem.CodeReserved)
				holders[key] = "second"
			}
		}
		k.pass(idem.DefaultPolicy.InDoubtRetention + time.Hour)

		var deleted, ended atomic.Int64
		var all sync.WaitGroup
		for i := range 4 {
			p := k.replica()
			p.Told = func(s Swept) {
				deleted.Add(int64(s.Deleted))
				ended.Add(int64(s.Ended))
			}
			all.Go(func() {
				if i%2 == 0 {
					share(k.t, p)
				}
				whole(k.t, p, false)
			})
		}
		all.Wait()
		if deleted.Load() != entries || ended.Load() != doubts {
			k.t.Errorf("%d entries and %d doubts were counted, want %d and %d", deleted.Load(), ended.Load(), entries, doubts)
		}
		if n := countRows(k.t, k.url, `SELECT count(*) FROM entries WHERE state <> 'absent'`); n != 0 {
			k.t.Errorf("%d entries are left", n)
		}
		for key, holder := range holders {
			var purged []idem.Event
			for _, e := range eventsOf(k.t, k.backend, key.TaskID) {
				if e.Kind == idem.EventPurged {
					purged = append(purged, e)
				}
			}
			if len(purged) != 1 || purged[0].Owner != holder {
				k.t.Errorf("%s, last held by %s: told %+v", key, holder, purged)
			}
		}
	})
}

// What is reserved and recorded anew while it is being purged stays.
func TestPurgeLosesNothingLive(t *testing.T) {
	t.Parallel()
	onEveryKeeper(t, func(k *keeper) {
		const keys = 400
		var old []idem.Key
		var cmds []idem.Command
		for i := range keys {
			r := reserve(fresh(), "a")
			cmds = append(cmds, r)
			if i%4 > 0 { // the others end in doubt
				cmds = append(cmds, record(r, "old"))
			}
			old = append(old, r.Key)
		}
		k.ask(cmds...)
		k.pass(idem.DefaultPolicy.InDoubtRetention + time.Hour)
		k.hear()

		ctx, stop := context.WithCancel(context.WithoutCancel(k.t.Context()))
		var purgers, load sync.WaitGroup
		for range 3 {
			p := k.replica()
			purgers.Go(func() {
				for ctx.Err() == nil {
					whole(k.t, p, false)
					rest(ctx, sweepPause)
				}
			})
		}
		const workers = 4
		for w := range workers {
			load.Go(func() {
				for i := w; i < keys; i += workers {
					r := reserve(old[i], fmt.Sprint("w", w))
					for j, cmd := range []idem.Command{r, record(r, "new")} {
						res := k.Do(ctx, cmd)[0]
						for until := time.Now().Add(time.Minute); res.Err != nil && time.Now().Before(until); { // too slow for once: repeating converges
							res = k.Do(ctx, cmd)[0]
						}
						if want := []idem.Code{idem.CodeReserved, idem.CodeRecorded}[j]; res.Err != nil || res.Outcome.Code != want {
							k.t.Errorf("under the purge: %v %v, want %s", res.Outcome.Code, res.Err, want)
						}
					}
				}
			})
		}
		load.Wait()
		stop()
		purgers.Wait()
		for _, key := range old {
			out := outcomes(k.t, k.another(nil).Do(k.t.Context(), replay(key)))
			k.want(out, idem.CodeRecorded)
			if got := out[0].Entry.Response; !got.Equal(reply("new")) {
				k.t.Errorf("%s: replayed %s", key, got.Body)
			}
		}
	})
}

// A dry run says what the next run does, and leaves everything as it is.
func TestPurgeDry(t *testing.T) {
	t.Parallel()
	onEveryKeeper(t, func(k *keeper) {
		p := NewPurger(k.backend, k, 60*24*time.Hour)
		events := 0
		p.ToldEvents = func(SweptEvents) { events++ }
		var cmds []idem.Command
		for range 30 {
			a, b := reserve(fresh(), "a"), reserve(fresh(), "b")
			cmds = append(cmds, a, b, record(a, "x"), replay(a.Key))
		}
		k.ask(cmds...)
		if got := whole(k.t, p, true); got.Entries+got.InDoubt+got.Events.Deleted+len(got.Events.Weeks) != 0 || !got.Whole {
			k.t.Errorf("too early: %+v", got)
		}
		k.pass(idem.DefaultPolicy.InDoubtRetention + time.Hour)
		rows := func() (n [3]int) {
			for i, sql := range []string{"SELECT count(*) FROM entries", "SELECT count(*) FROM entries WHERE state = 'absent'", "SELECT count(*) FROM events"} {
				n[i] = countRows(k.t, k.url, sql)
			}
			return n
		}
		before := rows()
		p.Told = func(Swept) { k.t.Error("a dry run was told of as if it were one") }
		dry := whole(k.t, p, true)
		if got := rows(); got != before {
			k.t.Errorf("the dry run changed something: %v, before %v", got, before)
		}
		p.Told = nil
		wet := whole(k.t, p, false)
		if events != 1 {
			k.t.Errorf("of %d purges of the trail was told, want the one that was none of the dry runs", events)
		}
		for _, got := range []Purged{dry, wet} {
			if got.Entries != 30 || got.InDoubt != 30 || got.Events.Deleted == 0 && len(got.Events.Weeks) == 0 {
				k.t.Errorf("want 30, 30 and the events: %+v", got)
			}
			days := func(d time.Duration) int { return int(d.Hours() / 24) }
			if days(got.EntriesLag) != 76 || days(got.InDoubtLag) != 0 || days(got.Events.DeletedLag+got.Events.WeeksLag) < 30 {
				k.t.Errorf("past their retention by: %+v", got)
			}
		}
		if fmt.Sprint(dry.Events.Weeks) != fmt.Sprint(wet.Events.Weeks) || dry.Events.Deleted != wet.Events.Deleted {
			k.t.Errorf("events: said %+v, done %+v", dry.Events, wet.Events)
		}
		if got := rows(); got[0] != got[1] || got[2] != 30 {
			k.t.Errorf("left: %v, want only what remembers, and 30 ends of doubts", got)
		}
	})
}

// A step is bounded by the place of the rows, and its transactions by what is deleted.
func TestPurgeInShortTransactions(t *testing.T) {
	t.Parallel()
	onEveryKeeper(t, func(k *keeper) {
		const rows = 8800
		body := make([]byte, 3000)
		var changes []idem.Change
		for range rows {
			changes = append(changes, over(nil, recorded(reserved(fresh()), &idem.Response{Status: 200, HasBody: true, Body: body})))
		}
		for part := range 8 {
			if _, _, err := k.backend.Swap(k.t.Context(), changes[part*rows/8:(part+1)*rows/8]); err != nil {
				k.t.Fatal(err)
			}
		}
		k.pass(15 * 24 * time.Hour)
		swept, err := k.backend.SweepFrom(k.t.Context(), 0, false)
		if err != nil || swept.Deleted == 0 || swept.Deleted >= rows || swept.Next == 0 || swept.Steps < 2 {
			k.t.Errorf("a step: %+v, %v", swept, err)
		}

		const few = 3
		left := rows - swept.Deleted
		var n int
		switch b := k.backend.(type) {
		case *Postgres:
			args := append(pgPart(swept.Next, -b.opts.shift()), few*len(body))
			_, err = b.send(k.t.Context(), pgSweep, args, func(rows pgx.Rows) error { return rows.Scan(&n, nil, nil) })
			b.purgeBytes = int64(40 * len(body))
		case *SQLite:
			b.purgeBytes = int64(few * len(body))
			swept, err = b.SweepFrom(k.t.Context(), swept.Next, false)
			n = swept.Deleted
			b.purgeBytes = int64(40 * len(body))
		}
		if n != few || err != nil {
			k.t.Errorf("one transaction deleted %d rows (%v), want no more than the bytes allow", n, err)
		}
		p := NewPurger(k.backend, k, events90)
		if got := whole(k.t, p, false); got.Entries != left-n || countRows(k.t, k.url, "SELECT count(*) FROM entries") != 0 {
			k.t.Errorf("the rest: %+v, want %d entries", got, left-n)
		}
	})
}

// A purge that is interrupted stops between two transactions, and says what it did.
func TestPurgeInterrupted(t *testing.T) {
	t.Parallel()
	onEveryKeeper(t, func(k *keeper) {
		ctx, cancel := context.WithCancel(k.t.Context())
		r := reserve(fresh(), "a")
		k.ask(r, record(r, "x"), replay(r.Key))
		k.pass(2 * events90)
		p := NewPurger(k.backend, k, events90)
		got, err := p.Whole(ctx, false, func(part float64, sofar Purged) {
			cancel()
			if part != 1 || sofar.Entries != 1 {
				k.t.Errorf("progress: %v, %+v", part, sofar)
			}
		})
		if err == nil || got.Whole || got.Entries != 1 || got.Events.Deleted+len(got.Events.Weeks) > 0 {
			k.t.Errorf("interrupted: %+v, %v", got, err)
		}
	})
}

// How far the purge is behind is what it met in about the last sweep, also when a step finds nothing.
func TestPurgeBehind(t *testing.T) {
	t.Parallel()
	onEveryKeeper(t, func(k *keeper) {
		r := reserve(fresh(), "a")
		k.ask(r, record(r, "x"))
		p := NewPurger(k.backend, k, events90)
		k.pass(idem.DefaultPolicy.Retention + 3*time.Hour)
		for i, want := range []Swept{{Deleted: 1, Lag: 3 * time.Hour, Behind: 3 * time.Hour}, {Behind: 3 * time.Hour}, {Behind: 3 * time.Hour}, {}} {
			got, err := p.Step(k.t.Context())
			if err != nil || got.Deleted != want.Deleted || got.Lag.Round(time.Hour) != want.Lag || got.Behind.Round(time.Hour) != want.Behind {
				k.t.Errorf("step %d: %+v, %v; want %+v", i, got, err, want)
			}
			if i > 0 {
				p.turned = p.turned.Add(-2 * sweepTime)
			}
		}
	})
}
