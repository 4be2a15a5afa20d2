package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/internal/pgtest"
)

// onEveryBackend runs a test, whole, over each store. Every case takes keys of its own.
func onEveryBackend(t *testing.T, test func(t *testing.T, b Backend)) {
	t.Helper()
	for name, url := range map[string]func(*testing.T) string{
		"Postgres":      func(t *testing.T) string { return pgtest.New(t) },
		"SQLite":        func(t *testing.T) string { return "sqlite:" + t.TempDir() + "/idemstore.db" },
		"SQLite memory": func(*testing.T) string { return "sqlite::memory:" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, openTest(t, url(t), new(atomic.Int64)))
		})
	}
}

// swap swaps and fails the test on an error.
func swap(t *testing.T, s idem.Store, changes ...idem.Change) []bool {
	t.Helper()
	written, now, err := s.Swap(t.Context(), changes)
	if err != nil {
		t.Fatalf("swap: %v", err)
	}
	checkTime(t, now)
	return written
}

// wantWritten checks which changes a swap writes.
func wantWritten(t *testing.T, s idem.Store, changes []idem.Change, want ...bool) {
	t.Helper()
	if got := swap(t, s, changes...); !slices.Equal(got, want) {
		t.Fatalf("written: got %v, want %v", got, want)
	}
}

func load(t *testing.T, s idem.Store, keys ...idem.Key) map[idem.Key]*idem.Entry {
	t.Helper()
	entries, now, err := s.Load(t.Context(), keys)
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	checkTime(t, now)
	byKey := make(map[idem.Key]*idem.Entry)
	for _, e := range entries {
		if byKey[e.Key] != nil {
			t.Fatalf("%s came twice", e.Key)
		}
		byKey[e.Key] = e
	}
	return byKey
}

func loadOne(t *testing.T, s idem.Store, k idem.Key) *idem.Entry {
	t.Helper()
	return load(t, s, k)[k]
}

func checkTime(t *testing.T, now time.Time) {
	t.Helper()
	if now.Location() != time.UTC || now.Nanosecond()%1000 != 0 {
		t.Errorf("the time %v is not in UTC and microseconds", now)
	}
}

