package idem_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
)

// A refusal repeats only if its kind, its owner and the bytes that were offered are the same.
func TestRefusalsThatRepeat(t *testing.T) {
	t.Parallel()
	offer := func(name string, r *idem.Response) *idem.Record { return record(0, name, r) }
	for name, build := range map[string]func(w *world){
		"absent":   func(*world) {},
		"recorded": func(w *world) { w.do(t, reserve(0, "a")); w.do(t, record(0, "a", &idem.Response{Status: 200})) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			build(w)
			told := func(want bool, cmd idem.Command) {
				t.Helper()
				s := w.do(t, cmd)
				if s.Outcome.OK || s.Outcome.Repeated == want || len(s.Changes) > 0 != want {
					t.Fatalf("written %t: %+v, %d changes", want, s.Outcome, len(s.Changes))
				}
			}
			told(true, offer("x", answerA()))
			told(false, offer("x", answerA()))
			told(false, offer("y", answerA())) // neither is known, so both are the token's
			told(true, offer("x", answerB()))
			w.pass(time.Hour - time.Microsecond)
			told(false, offer("x", answerA()))
			w.pass(time.Microsecond)
			told(true, offer("x", answerA()))
			other := offer("x", answerA())
			other.Token = "another"
			told(true, other)
			told(true, &idem.Release{Call: call(0), ReservationID: rid("x"), Response: &idem.Response{Status: 500}})
		})
	}
}

func TestMismatchIsToldOnceAnHour(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.do(t, reserve(0, "a"))
	w.do(t, record(0, "a", answerA()))
	ev := w.do(t, reserve(0, "b", otherHash)).event(t, idem.EventRefusedMismatch)
	if ev.Owner != "o-b" || ev.Fence != 1 || ev.Detail["request_hash"] != "sha256:bb" || ev.Response != nil {
		t.Errorf("the event is %+v", ev)
	}
	if s := w.do(t, reserve(0, "b", otherHash)); !s.Outcome.Repeated || len(s.Changes) > 0 {
		t.Errorf("the second is told again: %+v", s.Changes)
	}
	w.pass(time.Hour).do(t, reserve(0, "b", otherHash)).check(t, "mismatch")
	ev = w.do(t, reserve(1, "b", otherHash, taskScope)).event(t, idem.EventRefusedMismatch)
	if ev.Attempt != 1 || ev.Detail["standing_attempt"] != int32(0) {
		t.Errorf("of another attempt's hash the event is %+v", ev)
	}
}

// The memory of refusals is bounded. It forgets the oldest, which is then written twice rather than lost.
func TestRefusalMemoryIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld()
	for i := range 40 {
		w.do(t, record(0, "x", &idem.Response{Status: 200 + i})).check(t, "none+")
	}
	if n := len(w.rows[0].Refusals); n != 32 {
		t.Errorf("%d refusals are remembered", n)
	}
	if s := w.do(t, record(0, "x", &idem.Response{Status: 239})); !s.Outcome.Repeated {
		t.Error("the newest is forgotten")
	}
	w.do(t, record(0, "x", &idem.Response{Status: 200})).check(t, "none+")
	w.do(t, reserve(0, "a")).check(t, "grant")
	if n := len(w.rows[0].Refusals); n != 32 {
		t.Errorf("a grant forgets refusals: %d are left", n)
	}
}

