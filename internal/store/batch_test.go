package store

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/internal/pgtest"
)

// A round is told of once, with all its commands, and speaks to the store under the context that it was given for them.
func TestRoundsAreTold(t *testing.T) {
	t.Parallel()
	type name struct{}
	goOn, begun := make(chan struct{}), make(chan struct{}, 10)
	backend := openTest(t, "sqlite::memory:", new(atomic.Int64))
	var strange atomic.Int64
	b := NewBatcher(&faulty{backend, func(ctx context.Context, c []idem.Change, real idem.Store) ([]bool, time.Time, error) {
		if ctx.Value(name{}) != "round" {
			strange.Add(1)
		}
		begun <- struct{}{}
		<-goOn
		return real.Swap(ctx, c)
	}}, idem.DefaultPolicy, 1)
	var mu sync.Mutex
	var told []Round
	var callers []int
	var ended int
	b.Told = func(r Round) {
		mu.Lock()
		defer mu.Unlock()
		r.Waited = append([]time.Duration(nil), r.Waited...)
		told = append(told, r)
	}
	b.Traced = func(all []context.Context) (context.Context, func()) {
		mu.Lock()
		defer mu.Unlock()
		for _, ctx := range all {
			if ctx.Value(name{}) != "caller" {
				strange.Add(1)
			}
		}
		callers = append(callers, len(all))
		return context.WithValue(context.Background(), name{}, "round"), func() { ended++ }
	}
	ctx := context.WithValue(t.Context(), name{}, "caller")
	results := make(chan []idem.Result, 2)
	go func() { results <- b.Do(ctx, reserve(fresh(), "a")) }()
	<-begun
	go func() { results <- b.Do(ctx, reserve(fresh(), "b"), reserve(fresh(), "c"), reserve(fresh(), "d")) }()
	for deadline := time.Now().Add(10 * time.Second); b.Queue().Commands != 3; {
		if time.Now().After(deadline) {
			t.Fatalf("in the queue: %+v", b.Queue())
		}
	}
	held := time.Now()
	close(goOn)
	for range 2 {
		outcomes(t, <-results)
	}
	b.Close()
	if len(told) != 2 || len(told[0].Waited) != 1 || len(told[1].Waited) != 3 {
		t.Fatalf("told %+v", told)
	}
	if least := time.Since(held); told[0].Took <= 0 || told[1].Took <= 0 || told[1].Took > least {
		t.Errorf("rounds that took %s and %s, the second within %s", told[0].Took, told[1].Took, least)
	}
	if len(callers) != 2 || callers[0] != 1 || callers[1] != 3 || ended != 2 || strange.Load() != 0 {
		t.Errorf("rounds of %v callers, %d ended, %d contexts are not theirs", callers, ended, strange.Load())
	}
	if q := b.Queue(); q.Commands != 0 || q.Refused != 0 || q.MaxCommands != maxQueue || q.MaxBytes != maxQueueBytes {
		t.Errorf("in the end the queue is %+v", q)
	}
}

// What is sent away is counted by the command.
func TestTheQueueCountsWhomItSendsAway(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	backend := openTest(t, "sqlite::memory:", new(atomic.Int64))
	b := NewBatcher(&faulty{backend, func(ctx context.Context, c []idem.Change, real idem.Store) ([]bool, time.Time, error) {
		<-goOn
		return real.Swap(ctx, c)
	}}, idem.DefaultPolicy, 1)
	t.Cleanup(b.Close)
	defer close(goOn)
	many := make([]idem.Command, maxQueue+1)
	for i := range many {
		many[i] = reserve(fresh(), "flood")
	}
	if res := b.Do(t.Context(), many...); !errors.Is(res[0].Err, idem.ErrBusy) {
		t.Fatalf("got %+v", res[0])
	}
	if q := b.Queue(); q.Refused != maxQueue+1 || q.Commands != 0 {
		t.Errorf("the queue is %+v", q)
	}
}

