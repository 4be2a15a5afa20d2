package server_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/idemstore/idemstore/internal/server"
)

// num is a number as it is written.
type num = json.RawMessage

func text(s string, n int) string { return strings.Repeat(s, n) }

func many(n int, v any) []any {
	list := make([]any, n)
	for i := range list {
		list[i] = v
	}
	return list
}

func takeoversOf(n int) (list []obj) {
	for attempt := range n {
		list = append(list, takeover(attempt, 1))
	}
	return list
}

// limit is what one member of a request may be. In bad, a value may say which member is to blame if not this one.
type limit struct {
	verb, field string
	good, bad   []any
}

// blame is a bad value, and the member that is named for it.
type blame struct {
	value any
	field string
}

var (
	id        = uuid.NewString()
	badWords  = []any{1, true, []any{}, obj{}, 0.5}
	badNames  = append([]any{"", text("x", 256), text("☃", 256), "a\nb", "\x00", "a\x7f", "\u0085"}, badWords...)
	badIDs    = append([]any{"", "x", text("0", 36), strings.ReplaceAll(id, "-", ""), "{" + id + "}", "urn:uuid:" + id, id + "0", " " + id[1:], id[:35] + "g"}, badWords...)
	badFlags  = []any{"true", 1, 0, []any{}, obj{}}
	badHash   = append([]any{"", text("x", 129), "a b", "é", "a\n", "\x7f"}, badWords...)
	badWhole  = []any{num("1.5"), num("60.0"), num("6e1"), "60", true, []any{}, obj{}, num("99999999999999999999"), num("-99999999999999999999"), num("1e400")}
	badShapes = []any{1, true, "x"}
)

var limits = []limit{
	{"reserve", "owner", []any{"w", text("☃", 255), " ", "a\"\\b", "\u00a0"}, append([]any{nil}, badNames...)},
	{"reserve", "reservation_id", []any{nil, id, strings.ToUpper(id), "00000000-0000-0000-0000-000000000000"}, badIDs},
	{"reserve", "handler", []any{nil, "h", text("☃", 255)}, badNames},
	{"reserve", "request_hash", []any{nil, "!", text("~", 128)}, badHash},
	{"reserve", "lease_seconds", []any{nil, 1, 86400}, append([]any{0, -1, 86401, 9223372036854775807}, badWhole...)},
	{"reserve", "wait_seconds", []any{nil, 0, 60}, append([]any{-1, 61}, badWhole...)},
	{"reserve", "dispatch", []any{nil, "implicit", "explicit"}, append([]any{"", "Explicit", "none"}, badWords...)},
	{"reserve", "scope", []any{nil, "attempt", "task"}, append([]any{"", "Task", "all"}, badWords...)},
	{
		"reserve", "takeovers",
		[]any{nil, []any{}, takeoversOf(16), []obj{{"attempt": 2147483647, "fence": 9223372036854775807}}},
		append([]any{
			takeoversOf(17),
			obj{},
			blame{[]any{1}, "takeovers[0]"},
			blame{[]any{nil}, "takeovers[0].attempt"},
			blame{[]any{obj{}}, "takeovers[0].attempt"},
			blame{[]any{obj{"fence": 1}}, "takeovers[0].attempt"},
			blame{[]any{obj{"attempt": nil, "fence": 1}}, "takeovers[0].attempt"},
			blame{[]any{takeover(0, 1), obj{"attempt": 1}}, "takeovers[1].fence"},
			blame{[]any{obj{"attempt": 0, "fence": nil}}, "takeovers[0].fence"},
			blame{[]any{takeover(-1, 1)}, "takeovers[0].attempt"},
			blame{[]any{takeover(2147483648, 1)}, "takeovers[0].attempt"},
			blame{[]any{takeover(0, 0)}, "takeovers[0].fence"},
			blame{[]any{takeover(0, -1)}, "takeovers[0].fence"},
			blame{[]any{obj{"attempt": "0", "fence": 1}}, "takeovers[0].attempt"},
			blame{[]any{obj{"attempt": 0, "fence": num("9223372036854775808")}}, "takeovers[0].fence"},
			blame{[]any{takeover(0, 1), takeover(0, 2)}, "takeovers[1].attempt"},
			blame{[]any{with(takeover(0, 1), obj{"x": 1})}, "takeovers[0].x"},
			blame{[]any{with(takeover(0, 1), obj{"Fence": 1})}, "takeovers[0].Fence"},
		}, badShapes...),
	},
	{"dispatch", "reservation_id", []any{id, strings.ToUpper(id)}, append([]any{nil}, badIDs...)},
	{"renew", "reservation_id", []any{id, strings.ToUpper(id)}, append([]any{nil}, badIDs...)},
	{"renew", "lease_seconds", []any{nil, 1, 86400}, append([]any{0, -1, 86401}, badWhole...)},
	{"release", "reservation_id", []any{id, strings.ToUpper(id)}, append([]any{nil}, badIDs...)},
	{"release", "reason", []any{nil, "x", text("☃", 1000), "\x00\n"}, append([]any{"", text("x", 1001), text("☃", 1001)}, badWords...)},
	{"release", "earlier_not_done", []any{nil, true, false}, badFlags},
	{"release", "response", []any{nil, obj{}}, append([]any{[]any{}, blame{obj{"x": 1}, "response.x"}}, badShapes...)},
	{"record", "reservation_id", []any{id, strings.ToUpper(id)}, append([]any{blame{nil, "owner"}}, badIDs...)},
	{"record", "owner", []any{nil, "w", text("☃", 255)}, badNames},
	{"record", "request_hash", []any{nil, "!", text("~", 128)}, badHash},
	{"record", "retention_seconds", []any{nil, 3600, 31536000}, append([]any{0, -1, 3599, 31536001}, badWhole...)},
	{"record", "response", []any{obj{}, obj{"x": 1}}, append([]any{nil, []any{}}, badShapes...)},
}

