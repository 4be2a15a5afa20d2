// Package console is how operators see idemstore: pages rendered by the service, below /console. They need no script, ask
// nobody else for anything, and do nothing that the API does not.
//
// What they show came from outside and may be hostile. It is escaped, its unprintable characters are named instead of
// printed, and a response leaves only as a download that no browser opens.
package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
)

// Prefix is where the console is.
const Prefix = "/console"

// Config is what the console is made of.
type Config struct {
	Reader idem.Reader
	Keeper idem.Keeper // what an operator does goes through it
	Tally  *Tally      // of what this replica does
	Tokens Tokens
	Now    func() time.Time // of sessions and caches; what the store tells is by the database's time

	MaxBodyBytes int64 // of a response that an operator records

	// Export answers with all events that a query asks for, as CSV. After an error nothing was sent.
	Export func(w http.ResponseWriter, r *http.Request, q idem.EventQuery) error

	// Told is given what the request's line in the log is to say: who it was, what came of it, and what went wrong.
	Told func(ctx context.Context, caller string, outcome idem.Code, err error)
	// Warn is told of what should be looked into, such as a token that nobody knows, with where it came from.
	Warn func(requestID, address, text string)
}

// Tokens knows who may do what.
type Tokens interface {
	// Open says that nobody needs a token.
	Open() bool
	// Check finds whose token this is, in a time that does not depend on how much of it is right.
	Check(secret string) (Caller, bool)
	// Named finds the token of this name as it is now.
	Named(name string) (Caller, bool)
}

// Caller is who looks, and what it may.
type Caller struct {
	Name     string
	Auditor  bool // may look
	Operator bool // may resolve
	// Key belongs to this very token. Sessions are signed with it, so that they end when the token does, and are good at
	// every replica that knows the token.
	Key []byte
}

type console struct {
	Config
	counts   counts
	failures failures
	turns    chan struct{} // of pages that are made
}

// pagesAtOnce bounds how many pages are made at a time: each reads megabytes of evidence, and keeps little of it.
const pagesAtOnce = 4

// New makes the console. It is to be served at Prefix and below.
func New(conf Config) http.Handler {
	c := &console{Config: conf, turns: make(chan struct{}, pagesAtOnce)}
	c.failures.now = conf.Now
	mux := http.NewServeMux()
	handle := func(pattern string, h http.HandlerFunc) { mux.HandleFunc(pattern, h) }

	handle("GET /console/static/{file}", static)
	handle("GET /console/{$}", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, Prefix, http.StatusMovedPermanently) })
	handle("GET /console/sign-in", c.anyone(c.signInPage))
	handle("POST /console/sign-in", c.anyone(c.signIn))
	handle("POST /console/sign-out", c.as(anybody, c.signOut))

	handle("GET /console", c.as(auditor, c.inTurn(c.overview)))
	handle("GET /console/doubts", c.as(auditor, c.inTurn(c.doubts)))
	handle("GET /console/entries", c.as(auditor, c.inTurn(c.entries)))
	handle("GET /console/events", c.as(auditor, c.inTurn(c.events)))
	handle("GET /console/events.csv", c.as(auditor, c.exportEvents))
	handle("GET /console/search", c.as(auditor, c.search))
	handle("GET /console/tasks/{task}", c.as(auditor, c.inTurn(c.task)))
	handle("GET /console/tasks/{task}/evidence", c.as(auditor, c.inTurn(c.evidence)))
	handle("GET /console/tasks/{task}/attempts/{attempt}/response", c.as(auditor, c.inTurn(c.response)))
	handle("GET /console/tasks/{task}/attempts/{attempt}/resolve", c.as(operator, c.inTurn(c.resolvePage)))
	handle("POST /console/tasks/{task}/attempts/{attempt}/resolve", c.as(operator, c.inTurn(c.resolve)))
	handle("GET /console/release-owner", c.as(operator, c.inTurn(c.evictPage)))
	handle("POST /console/release-owner", c.as(operator, c.inTurn(c.evict)))
	handle("/console/", c.as(anybody, func(*visit) error { return errNoPage }))

	// Beside the session's own form token: no other site's page can have a browser of ours post anything.
	guard := http.NewCrossOriginProtection()
	guard.SetDenyHandler(c.anyone(func(*visit) error { return errForeign }))
	return secured(guard.Handler(mux))
}

// secured says of every answer what a browser may do with it: show it, styled by us, and nothing else.
func secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// readTime bounds what a page waits for the store.
const readTime = 10 * time.Second

