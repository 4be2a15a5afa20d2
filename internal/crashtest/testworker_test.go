package crashtest_test

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
)

// beWorker is the argument that makes the test binary a worker. Its kind follows, and what the kind wants to know.
const beWorker = "be-a-worker"

// obj is a JSON object.
type obj = map[string]any

// testWorker is a worker in a few lines: one task at a time.
type testWorker struct {
	kind string
	id   string
	done map[string]bool
}

// runWorker works until it is killed, or to its exit status.
func runWorker(kind string, args ...string) int {
	w := &testWorker{kind: kind, id: uuid.NewString(), done: make(map[string]bool)}
	switch kind {
	case exits:
		fmt.Fprintln(os.Stderr, "worker: no configuration")
		return 3
	case idles:
		fmt.Fprintln(os.Stderr, "worker: waiting for a sign")
		select {}
	case departs:
		return depart(args[0], args[1])
	case starts:
		long, err := time.ParseDuration(args[0])
		if err != nil {
			panic(err)
		}
		<-time.After(long)
	case litters:
		_, _ = os.CreateTemp("", litters)
	case leaves:
		child := exec.Command("sleep", "3600") //nolint:noctx // to be left
		if err := child.Start(); err != nil {
			panic(err)
		}
		_ = os.WriteFile(args[0], fmt.Appendf(nil, "%d %d", os.Getpid(), child.Process.Pid), 0o600)
	}
	fetch := obj{"max_jobs": 1, "lock_duration_secs": 30}
	if kind == picky {
		fetch["topic"] = args[0]
	}
	for {
		_, body := w.engine("fetch-and-lock", fetch)
		var tasks []engineTask
		_ = json.Unmarshal(body, &tasks)
		for _, task := range tasks {
			if kind == crashes {
				return 4
			}
			w.handle(task)
		}
		if kind == oneShot && len(tasks) > 0 {
			return 0
		}
	}
}

// depart is another kind of worker in a session of its own, which writes down its processes.
func depart(kind, pids string) int {
	worker := exec.Command(os.Args[0], beWorker, kind) //nolint:noctx // to be killed
	worker.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := worker.Start(); err != nil {
		panic(err)
	}
	f, err := os.OpenFile(pids, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(f, worker.Process.Pid)
	_ = worker.Wait() // until it is killed
	return 0
}

type engineTask struct {
	ID         string `json:"id"`
	InstanceID string `json:"instance_id"`
	Topic      string `json:"topic"`
	RetryCount int    `json:"retry_count"`
	Variables  []struct {
		Name  string          `json:"name"`
		Value json.RawMessage `json:"value"`
	} `json:"variables"`
}

func (t engineTask) variable(name string, into any) {
	for _, v := range t.Variables {
		if v.Name == name {
			_ = json.Unmarshal(v.Value, into)
		}
	}
}

func (w *testWorker) handle(t engineTask) {
	switch t.Topic {
	case "csv.read":
		var path string
		t.variable("path", &path)
		if _, err := os.ReadFile(path); err == nil {
			w.complete(t)
		}
	case "csv.write":
		w.writeCSV(t)
	case "http.get":
		if status, _, err := w.upstream(context.Background(), t, http.MethodGet, nil); err == nil && status == http.StatusOK {
			w.complete(t)
		}
	case "http.call.keyed":
		key := "conduit-task-" + t.ID
		if w.kind == clockKey {
			key = time.Now().String()
		}
		w.finish(t, w.write(context.Background(), t, obj{"Idempotency-Key": key}))
	default:
		if w.kind == noReserve {
			w.finish(t, w.write(context.Background(), t, nil))
			return
		}
		w.unusual(t)
	}
}

// unusual does what needs no store, in the opinion of some.
func (w *testWorker) unusual(t engineTask) {
	switch w.kind {
	case pretends:
		w.complete(t)
	case remembers:
		if !w.done[t.ID] {
			w.done[t.ID] = true
			w.write(context.Background(), t, nil)
		}
		w.complete(t)
	case naturalKey:
		r := w.look(t)
		if r.status == http.StatusNotFound {
			r = w.write(context.Background(), t, nil)
		}
		w.finish(t, r)
	default:
		w.guarded(t)
	}
}

// result is what came of a write: an answer, or none.
type result struct {
	status int
	body   string
	err    error
}

func (r result) refused() bool {
	return r.err != nil && strings.Contains(r.err.Error(), "connection refused")
}

// guarded does the effect under the protection of the store.
func (w *testWorker) guarded(t engineTask) {
	k := w.key(t)
	reserve := obj{"owner": w.id, "reservation_id": uuid.NewString(), "lease_seconds": 30}
	if w.kind == explicit {
		reserve["dispatch"] = "explicit"
	}
	var happened result
	if w.kind == looksFirst {
		happened = w.look(t)
	}
	status, answer := w.reserve(k, reserve)
	if status == http.StatusConflict && answer["outcome"] == "in_doubt" {
		if w.kind == givesUp {
			w.complete(t)
			return
		}
		if w.kind == failsDoubt {
			w.fail(t)
			return
		}
		if w.kind == modest || w.kind == noRenewal {
			return
		}
		if w.kind != blind && w.kind != looksFirst {
			happened = w.look(t)
		}
		if happened.err != nil {
			return
		}
		reserve["takeovers"] = answer["takeovers"]
		if status, answer = w.reserve(k, reserve); status == http.StatusCreated && happened.status == http.StatusOK {
			w.record(k, reserve, happened)
			w.finish(t, happened)
			return
		}
	}
	switch status {
	case http.StatusCreated:
		w.act(t, k, reserve, answer)
	case http.StatusOK:
		response, _ := answer["response"].(obj)
		code, _ := response["status"].(float64)
		w.finish(t, result{status: int(code)})
	}
}

// act does the effect as its holder, and says what came of it.
func (w *testWorker) act(t engineTask, k string, reserve, grant obj) {
	if w.kind == explicit {
		if status, _ := w.store(k+"/dispatch", obj{"reservation_id": reserve["reservation_id"]}); status != http.StatusOK {
			return
		}
	}
	left, _ := grant["lease_seconds_left"].(float64)
	if w.kind == sleeps {
		<-time.After(time.Duration(left*float64(time.Second)) + time.Second)
	}
	if w.kind == recordFirst {
		w.record(k, reserve, result{status: 201})
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if w.kind != noRenewal {
		go w.renew(ctx, k, reserve, grant)
	}
	r := w.write(ctx, t, nil)
	cancel()
	switch {
	case r.refused(), r.err != nil && w.kind == washes, r.status >= 500 && w.kind == releases5xx:
		w.store(k+"/release", obj{"reservation_id": reserve["reservation_id"], "reason": "not done"})
		w.fail(t)
	case w.kind == skipsErrors && (r.err != nil || r.status >= 400):
		w.engine(t.ID+"/bpmn-error", obj{"error_code": "NO", "error_message": "no"})
	case r.err != nil, r.status >= 500 && w.kind != always200:
		return // nobody knows; the store says so when the lease has passed
	case w.kind == completer:
		w.finish(t, r)
		w.record(k, reserve, r)
	default:
		w.record(k, reserve, r)
		w.finish(t, r)
	}
}

func (w *testWorker) renew(ctx context.Context, k string, reserve, grant obj) {
	after, _ := grant["renew_after_seconds"].(float64)
	if w.kind == renewsLate {
		left, _ := grant["lease_seconds_left"].(float64)
		after = left + 0.3
	}
	ticker := time.NewTicker(time.Duration(after * float64(time.Second)))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			w.store(k+"/renew", obj{"reservation_id": reserve["reservation_id"], "lease_seconds": 30})
		case <-ctx.Done():
			return
		}
	}
}

