package verdict

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// knowledge is what the entries and the trail of a task tell together.
type knowledge struct {
	attempts []Attempt
	since    time.Time
	grants   []*known       // that may have acted
	told     map[place]bool // fences of which something is known
	freed    map[place]bool // fences whose holders let go by themselves
	findings []Finding
}

type place struct {
	attempt int32
	fence   int64
}

// known is a grant that may have acted, and what was heard of it since.
type known struct {
	Grant
	attempt  int32
	recorded bool // its response is the one that is kept
	released bool // it said itself that it did not act
	offered  bool // it was heard of: its response is told of by itself
	current  bool // it holds the key now
	purged   bool // its key's retention ended
	ruledOut string
}

// open says that the grant may have acted and was not heard of since.
func (g *known) open() bool { return !g.recorded && !g.released && !g.offered && !g.current }

// told is the detail of an event, as far as it speaks of grants and responses.
type told struct {
	Doubts []grant `json:"doubts"`
	From   []struct {
		Attempt int32   `json:"attempt"`
		Doubts  []grant `json:"doubts"`
	} `json:"from"`
	Action          string `json:"action"`
	Forced          bool   `json:"forced"`
	Holder          string `json:"holder"`
	Reason          string `json:"reason"`
	Verb            string `json:"verb"`
	Code            string `json:"code"`
	SameResponse    *bool  `json:"same_response"`
	RecordedAttempt *int32 `json:"recorded_attempt"`
	EarlierNotDone  bool   `json:"earlier_not_done"`
}

type grant struct {
	Owner      string    `json:"owner"`
	Fence      int64     `json:"fence"`
	ReservedAt time.Time `json:"reserved_at"`
	LeaseUntil time.Time `json:"lease_until"`
	Dispatched bool      `json:"dispatched"`
}

func (g grant) whole() Grant {
	return Grant{Owner: g.Owner, Fence: g.Fence, ReservedAt: g.ReservedAt, LeaseUntil: g.LeaseUntil, Dispatched: g.Dispatched}
}

func detailOf(e *Event) (t told) {
	_ = json.Unmarshal(e.Detail, &t) // what it does not say stays empty
	return t
}

// learn puts together who may have acted, and then what is said of each.
func (k *knowledge) learn(events []Event) {
	k.told, k.freed = make(map[place]bool), make(map[place]bool)
	for i := range events {
		k.told[place{events[i].Attempt, events[i].Fence}] = true
		for attempt, named := range Named(events[i]) {
			for _, g := range named {
				k.add(attempt, g)
			}
		}
	}
	for i := range k.attempts {
		a := &k.attempts[i]
		k.told[place{a.Number, a.Fence}] = true
		for _, g := range slices.Concat(a.Former, a.Doubts) {
			k.add(a.Number, g)
		}
		if a.MayAct && !a.Released {
			k.add(a.Number, a.Grant).current = a.Live
		}
	}
	for i := range events {
		k.hear(&events[i], detailOf(&events[i]))
	}
	for i := range k.attempts {
		if g := k.recorder(&k.attempts[i]); g != nil {
			g.recorded = true
		}
	}
}

// add remembers a grant once. A revived one has a new fence and is still the same.
func (k *knowledge) add(attempt int32, g Grant) *known {
	k.told[place{attempt, g.Fence}] = true
	for _, old := range k.grants {
		if old.attempt == attempt && old.Owner == g.Owner && old.ReservedAt.Equal(g.ReservedAt) {
			if g.Fence > old.Fence {
				old.Fence, old.LeaseUntil = g.Fence, g.LeaseUntil
			}
			old.Dispatched = old.Dispatched || g.Dispatched
			if old.DispatchedAt.IsZero() {
				old.DispatchedAt = g.DispatchedAt
			}
			return old
		}
	}
	k.grants = append(k.grants, &known{Grant: g, attempt: attempt})
	return k.grants[len(k.grants)-1]
}

// find is the grant of a fence as it was at a moment: in a later life of the key its fences begin anew.
func (k *knowledge) find(attempt int32, fence int64, at time.Time) (found *known) {
	for _, g := range k.grants {
		if g.attempt == attempt && g.Fence == fence && !g.ReservedAt.After(at) && (found == nil || g.ReservedAt.After(found.ReservedAt)) {
			found = g
		}
	}
	return found
}

