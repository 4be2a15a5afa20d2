package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/go-chi/chi/v5"

	"github.com/idemstore/idemstore/api"
	"github.com/idemstore/idemstore/internal/idem"
)

const problemJSON = "application/problem+json"

// send writes an answer, and what the log will say of it.
func (s *Server) send(w http.ResponseWriter, r *http.Request, a answer) {
	req := requestOf(r.Context())
	req.outcome = a.code
	contentType := "application/json"
	if p, ok := a.body.(*api.Problem); ok {
		contentType = problemJSON
		if p.RetryAfterSeconds != nil {
			w.Header().Set("Retry-After", strconv.Itoa(*p.RetryAfterSeconds))
		}
	}
	if a.replayed {
		w.Header().Set("Idempotency-Replayed", "true")
	}
	sendJSON(w, a.status, contentType, encode(a.body))
}

func sendJSON(w http.ResponseWriter, status int, contentType string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a caller that left is nobody's fault
}

// sendRaw writes the recorded bytes alone. They are an upstream's, so that no browser may take them for anything.
func sendRaw(w http.ResponseWriter, r *idem.Response) {
	h := w.Header()
	h.Set("Idempotency-Replayed", "true")
	h.Set("Idempotency-Status", strconv.Itoa(r.Status))
	h.Set("X-Content-Type-Options", "nosniff")
	if r.Omitted {
		h.Set("Idempotency-Body-Omitted", "true")
	}
	sendJSON(w, http.StatusOK, "application/octet-stream", r.Body)
}

// faultOf is the problem of an error.
func (s *Server) faultOf(req *request, err error) answer {
	var field *idem.FieldError
	var large *errTooLarge
	var p *api.Problem
	switch {
	case errors.As(err, &field):
		p = newProblem(req, codeInvalidRequest, field.Error()+".")
		p.Field = &field.Field
	case errors.As(err, &large):
		p = newProblem(req, codeBodyTooLarge, large.Error()+".")
	case errors.Is(err, errMediaType):
		p = newProblem(req, codeUnsupportedMediaType, err.Error()+".")
	case errors.Is(err, idem.ErrTooSlow):
		p = newProblem(req, codeUnavailable, "The question took longer than it may. Nothing is wrong with any key, and nothing was changed; ask for a shorter period.")
		p.RetryAfterSeconds = retryAfter(0)
	case errors.Is(err, errReads):
		p = newProblem(req, codeTooManyRequests, err.Error())
		p.RetryAfterSeconds = retryAfter(0)
	case errors.Is(err, errCrowded):
		p = newProblem(req, codeTooManyRequests, "Too many large requests are being read. Nothing was begun; small ones are taken all the same.")
		p.RetryAfterSeconds = retryAfter(0)
	case errors.Is(err, idem.ErrBusy):
		p = newProblem(req, codeTooManyRequests, "")
		p.RetryAfterSeconds = retryAfter(0)
	case errors.Is(err, idem.ErrUnavailable), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		p = newProblem(req, codeUnavailable, "")
		if errors.As(err, new(unread)) {
			p.Detail = "The store cannot be reached now. It was only a question: nothing was changed; ask again."
		}
		p.RetryAfterSeconds = retryAfter(0)
	default:
		p = newProblem(req, codeInternal, "")
	}
	return answer{status: p.Status, code: code(p.Code), body: p}
}

// fail answers a request that came to no outcome.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	req := requestOf(r.Context())
	a := s.faultOf(req, err)
	if a.status >= http.StatusInternalServerError {
		req.err = err
	}
	var large *errTooLarge
	if errors.As(err, &large) && !large.response || errors.Is(err, errCrowded) {
		s.letGo(req)
		refuseUnread(w, r, func() { s.send(w, r, a) })
		return
	}
	s.send(w, r, a)
}

// problem answers with a code that no command led to.
func (s *Server) problem(w http.ResponseWriter, r *http.Request, c code, detail string) {
	p := newProblem(requestOf(r.Context()), c, detail)
	s.send(w, r, answer{status: p.Status, code: c, body: p})
}

// badParameter answers for the generated code where it cannot read a parameter: in the words of those who can.
func (s *Server) badParameter(w http.ResponseWriter, r *http.Request, err error) {
	if _, fault := keyOf(r); fault != nil {
		s.fail(w, r, fault)
		return
	}
	var format *api.InvalidParamFormatError
	field := "path"
	if errors.As(err, &format) {
		field = format.ParamName
	}
	s.fail(w, r, &idem.FieldError{Field: field, Reason: "cannot be read"})
}

func (s *Server) noSuchRoute(w http.ResponseWriter, r *http.Request) {
	s.problem(w, r, codeNoSuchRoute, "This service has no such path; /openapi.yaml lists them all.")
}

func (s *Server) methodNotAllowed(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	if r.URL.RawPath != "" {
		path = r.URL.RawPath
	}
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		if s.routes.Match(chi.NewRouteContext(), method, path) {
			w.Header().Add("Allow", method)
		}
	}
	if w.Header().Get("Allow") == "" { // a method that is not HTTP's finds no route at all
		s.noSuchRoute(w, r)
		return
	}
	s.problem(w, r, codeMethodNotAllowed, fmt.Sprintf("Use %s here.", w.Header().Get("Allow")))
}
