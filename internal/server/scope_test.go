package server_test

import (
	"fmt"
	"testing"
)

// states are what another attempt may be in: how it gets there, and how other_attempts shows it.
var states = map[string]struct {
	make func(k key)
	show obj
}{
	"in progress":   {func(k key) { k.reserve().id() }, obj{"state": "reserved", "in_doubt": false}},
	"dispatched":    {func(k key) { k.dispatch(k.reserve().id()).want(200, "dispatched") }, obj{"state": "dispatched", "in_doubt": false}},
	"in doubt":      {func(k key) { k.leave() }, obj{"state": "reserved", "in_doubt": true}},
	"never began":   {func(k key) { k.leave(obj{"dispatch": "explicit"}) }, obj{"state": "reserved", "in_doubt": false}},
	"released":      {func(k key) { k.release(k.reserve().id()).want(200, "released") }, obj{"state": "released", "in_doubt": false}},
	"recorded":      {func(k key) { k.record(k.reserve().id(), obj{"status": 402}).want(201, "recorded") }, obj{"state": "recorded", "in_doubt": false, "response_status": 402}},
	"let go, doubt": {leaveDoubtBehind, obj{"state": "released", "in_doubt": true}},
}

// leaveDoubtBehind has the key released by one who took it over from one who may have acted.
func leaveDoubtBehind(k key) {
	k.leave()
	k.release(k.reserve(taking(takeover(k.attempt, 1))).id()).want(200, "in_doubt")
}

// What stands in the way of attempt 1, by the state of one other attempt.
func TestOtherAttemptsInTheWay(t *testing.T) {
	t.Parallel()
	later := map[string]string{
		"in progress": "in_progress", "dispatched": "in_progress", "in doubt": "in_doubt", "let go, doubt": "in_doubt", "recorded": "recorded",
		"never began": "reserved", "released": "reserved",
	}
	earlier := map[string]string{
		"in progress": "in_progress", "dispatched": "in_progress", "in doubt": "in_doubt", "let go, doubt": "in_doubt", "recorded": "reserved",
		"never began": "reserved", "released": "reserved",
	}
	withClock(t, func(t *testing.T, s *service) {
		for other, want := range map[int]map[string]string{0: earlier, 2: later} {
			for state, outcome := range want {
				k := s.key(t)
				states[state].make(k.at(other))
				show := []obj{with(states[state].show, obj{"attempt": other})}
				where := fmt.Sprintf("attempt %d %s", other, state)

				checkReplay(t, where, k.at(1).replay(""), outcome, other, show)
				checkUnreserved(t, where, k.at(1), outcome, other)
				if other == 0 && state == "recorded" {
					k.at(3).reserve(obj{"scope": "task"}).want(200, "recorded")
				}
				k = s.key(t) // where nothing was recorded on attempt 1
				states[state].make(k.at(other))
				task := outcome
				if state == "recorded" {
					task = "recorded" // an earlier one too
				}
				checkReserve(t, where+", scope task", k.at(1).reserve(obj{"scope": "task"}), task, other, show)
				if task == "reserved" {
					continue // and so it would be in scope attempt
				}
				checkReserve(t, where, k.at(1).reserve(), outcome, other, show)
			}
		}
	})
}

func checkReserve(t *testing.T, where string, a answer, outcome string, other int, show []obj) {
	t.Helper()
	if a.body["outcome"] != outcome {
		t.Errorf("%s: want %s, got %s", where, outcome, a)
		return
	}
	a.has(obj{"other_attempts": show})
	switch outcome {
	case "recorded":
		a.has(obj{"replayed_attempt": other, "attempt": 1, "response": obj{"status": 402, "headers": []any{}}})
	case "in_progress", "in_doubt":
		a.has(obj{"attempt": other})
	}
}

// checkReplay expects what a reserve of scope attempt would be answered.
func checkReplay(t *testing.T, where string, a answer, outcome string, other int, show []obj) {
	t.Helper()
	if outcome != "reserved" {
		checkReserve(t, where+", replay", a, outcome, other, show)
		return
	}
	if a.status != 404 {
		t.Errorf("%s: replay: %s", where, a)
	}
}

