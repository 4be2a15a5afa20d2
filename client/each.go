package client

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/idemstore/idemstore/api"
)

// Task is one of many that are reserved together.
type Task struct {
	Key     Key
	Effect  Effect
	Options []Option // of this one alone
}

// maxBatch is how many items the service takes in one call.
const maxBatch = 1000

// OnceEach is Once for the tasks of one fetch: they are reserved by one call, and then performed one after the other. It calls done
// with each task's index and what Once would have returned, as soon as that is known. If it returns an error itself, those
// that it was not called for have not begun.
//
// Those that wait for their turn are not renewed. They need not be: each is dispatched before its effect, which revives a
// lease that has passed, and fails if another has the task by then; and a lease that passes undispatched is no doubt. So
// implicit dispatch is refused here. One that waits for another holder, by [WithWait], keeps those after it waiting too.
func (c *Client) OnceEach(ctx context.Context, tasks []Task, done func(i int, response Response, err error)) error {
	runs, ids := make([]run, len(tasks)), make([]string, len(tasks))
	for i, t := range tasks {
		r, err := c.run(t.Key, t.Effect, t.Options)
		if err != nil {
			return err
		}
		if r.dispatch != api.DispatchModeExplicit {
			return fmt.Errorf("%s: tasks that wait for their turn need explicit dispatch", t.Key)
		}
		runs[i], ids[i] = r, uuid.NewString()
	}
	for from := 0; from < len(runs); from += maxBatch {
		to := min(from+maxBatch, len(runs))
		answers, err := c.reserveAll(ctx, runs[from:to], ids[from:to])
		if err != nil {
			return err
		}
		for i := range answers {
			if ctx.Err() != nil { // what is reserved and not dispatched is no doubt
				return context.Cause(ctx)
			}
			r, first := &runs[from+i], &answers[i]
			if first.status == http.StatusTooManyRequests || first.status >= http.StatusInternalServerError {
				first = nil // not known: repeat it, under the same id
			} else if first.code() == api.ProblemCodeInProgress && r.wait > 0 {
				first = nil // a batch does not wait: ask again, by itself
			}
			response, err := r.once(ctx, ids[from+i], first)
			done(from+i, response, err)
		}
	}
	return nil
}

// reserveAll reserves a batch, and returns the answers in its order.
func (c *Client) reserveAll(ctx context.Context, runs []run, ids []string) ([]answer, error) {
	items := make([]api.BatchReserveItem, len(runs))
	for i := range runs {
		r := &runs[i]
		items[i] = api.BatchReserveItem{
			TaskID: r.key.TaskID, Attempt: &r.key.Attempt, ReservationID: &ids[i], Owner: r.owner, Handler: optional(r.handler),
			RequestHash: optional(r.hash), LeaseSeconds: r.leaseSeconds(), Dispatch: &r.dispatch, Scope: &r.scope,
		}
	}
	a, err := call(ctx, c.patience, tryTime+15*time.Second, func(ctx context.Context) (*http.Response, error) {
		return c.api.BatchReserve(ctx, api.BatchReserveRequest{Items: items})
	})
	if err != nil {
		return nil, err
	}
	if !a.ok() {
		return nil, &ProblemError{Problem: a.problem}
	}
	var out api.BatchAnswer
	if err := a.read(&out); err != nil {
		return nil, err
	}
	if len(out.Results) != len(items) {
		return nil, fmt.Errorf("idemstore answered %d of %d reserves", len(out.Results), len(items))
	}
	answers := make([]answer, len(items))
	for i, result := range out.Results {
		answers[i] = newAnswer(a.sent, result.Status, result.Body)
	}
	return answers, nil
}
