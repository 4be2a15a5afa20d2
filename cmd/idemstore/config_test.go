package main

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// Everything that cannot be is reported at once, and the program does not start.
func TestAllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	faults := map[string]string{
		"IDEMSTORE_DATABASE_URL":       "mysql://root:secret@db/x",
		"IDEMSTORE_LISTEN":             "8080",
		"IDEMSTORE_METRICS_LISTEN":     "localhost:99999",
		"IDEMSTORE_RETENTION":          "14 days",
		"IDEMSTORE_IN_DOUBT_RETENTION": "1h",
		"IDEMSTORE_EVENT_RETENTION":    "-5h",
		"IDEMSTORE_MAX_BODY_BYTES":     "16777217",
		"IDEMSTORE_KEY_TEMPLATE":       "always-the-same",
		"IDEMSTORE_DENIED_HEADERS":     "Set-Cookie,a b",
		"IDEMSTORE_LOG_LEVEL":          "loud",
		"IDEMSTORE_LOG_FORMAT":         "xml",
		"IDEMSTORE_TLS_CERT":           "/nowhere/cert.pem",
		"IDEMSTORE_AUTH":               "maybe",
		"IDEMSTORE_TOKENS_FILE":        "/nowhere/tokens",
	}
	var env []string
	for name, value := range faults {
		env = append(env, name+"="+value)
	}
	_, stderr, code := output(t, env, "serve")
	if code != exitUsage {
		t.Errorf("exit status %d, want %d", code, exitUsage)
	}
	for name := range faults {
		if !strings.Contains(stderr, name) {
			t.Errorf("nothing is said of %s in:\n%s", name, stderr)
		}
	}
	if strings.Contains(stderr, "secret") {
		t.Errorf("a password is told:\n%s", stderr)
	}
}

func valid() settings {
	return settings{
		DatabaseURL: "sqlite::memory:", Listen: "127.0.0.1:0", Auth: "tokens", Retention: "336h", InDoubtRetention: "2160h",
		EventRetention: "2160h", MaxBodyBytes: "1048576", KeyTemplate: "conduit-task-{task_id}", LogLevel: "info", LogFormat: "json",
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	if _, err := valid().resolve(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(s *settings)
		fault  string // "": fine
	}{
		"postgres":                       {func(s *settings) { s.DatabaseURL = "postgres://db/x" }, ""},
		"postgresql":                     {func(s *settings) { s.DatabaseURL = "postgresql://db/x" }, ""},
		"sqlite without a path":          {func(s *settings) { s.DatabaseURL = "sqlite:" }, "IDEMSTORE_DATABASE_URL"},
		"all interfaces, no tokens":      {func(s *settings) { s.Listen = "0.0.0.0:80" }, "IDEMSTORE_AUTH"},
		"no host, no tokens":             {func(s *settings) { s.Listen = ":80" }, "IDEMSTORE_AUTH"},
		"said out loud":                  {func(s *settings) { s.Listen, s.Auth = ":80", "none" }, ""},
		"loopback of IPv6":               {func(s *settings) { s.Listen = "[::1]:80" }, ""},
		"localhost":                      {func(s *settings) { s.Listen = "localhost:80" }, ""},
		"none and a tokens file":         {func(s *settings) { s.Auth, s.TokensFile = "none", "config_test.go" }, "contradicts"},
		"a tokens file without tokens":   {func(s *settings) { s.TokensFile = "config_test.go" }, "IDEMSTORE_TOKENS_FILE"},
		"port that is none":              {func(s *settings) { s.DatabaseURL = "postgres://u:secret@h:notaport/db" }, "IDEMSTORE_DATABASE_URL"},
		"pool size that is none":         {func(s *settings) { s.DatabaseURL = "postgres://h/db?pool_max_conns=abc" }, "IDEMSTORE_DATABASE_URL"},
		"sqlite with a host":             {func(s *settings) { s.DatabaseURL = "sqlite://x.db" }, "IDEMSTORE_DATABASE_URL"},
		"a header that cannot be":        {func(s *settings) { s.DeniedHeaders = "A;B" }, "IDEMSTORE_DENIED_HEADERS"},
		"a header beyond ASCII":          {func(s *settings) { s.DeniedHeaders = "é" }, "IDEMSTORE_DENIED_HEADERS"},
		"shortest retention":             {func(s *settings) { s.Retention = "1h" }, ""},
		"too short a retention":          {func(s *settings) { s.Retention = "59m" }, "IDEMSTORE_RETENTION"},
		"shortest retention of doubts":   {func(s *settings) { s.InDoubtRetention = "24h" }, ""},
		"too short retention of doubts":  {func(s *settings) { s.InDoubtRetention = "23h59m" }, "IDEMSTORE_IN_DOUBT_RETENTION"},
		"largest body":                   {func(s *settings) { s.MaxBodyBytes = "16777216" }, ""},
		"no body":                        {func(s *settings) { s.MaxBodyBytes = "0" }, "IDEMSTORE_MAX_BODY_BYTES"},
		"template with both":             {func(s *settings) { s.KeyTemplate = "{task_id}/{attempt}" }, ""},
		"certificate without a key":      {func(s *settings) { s.TLSCert = "config_test.go" }, "give both"},
		"no denied headers":              {func(s *settings) { s.DeniedHeaders = "" }, ""},
		"metrics on port 0":              {func(s *settings) { s.MetricsListen = "127.0.0.1:0" }, ""},
		"nothing to log at level silent": {func(s *settings) { s.LogLevel = "silent" }, "IDEMSTORE_LOG_LEVEL"},
	} {
		s := valid()
		c.change(&s)
		_, err := s.resolve()
		if c.fault == "" && err != nil || c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)) {
			t.Errorf("%s: got %v, want %q", name, err, c.fault)
		}
	}
}

