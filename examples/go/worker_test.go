package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsouza/fake-gcs-server/fakestorage"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idemstore/idemstore/client"
)

// What only this worker handles. Its other handlers are tested with the workers in other languages, one directory up.

// program builds a program into a directory of the test's own.
func program(t *testing.T, dir, what string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "program")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", to, what)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build %s in %s: %v\n%s", what, dir, err, out)
	}
	return to
}

// result is what the crash test tells of one task.
type result struct {
	Point   string `json:"kill_point"`
	Killed  bool   `json:"killed"`
	Verdict string `json:"verdict"`
	Detail  string `json:"detail"`
	Ended   string `json:"ended"`
}

// crashtest has the worker killed at every point of a handler, and returns how many tasks it had and the points at which it
// was killed. Every task must be completed.
func crashtest(t *testing.T, handler string, environ []string, variables map[string]string) (tasks int, killed map[string]bool) {
	t.Helper()
	logs := t.TempDir()
	args := []string{"crashtest", "--output", "json", "--parallel", "4", "--settle", "15s", "--patience", "90s", "--start-timeout", "30s", "--log-dir", logs, "--scenario", "plain", "--effects-elsewhere", "--handler", handler}
	for name, value := range variables {
		args = append(args, "--variable", name+"="+value)
	}
	cmd := exec.CommandContext(t.Context(), program(t, "../..", "./cmd/idemstore"), append(args, "--", program(t, ".", "."))...)
	cmd.Env = append(os.Environ(), environ...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // so that it ends its worker
	var out, progress bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &progress
	failed := cmd.Run()
	var report struct {
		Tasks []result `json:"tasks"`
	}
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatalf("%v; %v\n%s%s", failed, err, out.Bytes(), progress.Bytes())
	}
	killed = make(map[string]bool)
	for _, r := range report.Tasks {
		killed[r.Point] = r.Killed
		if r.Verdict != "pass" || r.Ended != "completed" {
			log, _ := os.ReadFile(filepath.Join(logs, handler+"-plain-"+r.Point+".log"))
			t.Errorf("killed %s: %s, %s: %s\n%s", r.Point, r.Ended, r.Verdict, r.Detail, log)
		}
	}
	return len(report.Tasks), killed
}

func TestKafkaProduce(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	brokers := cluster.ListenAddrs()
	tasks, killed := crashtest(t, "kafka.produce", []string{"KAFKA_BROKERS=" + strings.Join(brokers, ",")}, map[string]string{"topic": "orders", "value": "42"})
	for _, point := range []string{"before-reserve", "after-reserve", "before-record", "after-record", "before-complete"} {
		if !killed[point] {
			t.Errorf("the worker was never killed %s", point)
		}
	}
	if records := consume(t, brokers, "orders", tasks); len(records) != tasks {
		t.Errorf("%d tasks have left records under %d keys", tasks, len(records))
	} else {
		for key, n := range records {
			if n != 1 {
				t.Errorf("%s was produced %d times", key, n)
			}
		}
	}
}

// consume reads so many records, waits for one more that should not be there, and counts them by key.
func consume(t *testing.T, brokers []string, topic string, atLeast int) map[string]int {
	t.Helper()
	reader, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	records := make(map[string]int)
	for n, patience := 0, 30*time.Second; ; {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		fetches := reader.PollFetches(ctx)
		cancel()
		fetches.EachRecord(func(r *kgo.Record) { records[string(r.Key)]++; n++ })
		if fetches.NumRecords() == 0 {
			return records
		}
		if n >= atLeast {
			patience = time.Second
		}
	}
}

// bucket is an object store, and a network before it that loses the answer to the first upload of each object.
type bucket struct {
	url     string
	server  *fakestorage.Server
	mu      sync.Mutex
	lost    map[string]bool
	created map[string]int // by name: uploads that succeeded
}

