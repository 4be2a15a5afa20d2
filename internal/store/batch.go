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
// As a rule there is one lane, in which one round follows the other, because larger rounds cost less. Only where more
// commands wait than a round is the better for, another lane is opened beside it, so that one works while the other waits
// for the disk, and it ends when they are less. Lanes are to each other what replicas are, except that no two have commands
// on the same task.
type Batcher struct {
	store idem.Store
	watch watchers
	judge judge
	queue queue
	lanes sync.WaitGroup

	// Told is called after each round, and Traced before it, if they are set: before the first command comes.
	Told func(Round)
	// Traced gives the context that a round speaks to the store under. The callers' contexts are only to be asked for what
	// they carry: a round goes on without them. What it returns is called at the round's end.
	Traced func(callers []context.Context) (ctx context.Context, end func())
}

// Round is what is told of a round.
type Round struct {
	Waited []time.Duration // each command, before it was taken into the round
	Took   time.Duration
}

// NewBatcher starts group commit over a store, in so many lanes at most. Close ends it.
func NewBatcher(s idem.Store, policy idem.Policy, lanes int) *Batcher {
	b := &Batcher{store: s}
	b.queue = queue{maxLanes: lanes, deep: deep, open: func() { b.lanes.Go(b.lane) }}
	b.judge = judge{store: s, policy: policy, clock: &clock{}, watch: &b.watch, recent: &recent{}}
	return b
}

// Close carries out what waits and stops. Commands that come later are refused with ErrUnavailable.
func (b *Batcher) Close() {
	b.queue.close()
	b.lanes.Wait()
	b.judge.apart.Wait()
}

// lane carries out one round after the other, until the queue has none for it.
func (b *Batcher) lane() {
	for calls := b.queue.take(nil); len(calls) > 0; calls = b.queue.take(calls) {
		for rest := calls; len(rest) > 0; {
			n := round(rest)
			b.carryOut(rest[:n:n])
			rest = rest[n:]
		}
	}
}

// carryOut is one round.
func (b *Batcher) carryOut(calls []*call) {
	taken := time.Now()
	waited := make([]time.Duration, len(calls))
	for i, c := range calls {
		waited[i] = taken.Sub(c.group.begun)
	}
	ctx, end := b.trace(calls)
	_ = b.judge.round(ctx, calls) // every caller has been told
	end()
	if b.Told != nil {
		b.Told(Round{Waited: waited, Took: time.Since(taken)})
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
func (b *Batcher) Queue() Queue { return b.queue.now() }

// Ready implements idem.Keeper.
func (b *Batcher) Ready(ctx context.Context) error { return b.store.Ready(ctx) }

// Watch implements idem.Keeper.
func (b *Batcher) Watch(taskID string) (<-chan struct{}, func()) { return b.watch.watch(taskID) }

// Do implements idem.Keeper.
func (b *Batcher) Do(ctx context.Context, cmds ...idem.Command) []idem.Result {
	g := newGroup(ctx, cmds)
	if err := b.queue.add(g); err != nil {
		for _, c := range g.calls {
			c.fail(err)
		}
	}
	return g.wait(ctx)
}

// group is the calls of one Do.
type group struct {
	calls   []*call
	bytes   int // of responses, while it is in the queue
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
