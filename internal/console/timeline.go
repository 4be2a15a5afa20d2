package console

import (
	"cmp"
	"slices"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
)

// step is something that happened to a task: a fact that an entry tells, or an event of the trail.
type step struct {
	At      moment
	Attempt int32
	Fence   int64
	What    string // in words
	Tone    string
	Owner   string
	Source  string // of what no event tells: what does
	eventView
}

// eventView is an event of the trail as pages show it.
type eventView struct {
	*idem.Event // nil: a fact of the entry
	When        moment
	Words       string
	Mood        string
	Reason      string
	Details     []detail
	Response    *responseView
}

type detail struct{ Name, Value string }

// Task is the address of the event's task.
func (e eventView) Task() string { return taskPath(e.TaskID) }

func viewEvent(e *idem.Event, now time.Time) eventView {
	v := eventView{Event: e, When: moment{e.At, now}, Response: viewResponse(e.Response, evidencePath(e))}
	v.Words, v.Mood = eventWords(e)
	v.Reason, _ = e.Detail["reason"].(string)
	for name, value := range e.Detail {
		if name != "reason" {
			v.Details = append(v.Details, detail{name, plain(value)})
		}
	}
	slices.SortFunc(v.Details, func(a, b detail) int { return cmp.Compare(a.Name, b.Name) })
	return v
}

// eventWords says what an event is, and what to think of it.
func eventWords(e *idem.Event) (words, mood string) {
	switch e.Kind {
	case idem.EventReplayed:
		return "The recorded response was replayed", "done"
	case idem.EventTakenOver:
		return "Taken over", "live"
	case idem.EventFoundInDoubt:
		return "Found in doubt", "doubt"
	case idem.EventRefusedMismatch:
		return "Refused: the same key with another request", "bad"
	case idem.EventReleased:
		return "Released", "ended"
	case idem.EventRecordedLate:
		return "Recorded late", "done"
	case idem.EventDuplicateRecord, idem.EventRefusedRecord:
		return offerWords(e)
	case idem.EventResolved:
		if action, _ := e.Detail["action"].(string); action == "record" {
			return "Resolved by an operator: recorded", "done"
		}
		return "Resolved by an operator: released", "ended"
	case idem.EventPurged:
		return "Its retention ended while it was in doubt", "doubt"
	default:
		return string(e.Kind), ""
	}
}

// offerWords says what a response is that was offered in vain. One that came with a release says that nothing happened.
func offerWords(e *idem.Event) (words, mood string) {
	verb, _ := e.Detail["verb"].(string)
	switch {
	case verb == "release":
		return "A release came too late; its response is kept as evidence", "ended"
	case differs(e):
		return "A different response was offered for a recorded key", "bad"
	case e.Kind == idem.EventDuplicateRecord:
		return "The same response was offered again by another", "doubt"
	default:
		return "A response was refused and kept as evidence", "doubt"
	}
}

// differs says of a duplicate record that it told another story than the one that is kept.
func differs(e *idem.Event) bool {
	same, _ := e.Detail["same_response"].(bool)
	verb, _ := e.Detail["verb"].(string)
	return e.Kind == idem.EventDuplicateRecord && !same && verb != "release"
}

// eventSteps are the steps that events tell. Of their responses only what a page shows is kept.
func eventSteps(events []idem.Event, now time.Time) []step {
	steps := make([]step, len(events))
	for i := range events {
		e := viewEvent(&events[i], now)
		events[i].Response = nil
		steps[i] = step{At: e.When, Attempt: e.Attempt, Fence: e.Fence, What: e.Words, Tone: e.Mood, Owner: e.Event.Owner, eventView: e}
	}
	return steps
}

