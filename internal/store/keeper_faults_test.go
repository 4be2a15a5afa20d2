package store

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/internal/pgtest"
)

// faulty is a store whose swaps a test interferes with.
type faulty struct {
	idem.Store
	swap func(ctx context.Context, changes []idem.Change, real idem.Store) ([]bool, time.Time, error)
}

func (f *faulty) Swap(ctx context.Context, changes []idem.Change) ([]bool, time.Time, error) {
	return f.swap(ctx, changes, f.Store)
}

// counting is a store that counts how often it is read.
type counting struct {
	idem.Store
	loads atomic.Int64
}

func (c *counting) Load(ctx context.Context, keys []idem.Key) ([]*idem.Entry, time.Time, error) {
	if len(keys) > 0 {
		c.loads.Add(1)
	}
	return c.Store.Load(ctx, keys)
}

// A record that was read once is replayed without being read again, as long as it stands; and what became of it elsewhere is found.
func TestRecordIsReadOnce(t *testing.T) {
	t.Parallel()
	onEveryKeeper(t, func(k *keeper) {
		r := reserve(fresh(), "a")
		k.want(k.ask(r), idem.CodeReserved)
		k.want(k.ask(record(r, "done")), idem.CodeRecorded)
		var store *counting
		other := k.another(func(s idem.Store) idem.Store {
			store = &counting{Store: s}
			return store
		})
		ask := func() idem.Outcome { return outcomes(t, other.Do(t.Context(), replay(r.Key)))[0] }
		for range 3 {
			if out := ask(); out.Code != idem.CodeRecorded || string(out.Entry.Response.Body) != "done" {
				t.Errorf("replayed %+v", out)
			}
		}
		if n := store.loads.Load(); n != 1 {
			t.Errorf("read %d times", n)
		}
		k.pass(15 * 24 * time.Hour) // past its retention
		if out := ask(); out.Code != idem.CodeNotFound {
			t.Errorf("past its retention it is %+v", out)
		}
		again := reserve(r.Key, "b")
		k.want(k.ask(again), idem.CodeReserved)
		k.want(k.ask(record(again, "done anew")), idem.CodeRecorded)
		if out := ask(); out.Code != idem.CodeRecorded || string(out.Entry.Response.Body) != "done anew" {
			t.Errorf("replayed %+v", out)
		}
	})
}

func (k *keeper) withSwap(swap func(context.Context, []idem.Change, idem.Store) ([]bool, time.Time, error)) idem.Keeper {
	return k.another(func(s idem.Store) idem.Store { return &faulty{s, swap} })
}

var errLost = errors.New("the connection died")

// The commit happened and its acknowledgement was lost: the caller hears that the outcome is unknown, and its retry
// converges, through the same replica or another.
func TestALostAcknowledgement(t *testing.T) {
	t.Parallel()
	onEveryKeeper(t, func(k *keeper) {
		var lose atomic.Bool
		lossy := k.withSwap(func(ctx context.Context, c []idem.Change, real idem.Store) ([]bool, time.Time, error) {
			written, now, err := real.Swap(ctx, c)
			if lose.Swap(false) {
				return nil, time.Time{}, errLost
			}
			return written, now, err
		})
		for _, retryAt := range []idem.Keeper{lossy, k.Keeper} {
			r := reserve(fresh(), "a")
			lose.Store(true)
			if res := lossy.Do(t.Context(), r); !errors.Is(res[0].Err, idem.ErrUnavailable) {
				t.Fatalf("reserve: got %+v, want unavailable", res[0])
			}
			outs := outcomes(t, retryAt.Do(t.Context(), r))
			k.want(outs, idem.CodeReserved)
			if outs[0].Entry.Fence != 1 {
				t.Errorf("the retry got fence %d: it is another grant", outs[0].Entry.Fence)
			}
			lose.Store(true)
			if res := lossy.Do(t.Context(), record(r, "x")); !errors.Is(res[0].Err, idem.ErrUnavailable) {
				t.Fatalf("record: got %+v, want unavailable", res[0])
			}
			outs = outcomes(t, retryAt.Do(t.Context(), record(r, "x"), record(r, "y")))
			k.want(outs, idem.CodeRecorded, idem.CodeAlreadyRecorded)
			if outs[0].First {
				t.Error("the retried record was written twice")
			}
		}
	})
}

