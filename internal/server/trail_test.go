package server_test

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/idemstore/idemstore/internal/server"
)

// offers are responses that are hard to keep, as they are offered and as they must come back.
var offers = func() (all [][2]obj) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	digits := strings.Repeat("ab", 32)
	odd := []any{[]any{"X-Odd", ""}, []any{"x-odd", "é \t\"quoted\", =cmd|' /C calc'!A0"}, []any{"X-Odd", "again"}}
	for _, r := range []struct{ offered, back obj }{
		{obj{"status": 201, "headers": odd, "body": "=1+1\r\n\"q\",;\n\x00\u2028 n: 12345678901234567890.5"}, nil},
		{obj{"status": 599, "body_base64": base64.StdEncoding.EncodeToString(every)}, nil},
		{obj{"status": 100, "body": ""}, nil},
		{obj{"status": 204}, nil},
		{obj{"body_base64": base64.StdEncoding.EncodeToString([]byte("text"))}, obj{"status": 200, "body": "text"}},
		{obj{"status": 200, "body_omitted": true, "body_sha256": digits, "body_size": 1<<53 - 1}, nil},
		{obj{"status": 500, "headers": obj{"A": []any{"1", "2"}, "Set-Cookie": "s"}, "body_base64": "/w=="}, obj{
			"status": 500, "headers": []any{[]any{"A", "1"}, []any{"A", "2"}}, "body_base64": "/w==",
		}},
		{obj{"status": 502, "body": strings.Repeat("x", server.DefaultMaxBodyBytes)}, nil},
	} {
		if r.back == nil {
			r.back = r.offered
		}
		all = append(all, [2]obj{r.offered, with(obj{"headers": []any{}}, r.back)})
	}
	return all
}()

// story is how an event comes about by the verbs of the API: which call leads to it, and what is then to be read of it.
type story struct {
	kind string
	// evidence: the offered response is kept with it.
	evidence bool
	tell     func(k key, offered obj) (answer, obj)
}

