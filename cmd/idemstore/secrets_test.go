package main

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/uuid"

	"github.com/idemstore/idemstore/internal/pgtest"
	"github.com/idemstore/idemstore/internal/server"
)

// tap calls the program, and keeps every answer.
type tap struct {
	t       *testing.T
	p       *program
	cookie  string
	answers bytes.Buffer // but those that give a caller what is its own
	pages   bytes.Buffer
}

// do is one call; a body that begins with form: is a form of the console.
func (c *tap) do(method, path, token, body string, header ...string) (status int, answer string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	form, isForm := strings.CutPrefix(body, "form:")
	req, err := http.NewRequestWithContext(ctx, method, c.p.url+path, strings.NewReader(form))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if isForm {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if c.cookie != "" && strings.HasPrefix(path, "/console") {
		req.Header.Set("Cookie", "idemstore_session="+c.cookie)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := (&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, cookie := range res.Cookies() {
		c.cookie = cookie.Value
	}
	res.Header.Del("Set-Cookie")
	kept := &c.answers
	if strings.HasPrefix(path, "/console") {
		kept = &c.pages
	}
	if !strings.Contains(string(raw), `"outcome":"reserved"`) && !strings.Contains(string(raw), `"response":{`) {
		fmt.Fprintln(kept, res.StatusCode, res.Header, string(raw))
	}
	return res.StatusCode, string(raw)
}

func (c *tap) want(status int, method, path, token, body string) string {
	c.t.Helper()
	got, answer := c.do(method, path, token, body)
	if got != status {
		c.t.Fatalf("%s %s: want %d, got %d %s", method, path, status, got, answer)
	}
	return answer
}

// secrets are what a run uses, by what it is, in a form that nothing else has.
type secrets struct {
	worker, auditor, operator, wrong  string // tokens
	holder, second                    string // reservations
	body, binary, header, hash, cause string // of callers
	file                              string // with the tokens
	hashes                            []string
}

func newSecrets(t *testing.T) *secrets {
	t.Helper()
	s := &secrets{
		wrong: "idem_WRONG-" + uuid.NewString(), holder: uuid.NewString(), second: uuid.NewString(), body: "body-" + uuid.NewString(),
		binary: "\x00binary-" + uuid.NewString(), header: "header-" + uuid.NewString(), hash: "hash-" + uuid.NewString(), cause: "cause-" + uuid.NewString(),
		file: filepath.Join(t.TempDir(), "tokens"),
	}
	var lines string
	for role, to := range map[server.Role]*string{server.RoleWorker: &s.worker, server.RoleAuditor: &s.auditor, server.RoleOperator: &s.operator} {
		secret, line, err := server.NewToken(string(role)+"-1", []server.Role{role})
		if err != nil {
			t.Fatal(err)
		}
		*to = secret
		lines += line + "\n"
		s.hashes = append(s.hashes, strings.Fields(line)[2][len("sha256:"):])
	}
	if err := os.WriteFile(s.file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

// scenario has all that callers send go through the program once, also where it is refused.
func (s *secrets) scenario(c *tap) {
	c.t.Helper()
	key := "/v1/tasks/task-" + uuid.NewString() + "/attempts/0"
	reserve := fmt.Sprintf(`{"owner":"w","reservation_id":%q,"request_hash":%q,"lease_seconds":1}`, s.holder, s.hash)
	offer := fmt.Sprintf(`"response":{"headers":[["X-Of-Caller",%q]],"body":%q}`, s.header, s.body)
	base := base64.StdEncoding.EncodeToString([]byte(s.binary))
	c.want(201, "POST", key+"/reserve", s.worker, reserve)
	c.want(422, "POST", key+"/reserve", s.worker, `{"owner":"v","request_hash":"another"}`)
	c.want(409, "POST", key+"/record", s.worker, fmt.Sprintf(`{"reservation_id":%q,%s}`, s.second, offer))
	c.want(400, "POST", key+"/record", s.worker, fmt.Sprintf(`{"reservation_id":%q,%s,"retention_seconds":1}`, s.holder, offer))
	c.want(400, "POST", key+"/record", s.worker, fmt.Sprintf(`{"reservation_id":%q,"response":{"status":%q}}`, s.holder, s.body))
	c.want(400, "POST", key+"/record", s.worker, fmt.Sprintf(`{"reservation_id":%q %s`, s.holder, offer))
	c.want(415, "POST", key+"/record", s.worker, "form:"+offer+s.holder)
	c.want(401, "POST", key+"/reserve", s.wrong, reserve)
	c.want(403, "POST", key+"/reserve", s.auditor, reserve)
	c.want(403, "GET", "/v1/entries", s.worker, "")
	c.want(400, "GET", "/v1/entries?limit="+s.body, s.auditor, "")
	c.want(400, "GET", "/v1/entries?cursor="+s.body, s.auditor, "")
	c.want(404, "GET", "/"+s.worker, s.worker, "")
	c.want(400, "POST", "/v1/tasks/a%20"+s.body+"/attempts/0/reserve", s.worker, reserve)
	eventually(c.t, "the lease has passed", func() bool {
		status, _ := c.do("POST", key+"/reserve", s.worker, `{"owner":"v","wait_seconds":5}`)
		return status == 409
	})
	c.want(201, "POST", key+"/reserve", s.worker, fmt.Sprintf(`{"owner":"v","reservation_id":%q,"takeovers":[{"attempt":0,"fence":1}]}`, s.second))
	c.want(201, "POST", key+"/record", s.worker, fmt.Sprintf(`{"reservation_id":%q,%s}`, s.second, offer))
	c.want(409, "POST", key+"/record", s.worker, fmt.Sprintf(`{"reservation_id":%q,"response":{"body_base64":%q}}`, s.holder, base))
	c.want(409, "POST", key+"/renew", s.worker, fmt.Sprintf(`{"reservation_id":%q}`, s.holder))
	c.want(200, "GET", key+"/replay?raw=true", s.worker, "")
	c.want(200, "POST", "/v1/batch/record", s.worker, fmt.Sprintf(`{"items":[{"task_id":"t","attempt":0,"reservation_id":%q,%s},%q]}`, s.holder, offer, s.body))
	c.want(200, "GET", strings.TrimSuffix(key, "/attempts/0"), s.auditor, "")
	c.want(200, "GET", "/v1/events", s.auditor, "")
	c.want(409, "POST", key+"/resolve", s.operator, fmt.Sprintf(`{"action":"record","fence":2,"reason":%q,%s}`, s.cause, strings.Replace(offer, s.body, "other", 1)))
	c.do("POST", "/v1/batch/reserve", s.worker, `{"items":[]}`, "Traceparent", traceparent, "X-Request-Id", "a b "+s.worker)

	c.want(401, "POST", "/console/sign-in", "", "form:"+url.Values{"token": {s.wrong}}.Encode())
	c.want(403, "POST", "/console/sign-in", "", "form:"+url.Values{"token": {s.worker}}.Encode())
	c.want(303, "POST", "/console/sign-in", "", "form:"+url.Values{"token": {s.operator}}.Encode())
	for _, page := range []string{"", "/doubts", "/entries", "/events", "/tasks/" + strings.Split(key, "/")[3], "/search?task_id=" + strings.Split(key, "/")[3], "/none"} {
		c.do("GET", "/console"+page, "", "")
	}
	c.want(403, "POST", "/console/tasks/a/attempts/0/resolve", "", "form:"+url.Values{"response": {s.body}, "reason": {s.cause}}.Encode())
}

// spans keeps what a collector is sent, as it comes.
type spans struct {
	mu  sync.Mutex
	raw bytes.Buffer
}

func (s *spans) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.raw.Write(body)
}

func (s *spans) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.raw.String()
}

// Nothing that a caller may not know comes out of the program: not into its log at any level and in either form, not into metrics or
// traces, not into answers to others or the console's pages; and no faults of the database change that.
func TestNoSecretGetsOut(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"json", "console"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			onEveryEngine(t, func(t *testing.T, databaseURL string) {
				s, sent := newSecrets(t), &spans{}
				collector := httptest.NewServer(sent)
				t.Cleanup(collector.Close)
				c := &tap{t: t, p: measured(t, databaseURL,
					"IDEMSTORE_LOG_LEVEL=trace", "IDEMSTORE_LOG_FORMAT="+format, "IDEMSTORE_TOKENS_FILE="+s.file,
					"OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL, "OTEL_BSP_SCHEDULE_DELAY=10",
				)}
				s.scenario(c)
				eventually(t, "the last call is logged", func() bool { return strings.Contains(c.p.logged(), "attempts/{attempt}/resolve") })
				eventually(t, "spans are sent", func() bool { return strings.Contains(sent.String(), "resolve") })
				_, metrics := c.p.scrape()
				s.nowhere(t, map[string]string{"the log": c.p.logged(), "metrics": metrics, "spans": sent.String(), "answers": c.answers.String(), "pages": c.pages.String()}, c.cookie)
			})
		})
	}
}

