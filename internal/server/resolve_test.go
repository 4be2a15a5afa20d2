package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/idemstore/idemstore/internal/idem"
)

// recording is what a resolve that records adds.
func recording(response obj) obj { return obj{"action": "record", "response": response} }

// An operator records: the next reserve replays it, and who acted is told that it is too late.
func TestResolveByRecord(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		k := s.key(t)
		grant := k.leave(obj{"owner": "gone"})
		response := obj{"status": 201, "headers": []any{[]any{"a", "1"}, []any{"A", "2"}}, "body_base64": "/w=="}
		a := k.resolve(1, recording(response)).ok().has(obj{
			"state": "recorded", "in_doubt": false, "doubts": []any{}, "recorded_by": "anonymous", "late": false, "response": response,
			"owner": "gone", "fence": 1, "reserved_at": grant.body["reserved_at"],
		})
		if kept := a.time("expires_at").Sub(a.time("recorded_at")); kept != 14*day {
			t.Errorf("kept for %s", kept)
		}
		k.entry().has(a.body)
		k.reserve().want(200, "recorded").has(obj{"response": response, "recorded_by": "anonymous"})
		k.record(grant.id(), obj{"status": 500}).want(409, "already_recorded").has(obj{"response": response})
		// Repeating it is success, and told once; anything else is refused, and kept.
		k.resolve(1, recording(response)).ok().has(a.body)
		k.resolve(7, recording(response)).ok().has(a.body)
		k.resolve(1, recording(obj{"status": 500})).want(409, "already_recorded").has(obj{"response": response, "fence": 1})
		k.resolve(1).want(409, "already_recorded").has(obj{"response": response})
		if n := len(s.get(t, "/v1/events?kind=resolved&task_id="+k.task).list("events")); n != 1 {
			t.Errorf("told %d times", n)
		}
	})
}

// An operator says that it did not happen: the next reserve is granted, clean. It doesn't silence who acted all the same.
func TestResolveByRelease(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		k := s.key(t)
		first := k.leave().id()
		k.reserve(obj{"lease_seconds": 30}, taking(takeover(0, 1))).want(201, "reserved")
		s.pass(t, lease)
		k.reserve().want(409, "in_doubt").has(obj{"fence": 2})
		k.resolve(2).ok().has(obj{"state": "released", "in_doubt": false, "doubts": []any{}, "fence": 2})
		k.reserve().want(201, "reserved").has(obj{"fence": 3, "doubts": []any{}})
		k.record(first, obj{"body": "it did"}).want(201, "recorded").has(obj{"late": true})
	})
}

// Where the key has moved on since it was looked at, nothing is settled, and the answer says what to look at.
func TestResolveOfWhatHasMovedOn(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		k := s.key(t)
		k.leave()
		second := k.reserve(obj{"lease_seconds": 30, "owner": "second"}, taking(takeover(0, 1)))
		s.pass(t, lease)
		for _, more := range []obj{{}, {"force": true}, recording(obj{})} {
			a := k.resolve(1, more).want(409, "in_doubt").has(obj{"fence": 2, "expires_at": second.body["expires_at"]})
			if n := len(a.list("doubts")); n != 2 {
				t.Errorf("%d doubts in %s", n, a)
			}
			detail := a.text("detail")
			for _, words := range []string{k.task + "/0", "fence is 2", "look again"} {
				if !strings.Contains(detail, words) {
					t.Errorf("detail does not say %q: %s", words, detail)
				}
			}
			if strings.Contains(detail, "takeover") {
				t.Errorf("detail speaks to a worker: %s", detail)
			}
		}
		k.resolve(3).want(409, "in_doubt") // from the future

		// Also where there is no doubt: the holder promised to dispatch, and did not.
		none := s.key(t)
		none.leave(obj{"dispatch": "explicit"})
		none.resolve(2).want(409, "in_doubt").has(obj{"fence": 1, "doubts": []any{}})
		none.resolve(1).ok().has(obj{"state": "released"})
	})
}

