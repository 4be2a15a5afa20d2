package store

import (
	"context"
	"io/fs"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/internal/pgtest"
	"github.com/idemstore/idemstore/migrations"
)

const (
	manyRows = 1_000_000

	// pageAtMost is generous: the machine has other work.
	pageAtMost = 20 * time.Second
)

// manyEntries are of three months. Nearly all are recorded, one in a hundred is open, and half of those are in doubt. The needles are the
// oldest.
const manyEntries = `
INSERT INTO entries (task_id, attempt, version, state, reservation_id, owner, fence, handler, request_hash, explicit, task_scope, late, doubts,
    lease_seconds, reserved_at, lease_until, dispatched_at, recorded_at, recorded_by, response_status, expires_at)
SELECT 'task-' || lpad(n::text, 7, '0'), 0, 1, state::entry_state, 'r-' || n, CASE WHEN n < 3 THEN 'needle' ELSE 'owner-' || n % 500 END, 1,
    CASE WHEN n < 3 THEN 'needle' ELSE 'handler-' || n % 20 END, '', false, false, false, (state = 'released' AND n % 7 = 0)::int, 60, at, at + lease,
    CASE WHEN state = 'dispatched' THEN at END, CASE WHEN state = 'recorded' THEN at END, CASE WHEN state = 'recorded' THEN 'a' END,
    CASE WHEN state = 'recorded' THEN 200 END, at + interval '1 year'
FROM (
    SELECT n, now() - (1 - n::float8 / $1::int) * interval '90 days' - interval '1 second' AS at,
        CASE WHEN n % 100 = 1 THEN 'reserved' WHEN n % 200 = 2 THEN 'dispatched' WHEN n % 50 = 3 THEN 'released' ELSE 'recorded' END AS state,
        CASE WHEN n % 200 < 100 THEN interval '1 minute' ELSE interval '100 days' END AS lease
    FROM generate_series(1, $1::int) AS n) AS rows`

// manyEvents are of the same time. Nearly all are replays.
const manyEvents = `
INSERT INTO events (at, id, fence, attempt, task_id, kind, handler, owner, token, request_id)
SELECT now() - (1 - n::float8 / $1::int) * interval '90 days' - interval '1 second', gen_random_uuid(), 1, 0, 'task-' || lpad((n / 3)::text, 7, '0'),
    CASE WHEN n < 3 THEN 'purged' WHEN n % 100 = 0 THEN 'taken_over' WHEN n % 1000 = 1 THEN 'duplicate_record' ELSE 'replayed' END,
    CASE WHEN n < 3 THEN 'needle' ELSE 'handler-' || n % 20 END, CASE WHEN n < 3 THEN 'needle' ELSE 'owner-' || n % 500 END, 'token-' || n % 5, ''
FROM generate_series(1, $1::int) AS n`

// firstMigration is all that there was at first.
func firstMigration(t *testing.T) fs.FS {
	t.Helper()
	text, err := fs.ReadFile(migrations.Postgres, "00001_init.sql")
	if err != nil {
		t.Fatal(err)
	}
	return fstest.MapFS{"00001_init.sql": {Data: text}}
}

// full is a database with very many rows, over which the latest migration was then applied.
func full(t *testing.T) *Postgres {
	t.Helper()
	databaseURL := pgtest.Empty(t)
	m := openMigrator(t, databaseURL)
	m.files = firstMigration(t)
	wantUp(t, m, "00001_init.sql")
	conn := session(t, databaseURL)
	must(t, conn, `ALTER TABLE entries SET (fillfactor = 100)`) // else they take gigabytes
	must(t, conn, `SELECT make_event_partitions(now() - interval '90 days', 14)`)
	other := session(t, databaseURL)
	for _, c := range []*pgx.Conn{conn, other} {
		must(t, c, `SET jit = off`) // takes longer than it saves, and not every server has what it needs
	}
	var both sync.WaitGroup
	both.Go(func() { must(t, other, manyEvents, manyRows) })
	must(t, conn, manyEntries, manyRows)
	both.Wait()
	m.files = migrations.Postgres
	wantUp(t, m, "00002_reads.sql")
	must(t, conn, `SET default_statistics_target = 10`)
	must(t, conn, `ANALYZE entries, events`)
	return openPG(t, databaseURL)
}

// explained asks for the plan of each statement before the statement itself.
type explained struct {
	*pgQuestions
	plans []string
}

func (x *explained) ask(ctx context.Context, s statement, read func(scanner) error) (time.Time, error) {
	if s.sql != "" {
		var plan strings.Builder
		explain := s
		explain.sql = "EXPLAIN " + s.sql
		_, err := x.pgQuestions.ask(ctx, explain, func(row scanner) error {
			var line string
			err := row.Scan(&line)
			plan.WriteString(line + "\n")
			return err
		})
		if err != nil {
			return time.Time{}, err
		}
		x.plans = append(x.plans, s.sql+"\n"+plan.String())
	}
	return x.pgQuestions.ask(ctx, s, read)
}