// checkUnreserved records without a reservation.
func checkUnreserved(t *testing.T, where string, k key, outcome string, other int) {
	t.Helper()
	a := k.record("", obj{"status": 200}, obj{"owner": "x"})
	switch outcome {
	case "reserved":
		a.want(201, "recorded").has(obj{"attempt": 1, "recorded_by": "x", "fence": 1, "late": false})
	case "recorded":
		a.want(409, "already_recorded").has(obj{"attempt": other, "response": obj{"status": 402, "headers": []any{}}})
	default:
		if a.body["outcome"] != outcome {
			t.Errorf("%s: record without a reservation: %s", where, a)
		}
		a.has(obj{"attempt": other})
	}
}

// First the key itself is judged, whatever the others are.
func TestTheKeyItselfComesFirst(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		k := s.key(t)
		zero := k.leave()
		two := k.at(2)
		two.record(two.reserve(taking(takeover(0, 1))).id(), obj{"status": 200}).want(201, "recorded")
		k.record(zero.id(), obj{"status": 402}).want(201, "recorded").has(obj{"late": true})
		for _, scope := range []string{"attempt", "task"} {
			k.reserve(obj{"scope": scope}).want(200, "recorded").has(obj{"replayed_attempt": 0})
			two.reserve(obj{"scope": scope}).want(200, "recorded").has(obj{"replayed_attempt": 2})
		}
		k.replay("").want(200, "recorded").has(obj{"replayed_attempt": 0, "other_attempts": nil})
		two.replay("").want(200, "recorded").has(obj{"replayed_attempt": 2, "other_attempts": []obj{
			{"attempt": 0, "state": "recorded", "in_doubt": false, "response_status": 402},
		}})

		own := s.key(t)
		own.leave()
		own.at(1).record(own.at(1).reserve(taking(takeover(0, 1))).id(), obj{}).want(201, "recorded")
		own.reserve().want(409, "in_doubt").has(obj{"attempt": 0}).has(taking(takeover(0, 1)))
		own.reserve(taking(takeover(0, 1))).want(200, "recorded").has(obj{"replayed_attempt": 1})
	})
}

func TestOthersAreLookedAtHighestFirst(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		k := s.key(t)
		k.leave()
		k.at(1).record(k.at(1).reserve(taking(takeover(0, 1))).id(), obj{"status": 200}).want(201, "recorded")
		k.at(2).reserve(obj{"scope": "task"}).want(200, "recorded").has(obj{"replayed_attempt": 1})
		k.at(2).reserve().want(409, "in_doubt").has(obj{"attempt": 0})
		k.at(3).record(k.at(3).reserve(taking(takeover(0, 1))).id(), obj{"status": 500}).want(201, "recorded")
		k.at(2).reserve(obj{"scope": "task"}).want(200, "recorded").has(obj{"replayed_attempt": 3, "other_attempts": []obj{
			{"attempt": 0, "state": "reserved", "in_doubt": true},
			{"attempt": 1, "state": "recorded", "in_doubt": false, "response_status": 200},
			{"attempt": 3, "state": "recorded", "in_doubt": false, "response_status": 500},
		}})
	})
}

func TestOtherAttemptsAreListed(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		k := s.key(t)
		k.reserve(obj{"scope": "task"}).want(201, "reserved").has(obj{"other_attempts": []any{}})
		k.at(1).reserve().want(409, "in_progress").has(obj{"attempt": 0, "other_attempts": []obj{
			{"attempt": 0, "state": "reserved", "in_doubt": false},
		}})
		// Listed for an attempt above 0, or for scope task; inspect sees that there is no list elsewhere.
		k.reserve().want(409, "in_progress")
		k.replay("").want(409, "in_progress")
		last := s.key(t).at(2147483647)
		last.reserve().want(201, "reserved").has(obj{"attempt": 2147483647, "other_attempts": []any{}})
		last.at(0).reserve().want(409, "in_progress").has(obj{"attempt": 2147483647})
	})
}

func TestSameReservationOnAnotherAttempt(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		k := s.key(t)
		id := k.reserve().id()
		k.release(id).want(200, "released")
		k.at(1).dispatch(id).want(404, "not_found")
		k.at(1).reserve(obj{"reservation_id": id}).want(201, "reserved").has(obj{"fence": 1}) // another key
	})
}
