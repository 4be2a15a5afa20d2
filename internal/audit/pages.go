package audit

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
)

// Window is how much of a list is wanted.
type Window struct {
	Limit int
	All   bool
}

// maxPage is the most that the service puts on one page.
const maxPage = 1000

// page is a part of a list, each item as the service wrote it.
type page struct {
	Entries    []json.RawMessage `json:"entries"`
	Events     []json.RawMessage `json:"events"`
	NextCursor *string           `json:"next_cursor"`
}

// fetch asks for one page.
type fetch func(ctx context.Context, limit *int, cursor *string) (*http.Response, error)

// pages walks through a list and gives each page's items to each, until what is wanted was given. A page may be empty and
// still not be the last. It returns how many items there were, and whether more match than were wanted.
func (s *Session) pages(ctx context.Context, ask fetch, want Window, p *progress, each func(items []json.RawMessage) error) (found int, more bool, err error) {
	defer p.clear()
	var cursor *string
	for n := 1; ; n++ {
		limit := maxPage
		if !want.All {
			limit = min(limit, want.Limit-found)
		}
		body, err := s.Service.answer(ask(ctx, &limit, cursor))
		if err != nil {
			return found, false, err
		}
		var page page
		if err := s.Service.read(body, &page); err != nil {
			return found, false, err
		}
		if items := append(page.Entries, page.Events...); len(items) > 0 { //nolint:gocritic // a page has one or the other
			found += len(items)
			p.clear()
			if err := each(items); err != nil {
				return found, false, err
			}
		}
		if page.NextCursor == nil || !want.All && found >= want.Limit {
			return found, page.NextCursor != nil, nil
		}
		if cursor != nil && *page.NextCursor == *cursor {
			return found, false, fail(Failed, "%s gave the same cursor twice; the list cannot be read to its end", s.Service.address)
		}
		cursor = page.NextCursor
		p.tell("looking: %d pages, %d found so far", n, found)
	}
}

// listed ends the listing of something: nothing found is a failure of its own, and what was left out is said.
func (s *Session) listed(found int, more bool, want Window) error {
	if found == 0 {
		return fail(Nothing, "nothing matches")
	}
	if more {
		say(s.Err, "These are the newest %d; more match. --limit N shows more, --all shows all.", want.Limit)
	}
	return nil
}

// lines writes items as NDJSON, each as the service wrote it.
func lines(out io.Writer, items []json.RawMessage) error {
	for _, item := range items {
		if err := line(out, item); err != nil {
			return err
		}
	}
	return nil
}
