package client

import (
	"errors"
	"fmt"
	"time"

	"github.com/idemstore/idemstore/api"
)

// NotDone marks the error of an effect that certainly did not happen. A nil error stays nil. The mark counts for the effect
// that returns it: inside of what another call of Once returned, it speaks of that one's effect.
func NotDone(err error) error {
	if err == nil {
		return nil
	}
	return notDone{err}
}

type notDone struct{ error }

func (n notDone) Unwrap() error { return n.error }

// NothingHappened says of an error of Once, or one that is marked by NotDone, that a failure may be reported to the engine: it is
// known that nothing happened. Of any other error (not of nil) neither completion nor failure may be reported, since a failure
// would have the task tried again beside an effect that may have happened.
func NothingHappened(err error) bool {
	w := wordOn(err)
	return w != nil && w.nothingHappened()
}

// word is an error that knows whether its effect may have happened.
type word interface {
	error
	nothingHappened() bool
}

// wordOn is the outermost word in an error, or nil. What that one wraps is its cause, and may speak of another effect.
func wordOn(err error) (w word) {
	errors.As(err, &w)
	return w
}

func (notDone) nothingHappened() bool       { return true }
func (*NotDoneError) nothingHappened() bool { return true }
func (*InDoubtError) nothingHappened() bool { return false }

// NotDoneError is the error of an effect that did not happen. The key has been released.
type NotDoneError struct {
	Key Key
	Err error
}

func (e *NotDoneError) Error() string { return fmt.Sprintf("%s was not done: %v", e.Key, e.Err) }

// Unwrap is the effect's own error.
func (e *NotDoneError) Unwrap() error { return e.Err }

// InProgressError says that another worker holds the key. Report neither completion nor failure, and ask again later.
type InProgressError struct {
	Key        Key
	Attempt    int32  // that is in progress: the key's own, or another of the task
	Owner      string // who holds it
	RetryAfter time.Duration
}

func (e *InProgressError) Error() string {
	return fmt.Sprintf("%s: attempt %d is in progress, held by %s; ask again in %v, and report nothing to the engine before", e.Key, e.Attempt, e.Owner, e.RetryAfter)
}

// InDoubtError says that the effect may have happened, and that nobody knows. Report neither completion nor failure.
type InDoubtError struct {
	Key     Key
	Attempt int32 // that is in doubt: the key's own, or another of the task

	// Doubts are the grants that may have acted, oldest first. There are none if it is this call's own effect that is in doubt.
	Doubts []Doubt

	// OnlyOperator says that no look can help any more: the service takes no takeover for this key.
	OnlyOperator bool

	// Err is why: the error of this call's own effect, of its record, or of the look. nil: there was no look.
	Err error
}

// Doubt is a grant that may have acted.
type Doubt = api.Doubt

func (e *InDoubtError) Error() string {
	why := "a worker that may have acted has vanished"
	if e.Err != nil {
		why = e.Err.Error()
	}
	return fmt.Sprintf("%s: attempt %d is in doubt: %s; report nothing to the engine, and ask the upstream or an operator", e.Key, e.Attempt, why)
}

// Unwrap is why.
func (e *InDoubtError) Unwrap() error { return e.Err }

// ProblemError is an answer of the service that repeating cannot cure.
type ProblemError struct {
	Key     Key
	Problem api.Problem
}

func (e *ProblemError) Error() string {
	return fmt.Sprintf("%s: idemstore answered %d %s: %s", e.Key, e.Problem.Status, e.Problem.Code, e.Problem.Detail)
}

// ErrUnanswered says that the service gave no answer for as long as there was patience. A reserve that was not answered may
// have been granted; the same call of Once converges later.
var ErrUnanswered = errors.New("idemstore gave no answer")

// ErrLeaseEnded is the cause of the end of an effect's context when its lease has ended.
var ErrLeaseEnded = errors.New("the lease has ended")
