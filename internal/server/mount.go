package server

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"net/http"
	"slices"

	"github.com/idemstore/idemstore/internal/idem"
)

// Mount serves a handler at a path and below it. It knows callers in its own way; its requests get their id and their line
// in the log like all others.
func (s *Server) Mount(path string, h http.Handler) {
	s.routes.Handle(path, h)
	s.routes.Handle(path+"/*", h)
}

// Tell has a request's line in the log say who the caller is, what came of it, and what went wrong. What is empty leaves
// what was told before.
func Tell(ctx context.Context, caller string, outcome idem.Code, err error) {
	req := requestOf(ctx)
	if caller != "" {
		req.identity = &Identity{Name: caller}
	}
	if outcome != "" {
		req.outcome = outcome
	}
	if err != nil {
		req.err = err
	}
}

// ExportEvents answers with all events that a query asks for, as CSV. After an error nothing was sent.
func (s *Server) ExportEvents(w http.ResponseWriter, r *http.Request, q idem.EventQuery) error {
	leave, ok := enter(s.reads, s.exports)
	if !ok {
		return idem.ErrBusy
	}
	defer leave()
	page, err := s.reader.Events(r.Context(), q)
	if err == nil {
		s.exportEvents(w, r, csvHeader, csvLine, csvType+"; charset=utf-8; header=present", q, page)
	}
	return err
}

// Open says that nobody needs a token.
func (t *Tokens) Open() bool { return t.known.Load() == nil }

// Bearer is who has a token.
type Bearer struct {
	Identity
	known token
}

// Key is the token's own, for what is to be good only as long as the token is, at every replica that knows it. It differs
// by purpose.
func (b *Bearer) Key(purpose string) []byte {
	mac := hmac.New(sha256.New, b.known.hash[:])
	mac.Write([]byte(purpose))
	return mac.Sum(nil)
}

// Check finds whose token it is.
func (t *Tokens) Check(secret string) (*Bearer, bool) {
	known := t.known.Load()
	if known == nil {
		return nil, false
	}
	return bear(find(*known, secret))
}

// Named finds the token of a name, as it is now.
func (t *Tokens) Named(name string) (*Bearer, bool) {
	known := t.known.Load()
	if known == nil {
		return nil, false
	}
	if i := slices.IndexFunc(*known, func(k token) bool { return k.Name == name }); i >= 0 {
		return bear(&(*known)[i])
	}
	return nil, false
}

func bear(tok *token) (*Bearer, bool) {
	if tok == nil {
		return nil, false
	}
	return &Bearer{tok.Identity, *tok}, true
}
