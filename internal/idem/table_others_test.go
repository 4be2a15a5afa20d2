package idem_test

import (
	"testing"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
)

// The tables of a key, attempt 1, beside another attempt of its task: 0, the earlier, or 2, the later. The two are made
// apart and put together, so that all their combinations are there, whether or not callers could bring them about.

// ownStates are the key's own, as they are at the epoch. A passed lease ended 40 seconds before it.
var ownStates = map[string]func(tester, *world){
	"absent": func(tester, *world) {},
	"released": func(t tester, w *world) {
		w.pass(-50*time.Second).do(t, reserve(1, "cur"))
		w.do(t, release(1, "cur"))
	},
	"idle": func(t tester, w *world) { w.pass(-100*time.Second).do(t, reserve(1, "cur", explicit)) },
	"idle-task": func(t tester, w *world) {
		w.pass(-100*time.Second).do(t, reserve(1, "cur", explicit, taskScope))
	},
	"doubt": func(t tester, w *world) { w.pass(-100*time.Second).do(t, reserve(1, "cur")) },
	"live":  func(t tester, w *world) { w.pass(-10*time.Second).do(t, reserve(1, "cur")) },
	"live-task": func(t tester, w *world) {
		w.pass(-10*time.Second).do(t, reserve(1, "cur", explicit, taskScope))
	},
	"recorded": func(t tester, w *world) {
		w.pass(-100*time.Second).do(t, reserve(1, "cur"))
		w.do(t, record(1, "cur", answerA()))
	},
}

// otherStates are the other attempt's. Its grant was made after the key's own lease had passed, or, where the name begins
// with "old", before it was reserved. "standing" is released, a doubt standing; "gone" was in doubt until its retention ended.
var otherStates = map[string]func(t tester, w *world, attempt int32){
	"live": func(t tester, w *world, a int32) { w.pass(-20*time.Second).do(t, reserve(a, "other")) },
	"idle": func(t tester, w *world, a int32) {
		w.pass(-20*time.Second).do(t, reserve(a, "other", explicit, leaseOf(5)))
	},
	"doubt": func(t tester, w *world, a int32) { w.pass(-20*time.Second).do(t, reserve(a, "other", leaseOf(5))) },
	"recorded": func(t tester, w *world, a int32) {
		otherEnds(t, w.pass(-20*time.Second), a, record(a, "other", answerB()))
	},
	"released": func(t tester, w *world, a int32) { otherEnds(t, w.pass(-20*time.Second), a, release(a, "other")) },
	"standing": func(t tester, w *world, a int32) {
		w.pass(-30*time.Second).do(t, reserve(a, "former", leaseOf(5)))
		w.pass(10*time.Second).do(t, reserve(a, "other", naming(int64(a), 1)))
		w.do(t, release(a, "other"))
	},
	"gone": func(t tester, w *world, a int32) { w.pass(-100*day).do(t, reserve(a, "other", leaseOf(5))) },

	"old-live": func(t tester, w *world, a int32) { w.pass(-200*time.Second).do(t, reserve(a, "other", leaseOf(3600))) },
	"old-idle": func(t tester, w *world, a int32) {
		w.pass(-200*time.Second).do(t, reserve(a, "other", explicit, leaseOf(5)))
	},
	"old-doubt": func(t tester, w *world, a int32) { w.pass(-200*time.Second).do(t, reserve(a, "other", leaseOf(5))) },
	"old-recorded": func(t tester, w *world, a int32) {
		otherEnds(t, w.pass(-200*time.Second), a, record(a, "other", answerB()))
	},
	"old-released": func(t tester, w *world, a int32) { otherEnds(t, w.pass(-200*time.Second), a, release(a, "other")) },
}

func otherEnds(t tester, w *world, a int32, end idem.Command) {
	w.do(t, reserve(a, "other"))
	w.do(t, end)
}

// beside puts a state of the key together with each of the other attempt's, the earlier and the later.
func beside(own string, others ...string) []state {
	var states []state
	for _, other := range others {
		for _, side := range []struct {
			name    string
			attempt int32
		}{{"earlier", 0}, {"later", 2}} {
			row := other
			if other == "recorded" || other == "old-recorded" {
				row += "-" + side.name
			}
			states = append(states, state{name: own + "/" + side.name + "-" + other, row: row, build: func(t tester, w *world) {
				ownStates[own](t, w)
				apart := newWorld()
				otherStates[other](t, apart, side.attempt)
				for attempt, e := range apart.rows {
					w.rows[attempt] = e
				}
				w.now = epoch
			}})
		}
	}
	return states
}

