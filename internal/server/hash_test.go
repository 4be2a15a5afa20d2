package server_test

import "testing"

func hashed(hash string) obj { return obj{"request_hash": hash} }

// A hash is compared with that of what stands: a live grant, one in doubt, a record.
func TestRequestHashIsCompared(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		live, doubt, recorded := s.key(t), s.key(t), s.key(t)
		live.reserve(hashed("a"), obj{"lease_seconds": 3600}).id()
		recorded.record(recorded.reserve(hashed("a")).id(), obj{"body": "secret"}).want(201, "recorded")
		doubt.leave(hashed("a"))
		for _, k := range []key{live, doubt, recorded} {
			k.reserve(hashed("b")).want(422, "request_mismatch") // and no stored data: inspect holds it to its members
			k.reserve(hashed("A")).want(422, "request_mismatch")
			k.reserve(hashed("b"), taking(takeover(0, 1))).want(422, "request_mismatch")
		}
		for _, same := range []obj{hashed("a"), {}, {"request_hash": nil}} {
			live.reserve(same).want(409, "in_progress")
			doubt.reserve(same).want(409, "in_doubt")
			recorded.reserve(same).want(200, "recorded")
		}
	})
}

func TestRequestHashAbsentFromTheGrantIsNotCompared(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		live, doubt, recorded := s.key(t), s.key(t), s.key(t)
		live.reserve(obj{"lease_seconds": 3600}).id()
		recorded.record(recorded.reserve().id(), obj{}).want(201, "recorded")
		doubt.leave()
		live.reserve(hashed("b")).want(409, "in_progress")
		doubt.reserve(hashed("b")).want(409, "in_doubt")
		recorded.reserve(hashed("b")).want(200, "recorded")
	})
}

// A key with neither a live grant nor doubts compares nothing, and a grant's hash replaces the former's.
func TestRequestHashOfAFreeKey(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		released, lapsed, taken := s.key(t), s.key(t), s.key(t)
		released.release(released.reserve(hashed("a")).id()).want(200, "released")
		lapsed.leave(hashed("a"), obj{"dispatch": "explicit"})
		taken.leave()
		for _, k := range []key{released, lapsed, taken} {
			k.reserve(hashed("b"), taking(takeover(0, 1))).want(201, "reserved")
			k.reserve(hashed("a")).want(422, "request_mismatch")
			k.reserve(hashed("b")).want(409, "in_progress")
		}
		bare := s.key(t)
		bare.release(bare.reserve(hashed("a")).id()).want(200, "released")
		bare.reserve().id()
		bare.reserve(hashed("c")).want(409, "in_progress") // replaced by none
	})
}

// The hash of any other attempt about to be replayed is compared too; of one that only stands in the way it is not.
func TestRequestHashOfAnotherAttempt(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		k := s.key(t)
		k.record(k.reserve(hashed("a")).id(), obj{"body": "secret"}).want(201, "recorded")
		k.at(1).reserve(hashed("b"), obj{"scope": "task"}).want(422, "request_mismatch").has(obj{"attempt": 1})
		k.at(1).reserve(hashed("a"), obj{"scope": "task"}).want(200, "recorded")
		k.at(1).reserve(hashed("b")).want(201, "reserved")

		straggler := s.key(t)
		straggler.at(2).record(straggler.at(2).reserve(hashed("a")).id(), obj{}).want(201, "recorded")
		straggler.reserve(hashed("b")).want(422, "request_mismatch")
		straggler.reserve(hashed("a")).want(200, "recorded").has(obj{"replayed_attempt": 2})

		held := s.key(t)
		held.reserve(hashed("a")).id()
		held.at(1).reserve(hashed("b")).want(409, "in_progress")
	})
}

// A record may only fill in a missing hash.
func TestRequestHashAtRecord(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		none := []any{}
		filled := s.key(t)
		filled.record(filled.reserve().id(), obj{}, hashed("a")).want(201, "recorded").has(obj{"ignored_fields": none})
		filled.reserve(hashed("b")).want(422, "request_mismatch")

		kept := s.key(t)
		id := kept.reserve(hashed("a")).id()
		kept.record(id, obj{}, hashed("b")).want(201, "recorded").has(obj{"ignored_fields": []string{"request_hash"}})
		kept.record(id, obj{}, hashed("b")).want(200, "recorded").has(obj{"ignored_fields": []string{"request_hash"}})
		kept.record(id, obj{}, hashed("a")).want(200, "recorded").has(obj{"ignored_fields": none})
		kept.reserve(hashed("b")).want(422, "request_mismatch")

		unreserved := s.key(t)
		unreserved.record("", obj{}, hashed("a"), obj{"owner": "x"}).want(201, "recorded").has(obj{"ignored_fields": none})
		unreserved.reserve(hashed("b")).want(422, "request_mismatch")
		unreserved.replay("").want(200, "recorded") // which has no hash to compare
	})
}
