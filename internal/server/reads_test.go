package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/internal/server"
)

// names are the tasks and attempts of a list, in its order.
func names(items []obj) (all []string) {
	for _, item := range items {
		all = append(all, fmt.Sprint(item["task_id"], "/", item["attempt"]))
	}
	return all
}

func (k key) String() string { return fmt.Sprint(k.task, "/", k.attempt) }

// An entry tells all that is kept of a key but the reservation, which is its holder's.
func TestEntry(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		k := s.key(t)
		s.get(t, "/v1/tasks/"+k.task+"/attempts/0").want(404, "not_found").has(obj{"task_id": k.task, "attempt": 0})
		grant := k.reserve(obj{"owner": "w1", "handler": "h", "lease_seconds": 30, "dispatch": "explicit"}, hashed("sha256:1"))
		want := obj{
			"task_id": k.task, "attempt": 0, "state": "reserved", "in_doubt": false, "owner": "w1", "fence": 1, "handler": "h", "dispatch": "explicit",
			"request_hash": "sha256:1", "reserved_at": grant.body["reserved_at"], "lease_until": grant.body["lease_until"], "doubts": []any{},
			"late": false, "expires_at": grant.body["expires_at"],
		}
		k.entry().has(want)
		k.dispatch(grant.id()).want(200, "dispatched")
		k.entry().has(obj{"state": "dispatched", "in_doubt": false}).time("dispatched_at")
		s.pass(t, lease)
		doubt := k.entry().has(obj{"state": "dispatched", "in_doubt": true})
		if n := len(doubt.list("doubts")); n != 1 {
			t.Errorf("%d doubts in %s", n, doubt)
		}
		body := obj{"status": 201, "headers": []any{[]any{"A", "b"}}, "body": "x"}
		recorded := k.record(grant.id(), body).want(201, "recorded")
		a := k.entry().has(obj{
			"state": "recorded", "in_doubt": false, "doubts": []any{}, "late": true, "recorded_by": "w1", "recorded_at": recorded.body["recorded_at"],
			"expires_at": recorded.body["expires_at"], "response": body,
		})
		if strings.Contains(string(a.raw), grant.id()) {
			t.Errorf("the reservation is told: %s", a)
		}
		// It was a look: nobody was given the response.
		if n := len(s.find(t, "events", "task_id", k.task, "kind", "replayed").list("events")); n != 0 {
			t.Errorf("%d replays are in the trail", n)
		}
		s.pass(t, 15*day)
		s.get(t, "/v1/tasks/"+k.task+"/attempts/0").want(404, "not_found")
		k.history().ok().has(obj{"attempts": []any{}}) // the late record is still told
	})
}

// A task is told over all its attempts, in one timeline.
func TestTask(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		k := s.key(t)
		k.history().want(404, "not_found").has(obj{"task_id": k.task})
		first := k.leave(obj{"owner": "one"}).id()
		k.reserve(obj{"owner": "two"}).want(409, "in_doubt")
		s.tick(t)
		second := k.reserve(obj{"owner": "two"}, taking(takeover(0, 1))).id()
		k.record(second, obj{"status": 201, "body": "ch_2"}).want(201, "recorded")
		retry := k.at(10)
		retry.record(retry.reserve(obj{"owner": "three"}).id(), obj{"body_base64": "/w=="}).want(201, "recorded")
		s.tick(t)
		k.at(2).replay("?owner=four").want(200, "recorded").has(obj{"replayed_attempt": 10})
		s.tick(t)
		k.record(first, obj{"status": 201, "body": "ch_1"}).want(409, "already_recorded")

		a := k.history().ok().has(obj{"task_id": k.task})
		attempts, events := a.list("attempts"), a.list("events")
		if got, want := names(attempts), []string{k.String(), retry.String()}; !slices.Equal(got, want) {
			t.Errorf("attempts %v, want %v", got, want)
		}
		if !includes(attempts[0]["response"], obj{"status": 201, "body": "ch_2"}) || !includes(attempts[1]["response"], obj{"body_base64": "/w=="}) {
			t.Errorf("responses: %v", attempts)
		}
		var kinds []string
		last := ""
		for _, e := range events {
			kinds = append(kinds, fmt.Sprint(e["kind"]))
			if at := fmt.Sprint(e["at"]); at < last {
				t.Errorf("%s comes after %s", at, last)
			} else {
				last = at
			}
		}
		if want := []string{"found_in_doubt", "taken_over", "replayed", "duplicate_record"}; !slices.Equal(kinds, want) {
			t.Errorf("the timeline is %v, want %v", kinds, want)
		}
		// The same task in another letter case; an id that is none.
		s.get(t, "/v1/tasks/"+strings.ToUpper(k.task)).ok().has(obj{"task_id": k.task})
		for _, id := range []string{"..%2F", "a%2Fb", "a%20b", "%2E"} {
			s.get(t, "/v1/tasks/"+id).wantField("task_id")
		}
	})
}

