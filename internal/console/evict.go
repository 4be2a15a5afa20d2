package console

import (
	"context"
	"net/http"
	"strings"

	"github.com/idemstore/idemstore/internal/idem"
)

// evictedAtOnce is how many of an owner's keys are shown and let go at a time.
const evictedAtOnce = 200

// evictPage is what an owner that is gone still holds, and what became of it.
type evictPage struct {
	Owner   string
	Reason  string
	Force   bool
	Fault   string
	Review  bool // it is to be confirmed
	Holds   []entryView
	More    bool
	Results []evicted
	Done    bool
}

type evicted struct {
	entryView
	Released bool
	Outcome  string
}

func (c *console) evictPage(v *visit) error {
	p := evictPage{Owner: v.r.URL.Query().Get("owner")}
	if p.Owner != "" {
		if err := c.holds(v.ctx, &p); err != nil {
			return err
		}
	}
	return v.show(http.StatusOK, "evict", "Release an owner", p)
}

// holds finds the grants of an owner that have not ended.
func (c *console) holds(ctx context.Context, p *evictPage) error {
	for _, state := range []idem.State{idem.Reserved, idem.Dispatched} {
		q := idem.EntryQuery{Owner: p.Owner, State: state, Limit: evictedAtOnce}
		if err := q.Validate(); err != nil {
			return err
		}
		for {
			page, err := c.Reader.Entries(ctx, q)
			if err != nil {
				return err
			}
			for _, e := range page.Entries {
				p.Holds = append(p.Holds, viewEntry(e, page.Now))
			}
			if p.More = p.More || page.Next != nil && len(p.Holds) >= evictedAtOnce; page.Next == nil || p.More {
				break
			}
			q.From = page.Next
		}
	}
	return nil
}

// evict takes the form: to show what would be done, or to do it.
func (c *console) evict(v *visit) error {
	form := v.r.PostForm
	p := evictPage{
		Owner: form.Get("owner"), Reason: strings.TrimSpace(lines(form.Get("reason"))), Force: form.Get("force") != "",
	}
	probe := c.letGo(v, p, idem.Key{})
	err := probe.Validate()
	if err == nil || p.Owner != "" {
		if err := c.holds(v.ctx, &p); err != nil {
			return err
		}
	}
	if err != nil {
		p.Fault = faultOf(err)
		return v.show(http.StatusBadRequest, "evict", "Release an owner", p)
	}
	if form.Get("step") != "do" {
		p.Review = true
		return v.show(http.StatusOK, "evict", "Confirm", p)
	}
	if len(p.Holds) > 0 {
		if err := c.letAllGo(v, &p); err != nil {
			return err
		}
	}
	p.Done = true
	return v.show(http.StatusOK, "evict", "Released", p)
}

func (c *console) letGo(v *visit, p evictPage, k idem.Key) *idem.Evict {
	return &idem.Evict{
		Call:  idem.Call{Key: k, Actor: idem.Actor{Token: v.caller.Name, RequestID: v.requestID()}},
		Owner: p.Owner, Reason: p.Reason, Force: p.Force,
	}
}

func (c *console) letAllGo(v *visit, p *evictPage) error {
	cmds := make([]idem.Command, len(p.Holds))
	for i := range p.Holds {
		cmds[i] = c.letGo(v, *p, p.Holds[i].Key)
	}
	for i, result := range c.Keeper.Do(v.ctx, cmds...) {
		if result.Err != nil {
			return result.Err
		}
		done := evicted{entryView: p.Holds[i], Released: result.Outcome.OK, Outcome: string(result.Outcome.Code)}
		if result.Outcome.Entry != nil {
			done.entryView = viewEntry(result.Outcome.Entry, result.Outcome.Now)
			done.Outcome = done.Standing
		}
		p.Results = append(p.Results, done)
	}
	return nil
}

// Ends says that a grant would be ended by what is asked.
func (p evictPage) Ends(e entryView) bool { return p.Force || !e.MayHaveActed() }

// Ending is how many of them.
func (p evictPage) Ending() (n int) {
	for _, e := range p.Holds {
		if p.Ends(e) {
			n++
		}
	}
	return n
}
