package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"

	"github.com/idemstore/idemstore/internal/idem"
)

// request is what is known of a request beside its HTTP: who sends it, and what its one line in the log will say.
type request struct {
	id       string
	traceID  string // where the request is traced
	identity *Identity

	task     string
	attempt  int32
	keyed    bool
	handler  string // of the key
	outcome  code
	repeated bool
	items    int
	held     int64 // bytes of its body that count among those of all requests
	err      error
}

type requestKey struct{}

// visit is a request's context with all that is made for the request: one piece of memory, as there are very many.
type visit struct {
	context.Context
	request request
	route   chi.Context // made here, so that chi makes none, and it is still at hand for the log line
	out     statusWriter
}

// Value implements context.Context.
func (v *visit) Value(key any) any {
	switch key {
	case requestKey{}:
		return &v.request
	case chi.RouteCtxKey:
		return &v.route
	}
	return v.Context.Value(key)
}

func requestOf(ctx context.Context) *request {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		return r
	}
	return &request{id: "none", identity: anonymous}
}

// MarshalZerologObject says on a line of the log whose it is. Every line about a request has it.
func (r *request) MarshalZerologObject(line *zerolog.Event) {
	line.Str("request_id", r.id)
	if r.traceID != "" {
		line.Str("trace_id", r.traceID)
	}
	line.Str("token", r.identity.Name)
}

// ServeHTTP implements http.Handler. It gives each request its id and its line in the log, and catches what panics behind it.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	s.observer.Began()
	v := &visit{Context: r.Context()}
	v.request = request{id: requestID(r.Header.Get("X-Request-Id")), identity: anonymous}
	v.out.ResponseWriter = w
	req, out := &v.request, &v.out
	span := trace.SpanFromContext(r.Context())
	if c := span.SpanContext(); c.HasTraceID() {
		req.traceID = c.TraceID().String()
	}
	out.Header().Set("X-Request-Id", req.id)
	out.Header().Set("Cache-Control", "no-store")
	r = r.WithContext(v)
	defer s.letGo(req)
	defer func() {
		p := recover()
		fault, _ := p.(error)
		aborted := errors.Is(fault, http.ErrAbortHandler)
		switch {
		case aborted:
			req.err = cmp.Or(req.err, fault)
		case p != nil:
			s.log.Error().EmbedObject(req).Interface("panic", p).Bytes("stack", debug.Stack()).
				Msg("a handler panicked")
			if out.status == 0 {
				s.problem(out, r, codeInternal, "Something went wrong that should not have; the log has it under this request_id.")
			} else { // what was sent must not be taken for whole
				defer panic(http.ErrAbortHandler)
			}
		}
		took, pattern := time.Since(start), v.route.RoutePattern()
		s.logRequest(r, req, pattern, out.status, took)
		s.observe(r.Method, req, pattern, out.status, took)
		describe(span, r.Method, pattern, req)
		if aborted {
			panic(p)
		}
	}()
	s.routes.ServeHTTP(out, r)
}

// logRequest writes the one line that a request leaves.
func (s *Server) logRequest(r *http.Request, req *request, route string, status int, took time.Duration) {
	level := zerolog.InfoLevel
	gone := r.Context().Err() != nil // the caller, while it waited: the answer reaches nobody
	switch {
	case !gone && (status >= http.StatusInternalServerError || req.err != nil): // also of a batch's item
		level = zerolog.ErrorLevel
	case warns[req.outcome]:
		level = zerolog.WarnLevel
	case route == "/healthz" || route == "/readyz":
		level = zerolog.DebugLevel
	}
	line := s.log.WithLevel(level)
	if level < s.log.GetLevel() {
		return
	}
	line.Str("method", r.Method).Str("route", route).Int("status", status).Dur("duration_ms", took).EmbedObject(req)
	if req.task != "" {
		line.Str("task_id", req.task)
	}
	if req.keyed {
		line.Int32("attempt", req.attempt)
	}
	if req.outcome != "" {
		line.Str("outcome", string(req.outcome))
	}
	if req.repeated {
		line.Bool("repeated", true)
	}
	if req.items > 0 {
		line.Int("items", req.items)
	}
	if gone {
		line.Bool("hung_up", true)
	}
	line.AnErr("error", req.err).Msg("request")
}

// warns are the outcomes that someone should look into.
var warns = map[code]bool{
	idem.CodeInDoubt: true, idem.CodeAlreadyRecorded: true, idem.CodeLeaseLost: true, idem.CodeNotHolder: true,
	idem.CodeRequestMismatch: true,
}

// warn gives an item of a batch a line of its own where someone should look into it.
func (s *Server) warn(req *request, key idem.Key, outcome code) {
	if warns[outcome] {
		s.log.Warn().EmbedObject(req).Str("task_id", key.TaskID).Int32("attempt", key.Attempt).
			Str("outcome", string(outcome)).Msg("batch item")
	}
}

// requestID takes over a caller's id if it is sane, and makes one if not.
func requestID(given string) string {
	if len(given) >= 1 && len(given) <= 128 {
		sane := true
		for i := range len(given) {
			sane = sane && taken[given[i]]
		}
		if sane {
			return given
		}
	}
	var random [12]byte
	_, _ = rand.Read(random[:]) // never fails
	return hex.EncodeToString(random[:])
}

var taken = func() (t [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:/+=@~-") {
		t[c] = true
	}
	return t
}()

// needed is the role that each operation under /v1 asks for. What is not here, nobody may.
var needed = map[string]Role{
	"POST /v1/tasks/{task_id}/attempts/{attempt}/reserve":  RoleWorker,
	"POST /v1/tasks/{task_id}/attempts/{attempt}/dispatch": RoleWorker,
	"POST /v1/tasks/{task_id}/attempts/{attempt}/renew":    RoleWorker,
	"POST /v1/tasks/{task_id}/attempts/{attempt}/record":   RoleWorker,
	"POST /v1/tasks/{task_id}/attempts/{attempt}/release":  RoleWorker,
	"GET /v1/tasks/{task_id}/attempts/{attempt}/replay":    RoleWorker,
	"POST /v1/batch/reserve":                               RoleWorker,
	"POST /v1/batch/record":                                RoleWorker,

	"GET /v1/tasks/{task_id}":                    RoleAuditor,
	"GET /v1/tasks/{task_id}/attempts/{attempt}": RoleAuditor,
	"GET /v1/entries":                            RoleAuditor,
	"GET /v1/events":                             RoleAuditor,
	"GET /v1/stats":                              RoleAuditor,

	"POST /v1/tasks/{task_id}/attempts/{attempt}/resolve": RoleOperator,
	"POST /v1/owners/{owner}/release":                     RoleOperator,
}

// authenticated finds the caller of what is under /v1 by its token, and asks for the role that the route needs.
func (s *Server) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/v1/") {
			next.ServeHTTP(w, r)
			return
		}
		req := requestOf(r.Context())
		id, ok := s.tokens.identify(r.Header.Get("Authorization"))
		if !ok {
			w.Header().Set("WWW-Authenticate", `Bearer realm="idemstore"`)
			s.problem(w, r, codeUnauthenticated, "Send Authorization: Bearer and a token that this service knows.")
			return
		}
		req.identity = id
		if role := needed[r.Method+" "+r.Pattern]; !id.May(role) {
			s.problem(w, r, codeForbidden, "The token "+id.Name+" lacks the role "+string(role)+".")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// statusWriter remembers the status for the log.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
