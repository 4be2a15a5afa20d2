package audit

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write testdata anew")

// now is the present of these tests.
var now = time.Date(2026, 11, 29, 21, 0, 0, 0, time.UTC)

// fake is a service that knows what it is told. Its pages are as short as it likes.
type fake struct {
	*httptest.Server
	mu      sync.Mutex
	asked   []*http.Request
	bodies  []string
	answers map[string]answer // by method and path
	entries []json.RawMessage
	events  []json.RawMessage // newest first
	pages   []int             // how many of them stand on each page; then all that are asked for
	// stream overrides what a stream of events is.
	stream http.HandlerFunc
}

type answer struct {
	status int
	body   string
}

func newFake(t *testing.T) *fake {
	f := &fake{answers: make(map[string]answer)}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body strings.Builder
	_ = r.Write(&body)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, r)
	_, text, _ := strings.Cut(body.String(), "\r\n\r\n")
	f.bodies = append(f.bodies, text)
	accept := r.Header.Get("Accept")
	w.Header().Set("Date", now.Format(http.TimeFormat))
	if a, ok := f.answers[r.Method+" "+r.URL.EscapedPath()]; ok {
		reply(w, a)
		return
	}
	switch {
	case r.URL.Path == "/v1/events" && f.stream != nil && accept != "" && accept != "application/json":
		f.stream(w, r)
	case r.URL.Path == "/v1/entries":
		f.list(w, r, "entries", f.inState(r))
	case r.URL.Path == "/v1/events":
		f.list(w, r, "events", f.matching(r))
	default:
		reply(w, answer{404, problemOf(404, "no_such_route", "There is no such route.", "")})
	}
}

func reply(w http.ResponseWriter, a answer) {
	kind := "application/json"
	if a.status >= 400 {
		kind = "application/problem+json"
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(a.status)
	fmt.Fprint(w, a.body)
}

func problemOf(status int, code, detail, more string) string {
	return fmt.Sprintf(`{"type":"/problems/x","title":"t","status":%d,"detail":%q,"code":%q,"outcome":%[3]q,"request_id":"r-1"%s}`, status, detail, code, more)
}

// matching are the events that the filters of a question let through, as far as the tests use them.
func (f *fake) matching(r *http.Request) []json.RawMessage {
	var list []json.RawMessage
	for _, raw := range f.events {
		var e struct{ At, Kind string }
		_ = json.Unmarshal(raw, &e)
		after := moment(r.URL.Query().Get("after"))
		if kind := r.URL.Query().Get("kind"); (kind == "" || kind == e.Kind) && !moment(e.At).Before(after) {
			list = append(list, raw)
		}
	}
	return list
}

// inState are the entries of the state that is asked for.
func (f *fake) inState(r *http.Request) []json.RawMessage {
	var list []json.RawMessage
	for _, raw := range f.entries {
		var e struct{ State string }
		_ = json.Unmarshal(raw, &e)
		if state := r.URL.Query().Get("state"); state == "" || state == e.State {
			list = append(list, raw)
		}
	}
	return list
}

// list gives out a page. Its cursor is where the next begins, and which page that is.
func (f *fake) list(w http.ResponseWriter, r *http.Request, name string, items []json.RawMessage) {
	q := r.URL.Query()
	limit, _ := strconv.Atoi(q.Get("limit"))
	var from, n int
	_, _ = fmt.Sscanf(q.Get("cursor"), "%d.%d", &from, &n)
	if n < len(f.pages) {
		limit = min(limit, f.pages[n])
	}
	to := min(len(items), from+limit)
	page := map[string]any{name: append([]json.RawMessage{}, items[from:to]...)}
	if to < len(items) || n+1 < len(f.pages) {
		page["next_cursor"] = fmt.Sprintf("%d.%d", to, n+1)
	}
	_ = json.NewEncoder(w).Encode(page)
}

// questions are the queries that were asked of a path.
func (f *fake) questions(path string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []string
	for _, r := range f.asked {
		if r.URL.Path == path {
			list = append(list, r.URL.RawQuery)
		}
	}
	return list
}

// shown is a session and what it wrote.
type shown struct {
	*Session
	out, errs buffer
}

// buffer is a strings.Builder for two.
type buffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// of is a session with a fake, for tables.
func of(t *testing.T, f *fake) *shown {
	t.Helper()
	service, err := Dial(f.URL, "token-of-the-test", 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	s := &shown{}
	s.Session = &Session{Service: service, In: strings.NewReader(""), Out: &s.out, Err: &s.errs, Output: Table, Now: func() time.Time { return now }}
	return s
}

// golden compares what was shown with a file of testdata.
func golden(t *testing.T, name, have string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(file, []byte(have), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if have != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, have, want)
	}
	for _, r := range have {
		if r != '\n' && (r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u202e') {
			t.Errorf("%s: the character %U reaches the terminal", name, r)
		}
	}
}

func wantClass(t *testing.T, err error, c Class, words ...string) {
	t.Helper()
	if !is(err, c) {
		t.Fatalf("got %v, want an error of class %d", err, c)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not say %q", err, word)
		}
	}
}

func wantOK(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
