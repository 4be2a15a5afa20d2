package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
)

const (
	// countsTime is how old the overview's counts may be: however many look, the store is asked as if one did.
	countsTime = 5 * time.Second
	// statsPeriod is what the overview looks back on.
	statsPeriod = 24 * time.Hour
	// statsTime is how old the counts of that period may be; they cost more.
	statsTime = 30 * time.Second
	// handlersShown are the busiest.
	handlersShown = 12
)

// counts are the overview's, kept for a moment.
type counts struct {
	standing kept[idem.Standing]
	stats    kept[idem.Stats]
	differ   kept[bool]
}

// kept is an answer that is good for a while, a failure too: a store in trouble is not asked by every look.
type kept[T any] struct {
	mu    sync.Mutex
	until time.Time
	value T
	err   error
}

func (k *kept[T]) get(now func() time.Time, good time.Duration, ask func() (T, error)) (T, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !now().Before(k.until) {
		k.value, k.err = ask()
		k.until = now().Add(good)
	}
	return k.value, k.err
}

// standing is what is open now. It is asked for everybody, so that one who leaves does not spoil it for the others.
func (c *console) standing(ctx context.Context) (idem.Standing, error) {
	return c.counts.standing.get(c.Now, countsTime, func() (idem.Standing, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTime)
		defer cancel()
		return c.Reader.Standing(ctx)
	})
}

func (c *console) lastDay(ctx context.Context, now time.Time) (idem.Stats, error) {
	return c.counts.stats.get(c.Now, statsTime, func() (idem.Stats, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTime)
		defer cancel()
		return c.Reader.Stats(ctx, now.Add(-statsPeriod), now.Add(time.Minute)) // grants are dated a little ahead
	})
}

// duplicatesRead is how many pages of duplicates are looked through for one that differs.
const duplicatesRead = 4

// different says whether one of the last day's duplicates tells another story than what is kept. Where there are too many to
// look at, it may.
func (c *console) different(ctx context.Context, now time.Time) (bool, error) {
	return c.counts.differ.get(c.Now, statsTime, func() (bool, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTime)
		defer cancel()
		q := idem.EventQuery{Kind: idem.EventDuplicateRecord, After: now.Add(-statsPeriod), Limit: eventsShown}
		for range duplicatesRead {
			page, err := c.Reader.Events(ctx, q)
			if err != nil {
				return false, err
			}
			for i := range page.Events {
				if differs(&page.Events[i]) {
					return true, nil
				}
			}
			if q.From = page.Next; q.From == nil {
				return false, nil
			}
		}
		return true, nil
	})
}

// overviewPage is what the first page shows.
type overviewPage struct {
	Now      moment
	Standing idem.Standing
	Oldest   *entryView

	Charts []chart

	LastDay    counted
	Differ     bool   // duplicates of the last day do
	StatsFault string // why it is not there
	Handlers   []handlerCounts
	More       int64
	DayAgo     string
}

// counted are counts as a page asks for them.
type counted struct{ idem.Counts }

// Are is how many entries are in a state now.
func (c counted) Are(state string) string { return number(c.States[idem.State(state)]) }

// Open is how many entries have neither a record nor a release.
func (c counted) Open() string { return number(c.States[idem.Reserved] + c.States[idem.Dispatched]) }

// Any says whether there were events of a kind.
func (c counted) Any(kind string) bool { return c.Events[idem.EventKind(kind)] > 0 }

// Were is how many events of a kind there were.
func (c counted) Were(kind string) string { return number(c.Events[idem.EventKind(kind)]) }

type handlerCounts struct {
	Name string
	counted
}

// EventsLink leads to the events of a kind of the last day.
func (p overviewPage) EventsLink(kind string) string {
	return Prefix + "/events?" + url.Values{"kind": {kind}, "after": {p.DayAgo}}.Encode()
}

func (c *console) overview(v *visit) error {
	standing, err := c.standing(v.ctx)
	if err != nil {
		return err
	}
	p := overviewPage{
		Now: moment{At: standing.Now}, Standing: standing, Charts: charts(c.Tally.lastHour()),
		DayAgo: standing.Now.Add(-statsPeriod).UTC().Format(inputTime),
	}
	if standing.Oldest != nil {
		oldest := viewEntry(standing.Oldest, standing.Now)
		p.Oldest = &oldest
	}
	stats, err := c.lastDay(v.ctx, standing.Now)
	switch {
	case errors.Is(err, idem.ErrTooSlow):
		p.StatsFault = "There is more in the last 24 hours than can be counted in the time that a question may take. Its entries and events can still be listed."
	case err != nil:
		v.told("", err)
		p.StatsFault = "The last 24 hours cannot be counted now. The log has the reason under request id " + v.requestID() + "."
	}
	if stats.Totals.Events[idem.EventDuplicateRecord] > 0 {
		if p.Differ, err = c.different(v.ctx, standing.Now); err != nil {
			v.told("", err)
			p.Differ = true
		}
	}
	p.LastDay, p.More = counted{stats.Totals}, stats.MoreHandlers
	for i, h := range stats.Handlers {
		if i == handlersShown {
			p.More += int64(len(stats.Handlers) - i)
			break
		}
		p.Handlers = append(p.Handlers, handlerCounts{h.Name, counted{h.Counts}})
	}
	return v.show(http.StatusOK, "overview", "Overview", p)
}

// chart is a rate over the last hour, a bar a minute.
type chart struct {
	ID    string
	Name  string
	Total uint64
	Now   string // a second, in the last minute
	Peak  string
	Path  string // of the bars, in a box of 300 by 60
}

const (
	chartHeight = 60
	barStep     = 5
	barWidth    = 4
)

func charts(minutes [tallyKinds][tallyMinutes]uint64) []chart {
	names := [tallyKinds]string{"Reserved", "Recorded", "Replayed"}
	list := make([]chart, 0, tallyKinds)
	for kind, counts := range minutes {
		list = append(list, draw(names[kind], counts))
	}
	return list
}

func draw(name string, minutes [tallyMinutes]uint64) chart {
	c := chart{ID: "chart-" + strings.ToLower(name), Name: name}
	var peak uint64
	for _, n := range minutes {
		c.Total += n
		peak = max(peak, n)
	}
	c.Now, c.Peak = rate(minutes[tallyMinutes-1]), rate(peak)
	var path strings.Builder
	for i, n := range minutes {
		if n == 0 {
			continue
		}
		height := max(1, float64(n)*chartHeight/float64(peak)) // what happened at all is seen
		fmt.Fprintf(&path, "M%d %dv-%.1fh%dv%.1fz", i*barStep, chartHeight, height, barWidth, height)
	}
	c.Path = path.String()
	return c
}

// rate is so many in a minute, by the second.
func rate(n uint64) string {
	switch per := float64(n) / 60; {
	case n == 0:
		return "0"
	case per < 10:
		return fmt.Sprintf("%.2f", per)
	default:
		return number(int64(per + 0.5))
	}
}
