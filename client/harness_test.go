package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/idemstore/idemstore/client"
	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/internal/server"
	"github.com/idemstore/idemstore/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// soon is when what must happen at once has happened also on a busy machine.
const soon = 20 * time.Second

// fault is what becomes of one request on its way.
type fault int

const (
	none        fault = iota
	lost              // it is carried out, and the connection breaks before the answer
	refused           // the connection breaks before it is carried out
	unavailable       // 503 from the service's own words
	throttled         // 429 from somebody between
	later             // 429 that says when
	unread            // the answer breaks off in its middle
)

// service is an idemstore in this process, and what is between it and its callers.
type service struct {
	url    string
	server http.Handler
	shift  atomic.Int64
	fault  func(verb string, n int) fault // of the nth call of a verb, from 1

	mu    sync.Mutex
	calls map[string]int
}

func start(t testing.TB) *service {
	t.Helper()
	s, stop, err := open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return s
}

func open() (*service, func(), error) {
	s := &service{calls: make(map[string]int)}
	backend, err := store.Open(context.Background(), "sqlite::memory:", store.Options{Shift: func() time.Duration { return time.Duration(s.shift.Load()) }})
	if err != nil {
		return nil, nil, err
	}
	keeper := store.NewBatcher(backend, idem.DefaultPolicy, store.Lanes(backend))
	s.server = server.New(keeper, backend, &server.Tokens{}, zerolog.Nop(), server.Config{
		MaxBodyBytes: 4096, KeyTemplate: server.DefaultKeyTemplate, DeniedHeaders: server.DefaultDeniedHeaders,
	})
	listener := httptest.NewServer(s)
	s.url = listener.URL
	return s, func() { listener.Close(); keeper.Close(); backend.Close() }, nil
}

// ServeHTTP is the service behind a proxy that does what the test wants.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	verb := path.Base(r.URL.Path)
	s.mu.Lock()
	s.calls[verb]++
	n := s.calls[verb]
	s.mu.Unlock()
	f := none
	if s.fault != nil {
		f = s.fault(verb, n)
	}
	switch f {
	case none:
		s.server.ServeHTTP(w, r)
	case unavailable:
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, `{"code":"unavailable","outcome":"unavailable","status":503,"detail":"the test says so"}`)
	case later:
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	case throttled:
		w.WriteHeader(http.StatusTooManyRequests)
	case refused:
		panic(http.ErrAbortHandler)
	case lost:
		s.server.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	case unread:
		answer := httptest.NewRecorder()
		s.server.ServeHTTP(answer, r)
		w.Header().Set("Content-Length", fmt.Sprint(answer.Body.Len()))
		w.WriteHeader(answer.Code)
		w.Write(answer.Body.Bytes()[:answer.Body.Len()/2])
		panic(http.ErrAbortHandler)
	}
}

// count is how often a verb was called.
func (s *service) count(verb string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[verb]
}

// pass moves the service's clock on by a little more than so long, and has it hear of it.
func (s *service) pass(t testing.TB, d time.Duration) {
	t.Helper()
	s.shift.Add(int64(d + 5*time.Second))
	s.post(t, key(), "reserve", obj{"owner": "clock"})
}

type obj = map[string]any

// post calls the service itself, past the proxy.
func (s *service) post(t testing.TB, k client.Key, verb string, body obj) (int, obj) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	return s.do(t, http.MethodPost, fmt.Sprintf("/v1/tasks/%s/attempts/%d/%s", k.TaskID, k.Attempt, verb), text)
}

func (s *service) do(t testing.TB, method, target string, body []byte) (int, obj) {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), method, target, bytes.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	res := httptest.NewRecorder()
	s.server.ServeHTTP(res, req)
	var out obj
	if err := json.Unmarshal(res.Body.Bytes(), &out); err != nil {
		t.Fatalf("%s %s: %v in %s", method, target, err, res.Body)
	}
	return res.Code, out
}

// state is what the next reserve would be told, without one.
func (s *service) state(t testing.TB, k client.Key) string {
	t.Helper()
	_, out := s.do(t, http.MethodGet, fmt.Sprintf("/v1/tasks/%s/attempts/%d/replay", k.TaskID, k.Attempt), nil)
	return out["outcome"].(string)
}

// reserve reserves the key for somebody else, and returns the reservation.
func (s *service) reserve(t testing.TB, k client.Key, more obj) string {
	t.Helper()
	id := uuid.NewString()
	body := obj{"owner": "other", "reservation_id": id}
	for name, v := range more {
		body[name] = v
	}
	if status, out := s.post(t, k, "reserve", body); status != http.StatusCreated {
		t.Fatalf("another's reserve: %d %v", status, out)
	}
	return id
}

// vanish has another reserve the key and never come back.
func (s *service) vanish(t testing.TB, k client.Key) {
	t.Helper()
	s.reserve(t, k, nil)
	s.pass(t, time.Minute)
}

func key() client.Key { return client.Key{TaskID: uuid.NewString()} }

func connect(t testing.TB, s *service, opts ...client.Option) *client.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	c, err := client.New(s.url, append([]client.Option{
		client.WithOwner("me"), client.WithHTTPClient(&http.Client{Transport: transport}), client.WithPatience(soon),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// effect counts how often it is performed.
type effect struct{ n atomic.Int64 }

func (e *effect) charge(context.Context, client.Grant) (client.Response, error) {
	return client.Response{Status: 201, Header: http.Header{"Location": {"/charges/1"}}, Body: fmt.Appendf(nil, `{"n":%d}`, e.n.Add(1))}, nil
}

func (e *effect) want(t testing.TB, n int64) {
	t.Helper()
	if have := e.n.Load(); have != n {
		t.Fatalf("the effect was performed %d times, want %d", have, n)
	}
}

// never fails the test if it is performed.
func never(t testing.TB) client.Effect {
	return func(context.Context, client.Grant) (client.Response, error) {
		t.Error("the effect was performed")
		return client.Response{}, nil
	}
}

// chargeAndVanish is a worker that dies between its effect and the record.
func (s *service) chargeAndVanish(k client.Key, upstream example) {
	for _, c := range []struct{ url, body string }{
		{fmt.Sprintf("%s/v1/tasks/%s/attempts/%d/reserve", s.url, k.TaskID, k.Attempt), `{"owner": "worker-1", "lease_seconds": 1}`},
		{upstream.url + "/charges/order-42", `{"amount": 100}`},
	} {
		res, err := http.Post(c.url, "application/json", bytes.NewReader([]byte(c.body))) //nolint:noctx // an example has none
		if err != nil {
			panic(err)
		}
		res.Body.Close()
	}
	s.shift.Add(int64(time.Minute))
}
