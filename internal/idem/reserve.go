package idem

import "time"

func (c *Reserve) decide(d *decider) {
	// Another attempt can only stand in the way of attempt 0 by being later, which the store proves of a change.
	alone := c.Attempt == 0 && !c.TaskScope && !d.task.Whole
	if !alone && !d.whole() {
		return
	}
	if c.Attempt > 0 || c.TaskScope {
		d.listOthers()
	}
	if d.own != nil && c.judgeOwn(d) {
		return
	}
	code, in, taken := d.obstacle(c.TaskScope, c.Takeovers)
	switch {
	case code == CodeInDoubt:
		d.doubt(in, c.event())
	case code == CodeRecorded && mismatch(in, c.RequestHash):
		c.mismatch(d, in)
	case code == CodeRecorded:
		d.replay(in, c.event())
	case code != "":
		d.refuse(code, in)
	case len(taken) > 0 && d.own != nil && d.own.knows(c.ReservationID):
		d.refuse(CodeLeaseLost, d.own) // a takeover names a fresh reservation
	default:
		c.grant(d, taken, alone)
	}
}

// judgeOwn judges the key itself, and says whether that was the end of it.
func (c *Reserve) judgeOwn(d *decider) bool {
	e := d.own
	switch {
	case (e.State == Recorded || e.Live(d.now) || len(e.Doubts(d.now)) > 0) && mismatch(e, c.RequestHash):
		c.mismatch(d, e)
	case e.State == Recorded:
		d.replay(e, c.event())
	case e.knows(c.ReservationID) && !e.holds(c.ReservationID):
		d.refuse(CodeLeaseLost, e) // a request delayed in the network must not reserve for nobody
	case e.Live(d.now) && c.repeats(e):
		d.show(CodeReserved, e)
		d.out.Doubts = e.Doubts(d.now)
	case e.Live(d.now):
		d.refuse(CodeInProgress, e)
	default:
		return false
	}
	return true
}

// repeats says whether the very grant is asked for again, before anything was done with it.
func (c *Reserve) repeats(e *Entry) bool {
	return e.State == Reserved && e.ReservationID == c.ReservationID && e.Owner == c.Owner && e.Explicit == c.Explicit
}

func mismatch(e *Entry, hash string) bool {
	return hash != "" && e.RequestHash != "" && hash != e.RequestHash
}

func (c *Reserve) mismatch(d *decider, e *Entry) {
	event := c.event()
	event.Fence, event.Handler = e.Fence, e.Handler
	event.Detail = map[string]any{"request_hash": c.RequestHash, "standing_request_hash": e.RequestHash}
	if e.Attempt != c.Attempt {
		event.Detail["standing_attempt"] = e.Attempt
	}
	d.remember(EventRefusedMismatch, event)
	d.refuse(CodeRequestMismatch, e)
}

func (c *Reserve) event() Event { return Event{Owner: c.Owner, Handler: c.Handler, Actor: c.Actor} }

// obstacle is what stands in the way of a newcomer, the key itself first, then the task's other attempts, highest
// first. Doubts that the takeovers name do not; they are returned as taken.
func (d *decider) obstacle(taskScope bool, takeovers []Takeover) (code Code, in *Entry, taken []*Entry) {
	named := func(e *Entry) bool {
		for _, t := range takeovers {
			if t.Attempt == e.Attempt && t.Fence == e.Fence {
				return d.takeoversLeft() > 0
			}
		}
		return false
	}
	if d.own != nil && d.own.InDoubt(d.now) {
		if !d.whole() || !named(d.own) {
			return CodeInDoubt, d.own, nil
		}
		taken = append(taken, d.own)
	}
	for _, o := range d.others() {
		switch {
		case o.State == Recorded && (o.Attempt > d.key.Attempt || taskScope):
			return CodeRecorded, o, nil
		case o.Live(d.now):
			return CodeInProgress, o, nil
		case o.InDoubt(d.now) && named(o):
			taken = append(taken, o)
		case o.InDoubt(d.now):
			return CodeInDoubt, o, nil
		}
	}
	return "", nil, taken
}

func (c *Reserve) grant(d *decider, taken []*Entry, alone bool) {
	if d.bar() {
		return
	}
	n := d.next(Grant{
		ReservationID: c.ReservationID, Owner: c.Owner, Explicit: c.Explicit,
		ReservedAt: d.latest(), LeaseUntil: d.latest().Add(time.Duration(c.LeaseSeconds) * time.Second),
	})
	n.State, n.Handler, n.RequestHash = Reserved, c.Handler, c.RequestHash
	n.TaskScope, n.LeaseSeconds = c.TaskScope, c.LeaseSeconds
	n.keepUntil(d.policy, d.now)
	change := d.put(n)
	change.Alone, change.Before = alone, n.LeaseUntil
	if len(taken) > 0 {
		n.Takeovers++
		event := c.event()
		event.Kind, event.Fence = EventTakenOver, n.Fence
		var from []map[string]any
		for _, e := range taken {
			from = append(from, map[string]any{
				"attempt": e.Attempt, "fence": e.Fence, "doubts": describe(e.Doubts(d.now)),
			})
		}
		event.Detail = map[string]any{"from": from}
		d.put(n, event)
	}
	d.show(CodeReserved, n)
	d.out.Doubts = n.Doubts(d.now)
}

// next is the key's entry with a new grant on it, its fence above all of this life's.
func (d *decider) next(g Grant) *Entry {
	n := d.draft()
	g.Fence = 1
	if d.own != nil {
		g.Fence = d.own.Fence + 1
		n.Found = d.own.Fence // whoever takes over has found what is there
		if n.ReservationID != g.ReservationID || g.ReservationID == "" {
			n.retire()
		}
	}
	n.Grant = g
	n.ReleasedAt, n.ByOperator, n.Barred = time.Time{}, false, false
	return n
}

// replay gives the recorded response out, which the trail tells.
func (d *decider) replay(e *Entry, event Event) {
	event.Kind, event.Fence, event.Handler = EventReplayed, e.Fence, e.Handler
	if e.Attempt != d.key.Attempt {
		event.Detail = map[string]any{"asked_attempt": d.key.Attempt}
	}
	d.tell(e, event)
	d.showWhole(CodeRecorded, e)
}

// decide of a Replay judges as a reserve of scope attempt would, and takes nothing.
func (c *Replay) decide(d *decider) {
	event := Event{Owner: c.Owner, Actor: c.Actor}
	if d.own != nil && d.own.State == Recorded && c.Attempt == 0 {
		d.replay(d.own, event)
		return
	}
	if !d.whole() {
		return
	}
	if c.Attempt > 0 {
		d.listOthers()
	}
	code, in := d.newcomer()
	switch code {
	case "":
		d.refuse(CodeNotFound, nil)
	case CodeRecorded:
		d.replay(in, event)
	case CodeInDoubt:
		d.doubt(in, event)
	default:
		d.refuse(code, in)
	}
}

// newcomer is what a reserve of scope attempt, without a past and without takeovers, would meet; "" is a grant.
func (d *decider) newcomer() (Code, *Entry) {
	switch {
	case d.own != nil && d.own.State == Recorded:
		return CodeRecorded, d.own
	case d.own != nil && d.own.Live(d.now):
		return CodeInProgress, d.own
	}
	code, in, _ := d.obstacle(false, nil)
	return code, in
}