// Each kind of event, but for those that only time brings. The owner of what acts is in the event, beside the token.
var stories = []story{
	{"replayed", false, func(k key, _ obj) (answer, obj) {
		k.record("", obj{}, obj{"owner": "first"}).want(201, "recorded")
		return k.reserve(obj{"owner": "reader"}).want(200, "recorded"), obj{"owner": "reader", "fence": 1}
	}},
	{"replayed", false, func(k key, _ obj) (answer, obj) {
		k.record(k.reserve(obj{"handler": "h"}).id(), obj{}).want(201, "recorded")
		return k.replay("?owner=reader").want(200, "recorded"), obj{"owner": "reader", "fence": 1, "handler": "h"}
	}},
	{"found_in_doubt", false, func(k key, _ obj) (answer, obj) {
		grant := k.leave(obj{"owner": "gone", "handler": "h"})
		return k.reserve(obj{"owner": "finder"}).want(409, "in_doubt"), obj{
			"owner": "finder", "fence": 1, "handler": "h", "detail": obj{"doubts": []obj{doubtOf(grant, false)}},
		}
	}},
	{"taken_over", false, func(k key, _ obj) (answer, obj) {
		grant := k.leave(obj{"owner": "gone"})
		return k.reserve(obj{"owner": "next", "handler": "h"}, taking(takeover(0, 1))).want(201, "reserved"), obj{
			"owner": "next", "fence": 2, "handler": "h",
			"detail": obj{"from": []obj{{"attempt": 0, "fence": 1, "doubts": []obj{doubtOf(grant, false)}}}},
		}
	}},
	{"refused_mismatch", false, func(k key, _ obj) (answer, obj) {
		k.reserve(hashed("a"), obj{"handler": "h"}).id()
		return k.reserve(hashed("b"), obj{"owner": "other"}).want(422, "request_mismatch"), obj{
			"owner": "other", "fence": 1, "handler": "h", "detail": obj{"request_hash": "b", "standing_request_hash": "a"},
		}
	}},
	{"released", true, func(k key, offered obj) (answer, obj) {
		id := k.reserve(obj{"owner": "h1", "handler": "h"}).id()
		return k.release(id, obj{"reason": "no <route>\n", "response": offered}).want(200, "released"), obj{
			"owner": "h1", "fence": 1, "handler": "h", "detail": obj{"reason": "no <route>\n"},
		}
	}},
	{"released", false, func(k key, _ obj) (answer, obj) {
		return k.release(k.reserve(obj{"owner": "h1"}).id()).want(200, "released"), obj{"owner": "h1", "fence": 1, "detail": obj{}}
	}},
	{"recorded_late", true, func(k key, offered obj) (answer, obj) {
		grant := k.leave(obj{"owner": "late", "handler": "h"})
		id := grant.id()
		return k.record(id, offered).want(201, "recorded"), obj{
			"owner": "late", "fence": 1, "handler": "h", "detail": obj{"lease_until": grant.body["lease_until"], "current_fence": 1},
		}
	}},
	{"duplicate_record", true, func(k key, offered obj) (answer, obj) {
		id := k.leave(obj{"owner": "gone", "handler": "h"}).id()
		second := k.reserve(obj{"owner": "next", "handler": "h"}, taking(takeover(0, 1))).id()
		k.record(second, obj{"status": 201, "body": "the second effect"}).want(201, "recorded")
		return k.record(id, offered).want(409, "already_recorded"), obj{
			"owner": "gone", "fence": 1, "handler": "h", "detail": obj{"same_response": false, "code": "already_recorded"},
		}
	}},
	{"duplicate_record", true, func(k key, offered obj) (answer, obj) {
		id := k.leave(obj{"owner": "gone"}).id()
		k.record(k.reserve(taking(takeover(0, 1))).id(), offered).want(201, "recorded")
		return k.record(id, offered).want(200, "recorded"), obj{"owner": "gone", "fence": 1, "detail": obj{"same_response": true}}
	}},
	{"refused_record", true, func(k key, offered obj) (answer, obj) {
		return k.record(uuid.NewString(), offered, obj{"owner": "stranger"}).want(404, "not_found"), obj{"owner": "stranger", "fence": 0, "detail": obj{"code": "not_found"}}
	}},
	{"refused_record", true, func(k key, offered obj) (answer, obj) {
		k.reserve(obj{"handler": "h"}).id()
		return k.record(uuid.NewString(), offered).want(409, "not_holder"), obj{"fence": 1, "handler": "h", "detail": obj{"code": "not_holder"}}
	}},
	{"refused_record", true, func(k key, offered obj) (answer, obj) {
		k.reserve(obj{"handler": "h"}).id()
		return k.record("", offered, obj{"owner": "unreserved"}).want(409, "in_progress"), obj{
			"owner": "unreserved", "fence": 1, "handler": "h", "detail": obj{"code": "in_progress"},
		}
	}},
	{"resolved", true, func(k key, offered obj) (answer, obj) {
		grant := k.leave(obj{"owner": "gone", "handler": "h"})
		return k.resolve(1, obj{"action": "record", "response": offered, "reason": "seen at the <upstream>"}).ok(), obj{
			"owner": "op", "fence": 1, "handler": "h", "detail": obj{
				"action": "record", "reason": "seen at the <upstream>", "forced": false, "doubts": []obj{doubtOf(grant, false)},
			},
		}
	}},
	{"refused_record", true, func(k key, offered obj) (answer, obj) {
		k.reserve().id()
		return k.resolve(1, obj{"action": "record", "response": offered}).want(409, "in_progress"), obj{"owner": "op", "fence": 1}
	}},
	{"purged", false, func(k key, _ obj) (answer, obj) {
		grant := k.leave(obj{"owner": "gone", "handler": "h"})
		k.s.pass(k.t, 91*day)
		return k.reserve().want(201, "reserved"), obj{"owner": "gone", "token": "", "fence": 1, "handler": "h", "detail": obj{
			"doubts": []obj{doubtOf(grant, false)}, "expires_at": grant.body["expires_at"],
		}}
	}},
}

// everyKind has a token with all roles, so that one caller can tell whole stories.
func everyKind(t *testing.T, engine string) *service {
	t.Helper()
	secret, line, err := server.NewToken("op", []server.Role{server.RoleWorker, server.RoleOperator})
	if err != nil {
		t.Fatal(err)
	}
	c := setup{database: inMemory, tokens: line}
	if engine == "postgres" {
		c.database = shared.postgresURL(t)
	}
	s := start(t, c)
	s.token = secret
	s.journal.secret(secret)
	return s
}

