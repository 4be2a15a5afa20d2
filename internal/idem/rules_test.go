package idem_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
)

func TestExpiresAt(t *testing.T) {
	t.Parallel()
	const minute = time.Minute // of the lease
	for _, c := range []struct {
		name string
		run  func(t tester, w *world)
		want time.Duration // after the epoch
	}{
		{"reserved", func(t tester, w *world) { w.do(t, reserve(0, "a")) }, minute + 90*day},
		{"renewed", func(t tester, w *world) {
			w.do(t, reserve(0, "a"))
			w.pass(40*time.Second).do(t, renew(0, "a"))
		}, 40*time.Second + minute + 90*day},
		{"dispatched", func(t tester, w *world) {
			w.do(t, reserve(0, "a", explicit))
			w.pass(40*time.Second).do(t, dispatch(0, "a"))
		}, 40*time.Second + minute + 90*day},
		{"taken over", func(t tester, w *world) {
			w.do(t, reserve(0, "a"))
			w.lapse(0).do(t, reserve(0, "b", naming(0, 1)))
		}, 2*minute + 90*day},
		{"released", func(t tester, w *world) {
			w.do(t, reserve(0, "a"))
			w.pass(time.Second).do(t, release(0, "a"))
		}, time.Second + 14*day},
		{"released in doubt", func(t tester, w *world) {
			w.do(t, reserve(0, "a"))
			w.lapse(0).do(t, reserve(0, "b", naming(0, 1)))
			w.do(t, release(0, "b"))
		}, 2*minute + 90*day},
		{"released, its last doubt ended", func(t tester, w *world) {
			w.do(t, reserve(0, "a"))
			w.lapse(0).do(t, reserve(0, "b", naming(0, 1)))
			w.do(t, release(0, "b"))
			w.pass(day).do(t, release(0, "a"))
		}, minute + day + 14*day},
		{"resolved as not done", func(t tester, w *world) {
			w.do(t, reserve(0, "a"))
			w.pass(day).do(t, resolve(0, 1, nil))
		}, day + 14*day},
		{"resolved with a response", func(t tester, w *world) {
			w.do(t, reserve(0, "a"))
			w.pass(day).do(t, resolve(0, 1, answerA()))
		}, day + 14*day},
		{"recorded", func(t tester, w *world) {
			w.do(t, reserve(0, "a"))
			w.pass(time.Second).do(t, record(0, "a", answerA()))
		}, time.Second + 14*day},
		{"recorded for an hour", func(t tester, w *world) {
			w.do(t, reserve(0, "a"))
			w.do(t, recordShort("a")())
		}, time.Hour},
		{"recorded without a reservation", func(t tester, w *world) { w.do(t, unreserved(0, "o", answerA())) }, 14 * day},
		{"recorded again for longer", func(t tester, w *world) {
			w.do(t, reserve(0, "a"))
			w.do(t, recordShort("a")())
			c := record(0, "a", answerA())
			c.RetentionSeconds = idem.MaxRetention
			w.do(t, c)
		}, time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			c.run(t, w)
			e := w.rows[0]
			if have := e.ExpiresAt.Sub(epoch); have != c.want {
				t.Errorf("expires after %s, want %s", have, c.want)
			}
			if e.Expired(e.ExpiresAt.Add(-time.Microsecond)) || !e.Expired(e.ExpiresAt) {
				t.Error("retention ends at another moment than expires_at")
			}
		})
	}
}

