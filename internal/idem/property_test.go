package idem_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/idemstore/idemstore/internal/idem"
)

// No sequence of commands, at whatever times, breaks a promise.
func TestPromisesHold(t *testing.T) {
	t.Parallel()
	for i := range 4 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				n := rapid.IntRange(1, 600).Draw(t, "length") // a slice left to itself is short
				newWitness().perform(t, rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "script"))
			})
		})
	}
}

// perform carries out what a script of bytes says.
func (x *witness) perform(t tester, script []byte) {
	t.Helper()
	pick := func(n int) int {
		if len(script) == 0 {
			return 0
		}
		b := script[0]
		script = script[1:]
		return int(b) % n
	}
	for len(script) > 0 {
		x.act(t, pick)
	}
}

// act lets time pass and carries out one command, all as pick says: a number from 0 below n.
func (x *witness) act(t tester, pick func(n int) int) {
	t.Helper()
	x.pass(x.wait(pick))
	x.lag = 0
	if pick(8) == 7 {
		x.lag = []time.Duration{time.Microsecond, time.Second, lease * time.Second}[pick(3)]
	}
	x.see(t, x.command(pick))
}

// wait is how long nothing happens: not at all, for a while, or up to a moment at which something ends, or just before.
func (x *witness) wait(pick func(n int) int) time.Duration {
	kind := pick(10)
	switch {
	case kind < 4:
		return 0
	case kind < 6:
		return []time.Duration{time.Microsecond, time.Second, lease * time.Second, time.Hour, day}[pick(5)]
	}
	var ends []time.Time
	for attempt := range int32(attempts) {
		if e := x.rows[attempt]; e != nil {
			ends = append(ends, e.LeaseUntil, e.LeaseUntil) // the likelier
			if kind == 9 {
				ends = append(ends, e.ExpiresAt)
			}
		}
	}
	ends = slices.DeleteFunc(ends, func(end time.Time) bool { return !end.After(x.now) })
	if len(ends) == 0 {
		return 0
	}
	until := ends[pick(len(ends))].Sub(x.now)
	if pick(3) == 0 {
		return until - time.Microsecond
	}
	return until
}

const attempts = 3

var names = []string{"a", "b", "c", "d", "e"}

// command is any command, likelier one that finds something to do.
func (x *witness) command(pick func(n int) int) idem.Command {
	attempt := int32([]int{0, 0, 1, 1, 2}[pick(5)])
	name := names[pick(len(names))]
	if e := x.rows[attempt]; e != nil && pick(2) == 0 {
		// The present holder is the likelier caller.
		if i := slices.IndexFunc(names, func(n string) bool { return rid(n) == e.ReservationID }); i >= 0 {
			name = names[i]
		}
	}
	response := func() *idem.Response {
		return []func() *idem.Response{answerA, answerB}[pick(2)]()
	}
	maybe := func() *idem.Response {
		if pick(2) == 0 {
			return nil
		}
		return response()
	}
	switch pick(13) {
	case 0, 1, 2, 3:
		return x.reserve(attempt, names[pick(len(names))], pick)
	case 4:
		return dispatch(attempt, name)
	case 5:
		c := renew(attempt, name)
		c.LeaseSeconds = []int{1, lease, 3600}[pick(3)]
		return c
	case 6, 7:
		c := record(attempt, name, response())
		c.RetentionSeconds = []int{0, idem.MinRetention}[pick(2)]
		c.RequestHash = []string{"", "sha256:aa", "sha256:bb"}[pick(3)]
		return c
	case 8:
		c := release(attempt, name)
		c.Response, c.EarlierNotDone = maybe(), pick(2) == 0
		return c
	case 9:
		return unreserved(attempt, "o-"+name, response())
	case 10:
		return replay(attempt)
	case 11:
		return evict(attempt, "o-"+name, pick(2) == 0)
	default:
		c := resolve(attempt, int64(1+pick(3)), maybe())
		if e := x.rows[attempt]; e != nil && e.Fence > 0 && pick(2) == 0 {
			c.Fence = e.Fence
		}
		c.Force = pick(2) == 0
		return c
	}
}

func (x *witness) reserve(attempt int32, name string, pick func(n int) int) *idem.Reserve {
	c := reserve(attempt, name)
	c.RequestHash = []string{"", "sha256:aa", "sha256:aa", "sha256:bb"}[pick(4)]
	c.Explicit, c.TaskScope = pick(2) == 0, pick(4) == 0
	c.LeaseSeconds = []int{1, lease, 3600}[pick(3)]
	if pick(8) == 0 {
		c.Owner = "o-other"
	}
	switch pick(4) {
	case 0, 1: // the newest look, or any that there ever was
		if n := len(x.looks); n > 0 {
			c.Takeovers = x.looks[n-1]
			if pick(3) == 0 {
				c.Takeovers = x.looks[pick(n)]
			}
		}
	case 2:
		for other := range int32(attempts) {
			c.Takeovers = append(c.Takeovers, idem.Takeover{Attempt: other, Fence: int64(1 + pick(4))})
		}
	}
	return c
}
