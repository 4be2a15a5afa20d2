package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
)

const (
	// maxTries bounds how often commands are decided anew because others changed their rows meanwhile.
	maxTries = 8
	// storeTime bounds one load or swap.
	storeTime = 6 * time.Second
	// apartAtATime bounds how many tasks are carried out at a time, each by itself, after a swap that failed for one of
	// them; apartFailures how many may fail in a row before the fault is taken to be the store's.
	apartAtATime  = 4
	apartFailures = 3
)

// judge carries rounds of commands out: load or guess, decide, swap, and again for what others changed meanwhile.
type judge struct {
	store  idem.Store
	policy idem.Policy
	clock  *clock
	watch  *watchers
	recent *recent
	apart  sync.WaitGroup // what is carried out aside from the lane
}

// docket is the commands of a round on one task, in order, and what is known and changed of it.
type docket struct {
	taskID string
	calls  []*call
	task   idem.Task
	// guessed: task is a guess. Only a change, whose version is checked, proves an outcome.
	guessed bool
	load    bool
	bodies  []int32 // attempts whose whole response is wanted beside those of the commands' own
	changes map[int32]*idem.Change
	ready   []verdict
	later   []*call // to be decided when what is written now is
}

// open is the commands that were not answered, in order.
func (d *docket) open() []*call { return append(slices.Clip(d.calls), d.later...) }

// verdict is an outcome that waits for its changes to be written.
type verdict struct {
	call    *call
	outcome idem.Outcome
	depends []int32 // attempts
}

// round carries commands out and answers each. It returns what kept it from writing, if anything did. The context is the
// round's own, which no caller cancels.
func (j *judge) round(ctx context.Context, calls []*call) error {
	dockets := j.sort(calls)
	for try := 0; len(dockets) > 0; try++ {
		if try == maxTries {
			err := fmt.Errorf("%w: others kept changing the key", idem.ErrUnavailable)
			fail(dockets, err)
			return err
		}
		var err error
		if dockets, err = j.swap(ctx, j.decide(ctx, dockets)); err != nil {
			return err
		}
	}
	return nil
}

// sort makes a docket of each task, and guesses what is stored of those whose guess a change can prove.
func (j *judge) sort(calls []*call) []*docket {
	var dockets []*docket
	byTask := make(map[string]*docket, len(calls))
	for _, c := range calls {
		key := c.cmd.Target()
		d := byTask[key.TaskID]
		if d == nil {
			d = &docket{taskID: key.TaskID, guessed: true, task: idem.Task{Entries: map[int32]*idem.Entry{}}}
			byTask[key.TaskID] = d
			dockets = append(dockets, d)
		}
		d.calls = append(d.calls, c)
		if e := j.recent.get(key); e != nil {
			d.task.Entries[key.Attempt] = e
		} else if r, ok := c.cmd.(*idem.Reserve); !ok || r.Attempt > 0 || r.TaskScope {
			d.load = d.load || d.task.Entries[key.Attempt] == nil && !d.reserves(key)
		}
	}
	return dockets
}

// reserves says whether a fresh reserve of the key stands in the docket already, so that what follows builds on it.
func (d *docket) reserves(k idem.Key) bool {
	return slices.ContainsFunc(d.calls, func(c *call) bool {
		r, ok := c.cmd.(*idem.Reserve)
		return ok && r.Key == k && r.Attempt == 0 && !r.TaskScope
	})
}

// decide brings every docket to where its changes can be written or, where there are none, answers it. It returns the
// dockets that have something to write.
func (j *judge) decide(ctx context.Context, dockets []*docket) []*docket {
	now, ahead, heard := j.clock.now()
	for {
		var load []*docket
		for _, d := range dockets {
			if d.load {
				load = append(load, d)
			}
		}
		if len(load) > 0 || !heard {
			if err := j.load(ctx, load); err != nil {
				fail(load, err)
				dockets = slices.DeleteFunc(dockets, func(d *docket) bool { return d.load })
			}
			if now, ahead, heard = j.clock.now(); !heard {
				fail(dockets, idem.ErrUnavailable)
				return nil
			}
		}
		again := false
		for _, d := range dockets {
			if d.changes == nil {
				d.task.Ahead = ahead
				again = !j.judgeDocket(d, now) || again
			}
		}
		if !again {
			return slices.DeleteFunc(dockets, func(d *docket) bool { return len(d.changes) == 0 })
		}
	}
}

