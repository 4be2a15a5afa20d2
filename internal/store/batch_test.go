package store

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
)

// A round is told of once, with all its commands, and speaks to the store under the context that it was given for them.
func TestRoundsAreTold(t *testing.T) {
	t.Parallel()
	type name struct{}
	goOn, begun := make(chan struct{}), make(chan struct{}, 10)
	backend := openTest(t, "sqlite::memory:", new(atomic.Int64))
	var strange atomic.Int64
	b := NewBatcher(&faulty{backend, func(ctx context.Context, c []idem.Change, real idem.Store) ([]bool, time.Time, error) {
		if ctx.Value(name{}) != "round" {
			strange.Add(1)
		}
		begun <- struct{}{}
		<-goOn
		return real.Swap(ctx, c)
	}}, idem.DefaultPolicy)
	var mu sync.Mutex
	var told []Round
	var callers []int
	var ended int
	b.Told = func(r Round) {
		mu.Lock()
		defer mu.Unlock()
		r.Waited = append([]time.Duration(nil), r.Waited...)
		told = append(told, r)
	}
	b.Traced = func(all []context.Context) (context.Context, func()) {
		mu.Lock()
		defer mu.Unlock()
		for _, ctx := range all {
			if ctx.Value(name{}) != "caller" {
				strange.Add(1)
			}
		}
		callers = append(callers, len(all))
		return context.WithValue(context.Background(), name{}, "round"), func() { ended++ }
	}
	ctx := context.WithValue(t.Context(), name{}, "caller")
	results := make(chan []idem.Result, 2)
	go func() { results <- b.Do(ctx, reserve(fresh(), "a")) }()
	<-begun
	go func() { results <- b.Do(ctx, reserve(fresh(), "b"), reserve(fresh(), "c"), reserve(fresh(), "d")) }()
	for deadline := time.Now().Add(10 * time.Second); b.Queue().Commands != 3; {
		if time.Now().After(deadline) {
			t.Fatalf("in the queue: %+v", b.Queue())
		}
	}
	held := time.Now()
	close(goOn)
	for range 2 {
		outcomes(t, <-results)
	}
	b.Close()
	if len(told) != 2 || len(told[0].Waited) != 1 || len(told[1].Waited) != 3 {
		t.Fatalf("told %+v", told)
	}
	if least := time.Since(held); told[0].Took <= 0 || told[1].Took <= 0 || told[1].Took > least {
		t.Errorf("rounds that took %s and %s, the second within %s", told[0].Took, told[1].Took, least)
	}
	if len(callers) != 2 || callers[0] != 1 || callers[1] != 3 || ended != 2 || strange.Load() != 0 {
		t.Errorf("rounds of %v callers, %d ended, %d contexts are not theirs", callers, ended, strange.Load())
	}
	if q := b.Queue(); q.Commands != 0 || q.Refused != 0 || q.MaxCommands != maxQueue || q.MaxBytes != maxQueueBytes {
		t.Errorf("in the end the queue is %+v", q)
	}
}

// What is sent away is counted by the command.
func TestTheQueueCountsWhomItSendsAway(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	backend := openTest(t, "sqlite::memory:", new(atomic.Int64))
	b := NewBatcher(&faulty{backend, func(ctx context.Context, c []idem.Change, real idem.Store) ([]bool, time.Time, error) {
		<-goOn
		return real.Swap(ctx, c)
	}}, idem.DefaultPolicy)
	t.Cleanup(b.Close)
	defer close(goOn)
	many := make([]idem.Command, maxQueue+1)
	for i := range many {
		many[i] = reserve(fresh(), "flood")
	}
	if res := b.Do(t.Context(), many...); !errors.Is(res[0].Err, idem.ErrBusy) {
		t.Fatalf("got %+v", res[0])
	}
	if q := b.Queue(); q.Refused != maxQueue+1 || q.Commands != 0 {
		t.Errorf("the queue is %+v", q)
	}
}