// nowhere looks for every secret wherever it must not be. Pages and the answers that auditors ask for show what was recorded; nothing shows a
// token or another's reservation.
func (s *secrets) nowhere(t *testing.T, outputs map[string]string, more ...string) {
	t.Helper()
	never := append([]string{s.worker, s.auditor, s.operator, s.wrong, s.holder, s.second}, s.hashes...)
	never = append(never, more...)
	callers := []string{s.body, s.binary[1:], base64.StdEncoding.EncodeToString([]byte(s.binary)), s.header, s.hash, s.cause}
	for _, where := range slices.Sorted(maps.Keys(outputs)) {
		text := outputs[where]
		if len(text) < 100 {
			t.Errorf("%s: only %q: nothing was looked at", where, text)
		}
		looked := never
		if where != "pages" && where != "answers" {
			looked = append(slices.Clone(never), callers...)
		}
		for _, secret := range looked {
			for _, form := range []string{secret, base64.StdEncoding.EncodeToString([]byte(secret)), hex.EncodeToString([]byte(secret)), url.QueryEscape(secret)} {
				if i := strings.Index(text, form); secret != "" && i >= 0 {
					t.Errorf("%s has %s: %q", where, form, text[max(0, i-200):min(len(text), i+len(form)+100)])
					break
				}
			}
		}
	}
}

