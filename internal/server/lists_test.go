package server_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

// find asks for a list by parameters: name, value, name, value.
func (s *service) find(t testing.TB, list string, params ...string) answer {
	t.Helper()
	q := url.Values{}
	for i := 0; i+1 < len(params); i += 2 {
		q.Add(params[i], params[i+1])
	}
	return s.get(t, "/v1/"+list+"?"+q.Encode())
}

func TestEntriesAreFiltered(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		me, h := "o-"+uuid.NewString(), "h-"+uuid.NewString()
		own := obj{"owner": me, "handler": h}
		doubt, dispatched, recorded, released := s.key(t), s.key(t), s.key(t), s.key(t)
		lapsed := doubt.reserve(own, obj{"lease_seconds": 30})
		s.pass(t, lease)
		dispatched.dispatch(dispatched.reserve(own, obj{"lease_seconds": 86400}).id()).want(200, "dispatched")
		s.tick(t)
		rec := recorded.record(recorded.reserve(own).id(), obj{"body": "x"}).want(201, "recorded")
		s.tick(t)
		released.release(released.reserve(own).id()).want(200, "released")
		s.tick(t)
		other := s.key(t)
		last := other.reserve(obj{"owner": me, "lease_seconds": 86400}).want(201, "reserved")

		for _, tc := range []struct {
			params []string
			want   []key // newest first
		}{
			{nil, []key{other, released, recorded, dispatched, doubt}},
			{[]string{"handler", h}, []key{released, recorded, dispatched, doubt}},
			{[]string{"state", "reserved"}, []key{other, doubt}},
			{[]string{"state", "dispatched"}, []key{dispatched}},
			{[]string{"state", "recorded"}, []key{recorded}},
			{[]string{"state", "released"}, []key{released}},
			{[]string{"in_doubt", "true"}, []key{doubt}},
			{[]string{"in_doubt", "false", "handler", h}, []key{released, recorded, dispatched}},
			{[]string{"in_doubt", "true", "state", "recorded"}, nil},
			{[]string{"reserved_after", lapsed.text("reserved_at"), "reserved_before", last.text("reserved_at")}, []key{released, recorded, dispatched, doubt}},
			{[]string{"reserved_after", last.text("reserved_at")}, []key{other}},
			{[]string{"reserved_before", lapsed.text("reserved_at")}, nil},
			{[]string{"recorded_after", rec.text("recorded_at")}, []key{recorded}},
			{[]string{"recorded_before", rec.text("recorded_at")}, nil},
			{[]string{"recorded_before", offset(rec.time("recorded_at").Add(time.Microsecond), 5*3600)}, []key{recorded}},
			{[]string{"state", "", "in_doubt", "", "handler", "", "limit", "", "cursor", "", "reserved_after", "", "recorded_before", ""}, []key{other, released, recorded, dispatched, doubt}},
		} {
			var want []string
			for _, k := range tc.want {
				want = append(want, k.String())
			}
			got, _ := s.all(t, "entries", 2, append(tc.params, "owner", me)...)
			if !slices.Equal(names(got), want) {
				t.Errorf("%v: got %v, want %v", tc.params, names(got), want)
			}
		}
		a := s.find(t, "entries", "owner", me, "limit", "5").ok()
		if a.body["next_cursor"] != nil || len(a.list("entries")) != 5 {
			t.Errorf("the page is not the last: %s", a)
		}
		if line := s.lines(t, a)[0]; line.Items != 5 {
			t.Errorf("in the log: %+v", line)
		}
	})
}

// offset writes a time in a zone so many seconds east.
func offset(at time.Time, east int) string {
	return at.In(time.FixedZone("", east)).Format(time.RFC3339Nano)
}

// all is a whole list, page by page.
func (s *service) all(t testing.TB, list string, limit int, params ...string) (items []obj, pages int) {
	t.Helper()
	params = slices.Clone(params)
	for i := 0; i+1 < len(params); i += 2 {
		if params[i] == "limit" || params[i] == "cursor" {
			params = slices.Delete(params, i, i+2)
			i -= 2
		}
	}
	for cursor := ""; ; pages++ {
		a := s.find(t, list, append(params, "limit", fmt.Sprint(limit), "cursor", cursor)...).ok()
		page := a.list(list)
		if len(page) > limit || pages > 10000 {
			t.Fatalf("page %d has %d of at most %d", pages, len(page), limit)
		}
		items = append(items, page...)
		next, _ := a.body["next_cursor"].(string)
		if next == "" {
			return items, pages + 1
		}
		if next == cursor || strings.Trim(next, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			t.Fatalf("the cursor %q follows %q", next, cursor)
		}
		cursor = next
	}
}