// A caller that leaves mid-commit does not undo it: its retry finds what was decided.
func TestACallerThatLeavesMidCommit(t *testing.T) {
	t.Parallel()
	onEveryKeeper(t, func(k *keeper) {
		reached, goOn := make(chan struct{}), make(chan struct{})
		var once atomic.Bool
		slow := k.withSwap(func(ctx context.Context, c []idem.Change, real idem.Store) ([]bool, time.Time, error) {
			if once.CompareAndSwap(false, true) {
				close(reached)
				<-goOn
			}
			return real.Swap(ctx, c)
		})
		r := reserve(fresh(), "a")
		ctx, leave := context.WithCancel(t.Context())
		answered := make(chan idem.Result, 1)
		go func() { answered <- slow.Do(ctx, r)[0] }()
		<-reached
		leave()
		close(goOn)
		<-answered
		outs := outcomes(t, slow.Do(t.Context(), r))
		k.want(outs, idem.CodeReserved)
		if outs[0].Entry.Fence != 1 {
			t.Errorf("fence %d: the first grant was lost", outs[0].Entry.Fence)
		}
	})
}

// A caller that hung up before its reserve was decided is granted nothing; a record is carried out all the same.
func TestACallerThatHungUpIsGrantedNothing(t *testing.T) {
	t.Parallel()
	onEveryKeeper(t, func(k *keeper) {
		gone, leave := context.WithCancel(t.Context())
		leave()
		r := reserve(fresh(), "a")
		if res := k.Do(gone, r); res[0].Err == nil {
			t.Fatalf("granted to nobody: %+v", res[0].Outcome)
		}
		k.want(k.ask(replay(r.Key)), idem.CodeNotFound)
		k.want(k.ask(r), idem.CodeReserved)
		k.Do(gone, record(r, "seen"))
		deadline := time.Now().Add(10 * time.Second)
		for k.ask(replay(r.Key))[0].Code != idem.CodeRecorded {
			if time.Now().After(deadline) {
				t.Fatal("the record of one who left was dropped")
			}
		}
	})
}

// A swap that fails for one of its changes does not punish the others.
func TestOneBadChangeDoesNotPunishItsNeighbours(t *testing.T) {
	t.Parallel()
	onEveryKeeper(t, func(k *keeper) {
		bad := reserve(fresh(), "bad")
		picky := k.withSwap(func(ctx context.Context, c []idem.Change, real idem.Store) ([]bool, time.Time, error) {
			for _, change := range c {
				if change.Entry.Key == bad.Key {
					return nil, time.Time{}, idem.ErrNotWritten
				}
			}
			return real.Swap(ctx, c)
		})
		cmds := []idem.Command{reserve(fresh(), "a"), bad, reserve(fresh(), "b")}
		for i, res := range picky.Do(t.Context(), cmds...) {
			if unavailable := errors.Is(res.Err, idem.ErrUnavailable); unavailable != (cmds[i] == idem.Command(bad)) {
				t.Errorf("command %d: %+v", i, res)
			}
		}
	})
}

// Others who keep changing a key lead to an honest "unknown", not to an endless loop.
func TestEndlessContentionIsGivenUp(t *testing.T) {
	t.Parallel()
	onEveryKeeper(t, func(k *keeper) {
		refused := k.withSwap(func(ctx context.Context, c []idem.Change, real idem.Store) ([]bool, time.Time, error) {
			_, now, err := real.Load(ctx, nil)
			return make([]bool, len(c)), now, err
		})
		if res := refused.Do(t.Context(), reserve(fresh(), "a")); !errors.Is(res[0].Err, idem.ErrUnavailable) {
			t.Errorf("got %+v, want unavailable", res[0])
		}
	})
}

// A row that another session locks for longer than the lease: whoever waited for it is refused or decided anew on the
// time that has become, and never holds a lease that passed meanwhile.
func TestARowLockedForLongerThanTheLease(t *testing.T) {
	t.Parallel()
	for _, grouped := range []bool{false, true} {
		t.Run(fmt.Sprintf("grouped=%v", grouped), func(t *testing.T) {
			t.Parallel()
			url := pgtest.New(t)
			backend := openTest(t, url, new(atomic.Int64))
			var k idem.Keeper = NewDirect(backend, idem.DefaultPolicy)
			if grouped {
				b := NewBatcher(backend, idem.DefaultPolicy, Lanes(backend))
				t.Cleanup(b.Close)
				k = b
			}
			testRowLocked(t, k, backend, url)
		})
	}
}

func testRowLocked(t *testing.T, k idem.Keeper, backend Backend, url string) {
	t.Helper()
	r := reserve(fresh(), "a")
	r.LeaseSeconds = 1
	until := outcomes(t, k.Do(t.Context(), r))[0].Entry.LeaseUntil

	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT 1 FROM entries WHERE task_id = $1 FOR UPDATE", r.TaskID); err != nil {
		t.Fatal(err)
	}
	renewed := make(chan idem.Result, 1)
	go func() {
		renewed <- k.Do(context.Background(), &idem.Renew{Call: callOn(r.Key), ReservationID: r.ReservationID, LeaseSeconds: 30})[0]
	}()
	waitForLock(t, url)
	neighbour := k.Do(t.Context(), reserve(fresh(), "neighbour"))
	if neighbour[0].Err != nil {
		t.Errorf("a neighbour was punished: %v", neighbour[0].Err)
	}
	waitUntil(t, backend, until) // the lease passes while the row is locked
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	res := <-renewed
	switch {
	case errors.Is(res.Err, idem.ErrUnavailable):
	case res.Err == nil && res.Outcome.Code == idem.CodeRenewed && res.Outcome.Entry.Fence == 2:
	default:
		t.Errorf("a renewal that waited past the lease must raise the fence or be unknown, got %+v", res)
	}
}

