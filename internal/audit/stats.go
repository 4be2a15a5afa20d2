package audit

import (
	"context"
	"fmt"
	"slices"

	"github.com/idemstore/idemstore/api"
)

// Stats counts what happened in a period, and what is open now.
func (s *Session) Stats(ctx context.Context, q api.GetStatsParams) error {
	body, err := s.Service.answer(s.Service.api.GetStats(ctx, &q))
	if err != nil {
		return err
	}
	if s.Output == JSON {
		return s.document(body)
	}
	var st api.Stats
	if err := s.Service.read(body, &st); err != nil {
		return err
	}
	say(s.Out, "From %s to %s", toSecond(st.After), toSecond(st.Before))
	say(s.Out, "Now: %s in doubt, %d open", count(int(st.InDoubt), "key"), st.Open)
	say(s.Out, "In the period: %s", count(int(st.Duplicates), "duplicate record"))
	if e := st.OldestInDoubt; e != nil {
		d := longest(e)
		say(s.Out, "Longest in doubt: %s attempt %d, fence %d, by %s, lease until %s",
			e.TaskID, e.Attempt, d.Fence, d.Owner, withAge(toSecond(d.LeaseUntil), s.now()))
	}
	handlers := []named{{"all", st.Totals}}
	for _, h := range st.Handlers {
		handlers = append(handlers, named{some(h.Handler), h.Counts})
	}
	var owners []named
	for _, o := range st.Owners {
		owners = append(owners, named{some(o.Owner), o.Counts})
	}
	if err := s.counts("HANDLER", handlers, st.MoreHandlers); err != nil {
		return err
	}
	return s.counts("OWNER", owners, st.MoreOwners)
}

// longest is the doubt of an entry that has stood longest.
func longest(e *api.Entry) api.Doubt {
	if len(e.Doubts) == 0 { // an older service may name none
		return api.Doubt{Owner: e.Owner, Fence: e.Fence, LeaseUntil: e.LeaseUntil}
	}
	return slices.MinFunc(e.Doubts, func(a, b api.Doubt) int { return moment(a.LeaseUntil).Compare(moment(b.LeaseUntil)) })
}

// named are the counts of one handler or owner.
type named struct {
	name string
	api.Counts
}

// counts writes a table of entries by what they are now, and one of events by kind.
func (s *Session) counts(what string, list []named, more int64) error {
	if len(list) == 0 {
		return nil
	}
	entries := newTable(s.Out, what, ">RESERVED", ">DISPATCHED", ">RECORDED", ">RELEASED", ">IN DOUBT")
	events := newTable(s.Out, what, ">REPLAYED", ">TAKEN OVER", ">FOUND IN DOUBT", ">MISMATCH", ">RELEASED", ">LATE", ">DUPLICATE", ">REFUSED", ">RESOLVED", ">PURGED")
	var states, kinds [][]string
	for _, n := range list {
		a, b := n.Entries, n.Events
		states = append(states, cells(n.name, a.Reserved, a.Dispatched, a.Recorded, a.Released, a.InDoubt))
		kinds = append(kinds, cells(n.name, b.Replayed, b.TakenOver, b.FoundInDoubt, b.RefusedMismatch, b.Released, b.RecordedLate,
			b.DuplicateRecord, b.RefusedRecord, b.Resolved, b.Purged))
	}
	fmt.Fprintln(s.Out, "\nKeys reserved in the period, by what they are now")
	if err := entries.rows(states...); err != nil {
		return err
	}
	fmt.Fprintln(s.Out, "\nEvents of the period")
	if err := events.rows(kinds...); err != nil {
		return err
	}
	if more > 0 {
		say(s.Out, "(%d more of them are left out)", more)
	}
	return nil
}

func cells(name string, numbers ...int64) []string {
	row := []string{name}
	for _, n := range numbers {
		row = append(row, fmt.Sprint(n))
	}
	return row
}
