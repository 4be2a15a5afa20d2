package console

import (
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
)

// entryView is an entry as pages show it.
type entryView struct {
	*idem.Entry
	Standing string // in a few words
	Tone     string // doubt, live, done, ended
	Doubted  bool
	Held     bool // a live lease
	Since    moment
	First    grantView // the doubt that has waited since then
	Doubts   []grantView

	Reserved, Lease, Dispatched, Recorded, Released, Expires moment

	Response *responseView
}

// grantView is a grant that stands as a doubt.
type grantView struct {
	idem.Grant
	Lease moment
}

func viewEntry(e *idem.Entry, now time.Time) entryView {
	at := func(t time.Time) moment { return moment{t, now} }
	v := entryView{
		Entry: e, Doubted: e.InDoubt(now), Held: e.Live(now),
		Reserved: at(e.ReservedAt), Lease: at(e.LeaseUntil), Dispatched: at(e.DispatchedAt),
		Recorded: at(e.RecordedAt), Released: at(e.ReleasedAt), Expires: at(e.ExpiresAt),
	}
	for _, g := range e.Doubts(now) {
		v.Doubts = append(v.Doubts, grantView{g, at(g.LeaseUntil)})
	}
	if v.Doubted {
		v.Since = at(e.DoubtSince(now))
		v.First = v.Doubts[slices.IndexFunc(v.Doubts, func(g grantView) bool { return g.LeaseUntil.Equal(v.Since.At) })]
	}
	v.Standing, v.Tone = standing(e, now)
	if e.Response != nil {
		v.Response = &responseView{Status: e.Response.Status}
		if !e.Response.Partial {
			v.Response = viewResponse(e.Response, v.Path("response"))
		}
	}
	return v
}

// standing says what an entry is now, in words.
func standing(e *idem.Entry, now time.Time) (words, tone string) {
	switch {
	case e.State == idem.Recorded && e.Late:
		return "recorded late", "done"
	case e.State == idem.Recorded:
		return "recorded", "done"
	case e.InDoubt(now):
		return "in doubt", "doubt"
	case e.Live(now):
		return string(e.State) + ", lease live", "live"
	case e.State == idem.Released:
		return "released", "ended"
	default:
		return string(e.State) + ", lease passed", "ended"
	}
}

// Path is the address of something of this entry.
func (v entryView) Path(what string) string { return attemptPath(v.Key, what) }

// Task is the address of the entry's task, there at this attempt.
func (v entryView) Task() string { return taskPath(v.TaskID) + v.Anchor() }

// Anchor leads to the attempt within its task's page.
func (v entryView) Anchor() string { return "#attempt-" + strconv.Itoa(int(v.Attempt)) }

// Open says that an operator could resolve it.
func (v entryView) Open() bool { return v.State != idem.Recorded }

// Promised says how the holder reserved.
func (v entryView) Promised() string {
	if v.Explicit {
		return "explicit: it says when its side effect begins"
	}
	return "implicit: its side effect may begin at once"
}

func taskPath(id string) string { return Prefix + "/tasks/" + url.PathEscape(id) }

func attemptPath(k idem.Key, what string) string {
	return taskPath(k.TaskID) + "/attempts/" + strconv.Itoa(int(k.Attempt)) + "/" + what
}
