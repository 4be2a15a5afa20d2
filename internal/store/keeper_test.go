package store

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/internal/pgtest"
)

// keeper is the idem.Keeper of one cell of {Postgres, SQLite} x {direct, group commit}, over a store of its own whose
// time the test moves.
type keeper struct {
	idem.Keeper
	t       *testing.T
	url     string
	backend Backend
	shift   *atomic.Int64
	// another is a second replica over the same store, at the same time.
	another func(wrap func(idem.Store) idem.Store) idem.Keeper
}

// onEveryKeeper runs a test, whole, in every cell.
func onEveryKeeper(t *testing.T, test func(k *keeper)) {
	t.Helper()
	engines := map[string]func(t *testing.T) string{
		"Postgres": func(t *testing.T) string { return pgtest.New(t) },
		"SQLite":   func(t *testing.T) string { return "sqlite:" + t.TempDir() + "/idemstore.db" },
	}
	for engine, open := range engines {
		for _, lanes := range []int{0, 1, 4} {
			t.Run(fmt.Sprintf("%s/lanes=%d", engine, lanes), func(t *testing.T) {
				t.Parallel()
				k := &keeper{t: t, url: open(t), shift: new(atomic.Int64)}
				k.backend = openTest(t, k.url, k.shift)
				k.another = func(wrap func(idem.Store) idem.Store) idem.Keeper {
					var s idem.Store = k.backend
					if wrap != nil {
						s = wrap(s)
					}
					if lanes == 0 {
						return NewDirect(s, idem.DefaultPolicy)
					}
					b := NewBatcher(s, idem.DefaultPolicy, lanes)
					b.queue.deep = 0 // all of them, as soon as there is something to carry out
					t.Cleanup(b.Close)
					return b
				}
				k.Keeper = k.another(nil)
				test(k)
			})
		}
	}
}

