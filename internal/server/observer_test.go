package server_test

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/internal/server"
)

// observer keeps what it is told.
type observer struct {
	mu       sync.Mutex
	open     int
	served   []string // method, route
	answered []server.Answered
}

func (o *observer) Began() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open++
}

func (o *observer) Served(method, route string, _ int, _ time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open--
	o.served = append(o.served, method+" "+route)
}

func (o *observer) Answered(a server.Answered) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answered = append(o.answered, a)
}

// take waits until no request is open, and returns what commands were answered since it was last asked.
func (o *observer) take(t *testing.T) (served []string, answered []server.Answered) {
	t.Helper()
	eventually(t, "a request is still open", func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.open == 0
	})
	o.mu.Lock()
	defer o.mu.Unlock()
	served, answered, o.served, o.answered = o.served, o.answered, nil, nil
	return served, answered
}

func (o *observer) want(t *testing.T, want ...server.Answered) {
	t.Helper()
	_, got := o.take(t)
	if !slices.Equal(got, want) {
		t.Errorf("told %+v\nwant %+v", got, want)
	}
}

func startObserved(t *testing.T, c setup) (*service, *observer) {
	t.Helper()
	o := new(observer)
	c.config.Observer = o
	return start(t, c), o
}

// Each answer to a command is told once, under the handler of its key.
func TestAnswersAreObserved(t *testing.T) {
	t.Parallel()
	s, o := startObserved(t, setup{database: inMemory})
	k, handler := s.key(t), obj{"handler": "h"}
	holder := k.reserve(handler).id()
	o.want(t, server.Answered{Verb: "reserve", Handler: "h", Code: idem.CodeReserved})
	k.dispatch(holder).want(200, "dispatched")
	o.want(t, server.Answered{Verb: "dispatch", Handler: "h", Code: idem.CodeDispatched})
	k.renew(holder).want(200, "renewed")
	o.want(t, server.Answered{Verb: "renew", Handler: "h", Code: idem.CodeRenewed})
	k.reserve(obj{"handler": "another"}).want(409, "in_progress")
	o.want(t, server.Answered{Verb: "reserve", Handler: "another", Code: idem.CodeInProgress})
	k.record(id, obj{"body": "x"}).want(409, "not_holder")
	k.record(id, obj{"body": "x"}).want(409, "not_holder")
	o.want(t, server.Answered{Verb: "record", Handler: "h", Code: idem.CodeNotHolder},
		server.Answered{Verb: "record", Handler: "h", Code: idem.CodeNotHolder, Repeated: true})
	k.record(holder, obj{"body": "x"}).want(201, "recorded")
	o.want(t, server.Answered{Verb: "record", Handler: "h", Code: idem.CodeRecorded})
	k.replay("").want(200, "recorded")
	k.replay("?raw=true")
	o.want(t, server.Answered{Verb: "replay", Handler: "h", Code: idem.CodeRecorded},
		server.Answered{Verb: "replay", Handler: "h", Code: idem.CodeRecorded})
	k.release(holder).want(409, "already_recorded")
	o.want(t, server.Answered{Verb: "release", Handler: "h", Code: idem.CodeAlreadyRecorded})
	k.post("reserve", obj{}).wantField("owner")
	o.want(t, server.Answered{Verb: "reserve", Code: "invalid_request"})
	s.key(t).replay("").want(404, "not_found")
	o.want(t, server.Answered{Verb: "replay", Code: idem.CodeNotFound})
}

// A wait is one answer, however often the key was looked at.
func TestAWaitIsObservedOnce(t *testing.T) {
	t.Parallel()
	s, o := startObserved(t, setup{database: inMemory})
	k := s.key(t)
	holder := k.reserve().id()
	o.take(t)
	waiting := k.await(func() answer { return k.reserve(patiently) })
	k.renew(holder).want(200, "renewed") // it is looked at again
	k.record(holder, obj{"body": "x"}).want(201, "recorded")
	waiting().want(200, "recorded")
	_, got := o.take(t)
	slices.SortFunc(got, func(a, b server.Answered) int { return cmp.Compare(a.Verb, b.Verb) })
	if len(got) != 3 || got[2] != (server.Answered{Verb: "reserve", Code: idem.CodeRecorded}) {
		t.Errorf("told %+v", got)
	}
}

