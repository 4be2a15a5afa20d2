package audit

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/idemstore/idemstore/api"
)

// hostile is what an upstream or a worker may send: it clears the screen, sets the window's title, turns the direction of
// writing, ends the line and writes over it.
const hostile = "\x1b[2J\x1b]0;owned\x07\u202e\u009b31m\r\nrm -rf ~\x00\x7f"

func text(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// The task of a staged incident: a vanishes, b takes over and records, a's record comes late.
var incident = `{"task_id":"order-7","attempts":[
 {"task_id":"order-7","attempt":0,"state":"recorded","in_doubt":false,"owner":"worker-b","fence":2,"dispatch":"implicit","handler":"charge",
  "reserved_at":"2026-11-29T20:46:37.200000Z","lease_until":"2026-11-29T20:47:07.200000Z","doubts":[],"late":false,"expires_at":"2026-12-13T20:46:38.000001Z",
  "recorded_at":"2026-11-29T20:46:38.000001Z","recorded_by":"worker-b",
  "response":{"status":201,"headers":[["Content-Type","application/json"],["X-Evil",` + text(hostile) + `]],"body":"{\"charge\":\"ch_2\"}"}},
 {"task_id":"order-7","attempt":1,"state":"reserved","in_doubt":false,"owner":"worker-c","fence":1,"dispatch":"explicit",
  "reserved_at":"2026-11-29T20:50:00.000000Z","lease_until":"2026-11-29T20:51:00.000000Z","doubts":[],"late":false,"expires_at":"2027-02-27T20:51:00.000000Z"}],
"events":[
 {"id":"1","at":"2026-11-29T20:46:37.100000Z","kind":"found_in_doubt","task_id":"order-7","attempt":0,"fence":1,"handler":"charge",
  "actor":{"owner":"worker-b","token":"fleet"},"request_id":"r1","detail":{"doubts":[{"owner":"worker-a","fence":1,"reserved_at":"2026-11-29T20:46:07.123456Z","lease_until":"2026-11-29T20:46:37.123456Z","dispatched":false}]}},
 {"id":"2","at":"2026-11-29T20:46:37.200000Z","kind":"taken_over","task_id":"order-7","attempt":0,"fence":2,"handler":"charge",
  "actor":{"owner":"worker-b","token":"fleet"},"request_id":"r2","detail":{"from":[{"attempt":0,"fence":1,"doubts":[{"owner":"worker-a","fence":1,"reserved_at":"2026-11-29T20:46:07.123456Z","lease_until":"2026-11-29T20:46:37.123456Z","dispatched":false}]}]}},
 {"id":"3","at":"2026-11-29T20:46:59.000000Z","kind":"duplicate_record","task_id":"order-7","attempt":0,"fence":1,"handler":"charge",
  "actor":{"owner":"worker-a","token":"fleet"},"request_id":"r3","detail":{"same_response":false},
  "response":{"status":201,"headers":[["Content-Type","application/json"]],"body":"{\"charge\":\"ch_1\"}"}},
 {"id":"4","at":"2026-11-29T20:47:01.000000Z","kind":"replayed","task_id":"order-7","attempt":0,"fence":2,
  "actor":{"owner":` + text("worker"+hostile) + `,"token":"fleet"},"request_id":"r4","detail":{}},
 {"id":"5","at":"2026-11-29T20:55:00.000000Z","kind":"resolved","task_id":"order-7","attempt":0,"fence":2,
  "actor":{"owner":"alice","token":"alice"},"request_id":"r5","detail":{"action":"release","reason":` + text("said "+hostile) + `,"forced":false,"doubts":[]},
  "response":{"status":500,"headers":[],"body_base64":"//79AA=="}}]}`

func TestTask(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.answers["GET /v1/tasks/order-7"] = answer{200, incident}
	s := of(t, f)
	wantOK(t, s.Task(t.Context(), "order-7"))
	golden(t, "task", s.out.String())
	if auth := f.asked[0].Header.Get("Authorization"); auth != "Bearer token-of-the-test" {
		t.Errorf("asked with %q", auth)
	}
	for _, body := range []string{"ch_1", "ch_2"} {
		if !strings.Contains(s.out.String(), body) {
			t.Errorf("the response with %s is not shown", body)
		}
	}

	s = of(t, f)
	s.Output = JSON
	wantOK(t, s.Task(t.Context(), "order-7"))
	if have := s.out.String(); have != incident+"\n" {
		t.Errorf("the document was changed: %s", have)
	}
}

func TestUnknownTask(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.answers["GET /v1/tasks/no"] = answer{404, problemOf(404, "not_found", "Nothing is known of no.", "")}
	wantClass(t, of(t, f).Task(t.Context(), "no"), Nothing, "Nothing is known of no.")
	wantClass(t, of(t, f).Task(t.Context(), "other"), Failed, "no such route")
	wantClass(t, of(t, f).Task(t.Context(), ".."), Usage)
}

// A body is shown in part or whole; either way nothing in it is obeyed.
func TestBodies(t *testing.T) {
	t.Parallel()
	body := strings.Repeat("line\n", 30) + hostile + strings.Repeat("x", 500)
	f := newFake(t)
	f.answers["GET /v1/tasks/t/attempts/3"] = answer{200, fmt.Sprintf(`{"task_id":"t","attempt":3,"state":"recorded","in_doubt":true,"owner":"w","fence":1,
	 "dispatch":"implicit","reserved_at":"2026-11-29T20:59:59.000000Z","lease_until":"2026-11-29T21:00:30.000000Z","late":true,"expires_at":"2026-12-13T20:59:59.000000Z",
	 "recorded_at":"2026-11-29T20:59:59.500000Z","recorded_by":"w","request_hash":"sha256:1","dispatched_at":"2026-11-29T20:59:59.400000Z",
	 "doubts":[{"owner":"w","fence":1,"reserved_at":"2026-11-28T20:00:00.000000Z","lease_until":"2026-11-28T20:01:00.000000Z","dispatched":true}],
	 "response":{"status":200,"headers":[["A",%s]],"body":%s}}`, text(strings.Repeat("v", 200)), text(body))}
	s := of(t, f)
	wantOK(t, s.Entry(t.Context(), "t", 3))
	golden(t, "entry", s.out.String())
	s = of(t, f)
	s.Bodies = true
	wantOK(t, s.Entry(t.Context(), "t", 3))
	golden(t, "entry-whole", s.out.String())
}

func TestResponsesOfEveryKind(t *testing.T) {
	t.Parallel()
	long, bytes, yes, size, sum, empty := strings.Repeat("é", 300), []byte{0xff, 0xfe, 0x1b}, true, int64(9e15), "00ff", ""
	s := &shown{}
	s.Session = &Session{Out: &s.out}
	for _, r := range []*api.Response{
		{Status: 204},
		{Status: 200, Body: &empty},
		{Status: 200, Body: &long},
		{Status: 200, BodyBase64: &bytes},
		{Status: 200, BodyOmitted: &yes, BodySize: &size, BodySha256: &sum},
		{Status: 200, Headers: make([][2]string, 30)},
	} {
		say(&s.out, "%s | %s", brief(r), measure(r))
		s.showResponse(&s.out, r)
	}
	golden(t, "responses", s.out.String())
}

func TestStats(t *testing.T) {
	t.Parallel()
	counts := func(n int) string {
		return fmt.Sprintf(`{"entries":{"reserved":%d,"dispatched":2,"recorded":3000000000,"released":4,"in_doubt":5},"events":{"replayed":6,"taken_over":7,
		 "found_in_doubt":8,"refused_mismatch":9,"released":10,"recorded_late":11,"duplicate_record":12,"refused_record":13,"resolved":14,"purged":15}}`, n)
	}
	f := newFake(t)
	f.answers["GET /v1/stats"] = answer{200, `{"after":"2026-11-28T21:00:00.000000Z","before":"2026-11-29T21:00:00.000000Z","totals":` + counts(1) + `,
	 "handlers":[{"handler":"","counts":` + counts(2) + `},{"handler":` + text(hostile) + `,"counts":` + counts(3) + `}],
	 "owners":[{"owner":"w","counts":` + counts(4) + `}],"more_handlers":0,"more_owners":7,"open":3,"in_doubt":1,"duplicates":12,
	 "oldest_in_doubt":{"task_id":"t","attempt":0,"state":"reserved","in_doubt":true,"owner":"w","fence":1,"dispatch":"implicit","reserved_at":"2026-11-20T20:59:59.000000Z",
	  "lease_until":"2026-11-20T21:00:30.000000Z","late":false,"expires_at":"2026-12-13T20:59:59.000000Z","doubts":[]}}`}
	s := of(t, f)
	after := "2026-11-28T21:00:00Z"
	wantOK(t, s.Stats(t.Context(), api.GetStatsParams{After: &after}))
	golden(t, "stats", s.out.String())
	if q := f.questions("/v1/stats"); len(q) != 1 || q[0] != "after=2026-11-28T21%3A00%3A00Z" {
		t.Errorf("asked %q", q)
	}
}
