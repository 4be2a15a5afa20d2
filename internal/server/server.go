// Package server is how idemstore is spoken: HTTP in front of an idem.Keeper, as openapi.yaml says.
package server

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/rs/zerolog"

	"github.com/idemstore/idemstore/api"
	"github.com/idemstore/idemstore/internal/idem"
)

// Config is what a deployment sets of the server.
type Config struct {
	MaxBodyBytes  int64    // of a recorded response
	KeyTemplate   string   // of idempotency_key; {task_id} and {attempt} are replaced
	DeniedHeaders []string // of a response: dropped at record
	Observer      Observer // of what is answered; nil: nobody
}

// Defaults of Config.
const (
	DefaultMaxBodyBytes = 1 << 20
	MaxMaxBodyBytes     = 16 << 20
	DefaultKeyTemplate  = "conduit-task-{task_id}"
)

// DefaultDeniedHeaders carry credentials, or belong to one hop.
var DefaultDeniedHeaders = []string{
	"Set-Cookie", "Cookie", "Authorization", "Proxy-Authorization", "Proxy-Authenticate", "WWW-Authenticate",
	"Connection", "Keep-Alive", "Transfer-Encoding", "TE", "Trailer", "Upgrade",
}

// requestTime bounds what a request waits for the store, its own wait_seconds aside.
const requestTime = 10 * time.Second

// Server answers HTTP requests: those of workers from a Keeper, those of operators from a Reader too.
type Server struct {
	keeper   idem.Keeper
	reader   idem.Reader
	tokens   *Tokens
	log      zerolog.Logger
	config   Config
	denied   map[string]bool
	observer Observer

	reads    chan struct{} // has room for as many as are served at a time
	exports  chan struct{} // likewise, of exports
	bodies   atomic.Int64  // bytes of large ones that are in memory
	draining atomic.Bool
	stopping chan struct{} // closed when waits must end
	routes   *chi.Mux
}

// New makes a server. It does not listen; it is an http.Handler.
func New(keeper idem.Keeper, reader idem.Reader, tokens *Tokens, log zerolog.Logger, config Config) *Server {
	s := &Server{
		keeper: keeper, reader: reader, tokens: tokens, log: log, config: config, observer: config.Observer,
		denied: make(map[string]bool), reads: make(chan struct{}, maxReads), exports: make(chan struct{}, maxExports),
		stopping: make(chan struct{}),
	}
	if s.observer == nil {
		s.observer = nobody{}
	}
	for _, name := range config.DeniedHeaders {
		s.denied[strings.ToLower(strings.TrimSpace(name))] = true
	}
	s.routes = chi.NewRouter()
	s.routes.NotFound(s.noSuchRoute)
	s.routes.MethodNotAllowed(s.methodNotAllowed)
	// In a group, so that what does not exist is told apart from what is forbidden.
	api.HandlerWithOptions(s, api.ChiServerOptions{
		BaseRouter:       s.routes.With(s.authenticated),
		ErrorHandlerFunc: s.badParameter,
	})
	return s
}

// Drain has the server say that it is not ready, and ends all waits with what is known.
func (s *Server) Drain() {
	if s.draining.CompareAndSwap(false, true) {
		close(s.stopping)
	}
}

// serve carries out one command and answers it.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, limit int64, read reader) {
	req := requestOf(r.Context())
	key, err := keyOf(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	body, err := s.readBody(r, limit)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	a, err := read(s, s.call(req, key), body)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	result := s.await(r.Context(), a)
	req.handler = handlerOf(a.cmd, &result.Outcome)
	if result.Err != nil {
		s.fail(w, r, result.Err)
		return
	}
	req.repeated = result.Outcome.Repeated
	s.send(w, r, s.answerTo(req, a, &result.Outcome))
}

func (s *Server) call(req *request, key idem.Key) idem.Call {
	return idem.Call{Key: key, Actor: idem.Actor{Token: req.identity.Name, RequestID: req.id}}
}

// Reserve implements api.ServerInterface.
func (s *Server) Reserve(w http.ResponseWriter, r *http.Request, _ api.TaskID, _ api.Attempt) {
	s.serve(w, r, maxSmallBody, readReserve)
}

// Dispatch implements api.ServerInterface.
func (s *Server) Dispatch(w http.ResponseWriter, r *http.Request, _ api.TaskID, _ api.Attempt) {
	s.serve(w, r, maxSmallBody, readDispatch)
}

// Renew implements api.ServerInterface.
func (s *Server) Renew(w http.ResponseWriter, r *http.Request, _ api.TaskID, _ api.Attempt) {
	s.serve(w, r, maxSmallBody, readRenew)
}

// Record implements api.ServerInterface.
func (s *Server) Record(w http.ResponseWriter, r *http.Request, _ api.TaskID, _ api.Attempt) {
	s.serve(w, r, s.maxResponseBody(), readRecord)
}

// Release implements api.ServerInterface.
func (s *Server) Release(w http.ResponseWriter, r *http.Request, _ api.TaskID, _ api.Attempt) {
	s.serve(w, r, s.maxResponseBody(), readRelease)
}

// maxResponseBody is the cap of a request that carries a response.
func (s *Server) maxResponseBody() int64 {
	return jsonGrowth*(s.config.MaxBodyBytes+idem.MaxHeaderBytes) + maxSmallBody
}

// Replay implements api.ServerInterface.
func (s *Server) Replay(w http.ResponseWriter, r *http.Request, _ api.TaskID, _ api.Attempt) {
	req := requestOf(r.Context())
	key, err := keyOf(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	a, form, err := readReplay(s.call(req, key), r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	result := s.await(r.Context(), a)
	out := &result.Outcome
	req.handler = handlerOf(a.cmd, out)
	switch {
	case result.Err != nil:
		s.fail(w, r, result.Err)
	case out.OK && form.raw:
		req.outcome = out.Code
		sendRaw(w, out.Entry.Response)
	case out.OK && form.base64:
		s.send(w, r, answer{status: http.StatusOK, code: out.Code, body: replayed(out, true), replayed: true})
	default:
		s.send(w, r, s.answerTo(req, a, out))
	}
}

// await carries a command out, and again while another holds the key and the caller wants to wait. A waiter holds
// nothing but its connection.
func (s *Server) await(ctx context.Context, a ask) idem.Result {
	if a.wait == 0 {
		return s.do(ctx, a.cmd)[0]
	}
	until := time.Now().Add(a.wait)
	for {
		changed, unwatch := s.keeper.Watch(a.cmd.Target().TaskID)
		result := s.do(ctx, a.cmd)[0]
		left := time.Until(until)
		if result.Err != nil || result.Outcome.Code != idem.CodeInProgress || left <= 0 || s.draining.Load() {
			unwatch()
			return result
		}
		s.pause(ctx, changed, min(left, lookAgain, result.Outcome.Entry.LeaseUntil.Sub(result.Outcome.Now)))
		unwatch()
		if reserve, ok := a.cmd.(*idem.Reserve); ok {
			reserve.Takeovers = nil // what was looked into before the wait authorises nothing after it
		}
	}
}

// lookAgain is how soon a waiter sees what another replica did.
const lookAgain = 250 * time.Millisecond

// pause waits for a change, for the time, or for the end.
func (s *Server) pause(ctx context.Context, changed <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
	case <-s.stopping:
	}
}

func (s *Server) do(ctx context.Context, cmds ...idem.Command) []idem.Result {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	return s.keeper.Do(ctx, cmds...)
}
