package store

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/internal/pgtest"
)

const week = 7 * 24 * time.Hour

// trail is a Postgres of which only the trail matters, in a time that the test moves.
type trail struct {
	t     *testing.T
	b     *Postgres
	shift *atomic.Int64
	url   string
}

func newTrail(t *testing.T) *trail {
	t.Helper()
	tr := &trail{t: t, url: pgtest.New(t), shift: new(atomic.Int64)}
	tr.b = openTest(t, tr.url, tr.shift).(*Postgres)
	return tr
}

func (tr *trail) pass(d time.Duration) { tr.shift.Add(int64(d)) }

// tell writes events of the present and returns the table that holds them.
func (tr *trail) tell(n int) string {
	tr.t.Helper()
	var changes []idem.Change
	for range n {
		e := reserved(fresh())
		event := happened(e.Key, idem.EventReplayed)
		event.At = event.At.Add(time.Duration(tr.shift.Load()))
		changes = append(changes, over(nil, e, event))
	}
	if _, _, err := tr.b.Swap(tr.t.Context(), changes); err != nil {
		tr.t.Fatalf("an event was refused: %v", err)
	}
	return ask[string](tr.t, session(tr.t, tr.url), `SELECT tableoid::regclass::text FROM events WHERE task_id = $1`, changes[0].Entry.TaskID)
}

func (tr *trail) upkeep() {
	tr.t.Helper()
	if err := tr.b.Upkeep(tr.t.Context()); err != nil {
		tr.t.Fatal(err)
	}
}

func (tr *trail) purge(retention time.Duration) SweptEvents {
	tr.t.Helper()
	swept, err := tr.b.PurgeEvents(tr.t.Context(), retention, false)
	if err != nil {
		tr.t.Fatal(err)
	}
	return swept
}

func (tr *trail) count() int { return countRows(tr.t, tr.url, `SELECT count(*) FROM events`) }

const inDefault = "events_default"

// After a month without the service the partitions of that month are there: none is missing, and the old ones go.
func TestTrailAfterAMonthOff(t *testing.T) {
	t.Parallel()
	tr := newTrail(t)
	first := tr.tell(3)
	tr.pass(30 * 24 * time.Hour)
	if got := tr.tell(3); got == inDefault || got == first {
		t.Errorf("after a month events are in %s, as a month ago in %s", got, first)
	}
	tr.upkeep()
	swept := tr.purge(2 * week)
	if len(swept.Weeks) < 2 || swept.Weeks[0] != first || tr.count() != 3 || swept.WeeksLag < 2*week || swept.WeeksLag > 4*week {
		t.Errorf("purged %+v, %d events are left, want the 3 of today", swept, tr.count())
	}
	for range 30 { // as far as there are partitions, day by day
		tr.pass(6 * 24 * time.Hour)
		if got := tr.tell(1); got == inDefault {
			t.Fatalf("a gap: an event of %v ahead is in no week", time.Duration(tr.shift.Load()))
		}
	}
}

// After more time than there were partitions for, the present week's events have no partition and will not get one. They
// are purged by their age all the same, and the weeks that follow are made.
func TestTrailAfterHalfAYearOff(t *testing.T) {
	t.Parallel()
	tr := newTrail(t)
	tr.pass(40 * week)
	if got := tr.tell(5); got != inDefault {
		t.Fatalf("events of a week that nobody made are in %s", got)
	}
	tr.upkeep()
	if got := tr.tell(5); got != inDefault {
		t.Errorf("the week's later events are in %s", got)
	}
	for range pgWeeksAhead - 1 {
		tr.pass(week)
		if got := tr.tell(1); got == inDefault {
			t.Fatalf("the week after %v has no partition", time.Duration(tr.shift.Load()))
		}
	}
	tr.upkeep()
	tr.pass(week)
	if got := tr.tell(1); got == inDefault {
		t.Error("the upkeep makes no partitions any more")
	}
	told := tr.count()
	if told != 10+pgWeeksAhead {
		t.Errorf("%d events are in the trail, want all %d", told, 10+pgWeeksAhead)
	}
	dry, err := tr.b.PurgeEvents(t.Context(), 20*week, true)
	if err != nil || dry.Deleted != 10 || tr.count() != told {
		t.Errorf("a dry run: %+v, %v, and %d events are left of %d", dry, err, tr.count(), told)
	}
	swept := tr.purge(20 * week)
	if swept.Deleted != 10 || swept.DeletedLag < 6*week || swept.DeletedLag > 8*week || !slices.Equal(swept.Weeks, dry.Weeks) {
		t.Errorf("purged %+v, want the 10 that had no partition, and the weeks as said: %v", swept, dry.Weeks)
	}
	if n := countRows(t, tr.url, `SELECT count(*) FROM events_default`); n != 0 {
		t.Errorf("%d events stay for ever", n)
	}
	if n := tr.count(); n < 20 || n > 22 {
		t.Errorf("%d weeks of events are left, want 20, and the one that is not over", n)
	}
}

