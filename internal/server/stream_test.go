package server_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	_ "github.com/jackc/pgx/v5/stdlib" // a driver, to write rows past the service
	_ "github.com/ncruces/go-sqlite3/driver"

	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/internal/pgtest"
)

// paging is a reader of the trail alone.
type paging func(ctx context.Context, q idem.EventQuery) (idem.EventPage, error)

func (p paging) Events(ctx context.Context, q idem.EventQuery) (idem.EventPage, error) {
	return p(ctx, q)
}

func (p paging) Entries(context.Context, idem.EntryQuery) (idem.EntryPage, error) {
	return idem.EntryPage{}, nil
}

func (p paging) Entry(context.Context, idem.Key) (*idem.Entry, time.Time, error) {
	return nil, time.Time{}, nil
}

func (p paging) Stats(context.Context, time.Time, time.Time) (idem.Stats, error) {
	return idem.Stats{}, nil
}

func (p paging) Standing(context.Context) (idem.Standing, error) { return idem.Standing{}, nil }

// numbered is a page of events that never ends, each of so many bytes of evidence.
func numbered(from, n, size int) idem.EventPage {
	page := idem.EventPage{Next: &idem.EventPosition{At: time.Now(), ID: uuid.NewString()}}
	for i := range n {
		page.Events = append(page.Events, idem.Event{
			ID: uuid.NewString(), At: time.Now(), Kind: idem.EventReplayed, Key: idem.Key{TaskID: fmt.Sprint("t", from+i)}, Fence: 1,
			Response: &idem.Response{Status: 200, HasBody: true, Body: bytes.Repeat([]byte("x"), size)},
		})
	}
	return page
}

// A fault in the middle cuts the connection: what was cut is never taken for whole. The log says why.
func TestFaultInTheMiddleOfAStream(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/v1/events", "/v1/tasks/a"} {
		for _, accept := range []string{csvType, ndjsonType, jsonType} {
			if path == "/v1/events" && accept == jsonType {
				continue // a page
			}
			var pages atomic.Int64
			s := start(t, setup{keeper: failing(nil), reader: paging(func(context.Context, idem.EventQuery) (idem.EventPage, error) {
				if pages.Add(1) > 3 {
					return idem.EventPage{}, fmt.Errorf("%w: %s", idem.ErrUnavailable, internals)
				}
				return numbered(0, 10, 100), nil
			})})
			req := call{method: http.MethodGet, path: path, header: map[string]string{"Accept": accept}}.request(t, s)
			res, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(res.Body)
			res.Body.Close()
			if !errors.Is(err, io.ErrUnexpectedEOF) || bytes.Count(got, []byte("replayed")) != 30 || bytes.Contains(got, []byte("postgres")) {
				t.Errorf("%s %s: %v after %d events", path, accept, err, bytes.Count(got, []byte("replayed")))
			}
			s.logged(t, req, func(e entry) bool {
				return e.Level == "error" && strings.Contains(e.Error, internals) && e.Items == 30 && e.Status == 200 && e.Route != ""
			})
		}
	}
}

// So does a panic.
func TestPanicInTheMiddleOfAStream(t *testing.T) {
	t.Parallel()
	var pages atomic.Int64
	s := start(t, setup{keeper: failing(nil), reader: paging(func(context.Context, idem.EventQuery) (idem.EventPage, error) {
		if pages.Add(1) > 1 {
			panic(internals)
		}
		return numbered(0, 10, 100), nil
	})})
	req := call{method: http.MethodGet, path: "/v1/events", header: map[string]string{"Accept": ndjsonType}}.request(t, s)
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if got, err := io.ReadAll(res.Body); !errors.Is(err, io.ErrUnexpectedEOF) || bytes.Count(got, []byte("\n")) != 10 {
		t.Errorf("%v after %s", err, got)
	}
	eventually(t, "the panic is not in the log", func() bool {
		lines := s.journal.of(req.Header.Get("X-Request-Id"))
		return len(lines) == 2 && lines[0].Level == "error" && lines[1].Message == "request"
	})
}

