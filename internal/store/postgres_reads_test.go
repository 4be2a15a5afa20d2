package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/internal/pgtest"
)

// lockedOut holds a table so that nobody can read it, until the returned function is called.
func lockedOut(t *testing.T, databaseURL, table string) (release func()) {
	t.Helper()
	conn := session(t, databaseURL)
	must(t, conn, `BEGIN`)
	must(t, conn, `LOCK TABLE `+pgx.Identifier{table}.Sanitize()+` IN ACCESS EXCLUSIVE MODE`)
	return func() { must(t, conn, `COMMIT`) }
}

// waiting is how many statements of the readers wait for a lock.
const waiting = `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'idemstore-read' AND wait_event_type = 'Lock' AND datname = current_database()`

// Questions that do not come to an end take their own connections, and nothing from the hot path.
func TestPostgresQuestionsLeaveTheHotPathAlone(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.New(t)
	b := openTest(t, with(databaseURL, "pool_max_conns", "1"), new(atomic.Int64)).(*Postgres)
	conn := session(t, databaseURL)
	release := lockedOut(t, databaseURL, "events")
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	for range 3 * pgReadConns {
		asking.Go(func() {
			if _, err := b.Events(ctx, idem.EventQuery{}); !errors.Is(err, idem.ErrUnavailable) || !errors.Is(err, context.Canceled) {
				t.Errorf("of one that hung up: %v", err)
			}
		})
	}
	until(t, "all readers wait", func() bool { return ask[int](t, conn, waiting) == pgReadConns })
	for range 20 {
		e := reserved(fresh())
		swap(t, b, over(nil, e))
		wantEntry(t, loadOne(t, b, e.Key), e)
	}
	if n := ask[int](t, conn, waiting); n != pgReadConns {
		t.Errorf("%d questions are under way, want %d", n, pgReadConns)
	}
	cancel()
	asking.Wait()
	until(t, "those who hung up have left no question behind", func() bool { return ask[int](t, conn, waiting) == 0 })
	release()
	if _, err := b.Events(t.Context(), idem.EventQuery{}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// A question that takes longer than it may ends, says so, and can be asked again.
func TestPostgresQuestionThatIsTooSlow(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.Direct(t, pgtest.New(t)) // prepared statements are among the ways
	for _, mode := range []string{"cache_statement", "exec", "simple_protocol"} {
		b := openPG(t, with(databaseURL, "default_query_exec_mode", mode))
		b.questions.bound = 100 * time.Millisecond
		release := lockedOut(t, databaseURL, "entries")
		begun := time.Now()
		_, err := b.Stats(t.Context(), time.Time{}, time.Time{})
		if !errors.Is(err, idem.ErrTooSlow) || errors.Is(err, idem.ErrUnavailable) {
			t.Errorf("%s: got %v, want %v", mode, err, idem.ErrTooSlow)
		}
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("%s: it took %v", mode, took)
		}
		release()
		b.questions.bound = readTime
		if _, err := b.Stats(t.Context(), time.Time{}, time.Time{}); err != nil {
			t.Errorf("%s: afterwards: %v", mode, err)
		}
	}
}

// Nobody is there, or the schema is not: unavailable, and the cause is in the error.
func TestPostgresQuestionsWithoutADatabase(t *testing.T) {
	t.Parallel()
	b := openPG(t, "postgres://u:p@127.0.0.1:1/db")
	if _, err := b.Standing(t.Context()); !errors.Is(err, idem.ErrUnavailable) || errors.Is(err, idem.ErrTooSlow) {
		t.Errorf("nobody is there: %v", err)
	}
	b = openPG(t, pgtest.Empty(t))
	if _, err := b.Standing(t.Context()); !errors.Is(err, idem.ErrUnavailable) {
		t.Errorf("never migrated: %v", err)
	}
}

// Questions are answered while nothing can be written, and nothing is ever written by one.
func TestPostgresQuestionsReadOnly(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.Direct(t, pgtest.New(t)) // a PgBouncer refuses the parameter below
	e := reserved(fresh())
	swap(t, openPG(t, databaseURL), over(nil, e))
	b := openPG(t, with(databaseURL, "default_transaction_read_only", "on"))
	if got, _, err := b.Entry(t.Context(), e.Key); err != nil || got == nil {
		t.Errorf("got %+v, %v", got, err)
	}
	s := b.statement()
	s.add(`SELECT make_event_partitions(now() + interval '5 years', 1)`)
	if _, err := openPG(t, databaseURL).ask(t.Context(), s, func(scanner) error { return nil }); err == nil {
		t.Error("a question wrote")
	}
}

func TestPostgresReadersTellWhoTheyAre(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.New(t)
	conn := session(t, databaseURL)
	for given, want := range map[string]string{"": "idemstore-read", "mine": "mine"} {
		u := databaseURL
		if given != "" {
			u = with(u, "application_name", given)
		}
		b := openPG(t, u)
		if _, err := b.Standing(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := ask[int](t, conn, `SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND datname = current_database()`, want); n == 0 {
			t.Errorf("nobody is called %q", want)
		}
	}
}

// The same comes back in whatever way the store has to talk, and in whatever time zone a session is.
func TestPostgresQuestionsInEveryProtocolAndTimeZone(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.Direct(t, pgtest.New(t)) // prepared statements are among the ways
	plain := openPG(t, databaseURL)
	r := rand.New(rand.NewPCG(19, 20))
	entries := fillEntries(t, plain, r, 60)
	fillEvents(t, plain, r, 60)
	about := now(t, plain)
	events := allEvents(t, plain, idem.EventQuery{})
	yes := true
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		for _, zone := range []string{"Pacific/Kiritimati", "America/Bogota"} {
			t.Run(mode+" "+zone, func(t *testing.T) {
				t.Parallel()
				b := openPG(t, with(databaseURL, "default_query_exec_mode", mode, "timezone", zone))
				b.stride = 7
				for _, q := range []idem.EntryQuery{
					{Limit: 7},
					{TaskID: entries[0].TaskID},
					{State: idem.Reserved, Owner: "a"},
					{InDoubt: &yes},
					{Handler: awkward, ReservedAfter: about.Add(-10 * time.Minute), RecordedBefore: about},
				} {
					got, _ := allEntries(t, b, q)
					wantList(t, mode, keys(got), keys(wanted(q, slices.Concat(entries, rowsOf(t, b, events)), about)))
				}
				for _, q := range []idem.EventQuery{{Limit: 7}, {Kind: idem.EventTakenOver}, {Actor: "a", After: about.AddDate(0, 0, -7)}} {
					want := slices.DeleteFunc(slices.Clone(events), func(e idem.Event) bool { return !askedEvent(q, e) })
					wantList(t, mode, allEvents(t, b, q), want)
				}
				if s, err := b.Stats(t.Context(), about.AddDate(0, 0, -7), about); err != nil || len(s.Totals.Events) == 0 || s.Oldest == nil {
					t.Errorf("stats: %+v, %v", s, err)
				}
			})
		}
	}
}

func keys(entries []*idem.Entry) (keys []idem.Key) {
	for _, e := range entries {
		keys = append(keys, e.Key)
	}
	return keys
}

// rowsOf are the entries beside which events were written.
func rowsOf(t *testing.T, b Backend, events []idem.Event) []*idem.Entry {
	t.Helper()
	var keys []idem.Key
	for _, e := range events {
		keys = append(keys, e.Key)
	}
	var entries []*idem.Entry
	for _, e := range load(t, b, keys...) {
		entries = append(entries, e)
	}
	return entries
}

// A partition that is made later has the indexes that the others have, each once.
func TestPostgresNewPartitionsHaveTheIndexes(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.New(t)
	conn := session(t, databaseURL)
	const indexes = `
		SELECT string_agg(pg_get_indexdef(c.oid) || coalesce(' of ' || i.inhparent::regclass::text, ''), '; ' ORDER BY c.relname)
		FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
		WHERE x.indrelid = $1::regclass`
	must(t, conn, `SELECT make_event_partitions('2035-01-01', 1)`)
	for _, table := range []string{"events_20350101", "events_default"} {
		want := "CREATE INDEX T_at_id_idx ON public.T USING btree (at, id) of events_at; " +
			"CREATE INDEX T_kind_at_id_idx ON public.T USING btree (kind, at, id) WHERE (kind <> 'replayed'::text) of events_kind; " +
			"CREATE UNIQUE INDEX T_pkey ON public.T USING btree (task_id, at, id) of events_pkey"
		if got := ask[string](t, conn, indexes, table); got != strings.NewReplacer("T_", table+"_", ".T ", "."+table+" ").Replace(want) {
			t.Errorf("%s has %s", table, got)
		}
	}
}

// A migration that broke off is repeated, over whatever it left behind.
func TestPostgresIndexesHalfBuilt(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.Empty(t)
	m := openMigrator(t, databaseURL)
	all := m.files
	m.files = firstMigration(t)
	wantUp(t, m, "00001_init.sql")
	conn := session(t, databaseURL)
	must(t, conn, `CREATE INDEX entries_reserved ON entries (reserved_at, task_id)`)
	must(t, conn, `UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'entries_reserved'::regclass`)
	must(t, conn, `CREATE INDEX events_at ON events (at, id)`)
	m.files = all
	wantUp(t, m, "00002_reads.sql")
	if n := ask[int](t, conn, `SELECT count(*) FROM pg_index WHERE NOT indisvalid`); n != 0 {
		t.Errorf("%d indexes cannot be used", n)
	}
	const columns = `SELECT indnatts FROM pg_index WHERE indexrelid = 'entries_reserved'::regclass`
	if n := ask[int](t, conn, columns); n != 1 {
		t.Errorf("entries_reserved has %d columns: it is the old one", n)
	}
}
