package audit

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/idemstore/idemstore/api"
)

func someEntries(n int) []json.RawMessage {
	var list []json.RawMessage
	for i := range n {
		list = append(list, json.RawMessage(fmt.Sprintf(`{"task_id":"task-%d","attempt":%d,"state":"dispatched","in_doubt":true,"owner":"=worker-%d","fence":3,"dispatch":"explicit",`+
			`"handler":"http.call","reserved_at":"2026-11-29T20:%02d:00.000000Z","lease_until":"2026-11-29T20:59:00.000000Z","doubts":[{"owner":"o, \"p\"","fence":2,`+
			`"reserved_at":"2026-11-29T20:00:00.000000Z","lease_until":"2026-11-29T20:01:00.000000Z","dispatched":false}],"late":false,"expires_at":"2027-02-27T20:51:00.000000Z"}`,
			i, i%3, i, 59-i%60)))
	}
	return list
}

func TestEntries(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.entries = someEntries(12)
	f.pages = []int{0, 3, 0, 0} // a page may be empty and still not be the last
	yes, owner := true, "w 1"
	s := of(t, f)
	wantOK(t, s.Entries(t.Context(), api.ListEntriesParams{InDoubt: &yes, Owner: &owner}, Window{Limit: 5}))
	golden(t, "entries", s.out.String())
	if !strings.Contains(s.errs.String(), "more match") {
		t.Errorf("it does not say that more match: %q", s.errs.String())
	}
	if q, err := url.ParseQuery(f.questions("/v1/entries")[0]); err != nil || q.Encode() != "in_doubt=true&limit=5&owner=w+1" {
		t.Errorf("asked %v (%v)", q, err)
	}
	s = of(t, f)
	wantOK(t, s.Entries(t.Context(), api.ListEntriesParams{}, Window{All: true}))
	if n := strings.Count(s.out.String(), "\n"); n != 13 || s.errs.String() != "" {
		t.Errorf("all: %d lines, and %q", n, s.errs.String())
	}
}

func TestEntriesForScripts(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.entries = someEntries(3)
	s := of(t, f)
	s.Output = JSON
	wantOK(t, s.Entries(t.Context(), api.ListEntriesParams{}, Window{All: true}))
	var want strings.Builder
	for _, e := range f.entries {
		want.Write(append(e, '\n'))
	}
	if s.out.String() != want.String() {
		t.Errorf("got\n%swant\n%s", s.out.String(), want.String())
	}
	s = of(t, f)
	s.Output = CSV
	wantOK(t, s.Entries(t.Context(), api.ListEntriesParams{}, Window{All: true}))
	rows, err := csv.NewReader(strings.NewReader(s.out.String())).ReadAll()
	wantOK(t, err)
	if len(rows) != 4 || strings.Count(s.out.String(), "\r\n") != 4 || rows[0][0] != "task_id" || rows[1][4] != "'=worker-0" {
		t.Errorf("got %q", s.out.String())
	}
	for cell, want := range map[string]string{"": "", "a=1": "a=1", "=1": "'=1", "+1": "'+1", "-1": "'-1", "@a": "'@a", "\ta": "'\ta", "\ra": "'\ra"} {
		if have := harmless(cell); have != want {
			t.Errorf("%q is written %q, want %q", cell, have, want)
		}
	}
	var doubts []api.Doubt
	if err := json.Unmarshal([]byte(rows[1][len(entryColumns)-1]), &doubts); err != nil || doubts[0].Owner != `o, "p"` {
		t.Errorf("doubts %q: %v", rows[1][len(entryColumns)-1], err)
	}
}

func TestNothingMatches(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.pages = []int{0, 0, 0}
	f.stream = func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") == "text/csv" {
			fmt.Fprint(w, "id,at\r\n")
		}
	}
	for _, output := range []string{Table, JSON, CSV} {
		s := of(t, f)
		s.Output = output
		wantClass(t, s.Entries(t.Context(), api.ListEntriesParams{}, Window{All: true}), Nothing)
		wantClass(t, s.Events(t.Context(), api.ListEventsParams{}, Window{Limit: 5}, ""), Nothing)
		wantClass(t, s.Events(t.Context(), api.ListEventsParams{}, Window{All: true}, ""), Nothing)
	}
	if n := len(f.questions("/v1/entries")); n != 9 {
		t.Errorf("%d questions, want three of each: empty pages are not the end", n)
	}
}

func TestEventsTable(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	var task struct{ Events []json.RawMessage }
	wantOK(t, json.Unmarshal([]byte(incident), &task))
	f.events = task.Events
	f.pages = []int{2, 0, 1}
	s := of(t, f)
	wantOK(t, s.Events(t.Context(), api.ListEventsParams{}, Window{All: true}, ""))
	golden(t, "events", s.out.String())
}

const (
	firstOfCSV   = "id,at,detail\r\n1,x,\"two\nlines, \"\"quoted\"\"\"\r\n"
	streamCSV    = firstOfCSV + "2,x,\r\n3,x,'=1\r\n"
	twoOfNDJSON  = `{"id":"1","a":"\""}` + "\n" + `{"id":"2"}` + "\n"
	streamNDJSON = twoOfNDJSON + `{"id":"3"}` + "\n"
)

func streaming(w http.ResponseWriter, r *http.Request) {
	text := streamNDJSON
	if r.Header.Get("Accept") == "text/csv" {
		text = streamCSV
	}
	for i := range text { // in pieces as small as can be
		_, _ = io.WriteString(w, text[i:i+1])
		w.(http.Flusher).Flush()
	}
}