// logged holds the one line about a request to something.
func (s *service) logged(t testing.TB, req *http.Request, so func(entry) bool) {
	t.Helper()
	var lines []entry
	eventually(t, "nothing in the log", func() bool {
		lines = s.journal.of(req.Header.Get("X-Request-Id"))
		return len(lines) > 0
	})
	if len(lines) != 1 || !so(lines[0]) {
		t.Errorf("in the log: %+v", lines)
	}
}

// A client that hangs up ends the work, also one that has stopped reading; and the service can stop while one reads.
func TestStreamsEnd(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"hang up", "hang up unread", "drain"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			s := start(t, setup{keeper: failing(nil), reader: paging(func(ctx context.Context, _ idem.EventQuery) (idem.EventPage, error) {
				asked.Add(1)
				return numbered(0, 50, 10_000), ctx.Err()
			})})
			ctx, hangUp := context.WithCancel(t.Context())
			defer hangUp()
			req := call{method: http.MethodGet, path: "/v1/events", header: map[string]string{"Accept": ndjsonType}}.request(t, s).WithContext(ctx)
			res, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			switch end {
			case "drain":
				s.server.Drain()
				if _, err := io.Copy(io.Discard, res.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("the stream ended with %v", err)
				}
				s.logged(t, req, func(e entry) bool { return strings.Contains(e.Error, "stopping") })
			case "hang up":
				if _, err := io.CopyN(io.Discard, res.Body, 10<<20); err != nil {
					t.Fatal(err)
				}
				fallthrough
			default:
				hangUp()
				s.logged(t, req, func(e entry) bool { return e.Level == "info" }) // nothing is wrong with the service
			}
			last := asked.Load()
			s.get(t, "/healthz").ok()
			if now := asked.Load(); now != last {
				t.Errorf("%d more pages were asked for", now-last)
			}
		})
	}
}

// A slow client is given time for each page, however long the whole takes: the server's own limit is on an answer.
func TestStreamOutlastsTheWriteTimeout(t *testing.T) {
	t.Parallel()
	const pages = 8
	var asked atomic.Int64
	s := start(t, setup{
		keeper: failing(nil),
		reader: paging(func(ctx context.Context, _ idem.EventQuery) (idem.EventPage, error) {
			page := numbered(0, 1, 100)
			if asked.Add(1) == pages {
				page.Next = nil
			}
			select {
			case <-time.After(50 * time.Millisecond): // a page takes its time
			case <-ctx.Done():
			}
			return page, ctx.Err()
		}),
		http: func(h *http.Server) { h.ReadTimeout, h.WriteTimeout = 100*time.Millisecond, 150*time.Millisecond },
	})
	if events := s.ndjson(t, ""); len(events) != pages {
		t.Errorf("%d events of %d", len(events), pages)
	}
	s.get(t, "/healthz").ok() // on the same connection
}

// trailOf is a service whose trail has so many events, each half a kilobyte, written past it. It returns
// the database, too.
func trailOf(t *testing.T, engine string, n int) (*service, *sql.DB) {
	t.Helper()
	detail := `{"n": 9007199254740993, "big": 12345678901234567890.123456789, "pad": "` + text("x", 400) + `"}`
	c := setup{database: "sqlite:" + filepath.Join(t.TempDir(), "many.db")}
	driver, source := "sqlite3", "file:"+strings.TrimPrefix(c.database, "sqlite:")
	insert := `WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?)
		INSERT INTO events (task_id, attempt, at, id, kind, fence, handler, owner, token, request_id, detail)
		SELECT 'many-' || (i % 1000), 0, 1790000000000000 + i, printf('00000000-0000-7000-8000-%012d', i), 'replayed', 1, '', 'o', 't', 'r' || i, ? FROM n`
	if engine == "postgres" {
		c.database = pgtest.New(t)
		driver, source = "pgx", c.database
		insert = `INSERT INTO events (task_id, attempt, at, id, kind, fence, handler, owner, token, request_id, detail)
			SELECT 'many-' || (i % 1000), 0, '2026-09-21T14:13:20Z'::timestamptz + i * interval '1 microsecond', ('00000000-0000-7000-8000-' || lpad(i::text, 12, '0'))::uuid,
			'replayed', 1, '', 'o', 't', 'r' || i, $2::json FROM generate_series(0, $1::integer - 1) AS i`
	}
	s := start(t, c)
	db, err := sql.Open(driver, source)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.ExecContext(t.Context(), insert, n, detail); err != nil {
		t.Fatal(err)
	}
	return s, db
}