// Each item of a batch is told by itself, and those that could not be read, or were sent away, too.
func TestItemsAreObserved(t *testing.T) {
	t.Parallel()
	s, o := startObserved(t, setup{database: inMemory})
	a, b := s.key(t), s.key(t)
	body := obj{"items": []obj{item(a, obj{"owner": "w", "handler": "h"}), {}, item(b, obj{"owner": "w"}), item(a, obj{"owner": "v"})}}
	s.send(t, call{method: http.MethodPost, path: "/v1/batch/reserve", body: body, wrong: true})
	served, got := o.take(t)
	want := []server.Answered{
		{Verb: "reserve", Handler: "h", Code: idem.CodeReserved},
		{Verb: "reserve", Code: "invalid_request"},
		{Verb: "reserve", Code: idem.CodeReserved},
		{Verb: "reserve", Handler: "h", Code: idem.CodeInProgress},
	}
	if !slices.Equal(got, want) || !slices.Equal(served, []string{"POST /v1/batch/reserve"}) {
		t.Errorf("told %v %+v\nwant %+v", served, got, want)
	}

	s, o = startObserved(t, setup{keeper: failing(idem.ErrBusy)})
	body = obj{"items": []obj{item(a, obj{"owner": "w", "response": obj{}}), item(b, obj{"owner": "w", "response": obj{}})}}
	s.send(t, call{method: http.MethodPost, path: "/v1/batch/record", body: body}).want(429, "too_many_requests")
	o.want(t, server.Answered{Verb: "record", Code: "too_many_requests"}, server.Answered{Verb: "record", Code: "too_many_requests"})
}

// A route is its pattern. What has none is told as such, whatever path and method a caller makes up.
func TestRoutesAreObserved(t *testing.T) {
	t.Parallel()
	s, o := startObserved(t, setup{database: inMemory})
	for _, c := range []struct{ method, path, want string }{
		{http.MethodGet, "/v1/tasks/some-task/attempts/7/replay", "GET /v1/tasks/{task_id}/attempts/{attempt}/replay"},
		{http.MethodGet, "/problems/in-doubt", "GET /problems/{code}"},
		{http.MethodGet, "/healthz", "GET /healthz"},
		{http.MethodGet, "/no/such/path", "GET "},
		{http.MethodPut, "/healthz", "PUT "},
		{http.MethodDelete, "/v1/tasks/some-task/attempts/7/replay", "DELETE "},
		{"MADE-UP", "/healthz", "MADE-UP "},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, s.url+c.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if served, _ := o.take(t); !slices.Equal(served, []string{c.want}) {
			t.Errorf("%s %s: told %q, want %q", c.method, c.path, served, c.want)
		}
	}
}

// An answer that is broken off is logged and told like any other, and counted as no longer open.
func TestAnAbortedAnswerIsObserved(t *testing.T) {
	t.Parallel()
	s, o := startObserved(t, setup{keeper: broken{do: func(context.Context, []idem.Command) []idem.Result { panic(http.ErrAbortHandler) }}})
	req := call{method: http.MethodGet, path: s.key(t).path("replay")}.request(t, s)
	if res, err := client.Do(req); err == nil {
		_ = res.Body.Close()
		t.Fatalf("it was answered: %d", res.StatusCode)
	}
	var lines []entry
	eventually(t, "it is not logged", func() bool {
		lines = s.journal.of(req.Header.Get("X-Request-Id"))
		return len(lines) > 0
	})
	if served, answered := o.take(t); len(served) != 1 || len(answered) != 0 || len(lines) != 1 || lines[0].Error == "" {
		t.Errorf("told %v, logged %+v", served, lines)
	}
}