func TestLeases(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.do(t, reserve(0, "a", leaseOf(100)))
	until := func(want time.Duration) {
		t.Helper()
		if have := w.rows[0].LeaseUntil.Sub(epoch); have != want {
			t.Fatalf("the lease ends after %s, want %s", have, want)
		}
	}
	until(100 * time.Second)
	w.pass(10*time.Second).do(t, renew(0, "a")) // 60 s from now is earlier than the old end
	until(100 * time.Second)
	w.pass(50*time.Second).do(t, renew(0, "a"))
	until(120 * time.Second)
	w.do(t, dispatch(0, "a")) // the grant's own seconds, not those of the renewal
	until(160 * time.Second)
	at := w.rows[0].DispatchedAt
	w.pass(10*time.Second).do(t, dispatch(0, "a"))
	until(170 * time.Second)
	if !w.rows[0].DispatchedAt.Equal(at) {
		t.Error("a repeated dispatch moved the moment of the first")
	}
	if e := w.rows[0]; !e.Live(e.LeaseUntil.Add(-time.Microsecond)) || e.Live(e.LeaseUntil) {
		t.Error("the lease ends at another moment than lease_until")
	}
}

// Whatever revives a passed lease makes every look at the doubt before it worthless.
func TestOldLookAuthorisesNothing(t *testing.T) {
	t.Parallel()
	for name, revive := range map[string]idem.Command{"renew": renew(0, "a"), "dispatch": dispatch(0, "a")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			w.do(t, reserve(0, "a"))
			look := w.lapse(0).do(t, reserve(0, "b")).Outcome.Takeovers
			w.do(t, revive)
			w.lapse(0)
			s := w.do(t, reserve(0, "b", func(c *idem.Reserve) { c.Takeovers = look }))
			s.check(t, "doubt!") // a new doubt, found for the first time
			if want := []idem.Takeover{{Attempt: 0, Fence: 2}}; !slices.Equal(s.Outcome.Takeovers, want) {
				t.Errorf("takeovers %v, want %v", s.Outcome.Takeovers, want)
			}
			w.do(t, resolve(0, 1, nil)).check(t, "doubt")
			w.do(t, reserve(0, "b", func(c *idem.Reserve) { c.Takeovers = s.Outcome.Takeovers })).check(t, "take")
		})
	}
}

func TestTakeoversAreCounted(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.do(t, reserve(0, "0"))
	for i := 1; i <= idem.MaxTakeovers; i++ {
		s := w.lapse(0).do(t, reserve(0, fmt.Sprint(i)))
		if have := s.Outcome.TakeoversLeft; have != idem.MaxTakeovers-i+1 {
			t.Fatalf("%d takeovers left before number %d", have, i)
		}
		w.do(t, reserve(0, fmt.Sprint(i), naming(0, int64(i)))).check(t, "take")
	}
	s := w.lapse(0).do(t, reserve(0, "last", naming(0, idem.MaxTakeovers+1)))
	s.check(t, "doubt!")
	if o := s.Outcome; len(o.Takeovers) != 0 || o.Takeovers == nil || o.TakeoversLeft != 0 || len(o.Doubts) != idem.MaxTakeovers+1 {
		t.Errorf("after %d takeovers: %v left %d, %d doubts", idem.MaxTakeovers, o.Takeovers, o.TakeoversLeft, len(o.Doubts))
	}
	// An operator opens the key, and does not open the count.
	w.do(t, resolve(0, idem.MaxTakeovers+1, nil)).check(t, "dropped")
	w.do(t, reserve(0, "next")).check(t, "grant")
	w.lapse(0).do(t, reserve(0, "late", naming(0, idem.MaxTakeovers+2))).check(t, "doubt!")
	// The next life does.
	w.pass(90*day).do(t, reserve(0, "reborn")).check(t, "grant~")
	w.lapse(0).do(t, reserve(0, "over", naming(0, 1))).check(t, "take")
}