func TestEventsStream(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.stream = streaming
	for _, c := range []struct {
		output string
		want   Window
		text   string
		more   bool
	}{
		{CSV, Window{All: true}, streamCSV, false},
		{CSV, Window{Limit: 3}, streamCSV, false},
		{CSV, Window{Limit: 1}, firstOfCSV, true},
		{JSON, Window{All: true}, streamNDJSON, false},
		{JSON, Window{Limit: 3}, streamNDJSON, false},
		{JSON, Window{Limit: 2}, twoOfNDJSON, true},
	} {
		s := of(t, f)
		s.Output = c.output
		kind := "replayed"
		wantOK(t, s.Events(t.Context(), api.ListEventsParams{Kind: (*api.EventKind)(&kind)}, c.want, ""))
		if s.out.String() != c.text || c.more != strings.Contains(s.errs.String(), "more match") {
			t.Errorf("%s %+v: got %q, and %q", c.output, c.want, s.out.String(), s.errs.String())
		}
		file := filepath.Join(t.TempDir(), "events")
		s = of(t, f)
		s.Output = c.output
		wantOK(t, s.Events(t.Context(), api.ListEventsParams{}, c.want, file))
		if text, err := os.ReadFile(file); err != nil || string(text) != c.text {
			t.Errorf("the file has %q (%v)", text, err)
		}
	}
	if q := f.questions("/v1/events")[0]; q != "kind=replayed" {
		t.Errorf("asked %q: a stream has no limit and no cursor", q)
	}
}

// A stream that breaks off is a failure, and no file.
func TestStreamBreaksOff(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.stream = func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, streamNDJSON)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	dir := t.TempDir()
	s := of(t, f)
	s.Output = JSON
	wantClass(t, s.Events(t.Context(), api.ListEventsParams{}, Window{All: true}, ""), Failed, "broke off", "not all")
	wantClass(t, s.Events(t.Context(), api.ListEventsParams{}, Window{All: true}, filepath.Join(dir, "events")), Failed)
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

// A service that says nothing any more is given up; one that is slow is not.
func TestSilence(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	hold := make(chan struct{})
	f.stream = func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, streamNDJSON)
		w.(http.Flusher).Flush()
		select {
		case <-hold:
		case <-r.Context().Done():
		}
	}
	defer close(hold)
	s := of(t, f)
	s.Output = JSON
	s.Service.patience = 200 * time.Millisecond
	wantClass(t, s.Events(t.Context(), api.ListEventsParams{}, Window{All: true}, ""), Failed, "nothing for too long")
}

// A reader that is slow to take what comes does not make the service silent.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.stream = streaming
	s := of(t, f)
	s.Output = JSON
	s.Service.patience = 150 * time.Millisecond
	s.Out = slow{}
	wantOK(t, s.Events(t.Context(), api.ListEventsParams{}, Window{All: true}, ""))
}

type slow struct{}

func (slow) Write(p []byte) (int, error) {
	<-time.After(200 * time.Millisecond)
	return len(p), nil
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("the disk is full") }

func TestOutputFails(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.stream = streaming
	s := of(t, f)
	s.Output, s.Out = JSON, full{}
	wantClass(t, s.Events(t.Context(), api.ListEventsParams{}, Window{All: true}, ""), Failed, "the disk is full")
}

// A terminal gets no control character, whatever the form; JSON means the same as before.
func TestArmour(t *testing.T) {
	t.Parallel()
	nasty := "\"\x1b[2J \u009b\u202e \U000e0041 é\xff \r over\"\r\n"
	for size := 1; size <= len(nasty); size++ {
		var out strings.Builder
		a := &armour{out: &out}
		for i := 0; i < len(nasty); i += size {
			if _, err := a.Write([]byte(nasty[i:min(len(nasty), i+size)])); err != nil {
				t.Fatal(err)
			}
		}
		if want := `"\u001b[2J \u009b\u202e \udb40\udc41 é\xff \u000d over"` + "\r\n"; out.String() != want {
			t.Fatalf("in pieces of %d: got %q, want %q", size, out.String(), want)
		}
	}
	f := newFake(t)
	f.answers["GET /v1/tasks/t"] = answer{200, incident}
	s := of(t, f)
	s.Output, s.OutTerminal = JSON, true
	wantOK(t, s.Task(t.Context(), "t"))
	var before, after api.Task
	wantOK(t, json.Unmarshal([]byte(incident), &before))
	wantOK(t, json.Unmarshal([]byte(s.out.String()), &after))
	if before.Events[3].Actor != after.Events[3].Actor || strings.ContainsAny(s.out.String(), "\x1b\u009b\u202e") {
		t.Errorf("got %q", s.out.String())
	}
}

// A long look is told of at a terminal, and the line is taken away again.
func TestProgress(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.entries, f.pages = someEntries(2), []int{0, 0, 0, 1, 0}
	s := of(t, f)
	s.ErrTerminal = true
	at := now
	s.Now = func() time.Time { at = at.Add(2 * time.Second); return at }
	wantOK(t, s.Entries(t.Context(), api.ListEntriesParams{}, Window{All: true}))
	if told := s.errs.String(); !strings.Contains(told, "\rlooking: 3 pages, 0 found so far") || !strings.HasSuffix(told, "\r") {
		t.Errorf("told %q", told)
	}
	s = of(t, f)
	s.Now = func() time.Time { at = at.Add(2 * time.Second); return at }
	wantOK(t, s.Entries(t.Context(), api.ListEntriesParams{}, Window{All: true}))
	if told := s.errs.String(); told != "" {
		t.Errorf("a file was told %q", told)
	}
}
