package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
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
	At      string
	Holds   []entryView
	Next    string // where what it holds goes on; empty: nowhere
	Results []evicted
	Done    bool
}

type evicted struct {
	entryView
	Released bool
	Outcome  string
}

// seen is a grant that was shown, and is ended only as it was then.
type seen struct {
	idem.Key
	Fence int64
}

func (c *console) evictPage(v *visit) error {
	q := v.r.URL.Query()
	p := evictPage{Owner: q.Get("owner"), At: q.Get("cursor")}
	if p.Owner != "" {
		if err := c.holds(v.ctx, &p); err != nil {
			return err
		}
	}
	return v.show(http.StatusOK, "evict", "Release an owner", p)
}

// holds finds the grants of an owner that have not ended, from a place on.
func (c *console) holds(ctx context.Context, p *evictPage) (err error) {
	p.Holds, p.Next, err = c.held(ctx, idem.EntryQuery{Owner: p.Owner, Limit: evictedAtOnce}, p.At, nil)
	return err
}

// evict takes the form: to show what would be done, or to do it to what was shown.
func (c *console) evict(v *visit) error {
	form := v.r.PostForm
	p := evictPage{
		Owner: form.Get("owner"), Reason: strings.TrimSpace(lines(form.Get("reason"))), Force: form.Get("force") != "",
		At: form.Get("cursor"),
	}
	fault := c.letGo(v, p, seen{}).Validate()
	if fault == nil && form.Get("step") == "do" {
		p.Next = form.Get("next")
		if p.Next != "" {
			if _, _, err := readHeldCursor(p.Next); err != nil {
				return err
			}
		}
		return c.letAllGo(v, &p, form["key"])
	}
	if fault == nil || p.Owner != "" {
		if err := c.holds(v.ctx, &p); err != nil {
			return err
		}
	}
	if fault != nil {
		p.Fault = faultOf(fault)
		return v.show(http.StatusBadRequest, "evict", "Release an owner", p)
	}
	p.Review = true
	return v.show(http.StatusOK, "evict", "Confirm", p)
}

func (c *console) letGo(v *visit, p evictPage, s seen) *idem.Evict {
	return &idem.Evict{
		Call:  idem.Call{Key: s.Key, Actor: idem.Actor{Token: v.caller.Name, RequestID: v.requestID()}},
		Owner: p.Owner, Reason: p.Reason, Force: p.Force, Fence: s.Fence,
	}
}

// letAllGo ends the grants that were confirmed, each as it was shown. One that was made since stands.
func (c *console) letAllGo(v *visit, p *evictPage, shown []string) error {
	if len(shown) > evictedAtOnce {
		return errShown
	}
	keys, cmds := make([]seen, len(shown)), make([]idem.Command, len(shown))
	for i, text := range shown {
		var err error
		if keys[i], err = readShown(text); err != nil {
			return err
		}
		cmds[i] = c.letGo(v, *p, keys[i])
	}
	if len(cmds) > 0 {
		for i, result := range c.Keeper.Do(v.ctx, cmds...) {
			if result.Err != nil {
				return result.Err
			}
			done := evicted{Released: result.Outcome.OK, Outcome: "nothing is known of it any more"}
			done.entryView = entryView{Entry: &idem.Entry{Key: keys[i].Key}}
			if result.Outcome.Entry != nil {
				done.entryView = viewEntry(result.Outcome.Entry, result.Outcome.Now)
				done.Outcome = done.Standing
			}
			p.Results = append(p.Results, done)
		}
	}
	p.Done = true
	return v.show(http.StatusOK, "evict", "Released", *p)
}

// errShown says of a list that it is none that was shown.
var errShown = refusal(http.StatusBadRequest, "This list is none of ours.",
	"It names what was not shown, so nothing was done. Go back and confirm it again.")

func readShown(s string) (seen, error) {
	parts := strings.SplitN(s, " ", 3)
	if len(parts) != 3 {
		return seen{}, errShown
	}
	attempt, errAttempt := idem.ParseAttempt(parts[0])
	fence, errFence := strconv.ParseInt(parts[1], 10, 64)
	id, errTask := idem.ParseTaskID(parts[2])
	if errors.Join(errAttempt, errFence, errTask) != nil || fence < 1 {
		return seen{}, errShown
	}
	return seen{idem.Key{TaskID: id, Attempt: attempt}, fence}, nil
}

// Shown names a grant in the form of what is confirmed.
func (p evictPage) Shown(e entryView) string {
	return strconv.Itoa(int(e.Attempt)) + " " + strconv.FormatInt(e.Fence, 10) + " " + e.TaskID
}

// Rest leads to what the owner holds beyond what is shown.
func (p evictPage) Rest() string {
	return Prefix + "/release-owner?" + url.Values{"owner": {p.Owner}, "cursor": {p.Next}}.Encode()
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
