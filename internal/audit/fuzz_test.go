package audit

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/idemstore/idemstore/api"
)

// once answers the first request with what it has, and says of all others that nothing is there.
type once struct {
	status int
	kind   string
	body   []byte
	asked  bool
}

func (o *once) RoundTrip(*http.Request) (*http.Response, error) {
	if o.asked {
		o.status, o.kind, o.body = http.StatusNotFound, "application/problem+json", []byte(problemOf(404, "not_found", "Nothing.", ""))
	}
	o.asked = true
	return &http.Response{
		StatusCode: o.status, Status: http.StatusText(o.status), Header: http.Header{"Content-Type": {o.kind}}, Body: io.NopCloser(bytes.NewReader(o.body)),
	}, nil
}

// FuzzAnswer has each command read an answer that is anything: it fails in words or shows it, and no terminal obeys what is shown.
func FuzzAnswer(f *testing.F) {
	f.Fuzz(func(t *testing.T, command, form byte, status int, problem bool, body []byte) {
		o := &once{status: status, kind: "application/json", body: body}
		if problem {
			o.kind = "application/problem+json"
		}
		service, err := Dial("http://idemstore.test", "token", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		service.http.Transport = o
		var out, errs bytes.Buffer
		s := &Session{
			Service: service, In: strings.NewReader("yes\n"), Out: &out, Err: &errs, InTerminal: true, OutTerminal: true, ErrTerminal: true,
			Output: []string{Table, JSON, CSV}[int(form)%3], Bodies: form&4 != 0, Now: func() time.Time { return now },
		}
		ctx := t.Context()
		window := Window{Limit: 3, All: form&8 != 0}
		switch command % 8 {
		case 0:
			err = s.Task(ctx, "t")
		case 1:
			err = s.Entry(ctx, "t", 0)
		case 2:
			err = s.Entries(ctx, api.ListEntriesParams{}, window)
		case 3:
			err = s.Events(ctx, api.ListEventsParams{}, window, "")
		case 4:
			err = s.Stats(ctx, api.GetStatsParams{})
		case 5:
			err = s.Resolve(ctx, Resolution{Task: "t", Reason: "r"})
		case 6:
			err = s.Resolve(ctx, Resolution{Task: "t", Reason: "r", Fence: 1, Yes: true})
		case 7:
			err = s.ReleaseOwner(ctx, "w", "r", false, true)
		}
		if err != nil && err.Error() == "" {
			t.Fatal("a failure without words")
		}
		for _, shown := range []string{out.String(), errs.String()} {
			for _, r := range strings.ReplaceAll(shown, "\r\n", "\n") {
				if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) && !(r == '\r' || r == '\x1b') {
					t.Fatalf("%U reaches the terminal: %q", r, shown)
				}
			}
		}
		if strings.ContainsRune(out.String(), '\x1b') {
			t.Fatalf("an escape reaches the terminal: %q", out.String())
		}
	})
}
