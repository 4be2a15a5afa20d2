package console_test

import (
	"context"
	"fmt"
	"html"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
)

// "Was this customer charged twice, and by whom?"
func TestIncidentIsTold(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	k := task()
	s.incident(t, k)
	page := s.as(t, "auditor").get(taskPath(k)).want(
		200, "It may have happened twice: worker-a", "ch_9k2", "ch_1a7", "12345678901234567890.10",
		"req-worker-a", "req-worker-b", "token worker", "payments.charge", "duplicate_record",
	)
	inOrder(t, page.body, "Reserved", "The lease passed; the holder may have acted", "Found in doubt", "Taken over", "Recorded",
		"A different response was offered for a recorded key")
}

// inOrder checks that the steps of the timeline are these.
func inOrder(t *testing.T, page string, steps ...string) {
	t.Helper()
	_, timeline, _ := strings.Cut(page, `<ol class="timeline">`)
	var got []string
	for _, m := range regexp.MustCompile(`<p><strong>([^<]+)</strong>`).FindAllStringSubmatch(timeline, -1) {
		got = append(got, html.UnescapeString(m[1]))
	}
	if strings.Join(got, "\n") != strings.Join(steps, "\n") {
		t.Errorf("the timeline is\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(steps, "\n  "))
	}
}

func TestTimelines(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	c := s.as(t, "auditor")

	late := s.worker(t, "late", task())
	late.reserve()
	s.pass(t, time.Minute)
	late.record(200, "text/plain", "ok")
	page := c.get(taskPath(late.key)).want(200, "recorded late")
	inOrder(t, page.body, "Reserved", "The lease passed; the holder may have acted", "Recorded late")

	plain := s.worker(t, "plain", task())
	plain.reserve()
	plain.do(&idem.Dispatch{Call: plain.call(), ReservationID: plain.id})
	plain.record(200, "text/plain", "ok")
	page = c.get(taskPath(plain.key)).want(200, "One response is recorded, and the trail tells of no other.")
	inOrder(t, page.body, "Reserved", "Dispatched: the side effect is about to begin", "Recorded")

	gone := s.worker(t, "gone", task())
	gone.do(&idem.Reserve{Call: gone.call(), Owner: gone.owner, ReservationID: gone.id, LeaseSeconds: 30, Explicit: true})
	s.pass(t, time.Minute)
	page = c.get(taskPath(gone.key)).want(200, "reserved, lease passed").without("in doubt:")
	inOrder(t, page.body, "Reserved", "The lease passed; the holder had not dispatched and cannot have acted")

	freed := s.worker(t, "freed", task())
	freed.reserve()
	freed.do(&idem.Release{Call: freed.call(), ReservationID: freed.id, Reason: "connection refused"})
	page = c.get(taskPath(freed.key)).want(200, "connection refused")
	inOrder(t, page.body, "Reserved", "Released")

	bare := s.worker(t, "bare", task())
	bare.do(&idem.Record{Call: bare.call(), Owner: "bare", Response: &idem.Response{Status: 204}})
	page = c.get(taskPath(bare.key)).want(200, "without a body")
	inOrder(t, page.body, "Recorded")
}

// A timeline too long for a page goes on, and tells each thing once.
func TestLongTimeline(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	w := s.worker(t, "worker-a", task())
	w.reserve()
	w.record(200, "text/plain", "ok")
	const replays = 150
	for range replays {
		w.do(&idem.Replay{Call: w.call(), Owner: "worker-b"})
	}
	w.do(&idem.Record{Call: w.call(), Owner: "worker-z", Response: &idem.Response{Status: 500}}) // far down
	s.later.Add(int64(time.Minute))
	c := s.as(t, "auditor")
	c.get(taskPath(w.key)).want(200, "It may have happened twice: worker-z")
	seen := 0
	path := taskPath(w.key)
	for pages := 0; path != ""; pages++ {
		page := c.get(path).want(200)
		seen += strings.Count(page.body, "The recorded response was replayed")
		if facts := strings.Count(page.body, "told by the entry"); facts != 2*max(0, 1-pages) {
			t.Errorf("page %d tells %d facts of the entry", pages, facts)
		}
		path = link(page.body, "Later")
	}
	if seen != replays {
		t.Errorf("%d of %d replays are told", seen, replays)
	}
}

// link is where a link of this text leads to.
func link(page, text string) string {
	m := regexp.MustCompile(`<a href="([^"]+)"[^>]*>` + text + `</a>`).FindStringSubmatch(page)
	if m == nil {
		return ""
	}
	return html.UnescapeString(m[1])
}

func TestListsAreFilteredAndPaged(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	c := s.as(t, "auditor")
	const many = 120
	for i := range many {
		w := s.worker(t, fmt.Sprintf("owner-%d", i%2), task())
		w.do(&idem.Reserve{Call: w.call(), Owner: w.owner, ReservationID: w.id, Handler: "bulk", LeaseSeconds: 30})
		w.do(&idem.Release{Call: w.call(), ReservationID: w.id})
	}
	s.doubt(t, "lost", task())
	for path, want := range map[string]int{
		"/console/entries":                                         many + 1,
		"/console/entries?owner=owner-1":                           many / 2,
		"/console/entries?handler=bulk&state=released":             many,
		"/console/entries?handler=bulk&state=recorded":             0,
		"/console/entries?in_doubt=true":                           1,
		"/console/entries?in_doubt=false":                          many,
		"/console/doubts":                                          1,
		"/console/entries?reserved_after=2100-01-01":               0,
		"/console/entries?reserved_before=2100-01-01+00:00":        many + 1,
		"/console/entries?reserved_after=2020-01-01T00:00:00Z":     many + 1,
		"/console/events":                                          many + 1,
		"/console/events?kind=released&handler=bulk&actor=owner-0": many / 2,
		"/console/events?after=2100-01-01":                         0,
		"/console/events?before=2100-01-01+10:00:00":               many + 1,
		"/console/events?kind=replayed":                            0,
	} {
		seen := make(map[string]bool)
		for next, pages := path, 0; next != ""; pages++ {
			page := c.get(next).want(200)
			for _, m := range regexp.MustCompile(`href="/console/tasks/(order-[0-9a-f]+)`).FindAllStringSubmatch(page.body, -1) {
				seen[m[1]] = true
			}
			if next = link(page.body, "Older"); pages > 10 {
				t.Fatalf("%s does not end", path)
			}
			if first := link(page.body, "First page"); pages > 0 && canonical(t, first) != canonical(t, path) {
				t.Errorf("%s: the first page is at %s", path, first)
			}
		}
		if len(seen) != want {
			t.Errorf("%s shows %d, want %d", path, len(seen), want)
		}
	}
}

// canonical is an address in the one form of its kind.
func canonical(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.RawQuery = u.Query().Encode()
	return u.String()
}

func TestFiltersThatCannotBe(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	c := s.as(t, "operator")
	for path, want := range map[string]string{
		"/console/entries?state=lost":                        "state must be one of",
		"/console/entries?in_doubt=maybe":                    "in_doubt must be one of",
		"/console/entries?recorded_after=today":              "recorded_after must be a time",
		"/console/events?kind=exploded":                      "kind must be one of",
		"/console/events?before=25:00":                       "before must be a time",
		"/console/events?task_id=a%2Fb":                      "task_id must be",
		"/console/events?cursor=%21":                         "This link leads nowhere",
		"/console/entries?cursor=AAAA":                       "This link leads nowhere",
		"/console/search?task_id=a%2Fb":                      "task_id must be",
		"/console/events.csv?kind=exploded":                  "kind must be one of",
		"/console/entries?owner=a%00b":                       "owner must have no control characters",
		"/console/release-owner?owner=a%00b":                 "owner must have no control characters",
		"/console/events?after=2026-02-01&before=2026-01-01": "before must be later than after",
		"/console/tasks/x/attempts/01/response":              "attempt must be",
		"/console/tasks/a%20b":                               "task_id must be",
		"/console/tasks/x?cursor=AAAA":                       "This link leads nowhere",
		"/console/tasks/x/evidence":                          "This link leads nowhere",
		"/console/entries?state=lost&owner=me%22":            `value="me&#34;"`,
	} {
		c.get(path).want(400, want)
	}
	for path, want := range map[string]string{
		"/console/tasks/unheard-of":                     "Nothing is known of this task",
		"/console/tasks/unheard-of/attempts/0/response": "Nothing is known of this key",
		"/console/nothing":                              "There is no such page",
		"/console/tasks/x/y":                            "There is no such page",
	} {
		c.get(path).want(404, want)
	}
	if r := c.get("/console/search?task_id=+AB0C0000-0000-4000-8000-00000000000F+"); r.header.Get("Location") != "/console/tasks/ab0c0000-0000-4000-8000-00000000000f" {
		t.Errorf("the search leads to %s", r.header.Get("Location"))
	}
}

func TestEventsAreExported(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	k := task()
	s.incident(t, k)
	s.incident(t, task())
	c := s.as(t, "auditor")
	page := c.get("/console/events?kind=duplicate_record&task_id=" + k.TaskID).want(200)
	r := c.get(link(page.body, "Download all as CSV")).want(200, "worker-a", k.TaskID)
	if r.header.Get("Content-Disposition") != `attachment; filename="events.csv"` || !strings.HasPrefix(r.header.Get("Content-Type"), "text/csv") {
		t.Errorf("%v", r.header)
	}
	if lines := strings.Split(strings.TrimSpace(r.body), "\r\n"); len(lines) != 2 || !strings.HasPrefix(lines[0], "id,at,kind,task_id") {
		t.Errorf("%d lines: %s", len(lines), r.body)
	}
}

func TestOverview(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	s.incident(t, task())
	oldest := task()
	s.doubt(t, "lost", oldest)
	s.doubt(t, "lost-too", task())
	s.worker(t, "busy", task()).reserve()
	s.later.Add(int64(time.Minute))
	page := s.as(t, "auditor").get("/console").want(
		200, `<span class="figure">2</span><span class="name">in doubt now`, `<span class="figure">1</span><span class="name">open now`,
		`<span class="figure">1</span><span class="name">duplicates`, "The oldest in doubt:", oldest.TaskID, "This replica, last hour",
		"payments.charge", "Reserved by the minute",
	)
	if n := strings.Count(page.body, "<svg"); n != 3 {
		t.Errorf("%d charts", n)
	}
	r := s.as(t, "auditor").get(html.UnescapeString(regexp.MustCompile(`/console/events\?[^"]*duplicate_record[^"]*`).FindString(page.body)))
	r.want(200, "A different response was offered")
}

// What the tile of the open counts is what its link leads to.
func TestOpenNow(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	s.doubt(t, "lost", task())
	gone := s.worker(t, "gone", task())
	gone.do(&idem.Reserve{Call: gone.call(), Owner: gone.owner, ReservationID: gone.id, LeaseSeconds: 30, Explicit: true})
	s.pass(t, time.Minute)
	open := make(map[string]bool)
	for i := range 60 {
		w := s.worker(t, "busy", task())
		w.reserve()
		if i%2 == 0 {
			w.do(&idem.Dispatch{Call: w.call(), ReservationID: w.id})
		}
		open[w.key.TaskID] = true
	}
	done := s.worker(t, "busy", task())
	done.reserve()
	done.record(200, "text/plain", "ok")
	s.later.Add(int64(time.Minute))
	c := s.as(t, "auditor")
	page := c.get("/console").want(200, `<span class="figure">60</span><span class="name">open now`)
	path := html.UnescapeString(regexp.MustCompile(`<a href="([^"]+)"><span class="figure">60<`).FindStringSubmatch(page.body)[1])
	for pages := 0; path != "" && pages < 5; pages++ {
		list := c.get(path).want(200)
		for _, m := range regexp.MustCompile(`href="/console/tasks/(order-[0-9a-f]+)`).FindAllStringSubmatch(list.body, -1) {
			if !open[m[1]] {
				t.Errorf("%s is listed, and not open or twice", m[1])
			}
			delete(open, m[1])
		}
		path = link(list.body, "Older")
	}
	if len(open) > 0 {
		t.Errorf("%d are not listed", len(open))
	}
	c.get("/console/entries?lease=live&state=recorded").want(400, "lease goes with the states")
	c.get("/console/entries?lease=live&state=reserved&cursor=dispatched.").want(400, "leads nowhere")
	if n := strings.Count(c.get("/console/entries?lease=live&state=dispatched").want(200).body, `class="tag live"`); n != 30 {
		t.Errorf("%d are dispatched", n)
	}
}

// Red is for a response that differs.
func TestDuplicatesTile(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ body, tile string }{{kept, "doubt"}, {other, "bad"}} {
		s := start(t, setup{})
		k := task()
		first, second := s.worker(t, "worker-a", k), s.worker(t, "worker-b", k)
		first.reserve()
		s.pass(t, time.Minute)
		second.reserve(idem.Takeover{Fence: 1})
		second.record(201, "application/json", kept)
		first.record(201, "application/json", c.body)
		s.later.Add(int64(time.Minute))
		s.as(t, "auditor").get("/console").want(200, `<li class="tile `+c.tile+`"><a href="/console/events?`)
	}
}

