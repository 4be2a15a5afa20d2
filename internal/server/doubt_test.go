package server_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

// lease is what tests of passing leases reserve for.
const lease = 30 * time.Second

// leave reserves the key and lets the lease pass.
func (k key) leave(more ...obj) answer {
	k.t.Helper()
	a := k.reserve(append([]obj{{"lease_seconds": 30}}, more...)...).want(201, "reserved")
	k.s.pass(k.t, lease)
	return a
}

// doubtOf is a grant as it stands among doubts.
func doubtOf(grant answer, dispatched bool) obj {
	return obj{
		"owner": grant.body["owner"], "fence": grant.body["fence"], "reserved_at": grant.body["reserved_at"],
		"lease_until": grant.body["lease_until"], "dispatched": dispatched,
	}
}

func takeover(attempt, fence int) obj { return obj{"attempt": attempt, "fence": fence} }

func taking(takeovers ...obj) obj { return obj{"takeovers": takeovers} }

func TestInDoubtIsReportedNotGranted(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		k := s.key(t)
		grant := k.leave(obj{"owner": "gone"})
		want := obj{
			"task_id": k.task, "attempt": 0, "fence": 1, "doubts": []obj{doubtOf(grant, false)}, "takeovers": []obj{takeover(0, 1)},
			"takeovers_left": 16, "expires_at": grant.body["expires_at"],
		}
		for range 2 {
			k.reserve().want(409, "in_doubt").has(want)
			k.replay("").want(409, "in_doubt").has(want)
			k.record("", obj{}, obj{"owner": "x"}).want(409, "in_doubt").has(want)
		}
		if detail := k.reserve().text("detail"); !strings.Contains(detail, "gone") {
			t.Errorf("detail does not say who is gone: %s", detail)
		}
	})
}

// At lease_until itself the lease has passed: nobody holds the key a moment longer than it was told.
func TestLeaseEndsAtItsEnd(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		k := s.key(t)
		k.reserve(obj{"lease_seconds": 3600}).want(201, "reserved")
		s.pass(t, time.Hour-20*time.Second)
		k.reserve().want(409, "in_progress")
		s.pass(t, 20*time.Second)
		k.reserve().want(409, "in_doubt")
	})
}

func TestOnlyWhoMayHaveActedIsADoubt(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		dispatched, silent, early := s.key(t), s.key(t), s.key(t)
		a := dispatched.reserve(obj{"dispatch": "explicit", "lease_seconds": 30}).want(201, "reserved")
		dispatched.dispatch(a.id()).want(200, "dispatched")
		b := early.reserve(obj{"lease_seconds": 30}).want(201, "reserved")
		early.dispatch(b.id()).want(200, "dispatched")
		silent.leave(obj{"dispatch": "explicit"})

		got := dispatched.reserve().want(409, "in_doubt").body["doubts"].([]any)[0].(obj)
		if got["dispatched"] != true || got["owner"] != "w" {
			t.Errorf("dispatched: %v", got)
		}
		if early.reserve().want(409, "in_doubt").body["doubts"].([]any)[0].(obj)["dispatched"] != true {
			t.Error("an implicit grant that dispatched all the same does not say so")
		}
		silent.replay("").want(404, "not_found")
		silent.reserve().want(201, "reserved").has(obj{"fence": 2, "doubts": []any{}})

		inherited := s.key(t)
		first := inherited.leave()
		inherited.leave(obj{"dispatch": "explicit"}, taking(takeover(0, 1)))
		inherited.reserve().want(409, "in_doubt").has(obj{"fence": 2, "doubts": []obj{doubtOf(first, false)}}).has(taking(takeover(0, 2)))
	})
}

