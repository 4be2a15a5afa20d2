package server_test

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/internal/store"
)

// witness is a store that keeps the events that pass.
type witness struct {
	idem.Store
	mu     sync.Mutex
	events []idem.Event
}

func (w *witness) Swap(ctx context.Context, changes []idem.Change) ([]bool, time.Time, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range changes {
		w.events = append(w.events, c.Events...)
	}
	return w.Store.Swap(ctx, changes)
}

func (w *witness) take() []idem.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	events := w.events
	w.events = nil
	return events
}

// Every event of the trail, and every line of the log, has the id of the request that it came from: of a call, of a batch's
// items, and after a wait.
func TestRequestIDsReachTheTrailAndTheLog(t *testing.T) {
	t.Parallel()
	var shift atomic.Int64
	backend, err := store.Open(t.Context(), inMemory, store.Options{Shift: func() time.Duration { return time.Duration(shift.Load()) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(backend.Close)
	w := &witness{Store: backend}
	batcher := store.NewBatcher(w, idem.DefaultPolicy, 2)
	t.Cleanup(batcher.Close)
	s := start(t, setup{keeper: batcher})
	k, other := s.key(t), s.key(t)
	check := func(a answer, kinds ...idem.EventKind) answer {
		t.Helper()
		id := a.header.Get("X-Request-Id")
		var got []idem.EventKind
		for _, e := range w.take() {
			got = append(got, e.Kind)
			if e.RequestID != id || e.Token != "anonymous" {
				t.Errorf("an event of request %s: %+v", id, e)
			}
		}
		if !slices.Equal(got, kinds) {
			t.Errorf("request %s wrote %v, want %v", id, got, kinds)
		}
		if len(s.lines(t, a)) == 0 {
			t.Errorf("no line in the log has %s", id)
		}
		return a
	}
	first := check(k.reserve(hashed("a"), obj{"lease_seconds": 30})).id()
	check(k.reserve(hashed("b")).want(422, "request_mismatch"), idem.EventRefusedMismatch)
	check(k.record(id, obj{"body": "x"}).want(409, "not_holder"), idem.EventRefusedRecord)
	shift.Add(int64(time.Minute))
	check(other.replay("").want(404, "not_found")) // so that the service hears of the time
	check(k.reserve().want(409, "in_doubt"), idem.EventFoundInDoubt)
	second := check(k.reserve(obj{"takeovers": []obj{takeover(0, 1)}, "lease_seconds": 30}), idem.EventTakenOver).id()
	waited := make(chan answer, 1)
	go func() { waited <- k.reserve(patiently) }()
	k.waited()
	late := k.record(first, obj{"body": "x"}).want(201, "recorded")
	a := (<-waited).want(200, "recorded")
	events := w.take()
	if len(events) != 2 || events[0].Kind != idem.EventRecordedLate || events[0].RequestID != late.header.Get("X-Request-Id") ||
		events[1].Kind != idem.EventReplayed || events[1].RequestID != a.header.Get("X-Request-Id") {
		t.Errorf("a late record and the reserve that waited for it wrote %+v", events)
	}
	check(k.record(second, obj{"body": "y"}).want(409, "already_recorded"), idem.EventDuplicateRecord)
	check(k.replay(""), idem.EventReplayed)
	released := check(other.reserve()).id()
	check(other.release(released, obj{"reason": "refused"}).want(200, "released"), idem.EventReleased)
	batch := call{method: http.MethodPost, path: "/v1/batch/record", body: obj{"items": []obj{
		item(k, obj{"owner": "v", "response": obj{"body": "z"}}), item(k, obj{"owner": "u", "response": obj{"body": "w"}}),
	}}}
	a = check(s.send(t, batch), idem.EventDuplicateRecord, idem.EventDuplicateRecord)
	if lines := s.lines(t, a); len(lines) != 3 {
		t.Errorf("a line for each item and one for the call, got %+v", lines)
	}
}
