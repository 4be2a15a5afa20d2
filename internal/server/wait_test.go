package server_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/idemstore/idemstore/internal/pgtest"
)

var patiently = obj{"wait_seconds": 60}

// await makes a call that waits for the key, and hands out its answer once it is there.
func (k key) await(call func() answer) func() answer {
	k.t.Helper()
	done := make(chan answer, 1)
	start := time.Now()
	go func() {
		defer close(done)
		done <- call()
	}()
	k.t.Cleanup(func() {
		for range done { // a test that failed ends no earlier than its calls
		}
	})
	k.waited()
	return func() answer {
		k.t.Helper()
		a := <-done
		if took := time.Since(start); took > soon {
			k.t.Errorf("answered after %s: %s", took, a)
		}
		return a
	}
}

// A wait is answered as soon as the key is recorded.
func TestWaitForARecord(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		k := s.key(t)
		holder := k.reserve().id()
		reserve := k.await(func() answer { return k.reserve(patiently) })
		replay := k.await(func() answer { return k.replay("?wait_seconds=60") })
		later := k.await(func() answer { return k.at(1).reserve(patiently, obj{"scope": "task"}) })
		k.renew(holder, obj{"lease_seconds": 120}).want(200, "renewed") // a change, and still in progress
		k.dispatch(holder).want(200, "dispatched")
		k.record(holder, obj{"body": "x"}).want(201, "recorded")
		response := obj{"response": obj{"status": 200, "headers": []any{}, "body": "x"}}
		reserve().want(200, "recorded").has(response)
		replay().want(200, "recorded").has(response)
		later().want(200, "recorded").has(response).has(obj{"replayed_attempt": 0})
	})
}

// And as soon as it is let go: then it is granted.
func TestWaitForARelease(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		k, replayed, attempts := s.key(t), s.key(t), s.key(t)
		a, b, c := k.reserve().id(), replayed.reserve().id(), attempts.reserve().id()
		reserve := k.await(func() answer { return k.reserve(patiently) })
		replay := replayed.await(func() answer { return replayed.replay("?wait_seconds=60") })
		later := attempts.await(func() answer { return attempts.at(1).reserve(patiently) })
		k.release(a).want(200, "released")
		replayed.release(b).want(200, "released")
		attempts.release(c).want(200, "released")
		reserve().want(201, "reserved").has(obj{"fence": 2, "doubts": []any{}})
		replay().want(404, "not_found")
		later().want(201, "reserved").has(obj{"fence": 1, "attempt": 1})
	})
}

// What another replica over the same database does ends a wait too.
func TestWaitForAnotherReplica(t *testing.T) {
	t.Parallel()
	s := shared.service(t, "postgres")
	another := start(t, setup{database: shared.postgresURL(t)})
	recorded, released := s.key(t), s.key(t)
	a, b := recorded.reserve().id(), released.reserve().id()
	first := recorded.await(func() answer { return recorded.reserve(patiently) })
	second := released.await(func() answer { return released.reserve(patiently) })
	recorded.s, released.s = another, another
	recorded.record(a, obj{}).want(201, "recorded")
	released.release(b).want(200, "released")
	first().want(200, "recorded")
	second().want(201, "reserved").has(obj{"fence": 2})
}

// A wait that sees a lease pass answers in_doubt and takes nothing over, whatever takeovers it sent.
func TestWaitTakesNothingOver(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		k, replayed, explicit := s.key(t), s.key(t), s.key(t)
		for _, k := range []key{k, replayed} {
			k.reserve(obj{"lease_seconds": 30}).id()
		}
		explicit.reserve(obj{"lease_seconds": 30, "dispatch": "explicit"}).id()
		reserve := k.await(func() answer { return k.reserve(patiently, taking(takeover(0, 1))) })
		replay := replayed.await(func() answer { return replayed.replay("?wait_seconds=60") })
		granted := explicit.await(func() answer { return explicit.reserve(patiently) })
		s.pass(t, lease)
		reserve().want(409, "in_doubt").has(taking(takeover(0, 1))).has(obj{"takeovers_left": 16})
		replay().want(409, "in_doubt")
		granted().want(201, "reserved").has(obj{"fence": 2, "doubts": []any{}}) // who cannot have acted is no doubt
		k.reserve(patiently, taking(takeover(0, 1))).want(201, "reserved").has(obj{"fence": 2})
	})
}

func TestWaitEndsByItself(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		k := s.key(t)
		k.reserve(obj{"lease_seconds": 600}).id()
		for _, call := range []func() answer{
			func() answer { return k.reserve(obj{"wait_seconds": 1}) }, func() answer { return k.replay("?wait_seconds=1") },
		} {
			start := time.Now()
			call().want(409, "in_progress")
			if took := time.Since(start); took < time.Second || took > soon {
				t.Errorf("a wait of a second took %s", took)
			}
		}
	})
}

