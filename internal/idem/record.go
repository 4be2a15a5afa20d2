package idem

import "time"

func (c *Record) decide(d *decider) {
	if c.ReservationID == "" {
		c.decideUnreserved(d)
		return
	}
	e, id := d.own, c.ReservationID
	event, ok := d.known(id, c.event())
	switch {
	case !ok:
	case e.State == Recorded:
		c.again(d, event)
	case !e.mayRecord(id):
		d.refuseOffer(CodeLeaseLost, e, EventRefusedRecord, event)
	default:
		c.keep(d, event)
	}
}

// keep takes the first record, whoever holds.
func (c *Record) keep(d *decider, event Event) {
	e, n := d.own, d.draft()
	by := e.grantOf(c.ReservationID)
	live := e.holds(c.ReservationID) && e.Live(d.now)
	n.record(c.Response, by.Owner, c.ReservationID, d.since(&e.Grant))
	n.Late = !live
	n.ExpiresAt = n.RecordedAt.Add(c.retention(d.policy))
	c.ignored(d, e, by.Owner)
	if n.RequestHash == "" {
		n.RequestHash = c.RequestHash
	}
	change := d.put(n)
	if live {
		change.Before = e.LeaseUntil
	} else {
		event.Kind = EventRecordedLate
		event.Detail = map[string]any{"lease_until": Stamp(by.LeaseUntil), "current_fence": e.Fence}
		d.put(n, event)
	}
	d.show(CodeRecorded, n)
	d.out.First = true
}

// record makes the entry terminal, which ends every doubt.
func (e *Entry) record(r *Response, by, reservationID string, now time.Time) {
	e.State, e.Response = Recorded, r
	e.RecordedAt, e.RecordedBy, e.RecordedReservationID = now, by, reservationID
	e.settle()
}

// again judges a record of a recorded key. Repeating oneself is success; anybody else's response is evidence.
func (c *Record) again(d *decider, event Event) {
	e := d.own
	same := e.Response.Equal(c.Response)
	itself := e.RecordedReservationID == c.ReservationID && (c.ReservationID != "" || e.RecordedBy == c.Owner)
	c.ignored(d, e, event.Owner)
	switch {
	case !same:
		d.refuseOffer(CodeAlreadyRecorded, e, EventDuplicateRecord, e.compared(event))
	case itself:
		d.show(CodeRecorded, e)
	default:
		d.remember(EventDuplicateRecord, e.compared(event))
		d.show(CodeRecorded, e)
	}
}

// compared says in an event whether the offered response is the one that is kept.
func (e *Entry) compared(event Event) Event {
	if event.Response != nil {
		event.Detail = detail(event.Detail, "same_response", e.Response.Equal(event.Response))
	}
	return event
}

// decideUnreserved takes a record of one who never reserved, as a grant that ended in one step, on a key that the next
// reserve would be granted.
func (c *Record) decideUnreserved(d *decider) {
	event := c.event()
	if d.own != nil {
		event.Fence, event.Handler = d.own.Fence, d.own.Handler
		if d.own.State == Recorded {
			c.again(d, event)
			return
		}
	}
	if !d.whole() {
		return
	}
	switch code, in := d.newcomer(); code {
	case "":
		if d.bar() {
			return
		}
		n := d.next(Grant{Owner: c.Owner, ReservedAt: d.now, LeaseUntil: d.now})
		n.RequestHash, n.TaskScope, n.LeaseSeconds, n.Handler = c.RequestHash, false, 0, ""
		n.record(c.Response, c.Owner, "", d.now)
		n.ExpiresAt = d.now.Add(c.retention(d.policy))
		d.put(n)
		d.show(CodeRecorded, n)
		d.out.First = true
	case CodeRecorded:
		if in.Response.Partial {
			d.need.Body, d.need.HasBody = in.Attempt, true
			return
		}
		event.Detail = detail(event.Detail, "recorded_attempt", in.Attempt)
		d.refuseOffer(CodeAlreadyRecorded, in, EventDuplicateRecord, in.compared(event))
	case CodeInDoubt:
		d.refuseOffer(code, in, EventRefusedRecord, event)
		d.doubt(in, event)
	default:
		d.refuseOffer(code, in, EventRefusedRecord, event)
	}
}

// ignored names what stood beside the response and had no effect: another hash or owner than the grant's.
func (c *Record) ignored(d *decider, e *Entry, owner string) {
	if c.Owner != "" && c.Owner != owner && c.ReservationID != "" {
		d.out.IgnoredFields = append(d.out.IgnoredFields, "owner")
	}
	if mismatch(e, c.RequestHash) {
		d.out.IgnoredFields = append(d.out.IgnoredFields, "request_hash")
	}
}

func (c *Record) retention(p Policy) time.Duration {
	if c.RetentionSeconds > 0 {
		return time.Duration(c.RetentionSeconds) * time.Second
	}
	return p.Retention
}

func (c *Record) event() Event {
	owner := c.Owner
	if owner == "" {
		owner = c.Token
	}
	return Event{Owner: owner, Actor: c.Actor, Response: c.Response, Detail: map[string]any{"verb": "record"}}
}
