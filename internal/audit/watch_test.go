package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/idemstore/idemstore/api"
)

const patience = 20 * time.Second

func eventAt(id string, at time.Time) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"id":%q,"at":%q,"kind":"replayed","task_id":"t","attempt":0,"fence":1,"actor":{"owner":"w","token":"x"},"request_id":"r","detail":{}}`,
		id, at.Format("2006-01-02T15:04:05.000000Z")))
}

// set gives the fake its events, newest first.
func (f *fake) set(events ...json.RawMessage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = events
}

func watching(t *testing.T, s *shown, q api.ListEventsParams) (stop func()) {
	t.Helper()
	s.Output, s.tick = JSON, 5*time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Watch(ctx, q) }()
	return func() {
		t.Helper()
		cancel()
		select {
		case err := <-ended:
			wantOK(t, err)
		case <-time.After(patience):
			t.Fatal("it does not end")
		}
	}
}

func (s *shown) ids(t *testing.T) string {
	t.Helper()
	var ids []string
	for l := range strings.Lines(s.out.String()) {
		var e struct{ ID string }
		wantOK(t, json.Unmarshal([]byte(l), &e))
		ids = append(ids, e.ID)
	}
	return strings.Join(ids, " ")
}

// until waits until something is so.
func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !so(); <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("in %s it did not come to this: %s", patience, what)
		}
	}
}

// looks waits for so many more looks.
func (f *fake) looks(t *testing.T, n int) {
	t.Helper()
	before := len(f.questions("/v1/events"))
	until(t, "it looks again", func() bool { return len(f.questions("/v1/events")) >= before+2*n })
}

// Every event is shown once, also one that is committed after a later one; none that was there before.
func TestWatch(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	old, e2, late, e3 := eventAt("old", now), eventAt("2", now.Add(5*time.Second)), eventAt("late", now.Add(time.Second)), eventAt("3", now.Add(50*time.Second))
	f.set(old)
	s := of(t, f)
	stop := watching(t, s, api.ListEventsParams{})
	f.looks(t, 1)
	f.set(e2, old)
	until(t, "2 is shown", func() bool { return s.ids(t) == "2" })
	f.set(e2, late, old)
	until(t, "late is shown", func() bool { return s.ids(t) == "2 late" })
	f.set(e3, e2, late, old)
	until(t, "3 is shown", func() bool { return s.ids(t) == "2 late 3" })
	f.looks(t, 2*watchDeep)
	before := len(f.questions("/v1/events"))
	f.looks(t, watchDeep)
	stop()
	if ids := s.ids(t); ids != "2 late 3" {
		t.Errorf("shown: %s", ids)
	}
	asked := strings.Join(f.questions("/v1/events")[before:], "\n")
	far, near := strings.Count(asked, "after=2026-11-29T21%3A00%3A20Z"), strings.Count(asked, "after=2026-11-29T21%3A00%3A48Z")
	if far < 1 || near < watchDeep-2 || far > 2 {
		t.Errorf("of ten looks %d go far back and %d a little:\n%s", far, near, asked)
	}
}

// While the service is away nothing is lost; it is said once that it is, and that it is back.
func TestWatchGoesOn(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.set(eventAt("old", now))
	f.pages = []int{1, 0} // short pages, as the service may give
	s := of(t, f)
	stop := watching(t, s, api.ListEventsParams{})
	f.looks(t, 1)
	f.mu.Lock()
	f.answers["GET /v1/events"] = answer{503, problemOf(503, "unavailable", "The store cannot serve.", "")}
	f.mu.Unlock()
	until(t, "it says that the service is away", func() bool { return strings.Contains(s.errs.String(), "The store cannot serve.") })
	before := len(f.questions("/v1/events"))
	until(t, "it asks again", func() bool { return len(f.questions("/v1/events")) > before+1 })
	f.mu.Lock()
	delete(f.answers, "GET /v1/events")
	f.events = []json.RawMessage{eventAt("3", now.Add(time.Hour)), eventAt("2", now.Add(time.Minute)), eventAt("old", now)}
	f.mu.Unlock()
	until(t, "what came meanwhile is shown", func() bool { return s.ids(t) == "2 3" })
	until(t, "it says that the service is back", func() bool { return strings.Contains(s.errs.String(), "answers again") })
	stop()
	if n := strings.Count(s.errs.String(), "The store cannot serve."); n != 1 {
		t.Errorf("said %d times that it is away: %q", n, s.errs.String())
	}
}

func TestWatchSince(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.set(eventAt("2", now), eventAt("1", now.Add(-time.Second)), eventAt("0", now.Add(-2*time.Minute)))
	s := of(t, f)
	after := now.Add(-time.Minute).Format(time.RFC3339)
	stop := watching(t, s, api.ListEventsParams{After: &after})
	until(t, "the earlier ones are shown, oldest first", func() bool { return s.ids(t) == "1 2" })
	f.looks(t, 1)
	stop()
	if ids := s.ids(t); ids != "1 2" {
		t.Errorf("shown: %s", ids)
	}
}

// An empty trail is watched from its first event on.
func TestWatchNothing(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	s := of(t, f)
	stop := watching(t, s, api.ListEventsParams{})
	f.looks(t, 1)
	f.set(eventAt("1", now))
	until(t, "the first is shown", func() bool { return s.ids(t) == "1" })
	stop()
}

// What time will not cure ends it.
func TestWatchEnds(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.answers["GET /v1/events"] = answer{401, problemOf(401, "unauthenticated", "No.", "")}
	wantClass(t, of(t, f).Watch(t.Context(), api.ListEventsParams{}), Failed, "401")
}
