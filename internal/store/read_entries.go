package store

import (
	"context"

	"github.com/idemstore/idemstore/internal/idem"
)

// Entries implements idem.Reader.
func (r reader) Entries(ctx context.Context, q idem.EntryQuery) (idem.EntryPage, error) {
	now, err := r.ask(ctx, r.statement(), nil)
	if err != nil {
		return idem.EntryPage{}, err
	}
	l := r.entries(q)
	l.sifted = append(l.sifted, shown(now)) // what is not purged yet may be much
	if q.InDoubt != nil {
		doubt := inDoubt(now)
		if !*q.InDoubt {
			doubt.sql = "NOT (" + doubt.sql + ")"
		}
		l.sifted = append(l.sifted, doubt)
	}
	found, next, err := page(ctx, r, l, q.Limit, scanEntry, func(e *idem.Entry) place {
		return place{e.ReservedAt, e.TaskID, e.Attempt}
	})
	if err != nil {
		return idem.EntryPage{}, err
	}
	p := idem.EntryPage{Entries: found, Now: now}
	if next != nil {
		p.Next = &idem.EntryPosition{ReservedAt: next.at, Key: idem.Key{TaskID: next.name, Attempt: next.nth}}
	}
	return p, nil
}

// entries is the listing that a query asks for, but for what depends on the time.
func (r reader) entries(q idem.EntryQuery) *listing {
	l := &listing{
		table: "entries", index: "entries_reserved",
		columns: []string{"reserved_at", "task_id", "attempt"},
		key:     func(p place) []any { return []any{p.at, p.name, p.nth} },
		place:   "reserved_at, task_id, attempt",
		back:    true,
		begin:   place{at: orMost(q.ReservedBefore), nth: -1},
		end:     place{at: orLeast(q.ReservedAfter), nth: -1},
		read:    entryColumns(false),
		weight:  "coalesce(" + r.dialect().size + "(more), 0)",
	}
	if q.From != nil && q.From.ReservedAt.Before(l.begin.at) {
		l.begin = place{storable(q.From.ReservedAt), plain(q.From.TaskID), q.From.Attempt}
	}
	switch open := q.State == idem.Reserved || q.State == idem.Dispatched; {
	case q.TaskID != "":
		l.ofTask(q)
		l.weight += " + coalesce(octet_length(response_head), 0) + coalesce(octet_length(response_body), 0)"
	case open || q.InDoubt != nil && *q.InDoubt:
		l.index = "entries_open"
		l.served = append(l.served, when(sqlOpen))
	}
	switch q.State {
	case "":
	case idem.Reserved, idem.Dispatched, idem.Recorded, idem.Released:
		l.sifted = append(l.sifted, when("state = '"+string(q.State)+"'"))
	default:
		l.nothing = true
	}
	if q.Handler != "" {
		l.sifted = append(l.sifted, when("handler = ?", plain(q.Handler)))
	}
	if q.Owner != "" {
		l.sifted = append(l.sifted, when("owner = ?", plain(q.Owner)))
	}
	if !q.RecordedAfter.IsZero() {
		l.sifted = append(l.sifted, when("recorded_at >= ?", storable(q.RecordedAfter)))
	}
	if !q.RecordedBefore.IsZero() {
		l.sifted = append(l.sifted, when("recorded_at < ?", storable(q.RecordedBefore)))
	}
	return l
}

// ofTask makes it a listing of the attempts of one task.
func (l *listing) ofTask(q idem.EntryQuery) {
	l.index, l.back = "", false
	l.columns = []string{"attempt"}
	l.place = "coalesce(reserved_at, expires_at), task_id, attempt"
	l.key = func(p place) []any { return []any{p.nth} }
	l.begin, l.end = noRow, place{at: dawn, nth: lastAttempt}
	if q.From != nil {
		l.begin.nth = q.From.Attempt
	}
	l.served = append(l.served, when("task_id = ?", plain(q.TaskID)))
	l.read = entryColumns(true)
	if !q.ReservedAfter.IsZero() {
		l.sifted = append(l.sifted, when("reserved_at >= ?", storable(q.ReservedAfter)))
	}
	if !q.ReservedBefore.IsZero() {
		l.sifted = append(l.sifted, when("reserved_at < ?", storable(q.ReservedBefore)))
	}
}