func TestTakeover(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		k := s.key(t)
		first := k.leave(obj{"owner": "first"})
		body := with(taking(takeover(0, 1)), obj{"owner": "second", "reservation_id": uuid.NewString(), "lease_seconds": 30})
		second := k.post("reserve", body).want(201, "reserved").has(obj{"fence": 2, "doubts": []obj{doubtOf(first, false)}})
		k.post("reserve", body).want(201, "reserved").has(obj{
			"fence": 2, "lease_until": second.body["lease_until"], "doubts": []obj{doubtOf(first, false)},
		})
		k.reserve(taking(takeover(0, 1))).want(409, "in_progress").has(obj{"owner": "second", "fence": 2})

		s.pass(t, lease)
		doubts := []obj{doubtOf(first, false), doubtOf(second, false)}
		for _, stale := range []obj{{}, taking(takeover(0, 1)), taking(takeover(0, 3)), taking(takeover(1, 2))} {
			k.reserve(stale).want(409, "in_doubt").has(obj{
				"fence": 2, "doubts": doubts, "takeovers": []obj{takeover(0, 2)}, "takeovers_left": 15,
			})
		}
		k.reserve(taking(takeover(0, 2))).want(201, "reserved").has(obj{"fence": 3, "doubts": doubts})
	})
}

// A takeover names a fresh reservation.
func TestTakeoverUnderAKnownReservation(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		k := s.key(t)
		first := k.leave()
		again := obj{"reservation_id": first.id()}
		k.reserve(again, taking(takeover(0, 1))).want(409, "lease_lost")
		second := k.leave(taking(takeover(0, 1)))
		k.reserve(again, taking(takeover(0, 2))).want(409, "lease_lost")
		k.reserve(obj{"reservation_id": second.id()}, taking(takeover(0, 2))).want(409, "lease_lost")
		k.reserve(again).want(409, "lease_lost") // spent for a plain reserve too
		k.reserve(taking(takeover(0, 2))).want(201, "reserved").has(obj{"fence": 3})
	})
}

func TestTakeoversAreIgnoredWhereNothingIsInDoubt(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		k := s.key(t)
		id := k.reserve(taking(takeover(0, 99), takeover(2147483647, 1))).want(201, "reserved").has(obj{"fence": 1}).id()
		k.reserve(taking(takeover(0, 1))).want(409, "in_progress")
		k.record(id, obj{}).want(201, "recorded")
		k.reserve(taking(takeover(0, 1))).want(200, "recorded")
	})
}

// Whatever revives a passed lease raises the fence: an old look never authorises a takeover.
func TestAnOldLookAuthorisesNothing(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		for name, revive := range map[string]func(k key, id string) answer{
			"renew":    func(k key, id string) answer { return k.renew(id, obj{"lease_seconds": 30}).want(200, "renewed") },
			"dispatch": func(k key, id string) answer { return k.dispatch(id).want(200, "dispatched") },
		} {
			k := s.key(t)
			grant := k.leave()
			k.reserve().want(409, "in_doubt").has(taking(takeover(0, 1)))
			a := revive(k, grant.id()).has(obj{"fence": 2})
			k.reserve(taking(takeover(0, 1))).want(409, "in_progress").has(obj{"fence": 2, "lease_until": a.body["lease_until"]})
			s.pass(t, lease)
			k.reserve(taking(takeover(0, 1))).want(409, "in_doubt").has(taking(takeover(0, 2)))
			got := k.reserve(taking(takeover(0, 2))).want(201, "reserved").has(obj{"fence": 3})
			if doubts := got.body["doubts"].([]any); len(doubts) != 1 || doubts[0].(obj)["fence"] != 2.0 {
				t.Errorf("%s: doubts %v", name, doubts)
			}
		}
	})
}

func TestAfterSixteenTakeoversOnlyAnOperatorCan(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		k := s.key(t)
		k.leave()
		for n := range 16 {
			k.reserve().want(409, "in_doubt").has(taking(takeover(0, n+1))).has(obj{"takeovers_left": 16 - n})
			k.leave(taking(takeover(0, n+1)))
		}
		last := obj{"takeovers": []any{}, "takeovers_left": 0, "fence": 17}
		k.reserve().want(409, "in_doubt").has(last)
		a := k.reserve(taking(takeover(0, 17))).want(409, "in_doubt").has(last)
		if doubts := a.body["doubts"].([]any); len(doubts) != 17 {
			t.Errorf("%d doubts", len(doubts))
		}
		k.replay("").want(409, "in_doubt").has(last)
	})
}

