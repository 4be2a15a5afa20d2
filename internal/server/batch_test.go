package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// batch sends items, some of which may be wrong, and returns the results.
func (s *service) batch(t testing.TB, verb string, items any) []obj {
	t.Helper()
	a := s.send(t, call{method: http.MethodPost, path: "/v1/batch/" + verb, body: obj{"items": items}, wrong: true})
	if a.status != 200 {
		t.Fatalf("batch %s: %s", verb, a)
	}
	var results []obj
	for _, r := range a.body["results"].([]any) {
		results = append(results, r.(obj))
	}
	return results
}

func item(k key, more ...obj) obj {
	return with(append([]obj{{"task_id": k.task, "attempt": k.attempt}}, more...)...)
}

// check compares results with statuses and outcomes.
func check(t testing.TB, results []obj, want ...string) {
	t.Helper()
	var got []string
	for _, r := range results {
		got = append(got, fmt.Sprint(r["status"], " ", r["body"].(obj)["outcome"]))
	}
	if strings.Join(got, ", ") != strings.Join(want, ", ") {
		t.Errorf("want %v, got %v", want, got)
	}
}

func TestBatch(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		var keys []key
		var items []obj
		for range 20 {
			k := s.key(t)
			keys = append(keys, k)
			items = append(items, item(k, obj{"owner": "w", "reservation_id": uuid.NewString(), "handler": "h", "lease_seconds": 30}))
		}
		var records []obj
		for i, r := range s.batch(t, "reserve", items) {
			if body := r["body"].(obj); r["status"] != 201.0 || body["task_id"] != keys[i].task || body["reservation_id"] != items[i]["reservation_id"] {
				t.Fatalf("result %d: %v", i, r)
			}
			records = append(records, item(keys[i], obj{"reservation_id": items[i]["reservation_id"], "response": obj{"status": 201, "body": fmt.Sprint(i)}}))
		}
		for i, r := range s.batch(t, "record", records) {
			if r["status"] != 201.0 || r["body"].(obj)["task_id"] != keys[i].task {
				t.Fatalf("result %d: %v", i, r)
			}
		}
		for i, r := range s.batch(t, "reserve", items) {
			if body := r["body"].(obj); r["status"] != 200.0 || body["response"].(obj)["body"] != fmt.Sprint(i) {
				t.Fatalf("result %d: %v", i, r)
			}
		}
	})
}

// Each is answered as if they had been called one after the other, also where they are of one key.
func TestBatchOfOneKey(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		k := s.key(t)
		mine := item(k, obj{"owner": "w", "reservation_id": uuid.NewString()})
		yours := item(k, obj{"owner": "w", "reservation_id": uuid.NewString()})
		got := s.batch(t, "reserve", []obj{mine, mine, yours, item(k.at(1), obj{"owner": "w"}), with(mine, obj{"task_id": strings.ToUpper(k.task)})})
		check(t, got, "201 reserved", "201 reserved", "409 in_progress", "409 in_progress", "201 reserved")
		if !equal(got[0]["body"].(obj)["fence"], got[1]["body"].(obj)["fence"]) || !equal(got[0]["body"].(obj)["lease_until"], got[4]["body"].(obj)["lease_until"]) {
			t.Errorf("not the same grant: %v, %v", got[0], got[1])
		}
		record := func(more ...obj) obj {
			return item(k, append([]obj{{"reservation_id": mine["reservation_id"], "response": obj{"body": "x"}}}, more...)...)
		}
		check(t, s.batch(t, "record", []obj{
			record(obj{"reservation_id": yours["reservation_id"]}), record(), record(), record(obj{"response": obj{"body": "y"}}),
			record(obj{"attempt": 1}), record(obj{"attempt": 1, "owner": "z", "reservation_id": nil}),
		}), "409 not_holder", "201 recorded", "200 recorded", "409 already_recorded", "404 not_found", "201 recorded")
		k.replay("").want(200, "recorded").has(obj{"response": obj{"status": 200, "headers": []any{}, "body": "x"}})
	})
}