var (
	recently = []string{"live", "idle", "doubt", "recorded", "released", "standing", "gone"}
	ever     = append(recently[:len(recently):len(recently)], "old-live", "old-idle", "old-doubt", "old-recorded", "old-released")
)

// fences are what a look at the two attempts would name.
func fences(w *world) (own, other, otherAttempt int64) {
	own = 1
	for attempt, e := range w.rows {
		if attempt == 1 {
			own = e.Fence
		} else {
			other, otherAttempt = e.Fence, int64(attempt)
		}
	}
	return own, other, otherAttempt
}

func besideColumns() []column {
	fresh := func(change ...func(*idem.Reserve)) func(*world) idem.Command {
		return func(*world) idem.Command { return reserve(1, "fresh", change...) }
	}
	naming2 := func(pairs func(own, other, attempt int64) []int64) func(*world) idem.Command {
		return func(w *world) idem.Command { return reserve(1, "fresh", naming(pairs(fences(w))...)) }
	}
	return []column{
		{"fresh", fresh()},
		{"task", fresh(taskScope)},
		{"task/hash", fresh(taskScope, otherHash)},
		{"both", naming2(func(own, other, attempt int64) []int64 { return []int64{1, own, attempt, other} })},
		{"own", naming2(func(own, _, _ int64) []int64 { return []int64{1, own} })},
		{"other", naming2(func(_, other, attempt int64) []int64 { return []int64{attempt, other} })},
		{"stale", naming2(func(own, other, attempt int64) []int64 { return []int64{1, own, attempt, other + 1} })},
		{"same", func(w *world) idem.Command {
			return reserve(1, "cur", func(c *idem.Reserve) { c.Explicit = w.rows[1] != nil && w.rows[1].Explicit })
		}},
		{"dispatch", func(*world) idem.Command { return dispatch(1, "cur") }},
		{"renew", func(*world) idem.Command { return renew(1, "cur") }},
		{"record", func(*world) idem.Command { return record(1, "cur", answerA()) }},
		{"release", func(*world) idem.Command { return release(1, "cur") }},
		{"unreserved", func(*world) idem.Command { return unreserved(1, "walker", answerA()) }},
		{"replay", func(*world) idem.Command { return replay(1) }},
		{"resolve", func(w *world) idem.Command {
			own, _, _ := fences(w)
			return resolve(1, own, nil)
		}},
	}
}

func TestBesideAbsentTable(t *testing.T) {
	t.Parallel()
	table(t, `
other             fresh   task    task/hash both    own     other   stale   same    dispatch renew record release unreserved replay  resolve
live              busy@   busy@   busy@     busy@   busy@   busy@   busy@   busy@   none     none  none+  none    busy+@     busy@   none
idle              grant   grant   grant     grant   grant   grant   grant   grant   none     none  none+  none    in-step    none    none
doubt             doubt!@ doubt!@ doubt!@   take    doubt!@ take    doubt!@ doubt!@ none     none  none+  none    doubt+!@   doubt!@ none
recorded-earlier  grant   replay@ mismatch@ grant   grant   grant   grant   grant   none     none  none+  none    in-step    none    none
recorded-later    replay@ replay@ mismatch@ replay@ replay@ replay@ replay@ replay@ none     none  none+  none    taken+@    replay@ none
released          grant   grant   grant     grant   grant   grant   grant   grant   none     none  none+  none    in-step    none    none
standing          doubt@  doubt@  doubt@    take    doubt@  take    doubt@  doubt@  none     none  none+  none    doubt+@    doubt@  none
gone              grant~  grant~  grant~    grant~  grant~  grant~  grant~  grant~  none     none  none+  none    in-step~   none~   none
`, beside("absent", recently...), besideColumns())
}

