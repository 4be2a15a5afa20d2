// Package verdict answers the question that brings people to a task: did its effect happen more than once? The console and
// the operators' command line say the same for the same task, because both ask here.
//
// It goes by what is known: grants that may have acted and that nobody has heard of again are as much of an answer as two
// responses. It is plain Go and knows neither idem nor the API; each of the two tells it what it sees.
package verdict

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Tone is what to think of a finding.
type Tone string

// Tones. A Note is only to be known.
const (
	Bad   Tone = "bad"
	Doubt Tone = "doubt"
	Done  Tone = "done"
	Note  Tone = ""
)

// Finding is what someone on call should not have to read a timeline for. Its text has in it what others wrote.
type Finding struct {
	Tone     Tone
	Text     string
	Unsolved *int32 // the attempt that is in doubt, and is to be resolved
	Evidence string // id of the event that has the response that it speaks of
}

// Grant is one holding of a key.
type Grant struct {
	Owner        string
	Fence        int64
	ReservedAt   time.Time
	LeaseUntil   time.Time
	DispatchedAt time.Time // zero: it did not, or when is not known
	Dispatched   bool
}

// Attempt is what an entry tells.
type Attempt struct {
	Number   int32
	Grant         // the last one
	MayAct   bool // it was dispatched, or did not promise to dispatch
	Released bool // and it was let go, as far as its entry tells by its holder
	Live     bool
	Doubts   []Grant
	// InDoubt: nothing is recorded, nobody holds it, and doubts stand.
	InDoubt bool

	// Former are the earlier grants that may have acted and did not release themselves. Where Whole is said there is no
	// other in this life of the key, whatever the trail tells; else it tells of them.
	Former []Grant
	Whole  bool

	RecordedAt    time.Time // zero: it is not
	RecordedBy    string
	RecordedFence int64 // of the grant that recorded; 0: not told
	Late          bool
	Response      string // its digest
}

// Event is a line of the trail.
type Event struct {
	ID       string
	At       time.Time
	Kind     string
	Attempt  int32
	Fence    int64
	Owner    string // who acted
	Detail   json.RawMessage
	Response string // the digest of the response that came with it
}

// Certain is how far back a trail is whole whatever the settings: no service keeps events for a shorter time.
const Certain = 24 * time.Hour

// Of is the verdict on a task, all of whose attempts and events these are, in any order. From since on its trail is whole.
func Of(attempts []Attempt, events []Event, since time.Time) []Finding {
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b Event) int { return a.At.Compare(b.At) })
	k := &knowledge{attempts: slices.Clone(attempts), since: since}
	k.learn(events)
	k.offers(events)
	for i := range k.attempts {
		k.attempt(&k.attempts[i])
	}
	k.purged()
	k.conclude()
	slices.SortStableFunc(k.findings, func(a, b Finding) int { return cmp.Compare(weight[a.Tone], weight[b.Tone]) })
	return k.findings
}

// weight is the order of findings: what is worst comes first.
var weight = map[Tone]int{Bad: 0, Doubt: 1, Note: 2, Done: 3}

// First is the first moment of which anything is told, so the one that a trail must reach back to.
func First(attempts []Attempt, events []Event) time.Time {
	k := &knowledge{attempts: slices.Clone(attempts)}
	k.learn(events)
	return k.first()
}

func (k *knowledge) first() (first time.Time) {
	earlier := func(at time.Time) {
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	for i := range k.attempts {
		earlier(k.attempts[i].ReservedAt)
	}
	for _, g := range k.grants {
		earlier(g.ReservedAt)
	}
	return first
}

func (k *knowledge) say(tone Tone, format string, args ...any) *Finding {
	k.findings = append(k.findings, Finding{Tone: tone, Text: fmt.Sprintf(format, args...)})
	return &k.findings[len(k.findings)-1]
}

// attempt says who may have acted on it beside the one whose response is recorded.
func (k *knowledge) attempt(a *Attempt) {
	if a.InDoubt {
		n := a.Number
		k.say(Doubt, "Attempt %d is in doubt: nobody knows whether it happened. May have acted, and was not heard of since: %s. "+
			"Ask the upstream whether they did, by what it knows of the task (an order's number, an amount, a time), then resolve it.", n, k.names(k.doubtful(a))).Unsolved = &n
		return
	}
	if k.recorded() == 0 {
		return
	}
	if !a.RecordedAt.IsZero() {
		k.beside(a)
		k.untold(a)
		return
	}
	if list := k.standing(a); len(list) > 0 {
		k.say(Doubt, "It may have happened twice: on attempt %d, which has no response, there may have acted, never heard of again: %s. "+
			"Ask the upstream how often it happened, by what it knows of the task (an order's number, an amount, a time).", a.Number, k.names(list))
	}
	if a.Live {
		k.say(Note, "Attempt %d is in progress: %s holds it until %s.", a.Number, name(&a.Grant), clock(a.LeaseUntil))
	}
}

// beside says who else may have acted on a recorded attempt.
func (k *knowledge) beside(a *Attempt) {
	list := k.standing(a)
	if len(list) == 0 {
		return
	}
	by := a.RecordedBy
	if g := k.recorder(a); g != nil && g.Owner == by {
		by = name(&g.Grant)
	}
	k.say(Doubt, "It may have happened twice: %s recorded the response of attempt %d. May also have acted, never heard of again: %s. "+
		"Ask the upstream how often it happened, by what it knows of the task (an order's number, an amount, a time).", by, a.Number, k.names(list))
}

// untold says which earlier holders of a recorded attempt left no trace.
func (k *knowledge) untold(a *Attempt) {
	if a.Whole {
		return
	}
	var lost []string
	for f := int64(1); f < a.Fence && len(lost) <= maxNamed; f++ {
		if !k.told[place{a.Number, f}] {
			lost = append(lost, fmt.Sprint(f))
		}
	}
	if len(lost) > maxNamed {
		lost[maxNamed] = "..."
	}
	if len(lost) > 0 {
		k.say(Note, "Nothing is told of who held attempt %d at fence %s: such a grant cannot have acted, or had its lease revived, "+
			"or the retention of its events has ended.", a.Number, strings.Join(lost, ", "))
	}
}

// maxNamed bounds what a sentence names.
const maxNamed = 8

// purged says of doubts that ended with their key's retention, where no record is left to set them beside.
func (k *knowledge) purged() {
	if k.recorded() > 0 {
		return
	}
	for _, attempt := range k.numbers() {
		var list []*known
		for _, g := range k.grants {
			if g.attempt == attempt && g.purged && g.open() {
				list = append(list, g)
			}
		}
		if len(list) > 0 {
			k.say(Doubt, "Nobody ever learned whether attempt %d happened: its retention ended while it was in doubt. May have acted: %s.", attempt, k.names(list))
		}
	}
}

// conclude counts the records, and says that all is well where it is.
func (k *knowledge) conclude() {
	n := k.recorded()
	switch {
	case n > 1:
		k.say(Doubt, "Attempts that are recorded: %d. Each may have had its own side effect.", n)
	case n == 1 && len(k.findings) > 0:
	case n == 1 && k.first().Before(k.since):
		k.say(Note, "One response is recorded, and the trail tells of no other; but it tells of nothing from before the first reserve at %s, "+
			"so what was offered since then may have been forgotten.", clock(k.first()))
	case n == 1:
		k.say(Done, "One response is recorded, and the trail tells of no other.")
	}
}

func (k *knowledge) recorded() (n int) {
	for i := range k.attempts {
		if !k.attempts[i].RecordedAt.IsZero() {
			n++
		}
	}
	return n
}
