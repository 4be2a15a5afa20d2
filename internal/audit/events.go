package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/idemstore/idemstore/api"
)

// Events lists events, newest first: a table from pages, JSON and CSV from the service's own stream. With a file, that is
// where they go; it appears whole or not at all.
func (s *Session) Events(ctx context.Context, q api.ListEventsParams, want Window, file string) error {
	if s.Output == Table {
		ask := func(ctx context.Context, limit *int, cursor *string) (*http.Response, error) {
			q.Limit, q.Cursor = limit, cursor
			return s.Service.api.ListEvents(ctx, &q)
		}
		found, more, err := s.pages(ctx, ask, want, s.progress(true), s.eventTable())
		if err != nil {
			return err
		}
		return s.listed(found, more, want)
	}
	if file == "" {
		return s.stream(ctx, q, want, s.exact(), s.progress(!s.OutTerminal))
	}
	return intoFile(file, func(out io.Writer) error { return s.stream(ctx, q, want, out, s.progress(true)) })
}

func (s *Session) eventTable() func(items []json.RawMessage) error {
	t := newTable(s.Out, "AT", ">AGE", "KIND", "TASK", ">ATTEMPT", ">FENCE", "HANDLER", "ACTOR", "TOKEN", "DETAIL")
	t.widths[2] = len(api.EventKindRefusedMismatch) // the longest, so that the columns stay where they are
	return func(items []json.RawMessage) error {
		var rows [][]string
		for _, item := range items {
			var e api.Event
			if err := s.Service.decode(item, &e); err != nil {
				return err
			}
			rows = append(rows, []string{
				e.At, age(moment(e.At), s.now()), string(e.Kind), e.TaskID, fmt.Sprint(e.Attempt), fmt.Sprint(e.Fence), or(e.Handler, "-"),
				some(e.Actor.Owner), some(e.Actor.Token), s.tell(&e),
			})
		}
		return t.rows(rows...)
	}
}

// some is a text, or a dash where there is none.
func some(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// tell is an event's detail and what response came with it, in a few words.
func (s *Session) tell(e *api.Event) string {
	text := detail(e.Detail)
	if e.Response != nil {
		text = joined(text, "offered "+brief(e.Response))
	}
	return some(text)
}

func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// errEnough ends a stream of which no more is wanted.
var errEnough = errors.New("enough")

// stream copies the service's own stream of events, whole or its first records.
func (s *Session) stream(ctx context.Context, q api.ListEventsParams, want Window, out io.Writer, p *progress) error {
	form := "application/x-ndjson"
	if s.Output == CSV {
		form = "text/csv"
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // an end before the stream's
	body, err := s.Service.answer(s.Service.api.ListEvents(ctx, &q, func(_ context.Context, req *http.Request) error {
		req.Header.Set("Accept", form)
		return nil
	}))
	if err != nil {
		return err
	}
	defer body.Close()
	defer p.clear()
	r := &records{out: out, csv: s.Output == CSV, limit: -1, told: func(n, bytes int64) { p.tell("%d events, %.1f MB so far", n, float64(bytes)/1e6) }}
	if !want.All {
		r.limit = int64(want.Limit)
	}
	_, err = io.Copy(r, body)
	var unwritten *writeError
	switch {
	case errors.As(err, &unwritten):
		return fail(Failed, "writing: %v", unwritten.error)
	case err != nil && !errors.Is(err, errEnough):
		return s.Service.cut(err)
	}
	p.clear()
	return s.listed(int(r.found()), errors.Is(err, errEnough), want)
}

// writeError tells a fault of the output from one of the service.
type writeError struct{ error }

// records passes a stream on, counts its records and ends it after so many.
type records struct {
	out    io.Writer
	csv    bool  // its first record is the header, and a line break between quotes ends none
	limit  int64 // negative: all
	ended  int64 // records, the header among them
	bytes  int64
	quoted bool
	told   func(found, bytes int64)
}

func (r *records) header() int64 {
	if r.csv {
		return 1
	}
	return 0
}

func (r *records) found() int64 { return max(0, r.ended-r.header()) }

func (r *records) Write(p []byte) (int, error) {
	wanted, enough := p, false
	for i, b := range p {
		if r.limit >= 0 && r.ended == r.limit+r.header() {
			wanted, enough = p[:i], true
			break
		}
		switch {
		case b == '"':
			r.quoted = r.csv && !r.quoted
		case b == '\n' && !r.quoted:
			r.ended++
		}
	}
	n, err := r.out.Write(wanted)
	r.bytes += int64(n)
	r.told(r.found(), r.bytes)
	switch {
	case err != nil:
		return n, &writeError{err}
	case enough:
		return n, errEnough
	}
	return n, nil
}