// inResponse is what the members of a response may be, at record and at release.
var inResponse = []limit{
	{"", "status", []any{nil, 100, 599}, append([]any{0, 99, 600, -1}, badWhole...)},
	{"", "body", []any{nil, "", "\x00"}, badWords},
	{"", "body_base64", []any{nil, "", "/+8="}, append([]any{"a", "eA", "_-__", "eA==\n", "e A=", "****", "é"}, badWords...)},
	{"", "body_omitted", []any{nil, false}, append([]any{blame{true, "response.body_size"}}, badFlags...)},
	{"", "body_sha256", []any{nil}, append([]any{hexDigits, ""}, badWords...)}, // goes with body_omitted alone
	{"", "body_size", []any{nil}, append([]any{1, -1}, badWhole...)},
	{
		"", "headers",
		[]any{nil, []any{}, obj{}, many(100, []string{"a", "b"}), obj{"a": many(100, "b")}, []any{[]string{"ab", text("x", 32<<10-2)}}, obj{"é": text("x", 32<<10-2)}},
		append([]any{
			many(101, []string{"a", "b"}),
			obj{"a": many(101, "b")},
			[]any{[]string{"ab", text("x", 32<<10-1)}},
			obj{"é": text("x", 32<<10-1)},
			many(100, []string{"a", text("x", 328)}),
			[]any{[]any{"a"}},
			[]any{[]any{"a", "b", "c"}},
			[]any{[]any{}},
			[]any{"a", "b"},
			[]any{nil},
			[]any{[]any{"a", nil}},
			[]any{[]any{nil, "a"}},
			[]any{[]any{"a", 1}},
			[]any{obj{"a": "b"}},
			obj{"a": nil},
			obj{"a": 1},
			obj{"a": []any{nil}},
			obj{"a": []any{1}},
			obj{"a": obj{}},
			[]any{[]string{"", "b"}},
			obj{"": "b"},
		}, badShapes...),
	},
}

// TestLimits sends every member at its limits and past them. What is in order is judged: it is granted, or not found.
func TestLimits(t *testing.T) {
	t.Parallel()
	base := map[string]obj{
		"reserve": {"owner": "w"}, "dispatch": {"reservation_id": id}, "renew": {"reservation_id": id}, "release": {"reservation_id": id},
		"record": {"reservation_id": id, "response": obj{}},
	}
	onEveryEngine(t, func(t *testing.T, s *service) {
		check := func(verb, field string, body obj, value any, good bool) {
			t.Helper()
			k := s.key(t)
			a := k.post(verb, body)
			switch {
			case good && verb == "reserve":
				good = a.status == 201
			case good:
				good = a.status == 404
			default:
				good = a.status == 400 && a.body["field"] == field
			}
			if !good {
				t.Errorf("%s, %s: %.100v: want %s to be named, got %s", verb, field, value, field, a)
			}
		}
		for _, l := range limits {
			for _, v := range l.good {
				check(l.verb, l.field, with(base[l.verb], obj{l.field: v}), v, true)
			}
			for _, v := range l.bad {
				value, field := blamed(v, l.field)
				check(l.verb, field, with(base[l.verb], obj{l.field: value}), value, false)
			}
		}
		for _, verb := range []string{"record", "release"} {
			for _, l := range inResponse {
				for _, v := range l.good {
					check(verb, l.field, with(base[verb], obj{"response": obj{l.field: v}}), v, true)
				}
				for _, v := range l.bad {
					value, field := blamed(v, "response."+l.field)
					check(verb, field, with(base[verb], obj{"response": obj{l.field: value}}), value, false)
				}
			}
		}
	})
}

