package console

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
)

// heldStates are those of a grant that has not ended, in the order in which they are shown.
var heldStates = []idem.State{idem.Reserved, idem.Dispatched}

// heldLooks bounds how often the store is asked for one page of what is held.
const heldLooks = 10

// held is a page of the grants that have not ended, from a cursor on: of what q asks for, in one state or in both, those that
// are wanted. Where it goes on it says; a page may be empty and still not be the last.
func (c *console) held(ctx context.Context, q idem.EntryQuery, at string, wanted func(e *idem.Entry, now time.Time) bool) (list []entryView, next string, err error) {
	limit, last := q.Limit, heldStates[len(heldStates)-1]
	if q.State != "" {
		last = q.State
	} else {
		q.State = heldStates[0]
	}
	if at != "" {
		state, from, err := readHeldCursor(at)
		if err != nil || state != q.State && state != last {
			return nil, "", errCursor
		}
		q.State, q.From = state, from
	}
	for range heldLooks {
		q.Limit = limit - len(list)
		if err := q.Validate(); err != nil {
			return nil, "", err
		}
		page, err := c.Reader.Entries(ctx, q)
		if err != nil {
			return nil, "", err
		}
		for _, e := range page.Entries {
			if wanted == nil || wanted(e, page.Now) {
				list = append(list, viewEntry(e, page.Now))
			}
		}
		switch q.From = page.Next; {
		case q.From != nil:
		case q.State != last:
			q.State = last
		default:
			return list, "", nil
		}
		if len(list) >= limit {
			break
		}
	}
	return list, heldCursor(q.State, q.From), nil
}

// A cursor of what is held is a state, and a place in the list of it.

func heldCursor(state idem.State, from *idem.EntryPosition) string {
	return string(state) + "." + entryCursor(from)
}

func readHeldCursor(s string) (idem.State, *idem.EntryPosition, error) {
	state, place, _ := strings.Cut(s, ".")
	if !slices.Contains(heldStates, idem.State(state)) {
		return "", nil, errCursor
	}
	from, err := readEntryCursor(place)
	return idem.State(state), from, err
}