// A task of many attempts with large responses comes whole.
func TestTaskOfManyPages(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		k := s.key(t)
		const attempts = 10 // of 1 MiB: more than a page
		for i := range attempts {
			k.at(i).record("", obj{"status": 200 + i, "body": strings.Repeat("x", 1<<20)}, obj{"owner": "w"}).want(201, "recorded")
			k.at(i).record("", obj{"body": fmt.Sprint(i) + strings.Repeat("y", 1<<20-10)}, obj{"owner": "v"}).want(409, "already_recorded")
		}
		a := k.history().ok()
		entries, events := a.list("attempts"), a.list("events")
		if len(entries) != attempts || len(events) != attempts {
			t.Fatalf("%d attempts, %d events", len(entries), len(events))
		}
		for i := range attempts {
			if entries[i]["attempt"] != float64(i) || len(entries[i]["response"].(obj)["body"].(string)) != 1<<20 {
				t.Errorf("attempt %d: %.200v", i, entries[i])
			}
			if body := events[i]["response"].(obj)["body"].(string); !strings.HasPrefix(body, fmt.Sprint(i)+"y") || len(body) < 1<<20-10 {
				t.Errorf("evidence %d: %.20s", i, body)
			}
		}
	})
}

// answering is a reader that fails each question.
type answering struct{ err error }

func (r answering) Entry(context.Context, idem.Key) (*idem.Entry, time.Time, error) {
	return nil, time.Time{}, r.err
}

func (r answering) Entries(context.Context, idem.EntryQuery) (idem.EntryPage, error) {
	return idem.EntryPage{}, r.err
}

func (r answering) Events(context.Context, idem.EventQuery) (idem.EventPage, error) {
	return idem.EventPage{}, r.err
}

func (r answering) Stats(context.Context, time.Time, time.Time) (idem.Stats, error) {
	return idem.Stats{}, r.err
}

func (r answering) Standing(context.Context) (idem.Standing, error) {
	return idem.Standing{Now: time.Now()}, nil
}

func TestFaultsOfReads(t *testing.T) {
	t.Parallel()
	for _, f := range []struct {
		err     error
		status  int
		outcome string
		says    string
	}{
		{fmt.Errorf("%w: %w", idem.ErrUnavailable, errors.New(internals)), 503, "unavailable", "nothing was changed"},
		{fmt.Errorf("%w: %w", idem.ErrTooSlow, errors.New(internals)), 503, "unavailable", "shorter period"},
		{fmt.Errorf("%w: %w", idem.ErrTooSlow, context.DeadlineExceeded), 503, "unavailable", "Nothing is wrong with any key"},
		{idem.ErrBusy, 429, "too_many_requests", ""},
		{errors.New(internals), 500, "internal", ""},
	} {
		s := start(t, setup{keeper: failing(nil), reader: answering{f.err}})
		for _, path := range []string{"tasks/a", "tasks/a/attempts/0", "entries", "events", "stats"} {
			a := s.get(t, "/v1/"+path).want(f.status, f.outcome)
			if !strings.Contains(a.text("detail"), f.says) || strings.Contains(string(a.raw), "postgres") {
				t.Errorf("%s: %s", path, a)
			}
			if line := s.lines(t, a)[0]; f.status >= 500 && line.Error != f.err.Error() {
				t.Errorf("the log does not say why: %+v", line)
			}
		}
		for _, accept := range []string{"text/csv", "application/x-ndjson"} { // nothing was sent yet
			s.get(t, "/v1/events", "Accept", accept).want(f.status, f.outcome)
		}
	}
}

// No more reads are served at a time than there is memory for, and exports leave room for others.
func TestReadsAreFew(t *testing.T) {
	t.Parallel()
	for accept, most := range map[string]int{"application/json": 16, "text/csv": 8} {
		t.Run(accept, func(t *testing.T) {
			t.Parallel()
			wait := make(chan struct{})
			s := start(t, setup{keeper: failing(nil), reader: paging(func(_ context.Context, q idem.EventQuery) (idem.EventPage, error) {
				if q.Kind == "" {
					<-wait
				}
				return idem.EventPage{}, nil
			})})
			answers := make(chan answer, 100)
			for range cap(answers) {
				go func() {
					answers <- s.send(t, call{method: http.MethodGet, path: "/v1/events", header: map[string]string{"Accept": accept}})
				}()
			}
			for range cap(answers) - most {
				a := <-answers
				if a.status != 429 || !strings.Contains(a.text("detail"), "operators' reads") {
					t.Errorf("one too many is answered %s", a)
				}
			}
			if most < 16 {
				s.get(t, "/v1/events?kind=resolved").ok() // others are served beside them
			}
			// What is mounted beside the API shares the room.
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			if err := s.server.ExportEvents(httptest.NewRecorder(), r, idem.EventQuery{Kind: idem.EventResolved}); !errors.Is(err, idem.ErrBusy) {
				t.Errorf("one export too many: %v", err)
			}
			close(wait)
			for range most {
				if a := <-answers; a.status != 200 {
					t.Errorf("one of those that were served is answered %s", a)
				}
			}
			s.get(t, "/v1/events", "Accept", accept)
		})
	}
}

// An operator's name is in what it settled, and an auditor can look it up by it.
func TestActorsByToken(t *testing.T) {
	t.Parallel()
	s, secrets := withTokens(t, map[string][]server.Role{"worker": {server.RoleWorker}, "anna": {server.RoleOperator}, "auditor": {server.RoleAuditor}})
	k := s.key(t)
	s.token = secrets["worker"]
	k.reserve(obj{"owner": "w7"}).id()
	s.token = secrets["anna"]
	k.resolve(1, obj{"force": true}).ok()
	s.token = secrets["auditor"]
	for _, actor := range []string{"anna", "worker"} {
		events := s.find(t, "events", "actor", actor).ok().list("events")
		if actor == "worker" && len(events) > 0 || actor == "anna" && (len(events) != 1 || !equal(events[0]["actor"], obj{"owner": "anna", "token": "anna"})) {
			t.Errorf("of %s: %v", actor, events)
		}
	}
	k.reserve().want(403, "forbidden")
}
