package crashtest

import (
	"net/url"
	"testing"
	"time"
)

func TestLeasesAreShortened(t *testing.T) {
	t.Parallel()
	p := &storeProxy{maxLease: 2 * time.Second}
	const one, batch = "/v1/tasks/t/attempts/0/", "/v1/batch/"
	for _, c := range []struct{ path, body, want string }{
		{one + "reserve", `{"lease_seconds":30}`, `{"lease_seconds":2}`},
		{one + "reserve", `{"lease_seconds":1}`, `{"lease_seconds":1}`},
		{one + "reserve", `{}`, `{"lease_seconds":2}`},
		{one + "reserve", `{"lease_seconds":null}`, `{"lease_seconds":2}`},
		{one + "renew", `{"lease_seconds":86400}`, `{"lease_seconds":2}`},
		{batch + "reserve", `{"items":[{"lease_seconds":30},{"lease_seconds":1},{}]}`, `{"items":[{"lease_seconds":2},{"lease_seconds":1},{"lease_seconds":2}]}`},
		// what is none of its business
		{one + "record", `{"lease_seconds": 30}`, `{"lease_seconds": 30}`},
		{one + "dispatch", `{"reservation_id": "x"}`, `{"reservation_id": "x"}`},
		// what the store is to refuse
		{one + "reserve", `{"lease_seconds":"30"}`, `{"lease_seconds":"30"}`},
		{one + "reserve", `{"lease_seconds":30,"lease_seconds":30}`, `{"lease_seconds":30,"lease_seconds":30}`},
		{one + "reserve", `null`, `null`},
		{one + "reserve", `{`, `{`},
		{batch + "reserve", `{"items":7}`, `{"items":7}`},
		{batch + "reserve", `{"items":[null]}`, `{"items":[null]}`},
	} {
		if got := string(p.shorten(c.path, []byte(c.body))); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.path, c.body, got, c.want)
		}
	}
}

func TestCallsAreRead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path, body string
		verb       string
		keys       []string
	}{
		{"/v1/tasks/a/attempts/3/reserve", `{}`, "reserve", []string{"a/3"}},
		{"/v1/tasks/a/attempts/3/replay", ``, "replay", []string{"a/3"}},
		{"/v1/batch/record", `{"items":[{"task_id":"a","attempt":0},{"task_id":"b","attempt":1}]}`, "record", []string{"a/0", "b/1"}},
		{"/v1/tasks/a", ``, "", nil},
		{"/healthz", ``, "", nil},
		{"/v1/batch/reserve", `{`, "", nil},
	} {
		calls := callsOf(&url.URL{Path: c.path}, []byte(c.body))
		if len(calls) != len(c.keys) {
			t.Errorf("%s: %d calls", c.path, len(calls))
			continue
		}
		for i, call := range calls {
			if call.verb != c.verb || call.key.String() != c.keys[i] {
				t.Errorf("%s: %s %s", c.path, call.verb, call.key)
			}
		}
	}
	call := callsOf(&url.URL{Path: "/v1/tasks/a/attempts/0/record"}, []byte(`{"response":{"body_base64":"eyJpZCI6ImFiYyJ9"}}`))[0]
	if !call.carries("abc") || call.carries("xyz") {
		t.Error("a body in base64 is not read")
	}
}

func TestAnswersAreRead(t *testing.T) {
	t.Parallel()
	calls := []*storeCall{{}, {}}
	got := answersOf(calls, 200, []byte(`{"results":[{"status":201,"body":{"outcome":"reserved","lease_seconds_left":2}},{"status":409,"body":{"outcome":"in_doubt"}}]}`))
	if got[0].status != 201 || got[0].LeaseSeconds != 2 || got[1].status != 409 || got[1].Outcome != "in_doubt" {
		t.Errorf("%+v", got)
	}
	if got := answersOf(calls[:1], 201, []byte(`{"outcome":"recorded","late":true}`)); got[0].status != 201 || !got[0].Late {
		t.Errorf("%+v", got)
	}
	if got := answersOf(calls, 503, []byte(`no JSON`)); len(got) != 2 || got[1].status != 503 {
		t.Errorf("%+v", got)
	}
}