// key is the path of the key, under which the worker asks the store.
func (w *testWorker) key(t engineTask) string {
	id, attempt := t.ID, t.RetryCount
	switch w.kind {
	case instanceKey:
		id = t.InstanceID
	case clockKey:
		id = fmt.Sprintf("%s-%d", id, time.Now().UnixNano())
	case deliveryKey:
		counter := filepath.Join(os.Getenv("CRASHTEST_DIR"), "deliveries")
		seen, _ := os.ReadFile(counter)
		attempt = len(seen)
		_ = os.WriteFile(counter, append(seen, '.'), 0o600)
	}
	return fmt.Sprintf("/v1/tasks/%s/attempts/%d", id, attempt)
}

func (w *testWorker) reserve(k string, body obj) (int, obj) {
	if w.kind != explicit {
		return w.store(k+"/reserve", body)
	}
	parts := strings.Split(k, "/")
	item := obj{"task_id": parts[3], "attempt": json.RawMessage(parts[5])}
	maps.Copy(item, body)
	_, answer := w.store("/v1/batch/reserve", obj{"items": []obj{item}})
	results, _ := answer["results"].([]any)
	if len(results) != 1 {
		return 0, nil
	}
	one, _ := results[0].(obj)
	status, _ := one["status"].(float64)
	inner, _ := one["body"].(obj)
	return int(status), inner
}

func (w *testWorker) record(k string, reserve obj, r result) {
	switch w.kind {
	case always200:
		r.status, r.body = http.StatusOK, "ok"
	case invents:
		r.body = `{"id":"of my own"}`
	}
	w.store(k+"/record", obj{
		"reservation_id": reserve["reservation_id"],
		"response":       obj{"status": r.status, "headers": [][]string{{"content-type", "application/json"}}, "body": r.body},
	})
}

// finish tells the engine of an answer.
func (w *testWorker) finish(t engineTask, r result) {
	switch {
	case r.err != nil && r.refused(), r.status >= 500:
		w.fail(t)
	case r.err != nil:
	case r.status >= 400:
		w.engine(t.ID+"/bpmn-error", obj{"error_code": "DECLINED", "error_message": "declined"})
	default:
		w.complete(t)
	}
}

func (w *testWorker) complete(t engineTask) { w.engine(t.ID+"/complete", obj{}) }

func (w *testWorker) fail(t engineTask) { w.engine(t.ID+"/failure", obj{"error_message": "failed"}) }

func (w *testWorker) writeCSV(t engineTask) {
	var path string
	var rows [][]string
	t.variable("path", &path)
	t.variable("rows", &rows)
	var text bytes.Buffer
	_ = csv.NewWriter(&text).WriteAll(rows)
	if w.kind == appends {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return
		}
		_, _ = f.Write(text.Bytes())
		_ = f.Close()
	} else {
		temporary := path + ".tmp." + t.ID
		if os.WriteFile(temporary, text.Bytes(), 0o600) != nil || os.Rename(temporary, path) != nil {
			return
		}
	}
	w.complete(t)
}

func (w *testWorker) look(t engineTask) (r result) {
	r.status, r.body, r.err = w.upstream(context.Background(), t, http.MethodGet, nil)
	return r
}

func (w *testWorker) write(ctx context.Context, t engineTask, header obj) result {
	status, body, err := w.upstream(ctx, t, http.MethodPost, header)
	return result{status, body, err}
}

func (w *testWorker) upstream(ctx context.Context, t engineTask, method string, header obj) (int, string, error) {
	var url, body string
	t.variable("url", &url)
	t.variable("body", &body)
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	for name, value := range header {
		req.Header.Set(name, fmt.Sprint(value))
	}
	req.GetBody = nil // no second try by the transport
	status, text, err := send(req)
	return status, string(text), err
}
