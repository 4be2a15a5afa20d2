package server_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
)

// A key past its retention behaves as absent: a new life, in which nothing of the old one is known.
func TestRecordedKeysEnd(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		short, long, usual := s.key(t), s.key(t), s.key(t)
		ids := make(map[key]string)
		for k, seconds := range map[key]any{short: 3600, long: 31536000, usual: nil} {
			ids[k] = k.reserve().id()
			k.record(ids[k], obj{"body": "x"}, obj{"retention_seconds": seconds}).want(201, "recorded")
		}
		s.pass(t, time.Hour)
		short.replay("").want(404, "not_found")
		short.record(ids[short], obj{"body": "x"}).want(404, "not_found")
		short.dispatch(ids[short]).want(404, "not_found")
		short.reserve(hashed("another")).want(201, "reserved").has(obj{"fence": 1, "doubts": []any{}})
		short.dispatch(ids[short]).want(409, "not_holder") // of another life
		s.pass(t, 14*day-2*time.Hour)
		usual.replay("").want(200, "recorded")
		s.pass(t, time.Hour)
		usual.replay("").want(404, "not_found")
		usual.at(1).reserve(obj{"scope": "task"}).want(201, "reserved").has(obj{"other_attempts": []any{}})
		s.pass(t, 350*day)
		long.replay("").want(200, "recorded")
		s.pass(t, 2*day)
		long.reserve().want(201, "reserved").has(obj{"fence": 1})
	})
}

func TestReleasedKeysEnd(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		k, doubtful := s.key(t), s.key(t)
		id := k.reserve(obj{"lease_seconds": 86400}).id()
		a := k.release(id).want(200, "released")
		if off := a.time("expires_at").Sub(s.key(t).reserve().time("reserved_at")) - 14*day; off.Abs() > 10*time.Second {
			t.Errorf("a released key is kept for 14 days and %s", off)
		}

		doubtful.leave()
		grant := doubtful.reserve(taking(takeover(0, 1))).want(201, "reserved")
		released := doubtful.release(grant.id()).want(200, "in_doubt")
		// In doubt, it is kept as an unrecorded key is: from the end of its last lease.
		if released.body["expires_at"] != grant.body["expires_at"] {
			t.Errorf("kept until %v, the grant until %v", released.body["expires_at"], grant.body["expires_at"])
		}
		s.pass(t, 15*day)
		doubtful.reserve().want(409, "in_doubt").has(obj{"expires_at": grant.body["expires_at"]})
		k.reserve(obj{"reservation_id": id}).want(201, "reserved").has(obj{"fence": 1}) // it is not known to be spent any more
	})
}

// The end of a doubt by retention is an event, and the key is absent.
func TestDoubtsEndWithTheirRetention(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		k := s.key(t)
		grant := k.reserve(obj{"lease_seconds": 86400}).want(201, "reserved")
		if kept := grant.time("expires_at").Sub(grant.time("reserved_at")); kept != 91*day {
			t.Errorf("kept for %s", kept)
		}
		s.pass(t, 90*day)
		k.reserve().want(409, "in_doubt").has(obj{"expires_at": grant.body["expires_at"]})
		k.at(1).reserve().want(409, "in_doubt").has(obj{"expires_at": grant.body["expires_at"]})
		s.pass(t, day)
		k.at(1).reserve(obj{"lease_seconds": 86400}).want(201, "reserved").has(obj{"other_attempts": []any{}})
		k.replay("").want(409, "in_progress").has(obj{"attempt": 1})
		k.record(grant.id(), obj{"body": "too late"}).want(404, "not_found")
		k.renew(grant.id()).want(404, "not_found")
	})
}

func TestExpiresAtIsOfWhatIsShown(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		k := s.key(t)
		grant := k.leave()
		if a := k.renew(grant.id(), obj{"lease_seconds": 600}).want(200, "renewed"); a.time("expires_at").Sub(a.time("lease_until")) != 90*day {
			t.Errorf("renewed: %s", a)
		}
		held := k.reserve().want(409, "in_progress")
		if held.time("expires_at").Sub(held.time("lease_until")) != 90*day {
			t.Errorf("in progress: %s", held)
		}
		recorded := k.record(grant.id(), obj{}, obj{"retention_seconds": 7200}).want(201, "recorded")
		if recorded.time("expires_at").Sub(recorded.time("recorded_at")) != 2*time.Hour {
			t.Errorf("recorded: %s", recorded)
		}
		// Only the first record says how long: a repeat changes nothing.
		k.record(grant.id(), obj{}, obj{"retention_seconds": 31536000}).want(200, "recorded").has(obj{"expires_at": recorded.body["expires_at"]})
		k.replay("").want(200, "recorded").has(obj{"expires_at": recorded.body["expires_at"]})
		k.release(uuid.NewString()).want(409, "not_holder")
		k.record(grant.id(), obj{"status": 500}).want(409, "already_recorded").has(obj{"expires_at": recorded.body["expires_at"]})
	})
}