// A password in the database's URL is in no message: not when the database refuses it, not when it cannot be reached, not when the URL
// is none, by no subcommand.
func TestDatabasePasswordsAreNotTold(t *testing.T) {
	t.Parallel()
	const password = "p4ss-0f-th3-d4t4b4s3"
	refusing := refusingPostgres(t)
	for _, at := range []string{
		"postgres://user:" + password + "@" + refusing + "/idemstore?sslmode=disable",
		"postgres://user@" + refusing + "/idemstore?sslmode=disable&password=" + password,
		"postgres://user:" + password + "@127.0.0.1:1/idemstore",
		"postgres://user:" + password + "@host.invalid/idemstore",
	} {
		env := []string{"IDEMSTORE_DATABASE_URL=" + at, "IDEMSTORE_LOG_LEVEL=trace"}
		p := start(t, env)
		_, answered := (&tap{t: t, p: p}).do("POST", "/v1/tasks/a/attempts/0/reserve", "", owner)
		_, ready := (&tap{t: t, p: p}).do("GET", "/readyz", "", "")
		p.signal(syscall.SIGTERM)
		p.ended()
		for _, text := range []string{p.logged(), answered, ready} {
			if strings.Contains(text, password) || text == "" {
				t.Errorf("%s: told: %s", at, text)
			}
		}
		if strings.Contains(at, refusing) && !strings.Contains(p.logged(), "password authentication failed") {
			t.Errorf("the log does not say why: %s", p.logged())
		}
		for _, arguments := range [][]string{{"migrate", "up"}, {"migrate", "status"}, {"purge", "--dry-run"}} {
			if stdout, stderr, code := output(t, env, arguments...); code == exitOK || strings.Contains(stdout+stderr, password) {
				t.Errorf("%s, %v: exit %d: %s%s", at, arguments, code, stdout, stderr)
			}
		}
	}
	for _, at := range []string{
		"postgres://user:" + password + "@host:port/x", "postgres://user:%zz" + password + "@host/x", "postgres://user:" + password + "@host/x?sslmode=never",
		"postgres://user:" + password + "@host/x?pool_max_conns=" + password, "mysql://user:" + password + "@host/x", password, "postgres://[" + password + "/x",
		"postgres://user:" + password + "@host/x?connect_timeout=" + password, "sqlite:", "postgres://user:" + password + "@host/x?sslrootcert=/none/" + password,
	} {
		for _, arguments := range [][]string{{"serve"}, {"migrate", "up"}, {"purge"}} {
			if stdout, stderr, code := output(t, []string{"IDEMSTORE_DATABASE_URL=" + at}, arguments...); code == exitOK || strings.Contains(stdout+stderr, password) {
				t.Errorf("%s of %q: exit %d: %s%s", arguments[0], at, code, stdout, stderr)
			}
		}
	}
}

