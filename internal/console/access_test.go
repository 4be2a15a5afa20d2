package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/idemstore/idemstore/internal/server"
)

// routes are all pages, with the least role that each needs.
func routes(s *service, t *testing.T) map[string]server.Role {
	told, doubted := task(), task()
	s.incident(t, told)
	s.doubt(t, "worker-a", doubted)
	return map[string]server.Role{
		"GET /console":                                           server.RoleAuditor,
		"GET /console/doubts":                                    server.RoleAuditor,
		"GET /console/entries":                                   server.RoleAuditor,
		"GET /console/events":                                    server.RoleAuditor,
		"GET /console/events.csv":                                server.RoleAuditor,
		"GET /console/search?task_id=" + told.TaskID:             server.RoleAuditor,
		"GET " + taskPath(told):                                  server.RoleAuditor,
		"GET " + taskPath(told) + "/attempts/0/response":         server.RoleAuditor,
		"GET " + evidenceLink(t, s, told.TaskID):                 server.RoleAuditor,
		"GET " + resolvePath(doubted):                            server.RoleOperator,
		"POST " + resolvePath(doubted):                           server.RoleOperator,
		"GET /console/release-owner?owner=worker-a":              server.RoleOperator,
		"POST /console/release-owner":                            server.RoleOperator,
		"GET /console/tasks/" + told.TaskID + "/attempts/9/nope": "",
	}
}

func evidenceLink(t *testing.T, s *service, task string) string {
	t.Helper()
	page := s.as(t, "auditor").get("/console/tasks/" + task).body
	_, rest, ok := strings.Cut(page, `href="/console/tasks/`+task+`/evidence`)
	link, _, _ := strings.Cut(rest, `"`)
	if !ok {
		t.Fatalf("no link to the evidence: %s", page)
	}
	return "/console/tasks/" + task + "/evidence" + link
}

func TestEveryRouteAsksForItsRole(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	s.addToken(t, "nobody", server.RoleWorker)
	pages := routes(s, t)
	stranger, auditor, operator := s.client(t), s.as(t, "auditor"), s.as(t, "operator")
	for route, role := range pages {
		method, path, _ := strings.Cut(route, " ")
		ask := func(c *client) int {
			if method == "GET" {
				return c.get(path).status
			}
			return c.post(path).status
		}
		r := stranger.do(stranger.request(method, path, nil))
		if r.status != http.StatusSeeOther || !strings.HasPrefix(r.header.Get("Location"), "/console/sign-in") || len(r.body) > 300 {
			t.Errorf("%s: a stranger got %d %s %s", route, r.status, r.header.Get("Location"), r.body)
		}
		auditorWants, operatorWants := map[int]bool{200: true, 303: true}, map[int]bool{200: true, 303: true}
		switch {
		case role == "":
			auditorWants, operatorWants = map[int]bool{404: true}, map[int]bool{404: true}
		case method == "POST":
			operatorWants = map[int]bool{400: true} // an empty form
		}
		if role == server.RoleOperator {
			auditorWants = map[int]bool{403: true}
		}
		if got := ask(auditor); !auditorWants[got] {
			t.Errorf("%s: an auditor got %d", route, got)
		}
		if got := ask(operator); !operatorWants[got] {
			t.Errorf("%s: an operator got %d", route, got)
		}
	}
	if r := s.client(t).post("/console/sign-in", "token", s.secrets["nobody"]); r.status != 403 || r.header.Get("Set-Cookie") != "" {
		t.Errorf("a worker's token: %d, cookie %q", r.status, r.header.Get("Set-Cookie"))
	}
	if r := s.client(t).post("/console/sign-in", "token", "idem_wrong"); r.status != 401 || r.header.Get("Set-Cookie") != "" {
		t.Errorf("a wrong token: %d, cookie %q", r.status, r.header.Get("Set-Cookie"))
	}
}

// What an auditor may not do, its pages do not offer.
func TestAuditorsAreNotOfferedToResolve(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	doubted := task()
	s.doubt(t, "worker-a", doubted)
	s.as(t, "auditor").get(taskPath(doubted)).want(200, "in doubt").without("/resolve")
	s.as(t, "auditor").get("/console/doubts").want(200, doubted.TaskID).without("/resolve")
	s.as(t, "operator").get(taskPath(doubted)).want(200, resolvePath(doubted))
	s.as(t, "operator").get("/console/doubts").want(200, resolvePath(doubted))
}

func TestEveryAnswerIsGuarded(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	c := s.as(t, "operator")
	for route := range routes(s, t) {
		method, path, _ := strings.Cut(route, " ")
		h := c.do(c.request(method, path, nil)).header
		policy := h.Get("Content-Security-Policy")
		if strings.Contains(policy, "unsafe") || !strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy, "frame-ancestors 'none'") {
			t.Errorf("%s: Content-Security-Policy %q", route, policy)
		}
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got := h.Get(name); got != want {
				t.Errorf("%s: %s is %q", route, name, got)
			}
		}
		if h.Get("X-Request-Id") == "" {
			t.Errorf("%s has no request id", route)
		}
	}
	page := c.get("/console")
	for _, part := range []string{"<script", "style=", "onclick", "http://", "https://"} {
		page.without(part)
	}
	_, rest, _ := strings.Cut(page.body, `<link rel="stylesheet" href="`)
	style, _, _ := strings.Cut(rest, `"`)
	r := s.client(t).get(style)
	if r.status != 200 || !strings.HasPrefix(r.header.Get("Content-Type"), "text/css") || !strings.Contains(r.header.Get("Cache-Control"), "immutable") {
		t.Errorf("%s: %d, %v", style, r.status, r.header)
	}
	if r := s.client(t).get("/console/static/console.css"); r.status != 404 {
		t.Errorf("a file under a name that is not of its bytes: %d", r.status)
	}
}

