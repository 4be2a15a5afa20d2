package server

import (
	"bytes"
	stdjson "encoding/json"
	"fmt"
	"time"

	"github.com/idemstore/idemstore/api"
	"github.com/idemstore/idemstore/internal/idem"
)

// entryOf shows what is kept of a key at a moment, with its response where that was loaded.
func entryOf(e *idem.Entry, now time.Time) *api.Entry {
	out := &api.Entry{
		TaskID: e.TaskID, Attempt: e.Attempt, State: api.AttemptState(e.State), InDoubt: e.InDoubt(now), Owner: e.Owner, Fence: e.Fence,
		Handler: given(e.Handler), RequestHash: given(e.RequestHash), Dispatch: api.EntryDispatchImplicit,
		ReservedAt: stamp(e.ReservedAt), LeaseUntil: stamp(e.LeaseUntil), DispatchedAt: stampIf(e.DispatchedAt), Doubts: doubts(e.Doubts(now)),
		RecordedAt: stampIf(e.RecordedAt), RecordedBy: given(e.RecordedBy), Late: e.Late, ExpiresAt: stamp(e.ExpiresAt),
	}
	if e.Explicit {
		out.Dispatch = api.EntryDispatchExplicit
	}
	if e.Response != nil && !e.Response.Partial {
		out.Response = response(e.Response, false)
	}
	return out
}

// eventOf shows a line of the trail, with its evidence.
func eventOf(e *idem.Event) *api.Event {
	out := &api.Event{
		ID: e.ID, At: stamp(e.At), Kind: api.EventKind(e.Kind), TaskID: e.TaskID, Attempt: e.Attempt, Fence: e.Fence,
		Handler: given(e.Handler), Actor: api.Actor{Owner: e.Owner, Token: e.Token}, RequestID: e.RequestID, Detail: detailOf(e),
	}
	if e.Response != nil {
		out.Response = response(e.Response, false)
	}
	return out
}

// detailOf writes a detail as JSON. The standard library's keeps numbers as they were read, however large.
func detailOf(e *idem.Event) []byte {
	if e.Detail == nil {
		return []byte("{}")
	}
	var out bytes.Buffer
	enc := stdjson.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e.Detail); err != nil {
		panic(fmt.Sprintf("encoding the detail of event %s: %v", e.ID, err))
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

// statsOf shows the counts of a period.
func statsOf(s *idem.Stats, after, before time.Time) *api.Stats {
	out := &api.Stats{
		After: stamp(after), Before: stamp(before), Totals: countsOf(&s.Totals),
		Handlers: make([]api.HandlerCounts, len(s.Handlers)), Owners: make([]api.OwnerCounts, len(s.Owners)),
		MoreHandlers: s.MoreHandlers, MoreOwners: s.MoreOwners,
		Open: s.Open, InDoubt: s.InDoubt, Duplicates: s.Totals.Events[idem.EventDuplicateRecord],
	}
	for i := range s.Handlers {
		out.Handlers[i] = api.HandlerCounts{Handler: s.Handlers[i].Name, Counts: countsOf(&s.Handlers[i].Counts)}
	}
	for i := range s.Owners {
		out.Owners[i] = api.OwnerCounts{Owner: s.Owners[i].Name, Counts: countsOf(&s.Owners[i].Counts)}
	}
	if s.Oldest != nil {
		out.OldestInDoubt = entryOf(s.Oldest, s.Now)
	}
	return out
}

func countsOf(c *idem.Counts) api.Counts {
	return api.Counts{
		Entries: api.EntryCounts{
			Reserved: c.States[idem.Reserved], Dispatched: c.States[idem.Dispatched],
			Recorded: c.States[idem.Recorded], Released: c.States[idem.Released], InDoubt: c.InDoubt,
		},
		Events: api.EventCounts{
			Replayed: c.Events[idem.EventReplayed], TakenOver: c.Events[idem.EventTakenOver],
			FoundInDoubt: c.Events[idem.EventFoundInDoubt], RefusedMismatch: c.Events[idem.EventRefusedMismatch],
			Released: c.Events[idem.EventReleased], RecordedLate: c.Events[idem.EventRecordedLate],
			DuplicateRecord: c.Events[idem.EventDuplicateRecord], RefusedRecord: c.Events[idem.EventRefusedRecord],
			Resolved: c.Events[idem.EventResolved], Purged: c.Events[idem.EventPurged],
		},
	}
}

// given is a member that is left out where there is nothing to say.
func given(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func stampIf(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	return stampTo(t)
}