func newBucket(t *testing.T) *bucket {
	t.Helper()
	b := &bucket{lost: make(map[string]bool), created: make(map[string]int)}
	var err error
	b.server, err = fakestorage.NewServerWithOptions(fakestorage.Options{NoListener: true, InitialObjects: []fakestorage.Object{
		{ObjectAttrs: fakestorage.ObjectAttrs{BucketName: "reports", Name: "in.txt"}, Content: []byte("first")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.server.Stop)
	front := httptest.NewServer(b)
	t.Cleanup(front.Close)
	b.url = front.URL
	return b
}

func (b *bucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := httptest.NewRecorder()
	b.server.HTTPHandler().ServeHTTP(answer, r)
	if strings.HasPrefix(r.URL.Path, "/upload/") && answer.Code == http.StatusOK {
		var o object
		_ = json.Unmarshal(answer.Body.Bytes(), &o)
		b.mu.Lock()
		b.created[o.Name]++
		first := !b.lost[o.Name]
		b.lost[o.Name] = true
		b.mu.Unlock()
		if first {
			panic(http.ErrAbortHandler)
		}
	}
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

func TestGCSWrite(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	tasks, killed := crashtest(t, "gcs.write", []string{"STORAGE_URL=" + b.url}, map[string]string{"bucket": "reports", "object": "out/", "content": "42"})
	if !killed["before-complete"] {
		t.Error("the worker was never killed before-complete")
	}
	if len(b.created) != tasks {
		t.Errorf("%d tasks have left %d objects", tasks, len(b.created))
	}
	for name, n := range b.created {
		if o, err := b.server.GetObject("reports", name); n != 1 || err != nil || string(o.Content) != "42" {
			t.Errorf("%s was written %d times, and holds %q (%v)", name, n, o.Content, err)
		}
	}
}

func TestGCSRead(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	_, killed := crashtest(t, "gcs.read", []string{"STORAGE_URL=" + b.url}, map[string]string{"bucket": "reports", "object": "in.txt"})
	if !killed["before-complete"] {
		t.Error("the worker was never killed before-complete")
	}
}

// taskOf is a task with these variables.
func taskOf(id string, variables map[string]string) *task {
	var list []map[string]string
	for name, value := range variables {
		list = append(list, map[string]string{"name": name, "value": value})
	}
	text, _ := json.Marshal(map[string]any{"id": id, "variables": list})
	var t task
	_ = json.Unmarshal(text, &t)
	return &t
}

// A read that is pinned to a generation never gets another's content.
func TestGCSReadIsPinned(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	g := gcs{url: b.url}
	first, err := g.read(t.Context(), taskOf("1", map[string]string{"bucket": "reports", "object": "in.txt"}))
	if err != nil || string(first.Body) != "first" {
		t.Fatalf("%+v %v", first, err)
	}
	generation := first.Header.Get("X-Goog-Generation")
	update := taskOf("2", map[string]string{"bucket": "reports", "object": "in.txt", "content": "second", "generation": generation})
	if _, err := g.write(t.Context(), update); err == nil {
		t.Fatal("the answer was lost, and nobody says so")
	}
	if again, err := g.write(t.Context(), update); err != nil || again.Status != http.StatusOK || b.created["in.txt"] != 1 {
		t.Fatalf("%+v %v, written %d times", again, err, b.created["in.txt"])
	}
	pinned, err := g.read(t.Context(), taskOf("3", map[string]string{"bucket": "reports", "object": "in.txt", "generation": generation}))
	if err != nil || pinned.Status == http.StatusOK && string(pinned.Body) != "first" {
		t.Fatalf("%+v %v", pinned, err)
	}
	// Another task's update of the old generation comes too late.
	late := taskOf("4", map[string]string{"bucket": "reports", "object": "in.txt", "content": "third", "generation": generation})
	if response, err := g.write(t.Context(), late); err != nil || response.Status != http.StatusPreconditionFailed {
		t.Fatalf("%+v %v", response, err)
	}
}

// What another task has replaced is known to have been written all the same.
func TestGCSWriteThatWasReplaced(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	g := gcs{url: b.url}
	write := func(id, content, generation string) (client.Response, error) {
		return g.write(t.Context(), taskOf(id, map[string]string{"bucket": "reports", "object": "new.txt", "content": content, "generation": generation}))
	}
	if _, err := write("1", "first", ""); err == nil {
		t.Fatal("the answer was lost, and nobody says so")
	}
	for i, id := range []string{"2", "3"} { // each replaces the one before
		o, err := b.server.GetObject("reports", "new.txt")
		if err != nil {
			t.Fatal(err)
		}
		if response, err := write(id, "later", strconv.FormatInt(o.Generation, 10)); err != nil || response.Status != http.StatusOK {
			t.Fatalf("%d: %+v %v", i, response, err)
		}
	}
	for id, want := range map[string]int{"1": http.StatusOK, "2": http.StatusOK, "4": http.StatusPreconditionFailed} {
		generation := ""
		if id == "2" {
			generation = "1"
		}
		if response, err := write(id, "again", generation); err != nil || response.Status != want {
			t.Errorf("%s: %+v %v", id, response, err)
		}
	}
	if o, err := b.server.GetObject("reports", "new.txt"); err != nil || string(o.Content) != "later" {
		t.Errorf("%s %v", o.Content, err)
	}
}
