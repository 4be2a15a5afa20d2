package audit

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"

	"github.com/idemstore/idemstore/api"
)

// Resolution is an operator's word about a key.
type Resolution struct {
	Task    string
	Attempt int32
	Fence   int64 // 0: not looked at yet
	Reason  string
	Force   bool
	// Response is what is recorded; without it the key is released.
	Response *api.OfferedResponse
	Yes      bool // do not ask
}

// Resolve records or releases a key: it shows the entry and what will be done to it, asks, and shows what it is then. Without
// a fence it shows the entry and says which one to quote.
func (s *Session) Resolve(ctx context.Context, r Resolution) error {
	if r.Fence == 0 || !r.Yes {
		e, err := s.look(ctx, r)
		if err != nil {
			return err
		}
		if r.Fence == 0 {
			return s.quote(e)
		}
		say(s.Err, "%s attempt %d will be %s, quoting fence %d: %q", e.TaskID, e.Attempt, r.what(), r.Fence, r.Reason)
		if e.Fence != r.Fence {
			say(s.Err, "But its newest fence is %d now: it will be refused.", e.Fence)
		}
		if err := s.confirm(); err != nil {
			return err
		}
	}
	request := api.ResolveRequest{Action: api.ResolveRequestActionRelease, Fence: r.Fence, Reason: r.Reason, Force: &r.Force}
	if r.Response != nil {
		request.Action, request.Response = api.ResolveRequestActionRecord, r.Response
	}
	body, err := s.Service.answer(s.Service.api.Resolve(ctx, r.Task, r.Attempt, request))
	if err != nil {
		return s.advise(r, err)
	}
	return s.showEntry(body)
}

func (r *Resolution) what() string {
	text := "released, which says that its effect did not happen"
	if r.Response != nil {
		text = "recorded with the response " + brief(preview(r.Response))
	}
	if r.Force {
		text += ", even if a live lease holds it"
	}
	return text
}

// look reads the entry and shows it, for the person who decides.
func (s *Session) look(ctx context.Context, r Resolution) (*api.Entry, error) {
	body, err := s.entry(ctx, r.Task, r.Attempt)
	if err != nil {
		return nil, err
	}
	var e api.Entry
	if err := s.Service.read(body, &e); err != nil {
		return nil, err
	}
	return &e, s.describe(s.Err, &e)
}

func (s *Session) quote(e *api.Entry) error {
	if e.State == api.AttemptStateRecorded {
		return fail(Refused, "nothing was done: %s attempt %d is recorded, so there is nothing to resolve", e.TaskID, e.Attempt)
	}
	return fail(Usage, "nothing was done: --fence is missing. If what stands above is what you looked into, say --fence %d", e.Fence)
}

// advise adds to a refusal what to do next.
func (s *Session) advise(r Resolution, err error) error {
	var p *problem
	if passing(err) {
		return unknown(err)
	}
	if !errors.As(err, &p) || !is(err, Refused) {
		return err
	}
	switch p.Code {
	case api.ProblemCodeInProgress:
		return fail(Refused, "%s Nothing was done. Wait until its lease has passed, or say --force if you know that its holder is gone", p.Error())
	case api.ProblemCodeInDoubt:
		if p.Fence == nil {
			return err
		}
		return fail(Refused, "%s Nothing was done: the key has moved on, its newest fence is %d. Look again with: idemstore audit task %s", p.Error(), *p.Fence, r.Task)
	case api.ProblemCodeAlreadyRecorded:
		if p.Response != nil {
			say(s.Err, "Recorded is: %s", measure(p.Response))
			s.showResponse(s.Err, p.Response)
		}
		if r.Response != nil {
			return fail(Refused, "%s Nothing was changed; the response that you gave is kept as evidence", p.Error())
		}
		return fail(Refused, "%s Nothing was changed", p.Error())
	default:
		return err
	}
}

// unknown says of a command without an answer what that means.
func unknown(err error) error {
	return fail(Failed, "%v. It is not known whether it was done; say it again, that is safe", err)
}

// confirm asks the person at the terminal.
func (s *Session) confirm() error {
	if !s.InTerminal {
		return fail(Usage, "nothing was done: nobody can be asked here; say --yes")
	}
	if _, err := io.WriteString(s.Err, "Go on? [y/N] "); err != nil {
		return err
	}
	answer, err := bufio.NewReader(s.In).ReadString('\n')
	if err != nil && answer == "" {
		return fail(Usage, "nothing was done: there was no answer; say --yes where nobody can be asked")
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return fail(Failed, "nothing was done, as you said")
}