// timeline puts what entries and details tell between the events of a page of the trail. What lies beyond the page is told
// with the page that it belongs to.
func timeline(told, facts []step, next, from *idem.EventPosition) []step {
	steps := told
	for i := range facts {
		fact := &facts[i]
		before := from != nil && !fact.At.At.After(from.At)
		behind := next != nil && fact.At.At.After(next.At)
		again := slices.ContainsFunc(facts[:i], func(f step) bool { return f.same(fact) })
		if !before && !behind && !again && !slices.ContainsFunc(told, func(s step) bool { return s.tells(fact) }) {
			steps = append(steps, *fact)
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int {
		return cmp.Or(a.At.At.Compare(b.At.At), a.order()-b.order())
	})
	return steps
}

// same says of two facts that they are one.
func (s *step) same(other *step) bool {
	return s.Attempt == other.Attempt && s.Owner == other.Owner && s.What == other.What && s.At.At.Equal(other.At.At)
}

// order puts what an entry tells before the events of the same moment.
func (s *step) order() int {
	if s.Event == nil {
		return 0
	}
	return 1
}

// tells says of an event that it tells a fact already.
func (s *step) tells(fact *step) bool {
	if s.Attempt != fact.Attempt {
		return false
	}
	switch s.Kind {
	case idem.EventTakenOver:
		return fact.What == factReserved && s.Fence == fact.Fence && s.Owner == fact.Owner
	case idem.EventRecordedLate:
		return fact.What == factRecordedLate
	case idem.EventReleased, idem.EventResolved:
		return (fact.What == factReleased || fact.What == factRecorded) && s.At.At.Equal(fact.At.At)
	default:
		return false
	}
}

const (
	factReserved     = "Reserved"
	factDispatched   = "Dispatched: the side effect is about to begin"
	factRecorded     = "Recorded"
	factRecordedLate = "Recorded after the lease had passed"
	factReleased     = "Released"
	factMayHaveActed = "The lease passed; the holder may have acted"
	factDidNotAct    = "The lease passed; the holder had not dispatched and cannot have acted"
)

func factsOf(attempts []entryView, now time.Time) (list []step) {
	for i := range attempts {
		list = append(list, facts(&attempts[i], now)...)
	}
	return list
}

// facts are what an entry itself tells of its life, the grants that it remembers included.
func facts(v *entryView, now time.Time) []step {
	e := v.Entry
	var list []step
	add := func(at time.Time, what, tone, owner string, fence int64) *step {
		list = append(list, step{At: moment{at, now}, Attempt: e.Attempt, Fence: fence, What: what, Tone: tone, Owner: owner, Source: "entry"})
		return &list[len(list)-1]
	}
	grant := func(g *idem.Grant, end time.Time) {
		if g.ReservationID == "" {
			return // recorded in one step, without a reservation
		}
		add(g.ReservedAt, factReserved, "live", g.Owner, g.Fence)
		if !g.DispatchedAt.IsZero() {
			add(g.DispatchedAt, factDispatched, "live", g.Owner, g.Fence)
		}
		switch {
		case end.Before(g.LeaseUntil):
		case g.MayHaveActed():
			add(g.LeaseUntil, factMayHaveActed, "doubt", g.Owner, g.Fence)
		default:
			add(g.LeaseUntil, factDidNotAct, "ended", g.Owner, g.Fence)
		}
	}
	for i := range e.Former {
		end := e.ReservedAt
		if i+1 < len(e.Former) {
			end = e.Former[i+1].ReservedAt
		}
		grant(&e.Former[i].Grant, end)
	}
	switch e.State {
	case idem.Recorded:
		grant(&e.Grant, e.RecordedAt)
		what := factRecorded
		if e.Late {
			what = factRecordedLate
		}
		add(e.RecordedAt, what, "done", e.RecordedBy, 0).Response = v.Response
	case idem.Released:
		grant(&e.Grant, e.ReleasedAt)
		add(e.ReleasedAt, factReleased, "ended", e.Owner, e.Fence)
	default:
		grant(&e.Grant, now)
	}
	return list
}
