package idem

import (
	"maps"
	"slices"
	"time"
)

// Policy is what the deployment decides.
type Policy struct {
	Retention        time.Duration // of recorded and released keys
	InDoubtRetention time.Duration // of all others
}

// DefaultPolicy keeps responses for 14 days and doubts for 90.
var DefaultPolicy = Policy{Retention: 14 * 24 * time.Hour, InDoubtRetention: 90 * 24 * time.Hour}

// Task is what is known of the attempts of one task at one moment.
type Task struct {
	Entries map[int32]*Entry
	// Whole: every attempt that has a row is here. Responses of attempts other than the one asked about may be Partial.
	Whole bool
	// Ahead is by how much the database's time may be later than the time of the judgement. Leases are given from the
	// later end, because a worker counts its lease from before it asked; they are judged by the earlier one.
	Ahead time.Duration
}

// Decision is what a command comes to.
type Decision struct {
	Outcome Outcome
	// Changes are to be written before the outcome is told. The key's own comes first; the others tell of attempts that
	// were found in doubt, or whose doubt was found ended by retention.
	Changes []Change
	// Again: the changes are to be written, and then the command is to be decided anew. What other attempts are must be
	// settled before one is granted past them, as only the row of a key itself is checked when it is granted.
	Again bool
	// Need says what must be loaded before the command can be decided; Outcome and Changes are then void.
	Need Need
}

// Need is what a decision lacks.
type Need struct {
	Whole bool  // the task's other attempts
	Body  int32 // with HasBody: the attempt whose whole response is wanted
	// HasBody tells attempt 0 from none.
	HasBody bool
}

// None says that nothing is lacking.
func (n Need) None() bool { return !n.Whole && !n.HasBody }

// Decide judges one validated command by what is known of the task and by the database's time. It is the whole
// protocol: a pure function that changes nothing it was given.
func (p Policy) Decide(task Task, cmd Command, now time.Time) Decision {
	d := &decider{policy: p, task: task, key: cmd.Target(), request: cmd.by(), now: now}
	d.own = d.standing(d.key.Attempt)
	cmd.decide(d)
	if !d.need.None() {
		return Decision{Need: d.need}
	}
	if d.again {
		return Decision{Again: true, Changes: d.changes}
	}
	d.out.Key, d.out.Now = d.key, now
	switch d.out.Code {
	case CodeReserved, CodeDispatched, CodeRenewed:
		d.out.Now = d.latest() // a holder is not told that it has more than it has
	default:
	}
	if i := d.change(d.key); i > 0 {
		d.changes[0], d.changes[i] = d.changes[i], d.changes[0]
	}
	return Decision{Outcome: d.out, Changes: d.changes}
}

// decider is the state of one judgement.
type decider struct {
	policy  Policy
	task    Task
	key     Key
	request string // the id of the request
	now     time.Time
	own     *Entry   // nil: the key is absent
	rest    []*Entry // the task's other attempts once they were looked at, highest first
	looked  bool

	out     Outcome
	changes []Change
	need    Need
	again   bool
}

// latest is the latest that the database's time can be.
func (d *decider) latest() time.Time { return d.now.Add(d.task.Ahead) }

// since is the time of what is done under a grant: not before the grant itself, which was dated from the later end.
func (d *decider) since(g *Grant) time.Time {
	if d.now.Before(g.ReservedAt) {
		return g.ReservedAt
	}
	return d.now
}

// after is the time of an event about an entry: not before what the entry itself tells, which may be dated from the later
// end. So a trail that is read by time tells a record before the one that came too late for it.
func (d *decider) after(e *Entry) time.Time {
	at := d.now
	for _, told := range []time.Time{e.ReservedAt, e.DispatchedAt, e.RecordedAt, e.ReleasedAt} {
		if told.After(at) {
			at = told
		}
	}
	return at
}

// standing is the entry of an attempt, nil where the key is absent. A key past its retention is; where that ended a
// doubt, it is told to the trail by whoever finds it first.
func (d *decider) standing(attempt int32) *Entry {
	e := d.task.Entries[attempt]
	if e == nil || e.State == Absent {
		return nil
	}
	if !e.Expired(d.now) {
		return e
	}
	if e.InDoubt(d.now) {
		d.put(d.tombstone(e.Key), Event{
			Kind: EventPurged, Fence: e.Fence, Handler: e.Handler, Owner: e.Owner, Actor: Actor{RequestID: d.request},
			Detail: map[string]any{"doubts": describe(e.Doubts(d.now)), "expires_at": Stamp(e.ExpiresAt)},
		})
	}
	return nil
}

