package robustness

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/idemstore/idemstore/internal/idem"
)

// The model is idem.Policy.Decide. What it cannot know is when, between the call and the answer, a command was judged.
//
//   - What a caller was told settles it: a grant's reserved_at, a record's recorded_at. A time before the call or after the
//     answer is a violation: no replica's own clock decides anything.
//   - Otherwise only the side of each lease's and each retention's end matters, so one moment on each side is tried.
//   - Of a call that nobody answered, the ledger says at which times it may have been carried out; it also may not have been.
//
// Judging is one moment for one key. Other attempts of the task are read in that moment and not held (protocol, rule 5), so a
// grant may rest on what another attempt was earlier during the same call: those former versions are kept beside the state.
const (
	// lag is by how much a judgement's own time may be behind the database's: as long as an exchange with it may take. It
	// shows where nothing depends on it: in the date of a record, and in the retention's end.
	lag = 7 * time.Second
	// lead is by how much a grant may be dated ahead, for the same reason.
	lead = 15 * time.Second
	// formers bounds how many former versions of another attempt are remembered.
	formers = 3
)

// state is what is stored of a task. It is never changed.
type state struct {
	entries map[int32]*idem.Entry
	former  map[int32][]formerEntry // of a task with several attempts: latest first
	text    string                  // what tells states apart
}

// formerEntry is a version that was replaced by a call which ended then.
type formerEntry struct {
	entry *idem.Entry // nil: absent
	until int64
}

func newState(entries map[int32]*idem.Entry, former map[int32][]formerEntry) *state {
	s := &state{entries: entries, former: former}
	var b strings.Builder
	for _, attempt := range slices.Sorted(maps.Keys(entries)) {
		b.WriteString(describe(entries[attempt]))
		for _, f := range former[attempt] {
			fmt.Fprintf(&b, " <%d", f.until)
		}
		b.WriteString("\n")
	}
	s.text = b.String()
	return s
}

// describe is all of an entry that an answer can depend on.
func describe(e *idem.Entry) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d: %s fence %d %s by %s explicit %t scope %t lease %d, reserved %s until %s", e.Attempt, e.State, e.Fence, short(e.ReservationID),
		e.Owner, e.Explicit, e.TaskScope, e.LeaseSeconds, clock(e.ReservedAt), clock(e.LeaseUntil))
	if !e.DispatchedAt.IsZero() {
		b.WriteString(" dispatched")
	}
	for _, f := range e.Former {
		fmt.Fprintf(&b, ", former %s fence %d until %s dispatched %t doubt %t", short(f.ReservationID), f.Fence, clock(f.LeaseUntil), !f.DispatchedAt.IsZero(), f.Doubt)
	}
	for _, s := range e.Spent {
		fmt.Fprintf(&b, ", spent %s released %t", short(s.ReservationID), s.Released)
	}
	fmt.Fprintf(&b, ", takeovers %d barred %t released %t by operator %t hash %s", e.Takeovers, e.Barred, !e.ReleasedAt.IsZero(), e.ByOperator, e.RequestHash)
	if e.Response != nil {
		fmt.Fprintf(&b, ", recorded %s by %s %s late %t %q", clock(e.RecordedAt), e.RecordedBy, short(e.RecordedReservationID), e.Late, e.Response.Body)
	}
	fmt.Fprintf(&b, ", expires %s", clock(e.ExpiresAt))
	return b.String()
}

func short(id string) string { return id[:min(8, len(id))] }

func clock(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("0102T15:04:05.000000")
}

// model judges the history of one task.
type model struct {
	policy  idem.Policy
	ledger  *ledger
	several bool // attempts of the task were asked for
}

func newModel(policy idem.Policy, l *ledger, calls []*call) *model {
	several := slices.ContainsFunc(calls, func(c *call) bool { return c.cmd.Target() != calls[0].cmd.Target() })
	return &model{policy, l, several}
}

func (m *model) porcupine() porcupine.Model {
	nondeterministic := porcupine.NondeterministicModel{
		Init: func() []any { return []any{newState(map[int32]*idem.Entry{}, nil)} },
		Step: func(s, input, output any) []any {
			var next []any
			for _, n := range m.step(s.(*state), input.(*call)) {
				next = append(next, n)
			}
			return next
		},
		Equal: func(a, b any) bool { return a.(*state).text == b.(*state).text },
		Hash: func(s any) uint64 {
			h := fnv.New64a()
			_, _ = h.Write([]byte(s.(*state).text))
			return h.Sum64()
		},
		DescribeOperation: func(input, _ any) string { return input.(*call).String() },
		DescribeState:     func(s any) string { return s.(*state).text },
	}
	return nondeterministic.ToModel()
}

