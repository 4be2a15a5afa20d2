package server_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/idemstore/idemstore/internal/server"
)

// withTokens starts a service that knows a token of each name, with the roles that stand there, and returns their secrets.
func withTokens(t *testing.T, roles map[string][]server.Role) (*service, map[string]string) {
	t.Helper()
	secrets := make(map[string]string)
	var file strings.Builder
	for name, rs := range roles {
		secret, line, err := server.NewToken(name, rs)
		if err != nil {
			t.Fatal(err)
		}
		secrets[name] = secret
		file.WriteString("# " + name + "\n\n" + line + "\r\n")
	}
	s := start(t, setup{database: inMemory, tokens: file.String()})
	for _, secret := range secrets {
		s.journal.secret(secret)
	}
	return s, secrets
}

var everyRole = map[string][]server.Role{
	"worker": {server.RoleWorker}, "auditor": {server.RoleAuditor}, "operator": {server.RoleOperator}, "both": {server.RoleAuditor, server.RoleWorker},
}

// routes are all that the document has under /v1, each with the role that it needs: its tag says it.
func (k key) routes() map[*call]server.Role {
	routes := make(map[*call]server.Role)
	doc, _ := contract()
	for path, item := range doc.Paths.Map() {
		if !strings.HasPrefix(path, "/v1/") {
			continue
		}
		for method, op := range item.Operations() {
			c := &call{method: method, path: strings.NewReplacer("{task_id}", k.task, "{attempt}", "0", "{owner}", "w").Replace(path)}
			if method == http.MethodPost {
				c.body = obj{}
			}
			role := server.Role(op.Tags[0])
			if role == "batch" {
				role = server.RoleWorker
			}
			routes[c] = role
		}
	}
	return routes
}

func TestRoles(t *testing.T) {
	t.Parallel()
	s, secrets := withTokens(t, everyRole)
	k := s.key(t)
	for name, secret := range secrets {
		s.token = secret
		for c, role := range k.routes() {
			a := s.send(t, *c)
			if !slices.Contains(everyRole[name], role) && (name != "operator" || role != server.RoleAuditor) {
				if detail := a.want(403, "forbidden").text("detail"); !strings.Contains(detail, "the role "+string(role)) {
					t.Errorf("detail does not name the role: %s", detail)
				}
			} else if want := map[server.Role][]int{
				server.RoleWorker: {400, 404}, server.RoleAuditor: {200, 404}, server.RoleOperator: {400},
			}[role]; !slices.Contains(want, a.status) {
				t.Errorf("%s %s: %s", name, c.path, a)
			}
			if line := s.lines(t, a)[0]; line.Token != name {
				t.Errorf("the log names the token %q: %+v", name, line)
			}
		}
	}
	s.token = secrets["both"]
	k.record(k.reserve().id(), obj{}).want(201, "recorded")
}

func TestUnauthenticated(t *testing.T) {
	t.Parallel()
	s, secrets := withTokens(t, everyRole)
	k := s.key(t)
	worker := secrets["worker"]
	for _, authorization := range []string{
		"", "Bearer", "Bearer ", "Bearer x", "Bearer " + worker + "x", "Bearer " + worker[:len(worker)-1], "Bearer " + strings.ToUpper(worker),
		"Basic " + worker, worker, "Bearer" + worker, "Token " + worker, "Bearer " + worker + " " + worker, "Bearer " + worker + ", Bearer " + worker,
		"Bearer worker", "Bearer sha256:" + hexDigits, "Bearer " + text("x", 10000),
	} {
		for c := range k.routes() {
			c.header = map[string]string{"Authorization": authorization}
			a := s.send(t, *c).want(401, "unauthenticated")
			if got := a.header.Get("WWW-Authenticate"); !strings.HasPrefix(got, "Bearer") {
				t.Errorf("WWW-Authenticate: %q", got)
			}
		}
	}
	for _, authorization := range []string{"Bearer " + worker, "bearer " + worker, "BEARER  " + worker + " "} {
		c := call{method: http.MethodGet, path: k.path("replay"), header: map[string]string{"Authorization": authorization}}
		s.send(t, c).want(404, "not_found")
	}
	// What is public or is not there asks for no token; a wrong one does no harm.
	for _, authorization := range []string{"", "Bearer x"} {
		header := map[string]string{"Authorization": authorization}
		for _, path := range []string{"/healthz", "/readyz", "/openapi.yaml", "/problems/forbidden"} {
			if a := s.send(t, call{method: http.MethodGet, path: path, header: header}); a.status != 200 {
				t.Errorf("%s: %s", path, a)
			}
		}
		s.send(t, call{method: http.MethodGet, path: "/v1/nothing", header: header}).want(404, "no_such_route")
		s.send(t, call{method: http.MethodGet, path: k.path("reserve"), header: header}).want(405, "method_not_allowed")
	}
}