// visit is one request for a page.
type visit struct {
	c      *console
	w      http.ResponseWriter
	r      *http.Request
	ctx    context.Context // ends when the page has waited long enough
	caller Caller
	known  bool // somebody has signed in, or nobody needs to
	form   string
}

// page is what answers a visit. An error is shown as a page too.
type page func(v *visit) error

// anyone serves a page to whoever asks.
func (c *console) anyone(p page) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readTime)
		defer cancel()
		c.serve(&visit{c: c, w: w, r: r, ctx: ctx}, p)
	}
}

// inTurn makes a page when its turn comes, if that is while it may still wait.
func (c *console) inTurn(p page) page {
	return func(v *visit) error {
		select {
		case c.turns <- struct{}{}:
			defer func() { <-c.turns }()
			return p(v)
		case <-v.ctx.Done():
			return idem.ErrBusy
		}
	}
}

func (c *console) serve(v *visit, p page) {
	if err := p(v); err != nil {
		v.fail(err)
	}
}

// show renders a page.
func (v *visit) show(status int, name, title string, data any) error {
	var out bytes.Buffer
	err := templates[name].Execute(&out, view{
		Title: title, Here: v.r.URL.Path, Caller: v.caller, Known: v.known, Open: v.c.Tokens.Open(), Form: v.form, Page: data,
	})
	if err != nil {
		return fmt.Errorf("rendering %s: %w", name, err)
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.w.WriteHeader(status)
	v.w.Write(out.Bytes())
	return nil
}

// redirect leads on to another page of ours.
func (v *visit) redirect(to string) error {
	http.Redirect(v.w, v.r, to, http.StatusSeeOther)
	return nil
}

func (v *visit) told(outcome idem.Code, err error) {
	v.c.Told(v.r.Context(), v.caller.Name, outcome, err)
}

// requestID is what the answer carries already.
func (v *visit) requestID() string { return v.w.Header().Get("X-Request-Id") }

// failure is an error that a person is told of.
type failure struct {
	status int
	title  string
	text   string
}

func (f *failure) Error() string { return f.title + " " + f.text }

func refusal(status int, title, format string, args ...any) *failure {
	return &failure{status, title, fmt.Sprintf(format, args...)}
}

var (
	errNoPage  = refusal(http.StatusNotFound, "There is no such page.", "The navigation above leads to those that there are.")
	errForeign = refusal(http.StatusForbidden, "This form was not sent from here.",
		"It came from another site's page, so nothing was done. Open the console itself and do it there.")
	errStale = refusal(http.StatusForbidden, "This form has gone stale.",
		"It belongs to a session that has ended, so nothing was done. Go back, load the page again and repeat it.")
)

// fail shows what went wrong, and keeps what is ours to know for the log.
func (v *visit) fail(err error) {
	var f *failure
	var field *idem.FieldError
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &f):
	case errors.As(err, &field):
		f = refusal(http.StatusBadRequest, "This cannot be.", "%s. Go back and correct it; nothing was done.", field)
	case errors.As(err, &tooLarge):
		f = refusal(http.StatusRequestEntityTooLarge, "This is too large.", "The limit is %s bytes. Nothing was done.", number(tooLarge.Limit))
	case errors.Is(err, idem.ErrTooSlow):
		f = refusal(http.StatusServiceUnavailable, "This took longer than it may.",
			"Nothing is wrong with the store; it was asked to look at too much at once. A shorter period, or one more filter, succeeds.")
	case errors.Is(err, idem.ErrBusy):
		f = refusal(http.StatusTooManyRequests, "The service is busy.", "More is waiting than can be served. Nothing was done; try again in a moment.")
	case errors.Is(err, idem.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		v.told("", err)
		text := "Nothing was changed; try again in a moment."
		if v.r.Method == http.MethodPost {
			text = "What was asked to be done may have been done or not: look at the task again before repeating it."
		}
		f = refusal(http.StatusServiceUnavailable, "The store does not answer now.", "%s The log has the reason under request id %s.", text, v.requestID())
	default:
		v.told("", err)
		f = refusal(http.StatusInternalServerError, "Something went wrong that should not have.", "The log has it under request id %s.", v.requestID())
	}
	if err := v.show(f.status, "failure", f.title, f); err != nil {
		v.told("", err)
		http.Error(v.w, f.title, f.status)
	}
}

func (f *failure) Title() string { return f.title }

func (f *failure) Text() string { return f.text }