// others are the task's other attempts, highest first.
func (d *decider) others() []*Entry {
	if d.looked {
		return d.rest
	}
	d.looked = true
	for _, attempt := range slices.Backward(slices.Sorted(maps.Keys(d.task.Entries))) {
		if attempt == d.key.Attempt {
			continue
		}
		if e := d.standing(attempt); e != nil {
			d.rest = append(d.rest, e)
		}
	}
	return d.rest
}

// bar settles that lapsed grants of other attempts are not revived, and says whether that is still to be written.
func (d *decider) bar() bool {
	if !d.task.Whole {
		return false // then it is the store that proves that there is no other
	}
	for _, o := range d.others() {
		if o.lapsed(d.now) && !o.Barred {
			n := o.clone()
			n.Barred = true
			d.put(n)
			d.again = true
		}
	}
	return d.again
}

// whole asks for the task's other attempts, and says whether they are here.
func (d *decider) whole() bool {
	d.need.Whole = d.need.Whole || !d.task.Whole
	return d.task.Whole
}

// show puts an entry into the answer.
func (d *decider) show(code Code, e *Entry) {
	d.out.Code, d.out.Entry = code, e
	switch code {
	case CodeReserved, CodeRecorded, CodeDispatched, CodeRenewed, CodeReleased:
		d.out.OK = true
	default: // refused
	}
}

// showWhole shows an entry together with its response.
func (d *decider) showWhole(code Code, e *Entry) {
	if e.Response.Partial {
		d.need.Body, d.need.HasBody = e.Attempt, true
	}
	d.show(code, e)
}

// listOthers puts the task's other attempts into the answer, lowest first.
func (d *decider) listOthers() {
	d.out.Others = []Other{}
	for _, e := range slices.Backward(d.others()) {
		o := Other{Attempt: e.Attempt, State: e.State, InDoubt: e.InDoubt(d.now)}
		if e.Response != nil {
			o.Status = e.Response.Status
		}
		d.out.Others = append(d.out.Others, o)
	}
}

// draft is the key's own entry, to be changed: as this decision has left it so far.
func (d *decider) draft() *Entry {
	if i := d.change(d.key); i >= 0 && !d.changes[i].Same {
		return d.changes[i].Entry.clone()
	}
	if d.own != nil {
		return d.own.clone()
	}
	if row := d.task.Entries[d.key.Attempt]; row != nil && row.State == Absent && !row.Expired(d.now) {
		return row.clone()
	}
	return d.tombstone(d.key)
}

// tombstone is the row of an absent key that has something to remember for an hour.
func (d *decider) tombstone(k Key) *Entry {
	return &Entry{Key: k, Version: d.version(k.Attempt), State: Absent, ExpiresAt: d.now.Add(refusalMemory)}
}

func (d *decider) version(attempt int32) int64 {
	if row := d.task.Entries[attempt]; row != nil {
		return row.Version
	}
	return 0
}

// change is where the change of a key stands, -1 if there is none.
func (d *decider) change(k Key) int {
	return slices.IndexFunc(d.changes, func(c Change) bool { return c.Entry.Key == k })
}

// put has an entry written, with its events.
func (d *decider) put(e *Entry, events ...Event) *Change {
	for i := range events {
		events[i].At, events[i].Key = d.after(e), e.Key
	}
	if i := d.change(e.Key); i >= 0 {
		c := &d.changes[i]
		c.Entry, c.Same, c.Events = e, false, append(c.Events, events...)
		return c
	}
	d.changes = append(d.changes, Change{Entry: e, Base: d.version(e.Attempt), Events: events})
	return &d.changes[len(d.changes)-1]
}

// tell has an event written about an entry that stays as it is.
func (d *decider) tell(e *Entry, event Event) {
	event.At, event.Key = d.after(e), e.Key
	d.changes = append(d.changes, Change{
		Entry: e, Base: d.version(e.Attempt), Same: true, Before: e.ExpiresAt, Events: []Event{event},
	})
}

// describe shows grants in an event's detail. The reservation is the holder's own and is not told.
func describe(grants []Grant) []map[string]any {
	list := make([]map[string]any, 0, len(grants))
	for _, g := range grants {
		list = append(list, map[string]any{
			"owner": g.Owner, "fence": g.Fence, "reserved_at": Stamp(g.ReservedAt), "lease_until": Stamp(g.LeaseUntil),
			"dispatched": !g.DispatchedAt.IsZero(),
		})
	}
	return list
}