func TestEventsAreFiltered(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		k, h, me := s.key(t), "h-"+uuid.NewString(), "o-"+uuid.NewString()
		first := k.reserve(obj{"owner": me, "handler": h}).id()
		k.release(first, obj{"reason": "1"}).want(200, "released")
		s.tick(t)
		second := k.reserve(obj{"owner": "else"}).id()
		k.release(second, obj{"reason": "2"}).want(200, "released")
		k.record("", obj{}, obj{"owner": me}).want(201, "recorded")
		for range 3 {
			s.tick(t)
			k.replay("?owner="+me).want(200, "recorded")
		}
		other := s.key(t)
		other.record(uuid.NewString(), obj{}, obj{"owner": me}).want(404, "not_found")

		events := s.find(t, "events", "task_id", k.task).ok().list("events")
		if len(events) != 5 {
			t.Fatalf("%d events", len(events))
		}
		at := func(i int) string { return fmt.Sprint(events[i]["at"]) } // newest first
		for _, tc := range []struct {
			params []string
			want   int
		}{
			{nil, 5},
			{[]string{"kind", "released"}, 2},
			{[]string{"kind", "replayed"}, 3},
			{[]string{"kind", "resolved"}, 0},
			{[]string{"actor", me}, 4},
			{[]string{"actor", "anonymous"}, 5}, // the token's name
			{[]string{"actor", "else", "kind", "released"}, 1},
			{[]string{"handler", h}, 1},
			{[]string{"after", at(4), "before", at(0)}, 4},
			{[]string{"after", at(0)}, 1},
			{[]string{"before", at(4)}, 0},
			{[]string{"after", offset(eventTime(t, events[1]), -9*3600)}, 2},
			{[]string{"kind", "", "actor", "", "handler", "", "after", "", "before", ""}, 5},
		} {
			got, _ := s.all(t, "events", 2, append(tc.params, "task_id", k.task)...)
			if len(got) != tc.want {
				t.Errorf("%v: %d events, want %d", tc.params, len(got), tc.want)
			}
			for i := 1; i < len(got); i++ {
				if fmt.Sprint(got[i]["at"]) > fmt.Sprint(got[i-1]["at"]) {
					t.Errorf("%v: not the newest first", tc.params)
				}
			}
		}
		if n := len(s.find(t, "events", "actor", me).ok().list("events")); n != 5 { // of all tasks
			t.Errorf("%d events of %s", n, me)
		}
	})
}

// Pages neither skip nor repeat what is there throughout, whatever arrives meanwhile.
func TestPagesWhileRowsArrive(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		me := "o-" + uuid.NewString()
		want := make(map[string]int)
		add := func(counted bool) {
			k := s.key(t)
			k.release(k.reserve(obj{"owner": me}).id()).want(200, "released")
			if counted {
				want[k.String()] = 0
			}
		}
		for range 25 {
			add(true)
		}
		for list, param := range map[string]string{"entries": "owner", "events": "actor"} {
			seen := make(map[string]int)
			pages := 0
			for cursor := ""; ; pages++ {
				a := s.find(t, list, param, me, "limit", "4", "cursor", cursor).ok()
				for _, name := range names(a.list(list)) {
					seen[name]++
				}
				add(false)
				if cursor, _ = a.body["next_cursor"].(string); cursor == "" {
					break
				}
			}
			for name := range want {
				if seen[name] != 1 {
					t.Errorf("%s: %s was shown %d times", list, name, seen[name])
				}
			}
			if pages < 5 {
				t.Errorf("%s: %d pages", list, pages)
			}
		}
	})
}