// refusingPostgres is a PostgreSQL as far as it takes to refuse a password.
func refusingPostgres(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go refusePassword(conn)
		}
	}()
	return listener.Addr().String()
}

func refusePassword(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	in := bufio.NewReader(conn)
	packet := func(kind int) bool {
		if _, err := in.Discard(kind); err != nil {
			return false
		}
		size, err := in.Peek(4)
		if err != nil {
			return false
		}
		_, err = in.Discard(int(binary.BigEndian.Uint32(size)))
		return err == nil
	}
	if !packet(0) { // the start, which has no kind
		return
	}
	_, _ = conn.Write([]byte("R\x00\x00\x00\x08\x00\x00\x00\x03")) // the password, as it is
	if !packet(1) {
		return
	}
	fields := "SFATAL\x00C28P01\x00Mpassword authentication failed for user \"user\"\x00\x00"
	_, _ = conn.Write(append(binary.BigEndian.AppendUint32([]byte("E"), uint32(4+len(fields))), fields...))
}

// What the database says against a statement is in the log, and the values that the statement had are not.
func TestFaultsOfStatementsTellNoValues(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.New(t)
	s := newSecrets(t)
	p := measured(t, databaseURL, "IDEMSTORE_LOG_LEVEL=trace")
	db, err := sql.Open("pgx", databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), `ALTER TABLE entries ADD CONSTRAINT none CHECK (owner = 'nobody') NOT VALID`); err != nil {
		t.Fatal(err)
	}
	c := &tap{t: t, p: p}
	status, _ := c.do("POST", "/v1/tasks/a/attempts/0/record", "", fmt.Sprintf(`{"owner":"w","request_hash":%q,"response":{"headers":[["A",%q]],"body":%q}}`, s.hash, s.header, s.body))
	other, _ := c.do("POST", "/v1/tasks/b/attempts/0/reserve", "", fmt.Sprintf(`{"owner":"w","reservation_id":%q}`, s.holder))
	if status < 500 || other < 500 {
		t.Fatalf("the database has not refused: %d, %d", status, other)
	}
	eventually(t, "the log says why", func() bool { return strings.Contains(p.logged(), "check constraint") })
	_, metrics := p.scrape()
	s.nowhere(t, map[string]string{"the log": p.logged(), "metrics": metrics, "answers": c.answers.String()})
	for _, inside := range []string{"constraint", "SQLSTATE", "entries"} {
		if strings.Contains(c.answers.String(), inside) {
			t.Errorf("a caller is told of %s: %s", inside, c.answers.String())
		}
	}
}

// The listener of metrics and profiles tells neither the command line, which may have a password in it, nor the environment.
func TestProfilesTellNoCommandLine(t *testing.T) {
	t.Parallel()
	const password = "p4ss-0f-th3-d4t4b4s3"
	p := start(t, nil, "--metrics-listen", "127.0.0.1:0", "--database-url", "postgres://user:"+password+"@127.0.0.1:1/idemstore")
	address := "http://" + p.logLine("idemstore serves", "metrics")
	for path, want := range map[string]int{
		"/debug/pprof/cmdline": 404, "/debug/vars": 404, "/debug/pprof/": 200, "/debug/pprof/goroutine?debug=2": 200, "/debug/pprof/heap?debug=1": 200, "/metrics": 200, "/": 404,
	} {
		status, text := (&tap{t: t, p: &program{t: t, url: address}}).do("GET", path, "", "")
		if status != want || strings.Contains(text, password) {
			t.Errorf("%s: %d %.200s", path, status, text)
		}
	}
}

// No secret stands on a command line that the program starts: the crash test hands its worker a token by the environment alone.
func TestNoSecretOnCommandLines(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "seen")
	worker := `tr "\0" " " < /proc/$$/cmdline > ` + file + `; tr "\0" " " < /proc/$PPID/cmdline >> ` + file + `; printf "%s=%s" the-token "$IDEMSTORE_TOKEN" >> ` + file
	output(t, nil, "crashtest", "--handler", "http.call", "--point", "none", "--scenario", "plain", "--start-timeout", "1s", "--patience", "2s", "--", "sh", "-c", worker)
	seen, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines, token, _ := strings.Cut(string(seen), "the-token=")
	if token == "" || strings.Contains(lines, token) || !strings.Contains(lines, "crashtest") {
		t.Errorf("the worker saw %q", seen)
	}
}
