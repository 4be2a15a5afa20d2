package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/idemstore/idemstore/api"
)

// ReleaseOwner ends what an owner that is gone still holds, key by key, to the last page.
func (s *Session) ReleaseOwner(ctx context.Context, owner, reason string, force, yes bool) error {
	if !yes {
		if err := s.foretell(ctx, owner, reason, force); err != nil {
			return err
		}
		if err := s.confirm(); err != nil {
			return err
		}
	}
	show, p := s.showReleases(), s.progress(true)
	defer p.clear()
	request := api.OwnerReleaseRequest{Reason: reason, Force: &force}
	var t tally
	for {
		items, next, err := s.releasePage(ctx, owner, request)
		if err != nil {
			return t.brokenOff(err)
		}
		p.clear()
		if err := show(items, &t); err != nil {
			return err
		}
		if next == nil {
			return t.end(owner)
		}
		request.Cursor = next
		p.tell("%d keys looked at, %d released so far", t.seen, t.released)
	}
}

func (s *Session) releasePage(ctx context.Context, owner string, request api.OwnerReleaseRequest) (items []json.RawMessage, next *string, err error) {
	body, err := s.Service.answer(s.Service.api.ReleaseOwner(ctx, owner, request))
	if err != nil {
		return nil, nil, err
	}
	var page struct {
		Results    []json.RawMessage `json:"results"`
		NextCursor *string           `json:"next_cursor"`
	}
	err = s.Service.read(body, &page)
	return page.Results, page.NextCursor, err
}

// foretell says what the owner holds and what will be done to it.
func (s *Session) foretell(ctx context.Context, owner, reason string, force bool) error {
	held := 0
	for _, state := range []api.AttemptState{api.AttemptStateReserved, api.AttemptStateDispatched} {
		q := api.ListEntriesParams{Owner: &owner, State: &state}
		ask := func(ctx context.Context, limit *int, cursor *string) (*http.Response, error) {
			q.Limit, q.Cursor = limit, cursor
			return s.Service.api.ListEntries(ctx, &q)
		}
		n, _, err := s.pages(ctx, ask, Window{All: true}, s.progress(true), func([]json.RawMessage) error { return nil })
		if err != nil {
			return err
		}
		say(s.Err, "%s has %s %s", owner, count(n, "key"), state)
		held += n
	}
	if held == 0 {
		return fail(Nothing, "%s holds nothing", owner)
	}
	if force {
		say(s.Err, "All of them will be released, also where it may have acted, which says that it did not: %q", reason)
	} else {
		say(s.Err, "Those of them that it cannot have acted on (promised to dispatch, and never dispatched) will be released: %q", reason)
	}
	return nil
}

// tally counts what came of the keys.
type tally struct{ seen, released, kept, unknown int }

func (t *tally) count(r *api.OwnerReleaseResult) {
	t.seen++
	switch {
	case r.Outcome == api.OwnerReleaseResultOutcomeUnavailable:
		t.unknown++
	case r.Released:
		t.released++
	case r.Outcome == api.OwnerReleaseResultOutcomeInDoubt || r.Outcome == api.OwnerReleaseResultOutcomeInProgress:
		t.kept++
	}
}

func (t *tally) brokenOff(err error) error {
	if passing(err) {
		err = unknown(err)
	}
	if t.seen == 0 {
		return err
	}
	return fail(Failed, "%v. Before that, grants were ended on %s", err, count(t.released, "key"))
}

// end is what the whole came to.
func (t *tally) end(owner string) error {
	switch {
	case t.seen == 0:
		return fail(Nothing, "%s holds nothing", owner)
	case t.unknown > 0:
		return fail(Failed, "of %s it is not known whether they were released; say it again, that is safe", count(t.unknown, "key"))
	case t.kept > 0:
		return fail(Refused, "%s may have acted on %s and keeps that. Look into it and resolve, or say --force if you know that it did not", owner, count(t.kept, "key"))
	}
	return nil
}

func (s *Session) showReleases() func(items []json.RawMessage, t *tally) error {
	rows := newTable(s.Out, "TASK", ">ATTEMPT", ">FENCE", "RELEASED", "NOW")
	out := s.exact()
	return func(items []json.RawMessage, t *tally) error {
		var page [][]string
		for _, item := range items {
			var r api.OwnerReleaseResult
			if err := s.Service.decode(item, &r); err != nil {
				return err
			}
			t.count(&r)
			page = append(page, []string{r.TaskID, fmt.Sprint(r.Attempt), fmt.Sprint(r.Fence), yes(r.Released), string(r.Outcome)})
		}
		if s.Output == JSON {
			return lines(out, items)
		}
		if len(page) == 0 {
			return nil
		}
		return rows.rows(page...)
	}
}
