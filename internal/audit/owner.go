package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/idemstore/idemstore/api"
)

// ReleaseOwner ends what an owner that is gone still holds, key by key: what was shown and confirmed, each only as it was
// shown, or with yes all that is found, to the last page.
func (s *Session) ReleaseOwner(ctx context.Context, owner, reason string, force, yes bool) error {
	r := &releasing{Session: s, owner: owner, show: s.showReleases(), progress: s.progress(true), shown: make(map[heldKey]bool)}
	defer r.progress.clear()
	request := api.OwnerReleaseRequest{Reason: reason, Force: &force}
	if yes {
		for {
			next, err := r.page(ctx, request)
			if err != nil {
				return err
			}
			if request.Cursor = next; next == nil {
				return r.end(owner)
			}
		}
	}
	held, err := s.foretell(ctx, owner, reason, force)
	if err != nil {
		return err
	}
	if err := s.confirm(); err != nil {
		return err
	}
	for some := range slices.Chunk(held, maxPage) {
		keys := make([]api.HeldKey, len(some))
		for i, k := range some {
			r.shown[k] = true
			keys[i] = api.HeldKey{TaskID: k.task, Attempt: &k.attempt, Fence: k.fence}
		}
		request.Keys = &keys
		if _, err := r.page(ctx, request); err != nil {
			return err
		}
	}
	return r.end(owner)
}

// heldKey is a key, and the fence of the grant on it that was shown.
type heldKey struct {
	task    string
	attempt int32
	fence   int64
}

// releasing is what came of the keys so far.
type releasing struct {
	*Session
	owner    string
	show     func(items []json.RawMessage) error
	progress *progress
	shown    map[heldKey]bool // that were confirmed
	tally
}

// page has some keys released, shows what came of them, and says where it goes on.
func (r *releasing) page(ctx context.Context, request api.OwnerReleaseRequest) (next *string, err error) {
	items, next, err := r.releasePage(ctx, r.owner, request)
	if err != nil {
		return nil, r.brokenOff(err)
	}
	r.progress.clear()
	for _, item := range items {
		var result api.OwnerReleaseResult
		if err := r.Service.decode(item, &result); err != nil {
			return nil, err
		}
		r.count(&result, len(r.shown) == 0 || r.shown[heldKey{result.TaskID, result.Attempt, result.Fence}])
	}
	r.progress.tell("%d keys looked at, %d released so far", r.seen, r.released)
	return next, r.show(items)
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

// foretell shows what the owner holds, and says what will be done to it.
func (s *Session) foretell(ctx context.Context, owner, reason string, force bool) (held []heldKey, err error) {
	t := newTable(s.Err, "TASK", ">ATTEMPT", "STATE", ">FENCE", "LEASE UNTIL", "WILL BE")
	t.widths[2] = len("dispatched, in doubt") // the longest, so that the columns stay where they are
	for _, state := range []api.AttemptState{api.AttemptStateReserved, api.AttemptStateDispatched} {
		q := api.ListEntriesParams{Owner: &owner, State: &state}
		ask := func(ctx context.Context, limit *int, cursor *string) (*http.Response, error) {
			q.Limit, q.Cursor = limit, cursor
			return s.Service.api.ListEntries(ctx, &q)
		}
		_, _, err := s.pages(ctx, ask, Window{All: true}, s.progress(false), func(items []json.RawMessage) error {
			var rows [][]string
			for _, item := range items {
				var e api.Entry
				if err := s.Service.decode(item, &e); err != nil {
					return err
				}
				held = append(held, heldKey{e.TaskID, e.Attempt, e.Fence})
				rows = append(rows, []string{e.TaskID, fmt.Sprint(e.Attempt), standing(&e), fmt.Sprint(e.Fence), toSecond(e.LeaseUntil), fate(&e, force)})
			}
			return t.rows(rows...)
		})
		if err != nil {
			return nil, err
		}
	}
	if len(held) == 0 {
		return nil, fail(Nothing, "%s holds nothing", owner)
	}
	say(s.Err, "%s holds %s. Only what stands above will be released, and only as it is there: %q", owner, count(len(held), "key"), reason)
	if force {
		say(s.Err, "That is also where it may have acted, which says that it did not.")
	}
	return held, nil
}

// fate is what will be done to a grant.
func fate(e *api.Entry, force bool) string {
	switch {
	case e.Dispatch == api.EntryDispatchExplicit && e.State == api.AttemptStateReserved:
		return "released: it cannot have acted"
	case force:
		return "released, though it may have acted"
	}
	return "left: it may have acted"
}

// tally counts what came of the keys.
type tally struct{ seen, released, kept, moved, unknown int }

// count takes one key's end. asShown says that it still is at the fence at which it was shown.
func (t *tally) count(r *api.OwnerReleaseResult, asShown bool) {
	t.seen++
	switch {
	case r.Outcome == api.OwnerReleaseResultOutcomeUnavailable:
		t.unknown++
	case r.Released:
		t.released++
	case !asShown:
		t.moved++
	case r.Outcome == api.OwnerReleaseResultOutcomeInDoubt || r.Outcome == api.OwnerReleaseResultOutcomeInProgress:
		t.kept++
	}
}

// brokenOff says what was done before a call failed. What became of that call the service says itself, if it answered.
func (t *tally) brokenOff(err error) error {
	var p *problem
	switch {
	case errors.As(err, &p) && passing(err):
		err = fail(Failed, "%v. To say all of it again is safe", err)
	case passing(err):
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
	case t.moved > 0:
		return fail(Refused, "%s moved on since they were shown, and stand as they are now. Look again: say the same once more", count(t.moved, "key"))
	case t.kept > 0:
		return fail(Refused, "%s may have acted on %s and keeps that. Look into it and resolve, or say --force if you know that it did not", owner, count(t.kept, "key"))
	}
	return nil
}

func (s *Session) showReleases() func(items []json.RawMessage) error {
	rows := newTable(s.Out, "TASK", ">ATTEMPT", ">FENCE", "RELEASED", "NOW")
	out := s.exact()
	return func(items []json.RawMessage) error {
		var page [][]string
		for _, item := range items {
			var r api.OwnerReleaseResult
			if err := s.Service.decode(item, &r); err != nil {
				return err
			}
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