// Another lane is opened for what is deep, and no sooner; it ends when what waits is less.
func TestLanesOpenForWhatIsDeep(t *testing.T) {
	t.Parallel()
	goOn, begun := make(chan struct{}), make(chan int, 100)
	backend := openTest(t, "sqlite::memory:", new(atomic.Int64))
	b := NewBatcher(&faulty{backend, func(ctx context.Context, c []idem.Change, real idem.Store) ([]bool, time.Time, error) {
		begun <- len(c)
		<-goOn
		return real.Swap(ctx, c)
	}}, idem.DefaultPolicy, 2)
	t.Cleanup(b.Close)
	var all sync.WaitGroup
	send := func(n int) {
		before := b.Queue()
		for range n {
			all.Go(func() {
				if r := b.Do(t.Context(), reserve(fresh(), "a"))[0]; r.Err != nil {
					t.Error(r.Err)
				}
			})
		}
		for deadline := time.Now().Add(10 * time.Second); b.Queue().Commands != before.Commands+n && b.Queue().Lanes == before.Lanes; {
			if time.Now().After(deadline) {
				t.Fatalf("the queue is %+v", b.Queue())
			}
		}
	}
	send(1)
	if n := <-begun; n != 1 {
		t.Fatalf("the first round has %d commands", n)
	}
	send(deep)
	if q := b.Queue(); q.Lanes != 1 || q.Commands != deep || len(begun) != 0 {
		t.Errorf("with %d commands that wait: %+v", deep, q)
	}
	send(1)
	if n := <-begun; n != deep {
		t.Errorf("the second lane has taken %d commands, want as many as are worth while", n)
	}
	send(3 * deep)
	if q := b.Queue(); q.Lanes != 2 || len(begun) != 0 {
		t.Errorf("there are %+v, of 2 lanes", q)
	}
	close(goOn)
	all.Wait()
	for deadline := time.Now().Add(10 * time.Second); b.Queue().Lanes != 0; {
		if time.Now().After(deadline) {
			t.Fatalf("with nothing to do: %+v", b.Queue())
		}
	}
}

// Lanes share what waits, so that none is idle while another has a large round.
func TestLanesShareWhatWaits(t *testing.T) {
	t.Parallel()
	q := queue{maxLanes: 2, deep: deep, open: func() {}}
	var taken []int
	for range 8 {
		cmds := make([]idem.Command, 100)
		for i := range cmds {
			cmds[i] = reserve(fresh(), "a")
		}
		if err := q.add(newGroup(t.Context(), cmds)); err != nil {
			t.Fatal(err)
		}
	}
	for range 4 {
		taken = append(taken, len(q.take(nil)))
	}
	if want := []int{400, 200, 100, 100}; !slices.Equal(taken, want) {
		t.Errorf("taken %v, want %v", taken, want)
	}
}

// No two lanes have commands on one task, and those on it are taken in the order in which they came.
func TestLanesKeepTasksApart(t *testing.T) {
	t.Parallel()
	q := queue{maxLanes: 2, deep: 0, open: func() {}}
	x, y, z := fresh(), fresh(), fresh()
	names := map[string]string{x.TaskID: "x", y.TaskID: "y", z.TaskID: "z"}
	add := func(keys ...idem.Key) {
		t.Helper()
		var cmds []idem.Command
		for _, k := range keys {
			cmds = append(cmds, reserve(k, "a"))
		}
		if err := q.add(newGroup(t.Context(), cmds)); err != nil {
			t.Fatal(err)
		}
	}
	take := func(done []*call, want string) []*call {
		t.Helper()
		calls, got := q.take(done), ""
		for _, c := range calls {
			got += names[c.cmd.Target().TaskID]
		}
		if got != want {
			t.Fatalf("taken %q, want %q", got, want)
		}
		return calls
	}
	q.lanes = 2
	add(x)
	first := take(nil, "x")
	add(x)
	add(y)
	add(x, y) // waits for both
	add(y)    // behind that
	add(z)
	second := take(nil, "yz")
	if q.passed != 4 || len(q.calls) != 4 {
		t.Errorf("%d were passed over, and %d wait", q.passed, len(q.calls))
	}
	first = take(first, "x")
	take(second, "")
	if q.lanes != 1 {
		t.Errorf("%d lanes are open where one has all that waits", q.lanes)
	}
	take(first, "xyy")
	if len(q.calls) != 0 {
		t.Errorf("%d calls are left", len(q.calls))
	}
}