// Each event is there before its answer is, with who, what, when and every byte that was offered.
func TestTheTrailIsWhole(t *testing.T) {
	t.Parallel()
	for _, engine := range engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			s := everyKind(t, engine)
			kinds := make(map[string]bool)
			for i, story := range stories {
				kinds[story.kind] = true
				for _, offer := range offers {
					k := s.key(t)
					a, want := story.tell(k, offer[0])
					events := s.get(t, "/v1/events?"+url.Values{"task_id": {k.task}, "kind": {story.kind}}.Encode()).ok().list("events")
					if len(events) != 1 {
						t.Fatalf("%d: %s: %d events: %v", i, story.kind, len(events), events)
					}
					got := events[0]
					check := with(obj{"kind": story.kind, "task_id": k.task, "attempt": 0, "request_id": a.header.Get("X-Request-Id")}, want)
					actor := got["actor"].(obj)
					got["owner"], got["token"] = actor["owner"], actor["token"]
					if check["token"] == nil {
						check["token"] = "op"
					}
					if story.evidence {
						check["response"] = offer[1]
					} else if got["response"] != nil {
						t.Errorf("%s: evidence of nothing: %v", story.kind, got["response"])
					}
					for name, v := range check {
						if !includes(got[name], v) {
							t.Errorf("%d: %s: %s is %.300v, want %.300v", i, story.kind, name, got[name], v)
						}
					}
					if off := time.Since(eventTime(t, got)) + time.Duration(s.shift.Load()); off.Abs() > time.Minute {
						t.Errorf("%s: at %v, which is %s off", story.kind, got["at"], off)
					}
					found := false
					for _, e := range k.history().ok().list("events") { // and it is in the task's timeline
						found = found || e["id"] == got["id"] && equal(e["response"], got["response"]) && equal(e["detail"], got["detail"])
					}
					if !found {
						t.Errorf("%s is not in the timeline", story.kind)
					}
					if !story.evidence {
						break // it is the same whatever is offered
					}
				}
			}
			if len(kinds) != 10 {
				t.Errorf("%d kinds are told: %v", len(kinds), kinds)
			}
		})
	}
}

func eventTime(t testing.TB, event obj) time.Time {
	t.Helper()
	at, err := time.Parse("2006-01-02T15:04:05.000000Z", event["at"].(string))
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// includes says whether got is want, or an object with at least the members of want.
func includes(got, want any) bool {
	var plain any
	text, err := json.Marshal(want)
	if err != nil {
		panic(err)
	}
	if err := json.Unmarshal(text, &plain); err != nil {
		panic(err)
	}
	switch plain := plain.(type) {
	case obj:
		object, ok := got.(obj)
		for name, v := range plain {
			ok = ok && includes(object[name], v)
		}
		return ok
	case []any:
		list, ok := got.([]any)
		ok = ok && len(list) == len(plain)
		for i := range plain {
			ok = ok && includes(list[i], plain[i])
		}
		return ok
	}
	return reflect.DeepEqual(got, plain)
}

// Replays are counted and listed: who was given which response when. Each is in the trail before its answer is.
func TestReplaysAreListed(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		k := s.key(t)
		k.record(k.reserve(obj{"owner": "doer", "handler": "h"}).id(), obj{"status": 201, "body": "once"}).want(201, "recorded")
		later := k.at(2)
		later.record(later.reserve(obj{"owner": "doer"}).id(), obj{"status": 202}).want(201, "recorded")
		given := []struct {
			owner   string
			attempt int // whose response it is
			take    func(owner string) answer
		}{
			{"a", 2, func(owner string) answer { return k.at(1).reserve(obj{"owner": owner}) }},
			{"b", 0, func(owner string) answer { return k.replay("?raw=true&owner=" + owner) }},
			{"a", 0, func(owner string) answer { return k.reserve(obj{"owner": owner}) }},
			{"c", 2, func(owner string) answer { return later.replay("?body=base64&owner=" + owner) }},
			{"a", 0, func(owner string) answer { return k.reserve(obj{"owner": owner}) }},
			{"d", 0, func(owner string) answer {
				s.batch(t, "reserve", []obj{item(k, obj{"owner": owner})})
				return answer{}
			}},
		}
		for i, g := range given {
			s.tick(t)
			a := g.take(g.owner)
			events := s.get(t, "/v1/events?kind=replayed&task_id="+k.task).ok().list("events")
			if len(events) != i+1 {
				t.Fatalf("%d events after %d replays", len(events), i+1)
			}
			newest := events[0]
			if newest["actor"].(obj)["owner"] != g.owner {
				t.Errorf("replay %d was given to %v, want %s", i, newest["actor"], g.owner)
			}
			if a.header != nil && newest["request_id"] != a.header.Get("X-Request-Id") {
				t.Errorf("replay %d: request %v", i, newest["request_id"])
			}
			if newest["attempt"] != float64(g.attempt) {
				t.Errorf("replay %d is of attempt %v, want %d", i, newest["attempt"], g.attempt)
			}
			want := obj{}
			if i == 0 { // the one that another attempt's reserve was given
				want["asked_attempt"] = 1
			}
			if !equal(newest["detail"], want) {
				t.Errorf("replay %d: detail %v, want %v", i, newest["detail"], want)
			}
		}
		if n := len(s.get(t, "/v1/events?kind=replayed&actor=a&task_id="+k.task).ok().list("events")); n != 3 {
			t.Errorf("a was given %d, want 3", n)
		}
	})
}