func openTest(t *testing.T, url string, shift *atomic.Int64) Backend {
	t.Helper()
	b, err := Open(t.Context(), url, Options{MaxConns: 10, Shift: func() time.Duration { return time.Duration(shift.Load()) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func (k *keeper) pass(d time.Duration) { k.shift.Add(int64(d)) }

// ask carries commands out and fails the test on an error.
func (k *keeper) ask(cmds ...idem.Command) []idem.Outcome {
	k.t.Helper()
	return outcomes(k.t, k.Do(k.t.Context(), cmds...))
}

func outcomes(t *testing.T, results []idem.Result) []idem.Outcome {
	t.Helper()
	var outs []idem.Outcome
	for _, r := range results {
		if r.Err != nil {
			t.Fatalf("command failed: %v", r.Err)
		}
		outs = append(outs, r.Outcome)
	}
	return outs
}

// want checks the codes of outcomes.
func (k *keeper) want(outs []idem.Outcome, codes ...idem.Code) {
	k.t.Helper()
	var got []idem.Code
	for _, o := range outs {
		got = append(got, o.Code)
	}
	if !slices.Equal(got, codes) {
		k.t.Fatalf("outcomes: got %v, want %v", got, codes)
	}
}

func fresh() idem.Key { return idem.Key{TaskID: uuid.NewString()} }

func callOn(k idem.Key) idem.Call {
	return idem.Call{Key: k, Actor: idem.Actor{Token: "test", RequestID: "r1"}}
}

func reserve(k idem.Key, owner string) *idem.Reserve {
	return &idem.Reserve{Call: callOn(k), Owner: owner, ReservationID: uuid.NewString(), LeaseSeconds: 30}
}

func record(r *idem.Reserve, body string) *idem.Record {
	return &idem.Record{Call: callOn(r.Key), ReservationID: r.ReservationID, Response: reply(body)}
}

func reply(body string) *idem.Response {
	return &idem.Response{Status: 201, Headers: []idem.Header{{"X-A", "1"}}, HasBody: true, Body: []byte(body)}
}

func replay(k idem.Key) *idem.Replay { return &idem.Replay{Call: callOn(k), Owner: "reader"} }

func TestReserveRecordReplay(t *testing.T) {
	t.Parallel()
	onEveryKeeper(t, func(k *keeper) {
		r := reserve(fresh(), "a")
		k.want(k.ask(replay(r.Key)), idem.CodeNotFound)
		k.want(k.ask(r), idem.CodeReserved)
		k.want(k.ask(replay(r.Key)), idem.CodeInProgress)
		k.want(k.ask(record(r, "done")), idem.CodeRecorded)
		again := k.ask(reserve(r.Key, "b"))
		k.want(again, idem.CodeRecorded)
		if !again[0].Entry.Response.Equal(reply("done")) {
			t.Errorf("replayed %+v", again[0].Entry.Response)
		}
		k.want(k.ask(record(r, "done"), record(r, "other")), idem.CodeRecorded, idem.CodeAlreadyRecorded)
	})
}

// One key several times in one batch: each is answered as if they had come one after the other.
func TestOneKeyTwiceInOneBatch(t *testing.T) {
	t.Parallel()
	onEveryKeeper(t, func(k *keeper) {
		a, b := reserve(fresh(), "a"), reserve(fresh(), "b")
		b.Key = a.Key
		outs := k.ask(a, b, a, record(a, "x"), b, record(a, "x"), replay(a.Key))
		k.want(outs, idem.CodeReserved, idem.CodeInProgress, idem.CodeReserved, idem.CodeRecorded, idem.CodeRecorded,
			idem.CodeRecorded, idem.CodeRecorded)
		if !outs[3].First || outs[5].First {
			t.Error("the first record must be the first, and its repetition must not")
		}
		if outs[0].Entry.Fence != outs[2].Entry.Fence {
			t.Error("a repeated reserve must get the same grant")
		}
		k.want(k.ask(replay(a.Key)), idem.CodeRecorded)
	})
}

func TestAttemptsOfOneTaskInOneBatch(t *testing.T) {
	t.Parallel()
	onEveryKeeper(t, func(k *keeper) {
		first := reserve(fresh(), "a")
		second := reserve(idem.Key{TaskID: first.TaskID, Attempt: 1}, "b")
		k.want(k.ask(first, second), idem.CodeReserved, idem.CodeInProgress)
		release := &idem.Release{Call: callOn(first.Key), ReservationID: first.ReservationID}
		straggler := reserve(first.Key, "c")
		k.want(k.ask(release, second, straggler), idem.CodeReleased, idem.CodeReserved, idem.CodeInProgress)
	})
}

// A fresh reserve is decided without looking; the store must refuse it beside a later attempt.
func TestAFreshStragglerIsRefused(t *testing.T) {
	t.Parallel()
	onEveryKeeper(t, func(k *keeper) {
		later := reserve(idem.Key{TaskID: uuid.NewString(), Attempt: 3}, "a")
		k.want(k.ask(later), idem.CodeReserved)
		straggler := reserve(idem.Key{TaskID: later.TaskID}, "b")
		outs := k.ask(straggler)
		k.want(outs, idem.CodeInProgress)
		if outs[0].Entry.Attempt != 3 {
			t.Errorf("attempt %d stands in the way, want 3", outs[0].Entry.Attempt)
		}
		k.want(k.ask(record(later, "late")), idem.CodeRecorded)
		outs = k.ask(straggler)
		k.want(outs, idem.CodeRecorded)
		if got := string(outs[0].Entry.Response.Body); got != "late" {
			t.Errorf("another attempt's response came as %q", got)
		}
	})
}

// Of two that race for one key through different replicas one wins, and the other is decided anew.
func TestTwoWritersRaceForOneKey(t *testing.T) {
	t.Parallel()
	onEveryKeeper(t, func(k *keeper) {
		replicas := []idem.Keeper{k.Keeper, k.another(nil), k.another(nil)}
		for range 20 {
			key := fresh()
			codes := make([]idem.Code, 12)
			var all sync.WaitGroup
			for i := range codes {
				all.Go(func() {
					res := replicas[i%len(replicas)].Do(context.Background(), reserve(key, fmt.Sprint("w", i)))
					if res[0].Err == nil {
						codes[i] = res[0].Outcome.Code
					}
				})
			}
			all.Wait()
			slices.Sort(codes)
			if codes[0] != idem.CodeInProgress || codes[10] != idem.CodeInProgress || codes[11] != idem.CodeReserved {
				t.Fatalf("one must win and all others be told so: %v", codes)
			}
		}
	})
}

func TestAGuessOfAnotherReplicasPastIsRefused(t *testing.T) {
	t.Parallel()
	onEveryKeeper(t, func(k *keeper) {
		other := k.another(nil)
		r := reserve(fresh(), "a")
		k.want(k.ask(r), idem.CodeReserved) // this replica remembers it as reserved
		outs := outcomes(t, other.Do(t.Context(), record(r, "elsewhere")))
		k.want(outs, idem.CodeRecorded)
		k.want(k.ask(record(r, "here")), idem.CodeAlreadyRecorded)
		k.want(k.ask(&idem.Renew{Call: callOn(r.Key), ReservationID: r.ReservationID, LeaseSeconds: 5}), idem.CodeAlreadyRecorded)
		k.want(k.ask(reserve(r.Key, "b")), idem.CodeRecorded)
	})
}

func TestDoubtAndTakeover(t *testing.T) {
	t.Parallel()
	onEveryKeeper(t, func(k *keeper) {
		a, b := reserve(fresh(), "a"), reserve(fresh(), "b")
		b.Key = a.Key
		k.want(k.ask(a), idem.CodeReserved)
		k.pass(31 * time.Second)
		doubt := k.ask(b)
		k.want(doubt, idem.CodeInDoubt)
		if len(doubt[0].Doubts) != 1 || doubt[0].Doubts[0].Owner != "a" || len(doubt[0].Takeovers) != 1 {
			t.Fatalf("in doubt: %+v", doubt[0])
		}
		revived := k.ask(&idem.Dispatch{Call: callOn(a.Key), ReservationID: a.ReservationID})
		k.want(revived, idem.CodeDispatched)
		if revived[0].Entry.Fence != 2 {
			t.Errorf("a revived lease has fence %d, want 2", revived[0].Entry.Fence)
		}
		k.pass(31 * time.Second)
		b.Takeovers = doubt[0].Takeovers
		k.want(k.ask(b), idem.CodeInDoubt) // the old look authorises nothing
		b.Takeovers = []idem.Takeover{{Fence: 2}}
		granted := k.ask(b)
		k.want(granted, idem.CodeReserved)
		if len(granted[0].Doubts) != 1 || granted[0].Entry.Fence != 3 {
			t.Errorf("taken over: %+v", granted[0])
		}
		late := k.ask(record(a, "did it"))
		k.want(late, idem.CodeRecorded)
		if !late[0].Entry.Late {
			t.Error("the record of one who held no live lease must be late")
		}
		k.want(k.ask(&idem.Dispatch{Call: callOn(b.Key), ReservationID: b.ReservationID}), idem.CodeAlreadyRecorded)
	})
}

// A key past its retention is absent, purged or not, and its next life begins anew.
func TestAnExpiredRowIsAbsent(t *testing.T) {
	t.Parallel()
	onEveryKeeper(t, func(k *keeper) {
		recorded, doubtful := reserve(fresh(), "a"), reserve(fresh(), "a")
		k.want(k.ask(recorded, doubtful, record(recorded, "x")), idem.CodeReserved, idem.CodeReserved, idem.CodeRecorded)
		k.pass(idem.DefaultPolicy.Retention + time.Second)
		k.want(k.ask(replay(recorded.Key), replay(doubtful.Key)), idem.CodeNotFound, idem.CodeInDoubt)
		k.want(k.ask(record(recorded, "x")), idem.CodeNotFound)
		k.pass(idem.DefaultPolicy.InDoubtRetention)
		k.want(k.ask(replay(doubtful.Key)), idem.CodeNotFound)
		again := k.ask(reserve(recorded.Key, "b"), reserve(doubtful.Key, "b"))
		k.want(again, idem.CodeReserved, idem.CodeReserved)
		for _, o := range again {
			if o.Entry.Fence != 1 {
				t.Errorf("a new life begins with fence %d, want 1", o.Entry.Fence)
			}
		}
	})
}

func TestEveryByteOfABodyComesBack(t *testing.T) {
	t.Parallel()
	onEveryKeeper(t, func(k *keeper) {
		var every []byte
		for i := range 1 << 10 {
			every = append(every, byte(i), byte(i>>2))
		}
		for _, want := range []*idem.Response{
			{Status: 200, HasBody: true, Body: every, Headers: []idem.Header{{"b", "\x00\x01"}, {"A", "é"}, {"b", ""}}},
			{Status: 599, HasBody: true, Body: []byte{}},
			{Status: 100},
			{Status: 200, Omitted: true, BodySHA256: fmt.Sprintf("%064x", 7), BodySize: 1 << 40},
			{Status: 200, HasBody: true, Body: make([]byte, 3<<20)},
		} {
			r := reserve(fresh(), "a")
			k.want(k.ask(r, &idem.Record{Call: callOn(r.Key), ReservationID: r.ReservationID, Response: want}),
				idem.CodeReserved, idem.CodeRecorded)
			for _, reader := range []idem.Keeper{k.Keeper, k.another(nil)} {
				got := outcomes(t, reader.Do(t.Context(), replay(r.Key)))[0].Entry.Response
				if !got.Equal(want) {
					t.Errorf("recorded %.200v, replayed %.200v", want, got)
				}
			}
		}
	})
}

// Where another attempt's response is wanted whole, it is fetched, though loads bring the statuses of others only.
func TestAnotherAttemptsResponseIsWhole(t *testing.T) {
	t.Parallel()
	onEveryKeeper(t, func(k *keeper) {
		first := reserve(fresh(), "a")
		k.want(k.ask(first, record(first, "of attempt 0")), idem.CodeReserved, idem.CodeRecorded)
		next := reserve(idem.Key{TaskID: first.TaskID, Attempt: 1}, "b")
		next.TaskScope = true
		for _, replica := range []idem.Keeper{k.another(nil), k.Keeper} {
			outs := outcomes(t, replica.Do(t.Context(), next))
			k.want(outs, idem.CodeRecorded)
			if got := outs[0].Entry.Response; !got.Equal(reply("of attempt 0")) {
				t.Errorf("replayed %+v", got)
			}
		}
	})
}

// A revival of a lapsed attempt and a reserve that passes over its doubt, at once and through two replicas: one of them
// goes ahead, never both.
func TestRevivalRacesWithPassingOver(t *testing.T) {
	t.Parallel()
	onEveryKeeper(t, func(k *keeper) {
		other := k.another(nil)
		both := 0
		for range 30 {
			first := reserve(fresh(), "a")
			k.want(k.ask(first), idem.CodeReserved)
			k.pass(31 * time.Second)
			next := reserve(idem.Key{TaskID: first.TaskID, Attempt: 1}, "b")
			next.Takeovers = []idem.Takeover{{Attempt: 0, Fence: 1}}
			dispatch := &idem.Dispatch{Call: callOn(first.Key), ReservationID: first.ReservationID}
			k.want(outcomes(k.t, other.Do(k.t.Context(), replay(first.Key))), idem.CodeInDoubt) // both have the time
			k.want(k.ask(replay(fresh())), idem.CodeNotFound)
			var dispatched, reserved idem.Result
			var all sync.WaitGroup
			all.Go(func() { dispatched = k.Do(context.Background(), dispatch)[0] })
			all.Go(func() { reserved = other.Do(context.Background(), next)[0] })
			all.Wait()
			for _, r := range []idem.Result{dispatched, reserved} {
				if r.Err != nil {
					k.t.Fatal(r.Err)
				}
			}
			went := dispatched.Outcome.Code == idem.CodeDispatched
			granted := reserved.Outcome.Code == idem.CodeReserved
			if went && granted {
				k.t.Fatalf("both went ahead: fence %d and %d", dispatched.Outcome.Entry.Fence, reserved.Outcome.Entry.Fence)
			}
			if went || granted {
				both++
			}
		}
		if both == 0 {
			k.t.Error("nobody ever went ahead")
		}
	})
}

// The database went back in time, as after a failover that lost the newest commits. What a replica remembers of the lost
// past must not overwrite what was recorded since.
func TestAVersionIsNeverUsedTwice(t *testing.T) {
	t.Parallel()
	onEveryKeeper(t, func(k *keeper) {
		var rows []*idem.Entry
		remembers := k.another(func(s idem.Store) idem.Store {
			return &faulty{s, func(ctx context.Context, c []idem.Change, real idem.Store) ([]bool, time.Time, error) {
				rows = append(rows, c[0].Entry)
				if len(rows) == 2 { // said to be written, and lost
					_, now, err := real.Load(ctx, nil)
					return []bool{true}, now, err
				}
				return real.Swap(ctx, c)
			}}
		})
		r := reserve(fresh(), "a")
		k.want(outcomes(k.t, remembers.Do(k.t.Context(), r)), idem.CodeReserved)
		renew := &idem.Renew{Call: callOn(r.Key), ReservationID: r.ReservationID, LeaseSeconds: 40}
		k.want(outcomes(k.t, remembers.Do(k.t.Context(), renew)), idem.CodeRenewed)
		k.want(k.ask(record(r, "first")), idem.CodeRecorded)
		k.want(outcomes(k.t, remembers.Do(k.t.Context(), record(r, "second"))), idem.CodeAlreadyRecorded)
	})
}