// A live lease is left alone, unless the operator insists.
func TestResolveOfALiveLease(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		for _, more := range []obj{{}, recording(obj{"body": "x"})} {
			k := s.key(t)
			grant := k.reserve(obj{"owner": "busy"})
			for _, force := range []any{nil, false} {
				k.resolve(1, more, obj{"force": force}).want(409, "in_progress").has(obj{"owner": "busy", "fence": 1, "lease_until": grant.body["lease_until"]})
			}
			k.resolve(2, more, obj{"force": true}).want(409, "in_doubt").has(obj{"fence": 1, "doubts": []any{}})
			k.resolve(1, more, obj{"force": true}).ok()
			if more["action"] == nil {
				k.renew(grant.id()).want(409, "lease_lost")
				k.reserve().want(201, "reserved").has(obj{"fence": 2, "doubts": []any{}})
			} else {
				k.renew(grant.id()).want(409, "already_recorded")
				k.reserve().want(200, "recorded")
			}
			detail := s.get(t, "/v1/events?kind=resolved&task_id="+k.task).list("events")[0]["detail"]
			if !includes(detail, obj{"forced": true, "reason": "looked into"}) {
				t.Errorf("the trail says %v", detail)
			}
		}
	})
}

func TestResolveOfNothing(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		k := s.key(t)
		k.resolve(1).want(404, "not_found")
		k.resolve(1, recording(obj{"body": "x"})).want(404, "not_found")
		k.history().ok().has(obj{"attempts": []any{}}) // what was offered is kept
	})
}

func TestResolveIsStrict(t *testing.T) {
	t.Parallel()
	s := shared.service(t, engines[0])
	k := s.key(t)
	k.reserve().id()
	for field, bodies := range map[string][]string{
		"action":           {`{}`, `{"fence":1,"reason":"r"}`, `{"action":"","fence":1,"reason":"r"}`, `{"action":"Record","fence":1,"reason":"r"}`, `{"action":null,"fence":1,"reason":"r"}`},
		"fence":            {`{"action":"release","reason":"r"}`, `{"action":"release","fence":0,"reason":"r"}`, `{"action":"release","fence":-1,"reason":"r"}`, `{"action":"release","fence":"1","reason":"r"}`, `{"action":"release","fence":1.5,"reason":"r"}`, `{"action":"release","fence":9223372036854775808,"reason":"r"}`},
		"reason":           {`{"action":"release","fence":1}`, `{"action":"release","fence":1,"reason":""}`, `{"action":"release","fence":1,"reason":null}`, `{"action":"release","fence":1,"reason":"` + text("é", 1001) + `"}`},
		"response":         {`{"action":"record","fence":1,"reason":"r"}`, `{"action":"record","fence":1,"reason":"r","response":null}`, `{"action":"release","fence":1,"reason":"r","response":{}}`, `{"action":"record","fence":1,"reason":"r","response":[]}`},
		"response.x":       {`{"action":"record","fence":1,"reason":"r","response":{"x":1}}`},
		"response.status":  {`{"action":"record","fence":1,"reason":"r","response":{"status":99}}`},
		"force":            {`{"action":"release","fence":1,"reason":"r","force":"true"}`, `{"action":"release","fence":1,"reason":"r","force":1}`},
		"Fence":            {`{"action":"release","fence":1,"Fence":1,"reason":"r"}`},
		"owner":            {`{"action":"release","fence":1,"reason":"r","owner":"w"}`},
		"body":             {``, `null`, `[]`, `{"action":"release","fence":1,"reason":"r"}x`},
		"response.headers": {`{"action":"record","fence":1,"reason":"r","response":{"headers":1}}`},
	} {
		for _, body := range bodies {
			if a := k.post("resolve", body); a.status != 400 || a.body["field"] != field {
				t.Errorf("%.80s: want a 400 for %s, got %s", body, field, a)
			}
		}
	}
	c := call{method: http.MethodPost, path: k.path("resolve"), body: "{}", header: map[string]string{"Content-Type": "text/plain"}}
	s.send(t, c).want(415, "unsupported_media_type")
	k.resolve(1, recording(obj{"body": text("x", 1<<20+1)})).want(413, "body_too_large")
	k.entry().has(obj{"state": "reserved"})
	// The longest reason, and headers that are never kept.
	k.resolve(1, obj{"reason": text("é", 1000), "force": true}, recording(obj{"headers": obj{"Set-Cookie": "s", "a": "b"}})).ok().
		has(obj{"response": obj{"status": 200, "headers": []any{[]any{"a", "b"}}}})
}

