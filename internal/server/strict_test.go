package server_test

import (
	"fmt"
	"strings"
	"testing"
)

// Texts that are no request, and the member that is named. For owner, read the first member of a verb.
var malformed = map[string]string{
	``: "body", ` `: "body", `null`: "body", `[]`: "body", `[{"owner":"w"}]`: "body", `"owner"`: "body", `1`: "body", `true`: "body", `x`: "body",
	`{`: "body", `{"owner"`: "owner", `{"owner":`: "owner", `{"owner":"w"`: "body", `{"owner":"w`: "owner",
	"\xef\xbb\xbf{}": "body", `{}{}`: "body", `{} x`: "body", `{},`: "body", `{}]`: "body", "{}\x00": "body",
	`{'owner':"w"}`: "body", `{owner:"w"}`: "body", `{"owner":'w'}`: "owner", `{"owner":NaN}`: "owner", `{"owner":undefined}`: "owner", `{"owner":"w",}`: "body",
	`{"owner":"w" /* no */}`: "body", `{"owner":01}`: "owner", `{"owner":"\x"}`: "owner", `{"owner":"` + "\n" + `"}`: "owner", `{"owner":"` + "\x00" + `"}`: "owner",
	`{"owner":"` + "\xff" + `"}`: "owner", `{"owner":"` + "\xed\xa0\x80" + `"}`: "owner", `{"owner":"\ud800"}`: "owner", `{"owner":"\udc00\ud800"}`: "owner",
	`{"` + "\xff" + `":1}`: "body", `{"\ud800":1}`: "body",
}

func TestMalformedBodies(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		k := s.key(t)
		for _, verb := range []string{"reserve", "dispatch", "renew", "record", "release"} {
			first := "owner"
			if verb != "reserve" && verb != "record" {
				first = "reservation_id"
			}
			for body, field := range malformed {
				body, field = strings.ReplaceAll(body, "owner", first), strings.ReplaceAll(field, "owner", first)
				if a := k.post(verb, body); a.status != 400 || a.body["field"] != field {
					t.Errorf("%s %q: want a 400 for %s, got %s", verb, body, field, a)
				}
			}
			k.post(verb, strings.Repeat(`{"owner":`, 7000)).want(400, "invalid_request") // deep
			k.post(verb, strings.Repeat(`[`, 60000)).wantField("body")
		}
		k.replay("").want(404, "not_found")
	})
}

