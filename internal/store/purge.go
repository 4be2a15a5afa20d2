package store

import (
	"context"
	"fmt"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
)

// Swept is what one step of a sweep came to.
type Swept struct {
	Deleted int           // entries whose retention had ended
	Lag     time.Duration // how long ago that of the first of them had

	// InDoubt are keys whose retention has ended in doubt. They stay until that has been told to the trail.
	InDoubt  []idem.Key
	DoubtLag time.Duration // how long ago that of the first of them had ended
	Ended    int           // how many of them this step told of; each is counted once, whoever else purges

	// Behind is the longest Lag or DoubtLag of this purger's steps in about the last sweep, whatever this step found.
	//
	// No step knows the oldest row past its retention that is still there: it would have to read the whole table. But such
	// a row ended after a purger last came by, so the time between two visits bounds it, and what is found at a visit
	// shows that time. So the largest Behind of all replicas is how far the purge is behind: up to half an hour where there is
	// little to purge, because a sweep takes that long, and more and more where it does not keep up.
	Behind time.Duration

	Steps int   // of a sweep over the whole table, as large as it is now
	Next  int64 // where the next part begins; 0: this was the last
}

// SweptEvents is what one purge of the trail came to.
type SweptEvents struct {
	Deleted    int           // events, one by one
	DeletedLag time.Duration // how long ago the retention of the first of them had ended
	Weeks      []string      // partitions that were dropped, oldest first, with all that was in them
	// Waiting are partitions that could go and did not, because somebody used the trail: the purge waits for nobody.
	Waiting  []string
	WeeksLag time.Duration // how long ago the retention of the first moment of the first of either had ended
}

// Purger deletes what is past its retention, a few rows at a time. Any number of replicas may do it at once: they share
// the work and wait for nothing. Nobody depends on it: a key past its retention behaves as absent, purged or not.
//
// A Purger itself is used by one goroutine.
type Purger struct {
	backend        Backend
	keeper         idem.Keeper
	eventRetention time.Duration

	// lags are the longest of the present and of the former sweepTime.
	lags   [2]time.Duration
	turned time.Time

	// Told is called with what each step came to, if it is set, and ToldEvents with what each purge of the trail did.
	Told       func(Swept)
	ToldEvents func(SweptEvents)
}

const (
	// sweepTime is how long a sweep over a table takes at most that has little to purge.
	sweepTime = 30 * time.Minute
	// sweepRest is the longest pause, where a table is so small that a few steps are a sweep: what is loaded into it, or
	// what many workers leave at once, is not found half an hour late.
	sweepRest = time.Minute
	// The pause after a step that found something, as a multiple of what the step took: the purge takes at most a fifth
	// of one connection's time.
	sweepEase    = 4
	sweepPause   = 5 * time.Millisecond // at least
	eventsEvery  = time.Hour
	eventsRetry  = 5 * time.Minute // when a partition could not be dropped
	purgeOnFault = 10 * time.Second
	// doubtsAtATime bounds how many ends of doubts are told together, so that those who work do not wait behind them.
	doubtsAtATime = 100
)

// sqlInDoubt says of a row without a live lease, in either engine's SQL, what idem.Entry.InDoubt does.
const sqlInDoubt = `state <> 'recorded' AND (doubts > 0 OR state IN ('reserved', 'dispatched') AND (NOT explicit OR dispatched_at IS NOT NULL))`

// NewPurger makes a purger; Run runs it.
func NewPurger(b Backend, k idem.Keeper, eventRetention time.Duration) *Purger {
	return &Purger{backend: b, keeper: k, eventRetention: eventRetention}
}

// Run purges until the context ends. A fault is told, and purging goes on a little later.
func (p *Purger) Run(ctx context.Context, fault func(error)) {
	var nextEvents time.Time
	for ctx.Err() == nil {
		begun := time.Now()
		swept, err := p.Step(ctx)
		pause := min(sweepRest, sweepTime/time.Duration(max(swept.Steps, 1)))
		if swept.found() {
			pause = min(pause, ease(begun))
		}
		if now := time.Now(); err == nil && now.After(nextEvents) {
			var events SweptEvents
			events, err = p.purgeEvents(ctx, false)
			nextEvents = now.Add(eventsEvery)
			if err != nil || len(events.Waiting) > 0 {
				nextEvents = now.Add(eventsRetry)
			}
		}
		if err != nil && ctx.Err() == nil {
			fault(err)
			pause = purgeOnFault
		}
		rest(ctx, pause)
	}
}

func (s Swept) found() bool { return s.Deleted > 0 || len(s.InDoubt) > 0 }

