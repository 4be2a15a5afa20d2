package server

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
)

const (
	jsonType   = "application/json"
	ndjsonType = "application/x-ndjson"
	csvType    = "text/csv"

	// pageSendTime is how long a client may take over one page of a stream.
	pageSendTime = 100 * time.Second
)

// errStopping is why a stream is cut when the service stops.
var errStopping = errors.New("the service is stopping")

// A stream is an answer that is written as it is read. Between two pages it holds nothing but its connection.
type stream struct {
	*bufio.Writer
	s       *Server
	req     *request
	ctx     context.Context //nolint:containedctx // of the one request that it answers
	control *http.ResponseController
}

func (s *Server) stream(w http.ResponseWriter, r *http.Request, contentType string) *stream {
	w.Header().Set("Content-Type", contentType)
	t := &stream{bufio.NewWriterSize(w, 32<<10), s, requestOf(r.Context()), r.Context(), http.NewResponseController(w)}
	t.nextPage()
	w.WriteHeader(http.StatusOK)
	return t
}

// nextPage gives the client time for another page.
func (t *stream) nextPage() {
	_ = t.control.SetWriteDeadline(time.Now().Add(pageSendTime)) // not of every connection
}

// turn sends what was written, before the next page is asked for.
func (t *stream) turn() {
	t.flush()
	if t.s.draining.Load() {
		t.cut(errStopping)
	}
}

// flush sends what was written.
func (t *stream) flush() {
	err := t.Flush()
	if err == nil {
		err = t.control.Flush()
	}
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		t.cut(err)
	}
}

// cut breaks the connection off, so that the client sees that the answer is not whole.
func (t *stream) cut(err error) {
	t.req.err = err
	panic(http.ErrAbortHandler)
}

// eventPages gives page after page of the trail to write.
func (t *stream) eventPages(q idem.EventQuery, page idem.EventPage, write func(*idem.Event)) {
	for {
		for i := range page.Events {
			write(&page.Events[i])
			t.req.items++
		}
		if q.From = page.Next; q.From == nil {
			return
		}
		t.turn()
		var err error
		if page, err = t.s.reader.Events(t.ctx, q); err != nil {
			t.cut(err)
		}
		t.nextPage()
	}
}

// entryPages gives page after page of entries to write.
func (t *stream) entryPages(q idem.EntryQuery, page idem.EntryPage, write func(*idem.Entry, time.Time)) {
	for {
		for _, e := range page.Entries {
			write(e, page.Now)
		}
		if q.From = page.Next; q.From == nil {
			return
		}
		t.turn()
		var err error
		if page, err = t.s.reader.Entries(t.ctx, q); err != nil {
			t.cut(err)
		}
		t.nextPage()
	}
}

// array writes the items of an array of JSON that is open.
func (t *stream) array() func(item any) {
	first := true
	return func(item any) {
		if !first {
			_ = t.WriteByte(',')
		}
		first = false
		_, _ = t.Write(encode(item)) // a fault stays, and Flush tells of it
	}
}

// sendEvents answers with a page. What it sends is an api.EventList.
func (s *Server) sendEvents(w http.ResponseWriter, r *http.Request, page idem.EventPage) {
	t := s.stream(w, r, jsonType)
	_, _ = t.WriteString(`{"events":[`)
	write := t.array()
	for i := range page.Events {
		write(eventOf(&page.Events[i]))
	}
	t.req.items = len(page.Events)
	_ = t.WriteByte(']')
	if page.Next != nil {
		_, _ = t.WriteString(`,"next_cursor":"` + *writeCursor(markOfEvent(page.Next)) + `"`)
	}
	_ = t.WriteByte('}')
	t.flush()
}

// sendTask answers with a task over its attempts. What it sends is an api.Task.
func (s *Server) sendTask(w http.ResponseWriter, r *http.Request,
	entries idem.EntryQuery, attempts idem.EntryPage, events idem.EventQuery, trail idem.EventPage,
) {
	t := s.stream(w, r, jsonType)
	_, _ = t.WriteString(`{"task_id":"` + entries.TaskID + `","attempts":[`) // whose characters need no escape
	attempt := t.array()
	t.entryPages(entries, attempts, func(e *idem.Entry, now time.Time) { attempt(entryOf(e, now)) })
	_, _ = t.WriteString(`],"events":[`)
	event := t.array()
	t.eventPages(events, trail, func(e *idem.Event) { event(eventOf(e)) })
	_, _ = t.WriteString(`]}`)
	t.flush()
}

// exportEvents answers with all events that a query asks for, in lines.
func (s *Server) exportEvents(w http.ResponseWriter, r *http.Request,
	header []byte, line func([]byte, *idem.Event) []byte, contentType string, q idem.EventQuery, page idem.EventPage,
) {
	t := s.stream(w, r, contentType)
	_, _ = t.Write(header)
	var buf []byte
	t.eventPages(q, page, func(e *idem.Event) {
		buf = line(buf[:0], e)
		_, _ = t.Write(buf)
		if cap(buf) > maxLineKept {
			buf = nil
		}
	})
	t.flush()
}

// maxLineKept bounds the memory that a long line leaves behind.
const maxLineKept = 1 << 20

// jsonLine is an event as a line of NDJSON.
func jsonLine(buf []byte, e *idem.Event) []byte {
	return append(append(buf, encode(eventOf(e))...), '\n')
}
