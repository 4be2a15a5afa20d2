package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/idemstore/idemstore/api"
)

// tryTime bounds one try of a call. The service answers, or says that it cannot, within ten seconds.
const tryTime = 15 * time.Second

// answer is what the service said to one call.
type answer struct {
	sent       time.Time // before the try that was answered
	status     int
	retryAfter time.Duration
	body       json.RawMessage
	problem    api.Problem // where the status is no success
}

// call repeats one request as it is until it is answered, the context ends or the patience does. A 429 and what tells of a
// fault of the service (a 5xx) is no answer: the outcome is not known, and repeating converges.
func call(ctx context.Context, patience, tryTime time.Duration, send func(context.Context) (*http.Response, error)) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		a, err := try(ctx, tryTime, send)
		if err == nil && a.status != http.StatusTooManyRequests && a.status < http.StatusInternalServerError {
			return a, nil
		}
		if err == nil {
			err = fmt.Errorf("it answered %d %s: %s", a.status, a.problem.Code, a.problem.Detail)
		}
		// A fleet that was refused together does not come back together.
		wait := time.NewTimer(max(a.retryAfter, pause/2+rand.N(pause/2+1)))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return answer{}, fmt.Errorf("%w: %w (%w)", ErrUnanswered, err, context.Cause(ctx))
		}
	}
}

// try is one request. An answer that breaks off is none.
func try(ctx context.Context, tryTime time.Duration, send func(context.Context) (*http.Response, error)) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	sent := time.Now()
	res, err := send(ctx)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return answer{}, err
	}
	a := newAnswer(sent, res.StatusCode, body)
	if seconds, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil {
		a.retryAfter = time.Duration(seconds) * time.Second
	}
	return a, nil
}

func newAnswer(sent time.Time, status int, body []byte) answer {
	a := answer{sent: sent, status: status, body: body}
	if a.ok() {
		return a
	}
	// What is between here and the service answers in its own words, and then the status is all that is known.
	if json.Unmarshal(body, &a.problem) != nil || a.problem.Code == "" {
		a.problem = api.Problem{Status: status, Detail: "the answer is not in idemstore's words; is this its address?"}
	}
	if s := a.problem.RetryAfterSeconds; s != nil {
		a.retryAfter = time.Duration(*s) * time.Second
	}
	return a
}

func (a *answer) ok() bool { return a.status == http.StatusOK || a.status == http.StatusCreated }

// code is the outcome of what was refused.
func (a *answer) code() api.ProblemCode { return a.problem.Code }

// read reads the body of a success.
func (a *answer) read(into any) error {
	if err := json.Unmarshal(a.body, into); err != nil {
		return fmt.Errorf("idemstore's answer cannot be read: %w", err)
	}
	return nil
}

// lease is when a lease ends that had so many seconds left when this was answered: counted from before the call was sent,
// as nobody knows when between the two it was decided.
func (a *answer) lease(secondsLeft int) time.Time {
	return a.sent.Add(time.Duration(secondsLeft) * time.Second)
}