// ease is the pause after a step, in which others have the database.
func ease(begun time.Time) time.Duration { return max(sweepPause, sweepEase*time.Since(begun)) }

func rest(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Step sweeps a part of the table.
func (p *Purger) Step(ctx context.Context) (Swept, error) {
	swept, err := p.backend.Sweep(ctx)
	return p.finish(ctx, swept, err)
}

// finish tells the trail of the doubts that a step found, and then whoever wants to know of the step.
func (p *Purger) finish(ctx context.Context, swept Swept, err error) (Swept, error) {
	if err != nil {
		err = fmt.Errorf("purge entries: %w", err)
	} else {
		swept.Ended, err = p.endDoubts(ctx, swept.InDoubt)
	}
	if now := time.Now(); now.Sub(p.turned) > sweepTime {
		p.lags, p.turned = [2]time.Duration{0, p.lags[0]}, now
	}
	p.lags[0] = max(p.lags[0], swept.Lag, swept.DoubtLag)
	swept.Behind = max(p.lags[0], p.lags[1])
	if p.Told != nil && (err == nil || swept.found()) {
		p.Told(swept)
	}
	return swept, err
}

// endDoubts has the end of each doubt told, and counts those of which nobody else told it first. What cannot be told now
// is found by the next sweep. What was begun is finished, so that it is known and counted.
func (p *Purger) endDoubts(ctx context.Context, keys []idem.Key) (ended int, err error) {
	for len(keys) > 0 && err == nil {
		if ctx.Err() != nil {
			return ended, ctx.Err()
		}
		n := min(doubtsAtATime, len(keys))
		cmds := make([]idem.Command, n)
		for i, k := range keys[:n] {
			cmds[i] = &idem.Expire{Call: idem.Call{Key: k, Actor: idem.Actor{Token: "idemstore", RequestID: "purge"}}}
		}
		for i, r := range p.keeper.Do(context.WithoutCancel(ctx), cmds...) {
			switch {
			case r.Err == nil && r.Outcome.First:
				ended++
			case r.Err != nil && err == nil:
				err = fmt.Errorf("tell that the doubt of %s has ended: %w", keys[i], r.Err)
			}
		}
		keys = keys[n:]
	}
	return ended, err
}

// Events deletes the events that are past their retention.
func (p *Purger) Events(ctx context.Context) error {
	_, err := p.purgeEvents(ctx, false)
	return err
}

func (p *Purger) purgeEvents(ctx context.Context, dry bool) (SweptEvents, error) {
	swept, err := p.backend.PurgeEvents(ctx, p.eventRetention, dry)
	if p.ToldEvents != nil && !dry && (err == nil || swept.Deleted > 0 || len(swept.Weeks) > 0) {
		p.ToldEvents(swept)
	}
	if err != nil {
		err = fmt.Errorf("purge events: %w", err)
	}
	return swept, err
}

// Purged is what one whole sweep came to, or would.
type Purged struct {
	Entries, InDoubt       int
	EntriesLag, InDoubtLag time.Duration // as Swept's
	Events                 SweptEvents
	Whole                  bool // it came to its end, and nothing is left
}

// Whole sweeps over the whole table once, from its beginning, and then over the trail, beside whatever else purges. When the
// context ends it stops between two transactions, with what was done until then. Dry, it changes nothing and says what
// would go. Progress is told after each step, with the part of the table that was swept.
func (p *Purger) Whole(ctx context.Context, dry bool, progress func(part float64, sofar Purged)) (Purged, error) {
	var sum Purged
	for from, step, more := int64(0), 1, true; more; step++ {
		if ctx.Err() != nil {
			return sum, ctx.Err()
		}
		begun := time.Now()
		swept, err := p.backend.SweepFrom(ctx, from, dry)
		switch {
		case !dry:
			swept, err = p.finish(ctx, swept, err)
		case err != nil:
			err = fmt.Errorf("look for what to purge: %w", err)
		default:
			swept.Ended = len(swept.InDoubt)
		}
		sum.Entries, sum.EntriesLag = sum.Entries+swept.Deleted, max(sum.EntriesLag, swept.Lag)
		sum.InDoubt, sum.InDoubtLag = sum.InDoubt+swept.Ended, max(sum.InDoubtLag, swept.DoubtLag)
		if err != nil {
			return sum, err
		}
		progress(min(float64(step)/float64(max(swept.Steps, 1)), 1), sum)
		if from, more = swept.Next, swept.Next > 0; more && !dry {
			rest(ctx, ease(begun))
		}
	}
	var err error
	sum.Events, err = p.purgeEvents(ctx, dry)
	sum.Whole = err == nil && len(sum.Events.Waiting) == 0
	return sum, err
}