// hear takes what an event says of grants.
func (k *knowledge) hear(e *Event, t told) {
	g := k.find(e.Attempt, e.Fence, e.At)
	switch e.Kind {
	case "purged":
		for _, d := range t.Doubts {
			k.add(e.Attempt, d.whole()).purged = true
		}
	case "recorded_late":
		for i := range k.attempts {
			if a := &k.attempts[i]; a.Number == e.Attempt && a.RecordedFence == 0 && a.RecordedBy == e.Owner && !e.At.Before(a.RecordedAt) {
				a.RecordedFence = e.Fence
			}
		}
	case "released":
		k.freed[place{e.Attempt, e.Fence}] = true
		if g != nil && g.Owner == e.Owner {
			g.released = true
		}
		if t.EarlierNotDone {
			k.ruleOut(e, t, func(g *known) bool { return g.Fence < e.Fence })
		}
	case "duplicate_record", "refused_record":
		if g != nil && g.Owner == e.Owner && e.Response != "" {
			g.released = g.released || t.Verb == "release"
			g.offered = g.offered || t.Verb != "release"
		}
	case "resolved":
		k.resolved(e, t, g)
	}
}

// resolved takes an operator's word. That grants did not act is kept with them, and silences nobody.
func (k *knowledge) resolved(e *Event, t told, g *known) {
	if t.Action != "release" {
		return
	}
	if g == nil && t.Forced && !k.freed[place{e.Attempt, e.Fence}] {
		g = k.ended(e, t)
	}
	k.ruleOut(e, t, func(other *known) bool {
		return other == g || t.Holder == "" && slices.ContainsFunc(t.Doubts, func(d grant) bool {
			return d.Owner == other.Owner && d.ReservedAt.Equal(other.ReservedAt)
		})
	})
}

// ended is a live grant that an operator ended, of which its entry may not tell any more.
func (k *knowledge) ended(e *Event, t told) *known {
	g := Grant{Owner: t.Holder, Fence: e.Fence}
	for i := range k.attempts {
		switch a := &k.attempts[i]; {
		case a.Number != e.Attempt:
		case a.Fence == e.Fence && !a.ReservedAt.After(e.At) && a.MayAct:
			g = a.Grant
		case a.Fence == e.Fence && !a.ReservedAt.After(e.At), a.Whole && a.ReservedAt.After(e.At):
			return nil // it cannot have acted
		}
	}
	return k.add(e.Attempt, g)
}

func (k *knowledge) ruleOut(e *Event, t told, which func(g *known) bool) {
	for _, g := range k.grants {
		if g.attempt == e.Attempt && !g.ReservedAt.After(e.At) && which(g) {
			g.ruledOut = fmt.Sprintf("%s said at %s that it did not", e.Owner, clock(e.At))
			if t.Reason != "" {
				g.ruledOut += fmt.Sprintf(": %q", t.Reason)
			}
		}
	}
}

// recorder is the grant whose response an attempt keeps. An operator's record is taken for that of the one grant that may
// have acted, where there is one.
func (k *knowledge) recorder(a *Attempt) *known {
	if a.RecordedAt.IsZero() {
		return nil
	}
	var own []*known
	for _, g := range k.grants {
		if g.attempt == a.Number && !g.purged && !g.released {
			own = append(own, g)
		}
	}
	match := func(which func(g *known) bool) *known {
		for _, g := range slices.Backward(own) {
			if which(g) {
				return g
			}
		}
		return nil
	}
	switch {
	case a.RecordedFence > 0:
		return match(func(g *known) bool { return g.Fence == a.RecordedFence })
	case a.RecordedBy == a.Owner:
		return match(func(g *known) bool { return g.Fence == a.Fence })
	case a.Late:
		return match(func(g *known) bool { return g.Owner == a.RecordedBy })
	case len(own) == 1:
		return own[0]
	}
	return nil
}

// standing are the grants of an attempt that may have acted and were not heard of since.
func (k *knowledge) standing(a *Attempt) (list []*known) {
	for _, g := range k.grants {
		if g.attempt == a.Number && g.open() {
			list = append(list, g)
		}
	}
	return list
}

// doubtful are the doubts that stand on an attempt, with what is known of each.
func (k *knowledge) doubtful(a *Attempt) (list []*known) {
	for _, g := range a.Doubts {
		list = append(list, k.add(a.Number, g))
	}
	return list
}

// numbers are the attempts of which grants are known, lowest first.
func (k *knowledge) numbers() (list []int32) {
	for _, g := range k.grants {
		list = append(list, g.attempt)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// Named are the grants that an event's detail tells of, by attempt.
func Named(e Event) map[int32][]Grant {
	named, t := make(map[int32][]Grant), detailOf(&e)
	for _, g := range t.Doubts {
		named[e.Attempt] = append(named[e.Attempt], g.whole())
	}
	for _, f := range t.From {
		for _, g := range f.Doubts {
			named[f.Attempt] = append(named[f.Attempt], g.whole())
		}
	}
	return named
}
