package idem_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
)

var (
	implicitPlan = plan{renews: true, releases: true}
	explicitPlan = plan{explicit: true, renews: true, releases: true}
)

// again is the plan for attempt 1.
func again(p plan) plan {
	p.attempt = 1
	return p
}

var scenarios = []scenario{
	{name: "two implicit", plans: []plan{implicitPlan, implicitPlan}, ticks: 7, atLeast: 25000},
	{name: "two explicit", plans: []plan{explicitPlan, explicitPlan}, ticks: 6, atLeast: 30000},
	{name: "mixed, with an operator", plans: []plan{implicitPlan, explicitPlan}, operator: true, ticks: 5, atLeast: 40000},
	{name: "three", plans: []plan{implicitPlan, explicitPlan, implicitPlan}, ticks: 4, atLeast: 45000},
	{name: "a retry", plans: []plan{implicitPlan, again(implicitPlan)}, ticks: 5, atLeast: 12000},
	{name: "a retry, explicit", plans: []plan{explicitPlan, again(explicitPlan)}, ticks: 4, atLeast: 14000},
	{name: "a retry, scope task", plans: []plan{explicitPlan, again(implicitPlan)}, task: true, ticks: 5, atLeast: 20000},
	{name: "a retry of two", plans: []plan{implicitPlan, explicitPlan, again(explicitPlan)}, ticks: 3, atLeast: 25000},
	{name: "a retry of two, scope task", plans: []plan{implicitPlan, explicitPlan, again(explicitPlan)}, task: true, ticks: 3, atLeast: 25000},
	{name: "two retries, with an operator", plans: []plan{implicitPlan, again(explicitPlan), again(implicitPlan)}, operator: true, ticks: 3, atLeast: 40000},
}

// No order of events brings a second side effect about, unless somebody looked after the first and took over.
func TestNoSecondEffect(t *testing.T) {
	t.Parallel()
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			m := newModel(s, policy.Decide)
			found, visited := m.search()
			t.Logf("%d situations, %d rows, %d judgements", visited, len(m.entries)-1, len(m.known))
			if found != nil {
				t.Fatalf("a second effect:\n%s", strings.Join(found, "\n"))
			}
			if visited < s.atLeast {
				t.Errorf("%d situations are suspiciously few, want %d", visited, s.atLeast)
			}
		})
	}
}

// The search finds what it looks for where the judgement is wrong.
func TestSearchCanFail(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]struct {
		scenario int
		decide   decideFunc
	}{
		"a doubt is no obstacle": {0, func(task idem.Task, cmd idem.Command, now time.Time) idem.Decision {
			if r, ok := cmd.(*idem.Reserve); ok {
				if e := task.Entries[r.Attempt]; e != nil && e.InDoubt(now) {
					task.Entries = nil
				}
			}
			return policy.Decide(task, cmd, now)
		}},
		"a live lease is no obstacle": {1, func(task idem.Task, cmd idem.Command, now time.Time) idem.Decision {
			if r, ok := cmd.(*idem.Reserve); ok {
				if e := task.Entries[r.Attempt]; e != nil && e.Live(now) {
					task.Entries = nil
				}
			}
			return policy.Decide(task, cmd, now)
		}},
		"a clock runs ahead": {0, func(task idem.Task, cmd idem.Command, now time.Time) idem.Decision {
			if _, ok := cmd.(*idem.Reserve); ok {
				now = now.Add(tick)
			}
			return policy.Decide(task, cmd, now)
		}},
		"a revival keeps its fence": {0, func(task idem.Task, cmd idem.Command, now time.Time) idem.Decision {
			dec := policy.Decide(task, cmd, now)
			if _, ok := cmd.(*idem.Renew); ok && dec.Outcome.OK {
				dec.Changes[0].Entry.Fence = task.Entries[cmd.Target().Attempt].Fence
			}
			return dec
		}},
		"who was superseded may go": {1, func(task idem.Task, cmd idem.Command, now time.Time) idem.Decision {
			dec := policy.Decide(task, cmd, now)
			if _, ok := cmd.(*idem.Dispatch); ok && dec.Outcome.Code == idem.CodeLeaseLost {
				dec.Outcome.Code = idem.CodeDispatched
			}
			return dec
		}},
		"a release by another counts": {3, func(task idem.Task, cmd idem.Command, now time.Time) idem.Decision {
			if r, ok := cmd.(*idem.Release); ok && task.Entries[0] != nil {
				r.ReservationID = task.Entries[0].ReservationID
			}
			return policy.Decide(task, cmd, now)
		}},
		"other attempts are not looked at": {4, func(task idem.Task, cmd idem.Command, now time.Time) idem.Decision {
			task.Entries = maps.Clone(task.Entries)
			maps.DeleteFunc(task.Entries, func(a int32, _ *idem.Entry) bool { return a != cmd.Target().Attempt })
			return policy.Decide(task, cmd, now)
		}},
		"a revival looks at no other attempt": {5, func(task idem.Task, cmd idem.Command, now time.Time) idem.Decision {
			if _, ok := cmd.(*idem.Dispatch); ok {
				task.Entries = maps.Clone(task.Entries)
				maps.DeleteFunc(task.Entries, func(a int32, _ *idem.Entry) bool { return a != cmd.Target().Attempt })
				if own := task.Entries[cmd.Target().Attempt]; own != nil {
					unbarred := *own
					unbarred.Barred = false
					task.Entries[own.Attempt] = &unbarred
				}
			}
			return policy.Decide(task, cmd, now)
		}},
		"scope task is forgotten": {6, func(task idem.Task, cmd idem.Command, now time.Time) idem.Decision {
			if r, ok := cmd.(*idem.Reserve); ok {
				r.TaskScope = false
			}
			return policy.Decide(task, cmd, now)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newModel(scenarios[broken.scenario], broken.decide)
			found, visited := m.search()
			if found == nil {
				t.Fatalf("no second effect was found in %d situations", visited)
			}
			t.Logf("after %d situations:\n%s", visited, strings.Join(found, "\n"))
		})
	}
}

