package server

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/idemstore/idemstore/api"
	"github.com/idemstore/idemstore/internal/idem"
)

// Resolve implements api.ServerInterface.
func (s *Server) Resolve(w http.ResponseWriter, r *http.Request, _ api.TaskID, _ api.Attempt) {
	s.serve(w, r, s.maxResponseBody(), readResolve)
}

func readResolve(s *Server, call idem.Call, body []byte) (ask, error) {
	var in api.ResolveRequest
	if err := strict(body, &in); err != nil {
		return ask{}, err
	}
	record := in.Action == api.ResolveRequestActionRecord
	switch {
	case !in.Action.Valid():
		return ask{}, &idem.FieldError{Field: "action", Reason: `must be "record" or "release"`}
	case record && in.Response == nil:
		return ask{}, &idem.FieldError{Field: "response", Reason: `is required with "action": "record"`}
	case !record && in.Response != nil:
		return ask{}, &idem.FieldError{Field: "response", Reason: `goes with "action": "record" alone`}
	}
	response, dropped, err := s.response(in.Response)
	if err != nil {
		return ask{}, err
	}
	cmd := &idem.Resolve{Call: call, Response: response, Fence: in.Fence, Reason: in.Reason, Force: yes(in.Force)}
	return ask{cmd: cmd, dropped: dropped}, cmd.Validate()
}

// movedOn says of a key that was to be resolved what it has come to since it was looked at.
func movedOn(p *api.Problem, out *idem.Outcome) {
	list := doubts(out.Doubts)
	p.Attempt, p.Fence, p.Doubts, p.ExpiresAt = &out.Entry.Attempt, &out.Entry.Fence, &list, stampTo(out.Entry.ExpiresAt)
	p.Detail = fmt.Sprintf("%s has moved on since it was looked at; its newest fence is %d. Nothing was settled: look again, then resolve it with that fence.",
		out.Entry.Key, out.Entry.Fence)
}

// ReleaseOwner implements api.ServerInterface: what an owner that is gone still holds is ended, key by key.
func (s *Server) ReleaseOwner(w http.ResponseWriter, r *http.Request, _ string) {
	req := requestOf(r.Context())
	evict, held, from, err := s.readOwnerRelease(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	var next *heldMark
	if from != nil {
		if held, next, err = s.held(r.Context(), evict.Owner, from); err != nil {
			s.fail(w, r, unread{err})
			return
		}
	}
	cmds := make([]idem.Command, len(held))
	for i, e := range held {
		cmd := *evict
		cmd.Key, cmd.Fence = e.Key, e.Fence
		cmds[i] = &cmd
	}
	results := s.do(r.Context(), cmds...)
	req.items = len(results)
	out := &api.OwnerReleased{Owner: evict.Owner, Results: make([]api.OwnerReleaseResult, len(results))}
	unknown := 0
	for i, result := range results {
		if result.Err != nil {
			req.err = result.Err // the last one speaks for all
			unknown++
		}
		out.Results[i] = evicted(held[i], &result)
		s.observeItem("evict", cmds[i], &result.Outcome, code(out.Results[i].Outcome))
	}
	if unknown > 0 && unknown == len(results) {
		s.fail(w, r, req.err)
		return
	}
	if next != nil {
		out.NextCursor = writeCursor(next)
	}
	s.send(w, r, answer{status: http.StatusOK, body: out})
}

// readOwnerRelease reads what is to be released: the keys that are named, or from where on they are to be looked for.
func (s *Server) readOwnerRelease(r *http.Request) (cmd *idem.Evict, named []*idem.Entry, from *heldMark, err error) {
	body, err := s.readBody(r, maxKeysBody)
	if err != nil {
		return nil, nil, nil, err
	}
	var in api.OwnerReleaseRequest
	if err := strict(body, &in); err != nil {
		return nil, nil, nil, err
	}
	switch {
	case in.Keys != nil && in.Cursor != nil:
		err = &idem.FieldError{Field: "cursor", Reason: "must not stand beside keys"}
	case in.Keys != nil:
		named, err = heldKeys(*in.Keys)
	case in.Cursor != nil:
		from = new(heldMark)
		err = readCursor(*in.Cursor, from)
	default:
		from = &heldMark{State: idem.Reserved}
	}
	if err != nil {
		return nil, nil, nil, err
	}
	cmd = &idem.Evict{
		Call: s.call(requestOf(r.Context()), idem.Key{}), Owner: pathPart(r, "owner"), Reason: in.Reason, Force: yes(in.Force),
	}
	err = cmd.Validate()
	return cmd, named, from, err
}

func heldKeys(keys []api.HeldKey) ([]*idem.Entry, error) {
	if len(keys) > idem.MaxBatch {
		return nil, &idem.FieldError{Field: "keys", Reason: fmt.Sprintf("must have at most %d items", idem.MaxBatch)}
	}
	entries := make([]*idem.Entry, len(keys))
	for i, k := range keys {
		at := fmt.Sprintf("keys[%d].", i)
		key, err := itemKey(k.TaskID, k.Attempt)
		var field *idem.FieldError
		if err == nil {
			err = idem.Range("fence", k.Fence, 1, math.MaxInt64)
		}
		if errors.As(err, &field) {
			return nil, &idem.FieldError{Field: at + field.Field, Reason: field.Reason}
		}
		entries[i] = &idem.Entry{Key: key, Grant: idem.Grant{Fence: k.Fence}}
	}
	return entries, nil
}

// findTime is how long is looked for what an owner holds. What was found until then is a page.
const findTime = 5 * time.Second

// held finds what an owner holds, its lease live or passed, and where to go on if there may be more.
func (s *Server) held(ctx context.Context, owner string, from *heldMark) ([]*idem.Entry, *heldMark, error) {
	var found []*idem.Entry
	for until := time.Now().Add(findTime); len(found) < idem.MaxBatch && time.Now().Before(until); {
		q := idem.EntryQuery{State: from.State, Owner: owner, Limit: idem.MaxBatch - len(found)}
		if from.From != nil {
			q.From = from.From.position()
		}
		page, err := s.reader.Entries(ctx, q)
		switch {
		case err != nil && len(found) > 0:
			return found, from, nil // the next call begins where this one could not go on
		case err != nil:
			return nil, nil, err
		}
		found = append(found, page.Entries...)
		switch {
		case page.Next != nil:
			from = &heldMark{State: from.State, From: markOfEntry(page.Next)}
		case from.State == idem.Reserved:
			from = &heldMark{State: idem.Dispatched}
		default:
			return found, nil, nil
		}
	}
	return found, from, nil
}

// evicted says what became of one key. One of which nothing is known any more has no holder.
func evicted(e *idem.Entry, result *idem.Result) api.OwnerReleaseResult {
	out := api.OwnerReleaseResult{TaskID: e.TaskID, Attempt: e.Attempt, Fence: e.Fence, Outcome: api.OwnerReleaseResultOutcomeUnavailable}
	if result.Err != nil {
		return out
	}
	out.Released, out.Outcome = result.Outcome.OK, api.OwnerReleaseResultOutcome(result.Outcome.Code)
	if now := result.Outcome.Entry; now != nil {
		out.Fence = now.Fence
	} else {
		out.Outcome = api.OwnerReleaseResultOutcomeNotHolder
	}
	return out
}

func yes(b *bool) bool { return b != nil && *b }