// A reserve that passes over other attempts' doubts counts once, at the attempt reserved.
func TestPassingOverCountsAtTheAttemptReserved(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		k := s.key(t)
		k.leave()
		one := k.at(1)
		one.reserve().want(409, "in_doubt").has(obj{"attempt": 0, "takeovers_left": 16, "fence": 1}).has(taking(takeover(0, 1)))
		one.leave(taking(takeover(0, 1)))
		one.reserve().want(409, "in_doubt").has(obj{"attempt": 1, "takeovers_left": 15, "fence": 1}).has(
			taking(takeover(0, 1), takeover(1, 1)))
		k.reserve().want(409, "in_doubt").has(obj{"attempt": 0, "takeovers_left": 16})
		// Each that stands in the way must be named, with its newest fence.
		one.reserve(taking(takeover(1, 1))).want(409, "in_doubt").has(obj{"attempt": 0})
		one.reserve(taking(takeover(0, 1))).want(409, "in_doubt").has(obj{"attempt": 1})
		got := one.reserve(taking(takeover(1, 1), takeover(0, 1))).want(201, "reserved").has(obj{"fence": 2})
		if doubts := got.body["doubts"].([]any); len(doubts) != 1 || doubts[0].(obj)["fence"] != 1.0 {
			t.Errorf("inherited %v", doubts)
		}
		s.pass(t, time.Hour)
		one.reserve().want(409, "in_doubt").has(obj{"takeovers_left": 14})
	})
}

func TestMoreThanSixteenAttemptsInTheWay(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		k := s.key(t)
		var standing []obj
		for attempt := range 17 {
			k.at(attempt).leave(taking(standing...))
			standing = append(standing, takeover(attempt, 1))
			if attempt == 15 {
				k.at(99).reserve().want(409, "in_doubt").has(taking(standing...)).has(obj{"takeovers_left": 16, "attempt": 15})
			}
		}
		k.at(17).reserve(taking(standing[1:]...)).want(409, "in_doubt").has(
			obj{"takeovers": []any{}, "takeovers_left": 0, "attempt": 16})
		k.at(17).reserve().want(409, "in_doubt").has(obj{"takeovers": []any{}, "takeovers_left": 0, "attempt": 16})
	})
}

// A doubt ends by a record, by the doubtful holder's own release, or by the present holder's word on those before it.
func TestHowDoubtsEnd(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		recorded := s.key(t)
		recorded.record(recorded.leave().id(), obj{}).want(201, "recorded").has(obj{"late": true})
		recorded.reserve().want(200, "recorded")

		own := s.key(t)
		own.release(own.leave().id()).want(200, "released").has(obj{"doubts": []any{}})
		own.reserve().want(201, "reserved").has(obj{"fence": 2, "doubts": []any{}})

		word := s.key(t)
		word.leave()
		second := word.reserve(taking(takeover(0, 1)))
		word.release(second.id(), obj{"earlier_not_done": true}).want(200, "released").has(obj{"doubts": []any{}})
		word.reserve().want(201, "reserved").has(obj{"fence": 3, "doubts": []any{}})

		each := s.key(t)
		first := each.leave(obj{"owner": "first"})
		second = each.leave(taking(takeover(0, 1)), obj{"owner": "second"})
		each.release(second.id()).want(200, "in_doubt").has(obj{"doubts": []obj{doubtOf(first, false)}})
		each.reserve().want(409, "in_doubt").has(obj{"fence": 2, "doubts": []obj{doubtOf(first, false)}})
		each.release(first.id()).want(200, "released").has(obj{"doubts": []any{}})
		each.reserve().want(201, "reserved").has(obj{"fence": 3, "doubts": []any{}})
	})
}
