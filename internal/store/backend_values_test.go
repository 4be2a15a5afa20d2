package store

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/internal/pgtest"
)

// everyByte has every byte in it, in an order that is no text.
func everyByte() []byte {
	p := make([]byte, 0, 512)
	for i := range 256 {
		p = append(p, byte(i), byte(255-i))
	}
	return p
}

func manyHeaders() []idem.Header {
	headers := make([]idem.Header, idem.MaxHeaders)
	for i := range headers {
		headers[i] = idem.Header{fmt.Sprintf("X-%d", i%7), strings.Repeat("v", i*3)}
	}
	return headers
}

// responses are one of each kind.
var responses = map[string]*idem.Response{
	"no body":       {Status: 204},
	"an empty body": {Status: 200, HasBody: true, Body: []byte{}},
	"every byte":    {Status: 200, HasBody: true, Body: everyByte(), Headers: []idem.Header{{"X-Bytes", string(everyByte())}, {"x-bytes", ""}, {"X-NUL", "a\x00b"}}},
	"100 headers":   {Status: 599, HasBody: true, Body: []byte("ü\x00"), Headers: manyHeaders()},
	"omitted":       {Status: 201, Omitted: true, BodySHA256: strings.Repeat("0a", 32), BodySize: 1<<53 - 1, Headers: []idem.Header{{"Content-Type", "video/mp4"}}},
	"omitted, bare": {Status: 100, Omitted: true, BodySHA256: strings.Repeat("f", 64)},
}

const awkward = "日本 \u202e\U0001F600 'quoted' \"twice\" \\ <&>"

// entrySamples are entries of which each field is set in at least one.
func entrySamples() map[string]*idem.Entry {
	at := time.Date(2026, 11, 29, 20, 46, 7, 123456000, time.UTC)
	later := func(d time.Duration) time.Time { return at.Add(d) }
	grant := func(n int) idem.Grant {
		return idem.Grant{
			ReservationID: uuid.NewString(), Owner: fmt.Sprint(awkward, n), Fence: int64(n),
			ReservedAt: later(time.Duration(n) * time.Minute), LeaseUntil: later(time.Duration(n)*time.Minute + time.Microsecond),
		}
	}
	samples := map[string]*idem.Entry{}
	add := func(name string, state idem.State, set func(e *idem.Entry)) {
		e := &idem.Entry{Key: fresh(), Version: 1 << 62, State: state, ExpiresAt: later(time.Hour * 24 * 90)}
		if state != idem.Absent {
			e.Grant = grant(3)
		}
		set(e)
		samples[name] = e
	}
	add("the least", idem.Reserved, func(*idem.Entry) {})
	add("all that a reserve can set", idem.Reserved, func(e *idem.Entry) {
		e.Attempt, e.Version = 1<<31-1, -7
		e.Handler, e.RequestHash, e.TaskScope, e.Explicit, e.LeaseSeconds = awkward, "sha256:!~", true, true, idem.MaxLease
	})
	add("dispatched", idem.Dispatched, func(e *idem.Entry) { e.DispatchedAt = later(time.Hour) })
	add("taken over", idem.Reserved, func(e *idem.Entry) {
		dispatched := grant(1)
		dispatched.Explicit, dispatched.DispatchedAt = true, later(time.Second)
		e.Former = []idem.Former{{Grant: dispatched, Doubt: true}, {Grant: grant(2)}}
		e.Takeovers, e.Found = 16, 1<<60
		e.Barred = true
		for i := range 1000 {
			e.Spent = append(e.Spent, idem.Spent{ReservationID: uuid.NewString(), Owner: "b\x00", Fence: int64(i), Released: i%2 == 0})
		}
	})
	add("released", idem.Released, func(e *idem.Entry) { e.ReleasedAt = later(time.Hour) })
	add("released by an operator", idem.Released, func(e *idem.Entry) { e.ReleasedAt, e.ByOperator = later(time.Hour), true })
	add("absent", idem.Absent, func(e *idem.Entry) {
		e.Refusals = []idem.Refusal{
			{Kind: idem.EventRefusedRecord, Owner: awkward, Digest: "0af", At: at}, {Kind: idem.EventRefusedMismatch, Owner: "a", At: later(time.Second)},
		}
	})
	record := func(e *idem.Entry, r *idem.Response) { *e = *recorded(e, r); e.Version = 5 }
	for name, r := range responses {
		add("recorded: "+name, idem.Recorded, func(e *idem.Entry) { record(e, r) })
	}
	add("recorded late, by another", idem.Recorded, func(e *idem.Entry) {
		record(e, responses["every byte"])
		e.Late, e.RecordedBy, e.RecordedReservationID = true, "another", uuid.NewString()
	})
	add("recorded by an operator", idem.Recorded, func(e *idem.Entry) {
		record(e, responses["no body"])
		e.RecordedBy, e.RecordedReservationID = "operator", ""
	})
	add("recorded without a reservation", idem.Recorded, func(e *idem.Entry) {
		e.ReservationID = ""
		record(e, responses["no body"])
	})
	return samples
}

func TestEntriesComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	samples := entrySamples()
	var all []any
	for _, e := range samples {
		all = append(all, *e)
	}
	wantEveryFieldSet(t, all, "Response.Partial")
	onEveryBackend(t, func(t *testing.T, b Backend) {
		for name, e := range samples {
			t.Run(name, func(t *testing.T) {
				want := *e
				want.TaskID = uuid.NewString()
				wantWritten(t, b, []idem.Change{over(nil, &want)}, true)
				wantEntry(t, loadOne(t, b, want.Key), &want)

				// Over another row, nothing is left of that one.
				other := *samples["taken over"]
				other.TaskID = uuid.NewString()
				other.Attempt = want.Attempt
				swap(t, b, over(nil, &other))
				want.TaskID = other.TaskID
				want.Version++
				wantWritten(t, b, []idem.Change{over(&other, &want)}, true)
				wantEntry(t, loadOne(t, b, want.Key), &want)
			})
		}
		t.Run("all at once", func(t *testing.T) {
			var changes []idem.Change
			for _, e := range samples {
				want := *e
				want.TaskID = uuid.NewString()
				changes = append(changes, over(nil, &want))
			}
			wantWritten(t, b, changes, slices.Repeat([]bool{true}, len(changes))...)
			for _, c := range changes {
				wantEntry(t, loadOne(t, b, c.Entry.Key), c.Entry)
			}
		})
	})
}

func wantEntry(t *testing.T, got, want *idem.Entry) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got  %+v\n%+v\nwant %+v\n%+v", got, got.Response, want, want.Response)
	}
}

