package store

import (
	"context"

	"github.com/idemstore/idemstore/internal/idem"
)

// Direct is the idem.Keeper that carries each command out by itself, in its caller's goroutine: what group commit is
// measured against, and what it must be indistinguishable from.
type Direct struct {
	judge judge
}

// NewDirect returns a Direct over a store.
func NewDirect(s idem.Store, policy idem.Policy) *Direct {
	return &Direct{judge{store: s, policy: policy, clock: &clock{}, watch: &watchers{}, recent: &recent{}}}
}

// Do implements idem.Keeper.
func (d *Direct) Do(ctx context.Context, cmds ...idem.Command) []idem.Result {
	g := newGroup(ctx, cmds)
	for _, c := range g.calls {
		_ = d.judge.round(context.WithoutCancel(ctx), []*call{c}) // the caller has been told
	}
	return g.wait(ctx)
}

// Watch implements idem.Keeper.
func (d *Direct) Watch(taskID string) (<-chan struct{}, func()) { return d.judge.watch.watch(taskID) }

// Ready implements idem.Keeper.
func (d *Direct) Ready(ctx context.Context) error { return d.judge.store.Ready(ctx) }

// Close does nothing: no command outlives its caller.
func (d *Direct) Close() {}