// load brings what is stored of the dockets' tasks.
func (j *judge) load(ctx context.Context, dockets []*docket) error {
	var keys []idem.Key
	byTask := make(map[string]*docket, len(dockets))
	for _, d := range dockets {
		byTask[d.taskID] = d
		wanted := d.bodies
		for _, c := range d.calls {
			wanted = append(wanted, c.cmd.Target().Attempt)
		}
		slices.Sort(wanted)
		for _, attempt := range slices.Compact(wanted) {
			keys = append(keys, idem.Key{TaskID: d.taskID, Attempt: attempt})
		}
	}
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	asked := time.Now()
	entries, now, err := j.store.Load(ctx, keys)
	if err != nil {
		return fmt.Errorf("%w: %w", idem.ErrUnavailable, err)
	}
	j.clock.hear(now, asked)
	for _, d := range dockets {
		d.load, d.guessed, d.task = false, false, idem.Task{Entries: map[int32]*idem.Entry{}, Whole: true}
	}
	for _, e := range entries {
		byTask[e.TaskID].task.Entries[e.Attempt] = e
		if e.State == idem.Recorded && !e.Response.Partial {
			j.recent.put(e) // who asks for it once often asks again, and others do
		}
	}
	return nil
}

// judgeDocket decides the docket's commands one after the other, each on what the former left. It says whether it came
// to the end; if not, something must be loaded first, and all of them are decided anew.
func (j *judge) judgeDocket(d *docket, now time.Time) bool {
	d.changes = make(map[int32]*idem.Change)
	d.ready, d.later = d.ready[:0], nil
	var undecided []*call
	for _, c := range d.calls {
		if _, ok := c.cmd.(*idem.Reserve); ok && c.ctx.Err() != nil {
			c.fail(c.ctx.Err())
			continue
		}
		undecided = append(undecided, c)
		dec, err := j.try(d.task, c.cmd, now)
		if err != nil {
			c.fail(err)
			undecided = undecided[:len(undecided)-1]
			continue
		}
		if dec.Again {
			d.merge(dec.Changes, c.cmd.Target().Attempt)
			d.later = d.calls[slices.Index(d.calls, c):]
			d.calls = undecided[:len(undecided)-1]
			return true
		}
		v := verdict{call: c, outcome: dec.Outcome, depends: d.merge(dec.Changes, c.cmd.Target().Attempt)}
		if !dec.Need.None() || d.guessed && !d.proven(c.cmd.Target().Attempt) {
			d.lack(dec.Need)
			d.calls = append(undecided, d.calls[slices.Index(d.calls, c)+1:]...)
			return false
		}
		if len(v.depends) == 0 {
			c.answer(v.outcome)
			undecided = undecided[:len(undecided)-1]
			continue
		}
		d.ready = append(d.ready, v)
	}
	d.calls = undecided
	return true
}

// try keeps a fault of the judgement to the command that met it.
func (j *judge) try(task idem.Task, cmd idem.Command, now time.Time) (dec idem.Decision, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("deciding %T of %s: %v", cmd, cmd.Target(), p)
		}
	}()
	return j.policy.Decide(task, cmd, now), nil
}

// proven says whether a decision upon a guess will be proved by the swap: by its own change, or by one that an earlier
// command of the docket made of the same key.
func (d *docket) proven(own int32) bool { return d.changes[own] != nil }

// lack has the docket loaded, with what the decision asked for.
func (d *docket) lack(need idem.Need) {
	d.load, d.changes = true, nil
	if need.HasBody {
		d.bodies = append(d.bodies, need.Body)
	}
}

// merge folds a decision's changes into the docket's, and returns the attempts on whose being written its outcome
// depends: its own key's; else those that it changed; else, as it may rest on any of them, all that were changed before.
func (d *docket) merge(changes []idem.Change, own int32) []int32 {
	var depends []int32
	for _, c := range changes {
		attempt := c.Entry.Attempt
		if before := d.changes[attempt]; before != nil {
			d.changes[attempt] = fold(*before, c)
		} else {
			d.changes[attempt] = &c
		}
		d.task.Entries[attempt] = d.changes[attempt].Entry
		depends = append(depends, attempt)
	}
	if slices.Contains(depends, own) {
		return []int32{own}
	}
	if len(depends) == 0 {
		for attempt := range d.changes {
			depends = append(depends, attempt)
		}
	}
	return depends
}

