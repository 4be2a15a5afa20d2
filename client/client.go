package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/idemstore/idemstore/api"
)

// Key names one attempt of a task. Nothing that changes with each delivery (a clock, a host name, a delivery counter) may be
// part of it, or nothing is ever replayed.
type Key struct {
	TaskID  string // the engine's id of the task
	Attempt int32  // the engine's retry count of it: a crash leaves it as it is, only a reported failure moves it on
}

// String is the key as the service's log writes it.
func (k Key) String() string { return fmt.Sprintf("%s/%d", k.TaskID, k.Attempt) }

// Grant is the right, and the duty, to perform an effect now.
type Grant struct {
	Key Key

	// Fence grows with each grant of the key. An upstream that compares can refuse an older holder by it.
	Fence int64

	// IdempotencyKey is the value for the Idempotency-Key header of an upstream that honours one: the same at each delivery.
	IdempotencyKey string
}

// Effect performs a side effect. Its context ends when the lease does: no effect may begin after that, and what has begun
// should be broken off.
//
// What it returns without an error is recorded, and is what all later deliveries get: also a refusal by the upstream, such as
// a 402. It returns [NotDone] of an error after which the effect certainly did not happen, such as a connection that was
// refused. After any other error, or a panic, the effect may have happened.
type Effect func(ctx context.Context, grant Grant) (Response, error)

// Look asks the upstream, by a natural key, whether the effect of a worker that vanished has happened. The zero Finding, or
// an error, says that it cannot tell.
type Look func(ctx context.Context, doubt *InDoubtError) (Finding, error)

// Finding is what a Look found out.
type Finding struct {
	verdict  verdict
	response Response
}

type verdict int

const (
	cannotTell verdict = iota
	happened
	notHappened
)

// Happened says that the effect has happened, and what came of it. That is recorded.
func Happened(response Response) Finding { return Finding{verdict: happened, response: response} }

// NotHappened says that the effect has not happened and will not. It is performed.
func NotHappened() Finding { return Finding{verdict: notHappened} }

// CannotTell leaves the key to an operator, or to a later look.
func CannotTell() Finding { return Finding{} }

// Client calls one service. It may be used by any number of goroutines at once.
type Client struct {
	options
	api *api.Client
}

// Option sets what New gives to all calls, or one call for itself.
type Option func(*options)

type options struct {
	http     *http.Client
	token    string
	owner    string
	handler  string
	hash     string
	lease    time.Duration
	wait     time.Duration
	patience time.Duration
	dispatch api.DispatchMode
	scope    api.Scope
	look     Look
}

// WithToken sends a bearer token.
func WithToken(token string) Option { return func(o *options) { o.token = token } }

// WithHTTPClient calls by this client. It should set no time limit of its own.
func WithHTTPClient(c *http.Client) Option { return func(o *options) { o.http = c } }

// WithOwner says who asks, for people and the audit. By default it is the name of the host.
func WithOwner(owner string) Option { return func(o *options) { o.owner = owner } }

// WithHandler says what kind of work it is, for the audit.
func WithHandler(handler string) Option { return func(o *options) { o.handler = handler } }

// WithRequestHash names the request that is about to be sent, such as "sha256:" and the hash of its body. Where the task has
// been tried with another one, nothing is performed, and the error is a [ProblemError] with the code request_mismatch.
func WithRequestHash(hash string) Option { return func(o *options) { o.hash = hash } }

// WithLease sets how long the key is held, 30 seconds by default, in whole seconds. It is renewed while the effect lasts; so
// it is how long others wait after a worker has vanished, and how long the service may be out of reach before the effect is
// broken off.
func WithLease(d time.Duration) Option { return func(o *options) { o.lease = d } }

// WithWait has Once wait so long for another that holds the key, up to 60 seconds, in whole seconds. By default it does not.
func WithWait(d time.Duration) Option { return func(o *options) { o.wait = d } }

// WithPatience sets how long a call that is not answered is repeated: a minute by default. A record or a release is
// repeated so long even after the context has ended, since what is not recorded is in doubt, and so is what is not released.
func WithPatience(d time.Duration) Option { return func(o *options) { o.patience = d } }

// WithTaskScope has a response that was recorded for an earlier attempt replayed too. It is for tasks whose failure is
// reported after an ambiguous timeout.
func WithTaskScope() Option { return func(o *options) { o.scope = api.ScopeTask } }

// WithImplicitDispatch saves the call that says that the effect is about to begin. The price: a worker that vanishes between
// the reserve and the effect leaves a doubt too.
func WithImplicitDispatch() Option {
	return func(o *options) { o.dispatch = api.DispatchModeImplicit }
}

// WithLook says how to find out whether the effect of a worker that vanished has happened.
func WithLook(look Look) Option { return func(o *options) { o.look = look } }

// New makes a client of the service at a URL. It calls nothing yet.
func New(address string, opts ...Option) (*Client, error) {
	c := &Client{options: options{
		lease: 30 * time.Second, patience: time.Minute,
		dispatch: api.DispatchModeExplicit, scope: api.ScopeAttempt,
	}}
	c.owner, _ = os.Hostname()
	for _, set := range opts {
		set(&c.options)
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	if c.http == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.MaxIdleConnsPerHost = 100
		c.http = &http.Client{Transport: transport}
	}
	if u, err := url.Parse(address); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return nil, fmt.Errorf("idemstore's URL must be http:// or https:// and a host, not %q", address)
	}
	var err error
	c.api, err = api.NewClient(strings.TrimSuffix(address, "/"), api.WithHTTPClient(c.http), api.WithRequestEditorFn(c.authorize))
	return c, err
}

func (c *Client) authorize(_ context.Context, req *http.Request) error {
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	return nil
}

// with is the client with one call's own options.
func (c *Client) with(opts []Option) (*Client, error) {
	own := *c
	for _, set := range opts {
		set(&own.options)
	}
	if own.http != c.http || own.token != c.token {
		return nil, errors.New("the HTTP client and the token are set in New, not for one call")
	}
	return &own, own.check()
}

func (o *options) check() error {
	switch {
	case o.owner == "":
		return errors.New("name the owner with WithOwner: the host has no name")
	case o.lease < time.Second || o.lease > 24*time.Hour || o.lease%time.Second != 0:
		return fmt.Errorf("the lease must be whole seconds, from one to 24 hours, not %v", o.lease)
	case o.wait < 0 || o.wait > time.Minute || o.wait%time.Second != 0:
		return fmt.Errorf("the wait must be whole seconds, at most 60, not %v", o.wait)
	case o.patience <= 0:
		return fmt.Errorf("the patience must be more than nothing, not %v", o.patience)
	}
	return nil
}