func TestBesideReleasedTable(t *testing.T) {
	t.Parallel()
	table(t, `
other             fresh   task    task/hash both    own     other   stale   same  dispatch renew record release unreserved replay  resolve
live              busy@   busy@   busy@     busy@   busy@   busy@   busy@   lost  lost     lost  lost+  nop     busy+@     busy@   dropped
idle              grant   grant   grant     grant   grant   grant   grant   lost  lost     lost  lost+  nop     in-step    none    dropped
doubt             doubt!@ doubt!@ doubt!@   take    doubt!@ take    doubt!@ lost  lost     lost  lost+  nop     doubt+!@   doubt!@ dropped
recorded-earlier  grant   replay@ mismatch@ grant   grant   grant   grant   lost  lost     lost  lost+  nop     in-step    none    dropped
recorded-later    replay@ replay@ mismatch@ replay@ replay@ replay@ replay@ lost  lost     lost  lost+  nop     taken+@    replay@ dropped
released          grant   grant   grant     grant   grant   grant   grant   lost  lost     lost  lost+  nop     in-step    none    dropped
standing          doubt@  doubt@  doubt@    take    doubt@  take    doubt@  lost  lost     lost  lost+  nop     doubt+@    doubt@  dropped
gone              grant~  grant~  grant~    grant~  grant~  grant~  grant~  lost~ lost     lost  lost+  nop     in-step~   none~   dropped
`, beside("released", recently...), besideColumns())
}

// An explicit grant whose lease passed undispatched: no doubt, but its holder may come back unless another was granted.
func TestBesideIdleTable(t *testing.T) {
	t.Parallel()
	table(t, `
other                 fresh   task    task/hash both    own     other   stale   same    dispatch renew    record release unreserved replay  resolve
live                  busy@   busy@   busy@     busy@   busy@   busy@   busy@   busy@   lost     lost     late   let     busy+@     busy@   dropped
idle                  grant   grant   grant     grant   grant   grant   grant   grant   lost     lost     late   let     in-step    none    dropped
doubt                 doubt!@ doubt!@ doubt!@   take    doubt!@ take    doubt!@ doubt!@ lost     lost     late   let     doubt+!@   doubt!@ dropped
recorded-earlier      grant   replay@ mismatch@ grant   grant   grant   grant   grant   lost     lost     late   let     in-step    none    dropped
recorded-later        replay@ replay@ mismatch@ replay@ replay@ replay@ replay@ replay@ lost     lost     late   let     taken+@    replay@ dropped
released              grant   grant   grant     grant   grant   grant   grant   grant   lost     lost     late   let     in-step    none    dropped
standing              doubt@  doubt@  doubt@    take    doubt@  take    doubt@  doubt@  lost     lost     late   let     doubt+@    doubt@  dropped
gone                  grant~  grant~  grant~    grant~  grant~  grant~  grant~  grant~  revived~ revived~ late   let     in-step~   none~   dropped
old-live              busy@   busy@   busy@     busy@   busy@   busy@   busy@   busy@   revived  revived  late   let     busy+@     busy@   dropped
old-idle              grant   grant   grant     grant   grant   grant   grant   grant   revived  revived  late   let     in-step    none    dropped
old-doubt             doubt!@ doubt!@ doubt!@   take    doubt!@ take    doubt!@ doubt!@ revived  revived  late   let     doubt+!@   doubt!@ dropped
old-recorded-earlier  grant   replay@ mismatch@ grant   grant   grant   grant   grant   revived  revived  late   let     in-step    none    dropped
old-recorded-later    replay@ replay@ mismatch@ replay@ replay@ replay@ replay@ replay@ revived  revived  late   let     taken+@    replay@ dropped
old-released          grant   grant   grant     grant   grant   grant   grant   grant   revived  revived  late   let     in-step    none    dropped
`, beside("idle", ever...), besideColumns())
}

