package server_test

import (
	"testing"
	"time"
)

func TestDispatch(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		k := s.key(t)
		grant := k.reserve(obj{"lease_seconds": 30, "dispatch": "explicit"}).want(201, "reserved")
		s.pass(t, 10*time.Second)
		a := k.dispatch(grant.id()).want(200, "dispatched").has(obj{"task_id": k.task, "attempt": 0, "fence": 1, "lease_seconds_left": 30})
		if more := a.time("lease_until").Sub(grant.time("lease_until")); more < 10*time.Second || more > 25*time.Second {
			t.Errorf("extended by %s", more) // to lease_seconds from now
		}
		if kept := a.time("expires_at").Sub(a.time("lease_until")); kept != 90*day {
			t.Errorf("kept for %s", kept)
		}
		k.dispatch(grant.id()).want(200, "dispatched").has(obj{"fence": 1})

		long := s.key(t)
		id := long.reserve(obj{"lease_seconds": 30}).id()
		renewed := long.renew(id, obj{"lease_seconds": 600}).want(200, "renewed")
		long.dispatch(id).want(200, "dispatched").has(obj{"lease_until": renewed.body["lease_until"]}) // at least: never shorter
	})
}

func TestRenew(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		k := s.key(t)
		grant := k.reserve(obj{"lease_seconds": 300}).want(201, "reserved")
		k.renew(grant.id(), obj{"lease_seconds": 30}).want(200, "renewed").has(obj{
			"task_id": k.task, "attempt": 0, "fence": 1, "lease_until": grant.body["lease_until"],
		})
		k.renew(grant.id()).want(200, "renewed").has(obj{"lease_until": grant.body["lease_until"]}) // 60 by default
		a := k.renew(grant.id(), obj{"lease_seconds": 86400}).want(200, "renewed").has(obj{
			"fence": 1, "lease_seconds_left": 86400, "renew_after_seconds": 28800,
		})
		if kept := a.time("expires_at").Sub(a.time("lease_until")); kept != 90*day {
			t.Errorf("kept for %s", kept)
		}
		k.reserve().want(409, "in_progress").has(obj{"lease_until": a.body["lease_until"]})

		short := s.key(t)
		short.renew(short.reserve(obj{"lease_seconds": 1}).id()).want(200, "renewed").has(obj{"lease_seconds_left": 60, "renew_after_seconds": 20})
	})
}

// A passed lease alone loses nothing.
func TestRevivingAPassedLease(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		renewed, dispatched, explicit, twice := s.key(t), s.key(t), s.key(t), s.key(t)
		a, b, c, d := renewed.leave(), dispatched.leave(), explicit.leave(obj{"dispatch": "explicit"}), twice.leave()
		renewed.renew(a.id(), obj{"lease_seconds": 5}).want(200, "renewed").has(obj{"fence": 2, "lease_seconds_left": 5})
		dispatched.dispatch(b.id()).want(200, "dispatched").has(obj{"fence": 2, "lease_seconds_left": 30})
		explicit.dispatch(c.id()).want(200, "dispatched").has(obj{"fence": 2})
		for fence := range 3 {
			twice.renew(d.id(), obj{"lease_seconds": 30}).want(200, "renewed").has(obj{"fence": fence + 2})
			twice.renew(d.id(), obj{"lease_seconds": 30}).want(200, "renewed").has(obj{"fence": fence + 2}) // live: not raised
			s.pass(t, lease)
		}
		twice.record(d.id(), obj{}).want(201, "recorded").has(obj{"fence": 4, "late": true})
	})
}

// It is lost where any other grant of any attempt of the task was made since.
func TestRevivingTooLate(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		same, other, gone, stepped := s.key(t), s.key(t), s.key(t), s.key(t)
		ids := make(map[key]string)
		for _, k := range []key{same, other, gone, stepped} {
			ids[k] = k.reserve(obj{"lease_seconds": 30, "dispatch": "explicit"}).id()
		}
		s.pass(t, lease)
		same.reserve().id()
		other.at(1).reserve().id()
		gone.at(5).release(gone.at(5).reserve().id()).want(200, "released")
		stepped.at(1).record("", obj{}, obj{"owner": "x"}).want(201, "recorded")
		for k, id := range ids {
			k.dispatch(id).want(409, "lease_lost")
			k.renew(id).want(409, "lease_lost")
		}
		// A grant made before the lease passed takes nothing away.
		k := s.key(t)
		k.leave()
		id := k.at(1).reserve(taking(takeover(0, 1)), obj{"lease_seconds": 30}).id()
		s.pass(t, lease)
		k.at(1).renew(id).want(200, "renewed").has(obj{"fence": 2})
	})
}