func TestForeignFormsAreRefused(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	doubted := task()
	s.doubt(t, "worker-a", doubted)
	do := []string{"step", "do", "action", "release", "fence", "1", "reason", "because"}
	refuse := func(what string, r reply) {
		t.Helper()
		if r.status != 403 {
			t.Errorf("%s: %d", what, r.status)
		}
	}
	c := s.as(t, "operator")
	form := c.form
	c.form = ""
	refuse("no form token", c.post(resolvePath(doubted), do...))
	c.form = s.as(t, "operator").form
	refuse("another session's", c.post(resolvePath(doubted), do...))
	refuse("another session's, to sign out", c.post("/console/sign-out"))
	c.form = form
	for name, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"} {
		values := url.Values{"form": {form}, "step": {"do"}, "action": {"release"}, "fence": {"1"}, "reason": {"because"}}
		req := c.request("POST", resolvePath(doubted), values)
		req.Header.Set(name, value)
		refuse(name, c.do(req))
		req = c.request("POST", "/console/sign-in", url.Values{"token": {s.secrets["auditor"]}})
		req.Header.Set(name, value)
		refuse("sign-in, "+name, c.do(req))
	}
	c.get(taskPath(doubted)).want(200, "in doubt").without("Resolved by an operator")
	if r := c.post(resolvePath(doubted), do...); r.status != 303 {
		t.Errorf("and its own: %d", r.status)
	}
}

func TestWrongTokensAreSlowed(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	c := s.client(t)
	for i := range 10 {
		if r := c.post("/console/sign-in", "token", "idem_wrong"); r.status != 401 {
			t.Fatalf("try %d: %d", i, r.status)
		}
	}
	if n := strings.Count(s.log.String(), `{"level":"warn","request_id":"`); n != 10 || !strings.Contains(s.log.String(), `"address":"127.0.0.1","message":"console: somebody tried to sign in`) {
		t.Errorf("%d warnings: %s", n, s.log.String())
	}
	r := c.post("/console/sign-in", "token", s.secrets["auditor"]).want(429, "Try again in")
	if r.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	s.later.Add(int64(time.Minute))
	if r := c.post("/console/sign-in", "token", s.secrets["auditor"]); r.status != 303 {
		t.Errorf("a minute later: %d", r.status)
	}
}

func TestSigningInLeadsToWhereOneWent(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	for next, want := range map[string]string{
		"/console/events?kind=released&actor=a%26b": "/console/events?kind=released&actor=a%26b",
		"":                               "/console",
		"//evil.example/console":         "/console",
		"https://evil.example/console":   "/console",
		`/\evil.example/console`:         "/console",
		"/console/../v1/x":               "/console",
		"/v1/stats":                      "/console",
		"/consolation":                   "/console",
		"javascript:alert(1)":            "/console",
		"/console/sign-in?next=/console": "/console",
	} {
		if got := s.client(t).post("/console/sign-in", "token", s.secrets["auditor"], "next", next).header.Get("Location"); got != want {
			t.Errorf("%q leads to %q", next, got)
		}
	}
	c := s.client(t)
	if got := c.get("/console/events?kind=released").header.Get("Location"); got != "/console/sign-in?next=%2Fconsole%2Fevents%3Fkind%3Dreleased" {
		t.Errorf("asked to sign in at %s", got)
	}
	// A strict cookie does not come along with a link from elsewhere: the way leads over a page of ours.
	req := c.request("GET", "/console/events?kind=released", nil)
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	c.do(req).want(200, `content="0; url=/console/events?kind=released"`)
}

func TestWithoutTokensEverybodyIsIn(t *testing.T) {
	t.Parallel()
	s := start(t, setup{open: true})
	doubted := task()
	s.doubt(t, "worker-a", doubted)
	c := s.client(t)
	page := c.get(resolvePath(doubted)).want(200, "anonymous").without("Sign out")
	fields := []string{"step", "do", "action", "release", "fence", "1", "reason", "because"}
	if r := c.post(resolvePath(doubted), fields...); r.status != 403 {
		t.Errorf("without a form token: %d", r.status)
	}
	c.form = formToken(page.body)
	if r := c.post(resolvePath(doubted), fields...); r.status != 303 {
		t.Errorf("with it: %d", r.status)
	}
	if r := c.get("/console/sign-in"); r.status != 303 || r.header.Get("Location") != "/console" {
		t.Errorf("sign-in: %d to %s", r.status, r.header.Get("Location"))
	}
}

// The line in the log says who it was, and its route is one of few.
func TestLogLines(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	s.as(t, "auditor").get("/console/tasks/" + task().TaskID).want(404)
	lines := strings.Split(strings.TrimSpace(s.log.String()), "\n")
	last := lines[len(lines)-1]
	for _, part := range []string{`"route":"/console/*"`, `"token":"auditor"`, `"status":404`, `"request_id":"`} {
		if !strings.Contains(last, part) {
			t.Errorf("the line lacks %s: %s", part, last)
		}
	}
	if all := s.log.String(); strings.Contains(all, s.secrets["auditor"]) {
		t.Error("the token is in the log")
	}
}
