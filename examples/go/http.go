package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"regexp"

	"github.com/idemstore/idemstore/client"
)

// request is what a task asks for.
type request struct{ method, url, body string }

var sane = regexp.MustCompile(`^[A-Za-z]+ https?://`)

// wanted reads the request before anything else, so that a bad one does nothing.
func wanted(t *task, method string) (request, error) {
	r := request{method: method, url: t.text("url")}
	if !sane.MatchString(r.method + " " + r.url) {
		return r, client.NotDone(fmt.Errorf("%s %s is no request", r.method, r.url))
	}
	if method != http.MethodGet {
		r.body = t.text("body")
	}
	return r, nil
}

// httpCalls write to an upstream that ignores Idempotency-Key: through the store, reserved together as they were fetched.
func (w *worker) httpCalls(ctx context.Context, tasks []task) {
	var good []*task
	var all []client.Task
	for i := range tasks {
		t := &tasks[i]
		want, err := wanted(t, t.text("method"))
		if err != nil { // a bad one fails by itself
			w.report(ctx, t, client.Response{}, err)
			continue
		}
		effect := w.held(func(ctx context.Context, _ *task) (client.Response, error) { return perform(ctx, want, nil) })
		good = append(good, t)
		all = append(all, client.Task{
			Key:    t.key(),
			Effect: func(ctx context.Context, _ client.Grant) (client.Response, error) { return effect(ctx, t) },
			Options: []client.Option{
				client.WithHandler(t.Topic),
				client.WithRequestHash(fmt.Sprintf("sha256:%x", sha256.Sum256(fmt.Appendf(nil, "%q", want)))),
				client.WithTaskScope(), // what came in late for an earlier attempt is replayed to this one
				client.WithLook(func(ctx context.Context, _ *client.InDoubtError) (client.Finding, error) { return look(ctx, want.url) }),
			},
		})
	}
	err := w.store.OnceEach(ctx, all, func(i int, response client.Response, err error) { w.report(ctx, good[i], response, err) })
	if err != nil {
		w.report(ctx, &task{Topic: "http.call"}, client.Response{}, err) // to the log: these tasks come again
	}
}

// perform is one request to the upstream. What it says is a result, be it a refusal; but a 429 is none, and after a 5xx
// nobody knows.
func perform(ctx context.Context, want request, header http.Header) (client.Response, error) {
	response, err := send(ctx, want.method, want.url, header, []byte(want.body))
	switch answered := fmt.Errorf("%s answered %d", want.url, response.Status); {
	case err != nil:
	case response.Status == http.StatusTooManyRequests:
		err = client.NotDone(answered)
	case response.Status >= 500:
		err = answered
	}
	kept := make(http.Header)
	for _, name := range []string{"Content-Type", "Location"} {
		if values := response.Header.Values(name); values != nil {
			kept[name] = values
		}
	}
	response.Header = kept
	return response, err
}

// look asks the upstream by a natural key, here its URL, whether the effect has happened.
func look(ctx context.Context, url string) (client.Finding, error) {
	response, err := perform(ctx, request{method: http.MethodGet, url: url}, nil)
	switch {
	case err != nil:
		return client.CannotTell(), err
	case response.Status == http.StatusOK:
		return client.Happened(response), nil
	case response.Status == http.StatusNotFound:
		return client.NotHappened(), nil
	}
	return client.CannotTell(), nil
}

// httpCallKeyed writes to an upstream that honours Idempotency-Key, which is the same at each delivery and each attempt:
// perhaps it happened, but trying again does not make it happen twice.
func httpCallKeyed(ctx context.Context, t *task) (client.Response, error) {
	want, err := wanted(t, t.text("method"))
	if err != nil {
		return client.Response{}, err
	}
	return perform(ctx, want, http.Header{"Idempotency-Key": {"conduit-task-" + t.ID}})
}

// httpGet reads, which has no effect.
func httpGet(ctx context.Context, t *task) (client.Response, error) {
	want, err := wanted(t, http.MethodGet)
	if err != nil {
		return client.Response{}, err
	}
	return perform(ctx, want, nil)
}