// move is what happens next, told so that a way to a failure can be read.
type move struct {
	worker int8
	call   verb
	kind   moveKind
}

type moveKind uint8

const (
	timePasses moveKind = iota
	acts
	letsGo
	arrives // and its answer is lost
	isHeard
	operatorLooks
	operatorReleases
)

func (mv move) String() string {
	call := []string{"reserve", "takeover", "dispatch", "renew", "record", "release"}[mv.call]
	return []string{
		"time passes",
		fmt.Sprintf("worker %d acts", mv.worker),
		fmt.Sprintf("worker %d lets go", mv.worker),
		fmt.Sprintf("the %s of worker %d arrives", call, mv.worker),
		fmt.Sprintf("the %s of worker %d arrives, and it hears the answer", call, mv.worker),
		"the operator looks",
		"the operator releases",
	}[mv.kind]
}

// search visits every situation, the nearest first. It returns the shortest way to a second effect, if there is one.
func (m *model) search() (way []string, visited int) {
	var start situation
	for i := range m.plans {
		start.workers[i].send(callReserve)
	}
	type origin struct {
		from int
		move move
	}
	order, origins, seen := []situation{start}, []origin{{}}, map[situation]struct{}{start: {}}
	for at := 0; at < len(order); at++ {
		m.moves(order[at], func(to situation, mv move) {
			if _, ok := seen[to]; !ok {
				seen[to] = struct{}{}
				order, origins = append(order, to), append(origins, origin{at, mv})
			}
		})
		if order[at].effects < 2 {
			continue
		}
		for ; at > 0; at = origins[at].from {
			way = append([]string{fmt.Sprintf("%d: %s", order[at].now, origins[at].move)}, way...)
		}
		return way, len(order)
	}
	return nil, len(order)
}

func (m *model) moves(s situation, add func(situation, move)) {
	if !slices.ContainsFunc(s.workers[:len(m.plans)], func(w worker) bool { return w.stage < acted }) {
		return // nobody will act any more
	}
	if s.now < m.ticks {
		to := s
		to.now++
		add(to, move{kind: timePasses})
	}
	for i, p := range m.plans {
		w := s.workers[i]
		if (w.stage == held && !p.explicit || w.stage == going) && s.now < w.until {
			to := s
			to.effects++
			n := &to.workers[i]
			n.stage, n.until = acted, 0
			n.send(callRecord)
			add(to, move{int8(i), 0, acts})
		}
		if p.releases && (w.stage == held || w.stage == going) {
			to := s
			n := &to.workers[i]
			n.stage, n.until = ended, 0
			n.send(callRelease)
			add(to, move{int8(i), 0, letsGo})
		}
		for v := range calls {
			if w.sentAny(v) {
				m.deliveries(s, int8(i), v, add)
			}
		}
	}
	if m.operator {
		m.operates(s, add)
	}
}

// deliveries are what becomes of a request that reaches the table: its answer is lost, or heard.
func (m *model) deliveries(s situation, i int8, v verb, add func(situation, move)) {
	w := s.workers[i]
	over := w.sentAny(callTakeover) && v != callReserve
	d := delivery{now: s.now, rows: s.rows, worker: i, over: over, call: v}
	if v == callTakeover {
		d.fences = w.look.fences
	}
	r := m.deliver(d)
	if s.effects > 0 && (r.owned && w.look.after || r.retry) {
		return // from here on a second effect is somebody's decision
	}
	to := s
	to.rows = r.rows
	add(to, move{i, v, arrives})
	if v == callReserve && w.sentAny(callTakeover) {
		return // nobody waits for this answer any more
	}
	n := &to.workers[i]
	m.hear(n, m.plans[i], v, r, s.effects > 0)
	add(to, move{i, v, isHeard})
}

// hear is what an answer makes of a worker. One that waits and is told to wait calls again.
func (m *model) hear(w *worker, p plan, v verb, r result, after bool) {
	switch {
	case w.stage >= acted:
	case w.stage == waiting && r.says == yes:
		w.stage, w.until = held, r.until
		if p.explicit {
			w.send(callDispatch)
		}
		if p.renews {
			w.send(callRenew)
		}
	case w.stage == waiting && r.says == inDoubt && v == callReserve:
		w.look = look{r.fences, after}
		w.send(callTakeover)
	case w.stage == waiting && r.says != no:
	case r.says == no:
		w.stage, w.until = ended, 0
	case v == callDispatch:
		w.stage, w.until = going, r.until
	case v == callRenew:
		w.until = r.until
	}
}

// operates: the operator looks at attempt 0, and later, perhaps much later, releases what was looked at.
func (m *model) operates(s situation, add func(situation, move)) {
	e, to := m.entries[s.rows[0]], s
	if s.operator == (look{}) {
		if e != nil && !e.Live(epoch.Add(time.Duration(s.now)*tick)) {
			to.operator = look{fences: [2]int8{int8(e.Fence)}, after: s.effects > 0}
			add(to, move{kind: operatorLooks})
		}
		return
	}
	r := m.deliver(delivery{now: s.now, rows: s.rows, worker: theOperator, fences: s.operator.fences})
	if to.rows = r.rows; !r.owned || !s.operator.after {
		add(to, move{kind: operatorReleases})
	}
}
