package idem

import (
	"slices"
	"time"
)

// State is what is stored of a key. "In doubt" is never stored: it is derived from the state, the lease and the doubts.
type State string

const (
	// Absent: nothing is known of the key. A row in this state only remembers refusals that must not be written twice.
	Absent     State = "absent"
	Reserved   State = "reserved"
	Dispatched State = "dispatched"
	Recorded   State = "recorded"
	Released   State = "released"
)

// Grant is one holding of a key.
type Grant struct {
	// ReservationID is what the holder presents. It is empty for a record that was taken as a grant ended in one step.
	ReservationID string    `json:"id"`
	Owner         string    `json:"owner"`
	Fence         int64     `json:"fence"`
	ReservedAt    time.Time `json:"reserved_at"`
	LeaseUntil    time.Time `json:"lease_until"`
	DispatchedAt  time.Time `json:"dispatched_at,omitzero"`
	// Explicit: the holder promised to dispatch before its side effect.
	Explicit bool `json:"explicit,omitzero"`
}

// MayHaveActed says whether the holder may have begun its side effect: it said so, or never promised to say so.
func (g *Grant) MayHaveActed() bool { return !g.Explicit || !g.DispatchedAt.IsZero() }

// Former is an earlier grant that may have acted and was not released by its own holder, so that its record is still
// welcome. While Doubt stands, the key is not granted without a takeover that names it.
type Former struct {
	Grant
	Doubt bool `json:"doubt,omitzero"`
}

// Spent is an earlier grant that can have no effect any more: released by its holder, or superseded before it could act.
type Spent struct {
	ReservationID string `json:"id"`
	Owner         string `json:"owner"`
	Fence         int64  `json:"fence"`
	Released      bool   `json:"released,omitzero"`
}

// Refusal is the memory of a refusal that was written to the trail.
type Refusal struct {
	Kind   EventKind `json:"kind"`
	Owner  string    `json:"owner"`
	Digest string    `json:"digest,omitzero"`
	At     time.Time `json:"at"`
}

// Entry is what is kept of one key. A stored Entry is never changed in place: a decision makes a new one.
type Entry struct {
	Key
	// Version is the store's: a change is written only over the version that it was decided upon. 0 is no row.
	Version int64
	State   State

	Grant        // the current one, or the one that recorded without a reservation
	Handler      string
	RequestHash  string
	TaskScope    bool
	LeaseSeconds int

	Former    []Former // oldest first
	Spent     []Spent  // oldest first, at most maxSpent
	Takeovers int      // how many reserves took over or passed over here
	Found     int64    // the newest fence whose doubt has been found (and told to the trail)
	// Barred: another attempt was granted past this one's lapsed grant, or is about to be, so it cannot be revived.
	Barred bool

	ReleasedAt time.Time
	ByOperator bool // the release was an operator's word, not the holder's

	RecordedAt            time.Time
	RecordedBy            string
	RecordedReservationID string // empty: recorded without one, or by an operator
	Late                  bool
	Response              *Response

	ExpiresAt time.Time
	Refusals  []Refusal
}

// maxSpent bounds the memory of spent reservations of one key; the oldest are forgotten first.
const maxSpent = 1000

// Live says whether the current grant holds a live lease. At lease_until itself it has passed.
func (e *Entry) Live(now time.Time) bool {
	return (e.State == Reserved || e.State == Dispatched) && now.Before(e.LeaseUntil)
}

// lapsed says whether the current grant stands, its lease passed.
func (e *Entry) lapsed(now time.Time) bool {
	return (e.State == Reserved || e.State == Dispatched) && !now.Before(e.LeaseUntil)
}

// Doubts are the grants that may have acted and whose end is unknown, oldest first. While the lease is live these are
// the inherited ones; a lapsed grant that may have acted is the last of them.
func (e *Entry) Doubts(now time.Time) []Grant {
	if e.State == Recorded || e.State == Absent {
		return nil
	}
	var doubts []Grant
	for _, f := range e.Former {
		if f.Doubt {
			doubts = append(doubts, f.Grant)
		}
	}
	if e.lapsed(now) && e.MayHaveActed() {
		doubts = append(doubts, e.Grant)
	}
	return doubts
}

