package server_test

import (
	"net/http"
	"strings"
	"testing"
)

func TestReplay(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		k := s.key(t)
		k.replay("").want(404, "not_found").has(obj{"task_id": k.task, "attempt": 0})
		id := k.reserve(obj{"owner": "holder"}).id()
		k.replay("").want(409, "in_progress").has(obj{"owner": "holder", "fence": 1})
		response := obj{"status": 201, "headers": [][]string{{"content-type", "text/plain"}}, "body": "héllo"}
		kept := k.record(id, response).want(201, "recorded")
		for _, query := range []string{
			"", "?", "?owner=http-worker-9", "?owner=w%C3%B6rker+1", "?wait_seconds=0", "?wait_seconds=60", "?raw=false",
			"?raw=false&owner=a&wait_seconds=1",
		} {
			k.replay(query).want(200, "recorded").has(obj{
				"task_id": k.task, "attempt": 0, "replayed_attempt": 0, "fence": 1, "recorded_at": kept.body["recorded_at"], "recorded_by": "holder",
				"late": false, "expires_at": kept.body["expires_at"], "response": response, "other_attempts": nil,
			})
		}
		free := s.key(t)
		free.release(free.reserve().id()).want(200, "released")
		free.replay("").want(404, "not_found")
		free.at(1).replay("").want(404, "not_found")
	})
}

func TestReplayInBase64(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		for _, b := range []struct{ offered, text, base64 obj }{
			{obj{"body": "héllo"}, obj{"body": "héllo"}, obj{"body_base64": "aMOpbGxv"}},
			{obj{"body_base64": "aMOpbGxv"}, obj{"body": "héllo"}, obj{"body_base64": "aMOpbGxv"}},
			{obj{"body_base64": "/w=="}, obj{"body_base64": "/w=="}, obj{"body_base64": "/w=="}},
			{obj{"body": ""}, obj{"body": ""}, obj{"body_base64": ""}},
			{obj{"body_base64": ""}, obj{"body": ""}, obj{"body_base64": ""}},
			{obj{}, obj{}, obj{}},
		} {
			k := s.key(t)
			k.record("", b.offered, obj{"owner": "x"}).want(201, "recorded")
			base := obj{"status": 200, "headers": []any{}}
			k.replay("").want(200, "recorded").has(obj{"response": with(base, b.text)})
			k.replay("?body=base64").want(200, "recorded").has(obj{"response": with(base, b.base64)})
		}
	})
}

func TestReplayOmitted(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		k := s.key(t)
		omitted := obj{"status": 200, "headers": []any{}, "body_omitted": true, "body_sha256": hexDigits, "body_size": 9007199254740991}
		k.record("", with(omitted, obj{"body_sha256": strings.ToUpper(hexDigits)}), obj{"owner": "x"}).want(201, "recorded")
		k.record("", omitted, obj{"owner": "x"}).want(200, "recorded") // the digits in any letter case
		for _, query := range []string{"", "?body=base64"} {
			k.replay(query).want(200, "recorded").has(obj{"response": omitted})
		}
		empty := s.key(t)
		empty.record("", with(omitted, obj{"body_size": 0}), obj{"owner": "x"}).want(201, "recorded")
		empty.reserve().want(200, "recorded").has(obj{"response": with(omitted, obj{"body_size": 0})})
	})
}

// The recorded bytes alone are an upstream's: no browser may take them for a page of this service.
func TestReplayRaw(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		page := "<!doctype html><script>alert(1)</script>"
		for _, b := range []struct {
			offered obj
			status  string
			want    string
		}{
			{obj{"body": page, "headers": [][]string{{"Content-Type", "text/html"}, {"X-Evil", "1"}}}, "200", page},
			{obj{"status": 402, "body_base64": "AP8A"}, "402", "\x00\xff\x00"},
			{obj{"status": 204}, "204", ""},
			{obj{"status": 304, "body": ""}, "304", ""},
			{obj{"status": 599, "body": "{}"}, "599", "{}"},
			{obj{"status": 100, "body": "x"}, "100", "x"},
		} {
			k := s.key(t)
			k.record("", b.offered, obj{"owner": "x"}).want(201, "recorded")
			for _, query := range []string{"?raw=true", "?raw=true&body=base64&owner=x&wait_seconds=1"} {
				a := k.replay(query)
				if a.status != 200 || string(a.raw) != b.want {
					t.Errorf("raw of %v: %s", b.offered, a)
				}
				for name, want := range map[string]string{
					"Content-Type": "application/octet-stream", "X-Content-Type-Options": "nosniff", "Idempotency-Replayed": "true",
					"Idempotency-Status": b.status, "X-Evil": "",
				} {
					if got := a.header.Get(name); got != want {
						t.Errorf("raw of %v: %s is %q", b.offered, name, got)
					}
				}
			}
		}
		k := s.key(t)
		k.replay("?raw=true").want(404, "not_found")
		k.reserve().id()
		k.replay("?raw=true").want(409, "in_progress")
	})
}

// A replay's query is read as strictly as a body.
func TestReplayIsStrict(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		k := s.key(t)
		k.record("", obj{"body": "x"}, obj{"owner": "x"}).want(201, "recorded")
		for query, field := range map[string]string{
			"?Owner=x": "Owner", "?wait=1": "wait", "?format=raw": "format", "?raw=true&x": "x", "?=": "query", "?%ff=1": "\ufffd", "?a%00b=1": "a\x00b",
			"?owner=": "owner", "?owner": "owner", "?owner=a%0Ab": "owner", "?owner=%ff": "owner", "?owner=a&owner=b": "owner", "?owner=%C2%85": "owner",
			"?owner=" + strings.Repeat("x", 256): "owner",
			"?wait_seconds=":                     "wait_seconds", "?wait_seconds=-1": "wait_seconds", "?wait_seconds=61": "wait_seconds", "?wait_seconds=1.0": "wait_seconds",
			"?wait_seconds=1e1": "wait_seconds", "?wait_seconds=%2B1": "wait_seconds", "?wait_seconds=01": "wait_seconds", "?wait_seconds=x": "wait_seconds",
			"?wait_seconds=99999999999999999999": "wait_seconds", "?wait_seconds=1&wait_seconds=1": "wait_seconds",
			"?body=": "body", "?body=text": "body", "?body=Base64": "body", "?body=base64&body=base64": "body",
			"?raw=": "raw", "?raw=1": "raw", "?raw=TRUE": "raw", "?raw=yes": "raw", "?raw=true&raw=true": "raw",
			"?owner=a;b=c": "query", "?owner=%zz": "query", "?%zz": "query",
		} {
			if a := k.replay(query); a.status != 400 || a.body["field"] != field {
				t.Errorf("replay%s: want a 400 for %q, got %s", query, field, a)
			}
		}
		k.replay("?owner="+strings.Repeat("%E2%98%83", 255)).want(200, "recorded") // characters, not bytes
	})
}

// A replay reads no body and asks for no content type.
func TestReplayTakesNoBody(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		k := s.key(t)
		k.record("", obj{}, obj{"owner": "x"}).want(201, "recorded")
		for _, kind := range []string{"", "text/plain", "application/json"} {
			s.send(t, call{
				method: http.MethodGet, path: k.path("replay"), body: "not JSON", header: map[string]string{"Content-Type": kind},
			}).want(200, "recorded")
		}
	})
}
