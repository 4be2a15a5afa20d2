package store

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
)

var eventKinds = []idem.EventKind{
	idem.EventReplayed, idem.EventReplayed, idem.EventReplayed, idem.EventTakenOver, idem.EventFoundInDoubt, idem.EventRefusedMismatch,
	idem.EventReleased, idem.EventRecordedLate, idem.EventDuplicateRecord, idem.EventRefusedRecord, idem.EventResolved, idem.EventPurged,
}

// fillEvents writes many events, of some tasks and of three weeks, and returns them as they are to come back but for their ids.
func fillEvents(t *testing.T, b Backend, r *rand.Rand, n int) []idem.Event {
	t.Helper()
	about := now(t, b)
	var events []idem.Event
	var changes []idem.Change
	for len(events) < n {
		key := idem.Key{TaskID: fmt.Sprint("task-", r.IntN(1<<20), "-", len(events)), Attempt: int32(r.IntN(3))}
		e := reserved(key)
		e.LeaseUntil = about.Add(time.Hour)
		change := over(nil, e)
		for range 1 + r.IntN(8) {
			event := happened(key, some(r, eventKinds...))
			event.At = about.Add(-time.Duration(r.IntN(30)) * 12 * time.Hour)
			event.Fence, event.Handler, event.Owner = r.Int64(), some(r, "", "http.call", awkward), some(r, "a", "b", awkward)
			event.Actor = idem.Actor{Token: some(r, "a", "t", "tok\x00en"), RequestID: fmt.Sprint(r.Int64())}
			event.Response = some(r, append(slices.Collect(maps.Values(responses)), nil, nil, nil)...)
			change.Events = append(change.Events, event)
			event.Token = plain(event.Token)
			events = append(events, event)
		}
		changes = append(changes, change)
	}
	if i := slices.Index(swap(t, b, changes...), false); i >= 0 {
		t.Fatalf("change %d was refused", i)
	}
	return events
}

// allEvents goes through the pages of a query.
func allEvents(t *testing.T, b Backend, q idem.EventQuery) []idem.Event {
	t.Helper()
	var all []idem.Event
	for {
		p, err := b.Events(t.Context(), q)
		if err != nil {
			t.Fatalf("%+v: %v", q, err)
		}
		if len(p.Events) > q.Limit && q.Limit > 0 {
			t.Fatalf("%d events on a page of %d", len(p.Events), q.Limit)
		}
		all = append(all, p.Events...)
		if q.From = p.Next; p.Next == nil {
			return all
		}
	}
}

func askedEvent(q idem.EventQuery, e idem.Event) bool {
	return (q.Kind == "" || e.Kind == q.Kind) && (q.TaskID == "" || e.TaskID == q.TaskID) &&
		(q.Handler == "" || e.Handler == q.Handler) &&
		(q.Actor == "" || e.Owner == q.Actor || e.Token == q.Actor) && inPeriod(e.At, q.After, q.Before)
}

func compareEvents(x, y idem.Event) int {
	return cmp.Or(x.At.Compare(y.At), strings.Compare(x.ID, y.ID))
}

func TestEventsAreFound(t *testing.T) {
	t.Parallel()
	onEveryBackend(t, func(t *testing.T, b Backend) {
		r := rand.New(rand.NewPCG(3, 4))
		written := fillEvents(t, b, r, 60)
		all := allEvents(t, b, idem.EventQuery{Oldest: true, Limit: 1000})
		wantSameEvents(t, all, written)
		if !slices.IsSortedFunc(all, compareEvents) {
			t.Error("they are not in order")
		}
		about := now(t, b)
		moment := func() time.Time {
			return about.Add(-time.Duration(r.IntN(30)) * 12 * time.Hour).Add(some(r, 0, -time.Hour, 1, 999))
		}
		filters := map[string]func(*idem.EventQuery){
			"nothing": func(*idem.EventQuery) {},
			"kind":    func(q *idem.EventQuery) { q.Kind = some(r, append(eventKinds, "unheard of")...) },
			"task":    func(q *idem.EventQuery) { q.TaskID = some(r, all...).TaskID },
			"handler": func(q *idem.EventQuery) { q.Handler = some(r, "http.call", awkward, "nobody's") },
			"actor":   func(q *idem.EventQuery) { q.Actor = some(r, "a", "t", awkward, "nobody", "tok\uFFFDen") },
			"after":   func(q *idem.EventQuery) { q.After = moment() },
			"before":  func(q *idem.EventQuery) { q.Before = moment() },
			"oldest":  func(q *idem.EventQuery) { q.Oldest = true },
		}
		names := slices.Sorted(maps.Keys(filters))
		check := func(names ...string) {
			var q idem.EventQuery
			for _, name := range names {
				filters[name](&q)
			}
			q.Limit = some(r, 0, 10, 30, 100)
			readerOf(t, b).stride = some(r, 10, firstStride)
			want := slices.DeleteFunc(slices.Clone(all), func(e idem.Event) bool { return !askedEvent(q, e) })
			if !q.Oldest {
				slices.Reverse(want)
			}
			wantList(t, fmt.Sprintf("%v: %+v", names, q), allEvents(t, b, q), want)
		}
		for _, name := range names {
			for range 2 {
				check(name)
				check(name, "oldest")
			}
		}
		for range 30 {
			check(some(r, names...), some(r, names...), some(r, names...))
		}
	})
}

