package crashtest

import (
	"fmt"
	"strings"
	"time"
)

// Verdict is what a case comes to.
type Verdict string

const (
	Pass      Verdict = "pass"
	Duplicate Verdict = "duplicate"
	Lost      Verdict = "lost"
	Reported  Verdict = "in doubt, reported"
	Hidden    Verdict = "in doubt, hidden"
)

// Verdicts are all of them.
var Verdicts = []Verdict{Pass, Reported, Duplicate, Lost, Hidden}

// Bad says whether the worker has done something wrong.
func (v Verdict) Bad() bool { return v == Duplicate || v == Lost || v == Hidden }

// Evidence is what was seen in one case.
type Evidence struct {
	Killed         bool     `json:"killed"`          // the point was reached
	Lives          int      `json:"starts"`          // processes of the worker
	Crashes        int      `json:"crashes"`         // of them that ended by themselves, with a fault
	Deliveries     int      `json:"deliveries"`      // of the task
	Failures       int      `json:"failures"`        // that the worker reported
	Ended          ending   `json:"ended"`           // how the task did
	Effects        int      `json:"effects"`         // that happened
	Replayed       int      `json:"replayed"`        // recorded responses handed to the worker
	ToldInDoubt    int      `json:"told_in_doubt"`   // times that the worker was told so
	Takeovers      int      `json:"takeovers"`       // that were granted
	BlindTakeovers int      `json:"blind_takeovers"` // of them without a look at the upstream
	Renewed        int      `json:"renewed"`
	InDoubt        []string `json:"in_doubt"`   // keys that were, or were still held, at the end
	MadeUp         int      `json:"made_up"`    // responses recorded that the upstream had not given
	Lapsed         int      `json:"lapsed"`     // renewals and records by a worker whose lease had passed under it
	Unreserved     int      `json:"unreserved"` // effects begun by a worker that held no lease
	Overdue        int      `json:"overdue"`    // effects begun after the lease had passed
	Shared         int      `json:"shared"`     // calls under a key that other tasks have too
	Repeated       int      `json:"repeated"`   // effects asked for although the response was recorded
	Torn           bool     `json:"torn"`       // the file holds something else than the rows
	Seconds        float64  `json:"seconds"`    // that it took
	Reads          int      `json:"-"`

	fault error // of the crash test itself
}

// judge says what the evidence comes to, and why if it is not plain. The worst that it shows is what counts.
func judge(c Case, e *Evidence, due int, patience time.Duration) (Verdict, string) {
	once := c.Handler != HTTPGet
	doubts := strings.Join(e.InDoubt, ", ")
	switch {
	case once && e.Effects > max(due, 1):
		return Duplicate, fmt.Sprintf("the effect happened %d times", e.Effects)
	case e.Repeated > 0:
		return Duplicate, "the upstream was asked again although its answer was recorded"
	case e.Torn:
		return Lost, "the file holds something else than the rows"
	case c.Handler == HTTPCall && e.Shared > 0:
		return Lost, "the key is that of the process instance or execution: another task of it would be taken for done"
	case e.Ended == completed && e.Effects < due:
		return Lost, "the task was completed, and the effect never happened"
	case e.Ended == open && len(e.InDoubt) == 0 && e.Crashes > 0:
		return Lost, fmt.Sprintf("the task was neither completed nor failed: the worker ended by itself %d times, and the store knows of no doubt", e.Crashes)
	case e.Ended == open && len(e.InDoubt) == 0:
		return Lost, fmt.Sprintf("the task was neither completed nor failed within %s, and the store knows of no doubt", patience)
	}
	if why := hidden(c, e); why != "" {
		return Hidden, why
	}
	switch {
	case e.Ended == open:
		return Reported, "left to the operator: " + doubts
	case e.Ended != completed && c.known() && due > 0 && e.Effects < due:
		return Lost, fmt.Sprintf("the task ended as %s, and the effect that was due never happened", e.Ended)
	case e.Ended != completed && c.known() && due > 0:
		return Lost, fmt.Sprintf("the effect happened, and the engine was told %s", e.Ended)
	}
	return Pass, ""
}

// hidden says how a doubt was kept from those who should know of it.
func hidden(c Case, e *Evidence) string {
	switch {
	case e.Ended != open && len(e.InDoubt) > 0:
		return fmt.Sprintf("the task ended as %s while in doubt: %s", e.Ended, strings.Join(e.InDoubt, ", "))
	case c.Handler == HTTPCall && e.BlindTakeovers > 0:
		return "the key was taken over without asking the upstream whether the effect had happened"
	case (c.Handler == HTTPCall || c.Handler == HTTPCallKeyed) && e.MadeUp > 0:
		return "a response was recorded that the upstream had not given"
	case c.Handler == HTTPCall && e.Unreserved > 0:
		return "the effect was begun without a lease: two workers at once would both have it happen"
	case c.Handler == HTTPCall && e.Overdue > 0:
		return "the effect was begun after the lease had passed, when another may have looked and found that it had not happened"
	case c.Scenario == Slow && e.Lapsed > 0:
		return "the lease passed during the effect and was not renewed: meanwhile the key was in doubt, for anyone to take over"
	}
	return ""
}