// InDoubt says whether nothing is recorded, nobody holds a live lease, and at least one doubt stands.
func (e *Entry) InDoubt(now time.Time) bool { return !e.Live(now) && len(e.Doubts(now)) > 0 }

// DoubtSince is when the first lease passed of those whose doubts stand; zero where none does.
func (e *Entry) DoubtSince(now time.Time) (since time.Time) {
	for _, g := range e.Doubts(now) {
		if since.IsZero() || g.LeaseUntil.Before(since) {
			since = g.LeaseUntil
		}
	}
	return since
}

// Expired says whether the key behaves as absent, purged or not.
func (e *Entry) Expired(now time.Time) bool { return !now.Before(e.ExpiresAt) }

// knows says whether the reservation was ever granted in this life of the key.
func (e *Entry) knows(id string) bool {
	return e.ReservationID == id || e.former(id) >= 0 || e.spent(id) >= 0
}

func (e *Entry) former(id string) int {
	return slices.IndexFunc(e.Former, func(f Former) bool { return f.ReservationID == id })
}

func (e *Entry) spent(id string) int {
	return slices.IndexFunc(e.Spent, func(s Spent) bool { return s.ReservationID == id })
}

// holds says whether the reservation is the current grant, its lease live or passed.
func (e *Entry) holds(id string) bool {
	return e.ReservationID == id && (e.State == Reserved || e.State == Dispatched)
}

// letGo says whether the reservation was released by its own holder.
func (e *Entry) letGo(id string) bool {
	if i := e.spent(id); i >= 0 {
		return e.Spent[i].Released
	}
	return e.ReservationID == id && !e.ReleasedAt.IsZero() && !e.ByOperator
}

// mayRecord says whom a first record is taken from: the current grant, and every earlier one that may have acted and
// was not released by its own holder. An operator's word does not silence it.
func (e *Entry) mayRecord(id string) bool {
	if e.holds(id) || e.former(id) >= 0 {
		return true
	}
	return e.ReservationID == id && e.State == Released && e.ByOperator && e.MayHaveActed()
}

// acting is whose grant a reservation that the key knows is, and its fence: what the trail tells of a call that names it.
func (e *Entry) acting(id string) (owner string, fence int64) {
	if i := e.spent(id); i >= 0 {
		return e.Spent[i].Owner, e.Spent[i].Fence
	}
	g := e.grantOf(id)
	return g.Owner, g.Fence
}

// grantOf is the grant that the reservation names, if it is the current one or may have acted.
func (e *Entry) grantOf(id string) Grant {
	if i := e.former(id); i >= 0 {
		return e.Former[i].Grant
	}
	return e.Grant
}

// clone copies an entry so that the copy can be changed.
func (e *Entry) clone() *Entry {
	n := *e
	n.Former = slices.Clone(e.Former)
	n.Spent = slices.Clone(e.Spent)
	n.Refusals = slices.Clone(e.Refusals)
	return &n
}

// retire moves the current grant to where it is remembered, before another takes its place.
func (e *Entry) retire() {
	switch {
	case e.ReservationID == "":
	case e.State == Released && !e.ByOperator:
		e.spend(e.Grant, true)
	case !e.MayHaveActed():
		e.spend(e.Grant, false)
	default:
		e.Former = append(e.Former, Former{Grant: e.Grant, Doubt: e.State != Released})
	}
}

func (e *Entry) spend(g Grant, released bool) {
	e.Spent = append(e.Spent, Spent{ReservationID: g.ReservationID, Owner: g.Owner, Fence: g.Fence, Released: released})
	if over := len(e.Spent) - maxSpent; over > 0 {
		e.Spent = slices.Delete(e.Spent, 0, over)
	}
}

// settle ends every inherited doubt. Who caused one may still record: a fact is welcome from whoever saw it.
func (e *Entry) settle() {
	for i := range e.Former {
		e.Former[i].Doubt = false
	}
}

// keepUntil sets the end of retention of a key on which nothing is recorded.
func (e *Entry) keepUntil(p Policy, now time.Time) {
	if e.State == Released && !e.InDoubt(now) {
		e.ExpiresAt = now.Add(p.Retention)
		return
	}
	from := e.ReservedAt
	if e.LeaseUntil.After(from) {
		from = e.LeaseUntil
	}
	e.ExpiresAt = from.Add(p.InDoubtRetention)
}