// step is every state that the call may have left, if it was carried out now. A call that cannot have been answered so
// leaves none.
func (m *model) step(s *state, c *call) []*state {
	var next []*state
	seen := map[string]bool{}
	add := func(n *state) {
		if !seen[n.text] {
			seen[n.text] = true
			next = append(next, n)
		}
	}
	if c.lost() {
		add(s) // it never came to be
	}
	for _, w := range m.moments(s, c) {
		for _, view := range s.views(c) {
			out, after, ok := m.decide(view, c.cmd, w)
			after = s.written(view, after, c.cmd.Target().Attempt)
			switch {
			case !ok:
			case c.lost():
				if m.ledger.knows(s.entries, after) {
					add(s.follow(after, c.ended, m.several))
				}
			case c.agrees(out):
				add(s.follow(after, c.ended, m.several))
			}
		}
	}
	return next
}

// agrees says whether the caller was told this outcome.
func (c *call) agrees(out *idem.Outcome) bool {
	if _, ok := c.cmd.(*age); ok {
		return c.reply.matched == out.OK
	}
	return c.reply.tells(c.cmd, out) == nil
}

// decide carries a command out on what is seen of the task, and returns what becomes of it.
func (m *model) decide(entries map[int32]*idem.Entry, cmd idem.Command, w moment) (*idem.Outcome, map[int32]*idem.Entry, bool) {
	if a, ok := cmd.(*age); ok {
		return a.decide(entries, w.now)
	}
	after := maps.Clone(entries)
	for range 3 {
		d := m.policy.Decide(idem.Task{Entries: after, Whole: true, Ahead: w.ahead}, cmd, w.now)
		if !d.Need.None() {
			panic(fmt.Sprintf("the model lacks %+v", d.Need))
		}
		for _, c := range d.Changes {
			if c.Same {
				continue
			}
			e := *c.Entry
			// What only the trail depends on would make of one state many.
			e.Version, e.Refusals, e.Found, e.Handler = 1, nil, 0, ""
			if e.State == idem.Absent {
				delete(after, e.Attempt)
				continue
			}
			after[e.Attempt] = &e
		}
		if !d.Again {
			return &d.Outcome, after, true
		}
	}
	return nil, nil, false
}

func (a *age) decide(entries map[int32]*idem.Entry, now time.Time) (*idem.Outcome, map[int32]*idem.Entry, bool) {
	e := entries[a.Attempt]
	if e == nil || e.Expired(now) || e.Live(now) {
		return &idem.Outcome{}, entries, true
	}
	n := *e
	n.ExpiresAt = a.until
	after := maps.Clone(entries)
	after[a.Attempt] = &n
	return &idem.Outcome{OK: true}, after, true
}

// written is what is stored after a step that was decided upon a view. A change is written only over what was seen; the
// call's own key is always seen as it is.
func (s *state) written(view, after map[int32]*idem.Entry, own int32) map[int32]*idem.Entry {
	stored := maps.Clone(s.entries)
	for attempt, e := range after {
		if e != view[attempt] && view[attempt] == s.entries[attempt] {
			stored[attempt] = e
		}
	}
	if after[own] == nil {
		delete(stored, own)
	}
	return stored
}

// follow is the state after a call that ended then.
func (s *state) follow(after map[int32]*idem.Entry, ended int64, several bool) *state {
	former := s.former
	for attempt, e := range after {
		if !several || s.entries[attempt] == e {
			continue
		}
		if former = maps.Clone(former); former == nil {
			former = map[int32][]formerEntry{}
		}
		list := append([]formerEntry{{s.entries[attempt], ended}}, former[attempt]...)
		former[attempt] = list[:min(len(list), formers)]
	}
	return newState(after, former)
}

// views are what a call may have seen of the task: what is there, or of other attempts what was there earlier during the call.
func (s *state) views(c *call) []map[int32]*idem.Entry {
	views := []map[int32]*idem.Entry{s.entries}
	for attempt, list := range s.former {
		if attempt == c.cmd.Target().Attempt {
			continue
		}
		for _, f := range list {
			if f.until < c.begun {
				continue
			}
			for _, v := range slices.Clone(views) {
				v = maps.Clone(v)
				if delete(v, attempt); f.entry != nil {
					v[attempt] = f.entry
				}
				views = append(views, v)
			}
		}
	}
	return views
}

// moment is a time at which a command may have been judged.
type moment struct {
	now   time.Time
	ahead time.Duration
}

