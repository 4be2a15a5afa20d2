package idem

import (
	"slices"
	"time"
)

// held is what a holder's verb (dispatch, renew) may go on with: the current grant. Anything else is answered.
func (d *decider) held(id string) (*Entry, bool) {
	e := d.own
	switch {
	case e == nil:
		d.refuse(CodeNotFound, nil)
	case !e.knows(id):
		d.refuse(CodeNotHolder, e)
	case e.State == Recorded:
		d.showWhole(CodeAlreadyRecorded, e)
	case !e.holds(id):
		d.refuse(CodeLeaseLost, e)
	default:
		return e, true
	}
	return nil, false
}

// extend gives the holder until the later of its lease and so many seconds from now. A passed lease is revived if no
// attempt of the task was granted since, under a new fence: an old look must never authorise a takeover.
func (d *decider) extend(e *Entry, seconds int) *Entry {
	passed := !e.Live(d.now)
	if (passed || e.TaskScope) && !d.whole() {
		return nil
	}
	for _, o := range d.others() {
		if e.TaskScope && o.State == Recorded {
			d.showWhole(CodeAlreadyRecorded, o)
			return nil
		}
	}
	n := d.draft()
	before := n.LeaseUntil
	if until := d.latest().Add(time.Duration(seconds) * time.Second); until.After(n.LeaseUntil) {
		n.LeaseUntil = until
	}
	if passed {
		if e.Barred || slices.ContainsFunc(d.others(), func(o *Entry) bool { return !o.ReservedAt.Before(e.LeaseUntil) }) {
			d.refuse(CodeLeaseLost, e)
			return nil
		}
		n.Fence++
		before = n.LeaseUntil
	}
	n.keepUntil(d.policy, d.now)
	d.put(n).Before = before
	return n
}

func (c *Dispatch) decide(d *decider) {
	e, ok := d.held(c.ReservationID)
	if !ok {
		return
	}
	n := d.extend(e, e.LeaseSeconds)
	if n == nil {
		return
	}
	if n.State == Reserved {
		n.State, n.DispatchedAt = Dispatched, d.since(&n.Grant)
	}
	d.show(CodeDispatched, n)
}

func (c *Renew) decide(d *decider) {
	e, ok := d.held(c.ReservationID)
	if !ok {
		return
	}
	if n := d.extend(e, c.LeaseSeconds); n != nil {
		d.show(CodeRenewed, n)
	}
}

func (c *Release) decide(d *decider) {
	e, id := d.own, c.ReservationID
	event, ok := d.known(id, Event{
		Owner: c.Token, Actor: c.Actor, Response: c.Response, Detail: detail(c.detail(), "verb", "release"),
	})
	switch {
	case !ok:
	case e.letGo(id):
		c.nothing(d, event)
	case e.State == Recorded:
		d.refuseOffer(CodeAlreadyRecorded, e, EventDuplicateRecord, e.compared(event))
	case e.holds(id):
		c.letGo(d, event)
	case e.former(id) >= 0 && e.Former[e.former(id)].Doubt:
		c.endDoubt(d, event)
	default:
		c.nothing(d, event) // neither the current grant nor a doubt any more
	}
}

// nothing is what a release changes that comes again, or too late to matter. What failed is evidence all the same.
func (c *Release) nothing(d *decider, event Event) {
	if c.Response != nil {
		event.Detail = detail(c.detail(), "nothing_changed", true)
		d.remember(EventReleased, event)
	}
	d.released(d.own, event)
}

// letGo releases the current grant.
func (c *Release) letGo(d *decider, event Event) {
	n := d.draft()
	n.State, n.ReleasedAt = Released, d.since(&n.Grant)
	event.Detail = c.detail()
	if c.EarlierNotDone {
		n.settle()
		event.Detail["earlier_not_done"] = true
	}
	event.Kind = EventReleased
	n.keepUntil(d.policy, d.now)
	c.write(d, n, event)
}

// endDoubt takes the word of an earlier holder that it did not act. The present holder is not disturbed.
func (c *Release) endDoubt(d *decider, event Event) {
	n := d.draft()
	i := n.former(c.ReservationID)
	earlier := n.Former[i].Grant
	event.Kind, event.Detail = EventReleased, detail(c.detail(), "doubt_ended", true)
	n.Former = slices.Delete(n.Former, i, i+1)
	n.spend(earlier, true)
	if n.State == Released {
		n.keepUntil(d.policy, d.now)
	}
	c.write(d, n, event)
}

// write has a release told. Its evidence is noted, so that its repeat does not tell it again.
func (c *Release) write(d *decider, n *Entry, event Event) {
	if c.Response != nil {
		n.note(event, d.now)
	}
	d.put(n, event)
	d.released(n, event)
}

func (c *Release) detail() map[string]any {
	if c.Reason == "" {
		return map[string]any{}
	}
	return map[string]any{"reason": c.Reason}
}

// released answers a release with what the key is after it.
func (d *decider) released(n *Entry, event Event) {
	d.show(CodeReleased, n)
	if n.InDoubt(d.now) {
		d.out.Code = CodeInDoubt
		d.found(n, event)
	}
	d.out.Doubts = n.Doubts(d.now)
}
