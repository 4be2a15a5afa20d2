package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// fleet is replicas under load, and what they acknowledged.
type fleet struct {
	t        *testing.T
	name     string
	replicas []*program
	turns    atomic.Int64
	stopping chan struct{}
	workers  sync.WaitGroup

	mu       sync.Mutex
	grants   map[string]map[string]float64 // task, reservation: fence
	records  map[string]string             // task: body
	replays  map[string]string
	statuses map[int]int // of workers' calls
	ready    map[int]int // of /readyz
}

const (
	fleetWorkers = 8
	// takers is how many workers go for one task.
	takers = 3
)

// newFleet starts replicas of the program on one database, and workers on both that do not stop until they are told.
func newFleet(t *testing.T, databaseURL string) *fleet {
	t.Helper()
	f := &fleet{
		t: t, name: uuid.NewString(), stopping: make(chan struct{}),
		grants: make(map[string]map[string]float64), records: make(map[string]string), replays: make(map[string]string), statuses: make(map[int]int), ready: make(map[int]int),
	}
	for range 2 {
		f.replicas = append(f.replicas, start(t, []string{"IDEMSTORE_DATABASE_URL=" + databaseURL}))
	}
	for i := range fleetWorkers {
		f.workers.Go(func() { f.work(f.replicas[i%len(f.replicas)]) })
	}
	f.flows(100)
	return f
}

// stop has the workers bring to an end what they have begun.
func (f *fleet) stop() {
	close(f.stopping)
	f.workers.Wait()
}

// flows waits for so many more records.
func (f *fleet) flows(more int) {
	f.t.Helper()
	recorded := func() int { f.mu.Lock(); defer f.mu.Unlock(); return len(f.records) }
	want := recorded() + more
	eventually(f.t, "records are acknowledged again", func() bool { return recorded() >= want })
}

// recovers waits until every replica takes a fresh key, and returns how long that took.
func (f *fleet) recovers(within time.Duration) {
	f.t.Helper()
	begun := time.Now()
	for i, p := range f.replicas {
		eventually(f.t, "a replica is back", func() bool { return p.pair(uuid.NewString()) })
		eventually(f.t, "it says so", func() bool { return send("GET", p.url+"/readyz", "", "").status == http.StatusOK })
		if took := time.Since(begun); took > within {
			f.t.Errorf("replica %d was back after %s, later than %s", i, took, within)
		}
	}
	f.t.Logf("the replicas were back after %s", time.Since(begun).Round(time.Millisecond))
}

func (f *fleet) work(p *program) {
	for {
		select {
		case <-f.stopping:
			return
		default:
			f.once(p, fmt.Sprintf("%s-%d", f.name, f.turns.Add(1)/takers))
		}
	}
}

// once takes one task: reserve, and whoever is granted it records. Every call is repeated until it is answered.
func (f *fleet) once(p *program, task string) {
	reservation := uuid.NewString()
	reserved := f.ask(p, task, "reserve", fmt.Sprintf(`{"owner":"w","reservation_id":%q,"lease_seconds":3600}`, reservation))
	switch {
	case reserved.status == http.StatusConflict && reserved.body["outcome"] == "in_progress":
	case reserved.status == http.StatusOK && reserved.body["outcome"] == "recorded":
		f.mu.Lock()
		defer f.mu.Unlock()
		f.replays[task], _ = reserved.body["response"].(map[string]any)["body"].(string)
	case reserved.status == http.StatusCreated:
		f.mu.Lock()
		if f.grants[task] == nil {
			f.grants[task] = make(map[string]float64)
		}
		f.grants[task][reservation], _ = reserved.body["fence"].(float64)
		f.mu.Unlock()
		body := "of " + reservation
		recorded := f.ask(p, task, "record", fmt.Sprintf(`{"reservation_id":%q,"response":{"status":201,"body":%q}}`, reservation, body))
		if recorded.body["outcome"] != "recorded" {
			f.t.Errorf("%s: record: %d %v", task, recorded.status, recorded.body)
			return
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.records[task] = body
	default:
		f.t.Errorf("%s: reserve: %d %v %v", task, reserved.status, reserved.body, reserved.err)
	}
}

// ask calls until it is answered by anything but 503.
func (f *fleet) ask(p *program, task, verb, body string) answer {
	for deadline := time.Now().Add(patience); ; {
		a := send("POST", p.task(task)+"/"+verb, "", body)
		f.mu.Lock()
		f.statuses[a.status]++
		f.mu.Unlock()
		if a.err == nil && a.status != http.StatusServiceUnavailable || time.Now().After(deadline) {
			return a
		}
		<-time.After(10 * time.Millisecond) // workers are told to wait for a second
	}
}

// judge holds what was acknowledged against each other and against a database: each task was granted once, and what was recorded is there.
func (f *fleet) judge(databaseURL string) {
	f.t.Helper()
	rows := f.rows(databaseURL)
	for task, grants := range f.grants {
		row := rows[task]
		if len(grants) != 1 {
			f.t.Errorf("%s was granted to %v", task, grants)
		}
		for reservation, fence := range grants {
			if row.reservation != reservation || float64(row.fence) != fence {
				f.t.Errorf("%s was granted to %s with fence %v, and the database has %+v", task, reservation, fence, row)
			}
		}
	}
	for task, body := range f.records {
		if rows[task].state != "recorded" || string(rows[task].body) != body {
			f.t.Errorf("%s: %q was acknowledged, and the database has %+v", task, body, rows[task])
		}
	}
	for task, body := range f.replays {
		if string(rows[task].body) != body {
			f.t.Errorf("%s: %q was replayed, and the database has %+v", task, body, rows[task])
		}
	}
	f.t.Logf("%d granted, %d recorded, %d replayed; answers by status: %v", len(f.grants), len(f.records), len(f.replays), f.statuses)
}

type fleetRow struct {
	reservation, state string
	fence              int64
	body               []byte
}

func (f *fleet) rows(databaseURL string) map[string]fleetRow {
	f.t.Helper()
	conn, err := pgx.Connect(f.t.Context(), databaseURL)
	if err != nil {
		f.t.Fatal(err)
	}
	defer conn.Close(f.t.Context())
	found, err := conn.Query(f.t.Context(), `SELECT task_id, reservation_id, state::text, fence, response_body FROM entries`)
	if err != nil {
		f.t.Fatal(err)
	}
	rows := make(map[string]fleetRow)
	var task string
	var row fleetRow
	_, err = pgx.ForEachRow(found, []any{&task, &row.reservation, &row.state, &row.fence, &row.body}, func() error {
		row.body = append([]byte(nil), row.body...)
		rows[task] = row
		return nil
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return rows
}

// hosts is a URL of several servers with one database, of which the one that takes writes is meant.
func hosts(t *testing.T, urls ...string) string {
	t.Helper()
	var addresses []string
	for _, u := range urls {
		config, err := pgx.ParseConfig(u)
		if err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, fmt.Sprintf("%s:%d", config.Host, config.Port))
	}
	before, after, _ := strings.Cut(urls[0], addresses[0])
	return before + strings.Join(addresses, ",") + after + "&target_session_attrs=read-write"
}
