package crashtest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// live starts the worker, and again whenever it is gone, until the case is decided.
func (t *trial) live(ctx context.Context) error {
	t.began = time.Now()
	for {
		if err := t.start(); err != nil {
			return err
		}
		decided, err := t.attend(ctx)
		t.worker.kill()
		if decided || err != nil {
			return err
		}
	}
}

// start begins a life. The lock keeps the worker's first request waiting until that is noted.
func (t *trial) start() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	w, err := startWorker(t.opts.Command, t.environ, t.mark(), t.log)
	if err != nil {
		return err
	}
	t.worker, t.life = w, life{started: time.Now(), told: make(map[string]bool)}
	t.seen.Lives++
	return nil
}

// maxCrashes is how often a worker may end by itself with a fault before it is given up. To end well is no fault: there are
// workers that do so after each round.
const maxCrashes = 5

// attend watches the present worker until the case is decided (true), or the worker is gone (false).
func (t *trial) attend(ctx context.Context) (decided bool, err error) {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		gone := false
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-t.worker.exited:
			gone = true
			t.crashed()
		case <-ticker.C:
		}
		if decided, err := t.decided(ctx); decided || err != nil {
			return decided, err
		}
		if err := t.unfit(gone); gone || err != nil {
			return false, err
		}
	}
}

// crashed counts the end of a process that nobody killed.
func (t *trial) crashed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.life.killed && t.worker.status != endedWell {
		t.seen.Crashes++
	}
}

// decided says whether there is nothing more to wait for: the task has ended and nobody holds its keys, or a doubt stands.
func (t *trial) decided(ctx context.Context) (bool, error) {
	now := time.Now()
	t.mu.Lock()
	if t.endedAt.IsZero() && t.engine.end() != open {
		t.endedAt = now
	}
	ended, over := !t.endedAt.IsZero(), t.worked(now) > t.opts.Patience || t.seen.Crashes >= maxCrashes
	waited := ended && now.Sub(t.endedAt) > t.opts.MaxLease+time.Second // longer than a lease that nobody renews
	stands := t.stands(now)
	speechless := !t.firstGiven.IsZero() && now.Sub(t.firstGiven) > refusal
	fault := t.seen.fault
	t.mu.Unlock()
	if speechless {
		t.letConnect()
	}
	if fault != nil || !ended && !stands && !over {
		return false, fault
	}
	held, doubts, err := t.lookAtKeys(ctx)
	settled := !held && (ended || doubts > 0)
	return settled || waited || over, err
}

// maxStarts is how many starts are not counted as work. A worker that ends after each round may go on for ever.
const maxStarts = 10

// worked is how long the case has lasted, without the time that the worker's processes took to start. The caller holds t.mu.
func (t *trial) worked(now time.Time) time.Duration {
	starts := t.starting
	if !t.life.fetched && t.seen.Lives <= maxStarts {
		starts += now.Sub(t.life.started)
	}
	return now.Sub(t.began) - starts
}

// unfit says why no test can be made with the worker.
func (t *trial) unfit(gone bool) error {
	t.mu.Lock()
	life := t.life
	t.mu.Unlock()
	switch {
	case life.fetched:
		return nil
	case gone && !life.killed:
		return t.noFetch("ended before it called fetch-and-lock at CONDUIT_URL: " + t.worker.status)
	case !gone && time.Since(life.started) > t.opts.StartTimeout:
		return t.noFetch(fmt.Sprintf("did not call fetch-and-lock at CONDUIT_URL within %s of its start", t.opts.StartTimeout))
	default:
		return nil
	}
}

// stands says whether the worker has left a doubt to the operator: it was told again after it had time to do something about
// it, or, if it does not even ask again, it had a lot of time. The caller holds t.mu.
func (t *trial) stands(now time.Time) bool {
	quiet := t.opts.Settle
	if t.seen.ToldInDoubt < 2 {
		quiet *= 5
	}
	return t.seen.ToldInDoubt > 0 && now.Sub(t.doubtSince) > quiet && now.Sub(t.lastActivity) > quiet
}

// refusal is how long an upstream refuses connections of a worker that says nothing about it.
const refusal = time.Second

func (t *trial) noFetch(what string) error {
	if topics := t.engine.otherTopics(); len(topics) > 0 {
		return fmt.Errorf("the worker fetches the topics %s and never %s; say by --handler what it handles", strings.Join(topics, ", "), t.Handler)
	}
	return fmt.Errorf("the worker (%s) %s.%s", strings.Join(t.opts.Command, " "), what, lastLines(t.log.Name(), 10))
}

// lookAtKeys asks the store what has become of the keys, and whether one is still held.
func (t *trial) lookAtKeys(ctx context.Context) (held bool, doubts int, err error) {
	t.mu.Lock()
	keys := slices.Collect(maps.Keys(t.keys))
	t.mu.Unlock()
	unsettled := make(map[key]bool)
	for _, k := range keys {
		about, state, err := t.opts.Store.look(ctx, t.client, k)
		if err != nil {
			return false, 0, err
		}
		held = held || state == stateHeld
		if state == stateHeld || state == stateInDoubt {
			unsettled[about] = true
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen.InDoubt = nil
	for k := range unsettled {
		t.seen.InDoubt = append(t.seen.InDoubt, k.String())
	}
	slices.Sort(t.seen.InDoubt)
	return held, len(unsettled), nil
}
