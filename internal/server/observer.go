package server

import (
	"cmp"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/idemstore/idemstore/internal/idem"
)

// Observer is told what the server does, for those who count it. Its methods are called by each request, so they must be
// quick.
type Observer interface {
	// Began tells that a request has come, and Served that it was answered: under which pattern of a route, "" if it has none.
	Began()
	Served(method, route string, status int, took time.Duration)

	// Answered tells what a command was answered, alone or as an item of a batch.
	Answered(a Answered)
}

// Answered is one answer.
type Answered struct {
	Verb     string // the last word of its route
	Handler  string // of the key, as its callers say; "" where it is not known
	Code     idem.Code
	Repeated bool // a refusal that is in the trail already
}

type nobody struct{}

func (nobody) Began()                                     {}
func (nobody) Served(_, _ string, _ int, _ time.Duration) {}
func (nobody) Answered(Answered)                          {}

const (
	keyRoute   = "/v1/tasks/{task_id}/attempts/{attempt}/"
	batchRoute = "/v1/batch/"
)

// observe tells of a request that was answered, and of its command.
func (s *Server) observe(method string, req *request, route string, status int, took time.Duration) {
	s.observer.Served(method, route, status, took)
	if verb, ok := strings.CutPrefix(route, keyRoute); ok && req.outcome != "" {
		s.observer.Answered(Answered{Verb: verb, Handler: req.handler, Code: req.outcome, Repeated: req.repeated})
	}
}

// observeItem tells of an item of a batch; without a command, of one that could not be read.
func (s *Server) observeItem(verb string, cmd idem.Command, out *idem.Outcome, c code) {
	s.observer.Answered(Answered{Verb: verb, Handler: handlerOf(cmd, out), Code: c, Repeated: out.Repeated})
}

// handlerOf is the handler that an answer is counted under.
func handlerOf(cmd idem.Command, out *idem.Outcome) string {
	if r, ok := cmd.(*idem.Reserve); ok && r.Handler != "" {
		return r.Handler
	}
	if out.Entry != nil {
		return out.Entry.Handler
	}
	return ""
}

// describe names a span as the conventions want it: only here is the route known. A path that names no task may be anything,
// also what was meant for a header or a body, so that it is not told.
func describe(span trace.Span, method, route string, req *request) {
	if !span.IsRecording() {
		return
	}
	if req.task == "" {
		span.SetAttributes(attribute.String("url.path", cmp.Or(route, "unmatched")))
	}
	if route != "" {
		span.SetName(method + " " + route)
		span.SetAttributes(attribute.String("http.route", route))
	}
}