func TestFlagsWinOverTheEnvironment(t *testing.T) {
	t.Parallel()
	p := start(t, []string{"IDEMSTORE_DATABASE_URL=mysql://x", "IDEMSTORE_KEY_TEMPLATE=env-{task_id}"},
		"--database-url", "sqlite::memory:", "--key-template", "flag-{task_id}-{attempt}")
	a := send("POST", p.url+"/v1/tasks/t1/attempts/0/reserve", "", `{"owner":"w"}`)
	a.want(t, http.StatusCreated, "reserved")
	if a.body["idempotency_key"] != "flag-t1-0" {
		t.Errorf("idempotency_key %v", a.body["idempotency_key"])
	}
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args   []string
		code   int
		stdout string
		stderr string
	}{
		{[]string{"version"}, exitOK, "idemstore ", ""},
		{[]string{"--help"}, exitOK, "serve", ""},
		{[]string{"serve", "--help"}, exitOK, "IDEMSTORE_IN_DOUBT_RETENTION", ""},
		{[]string{}, exitUsage, "", "idemstore: "},
		{[]string{"serve", "--no-such-flag"}, exitUsage, "", "no-such-flag"},
		{[]string{"frobnicate"}, exitUsage, "", "frobnicate"},
		{[]string{"token", "new", "--name", "x", "--role", "king"}, exitUsage, "", "role"},
		{[]string{"token", "new", "--name", "a b", "--role", "worker"}, exitUsage, "", "name"},
		{[]string{"token", "new", "--name", "x", "--role", "worker,operator"}, exitOK, "x worker,operator sha256:", ""},
		{[]string{"healthcheck", "--url", "http://127.0.0.1:1"}, exitFailed, "", "refused"},
		{[]string{"migrate", "up", "--database-url", "mysql://x"}, exitUsage, "", "IDEMSTORE_DATABASE_URL"},
		{[]string{"migrate", "down", "--database-url", "sqlite:" + filepath.Join(t.TempDir(), "x.db")}, exitFailed, "", "idemstore: "},
	} {
		stdout, stderr, code := output(t, nil, c.args...)
		if code != c.code || !strings.Contains(stdout, c.stdout) || !strings.Contains(stderr, c.stderr) {
			t.Errorf("%q: exit %d\nstdout: %s\nstderr: %s", c.args, code, stdout, stderr)
		}
	}
}

func TestHealthcheck(t *testing.T) {
	t.Parallel()
	p := start(t, []string{"IDEMSTORE_DATABASE_URL=sqlite::memory:"})
	if stdout, stderr, code := output(t, []string{"IDEMSTORE_URL=" + p.url}, "healthcheck"); code != exitOK || stdout != "ready\n" {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
}
