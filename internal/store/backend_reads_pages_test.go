package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/idemstore/idemstore/internal/idem"
)

// Pages neither leave out nor repeat what was there throughout, whatever is added, changed and taken over meanwhile.
func TestPagesWhileRowsChange(t *testing.T) {
	t.Parallel()
	onEveryBackend(t, func(t *testing.T, b Backend) {
		r := rand.New(rand.NewPCG(13, 14))
		for _, q := range []idem.EntryQuery{{Limit: 1}, {Limit: 2, State: idem.Reserved}, {Limit: 2}, {Limit: 7, Owner: "a"}} {
			about := now(t, b).Add(-time.Hour)
			var there []*idem.Entry
			for i := range 16 {
				e := reserved(fresh())
				e.Owner = "a"
				e.ReservedAt = about.Add(time.Duration(i/3) * time.Millisecond) // three of each moment
				e.LeaseUntil = e.ReservedAt.Add(time.Second)
				there = append(there, e)
				swap(t, b, over(nil, e))
			}
			readerOf(t, b).stride = some(r, 2, 5, 100)
			q.ReservedAfter = about
			seen, moved := map[idem.Key]int{}, map[idem.Key]bool{}
			for {
				p, err := b.Entries(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range p.Entries {
					seen[e.Key]++
				}
				if q.From = p.Next; p.Next == nil {
					break
				}
				fresher := reserved(fresh())
				e := some(r, there...)
				n := *e
				n.Version++
				n.Takeovers++
				if r.IntN(4) == 0 { // another holder's now: it is reserved anew
					n.ReservedAt, n.LeaseUntil = fresher.ReservedAt, fresher.LeaseUntil
					moved[e.Key] = true
				}
				swap(t, b, over(nil, fresher), over(e, &n))
				*e = n
			}
			for _, e := range there {
				if n := seen[e.Key]; n > 1 || n == 0 && !moved[e.Key] {
					t.Errorf("%+v: %s came %d times", q, e.Key, n)
				}
			}
		}
	})
}

// weighty are attempts of a task and events of it, with bodies of these sizes.
func weighty(t *testing.T, b Backend, sizes ...int) (task string) {
	t.Helper()
	task = uuid.NewString()
	for i, size := range sizes {
		response := &idem.Response{Status: 200, HasBody: true, Body: bytes.Repeat([]byte{0}, size)}
		e := recorded(reserved(idem.Key{TaskID: task, Attempt: int32(i)}), response)
		event := happened(e.Key, idem.EventDuplicateRecord)
		event.At = event.At.Add(time.Duration(i) * time.Microsecond)
		event.Response = response
		swap(t, b, over(nil, e, event))
	}
	return task
}

// What a page weighs is bounded, but one row there always is.
func TestPagesAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	onEveryBackend(t, func(t *testing.T, b Backend) {
		task := weighty(t, b, 400, 400, 400, 5000, 5000, 10, 10)
		want := [][]int{{400, 400}, {400}, {5000}, {5000}, {10, 10}}
		r := readerOf(t, b)
		r.room = 1000
		for _, stride := range []int{1, 2, firstStride} {
			r.stride = stride
			var entries, events [][]int
			for q := (idem.EntryQuery{TaskID: task}); ; {
				p, err := b.Entries(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				var sizes []int
				for _, e := range p.Entries {
					sizes = append(sizes, len(e.Response.Body))
				}
				entries = append(entries, sizes)
				if q.From = p.Next; p.Next == nil {
					break
				}
			}
			for q := (idem.EventQuery{TaskID: task, Actor: "a", Oldest: true}); ; { // in strides
				p, err := b.Events(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				var sizes []int
				for _, e := range p.Events {
					sizes = append(sizes, len(e.Response.Body))
				}
				events = append(events, sizes)
				if q.From = p.Next; p.Next == nil {
					break
				}
			}
			if got := fmt.Sprint(entries); got != fmt.Sprint(want) {
				t.Errorf("pages of entries: %s, want %v", got, want)
			}
			if got := fmt.Sprint(events); got != fmt.Sprint(want) {
				t.Errorf("pages of events: %s, want %v", got, want)
			}
		}
	})
}

// The bound itself, with bodies as large as they come.
func TestPagesOfLargeBodies(t *testing.T) {
	t.Parallel()
	onEveryBackend(t, func(t *testing.T, b Backend) {
		task := weighty(t, b, 5<<20, 3<<20, 16<<20)
		p, err := b.Events(t.Context(), idem.EventQuery{TaskID: task, Oldest: true})
		if err != nil || len(p.Events) != 2 || p.Next == nil {
			t.Fatalf("%d events, %v, %v", len(p.Events), p.Next, err)
		}
		p, err = b.Events(t.Context(), idem.EventQuery{TaskID: task, Oldest: true, From: p.Next})
		if err != nil || len(p.Events) != 1 || len(p.Events[0].Response.Body) != 16<<20 || p.Next != nil {
			t.Fatalf("%d events, %v, %v", len(p.Events), p.Next, err)
		}
	})
}

// A page that has been looked for long enough ends with what was found, and the next goes on there.
func TestPagesAreShortWhereTimeIsUp(t *testing.T) {
	t.Parallel()
	onEveryBackend(t, func(t *testing.T, b Backend) {
		entries := fillEntries(t, b, rand.New(rand.NewPCG(15, 16)), 100)
		r := readerOf(t, b)
		r.stride, r.patience = 10, 0
		about := now(t, b)
		q := idem.EntryQuery{Owner: "b", State: idem.Recorded}
		got, pages := allEntries(t, b, q)
		wantList(t, "short pages", got, wanted(q, entries, about))
		if n := len(wanted(idem.EntryQuery{}, entries, about)); pages < n/10 {
			t.Errorf("%d pages of %d entries in strides of 10", pages, n)
		}
		got, pages = allEntries(t, b, idem.EntryQuery{Owner: "nobody"})
		if len(got) > 0 || pages < 5 {
			t.Errorf("%d entries of nobody on %d pages", len(got), pages)
		}
	})
}

// tiring is a store that is too slow for every question from some on.
type tiring struct {
	asker
	good int
}

func (s *tiring) ask(ctx context.Context, q statement, read func(scanner) error) (time.Time, error) {
	if s.good--; s.good < 0 {
		return time.Time{}, unanswered(context.DeadlineExceeded, true)
	}
	return s.asker.ask(ctx, q, read)
}

// Where a stride is too slow, the page ends before it. The first is too slow for the question.
func TestAStrideThatIsTooSlow(t *testing.T) {
	t.Parallel()
	onEveryBackend(t, func(t *testing.T, b Backend) {
		entries := fillEntries(t, b, rand.New(rand.NewPCG(17, 18)), 100)
		r := readerOf(t, b)
		real := r.asker
		r.stride = 10
		want := wanted(idem.EntryQuery{Owner: "a"}, entries, now(t, b))
		for good := range 8 {
			r.asker = &tiring{real, good}
			p, err := b.Entries(t.Context(), idem.EntryQuery{Owner: "a"})
			switch {
			case good < 3: // the time, the first stride's end and its rows
				if !errors.Is(err, idem.ErrTooSlow) || errors.Is(err, idem.ErrUnavailable) {
					t.Errorf("after %d statements: %+v, %v", good, p, err)
				}
			case err != nil || p.Next == nil || len(p.Entries) > len(want):
				t.Errorf("after %d statements: %+v, %v", good, p, err)
			default:
				r.asker = real
				rest, _ := allEntries(t, b, idem.EntryQuery{Owner: "a", From: p.Next})
				wantList(t, "the rest", slices.Concat(p.Entries, rest), want)
			}
		}
	})
}

// A question of a caller that hung up is an error, and the store goes on.
func TestQuestionsOfACallerThatHungUp(t *testing.T) {
	t.Parallel()
	onEveryBackend(t, func(t *testing.T, b Backend) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 10 {
			if _, err := b.Events(ctx, idem.EventQuery{}); !errors.Is(err, context.Canceled) || !errors.Is(err, idem.ErrUnavailable) {
				t.Errorf("got %v", err)
			}
		}
		if _, err := b.Standing(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestQuestionsToAClosedStore(t *testing.T) {
	t.Parallel()
	onEveryBackend(t, func(t *testing.T, b Backend) {
		b.Close()
		if _, err := b.Standing(t.Context()); !errors.Is(err, idem.ErrUnavailable) {
			t.Errorf("standing: %v", err)
		}
		if _, err := b.Entries(t.Context(), idem.EntryQuery{}); !errors.Is(err, idem.ErrUnavailable) {
			t.Errorf("entries: %v", err)
		}
	})
}

// A place that no page has told of, which a caller may make up, is no fault of the store.
func TestPagesFromNowhere(t *testing.T) {
	t.Parallel()
	onEveryBackend(t, func(t *testing.T, b Backend) {
		fillEntries(t, b, rand.New(rand.NewPCG(21, 22)), 10)
		for _, at := range []time.Time{{}, time.Unix(1<<40, 0), time.Unix(-1<<40, 0), time.Now()} {
			for _, text := range []string{"", "\x00", "\xff", "no uuid", awkward} {
				from := idem.EntryPosition{ReservedAt: at, Key: idem.Key{TaskID: text, Attempt: -7}}
				if _, err := b.Entries(t.Context(), idem.EntryQuery{From: &from, RecordedAfter: at, TaskID: text}); err != nil {
					t.Errorf("%v %q: %v", at, text, err)
				}
				if _, err := b.Entries(t.Context(), idem.EntryQuery{From: &from, ReservedAfter: at, Handler: text, Owner: text}); err != nil {
					t.Errorf("%v %q: %v", at, text, err)
				}
				if _, err := b.Events(t.Context(), idem.EventQuery{From: &idem.EventPosition{At: at, ID: text}, Before: at, Actor: text}); err != nil {
					t.Errorf("%v %q: %v", at, text, err)
				}
			}
			if _, err := b.Stats(t.Context(), at, at); err != nil {
				t.Errorf("%v: %v", at, err)
			}
		}
	})
}