// Who may not call learns nothing of the call: neither whether it is well-formed nor whether the key is there.
func TestTokenIsAskedForFirst(t *testing.T) {
	t.Parallel()
	s, secrets := withTokens(t, everyRole)
	s.token = secrets["worker"]
	k := s.key(t)
	k.reserve().id()
	for token, want := range map[string]int{"x": 401, secrets["worker"]: 403} {
		s.token = token
		for _, c := range []call{
			{method: http.MethodPost, path: k.path("resolve"), body: "not JSON", header: map[string]string{"Content-Type": "text/plain"}},
			{method: http.MethodPost, path: "/v1/owners/" + text("x", 300) + "/release", body: pad("{}", 65<<10)},
			{method: http.MethodGet, path: "/v1/tasks/a%2Fb"},
			{method: http.MethodGet, path: "/v1/tasks/a/attempts/-1"},
			{method: http.MethodGet, path: "/v1/events?limit=x&x=1"},
		} {
			if a := s.send(t, c); a.status != want {
				t.Errorf("%s: %s", c.path, a)
			}
		}
	}
	for token, want := range map[string]int{"x": 401, secrets["auditor"]: 403} {
		s.token = token
		for _, c := range []call{
			{method: http.MethodPost, path: k.path("reserve"), body: "not JSON", header: map[string]string{"Content-Type": "text/plain"}},
			{method: http.MethodPost, path: k.path("reserve"), body: pad("{}", 65<<10)},
			{method: http.MethodPost, path: "/v1/tasks/a%2Fb/attempts/-1/reserve", body: obj{}},
			{method: http.MethodGet, path: k.path("replay") + "?x=1"},
			{method: http.MethodGet, path: k.path("replay") + "?wait_seconds=x"},
		} {
			if a := s.send(t, c); a.status != want {
				t.Errorf("%s: %s", c.path, a)
			}
		}
	}
}

func TestWithoutTokensEveryCallerIsAnonymous(t *testing.T) {
	t.Parallel()
	s := start(t, setup{database: inMemory})
	for _, token := range []string{"", "anything"} {
		s.token = token
		a := s.key(t).reserve().want(201, "reserved")
		if line := s.lines(t, a)[0]; line.Token != "anonymous" {
			t.Errorf("the log names %q", line.Token)
		}
	}
}

// Tokens are read again while the service runs. What cannot be read leaves the old ones in place.
func TestTokensAreReplaced(t *testing.T) {
	t.Parallel()
	s, secrets := withTokens(t, everyRole)
	secret, line, err := server.NewToken("new", []server.Role{server.RoleWorker})
	if err != nil {
		t.Fatal(err)
	}
	s.journal.secret(secret)
	k := s.key(t)
	s.token = secrets["worker"]
	for _, text := range []string{"", "# nobody\n", "no token\n", line + "\n" + line, line + "\nx"} {
		if err := s.tokens.Load(text); err == nil {
			t.Errorf("loaded %q", text)
		}
		k.replay("").want(404, "not_found")
	}
	if err := s.tokens.Load(line); err != nil {
		t.Fatal(err)
	}
	k.replay("").want(401, "unauthenticated")
	s.token = secret
	k.replay("").want(404, "not_found")
}