// now is the store's time.
func now(t *testing.T, s idem.Store) time.Time {
	t.Helper()
	_, now, err := s.Load(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return now
}

// reserved is a fresh entry of a key.
func reserved(k idem.Key) *idem.Entry {
	at := time.Now().UTC().Truncate(time.Microsecond)
	return &idem.Entry{
		Key: k, Version: 1000, State: idem.Reserved,
		Grant:        idem.Grant{ReservationID: uuid.NewString(), Owner: "a", Fence: 1, ReservedAt: at, LeaseUntil: at.Add(time.Minute)},
		LeaseSeconds: 60, ExpiresAt: at.Add(90 * 24 * time.Hour),
	}
}

// recorded is the entry that a record makes of another.
func recorded(e *idem.Entry, r *idem.Response) *idem.Entry {
	n := *e
	n.Version++
	n.State, n.Response, n.RecordedBy, n.RecordedReservationID = idem.Recorded, r, e.Owner, e.ReservationID
	n.RecordedAt = e.ReservedAt.Add(time.Second)
	n.ExpiresAt = n.RecordedAt.Add(14 * 24 * time.Hour)
	return &n
}

// over is the change from one entry to another; from nil, it is fresh.
func over(old, e *idem.Entry, events ...idem.Event) idem.Change {
	c := idem.Change{Entry: e, Events: events}
	if old != nil {
		c.Base = old.Version
	}
	return c
}

func happened(k idem.Key, kind idem.EventKind) idem.Event {
	return idem.Event{At: time.Now().UTC().Truncate(time.Microsecond), Kind: kind, Key: k, Fence: 1, Owner: "a"}
}

func TestGuards(t *testing.T) {
	t.Parallel()
	onEveryBackend(t, func(t *testing.T, b Backend) {
		past := now(t, b)
		soon := past.Add(time.Minute)
		for name, c := range map[string]struct {
			row     func(*idem.Entry) // nil: there is none
			sibling int32             // another attempt of the task that has a row; 0: none
			change  func(*idem.Change)
			want    bool
		}{
			"no row, none expected":         {change: func(*idem.Change) {}, want: true},
			"no row, one expected":          {change: func(c *idem.Change) { c.Base = 7 }},
			"a row, none expected":          {row: func(*idem.Entry) {}, change: func(c *idem.Change) { c.Base = 0 }},
			"a row at the version":          {row: func(*idem.Entry) {}, change: func(*idem.Change) {}, want: true},
			"a row at a later version":      {row: func(e *idem.Entry) { e.Version++ }, change: func(*idem.Change) {}},
			"an expired row at the version": {row: func(e *idem.Entry) { longAgo(e) }, change: func(*idem.Change) {}, want: true},
			"in time, no row":               {change: func(c *idem.Change) { c.Before = soon }, want: true},
			"in time, a row":                {row: func(*idem.Entry) {}, change: func(c *idem.Change) { c.Before = soon }, want: true},
			"too late, no row":              {change: func(c *idem.Change) { c.Before = past }},
			"too late, a row":               {row: func(*idem.Entry) {}, change: func(c *idem.Change) { c.Before = past }},
			"alone":                         {change: func(c *idem.Change) { c.Alone = true }, want: true},
			"alone beside a later one":      {sibling: 6, change: func(c *idem.Change) { c.Alone = true }},
			"alone beside an earlier one":   {sibling: 4, change: func(c *idem.Change) { c.Alone = true }, want: true},
			"beside a later one":            {sibling: 6, change: func(*idem.Change) {}, want: true},
			"alone, a row, a later one":     {row: func(*idem.Entry) {}, sibling: 6, change: func(c *idem.Change) { c.Alone = true }},
			"same":                          {row: func(*idem.Entry) {}, change: func(c *idem.Change) { c.Same = true }, want: true},
			"same, in time":                 {row: func(*idem.Entry) {}, change: func(c *idem.Change) { c.Same, c.Before = true, soon }, want: true},
			"same, too late":                {row: func(*idem.Entry) {}, change: func(c *idem.Change) { c.Same, c.Before = true, past }},
			"same, at a later version":      {row: func(e *idem.Entry) { e.Version++ }, change: func(c *idem.Change) { c.Same = true }},
			"same, no row":                  {change: func(c *idem.Change) { c.Same, c.Base = true, 7 }},
			"same, no row and none named":   {change: func(c *idem.Change) { c.Same = true }},
		} {
			for _, beside := range []struct{ events, neighbours, theirEvents int }{{0, 0, 0}, {2, 0, 0}, {0, 2, 0}, {0, 2, 1}, {2, 2, 1}} {
				events := beside.events
				t.Run(fmt.Sprintf("%s, %d events, %d neighbours with %d", name, events, beside.neighbours, beside.theirEvents), func(t *testing.T) {
					key := idem.Key{TaskID: uuid.NewString(), Attempt: 5}
					change := idem.Change{Entry: reserved(key)}
					var before *idem.Entry
					if c.row != nil {
						change.Base = reserved(key).Version
						before = reserved(key)
						c.row(before)
						wantWritten(t, b, []idem.Change{over(nil, before)}, true)
					}
					if c.sibling != 0 {
						swap(t, b, over(nil, reserved(idem.Key{TaskID: key.TaskID, Attempt: c.sibling})))
					}
					change.Entry.Version, change.Entry.Owner = 2000, "the changed one"
					c.change(&change)
					for range events {
						change.Events = append(change.Events, happened(key, idem.EventTakenOver))
					}
					// Neighbours on both sides are written whatever becomes of it.
					low, high := idem.Key{TaskID: "0" + uuid.NewString()}, idem.Key{TaskID: "x" + uuid.NewString()}
					told := slices.Repeat([]idem.Event{happened(low, idem.EventReplayed)}, beside.theirEvents)
					if beside.neighbours == 0 {
						wantWritten(t, b, []idem.Change{change}, c.want)
					} else {
						wantWritten(t, b, []idem.Change{over(nil, reserved(high)), change, over(nil, reserved(low), told...)}, true, c.want, true)
					}

					after := loadOne(t, b, key)
					switch changed := after != nil && after.Owner == "the changed one"; {
					case changed != (c.want && !change.Same):
						t.Errorf("the row is %+v", after)
					case !changed && (after == nil) != (before == nil):
						t.Errorf("there was a row: %v, there is one: %v", before != nil, after != nil)
					}
					if got := len(eventsOf(t, b, key.TaskID)); got > 0 != (c.want && events > 0) || got > 0 && got != events {
						t.Errorf("%d events are written", got)
					}
					if there := beside.neighbours > 0; (loadOne(t, b, low) != nil) != there || (loadOne(t, b, high) != nil) != there ||
						len(eventsOf(t, b, low.TaskID)) != beside.theirEvents {
						t.Error("the neighbours are not as they should be")
					}
				})
			}
		}
	})
}

// longAgo moves an entry past its retention.
func longAgo(e *idem.Entry) {
	e.ReservedAt, e.LeaseUntil = e.ReservedAt.AddDate(-1, 0, 0), e.LeaseUntil.AddDate(-1, 0, 0)
	e.ExpiresAt = e.LeaseUntil.Add(time.Hour)
}

// Two replicas write the same keys in opposite orders: none waits for the other for ever, and of each version there is one.
func TestSwapsRace(t *testing.T) {
	t.Parallel()
	onEveryBackend(t, func(t *testing.T, b Backend) {
		entries := make([]*idem.Entry, 20)
		for i := range entries {
			entries[i] = reserved(fresh())
			swap(t, b, over(nil, entries[i]))
		}
		const rounds, racers = 25, 4
		for round := range rounds {
			wins := make([][]bool, racers)
			var all sync.WaitGroup
			for r := range racers {
				all.Go(func() {
					var changes []idem.Change
					for _, e := range entries {
						n := *e
						n.Version, n.Owner = e.Version+1, fmt.Sprint(round, r)
						changes = append(changes, over(e, &n, happened(e.Key, idem.EventReplayed)))
					}
					if r%2 == 1 {
						slices.Reverse(changes)
					}
					written, _, err := b.Swap(context.Background(), changes)
					if err != nil {
						t.Error(err)
						return
					}
					if r%2 == 1 {
						slices.Reverse(written)
					}
					wins[r] = written
				})
			}
			all.Wait()
			if t.Failed() {
				return
			}
			for i, e := range entries {
				winner := -1
				for r := range racers {
					if wins[r][i] && winner >= 0 {
						t.Fatal("two won")
					}
					if wins[r][i] {
						winner = r
					}
				}
				entries[i] = loadOne(t, b, e.Key)
				if winner < 0 || entries[i].Owner != fmt.Sprint(round, winner) {
					t.Fatalf("racer %d won, the row is %q's", winner, entries[i].Owner)
				}
			}
		}
		for _, e := range entries {
			if got := len(eventsOf(t, b, e.TaskID)); got != rounds {
				t.Errorf("%d events, want one of each winner: %d", got, rounds)
			}
		}
	})
}

// A row that cannot be is refused by the schema, with all that is written beside it.
func TestImpossibleRows(t *testing.T) {
	t.Parallel()
	onEveryBackend(t, func(t *testing.T, b Backend) {
		done := func(e *idem.Entry) { *e = *recorded(e, &idem.Response{Status: 200}) }
		for name, spoil := range map[string]func(e *idem.Entry){
			"an unknown state":                    func(e *idem.Entry) { e.State = "lost" },
			"version 0":                           func(e *idem.Entry) { e.Version = 0 },
			"a negative attempt":                  func(e *idem.Entry) { e.Attempt = -1 },
			"a grant with fence 0":                func(e *idem.Entry) { e.Fence = 0 },
			"a grant that was never given":        func(e *idem.Entry) { e.ReservedAt = time.Time{} },
			"a grant without a lease":             func(e *idem.Entry) { e.LeaseUntil = time.Time{} },
			"a lease before its reservation":      func(e *idem.Entry) { e.LeaseUntil = e.ReservedAt.Add(-time.Microsecond) },
			"retention that ends before it began": func(e *idem.Entry) { e.ExpiresAt = e.ReservedAt.Add(-time.Microsecond) },
			"dispatched at no time":               func(e *idem.Entry) { e.State = idem.Dispatched },
			"dispatched before it was reserved": func(e *idem.Entry) {
				e.State, e.DispatchedAt = idem.Dispatched, e.ReservedAt.Add(-time.Second)
			},
			"absent with a grant": func(e *idem.Entry) { e.State = idem.Absent },
			"absent with an owner": func(e *idem.Entry) {
				*e = idem.Entry{Key: e.Key, Version: 1, State: idem.Absent, ExpiresAt: e.ExpiresAt, Grant: idem.Grant{Owner: "a"}}
			},
			"recorded without a response":        func(e *idem.Entry) { done(e); e.Response = nil },
			"recorded at no time":                func(e *idem.Entry) { done(e); e.RecordedAt = time.Time{} },
			"a response of a reserved key":       func(e *idem.Entry) { e.Response = &idem.Response{Status: 200} },
			"recorded and expired at once":       func(e *idem.Entry) { done(e); e.ExpiresAt = e.RecordedAt.Add(-time.Second) },
			"a record of a key that is released": func(e *idem.Entry) { done(e); e.State = idem.Released },
		} {
			t.Run(name, func(t *testing.T) {
				bad, good := reserved(fresh()), reserved(fresh())
				spoil(bad)
				_, _, err := b.Swap(t.Context(), []idem.Change{over(nil, bad), over(nil, good, happened(good.Key, idem.EventReplayed))})
				if !errors.Is(err, idem.ErrNotWritten) {
					t.Fatalf("got %v, want %v", err, idem.ErrNotWritten)
				}
				if loadOne(t, b, bad.Key) != nil || loadOne(t, b, good.Key) != nil || len(eventsOf(t, b, good.TaskID)) > 0 {
					t.Error("something was written")
				}
			})
		}
	})
}