// The clock jumps ahead by three months, and later back: nothing is refused, and nothing younger than its retention goes.
func TestTrailWhenTheClockJumps(t *testing.T) {
	t.Parallel()
	tr := newTrail(t)
	tr.tell(4)
	tr.pass(13 * week)
	if got := tr.tell(4); got == inDefault {
		t.Error("there is no partition in three months")
	}
	tr.upkeep()
	if swept := tr.purge(15 * week); len(swept.Weeks) > 0 || tr.count() != 8 {
		t.Errorf("%+v was purged before its time", swept)
	}
	if tr.purge(8 * week); tr.count() != 4 {
		t.Errorf("%d events are left, want the 4 young ones", tr.count())
	}
	tr.pass(-13 * week) // to a week that was dropped
	if got := tr.tell(4); got != inDefault {
		t.Errorf("events of a dropped week are in %s", got)
	}
	tr.upkeep()
	if got := tr.tell(1); got != inDefault || tr.count() != 9 {
		t.Errorf("one more is in %s, and there are %d", got, tr.count())
	}
	tr.pass(week)
	if got := tr.tell(1); got == inDefault {
		t.Error("the next week has no partition again")
	}
	tr.pass(8 * week)
	if swept := tr.purge(8 * week); swept.Deleted != 5 || tr.count() != 5 {
		t.Errorf("purged %+v, %d are left, want 5 and 5", swept, tr.count())
	}
}

// Whoever reads the trail for long holds the purge off, and nobody else: the purge gives up, and writers go on.
func TestPurgeOfEventsWaitsForNobody(t *testing.T) {
	t.Parallel()
	tr := newTrail(t)
	tr.tell(2)
	tr.pass(10 * week)
	reader := session(t, tr.url)
	must(t, reader, `BEGIN`)
	ask[int](t, reader, `SELECT count(*) FROM events`)

	var writes atomic.Int64
	var slowest atomic.Int64
	var writer sync.WaitGroup
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	writer.Go(func() {
		for ctx.Err() == nil {
			e := reserved(fresh())
			event := happened(e.Key, idem.EventReplayed)
			event.At = event.At.Add(10 * week)
			begun := time.Now()
			if _, _, err := tr.b.Swap(context.Background(), []idem.Change{over(nil, e, event)}); err != nil {
				t.Errorf("a write beside the purge: %v", err)
				return
			}
			slowest.Store(max(slowest.Load(), int64(time.Since(begun))))
			writes.Add(1)
		}
	})
	for range 3 {
		before := writes.Load()
		begun := time.Now()
		swept := tr.purge(2 * week)
		if took := time.Since(begun); len(swept.Weeks) > 0 || len(swept.Waiting) < 7 || took > 5*time.Second {
			t.Errorf("in %v, while somebody reads: %+v", took, swept)
		}
		until(t, "a write", func() bool { return writes.Load() > before })
	}
	stop()
	writer.Wait()
	if slow := time.Duration(slowest.Load()); slow > 2*time.Second {
		t.Errorf("a write took %v", slow)
	}
	must(t, reader, `COMMIT`)
	if swept := tr.purge(2 * week); len(swept.Waiting) > 0 || len(swept.Weeks) < 7 {
		t.Errorf("when nobody reads any more: %+v", swept)
	}
	if got := int64(tr.count()); got != writes.Load() {
		t.Errorf("%d events are left of the %d that were written meanwhile", got, writes.Load())
	}
}

// Replicas that purge the trail at once drop each week once and count each event once.
func TestPurgeOfEventsFromManyReplicas(t *testing.T) {
	t.Parallel()
	onEveryKeeper(t, func(k *keeper) {
		const told = 1200
		tell := func() {
			r := reserve(fresh(), "a")
			k.ask(r, record(r, "x"))
			for range told / 100 {
				var cmds []idem.Command
				for range 100 {
					cmds = append(cmds, replay(r.Key))
				}
				k.ask(cmds...)
			}
		}
		tell()
		if strings.HasPrefix(k.url, "postgres") { // as if there had been no partitions
			conn := session(k.t, k.url)
			must(k.t, conn, `WITH moved AS (DELETE FROM events RETURNING *) INSERT INTO events SELECT at - interval '300 days', id,
				fence, attempt, task_id, kind, handler, owner, token, request_id, detail, response_status, response_head, response_body FROM moved`)
		}
		k.pass(10 * week)
		var deleted, weeks, waiting atomic.Int64
		var all sync.WaitGroup
		for range 4 {
			p := k.replica()
			p.eventRetention = 2 * week
			p.ToldEvents = func(s SweptEvents) {
				deleted.Add(int64(s.Deleted))
				weeks.Add(int64(len(s.Weeks)))
				waiting.Add(int64(len(s.Waiting)))
			}
			all.Go(func() {
				if err := p.Events(k.t.Context()); err != nil {
					k.t.Error(err)
				}
			})
		}
		all.Wait()
		if deleted.Load() != told || countRows(k.t, k.url, "SELECT count(*) FROM events") != 0 {
			k.t.Errorf("%d events were counted, want %d", deleted.Load(), told)
		}
		if strings.HasPrefix(k.url, "postgres") {
			left := countRows(k.t, k.url, `SELECT count(*) FROM pg_inherits WHERE inhparent = 'events'::regclass`)
			if int64(left)+weeks.Load() != 28 || weeks.Load() == 0 && waiting.Load() == 0 {
				k.t.Errorf("%d partitions were counted as dropped and %d are left", weeks.Load(), left)
			}
		}
	})
}
