package crashtest_test

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
)

// The kinds of worker that the test binary can be. The first three are right.
const (
	good        = "good"     // asks the upstream when in doubt
	modest      = "modest"   // leaves a doubt to the operator
	explicit    = "explicit" // says dispatch before the effect, and reserves by the batch
	oneShot     = "one-shot" // ends after each round, to be started again
	noReserve   = "no-reserve"
	clockKey    = "key-from-the-clock"
	deliveryKey = "key-from-a-delivery-counter"
	recordFirst = "record-before-the-effect"
	blind       = "takeover-without-looking"
	skipsErrors = "record-skipped-on-an-error-path"
	noRenewal   = "lease-never-renewed"
	washes      = "release-after-an-ambiguous-failure"
	givesUp     = "completes-when-in-doubt"
	appends     = "csv-appended-without-a-key"
	exits       = "exits-at-once"
	idles       = "never-fetches"
	leaves      = "leaves-a-child"
	crashes     = "crashes-at-a-task"
	picky       = "fetches-one-topic"
	failsDoubt  = "fails-when-in-doubt"
	completer   = "completes-before-the-record"
)

// beWorker is the argument that makes the test binary a worker. Its kind follows, and what the kind wants to know.
const beWorker = "be-a-worker"

// obj is a JSON object.
type obj = map[string]any

// testWorker is a worker in a few lines: one task at a time.
type testWorker struct {
	kind string
	id   string
}

// runWorker works until it is killed, or to its exit status.
func runWorker(kind string, args ...string) int {
	w := &testWorker{kind: kind, id: uuid.NewString()}
	switch kind {
	case exits:
		fmt.Fprintln(os.Stderr, "worker: no configuration")
		return 3
	case idles:
		fmt.Fprintln(os.Stderr, "worker: waiting for a sign")
		select {}
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

type engineTask struct {
	ID         string `json:"id"`
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
		var happened result
		if w.kind != blind {
			happened.status, happened.body, happened.err = w.upstream(context.Background(), t, http.MethodGet, nil)
			if happened.err != nil {
				return
			}
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
	case r.refused() || r.err != nil && w.kind == washes:
		w.store(k+"/release", obj{"reservation_id": reserve["reservation_id"], "reason": r.err.Error()})
		w.fail(t)
	case w.kind == skipsErrors && (r.err != nil || r.status >= 400):
		w.engine(t.ID+"/bpmn-error", obj{"error_code": "NO", "error_message": "no"})
	case r.err != nil:
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

func (w *testWorker) engine(call string, body obj) (int, []byte) {
	body["worker_id"] = w.id
	status, text, _ := post(os.Getenv("CONDUIT_URL")+"/api/v1/external-tasks/"+call, "", body)
	return status, text
}

func (w *testWorker) store(path string, body obj) (int, obj) {
	status, text, _ := post(os.Getenv("IDEMSTORE_URL")+path, os.Getenv("IDEMSTORE_TOKEN"), body)
	var answer obj
	_ = json.Unmarshal(text, &answer)
	return status, answer
}

func post(url, token string, body obj) (int, []byte, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, bytes.NewReader(text))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return send(req)
}

// send uses a connection for one request, so that no request is tried again because its connection was an old one.
func send(req *http.Request) (int, []byte, error) {
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, text, err
}
