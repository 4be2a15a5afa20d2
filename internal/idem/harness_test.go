package idem_test

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
)

const (
	taskID = "task-1"
	lease  = 60 // seconds
	day    = 24 * time.Hour
)

var (
	policy = idem.DefaultPolicy
	epoch  = time.Date(2026, 11, 29, 20, 46, 7, 123456000, time.UTC)
)

// answerA and answerB are two responses that upstreams gave.
func answerA() *idem.Response {
	return &idem.Response{Status: 201, Headers: []idem.Header{{"Location", "/charges/1"}}, HasBody: true, Body: []byte("a")}
}

func answerB() *idem.Response { return &idem.Response{Status: 402, HasBody: true, Body: []byte("b")} }

// tester is what *testing.T and *rapid.T have in common.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

// world is a store of one task in memory. It carries commands out as a Keeper does: it loads as little as the decision
// can do with, and writes only what the conditions of a Change allow. Entries are never changed in place, so that a
// copy of the map is a copy of the world.
type world struct {
	now      time.Time
	rows     map[int32]*idem.Entry
	trail    []idem.Event
	versions int64
	lag      time.Duration // what the first swap of a command takes
}

// step is one command carried out.
type step struct {
	cmd           idem.Command
	now           time.Time // of the judgement
	before, after map[int32]*idem.Entry
	idem.Decision
}

func newWorld() *world { return &world{now: epoch, rows: map[int32]*idem.Entry{}} }

func (w *world) fork() *world {
	f := *w
	f.rows, f.trail = maps.Clone(w.rows), slices.Clip(w.trail)
	return &f
}

func (w *world) pass(d time.Duration) *world {
	w.now = w.now.Add(d)
	return w
}

// lapse lets the lease of an attempt's grant pass, to the very moment.
func (w *world) lapse(attempt int32) *world {
	w.now = w.rows[attempt].LeaseUntil
	return w
}

func (w *world) do(t tester, cmd idem.Command) step {
	t.Helper()
	if err := cmd.Validate(); err != nil {
		t.Fatalf("%T: %v", cmd, err)
	}
	for try := range 8 {
		s := step{cmd: cmd, now: w.now, before: maps.Clone(w.rows)}
		s.Decision = w.judge(t, cmd, try > 0)
		if try == 0 {
			w.now = w.now.Add(w.lag)
		}
		if w.swap(t, s) && !s.Again {
			s.after = maps.Clone(w.rows)
			return s
		}
	}
	t.Fatalf("%T was not carried out in 8 tries", cmd)
	panic("unreachable")
}

// judge decides upon the key's own row alone, and upon more only where that is asked for or a swap has failed.
func (w *world) judge(t tester, cmd idem.Command, whole bool) idem.Decision {
	t.Helper()
	own := cmd.Target().Attempt
	task := idem.Task{Entries: map[int32]*idem.Entry{}}
	if e := w.rows[own]; e != nil {
		task.Entries[own] = e
	}
	for range 4 {
		if whole {
			task.Whole = true
			for attempt, e := range w.rows {
				if attempt != own {
					task.Entries[attempt] = partial(e)
				}
			}
		}
		dec := decide(t, task, cmd, w.now)
		if dec.Need.None() {
			return dec
		}
		whole = dec.Need.Whole
		if dec.Need.HasBody {
			task.Entries[dec.Need.Body] = w.rows[dec.Need.Body]
		}
	}
	t.Fatalf("%T asks for ever more", cmd)
	panic("unreachable")
}

// decide is Policy.Decide, proved to change nothing that it was given and to come twice to the same.
func decide(t tester, task idem.Task, cmd idem.Command, now time.Time) idem.Decision {
	t.Helper()
	entries := make(map[int32]*idem.Entry, len(task.Entries))
	for attempt, e := range task.Entries {
		entries[attempt] = deepCopy(e)
	}
	asked := dump(cmd)
	dec := policy.Decide(task, cmd, now)
	if !reflect.DeepEqual(entries, task.Entries) {
		t.Fatalf("%s changed what it was given", asked)
	}
	if dump(cmd) != asked {
		t.Fatalf("%s was itself changed", asked)
	}
	if again := policy.Decide(task, cmd, now); !reflect.DeepEqual(dec, again) {
		t.Fatalf("%s is judged in two ways:\n%s\n%s", asked, dump(dec), dump(again))
	}
	return dec
}

// swap writes a decision's changes, and says whether all of them were written.
func (w *world) swap(t tester, s step) bool {
	t.Helper()
	all, seen := true, map[idem.Key]bool{}
	for i, c := range s.Changes {
		k := c.Entry.Key
		if seen[k] || i > 0 && k == s.cmd.Target() {
			t.Fatalf("%s stands in two changes, or not first", k)
		}
		seen[k] = true
		for _, ev := range c.Events {
			if ev.Key != k || !ev.At.Equal(s.now) || ev.Kind == "" {
				t.Fatalf("an event that tells of another key or time: %+v", ev)
			}
		}
		row := w.rows[k.Attempt]
		if version(row) != c.Base {
			t.Fatalf("%s was decided upon version %d, not %d", k, c.Base, version(row))
		}
		if !c.Before.IsZero() && !w.now.Before(c.Before) || c.Alone && w.hasLater(k.Attempt) {
			all = false
			continue
		}
		w.trail = append(w.trail, c.Events...)
		if c.Same {
			if !sameRow(partial(c.Entry), partial(row)) || len(c.Events) == 0 {
				t.Fatalf("%s is said to stay the same", k)
			}
			continue
		}
		if c.Entry.Response != nil && c.Entry.Response.Partial {
			t.Fatalf("%s: half a response would be written", k)
		}
		n := *c.Entry
		w.versions++
		n.Version = w.versions
		w.rows[k.Attempt] = &n
	}
	return all
}

