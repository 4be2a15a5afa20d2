package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
)

// result is one measurement.
type result struct {
	ops       float64 // operations a second
	p50, p99  time.Duration
	serviceUS float64 // CPU microseconds an operation
	dbUS      float64
	loadUS    float64
	serviceMB float64 // of memory, at the end
}

// operation is what one connection does again and again. It returns how many operations that was.
type operation func(c *conn) (int, error)

// run drives an operation over so many connections for a while.
func (b *bench) run(connections int, d time.Duration, pace time.Duration, next func(worker int) operation) (result, error) {
	type tally struct {
		ops   int
		times []time.Duration
		err   error
	}
	tallies := make([]tally, connections)
	conns := make([]*conn, 0, connections)
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	for range connections {
		c, err := dial(b.service.address, connections <= fewConnections)
		if err != nil {
			return result{}, err
		}
		conns = append(conns, c)
	}
	before := b.cpu()
	start := time.Now()
	end := start.Add(d)
	var all sync.WaitGroup
	for i := range tallies {
		all.Go(func() {
			t, do := &tallies[i], next(i)
			due := start.Add(time.Duration(rand.Int64N(int64(max(pace, 1)))))
			for now := time.Now(); now.Before(end); now = time.Now() {
				if pace > 0 {
					if due.After(now) {
						time.Sleep(due.Sub(now))
						now = time.Now()
					}
					due = due.Add(pace)
				}
				n, err := do(conns[i])
				if err != nil {
					t.err = err
					return
				}
				t.ops += n
				t.times = append(t.times, time.Since(now))
			}
		})
	}
	all.Wait()
	took := time.Since(start).Seconds()
	after, memory := b.cpu(), b.memory()
	var ops int
	var times []time.Duration
	for _, t := range tallies {
		if t.err != nil {
			return result{}, t.err
		}
		ops += t.ops
		times = append(times, t.times...)
	}
	if ops == 0 {
		return result{}, fmt.Errorf("nothing was done in %s", d)
	}
	slices.Sort(times)
	each := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(ops) }
	return result{
		ops: float64(ops) / took, p50: times[len(times)/2], p99: times[len(times)*99/100],
		serviceUS: each(after.service - before.service), dbUS: each(after.db - before.db), loadUS: each(after.load - before.load),
		serviceMB: memory,
	}, nil
}

// fewConnections are few enough for a thread each.
const fewConnections = 4

func want(got int, err error, wanted ...int) error {
	if err == nil && !slices.Contains(wanted, got) {
		err = fmt.Errorf("answered %d, want %v", got, wanted)
	}
	return err
}

// body500 is a response's body of 500 bytes.
var body500 = strings.Repeat("0123456789", 50)

// requests builds what a worker sends, without the cost of a JSON library.
type requests struct {
	task, reservation string
	buf               []byte
}

// newTask makes the id of a task; -grow tries another kind.
var newTask = uuid.NewString

func (r *requests) fresh() {
	r.task, r.reservation = newTask(), uuid.NewString()
}

func (r *requests) path(verb string) string { return "/v1/tasks/" + r.task + "/attempts/0/" + verb }

func (r *requests) reserve() []byte {
	r.buf = append(r.buf[:0], `{"owner":"bench","reservation_id":"`...)
	r.buf = append(r.buf, r.reservation...)
	r.buf = append(r.buf, `","handler":"http.call"}`...)
	return r.buf
}

func (r *requests) record() []byte {
	r.buf = append(r.buf[:0], `{"reservation_id":"`...)
	r.buf = append(r.buf, r.reservation...)
	r.buf = append(r.buf, `","response":{"status":201,"headers":[["content-type","application/json"]],"body":"`...)
	r.buf = append(r.buf, body500...)
	r.buf = append(r.buf, `"}}`...)
	return r.buf
}

// pair reserves a fresh key and records a response of 500 bytes. It is one operation.
func pair(int) operation {
	r := &requests{}
	return func(c *conn) (int, error) {
		r.fresh()
		status, err := c.post(r.path("reserve"), r.reserve())
		if err := want(status, err, http.StatusCreated); err != nil {
			return 0, err
		}
		status, err = c.post(r.path("record"), r.record())
		return 1, want(status, err, http.StatusCreated)
	}
}

// reserveOnly reserves a fresh key.
func reserveOnly(int) operation {
	r := &requests{}
	return func(c *conn) (int, error) {
		r.fresh()
		status, err := c.post(r.path("reserve"), r.reserve())
		return 1, want(status, err, http.StatusCreated)
	}
}

// replayOf replays one of the recorded tasks.
func replayOf(tasks []string) func(int) operation {
	return func(int) operation {
		return func(c *conn) (int, error) {
			status, err := c.get("/v1/tasks/" + tasks[rand.IntN(len(tasks))] + "/attempts/0/replay")
			return 1, want(status, err, http.StatusOK)
		}
	}
}

// hot asks for one key that another holds.
func hot(task string) func(int) operation {
	return func(int) operation {
		r := &requests{task: task}
		return func(c *conn) (int, error) {
			r.reservation = uuid.NewString()
			status, err := c.post(r.path("reserve"), r.reserve())
			return 1, want(status, err, http.StatusConflict)
		}
	}
}

// mix is 90 % fresh pairs, 8 % replays, 2 % conflicts; each call of a pair counts half.
func mix(tasks []string, held string) func(int) operation {
	return func(worker int) operation {
		fresh, again, conflict := pair(worker), replayOf(tasks)(worker), hot(held)(worker)
		return func(c *conn) (int, error) {
			switch n := rand.IntN(100); {
			case n < 90:
				return fresh(c)
			case n < 98:
				return again(c)
			default:
				return conflict(c)
			}
		}
	}
}

// batches reserves and records so many fresh keys with two calls.
func batches(size int) func(int) operation {
	return func(int) operation {
		items := make([]requests, size)
		var buf []byte
		fill := func(body func(*requests) []byte) []byte {
			buf = append(buf[:0], `{"items":[`...)
			for i := range items {
				if i > 0 {
					buf = append(buf, ',')
				}
				buf = append(buf, `{"task_id":"`...)
				buf = append(buf, items[i].task...)
				buf = append(buf, `","attempt":0,`...)
				buf = append(buf, body(&items[i])[1:]...)
			}
			return append(buf, "]}"...)
		}
		return func(c *conn) (int, error) {
			for i := range items {
				items[i].fresh()
			}
			status, err := c.post("/v1/batch/reserve", fill((*requests).reserve))
			if err := want(status, err, http.StatusOK); err != nil {
				return 0, err
			}
			status, err = c.post("/v1/batch/record", fill((*requests).record))
			return size, want(status, err, http.StatusOK)
		}
	}
}

// prepare records so many keys and holds one.
func (b *bench) prepare(n int) (tasks []string, held string, err error) {
	c, err := dial(b.service.address, false)
	if err != nil {
		return nil, "", err
	}
	defer c.Close()
	r := &requests{}
	for range n {
		r.fresh()
		tasks = append(tasks, r.task)
		status, err := c.post(r.path("reserve"), r.reserve())
		if err := want(status, err, http.StatusCreated); err != nil {
			return nil, "", err
		}
		status, err = c.post(r.path("record"), r.record())
		if err := want(status, err, http.StatusCreated); err != nil {
			return nil, "", err
		}
	}
	r.fresh()
	held = r.task
	body := strings.Replace(string(r.reserve()), "{", `{"lease_seconds":`+strconv.Itoa(86400)+`,`, 1)
	status, err := c.post(r.path("reserve"), []byte(body))
	return tasks, held, want(status, err, http.StatusCreated)
}
