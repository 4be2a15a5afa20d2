package idem

func (c *Resolve) decide(d *decider) {
	e := d.own
	event := Event{
		Kind: EventResolved, Owner: c.Token, Actor: c.Actor, Response: c.Response,
		Detail: map[string]any{"reason": c.Reason, "action": "release", "forced": c.Force, "verb": "resolve"},
	}
	if c.Response != nil {
		event.Detail["action"] = "record"
	}
	if e == nil {
		d.refuseOffer(CodeNotFound, nil, EventRefusedRecord, event)
		return
	}
	event.Fence, event.Handler = e.Fence, e.Handler
	switch {
	case e.State == Recorded && c.Response != nil && e.Response.Equal(c.Response):
		if e.RecordedReservationID != "" || e.RecordedBy != c.Token { // else the operator repeats itself
			d.remember(EventDuplicateRecord, e.compared(event))
		}
		d.show(CodeRecorded, e)
	case e.State == Recorded:
		d.refuseOffer(CodeAlreadyRecorded, e, EventDuplicateRecord, e.compared(event))
	case e.Live(d.now) && !c.Force:
		d.refuseOffer(CodeInProgress, e, EventRefusedRecord, event)
	case e.Fence != c.Fence:
		d.refuseOffer(CodeInDoubt, e, EventRefusedRecord, event)
		if d.out.Doubts = e.Doubts(d.now); e.InDoubt(d.now) {
			d.found(e, event)
		}
	default:
		c.settle(d, event)
	}
}

// settle ends the key's doubts by an operator's word.
func (c *Resolve) settle(d *decider, event Event) {
	n := d.draft()
	delete(event.Detail, "verb") // its kind says it
	event.Detail["doubts"] = describe(n.Doubts(d.now))
	if c.Response != nil {
		n.record(c.Response, c.Token, "", d.since(&n.Grant))
		n.ExpiresAt = n.RecordedAt.Add(d.policy.Retention)
		d.put(n, event)
		d.show(CodeRecorded, n)
		d.out.First = true
		return
	}
	if n.State != Released {
		n.State, n.ReleasedAt, n.ByOperator = Released, d.since(&n.Grant), true
	}
	n.settle()
	n.keepUntil(d.policy, d.now)
	d.put(n, event)
	d.show(CodeReleased, n)
}

func (c *Evict) decide(d *decider) {
	e := d.own
	switch {
	case e == nil:
		d.refuse(CodeNotFound, nil)
	case e.State == Recorded:
		d.refuse(CodeAlreadyRecorded, e)
	case e.Owner != c.Owner:
		d.refuse(CodeNotHolder, e)
	case e.State == Released:
		d.released(e, c.event(e))
	case (c.Force || !e.MayHaveActed()) && (c.Fence == 0 || c.Fence == e.Fence):
		c.letGo(d)
	case e.Live(d.now):
		d.refuse(CodeInProgress, e)
	default:
		d.refuse(CodeInDoubt, e)
		if d.out.Doubts = e.Doubts(d.now); e.InDoubt(d.now) {
			d.found(e, c.event(e))
		}
	}
}

// letGo ends the owner's grant. Doubts that it inherited stand: nothing was said of those who left them.
func (c *Evict) letGo(d *decider) {
	n := d.draft()
	event := c.event(n)
	before := n.Doubts(d.now)
	n.State, n.ReleasedAt, n.ByOperator = Released, d.since(&n.Grant), true
	left := n.Doubts(d.now)
	event.Detail["doubts"] = describe(before[len(left):]) // its own is the last
	if len(left) > 0 {
		event.Detail["doubts_left"] = describe(left)
	}
	n.keepUntil(d.policy, d.now)
	d.put(n, event)
	d.released(n, event)
}

func (c *Evict) event(e *Entry) Event {
	return Event{
		Kind: EventResolved, Owner: c.Token, Actor: c.Actor, Fence: e.Fence, Handler: e.Handler,
		Detail: map[string]any{"reason": c.Reason, "action": "release", "forced": c.Force, "holder": c.Owner},
	}
}
