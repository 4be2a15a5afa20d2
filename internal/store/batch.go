package store

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
)

// Batcher is the idem.Keeper of a running service: group commit over a store.
//
// Commands that arrive while a round is in flight form the next one. There is no timer: a lone command waits for
// nobody. A caller that leaves does not cancel its round: what was decided is committed, and its retry finds it.
//
// There is one lane of rounds: two and three were measured, and slower on two cores.
type Batcher struct {
	store idem.Store
	watch watchers
	lane  lane
	done  sync.WaitGroup

	// Told is called after each round, and Traced before it, if they are set: before the first command comes.
	Told func(Round)
	// Traced gives the context that a round speaks to the store under. The callers' contexts are only to be asked for what
	// they carry: a round goes on without them. What it returns is called at the round's end.
	Traced func(callers []context.Context) (ctx context.Context, end func())
}

// Round is what is told of a round. What is in it is not to be kept.
type Round struct {
	Waited []time.Duration // each command, before it was taken into the round
	Took   time.Duration
}

// Queue is what waits, and how much of it there may be.
type Queue struct {
	Commands, MaxCommands int
	Bytes, MaxBytes       int   // of responses
	Refused               int64 // commands, so far, because it was full
}

// Limits of what waits and of what is carried out at once.
const (
	maxRound      = 1000      // commands
	maxRoundBytes = 8 << 20   // of responses
	maxQueue      = 20_000    // commands
	maxQueueBytes = 128 << 20 // of responses
)

// NewBatcher starts group commit over a store. Close ends it.
func NewBatcher(s idem.Store, policy idem.Policy) *Batcher {
	b := &Batcher{store: s}
	b.lane.judge = judge{store: s, policy: policy, clock: &clock{}, watch: &b.watch, recent: &recent{}}
	b.lane.more.L = &b.lane.mu
	b.done.Go(b.run)
	return b
}

// Close carries out what waits and stops. Commands that come later are refused with ErrUnavailable.
func (b *Batcher) Close() {
	b.lane.close()
	b.done.Wait()
}

// run carries out one round after the other.
func (b *Batcher) run() {
	defer b.lane.judge.apart.Wait()
	var waited []time.Duration
	for calls := b.lane.take(); len(calls) > 0; calls = b.lane.take() {
		taken := time.Now()
		waited = waited[:0]
		for _, c := range calls {
			waited = append(waited, taken.Sub(c.group.begun))
		}
		ctx, end := b.trace(calls)
		_ = b.lane.judge.round(ctx, calls) // every caller has been told
		end()
		if b.Told != nil {
			b.Told(Round{Waited: waited, Took: time.Since(taken)})
		}
	}
}

func (b *Batcher) trace(calls []*call) (context.Context, func()) {
	if b.Traced == nil {
		return context.Background(), func() {}
	}
	callers := make([]context.Context, 0, len(calls))
	for _, c := range calls {
		callers = append(callers, c.ctx)
	}
	return b.Traced(callers)
}

// Queue says what waits now.
func (b *Batcher) Queue() Queue {
	l := &b.lane
	l.mu.Lock()
	defer l.mu.Unlock()
	return Queue{Commands: len(l.queue), MaxCommands: maxQueue, Bytes: l.bytes, MaxBytes: maxQueueBytes, Refused: l.refused}
}

// Ready implements idem.Keeper.
func (b *Batcher) Ready(ctx context.Context) error { return b.store.Ready(ctx) }

// Watch implements idem.Keeper.
func (b *Batcher) Watch(taskID string) (<-chan struct{}, func()) { return b.watch.watch(taskID) }

// Do implements idem.Keeper.
func (b *Batcher) Do(ctx context.Context, cmds ...idem.Command) []idem.Result {
	g := newGroup(ctx, cmds)
	if err := b.lane.add(g.calls); err != nil {
		for _, c := range g.calls {
			c.fail(err)
		}
	}
	return g.wait(ctx)
}

// group is the calls of one Do.
type group struct {
	calls   []*call
	results []idem.Result
	begun   time.Time
	done    chan struct{}
	mu      sync.Mutex
	open    int
}

// call is one command on its way, and where its result goes.
type call struct {
	ctx    context.Context
	cmd    idem.Command
	group  *group
	result *idem.Result
}

func newGroup(ctx context.Context, cmds []idem.Command) *group {
	g := &group{results: make([]idem.Result, len(cmds)), begun: time.Now(), done: make(chan struct{}), open: len(cmds)}
	calls := make([]call, len(cmds))
	g.calls = make([]*call, len(cmds))
	for i, cmd := range cmds {
		g.results[i].Err = idem.ErrUnavailable // until it is known
		calls[i] = call{ctx: ctx, cmd: cmd, group: g, result: &g.results[i]}
		g.calls[i] = &calls[i]
	}
	if len(cmds) == 0 {
		close(g.done)
	}
	return g
}

// wait returns the results; where the context ends before all are there, the others are unknown.
func (g *group) wait(ctx context.Context) []idem.Result {
	select {
	case <-g.done:
		return g.results
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.results)
}

func (c *call) answer(out idem.Outcome) { c.finish(idem.Result{Outcome: out}) }
func (c *call) fail(err error)          { c.finish(idem.Result{Err: err}) }

func (c *call) finish(r idem.Result) {
	g := c.group
	g.mu.Lock()
	defer g.mu.Unlock()
	*c.result = r
	if g.open--; g.open == 0 {
		close(g.done)
	}
}

// weight is the bytes that a command brings beyond its own few.
func (c *call) weight() int {
	switch cmd := c.cmd.(type) {
	case *idem.Record:
		return weight(cmd.Response)
	case *idem.Release:
		return weight(cmd.Response)
	}
	return 0
}

// lane is the queue, and who carries out what is taken from it.
type lane struct {
	judge judge

	mu      sync.Mutex
	more    sync.Cond
	queue   []*call
	bytes   int
	refused int64
	closed  bool
}

func (l *lane) add(calls []*call) error {
	bytes := 0
	for _, c := range calls {
		bytes += c.weight()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return idem.ErrUnavailable
	case len(l.queue)+len(calls) > maxQueue || l.bytes > 0 && l.bytes+bytes > maxQueueBytes:
		l.refused += int64(len(calls))
		return idem.ErrBusy
	}
	l.queue = append(l.queue, calls...)
	l.bytes += bytes
	l.more.Signal()
	return nil
}

// take waits for commands and returns the next round of them, in the order in which they came; none when it is over.
func (l *lane) take() []*call {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) == 0 && !l.closed {
		l.more.Wait()
	}
	n, bytes := 0, 0
	for n < len(l.queue) && n < maxRound && bytes < maxRoundBytes {
		bytes += l.queue[n].weight()
		n++
	}
	round := l.queue[:n:n]
	l.queue = l.queue[n:]
	if len(l.queue) == 0 {
		l.queue = nil
	}
	l.bytes -= bytes
	return round
}

func (l *lane) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.more.Signal()
}