// There is nothing to wait for where the key is free, recorded, in doubt or another's request.
func TestNothingToWaitFor(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		free, doubt, recorded, hash := s.key(t), s.key(t), s.key(t), s.key(t)
		doubt.leave()
		recorded.record("", obj{}, obj{"owner": "w"}).want(201, "recorded")
		hash.reserve(hashed("a")).id()
		start := time.Now()
		free.replay("?wait_seconds=60").want(404, "not_found")
		free.reserve(patiently).want(201, "reserved")
		doubt.reserve(patiently).want(409, "in_doubt")
		doubt.replay("?wait_seconds=60").want(409, "in_doubt")
		recorded.reserve(patiently).want(200, "recorded")
		hash.reserve(patiently, hashed("b")).want(422, "request_mismatch")
		if took := time.Since(start); took > soon {
			t.Errorf("it took %s", took)
		}
	})
}

// A caller that hung up while it waited is granted nothing.
func TestHangUpWhileWaiting(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		k := s.key(t)
		holder := k.reserve().id()
		c := call{method: http.MethodPost, path: k.path("reserve"), body: with(patiently, obj{"owner": "gone"})}
		ctx, hangUp := context.WithCancel(t.Context())
		req := c.request(t, s).WithContext(ctx)
		done := make(chan error, 1)
		go func() {
			res, err := client.Do(req)
			if err == nil {
				res.Body.Close()
			}
			done <- err
		}()
		k.waited()
		hangUp()
		if err := <-done; err == nil {
			t.Fatal("answered")
		}
		var lines []entry
		eventually(t, "the server does not notice", func() bool {
			lines = s.journal.of(req.Header.Get("X-Request-Id"))
			return len(lines) > 0
		})
		if len(lines) != 1 || lines[0].Level == "error" { // nothing is wrong with the service
			t.Errorf("in the log: %+v", lines)
		}
		k.release(holder).want(200, "released")
		k.reserve().want(201, "reserved").has(obj{"fence": 2})
	})
}

// A wait is not cut by the server's time for reading a request.
func TestWaitOutlastsTheReadTimeout(t *testing.T) {
	t.Parallel()
	s := start(t, setup{database: inMemory, http: func(h *http.Server) {
		h.ReadHeaderTimeout, h.ReadTimeout, h.WriteTimeout, h.IdleTimeout = 100*time.Millisecond, 200*time.Millisecond, time.Minute, time.Minute
	}})
	k := s.key(t)
	k.reserve(obj{"lease_seconds": 600}).id()
	k.reserve(obj{"wait_seconds": 1}).want(409, "in_progress")
	k.replay("?wait_seconds=1").want(409, "in_progress") // on the same connection
}

// Waiters hold no connection to the database, and do no harm to other calls.
func TestManyWaiters(t *testing.T) {
	t.Parallel()
	const waiters, keys, conns = 500, 50, 10
	url := pgtest.New(t)
	s := start(t, setup{database: url, maxConns: conns})
	before := latencies(t, s)

	var held []key
	var ids []string
	answers := make(chan answer, waiters)
	for range keys {
		k := s.key(t)
		held, ids = append(held, k), append(ids, k.reserve(obj{"lease_seconds": 3600}).id())
	}
	for i := range waiters {
		k := held[i%keys]
		go func() {
			if i%2 == 0 {
				answers <- k.reserve(patiently)
			} else {
				answers <- k.replay("?wait_seconds=60")
			}
		}()
	}
	eventually(t, "they do not all wait", func() bool { return s.waiting.Load() >= waiters*9/10 })
	during := latencies(t, s)
	if n := sessions(t, url); n > conns {
		t.Errorf("%d sessions while %d wait", n, waiters)
	}
	t.Logf("reserve and record: %s alone, %s beside %d waiters", before, during, waiters)
	if during > 20*before+100*time.Millisecond {
		t.Errorf("reserve and record take %s beside %d waiters, and %s alone", during, waiters, before)
	}
	start := time.Now()
	for i, k := range held {
		k.record(ids[i], obj{}).want(201, "recorded")
	}
	for range waiters {
		(<-answers).want(200, "recorded")
	}
	if took := time.Since(start); took > soon {
		t.Errorf("answered after %s", took)
	}
}

// latencies is the median time of a reserve and its record.
func latencies(t *testing.T, s *service) time.Duration {
	t.Helper()
	var took []time.Duration
	for range 51 {
		k := s.key(t)
		start := time.Now()
		k.record(k.reserve(obj{"reservation_id": uuid.NewString()}).id(), obj{}).want(201, "recorded")
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// sessions is how many clients a database has, beside this one.
func sessions(t *testing.T, url string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	_, name, _ := strings.Cut(url[strings.LastIndex(url, "/"):], "/")
	name, _, _ = strings.Cut(name, "?")
	err = conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND pid <> pg_backend_pid()", name).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