// waitUntil waits until the store's time has come.
func waitUntil(t *testing.T, s idem.Store, until time.Time) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; {
		_, now, err := s.Load(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if !now.Before(until) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the store's time stays at %s", now)
		}
	}
}

// waitForLock waits until some session waits for a row.
func waitForLock(t *testing.T, url string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	deadline := time.Now().Add(10 * time.Second)
	for time.Now().Before(deadline) {
		var waiting bool
		const look = "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')"
		if err := conn.QueryRow(t.Context(), look).Scan(&waiting); err != nil {
			t.Fatal(err)
		}
		if waiting {
			return
		}
	}
	t.Fatal("nobody waits for the lock")
}

// More than can wait is refused at once, what waits is carried out, and when the flood ends all is as before.
func TestAFloodIsRefused(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	backend := openTest(t, "sqlite::memory:", new(atomic.Int64))
	b := NewBatcher(&faulty{backend, func(ctx context.Context, c []idem.Change, real idem.Store) ([]bool, time.Time, error) {
		<-goOn
		return real.Swap(ctx, c)
	}}, idem.DefaultPolicy, 1)
	t.Cleanup(b.Close)
	const calls = 2 * maxQueue / maxRound
	results := make(chan []idem.Result, calls)
	for range calls {
		go func() {
			var cmds []idem.Command
			for range maxRound {
				cmds = append(cmds, reserve(fresh(), "flood"))
			}
			results <- b.Do(context.Background(), cmds...)
		}()
	}
	var busy, granted int
	count := func(rs []idem.Result) {
		switch {
		case errors.Is(rs[0].Err, idem.ErrBusy):
			busy++
		case rs[0].Err == nil:
			granted++
		default:
			t.Errorf("got %v", rs[0].Err)
		}
	}
	count(<-results) // somebody is refused while nothing moves
	if busy != 1 {
		t.Fatal("the first answer of a flood must be a refusal")
	}
	close(goOn)
	for range calls - 1 {
		count(<-results)
	}
	if busy+granted != calls || granted < maxQueue/maxRound {
		t.Errorf("%d calls were granted and %d refused", granted, busy)
	}
	outcomes(t, b.Do(t.Context(), reserve(fresh(), "after")))
}

// A slow exchange leaves it uncertain how late it is. A worker counts its lease from before it asked, so the lease is
// given from the later end; and what is done under it at once is not dated before it.
func TestALeaseIsNoShorterThanItsHolderCounts(t *testing.T) {
	t.Parallel()
	onEveryKeeper(t, func(k *keeper) {
		const delay = 200 * time.Millisecond
		var slow atomic.Bool
		keeper := k.withSwap(func(ctx context.Context, c []idem.Change, real idem.Store) ([]bool, time.Time, error) {
			if slow.Swap(false) {
				<-time.After(delay)
			}
			return real.Swap(ctx, c)
		})
		for range 3 {
			slow.Store(true)
			outcomes(t, keeper.Do(t.Context(), reserve(fresh(), "slow")))
			r := reserve(fresh(), "a")
			_, asked, err := k.backend.Load(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			granted := outcomes(t, keeper.Do(t.Context(), r))
			k.want(granted, idem.CodeReserved)
			if counts := asked.Add(30 * time.Second); granted[0].Entry.LeaseUntil.Before(counts) {
				t.Errorf("the lease ends at %s, its holder counts until %s", granted[0].Entry.LeaseUntil, counts)
			}
			dispatched := outcomes(t, keeper.Do(t.Context(), &idem.Dispatch{Call: callOn(r.Key), ReservationID: r.ReservationID}))
			k.want(dispatched, idem.CodeDispatched)
			recorded := outcomes(t, keeper.Do(t.Context(), record(r, "x")))
			k.want(recorded, idem.CodeRecorded)
			e := recorded[0].Entry
			if e.DispatchedAt.Before(e.ReservedAt) || e.RecordedAt.Before(e.ReservedAt) {
				t.Errorf("reserved at %s, dispatched at %s, recorded at %s", e.ReservedAt, e.DispatchedAt, e.RecordedAt)
			}
		}
	})
}