// wantEveryFieldSet sees to it that a field which is new in idem is kept by the stores, or these samples are not enough.
func wantEveryFieldSet(t *testing.T, samples []any, except ...string) {
	t.Helper()
	set := map[string]bool{}
	var walk func(path string, v reflect.Value)
	walk = func(path string, v reflect.Value) {
		set[path] = set[path] || !v.IsZero()
		switch v.Kind() { //nolint:exhaustive // the others hold nothing more
		case reflect.Pointer:
			if !v.IsNil() {
				walk(path, v.Elem())
			}
		case reflect.Struct:
			if v.Type() == reflect.TypeFor[time.Time]() {
				return
			}
			for i := range v.NumField() {
				walk(strings.TrimPrefix(path+"."+v.Type().Field(i).Name, "."), v.Field(i))
			}
		case reflect.Slice:
			for i := range v.Len() {
				walk(path+"[]", v.Index(i))
			}
		}
	}
	for _, s := range samples {
		walk("", reflect.ValueOf(s))
	}
	for path, ok := range set {
		if !ok && !slices.Contains(except, path) {
			t.Errorf("no sample has %s set", path)
		}
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	onEveryBackend(t, func(t *testing.T, b Backend) {
		task := uuid.NewString()
		var entries []*idem.Entry
		for attempt := range int32(4) {
			e := recorded(reserved(idem.Key{TaskID: task, Attempt: attempt}), responses["every byte"])
			if attempt == 3 {
				longAgo(e) // purged or not, it is loaded
				e.RecordedAt = e.ReservedAt
			}
			entries = append(entries, e)
			swap(t, b, over(nil, e), over(nil, reserved(fresh())))
		}
		got := load(t, b, entries[1].Key, entries[3].Key, entries[1].Key, fresh(), idem.Key{TaskID: task, Attempt: 10})
		if len(got) != 4 {
			t.Fatalf("%d entries, want the task's 4", len(got))
		}
		for i, e := range entries {
			want := *e
			if i == 0 || i == 2 {
				want.Response = &idem.Response{Status: e.Response.Status, Partial: true}
			}
			wantEntry(t, got[e.Key], &want)
		}
		if got := load(t, b); len(got) != 0 {
			t.Errorf("no keys, %d entries", len(got))
		}
	})
}

// The response of a recorded key is the one that was recorded, whatever a later change of its row brings, until another life begins.
func TestAStoredResponseStays(t *testing.T) {
	t.Parallel()
	onEveryBackend(t, func(t *testing.T, b Backend) {
		for name, r := range responses {
			t.Run(name, func(t *testing.T) {
				e := recorded(reserved(fresh()), r)
				swap(t, b, over(nil, e))
				partial := *e
				partial.Version++
				partial.Response = &idem.Response{Status: r.Status, Partial: true}
				partial.Refusals = []idem.Refusal{{Kind: idem.EventDuplicateRecord, Owner: "b", At: e.RecordedAt}}
				wantWritten(t, b, []idem.Change{over(e, &partial)}, true)
				want := partial
				want.Response = r
				wantEntry(t, loadOne(t, b, e.Key), &want)

				reborn := reserved(e.Key)
				reborn.Version = 77
				wantWritten(t, b, []idem.Change{over(&partial, reborn)}, true)
				wantEntry(t, loadOne(t, b, e.Key), reborn)
			})
		}
	})
}

// Operators find the keys in doubt by SQL alone.
func TestDoubtsAreCounted(t *testing.T) {
	t.Parallel()
	onEveryBackend(t, func(t *testing.T, b Backend) {
		e := *entrySamples()["taken over"]
		e.Former = append(e.Former, idem.Former{Grant: e.Former[0].Grant, Doubt: true})
		swap(t, b, over(nil, &e))
		const inDoubt = `SELECT count(*) FROM entries WHERE state = 'reserved' AND doubts = 2`
		if n := count(t, b, inDoubt); n != 1 {
			t.Errorf("%d keys with two doubts, want 1", n)
		}
	})
}

func TestLargeBodies(t *testing.T) {
	t.Parallel()
	onEveryBackend(t, func(t *testing.T, b Backend) {
		for _, size := range []int{1 << 20, 16 << 20} {
			body := bytes.Repeat(everyByte(), size/512)
			e := recorded(reserved(fresh()), &idem.Response{Status: 200, HasBody: true, Body: body})
			event := happened(e.Key, idem.EventDuplicateRecord)
			event.Response = e.Response
			swap(t, b, over(nil, e, event))
			if got := loadOne(t, b, e.Key).Response; !got.Equal(e.Response) {
				t.Errorf("a body of %d bytes came back with %d", size, len(got.Body))
			}
			if got := eventsOf(t, b, e.TaskID)[0].Response; !got.Equal(e.Response) {
				t.Errorf("evidence of %d bytes came back with %d", size, len(got.Body))
			}
		}
	})
}

func TestManyChangesAtOnce(t *testing.T) {
	t.Parallel()
	onEveryBackend(t, func(t *testing.T, b Backend) {
		var changes []idem.Change
		var keys []idem.Key
		for range idem.MaxBatch {
			e := reserved(fresh())
			changes = append(changes, over(nil, e, happened(e.Key, idem.EventTakenOver)))
			keys = append(keys, e.Key)
		}
		if i := slices.Index(swap(t, b, changes...), false); i >= 0 {
			t.Fatalf("change %d was refused", i)
		}
		for i := range changes {
			changes[i] = over(changes[i].Entry, recorded(changes[i].Entry, responses["every byte"]))
		}
		if i := slices.Index(swap(t, b, changes...), false); i >= 0 {
			t.Fatalf("change %d was refused", i)
		}
		if got := load(t, b, keys...); len(got) != len(keys) {
			t.Errorf("%d entries, want %d", len(got), len(keys))
		}
		if got := swap(t, b); len(got) != 0 {
			t.Errorf("no changes, %d results", len(got))
		}
	})
}

func TestClosed(t *testing.T) {
	t.Parallel()
	onEveryBackend(t, func(t *testing.T, b Backend) {
		b.Close()
		b.Close()
		if _, _, err := b.Swap(t.Context(), []idem.Change{over(nil, reserved(fresh()))}); !errors.Is(err, idem.ErrNotWritten) {
			t.Errorf("swap: %v", err)
		}
		if _, _, err := b.Load(t.Context(), []idem.Key{fresh()}); err == nil {
			t.Error("a closed store was read")
		}
		if err := b.Ready(t.Context()); err == nil {
			t.Error("a closed store is ready")
		}
	})
}

func TestReadyAndUpkeep(t *testing.T) {
	t.Parallel()
	onEveryBackend(t, func(t *testing.T, b Backend) {
		for range 2 {
			if err := b.Ready(t.Context()); err != nil {
				t.Errorf("ready: %v", err)
			}
			if err := b.Upkeep(t.Context()); err != nil {
				t.Errorf("upkeep: %v", err)
			}
		}
	})
}

// The time that callers see can be moved, and what they say of it means the same.
func TestShift(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"Postgres": pgtest.New(t), "SQLite": "sqlite::memory:"} {
		t.Run(name, func(t *testing.T) {
			var shift atomic.Int64
			b := openTest(t, url, &shift)
			real := now(t, b)
			change := over(nil, reserved(fresh()))
			for _, d := range []time.Duration{0, time.Hour, -time.Hour} {
				shift.Store(int64(d))
				moved := now(t, b)
				if off := moved.Sub(real) - d; off < 0 || off > time.Minute {
					t.Errorf("shifted by %v the time is %v off", d, off)
				}
				change.Entry.TaskID = uuid.NewString()
				change.Before = moved
				wantWritten(t, b, []idem.Change{change}, false)
				change.Before = moved.Add(time.Minute)
				wantWritten(t, b, []idem.Change{change}, true)
			}
		})
	}
}