// byIndex is in the plan of every question, wholeTable in that of one that reads a big table as a whole, and sorted in that of a page which is
// not in the order of its index.
var (
	byIndex    = regexp.MustCompile(`Index (Only )?Scan`)
	wholeTable = regexp.MustCompile(`Seq Scan on (entries|events)`)
	sorted     = regexp.MustCompile(`(?m)^[ >-]*Sort +\(cost`) // an incremental one only sorts what was reserved at one moment
)

// took checks the plans of a question that has been answered, and how long it took.
func (x *explained) took(t *testing.T, what string, begun time.Time, mayNot ...*regexp.Regexp) {
	t.Helper()
	if d := time.Since(begun); d > pageAtMost {
		t.Errorf("%s took %v", what, d)
	}
	if len(x.plans) == 0 {
		t.Errorf("%s: nothing was planned", what)
	}
	for _, plan := range x.plans {
		for _, not := range mayNot {
			if not.MatchString(plan) {
				t.Errorf("%s: %v in\n%s", what, not, plan)
			}
		}
		if !byIndex.MatchString(plan) {
			t.Errorf("%s uses no index:\n%s", what, plan)
		}
	}
	x.plans = nil
}

// No question reads a big table as a whole or sorts its rows, whatever is asked for, on the first page or a later one.
func TestPostgresPlansOverMillions(t *testing.T) {
	t.Parallel()
	b := full(t)
	x := &explained{pgQuestions: b.questions}
	b.asker = x
	x.bound = time.Minute
	about := now(t, b)
	days := func(n int) time.Time { return about.AddDate(0, 0, n) }
	yes, no := true, false
	for what, q := range map[string]idem.EntryQuery{
		"all": {}, "reserved": {State: idem.Reserved}, "dispatched": {State: idem.Dispatched}, "recorded": {State: idem.Recorded},
		"released": {State: idem.Released}, "in doubt": {InDoubt: &yes}, "not in doubt": {InDoubt: &no},
		"in doubt though released": {InDoubt: &yes, State: idem.Released}, "in doubt of an owner": {InDoubt: &yes, Owner: "owner-2"},
		"a handler": {Handler: "handler-7"}, "a rare handler": {Handler: "needle"}, "an owner": {Owner: "owner-7"}, "no owner": {Owner: "x"},
		"an owner's holdings": {Owner: "needle", State: idem.Reserved}, "reserved before": {ReservedBefore: days(-40)},
		"a day":          {ReservedAfter: days(-40), ReservedBefore: days(-39), State: idem.Reserved},
		"recorded after": {RecordedAfter: days(-1)}, "recorded before": {RecordedBefore: days(-85)},
		"a task": {TaskID: "task-0000077"}, "what a task recorded": {TaskID: "task-0000077", State: idem.Recorded},
	} {
		found := 0
		for range 3 {
			begun := time.Now()
			p, err := b.Entries(t.Context(), q)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			x.took(t, "entries: "+what, begun, wholeTable, sorted)
			found += len(p.Entries)
			if q.From = p.Next; p.Next == nil {
				break
			}
		}
		if found == 0 && what != "no owner" {
			t.Errorf("entries: %s: none", what)
		}
	}
	for what, q := range map[string]idem.EventQuery{
		"all": {}, "oldest": {Oldest: true}, "replayed": {Kind: idem.EventReplayed}, "duplicates": {Kind: idem.EventDuplicateRecord},
		"oldest duplicates": {Kind: idem.EventDuplicateRecord, Oldest: true},
		"purged":            {Kind: idem.EventPurged}, "a task": {TaskID: "task-0000077"}, "a task's replays": {TaskID: "task-0000077", Kind: idem.EventReplayed},
		"a handler": {Handler: "handler-7"}, "a rare handler": {Handler: "needle"}, "an actor": {Actor: "owner-7"}, "a token": {Actor: "token-1"},
		"nobody": {Actor: "x"}, "before": {Before: days(-40)}, "oldest after": {After: days(-40), Oldest: true},
		"a day": {Before: days(-40), After: days(-41), Kind: idem.EventTakenOver, Handler: "handler-0"},
	} {
		found := 0
		for range 3 {
			begun := time.Now()
			p, err := b.Events(t.Context(), q)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			x.took(t, "events: "+what, begun, wholeTable, sorted)
			found += len(p.Events)
			if q.From = p.Next; p.Next == nil {
				break
			}
		}
		if found == 0 && what != "nobody" {
			t.Errorf("events: %s: none", what)
		}
	}
	begun := time.Now()
	if s, err := b.Standing(t.Context()); err != nil || s.Open == 0 || s.InDoubt == 0 || s.Oldest == nil {
		t.Errorf("standing: %+v, %v", s, err)
	}
	x.took(t, "standing", begun, wholeTable)
	for _, n := range []int{-1, -100} {
		begun = time.Now()
		if s, err := b.Stats(t.Context(), days(n), time.Time{}); err != nil || s.Totals.States[idem.Recorded] == 0 {
			t.Errorf("stats: %+v, %v", s, err)
		}
		x.took(t, "stats", begun, wholeTable)
	}
	begun = time.Now()
	if e, _, err := b.Entry(t.Context(), idem.Key{TaskID: "task-0000077"}); err != nil || e == nil {
		t.Errorf("entry: %+v, %v", e, err)
	}
	x.took(t, "an entry", begun, wholeTable, sorted)
}
