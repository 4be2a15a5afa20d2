package robustness

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/idemstore/idemstore/internal/idem"
)

var (
	seedFlag     = flag.Uint64("seed", 1, "draws the schedule and the workers' habits")
	durationFlag = flag.Duration("duration", 20*time.Second, "how long faults come")
)

// run is one trial of one cluster.
type run struct {
	seed     uint64
	duration time.Duration
	programs []program
	finishIn time.Duration // bounds what it takes to bring every key to its end once all is healed
	patience time.Duration // bounds the search for an order of one task's calls

	folder   string
	cluster  *cluster
	history  history
	upstream *upstream
	stop     chan struct{}

	mu     sync.Mutex
	keys   []idem.Key
	found  []violation
	faults []fault
}

const (
	protocolRunners = 5
	noiseRunners    = 4
)

func (r *run) violate(c check, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found = append(r.found, violation{c, err.Error()})
}

// trial runs everything and returns the promises that were broken, with the folder in which that can be looked into.
func (r *run) trial(t *testing.T) []violation {
	t.Helper()
	r.upstream, r.stop = newUpstream(), make(chan struct{})
	var err error
	if r.folder, err = os.MkdirTemp("", fmt.Sprintf("idemstore-robustness-%d-", r.seed)); err != nil { //nolint:usetesting // it stays where something was found
		t.Fatal(err)
	}
	r.cluster = newCluster(t, r.folder, r.programs)
	conn, err := pgx.Connect(t.Context(), r.cluster.db.URL())
	if err != nil {
		t.Fatal(err)
	}
	_, err = conn.Exec(t.Context(), ledgerSQL)
	_ = conn.Close(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	begun := time.Now()
	random := rand.New(rand.NewPCG(r.seed, 0))
	r.faults = schedule(random, r.duration, len(r.programs))
	var aside, work sync.WaitGroup
	aside.Go(func() {
		r.cluster.inflict(r.faults, begun, r.stop, func(err error) { r.violate(answers, fmt.Errorf("a fault that did not heal: %w", err)) })
	})
	aside.Go(func() { r.cluster.purge(r.programs[0].path, r.stop) })
	for i := range protocolRunners {
		work.Go(func() { r.protocol(1 + i) })
	}
	for i := range noiseRunners {
		work.Go(func() { r.noise(1 + protocolRunners + i) })
	}
	<-time.After(r.duration)
	close(r.stop)
	work.Wait()
	aside.Wait()
	t.Logf("%s: under load", time.Since(begun))
	r.finish()
	t.Logf("%s: finished", time.Since(begun))

	conn, err = pgx.Connect(t.Context(), r.cluster.db.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	found, err := judge(t.Context(), conn, &r.history, r.upstream, idem.DefaultPolicy, r.patience, r.folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: judged", time.Since(begun))
	r.found = append(r.found, found...)
	return r.found
}

// worker makes a caller that reaches any replica.
func (r *run) worker(id int, stop <-chan struct{}) *worker {
	random := rand.New(rand.NewPCG(r.seed, uint64(id)))
	var urls []string
	for _, replica := range r.cluster.replicas {
		urls = append(urls, replica.url())
	}
	c := &client{
		id: id, history: &r.history, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}}, urls: urls, pick: random.IntN,
		strange: func(err error) { r.violate(answers, err) },
	}
	return &worker{client: c, name: fmt.Sprintf("worker-%d", id), random: random, upstream: r.upstream, stop: stop}
}

func (r *run) running() bool {
	select {
	case <-r.stop:
		return false
	default:
		return true
	}
}

func (r *run) task(attempts int32) idem.Key {
	key := idem.Key{TaskID: uuid.NewString()}
	r.mu.Lock()
	defer r.mu.Unlock()
	for a := range attempts {
		r.keys = append(r.keys, idem.Key{TaskID: key.TaskID, Attempt: a})
	}
	return key
}

// protocol has tasks delivered, as an engine does: some to two workers at once, some again and again, some after a failure
// that was reported.
func (r *run) protocol(id int) {
	first, second := r.worker(100*id, r.stop), r.worker(100*id+1, r.stop)
	defer first.http.CloseIdleConnections()
	defer second.http.CloseIdleConnections()
	for r.running() {
		if first.chance(5) {
			var keys []idem.Key
			for range 2 + first.random.IntN(6) {
				keys = append(keys, r.task(1))
			}
			first.deliverBatch(keys)
			second.deliverBatch(keys)
			continue
		}
		key := r.task(1)
		explicit, taskScope := first.chance(2), first.chance(4)
		attempts := int32(1)
		for delivery := 0; delivery < 4 && r.running(); delivery++ {
			var both sync.WaitGroup
			var done bool
			if first.chance(2) {
				both.Go(func() { second.deliver(key, explicit, taskScope) })
			}
			both.Go(func() { done = first.deliver(key, explicit, taskScope) })
			both.Wait()
			if done {
				break
			}
			if first.chance(6) {
				key.Attempt = attempts
				attempts++
				r.mu.Lock()
				r.keys = append(r.keys, key)
				r.mu.Unlock()
			}
		}
	}
}

// noise disturbs one task after the other, from several sides.
func (r *run) noise(id int) {
	ager := &ager{url: r.cluster.db.URL(), down: &r.cluster.dbDown}
	sides := []*worker{r.worker(100*id, r.stop), r.worker(100*id+1, r.stop)}
	for r.running() {
		n := &noise{task: r.task(3).TaskID}
		var all sync.WaitGroup
		for _, w := range sides {
			all.Go(func() { w.disturb(n, 9, ager) })
		}
		all.Wait()
	}
	for _, w := range sides {
		w.http.CloseIdleConnections()
	}
}

// finish brings every key to its end, now that all is healed.
func (r *run) finish() {
	deadline := time.Now().Add(r.finishIn)
	tasks := make(chan []idem.Key, len(r.keys))
	byTask := map[string][]idem.Key{}
	for _, k := range r.keys {
		byTask[k.TaskID] = append(byTask[k.TaskID], k)
	}
	for _, keys := range byTask {
		tasks <- keys
	}
	close(tasks)
	var all sync.WaitGroup
	for i := range 6 {
		w := r.worker(10000+i, make(chan struct{}))
		all.Go(func() {
			defer w.http.CloseIdleConnections()
			for keys := range tasks {
				for _, key := range keys { // from the first on: a later one stands in the way of an earlier
					if err := w.finish(key, deadline); err != nil {
						r.violate(resolvable, err)
					}
				}
			}
		})
	}
	all.Wait()
}

// report prints what was broken, and leaves what is needed to look into it.
func (r *run) report(t *testing.T, found []violation) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %s\n", r.seed, r.duration)
	for _, f := range r.faults {
		fmt.Fprintln(&b, f)
	}
	for i, v := range found {
		if i == 20 {
			fmt.Fprintf(&b, "and %d more\n", len(found)-i)
			break
		}
		fmt.Fprintln(&b, v)
	}
	log, err := r.cluster.db.Log()
	err = errors.Join(err, os.WriteFile(filepath.Join(r.folder, "postgres.log"), log, 0o600), os.WriteFile(filepath.Join(r.folder, "report.txt"), []byte(b.String()), 0o600), r.history.write(r.folder))
	t.Errorf("%s\nhistories, pictures and logs: %s (%v)\nagain: make robustness SEED=%d DURATION=%s", b.String(), r.folder, err, r.seed, r.duration)
}

func TestRobustness(t *testing.T) {
	t.Parallel()
	laned, clocked := overlay{}, overlay{}
	for _, o := range []overlay{laned, clocked} {
		if err := manyLanes(o); err != nil {
			t.Fatal(err)
		}
	}
	if err := wrongClock(clocked); err != nil {
		t.Fatal(err)
	}
	plain := build(t, "plain", laned)
	wrong := build(t, "wrong-clock", clocked)
	r := &run{
		seed: *seedFlag, duration: *durationFlag, finishIn: 2 * time.Minute, patience: time.Minute,
		programs: []program{{path: plain}, {path: wrong, clock: "30m"}, {path: wrong, clock: "-30m"}}, // an hour apart
	}
	found := r.trial(t)
	t.Logf("%d calls, %d lost, %d effects, %d faults", len(r.history.calls), r.history.lost(), r.upstream.n, len(r.faults))
	if len(found) > 0 {
		r.report(t, found)
		return
	}
	_ = os.RemoveAll(r.folder)
}