// moments are those that can make a difference.
func (m *model) moments(s *state, c *call) []moment {
	begun := time.Unix(0, c.begun).UTC().Truncate(time.Microsecond)
	if c.lost() {
		var list []moment
		for _, t := range m.ledger.times(c, begun) {
			for _, now := range s.between(begun, t) {
				list = append(list, moment{now, t.Sub(now)})
			}
			list = append(list, moment{t, 0})
		}
		return list
	}
	ended := time.Unix(0, c.ended).UTC()
	var list []moment
	for _, now := range s.between(begun, ended) {
		list = append(list, moment{now, 0})
		if t, ok := c.granted(s); ok && !t.Before(now) && !t.After(ended.Add(lead)) {
			list = append(list, moment{now, t.Sub(now)})
		}
	}
	if t, ok := c.dated(m.policy); ok && t.After(begun.Add(-lag)) && !t.After(ended) {
		list = append(list, moment{t, 0})
	}
	return list
}

// between are a moment on each side of everything that ends in a period.
func (s *state) between(begun, ended time.Time) []time.Time {
	list := []time.Time{begun}
	for _, e := range s.entries {
		for _, end := range []time.Time{e.LeaseUntil, e.ExpiresAt} {
			if end.After(begun) && !end.After(ended) && !slices.Contains(list, end) {
				list = append(list, end)
			}
		}
		if e.ExpiresAt.After(begun.Add(-lag)) && !e.ExpiresAt.After(begun) {
			list = append(list, e.ExpiresAt.Add(-time.Microsecond)) // judged by a time that was behind
		}
	}
	return list
}

// granted is the time from which a lease was given, by the answer.
func (c *call) granted(s *state) (time.Time, bool) {
	switch cmd := c.cmd.(type) {
	case *idem.Reserve:
		return c.reply.ReservedAt, c.reply.Status == 201
	case *idem.Renew:
		return c.reply.LeaseUntil.Add(-time.Duration(cmd.LeaseSeconds) * time.Second), c.reply.Status == 200
	case *idem.Dispatch:
		e := s.entries[cmd.Attempt]
		if e == nil {
			return time.Time{}, false
		}
		return c.reply.LeaseUntil.Add(-time.Duration(e.LeaseSeconds) * time.Second), c.reply.Status == 200
	}
	return time.Time{}, false
}

// dated is the time of a record or release, by the answer.
func (c *call) dated(p idem.Policy) (time.Time, bool) {
	switch cmd := c.cmd.(type) {
	case *idem.Record:
		return c.reply.RecordedAt, c.reply.Status < 300
	case *idem.Release:
		return c.reply.ExpiresAt.Add(-p.Retention), c.reply.Status < 300
	case *idem.Resolve:
		if cmd.Response != nil {
			return c.reply.RecordedAt, c.reply.Status < 300
		}
		return c.reply.ExpiresAt.Add(-p.Retention), c.reply.Status < 300
	}
	return time.Time{}, false
}

func (c *call) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s/%d", verb(c.cmd), short(c.cmd.Target().TaskID), c.cmd.Target().Attempt)
	switch cmd := c.cmd.(type) {
	case *idem.Reserve:
		fmt.Fprintf(&b, " %s by %s lease %d explicit %t task scope %t takeovers %v", short(cmd.ReservationID), cmd.Owner, cmd.LeaseSeconds, cmd.Explicit, cmd.TaskScope, cmd.Takeovers)
	case *idem.Dispatch:
		b.WriteString(" " + short(cmd.ReservationID))
	case *idem.Renew:
		fmt.Fprintf(&b, " %s %d", short(cmd.ReservationID), cmd.LeaseSeconds)
	case *idem.Record:
		fmt.Fprintf(&b, " %s %s %q", short(cmd.ReservationID), cmd.Owner, cmd.Response.Body)
	case *idem.Release:
		fmt.Fprintf(&b, " %s earlier not done %t", short(cmd.ReservationID), cmd.EarlierNotDone)
	case *idem.Resolve:
		fmt.Fprintf(&b, " fence %d force %t record %t", cmd.Fence, cmd.Force, cmd.Response != nil)
	case *age:
		fmt.Fprintf(&b, " expires %s", clock(cmd.until))
	}
	if c.lost() {
		return b.String() + " -> ?"
	}
	r := c.reply
	fmt.Fprintf(&b, " -> %d %s%s", r.Status, r.Outcome, r.State)
	if r.Fence > 0 {
		fmt.Fprintf(&b, " fence %d", r.Fence)
	}
	for name, t := range map[string]time.Time{"reserved": r.ReservedAt, "until": r.LeaseUntil, "recorded": r.RecordedAt} {
		if !t.IsZero() {
			fmt.Fprintf(&b, " %s %s", name, clock(t))
		}
	}
	for _, d := range r.Doubts {
		fmt.Fprintf(&b, " doubt %d", d.Fence)
	}
	if r.Response != nil {
		fmt.Fprintf(&b, " %q", responseOf(r.Response).Body)
	}
	return b.String()
}

func verb(cmd idem.Command) string {
	name := fmt.Sprintf("%T", cmd)
	return strings.ToLower(name[strings.LastIndexByte(name, '.')+1:])
}
