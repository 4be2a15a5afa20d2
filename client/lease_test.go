package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"path"
	"sync"
	"testing"
	"time"

	"github.com/idemstore/idemstore/client"
)

// untilEnded is an effect that lasts until it is broken off.
func untilEnded(cause *error) client.Effect {
	return func(ctx context.Context, _ client.Grant) (client.Response, error) {
		select {
		case <-ctx.Done():
			*cause = context.Cause(ctx)
			return client.Response{}, ctx.Err()
		case <-time.After(soon):
			return client.Response{}, errors.New("it was never broken off")
		}
	}
}

// An effect that takes three leases is alone all the time.
func TestLongEffectIsRenewed(t *testing.T) {
	t.Parallel()
	s, k := start(t), key()
	third := make(chan struct{})
	s.fault = func(verb string, n int) fault {
		switch {
		case verb != "renew":
			return none
		case n == 9:
			close(third)
		case n == 2:
			return lost
		case n == 5:
			return unavailable
		}
		return none
	}
	_, err := connect(t, s, client.WithLease(3*time.Second)).Once(t.Context(), k, func(ctx context.Context, _ client.Grant) (client.Response, error) {
		select {
		case <-third:
		case <-ctx.Done():
			return client.Response{}, context.Cause(ctx)
		}
		if state := s.state(t, k); state != "in_progress" {
			t.Errorf("meanwhile it is %s", state)
		}
		return client.Response{Status: 200}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// What counts is the lease that was given, not the one that was asked for.
func TestShorterLeaseThanAskedFor(t *testing.T) {
	t.Parallel()
	s, k := start(t), key()
	inner, renewed := s.server, make(chan struct{}, 100)
	s.server = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		shorter := bytes.ReplaceAll(body, []byte(`"lease_seconds":30`), []byte(`"lease_seconds":1`))
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(shorter)), int64(len(shorter))
		inner.ServeHTTP(w, r)
		if path.Base(r.URL.Path) == "renew" {
			renewed <- struct{}{}
		}
	})
	_, err := connect(t, s).Once(t.Context(), k, func(ctx context.Context, _ client.Grant) (client.Response, error) {
		for range 2 {
			select {
			case <-renewed:
			case <-ctx.Done():
				return client.Response{}, context.Cause(ctx)
			case <-time.After(5 * time.Second):
				return client.Response{}, errors.New("it was not renewed in time")
			}
		}
		return client.Response{Status: 200}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A service that cannot be reached ends the effect when the lease has ended, not later.
func TestLeaseEndsUnrenewed(t *testing.T) {
	t.Parallel()
	s, k := start(t), key()
	s.fault = func(verb string, _ int) fault {
		if verb == "renew" {
			return refused
		}
		return none
	}
	var cause error
	began := time.Now()
	_, err := connect(t, s, client.WithLease(2*time.Second)).Once(t.Context(), k, untilEnded(&cause))
	var doubt *client.InDoubtError
	if !errors.Is(cause, client.ErrLeaseEnded) || !errors.Is(err, client.ErrLeaseEnded) || !errors.As(err, &doubt) || client.NothingHappened(err) {
		t.Fatalf("%v; %v", cause, err)
	}
	if took := time.Since(began); took < time.Second || took > 10*time.Second {
		t.Errorf("it was broken off after %v", took)
	}
}

// takeOver has another take over from a holder whose lease has passed, which it does not know.
func takeOver(t *testing.T, s *service, k client.Key) string {
	t.Helper()
	s.pass(t, time.Minute)
	_, out := s.post(t, k, "reserve", obj{"owner": "other"})
	return s.reserve(t, k, obj{"takeovers": out["takeovers"]})
}

func TestLeaseLost(t *testing.T) {
	t.Parallel()
	s, k := start(t), key()
	var cause error
	_, err := connect(t, s, client.WithLease(3*time.Second)).Once(t.Context(), k, func(ctx context.Context, g client.Grant) (client.Response, error) {
		takeOver(t, s, k)
		return untilEnded(&cause)(ctx, g)
	})
	var problem *client.ProblemError
	if !errors.Is(err, client.ErrLeaseEnded) || !errors.As(err, &problem) || problem.Problem.Code != "lease_lost" || client.NothingHappened(err) {
		t.Fatalf("%v; %v", cause, err)
	}
}

// Who was taken over and has acted all the same tells it, and the newer holder replays.
func TestLateRecord(t *testing.T) {
	t.Parallel()
	s, k, e := start(t), key(), &effect{}
	response, err := connect(t, s).Once(t.Context(), k, func(ctx context.Context, g client.Grant) (client.Response, error) {
		takeOver(t, s, k)
		return e.charge(ctx, g)
	})
	if err != nil || response.Duplicate || s.state(t, k) != "recorded" {
		t.Fatalf("%+v %v, and it is %s", response, err, s.state(t, k))
	}
}

func TestDuplicateIsTold(t *testing.T) {
	t.Parallel()
	s, k, e := start(t), key(), &effect{}
	response, err := connect(t, s).Once(t.Context(), k, func(ctx context.Context, g client.Grant) (client.Response, error) {
		id := takeOver(t, s, k)
		s.post(t, k, "record", obj{"reservation_id": id, "response": obj{"status": 207}})
		return e.charge(ctx, g)
	})
	if err != nil || !response.Duplicate || response.Replayed || response.Status != 207 {
		t.Fatalf("%+v %v", response, err)
	}
}

// What was recorded while the release was on its way is replayed.
func TestNotDoneButRecorded(t *testing.T) {
	t.Parallel()
	s, k := start(t), key()
	response, err := connect(t, s).Once(t.Context(), k, func(context.Context, client.Grant) (client.Response, error) {
		id := takeOver(t, s, k)
		s.post(t, k, "record", obj{"reservation_id": id, "response": obj{"status": 207}})
		return client.Response{}, client.NotDone(errors.New("refused"))
	})
	if err != nil || !response.Replayed || response.Status != 207 {
		t.Fatalf("%+v %v", response, err)
	}
}

// before has something happen to the key when the first call of a verb is on its way.
func before(s *service, verb string, do func()) {
	s.fault = func(v string, n int) fault {
		if v == verb && n == 1 {
			do()
		}
		return none
	}
}

// A worker that vanishes before it dispatches leaves no doubt, and one that is late to dispatch does not act.
func TestOvertakenBeforeDispatch(t *testing.T) {
	t.Parallel()
	s, k := start(t), key()
	before(s, "dispatch", func() {
		s.pass(t, time.Minute)
		s.reserve(t, k, nil)
	})
	_, err := connect(t, s).Once(t.Context(), k, never(t))
	var busy *client.InProgressError
	if !errors.As(err, &busy) {
		t.Fatal(err)
	}
}

func TestRecordedBeforeDispatch(t *testing.T) {
	t.Parallel()
	s, k := start(t), key()
	before(s, "dispatch", func() {
		s.pass(t, time.Minute)
		id := s.reserve(t, k, nil)
		s.post(t, k, "record", obj{"reservation_id": id, "response": obj{"status": 207}})
	})
	response, err := connect(t, s).Once(t.Context(), k, never(t))
	if err != nil || !response.Replayed || response.Status != 207 {
		t.Fatalf("%+v %v", response, err)
	}
}

// Neither the dispatch nor its repeats come through, and meanwhile another has recorded.
func TestRecordedWhileDispatchIsNotAnswered(t *testing.T) {
	t.Parallel()
	s, k := start(t), key()
	var once sync.Once
	s.fault = func(verb string, _ int) fault {
		if verb != "dispatch" {
			return none
		}
		once.Do(func() {
			s.pass(t, time.Minute)
			id := s.reserve(t, k, nil)
			s.post(t, k, "record", obj{"reservation_id": id, "response": obj{"status": 207}})
		})
		return refused
	}
	response, err := connect(t, s, client.WithPatience(200*time.Millisecond)).Once(t.Context(), k, never(t))
	if err != nil || !response.Replayed || response.Status != 207 {
		t.Fatalf("%+v %v", response, err)
	}
}

// A reserve whose answer takes longer than its lease gives no right to begin: the lease is revived first.
func TestAnswerSlowerThanTheLease(t *testing.T) {
	t.Parallel()
	s, k, e := start(t), key(), &effect{}
	inner := s.server
	s.server = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inner.ServeHTTP(w, r)
		if s.count("dispatch") == 0 {
			<-time.After(1100 * time.Millisecond) // the answer is on its way for so long
		}
	})
	c := connect(t, s, client.WithLease(time.Second), client.WithImplicitDispatch())
	if _, err := c.Once(t.Context(), k, e.charge); err != nil {
		t.Fatal(err)
	}
	if e.want(t, 1); s.count("dispatch") != 1 {
		t.Errorf("%d dispatches", s.count("dispatch"))
	}
}

func TestImplicitDispatchSavesACall(t *testing.T) {
	t.Parallel()
	s, k, e := start(t), key(), &effect{}
	if _, err := connect(t, s, client.WithImplicitDispatch()).Once(t.Context(), k, e.charge); err != nil {
		t.Fatal(err)
	}
	if s.count("dispatch") != 0 || s.count("reserve") != 1 || s.count("record") != 1 {
		t.Errorf("%v", s.calls)
	}
}
