package client_test

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/idemstore/idemstore/client"
)

func TestOnceThenReplayed(t *testing.T) {
	t.Parallel()
	s, k := start(t), key()
	for name, response := range map[string]client.Response{
		"text":    {Status: 402, Header: http.Header{"X-Two": {"a", "b"}, "Location": {"/1"}}, Body: []byte("no \"money\"\n")},
		"bytes":   {Status: 200, Header: http.Header{}, Body: []byte{0, 255, 128}},
		"empty":   {Status: 204, Header: http.Header{}, Body: []byte{}},
		"nothing": {Status: 204, Header: http.Header{}},
	} {
		k.TaskID += "x"
		c := connect(t, s)
		first, err := c.Once(t.Context(), k, func(_ context.Context, g client.Grant) (client.Response, error) {
			if g.Key != k || g.Fence != 1 || g.IdempotencyKey != "conduit-task-"+k.TaskID {
				t.Errorf("%s: granted %+v", name, g)
			}
			return response, nil
		})
		if err != nil || !reflect.DeepEqual(first, response) {
			t.Fatalf("%s: %+v %v", name, first, err)
		}
		second, err := c.Once(t.Context(), k, never(t))
		response.Replayed = true
		if err != nil || !reflect.DeepEqual(second, response) {
			t.Fatalf("%s: replayed %+v %v, want %+v", name, second, err, response)
		}
	}
}

// Whatever becomes of the first calls of a verb, the effect is performed once and recorded.
func TestCallsThatAreNotAnswered(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"reserve", "dispatch", "record"} {
		for name, f := range map[string]fault{"lost": lost, "refused": refused, "unavailable": unavailable, "throttled": throttled, "unread": unread} {
			t.Run(verb+" "+name, func(t *testing.T) {
				t.Parallel()
				s, k, e := start(t), key(), &effect{}
				s.fault = func(v string, n int) fault {
					if v == verb && n <= 2 {
						return f
					}
					return none
				}
				response, err := connect(t, s).Once(t.Context(), k, e.charge)
				if err != nil || response.Duplicate || response.Replayed {
					t.Fatalf("%+v %v", response, err)
				}
				e.want(t, 1)
				if s.count(verb) != 3 || s.state(t, k) != "recorded" {
					t.Errorf("%d calls, and then it is %s", s.count(verb), s.state(t, k))
				}
			})
		}
	}
}

// Who says when to come again is not asked before.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	s, k, e := start(t), key(), &effect{}
	s.fault = func(verb string, n int) fault {
		if verb == "reserve" && n == 1 {
			return later
		}
		return none
	}
	began := time.Now()
	if _, err := connect(t, s).Once(t.Context(), k, e.charge); err != nil || time.Since(began) < time.Second {
		t.Fatalf("%v after %v", err, time.Since(began))
	}
	e.want(t, 1)
}

func TestServiceOutOfReach(t *testing.T) {
	t.Parallel()
	s, k := start(t), key()
	s.fault = func(string, int) fault { return unavailable }
	_, err := connect(t, s, client.WithPatience(200*time.Millisecond)).Once(t.Context(), k, never(t))
	if !errors.Is(err, client.ErrUnanswered) || client.NothingHappened(err) || !strings.Contains(err.Error(), "the test says so") {
		t.Fatal(err)
	}
}

// Nothing has begun when the dispatch was not answered. It is said so, once the service can be told.
func TestDispatchNotAnswered(t *testing.T) {
	t.Parallel()
	s, k := start(t), key()
	s.fault = func(verb string, _ int) fault {
		if verb == "dispatch" {
			return lost
		}
		return none
	}
	_, err := connect(t, s, client.WithPatience(200*time.Millisecond)).Once(t.Context(), k, never(t))
	if !errors.Is(err, client.ErrUnanswered) || !client.NothingHappened(err) {
		t.Fatal(err)
	}
	if state := s.state(t, k); state != "not_found" {
		t.Fatalf("it is %s", state)
	}
}

func TestRecordNotAnswered(t *testing.T) {
	t.Parallel()
	s, k, e := start(t), key(), &effect{}
	s.fault = func(verb string, _ int) fault {
		if verb == "record" {
			return refused
		}
		return none
	}
	response, err := connect(t, s, client.WithPatience(200*time.Millisecond)).Once(t.Context(), k, e.charge)
	var doubt *client.InDoubtError
	if !errors.As(err, &doubt) || !errors.Is(err, client.ErrUnanswered) || client.NothingHappened(err) {
		t.Fatal(err)
	}
	if response.Status != 201 {
		t.Fatalf("the response is lost: %+v", response)
	}
}

