package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/idemstore/idemstore/api"
	"github.com/idemstore/idemstore/internal/idem"
)

// maxReads bounds how many reads are served at a time: each holds a page in memory, which may have megabytes of evidence.
// Exports may last for hours, so they leave room for the others.
const (
	maxReads   = 16
	maxExports = 8
)

// errReads says that as many are reading as may. It has nothing to do with the load of the workers.
var errReads = errors.New("As many operators' reads are being served as may be at a time, exports among them. Nothing is wrong with the store or with any key; ask again when one has ended.") //nolint:staticcheck // a sentence of an answer

// unread is the error of a call that only asks: nothing has changed, whatever it was.
type unread struct{ error }

func (u unread) Unwrap() error { return u.error }

// reading serves a read that was understood, or says why it cannot: understood is the error of reading the question.
func (s *Server) reading(w http.ResponseWriter, r *http.Request, understood error, serve func(ctx context.Context) error) {
	if understood != nil {
		s.fail(w, r, understood)
		return
	}
	leave, ok := enter(s.reads)
	if !ok {
		s.fail(w, r, unread{errReads})
		return
	}
	defer leave()
	if err := serve(r.Context()); err != nil {
		s.fail(w, r, unread{err})
	}
}

// enter takes a place in each of these rooms, or in none where one of them is full.
func enter(rooms ...chan struct{}) (leave func(), ok bool) {
	for i, room := range rooms {
		select {
		case room <- struct{}{}:
		default:
			vacate(rooms[:i])
			return nil, false
		}
	}
	return func() { vacate(rooms) }, true
}

func vacate(rooms []chan struct{}) {
	for _, room := range rooms {
		<-room
	}
}

// GetEntry implements api.ServerInterface. It is a look, not a replay.
func (s *Server) GetEntry(w http.ResponseWriter, r *http.Request, _ api.TaskID, _ api.Attempt) {
	key, err := keyOf(r)
	if err == nil {
		_, err = queryOf(r)
	}
	s.reading(w, r, err, func(ctx context.Context) error {
		e, now, err := s.reader.Entry(ctx, key)
		switch {
		case err != nil:
			return err
		case e == nil:
			s.send(w, r, s.nothingKnown(requestOf(ctx), key.TaskID, &key.Attempt))
		default:
			s.send(w, r, answer{status: http.StatusOK, body: entryOf(e, now)})
		}
		return nil
	})
}

// nothingKnown is the answer about a key, or a whole task, of which there is nothing.
func (s *Server) nothingKnown(req *request, task string, attempt *int32) answer {
	p := newProblem(req, idem.CodeNotFound, "Nothing is known of "+task+", neither an attempt nor an event.")
	if attempt != nil {
		p.Detail = "Nothing is known of " + idem.Key{TaskID: task, Attempt: *attempt}.String() + ", or its retention has ended."
	}
	p.TaskID, p.Attempt = &task, attempt
	return answer{status: p.Status, code: idem.CodeNotFound, body: p}
}

// ListEntries implements api.ServerInterface.
func (s *Server) ListEntries(w http.ResponseWriter, r *http.Request) {
	q, err := readEntryQuery(r)
	s.reading(w, r, err, func(ctx context.Context) error {
		page, err := s.reader.Entries(ctx, q)
		if err != nil {
			return err
		}
		out := &api.EntryList{Entries: make([]api.Entry, len(page.Entries))}
		for i, e := range page.Entries {
			out.Entries[i] = *entryOf(e, page.Now)
		}
		if page.Next != nil {
			out.NextCursor = writeCursor(markOfEntry(page.Next))
		}
		requestOf(ctx).items = len(out.Entries)
		s.send(w, r, answer{status: http.StatusOK, body: out})
		return nil
	})
}

// GetStats implements api.ServerInterface.
func (s *Server) GetStats(w http.ResponseWriter, r *http.Request) {
	f := filtersOf(r, "after", "before")
	after, before := f.time("after"), f.time("before")
	s.reading(w, r, f.fault, func(ctx context.Context) error {
		if before.IsZero() {
			standing, err := s.reader.Standing(ctx)
			if err != nil {
				return err
			}
			before = standing.Now
		}
		if after.IsZero() {
			after = before.Add(-24 * time.Hour)
		}
		if err := idem.ValidatePeriod(after, before); err != nil {
			return err
		}
		stats, err := s.reader.Stats(ctx, after, before)
		if err != nil {
			return err
		}
		s.send(w, r, answer{status: http.StatusOK, body: statsOf(&stats, after, before)})
		return nil
	})
}

// ListEvents implements api.ServerInterface: a page as JSON, or all that match as a stream.
func (s *Server) ListEvents(w http.ResponseWriter, r *http.Request) {
	form := preferred(r.Header.Values("Accept"), []string{jsonType, ndjsonType, csvType})
	q, err := readEventQuery(r, form != jsonType)
	s.reading(w, r, err, func(ctx context.Context) error {
		if form != jsonType {
			leave, ok := enter(s.exports)
			if !ok {
				return errReads
			}
			defer leave()
		}
		page, err := s.reader.Events(ctx, q) // before anything is sent, so that a fault can be answered
		if err != nil {
			return err
		}
		w.Header().Set("Vary", "Accept")
		switch form {
		case csvType:
			s.exportEvents(w, r, csvHeader, csvLine, csvType+"; charset=utf-8; header=present", q, page)
		case ndjsonType:
			s.exportEvents(w, r, nil, jsonLine, ndjsonType, q, page)
		default:
			s.sendEvents(w, r, page)
		}
		return nil
	})
}

// GetTask implements api.ServerInterface.
func (s *Server) GetTask(w http.ResponseWriter, r *http.Request, _ api.TaskID) {
	task, err := taskOf(r)
	if err == nil {
		_, err = queryOf(r)
	}
	s.reading(w, r, err, func(ctx context.Context) error {
		entries := idem.EntryQuery{TaskID: task, Limit: idem.MaxPage}
		events := idem.EventQuery{TaskID: task, Limit: idem.MaxPage, Oldest: true}
		attempts, err := s.reader.Entries(ctx, entries)
		if err != nil {
			return err
		}
		trail, err := s.reader.Events(ctx, events)
		if err != nil {
			return err
		}
		if len(attempts.Entries)+len(trail.Events) == 0 && attempts.Next == nil && trail.Next == nil {
			s.send(w, r, s.nothingKnown(requestOf(ctx), task, nil))
			return nil
		}
		s.sendTask(w, r, entries, attempts, events, trail)
		return nil
	})
}
