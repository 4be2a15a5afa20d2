package console_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/idemstore/idemstore/internal/idem"
)

func TestBrowserSignsIn(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	b := s.browse(t)
	b.open("/console/events?kind=released")
	b.at("/console/sign-in")
	b.fill("#token", "idem_wrong")
	b.press("form.fields button")
	b.reads("This token is not known here.")
	b.fill("#token", s.secrets["worker"])
	b.press("form.fields button")
	b.reads("neither the role auditor nor operator")
	b.fill("#token", s.secrets["auditor"])
	b.press("form.fields button")
	b.at("/console/events")
	if value := evaluate[string](b, "document.querySelector('#kind').value"); value != "released" {
		t.Errorf("the filter is %q", value)
	}
	if cookies := evaluate[string](b, "document.cookie"); cookies != "" {
		t.Errorf("scripts see the cookie: %s", cookies)
	}
	b.press("a[href='/console']")
	b.reads("in doubt now", "This replica, last hour")

	s.withdraw(t, "auditor")
	b.press("nav a[href='/console/entries']")
	b.at("/console/sign-in")

	b.fill("#token", s.secrets["operator"])
	b.press("form.fields button")
	b.at("/console/entries")
	b.press(".who button")
	b.at("/console/sign-in")
	b.open("/console")
	b.at("/console/sign-in")
	b.quiet()
}

// From a staged incident to its end: found, looked into, resolved, and the trail of that in the trail.
func TestBrowserResolves(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	charged, doubted := task(), task()
	s.incident(t, charged)
	s.doubt(t, "worker-a", doubted)
	b := s.browse(t)
	b.signIn("operator")
	b.resolves(charged, doubted)
	b.quiet()
}

// The same without a script of anybody's.
func TestBrowserNeedsNoScript(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	charged, doubted := task(), task()
	s.incident(t, charged)
	s.doubt(t, "worker-a", doubted)
	b := s.browse(t)
	if _, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		t.Fatal(err)
	}
	b.signIn("operator")
	b.resolves(charged, doubted)
	b.quiet()
}

func (b *browser) resolves(charged, doubted idem.Key) {
	b.t.Helper()
	b.fill("#search", charged.TaskID)
	b.press(".search button")
	b.at(taskPath(charged))
	b.reads("It may have happened twice: worker-a", `"charge": "ch_9k2"`, "12345678901234567890.10", "The lease passed; the holder may have acted", "Taken over")
	b.do(chromedp.Click(chromedp.CSS(".timeline details summary")))
	b.reads(`"charge": "ch_1a7"`)

	b.press("nav a[href='/console/doubts']")
	b.reads(doubted.TaskID, "worker-a")
	b.press("td .button")
	b.at(resolvePath(doubted))
	b.do(chromedp.Click(chromedp.CSS("#record")))
	b.fill("#content_type", "application/json")
	b.fill("#body", `{"charge":"ch_7","amount":12345678901234567890.10}`)
	b.fill("#reason", "The ledger has ch_7 for this order.")
	b.press("button[value=review]")
	b.reads("Record this response for attempt 0", "at fence 1", "12345678901234567890.10", "The ledger has ch_7 for this order.")
	b.press("button[value=do]")
	b.at(taskPath(doubted))
	b.reads("Attempt 0 was resolved", "Resolved by an operator: recorded", "operator", "The ledger has ch_7 for this order.")
}

func TestBrowserRefusesForgedForms(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	doubted := task()
	s.doubt(t, "worker-a", doubted)
	b := s.browse(t)
	b.signIn("operator")
	b.open(resolvePath(doubted))
	b.do(chromedp.Click(chromedp.CSS("#release")))
	b.fill("#reason", "because")
	b.press("button[value=review]")
	b.do(chromedp.SetValue(chromedp.CSS("form.fields input[name=form]"), "forged"))
	b.press("button[value=do]")
	b.reads("This form has gone stale.", "nothing was done")
	b.open(taskPath(doubted))
	b.reads("is in doubt: nobody knows")
	b.quiet()
}

func TestBrowserRunsNothingHostile(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	w := s.hostile(t)
	b := s.browse(t)
	dialogs := make(chan string, 1)
	opened := chromedp.Events(b.ctx, page.JavascriptDialogOpening)
	go func() {
		for d, err := range opened {
			if err != nil {
				return
			}
			dialogs <- d.Message
		}
	}()
	b.signIn("operator")
	for _, path := range []string{taskPath(w.key), "/console/events?task_id=" + w.key.TaskID, "/console/entries", "/console", resolvePath(w.key)} {
		b.open(path)
		b.reads("<script>")
		if title := evaluate[string](b, "document.title"); title == "owned" {
			t.Errorf("%s ran a script", path)
		}
		if n := evaluate[int](b, "document.querySelectorAll('main script, main img, script').length"); n != 0 {
			t.Errorf("%s has %d elements that came from outside", path, n)
		}
	}
	select {
	case d := <-dialogs:
		t.Errorf("a dialog opened: %s", d)
	default:
	}
	b.quiet()
}

func TestBrowserByKeyboard(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	k := task()
	s.incident(t, k)
	b := s.browse(t)
	b.signIn("auditor")
	b.do(chromedp.KeyEvent(kb.Tab))
	if text := evaluate[string](b, "document.activeElement.textContent"); text != "Skip to the content" {
		t.Errorf("the first stop is %q", text)
	}
	if style := evaluate[string](b, "getComputedStyle(document.activeElement).outlineStyle"); style == "none" {
		t.Error("where the focus is cannot be seen")
	}
	b.do(chromedp.KeyEvent(kb.Enter))
	if id := evaluate[string](b, "document.activeElement.id"); id != "main" {
		t.Errorf("it leads to %q", id)
	}
	for _, path := range []string{"/console", "/console/entries", "/console/events", taskPath(k)} {
		b.open(path)
		for what, selector := range map[string]string{
			"field without a label": "input:not([type=hidden], [type=radio]), select, textarea",
		} {
			unnamed := evaluate[int](b, "[...document.querySelectorAll(`"+selector+"`)].filter(e => !e.labels || !e.labels.length).length")
			if unnamed != 0 {
				t.Errorf("%s: %d times a %s", path, unnamed, what)
			}
		}
		if n := evaluate[int](b, "document.querySelectorAll('h1').length"); n != 1 {
			t.Errorf("%s has %d headings of the first order", path, n)
		}
	}
	b.quiet()
}

// A link that was shared leads whoever has signed in to its page, though the cookie stays back on the way from another site.
func TestBrowserFollowsLinksFromElsewhere(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<!doctype html><title>Elsewhere</title><a href="%s/console/events?kind=released">See there</a>
			<form method="post" action="%s/console/sign-in"><input name="token" value="%s"><button>Sign them in</button></form>`,
			s.url, s.url, s.secrets["auditor"])
	}))
	t.Cleanup(elsewhere.Close)
	b := s.browse(t)
	site := strings.Replace(elsewhere.URL, "127.0.0.1", "localhost", 1) // another site than the console's
	b.do(chromedp.Navigate(site))
	b.press("button")
	b.reads("This form was not sent from here.")
	b.signIn("operator")
	b.do(chromedp.Navigate(site))
	b.press("a")
	b.do(chromedp.WaitReady(chromedp.CSS("#kind")))
	b.at("/console/events")
	b.reads("operator", "kind released")
}