// Events tell of the grant that acted, which need not be the newest.
func TestEventsCarryTheActingGrant(t *testing.T) {
	t.Parallel()
	fences := map[string]int64{"letgo": 1, "past": 2, "quiet": 3, "doubter": 4, "cur": 5}
	w := newWorld()
	current(doubted)(t, w)
	recorded := w.fork()
	recorded.do(t, record(0, "cur", answerA()))
	check := func(ev idem.Event, name string) {
		t.Helper()
		if ev.Owner != "o-"+name || ev.Fence != fences[name] || ev.Handler != "h" || ev.Token != "token" || ev.RequestID != "request" {
			t.Errorf("%s by %s: %+v", ev.Kind, name, ev)
		}
	}
	for name := range fences {
		ev := recorded.fork().do(t, record(0, name, answerB())).event(t, idem.EventDuplicateRecord)
		check(ev, name)
		if ev.Detail["same_response"] != false || !ev.Response.Equal(answerB()) {
			t.Errorf("a duplicate of %s: %+v", name, ev)
		}
	}
	check(recorded.fork().do(t, record(0, "doubter", answerA())).event(t, idem.EventDuplicateRecord), "doubter")
	for _, name := range []string{"letgo", "past"} {
		check(w.fork().do(t, record(0, name, answerA())).event(t, idem.EventRefusedRecord), name)
	}
	for _, name := range []string{"quiet", "doubter"} {
		check(w.fork().do(t, record(0, name, answerA())).event(t, idem.EventRecordedLate), name)
	}
	for _, name := range []string{"doubter", "cur"} {
		check(w.fork().do(t, release(0, name)).event(t, idem.EventReleased), name)
	}
	ev := w.fork().lapse(0).do(t, reserve(0, "next", naming(0, 5))).event(t, idem.EventTakenOver)
	if ev.Owner != "o-next" || ev.Fence != 6 {
		t.Errorf("the takeover is %+v", ev)
	}
	ev = w.fork().lapse(0).do(t, resolve(0, 5, answerA())).event(t, idem.EventResolved)
	if ev.Owner != "token" || ev.Fence != 5 || ev.Detail["reason"] != "looked it up" || ev.Detail["action"] != "record" ||
		len(ev.Detail["doubts"].([]map[string]any)) != 2 {
		t.Errorf("the resolution is %+v", ev)
	}
}

// A release that changes nothing any more still brings what its worker saw, and its repeat does not bring it twice.
func TestReleaseKeepsItsEvidence(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.do(t, reserve(0, "a"))
	failed := func(name string, r *idem.Response) *idem.Release {
		c := release(0, name)
		c.Reason, c.Response = "refused", r
		return c
	}
	ev := w.do(t, failed("a", answerA())).event(t, idem.EventReleased)
	if !ev.Response.Equal(answerA()) || ev.Detail["reason"] != "refused" {
		t.Errorf("the release is %+v", ev)
	}
	if s := w.do(t, failed("a", answerA())); !s.Outcome.OK || len(s.Changes) > 0 {
		t.Errorf("its repeat changes something: %+v", s.Changes)
	}
	w.do(t, failed("a", answerB())).check(t, "nop+")

	w.do(t, reserve(0, "b"))
	w.lapse(0).do(t, reserve(0, "c", naming(0, 2)))
	w.do(t, failed("b", answerA())).check(t, "let")
	if s := w.do(t, failed("b", answerA())); len(s.Changes) > 0 {
		t.Errorf("the repeat of a doubt's end changes something: %+v", s.Changes)
	}
}

func TestDoubtIsFoundOnce(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.do(t, reserve(0, "a"))
	ev := w.lapse(0).do(t, replay(0)).event(t, idem.EventFoundInDoubt)
	if ev.Owner != "reader" || ev.Fence != 1 || len(ev.Detail["doubts"].([]map[string]any)) != 1 {
		t.Errorf("the finding is %+v", ev)
	}
	for i, cmd := range []idem.Command{replay(0), reserve(0, "b"), reserve(1, "b"), resolve(0, 9, nil)} {
		if s := w.do(t, cmd); len(s.Changes) > 0 {
			t.Errorf("%d: a doubt that is known is found again: %v", i, s.kinds())
		}
	}
}

// The end of a doubt by retention is told once, by whoever finds it first, and names the last holder.
func TestPurgedIsToldOnce(t *testing.T) {
	t.Parallel()
	for name, cmd := range map[string]idem.Command{
		"own": release(0, "a"), "own reserve": reserve(0, "z"), "other": reserve(1, "z"), "other replay": replay(2),
		"the purge": &idem.Expire{Call: call(0)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			w.do(t, reserve(0, "a"))
			w.lapse(0).do(t, reserve(0, "b", naming(0, 1)))
			w.lapse(0).pass(90 * day)
			ev := w.do(t, cmd).event(t, idem.EventPurged)
			if ev.Attempt != 0 || ev.Owner != "o-b" || ev.Fence != 2 || len(ev.Detail["doubts"].([]map[string]any)) != 2 {
				t.Errorf("the end is %+v", ev)
			}
			for _, again := range []idem.Command{release(0, "a"), replay(0), replay(1)} {
				for _, kind := range w.do(t, again).kinds() {
					if kind == string(idem.EventPurged) {
						t.Error("the end is told twice")
					}
				}
			}
		})
	}
}

