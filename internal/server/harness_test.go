package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/internal/server"
	"github.com/idemstore/idemstore/internal/store"
)

// soon is when what must happen at once has happened also on a busy machine.
const soon = 20 * time.Second

var engines = []string{"sqlite", "postgres"}

// onEveryEngine runs a test against the service that all tests of an engine share.
func onEveryEngine(t *testing.T, test func(t *testing.T, s *service)) {
	t.Helper()
	for _, engine := range engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			test(t, shared.service(t, engine))
		})
	}
}

// withClock runs a test against a service of each engine whose clock is the test's own to move.
func withClock(t *testing.T, test func(t *testing.T, s *service)) {
	t.Helper()
	for _, engine := range engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			test(t, shared.borrow(t, engine))
		})
	}
}

// setup is what a service is started with, where it is not the default.
type setup struct {
	database string // URL
	maxConns int
	config   server.Config
	tokens   string      // text of a tokens file
	keeper   idem.Keeper // in the database's place
	reader   idem.Reader // the same
	http     func(*http.Server)
}

// service is a running idemstore.
type service struct {
	url     string
	server  *server.Server
	batcher *store.Batcher
	journal *journal
	tokens  server.Tokens
	token   string // that is sent where a call does not say another
	shift   atomic.Int64
	refused sync.Map     // tasks that somebody found in progress
	waiting atomic.Int64 // how many watch a task
}

// observed tells its service what is waited for.
type observed struct {
	idem.Keeper
	s *service
}

func (o observed) Watch(task string) (<-chan struct{}, func()) {
	changed, unwatch := o.Keeper.Watch(task)
	o.s.waiting.Add(1)
	return changed, func() { o.s.waiting.Add(-1); unwatch() }
}

func (o observed) Do(ctx context.Context, cmds ...idem.Command) []idem.Result {
	results := o.Keeper.Do(ctx, cmds...)
	for _, r := range results {
		if r.Outcome.Code == idem.CodeInProgress {
			o.s.refused.Store(r.Outcome.Key.TaskID, true)
		}
	}
	return results
}

// waited returns when somebody has found the task in progress.
func (k key) waited() {
	k.t.Helper()
	eventually(k.t, "nobody waits", func() bool { _, ok := k.s.refused.Load(k.task); return ok })
}

// eventually polls until something is so.
func eventually(t testing.TB, otherwise string, so func() bool) {
	t.Helper()
	tick, until := time.NewTicker(time.Millisecond), time.After(soon)
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-until:
			t.Fatal(otherwise)
		}
	}
}

func start(t testing.TB, c setup) *service {
	t.Helper()
	s := &service{journal: &journal{}}
	if c.keeper == nil {
		backend, err := store.Open(t.Context(), c.database, store.Options{
			MaxConns: c.maxConns, Shift: func() time.Duration { return time.Duration(s.shift.Load()) },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(backend.Close)
		s.batcher = store.NewBatcher(backend, idem.DefaultPolicy, store.Lanes(backend))
		t.Cleanup(s.batcher.Close)
		c.keeper = s.batcher
		if c.reader == nil {
			c.reader = backend
		}
	}
	if c.config.MaxBodyBytes == 0 {
		c.config.MaxBodyBytes = server.DefaultMaxBodyBytes
	}
	if c.config.KeyTemplate == "" {
		c.config.KeyTemplate = server.DefaultKeyTemplate
	}
	if c.config.DeniedHeaders == nil {
		c.config.DeniedHeaders = server.DefaultDeniedHeaders
	}
	if c.tokens != "" {
		if err := s.tokens.Load(c.tokens); err != nil {
			t.Fatal(err)
		}
	}
	s.server = server.New(observed{c.keeper, s}, c.reader, &s.tokens, zerolog.New(s.journal), c.config)
	listener := httptest.NewUnstartedServer(s.server)
	if c.http != nil {
		c.http(listener.Config)
	}
	listener.Start()
	s.url = listener.URL
	t.Cleanup(func() {
		listener.Close() // waits for the requests that are open
		for _, fault := range s.journal.faults() {
			t.Errorf("%s", fault)
		}
	})
	return s
}

// pass moves the database's clock on by a little more than so long, and has the service hear of it: a service gives leases
// from the later end of what the time may be and judges them by the earlier one, an exchange with the database apart.
func (s *service) pass(t testing.TB, d time.Duration) {
	t.Helper()
	s.shift.Add(int64(d + 5*time.Second))
	s.key(t).replay("").want(404, "not_found")
}

// tick lets so much time pass that what comes next is told to be later: what happens at one moment has no order.
func (s *service) tick(t testing.TB) {
	t.Helper()
	s.pass(t, 0)
}

// call is one request.
type call struct {
	method, path string
	header       map[string]string // "" leaves out what is sent by default
	body         any               // string and []byte as they are, all else as JSON
	wrong        bool              // the document does not allow this request, and yet it is not refused as a whole
}

type obj = map[string]any

func (c call) bytes() []byte {
	switch body := c.body.(type) {
	case nil:
		return nil
	case string:
		return []byte(body)
	case []byte:
		return body
	}
	out, err := json.Marshal(c.body)
	if err != nil {
		panic(err)
	}
	return out
}

func (c call) request(t testing.TB, s *service) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), c.method, s.url+c.path, bytes.NewReader(c.bytes()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Request-Id", uuid.NewString())
	if c.method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	for name, value := range c.header {
		if req.Header.Set(name, value); value == "" {
			req.Header.Del(name)
		}
	}
	return req
}

// send makes a call, and holds its answer to the document and to what is so of every answer.
func (s *service) send(t testing.TB, c call) answer {
	t.Helper()
	c.body = c.bytes()
	req := c.request(t, s)
	res, err := client.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", c.method, c.path, err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", c.method, c.path, err)
	}
	a := answer{t: t, status: res.StatusCode, header: res.Header, raw: raw}
	if kind := res.Header.Get("Content-Type"); kind == "application/json" || kind == "application/problem+json" {
		if err := json.Unmarshal(raw, &a.body); err != nil {
			t.Fatalf("%s %s: %v in %s", c.method, c.path, err, raw)
		}
	}
	s.inspect(t, c, req, a)
	return a
}

