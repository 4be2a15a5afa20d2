package idem_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
)

// The model that search_test.go walks through: workers that follow the protocol, a network that loses, doubles and delays
// whatever it carries, and the table. It is kept small by what makes no difference:
//
//   - What was sent stays in the network, to be delivered at any time and any number of times. So a lost message is one
//     that is never delivered, a call repeated by its worker is one delivered again, and a worker that waits before it
//     calls has a slow network.
//   - An answer is lost, or heard when it is given. A worker that hears late is one that does nothing for a while, and one
//     that does nothing for ever is dead.
//   - A worker believes in lease_until itself. Counting from before it sent, as it must, it would believe in less.
//
// Time is in ticks, and a lease has two.

const (
	maxWorkers = 3
	leaseTicks = 2
	tick       = time.Second
)

type decideFunc func(task idem.Task, cmd idem.Command, now time.Time) idem.Decision

// plan is what one worker is about to do.
type plan struct {
	attempt  int32
	explicit bool
	renews   bool
	releases bool // it may find that it cannot act, and let go
}

type scenario struct {
	name     string
	plans    []plan
	task     bool // scope
	operator bool // may look at attempt 0, and later release it
	ticks    int8
	atLeast  int // situations that it must come to, or the search is not what it says
}

type stage uint8

const (
	waiting stage = iota // for the answer to its reserve
	held
	going // its dispatch was answered
	acted
	ended
)

type verb uint8

const (
	callReserve  verb = iota
	callTakeover      // a reserve under another reservation, which names the doubts that it has looked into
	callDispatch
	callRenew
	callRecord
	callRelease
	calls
)

// look is the newest fences of attempts 0 and 1 as an answer told them, 0 where one was not in doubt.
type look struct {
	fences [2]int8
	after  bool // a side effect had happened when it was given
}

type worker struct {
	stage stage
	until int8  // when its lease ends, as it believes
	sent  uint8 // the verbs that are in the network, as bits
	look  look  // what its takeover names
}

func (w *worker) send(v verb) { w.sent |= 1 << v }

func (w worker) sentAny(v verb) bool { return w.sent&(1<<v) != 0 }

// situation is everything that can differ. It is comparable, so that none is visited twice.
type situation struct {
	now      int8
	rows     [2]int16 // of attempts 0 and 1, as the model numbers them; 0: none
	workers  [maxWorkers]worker
	effects  int8
	operator look // what it looked at, if fences are there
}

// model is what situations refer to.
type model struct {
	scenario
	decide  decideFunc
	ids     [maxWorkers][2]string // a worker's reservations: its first, and its takeover's
	entries []*idem.Entry
	numbers map[string]int16
	known   map[delivery]result // what the table says does not depend on the rest of the situation
}

const theOperator = -1

type delivery struct {
	now    int8
	rows   [2]int16
	worker int8
	over   bool // its reservation is the takeover's
	call   verb
	fences [2]int8
}

type verdict uint8

const (
	no verdict = iota // recorded already, lost, unknown
	yes
	inDoubt
	inProgress
)

type result struct {
	rows   [2]int16
	says   verdict
	until  int8
	fences [2]int8
	owned  bool // somebody decided that a second effect may be: a takeover, an operator's word
	retry  bool // granted in scope attempt after an earlier one's record, which is what a retry is for
}

func newModel(s scenario, decide decideFunc) *model {
	m := &model{
		scenario: s, decide: decide, entries: []*idem.Entry{nil}, numbers: map[string]int16{}, known: map[delivery]result{},
	}
	for i := range m.ids {
		m.ids[i] = [2]string{rid(fmt.Sprint("worker ", i)), rid(fmt.Sprint("takeover ", i))}
	}
	return m
}