// The purge's look at a key tells of the end of a doubt, and touches nothing else.
func TestExpireTouchesNothingElse(t *testing.T) {
	t.Parallel()
	for _, state := range states() {
		w := newWorld()
		state.build(t, w)
		s := w.do(t, &idem.Expire{Call: call(0)})
		if gone := w.rows[0] == nil || w.rows[0].State == idem.Absent || w.rows[0].Expired(w.now); gone != (s.Outcome.Entry == nil) {
			t.Errorf("%s: gone %t, and the look finds %v", state.name, gone, s.Outcome.Entry)
		}
		if told := len(s.Changes) > 0; told != (state.name == "expired-doubt") || told != s.Outcome.First {
			t.Errorf("%s: the look changes %v, and says that it told: %t", state.name, s.Changes, s.Outcome.First)
		}
	}
}

// What is replayed is what was recorded, also from another attempt, of which only a part was loaded at first.
func TestReplayIsExact(t *testing.T) {
	t.Parallel()
	for i, r := range []*idem.Response{
		{Status: 200},
		{Status: 204, HasBody: true},
		{Status: 599, HasBody: true, Body: []byte{0, 0xff, '\n'}, Headers: []idem.Header{{"A", "1"}, {"a", ""}, {"A", "1"}}},
		{Status: 200, Omitted: true, BodySHA256: fmt.Sprintf("%064x", 5), BodySize: 1 << 40},
	} {
		w := newWorld()
		w.do(t, reserve(0, "a"))
		w.do(t, record(0, "a", r))
		for _, cmd := range []idem.Command{replay(0), reserve(0, "b"), reserve(3, "b", taskScope), record(0, "a", r)} {
			if s := w.do(t, cmd); s.Outcome.Code != idem.CodeRecorded || !s.Outcome.Entry.Response.Equal(r) || s.Outcome.Entry.Response.Partial {
				t.Errorf("%d: %T gives %+v", i, cmd, s.Outcome.Entry.Response)
			}
		}
	}
}

// The end of a doubt names its last holder, and nobody's token: nobody acted. The request that found it is named.
func TestEndOfDoubtNamesNobodyElse(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.do(t, reserve(0, "a"))
	w.lapse(0).pass(90 * day)
	ev := w.do(t, replay(0)).event(t, idem.EventPurged)
	if want := (idem.Actor{RequestID: call(0).RequestID}); ev.Owner != "o-a" || ev.Actor != want {
		t.Errorf("the event is of %s and %+v, want o-a and %+v", ev.Owner, ev.Actor, want)
	}
}

// What is kept of a refused response says by which verb it came, and the reason that came with it: a release says of itself
// that nothing happened.
func TestEvidenceNamesItsVerb(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.do(t, reserve(0, "a"))
	w.lapse(0).do(t, reserve(0, "b", naming(0, 1)))
	w.do(t, record(0, "b", answerA()))
	gone := release(0, "a")
	gone.Reason, gone.Response = "connection refused", &idem.Response{Status: 503}
	for verb, cmd := range map[string]idem.Command{"record": record(0, "a", answerB()), "release": gone, "resolve": resolve(0, 2, answerB())} {
		ev := w.fork().do(t, cmd).event(t, idem.EventDuplicateRecord)
		why := map[string]any{"record": nil, "release": "connection refused", "resolve": "looked it up"}[verb]
		if ev.Detail["verb"] != verb || ev.Detail["reason"] != why {
			t.Errorf("%s: the detail is %v", verb, ev.Detail)
		}
	}
	if ev := w.fork().do(t, record(1, "x", answerA())).event(t, idem.EventRefusedRecord); ev.Detail["verb"] != "record" {
		t.Errorf("the detail is %v", ev.Detail)
	}
}

// An owner that is gone takes its own doubt along and leaves those of others, which the trail tells apart.
func TestEvictTellsWhatEndedAndWhatStands(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.do(t, reserve(0, "a"))
	w.lapse(0).do(t, reserve(0, "b", naming(0, 1)))
	w.lapse(0)
	stale := evict(0, "o-b", true)
	stale.Fence = 1
	w.fork().do(t, stale).check(t, "doubt!")
	told := evict(0, "o-b", true)
	told.Fence = 2
	ev := w.do(t, told).event(t, idem.EventResolved)
	owners := func(name string) (names []any) {
		list, _ := ev.Detail[name].([]map[string]any)
		for _, g := range list {
			names = append(names, g["owner"])
		}
		return names
	}
	if fmt.Sprint(owners("doubts"), owners("doubts_left")) != "[o-b] [o-a]" {
		t.Errorf("the detail is %v", ev.Detail)
	}
}
