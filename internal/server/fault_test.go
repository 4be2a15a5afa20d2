package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
)

// broken is a keeper that fails as it is told to.
type broken struct {
	do      func(ctx context.Context, cmds []idem.Command) []idem.Result
	changed chan struct{}
	ready   error
}

func (b broken) Do(ctx context.Context, cmds ...idem.Command) []idem.Result { return b.do(ctx, cmds) }

func (b broken) Watch(string) (<-chan struct{}, func()) { return b.changed, func() {} }

func (b broken) Ready(context.Context) error { return b.ready }

// failing fails each command with an error.
func failing(err error) broken {
	return broken{do: func(_ context.Context, cmds []idem.Command) []idem.Result {
		results := make([]idem.Result, len(cmds))
		for i := range results {
			results[i].Err = err
		}
		return results
	}}
}

const internals = "pq: password of user postgres at 10.0.0.1"

// Nothing of what went wrong inside reaches a client; the log says it.
func TestFaultsOfTheStore(t *testing.T) {
	t.Parallel()
	for _, f := range []struct {
		err     error
		status  int
		outcome string
	}{
		{idem.ErrBusy, 429, "too_many_requests"},
		{fmt.Errorf("%w: %s", idem.ErrBusy, internals), 429, "too_many_requests"},
		{idem.ErrUnavailable, 503, "unavailable"},
		{fmt.Errorf("%w: %w", idem.ErrUnavailable, errors.New(internals)), 503, "unavailable"},
		{context.DeadlineExceeded, 503, "unavailable"},
		{fmt.Errorf("%s: %w", internals, context.Canceled), 503, "unavailable"},
		{errors.New(internals), 500, "internal"},
	} {
		s := start(t, setup{keeper: failing(f.err)})
		k := s.key(t)
		answers := []answer{
			k.reserve(), k.dispatch(id), k.renew(id), k.record(id, obj{}), k.release(id), k.replay(""), k.replay("?raw=true"), k.reserve(obj{"wait_seconds": 60}),
		}
		for _, a := range answers {
			a.want(f.status, f.outcome)
			if strings.Contains(string(a.raw), "postgres") || strings.Contains(fmt.Sprint(a.header), "postgres") {
				t.Errorf("internals reach the client: %s", a)
			}
			if lines := s.lines(t, a); f.status >= 500 && lines[0].Error != f.err.Error() {
				t.Errorf("the log does not say why: %+v", lines)
			}
		}
		if f.status != 429 {
			results := s.batch(t, "reserve", []obj{item(k, obj{"owner": "w"}), item(k)})
			check(t, results, fmt.Sprint(f.status, " ", f.outcome), "400 invalid_request")
			continue
		}
		// A fault outside the items: nothing was begun.
		s.send(t, call{method: http.MethodPost, path: "/v1/batch/reserve", body: obj{"items": []obj{
			item(k, obj{"owner": "w"}), item(k), item(k, obj{"owner": "w"}),
		}}, wrong: true}).want(429, "too_many_requests")
	}
}

// lines is what the log has of an answer. It comes a moment after it.
func (s *service) lines(t testing.TB, a answer) (found []entry) {
	t.Helper()
	eventually(t, "no line in the log of "+a.String(), func() bool {
		found = s.journal.of(a.header.Get("X-Request-Id"))
		return len(found) > 0 && found[len(found)-1].Message == "request"
	})
	return found
}