// releaseOwner ends what an owner holds.
func (s *service) releaseOwner(t testing.TB, owner string, more ...obj) answer {
	t.Helper()
	return s.send(t, call{
		method: http.MethodPost, path: "/v1/owners/" + url.PathEscape(owner) + "/release",
		body: with(append([]obj{{"reason": "its node is gone"}}, more...)...),
	})
}

// outcomes is what became of each key of a release of an owner.
func outcomes(a answer) map[string]string {
	a.t.Helper()
	all := make(map[string]string)
	for _, r := range a.ok().list("results") {
		all[fmt.Sprint(r["task_id"])] = fmt.Sprint(r["attempt"], " ", r["fence"], " ", r["released"], " ", r["outcome"])
	}
	return all
}

// By itself only grants that cannot have acted end; the others are listed, and left to somebody who looks into them.
func TestReleaseOfAnOwner(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		me := obj{"owner": "wörker/" + uuid.NewString() + " 1+1%"}
		owner, explicit, short, long := me["owner"].(string), obj{"dispatch": "explicit"}, obj{"lease_seconds": 30}, obj{"lease_seconds": 86400}
		promised, promisedLive, implicit, implicitLive, dispatched, recorded, released, others, inherited := s.key(t).at(3), s.key(t), s.key(t), s.key(t), s.key(t), s.key(t), s.key(t), s.key(t), s.key(t)
		promised.reserve(me, explicit, short).want(201, "reserved")
		live := promisedLive.reserve(me, explicit, long)
		implicit.reserve(me, short).want(201, "reserved")
		acting := implicitLive.reserve(me, long)
		dispatched.dispatch(dispatched.reserve(me, explicit, short).id()).want(200, "dispatched")
		recorded.record(recorded.reserve(me).id(), obj{}).want(201, "recorded")
		released.release(released.reserve(me).id()).want(200, "released")
		others.reserve(obj{"owner": "another"}, explicit, long).want(201, "reserved")
		inherited.reserve(obj{"owner": "before"}, short).want(201, "reserved")
		s.pass(t, lease)
		inherited.reserve(me, explicit, long, taking(takeover(0, 1))).want(201, "reserved")

		a := s.releaseOwner(t, owner).ok().has(obj{"owner": owner})
		want := map[string]string{
			promised.task: "3 1 true released", promisedLive.task: "0 1 true released", implicit.task: "0 1 false in_doubt",
			implicitLive.task: "0 1 false in_progress", dispatched.task: "0 1 false in_doubt", inherited.task: "0 2 true in_doubt",
		}
		if got := outcomes(a); !equal(got, want) {
			t.Errorf("want %v, got %v", want, got)
		}
		if line := s.lines(t, a)[0]; line.Items != len(want) || line.Level != "info" {
			t.Errorf("in the log: %+v", line)
		}
		promised.reserve().want(201, "reserved").has(obj{"fence": 2, "doubts": []any{}})
		promisedLive.dispatch(live.id()).want(409, "lease_lost")
		inherited.reserve().want(409, "in_doubt")
		others.reserve().want(409, "in_progress")
		implicitLive.renew(acting.id(), long).want(200, "renewed")

		// What was ended is not found again; with force, what is left ends too.
		want = map[string]string{
			implicit.task: "0 1 true released", implicitLive.task: "0 1 true released", dispatched.task: "0 1 true released",
		}
		if got := outcomes(s.releaseOwner(t, owner, obj{"force": true})); !equal(got, want) {
			t.Errorf("forced: want %v, got %v", want, got)
		}
		implicit.reserve().want(201, "reserved").has(obj{"doubts": []any{}})
		implicitLive.renew(acting.id()).want(409, "lease_lost")
		if got := outcomes(s.releaseOwner(t, owner, obj{"force": true})); len(got) > 0 {
			t.Errorf("once more: %v", got)
		}
		for k, forced := range map[key]bool{promised: false, dispatched: true} {
			events := s.get(t, "/v1/events?kind=resolved&task_id="+k.task).list("events")
			want := obj{"holder": owner, "reason": "its node is gone", "forced": forced, "action": "release"}
			if len(events) != 1 || !includes(events[0]["detail"], want) {
				t.Errorf("the trail says %v, want %v", events, want)
			}
		}
	})
}

