package store

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
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
				if oldest.IsZero() || e.LeaseUntil.Before(oldest) {
					oldest = e.LeaseUntil
				}
			}
		}
		if s.Open != open || s.InDoubt != inDoubt || open == 0 || inDoubt == 0 {
			t.Errorf("%d are open and %d in doubt, want %d and %d", s.Open, s.InDoubt, open, inDoubt)
		}
		i := slices.IndexFunc(all, func(e *idem.Entry) bool { return s.Oldest != nil && e.Key == s.Oldest.Key })
		if i < 0 || !s.Oldest.InDoubt(s.Now) || !s.Oldest.LeaseUntil.Equal(oldest) {
			t.Fatalf("the oldest is %+v, want one of %v", s.Oldest, oldest)
		}
		wantEntry(t, s.Oldest, all[i])
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
