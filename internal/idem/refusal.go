package idem

import (
	"cmp"
	"slices"
	"time"
)

const (
	refusalMemory = time.Hour
	maxRefusals   = 32
)

// refuse answers with a code and, where one stands in the way, its entry.
func (d *decider) refuse(code Code, e *Entry) { d.show(code, e) }

// refuseOffer refuses a response that a well-formed call offered, and keeps it: nothing that a worker saw of the world
// is thrown away.
func (d *decider) refuseOffer(code Code, e *Entry, kind EventKind, event Event) {
	if event.Response != nil {
		event.Detail = detail(event.Detail, "code", code)
		d.remember(kind, event)
	}
	if code == CodeAlreadyRecorded {
		d.showWhole(code, e)
		return
	}
	d.refuse(code, e)
}

// known refuses what is offered on an absent key, or under a reservation that was never granted on it. Otherwise it
// returns the event in the name of the grant that the reservation is.
func (d *decider) known(id string, event Event) (Event, bool) {
	e := d.own
	if e == nil {
		d.refuseOffer(CodeNotFound, nil, EventRefusedRecord, event)
		return event, false
	}
	event.Fence, event.Handler = e.Fence, e.Handler
	if !e.knows(id) {
		d.refuseOffer(CodeNotHolder, e, EventRefusedRecord, event)
		return event, false
	}
	event.Owner, event.Fence = e.acting(id)
	return event, true
}

// remember writes a refusal to the trail, unless the same one of the same owner was written within the hour. A refused
// response is the same one only if its bytes are.
func (d *decider) remember(kind EventKind, event Event) {
	event.Kind = kind
	n := d.draft()
	if !n.note(event, d.now) {
		d.out.Repeated = true
		return
	}
	if n.State == Absent {
		n.ExpiresAt = d.now.Add(refusalMemory)
	}
	d.put(n, event)
}

// note remembers for an hour what was told to the trail, and says whether it was new.
func (e *Entry) note(event Event, now time.Time) bool {
	e.Refusals = slices.DeleteFunc(e.Refusals, func(r Refusal) bool { return now.Sub(r.At) >= refusalMemory })
	told := Refusal{Kind: event.Kind, Owner: event.Owner, Digest: event.Response.digest(), At: now}
	for _, r := range e.Refusals {
		if r.Kind == told.Kind && r.Owner == told.Owner && r.Digest == told.Digest {
			return false
		}
	}
	if over := len(e.Refusals) + 1 - maxRefusals; over > 0 {
		e.Refusals = slices.Delete(e.Refusals, 0, over)
	}
	e.Refusals = append(e.Refusals, told)
	return true
}

// doubt answers that a key is in doubt, with what a takeover must name. The first to find it tells the trail.
func (d *decider) doubt(e *Entry, event Event) {
	if !d.whole() {
		return
	}
	d.refuse(CodeInDoubt, e)
	d.out.Doubts = e.Doubts(d.now)
	d.out.Takeovers, d.out.TakeoversLeft = []Takeover{}, d.takeoversLeft()
	if d.out.TakeoversLeft > 0 {
		for _, in := range d.inDoubt() {
			d.out.Takeovers = append(d.out.Takeovers, Takeover{Attempt: in.Attempt, Fence: in.Fence})
		}
	}
	d.found(e, event)
}

func (d *decider) found(e *Entry, event Event) {
	doubts := e.Doubts(d.now)
	newest := doubts[len(doubts)-1].Fence
	if e.Found >= newest {
		return
	}
	n := e.clone()
	if e.Key == d.key {
		n = d.draft()
	}
	n.Found = newest
	event.Kind, event.Fence, event.Handler, event.Response = EventFoundInDoubt, newest, e.Handler, nil
	event.Detail = map[string]any{"doubts": describe(doubts)}
	d.put(n, event)
}

// inDoubt are the attempts of the task that stand in the way by a doubt, lowest first.
func (d *decider) inDoubt() []*Entry {
	entries := slices.Clone(d.others())
	if d.own != nil {
		entries = append(entries, d.own)
	}
	entries = slices.DeleteFunc(entries, func(e *Entry) bool { return !e.InDoubt(d.now) })
	slices.SortFunc(entries, func(a, b *Entry) int { return cmp.Compare(a.Attempt, b.Attempt) })
	return entries
}

// takeoversLeft counts at the attempt that is reserved. At 0 only an operator can.
func (d *decider) takeoversLeft() int {
	if len(d.inDoubt()) > MaxTakeovers {
		return 0
	}
	if d.own == nil {
		return MaxTakeovers
	}
	return max(0, MaxTakeovers-d.own.Takeovers)
}

func detail(m map[string]any, key string, value any) map[string]any {
	if m == nil {
		m = make(map[string]any, 1)
	}
	m[key] = value
	return m
}
