package audit

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/idemstore/idemstore/api"
	"github.com/idemstore/idemstore/internal/verdict"
)

// findings are what someone on call should not have to read a timeline for.
func (s *Session) findings(ctx context.Context, task *api.Task) ([]verdict.Finding, error) {
	attempts, events := make([]verdict.Attempt, len(task.Attempts)), make([]verdict.Event, len(task.Events))
	now := s.now()
	for i := range task.Attempts {
		attempts[i] = attemptOf(&task.Attempts[i], now)
	}
	for i := range task.Events {
		events[i] = eventOf(&task.Events[i])
	}
	since := now.Add(-verdict.Certain)
	if first := verdict.First(attempts, events); !first.IsZero() && first.Before(since) {
		older, err := s.anyBefore(ctx, first)
		if err != nil {
			return nil, err
		}
		if older {
			since = first
		}
	}
	return verdict.Of(attempts, events, since), nil
}

// anyBefore says whether an event from before a moment is kept, of whatever task. Events go by their age: then none that is
// younger is gone.
func (s *Session) anyBefore(ctx context.Context, at time.Time) (bool, error) {
	limit, before := 1, at.UTC().Format(time.RFC3339Nano)
	body, err := s.Service.answer(s.Service.api.ListEvents(ctx, &api.ListEventsParams{Limit: &limit, Before: &before}))
	if err != nil {
		return false, err
	}
	var page page
	err = s.Service.read(body, &page)
	return len(page.Events) > 0, err
}

// advise is a finding with what to do about it here.
func (l *timeline) advise(task string, f verdict.Finding) string {
	switch {
	case f.Unsolved != nil:
		return fmt.Sprintf("%s: idemstore audit resolve %s %d", strings.TrimSuffix(f.Text, "."), task, *f.Unsolved)
	case f.Evidence != "":
		return f.Text + " What was offered is " + l.evidence[f.Evidence]
	}
	return f.Text
}

// attemptOf is what an entry tells a verdict.
func attemptOf(e *api.Entry, now time.Time) verdict.Attempt {
	open := e.State == api.AttemptStateReserved || e.State == api.AttemptStateDispatched
	a := verdict.Attempt{
		Number: e.Attempt, MayAct: e.Dispatch == api.EntryDispatchImplicit || e.DispatchedAt != nil,
		Grant: verdict.Grant{
			Owner: e.Owner, Fence: e.Fence, ReservedAt: moment(e.ReservedAt), LeaseUntil: moment(e.LeaseUntil),
			DispatchedAt: moment(or(e.DispatchedAt, "")), Dispatched: e.DispatchedAt != nil,
		},
		Released: e.State == api.AttemptStateReleased, Live: open && moment(e.LeaseUntil).After(now), InDoubt: e.InDoubt,
		RecordedAt: moment(or(e.RecordedAt, "")), RecordedBy: or(e.RecordedBy, ""), Late: e.Late, Response: digest(e.Response),
	}
	for _, d := range e.Doubts {
		a.Doubts = append(a.Doubts, verdict.Grant{
			Owner: d.Owner, Fence: d.Fence, ReservedAt: moment(d.ReservedAt), LeaseUntil: moment(d.LeaseUntil), Dispatched: d.Dispatched,
		})
	}
	return a
}

// eventOf is what an event tells a verdict.
func eventOf(e *api.Event) verdict.Event {
	return verdict.Event{
		ID: e.ID, At: moment(e.At), Kind: string(e.Kind), Attempt: e.Attempt, Fence: e.Fence, Owner: e.Actor.Owner,
		Detail: e.Detail, Response: digest(e.Response),
	}
}

func digest(r *api.Response) string {
	if r == nil {
		return ""
	}
	v := verdict.Response{Status: r.Status, Headers: r.Headers}
	switch {
	case r.Body != nil:
		v.HasBody, v.Body = true, []byte(*r.Body)
	case r.BodyBase64 != nil:
		v.HasBody, v.Body = true, *r.BodyBase64
	case r.BodyOmitted != nil && *r.BodyOmitted:
		v.Omitted = omitted(r)
	}
	return v.Digest()
}
