package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/idemstore/idemstore/api"
)

// maxRounds bounds how often one call begins again: each round, something else has happened to the key.
const maxRounds = 16

// Once performs an effect unless it has been performed, and returns what came of it. Its errors are [NotDoneError],
// [InProgressError], [InDoubtError], [ProblemError], and ErrUnanswered; [NothingHappened] says what may be told to the engine.
func (c *Client) Once(ctx context.Context, key Key, effect Effect, opts ...Option) (Response, error) {
	r, err := c.run(key, effect, opts)
	if err != nil {
		return Response{}, err
	}
	return r.once(ctx, uuid.NewString(), nil)
}

// run is one call of Once.
type run struct {
	*Client
	key    Key
	effect Effect

	takeovers []api.Takeover // doubts that were looked into
	found     Finding        // by that look
}

func (c *Client) run(key Key, effect Effect, opts []Option) (run, error) {
	own, err := c.with(opts)
	if err == nil && effect == nil {
		err = errors.New("there is no effect to perform")
	}
	if err != nil {
		return run{}, fmt.Errorf("%s: %w", key, err)
	}
	return run{Client: own, key: key, effect: effect}, nil
}

// errAgain says that a reservation was lost before its effect began.
var errAgain = errors.New("lost before it began")

// once reserves under an id until it is decided who performs the effect. A first answer may have come by the batch.
func (r *run) once(ctx context.Context, id string, first *answer) (Response, error) {
	for range maxRounds {
		a := first
		if first = nil; a == nil {
			got, err := r.reserve(ctx, id)
			if err != nil {
				return Response{}, err
			}
			a = &got
		}
		response, err := r.heed(ctx, id, a)
		if !errors.Is(err, errAgain) {
			return response, err
		}
		id = uuid.NewString()
	}
	return Response{}, fmt.Errorf("%s: %w: it changed hands %d times meanwhile", r.key, ErrUnanswered, maxRounds)
}

// heed does what the answer to a reserve asks for.
func (r *run) heed(ctx context.Context, id string, a *answer) (Response, error) {
	switch {
	case a.status == http.StatusCreated:
		return r.hold(ctx, id, a)
	case a.status == http.StatusOK:
		var out api.Replayed
		if err := a.read(&out); err != nil {
			return Response{}, err
		}
		return replayed(&out.Response), nil
	case a.code() == api.ProblemCodeInProgress:
		return Response{}, r.inProgress(a)
	case a.code() == api.ProblemCodeInDoubt:
		return Response{}, r.lookInto(ctx, a)
	case a.code() == api.ProblemCodeLeaseLost:
		return Response{}, errAgain // this id is spent: an operator released it, or another has taken over
	}
	return Response{}, &ProblemError{Key: r.key, Problem: a.problem}
}

func (r *run) reserve(ctx context.Context, id string) (answer, error) {
	in := api.ReserveRequest{
		Owner: r.owner, ReservationID: &id, Handler: optional(r.handler), RequestHash: optional(r.hash),
		LeaseSeconds: r.leaseSeconds(), Dispatch: &r.dispatch, Scope: &r.scope,
	}
	if len(r.takeovers) > 0 {
		in.Takeovers = &r.takeovers // and no wait, after which they would count for nothing
	} else if r.wait > 0 {
		seconds := int(r.wait / time.Second)
		in.WaitSeconds = &seconds
	}
	return call(ctx, r.patience+r.wait, tryTime+r.wait, func(ctx context.Context) (*http.Response, error) {
		return r.api.Reserve(ctx, r.key.TaskID, r.key.Attempt, in)
	})
}

func (r *run) leaseSeconds() *int {
	seconds := int(r.lease / time.Second)
	return &seconds
}

// lookInto asks the upstream about a doubt. If it can tell, the next reserve takes over.
func (r *run) lookInto(ctx context.Context, a *answer) error {
	doubt := r.inDoubt(a)
	if r.look == nil || doubt.OnlyOperator {
		return doubt
	}
	found, err := r.look(ctx, doubt)
	if err != nil || found.verdict == cannotTell {
		doubt.Err = fmt.Errorf("the look could not tell: %w", orElse(err, errors.New("the upstream does not know")))
		return doubt
	}
	r.found, r.takeovers = found, *a.problem.Takeovers
	return errAgain
}

// hold performs the effect under a reservation that was granted.
func (r *run) hold(ctx context.Context, id string, a *answer) (Response, error) {
	var granted api.Reserved
	if err := a.read(&granted); err != nil {
		return Response{}, err
	}
	if r.found.verdict == happened {
		response, err := r.record(ctx, id, r.found.response)
		response.Replayed, response.Duplicate = true, false
		return response, err
	}
	grant := Grant{Key: r.key, Fence: granted.Fence, IdempotencyKey: granted.IdempotencyKey}
	l := lease{run: r, id: id, until: a.lease(granted.LeaseSecondsLeft), renewAt: a.sent.Add(seconds(granted.RenewAfterSeconds))}
	if r.dispatch == api.DispatchModeExplicit || !time.Now().Before(l.until) {
		if instead, err := r.begin(ctx, &l, &grant); instead != nil || err != nil {
			return valueOf(instead), err
		}
	}
	response, err := l.during(ctx, grant)
	if err == nil {
		return r.record(ctx, id, response)
	}
	if _, marked := wordOn(err).(notDone); marked {
		return r.release(ctx, id, err)
	}
	return Response{}, &InDoubtError{Key: r.key, Attempt: r.key.Attempt, Err: err}
}

