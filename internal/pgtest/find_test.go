package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestFind(t *testing.T) {
	t.Parallel()
	const secret = "postgres://u:secret@nowhere/db" //nolint:gosec // not a real one
	cases := []struct {
		name        string
		environment environment
		works       string   // which of the servers can be started
		want        string   // which one is
		tried       []string // and what was asked on the way there
		err         []string // what the error says
	}{
		{name: "a container comes first", works: "container local", want: "container", tried: []string{"container"}},
		{name: "then installed programs", works: "local", want: "local", tried: []string{"container", "local"}},
		{name: "a URL comes before everything", environment: environment{url: secret}, works: "url container local", want: "url", tried: []string{"url"}},
		{name: "container", environment: environment{choice: "container"}, works: "container local", want: "container", tried: []string{"container"}},
		{name: "local", environment: environment{choice: "local"}, works: "container local", want: "local", tried: []string{"local"}},
		{name: "local in spite of a URL", environment: environment{choice: "local", url: secret}, works: "url local", want: "local", tried: []string{"local"}},
		{name: "url", environment: environment{choice: "url", url: secret}, works: "url", want: "url", tried: []string{"url"}},

		{
			name: "a URL that fails", environment: environment{url: secret}, works: "container local", tried: []string{"url"},
			err: []string{"IDEMSTORE_TEST_DATABASE_URL was given", "no url here"},
		},
		{
			name: "a container that fails", environment: environment{choice: "container"}, works: "local", tried: []string{"container"},
			err: []string{"IDEMSTORE_TEST_POSTGRES=container", "no container here"},
		},
		{
			name: "programs that fail", environment: environment{choice: "local"}, works: "container", tried: []string{"local"},
			err: []string{"IDEMSTORE_TEST_POSTGRES=local", "no local here"},
		},
		{
			name: "url without one", environment: environment{choice: "url"}, works: "container local",
			err: []string{"needs IDEMSTORE_TEST_DATABASE_URL"},
		},
		{
			name: "a choice nobody knows", environment: environment{choice: "docker"}, works: "container local",
			err: []string{"IDEMSTORE_TEST_POSTGRES=docker", "url, container or local"},
		},
		{name: "nothing at all", tried: []string{"container", "local"}, err: []string{
			"IDEMSTORE_TEST_DATABASE_URL: not set", "an-image: no container here", "no local here", "scripts/install-test-deps.sh", "apt-get install postgresql",
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var tried []string
			start := func(name string) (*server, error) {
				tried = append(tried, name)
				if !strings.Contains(c.works, name) {
					return nil, fmt.Errorf("no %s here", name)
				}
				return &server{url: name}, nil
			}
			e := c.environment
			e.image = "an-image"
			e.useURL = func(context.Context, string) (*server, error) { return start("url") }
			e.startContainer = func(context.Context, string) (*server, error) { return start("container") }
			e.startLocal = func(context.Context) (*server, error) { return start("local") }

			s, err := e.find(t.Context())
			if got := fmt.Sprint(tried); got != fmt.Sprint(c.tried) {
				t.Errorf("tried %s, want %s", got, c.tried)
			}
			if c.err == nil {
				if err != nil || s.url != c.want {
					t.Errorf("got %v, %v; want %s", s, err, c.want)
				}
				return
			}
			if err == nil {
				t.Fatal("want an error")
			}
			for _, part := range append(c.err, "pgtest: ") {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error does not say %q:\n%v", part, err)
				}
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the error tells the password: %v", err)
			}
		})
	}
}

func TestUseURLKeepsThePassword(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"mysql://u:secret@127.0.0.1/db", "postgres://u:se/secret@127.0.0.1/db", "host=127.0.0.1 password=secret", "postgres://u:secret@127.0.0.1:1/db"} {
		if _, err := useURL(t.Context(), url); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("want an error without the password, got: %v", err)
		}
	}
}

func TestNewest(t *testing.T) {
	t.Parallel()
	versions := map[string]string{
		"/9": "postgres (PostgreSQL) 9.6.24", "/13": "postgres (PostgreSQL) 13.9", "/15": "postgres (PostgreSQL) 15.8 (Debian 15.8-1)",
		"/17": "postgres (PostgreSQL) 17beta1", "/fork": "postgres 99",
	}
	version := func(dir string) (string, error) {
		if v, ok := versions[dir]; ok {
			return v, nil
		}
		return "", errors.New("no such program")
	}
	if got, err := newest([]string{"/13", "/15", "/17", "/9", "/none", "/fork"}, version); got != "/17" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	_, err := newest([]string{"/13", "/none"}, version)
	if err == nil || !strings.Contains(err.Error(), "/13 (PostgreSQL 13 is too old)") || !strings.Contains(err.Error(), "/none (no such program)") {
		t.Errorf("got %v", err)
	}
	if _, err := newest(nil, version); err == nil || !strings.Contains(err.Error(), "/usr/lib/postgresql/*/bin") {
		t.Errorf("got %v", err)
	}
}

func TestRemoveStale(t *testing.T) {
	t.Parallel()
	gone := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	base := t.TempDir()
	ours := filepath.Join(base, fmt.Sprintf("%s%d-1", dirPrefix, os.Getpid()))
	stale := filepath.Join(base, fmt.Sprintf("%s%d-1", dirPrefix, gone.Process.Pid))
	foreign := filepath.Join(base, dirPrefix+"notes-1")
	for _, dir := range []string{ours, stale, foreign} {
		if err := os.MkdirAll(filepath.Join(dir, "data"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	removeStale(base)
	left, _ := filepath.Glob(filepath.Join(base, "*"))
	if fmt.Sprint(left) != fmt.Sprint([]string{ours, foreign}) {
		t.Errorf("left: %v", left)
	}
}
