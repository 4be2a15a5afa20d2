package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
)

// Swept is what one step of a sweep came to.
type Swept struct {
	Deleted int           // entries whose retention had ended
	Lag     time.Duration // how long ago the first of them had
	// InDoubt are keys whose retention has ended in doubt. They stay until that has been told to the trail.
	InDoubt []idem.Key
	Steps   int // of a sweep over the whole table, as large as it is now
}

// Purger deletes what is past its retention, a few rows at a time, for ever. Any number of replicas may do it at once:
// they share the work and wait for nothing. Nobody depends on it: a key past its retention behaves as absent, purged or
// not.
type Purger struct {
	backend        Backend
	keeper         idem.Keeper
	eventRetention time.Duration

	// Told is called with what each step came to, if it is set.
	Told func(Swept)
}

const (
	// sweepTime is how long a sweep over a table takes that has little to purge.
	sweepTime = 30 * time.Minute
	// The pause after a step that found something, as a multiple of what the step took: the purge takes at most a fifth
	// of one connection's time.
	sweepEase    = 4
	sweepPause   = 10 * time.Millisecond // at least
	eventsEvery  = time.Hour
	purgeOnFault = 10 * time.Second
)

// sqlInDoubt says of a row without a live lease, in either engine's SQL, what idem.Entry.InDoubt does.
const sqlInDoubt = `state <> 'recorded' AND (doubts > 0 OR state IN ('reserved', 'dispatched') AND (NOT explicit OR dispatched_at IS NOT NULL))`

// NewPurger makes a purger; Run runs it.
func NewPurger(b Backend, k idem.Keeper, eventRetention time.Duration) *Purger {
	return &Purger{backend: b, keeper: k, eventRetention: eventRetention}
}

// Run purges until the context ends. A fault is told, and purging goes on a little later.
func (p *Purger) Run(ctx context.Context, fault func(error)) {
	var events time.Time
	for ctx.Err() == nil {
		begun := time.Now()
		swept, err := p.Step(ctx)
		if err == nil && time.Since(events) > eventsEvery {
			events = begun
			err = p.Events(ctx)
		}
		pause := sweepTime / time.Duration(max(swept.Steps, 1))
		switch {
		case err != nil && ctx.Err() == nil:
			fault(err)
			pause = purgeOnFault
		case swept.Deleted > 0:
			pause = min(pause, max(sweepPause, sweepEase*time.Since(begun)))
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// Step sweeps a part of the table.
func (p *Purger) Step(ctx context.Context) (Swept, error) {
	swept, err := p.backend.Sweep(ctx)
	if err != nil {
		return swept, fmt.Errorf("purge entries: %w", err)
	}
	if p.Told != nil {
		p.Told(swept)
	}
	var cmds []idem.Command
	for _, k := range swept.InDoubt {
		cmds = append(cmds, &idem.Expire{Call: idem.Call{Key: k, Actor: idem.Actor{Token: "idemstore", RequestID: "purge"}}})
	}
	var errs []error
	for _, r := range p.keeper.Do(ctx, cmds...) {
		errs = append(errs, r.Err)
	}
	return swept, errors.Join(errs...)
}

// Events deletes the events that are past their retention.
func (p *Purger) Events(ctx context.Context) error {
	if err := p.backend.PurgeEvents(ctx, p.eventRetention); err != nil {
		return fmt.Errorf("purge events: %w", err)
	}
	return nil
}
