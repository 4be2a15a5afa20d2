package stories

import (
	"context"
	"fmt"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/internal/server"
	"github.com/idemstore/idemstore/internal/store"
)

const (
	lapse = time.Minute // any lease's
	day   = 24 * time.Hour
)

// Scene is a whole service, with a clock that can be moved, and a task on it.
type Scene struct {
	Backend store.Backend
	Keeper  *store.Batcher
	Tokens  server.Tokens
	Server  *server.Server
	Key     idem.Key
	shift   atomic.Int64
}

// Open makes a scene. It is to be closed.
func Open(ctx context.Context) (s *Scene, err error) {
	s = &Scene{Key: idem.Key{TaskID: "story-" + uuid.NewString()}}
	s.Backend, err = store.Open(ctx, "sqlite::memory:", store.Options{Shift: func() time.Duration { return time.Duration(s.shift.Load()) }})
	if err != nil {
		return nil, err
	}
	s.Keeper = store.NewBatcher(s.Backend, idem.DefaultPolicy, store.Lanes(s.Backend))
	s.Server = server.New(s.Keeper, s.Backend, &s.Tokens, zerolog.Nop(), server.Config{})
	return s, nil
}

// Close ends it.
func (s *Scene) Close() {
	s.Keeper.Close()
	s.Backend.Close()
}

// Do has a command carried out. What a story does is valid, and its store does not fail.
func (s *Scene) Do(cmd idem.Command) idem.Outcome {
	if err := cmd.Validate(); err != nil {
		panic(err)
	}
	result := s.Keeper.Do(context.Background(), cmd)[0]
	if result.Err != nil {
		panic(result.Err)
	}
	return result.Outcome
}

// Pass moves the database's clock on, and has the keeper hear of it.
func (s *Scene) Pass(d time.Duration) {
	s.shift.Add(int64(d + 5*time.Second))
	s.Do(&idem.Replay{Call: idem.Call{Key: idem.Key{TaskID: uuid.NewString()}}, Owner: "clock"})
}

// Forget ends the retention of all events so far.
func (s *Scene) Forget() {
	if _, err := s.Backend.PurgeEvents(context.Background(), time.Minute, false); err != nil {
		panic(err)
	}
}

// Now is the database's time.
func (s *Scene) Now(ctx context.Context) time.Time {
	_, now, err := s.Backend.Load(ctx, nil)
	if err != nil {
		panic(err)
	}
	return now
}

var stamp = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// Timeless writes TIME for every time of a verdict.
func Timeless(text string) string { return stamp.ReplaceAllString(text, "TIME") }

// worker is one of the fleet.
type worker struct {
	s     *Scene
	owner string
	id    string
	key   idem.Key
}

func (s *Scene) worker(owner string) *worker { return &worker{s, owner, uuid.NewString(), s.Key} }

func (w *worker) call() idem.Call { return idem.Call{Key: w.key, Actor: idem.Actor{Token: "fleet"}} }

func (w *worker) reserve(explicit bool, takeovers ...idem.Takeover) {
	w.wants(idem.CodeReserved, &idem.Reserve{
		Call: w.call(), Owner: w.owner, ReservationID: w.id, LeaseSeconds: 30, Explicit: explicit, Takeovers: takeovers,
	})
}

func (w *worker) dispatch() {
	w.wants(idem.CodeDispatched, &idem.Dispatch{Call: w.call(), ReservationID: w.id})
}

func (w *worker) record(body string) {
	w.s.Do(&idem.Record{Call: w.call(), ReservationID: w.id, Response: response(body)})
}

func (w *worker) release(failed *idem.Response) {
	w.s.Do(&idem.Release{Call: w.call(), ReservationID: w.id, Reason: "connection refused", Response: failed})
}

func (w *worker) wants(code idem.Code, cmd idem.Command) {
	if out := w.s.Do(cmd); out.Code != code {
		panic(fmt.Sprintf("%s was answered %s, not %s", w.owner, out.Code, code))
	}
}

// overtaken is a holder whose lease passed, and the one that took over from it.
func (s *Scene) overtaken() (a, b *worker) {
	a, b = s.worker("a"), s.worker("b")
	a.reserve(false)
	s.Pass(lapse)
	b.reserve(false, idem.Takeover{Attempt: s.Key.Attempt, Fence: 1})
	return a, b
}

// resolve is an operator's word on the first grant.
func (s *Scene) resolve(force bool, r *idem.Response) {
	s.Do(&idem.Resolve{
		Call:  idem.Call{Key: s.Key, Actor: idem.Actor{Token: "alice"}},
		Fence: 1, Force: force, Reason: "looked it up", Response: r,
	})
}

func response(body string) *idem.Response {
	return &idem.Response{
		Status: 201, Headers: []idem.Header{{"Content-Type", "application/json"}}, HasBody: true, Body: []byte(`{"charge":"` + body + `"}`),
	}
}