// An unknown commit is that item's 503; what is known is told.
func TestBatchInWhichSomeCommitsAreUnknown(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := start(t, setup{keeper: broken{do: func(_ context.Context, cmds []idem.Command) []idem.Result {
		results := make([]idem.Result, len(cmds))
		for i, cmd := range cmds {
			switch i % 3 {
			case 0:
				results[i].Err = idem.ErrUnavailable
			case 1:
				results[i].Outcome = idem.Outcome{Code: idem.CodeNotFound, Key: cmd.Target(), Now: now}
			default:
				results[i].Err = errors.New(internals)
			}
		}
		return results
	}}})
	var items []obj
	for range 4 {
		items = append(items, item(s.key(t), obj{"reservation_id": id, "response": obj{}}))
	}
	items = append(items[:1], append([]obj{{}}, items[1:]...)...)
	a := s.send(t, call{method: http.MethodPost, path: "/v1/batch/record", body: obj{"items": items}, wrong: true})
	var results []obj
	for _, r := range a.body["results"].([]any) {
		results = append(results, r.(obj))
	}
	check(t, results, "503 unavailable", "400 invalid_request", "404 not_found", "500 internal", "503 unavailable")
	if strings.Contains(string(a.raw), "postgres") {
		t.Errorf("internals reach the client: %s", a)
	}
	if line := s.lines(t, a)[0]; line.Items != 5 || line.Error == "" {
		t.Errorf("the log says neither how many items nor what failed: %+v", line)
	}
}

// A handler that panics answers 500, and the service goes on.
func TestPanic(t *testing.T) {
	t.Parallel()
	s := start(t, setup{keeper: broken{
		do: func(context.Context, []idem.Command) []idem.Result { panic(internals) },
	}})
	k := s.key(t)
	for _, a := range []answer{
		k.reserve(), k.replay(""), k.record(id, obj{}),
		s.send(t, call{method: http.MethodPost, path: "/v1/batch/reserve", body: obj{"items": []obj{item(k, obj{"owner": "w"})}}}),
	} {
		a.want(500, "internal")
		if strings.Contains(string(a.raw), "postgres") || strings.Contains(string(a.raw), "goroutine") {
			t.Errorf("internals reach the client: %s", a)
		}
		lines := s.lines(t, a)
		if len(lines) != 2 || lines[0].Level != "error" || lines[0].Message == "request" {
			t.Errorf("not logged once: %+v", lines)
		}
	}
	s.send(t, call{method: http.MethodGet, path: "/healthz"})
}

// inProgress answers that the key is held for an hour.
func inProgress(key idem.Key) idem.Result {
	now := time.Now()
	return idem.Result{Outcome: idem.Outcome{Code: idem.CodeInProgress, Key: key, Now: now, Entry: &idem.Entry{
		Key: key, State: idem.Reserved, Grant: idem.Grant{Owner: "w", Fence: 1, ReservedAt: now, LeaseUntil: now.Add(time.Hour)}, ExpiresAt: now.Add(day),
	}}}
}

// A wait ends with the fault that it meets.
func TestFaultWhileWaiting(t *testing.T) {
	t.Parallel()
	var looks atomic.Int64
	s := start(t, setup{keeper: broken{do: func(_ context.Context, cmds []idem.Command) []idem.Result {
		if looks.Add(1) > 1 {
			return []idem.Result{{Err: idem.ErrUnavailable}}
		}
		return []idem.Result{inProgress(cmds[0].Target())}
	}}})
	s.key(t).reserve(patiently).want(503, "unavailable")
}

// A wait looks again at once where it is told of a change, and not only now and then.
func TestWaitIsTold(t *testing.T) {
	t.Parallel()
	const changes = 100
	var looks atomic.Int64
	keeper := broken{changed: make(chan struct{}), do: func(_ context.Context, cmds []idem.Command) []idem.Result {
		if looks.Add(1) > changes {
			return []idem.Result{{Outcome: idem.Outcome{Code: idem.CodeNotFound, Key: cmds[0].Target()}}}
		}
		return []idem.Result{inProgress(cmds[0].Target())}
	}}
	close(keeper.changed)
	s := start(t, setup{keeper: keeper})
	begun := time.Now()
	s.key(t).replay("?wait_seconds=60").want(404, "not_found")
	if took := time.Since(begun); took > changes*100*time.Millisecond {
		t.Errorf("%d changes took %s", changes, took)
	}
}