// wantSameEvents compares events but for their order and their ids, of which each must be another.
func wantSameEvents(t *testing.T, got, want []idem.Event) {
	t.Helper()
	ids := map[string]bool{}
	plainly := func(events []idem.Event) []idem.Event {
		events = slices.Clone(events)
		for i := range events {
			ids[events[i].ID] = true
			events[i].ID = ""
		}
		slices.SortFunc(events, func(x, y idem.Event) int {
			return cmp.Or(strings.Compare(x.TaskID, y.TaskID), cmp.Compare(x.Fence, y.Fence))
		})
		return events
	}
	g := plainly(got)
	if len(ids) != len(got) {
		t.Errorf("%d events have %d ids", len(got), len(ids))
	}
	wantList(t, "all events", g, plainly(want))
}

// A task's trail, and any other, comes back as exact as it was told: numbers too.
func TestEventDetailIsExact(t *testing.T) {
	t.Parallel()
	onEveryBackend(t, func(t *testing.T, b Backend) {
		e := reserved(fresh())
		event := happened(e.Key, idem.EventTakenOver)
		event.Detail = map[string]any{"fence": int64(1<<62 + 1), "price": 1.10, "text": "\x00 " + awkward, "list": []any{}, "none": nil}
		swap(t, b, over(nil, e, event))
		got := allEvents(t, b, idem.EventQuery{TaskID: e.TaskID})
		if len(got) != 1 {
			t.Fatalf("%d events", len(got))
		}
		want, err := encodeDetail(event.Detail)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := encodeDetail(got[0].Detail); err != nil || *text != *want {
			t.Errorf("got %s, %v; want %s", *text, err, *want)
		}
	})
}

// tally is what a Go loop counts of entries and events.
func tally(entries []*idem.Entry, events []idem.Event, now time.Time, name func(*idem.Entry, *idem.Event) string) []idem.NamedCounts {
	by := map[string]*idem.NamedCounts{}
	at := func(name string) *idem.NamedCounts {
		if by[name] == nil {
			by[name] = &idem.NamedCounts{Name: name, Counts: noCounts()}
		}
		return by[name]
	}
	for _, e := range entries {
		n := at(name(e, nil))
		n.States[e.State]++
		if e.InDoubt(now) {
			n.InDoubt++
		}
	}
	for i := range events {
		at(name(nil, &events[i])).Events[events[i].Kind]++
	}
	var all []idem.NamedCounts
	for _, n := range by {
		all = append(all, *n)
	}
	size := func(n idem.NamedCounts) (total int64) {
		for _, c := range n.States {
			total += c
		}
		for _, c := range n.Events {
			total += c
		}
		return total
	}
	slices.SortFunc(all, func(x, y idem.NamedCounts) int {
		return cmp.Or(cmp.Compare(size(y), size(x)), strings.Compare(x.Name, y.Name))
	})
	return all
}

func byHandler(e *idem.Entry, v *idem.Event) string {
	if e != nil {
		return e.Handler
	}
	return v.Handler
}

func byOwner(e *idem.Entry, v *idem.Event) string {
	if e != nil {
		return e.Owner
	}
	return v.Owner
}

func TestStats(t *testing.T) {
	t.Parallel()
	onEveryBackend(t, func(t *testing.T, b Backend) {
		r := rand.New(rand.NewPCG(5, 6))
		entries := fillEntries(t, b, r, 300)
		events := fillEvents(t, b, r, 200)
		for _, e := range events { // each stands beside a reservation
			entries = append(entries, loadOne(t, b, e.Key))
		}
		slices.SortFunc(entries, func(x, y *idem.Entry) int { return compareKeys(x.Key, y.Key) })
		entries = slices.CompactFunc(entries, func(x, y *idem.Entry) bool { return x.Key == y.Key })
		for range 130 { // more owners than are told apart
			e := reserved(fresh())
			e.Owner, e.LeaseUntil = e.TaskID, e.ReservedAt.Add(time.Hour)
			entries = append(entries, e)
			swap(t, b, over(nil, e))
		}
		about := now(t, b)
		for _, period := range [][2]time.Time{
			{},
			{about.Add(-10 * time.Minute), about.Add(-5 * time.Minute)},
			{about.Add(-5 * 24 * time.Hour)},
			{{}, about.Add(-7 * time.Minute)},
			{about.Add(time.Hour), about.Add(2 * time.Hour)},
		} {
			after, before := period[0], period[1]
			got, err := b.Stats(t.Context(), after, before)
			if err != nil {
				t.Fatal(err)
			}
			in := slices.DeleteFunc(slices.Clone(entries), func(e *idem.Entry) bool {
				return e.State == idem.Absent || e.Expired(about) || !inPeriod(e.ReservedAt, after, before)
			})
			told := slices.DeleteFunc(slices.Clone(events), func(e idem.Event) bool { return !inPeriod(e.At, after, before) })
			what := fmt.Sprint(after, " to ", before)
			total := tally(in, told, about, func(*idem.Entry, *idem.Event) string { return "" })
			if len(total) == 0 {
				total = []idem.NamedCounts{{Counts: noCounts()}}
			}
			wantList(t, what+", all", []idem.Counts{got.Totals}, []idem.Counts{total[0].Counts})
			wantList(t, what+", handlers", got.Handlers, tally(in, told, about, byHandler))
			owners := tally(in, told, about, byOwner)
			more := int64(max(len(owners)-idem.MaxNames, 0))
			if got.MoreOwners != more || got.MoreHandlers != 0 {
				t.Errorf("%s: %d owners and %d handlers are left out, want %d and 0", what, got.MoreOwners, got.MoreHandlers, more)
			}
			if more == 0 {
				wantList(t, what+", owners", got.Owners, owners)
			} else {
				wantList(t, what+", the largest owners", got.Owners[:3], owners[:3])
			}
			if len(got.Owners) > idem.MaxNames {
				t.Errorf("%d owners", len(got.Owners))
			}
		}
	})
}
