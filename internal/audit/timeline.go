package audit

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/idemstore/idemstore/api"
)

// fact is a line of a task's timeline: one of the entries' own facts, or an event.
type fact struct {
	at         time.Time
	stamp      string
	attempt    int32
	fence      int64
	what       string
	who, token string
	detail     string
}

// rank is the order of what happened at one moment: a grant follows what led to it, and what a call was told follows all.
func (f *fact) rank() int {
	return cmp.Or(1+slices.Index([]string{"lease passed", "found_in_doubt", "taken_over", "reserved", "dispatched", "recorded"}, f.what), 7)
}

// timeline is what happened to a task, and the different responses that were recorded or offered.
type timeline struct {
	now       time.Time
	facts     []fact
	responses []*api.Response
	evidence  map[string]string // by the event that it came with, what stands for a response
	seen      map[grantOf]bool
}

// grantOf tells grants apart. A revived one has a new fence and is still the same.
type grantOf struct {
	attempt      int32
	owner        string
	since, until time.Time
}

// newTimeline merges the facts that stand on entries with the events, by time. Of a grant that was superseded nothing is left
// on the entry; the events that tell of the doubt that it left say when it was made and when its lease passed.
func newTimeline(task *api.Task, now time.Time) *timeline {
	l := &timeline{now: now, seen: make(map[grantOf]bool), evidence: make(map[string]string)}
	for i := range task.Attempts {
		l.entry(&task.Attempts[i])
	}
	for i := range task.Events {
		l.event(&task.Events[i])
	}
	slices.SortStableFunc(l.facts, func(a, b fact) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.rank(), b.rank())) })
	return l
}

func (l *timeline) add(stamp string, f fact) {
	f.at, f.stamp = moment(stamp), stamp
	l.facts = append(l.facts, f)
}

func (l *timeline) entry(e *api.Entry) {
	for _, d := range e.Doubts {
		l.grant(e.Attempt, grant{Owner: d.Owner, Fence: d.Fence, ReservedAt: d.ReservedAt, LeaseUntil: d.LeaseUntil, Dispatched: d.Dispatched})
	}
	if made := (grantOf{attempt: e.Attempt, owner: e.Owner, since: moment(e.ReservedAt)}); !l.seen[made] {
		l.seen[made] = true
		l.add(e.ReservedAt, fact{attempt: e.Attempt, fence: e.Fence, what: "reserved", who: e.Owner, detail: "lease until " + toSecond(e.LeaseUntil)})
	}
	if e.DispatchedAt != nil {
		l.add(*e.DispatchedAt, fact{attempt: e.Attempt, fence: e.Fence, what: "dispatched", who: e.Owner})
	}
	open := e.State == api.AttemptStateReserved || e.State == api.AttemptStateDispatched
	if open && e.Dispatch == api.EntryDispatchExplicit && e.DispatchedAt == nil && moment(e.LeaseUntil).Before(l.now) {
		l.add(e.LeaseUntil, fact{attempt: e.Attempt, fence: e.Fence, what: "lease passed", who: e.Owner, detail: "never dispatched: it cannot have acted"})
	}
	if e.RecordedAt != nil {
		f := fact{attempt: e.Attempt, fence: e.Fence, what: "recorded", who: or(e.RecordedBy, "")}
		if e.Late {
			f.fence, f.detail = 0, "late" // by which grant the event tells
		}
		if e.Response != nil {
			f.detail = joined(f.detail, l.response(e.Response))
		}
		l.add(*e.RecordedAt, f)
	}
}

// grant adds one that may have acted, once.
func (l *timeline) grant(attempt int32, g grant) {
	made := grantOf{attempt: attempt, owner: g.Owner, since: moment(g.ReservedAt)}
	if !l.seen[made] {
		l.seen[made] = true
		l.add(g.ReservedAt, fact{attempt: attempt, fence: g.Fence, what: "reserved", who: g.Owner, detail: "lease until " + toSecond(g.LeaseUntil)})
	}
	passed := made
	passed.until = moment(g.LeaseUntil)
	if l.seen[passed] {
		return
	}
	l.seen[passed] = true
	text := "it may have acted"
	if g.Dispatched {
		text = "it had dispatched and may have acted"
	}
	l.add(g.LeaseUntil, fact{attempt: attempt, fence: g.Fence, what: "lease passed", who: g.Owner, detail: text})
}

// event adds one, and the earlier grants that it tells of.
func (l *timeline) event(e *api.Event) {
	var t told
	_ = json.Unmarshal(e.Detail, &t) // what it does not say stays empty
	for _, g := range t.Doubts {
		l.grant(e.Attempt, g)
	}
	for _, f := range t.From {
		for _, g := range f.Doubts {
			l.grant(f.Attempt, g)
		}
	}
	f := fact{
		attempt: e.Attempt, fence: e.Fence, what: string(e.Kind), who: e.Actor.Owner, token: e.Actor.Token, detail: detail(e.Detail),
	}
	if e.Response != nil {
		l.evidence[e.ID] = l.response(e.Response)
		f.detail = joined(f.detail, "offered "+l.evidence[e.ID])
	}
	l.add(e.At, f)
}

// response is the number under which a response is shown below the timeline.
func (l *timeline) response(r *api.Response) string {
	i := slices.IndexFunc(l.responses, func(other *api.Response) bool { return same(r, other) })
	if i < 0 {
		i = len(l.responses)
		l.responses = append(l.responses, r)
	}
	return fmt.Sprintf("[%d] %s", i+1, brief(r))
}