// answer is what came back.
type answer struct {
	t      testing.TB
	status int
	header http.Header
	raw    []byte
	body   obj // of JSON
}

func (a answer) String() string { return fmt.Sprintf("%d %.2000s", a.status, a.raw) }

// want fails the test unless the answer is this one.
func (a answer) want(status int, outcome string) answer {
	a.t.Helper()
	if a.status != status || a.body["outcome"] != outcome {
		a.t.Fatalf("want %d %s, got %s", status, outcome, a)
	}
	return a
}

// ok fails the test unless the answer is a 200.
func (a answer) ok() answer {
	a.t.Helper()
	if a.status != http.StatusOK {
		a.t.Fatalf("want 200, got %s", a)
	}
	return a
}

// list is a member that is an array of objects.
func (a answer) list(name string) (items []obj) {
	a.t.Helper()
	list, ok := a.body[name].([]any)
	if !ok {
		a.t.Fatalf("no array %s in %s", name, a)
	}
	for _, item := range list {
		items = append(items, item.(obj))
	}
	return items
}

// has compares members with what they should be, as JSON.
func (a answer) has(want obj) answer {
	a.t.Helper()
	for name, v := range want {
		if got := a.body[name]; !equal(got, v) {
			a.t.Errorf("%s: want %v, got %v in %s", name, v, got, a)
		}
	}
	return a
}

// wantField fails the test unless the answer is a 400 that names the field.
func (a answer) wantField(field string) answer {
	a.t.Helper()
	return a.want(400, "invalid_request").has(obj{"field": field})
}

func (a answer) text(name string) string {
	a.t.Helper()
	s, ok := a.body[name].(string)
	if !ok {
		a.t.Fatalf("no text %s in %s", name, a)
	}
	return s
}

func (a answer) number(name string) float64 {
	a.t.Helper()
	n, ok := a.body[name].(float64)
	if !ok {
		a.t.Fatalf("no number %s in %s", name, a)
	}
	return n
}

func (a answer) time(name string) time.Time {
	a.t.Helper()
	at, err := time.Parse("2006-01-02T15:04:05.000000Z", a.text(name))
	if err != nil {
		a.t.Fatal(err)
	}
	return at
}

// id is the reservation that was granted.
func (a answer) id() string {
	a.t.Helper()
	return a.want(201, "reserved").text("reservation_id")
}

// equal compares as JSON does.
func equal(a, b any) bool {
	var plain [2]any
	for i, v := range []any{a, b} {
		text, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		if err := json.Unmarshal(text, &plain[i]); err != nil {
			panic(err)
		}
	}
	return reflect.DeepEqual(plain[0], plain[1])
}
