package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"

	"github.com/idemstore/idemstore/client"
)

// httpCalls write to an upstream that ignores Idempotency-Key: through the store, reserved together as they were fetched.
func (w *worker) httpCalls(ctx context.Context, tasks []task) {
	all := make([]client.Task, len(tasks))
	for i := range tasks {
		t := &tasks[i]
		request := fmt.Sprintf("%s %s\n%s", t.text("method"), t.text("url"), t.text("body"))
		all[i] = client.Task{
			Key: t.key(),
			Effect: func(ctx context.Context, _ client.Grant) (client.Response, error) {
				ctx, end := context.WithCancel(ctx)
				defer end()
				go w.extend(ctx, t)
				return perform(ctx, t, t.text("method"), nil)
			},
			Options: []client.Option{
				client.WithHandler(t.Topic),
				client.WithRequestHash(fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(request)))),
				client.WithTaskScope(), // what came in late for an earlier attempt is replayed to this one
				client.WithLook(func(ctx context.Context, _ *client.InDoubtError) (client.Finding, error) { return look(ctx, t) }),
			},
		}
	}
	err := w.store.OnceEach(ctx, all, func(i int, response client.Response, err error) { w.report(ctx, &tasks[i], response, err) })
	if err != nil {
		w.report(ctx, &task{Topic: "http.call"}, client.Response{}, err) // to the log: these tasks come again
	}
}

// perform is the task's one request. What the upstream says is a result, be it a refusal; but a 429 is none, and
// after a 5xx nobody knows.
func perform(ctx context.Context, t *task, method string, header http.Header) (client.Response, error) {
	var body []byte
	if method != http.MethodGet {
		body = []byte(t.text("body"))
	}
	status, answer, err := send(ctx, method, t.text("url"), header, body)
	switch answered := fmt.Errorf("%s answered %d", t.text("url"), status); {
	case err != nil:
	case status == http.StatusTooManyRequests:
		err = client.NotDone(answered)
	case status >= 500:
		err = answered
	}
	return client.Response{Status: status, Body: answer}, err
}

// look asks the upstream by a natural key, here its URL, whether the effect has happened.
func look(ctx context.Context, t *task) (client.Finding, error) {
	response, err := perform(ctx, t, http.MethodGet, nil)
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
	response, err := perform(ctx, t, t.text("method"), http.Header{"Idempotency-Key": {"conduit-task-" + t.ID}})
	return response, failed(t, err)
}

// httpGet reads, which has no effect.
func httpGet(ctx context.Context, t *task) (client.Response, error) {
	response, err := perform(ctx, t, http.MethodGet, nil)
	return response, failed(t, err)
}