// Passing over the doubts of other attempts counts once, at the attempt that is reserved.
func TestPassingOverIsCountedWhereItIsReserved(t *testing.T) {
	t.Parallel()
	w := newWorld()
	for attempt := range int32(3) {
		f := newWorld()
		f.do(t, reserve(attempt, "a"))
		w.rows[attempt] = f.rows[attempt]
	}
	w.lapse(0)
	s := w.do(t, reserve(1, "b"))
	if want := []idem.Takeover{{Attempt: 0, Fence: 1}, {Attempt: 1, Fence: 1}, {Attempt: 2, Fence: 1}}; !slices.Equal(s.Outcome.Takeovers, want) {
		t.Fatalf("takeovers %v, want %v", s.Outcome.Takeovers, want)
	}
	s = w.do(t, reserve(1, "b", naming(2, 1, 1, 1, 0, 1)))
	s.check(t, "take")
	if w.rows[0].Takeovers != 0 || w.rows[1].Takeovers != 1 || w.rows[2].Takeovers != 0 {
		t.Error("a reserve of attempt 1 counts once, there")
	}
	if from := s.event(t, idem.EventTakenOver).Detail["from"].([]map[string]any); len(from) != 3 {
		t.Errorf("the event tells of %d attempts", len(from))
	}
}

func TestTooManyAttemptsInTheWay(t *testing.T) {
	t.Parallel()
	w := newWorld()
	var all []int64
	for attempt := range int32(idem.MaxTakeovers) {
		f := newWorld()
		f.do(t, reserve(attempt, "a"))
		w.rows[attempt] = f.rows[attempt]
		all = append(all, int64(attempt), 1)
	}
	w.lapse(0)
	w.fork().do(t, reserve(20, "b", naming(all...))).check(t, "take")

	f := newWorld()
	f.do(t, reserve(17, "a"))
	w.rows[17] = f.rows[17]
	s := w.do(t, reserve(20, "b", naming(all...)))
	s.check(t, "doubt!@")
	if o := s.Outcome; len(o.Takeovers) != 0 || o.TakeoversLeft != 0 {
		t.Errorf("with %d attempts in the way: takeovers %v left %d", idem.MaxTakeovers+1, o.Takeovers, o.TakeoversLeft)
	}
}

func TestDoubtsAreShownOldestFirst(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.do(t, reserve(0, "a", explicit))
	w.do(t, dispatch(0, "a"))
	w.lapse(0).do(t, reserve(0, "b", naming(0, 1)))
	fences := func(o idem.Outcome) (list []int64) {
		for _, g := range o.Doubts {
			list = append(list, g.Fence)
		}
		return list
	}
	s := w.do(t, reserve(0, "b", naming(0, 1)))
	s.check(t, "same")
	if have := fences(s.Outcome); !slices.Equal(have, []int64{1}) {
		t.Errorf("the grant inherits %v", have)
	}
	w.lapse(0).do(t, renew(0, "b"))
	s = w.lapse(0).do(t, reserve(0, "c"))
	if have := fences(s.Outcome); !slices.Equal(have, []int64{1, 3}) || s.Outcome.Entry.Fence != 3 {
		t.Errorf("doubts %v, want 1 and 3", have)
	}
	if g := s.Outcome.Doubts[0]; g.Owner != "o-a" || g.DispatchedAt.IsZero() || !g.Explicit || g.ReservedAt != epoch {
		t.Errorf("the oldest doubt is %+v", g)
	}
}

func TestOtherAttemptsAreListed(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.do(t, reserve(0, "a"))
	w.do(t, record(0, "a", answerB()))
	w.do(t, reserve(1, "b"))
	w.do(t, release(1, "b"))
	want := []idem.Other{{Attempt: 0, State: idem.Recorded, Status: 402}, {Attempt: 1, State: idem.Released}}
	for name, cmd := range map[string]idem.Command{
		"grant": reserve(2, "c"), "replay": reserve(2, "c", taskScope), "look": replay(2),
	} {
		if have := w.fork().do(t, cmd).Outcome.Others; !slices.Equal(have, want) {
			t.Errorf("%s: others %v, want %v", name, have, want)
		}
	}
	if s := w.fork().do(t, reserve(1, "d", taskScope)); len(s.Outcome.Others) != 1 || s.Outcome.Entry.Attempt != 0 {
		t.Errorf("scope task: %+v", s.Outcome)
	}
	if have := w.fork().do(t, reserve(0, "c")).Outcome.Others; have != nil {
		t.Errorf("attempt 0 of scope attempt lists %v", have)
	}
	if have := newWorld().do(t, reserve(0, "c", taskScope)).Outcome.Others; have == nil || len(have) != 0 {
		t.Errorf("scope task lists %v, want an empty list", have)
	}
}

