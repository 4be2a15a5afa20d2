package server_test

import (
	"fmt"
	"testing"

	"github.com/google/uuid"
)

// Every verb is judged in one order: absent, hash mismatch (reserve only), never granted, recorded (a repeated release is
// 200 first), spent (at record: only whom rule 1 does not admit), live, in doubt.
func TestOrderOfJudgement(t *testing.T) {
	t.Parallel()
	unknown := uuid.NewString()
	// A situation makes a key, and names the reservation that calls on it.
	situations := map[string]struct {
		make func(k key) string
		want map[string]string // status and outcome, by verb
	}{
		"absent": {func(key) string { return unknown }, map[string]string{
			"dispatch": "404 not_found", "renew": "404 not_found", "record": "404 not_found", "release": "404 not_found", "reserve": "201 reserved",
		}},
		"never granted, live": {func(k key) string { k.reserve().id(); return unknown }, map[string]string{
			"dispatch": "409 not_holder", "renew": "409 not_holder", "record": "409 not_holder", "release": "409 not_holder", "reserve": "409 in_progress",
		}},
		"never granted, in doubt": {func(k key) string { k.leave(); return unknown }, map[string]string{
			"dispatch": "409 not_holder", "renew": "409 not_holder", "record": "409 not_holder", "release": "409 not_holder", "reserve": "409 in_doubt",
		}},
		"never granted, recorded": {func(k key) string { recorded(k); return unknown }, map[string]string{
			"dispatch": "409 not_holder", "renew": "409 not_holder", "record": "409 not_holder", "release": "409 not_holder", "reserve": "200 recorded",
		}},
		"never granted, released": {func(k key) string { released(k); return unknown }, map[string]string{
			"dispatch": "409 not_holder", "renew": "409 not_holder", "record": "409 not_holder", "release": "409 not_holder", "reserve": "201 reserved",
		}},
		"recorded": {recorded, map[string]string{
			"dispatch": "409 already_recorded", "renew": "409 already_recorded", "record": "409 already_recorded", "release": "409 already_recorded",
			"reserve": "200 recorded",
		}},
		"released, then recorded by another": {func(k key) string { id := released(k); recorded(k); return id }, map[string]string{
			"dispatch": "409 already_recorded", "renew": "409 already_recorded", "record": "409 already_recorded", "release": "200 released",
			"reserve": "200 recorded",
		}},
		"released": {released, map[string]string{
			"dispatch": "409 lease_lost", "renew": "409 lease_lost", "record": "409 lease_lost", "release": "200 released", "reserve": "409 lease_lost",
		}},
		"released, held by another": {func(k key) string { id := released(k); k.reserve().id(); return id }, map[string]string{
			"dispatch": "409 lease_lost", "renew": "409 lease_lost", "record": "409 lease_lost", "release": "200 released", "reserve": "409 lease_lost",
		}},
		"released, then in doubt": {func(k key) string { id := released(k); k.leave(); return id }, map[string]string{
			"dispatch": "409 lease_lost", "renew": "409 lease_lost", "record": "409 lease_lost", "release": "200 in_doubt", "reserve": "409 lease_lost",
		}},
		"superseded, held by another": {superseded, map[string]string{
			"dispatch": "409 lease_lost", "renew": "409 lease_lost", "record": "409 lease_lost", "release": "200 released", "reserve": "409 lease_lost",
		}},
		"superseded, then recorded": {func(k key) string {
			id := k.leave(obj{"dispatch": "explicit"}).id()
			recorded(k)
			return id
		}, map[string]string{
			"dispatch": "409 already_recorded", "renew": "409 already_recorded", "record": "409 already_recorded", "release": "409 already_recorded",
			"reserve": "200 recorded",
		}},
		"taken over, held by another": {takenOver, map[string]string{
			"dispatch": "409 lease_lost", "renew": "409 lease_lost", "record": "201 recorded", "release": "200 released", "reserve": "409 lease_lost",
		}},
		"taken over, then in doubt": {func(k key) string { id := takenOver(k); k.s.pass(k.t, lease); return id }, map[string]string{
			"dispatch": "409 lease_lost", "renew": "409 lease_lost", "record": "201 recorded", "release": "200 in_doubt", "reserve": "409 lease_lost",
		}},
		"its lease passed": {func(k key) string { return k.leave().id() }, map[string]string{
			"dispatch": "200 dispatched", "renew": "200 renewed", "record": "201 recorded", "release": "200 released", "reserve": "409 in_doubt",
		}},
		"holding": {func(k key) string { return k.reserve().id() }, map[string]string{
			"dispatch": "200 dispatched", "renew": "200 renewed", "record": "201 recorded", "release": "200 released", "reserve": "201 reserved",
		}},
	}
	withClock(t, func(t *testing.T, s *service) {
		for name, situation := range situations {
			for verb, want := range situation.want {
				k := s.key(t)
				id := situation.make(k)
				// First what comes first: what is malformed is told before anything is judged.
				k.post(verb, obj{"reservation_id": "no UUID", "owner": "w", "response": obj{}}).wantField(wrongField(verb))
				var a answer
				switch verb {
				case "reserve":
					a = k.reserve(obj{"reservation_id": id})
				case "record":
					a = k.record(id, obj{"body": "offered"})
				default:
					a = k.post(verb, obj{"reservation_id": id})
				}
				if got := fmt.Sprint(a.status, " ", a.body["outcome"]); got != want {
					t.Errorf("%s: %s: want %s, got %s", name, verb, want, a)
				}
			}
		}
	})
}

// wrongField is the member of a malformed call that is named: release and dispatch know no response.
func wrongField(verb string) string {
	switch verb {
	case "dispatch", "renew", "release":
		return "owner"
	case "reserve":
		return "response"
	}
	return "reservation_id"
}

func recorded(k key) string {
	id := k.reserve().id()
	k.record(id, obj{"body": "kept"}).want(201, "recorded")
	return id
}

func released(k key) string {
	id := k.reserve().id()
	k.release(id).want(200, "released")
	return id
}

func superseded(k key) string {
	id := k.leave(obj{"dispatch": "explicit"}).id()
	k.reserve().id()
	return id
}

func takenOver(k key) string {
	id := k.leave().id()
	k.reserve(taking(takeover(0, 1)), obj{"lease_seconds": 30}).id()
	return id
}

// A hash mismatch is told before that a reservation is spent, or that the key is recorded, live or in doubt.
func TestMismatchComesFirst(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		for name, situation := range map[string]func(k key) string{
			"live":           func(k key) string { return k.reserve(hashed("a")).id() },
			"spent, live":    func(k key) string { id := released(k); k.reserve(hashed("a")).id(); return id },
			"spent, doubt":   func(k key) string { id := released(k); k.leave(hashed("a")); return id },
			"recorded":       func(k key) string { id := k.reserve(hashed("a")).id(); k.record(id, obj{}); return id },
			"spent recorded": func(k key) string { id := released(k); k.record(k.reserve(hashed("a")).id(), obj{}); return id },
		} {
			k := s.key(t)
			if a := k.reserve(hashed("b"), obj{"reservation_id": situation(k)}); a.status != 422 {
				t.Errorf("%s: %s", name, a)
			}
		}
		spent := s.key(t)
		id := released(spent)
		spent.reserve(hashed("b"), obj{"reservation_id": id}).want(409, "lease_lost") // a free key compares nothing
	})
}