// number numbers entries by everything in them on which a judgement may rest.
func (m *model) number(e *idem.Entry) int16 {
	if e.State == idem.Absent {
		return 0
	}
	n := *e
	n.Refusals, n.Found, n.Version, n.ExpiresAt, n.Response = nil, 0, 0, time.Time{}, nil
	n.DispatchedAt, n.ReleasedAt, n.RecordedAt = flag(n.DispatchedAt), flag(n.ReleasedAt), flag(n.RecordedAt)
	n.Former = slices.Clone(n.Former)
	for i := range n.Former {
		f := &n.Former[i]
		f.ReservedAt, f.LeaseUntil, f.DispatchedAt = time.Time{}, time.Time{}, flag(f.DispatchedAt)
	}
	name := dump(n)
	if _, ok := m.numbers[name]; !ok {
		m.numbers[name] = int16(len(m.entries))
		m.entries = append(m.entries, e)
	}
	return m.numbers[name]
}

// flag forgets of a time all but that it was.
func flag(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return epoch
}

// deliver has the table answer a request.
func (m *model) deliver(d delivery) result {
	if r, ok := m.known[d]; ok {
		return r
	}
	task := idem.Task{Entries: map[int32]*idem.Entry{}, Whole: true}
	for attempt, n := range d.rows {
		if n > 0 {
			task.Entries[int32(attempt)] = m.entries[n]
		}
	}
	now, cmd := epoch.Add(time.Duration(d.now)*tick), m.command(d)
	dec := m.decide(task, cmd, now)
	r := result{rows: d.rows}
	if dec.Again { // at once, as nothing else can tell the difference
		task.Entries = maps.Clone(task.Entries)
		for _, c := range dec.Changes {
			r.rows[c.Entry.Attempt] = m.number(c.Entry)
			task.Entries[c.Entry.Attempt] = c.Entry
		}
		dec = m.decide(task, cmd, now)
	}
	for _, c := range dec.Changes {
		if !c.Same {
			r.rows[c.Entry.Attempt] = m.number(c.Entry)
		}
		r.owned = r.owned || slices.ContainsFunc(c.Events, func(ev idem.Event) bool {
			return ev.Kind == idem.EventTakenOver || ev.Kind == idem.EventResolved
		})
	}
	switch o := dec.Outcome; o.Code {
	case idem.CodeReserved, idem.CodeDispatched, idem.CodeRenewed:
		r.says, r.until = yes, int8(o.Entry.LeaseUntil.Sub(epoch)/tick)
		if first := m.entries[d.rows[0]]; first != nil && first.State == idem.Recorded {
			r.retry = d.call <= callTakeover && cmd.Target().Attempt > 0 && !m.task
		}
	case idem.CodeInDoubt:
		r.says = inDoubt
		for _, t := range o.Takeovers {
			r.fences[t.Attempt] = int8(t.Fence)
		}
	case idem.CodeInProgress:
		r.says = inProgress
	default:
		r.says = no
	}
	m.known[d] = r
	return r
}

// command is the request as it was sent.
func (m *model) command(d delivery) idem.Command {
	if d.worker == theOperator {
		return &idem.Resolve{Call: call(0), Fence: int64(d.fences[0]), Reason: "looked it up"}
	}
	p, id := m.plans[d.worker], m.ids[d.worker][0]
	if d.over {
		id = m.ids[d.worker][1]
	}
	switch d.call {
	case callDispatch:
		return &idem.Dispatch{Call: call(p.attempt), ReservationID: id}
	case callRenew:
		return &idem.Renew{Call: call(p.attempt), ReservationID: id, LeaseSeconds: leaseTicks}
	case callRecord:
		return &idem.Record{Call: call(p.attempt), ReservationID: id, Response: &idem.Response{Status: 200 + int(d.worker)}}
	case callRelease:
		return &idem.Release{Call: call(p.attempt), ReservationID: id}
	default:
		c := &idem.Reserve{
			Call: call(p.attempt), Owner: "o", ReservationID: id, LeaseSeconds: leaseTicks, Explicit: p.explicit, TaskScope: m.task,
		}
		for attempt, fence := range d.fences {
			if fence > 0 {
				c.Takeovers = append(c.Takeovers, idem.Takeover{Attempt: int32(attempt), Fence: int64(fence)})
			}
		}
		return c
	}
}