// begin says that the effect is about to begin, which extends the lease, and revives one that has passed meanwhile. Another
// may have got a response in before, which is returned instead of the effect's.
func (r *run) begin(ctx context.Context, l *lease, grant *Grant) (instead *Response, err error) {
	for range maxRounds {
		a, err := call(ctx, r.patience, tryTime, func(ctx context.Context) (*http.Response, error) {
			return r.api.Dispatch(ctx, r.key.TaskID, r.key.Attempt, api.DispatchRequest{ReservationID: l.id})
		})
		switch {
		case err != nil: // nothing has begun, and now it will not
			response, err := r.release(ctx, l.id, err)
			return &response, err
		case a.code() == api.ProblemCodeAlreadyRecorded && a.problem.Response != nil:
			response := replayed(a.problem.Response)
			return &response, nil
		case slices.Contains(gone, a.code()):
			return nil, errAgain
		case !a.ok():
			return nil, &ProblemError{Key: r.key, Problem: a.problem}
		}
		var out api.Dispatched
		if err := a.read(&out); err != nil {
			return nil, err
		}
		grant.Fence, l.until, l.renewAt = out.Fence, a.lease(out.LeaseSecondsLeft), a.sent.Add(seconds(float64(out.LeaseSecondsLeft)/3))
		if time.Now().Before(l.until) {
			return nil, nil
		}
	}
	response, err := r.release(ctx, l.id, fmt.Errorf("%w before it was answered, %d times", ErrLeaseEnded, maxRounds))
	return &response, err
}

// gone are the answers after which a reservation is no longer worth anything.
var gone = []api.ProblemCode{api.ProblemCodeLeaseLost, api.ProblemCodeNotHolder, api.ProblemCodeNotFound}

// record keeps what came of the effect. It goes on when the context has ended: what is not recorded is in doubt.
// Better without a header or a body that the service does not take than not at all.
func (r *run) record(ctx context.Context, id string, response Response) (Response, error) {
	response = response.withStatus()
	a, err := r.send(ctx, id, response)
	for rest := response; err == nil; a, err = r.send(ctx, id, rest) {
		if a.status == http.StatusRequestEntityTooLarge && rest.Body != nil {
			rest = rest.withoutBody()
		} else if a.status == http.StatusBadRequest && rest.Header != nil {
			rest.Header = nil
		} else {
			break
		}
	}
	switch {
	case err != nil:
	case a.ok():
		return response, nil
	case a.code() == api.ProblemCodeAlreadyRecorded && a.problem.Response != nil:
		stored := kept(a.problem.Response)
		stored.Duplicate = true
		return stored, nil
	default:
		err = &ProblemError{Key: r.key, Problem: a.problem}
	}
	return response, &InDoubtError{Key: r.key, Attempt: r.key.Attempt, Err: fmt.Errorf("the effect has happened, and could not be recorded: %w", err)}
}

func (r *run) send(ctx context.Context, id string, response Response) (answer, error) {
	return call(context.WithoutCancel(ctx), r.patience, tryTime, func(ctx context.Context) (*http.Response, error) {
		return r.api.Record(ctx, r.key.TaskID, r.key.Attempt, api.RecordRequest{
			ReservationID: &id, Owner: &r.owner, RequestHash: optional(r.hash), Response: response.offer(),
		})
	})
}

// release says that the effect did not happen, also when the context has ended: it spares the others a wait. Nor did an earlier one, if a look has said so.
func (r *run) release(ctx context.Context, id string, cause error) (Response, error) {
	earlier, reason := r.found.verdict == notHappened, optional(shorten(cause.Error()))
	a, err := call(context.WithoutCancel(ctx), r.patience, tryTime, func(ctx context.Context) (*http.Response, error) {
		return r.api.Release(ctx, r.key.TaskID, r.key.Attempt, api.ReleaseRequest{ReservationID: id, Reason: reason, EarlierNotDone: &earlier})
	})
	switch {
	case err != nil:
	case a.ok():
		var out api.Released
		if err = a.read(&out); err == nil && len(out.Doubts) == 0 {
			return Response{}, &NotDoneError{Key: r.key, Err: cause}
		}
	case a.code() == api.ProblemCodeAlreadyRecorded && a.problem.Response != nil:
		return replayed(a.problem.Response), nil
	default:
		err = &ProblemError{Key: r.key, Problem: a.problem}
	}
	return Response{}, &InDoubtError{Key: r.key, Attempt: r.key.Attempt, Err: fmt.Errorf("it was not done (%w), but the key is not released: %w", cause, orElse(err, errors.New("earlier doubts stand")))}
}

func (r *run) inProgress(a *answer) error {
	e := &InProgressError{Key: r.key, Attempt: r.key.Attempt, RetryAfter: a.retryAfter}
	if a.problem.Attempt != nil {
		e.Attempt = *a.problem.Attempt
	}
	if a.problem.Owner != nil {
		e.Owner = *a.problem.Owner
	}
	return e
}

func (r *run) inDoubt(a *answer) *InDoubtError {
	e := &InDoubtError{Key: r.key, Attempt: r.key.Attempt}
	if a.problem.Attempt != nil {
		e.Attempt = *a.problem.Attempt
	}
	if a.problem.Doubts != nil {
		e.Doubts = *a.problem.Doubts
	}
	e.OnlyOperator = a.problem.Takeovers == nil || len(*a.problem.Takeovers) == 0
	return e
}

// replayed is a response that this call did not bring about.
func replayed(in *api.Response) Response {
	out := kept(in)
	out.Replayed = true
	return out
}

func valueOf(r *Response) Response {
	if r == nil {
		return Response{}
	}
	return *r
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func orElse(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// shorten keeps a reason within what the service takes.
func shorten(reason string) string {
	reason = strings.ReplaceAll(reason, "\x00", "")
	if runes := []rune(reason); len(runes) > 1000 {
		return string(runes[:1000])
	}
	return reason
}
