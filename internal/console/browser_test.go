package console_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// patience is when what must happen has happened also on a busy machine.
const patience = 2 * time.Minute

// chromium starts the one browser of these tests; each test has a profile of its own in it.
var chromium = sync.OnceValues(func() (context.Context, error) {
	path, err := findChromium()
	if err != nil {
		return nil, err
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path))
	if os.Geteuid() == 0 {
		opts = append(opts, chromedp.NoSandbox) // root has none
	}
	allocator, stopAllocator := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, stop := chromedp.NewContext(allocator)
	stopChromium = func() { stop(); stopAllocator() }
	return ctx, chromedp.Do(ctx)
})

var stopChromium = func() {}

func findChromium() (path string, err error) {
	names := []string{"chromium", "chromium-browser", "google-chrome-stable", "google-chrome"}
	if given := os.Getenv("IDEMSTORE_TEST_CHROMIUM"); given != "" {
		names = []string{given}
	}
	for _, name := range names {
		if path, err = exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("no Chromium or Chrome is here; scripts/install-test-deps.sh installs one, and IDEMSTORE_TEST_CHROMIUM names one: %w", err)
}

// browser is a fresh profile with one tab.
type browser struct {
	t   testing.TB
	s   *service
	ctx context.Context

	mu       sync.Mutex
	messages []string // that the browser's console got
	foreign  []string // requests to elsewhere
}

func (s *service) browse(t testing.TB) *browser {
	t.Helper()
	started, err := chromium()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := chromedp.NewContext(started, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	ctx, cancelTime := context.WithTimeout(ctx, patience)
	t.Cleanup(cancelTime)
	b := &browser{t: t, s: s, ctx: ctx}
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(ctx, network.Enable, network.EnableParams{}); err != nil {
		t.Fatal(err)
	}
	messages, requests := chromedp.Console(ctx), chromedp.Events(ctx, network.RequestWillBeSent)
	go func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			b.mu.Lock()
			b.messages = append(b.messages, fmt.Sprintf("%s: %s %s", m.Type, m.Text, m.URL))
			b.mu.Unlock()
		}
	}()
	go func() {
		for r, err := range requests {
			if err != nil {
				return
			}
			if !strings.HasPrefix(r.Request.URL, s.url+"/") && !strings.HasPrefix(r.Request.URL, "data:") {
				b.mu.Lock()
				b.foreign = append(b.foreign, r.Request.URL)
				b.mu.Unlock()
			}
		}
	}()
	b.size(1280)
	return b
}

// quiet fails the test if the browser complained of anything, or asked anybody else.
func (b *browser) quiet() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.messages {
		if strings.Contains(m, "Failed to load resource: the server responded with a status of 4") {
			continue // a page that says no
		}
		b.t.Errorf("the browser's console has: %s", m)
	}
	for _, u := range b.foreign {
		b.t.Errorf("the page asked for %s", u)
	}
}

func (b *browser) do(step chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	b.steady("doing a step", func() error { return chromedp.Do(b.ctx, step) })
}

// steady repeats what met a node of the page before this one: the tab hears of its new page a little after it is there.
func (b *browser) steady(what string, try func() error) {
	b.t.Helper()
	for {
		err := try()
		if err == nil {
			return
		}
		if b.ctx.Err() != nil || !strings.Contains(err.Error(), "No node with given id found") {
			b.t.Fatalf("%s: %v, at %s", what, err, b.where())
		}
	}
}

func (b *browser) where() string {
	at, _ := chromedp.Run(b.ctx, chromedp.Location())
	return at
}

func (b *browser) open(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.s.url + path))
}

// press clicks what leads to another page, and waits until that is there.
func (b *browser) press(selector string) {
	b.t.Helper()
	b.steady("pressing "+selector, func() error {
		_, err := chromedp.RunResponse(b.ctx, chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
		return err
	})
}

func (b *browser) fill(selector, text string) {
	b.t.Helper()
	b.do(chromedp.SendKeys(chromedp.CSS(selector), text))
}

// text is what a person reads on the page.
func (b *browser) text() string {
	b.t.Helper()
	return evaluate[string](b, "document.body.innerText")
}

func (b *browser) reads(texts ...string) {
	b.t.Helper()
	page := b.text()
	for _, text := range texts {
		if !strings.Contains(page, text) {
			b.t.Errorf("%s lacks %q:\n%s", b.where(), text, page)
		}
	}
}

// at checks which page it is.
func (b *browser) at(path string) {
	b.t.Helper()
	u, err := url.Parse(b.where())
	if err != nil || u.Path != path {
		b.t.Fatalf("at %s, want %s", u, path)
	}
}

func evaluate[T any](b *browser, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

func (b *browser) signIn(name string) {
	b.t.Helper()
	b.open("/console")
	b.at("/console/sign-in")
	b.fill("#token", b.s.secrets[name])
	b.press("form.fields button")
}

func (b *browser) size(width int64) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(width, 800))
}

func (b *browser) scheme(name string) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// shoot keeps a picture of the page where somebody wants to look at it.
func (b *browser) shoot(name string) {
	b.t.Helper()
	dir := os.Getenv("IDEMSTORE_TEST_SCREENSHOTS")
	if dir == "" {
		return
	}
	picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o600); err != nil {
		b.t.Fatal(err)
	}
}
