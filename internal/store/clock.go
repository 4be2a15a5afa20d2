package store

import (
	"sync"
	"time"
)

// clock extrapolates the database's time from the last time that it told, by this process's monotonic clock.
//
// What it says is never later than the database's own: the time was read before its answer arrived, and counts from the
// arrival. So a lease may be thought live here for a moment longer than it is, which the store's guard (Change.Before)
// catches; it is never thought passed too early. And it says by how much the database may be ahead: the time was not
// read before it was asked for.
type clock struct {
	mu     sync.Mutex
	told   time.Time // the database's, when it was last told
	asked  time.Time // this process's, when it was asked for
	heard  time.Time // this process's, when the answer arrived
	latest time.Time // the latest answer, so that time does not run backwards by a slow exchange
}

const (
	// clockTrust is how long an extrapolation is used without hearing from the database: crystals drift by tens of
	// microseconds a second.
	clockTrust = 10 * time.Second
	// clockStep is a backward step that is the database's own (a failover), not a slow answer.
	clockStep = time.Second
)

// hear takes the time that the database told in an answer that has just arrived.
func (c *clock) hear(told, asked time.Time) {
	heard := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told, c.asked, c.heard = told, asked, heard
	if c.latest.Sub(told) > clockStep {
		c.latest = told
	}
}

// now is the database's time and by how much it may be ahead of that, if it was heard lately enough.
func (c *clock) now() (now time.Time, ahead time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	since := time.Since(c.heard)
	if c.told.IsZero() || since > clockTrust {
		return time.Time{}, 0, false
	}
	if now := c.told.Add(since).UTC().Truncate(time.Microsecond); now.After(c.latest) {
		c.latest = now
	}
	ahead = c.told.Add(time.Since(c.asked)).Sub(c.latest).Truncate(time.Microsecond) + time.Microsecond
	return c.latest, max(ahead, 0), true
}