func (w *world) hasLater(attempt int32) bool {
	for other := range w.rows {
		if other > attempt {
			return true
		}
	}
	return false
}

func version(e *idem.Entry) int64 {
	if e == nil {
		return 0
	}
	return e.Version
}

// sameRow says whether two rows are the same but for their versions.
func sameRow(a, b *idem.Entry) bool {
	if a == nil || b == nil {
		return a == b
	}
	x, y := *a, *b
	x.Version, y.Version = 0, 0
	return reflect.DeepEqual(x, y)
}

// partial is an entry as it is loaded beside the one that is asked about.
func partial(e *idem.Entry) *idem.Entry {
	if e == nil || e.Response == nil {
		return e
	}
	n := *e
	n.Response = &idem.Response{Status: e.Response.Status, Partial: true}
	return &n
}

func deepCopy(e *idem.Entry) *idem.Entry {
	n := *e
	n.Former, n.Spent, n.Refusals = slices.Clone(e.Former), slices.Clone(e.Spent), slices.Clone(e.Refusals)
	if r := e.Response; r != nil {
		c := *r
		c.Headers, c.Body = slices.Clone(r.Headers), slices.Clone(r.Body)
		n.Response = &c
	}
	return &n
}

func (s step) kinds() []string {
	var kinds []string
	for _, c := range s.Changes {
		for _, ev := range c.Events {
			kinds = append(kinds, string(ev.Kind))
		}
	}
	slices.Sort(kinds)
	return kinds
}

func (s step) events() []idem.Event {
	var events []idem.Event
	for _, c := range s.Changes {
		events = append(events, c.Events...)
	}
	return events
}

// event is the step's only event of a kind.
func (s step) event(t tester, kind idem.EventKind) idem.Event {
	t.Helper()
	var found []idem.Event
	for _, ev := range s.events() {
		if ev.Kind == kind {
			found = append(found, ev)
		}
	}
	if len(found) != 1 {
		t.Fatalf("want one event %s, have %v", kind, s.kinds())
	}
	return found[0]
}

func dump(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// rid is the reservation that a name stands for.
func rid(name string) string {
	h := fnv.New64a()
	h.Write([]byte(name))
	n := h.Sum64()
	return fmt.Sprintf("%08x-%04x-4000-8000-%012x", uint32(n>>32), uint16(n>>16), n&0xffffffffffff)
}

// The commands, with what a test seldom cares for filled in. A grant's owner is "o-" and its name unless it is changed.

func call(attempt int32) idem.Call {
	return idem.Call{Key: idem.Key{TaskID: taskID, Attempt: attempt}, Actor: idem.Actor{Token: "token", RequestID: "request"}}
}

func reserve(attempt int32, name string, change ...func(*idem.Reserve)) *idem.Reserve {
	c := &idem.Reserve{
		Call: call(attempt), Owner: "o-" + name, ReservationID: rid(name), Handler: "h",
		RequestHash: "sha256:aa", LeaseSeconds: lease,
	}
	for _, f := range change {
		f(c)
	}
	return c
}

func explicit(c *idem.Reserve)  { c.Explicit = true }
func taskScope(c *idem.Reserve) { c.TaskScope = true }
func otherHash(c *idem.Reserve) { c.RequestHash = "sha256:bb" }
func noHash(c *idem.Reserve)    { c.RequestHash = "" }

func leaseOf(seconds int) func(*idem.Reserve) {
	return func(c *idem.Reserve) { c.LeaseSeconds = seconds }
}

// naming takes over: pairs of an attempt and a fence.
func naming(pairs ...int64) func(*idem.Reserve) {
	return func(c *idem.Reserve) {
		for pair := range slices.Chunk(pairs, 2) {
			c.Takeovers = append(c.Takeovers, idem.Takeover{Attempt: int32(pair[0]), Fence: pair[1]})
		}
	}
}

func dispatch(attempt int32, name string) *idem.Dispatch {
	return &idem.Dispatch{Call: call(attempt), ReservationID: rid(name)}
}

func renew(attempt int32, name string) *idem.Renew {
	return &idem.Renew{Call: call(attempt), ReservationID: rid(name), LeaseSeconds: lease}
}

func record(attempt int32, name string, r *idem.Response) *idem.Record {
	return &idem.Record{Call: call(attempt), ReservationID: rid(name), Response: r}
}

func unreserved(attempt int32, owner string, r *idem.Response) *idem.Record {
	return &idem.Record{Call: call(attempt), Owner: owner, RequestHash: "sha256:aa", Response: r}
}

func release(attempt int32, name string) *idem.Release {
	return &idem.Release{Call: call(attempt), ReservationID: rid(name)}
}

func replay(attempt int32) *idem.Replay { return &idem.Replay{Call: call(attempt), Owner: "reader"} }

func resolve(attempt int32, fence int64, r *idem.Response) *idem.Resolve {
	return &idem.Resolve{Call: call(attempt), Fence: fence, Response: r, Reason: "looked it up"}
}

func evict(attempt int32, owner string, force bool) *idem.Evict {
	return &idem.Evict{Call: call(attempt), Owner: owner, Reason: "the machine is gone", Force: force}
}