// A bad item is that item's 400; the others are carried out.
func TestBatchWithBadItems(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		bad := []struct{ item, field string }{
			{`1`, "body"},
			{`null`, "body"},
			{`[]`, "body"},
			{`"x"`, "body"},
			{`{}`, "attempt"},
			{`{"task_id":"a"}`, "attempt"},
			{`{"task_id":"a","attempt":null}`, "attempt"},
			{`{"task_id":"a","attempt":0}`, "owner"},
			{`{"task_id":null,"attempt":0,"owner":"w"}`, "task_id"},
			{`{"task_id":"a/b","attempt":0,"owner":"w"}`, "task_id"},
			{`{"task_id":"..","attempt":0,"owner":"w"}`, "task_id"},
			{`{"task_id":1,"attempt":0,"owner":"w"}`, "task_id"},
			{`{"task_id":"` + text("x", 256) + `","attempt":0,"owner":"w"}`, "task_id"},
			{`{"task_id":"a","attempt":-1,"owner":"w"}`, "attempt"},
			{`{"task_id":"a","attempt":2147483648,"owner":"w"}`, "attempt"},
			{`{"task_id":"a","attempt":"0","owner":"w"}`, "attempt"},
			{`{"task_id":"a","attempt":0.0,"owner":"w"}`, "attempt"},
			{`{"task_id":"a","attempt":0,"owner":"w","owner":"w"}`, "owner"},
			{`{"task_id":"a","task_id":"a","attempt":0,"owner":"w"}`, "task_id"},
			{`{"task_id":"a","attempt":0,"owner":"` + "\xff" + `"}`, "owner"},
			{`{"task_id":"a","attempt":0,"owner":"\ud800"}`, "owner"},
			{`{"task_id":"a","attempt":0,"` + "\xff" + `":1}`, "body"},
			{`{"Task_Id":"a","attempt":0,"owner":"w"}`, "Task_Id"},
			{`{"task_id":"a","attempt":0,"owner":"w","wait_seconds":0}`, "wait_seconds"},
			{`{"task_id":"a","attempt":0,"owner":"w","takeovers":[{"attempt":0}]}`, "takeovers[0].fence"},
			{`{"task_id":"a","attempt":0,"owner":"w","response":{}}`, "response"},
			{`{"task_id":"a","attempt":0,"owner":"w","lease_seconds":0}`, "lease_seconds"},
			{`{"task_id":"` + id + `","attempt":0,"owner":"w","reservation_id":"` + id + `"}`, "reservation_id"},
		}
		var items []string
		var want []string
		for _, b := range bad {
			items = append(items, b.item, fmt.Sprintf(`{"task_id":%q,"attempt":0,"owner":"w"}`, s.key(t).task))
			want = append(want, "400 invalid_request", "201 reserved")
		}
		a := s.send(t, call{method: http.MethodPost, path: "/v1/batch/reserve", body: `{"items":[` + strings.Join(items, ",") + `]}`, wrong: true})
		var results []obj
		for i, r := range a.body["results"].([]any) {
			results = append(results, r.(obj))
			if i%2 == 0 && r.(obj)["body"].(obj)["field"] != bad[i/2].field {
				t.Errorf("%.200s: want %s to be named, got %v", bad[i/2].item, bad[i/2].field, r)
			}
		}
		check(t, results, want...)
	})
}