// An owner that holds more than fits one call is released by several.
func TestReleaseOfAnOwnerOfMany(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		owner, task := "many-"+uuid.NewString(), uuid.NewString()
		for _, n := range []int{1000, 7} {
			var items []obj
			for range n {
				items = append(items, item(s.key(t), obj{"owner": owner, "dispatch": "explicit", "lease_seconds": 86400}))
			}
			s.batch(t, "reserve", items)
		}
		s.batch(t, "reserve", []obj{{"task_id": task, "attempt": 0, "owner": owner}})
		seen, calls := map[string]string{}, 0
		for cursor := any(nil); ; calls++ {
			a := s.releaseOwner(t, owner, obj{"cursor": cursor})
			for task, outcome := range outcomes(a) {
				if seen[task] != "" {
					t.Errorf("%s is told twice", task)
				}
				seen[task] = outcome
			}
			if cursor = a.body["next_cursor"]; cursor == nil {
				break
			}
		}
		if len(seen) != 1008 || calls < 1 || calls > 3 || seen[task] != "0 1 false in_progress" {
			t.Errorf("%d keys in %d calls and one more; %q", len(seen), calls, seen[task])
		}
		if a := s.releaseOwner(t, owner); len(a.list("results")) != 1 {
			t.Errorf("afterwards: %s", a)
		}
	})
}

// Only what was looked at ends, forced or not: neither a key that was not named nor a grant that came since.
func TestReleaseOfAnOwnersKeys(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		me := obj{"owner": "keys-" + uuid.NewString()}
		owner, short := me["owner"].(string), obj{"lease_seconds": 30}
		named, unnamed, anew, another := s.key(t), s.key(t), s.key(t), s.key(t)
		named.reserve(me).id()
		unnamed.reserve(me).id()
		anew.reserve(me, short).id()
		another.reserve().id()
		s.pass(t, lease)
		anew.reserve(me, taking(takeover(0, 1))).id()
		var keys []obj
		for _, k := range []key{named, anew, another, s.key(t)} {
			keys = append(keys, obj{"task_id": k.task, "attempt": 0, "fence": 1})
		}
		got := outcomes(s.releaseOwner(t, owner, obj{"force": true, "keys": keys}))
		want := map[string]string{
			named.task: "0 1 true released", anew.task: "0 2 false in_progress", another.task: "0 1 false not_holder",
			fmt.Sprint(keys[3]["task_id"]): "0 1 false not_holder",
		}
		if !equal(got, want) {
			t.Errorf("want %v, got %v", want, got)
		}
		unnamed.entry().has(obj{"state": "reserved"})
		if got := outcomes(s.releaseOwner(t, owner, obj{"force": true, "keys": []obj{}})); len(got) > 0 {
			t.Errorf("of no keys: %v", got)
		}
	})
}

