package server_test

import (
	"math"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/idemstore/idemstore/internal/server"
)

const day = 24 * time.Hour

var isUUID = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`).MatchString

func TestReserveGrants(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		k := s.key(t)
		a := k.post("reserve", obj{"owner": "worker-1"}).want(201, "reserved").has(obj{
			"task_id": k.task, "attempt": 0, "fence": 1, "owner": "worker-1", "doubts": []any{}, "handler": nil,
			"lease_seconds_left": 60, "renew_after_seconds": 20, "idempotency_key": "conduit-task-" + k.task,
		})
		if !isUUID(a.text("reservation_id")) {
			t.Errorf("the server made no UUID: %s", a)
		}
		if lease := a.time("lease_until").Sub(a.time("reserved_at")); lease != time.Minute {
			t.Errorf("a lease of %s", lease)
		}
		if kept := a.time("expires_at").Sub(a.time("lease_until")); kept != 90*day {
			t.Errorf("kept for %s after the lease", kept)
		}
		if age := time.Since(a.time("reserved_at")); age.Abs() > time.Minute {
			t.Errorf("reserved %s ago", age)
		}
	})
}

func TestReserveAnswersWhatItWasGiven(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		id := uuid.NewString()
		s.key(t).reserve(obj{
			"owner": "wörker ✓ 1", "handler": "http.call \"☃\"", "reservation_id": strings.ToUpper(id), "lease_seconds": 30,
			"request_hash": "sha256:9f86", "dispatch": "implicit", "scope": "attempt", "wait_seconds": 0, "takeovers": []any{},
		}).want(201, "reserved").has(obj{
			"owner": "wörker ✓ 1", "handler": "http.call \"☃\"", "reservation_id": id, "lease_seconds_left": 30, "renew_after_seconds": 10,
		})
	})
}

func TestReserveTakesNullForAbsent(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		s.key(t).post("reserve", obj{
			"owner": "w", "reservation_id": nil, "handler": nil, "request_hash": nil, "lease_seconds": nil, "dispatch": nil, "scope": nil,
			"wait_seconds": nil, "takeovers": nil,
		}).want(201, "reserved").has(obj{"lease_seconds_left": 60, "handler": nil})
	})
}

func TestIdempotencyKeyFollowsItsTemplate(t *testing.T) {
	t.Parallel()
	s := start(t, setup{
		database: inMemory, config: server.Config{KeyTemplate: "{attempt}/{task_id}/{task_id}"},
	})
	k := s.key(t).at(7)
	want := "7/" + k.task + "/" + k.task
	first := k.reserve().want(201, "reserved").has(obj{"idempotency_key": want})
	k.release(first.id()).want(200, "released")
	k.reserve().want(201, "reserved").has(obj{"idempotency_key": want}) // the same for each delivery
}

// An UUID in any letter case is the same task; any other text is taken as it is.
func TestTaskIDs(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		k := s.key(t)
		upper := k
		upper.task = strings.ToUpper(k.task)
		id := upper.reserve().want(201, "reserved").has(obj{"task_id": k.task, "idempotency_key": "conduit-task-" + k.task}).id()
		k.reserve().want(409, "in_progress")
		upper.record(strings.ToUpper(id), obj{}).want(201, "recorded").has(obj{"task_id": k.task})

		lower, mixed := s.key(t), s.key(t)
		lower.task = "order:" + lower.task[:8] + ".~_@-x"
		mixed.task = strings.ToUpper(lower.task)
		lower.reserve().want(201, "reserved").has(obj{"task_id": lower.task})
		mixed.reserve().want(201, "reserved").has(obj{"task_id": mixed.task})
	})
}

func TestReservationIsNotTheTask(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		k := s.key(t)
		k.reserve(obj{"reservation_id": k.task}).wantField("reservation_id")
		k.reserve(obj{"reservation_id": strings.ToUpper(k.task)}).wantField("reservation_id")
		k.replay("").want(404, "not_found")
	})
}

// Whatever a holder sends again is the same grant; whatever differs is a newcomer's.
func TestReserveAgain(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		for name, again := range map[string]struct {
			with    obj
			outcome string
		}{
			"the same":        {obj{}, "reserved"},
			"in capitals":     {obj{"reservation_id": strings.ToUpper}, "reserved"},
			"longer lease":    {obj{"lease_seconds": 600, "handler": "another"}, "reserved"},
			"another owner":   {obj{"owner": "w2"}, "in_progress"},
			"another mode":    {obj{"dispatch": "explicit"}, "in_progress"},
			"another id":      {obj{"reservation_id": uuid.NewString()}, "in_progress"},
			"no id":           {obj{"reservation_id": nil}, "in_progress"},
			"under takeovers": {obj{"takeovers": []obj{{"attempt": 0, "fence": 1}}}, "reserved"},
		} {
			k := s.key(t)
			body := obj{"owner": "w", "reservation_id": uuid.NewString(), "lease_seconds": 30, "handler": "h"}
			first := k.post("reserve", body).want(201, "reserved")
			s.pass(t, time.Second)
			if upper, ok := again.with["reservation_id"].(func(string) string); ok {
				again.with["reservation_id"] = upper(first.id())
			}
			second := k.post("reserve", with(body, again.with))
			if second.body["outcome"] != again.outcome {
				t.Errorf("%s: %s", name, second)
			}
			if again.outcome == "reserved" {
				second.has(obj{
					"fence": 1, "lease_until": first.body["lease_until"], "reserved_at": first.body["reserved_at"], "handler": "h",
					"reservation_id": first.body["reservation_id"], "expires_at": first.body["expires_at"],
				})
				if left := second.number("lease_seconds_left"); left > 29 {
					t.Errorf("%s: %v seconds are left of 30 after more than one", name, left)
				}
			}
		}
	})
}

// Once it has dispatched, lapsed, recorded or let go, a holder that reserves again is answered as a newcomer is.
func TestReserveAgainLater(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		body := func() obj { return obj{"owner": "w", "reservation_id": uuid.NewString(), "lease_seconds": 30} }

		dispatched, b := s.key(t), body()
		dispatched.dispatch(dispatched.post("reserve", b).id()).want(200, "dispatched")
		dispatched.post("reserve", b).want(409, "in_progress")

		renewed, b := s.key(t), body()
		a := renewed.renew(renewed.post("reserve", b).id(), obj{"lease_seconds": 600}).want(200, "renewed")
		renewed.post("reserve", b).want(201, "reserved").has(obj{"fence": 1, "lease_until": a.body["lease_until"]}) // as it is by now

		recorded, b := s.key(t), body()
		recorded.record(recorded.post("reserve", b).id(), obj{}).want(201, "recorded")
		recorded.post("reserve", b).want(200, "recorded")

		released, b := s.key(t), body()
		released.release(released.post("reserve", b).id()).want(200, "released")
		released.post("reserve", b).want(409, "lease_lost")

		lapsed, b := s.key(t), body()
		lapsed.post("reserve", b).id()
		s.pass(t, 30*time.Second)
		lapsed.post("reserve", b).want(409, "in_doubt")

		superseded, b := s.key(t), with(body(), obj{"dispatch": "explicit"})
		superseded.post("reserve", b).id()
		s.pass(t, 30*time.Second)
		superseded.reserve().want(201, "reserved").has(obj{"fence": 2})
		superseded.post("reserve", b).want(409, "lease_lost")
	})
}

func TestOwnersNameProvesNothing(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		k := s.key(t)
		k.reserve(obj{"owner": "w"}).id()
		k.reserve(obj{"owner": "w"}).want(409, "in_progress")
	})
}

func TestReserveInProgress(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		for lease, retry := range map[int]float64{1: 1, 30: 30, 86400: 60} {
			k := s.key(t)
			held := k.reserve(obj{"owner": "holder", "lease_seconds": lease}).want(201, "reserved")
			a := k.reserve()
			if lease == 1 && a.status != 409 {
				continue // the second has passed
			}
			a.want(409, "in_progress").has(obj{
				"task_id": k.task, "attempt": 0, "owner": "holder", "fence": 1, "lease_until": held.body["lease_until"],
				"expires_at": held.body["expires_at"],
			})
			// Up, and a second more where the lease was dated from the later end of what the time may be.
			if got := a.number("retry_after_seconds"); got < 1 || got > min(retry+1, 60) || math.Abs(got-retry) > 20 {
				t.Errorf("lease of %d s: retry after %v s", lease, got)
			}
			if left := a.number("lease_seconds_left"); left > float64(lease) {
				t.Errorf("lease of %d s: %v s are left", lease, left)
			}
		}
	})
}

func TestFencesGrowWithEachGrant(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		k := s.key(t)
		for fence := range 4 {
			a := k.reserve().want(201, "reserved").has(obj{"fence": fence + 1, "doubts": []any{}})
			k.release(a.id()).want(200, "released").has(obj{"fence": fence + 1})
		}
	})
}

func TestOneOfManyIsGranted(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		k := s.key(t)
		var mu sync.Mutex
		outcomes := make(map[any]int)
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				a := k.reserve()
				mu.Lock()
				defer mu.Unlock()
				outcomes[a.body["outcome"]]++
			})
		}
		all.Wait()
		if outcomes["reserved"] != 1 || outcomes["in_progress"] != 19 {
			t.Errorf("20 at once: %v", outcomes)
		}
	})
}

// Two replicas over one database are one service.
func TestOneOfManyIsGrantedByTwoReplicas(t *testing.T) {
	t.Parallel()
	one := shared.service(t, "postgres")
	two := start(t, setup{database: shared.postgresURL(t)})
	k, l := one.key(t), two.key(t)
	l.task = k.task
	granted := make(chan string, 20)
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if a := []key{k, l}[i%2].reserve(); a.status == 201 {
				granted <- a.id()
			} else {
				a.want(409, "in_progress")
			}
		})
	}
	all.Wait()
	if len(granted) != 1 {
		t.Fatalf("%d were granted", len(granted))
	}
	id := <-granted
	k.dispatch(id).want(200, "dispatched")
	l.record(id, obj{"body": "x"}).want(201, "recorded")
	k.reserve().want(200, "recorded")
	l.reserve().want(200, "recorded")
}