// In scope task, a record that another attempt got meanwhile ends the holder's errand.
func TestAnotherAttemptRecordedMeanwhile(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		for scope, status := range map[string]int{"task": 409, "attempt": 200} {
			k := s.key(t)
			zero := k.leave()
			one := k.at(1)
			id := one.reserve(taking(takeover(0, 1)), obj{"scope": scope}).id()
			k.record(zero.id(), obj{"status": 201, "body": "done"}).want(201, "recorded").has(obj{"late": true})
			renew, dispatch := one.renew(id), one.dispatch(id)
			if renew.status != status || dispatch.status != status {
				t.Errorf("scope %s: %s, %s", scope, renew, dispatch)
			}
			if status == 409 {
				renew.want(409, "already_recorded").has(obj{"attempt": 0, "response": nil})
				dispatch.want(409, "already_recorded").has(obj{"attempt": 0, "response": obj{"status": 201, "headers": []any{}, "body": "done"}})
			}
		}
	})
}

func TestRelease(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		live, lapsed, dispatched := s.key(t), s.key(t), s.key(t)
		a := lapsed.leave()
		b := live.reserve().want(201, "reserved")
		c := dispatched.reserve().want(201, "reserved")
		dispatched.dispatch(c.id()).want(200, "dispatched")
		for k, id := range map[key]string{live: b.id(), lapsed: a.id(), dispatched: c.id()} {
			released := k.release(id, obj{
				"reason": "connection \u0000refused ☃", "earlier_not_done": false, "response": obj{"status": 502, "body": "bad gateway\u0000"},
			}).want(200, "released").has(obj{"task_id": k.task, "attempt": 0, "fence": 1, "doubts": []any{}, "dropped_headers": []any{}})
			kept := released.time("expires_at")
			again := k.release(id).want(200, "released").has(obj{"fence": 1})
			if d := again.time("expires_at").Sub(kept); d.Abs() > 10*time.Second {
				t.Errorf("a repeat moved expires_at by %s", d)
			}
			k.replay("").want(404, "not_found")
			k.reserve().want(201, "reserved").has(obj{"fence": 2, "doubts": []any{}})
			k.release(id).want(200, "released").has(obj{"fence": 2}) // and nothing changes
			k.reserve().want(409, "in_progress").has(obj{"fence": 2})
		}
	})
}

func TestReleaseByADoubtfulHolder(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		k := s.key(t)
		first, second := k.leave(), k.leave(taking(takeover(0, 1)))
		third := k.reserve(taking(takeover(0, 2))).want(201, "reserved")
		// Its doubt ends, the present holder is not disturbed, and what it says of others is ignored.
		k.release(second.id(), obj{"earlier_not_done": true}).want(200, "released").has(obj{"fence": 3, "doubts": []obj{doubtOf(first, false)}})
		k.reserve().want(409, "in_progress").has(obj{"fence": 3, "lease_until": third.body["lease_until"]})
		k.record(second.id(), obj{}).want(409, "lease_lost") // released by itself
		s.pass(t, time.Hour)
		k.reserve().want(409, "in_doubt").has(obj{"doubts": []obj{doubtOf(first, false), doubtOf(third, false)}})
		k.release(first.id()).want(200, "in_doubt").has(obj{"doubts": []obj{doubtOf(third, false)}})
		k.release(first.id()).want(200, "in_doubt").has(obj{"doubts": []obj{doubtOf(third, false)}})
		k.release(third.id()).want(200, "released").has(obj{"doubts": []any{}})
		k.reserve().want(201, "reserved").has(obj{"fence": 4, "doubts": []any{}})
	})
}

func TestReleaseByOneWhoIsNeither(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		k := s.key(t)
		superseded := k.leave(obj{"dispatch": "explicit"})
		doubtful := k.leave()
		holder := k.reserve(taking(takeover(0, 2))).want(201, "reserved")
		k.release(superseded.id(), obj{"earlier_not_done": true, "response": obj{}}).want(200, "released").has(obj{
			"fence": 3, "doubts": []obj{doubtOf(doubtful, false)},
		})
		k.reserve().want(409, "in_progress").has(obj{"fence": 3, "lease_until": holder.body["lease_until"]})
		k.release(holder.id(), obj{"earlier_not_done": true}).want(200, "released")
		k.release(doubtful.id()).want(200, "released") // no doubt any more
		k.record(doubtful.id(), obj{"body": "it happened"}).want(201, "recorded").has(obj{"late": true, "fence": 3})
	})
}

func TestReleaseAfterARecord(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		k := s.key(t)
		first := k.leave()
		second := k.reserve(taking(takeover(0, 1))).want(201, "reserved")
		k.release(second.id()).want(200, "in_doubt")
		k.record(first.id(), obj{"status": 201, "body": "x"}).want(201, "recorded")
		k.release(second.id()).want(200, "released").has(obj{"doubts": []any{}}) // a repeat, even after another's record
		k.release(first.id(), obj{"response": obj{"status": 500}}).want(409, "already_recorded").has(obj{
			"response": obj{"status": 201, "headers": []any{}, "body": "x"}, "late": true, "recorded_by": "w",
		})
	})
}
