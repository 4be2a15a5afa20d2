package server_test

import (
	"testing"
	"time"
)

func TestRecord(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		k := s.key(t)
		grant := k.reserve(obj{"owner": "holder"}).want(201, "reserved")
		response := obj{"status": 201, "headers": [][]string{{"Location", "/charges/1"}}, "body": "{}"}
		first := k.record(grant.id(), response, obj{"owner": "holder"}).want(201, "recorded").has(obj{
			"task_id": k.task, "attempt": 0, "fence": 1, "recorded_by": "holder", "late": false, "dropped_headers": []any{}, "ignored_fields": []any{},
		})
		if kept := first.time("expires_at").Sub(first.time("recorded_at")); kept != 14*day {
			t.Errorf("kept for %s", kept)
		}
		s.pass(t, time.Hour) // its lease has passed: the record stands
		k.record(grant.id(), response).want(200, "recorded").has(obj{
			"fence": 1, "recorded_at": first.body["recorded_at"], "expires_at": first.body["expires_at"], "recorded_by": "holder", "late": false,
		})
		k.record(grant.id(), obj{"status": 201}).want(409, "already_recorded").has(obj{
			"task_id": k.task, "attempt": 0, "fence": 1, "recorded_at": first.body["recorded_at"], "recorded_by": "holder", "late": false,
			"expires_at": first.body["expires_at"], "response": response,
		})
		k.reserve().want(200, "recorded").has(obj{
			"task_id": k.task, "attempt": 0, "replayed_attempt": 0, "fence": 1, "recorded_at": first.body["recorded_at"], "recorded_by": "holder",
			"late": false, "expires_at": first.body["expires_at"], "response": response, "other_attempts": nil,
		})
	})
}

// A repeat is the very same response: any other is a 409 with the one that is kept.
func TestWhatIsTheSameResponse(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		kept := obj{"status": 200, "headers": [][]string{{"A", "1"}, {"B", "2"}}, "body": "x"}
		k := s.key(t)
		id := k.reserve().id()
		k.record(id, kept).want(201, "recorded")
		k.record(id, obj{"status": 200, "headers": obj{"A": "1", "B": []string{"2"}}, "body_base64": "eA=="}).want(200, "recorded")
		k.record(id, with(kept, obj{"status": nil})).want(200, "recorded") // 200 by default
		k.record(id, with(kept, obj{"headers": [][]string{{"A", "1"}, {"Set-Cookie", "c"}, {"B", "2"}}})).want(200, "recorded").has(obj{
			"dropped_headers": []string{"Set-Cookie"},
		})
		for _, other := range []obj{
			{"status": 201},
			{"body": "y"},
			{"body": nil},
			{"body": ""},
			{"headers": nil},
			{"headers": [][]string{{"B", "2"}, {"A", "1"}}},
			{"headers": [][]string{{"a", "1"}, {"B", "2"}}},
			{"headers": [][]string{{"A", "1"}, {"B", "2"}, {"B", "2"}}},
			{"body": nil, "body_omitted": true, "body_size": 1, "body_sha256": hexDigits},
		} {
			k.record(id, with(kept, other)).want(409, "already_recorded").has(obj{"response": kept})
		}
	})
}

const hexDigits = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"

// First record wins, whoever holds.
func TestFirstRecordWins(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		response := obj{"status": 200, "headers": []any{}, "body": "first"}
		k := s.key(t)
		first, second := k.leave(obj{"owner": "first"}), k.leave(taking(takeover(0, 1)), obj{"owner": "second"})
		third := k.reserve(taking(takeover(0, 2)), obj{"owner": "third"}).want(201, "reserved")
		k.record(first.id(), response).want(201, "recorded").has(obj{"late": true, "recorded_by": "first", "fence": 3})
		k.record(second.id(), response).want(200, "recorded").has(obj{"late": true, "recorded_by": "first"}) // the same from another
		k.record(third.id(), obj{"body": "third"}).want(409, "already_recorded").has(obj{
			"response": response, "recorded_by": "first", "late": true, "fence": 3,
		})
		k.record(third.id(), obj{"body": "third"}).want(409, "already_recorded")
		k.record("", response, obj{"owner": "someone"}).want(200, "recorded").has(obj{"recorded_by": "first"})
		k.record("", obj{}, obj{"owner": "someone"}).want(409, "already_recorded").has(obj{"response": response})
		k.replay("").want(200, "recorded").has(obj{"late": true, "recorded_by": "first", "response": response})

		holder := s.key(t)
		holder.record(holder.leave().id(), obj{}).want(201, "recorded").has(obj{"late": true, "fence": 1}) // its own lease passed

		explicit := s.key(t)
		id := explicit.reserve(obj{"dispatch": "explicit", "lease_seconds": 30, "owner": "first"}).id()
		explicit.dispatch(id).want(200, "dispatched")
		s.pass(t, lease)
		explicit.reserve(taking(takeover(0, 1))).id()
		explicit.record(id, obj{}).want(201, "recorded").has(obj{"late": true, "recorded_by": "first", "fence": 2})

		renewed := s.key(t)
		grant := renewed.leave()
		renewed.renew(grant.id()).want(200, "renewed")
		renewed.record(grant.id(), obj{}).want(201, "recorded").has(obj{"late": false, "fence": 2})
	})
}

