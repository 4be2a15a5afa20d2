package console_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/idemstore/idemstore/internal/idem"
)

// Every page fits a telephone and a desk, by day and by night, without a word from the browser's console.
func TestPagesFitAndAreQuiet(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	for range 3 {
		s.incident(t, task())
	}
	for i := range 5 {
		s.doubt(t, fmt.Sprintf("http-worker-7d%d", i), task())
	}
	told, doubted := task(), task()
	s.incident(t, told)
	again := s.worker(t, "worker-c", idem.Key{TaskID: told.TaskID, Attempt: 1})
	again.reserve()
	again.record(402, "text/plain", "the card was declined")
	s.doubt(t, "worker-a", doubted)
	held := s.worker(t, "http-worker-9", task())
	held.reserve()
	s.later.Add(int64(10 * time.Minute))

	b := s.browse(t)
	pages := []struct{ name, path string }{
		{"overview", "/console"},
		{"doubts", "/console/doubts"},
		{"entries", "/console/entries?state=recorded"},
		{"events", "/console/events?kind=duplicate_record"},
		{"task", taskPath(told)},
		{"task-in-doubt", taskPath(doubted)},
		{"resolve", resolvePath(doubted)},
		{"resolve-live", resolvePath(held.key)},
		{"release-owner", "/console/release-owner?owner=http-worker-9"},
		{"not-found", "/console/tasks/" + task().TaskID},
	}
	b.open("/console/sign-in")
	b.looksRight("sign-in")
	b.signIn("operator")
	for _, page := range pages {
		b.size(1280)
		b.open(page.path)
		b.looksRight(page.name)
	}
	b.open(resolvePath(doubted))
	b.do(chromedp.Click(chromedp.CSS("#record")))
	b.fill("#content_type", "application/json")
	b.fill("#body", `{"charge":"ch_9k2"}`)
	b.fill("#reason", "The upstream's ledger has charge ch_9k2 for this order.")
	b.press("button[value=review]")
	b.looksRight("confirm")
	b.quiet()
}

func (b *browser) looksRight(name string) {
	b.t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		b.scheme(scheme)
		for _, width := range []int64{1280, 375} {
			b.size(width)
			if wide := evaluate[int64](b, "document.documentElement.scrollWidth"); wide > width {
				b.t.Errorf("%s is %d wide at %d: %s", name, wide, width, evaluate[string](b, widest))
			}
			b.shoot(fmt.Sprintf("%s-%d-%s", name, width, scheme))
		}
	}
	if evaluate[string](b, "getComputedStyle(document.body).backgroundColor") != "rgb(18, 21, 24)" {
		b.t.Errorf("%s is not dark by night", name)
	}
	b.scheme("light")
	if evaluate[string](b, "getComputedStyle(document.body).backgroundColor") != "rgb(246, 247, 248)" {
		b.t.Errorf("%s is not light by day", name)
	}
}

// widest is the element that sticks out most.
const widest = `[...document.querySelectorAll("body *")].map(e => [e.getBoundingClientRect().right, e.outerHTML.slice(0, 200)])
	.sort((a, b) => b[0] - a[0])[0].join(" ")`