func TestBatchRecordIsLenient(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		k := s.key(t)
		got := s.batch(t, "record", []obj{
			item(k, obj{"owner": "w", "response": obj{"x": 1, "headers": [][]string{{"TE", "1"}}}, "lease_seconds": 1}),
			item(k, obj{"owner": "w", "response": obj{"body": text("x", 1<<20+1)}}),
			item(k, obj{"owner": "w", "Response": obj{}}),
			item(k, obj{"owner": "w", "response": nil}),
			item(k, obj{"response": obj{}}),
		})
		check(t, got, "201 recorded", "413 body_too_large", "400 invalid_request", "400 invalid_request", "400 invalid_request")
		if body := got[0]["body"].(obj); !equal(body["ignored_fields"], []string{"lease_seconds", "response.x"}) || !equal(body["dropped_headers"], []string{"TE"}) {
			t.Errorf("ignored and dropped: %v", body)
		}
		for i, field := range []string{"Response", "response", "owner"} {
			if body := got[i+2]["body"].(obj); body["field"] != field {
				t.Errorf("want %s to be named: %v", field, body)
			}
		}
		// A fact is not refused for what stands beside the items.
		s.send(t, call{method: http.MethodPost, path: "/v1/batch/record", body: obj{"items": []any{}, "x": 1}, wrong: true})
	})
}

func TestBatchSizes(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		items := func(n int) (list []obj) {
			for range n {
				list = append(list, item(s.key(t), obj{"owner": "w", "reservation_id": uuid.NewString(), "response": obj{}}))
			}
			return list
		}
		for _, verb := range []string{"reserve", "record"} {
			path := "/v1/batch/" + verb
			if a := s.send(t, call{method: http.MethodPost, path: path, body: obj{"items": []any{}}}); a.status != 200 || string(a.raw) != `{"results":[]}` {
				t.Errorf("nothing: %s", a)
			}
			s.send(t, call{method: http.MethodPost, path: path, body: obj{"items": items(1001)}}).wantField("items")
		}
		most := items(1000)
		for _, i := range most {
			delete(i, "response")
		}
		for i, r := range s.batch(t, "reserve", most) {
			if body := r["body"].(obj); r["status"] != 201.0 || body["task_id"] != most[i]["task_id"] {
				t.Fatalf("result %d: %v", i, r)
			}
		}
		for i := range most {
			most[i] = with(most[i], obj{"response": obj{"status": 200}})
		}
		for i, r := range s.batch(t, "record", most) {
			if body := r["body"].(obj); r["status"] != 201.0 || body["task_id"] != most[i]["task_id"] {
				t.Fatalf("result %d: %v", i, r)
			}
		}
	})
}

func TestBatchCap(t *testing.T) {
	t.Parallel()
	s := shared.service(t, engines[0])
	for size, want := range map[int]int{32 << 20: 200, 32<<20 + 1: 413} {
		s.chunks(t, "/v1/batch/record", pad(`{"items":[]}`, size), want)
	}
}

// Only a fault outside the items fails the call.
func TestBatchThatIsNone(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		k := s.key(t)
		good := fmt.Sprintf(`{"task_id":%q,"attempt":0,"owner":"w"}`, k.task)
		for _, b := range []struct{ body, field string }{
			{``, "body"},
			{`null`, "body"},
			{`[]`, "body"},
			{`"items"`, "body"},
			{`{}`, "items"},
			{`{"items":null}`, "items"},
			{`{"items":{}}`, "items"},
			{`{"items":"x"}`, "items"},
			{`{"items":[` + good + `]} x`, "body"},
			{`{"items":[` + good + `],"items":[]}`, "items"},
			{`{"Items":[` + good + `]}`, "Items"},
			{`{"items":[` + good + `],"ITEMS":[]}`, "ITEMS"},
			{`{"items":[` + good + `,]}`, "items"},
			{`{"items":[` + good, "items"},
			{`{"items":[` + good + `,{"task_id":}]}`, "items[1].task_id"},
		} {
			for _, verb := range []string{"reserve", "record"} {
				a := s.send(t, call{method: http.MethodPost, path: "/v1/batch/" + verb, body: b.body})
				if a.status != 400 || !strings.HasPrefix(fmt.Sprint(a.body["field"]), b.field) {
					t.Errorf("%s %s: want a 400 for %s, got %s", verb, b.body, b.field, a)
				}
			}
		}
		s.send(t, call{method: http.MethodPost, path: "/v1/batch/reserve", body: `{"items":[` + good + `],"wait_seconds":1}`}).wantField("wait_seconds")
		s.send(t, call{method: http.MethodPost, path: "/v1/batch/reserve", body: "{\"items\":[],\"\xff\":1}"}).want(400, "invalid_request")
		k.replay("").want(404, "not_found")
	})
}