// What has happened is recorded, also by a worker that is being stopped.
func TestRecordAfterTheContext(t *testing.T) {
	t.Parallel()
	s, k := start(t), key()
	ctx, cancel := context.WithCancel(t.Context())
	_, err := connect(t, s).Once(ctx, k, func(context.Context, client.Grant) (client.Response, error) {
		cancel()
		return client.Response{Status: 201}, nil
	})
	if err != nil || s.state(t, k) != "recorded" {
		t.Fatalf("%v, and it is %s", err, s.state(t, k))
	}
}

func TestInProgress(t *testing.T) {
	t.Parallel()
	s, k := start(t), key()
	id := s.reserve(t, k, nil)
	_, err := connect(t, s).Once(t.Context(), k, never(t))
	var busy *client.InProgressError
	if !errors.As(err, &busy) || busy.Owner != "other" || busy.RetryAfter < time.Second || client.NothingHappened(err) {
		t.Fatalf("%#v", err)
	}
	done := make(chan error)
	go func() {
		response, err := connect(t, s, client.WithWait(20*time.Second)).Once(t.Context(), k, never(t))
		if err == nil && (!response.Replayed || response.Status != 207) {
			err = errors.New("not what was recorded")
		}
		done <- err
	}()
	s.post(t, k, "record", obj{"reservation_id": id, "response": obj{"status": 207}})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestNotDone(t *testing.T) {
	t.Parallel()
	s, k, e := start(t), key(), &effect{}
	c, cause := connect(t, s), errors.New("connection refused"+strings.Repeat(" and more", 200))
	_, err := c.Once(t.Context(), k, func(context.Context, client.Grant) (client.Response, error) {
		return client.Response{}, client.NotDone(cause)
	})
	var no *client.NotDoneError
	if !errors.As(err, &no) || !errors.Is(err, cause) || !client.NothingHappened(err) {
		t.Fatal(err)
	}
	if _, err = c.Once(t.Context(), k, e.charge); err != nil {
		t.Fatal(err)
	}
	e.want(t, 1)
	if client.NotDone(nil) != nil {
		t.Error("nothing is marked as not done")
	}
}

// A release that is not answered, or comes too late, decides nothing.
func TestNotDoneNotReleased(t *testing.T) {
	t.Parallel()
	s, k := start(t), key()
	s.fault = func(verb string, _ int) fault {
		if verb == "release" {
			return refused
		}
		return none
	}
	c := connect(t, s, client.WithPatience(200*time.Millisecond))
	_, err := c.Once(t.Context(), k, func(context.Context, client.Grant) (client.Response, error) {
		return client.Response{}, client.NotDone(errors.New("refused"))
	})
	var doubt *client.InDoubtError
	if !errors.As(err, &doubt) || client.NothingHappened(err) {
		t.Fatal(err)
	}
}

func TestUnmarkedErrorLeavesADoubt(t *testing.T) {
	t.Parallel()
	s, k := start(t), key()
	c, timeout := connect(t, s), errors.New("timeout")
	_, err := c.Once(t.Context(), k, func(context.Context, client.Grant) (client.Response, error) {
		return client.Response{}, timeout
	})
	var doubt *client.InDoubtError
	if !errors.As(err, &doubt) || !errors.Is(err, timeout) || client.NothingHappened(err) || s.state(t, k) != "in_progress" {
		t.Fatalf("%v, and it is %s", err, s.state(t, k))
	}
	s.pass(t, time.Minute)
	_, err = c.Once(t.Context(), k, never(t))
	if !errors.As(err, &doubt) || len(doubt.Doubts) != 1 || !doubt.Doubts[0].Dispatched || doubt.Err != nil {
		t.Fatalf("%#v", err)
	}
}

func TestPanicLeavesADoubt(t *testing.T) {
	t.Parallel()
	s, k := start(t), key()
	c := connect(t, s)
	func() {
		defer func() {
			if recover() != "out of memory" {
				t.Error("the panic does not reach the caller")
			}
		}()
		_, _ = c.Once(t.Context(), k, func(context.Context, client.Grant) (client.Response, error) { panic("out of memory") })
	}()
	s.pass(t, time.Minute)
	if state := s.state(t, k); state != "in_doubt" {
		t.Fatalf("it is %s", state)
	}
}

func TestBodyTooLarge(t *testing.T) {
	t.Parallel()
	s, k := start(t), key()
	c := connect(t, s)
	if _, err := c.Once(t.Context(), k, func(context.Context, client.Grant) (client.Response, error) {
		return client.Response{Status: 200, Body: []byte(strings.Repeat("x", 5000))}, nil
	}); err != nil {
		t.Fatal(err)
	}
	response, err := c.Once(t.Context(), k, never(t))
	if err != nil || response.Omitted == nil || response.Omitted.Size != 5000 || len(response.Omitted.SHA256) != 64 || response.Body != nil {
		t.Fatalf("%+v %v", response, err)
	}
}

func TestTooManyHeaders(t *testing.T) {
	t.Parallel()
	s, k := start(t), key()
	header := make(http.Header)
	for i := range 101 {
		header.Add("X-Many", strconv.Itoa(i))
	}
	c := connect(t, s)
	if _, err := c.Once(t.Context(), k, func(context.Context, client.Grant) (client.Response, error) {
		return client.Response{Status: 201, Header: header, Body: []byte("ch_1")}, nil
	}); err != nil {
		t.Fatal(err)
	}
	response, err := c.Once(t.Context(), k, never(t))
	if err != nil || string(response.Body) != "ch_1" || len(response.Header) != 0 {
		t.Fatalf("%+v %v", response, err)
	}
}

// Whatever the error says, the key is released.
func TestReasonsThatCannotBe(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, reason := range []string{"", "a\x00b", "\xff", strings.Repeat("é", 2000)} {
		_, err := connect(t, s).Once(t.Context(), key(), func(context.Context, client.Grant) (client.Response, error) {
			return client.Response{}, client.NotDone(errors.New(reason))
		})
		if !client.NothingHappened(err) {
			t.Errorf("%.20q: %v", reason, err)
		}
	}
}

func TestRequestMismatch(t *testing.T) {
	t.Parallel()
	s, k, e := start(t), key(), &effect{}
	if _, err := connect(t, s, client.WithRequestHash("sha256:1")).Once(t.Context(), k, e.charge); err != nil {
		t.Fatal(err)
	}
	_, err := connect(t, s).Once(t.Context(), k, never(t), client.WithRequestHash("sha256:2"))
	var problem *client.ProblemError
	if !errors.As(err, &problem) || problem.Problem.Code != "request_mismatch" {
		t.Fatal(err)
	}
}

func TestTaskScope(t *testing.T) {
	t.Parallel()
	s, k, e := start(t), key(), &effect{}
	c := connect(t, s)
	if _, err := c.Once(t.Context(), k, e.charge); err != nil {
		t.Fatal(err)
	}
	k.Attempt = 1
	response, err := c.Once(t.Context(), k, never(t), client.WithTaskScope())
	if err != nil || !response.Replayed {
		t.Fatalf("%+v %v", response, err)
	}
	if response, err = c.Once(t.Context(), k, e.charge); err != nil || response.Replayed {
		t.Fatalf("%+v %v", response, err)
	}
	e.want(t, 2)
}

func TestOptionsThatCannotBe(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]client.Option{
		"lease":    client.WithLease(1500 * time.Millisecond),
		"wait":     client.WithWait(2 * time.Minute),
		"patience": client.WithPatience(0),
		"owner":    client.WithOwner(""),
	} {
		if _, err := client.New("http://127.0.0.1:1", o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := connect(t, start(t)).Once(t.Context(), key(), never(t), o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, address := range []string{"127.0.0.1:8080", "http://", "https://:8080", "http://x y", "ftp://x", ""} {
		if _, err := client.New(address); err == nil || !strings.Contains(err.Error(), "URL") {
			t.Errorf("%q is taken: %v", address, err)
		}
	}
	if _, err := connect(t, start(t)).Once(t.Context(), key(), never(t), client.WithToken("x")); err == nil {
		t.Error("a token for one call is taken, and not sent")
	}
}

// What is not idemstore's answer is told apart.
func TestAnotherService(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.server = http.NotFoundHandler()
	_, err := connect(t, s).Once(t.Context(), key(), never(t))
	var problem *client.ProblemError
	if !errors.As(err, &problem) || problem.Problem.Status != 404 || !strings.Contains(err.Error(), "address") {
		t.Fatal(err)
	}
}
