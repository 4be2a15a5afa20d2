package idem_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
)

// witness watches a world from outside and knows what must never be. It believes what callers were told, not what the
// rows say, wherever a promise was made to a caller.
type witness struct {
	*world
	leases   map[int32]map[string]time.Time // what holders were told, until they let go or are told otherwise
	promises map[int32]promise              // what will be replayed
	doubts   map[int32][]string             // what stood after the last step
	looks    [][]idem.Takeover              // what callers were told to send back, however long ago
	told     []string
}

// storyteller ends a failure with the commands that led to it.
type storyteller struct {
	tester
	x *witness
}

func (s storyteller) Fatalf(format string, args ...any) {
	s.Helper()
	s.tester.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(s.x.told, "\n"))
}

type promise struct {
	response *idem.Response
	until    time.Time
}

func newWitness() *witness {
	return &witness{world: newWorld(), leases: map[int32]map[string]time.Time{}, promises: map[int32]promise{}, doubts: map[int32][]string{}}
}

// see carries a command out and checks every promise.
func (x *witness) see(t tester, cmd idem.Command) step {
	t.Helper()
	x.told = append(x.told, fmt.Sprintf("%s after %s: %s", reflect.TypeOf(cmd).Elem().Name(), x.now.Sub(epoch), dump(cmd)))
	t = storyteller{t, x}
	x.doubtsStand(t)
	s := x.do(t, cmd)
	if s.Outcome.Key != cmd.Target() || !s.Outcome.Now.Equal(s.now) {
		t.Fatalf("the answer is to %v at %s", s.Outcome.Key, s.Outcome.Now)
	}
	x.knowsEnough(t, s)
	for attempt := range s.after {
		x.rowMoves(t, s, attempt)
	}
	if granted(s) {
		x.grantIsClean(t, s)
	}
	x.keepsPromises(t, s)
	evidenceIsKept(t, x.trail, s)
	if x.lag == 0 && reservationOf(cmd) != "" {
		x.repeats(t, s)
	}
	x.remember(s)
	return s
}

// knowsEnough proves that what was not loaded would have changed nothing.
func (x *witness) knowsEnough(t tester, s step) {
	t.Helper()
	dec := decide(t, idem.Task{Entries: s.before, Whole: true}, s.cmd, s.now)
	whole, lazy := dec.Outcome, s.Outcome
	if lazy.Code != idem.CodeRequestMismatch && lazy.Entry != nil && lazy.Entry.Response != nil && lazy.Entry.Response.Partial {
		t.Fatalf("%s is answered with a part of a response", dump(s.cmd))
	}
	whole.Entry, lazy.Entry = partial(whole.Entry), partial(lazy.Entry)
	if !dec.Need.None() || !reflect.DeepEqual(whole, lazy) {
		t.Fatalf("with all the rows %s would be answered\n%s\nnot\n%s", dump(s.cmd), dump(whole), dump(lazy))
	}
}

// granted says whether a step made a new grant.
func granted(s step) bool {
	switch c := s.cmd.(type) {
	case *idem.Reserve:
		return s.Outcome.Code == idem.CodeReserved && fenceAt(s.before[c.Attempt], s) != s.Outcome.Entry.Fence
	case *idem.Record:
		return s.Outcome.First && c.ReservationID == ""
	}
	return false
}

// grantIsClean: nobody else was promised a live lease of the task; every doubt in the way was named by its newest fence;
// no later attempt is recorded, and in scope task no attempt at all.
func (x *witness) grantIsClean(t tester, s step) {
	t.Helper()
	own := s.cmd.Target().Attempt
	c, _ := s.cmd.(*idem.Reserve)
	if c == nil {
		c = &idem.Reserve{}
	}
	for attempt, leases := range x.leases {
		for id, until := range leases {
			if s.now.Before(until) {
				t.Fatalf("attempt %d is granted to %s while %s holds attempt %d", own, c.ReservationID, id, attempt)
			}
		}
	}
	for attempt, e := range s.before {
		switch {
		case e.Expired(s.now):
		case e.InDoubt(s.now) && !slices.Contains(c.Takeovers, idem.Takeover{Attempt: attempt, Fence: e.Fence}):
			t.Fatalf("attempt %d is granted over the doubt of attempt %d, fence %d, which %v does not name", own, attempt, e.Fence, c.Takeovers)
		case e.State == idem.Recorded && (attempt >= own || c.TaskScope):
			t.Fatalf("attempt %d is granted though attempt %d is recorded", own, attempt)
		}
	}
	if n := s.after[own]; c.ReservationID != "" && (n.ReservationID != c.ReservationID || !n.Live(s.now) || n.State != idem.Reserved) {
		t.Fatalf("the grant came out as %s", dump(n))
	}
}