// Another's word does not silence one who may have acted.
func TestRecordOfOneWhoseDoubtWasEnded(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		k := s.key(t)
		first := k.leave(obj{"owner": "first"})
		k.release(k.reserve(taking(takeover(0, 1))).id(), obj{"earlier_not_done": true}).want(200, "released")
		third := k.reserve().want(201, "reserved").has(obj{"fence": 3, "doubts": []any{}})
		k.record(first.id(), obj{"body": "I did"}).want(201, "recorded").has(obj{"late": true, "recorded_by": "first", "fence": 3})
		k.dispatch(third.id()).want(409, "already_recorded").has(obj{"response": obj{"status": 200, "headers": []any{}, "body": "I did"}})
		k.renew(third.id()).want(409, "already_recorded")
	})
}

func TestRecordOfOneWhoCannotHaveActed(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		superseded, released, gone := s.key(t), s.key(t), s.key(t)
		a := superseded.leave(obj{"dispatch": "explicit"})
		superseded.reserve().id()
		superseded.record(a.id(), obj{}).want(409, "lease_lost")

		b := released.reserve().id()
		released.release(b).want(200, "released")
		released.record(b, obj{}).want(409, "lease_lost")
		released.reserve().id()
		released.record(b, obj{}).want(409, "lease_lost")

		// Its lease passed and nobody came after it: it is the current grant still, and tells what happened.
		c := gone.leave(obj{"dispatch": "explicit"})
		gone.record(c.id(), obj{}).want(201, "recorded").has(obj{"late": true})
	})
}

func TestRecordWithoutAReservation(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		owner := obj{"owner": "handler-1"}
		k := s.key(t)
		k.replay("?owner=handler-1").want(404, "not_found")
		first := k.record("", obj{"body": "x"}, owner, obj{"retention_seconds": 3600}).want(201, "recorded").has(obj{
			"fence": 1, "late": false, "recorded_by": "handler-1", "ignored_fields": []any{},
		})
		if kept := first.time("expires_at").Sub(first.time("recorded_at")); kept != time.Hour {
			t.Errorf("kept for %s", kept)
		}
		k.record("", obj{"body": "x"}, owner).want(200, "recorded").has(obj{"recorded_at": first.body["recorded_at"], "expires_at": first.body["expires_at"]})
		k.record("", obj{"body": "y"}, owner).want(409, "already_recorded").has(obj{"response": obj{"status": 200, "headers": []any{}, "body": "x"}})
		k.reserve().want(200, "recorded")

		held, doubt, free, lapsed, straggler := s.key(t), s.key(t), s.key(t), s.key(t), s.key(t)
		doubt.leave()
		lapsed.leave(obj{"dispatch": "explicit"})
		held.reserve().id()
		free.release(free.reserve().id()).want(200, "released")
		straggler.at(3).record("", obj{"body": "later"}, owner).want(201, "recorded")
		held.record("", obj{}, owner).want(409, "in_progress").has(obj{"owner": "w", "fence": 1})
		doubt.record("", obj{}, owner).want(409, "in_doubt").has(taking(takeover(0, 1)))
		free.record("", obj{}, owner).want(201, "recorded").has(obj{"fence": 2})
		lapsed.record("", obj{}, owner).want(201, "recorded").has(obj{"fence": 2})
		straggler.record("", obj{}, owner).want(409, "already_recorded").has(obj{
			"attempt": 3, "response": obj{"status": 200, "headers": []any{}, "body": "later"},
		})
		straggler.at(4).record("", obj{}, owner).want(201, "recorded") // an earlier record is what a retry is for
	})
}

func TestOwnerBesideAReservation(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		k := s.key(t)
		id := k.reserve(obj{"owner": "holder"}).id()
		k.record(id, obj{}, obj{"owner": "another"}).want(201, "recorded").has(obj{
			"recorded_by": "holder", "ignored_fields": []string{"owner"},
		})
		k.record(id, obj{}, obj{"owner": "another"}).want(200, "recorded").has(obj{"recorded_by": "holder", "ignored_fields": []string{"owner"}})
		k.record(id, obj{"body": "x"}, obj{"owner": "another", "extra": 1}).want(409, "already_recorded").has(obj{
			"ignored_fields": []string{"extra", "owner"},
		})
	})
}

// What is refused is kept as evidence; that is seen later. Here: offering it again is refused in the same way.
func TestRefusedRecordsStayRefused(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		absent, foreign := s.key(t), s.key(t)
		id := foreign.reserve().id()
		for range 2 {
			absent.record(id, obj{"body": "\u0000"}).want(404, "not_found")
			absent.release(id, obj{"response": obj{"body": "\u0000"}, "reason": "\u0000"}).want(404, "not_found")
			foreign.record(absent.task, obj{"headers": [][]string{{"\u0000", "\u0000"}}}).want(409, "not_holder")
			foreign.release(absent.task, obj{"response": obj{"body_base64": "/w=="}, "reason": "\u0000"}).want(409, "not_holder")
		}
		absent.replay("").want(404, "not_found")
		absent.reserve().want(201, "reserved").has(obj{"fence": 1})
		foreign.record(id, obj{}).want(201, "recorded").has(obj{"fence": 1})
	})
}