// Very many change one key at once, and none is told to come again because the others were quicker.
func TestAContestedKeyIsNotUnavailable(t *testing.T) {
	t.Parallel()
	backend := openTest(t, pgtest.New(t), new(atomic.Int64))
	b := NewBatcher(backend, idem.DefaultPolicy, 4)
	b.queue.deep = 1
	t.Cleanup(b.Close)
	r := reserve(fresh(), "a")
	outcomes(t, b.Do(t.Context(), r))
	var all sync.WaitGroup
	for range 128 {
		all.Go(func() {
			for range 20 {
				res := b.Do(t.Context(), &idem.Renew{Call: callOn(r.Key), ReservationID: r.ReservationID, LeaseSeconds: 60})[0]
				if res.Err != nil || res.Outcome.Code != idem.CodeRenewed {
					t.Errorf("renewed: %+v", res)
					return
				}
			}
		})
	}
	all.Wait()
}

// What is remembered is counted once, however often it is read or written.
func TestRecentCountsEachOnce(t *testing.T) {
	t.Parallel()
	var r recent
	open := reserved(fresh())
	r.put(open)
	hot := reserved(fresh())
	for range 3 * recentBytes / recentEntry {
		r.put(hot)
	}
	if r.get(open.Key) == nil || r.get(hot.Key) == nil {
		t.Error("one key that is written again and again has driven out another")
	}
	if want := memoryOf(open) + memoryOf(hot); r.size != want {
		t.Errorf("two entries take %d, want %d", r.size, want)
	}
	r.drop(open.Key)
	large := *hot
	large.Response = &idem.Response{HasBody: true, Body: make([]byte, recentBody+1)}
	r.put(&large)
	if r.size != 0 || r.get(hot.Key) != nil {
		t.Errorf("nothing takes %d", r.size)
	}
}

// Commands that came together are carried out by one lane, so that those on one task follow each other, also where they
// are too many or too large for one round.
func TestWhatCameTogetherStaysTogether(t *testing.T) {
	t.Parallel()
	together := func(n int) *group {
		cmds := make([]idem.Command, n)
		for i := range cmds {
			cmds[i] = reserve(fresh(), "a")
		}
		return newGroup(t.Context(), cmds)
	}
	opened := 0
	q := queue{maxLanes: 3, deep: deep, open: func() { opened++ }}
	for _, n := range []int{600, 300, 600, maxRound + 500, 1} {
		if err := q.add(together(n)); err != nil {
			t.Fatal(err)
		}
	}
	if opened != 3 {
		t.Fatalf("%d lanes were opened", opened)
	}
	var taken []int
	for range 4 {
		calls := q.take(nil)
		taken = append(taken, len(calls))
		for len(calls) > 0 {
			n := round(calls)
			if n > maxRound || n == 0 {
				t.Fatalf("a round of %d", n)
			}
			calls = calls[n:]
		}
	}
	if want := []int{900, 600, maxRound + 500, 0}; !slices.Equal(taken, want) {
		t.Errorf("taken %v, want %v: the last call is another lane's", taken, want)
	}
	large := together(40)
	for _, c := range large.calls {
		c.cmd = &idem.Record{Response: &idem.Response{HasBody: true, Body: make([]byte, maxRoundBytes/10)}}
	}
	if err := q.add(large); err != nil {
		t.Fatal(err)
	}
	q.deep = 0
	if n := len(q.take(nil)); n != 41 {
		t.Errorf("taken %d calls", n)
	}
	if n := round(large.calls); n != 11 { // the first that reaches the limit is in it
		t.Errorf("a round of %d calls of %d bytes", n, maxRoundBytes/10)
	}
	if now := q.now(); now.Bytes != 0 || now.Commands != 0 {
		t.Errorf("what is left: %+v", now)
	}
}