// fold makes one change of two that follow each other.
func fold(a, b idem.Change) *idem.Change {
	c := idem.Change{Entry: b.Entry, Base: a.Base, Same: a.Same && b.Same, Alone: a.Alone || b.Alone, Before: a.Before}
	if c.Before.IsZero() || !b.Before.IsZero() && b.Before.Before(c.Before) {
		c.Before = b.Before
	}
	c.Events = append(slices.Clip(a.Events), b.Events...)
	return &c
}

// swap writes the dockets' changes, and answers the commands whose changes were written. It returns the dockets with
// commands that must be decided anew.
func (j *judge) swap(ctx context.Context, dockets []*docket) ([]*docket, error) {
	changes := collect(dockets)
	if len(changes) == 0 {
		return nil, nil
	}
	written, err := j.write(ctx, changes)
	switch {
	case errors.Is(err, idem.ErrNotWritten) && len(dockets) > 1:
		j.splitUp(ctx, dockets)
		return nil, nil
	case err != nil:
		fail(dockets, err)
		return nil, err
	}
	lost := make(map[idem.Key]bool)
	for i, c := range changes {
		switch {
		case !written[i]:
			lost[c.Entry.Key] = true
			j.recent.drop(c.Entry.Key)
		case !c.Same:
			j.recent.put(c.Entry)
			j.watch.changed(c.Entry.TaskID)
		}
	}
	return slices.DeleteFunc(dockets, func(d *docket) bool { return d.settle(lost) }), nil
}

// settle answers the commands whose changes were written, keeps the others to be decided anew on what is stored, and
// says whether there are none.
func (d *docket) settle(lost map[idem.Key]bool) bool {
	d.calls = d.calls[:0]
	for _, v := range d.ready {
		if slices.ContainsFunc(v.depends, func(a int32) bool { return lost[idem.Key{TaskID: d.taskID, Attempt: a}] }) {
			d.calls = append(d.calls, v.call)
		} else {
			v.call.answer(v.outcome)
		}
	}
	d.calls = d.open()
	d.load, d.changes, d.ready, d.later = true, nil, nil, nil
	return len(d.calls) == 0
}

// collect gives every changed entry its next version.
func collect(dockets []*docket) []idem.Change {
	var changes []idem.Change
	for _, d := range dockets {
		for _, c := range d.changes {
			if !c.Same {
				c.Entry.Version = nextVersion()
			}
			changes = append(changes, *c)
		}
	}
	return changes
}

// nextVersion is one that the row never had, nor had in a past that the database has lost: after a failover that took it
// back in time, what a replica remembers of that past must not be taken for what became of the row since.
func nextVersion() int64 {
	return 1 + rand.Int64N(1<<62)
}

func (j *judge) write(ctx context.Context, changes []idem.Change) ([]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	asked := time.Now()
	written, now, err := j.store.Swap(ctx, changes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", idem.ErrUnavailable, err)
	}
	j.clock.hear(now, asked)
	return written, nil
}

// splitUp carries tasks out each by itself, aside, after a swap that failed for what may lie in one of them: neither
// they nor the lane's next rounds are punished for it. Where one after the other fails, the fault is the store's, and
// the rest is spared the asking.
func (j *judge) splitUp(ctx context.Context, dockets []*docket) {
	alone := &judge{store: j.store, policy: j.policy, clock: j.clock, watch: j.watch, recent: j.recent}
	next := make(chan *docket, len(dockets))
	for _, d := range dockets {
		next <- d
	}
	close(next)
	var failures atomic.Int32
	for range min(apartAtATime, len(dockets)) {
		j.apart.Go(func() {
			for d := range next {
				switch {
				case failures.Load() >= apartFailures:
					fail([]*docket{d}, idem.ErrUnavailable)
				case alone.round(ctx, d.open()) != nil:
					failures.Add(1)
				default:
					failures.Store(0)
				}
			}
		})
	}
}

func fail(dockets []*docket, err error) {
	for _, d := range dockets {
		for _, c := range d.open() {
			c.fail(err)
		}
	}
}