// A field that is unknown, repeated or written in another letter case is named.
func TestMembersThatMayNotBe(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		k := s.key(t)
		for _, m := range []struct{ verb, body, field string }{
			{"reserve", `{"owner":"w","leaseSeconds":1}`, "leaseSeconds"},
			{"reserve", `{"owner":"w","task_id":"x"}`, "task_id"},
			{"reserve", `{"owner":"w","":1}`, "body"},
			{"reserve", `{"owner":"w","a.b":{"c":1}}`, "a.b"},
			{"reserve", `{"owner":"w","Owner":"w"}`, "Owner"},
			{"reserve", `{"OWNER":"w"}`, "OWNER"},
			{"reserve", `{"owner":"w","owner":"w"}`, "owner"},
			{"reserve", `{"owner":"w","lease_seconds":null,"lease_seconds":1}`, "lease_seconds"},
			{"reserve", `{"owner":"w","own\u0065r":"v"}`, "owner"},
			{"reserve", `{"owner":"w","takeovers":[{"attempt":0,"fence":1,"fence":1}]}`, "takeovers[0].fence"},
			{"reserve", `{"owner":"w","takeovers":[{"attempt":0,"fence":1},{"attempt":1,"fence":1,"owner":"w"}]}`, "takeovers[1].owner"},
			{"dispatch", `{"reservation_id":"` + id + `","lease_seconds":1}`, "lease_seconds"},
			{"dispatch", `{"reservation_id":"` + id + `","Reservation_Id":"x"}`, "Reservation_Id"},
			{"dispatch", `{"reservation_id":"` + id + `","reservation_id":"` + id + `"}`, "reservation_id"},
			{"renew", `{"reservation_id":"` + id + `","owner":"w"}`, "owner"},
			{"renew", `{"reservation_id":"` + id + `","Lease_Seconds":1}`, "Lease_Seconds"},
			{"renew", `{"reservation_id":"` + id + `","lease_seconds":1,"lease_seconds":1}`, "lease_seconds"},
			{"release", `{"reservation_id":"` + id + `","retention_seconds":3600}`, "retention_seconds"},
			{"release", `{"reservation_id":"` + id + `","Reason":"x"}`, "Reason"},
			{"release", `{"reservation_id":"` + id + `","response":{"Status":500}}`, "response.Status"},
			{"release", `{"reservation_id":"` + id + `","response":{"x":500}}`, "response.x"},
			{"release", `{"reservation_id":"` + id + `","response":{"status":500,"status":500}}`, "response.status"},
			{"release", `{"reservation_id":"` + id + `","response":{"headers":{"a":"1","a":"2"}}}`, "response.headers.a"},
			{"record", `{"reservation_id":"` + id + `","response":{},"response":{}}`, "response"},
			{"record", `{"reservation_id":"` + id + `","Response":{}}`, "Response"},
			{"record", `{"reservation_id":"` + id + `","response":{},"OWNER":"w"}`, "OWNER"},
			{"record", `{"reservation_id":"` + id + `","x":1,"response":{"Body":"x"}}`, "response.Body"},
			{"record", `{"reservation_id":"` + id + `","response":{"body":"x","body":"x"}}`, "response.body"},
			{"record", `{"reservation_id":"` + id + `","response":{"headers":{"a":"1","a":"2"}}}`, "response.headers.a"},
			{"record", `{"reservation_id":"` + id + `","response":{},"x":1,"x":1}`, "x"},
			{"record", `{"reservation_id":"` + id + `","response":{},"x":{"y":1,"y":1}}`, "x.y"},
			{"record", `{"reservation_id":"` + id + `","response":{"x":"\ud800"}}`, "response.x"},
			{"record", `{"reservation_id":"` + id + `","x":1,"response":{"status":"200"}}`, "response.status"},
		} {
			if a := k.post(m.verb, m.body); a.status != 400 || a.body["field"] != m.field {
				t.Errorf("%s %s: want a 400 for %s, got %s", m.verb, m.body, m.field, a)
			} else if a.header.Get("Retry-After") != "" || !strings.Contains(a.text("detail"), m.field) {
				t.Errorf("%s %s: detail does not name it: %s", m.verb, m.body, a)
			}
		}
	})
}

// Strict before the effect, lenient after it: record ignores what it does not know, and names it.
func TestRecordIsLenient(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		for _, r := range []struct {
			extra, inResponse string
			ignored           []string
		}{
			{``, ``, []string{}},
			{`,"x":1`, ``, []string{"x"}},
			{`,"z":{"y":[1,{"status":2}]},"a":null`, ``, []string{"a", "z"}},
			{``, `,"x":1,"Trailer":{}`, []string{"response.Trailer", "response.x"}},
			{`,"x":1`, `,"x":1`, []string{"response.x", "x"}},
			{`,"lease_seconds":0,"wait_seconds":"?","takeovers":1`, ``, []string{"lease_seconds", "takeovers", "wait_seconds"}},
			{`,"task_id":"another","attempt":7`, `,"owner":1`, []string{"attempt", "response.owner", "task_id"}},
			{`,"status":1,"response.status":1`, ``, []string{"response.status", "status"}},
			{`,"é\u0000":1`, ``, []string{"é\x00"}},
		} {
			k := s.key(t)
			body := fmt.Sprintf(`{"owner":"w","response":{"status":201%s}%s}`, r.inResponse, r.extra)
			k.post("record", body).want(201, "recorded").has(obj{"ignored_fields": r.ignored})
			k.post("record", body).want(200, "recorded").has(obj{"ignored_fields": r.ignored})
			k.replay("").want(200, "recorded").has(obj{"response": obj{"status": 201, "headers": []any{}}})
			refused := k.post("record", strings.Replace(body, "201", "500", 1)).want(409, "already_recorded")
			if len(r.ignored) > 0 {
				refused.has(obj{"ignored_fields": r.ignored})
			}
		}
	})
}

// Nothing of what is sent comes to be HTML or another header, whatever it is.
func TestProblemsQuoteSafely(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		k := s.key(t)
		for _, name := range []string{"<script>", "a\\r\\nSet-Cookie: x", "\\u2028", strings.Repeat("x", 60000)} {
			a := k.post("reserve", `{"owner":"w","`+name+`":1}`).want(400, "invalid_request")
			if a.header.Get("Content-Type") != "application/problem+json" || a.header.Get("Set-Cookie") != "" {
				t.Errorf("%.20q: %v", name, a.header)
			}
		}
	})
}
