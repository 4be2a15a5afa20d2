package store

import (
	"slices"
	"sync"

	"github.com/idemstore/idemstore/internal/idem"
)

// Queue is what waits, and how much of it there may be.
type Queue struct {
	Commands, MaxCommands int
	Bytes, MaxBytes       int   // of responses
	Refused               int64 // commands, so far, because it was full
	Lanes                 int   // that are open
}

// Limits of what waits and of what is carried out at once.
const (
	maxRound      = 1000      // commands
	maxRoundBytes = 8 << 20   // of responses
	maxQueue      = 20_000    // commands
	maxQueueBytes = 128 << 20 // of responses

	// deep is how many commands have to wait for another lane to be worth while: while one waits for the disk, the other
	// works. Measured on two cores with two lanes, pairs at 64 connections: 7 to 9 % more than with 128, 5 % more than with 64,
	// 24 % more than with 16, where rounds become too small. At 16, at 256 and in batches of 100 all but 16 are the same.
	deep = 32
)

// queue is what waits for a lane, and how many lanes there are.
type queue struct {
	maxLanes, deep int
	open           func() // opens a lane

	mu       sync.Mutex
	calls    []*call
	bytes    int
	refused  int64
	lanes    int
	underway map[string]bool // tasks that lanes have taken
	passed   int             // of the calls, those on such tasks, when a lane last looked
	closed   bool
}

// add has another lane opened where it is worth while.
func (q *queue) add(g *group) error {
	for _, c := range g.calls {
		g.bytes += c.weight()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return idem.ErrUnavailable
	case len(q.calls)+len(g.calls) > maxQueue || q.bytes > 0 && q.bytes+g.bytes > maxQueueBytes:
		q.refused += int64(len(g.calls))
		return idem.ErrBusy
	}
	q.calls = append(q.calls, g.calls...)
	q.bytes += g.bytes
	if q.lanes < q.maxLanes && len(q.calls)-q.passed > q.lanes*q.deep {
		q.lanes++
		q.open()
	}
	return nil
}

// take gives a lane its share of what waits, after what it has done. Nothing ends the lane.
//
// Calls that came together stay together, in one lane: those on one task are to be carried out one after the other. So are
// all calls on a task that a lane has under way: what waits for it is passed over, and all that waits behind that on the same
// tasks, or lanes would only refute each other's guesses.
func (q *queue) take(done []*call) []*call {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range done {
		delete(q.underway, c.cmd.Target().TaskID)
	}
	var taken []*call
	if len(q.calls) > (q.lanes-1)*q.deep {
		taken = q.pick(max(q.deep, (len(q.calls)+q.lanes-1)/q.lanes))
	}
	if len(taken) == 0 { // other lanes are enough for what waits, or have it to themselves
		q.lanes--
	}
	if q.maxLanes > 1 { // else there is no other lane to keep off
		if q.underway == nil {
			q.underway = make(map[string]bool)
		}
		for _, c := range taken {
			q.underway[c.cmd.Target().TaskID] = true
		}
	}
	return taken
}

// pick takes about so many calls out of the queue, of no task that is under way.
func (q *queue) pick(share int) (taken []*call) {
	var passed []*call
	var held map[string]bool // the tasks of what was passed over
	waits := func(c *call) bool { return q.underway[c.cmd.Target().TaskID] || held[c.cmd.Target().TaskID] }
	i, bytes := 0, 0
	for i < len(q.calls) && len(taken) < share && bytes < maxRoundBytes {
		g := q.calls[i].group
		if len(taken) > 0 && len(taken)+len(g.calls) > maxRound {
			break
		}
		i += len(g.calls)
		if !slices.ContainsFunc(g.calls, waits) {
			taken = append(taken, g.calls...)
			bytes += g.bytes
			continue
		}
		passed = append(passed, g.calls...)
		if held == nil {
			held = make(map[string]bool)
		}
		for _, c := range g.calls {
			held[c.cmd.Target().TaskID] = true
		}
	}
	q.calls = q.calls[i:]
	if len(passed) > 0 {
		q.calls = append(passed, q.calls...)
	}
	if len(q.calls) == 0 {
		q.calls = nil
	}
	q.bytes -= bytes
	q.passed = len(passed)
	return taken
}

// round is how many of the calls make a round.
func round(calls []*call) (n int) {
	for bytes := 0; n < len(calls) && n < maxRound && bytes < maxRoundBytes; n++ {
		bytes += calls[n].weight()
	}
	return n
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}

func (q *queue) now() Queue {
	q.mu.Lock()
	defer q.mu.Unlock()
	return Queue{
		Commands: len(q.calls), MaxCommands: maxQueue, Bytes: q.bytes, MaxBytes: maxQueueBytes, Refused: q.refused,
		Lanes: q.lanes,
	}
}
