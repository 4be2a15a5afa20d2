package robustness

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/idemstore/idemstore/internal/idem"
)

// habit is what a worker does with a key that it was granted.
type habit string

const (
	honest   habit = "does its work"
	renewing habit = "renews first"
	giving   habit = "finds that it cannot, and releases"
	vanishes habit = "vanishes before the effect"
	forgets  habit = "vanishes after the effect"
	late     habit = "records when its lease has passed"
	dawdles  habit = "is about to act when its lease has passed"
)

// habits are drawn from, the usual ones more often.
var habits = []habit{honest, honest, honest, honest, honest, renewing, giving, vanishes, forgets, forgets, late, late, dawdles}

// worker follows the protocol: whatever befalls it, an effect that it may have is begun only under a lease that it knows of.
type worker struct {
	*client
	name     string
	random   *rand.Rand
	upstream *upstream
	stop     <-chan struct{} // closed when nothing new is to be begun
}

// grant is what a worker holds, and until when by its own clock, counted from before it asked.
type grant struct {
	key   idem.Key
	id    string
	until time.Time
	again bool // somebody may have acted before
}

// chance says yes one time in n.
func (w *worker) chance(n int) bool { return w.random.IntN(n) == 0 }

// pause waits, unless the run ends.
func (w *worker) pause(least, most time.Duration) {
	select {
	case <-w.stop:
	case <-time.After(least + time.Duration(w.random.Int64N(int64(most-least)+1))):
	}
}

// insist repeats a call under its reservation until it is answered, a few times.
func (w *worker) insist(cmd idem.Command) (*reply, time.Time) {
	for range 4 {
		asked := time.Now()
		if r := w.do(cmd); r != nil {
			return r, asked
		}
		if w.chance(4) {
			break
		}
		w.pause(20*time.Millisecond, 300*time.Millisecond)
	}
	return nil, time.Time{}
}

// deliver takes a task that the engine has delivered, and says whether it came to a response.
func (w *worker) deliver(key idem.Key, explicit, taskScope bool) bool {
	var takeovers []idem.Takeover
	for range 6 {
		cmd := &idem.Reserve{
			Call: idem.Call{Key: key}, Owner: w.name, ReservationID: uuid.NewString(), LeaseSeconds: 1 + w.random.IntN(2),
			Explicit: explicit, TaskScope: taskScope, Takeovers: takeovers,
		}
		r, asked := w.insist(cmd)
		switch {
		case r == nil:
			return false
		case r.Status == 201:
			return w.work(grant{key, cmd.ReservationID, asked.Add(time.Duration(r.LeaseLeft) * time.Second), takeovers != nil || len(r.Doubts) > 0}, explicit)
		case r.Status == 200:
			return true
		case r.Outcome == "in_doubt":
			if takeovers = w.lookInto(key, r); takeovers == nil {
				return false
			}
			continue
		case r.Outcome == "in_progress" && w.chance(3):
			return false
		}
		takeovers = nil
		w.pause(100*time.Millisecond, 900*time.Millisecond)
	}
	return false
}

// lookInto is what a worker does about a doubt: it asks the upstream and takes over, has an operator do so, or leaves it.
func (w *worker) lookInto(key idem.Key, r *reply) []idem.Takeover {
	switch n := w.random.IntN(8); {
	case n == 0:
		return nil
	case n == 1 && *r.Attempt == key.Attempt:
		resolve := &idem.Resolve{Call: idem.Call{Key: key}, Fence: r.Fence, Response: w.upstream.look(key)}
		w.insist(resolve)
		return nil
	case n == 2: // it would rather have it twice than not at all
		for _, t := range r.Takeovers {
			w.upstream.excuse(idem.Key{TaskID: key.TaskID, Attempt: *t.Attempt})
		}
		w.upstream.excuse(key)
	}
	old := int64(0)
	if w.chance(4) {
		old = 1 // what it looked into is not what is there now: it is to be told so
	}
	var takeovers []idem.Takeover
	for _, t := range r.Takeovers {
		takeovers = append(takeovers, idem.Takeover{Attempt: *t.Attempt, Fence: t.Fence + old})
	}
	return takeovers
}