// rowMoves checks what became of one row.
func (x *witness) rowMoves(t tester, s step, attempt int32) {
	t.Helper()
	before, after := s.before[attempt], s.after[attempt]
	if sameRow(before, after) {
		return
	}
	checkExpiry(t, s, before, after)
	if before == nil || before.State == idem.Absent || before.Expired(s.now) {
		if after.Fence > 1 || after.Takeovers > 1 || len(after.Former)+len(after.Spent) > 0 {
			t.Fatalf("a new life begins with %s", dump(after))
		}
		if before != nil && before.InDoubt(s.now) && !slices.Contains(s.kinds(), string(idem.EventPurged)) {
			t.Fatalf("the doubt of %s ended untold", before.Key)
		}
		return
	}
	if after.Fence < before.Fence || after.Takeovers < before.Takeovers || after.Fence > before.Fence+1 {
		t.Fatalf("fence %d, takeovers %d: after %d, %d", before.Fence, before.Takeovers, after.Fence, after.Takeovers)
	}
	if before.State == idem.Recorded {
		a, b := *before, *after
		a.Refusals, b.Refusals = nil, nil
		if !sameRow(&a, &b) {
			t.Fatalf("a recorded key changed from\n%s to\n%s", dump(a), dump(b))
		}
	}
	for _, g := range before.Doubts(s.now) {
		if !stands(after, s.now, g.ReservationID) && !mayEnd(s, before, after, g.ReservationID) {
			t.Fatalf("%s ended the doubt of %s", dump(s.cmd), g.ReservationID)
		}
	}
}

func stands(e *idem.Entry, now time.Time, id string) bool {
	return slices.ContainsFunc(e.Doubts(now), func(g idem.Grant) bool { return g.ReservationID == id })
}

// mayEnd are the ways in which a doubt ends. A revived one did not end: its holder is back.
func mayEnd(s step, before, after *idem.Entry, id string) bool {
	if s.cmd.Target() != before.Key || !s.Outcome.OK {
		return false
	}
	switch c := s.cmd.(type) {
	case *idem.Record:
		return after.State == idem.Recorded
	case *idem.Resolve:
		return true
	case *idem.Release:
		return c.ReservationID == id || c.EarlierNotDone && c.ReservationID == before.ReservationID
	case *idem.Evict:
		return c.Force && before.ReservationID == id && before.Owner == c.Owner
	case *idem.Renew:
		return c.ReservationID == id && after.Live(s.now)
	case *idem.Dispatch:
		return c.ReservationID == id && after.Live(s.now)
	}
	return false
}

func checkExpiry(t tester, s step, before, after *idem.Entry) {
	t.Helper()
	later := after.ReservedAt
	if after.LeaseUntil.After(later) {
		later = after.LeaseUntil
	}
	want := later.Add(policy.InDoubtRetention)
	switch {
	case after.State == idem.Absent:
		want = s.now.Add(time.Hour)
	case after.State == idem.Recorded:
		want = after.RecordedAt.Add(policy.Retention)
		if c, ok := s.cmd.(*idem.Record); ok && s.Outcome.First && c.RetentionSeconds > 0 {
			want = after.RecordedAt.Add(time.Duration(c.RetentionSeconds) * time.Second)
		}
		if before != nil && before.State == idem.Recorded && !before.Expired(s.now) {
			want = before.ExpiresAt
		}
	case after.State == idem.Released && !after.InDoubt(s.now):
		want = s.now.Add(policy.Retention)
		if before != nil && before.State == idem.Released && !before.InDoubt(s.now) && after.ExpiresAt.Equal(before.ExpiresAt) {
			want = before.ExpiresAt
		}
	}
	if !after.ExpiresAt.Equal(want) {
		t.Fatalf("%s expires at %s, want %s", dump(after), after.ExpiresAt, want)
	}
}

// doubtsStand: time alone ends no doubt, but for the end of retention.
func (x *witness) doubtsStand(t tester) {
	t.Helper()
	for attempt, ids := range x.doubts {
		e := x.rows[attempt]
		for _, id := range ids {
			if !e.Expired(x.now) && !stands(e, x.now, id) {
				t.Fatalf("the doubt of %s was washed away by time", id)
			}
		}
	}
}

