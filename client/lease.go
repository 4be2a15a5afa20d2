package client

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/idemstore/idemstore/api"
)

// lease is held while an effect lasts.
type lease struct {
	*run
	id      string
	until   time.Time // it is ours, as far as we know
	renewAt time.Time
}

// during performs the effect while the lease is renewed in the background. The effect's context ends with the lease.
func (l *lease) during(ctx context.Context, grant Grant) (Response, error) {
	ctx, end := context.WithCancelCause(ctx)
	renewing, stop := context.WithCancel(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		l.renew(renewing, end)
	}()
	defer func() { // also when the effect panics
		stop()
		<-stopped
		end(nil)
	}()
	response, err := l.effect(ctx, grant)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w (%w)", err, context.Cause(ctx))
	}
	return response, err
}

// renew holds the lease until the context ends, and ends the effect when it can no longer be held.
func (l *lease) renew(ctx context.Context, end context.CancelCauseFunc) {
	for {
		timer := time.NewTimer(time.Until(l.renewAt))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		if err := l.renewOnce(ctx); err != nil {
			if ctx.Err() == nil {
				end(fmt.Errorf("%w: %w", ErrLeaseEnded, err))
			}
			return
		}
	}
}

// renewOnce repeats one renewal until it is answered, or the lease has ended.
func (l *lease) renewOnce(ctx context.Context) error {
	left := time.Until(l.until)
	a, err := call(ctx, left, max(left/4, 100*time.Millisecond), func(ctx context.Context) (*http.Response, error) {
		return l.api.Renew(ctx, l.key.TaskID, l.key.Attempt, api.RenewRequest{ReservationID: l.id, LeaseSeconds: l.leaseSeconds()})
	})
	if err != nil {
		return err
	}
	if !a.ok() {
		return &ProblemError{Key: l.key, Problem: a.problem}
	}
	var out api.Renewed
	if err := a.read(&out); err != nil {
		return err
	}
	l.until, l.renewAt = a.lease(out.LeaseSecondsLeft), a.sent.Add(seconds(out.RenewAfterSeconds))
	return nil
}