func TestReleaseOfAnOwnerIsStrict(t *testing.T) {
	t.Parallel()
	s := shared.service(t, engines[0])
	for field, bodies := range map[string][]string{
		"reason":          {`{}`, `{"reason":""}`, `{"reason":" \t "}`, `{"reason":"` + text("x", 1001) + `"}`, `{"reason":1}`},
		"force":           {`{"reason":"r","force":1}`},
		"cursor":          {`{"reason":"r","cursor":""}`, `{"reason":"r","cursor":"x"}`, `{"reason":"r","cursor":1}`, `{"reason":"r","cursor":"e30"}`, `{"reason":"r","cursor":"` + text("A", 1025) + `"}`, `{"reason":"r","keys":[],"cursor":"e30"}`},
		"x":               {`{"reason":"r","x":1}`},
		"keys":            {`{"reason":"r","keys":1}`, `{"reason":"r","keys":[` + strings.Repeat(`{"task_id":"a","attempt":0,"fence":1},`, 1000) + `{"task_id":"a","attempt":0,"fence":1}]}`},
		"keys[0].task_id": {`{"reason":"r","keys":[{"attempt":0,"fence":1}]}`, `{"reason":"r","keys":[{"task_id":"/","attempt":0,"fence":1}]}`},
		"keys[1].attempt": {`{"reason":"r","keys":[{"task_id":"a","attempt":0,"fence":1},{"task_id":"a","fence":1}]}`},
		"keys[0].fence":   {`{"reason":"r","keys":[{"task_id":"a","attempt":0}]}`},
		"body":            {``, `null`},
	} {
		for _, body := range bodies {
			a := s.send(t, call{method: http.MethodPost, path: "/v1/owners/w/release", body: body})
			if a.status != 400 || a.body["field"] != field {
				t.Errorf("%.60s: want a 400 for %s, got %s", body, field, a)
			}
		}
	}
	for _, owner := range []string{text("x", 256), "a%00b", "a%0Ab", "%ff", "%C2%85"} {
		s.send(t, call{method: http.MethodPost, path: "/v1/owners/" + owner + "/release", body: obj{"reason": "r"}}).wantField("owner")
	}
	for _, owner := range []string{text("é", 255), ".", "a/b", "a b", "%", "a,b;c", "{owner}"} {
		a := s.releaseOwner(t, owner).ok().has(obj{"owner": owner, "results": []any{}})
		if a.body["next_cursor"] != nil {
			t.Errorf("more: %s", a)
		}
	}
	s.send(t, call{method: http.MethodPost, path: "/v1/owners/w/release?force=true", body: obj{"reason": "r"}}).wantField("force")
}

// holding is a reader of an owner's entries, all on one page.
type holding struct {
	idem.Reader
	entries []*idem.Entry
	err     error
}

func (h holding) Entries(_ context.Context, q idem.EntryQuery) (idem.EntryPage, error) {
	if q.State == idem.Dispatched {
		return idem.EntryPage{}, h.err
	}
	return idem.EntryPage{Entries: h.entries}, nil
}

// What the database did not confirm is that key's own; where it confirmed nothing the call fails.
func TestReleaseOfAnOwnerInWhichSomeCommitsAreUnknown(t *testing.T) {
	t.Parallel()
	held := holding{entries: []*idem.Entry{
		{Key: idem.Key{TaskID: "a"}, Grant: idem.Grant{Fence: 1}},
		{Key: idem.Key{TaskID: "b"}, Grant: idem.Grant{Fence: 2}},
		{Key: idem.Key{TaskID: "c"}, Grant: idem.Grant{Fence: 3}},
	}}
	now := time.Now()
	keeper := broken{do: func(_ context.Context, cmds []idem.Command) []idem.Result {
		results := make([]idem.Result, len(cmds))
		for i, cmd := range cmds {
			results[i].Err = fmt.Errorf("%w: %s", idem.ErrUnavailable, internals)
			switch cmd.Target().TaskID {
			case "b":
				results[i] = idem.Result{Outcome: idem.Outcome{Code: idem.CodeReleased, OK: true, Key: cmd.Target(), Now: now, Entry: held.entries[1]}}
			case "c":
				results[i] = idem.Result{Outcome: idem.Outcome{Code: idem.CodeNotFound, Key: cmd.Target(), Now: now}}
			}
		}
		return results
	}}
	s := start(t, setup{keeper: keeper, reader: held})
	a := s.releaseOwner(t, "w")
	want := map[string]string{"a": "0 1 false unavailable", "b": "0 2 true released", "c": "0 3 false not_holder"}
	if got := outcomes(a); !equal(got, want) {
		t.Errorf("want %v, got %v", want, got)
	}
	if line := s.lines(t, a)[0]; line.Error == "" || line.Items != 3 {
		t.Errorf("the log says neither what failed nor of how many: %+v", line)
	}
	held.entries = held.entries[:1]
	start(t, setup{keeper: keeper, reader: held}).releaseOwner(t, "w").want(503, "unavailable")
	// What was found is ended, and the next call goes on; where nothing was, the call fails.
	held.err = errors.Join(idem.ErrUnavailable, errors.New(internals))
	s = start(t, setup{keeper: failing(nil), reader: held})
	cursor := s.releaseOwner(t, "w").ok().text("next_cursor")
	a = s.releaseOwner(t, "w", obj{"cursor": cursor}).want(503, "unavailable")
	if strings.Contains(string(a.raw), "postgres") {
		t.Errorf("internals reach the client: %s", a)
	}
}
