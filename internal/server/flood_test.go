package server_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/internal/store"
)

// unfinished is a record of megabytes that lacks its last byte.
type unfinished struct {
	key    key
	conn   *net.TCPConn
	status atomic.Int64 // of the answer, when there is one
}

const (
	maxBodies = 128 << 20
	largeBody = 6 << 20
)

func (s *service) beginLarge(t *testing.T) *unfinished {
	t.Helper()
	u := &unfinished{key: s.key(t), conn: s.dial(t)}
	go func() {
		res, err := http.ReadResponse(bufio.NewReader(u.conn), nil)
		if err != nil {
			return
		}
		defer res.Body.Close()
		if res.StatusCode == http.StatusTooManyRequests && res.Header.Get("Retry-After") == "" {
			t.Error("429 without Retry-After")
		}
		u.status.Store(int64(res.StatusCode))
	}()
	fmt.Fprintf(u.conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", u.key.path("record"), largeBody)
	_, _ = io.WriteString(u.conn, pad(`{"owner":"w","response":{"body":"x"}}`, largeBody-1))
	return u
}

func (u *unfinished) finish() {
	u.key.t.Helper()
	_, _ = io.WriteString(u.conn, " ")
	eventually(u.key.t, "no answer", func() bool { return u.status.Load() != 0 })
}

// What arrives of large bodies is bounded over all requests: what is too much gets 429 while it arrives, small calls go on as
// ever, what had room is carried out, and room that was taken is given back.
func TestLargeBodiesAtOnce(t *testing.T) {
	t.Parallel()
	s := start(t, setup{database: inMemory})
	const fit, more = maxBodies / largeBody, 5
	var begun []*unfinished
	for range fit + more {
		begun = append(begun, s.beginLarge(t))
	}
	refused := func() (n int) {
		for _, u := range begun {
			if u.status.Load() == http.StatusTooManyRequests {
				n++
			}
		}
		return n
	}
	eventually(t, "what has no room is not refused", func() bool { return refused() >= more })
	s.key(t).reserve().want(201, "reserved")
	if n := refused(); n > 2*more {
		t.Errorf("of %d large ones %d are refused, and %d have room", fit+more, n, fit)
	}
	last := -1
	for i, u := range begun {
		if u.status.Load() == 0 {
			last = i
		} else {
			u.key.replay("").want(404, "not_found")
		}
	}
	begun[last].finish()
	begun[last].key.replay("").want(200, "recorded")
	for _, u := range begun {
		_ = u.conn.Close()
	}
	eventually(t, "after the flood there is no room", func() bool {
		u := s.beginLarge(t)
		u.finish()
		return u.status.Load() == http.StatusCreated
	})
}

// gate is a store that stands still while it is shut.
type gate struct {
	idem.Store
	mu sync.RWMutex
}

func (g *gate) Swap(ctx context.Context, changes []idem.Change) ([]bool, time.Time, error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.Store.Swap(ctx, changes)
}

// More calls than the queue holds, while the store stands still: what has no room is answered 429 with Retry-After, what has
// some waits and is carried out; and as soon as the store goes on, calls are granted again.
func TestAFloodEnds(t *testing.T) {
	t.Parallel()
	backend, err := store.Open(t.Context(), inMemory, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(backend.Close)
	g := &gate{Store: backend}
	batcher := store.NewBatcher(g, idem.DefaultPolicy, 2)
	t.Cleanup(batcher.Close)
	s := start(t, setup{keeper: batcher})
	var body bytes.Buffer
	body.WriteString(`{"items":[`)
	for i := range idem.MaxBatch {
		fmt.Fprintf(&body, `{"task_id":"flood-%d","attempt":0,"owner":"w"},`, i)
	}
	flood := strings.TrimSuffix(body.String(), ",") + "]}"
	const calls = 30 // of a thousand each, for a queue of twenty thousand
	answers := make(chan answer, calls)
	g.mu.Lock()
	for range calls {
		go func() {
			c := call{method: http.MethodPost, path: "/v1/batch/reserve", body: flood}
			res, err := client.Do(c.request(t, s))
			if err != nil {
				t.Error(err)
				answers <- answer{}
				return
			}
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
			answers <- answer{status: res.StatusCode, header: res.Header}
		}()
	}
	const refused = calls - 22 // twenty wait, and one or two are being carried out
	for range refused {
		if a := <-answers; a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" {
			t.Errorf("while the store stands still: %d, Retry-After %q", a.status, a.header.Get("Retry-After"))
		}
	}
	g.mu.Unlock()
	eventually(t, "nothing is granted after the flood", func() bool { return s.key(t).reserve().status == http.StatusCreated })
	for range calls - refused {
		if a := <-answers; a.status != http.StatusOK && a.status != http.StatusTooManyRequests {
			t.Errorf("a call that had room: %d", a.status)
		}
	}
}
