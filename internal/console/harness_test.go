package console_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/idemstore/idemstore/internal/console"
	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/internal/server"
	"github.com/idemstore/idemstore/internal/store"
)

// service is an idemstore with its console, on a database of its own.
type service struct {
	handler http.Handler
	url     string
	tokens  server.Tokens
	keeper  idem.Keeper
	tally   *console.Tally
	log     journal
	shift   atomic.Int64 // of the database's clock
	later   atomic.Int64 // of the console's
	secrets map[string]string
	lines   map[string]string
}

// journal keeps the log.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(line)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// setup is what a service is started with, where it is not the default.
type setup struct {
	open   bool // nobody needs a token
	tls    bool
	reader func(idem.Reader) idem.Reader
	keeper func(idem.Keeper) idem.Keeper
}

func start(t testing.TB, c setup) *service {
	t.Helper()
	s := &service{secrets: make(map[string]string), lines: make(map[string]string)}
	backend, err := store.Open(context.Background(), "sqlite::memory:", store.Options{
		Shift: func() time.Duration { return time.Duration(s.shift.Load()) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(backend.Close)
	batcher := store.NewBatcher(backend, idem.DefaultPolicy, store.Lanes(backend))
	t.Cleanup(batcher.Close)
	now := func() time.Time { return time.Now().Add(time.Duration(s.later.Load())) }
	s.tally = console.NewTally(batcher, now)
	s.keeper = s.tally
	var reader idem.Reader = backend
	if c.reader != nil {
		reader = c.reader(reader)
	}
	if c.keeper != nil {
		s.keeper = c.keeper(s.keeper)
	}
	if !c.open {
		for _, role := range []server.Role{server.RoleWorker, server.RoleAuditor, server.RoleOperator} {
			s.addToken(t, string(role), role)
		}
	}
	h := server.New(s.tally, reader, &s.tokens, zerolog.New(&s.log), server.Config{})
	s.handler = h
	h.Mount(console.Prefix, console.New(console.Config{
		Reader: reader, Keeper: s.keeper, Tally: s.tally, Tokens: tokens{&s.tokens}, Now: now, MaxBodyBytes: 1 << 20,
		Export: h.ExportEvents, Told: server.Tell,
		Warn: func(requestID, address, text string) {
			log := zerolog.New(&s.log)
			log.Warn().Str("request_id", requestID).Str("address", address).Msg(text)
		},
	}))
	listener := httptest.NewUnstartedServer(h)
	if c.tls {
		listener.StartTLS()
	} else {
		listener.Start()
	}
	t.Cleanup(listener.Close)
	s.url = listener.URL
	return s
}

// addToken makes a token of a name; one that is there is replaced.
func (s *service) addToken(t testing.TB, name string, roles ...server.Role) {
	t.Helper()
	secret, line, err := server.NewToken(name, roles)
	if err != nil {
		t.Fatal(err)
	}
	s.secrets[name], s.lines[name] = secret, line
	s.loadTokens(t)
}

// withdraw takes a token away.
func (s *service) withdraw(t testing.TB, name string) {
	t.Helper()
	delete(s.lines, name)
	s.loadTokens(t)
}

func (s *service) loadTokens(t testing.TB) {
	t.Helper()
	var file strings.Builder
	for _, line := range s.lines {
		file.WriteString(line + "\n")
	}
	if err := s.tokens.Load(file.String()); err != nil {
		t.Fatal(err)
	}
}

// tokens shows the console the tokens of the API.
type tokens struct{ *server.Tokens }

func (k tokens) Check(secret string) (console.Caller, bool) { return caller(k.Tokens.Check(secret)) }
func (k tokens) Named(name string) (console.Caller, bool)   { return caller(k.Tokens.Named(name)) }

func caller(b *server.Bearer, ok bool) (console.Caller, bool) {
	if !ok {
		return console.Caller{}, false
	}
	return console.Caller{
		Name: b.Name, Auditor: b.May(server.RoleAuditor), Operator: b.May(server.RoleOperator), Key: b.Key("console"),
	}, true
}

// worker speaks to the service as workers do, about one key.
type worker struct {
	t     testing.TB
	s     *service
	owner string
	key   idem.Key
	id    string
}

func (s *service) worker(t testing.TB, owner string, key idem.Key) *worker {
	return &worker{t, s, owner, key, uuid.NewString()}
}

func (w *worker) call() idem.Call {
	return idem.Call{Key: w.key, Actor: idem.Actor{Token: "worker", RequestID: "req-" + w.owner}}
}

func (w *worker) do(cmd idem.Command) idem.Outcome {
	w.t.Helper()
	if err := cmd.Validate(); err != nil {
		w.t.Fatal(err)
	}
	result := w.s.tally.Do(context.Background(), cmd)[0]
	if result.Err != nil {
		w.t.Fatal(result.Err)
	}
	return result.Outcome
}

func (w *worker) reserve(takeovers ...idem.Takeover) idem.Outcome {
	w.t.Helper()
	return w.do(&idem.Reserve{
		Call: w.call(), Owner: w.owner, ReservationID: w.id, Handler: "payments.charge", LeaseSeconds: 30, Takeovers: takeovers,
	})
}

func (w *worker) record(status int, contentType, body string) idem.Outcome {
	w.t.Helper()
	return w.do(&idem.Record{Call: w.call(), ReservationID: w.id, Response: &idem.Response{
		Status: status, Headers: []idem.Header{{"Content-Type", contentType}}, HasBody: true, Body: []byte(body),
	}})
}

// pass moves the database's clock on, and has the keeper hear of it.
func (s *service) pass(t testing.TB, d time.Duration) {
	t.Helper()
	s.shift.Add(int64(d + 5*time.Second))
	w := s.worker(t, "clock", task())
	w.do(&idem.Replay{Call: w.call(), Owner: "clock"})
	s.later.Add(int64(time.Minute)) // past what the console keeps
}

// task is a key that nobody else uses.
func task() idem.Key { return idem.Key{TaskID: "order-" + uuid.NewString()[:8]} }

const (
	kept  = `{"charge":"ch_9k2","amount":12345678901234567890.10,"currency":"EUR","captured":true}`
	other = `{"charge":"ch_1a7","amount":12345678901234567890.10,"currency":"EUR","captured":true}`
)

// doubt is a key that is in doubt.
func (s *service) doubt(t testing.TB, owner string, key idem.Key) {
	t.Helper()
	s.worker(t, owner, key).reserve()
	s.pass(t, time.Minute)
	if code := s.worker(t, "next", key).reserve().Code; code != idem.CodeInDoubt {
		t.Fatalf("%s is %s, not in doubt", key, code)
	}
}

// incident is a worker killed between its side effect and its record, taken over, and its record arriving late.
func (s *service) incident(t testing.TB, key idem.Key) {
	t.Helper()
	first, second := s.worker(t, "worker-a", key), s.worker(t, "worker-b", key)
	first.reserve()
	s.pass(t, time.Minute)
	second.reserve()
	second.id = uuid.NewString()
	second.reserve(idem.Takeover{Attempt: key.Attempt, Fence: 1})
	second.record(201, "application/json", kept)
	if code := first.record(200, "application/json", other).Code; code != idem.CodeAlreadyRecorded {
		t.Fatalf("the late record was answered %s", code)
	}
}

// client is a browser without a screen: it keeps cookies and follows no redirect.
type client struct {
	t    testing.TB
	s    *service
	http *http.Client
	form string // token of the session's forms
}

func (s *service) client(t testing.TB) *client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &client{t: t, s: s, http: &http.Client{
		Jar: jar, Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// as is a client that has signed in.
func (s *service) as(t testing.TB, name string) *client {
	t.Helper()
	c := s.client(t)
	if r := c.post("/console/sign-in", "token", s.secrets[name]); r.status != http.StatusSeeOther {
		t.Fatalf("signing in as %s: %d", name, r.status)
	}
	c.form = formToken(c.get("/console").body)
	if c.form == "" {
		t.Fatal("no form token on the page")
	}
	return c
}

var formField = regexp.MustCompile(`name="form" value="([^"]+)"`)

func formToken(body string) string {
	if m := formField.FindStringSubmatch(body); m != nil {
		return m[1]
	}
	return ""
}

// reply is an answer.
type reply struct {
	t      testing.TB
	status int
	header http.Header
	body   string
}

func (c *client) do(req *http.Request) reply {
	c.t.Helper()
	res, err := c.http.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return reply{c.t, res.StatusCode, res.Header, string(body)}
}

func (c *client) request(method, path string, form url.Values) *http.Request {
	c.t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.s.url+path, body)
	if err != nil {
		c.t.Fatal(err)
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return req
}

func (c *client) get(path string) reply {
	c.t.Helper()
	return c.do(c.request("GET", path, nil))
}

// post sends a form of names and values, with the form token of the session.
func (c *client) post(path string, fields ...string) reply {
	c.t.Helper()
	form := url.Values{}
	if c.form != "" {
		form.Set("form", c.form)
	}
	for i := 0; i < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	return c.do(c.request("POST", path, form))
}

// want checks the status, and what must stand on the page, escaped or not.
func (r reply) want(status int, texts ...string) reply {
	r.t.Helper()
	if r.status != status {
		r.t.Fatalf("status %d, want %d: %s", r.status, status, r.body)
	}
	for _, text := range texts {
		if !strings.Contains(r.body, text) && !strings.Contains(html.UnescapeString(r.body), text) {
			r.t.Errorf("the page lacks %q:\n%s", text, r.body)
		}
	}
	return r
}

// without checks what must not stand on the page.
func (r reply) without(texts ...string) reply {
	r.t.Helper()
	for _, text := range texts {
		if strings.Contains(r.body, text) {
			r.t.Errorf("the page has %q:\n%s", text, r.body)
		}
	}
	return r
}

func taskPath(k idem.Key) string { return "/console/tasks/" + k.TaskID }

func resolvePath(k idem.Key) string {
	return fmt.Sprintf("%s/attempts/%d/resolve", taskPath(k), k.Attempt)
}

// insecure takes the test server's certificate as it is.
var insecure = &tls.Config{InsecureSkipVerify: true}
