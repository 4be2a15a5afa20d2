package audit

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/idemstore/idemstore/api"
)

// Service is the running service that is asked.
type Service struct {
	address string
	token   string
	http    *http.Client
	api     *api.Client
	// date is the service's own time at its last answer: the clock of this machine decides nothing.
	date atomic.Pointer[time.Time]
	// patience is how long the service may say nothing at all.
	patience time.Duration
}

var errSilent = errors.New("it has said nothing for too long")

// Dial makes the Service at an address. Nothing is sent yet.
func Dial(address, token string, patience time.Duration) (*Service, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fail(Usage, "IDEMSTORE_URL: want an address such as http://127.0.0.1:8080") // not quoted: there may be a password in it
	}
	if u.User != nil {
		return nil, fail(Usage, "IDEMSTORE_URL: must have no name and password in it; the token goes into IDEMSTORE_TOKEN")
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, fail(Usage, "IDEMSTORE_TOKEN: has a character in it that no token has, such as a space or a line's end")
	}
	v := &Service{
		address: strings.TrimSuffix(address, "/"), token: token, patience: patience,
		// The token is for this address alone, and an answer from elsewhere would not be the service's.
		http: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
	v.api, err = api.NewClient(v.address, api.WithHTTPClient(v))
	return v, err
}

// Do implements the generated client's doer: with the token, and only while the service says something.
func (v *Service) Do(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	silence := time.AfterFunc(v.patience, func() { cancel(errSilent) })
	if v.token != "" {
		req.Header.Set("Authorization", "Bearer "+v.token)
	}
	res, err := v.http.Do(req.WithContext(ctx))
	silence.Stop()
	if err != nil {
		if errors.Is(context.Cause(ctx), errSilent) {
			err = errSilent
		}
		cancel(nil)
		return nil, err
	}
	if date, err := http.ParseTime(res.Header.Get("Date")); err == nil {
		v.date.Store(&date)
	}
	res.Body = &attended{ReadCloser: res.Body, ctx: ctx, cancel: cancel, silence: silence, patience: v.patience}
	return res, nil
}

// attended is a body that is given up when nothing comes any more, though somebody waits for it.
type attended struct {
	io.ReadCloser
	ctx      context.Context //nolint:containedctx // of the request that it answers
	cancel   context.CancelCauseFunc
	silence  *time.Timer
	patience time.Duration
}

func (a *attended) Read(p []byte) (int, error) {
	a.silence.Reset(a.patience)
	n, err := a.ReadCloser.Read(p)
	a.silence.Stop()
	if err != nil && errors.Is(context.Cause(a.ctx), errSilent) {
		err = errSilent
	}
	return n, err
}

func (a *attended) Close() error {
	defer a.cancel(nil)
	return a.ReadCloser.Close()
}

// answer is the body of a success; everything else becomes an Error.
func (v *Service) answer(res *http.Response, err error) (io.ReadCloser, error) {
	if err != nil {
		return nil, v.noAnswer(err)
	}
	if res.StatusCode == http.StatusOK {
		return res.Body, nil
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxProblem))
	if err != nil {
		return nil, v.cut(err)
	}
	return nil, v.refusal(res, text)
}

// maxProblem bounds a problem: it may have a whole recorded response in it.
const maxProblem = 64 << 20

func (v *Service) noAnswer(err error) error {
	if errors.Is(err, context.Canceled) {
		return fail(Failed, "interrupted")
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return fail(Failed, "no answer from %s: %v; is the service there? The address is --url or IDEMSTORE_URL", v.address, err)
}

// cut says that an answer broke off.
func (v *Service) cut(err error) error {
	if errors.Is(err, context.Canceled) {
		return fail(Failed, "interrupted")
	}
	return fail(Failed, "the answer of %s broke off: %v; what came is not all. Ask again", v.address, err)
}

// problem is what an answer that is no success says.
type problem struct {
	api.Problem
	failure *Error
}

func (p *problem) Error() string { return p.failure.Error() }
func (p *problem) Unwrap() error { return p.failure }

// refusal makes an Error of an answer that is no success.
func (v *Service) refusal(res *http.Response, text []byte) error {
	p := &problem{}
	if !strings.HasPrefix(res.Header.Get("Content-Type"), "application/problem+json") || json.Unmarshal(text, &p.Problem) != nil ||
		p.Code == "" || p.Detail == "" {
		return fail(Failed, "%s answered %s, which is not idemstore's; is --url or IDEMSTORE_URL right?", v.address, res.Status)
	}
	p.failure = v.explain(res.StatusCode, &p.Problem)
	return p
}

func (v *Service) explain(status int, p *api.Problem) *Error {
	switch status {
	case http.StatusUnauthorized:
		if v.token == "" {
			return fail(Failed, "%s wants a token (401): set IDEMSTORE_TOKEN to one that has the role auditor, or operator to resolve", v.address)
		}
		return fail(Failed, "%s does not know the token in IDEMSTORE_TOKEN (401): it may be of another service, or was taken out of its tokens file", v.address)
	case http.StatusForbidden:
		return fail(Failed, "the token in IDEMSTORE_TOKEN may not do this (403): %s Reading needs the role auditor or operator, resolve and release-owner operator", p.Detail)
	case http.StatusBadRequest:
		if p.Field != nil {
			return fail(Usage, "the service cannot understand %s: %s", *p.Field, p.Detail)
		}
		return fail(Usage, "the service cannot understand the question: %s", p.Detail)
	case http.StatusNotFound:
		if p.Code == api.ProblemCodeNoSuchRoute {
			return fail(Failed, "%s has no such route: it may be an older idemstore than this program", v.address)
		}
		return fail(Nothing, "%s", p.Detail)
	case http.StatusConflict:
		return fail(Refused, "%s (409): %s", p.Code, p.Detail)
	}
	return fail(Failed, "%s answered %d %s: %s (request %s)", v.address, status, p.Code, p.Detail, p.RequestID)
}

// read decodes a whole answer.
func (v *Service) read(body io.ReadCloser, into any) error {
	defer body.Close()
	text, err := io.ReadAll(body)
	if err != nil {
		return v.cut(err)
	}
	return v.decode(text, into)
}

func (v *Service) decode(text []byte, into any) error {
	if err := json.Unmarshal(text, into); err != nil {
		return fail(Failed, "%s answered something that is not idemstore's: %v", v.address, err)
	}
	return nil
}
