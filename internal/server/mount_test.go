package server_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/internal/server"
)

// What is mounted has the request id and the line in the log that everything has, under a route that is one of two.
func TestMount(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	s := server.New(nil, nil, new(server.Tokens), zerolog.New(&log), server.Config{})
	s.Mount("/pages", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		server.Tell(r.Context(), "somebody", "", nil)
		server.Tell(r.Context(), "", idem.CodeReleased, errors.New("the reason"))
		w.WriteHeader(http.StatusTeapot)
	}))
	for path, route := range map[string]string{"/pages": `"route":"/pages"`, "/pages/a/b%2Fc": `"route":"/pages/*"`} {
		log.Reset()
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPut, path, nil))
		if w.Code != http.StatusTeapot || w.Header().Get("X-Request-Id") == "" {
			t.Errorf("%s: %d, request id %q", path, w.Code, w.Header().Get("X-Request-Id"))
		}
		for _, want := range []string{route, `"token":"somebody"`, `"outcome":"released"`, `"error":"the reason"`} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("%s: the line lacks %s: %s", path, want, log.String())
			}
		}
	}
}

// A token's own key is the same wherever the token is known, differs by purpose, and goes with it.
func TestBearers(t *testing.T) {
	t.Parallel()
	secret, line, err := server.NewToken("ops", []server.Role{server.RoleOperator})
	if err != nil {
		t.Fatal(err)
	}
	_, another, err := server.NewToken("ops", []server.Role{server.RoleOperator})
	if err != nil {
		t.Fatal(err)
	}
	var one, two server.Tokens
	if !one.Open() {
		t.Error("tokens that were never loaded are asked for")
	}
	if _, ok := one.Check(""); ok {
		t.Error("no token is somebody's")
	}
	load := func(k *server.Tokens, text string) {
		t.Helper()
		if err := k.Load(text); err != nil {
			t.Fatal(err)
		}
	}
	load(&one, line)
	load(&two, "# elsewhere\n"+line)
	checked, ok := one.Check(secret)
	named, found := two.Named("ops")
	if !ok || !found || !checked.May(server.RoleAuditor) || named.Name != "ops" || one.Open() {
		t.Fatalf("checked %t, found %t", ok, found)
	}
	if string(checked.Key("a")) != string(named.Key("a")) || string(checked.Key("a")) == string(checked.Key("b")) {
		t.Error("the key is not of the token and the purpose alone")
	}
	if _, ok := one.Check(secret + "x"); ok {
		t.Error("a wrong token is known")
	}
	load(&two, another)
	if renewed, _ := two.Named("ops"); string(renewed.Key("a")) == string(checked.Key("a")) {
		t.Error("another token of the same name has the same key")
	}
	if _, ok := two.Named("nobody"); ok {
		t.Error("a name that is not there is known")
	}
}
