package store

import (
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/internal/pgtest"
)

func TestStanding(t *testing.T) {
	t.Parallel()
	onEveryBackend(t, func(t *testing.T, b Backend) {
		if s, err := b.Standing(t.Context()); err != nil || s.Open+s.InDoubt != 0 || s.Oldest != nil || s.Now.IsZero() {
			t.Errorf("of nothing: %+v, %v", s, err)
		}
		all := fillEntries(t, b, rand.New(rand.NewPCG(7, 8)), 300)
		s, err := b.Standing(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all = slices.DeleteFunc(all, func(e *idem.Entry) bool { return e.State == idem.Absent || e.Expired(s.Now) })
		var open, inDoubt int64
		var oldest time.Time
		for _, e := range all {
			if e.Live(s.Now) {
				open++
			}
			if e.InDoubt(s.Now) {
				inDoubt++
				if since := e.DoubtSince(s.Now); oldest.IsZero() || since.Before(oldest) {
					oldest = since
				}
			}
		}
		if s.Open != open || s.InDoubt != inDoubt || open == 0 || inDoubt == 0 {
			t.Errorf("%d are open and %d in doubt, want %d and %d", s.Open, s.InDoubt, open, inDoubt)
		}
		i := slices.IndexFunc(all, func(e *idem.Entry) bool { return s.Oldest != nil && e.Key == s.Oldest.Key })
		if i < 0 || !s.Oldest.InDoubt(s.Now) || !s.Oldest.DoubtSince(s.Now).Equal(oldest) {
			t.Fatalf("the oldest is %+v, want one of %v", s.Oldest, oldest)
		}
		wantEntry(t, s.Oldest, all[i])
	})
}

// A doubt is as old as the lease that left it, whoever held the key since and for however long.
func TestOldestInDoubt(t *testing.T) {
	t.Parallel()
	onEveryBackend(t, func(t *testing.T, b Backend) {
		_, at, err := b.Load(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		at = at.Truncate(time.Microsecond)
		young, old := reserved(fresh()), reserved(fresh())
		young.ReservedAt, young.LeaseUntil = at.Add(-2*time.Minute), at.Add(-time.Minute)
		old.ReservedAt, old.LeaseUntil = at.Add(-time.Second), at.Add(24*time.Hour)
		old.State, old.ReleasedAt, old.Fence = idem.Released, at, 2
		old.Former = []idem.Former{{Doubt: true, Grant: idem.Grant{
			ReservationID: "former", Owner: "w", Fence: 1, ReservedAt: at.Add(-2 * time.Hour), LeaseUntil: at.Add(-time.Hour),
		}}}
		swap(t, b, over(nil, young), over(nil, old))
		s, err := b.Standing(t.Context())
		if err != nil || s.InDoubt != 2 || s.Oldest == nil || s.Oldest.Key != old.Key {
			t.Errorf("%d in doubt, the oldest is %+v (%v), want %v", s.InDoubt, s.Oldest, err, old.Key)
		}
	})
}

func TestOneEntry(t *testing.T) {
	t.Parallel()
	onEveryBackend(t, func(t *testing.T, b Backend) {
		for _, e := range fillEntries(t, b, rand.New(rand.NewPCG(9, 10)), 100) {
			got, now, err := b.Entry(t.Context(), e.Key)
			if err != nil {
				t.Fatal(err)
			}
			checkTime(t, now)
			if e.State == idem.Absent || e.Expired(now) {
				e = nil
			}
			wantEntry(t, got, e)
		}
		if got, _, err := b.Entry(t.Context(), fresh()); got != nil || err != nil {
			t.Errorf("nobody knows of it: %+v, %v", got, err)
		}
	})
}

// What is live, in doubt and past its retention is judged by the time that callers see.
func TestQuestionsFollowTheStoresTime(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"Postgres": pgtest.New(t), "SQLite": "sqlite:" + t.TempDir() + "/x.db", "SQLite memory": "sqlite::memory:"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var shift atomic.Int64
			b := openTest(t, url, &shift)
			e := reserved(fresh())
			e.LeaseUntil = e.ReservedAt.Add(time.Hour)
			swap(t, b, over(nil, e))
			yes := true
			for _, c := range []struct {
				after         time.Duration
				open, inDoubt int64
				listed, shown int
			}{
				{0, 1, 0, 0, 1}, {2 * time.Hour, 0, 1, 1, 1}, {91 * 24 * time.Hour, 0, 0, 0, 0},
			} {
				shift.Store(int64(c.after))
				s, err := b.Standing(t.Context())
				if err != nil || s.Open != c.open || s.InDoubt != c.inDoubt || s.Now.Before(e.ReservedAt.Add(c.after)) {
					t.Errorf("after %v: %+v, %v", c.after, s, err)
				}
				if got, _ := allEntries(t, b, idem.EntryQuery{InDoubt: &yes}); len(got) != c.listed {
					t.Errorf("after %v: %d entries are in doubt", c.after, len(got))
				}
				if got, _ := allEntries(t, b, idem.EntryQuery{TaskID: e.TaskID}); len(got) != c.shown {
					t.Errorf("after %v: %d entries of the task", c.after, len(got))
				}
				if got, _, err := b.Entry(t.Context(), e.Key); err != nil || (got != nil) != (c.shown > 0) {
					t.Errorf("after %v: %+v, %v", c.after, got, err)
				}
			}
		})
	}
}
