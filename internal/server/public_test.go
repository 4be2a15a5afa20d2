package server_test

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/idemstore/idemstore/internal/pgtest"
)

// get fetches a page or asks a question, with headers by name and value.
func (s *service) get(t testing.TB, path string, header ...string) answer {
	t.Helper()
	c := call{method: http.MethodGet, path: path, header: map[string]string{}}
	for i := 0; i+1 < len(header); i += 2 {
		c.header[header[i]] = header[i+1]
	}
	return s.send(t, c)
}

func TestHealthAndReadiness(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		if a := s.get(t, "/healthz"); a.status != 200 || string(a.raw) != `{"status":"ok"}` {
			t.Errorf("healthz: %s", a)
		}
		if a := s.get(t, "/readyz"); a.status != 200 || string(a.raw) != `{"status":"ready"}` {
			t.Errorf("readyz: %s", a)
		}
	})
}

func TestUnreadyWithoutAStore(t *testing.T) {
	t.Parallel()
	keeper := failing(nil)
	keeper.ready = errors.New(internals)
	s := start(t, setup{keeper: keeper})
	a := s.get(t, "/readyz").want(503, "unavailable")
	if strings.Contains(string(a.raw), "postgres") || s.lines(t, a)[0].Error != internals {
		t.Errorf("why is to be in the log alone: %s", a)
	}
	s.get(t, "/healthz").has(obj{"status": "ok"})
}

// The store goes down under a running service, and comes back.
func TestOutage(t *testing.T) {
	t.Parallel()
	db := pgtest.Server(t)
	s := start(t, setup{database: db.URL()})
	k := s.key(t)
	body := obj{"owner": "w", "reservation_id": id, "lease_seconds": 3600}
	first := k.post("reserve", body).want(201, "reserved")
	recorded := s.key(t)
	recorded.record("", obj{"body": "kept"}, obj{"owner": "w"}).want(201, "recorded")
	if err := db.Stop(); err != nil {
		t.Fatal(err)
	}
	s.get(t, "/readyz").want(503, "unavailable")
	s.get(t, "/healthz").has(obj{"status": "ok"})
	k.post("reserve", body).want(503, "unavailable")
	k.record(id, obj{}).want(503, "unavailable")
	recorded.replay("").want(503, "unavailable") // an audit event would not be kept
	check(t, s.batch(t, "reserve", []obj{item(k, body), {}}), "503 unavailable", "400 invalid_request")

	late := start(t, setup{database: db.URL()}) // databases and services start in any order
	late.get(t, "/readyz").want(503, "unavailable")
	if err := db.Start(); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*service{s, late} {
		eventually(t, "does not get ready again", func() bool { return s.get(t, "/readyz").status == 200 })
		k.s, recorded.s = s, s
		k.post("reserve", body).want(201, "reserved").has(obj{"fence": 1, "lease_until": first.body["lease_until"]}) // repeating converges
		recorded.replay("").want(200, "recorded").has(obj{"response": obj{"status": 200, "headers": []any{}, "body": "kept"}})
	}
	k.record(id, obj{}).want(201, "recorded")
}

func TestDrain(t *testing.T) {
	t.Parallel()
	s := start(t, setup{database: inMemory})
	k := s.key(t)
	grant := k.reserve().id()
	waiting := make(chan answer, 2)
	go func() { waiting <- k.reserve(obj{"wait_seconds": 60}) }()
	go func() { waiting <- k.replay("?wait_seconds=60") }()
	k.waited()
	s.server.Drain()
	s.server.Drain() // twice is once
	for range 2 {
		(<-waiting).want(409, "in_progress") // with what is known
	}
	s.get(t, "/readyz").want(503, "unavailable")
	s.get(t, "/healthz").has(obj{"status": "ok"})
	k.reserve(obj{"wait_seconds": 60}).want(409, "in_progress") // waits no more
	k.record(grant, obj{}).want(201, "recorded")                // what is under way is carried out
}

func TestDocumentIsServedAsItIs(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile("../../openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s := shared.service(t, engines[0])
	if a := s.get(t, "/openapi.yaml"); !bytes.Equal(a.raw, want) || a.header.Get("Content-Type") != "application/yaml" {
		t.Errorf("%d bytes of %s", len(a.raw), a.header.Get("Content-Type"))
	}
}

func TestProblemPages(t *testing.T) {
	t.Parallel()
	s := shared.service(t, engines[0])
	doc, _ := contract()
	for _, code := range doc.Components.Schemas["ProblemCode"].Value.Enum {
		slug := strings.ReplaceAll(code.(string), "_", "-")
		a := s.get(t, "/problems/"+slug)
		if a.status != 200 || a.header.Get("Content-Type") != "text/html; charset=utf-8" || a.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d %v", slug, a.status, a.header)
		}
		for _, part := range []string{"<code>" + code.(string) + "</code>", "<h1>", "What to do"} {
			if !bytes.Contains(a.raw, []byte(part)) {
				t.Errorf("%s: no %s in %s", slug, part, a.raw)
			}
		}
		if strings.Contains(slug, "-") {
			s.get(t, "/problems/"+code.(string)).want(404, "no_such_route") // written with dashes alone
		}
		s.get(t, "/problems/"+strings.ToUpper(slug)).want(404, "no_such_route")
	}
	for _, slug := range []string{"x", "in-doubt-", "-", "in%20doubt", "in%2Fdoubt", "%3Cscript%3E", "reserved", "..", "%ff"} {
		if a := s.get(t, "/problems/"+slug).want(404, "no_such_route"); bytes.Contains(a.raw, []byte("script")) {
			t.Errorf("%s: %s", slug, a)
		}
	}
}