// keepsPromises: what was recorded is what is given, and nobody is told to go while it is kept.
func (x *witness) keepsPromises(t tester, s step) {
	t.Helper()
	p, ok := x.promises[s.cmd.Target().Attempt]
	if !ok || !s.now.Before(p.until) {
		return
	}
	o := s.Outcome
	switch o.Code {
	case idem.CodeRecorded, idem.CodeAlreadyRecorded:
		if _, ok := s.cmd.(*idem.Evict); ok {
			break // tells no response
		}
		if !o.Entry.Response.Equal(p.response) || o.Entry.Response.Partial {
			t.Fatalf("%s was recorded, and %s is given", dump(p.response), dump(o.Entry.Response))
		}
	case idem.CodeReleased, idem.CodeNotHolder, idem.CodeRequestMismatch:
	default:
		t.Fatalf("%s of a recorded key is answered %s", dump(s.cmd), o.Code)
	}
}

// evidenceIsKept: an offered response was recorded, or is the very record, or is in the trail.
func evidenceIsKept(t tester, trail []idem.Event, s step) {
	t.Helper()
	offered := offeredBy(s.cmd)
	if offered == nil || s.Outcome.First {
		return
	}
	own := s.before[s.cmd.Target().Attempt]
	switch c := s.cmd.(type) {
	case *idem.Record:
		if s.Outcome.OK && own.RecordedReservationID == c.ReservationID && (c.ReservationID != "" || own.RecordedBy == c.Owner) {
			return
		}
	case *idem.Resolve:
		if s.Outcome.OK {
			return
		}
	}
	for _, ev := range trail {
		recent := s.Outcome.Repeated && s.now.Sub(ev.At) < time.Hour
		if (ev.At.Equal(s.now) || recent) && ev.Key == s.cmd.Target() && ev.Response != nil && ev.Response.Equal(offered) {
			return
		}
	}
	t.Fatalf("%s is answered %s (repeated %t), and its response is nowhere", dump(s.cmd), s.Outcome.Code, s.Outcome.Repeated)
}

func offeredBy(cmd idem.Command) *idem.Response {
	switch c := cmd.(type) {
	case *idem.Record:
		return c.Response
	case *idem.Release:
		return c.Response
	case *idem.Resolve:
		return c.Response
	}
	return nil
}

func reservationOf(cmd idem.Command) string {
	switch c := cmd.(type) {
	case *idem.Reserve:
		return c.ReservationID
	case *idem.Dispatch:
		return c.ReservationID
	case *idem.Renew:
		return c.ReservationID
	case *idem.Record:
		return c.ReservationID
	case *idem.Release:
		return c.ReservationID
	}
	return ""
}

// repeats: the same call again comes to the same and changes nothing.
func (x *witness) repeats(t tester, s step) {
	t.Helper()
	f := x.fork()
	again := f.do(t, s.cmd)
	if again.Outcome.Code != s.Outcome.Code || again.Outcome.OK != s.Outcome.OK || again.Outcome.First {
		t.Fatalf("%s is answered %s, and when repeated %s", dump(s.cmd), dump(s.Outcome), dump(again.Outcome))
	}
	if !maps.EqualFunc(x.rows, f.rows, sameRow) {
		t.Fatalf("%s when repeated changes\n%s to\n%s", dump(s.cmd), dump(x.rows), dump(f.rows))
	}
	for _, kind := range again.kinds() {
		if kind != string(idem.EventReplayed) {
			t.Fatalf("%s when repeated tells of %s again", dump(s.cmd), kind)
		}
	}
}

// remember keeps what callers were told by this step.
func (x *witness) remember(s step) {
	own, o := s.cmd.Target().Attempt, s.Outcome
	switch c := s.cmd.(type) {
	case *idem.Reserve, *idem.Dispatch, *idem.Renew:
		if o.Code == idem.CodeReserved || o.Code == idem.CodeDispatched || o.Code == idem.CodeRenewed {
			if x.leases[own] == nil {
				x.leases[own] = map[string]time.Time{}
			}
			x.leases[own][reservationOf(c)] = o.Entry.LeaseUntil
		}
	case *idem.Release:
		if o.OK {
			delete(x.leases[own], c.ReservationID)
		}
	case *idem.Resolve, *idem.Evict:
		if o.OK {
			delete(x.leases, own)
		}
	}
	if o.First {
		delete(x.leases, own)
		x.promises[own] = promise{o.Entry.Response, o.Entry.ExpiresAt}
	}
	if len(o.Takeovers) > 0 {
		x.looks = append(x.looks, o.Takeovers)
	}
	clear(x.doubts)
	for attempt, e := range s.after {
		if !e.Expired(s.now) {
			for _, g := range e.Doubts(s.now) {
				x.doubts[attempt] = append(x.doubts[attempt], g.ReservationID)
			}
		}
	}
}