func blamed(v any, field string) (any, string) {
	if b, ok := v.(blame); ok {
		return b.value, b.field
	}
	return v, field
}

func TestRequiredMembers(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		k := s.key(t)
		for verb, field := range map[string]string{
			"reserve": "owner", "dispatch": "reservation_id", "renew": "reservation_id", "release": "reservation_id", "record": "owner",
		} {
			k.post(verb, obj{}).wantField(field)
		}
		k.post("record", obj{"owner": "w"}).wantField("response")
		k.post("record", obj{"reservation_id": id}).wantField("response")
		k.post("record", obj{"response": obj{}}).wantField("owner")
	})
}

// One of body, body_base64 and the three of an omitted one.
func TestWaysToGiveABody(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		omitted := obj{"body_omitted": true, "body_sha256": hexDigits, "body_size": 1}
		for _, b := range []struct {
			response obj
			field    string
		}{
			{obj{"body": "a", "body_base64": "YQ=="}, "response.body_base64"},
			{obj{"body": "", "body_base64": ""}, "response.body_base64"},
			{with(omitted, obj{"body": ""}), "response.body_omitted"},
			{with(omitted, obj{"body_base64": ""}), "response.body_omitted"},
			{with(omitted, obj{"body_size": nil}), "response.body_size"},
			{with(omitted, obj{"body_size": -1}), "response.body_size"},
			{with(omitted, obj{"body_size": 9007199254740992}), "response.body_size"},
			{with(omitted, obj{"body_sha256": nil}), "response.body_sha256"},
			{with(omitted, obj{"body_sha256": ""}), "response.body_sha256"},
			{with(omitted, obj{"body_sha256": hexDigits[1:]}), "response.body_sha256"},
			{with(omitted, obj{"body_sha256": hexDigits + "0"}), "response.body_sha256"},
			{with(omitted, obj{"body_sha256": "g" + hexDigits[1:]}), "response.body_sha256"},
			{with(omitted, obj{"body_omitted": false}), "response.body_sha256"},
			{with(omitted, obj{"body_omitted": nil, "body_sha256": nil}), "response.body_size"},
		} {
			k := s.key(t)
			k.record("", b.response, obj{"owner": "w"}).wantField(b.field)
			k.release(id, obj{"response": b.response}).wantField(b.field)
		}
	})
}

// A body over its limit is 413; the worker then says how large it was. TestTheLargestBody has one at its limit.
func TestBodyLimit(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		const over = server.DefaultMaxBodyBytes + 1
		k := s.key(t)
		owner := obj{"owner": "w"}
		k.record("", obj{"body": text("x", over)}, owner).want(413, "body_too_large")
		k.release(id, obj{"response": obj{"body_base64": text("AAAA", over/3) + "AAA="}}).want(413, "body_too_large")
		k.replay("").want(404, "not_found")
		k.record("", obj{"body_omitted": true, "body_sha256": hexDigits, "body_size": over}, owner).want(201, "recorded")
	})
}

func TestBodyLimitIsConfigured(t *testing.T) {
	t.Parallel()
	s := start(t, setup{database: inMemory, config: server.Config{MaxBodyBytes: 4}})
	for _, b := range []struct {
		body   obj
		status int
	}{
		{obj{"body": "1234"}, 201}, {obj{"body": "12345"}, 413}, {obj{"body": "☃x"}, 201}, {obj{"body": "☃xx"}, 413}, // bytes, not characters
		{obj{"body_base64": "AAAAAA=="}, 201}, {obj{"body_base64": "AAAAAAA="}, 413},
	} {
		a := s.key(t).record("", b.body, obj{"owner": "w"})
		if a.status != b.status {
			t.Errorf("%v: %s", b.body, a)
		}
		if detail, _ := a.body["detail"].(string); b.status == 413 && (!strings.Contains(detail, "4 bytes") || !strings.Contains(detail, "body_omitted")) {
			t.Errorf("%v: detail names neither the limit nor the way out: %s", b.body, detail)
		}
		released := s.key(t).release(id, obj{"response": b.body})
		if want := map[int]int{201: 404, 413: 413}[b.status]; released.status != want {
			t.Errorf("release with %v: %s", b.body, released)
		}
	}
}
