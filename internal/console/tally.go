package console

import (
	"context"
	"sync"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
)

// Tally is an idem.Keeper that counts what goes through it: how often a key was reserved, recorded and replayed in the last
// hour. It is this replica's alone, and begins anew with it.
type Tally struct {
	idem.Keeper
	now   func() time.Time
	start time.Time

	mu    sync.Mutex
	slots [tallySlots + 1]tallySlot // one more for the one that is being filled
}

const (
	tallyStep    = 10 * time.Second
	tallySlots   = 360
	tallyMinutes = 60
)

// tallied is what is counted.
type tallied int

const (
	tallyReserved tallied = iota
	tallyRecorded
	tallyReplayed
	tallyKinds
)

type tallySlot struct {
	tick  int64 // which step this slot is of
	count [tallyKinds]uint32
}

// NewTally counts what the keeper is asked.
func NewTally(keeper idem.Keeper, now func() time.Time) *Tally {
	return &Tally{Keeper: keeper, now: now, start: now()}
}

// Do implements idem.Keeper.
func (t *Tally) Do(ctx context.Context, cmds ...idem.Command) []idem.Result {
	results := t.Keeper.Do(ctx, cmds...)
	var count [tallyKinds]uint32
	for i := range results {
		if results[i].Err == nil && results[i].Outcome.OK {
			countOne(&count, cmds[i], results[i].Outcome.Code)
		}
	}
	if count != [tallyKinds]uint32{} {
		t.add(count)
	}
	return results
}

func countOne(count *[tallyKinds]uint32, cmd idem.Command, code idem.Code) {
	switch cmd.(type) {
	case *idem.Reserve:
		if code == idem.CodeReserved {
			count[tallyReserved]++
		} else {
			count[tallyReplayed]++
		}
	case *idem.Replay:
		count[tallyReplayed]++
	case *idem.Record:
		count[tallyRecorded]++
	}
}

func (t *Tally) add(count [tallyKinds]uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	slot := t.slot(t.tick())
	for kind, n := range count {
		slot.count[kind] += n
	}
}

// tick is the number of the step that is being filled. Numbers begin at 1, so that an empty slot is of none.
func (t *Tally) tick() int64 { return int64(t.now().Sub(t.start)/tallyStep) + 1 }

// slot is the slot of a step, empty if it was another's.
func (t *Tally) slot(tick int64) *tallySlot {
	slot := &t.slots[tick%int64(len(t.slots))]
	if slot.tick != tick {
		*slot = tallySlot{tick: tick}
	}
	return slot
}

// lastHour is what was counted in each of the last sixty minutes, up to the last whole step, oldest first.
func (t *Tally) lastHour() (minutes [tallyKinds][tallyMinutes]uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.tick()
	for back := int64(1); back <= tallySlots && back < now; back++ {
		slot := t.slots[(now-back)%int64(len(t.slots))]
		if slot.tick != now-back {
			continue
		}
		minute := tallyMinutes - 1 - (back-1)/(tallySlots/tallyMinutes)
		for kind, n := range slot.count {
			minutes[kind][minute] += uint64(n)
		}
	}
	return minutes
}