func TestRequestHash(t *testing.T) {
	t.Parallel()
	with := func(c *idem.Record, hash, owner string) *idem.Record {
		c.RequestHash, c.Owner = hash, owner
		return c
	}
	w := newWorld()
	w.do(t, reserve(0, "a", noHash))
	f := w.fork()
	if s := f.do(t, with(record(0, "a", answerA()), "sha256:cc", "o-a")); s.Outcome.IgnoredFields != nil || f.rows[0].RequestHash != "sha256:cc" {
		t.Errorf("a record fills in a missing hash: %v, %s", s.Outcome.IgnoredFields, f.rows[0].RequestHash)
	}
	f.do(t, reserve(0, "b")).check(t, "mismatch")

	w.do(t, release(0, "a"))
	w.do(t, reserve(0, "b"))
	for range 2 { // the first record and its repeat
		s := w.do(t, with(record(0, "b", answerA()), "sha256:cc", "o-other"))
		if want := []string{"owner", "request_hash"}; !slices.Equal(s.Outcome.IgnoredFields, want) || w.rows[0].RequestHash != "sha256:aa" {
			t.Errorf("ignored %v, want %v", s.Outcome.IgnoredFields, want)
		}
	}
}

// The memory of spent reservations is bounded; what is forgotten is unknown.
func TestSpentIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld()
	for i := range 1002 {
		for _, cmd := range []idem.Command{reserve(0, fmt.Sprint(i)), release(0, fmt.Sprint(i))} {
			dec := policy.Decide(idem.Task{Entries: w.rows, Whole: true}, cmd, w.now) // bare, since a world checks too much for this
			w.rows = map[int32]*idem.Entry{0: dec.Changes[0].Entry}
		}
	}
	if n := len(w.rows[0].Spent); n != 1000 {
		t.Errorf("%d spent reservations are remembered", n)
	}
	w.do(t, dispatch(0, "0")).check(t, "alien")
	w.do(t, dispatch(0, "1")).check(t, "lost")
}

// What a change is conditional upon.
func TestConditionsOfChanges(t *testing.T) {
	t.Parallel()
	own := func(s step) idem.Change { return s.Changes[0] }
	w := newWorld()
	if c := own(w.do(t, reserve(0, "a"))); !c.Alone || c.Base != 0 || !c.Before.Equal(w.rows[0].LeaseUntil) {
		t.Errorf("a fresh reserve of attempt 0 loads nothing: %+v", c)
	}
	for _, cmd := range []idem.Command{reserve(1, "b"), reserve(0, "b", taskScope), unreserved(0, "o", answerA())} {
		if c := own(newWorld().do(t, cmd)); c.Alone {
			t.Errorf("%T: what was decided upon the whole task need not be alone: %+v", cmd, c)
		}
	}
	until := w.rows[0].LeaseUntil
	for name, cmd := range map[string]idem.Command{"renew": renew(0, "a"), "dispatch": dispatch(0, "a"), "record": record(0, "a", answerA())} {
		if c := own(w.fork().pass(time.Second).do(t, cmd)); !c.Before.Equal(until) || c.Base != 1 {
			t.Errorf("a %s of a live lease must be written before its end: %+v", name, c)
		}
	}
	// A record whose lease passes on its way is late.
	w.lag = time.Minute
	w.do(t, record(0, "a", answerA())).check(t, "late")
	// A replay is told only of a key that still stands.
	w.lag = 0
	if c := own(w.do(t, replay(0))); !c.Same || !c.Before.Equal(w.rows[0].ExpiresAt) {
		t.Errorf("a replay: %+v", c)
	}
}