// What cannot be asked is refused, and named.
func TestReadsAreStrict(t *testing.T) {
	t.Parallel()
	s := shared.service(t, engines[0])
	k := s.key(t)
	for range 2 {
		k.at(0).record(uuid.NewString(), obj{"body": uuid.NewString()}).want(404, "not_found")
	}
	cursor := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	ofEvents := s.find(t, "events", "task_id", k.task, "limit", "1").text("next_cursor")
	long := text("x", 256)
	for _, tc := range []struct{ path, field string }{
		{"entries?x=1", "x"},
		{"entries?State=reserved", "State"},
		{"entries?task_id=a", "task_id"},
		{"entries?=1", "query"},
		{"entries?a%zz=1", "query"},
		{"entries?state=absent", "state"},
		{"entries?state=in_doubt", "state"},
		{"entries?state=Reserved", "state"},
		{"entries?state=reserved&state=recorded", "state"},
		{"entries?in_doubt=1", "in_doubt"},
		{"entries?in_doubt=TRUE", "in_doubt"},
		{"entries?in_doubt", ""},
		{"entries?handler=" + long, "handler"},
		{"entries?handler=a%00", "handler"},
		{"entries?owner=a%0A", "owner"},
		{"entries?owner=%ff", "owner"},
		{"entries?limit=0", "limit"},
		{"entries?limit=1001", "limit"},
		{"entries?limit=-1", "limit"},
		{"entries?limit=01", "limit"},
		{"entries?limit=1e2", "limit"},
		{"entries?limit=x", "limit"},
		{"entries?limit=99999999999999999999", "limit"},
		{"entries?limit=1000", ""},
		{"entries?reserved_after=2026-11-29", "reserved_after"},
		{"entries?reserved_after=now", "reserved_after"},
		{"entries?reserved_before=1764449167", "reserved_before"},
		{"entries?recorded_after=2026-11-29T20:46:07", "recorded_after"},
		{"entries?recorded_before=2026-13-29T20:46:07Z", "recorded_before"},
		{"entries?recorded_before=2026-11-29T20:46:07,5Z", "recorded_before"},
		{"entries?recorded_before=2026-11-29t20:46:07z", "recorded_before"},
		{"entries?reserved_after=2026-11-29T20:46:07+01:00", "reserved_after"},
		{"entries?reserved_after=2026-11-29T20:46:07%2B01:00", ""},
		{"entries?reserved_after=2026-11-29T20:46:07Z&reserved_before=2026-11-29T20:46:07Z", "reserved_before"},
		{"entries?recorded_after=2026-11-29T20:46:07Z&recorded_before=2026-11-29T21:46:06%2B01:00", "recorded_before"},
		{"entries?reserved_after=0001-01-01T00:00:00Z", "reserved_after"},
		{"entries?reserved_before=9999-12-31T23:59:59.999999999Z", ""},
		{"entries?cursor=x", "cursor"},
		{"entries?cursor=e30", "cursor"},
		{"entries?cursor=" + ofEvents, "cursor"},
		{"entries?cursor=" + text("A", 2000), "cursor"},
		{"entries?cursor=" + cursor(`{"at":1,"task_id":"a b","attempt":0}`), "cursor"},
		{"entries?cursor=" + cursor(`{"at":-1,"task_id":"a","attempt":0}`), "cursor"},
		{"entries?cursor=" + cursor(`{"at":1,"task_id":"a","attempt":-1}`), "cursor"},
		{"entries?cursor=" + cursor(`{"at":9223372036854775807,"task_id":"a","attempt":0}`), "cursor"},
		{"entries?cursor=" + cursor(`{"at":1,"task_id":"a","attempt":0}`), ""},
		{"entries?cursor=" + cursor(`{"at":1,"task_id":"a","attempt":0}`) + "%3D", "cursor"},
		{"events?x=1", "x"},
		{"events?kind=nothing", "kind"},
		{"events?kind=Replayed", "kind"},
		{"events?task_id=..", "task_id"},
		{"events?task_id=a%2Fb", "task_id"},
		{"events?actor=" + long, "actor"},
		{"events?actor=%7F", "actor"},
		{"events?after=x", "after"},
		{"events?before=x", "before"},
		{"events?limit=1001", "limit"},
		{"events?after=2026-11-29T20:46:07Z&before=2026-11-28T20:46:07Z", "before"},
		{"events?state=reserved", "state"},
		{"events?owner=w", "owner"},
		{"events?cursor=" + ofEvents, ""},
		{"events?cursor=" + cursor(`{"at":1,"id":"x"}`), "cursor"},
		{"events?cursor=" + cursor(`{"at":1,"id":"00000000000000000000000000000000"}`), "cursor"},
		{"stats?x=1", "x"},
		{"stats?after=x", "after"},
		{"stats?limit=1", "limit"},
		{"stats?after=2026-11-29T20:46:07Z&before=2026-11-29T20:46:07Z", "before"},
		{"stats?after=2024-11-29T20:46:07Z&before=2026-11-29T20:46:07Z", "after"},
		{"stats?after=2020-01-01T00:00:00Z", "after"},
		{"stats?after=9000-01-01T00:00:00Z", "before"},
		{"tasks/" + k.task + "?x=1", "x"},
		{"tasks/" + k.task + "?limit=1", "limit"},
		{"tasks/" + k.task + "/attempts/0?raw=true", "raw"},
		{"tasks/" + k.task + "/attempts/01", "attempt"},
	} {
		a := s.send(t, call{method: http.MethodGet, path: "/v1/" + tc.path, wrong: true})
		if tc.field == "" && a.status != 200 || tc.field != "" && (a.status != 400 || a.body["field"] != tc.field) {
			t.Errorf("%.90s: want %q, got %.400s", tc.path, tc.field, a)
		} else if tc.field != "" && !strings.Contains(a.text("detail"), tc.field) {
			t.Errorf("%.90s: detail does not name it: %s", tc.path, a)
		}
	}
}
