package console

import (
	"context"
	"encoding/json"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/internal/verdict"
)

// tellingShown bounds how many events of a kind a verdict goes by.
const tellingShown = 200

// tellingKinds are the events that tell who may have acted, and what came of it.
var tellingKinds = []idem.EventKind{
	idem.EventTakenOver, idem.EventFoundInDoubt, idem.EventReleased, idem.EventRecordedLate, idem.EventDuplicateRecord,
	idem.EventRefusedRecord, idem.EventResolved, idem.EventPurged,
}

// telling are the events of a task that a verdict goes by, wherever in its trail.
func (c *console) telling(ctx context.Context, id string) (list []verdict.Event, err error) {
	for _, kind := range tellingKinds {
		q := idem.EventQuery{TaskID: id, Kind: kind, Oldest: true, Limit: eventsShown}
		for found := 0; ; {
			page, err := c.Reader.Events(ctx, q)
			if err != nil {
				return nil, err
			}
			list = append(list, eventsOf(page.Events)...)
			if found += len(page.Events); page.Next == nil || found >= tellingShown {
				break
			}
			q.From = page.Next
		}
	}
	return list, nil
}

// findings are what someone on call should not have to read a timeline for.
func (c *console) findings(ctx context.Context, known []verdict.Attempt, told []verdict.Event, now time.Time) ([]verdict.Finding, error) {
	since := now.Add(-verdict.Certain)
	if first := verdict.First(known, told); !first.IsZero() && first.Before(since) {
		// Events go by their age: where an older one is left, none of this task's is gone.
		page, err := c.Reader.Events(ctx, idem.EventQuery{Before: first, Limit: 1})
		if err != nil {
			return nil, err
		}
		if len(page.Events) > 0 {
			since = first
		}
	}
	return verdict.Of(known, told, since), nil
}

// attemptOf is what an entry tells a verdict.
func attemptOf(e *idem.Entry, now time.Time) verdict.Attempt {
	a := verdict.Attempt{
		Number: e.Attempt, Grant: grantOf(&e.Grant), MayAct: e.MayHaveActed(), Released: e.State == idem.Released && !e.ByOperator,
		Live: e.Live(now), InDoubt: e.InDoubt(now), Whole: true,
		RecordedAt: e.RecordedAt, RecordedBy: e.RecordedBy, Late: e.Late, Response: digest(e.Response),
	}
	for _, g := range e.Doubts(now) {
		a.Doubts = append(a.Doubts, grantOf(&g))
	}
	for i := range e.Former {
		a.Former = append(a.Former, grantOf(&e.Former[i].Grant))
		if id := e.Former[i].ReservationID; id != "" && id == e.RecordedReservationID {
			a.RecordedFence = e.Former[i].Fence
		}
	}
	if e.ReservationID != "" && e.ReservationID == e.RecordedReservationID {
		a.RecordedFence = e.Fence
	}
	return a
}

func grantOf(g *idem.Grant) verdict.Grant {
	return verdict.Grant{
		Owner: g.Owner, Fence: g.Fence, ReservedAt: g.ReservedAt, LeaseUntil: g.LeaseUntil,
		DispatchedAt: g.DispatchedAt, Dispatched: !g.DispatchedAt.IsZero(),
	}
}

// eventsOf are events as they tell a verdict. Of their responses, which can be large, only the digests are kept.
func eventsOf(events []idem.Event) []verdict.Event {
	list := make([]verdict.Event, len(events))
	for i := range events {
		list[i] = eventOf(&events[i])
	}
	return list
}

func eventOf(e *idem.Event) verdict.Event {
	detail, _ := json.Marshal(e.Detail) // it came as JSON
	return verdict.Event{
		ID: e.ID, At: e.At, Kind: string(e.Kind), Attempt: e.Attempt, Fence: e.Fence, Owner: e.Owner,
		Detail: detail, Response: digest(e.Response),
	}
}

func digest(r *idem.Response) string {
	if r == nil {
		return ""
	}
	headers := make([][2]string, len(r.Headers))
	for i, h := range r.Headers {
		headers[i] = h
	}
	omitted := ""
	if r.Omitted {
		omitted = r.BodySHA256 + "/" + number(r.BodySize)
	}
	return verdict.Response{Status: r.Status, Headers: headers, HasBody: r.HasBody, Body: r.Body, Omitted: omitted}.Digest()
}

// named are the beginnings and ends of grants that only the trail remembers.
func named(told []verdict.Event, now time.Time) (list []step) {
	for _, e := range told {
		for attempt, grants := range verdict.Named(e) {
			for _, g := range grants {
				for _, s := range []step{
					{At: moment{g.ReservedAt, now}, What: factReserved, Tone: "live"},
					{At: moment{g.LeaseUntil, now}, What: factMayHaveActed, Tone: "doubt"},
				} {
					s.Attempt, s.Fence, s.Owner, s.Source = attempt, g.Fence, g.Owner, "trail"
					list = append(list, s)
				}
			}
		}
	}
	return list
}
