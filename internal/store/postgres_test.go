package store

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/internal/pgtest"
)

func openPG(t *testing.T, databaseURL string) *Postgres {
	t.Helper()
	return openTest(t, databaseURL, new(atomic.Int64)).(*Postgres)
}

// with sets parameters of a URL, given as name and value by turns.
func with(databaseURL string, params ...string) string {
	u, err := url.Parse(databaseURL)
	if err != nil {
		panic(err)
	}
	q := u.Query()
	for i := 0; i < len(params); i += 2 {
		q.Set(params[i], params[i+1])
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// session is a connection beside the store's, and past a pooler: it locks, and sets what stays set.
func session(t *testing.T, databaseURL string) *pgx.Conn {
	t.Helper()
	return sessionAt(t, pgtest.Direct(t, databaseURL))
}

func sessionAt(t *testing.T, databaseURL string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func must(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func ask[T any](t *testing.T, conn *pgx.Conn, sql string, args ...any) (answer T) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&answer); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return answer
}

// until waits for a condition.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never came: %s", what)
		}
	}
}

// The store works in whatever way it has to talk, which a pooler may decide, and in whatever time zone a session is.
func TestPostgresProtocolsAndTimeZones(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.Direct(t, pgtest.New(t)) // prepared statements are among the ways
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		for _, zone := range []string{"Pacific/Kiritimati", "America/Bogota"} { // +14, -5
			t.Run(mode+" "+zone, func(t *testing.T) {
				t.Parallel()
				b := openPG(t, with(databaseURL, "default_query_exec_mode", mode, "timezone", zone))
				plain := openPG(t, databaseURL)
				if d := now(t, plain).Sub(now(t, b)); d < -time.Minute || d > time.Minute {
					t.Errorf("the time is %v off", d)
				}
				for name, e := range entrySamples() {
					event := happened(e.Key, idem.EventRefusedRecord)
					event.Detail, event.Response = map[string]any{"reason": "\x00"}, responses["every byte"]
					wantWritten(t, b, []idem.Change{over(nil, e, event)}, true)
					wantEntry(t, loadOne(t, b, e.Key), e)
					wantEntry(t, loadOne(t, plain, e.Key), e)
					n := *e
					n.Version++
					same := over(&n, &n, event)
					same.Same = true
					wantWritten(t, b, []idem.Change{over(e, &n)}, true)
					wantWritten(t, b, []idem.Change{same}, true)
					events := eventsOf(t, plain, e.TaskID)
					if len(events) != 2 || !events[1].At.Equal(event.At) || !events[1].Response.Equal(event.Response) {
						t.Errorf("%s: events %+v", name, events)
					}
					late := over(&n, e)
					late.Before = now(t, plain)
					wantWritten(t, b, []idem.Change{late}, false)
					late.Before = late.Before.Add(time.Minute)
					wantWritten(t, b, []idem.Change{late}, true)
				}
				if err := b.Ready(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// A plan that was made while the table was empty is still good when it is full, before anything has been analysed.
func TestPostgresNeverReadsTheWholeTable(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.New(t)
	b := openPG(t, with(databaseURL, "pool_max_conns", "1"))
	for range 20 {
		e := reserved(fresh())
		first := over(nil, e, happened(e.Key, idem.EventReplayed))
		first.Alone = true
		wantWritten(t, b, []idem.Change{first}, true)
		same := over(e, e, happened(e.Key, idem.EventReplayed))
		same.Same = true
		wantWritten(t, b, []idem.Change{same}, true)
		n := *e
		n.Version++
		wantWritten(t, b, []idem.Change{over(e, &n)}, true)
		alone := over(nil, reserved(fresh()))
		alone.Alone = true
		wantWritten(t, b, []idem.Change{alone}, true)
		beside := over(nil, reserved(fresh()))
		beside.Alone = true
		wantWritten(t, b, []idem.Change{beside, over(nil, reserved(fresh()))}, true, true)
		if loadOne(t, b, e.Key) == nil {
			t.Fatal("it is gone")
		}
	}
	b.Close() // and its statistics are told
	conn := session(t, databaseURL)
	until(t, "the statistics", func() bool {
		return ask[int](t, conn, `SELECT coalesce(sum(idx_scan), 0) FROM pg_stat_user_tables WHERE relname = 'entries'`) >= 20
	})
	if n := ask[int](t, conn, `SELECT sum(seq_scan) FROM pg_stat_user_tables WHERE relname LIKE 'e%'`); n > 30 { // attaching partitions reads events_default
		t.Errorf("tables were read as a whole %d times", n)
	}
	if n := ask[int](t, conn, `SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'entries'`); n > 0 {
		t.Errorf("entries was read as a whole %d times", n)
	}
}

// Large bodies are compressed the cheaper way, where the server knows it.
func TestPostgresCompression(t *testing.T) {
	t.Parallel()
	conn := session(t, pgtest.New(t))
	knows := ask[bool](t, conn, `SELECT 'lz4' = ANY (enumvals) FROM pg_settings WHERE name = 'default_toast_compression'`)
	lz4 := ask[bool](t, conn, `SELECT attcompression = 'l' FROM pg_attribute WHERE attrelid = 'entries'::regclass AND attname = 'response_body'`)
	if lz4 != knows {
		t.Errorf("the server knows lz4: %t; bodies are compressed by it: %t", knows, lz4)
	}
}

func TestPostgresReady(t *testing.T) {
	t.Parallel()
	t.Run("never migrated", func(t *testing.T) {
		t.Parallel()
		wantNotReady(t, openPG(t, pgtest.Empty(t)), "version 0", "needs 2")
	})
	t.Run("another version", func(t *testing.T) {
		t.Parallel()
		databaseURL := pgtest.New(t)
		b := openPG(t, databaseURL)
		conn := session(t, databaseURL)
		must(t, conn, `INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, true)`)
		wantNotReady(t, b, "version 99", "needs 2")
		must(t, conn, `DELETE FROM goose_db_version WHERE version_id > 0`)
		wantNotReady(t, b, "version 0", "needs 2")
	})
}

func wantNotReady(t *testing.T, b Backend, words ...string) {
	t.Helper()
	err := b.Ready(t.Context())
	if !errors.Is(err, ErrSchema) {
		t.Fatalf("ready: got %v, want %v", err, ErrSchema)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not say %q", err, word)
		}
	}
}

// Whoever reads the logs is not told the password.
func TestPostgresErrorsKeepThePassword(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t%2Fword"
	real, err := url.Parse(pgtest.New(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, databaseURL := range []string{
		"postgres://u:" + secret + "@127.0.0.1:1/db",
		"postgres://u:" + secret + "@nowhere.invalid/db",
		"postgres://u:" + secret + "@127.0.0.1:99999/db",
		"postgres://u:s3cr3t/word@127.0.0.1/db",
		"postgres://u:" + secret + "@127.0.0.1/db?pool_max_conns=s3cr3t/word",
		"postgres://u:" + secret + "@127.0.0.1/db?default_query_exec_mode=x",
		"postgres://u@127.0.0.1:1/db?password=" + secret,
		"postgres://u@127.0.0.1:1/db?" + secret,
		"postgres://u@127.0.0.1:1/db?password=s3cr3t;word",
		"postgres://u@127.0.0.1:1/db?password=s3cr3t%word",
		"postgres://u:" + secret + "@" + real.Host + "/nosuchdatabase",
	} {
		var errs []error
		b, err := Open(t.Context(), databaseURL, Options{})
		errs = append(errs, err)
		if err == nil {
			_, _, swapErr := b.Swap(t.Context(), []idem.Change{over(nil, reserved(fresh()))})
			_, _, loadErr := b.Load(t.Context(), []idem.Key{fresh()})
			errs = append(errs, swapErr, loadErr, b.Ready(t.Context()), b.Upkeep(t.Context()))
			if !errors.Is(swapErr, idem.ErrNotWritten) {
				t.Errorf("nobody there: %v, want %v", swapErr, idem.ErrNotWritten)
			}
			b.Close()
		}
		text := fmt.Sprint(errs)
		if !strings.Contains(text, "atabase") {
			t.Errorf("%s does not speak of the database", text)
		}
		if strings.Contains(text, "s3cr3t") || strings.Contains(text, "/word") {
			t.Errorf("%s tells the password", text)
		}
	}
	if _, err := Open(t.Context(), "mysql://x", Options{}); err == nil {
		t.Error("mysql was opened")
	}
}

// Replicas make partitions at once, and writers go on. Events that no partition was made for are kept all the same.
func TestPostgresPartitions(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.New(t)
	conn := session(t, with(databaseURL, "timezone", "Pacific/Kiritimati"))
	partitions := func() int {
		return ask[int](t, conn, `SELECT count(*) FROM pg_inherits WHERE inhparent = 'events'::regclass`)
	}
	holding := func(k idem.Key) string {
		return ask[string](t, conn, `SELECT tableoid::regclass::text FROM events WHERE task_id = $1`, k.TaskID)
	}
	made := partitions()
	if made < 27 {
		t.Fatalf("the migration made %d partitions", made)
	}
	b := openPG(t, with(databaseURL, "timezone", "America/Bogota")) // where Monday begins later
	if err := b.Upkeep(t.Context()); err != nil || partitions() != made {
		t.Errorf("there was nothing to do: %v, %d partitions", err, partitions())
	}

	tell := func(at time.Time) idem.Key {
		e := reserved(fresh())
		event := happened(e.Key, idem.EventReplayed)
		event.At = at
		swap(t, b, over(nil, e, event))
		return e.Key
	}
	monday := time.Date(2035, 1, 1, 0, 0, 0, 0, time.UTC)
	if got := holding(tell(monday)); got != "events_default" {
		t.Errorf("an event of a far week is in %s", got)
	}
	var all sync.WaitGroup
	var count atomic.Int64
	must(t, conn, `BEGIN`)
	must(t, conn, `LOCK TABLE events IN SHARE UPDATE EXCLUSIVE MODE`)
	for range 3 {
		all.Go(func() {
			n, err := partitionsFrom(b, monday.AddDate(0, 0, 7), 3)
			if err != nil {
				t.Error(err)
			}
			count.Add(int64(n))
		})
	}
	until(t, "three that wait", func() bool {
		return ask[int](t, conn, `SELECT count(*) FROM pg_locks WHERE NOT granted`) == 3
	})
	tell(time.Now().UTC()) // goes on
	must(t, conn, `COMMIT`)
	all.Wait()
	if count.Load() != 3 || partitions() != made+3 {
		t.Errorf("%d partitions were made and there are %d, want 3 and %d", count.Load(), partitions(), made+3)
	}
	// A week stays in events_default that has events there.
	if n, err := partitionsFrom(b, monday, 4); n != 0 || err != nil {
		t.Errorf("%d partitions were made, %v", n, err)
	}
	for at, want := range map[time.Time]string{
		monday:                                      "events_default",
		monday.AddDate(0, 0, 7):                     "events_20350108",
		monday.Add(7*24*time.Hour - 1000):           "events_default",
		monday.AddDate(0, 0, 20):                    "events_20350115",
		monday.AddDate(0, 0, 28):                    "events_default",
		time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC): "events_default",
	} {
		if got := holding(tell(at)); got != want {
			t.Errorf("an event of %v is in %s, want %s", at, got, want)
		}
	}
}

func partitionsFrom(b *Postgres, since time.Time, weeks int) (n int, err error) {
	_, err = b.send(context.Background(), `SELECT make_event_partitions($1::timestamptz, $2::int)`, []any{since, weeks}, func(rows pgx.Rows) error { return rows.Scan(&n) })
	return n, err
}
