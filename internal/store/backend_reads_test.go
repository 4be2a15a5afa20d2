package store

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/idemstore/idemstore/internal/idem"
)

// readerOf is the part of a store that answers questions, to be paced by a test.
func readerOf(t *testing.T, b Backend) *reader {
	t.Helper()
	switch b := b.(type) {
	case *Postgres:
		return &b.reader
	case *SQLite:
		return &b.reader
	}
	t.Fatalf("no reader of %T", b)
	return nil
}

// some picks one.
func some[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// anEntry is an entry as it may lie in a table, near a moment: of any state, with or without doubts, some past their retention.
func anEntry(r *rand.Rand, key idem.Key, about time.Time) *idem.Entry {
	e := reserved(key)
	e.Version = r.Int64N(1<<40) + 1
	e.Owner, e.Handler = some(r, "a", "b", awkward), some(r, "", "http.call", awkward)
	e.ReservedAt = about.Add(-time.Duration(1+r.IntN(20)) * time.Minute) // so many are of one moment
	e.LeaseUntil = e.ReservedAt.Add(some(r, time.Second, time.Hour))
	e.ExpiresAt = about.Add(some(r, time.Hour, time.Hour, time.Hour, -time.Microsecond))
	e.Explicit = r.IntN(2) == 0
	if r.IntN(3) == 0 {
		former := e.Grant
		former.ReservationID = uuid.NewString()
		e.Former = []idem.Former{{Grant: former, Doubt: r.IntN(2) == 0}}
	}
	switch e.State = some(r, idem.Reserved, idem.Dispatched, idem.Recorded, idem.Recorded, idem.Released, idem.Absent); e.State {
	case idem.Dispatched:
		e.DispatchedAt = e.ReservedAt.Add(time.Millisecond)
	case idem.Recorded:
		expires := e.ExpiresAt
		e = recorded(e, some(r, slices.Collect(maps.Values(responses))...))
		e.RecordedAt = e.ReservedAt.Add(time.Duration(r.IntN(10)) * time.Minute)
		e.ExpiresAt = expires
		if e.RecordedAt.After(expires) {
			e.RecordedAt = e.ReservedAt
		}
	case idem.Released:
		e.ReleasedAt = e.ReservedAt.Add(time.Millisecond)
	case idem.Absent:
		e = &idem.Entry{Key: key, Version: 1, State: idem.Absent, ExpiresAt: e.ExpiresAt}
	case idem.Reserved:
	}
	if e.ExpiresAt.Before(e.ReservedAt) {
		e.ReservedAt, e.LeaseUntil, e.DispatchedAt, e.State = e.ExpiresAt, e.ExpiresAt, time.Time{}, idem.Reserved
		e.RecordedAt, e.RecordedBy, e.RecordedReservationID, e.Response = time.Time{}, "", "", nil
	}
	return e
}

// fillEntries writes many entries, several attempts of some tasks among them.
func fillEntries(t *testing.T, b Backend, r *rand.Rand, n int) []*idem.Entry {
	t.Helper()
	about := now(t, b)
	var entries []*idem.Entry
	var changes []idem.Change
	for len(entries) < n {
		task := fmt.Sprint("task-", r.IntN(1<<20), "-", len(entries))
		for attempt := range int32(1 + r.IntN(5)) {
			e := anEntry(r, idem.Key{TaskID: task, Attempt: attempt}, about)
			entries, changes = append(entries, e), append(changes, over(nil, e))
		}
	}
	if i := slices.Index(swap(t, b, changes...), false); i >= 0 {
		t.Fatalf("change %d was refused", i)
	}
	return entries
}

func inPeriod(at, after, before time.Time) bool {
	return (after.IsZero() || !at.Before(after) && !at.IsZero()) && (before.IsZero() || at.Before(before) && !at.IsZero())
}

// asked is what a query means, said in Go.
func asked(q idem.EntryQuery, e *idem.Entry, now time.Time) bool {
	return e.State != idem.Absent && !e.Expired(now) &&
		(q.TaskID == "" || e.TaskID == q.TaskID) &&
		(q.State == "" || e.State == q.State) &&
		(q.InDoubt == nil || e.InDoubt(now) == *q.InDoubt) &&
		(q.Handler == "" || e.Handler == q.Handler) &&
		(q.Owner == "" || e.Owner == q.Owner) &&
		inPeriod(e.ReservedAt, q.ReservedAfter, q.ReservedBefore) &&
		inPeriod(e.RecordedAt, q.RecordedAfter, q.RecordedBefore)
}

// wanted are the entries that a query asks for, as they are to come.
func wanted(q idem.EntryQuery, all []*idem.Entry, now time.Time) []*idem.Entry {
	var want []*idem.Entry
	for _, e := range all {
		if !asked(q, e, now) {
			continue
		}
		n := *e
		if n.Response != nil && q.TaskID == "" {
			n.Response = &idem.Response{Status: e.Response.Status, Partial: true}
		}
		want = append(want, &n)
	}
	slices.SortFunc(want, func(x, y *idem.Entry) int {
		if q.TaskID != "" {
			return cmp.Compare(x.Attempt, y.Attempt)
		}
		return cmp.Or(y.ReservedAt.Compare(x.ReservedAt), strings.Compare(y.TaskID, x.TaskID), cmp.Compare(y.Attempt, x.Attempt))
	})
	return want
}

// allEntries goes through the pages of a query.
func allEntries(t *testing.T, b Backend, q idem.EntryQuery) (all []*idem.Entry, pages int) {
	t.Helper()
	for {
		p, err := b.Entries(t.Context(), q)
		if err != nil {
			t.Fatalf("%+v: %v", q, err)
		}
		checkTime(t, p.Now)
		if len(p.Entries) > q.Limit && q.Limit > 0 {
			t.Fatalf("%d entries on a page of %d", len(p.Entries), q.Limit)
		}
		all, pages = append(all, p.Entries...), pages+1
		if q.From = p.Next; p.Next == nil {
			return all, pages
		}
	}
}

// entryFilters are the conditions, each alone.
func entryFilters(entries []*idem.Entry, about time.Time) map[string]func(*rand.Rand, *idem.EntryQuery) {
	minutes := func(r *rand.Rand) time.Time {
		return about.Add(-time.Duration(r.IntN(20)) * time.Minute).Add(some(r, 0, 1, -1, 999*time.Nanosecond))
	}
	return map[string]func(*rand.Rand, *idem.EntryQuery){
		"nothing": func(*rand.Rand, *idem.EntryQuery) {},
		"state": func(r *rand.Rand, q *idem.EntryQuery) {
			q.State = some(r, idem.Reserved, idem.Dispatched, idem.Recorded, idem.Released, idem.Absent, "lost")
		},
		"in doubt":        func(r *rand.Rand, q *idem.EntryQuery) { doubt := r.IntN(3) > 0; q.InDoubt = &doubt },
		"handler":         func(r *rand.Rand, q *idem.EntryQuery) { q.Handler = some(r, "http.call", awkward, "nobody's", "\x00") },
		"owner":           func(r *rand.Rand, q *idem.EntryQuery) { q.Owner = some(r, "a", "b", awkward, "nobody") },
		"reserved after":  func(r *rand.Rand, q *idem.EntryQuery) { q.ReservedAfter = minutes(r) },
		"reserved before": func(r *rand.Rand, q *idem.EntryQuery) { q.ReservedBefore = minutes(r) },
		"recorded after":  func(r *rand.Rand, q *idem.EntryQuery) { q.RecordedAfter = minutes(r) },
		"recorded before": func(r *rand.Rand, q *idem.EntryQuery) { q.RecordedBefore = minutes(r) },
		"task":            func(r *rand.Rand, q *idem.EntryQuery) { q.TaskID = some(r, entries...).TaskID },
	}
}

// Every condition, alone and with others, in pages and strides small and large: what comes is what was asked for, in order, as
// it was written.
func TestEntriesAreFound(t *testing.T) {
	t.Parallel()
	onEveryBackend(t, func(t *testing.T, b Backend) {
		r := rand.New(rand.NewPCG(1, 2))
		entries := fillEntries(t, b, r, 100)
		about := now(t, b)
		filters := entryFilters(entries, about)
		names := slices.Sorted(maps.Keys(filters))
		check := func(names ...string) {
			var q idem.EntryQuery
			for _, name := range names {
				filters[name](r, &q)
			}
			q.Limit = some(r, 0, 10, 30, 100)
			readerOf(t, b).stride = some(r, 10, firstStride)
			got, _ := allEntries(t, b, q)
			wantList(t, fmt.Sprintf("%v: %+v", names, q), got, wanted(q, entries, about))
		}
		for _, name := range names {
			for range 3 {
				check(name)
			}
		}
		for range 40 {
			check(some(r, names...), some(r, names...), some(r, names...))
		}
	})
}

// wantList tells the first difference of two lists.
func wantList[T any](t *testing.T, what string, got, want []T) {
	t.Helper()
	for i := range min(len(got), len(want)) {
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Fatalf("%s\nnumber %d is %+v\nwant        %+v", what, i, got[i], want[i])
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%s\ngot %d, want %d", what, len(got), len(want))
	}
}
