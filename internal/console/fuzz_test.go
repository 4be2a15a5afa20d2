package console

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
)

// FuzzOwnPath signs in with a way to go on: it never leads elsewhere.
func FuzzOwnPath(f *testing.F) {
	elsewhere, err := url.Parse("https://idemstore.test/console/sign-in")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, next string) {
		path := ownPath(next)
		to, err := elsewhere.Parse(path)
		if err != nil || to.Host != "idemstore.test" || to.Scheme != "https" || to.Path != Prefix && !strings.HasPrefix(to.Path, Prefix+"/") {
			t.Fatalf("%q leads to %v, %v", next, to, err)
		}
		if strings.ContainsAny(path, "\r\n\\") {
			t.Fatalf("%q becomes %q", next, path)
		}
	})
}

// keys know two tokens.
type keys struct{}

func (keys) Open() bool                  { return false }
func (keys) Check(string) (Caller, bool) { return Caller{}, false }
func (keys) Named(name string) (Caller, bool) {
	return Caller{Name: name, Auditor: true, Operator: true, Key: []byte("of " + name)}, name == "alice" || name == "bob"
}

// FuzzSession takes nothing for a session but what was signed, to the bit.
func FuzzSession(f *testing.F) {
	c := &console{Config: Config{Tokens: keys{}, Now: time.Now}}
	f.Fuzz(func(t *testing.T, name, value string, at int, to byte) {
		ask := func(cookie string) bool {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/console", nil)
			r.Header.Set("Cookie", cookieName+"="+cookie)
			_, _, ok := c.session(r)
			return ok
		}
		if ask(value) {
			t.Fatalf("%q is taken for a session", value)
		}
		w := httptest.NewRecorder()
		v := &visit{c: c, w: w, r: httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/console/sign-in", nil)}
		caller, known := keys{}.Named(name)
		v.begin(caller)
		cookie := w.Result().Cookies()[0].Value
		if ask(cookie) != known {
			t.Fatalf("the session of %q: taken %t, known %t", name, ask(cookie), known)
		}
		forged := []byte(cookie)
		forged[uint(at)%uint(len(forged))] = to
		if string(forged) != cookie && ask(string(forged)) {
			t.Fatalf("%q is taken for a session, and %q was signed", forged, cookie)
		}
	})
}

// FuzzCursors reads what a link of a page says of the next page.
func FuzzCursors(f *testing.F) {
	f.Fuzz(func(t *testing.T, cursor string) {
		if from, err := readEventCursor(cursor); err == nil && from != nil {
			if again, err := readEventCursor(eventCursor(from)); err != nil || again.ID != from.ID || !again.At.Equal(from.At) {
				t.Fatalf("%+v became %+v, %v", from, again, err)
			}
		}
	})
}

// FuzzText shows on a page what came from outside: nothing of it is markup, and nothing is there that does not print.
func FuzzText(f *testing.F) {
	c := &console{Config: Config{Tokens: keys{}, Now: time.Now, Told: func(context.Context, string, idem.Code, error) {}}}
	f.Fuzz(func(t *testing.T, text string) {
		w := httptest.NewRecorder()
		v := &visit{c: c, w: w, r: httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/console", nil)}
		c.serve(v, func(*visit) error { return refusal(http.StatusBadRequest, "Title.", "<mark>%s", text) })
		if page := w.Body.String(); w.Code != http.StatusBadRequest || strings.Contains(page, "<mark>") || !strings.Contains(page, "&lt;mark&gt;") {
			t.Fatalf("%d: %s", w.Code, page)
		}
		if shown := visible(text); strings.ContainsFunc(shown, unseen) {
			t.Fatalf("%q is shown as %q", text, shown)
		}
	})
}