// A stream takes the same memory however long it is. Tests run beside each other, so this one measures alone.
//
//nolint:paralleltest // what others use would be counted
func TestStreamsTakeConstantMemory(t *testing.T) {
	const events = 60_000
	for engine, accept := range map[string]string{"sqlite": ndjsonType, "postgres": csvType} {
		t.Run(engine, func(t *testing.T) {
			s, _ := trailOf(t, engine, events)
			runtime.GC()
			before := heap()
			req := call{method: http.MethodGet, path: "/v1/events", header: map[string]string{"Accept": accept}}.request(t, s)
			res, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			lines, most, size, last := 0, before, 0, ""
			for scan := bufio.NewScanner(res.Body); scan.Scan(); lines++ {
				if lines%500 == 0 {
					most = max(most, heap())
				}
				size += len(scan.Bytes())
				last = scan.Text()
			}
			if lines < events || lines > events+1 {
				t.Fatalf("%d lines", lines)
			}
			grown := int64(most) - int64(before)
			if t.Logf("the heap grew by %d MB for %d MB", grown>>20, size>>20); grown > 16<<20 || size < 28<<20 {
				t.Error("which is too much, or the stream too short to tell")
			}
			for _, exact := range []string{"9007199254740993", "12345678901234567890.123456789", "many-0", "r0"} {
				if !strings.Contains(last, exact) {
					t.Errorf("%s is not in the last line: %.300s", exact, last)
				}
			}
			s.logged(t, req, func(e entry) bool { return e.Items == events && e.Level == "info" })
		})
	}
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A client that does not read holds nothing of the database: neither a transaction nor a connection.
func TestASlowReaderHoldsNoTransaction(t *testing.T) {
	t.Parallel()
	s, db := trailOf(t, "postgres", 20_000)
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintf(conn, "GET /v1/events HTTP/1.1\r\nHost: x\r\nAccept: %s\r\nX-Request-Id: %s\r\n\r\n", ndjsonType, uuid.NewString()); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 100_000)); err != nil {
		t.Fatal(err)
	}
	const busy = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
		AND (state <> 'idle' OR xact_start IS NOT NULL)`
	quiet := 0 // the socket's buffers are full, and nothing is asked for any more
	eventually(t, "the database is always at work for a client that does not read", func() bool {
		var n int
		if err := db.QueryRowContext(t.Context(), busy).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if quiet++; n > 0 {
			quiet = 0
		}
		return quiet == 100
	})
	s.find(t, "events", "limit", "1").ok() // and others are served
	k := s.key(t)
	k.record(k.reserve().id(), obj{}).want(201, "recorded")
}

// Numbers in a detail are exact in a page and in a task as well.
func TestNumbersInDetailsAreExact(t *testing.T) {
	t.Parallel()
	for _, engine := range engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			s, _ := trailOf(t, engine, 3)
			for _, path := range []string{"/v1/events?limit=1", "/v1/tasks/many-2"} {
				raw := string(s.get(t, path).ok().raw)
				for _, exact := range []string{`"n":9007199254740993,`, `"big":12345678901234567890.123456789,`} {
					if !strings.Contains(raw, exact) {
						t.Errorf("%s: %s is not in %.400s", path, exact, raw)
					}
				}
			}
		})
	}
}
