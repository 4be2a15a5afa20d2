package console_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/idemstore/idemstore/internal/idem"
)

// heavy is a reader of a trail of large responses. It knows which of those that it gave out are still held.
type heavy struct {
	idem.Reader
	mu    sync.Mutex
	given []weak.Pointer[byte]
	held  int // at most, whenever the next page was asked for
}

const (
	heavyPages = 6
	heavyPage  = 10
)

func (h *heavy) Events(_ context.Context, q idem.EventQuery) (idem.EventPage, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	runtime.GC()
	held := 0
	for _, p := range h.given {
		if p.Value() != nil {
			held++
		}
	}
	h.held = max(h.held, held)
	n := 0
	if q.From != nil {
		_, _ = fmt.Sscan(q.From.ID, &n)
	}
	var page idem.EventPage
	for i := range heavyPage {
		body := make([]byte, 1<<16)
		body[0] = byte('a' + i)
		h.given = append(h.given, weak.Make(&body[0]))
		page.Events = append(page.Events, idem.Event{
			ID: fmt.Sprint(n, i), At: time.Unix(int64(n), 0), Kind: idem.EventRefusedRecord, Key: idem.Key{TaskID: q.TaskID},
			Owner: "w", Response: &idem.Response{Status: 200, HasBody: true, Body: body},
		})
	}
	if n+1 < heavyPages {
		page.Next = &idem.EventPosition{At: time.Unix(int64(n), 0), ID: fmt.Sprint(n + 1)}
	}
	return page, nil
}

// However many responses a trail has, a page holds those of one page of it.
func TestResponsesAreLetGo(t *testing.T) {
	t.Parallel()
	h := &heavy{}
	s := start(t, setup{reader: func(r idem.Reader) idem.Reader { h.Reader = r; return h }})
	s.as(t, "auditor").get("/console/tasks/fat").want(200, "It may have happened: w")
	if len(h.given) < heavyPages*heavyPage {
		t.Fatalf("%d responses were read", len(h.given))
	}
	if h.held > heavyPage {
		t.Errorf("%d responses were held while the next were read", h.held)
	}
}

// crowded is a reader that is slow, and counts who is in it.
type crowded struct {
	idem.Reader
	inside  chan struct{}
	release chan struct{}
}

func (c crowded) Entries(ctx context.Context, q idem.EntryQuery) (idem.EntryPage, error) {
	c.inside <- struct{}{}
	<-c.release
	return c.Reader.Entries(ctx, q)
}

// Few pages are made at a time; the others wait their turn.
func TestPagesTakeTurns(t *testing.T) {
	t.Parallel()
	const many, atOnce = 12, 4
	slow := crowded{inside: make(chan struct{}, many), release: make(chan struct{})}
	s := start(t, setup{reader: func(r idem.Reader) idem.Reader { slow.Reader = r; return slow }})
	c := s.as(t, "auditor")
	var all sync.WaitGroup
	for range many {
		all.Go(func() { c.get("/console/entries").want(200) })
	}
	for range atOnce {
		<-slow.inside
	}
	c.get("/console/sign-in").want(303) // needs no turn
	for range many - atOnce {
		select {
		case <-slow.inside:
			t.Error("one more than may is in")
		default:
		}
		slow.release <- struct{}{}
		<-slow.inside
	}
	close(slow.release)
	all.Wait()
}
