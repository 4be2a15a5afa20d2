package idem_test

import (
	"time"

	"github.com/idemstore/idemstore/internal/idem"
)

// A state is a key of which everything that can be told apart has happened. Who has had it, by the names of their
// reservations:
//
//	letgo     let go by its own release
//	past      explicit, never dispatched, superseded after its lease
//	quiet     implicit, its doubt ended by an operator's word
//	doubter   implicit, lapsed, its doubt inherited by a takeover (only where the state's name says "inherits")
//	cur       the current grant, or the last one
//
// In "absent" and after an expiry nobody is known.
type state struct {
	name  string
	build func(t tester, w *world)
	want  string // state, live, doubts, in doubt: what the construction must have come to; empty: not looked at
	row   string // of the table; empty: the name
}

func key(name string, build func(tester, *world), want string) state {
	return state{name: name, build: build, want: want}
}

// crowd gives the key everyone that comes before cur.
func crowd(t tester, w *world) {
	w.do(t, reserve(0, "letgo"))
	w.do(t, release(0, "letgo"))
	w.do(t, reserve(0, "past", explicit))
	w.lapse(0)
	w.do(t, reserve(0, "quiet"))
	w.lapse(0)
	w.do(t, resolve(0, 3, nil))
}

// doubted leaves the key in doubt by doubter, whose fence is 4.
func doubted(t tester, w *world) {
	crowd(t, w)
	w.do(t, reserve(0, "doubter"))
	w.lapse(0)
}

// current has cur hold the key, on top of what before left.
func current(before func(tester, *world), mode ...func(*idem.Reserve)) func(tester, *world) {
	return func(t tester, w *world) {
		before(t, w)
		w.do(t, reserve(0, "cur", append(mode, naming(0, 4))...))
		w.pass(5 * time.Second)
	}
}

// then goes on after a state.
func then(before func(tester, *world), after func(t tester, w *world)) func(tester, *world) {
	return func(t tester, w *world) {
		before(t, w)
		after(t, w)
	}
}

// once carries out one command, and after, if that is not 0, lets time pass.
func once(cmd func() idem.Command, after time.Duration) func(tester, *world) {
	return func(t tester, w *world) {
		w.do(t, cmd())
		w.pass(after)
	}
}

func lapsed(_ tester, w *world) { w.lapse(0) }

func dispatched(t tester, w *world) { w.do(t, dispatch(0, "cur")) }

func recordShort(name string) func() idem.Command {
	return func() idem.Command {
		c := record(0, name, answerA())
		c.RetentionSeconds = idem.MinRetention
		return c
	}
}

func recordA(name string) func() idem.Command {
	return func() idem.Command { return record(0, name, answerA()) }
}

func letGo(name string) func() idem.Command { return func() idem.Command { return release(0, name) } }

func earlierNotDone() idem.Command {
	c := release(0, "cur")
	c.EarlierNotDone = true
	return c
}

func operator(fence int64, r func() *idem.Response) func() idem.Command {
	return func() idem.Command {
		if r == nil {
			return resolve(0, fence, nil)
		}
		return resolve(0, fence, r())
	}
}

func states() []state {
	live, explicitLive := current(crowd), current(crowd, explicit)
	inherits, explicitInherits := current(doubted), current(doubted, explicit)
	return []state{
		key("absent", func(tester, *world) {}, "none"),
		key("remembers", once(func() idem.Command { return unknownOffer() }, time.Minute), "absent"),
		key("expired-record", then(live, once(recordShort("cur"), time.Hour)), "recorded expired"),
		key("expired-doubt", then(live, func(_ tester, w *world) { w.lapse(0).pass(90 * day) }), "reserved doubts=1 in-doubt expired"),
		key("expired-release", then(live, once(letGo("cur"), 14*day)), "released expired"),
		key("live", live, "reserved live"),
		key("live-explicit", explicitLive, "reserved live"),
		key("dispatched", then(explicitLive, dispatched), "dispatched live"),
		key("live-inherits", inherits, "reserved live doubts=1"),
		key("lapsed", then(live, lapsed), "reserved doubts=1 in-doubt"),
		key("lapsed-dispatched", then(then(explicitLive, dispatched), lapsed), "dispatched doubts=1 in-doubt"),
		key("lapsed-explicit", then(explicitLive, lapsed), "reserved"),
		key("lapsed-explicit-inherits", then(explicitInherits, lapsed), "reserved doubts=1 in-doubt"),
		key("lapsed-inherits", then(inherits, lapsed), "reserved doubts=2 in-doubt"),
		key("released", then(live, once(letGo("cur"), 0)), "released"),
		key("released-inherits", then(inherits, once(letGo("cur"), 0)), "released doubts=1 in-doubt"),
		key("released-not-done-inherits", then(inherits, once(earlierNotDone, 0)), "released"),
		key("operator-acted", then(then(live, lapsed), once(operator(4, nil), 0)), "released"),
		key("operator-idle", then(then(explicitLive, lapsed), once(operator(4, nil), 0)), "released"),
		key("recorded", then(live, once(recordA("cur"), 0)), "recorded"),
		key("recorded-late", then(then(live, lapsed), once(recordA("cur"), 0)), "recorded late"),
		key("recorded-former-inherits", then(inherits, once(recordA("doubter"), 0)), "recorded late"),
		key("recorded-let-go-inherits", then(then(inherits, once(letGo("cur"), 0)), once(recordA("doubter"), 0)), "recorded late"),
		key("recorded-doubter-let-go", then(then(inherits, once(letGo("doubter"), 0)), once(recordA("cur"), 0)), "recorded"),
		key("recorded-unreserved", then(then(live, once(letGo("cur"), 0)), func(t tester, w *world) {
			w.do(t, unreserved(0, "walker", answerA()))
		}), "recorded"),
		key("recorded-operator", then(then(live, lapsed), once(operator(4, answerA), 0)), "recorded"),
	}
}

// unknownOffer leaves the memory of a refusal on an absent key.
func unknownOffer() idem.Command {
	return record(0, "nobody", &idem.Response{Status: 500})
}
