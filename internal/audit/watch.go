package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/idemstore/idemstore/api"
)

const (
	watchEvery = time.Second
	// watchBack is how far a look goes back behind the newest event of the look before. An event has the time at which it was
	// decided, and is seen when it is committed: a store that is slow shows it later than one that was decided after it, by
	// less than the ten seconds that a request may take. Three times that is safe; but most come within a moment, so only
	// one look in ten goes so far back.
	watchBack  = 30 * time.Second
	watchBrief = 2 * time.Second
	watchDeep  = 10
)

// Watch shows events as they happen, until the context ends. With After it begins there, else now.
//
// All times in it are the service's own: it begins behind the newest event that there is, and each look goes back a little
// behind the newest one that was there at the look before. What was shown in that overlap is remembered, so nothing is shown
// twice.
func (s *Session) Watch(ctx context.Context, q api.ListEventsParams) error {
	w := &watch{Session: s, query: q, shown: make(map[string]time.Time), show: s.eventTable()}
	if q.After != nil {
		w.floor, w.began = moment(*q.After), true
	}
	if s.Output == JSON {
		out := s.exact()
		w.show = func(items []json.RawMessage) error { return lines(out, items) }
	}
	say(s.Err, "Watching %s; Ctrl-C ends it.", s.Service.address)
	away := false
	for ctx.Err() == nil {
		err := w.look(ctx)
		switch {
		case ctx.Err() != nil: // it was told to stop
		case err == nil && away:
			away = false
			say(s.Err, "%s answers again; nothing is left out", s.Service.address)
		case err == nil:
		case !passing(err):
			return err
		case !away:
			away = true
			say(s.Err, "%v", err)
			say(s.Err, "Watching goes on when it answers.")
		}
		select {
		case <-ctx.Done():
		case <-time.After(cmp.Or(s.tick, watchEvery)):
		}
	}
	return nil
}

// passing says whether a failure may be over soon: the service is away, or cannot serve now.
func passing(err error) bool {
	var p *problem
	if errors.As(err, &p) {
		return p.Status >= http.StatusInternalServerError || p.Status == http.StatusTooManyRequests
	}
	return is(err, Failed)
}

type watch struct {
	*Session
	query api.ListEventsParams
	show  func(items []json.RawMessage) error
	floor time.Time // where it begins
	began bool      // what is there at the beginning was left behind
	looks int
	from  time.Time            // the newest event at the last look
	deep  time.Time            // and at the last one that went far back
	shown map[string]time.Time // by id, what was found since then, and so far back
}

// look shows what came since the last look, oldest first.
func (w *watch) look(ctx context.Context) error {
	newest, err := w.newest(ctx)
	if err != nil {
		return err
	}
	if !w.began && w.from.IsZero() {
		w.from, w.deep = newest, newest
	}
	deep := w.looks%watchDeep == 0
	start := w.from.Add(-watchBrief)
	if deep {
		start = w.deep.Add(-watchBack)
	}
	if start.Before(w.floor) {
		start = w.floor
	}
	found, err := w.since(ctx, start)
	if err != nil {
		return err
	}
	fresh := w.unseen(found)
	w.looks, w.began, w.from = w.looks+1, true, newest
	if deep {
		w.deep = newest
		w.forget(newest.Add(-watchBack))
	}
	if len(fresh) == 0 {
		return nil
	}
	return w.show(fresh)
}

// unseen is what of the events found was not there before.
func (w *watch) unseen(found []sighting) (fresh []json.RawMessage) {
	for _, f := range found {
		if _, old := w.shown[f.ID]; old {
			continue
		}
		w.shown[f.ID] = f.at
		if w.began || f.at.After(w.from) {
			fresh = append(fresh, f.raw)
		}
	}
	return fresh
}

// forget drops what no look will find again.
func (w *watch) forget(before time.Time) {
	for id, at := range w.shown {
		if at.Before(before) {
			delete(w.shown, id)
		}
	}
}

// newest is the time of the newest event of all. It moves on what is looked through, also when nothing matches.
func (w *watch) newest(ctx context.Context) (time.Time, error) {
	ask := func(ctx context.Context, limit *int, cursor *string) (*http.Response, error) {
		return w.Service.api.ListEvents(ctx, &api.ListEventsParams{Limit: limit, Cursor: cursor})
	}
	at := w.from
	_, _, err := w.pages(ctx, ask, Window{Limit: 1}, w.progress(false), func(items []json.RawMessage) error {
		var e api.Event
		if err := w.Service.decode(items[0], &e); err != nil {
			return err
		}
		if seen := moment(e.At); seen.After(at) {
			at = seen
		}
		return nil
	})
	return at, err
}

// sighting is an event that was found.
type sighting struct {
	ID  string `json:"id"`
	At  string `json:"at"`
	at  time.Time
	raw json.RawMessage
}

// since is every event from a moment on that matches, oldest first.
func (w *watch) since(ctx context.Context, start time.Time) ([]sighting, error) {
	q := w.query
	if start.After(time.Time{}) {
		after := start.UTC().Format(time.RFC3339Nano)
		q.After = &after
	}
	ask := func(ctx context.Context, limit *int, cursor *string) (*http.Response, error) {
		q.Limit, q.Cursor = limit, cursor
		return w.Service.api.ListEvents(ctx, &q)
	}
	var found []sighting
	_, _, err := w.pages(ctx, ask, Window{All: true}, w.progress(false), func(items []json.RawMessage) error {
		for _, item := range items {
			f := sighting{raw: item}
			if err := w.Service.decode(item, &f); err != nil {
				return err
			}
			f.at = moment(f.At)
			found = append(found, f)
		}
		return nil
	})
	slices.Reverse(found)
	return found, err
}
