package store

import (
	"context"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/idemstore/idemstore/internal/idem"
)

// noID stands before every id.
const noID = "00000000-0000-0000-0000-000000000000"

// Events implements idem.Reader.
func (r reader) Events(ctx context.Context, q idem.EventQuery) (idem.EventPage, error) {
	found, next, err := page(ctx, r, r.events(q), q.Limit, scanEvent, func(e idem.Event) place { return place{at: e.At, name: e.ID} })
	if err != nil {
		return idem.EventPage{}, err
	}
	p := idem.EventPage{Events: found}
	if next != nil {
		p.Next = &idem.EventPosition{At: next.at, ID: next.name}
	}
	return p, nil
}

// events is the listing that a query asks for.
func (r reader) events(q idem.EventQuery) *listing {
	l := &listing{
		table: "events", index: "events_at",
		columns: []string{"at", "id"},
		key:     func(p place) []any { return []any{p.at, rowID(p.name)} },
		place:   "at, CAST(id AS text) AS id_text, 0",
		back:    !q.Oldest,
		parted:  true,
		begin:   place{at: orMost(q.Before), name: noID},
		end:     place{at: orLeast(q.After), name: noID},
		read:    eventColumns,
		weight: "coalesce(" + r.dialect().size + "(detail), 0)" +
			" + coalesce(octet_length(response_head), 0) + coalesce(octet_length(response_body), 0)",
	}
	if q.Oldest {
		l.begin, l.end = l.end, l.begin
	}
	if q.From != nil && (q.Oldest != q.From.At.Before(l.begin.at)) {
		l.begin = place{at: storable(q.From.At), name: q.From.ID}
		if (&pgtype.UUID{}).Scan(q.From.ID) != nil {
			l.begin.name = noID
		}
	}
	replayed := q.Kind == idem.EventReplayed
	kind := when("kind = ?", plain(string(q.Kind)))
	switch {
	case q.TaskID != "":
		l.index = ""
		l.served = append(l.served, when("task_id = ?", plain(q.TaskID)))
		if q.Kind != "" {
			l.sifted = append(l.sifted, kind)
		}
	case replayed:
		l.sifted = append(l.sifted, kind)
	case q.Kind != "":
		l.index = "events_kind"
		l.served = append(l.served, kind, when("kind <> 'replayed'"))
	}
	if q.Handler != "" {
		l.sifted = append(l.sifted, when("handler = ?", plain(q.Handler)))
	}
	if q.Actor != "" {
		l.sifted = append(l.sifted, when("owner = ? OR token = ?", plain(q.Actor), plain(q.Actor)))
	}
	return l
}