// work is what a worker does with a grant. It says whether there is a response now.
func (w *worker) work(g grant, explicit bool) bool {
	call := idem.Call{Key: g.key}
	h := habits[w.random.IntN(len(habits))]
	if h == vanishes {
		return false
	}
	if h == renewing {
		renew := &idem.Renew{Call: call, ReservationID: g.id, LeaseSeconds: 1 + w.random.IntN(3)}
		if r, asked := w.insist(renew); r != nil && r.Status == 200 {
			g.until = asked.Add(time.Duration(r.LeaseLeft) * time.Second)
		}
	}
	if h == giving {
		release := &idem.Release{Call: call, ReservationID: g.id}
		if g.again && w.upstream.look(g.key) == nil {
			release.EarlierNotDone = w.chance(2)
		}
		w.insist(release)
		return false
	}
	if explicit {
		r, asked := w.insist(&idem.Dispatch{Call: call, ReservationID: g.id})
		if r == nil || r.Status != 200 {
			return false
		}
		g.until = asked.Add(time.Duration(r.LeaseLeft) * time.Second)
	}
	if h == dawdles {
		w.pause(2*time.Second, 3*time.Second)
	}
	response := w.effect(g)
	switch {
	case response == nil || h == forgets:
		return false
	case h == late:
		w.pause(time.Second, 3*time.Second)
	}
	r, _ := w.insist(&idem.Record{Call: call, ReservationID: g.id, Response: response})
	if r != nil && r.Status == 201 && w.chance(4) {
		w.do(&idem.Record{Call: call, ReservationID: g.id, Response: response})
	}
	return r != nil && r.Response == nil && r.Status < 300
}

// effect is the response of the effect, which is looked for first where it may have happened before.
func (w *worker) effect(g grant) *idem.Response {
	if g.again && !w.upstream.isExcused(g.key) {
		if response := w.upstream.look(g.key); response != nil {
			return response
		}
	}
	response, _ := w.upstream.act(g.key, w.name, g.id, g.until)
	return response
}

// deliverBatch takes several tasks at once, as engines hand them out, and does the usual thing with each.
func (w *worker) deliverBatch(keys []idem.Key) {
	var reserves []idem.Command
	for _, key := range keys {
		reserves = append(reserves, &idem.Reserve{Call: idem.Call{Key: key}, Owner: w.name, ReservationID: uuid.NewString(), LeaseSeconds: 2})
	}
	asked := time.Now()
	var records []idem.Command
	for i, r := range w.batch(reserves) {
		if r == nil || r.Status != 201 {
			continue
		}
		g := grant{keys[i], reserves[i].(*idem.Reserve).ReservationID, asked.Add(time.Duration(r.LeaseLeft) * time.Second), len(r.Doubts) > 0}
		if response := w.effect(g); response != nil && !w.chance(6) {
			records = append(records, &idem.Record{Call: idem.Call{Key: g.key}, ReservationID: g.id, Response: response})
		}
	}
	if len(records) > 0 && !w.chance(6) {
		for range 3 {
			done := true
			for _, r := range w.batch(records) {
				done = done && r != nil
			}
			if done {
				return
			}
			w.pause(20*time.Millisecond, 300*time.Millisecond)
		}
	}
}

// finish brings a key to its response, whatever state it is in, and returns nil when it is there.
func (w *worker) finish(key idem.Key, deadline time.Time) error {
	var takeovers []idem.Takeover
	var last *reply
	for time.Now().Before(deadline) {
		id := uuid.NewString()
		r := w.do(&idem.Reserve{Call: idem.Call{Key: key}, Owner: w.name, ReservationID: id, LeaseSeconds: 30, Takeovers: takeovers})
		takeovers = nil
		switch {
		case r == nil:
		case r.Status == 200:
			return nil
		case r.Status == 201:
			g := grant{key, id, time.Now().Add(20 * time.Second), true}
			response := w.effect(g)
			if r := w.do(&idem.Record{Call: idem.Call{Key: key}, ReservationID: id, Response: response}); r != nil && r.Status == 201 {
				continue // and see it replayed
			}
		case r.Outcome == "in_doubt" && *r.TakeoversLeft > 0:
			for _, t := range r.Takeovers {
				takeovers = append(takeovers, idem.Takeover{Attempt: *t.Attempt, Fence: t.Fence})
			}
			continue
		case r.Outcome == "in_doubt":
			other := idem.Key{TaskID: key.TaskID, Attempt: *r.Attempt}
			w.do(&idem.Resolve{Call: idem.Call{Key: other}, Fence: r.Fence, Response: w.upstream.look(other)})
			continue
		}
		if r != nil {
			last = r
		}
		<-time.After(200 * time.Millisecond)
	}
	return fmt.Errorf("%s came to no response; it was last answered %+v", key, last)
}