// Who waits longest is told, though the list has it last.
func TestTheLongestInDoubtIsLinked(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	oldest := task()
	s.doubt(t, "lost", oldest)
	for range 55 {
		s.worker(t, "lost-too", task()).reserve()
	}
	s.pass(t, time.Minute)
	page := s.as(t, "auditor").get("/console/doubts").want(200, "The newest reservation is first", "The one that waits longest:")
	if n := strings.Count(page.body, ">"+oldest.TaskID+"<"); n != 1 {
		t.Errorf("it stands on the page %d times", n)
	}
}

// Of a grant that no entry remembers the trail still tells when it began and when its lease passed.
func TestFormerLivesAreTold(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	k := task()
	s.worker(t, "worker-a", k).reserve()
	s.pass(t, 100*24*time.Hour)
	w := s.worker(t, "worker-b", k)
	w.reserve()
	w.record(201, "application/json", kept)
	page := s.as(t, "auditor").get(taskPath(k)).want(200, "told by the trail")
	inOrder(t, page.body, "Reserved", "The lease passed; the holder may have acted", "Its retention ended while it was in doubt", "Reserved", "Recorded")
}

// A response that came with a release says of itself that nothing happened.
func TestReleaseWithEvidenceIsNoAlarm(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	k := task()
	first, second := s.worker(t, "worker-a", k), s.worker(t, "worker-b", k)
	first.reserve()
	s.pass(t, time.Minute)
	second.reserve(idem.Takeover{Fence: 1})
	second.record(201, "application/json", kept)
	first.do(&idem.Release{Call: first.call(), ReservationID: first.id, Response: &idem.Response{Status: 503}})
	c := s.as(t, "auditor")
	c.get(taskPath(k)).want(200, "A release came too late", "no other.").without("happened twice", "A different response")
	s.later.Add(int64(time.Minute))
	c.get("/console").want(200, `<li class="tile doubt"><a href="/console/events?`)
}

// faulty is a reader that fails.
type faulty struct {
	idem.Reader
	err error
}

func (f faulty) Stats(context.Context, time.Time, time.Time) (idem.Stats, error) {
	return idem.Stats{}, f.err
}

func (f faulty) Events(context.Context, idem.EventQuery) (idem.EventPage, error) {
	return idem.EventPage{}, f.err
}

func TestFaultsOfTheStore(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"took longer than it may":   fmt.Errorf("asking: %w", idem.ErrTooSlow),
		"Nothing was changed; try":  fmt.Errorf("%w: secret host db.internal", idem.ErrUnavailable),
		"that should not have":      fmt.Errorf("secret host db.internal"),
		"The store does not answer": context.DeadlineExceeded,
	} {
		s := start(t, setup{reader: func(r idem.Reader) idem.Reader { return faulty{r, err} }})
		c := s.as(t, "auditor")
		status := 503
		if strings.Contains(want, "should not have") {
			status = 500
		}
		c.get("/console/events?kind=released").want(status, want).without("secret")
		c.get("/console/tasks/x").want(status, want).without("secret")
		c.get("/console").want(200, "in doubt now", "24 hours").without("secret")
	}
}