var changing = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9-]{10}T[0-9:.]{15}Z|"(lease_seconds_left|retry_after_seconds|renew_after_seconds)":[0-9.]+`)

// still is a body without what differs from one call to the next.
func still(body any) string {
	text, _ := json.Marshal(body)
	return changing.ReplaceAllString(string(text), "~")
}

// Each result is exactly what the single call would have answered.
func TestBatchAnswersAsSingleCallsDo(t *testing.T) {
	t.Parallel()
	type script struct {
		make func(k key)
		item obj
	}
	long := obj{"lease_seconds": 86400}
	scripts := map[string][]script{
		"reserve": {
			{func(key) {}, obj{"owner": "w", "handler": "h", "dispatch": "explicit"}},
			{func(k key) { k.reserve(long).id() }, obj{"owner": "v"}},
			{func(k key) { k.at(1).reserve(long).id() }, obj{"owner": "v", "scope": "task"}},
			{func(k key) { k.leave() }, obj{"owner": "v"}},
			{func(k key) { k.leave() }, obj{"owner": "v", "takeovers": []obj{takeover(0, 1)}}},
			{func(k key) { recorded(k) }, obj{"owner": "v"}},
			{func(k key) { k.reserve(long, hashed("a")).id() }, obj{"owner": "v", "request_hash": "b"}},
			{func(k key) { k.reserve(obj{"reservation_id": id}).want(201, "reserved"); k.release(id) }, obj{"owner": "v", "reservation_id": id}},
			{func(key) {}, obj{"owner": ""}},
			{func(key) {}, obj{"owner": "w", "takeovers": []any{nil}}},
		},
		"record": {
			{func(k key) { k.reserve(long, obj{"reservation_id": id}).id() }, obj{"reservation_id": id, "response": obj{}, "x": 1, "request_hash": "h"}},
			{func(k key) { k.reserve(long).id() }, obj{"reservation_id": id, "response": obj{}}},
			{func(key) {}, obj{"reservation_id": id, "response": obj{}}},
			{func(key) {}, obj{"owner": "w", "response": obj{"headers": obj{"Cookie": "c"}}}},
			{func(k key) { recorded(k) }, obj{"owner": "w", "response": obj{"body": "other"}}},
			{func(k key) { k.leave() }, obj{"owner": "w", "response": obj{}}},
			{func(k key) { k.reserve(long, obj{"owner": "h"}).id() }, obj{"owner": "w", "response": obj{}}},
			{func(key) {}, obj{"owner": "w", "response": obj{"status": 99}}},
			{func(key) {}, obj{"owner": "w", "response": obj{"body": text("x", 1<<20+1)}}},
		},
	}
	withClock(t, func(t *testing.T, s *service) {
		for verb, list := range scripts {
			var items []obj
			var want []answer
			for _, c := range list {
				alone, together := s.key(t), s.key(t)
				c.make(alone)
				c.make(together)
				want = append(want, alone.post(verb, c.item))
				items = append(items, item(together, c.item))
			}
			for i, r := range s.batch(t, verb, items) {
				if r["status"] != float64(want[i].status) || still(r["body"]) != still(want[i].body) {
					t.Errorf("%s %d: alone %d %s, in a batch %v %s", verb, i, want[i].status, still(want[i].body), r["status"], still(r["body"]))
				}
			}
		}
	})
}
