package store

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/idemstore/idemstore/internal/idem"
)

// eventsOf reads the trail of a task, oldest first.
func eventsOf(t *testing.T, b Backend, task string) []idem.Event {
	t.Helper()
	switch b := b.(type) {
	case *Postgres:
		rows, err := b.pool.Query(t.Context(), `
			SELECT at, kind, task_id, attempt, fence, handler, owner, token, request_id, detail::text, response_status, response_head, response_body
			FROM events WHERE task_id = $1 ORDER BY at, id`, task)
		if err != nil {
			t.Fatal(err)
		}
		events, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e idem.Event, err error) {
			var detail, head, body []byte
			var status *int32
			err = row.Scan(&e.At, &e.Kind, &e.TaskID, &e.Attempt, &e.Fence, &e.Handler, &e.Owner, &e.Token, &e.RequestID, &detail, &status, &head, &body)
			return finishEvent(e, detail, status, head, body, err)
		})
		if err != nil {
			t.Fatal(err)
		}
		return events
	case *SQLite:
		var events []idem.Event
		_, err := b.do(t.Context(), b.beginRead, func(time.Time) error {
			stmt, _, err := b.conn.Prepare(`
				SELECT at, kind, task_id, attempt, fence, handler, owner, token, request_id, detail, response_status, response_head, response_body
				FROM events WHERE task_id = ?1 ORDER BY at, id`)
			if err != nil {
				return err
			}
			defer func() { _ = stmt.Close() }()
			if err := stmt.BindText(1, task); err != nil {
				return err
			}
			for stmt.Step() {
				r := row{stmt: stmt}
				e := idem.Event{At: r.time(), Kind: idem.EventKind(r.text()), Key: idem.Key{TaskID: r.text(), Attempt: int32(r.number())}}
				e.Fence, e.Handler, e.Owner, e.Token, e.RequestID = r.number(), r.text(), r.text(), r.text(), r.text()
				detail, status, head, body := r.bytes(), int32(r.number()), r.bytes(), r.bytes()
				given := &status
				if status == 0 {
					given = nil
				}
				if e, err = finishEvent(e, detail, given, head, body, nil); err != nil {
					return err
				}
				events = append(events, e)
			}
			return stmt.Err()
		})
		if err != nil {
			t.Fatal(err)
		}
		return events
	}
	t.Fatalf("no events of %T", b)
	return nil
}

func finishEvent(e idem.Event, detail []byte, status *int32, head, body []byte, err error) (idem.Event, error) {
	e.At = e.At.UTC()
	if err == nil && detail != nil {
		err = json.Unmarshal(detail, &e.Detail)
	}
	if err == nil {
		e.Response, err = responseOf(status, head, body, false)
	}
	return e, err
}

func count(t *testing.T, b Backend, sql string) (n int64) {
	t.Helper()
	var err error
	switch b := b.(type) {
	case *Postgres:
		err = b.pool.QueryRow(t.Context(), sql).Scan(&n)
	case *SQLite:
		_, err = b.do(t.Context(), b.beginRead, func(time.Time) error {
			stmt, _, err := b.conn.Prepare(sql)
			if err != nil {
				return err
			}
			defer func() { _ = stmt.Close() }()
			if stmt.Step() {
				n = stmt.ColumnInt64(0)
			}
			return stmt.Err()
		})
	}
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

func TestEventsComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 29, 20, 46, 7, 123456000, time.UTC)
	key := idem.Key{TaskID: uuid.NewString(), Attempt: 1<<31 - 1}
	var samples []idem.Event
	for _, r := range responses {
		samples = append(samples, idem.Event{
			At: at, Kind: idem.EventRefusedRecord, Key: key, Fence: 1 << 62, Handler: awkward, Owner: awkward,
			Actor:  idem.Actor{Token: awkward, RequestID: awkward},
			Detail: map[string]any{"reason": "NUL \x00, " + awkward, "doubts": []any{map[string]any{"fence": 1.0, "dispatched": true}}, "none": nil}, Response: r,
		})
	}
	samples = append(samples, idem.Event{At: at.Add(time.Microsecond), Kind: idem.EventPurged, Key: key},
		idem.Event{At: at.AddDate(30, 0, 0), Kind: idem.EventReplayed, Key: key, Detail: map[string]any{}})
	all := make([]any, len(samples))
	for i, e := range samples {
		all[i] = e
	}
	wantEveryFieldSet(t, all, "Response.Partial", "ID")
	onEveryBackend(t, func(t *testing.T, b Backend) {
		// In two ways: beside a change of the entry, and beside none.
		e := reserved(key)
		half := len(samples) / 2
		swap(t, b, over(nil, e, samples[:half]...))
		same := over(e, e, samples[half:]...)
		same.Same = true
		swap(t, b, same)
		got := eventsOf(t, b, key.TaskID)
		if len(got) != len(samples) {
			t.Fatalf("%d events, want %d", len(got), len(samples))
		}
		slices.SortStableFunc(got, func(a, b idem.Event) int { return a.At.Compare(b.At) })
		for i := range samples {
			found := slices.ContainsFunc(got, func(g idem.Event) bool { return reflect.DeepEqual(g, samples[i]) })
			if !found {
				t.Errorf("event %d is not among those that came back:\nwant %+v\n%+v", i, samples[i], samples[i].Response)
			}
		}
	})
}

// Events of one moment stand in the order in which they were told.
func TestEventsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	onEveryBackend(t, func(t *testing.T, b Backend) {
		e := reserved(fresh())
		var events []idem.Event
		for i := range 50 {
			event := happened(e.Key, idem.EventReplayed)
			event.At, event.Fence = e.ReservedAt, int64(i)
			events = append(events, event)
		}
		swap(t, b, over(nil, e, events...))
		for i, event := range eventsOf(t, b, e.TaskID) {
			if event.Fence != int64(i) {
				t.Fatalf("event %d is the one told as number %d", i, event.Fence)
			}
		}
	})
}

// What no column can hold is not let in by the caller. Should it come all the same, it must not fail what is written beside it.
func TestAnEventThatNoColumnHolds(t *testing.T) {
	t.Parallel()
	onEveryBackend(t, func(t *testing.T, b Backend) {
		e := reserved(fresh())
		event := happened(e.Key, idem.EventReplayed)
		event.RequestID, event.Token, event.Owner, event.Handler = "a\x00b", "\xff", "\x00", "ok"
		wantWritten(t, b, []idem.Change{over(nil, e, event)}, true)
		if got := eventsOf(t, b, e.TaskID); len(got) != 1 || got[0].RequestID != "a\uFFFDb" || got[0].Token != "\uFFFD" {
			t.Errorf("got %+v", got)
		}
	})
}