func TestBesideIdleTaskScopeTable(t *testing.T) {
	t.Parallel()
	table(t, `
other                 fresh   task    task/hash both    own     other   stale   same    dispatch renew    record release unreserved replay  resolve
live                  busy@   busy@   busy@     busy@   busy@   busy@   busy@   busy@   lost     lost     late   let     busy+@     busy@   dropped
idle                  grant   grant   grant     grant   grant   grant   grant   grant   lost     lost     late   let     in-step    none    dropped
doubt                 doubt!@ doubt!@ doubt!@   take    doubt!@ take    doubt!@ doubt!@ lost     lost     late   let     doubt+!@   doubt!@ dropped
recorded-earlier      grant   replay@ mismatch@ grant   grant   grant   grant   grant   taken@   taken@   late   let     in-step    none    dropped
recorded-later        replay@ replay@ mismatch@ replay@ replay@ replay@ replay@ replay@ taken@   taken@   late   let     taken+@    replay@ dropped
released              grant   grant   grant     grant   grant   grant   grant   grant   lost     lost     late   let     in-step    none    dropped
standing              doubt@  doubt@  doubt@    take    doubt@  take    doubt@  doubt@  lost     lost     late   let     doubt+@    doubt@  dropped
gone                  grant~  grant~  grant~    grant~  grant~  grant~  grant~  grant~  revived~ revived~ late   let     in-step~   none~   dropped
old-live              busy@   busy@   busy@     busy@   busy@   busy@   busy@   busy@   revived  revived  late   let     busy+@     busy@   dropped
old-idle              grant   grant   grant     grant   grant   grant   grant   grant   revived  revived  late   let     in-step    none    dropped
old-doubt             doubt!@ doubt!@ doubt!@   take    doubt!@ take    doubt!@ doubt!@ revived  revived  late   let     doubt+!@   doubt!@ dropped
old-recorded-earlier  grant   replay@ mismatch@ grant   grant   grant   grant   grant   taken@   taken@   late   let     in-step    none    dropped
old-recorded-later    replay@ replay@ mismatch@ replay@ replay@ replay@ replay@ replay@ taken@   taken@   late   let     taken+@    replay@ dropped
old-released          grant   grant   grant     grant   grant   grant   grant   grant   revived  revived  late   let     in-step    none    dropped
`, beside("idle-task", ever...), besideColumns())
}

// A key in doubt is judged by itself first: its own doubt must be named before the other attempt matters.
func TestBesideDoubtTable(t *testing.T) {
	t.Parallel()
	table(t, `
other                 fresh   task    task/hash both    own     other   stale   same    dispatch renew    record release unreserved replay  resolve
live                  doubt!  doubt!  mismatch  busy@   busy@   doubt!  busy@   doubt!  lost     lost     late   let     doubt+!    doubt!  dropped
idle                  doubt!  doubt!  mismatch  take    take    doubt!  take    doubt!  lost     lost     late   let     doubt+!    doubt!  dropped
doubt                 doubt!  doubt!  mismatch  take    doubt!@ doubt!  doubt!@ doubt!  lost     lost     late   let     doubt+!    doubt!  dropped
recorded-earlier      doubt!  doubt!  mismatch  take    take    doubt!  take    doubt!  lost     lost     late   let     doubt+!    doubt!  dropped
recorded-later        doubt!  doubt!  mismatch  replay@ replay@ doubt!  replay@ doubt!  lost     lost     late   let     doubt+!    doubt!  dropped
released              doubt!  doubt!  mismatch  take    take    doubt!  take    doubt!  lost     lost     late   let     doubt+!    doubt!  dropped
standing              doubt!  doubt!  mismatch  take    doubt@  doubt!  doubt@  doubt!  lost     lost     late   let     doubt+!    doubt!  dropped
gone                  doubt!~ doubt!~ mismatch~ take~   take~   doubt!~ take~   doubt!~ revived~ revived~ late   let     doubt+!~   doubt!~ dropped
old-live              doubt!  doubt!  mismatch  busy@   busy@   doubt!  busy@   doubt!  revived  revived  late   let     doubt+!    doubt!  dropped
old-idle              doubt!  doubt!  mismatch  take    take    doubt!  take    doubt!  revived  revived  late   let     doubt+!    doubt!  dropped
old-doubt             doubt!  doubt!  mismatch  take    doubt!@ doubt!  doubt!@ doubt!  revived  revived  late   let     doubt+!    doubt!  dropped
old-recorded-earlier  doubt!  doubt!  mismatch  take    take    doubt!  take    doubt!  revived  revived  late   let     doubt+!    doubt!  dropped
old-recorded-later    doubt!  doubt!  mismatch  replay@ replay@ doubt!  replay@ doubt!  revived  revived  late   let     doubt+!    doubt!  dropped
old-released          doubt!  doubt!  mismatch  take    take    doubt!  take    doubt!  revived  revived  late   let     doubt+!    doubt!  dropped
`, beside("doubt", ever...), besideColumns())
}

