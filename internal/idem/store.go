package idem

import (
	"context"
	"errors"
	"time"
)

// Store keeps entries and the trail. It compares and swaps; it decides nothing.
type Store interface {
	// Load returns the entries of all the attempts of the tasks of these keys, rows past their retention included, and
	// the database's time, read no later than the rows. The keys' own responses come whole, those of other attempts
	// Partial. Without keys it brings the time alone. An error means that nothing is known.
	Load(ctx context.Context, keys []Key) ([]*Entry, time.Time, error)

	// Swap writes every change whose row is still at the version that was decided upon (Base), whose time has not come
	// (Before), and beside which no later attempt has a row (Alone), each with its events, all in one transaction. It
	// says which ones it wrote, and the database's time. Each key stands in at most one change. An entry is written
	// with the Version that it has; the caller chooses one that the row has never had.
	//
	// An error that is ErrNotWritten wrote nothing, for a reason that may lie in a single change: the others may be
	// written by a Swap without it. Any other error leaves unknown what was written, all or nothing.
	Swap(ctx context.Context, changes []Change) ([]bool, time.Time, error)

	// Ready says whether the store can serve: reachable, writable, its schema the one that this program knows.
	Ready(ctx context.Context) error

	Close()
}

// ErrNotWritten says of a failed Swap that nothing was written, and that smaller ones may succeed.
var ErrNotWritten = errors.New("nothing was written")

// Keeper carries commands out: decided, written and durable before they are answered. Its errors are ErrUnavailable
// and ErrBusy.
type Keeper interface {
	// Do carries the commands out as if one after the other, and answers each. A Reserve whose context has ended is
	// dropped before it is decided: a caller that hung up is granted nothing. Anything else that was begun is finished.
	Do(ctx context.Context, cmds ...Command) []Result

	// Watch returns a channel that is closed when an entry of the task was changed through this Keeper, and a function
	// that ends the watch. Changes made elsewhere are not seen.
	Watch(taskID string) (<-chan struct{}, func())

	// Ready says whether commands can be carried out now.
	Ready(ctx context.Context) error
}

// Result is the answer to one command: an outcome or an error.
type Result struct {
	Outcome Outcome
	Err     error
}

var (
	// ErrUnavailable: the store did not confirm the outcome. It may or may not have been written; repeating converges.
	ErrUnavailable = errors.New("the store did not confirm the outcome")
	// ErrBusy: more is waiting than can be served soon. Nothing was begun.
	ErrBusy = errors.New("too many commands are waiting")
)
