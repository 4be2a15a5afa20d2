package client_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/idemstore/idemstore/client"
)

func TestOnceEach(t *testing.T) {
	t.Parallel()
	s, e := start(t), &effect{}
	c := connect(t, s, client.WithLease(time.Second))
	fresh, recorded, doubtful, again := key(), key(), key(), key()
	if _, err := c.Once(t.Context(), recorded, e.charge); err != nil {
		t.Fatal(err)
	}
	s.vanish(t, doubtful)
	tasks := []client.Task{
		{Key: fresh, Effect: func(ctx context.Context, g client.Grant) (client.Response, error) {
			s.pass(t, time.Minute) // the leases of those that wait have passed
			return e.charge(ctx, g)
		}},
		{Key: recorded, Effect: never(t)},
		{Key: doubtful, Effect: never(t)},
		{Key: again, Effect: e.charge},
		{Key: client.Key{TaskID: "not a task"}, Effect: never(t)},
	}
	s.fault = func(verb string, n int) fault {
		if verb == "reserve" && n == 2 { // the batch, after the Once above
			return lost
		}
		return none
	}
	var problem *client.ProblemError
	var doubt *client.InDoubtError
	right := []func(client.Response, error) bool{
		func(r client.Response, err error) bool { return err == nil && !r.Replayed },
		func(r client.Response, err error) bool { return err == nil && r.Replayed },
		func(_ client.Response, err error) bool { return errors.As(err, &doubt) },
		func(r client.Response, err error) bool { return err == nil && !r.Replayed },
		func(_ client.Response, err error) bool {
			return errors.As(err, &problem) && problem.Problem.Code == "invalid_request"
		},
	}
	next := 0
	if err := c.OnceEach(t.Context(), tasks, func(i int, response client.Response, err error) {
		if i != next || !right[i](response, err) {
			t.Errorf("%d, when %d was due: %+v %v", i, next, response, err)
		}
		next++
	}); err != nil {
		t.Fatal(err)
	}
	if e.want(t, 3); next != len(tasks) || s.count("reserve") != 3 {
		t.Errorf("%d of %d tasks, %d calls of reserve", next, len(tasks), s.count("reserve"))
	}
}

// One that waits for its turn is not performed when another has it by then.
func TestOnceEachOvertaken(t *testing.T) {
	t.Parallel()
	s, e := start(t), &effect{}
	first, second := key(), key()
	err := connect(t, s).OnceEach(t.Context(), []client.Task{
		{Key: first, Effect: func(ctx context.Context, g client.Grant) (client.Response, error) {
			s.pass(t, time.Minute)
			s.reserve(t, second, nil)
			return e.charge(ctx, g)
		}},
		{Key: second, Effect: never(t)},
	}, func(i int, _ client.Response, err error) {
		var busy *client.InProgressError
		if (i == 0 && err != nil) || (i == 1 && !errors.As(err, &busy)) {
			t.Errorf("%d: %v", i, err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	e.want(t, 1)
}

func TestOnceEachRefusesImplicitDispatch(t *testing.T) {
	t.Parallel()
	s := start(t)
	tasks := []client.Task{{Key: key(), Effect: never(t), Options: []client.Option{client.WithImplicitDispatch()}}}
	if err := connect(t, s).OnceEach(t.Context(), tasks, nil); err == nil || s.count("reserve") != 0 {
		t.Fatalf("%v, %d calls", err, s.count("reserve"))
	}
}

// A worker that is told to stop begins nothing more.
func TestOnceEachStops(t *testing.T) {
	t.Parallel()
	s, e := start(t), &effect{}
	ctx, cancel := context.WithCancel(t.Context())
	last := key()
	tasks := []client.Task{
		{Key: key(), Effect: func(ctx context.Context, g client.Grant) (client.Response, error) {
			cancel()
			return e.charge(ctx, g)
		}},
		{Key: last, Effect: never(t)},
	}
	err := connect(t, s).OnceEach(ctx, tasks, func(i int, _ client.Response, err error) {
		if i != 0 || err != nil {
			t.Errorf("%d: %v", i, err)
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	s.pass(t, time.Minute)
	if state := s.state(t, last); state != "not_found" {
		t.Errorf("the one that was not begun is %s", state)
	}
}

// A batch does not wait. One that wants to asks again, by itself.
func TestOnceEachWaits(t *testing.T) {
	t.Parallel()
	s, held, waits := start(t), key(), make(chan struct{})
	id := s.reserve(t, held, nil)
	s.fault = func(verb string, n int) fault {
		if verb == "reserve" && n == 2 { // after the batch
			close(waits)
		}
		return none
	}
	tasks := []client.Task{{Key: held, Effect: never(t), Options: []client.Option{client.WithWait(20 * time.Second)}}}
	c, ended := connect(t, s), make(chan error)
	go func() {
		ended <- c.OnceEach(t.Context(), tasks, func(_ int, response client.Response, err error) {
			if err != nil || !response.Replayed || response.Status != http.StatusMultiStatus {
				t.Errorf("%+v %v", response, err)
			}
		})
	}()
	select {
	case <-waits:
		s.post(t, held, "record", obj{"reservation_id": id, "response": obj{"status": http.StatusMultiStatus}})
	case <-time.After(soon):
		t.Error("it does not wait")
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}