func TestBesideLiveTable(t *testing.T) {
	t.Parallel()
	table(t, `
other             fresh task  task/hash both  own   other stale same  dispatch   renew   record release unreserved replay resolve
live              busy  busy  mismatch  busy  busy  busy  busy  same  dispatched renewed first  let     busy+      busy   busy
idle              busy  busy  mismatch  busy  busy  busy  busy  same  dispatched renewed first  let     busy+      busy   busy
doubt             busy  busy  mismatch  busy  busy  busy  busy  same  dispatched renewed first  let     busy+      busy   busy
recorded-earlier  busy  busy  mismatch  busy  busy  busy  busy  same  dispatched renewed first  let     busy+      busy   busy
recorded-later    busy  busy  mismatch  busy  busy  busy  busy  same  dispatched renewed first  let     busy+      busy   busy
released          busy  busy  mismatch  busy  busy  busy  busy  same  dispatched renewed first  let     busy+      busy   busy
standing          busy  busy  mismatch  busy  busy  busy  busy  same  dispatched renewed first  let     busy+      busy   busy
gone              busy~ busy~ mismatch~ busy~ busy~ busy~ busy~ same~ dispatched renewed first  let     busy+      busy~  busy
`, beside("live", recently...), besideColumns())
}

func TestBesideLiveTaskScopeTable(t *testing.T) {
	t.Parallel()
	table(t, `
other             fresh task  task/hash both  own   other stale same  dispatch    renew    record release unreserved replay resolve
live              busy  busy  mismatch  busy  busy  busy  busy  same  dispatched  renewed  first  let     busy+      busy   busy
idle              busy  busy  mismatch  busy  busy  busy  busy  same  dispatched  renewed  first  let     busy+      busy   busy
doubt             busy  busy  mismatch  busy  busy  busy  busy  same  dispatched  renewed  first  let     busy+      busy   busy
recorded-earlier  busy  busy  mismatch  busy  busy  busy  busy  same  taken@      taken@   first  let     busy+      busy   busy
recorded-later    busy  busy  mismatch  busy  busy  busy  busy  same  taken@      taken@   first  let     busy+      busy   busy
released          busy  busy  mismatch  busy  busy  busy  busy  same  dispatched  renewed  first  let     busy+      busy   busy
standing          busy  busy  mismatch  busy  busy  busy  busy  same  dispatched  renewed  first  let     busy+      busy   busy
gone              busy~ busy~ mismatch~ busy~ busy~ busy~ busy~ same~ dispatched~ renewed~ first  let     busy+      busy~  busy
`, beside("live-task", recently...), besideColumns())
}

// A recorded key is replayed whatever became of the others.
func TestBesideRecordedTable(t *testing.T) {
	t.Parallel()
	table(t, `
other             fresh   task    task/hash both    own     other   stale   same    dispatch renew record release unreserved replay  resolve
live              replay  replay  mismatch  replay  replay  replay  replay  replay  taken    taken again  taken   again+     replay  taken
idle              replay  replay  mismatch  replay  replay  replay  replay  replay  taken    taken again  taken   again+     replay  taken
doubt             replay  replay  mismatch  replay  replay  replay  replay  replay  taken    taken again  taken   again+     replay  taken
recorded-earlier  replay  replay  mismatch  replay  replay  replay  replay  replay  taken    taken again  taken   again+     replay  taken
recorded-later    replay  replay  mismatch  replay  replay  replay  replay  replay  taken    taken again  taken   again+     replay  taken
released          replay  replay  mismatch  replay  replay  replay  replay  replay  taken    taken again  taken   again+     replay  taken
standing          replay  replay  mismatch  replay  replay  replay  replay  replay  taken    taken again  taken   again+     replay  taken
gone              replay~ replay~ mismatch~ replay~ replay~ replay~ replay~ replay~ taken    taken again  taken   again+     replay~ taken
`, beside("recorded", recently...), besideColumns())
}
