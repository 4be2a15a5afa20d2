package console

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/internal/verdict"
)

const (
	// attemptsShown of a task are as many as anybody has ever seen, and then some.
	attemptsShown = 100
	// attemptsAtOnce bounds how many whole responses are in memory at a time.
	attemptsAtOnce = 10
	// eventsShown are a page of a task's timeline.
	eventsShown = 100
)

// taskPage is a task: what its attempts are now, and how they came to be so.
type taskPage struct {
	TaskID   string
	Now      moment
	Resolved string // the attempt that was resolved just now
	Findings []verdict.Finding
	Attempts []entryView
	More     bool // attempts that are not shown
	Timeline []step
	Later    string // link to the rest of the timeline
	First    string // link to its beginning, if this is the rest
}

func (c *console) task(v *visit) error {
	id, err := idem.ParseTaskID(v.r.PathValue("task"))
	if err != nil {
		return err
	}
	p := taskPage{TaskID: id}
	if attempt, err := idem.ParseAttempt(v.r.URL.Query().Get("resolved")); err == nil {
		p.Resolved = strconv.Itoa(int(attempt))
	}
	from, err := readEventCursor(v.r.URL.Query().Get("cursor"))
	if err != nil {
		return err
	}
	trail, err := c.Reader.Events(v.ctx, idem.EventQuery{TaskID: id, Oldest: true, Limit: eventsShown, From: from})
	if err != nil {
		return err
	}
	known, now, err := c.attempts(v.ctx, &p)
	if err != nil {
		return err
	}
	if len(p.Attempts) == 0 && len(trail.Events) == 0 && from == nil {
		return refusal(http.StatusNotFound, "Nothing is known of this task.", "No attempt of %s was ever reserved here, or their retention and that of their events has ended.", id)
	}
	p.Now = moment{At: now}
	told := eventsOf(trail.Events)
	steps := eventSteps(trail.Events, now)
	if from != nil || trail.Next != nil {
		if told, err = c.telling(v.ctx, id); err != nil {
			return err
		}
	}
	if from == nil {
		if p.Findings, err = c.findings(v.ctx, known, told, now); err != nil {
			return err
		}
	}
	p.Timeline = timeline(steps, append(factsOf(p.Attempts, now), named(told, now)...), trail.Next, from)
	if trail.Next != nil {
		p.Later = taskPath(id) + "?" + url.Values{"cursor": {eventCursor(trail.Next)}}.Encode() + "#timeline"
	}
	if from != nil {
		p.First = taskPath(id) + "#timeline"
	}
	return v.show(http.StatusOK, "task", "Task "+id, p)
}

// attempts reads the task's attempts, few at a time, as their responses can be large.
func (c *console) attempts(ctx context.Context, p *taskPage) (known []verdict.Attempt, now time.Time, err error) {
	q := idem.EntryQuery{TaskID: p.TaskID, Limit: attemptsAtOnce}
	for {
		page, err := c.Reader.Entries(ctx, q)
		if err != nil {
			return nil, now, err
		}
		now = page.Now
		for _, e := range page.Entries {
			known = append(known, attemptOf(e, now))
			v := viewEntry(e, now)
			v.Entry = withoutResponse(e)
			p.Attempts = append(p.Attempts, v)
		}
		if page.Next == nil || len(p.Attempts) >= attemptsShown {
			p.More = page.Next != nil
			return known, now, nil
		}
		q.From = page.Next
	}
}

// withoutResponse lets go of the bytes of which a page shows a part.
func withoutResponse(e *idem.Entry) *idem.Entry {
	n := *e
	n.Response = nil
	return &n
}

// key reads which attempt a page is about.
func key(r *http.Request) (idem.Key, error) {
	id, err := idem.ParseTaskID(r.PathValue("task"))
	if err != nil {
		return idem.Key{}, err
	}
	attempt, err := idem.ParseAttempt(r.PathValue("attempt"))
	return idem.Key{TaskID: id, Attempt: attempt}, err
}

// entry reads the entry that a page is about, and the database's time.
func (c *console) entry(v *visit) (*idem.Entry, time.Time, error) {
	k, err := key(v.r)
	if err != nil {
		return nil, time.Time{}, err
	}
	e, now, err := c.Reader.Entry(v.ctx, k)
	if err == nil && e == nil {
		err = refusal(http.StatusNotFound, "Nothing is known of this key.", "Attempt %d of task %s was never reserved, or its retention has ended.", k.Attempt, k.TaskID)
	}
	return e, now, err
}

// response hands out the whole of what an attempt recorded.
func (c *console) response(v *visit) error {
	e, _, err := c.entry(v)
	if err != nil {
		return err
	}
	return v.send(e.Response, "response-"+strconv.Itoa(int(e.Attempt))+".bin")
}

// evidencePath is where the whole of what an event kept is. The time is there to find it by.
func evidencePath(e *idem.Event) string {
	return taskPath(e.TaskID) + "/evidence?" + url.Values{"at": {eventCursor(&idem.EventPosition{At: e.At, ID: e.ID})}}.Encode()
}

// evidence hands out the whole of what an event kept.
func (c *console) evidence(v *visit) error {
	id, err := idem.ParseTaskID(v.r.PathValue("task"))
	if err != nil {
		return err
	}
	at, err := readEventCursor(v.r.URL.Query().Get("at"))
	if err != nil || at == nil {
		return errCursor
	}
	q := idem.EventQuery{TaskID: id, After: at.At, Before: at.At.Add(time.Microsecond), Oldest: true, Limit: eventsShown}
	for {
		page, err := c.Reader.Events(v.ctx, q)
		if err != nil {
			return err
		}
		for i := range page.Events {
			if page.Events[i].ID == at.ID {
				return v.send(page.Events[i].Response, "evidence-"+strconv.Itoa(int(page.Events[i].Attempt))+".bin")
			}
		}
		if page.Next == nil {
			return refusal(http.StatusNotFound, "There is no such event.", "Its retention may have ended.")
		}
		q.From = page.Next
	}
}
