package crashtest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// bystander lets everything pass, and counts.
type bystander struct {
	deliveries, reports atomic.Int64
	dead                atomic.Bool // the worker is, at its next report
}

func (b *bystander) fetched()   {}
func (b *bystander) delivered() { b.deliveries.Add(1) }
func (b *bystander) reported() bool {
	b.reports.Add(1)
	return !b.dead.Load()
}

// engineUnderTest is an engine with a task of topic http.call.
type engineUnderTest struct {
	*engine
	*bystander
	t      *testing.T
	url    string
	client *http.Client
}

func newEngine(t *testing.T, lockTTL time.Duration) *engineUnderTest {
	t.Helper()
	over := make(chan struct{})
	e := &engineUnderTest{bystander: new(bystander), t: t, client: &http.Client{Transport: &http.Transport{}}}
	e.engine = &engine{
		taskID: "4f1c3f1e-8c6f-4a55-9a0e-1d2c3b4a5f60", topic: HTTPCall, lockTTL: lockTTL, watch: e.bystander, over: over,
		changed: make(chan struct{}), variables: variablesOf(map[string]any{"url": "http://x", "n": 1.0, "rows": [][]string{{"a"}}, "none": nil}),
	}
	server := httptest.NewServer(e.engine.handler())
	e.url = server.URL + "/api/v1/external-tasks/"
	t.Cleanup(server.Close)
	t.Cleanup(e.client.CloseIdleConnections)
	t.Cleanup(func() { close(over) })
	return e
}

func (e *engineUnderTest) call(path, body string) (int, []byte) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url+path, bytes.NewReader([]byte(body)))
	if err != nil {
		e.t.Fatal(err)
	}
	res, err := e.client.Do(req)
	if err != nil {
		return 0, nil
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		e.t.Fatal(err)
	}
	return res.StatusCode, text
}

func (e *engineUnderTest) want(status int, path, body string) []byte {
	e.t.Helper()
	got, text := e.call(path, body)
	if got != status {
		e.t.Fatalf("%s %s: %d %s, want %d", path, body, got, text, status)
	}
	if status >= 400 {
		var problem struct{ Code, Message, Action string }
		if err := json.Unmarshal(text, &problem); err != nil || problem.Code == "" || problem.Message == "" || problem.Action == "" {
			e.t.Errorf("%s %s: %s", path, body, text)
		}
	}
	return text
}

// fetch returns the task if there is one.
func (e *engineUnderTest) fetch(worker string) []task {
	e.t.Helper()
	var tasks []task
	if err := json.Unmarshal(e.want(200, "fetch-and-lock", `{"worker_id":"`+worker+`","topic":"http.call","max_jobs":10,"lock_duration_secs":30}`), &tasks); err != nil {
		e.t.Fatal(err)
	}
	return tasks
}

func TestEngineHandsOutAgain(t *testing.T) {
	t.Parallel()
	e := newEngine(t, 300*time.Millisecond)
	first := e.fetch("a")
	if len(first) != 1 || first[0].RetryCount != 0 || first[0].Retries != retries || first[0].Topic != HTTPCall || time.Until(first[0].LockedUntil) > 300*time.Millisecond {
		t.Fatalf("%+v", first)
	}
	types := ""
	for _, v := range first[0].Variables {
		types += v.Name + ":" + v.Type + " "
	}
	if types != "n:Long none:Null rows:Json url:String " {
		t.Errorf("variables: %s", types)
	}
	second := e.fetch("b") // held until the lock has passed
	if len(second) != 1 || second[0].ID != first[0].ID || second[0].RetryCount != 0 {
		t.Fatalf("after the lock: %+v", second)
	}
	if time.Now().Before(first[0].LockedUntil) {
		t.Error("handed out while it was locked")
	}
	id := first[0].ID
	e.want(409, id+"/complete", `{"worker_id":"a"}`)
	e.want(409, id+"/failure", `{"worker_id":"a","error_message":"x"}`)
	e.want(409, id+"/bpmn-error", `{"worker_id":"a","error_code":"x","error_message":"x"}`)
	e.want(409, id+"/extend-lock", `{"worker_id":"a","lock_duration_secs":1}`)
	if e.reports.Load() != 0 {
		t.Error("a report of one who does not hold it is none")
	}
	e.want(204, id+"/complete", `{"worker_id":"b","variables":[]}`)
	e.want(409, id+"/complete", `{"worker_id":"b"}`)
	if e.end() != completed || len(e.fetch("b")) != 0 {
		t.Error("completed, and handed out again")
	}
}

func TestEngineMovesOnAfterFailures(t *testing.T) {
	t.Parallel()
	e := newEngine(t, time.Minute)
	for attempt := range retries {
		tasks := e.fetch("a")
		if len(tasks) != 1 || tasks[0].RetryCount != attempt {
			t.Fatalf("attempt %d: %+v", attempt, tasks)
		}
		e.want(204, tasks[0].ID+"/failure", `{"worker_id":"a","error_message":""}`)
	}
	if e.end() != failed || e.failures() != retries || len(e.fetch("a")) != 0 {
		t.Errorf("after %d failures: %q", retries, e.end())
	}
}

func TestEngineEndsByBPMNError(t *testing.T) {
	t.Parallel()
	e := newEngine(t, time.Minute)
	id := e.fetch("a")[0].ID
	e.want(400, id+"/bpmn-error", `{"worker_id":"a"}`)
	e.want(204, id+"/bpmn-error", `{"worker_id":"a","error_code":"NO","error_message":"no"}`)
	if e.end() != errored {
		t.Errorf("%q", e.end())
	}
}

// A lock that was extended outlives its TTL, one that passed is its holder's until another has it, and that of a dead
// holder can be ended.
func TestEngineLocks(t *testing.T) {
	t.Parallel()
	e := newEngine(t, time.Minute)
	var tasks []task
	_ = json.Unmarshal(e.want(200, "fetch-and-lock", `{"worker_id":"a","lock_duration_secs":0.2}`), &tasks)
	if len(tasks) != 1 {
		t.Fatal("no topic asks for any")
	}
	e.want(204, tasks[0].ID+"/extend-lock", `{"worker_id":"a","lock_duration_secs":30}`)
	if len(e.fetch("b")) != 0 {
		t.Error("handed out although the lock was extended")
	}
	e.unlock()
	e.want(204, tasks[0].ID+"/extend-lock", `{"worker_id":"a","lock_duration_secs":30}`)
	e.unlock()
	if len(e.fetch("b")) != 1 {
		t.Error("not handed out after the lock was ended")
	}
}

func TestEngineRefusesBadInput(t *testing.T) {
	t.Parallel()
	e := newEngine(t, time.Minute)
	e.want(400, "fetch-and-lock", `{"topic":"http.call"}`)
	e.want(400, "fetch-and-lock", `{`)
	e.want(400, "fetch-and-lock", `{"worker_id":"a","max_jobs":101}`)
	e.want(400, "fetch-and-lock", `{"worker_id":"a","max_jobs":0}`)
	e.want(400, "fetch-and-lock", `{"worker_id":"a","lock_duration_secs":0}`)
	e.want(404, "someone-elses/complete", `{"worker_id":"a"}`)
	e.want(404, "no/such/call", `{}`)
	id := e.fetch("a")[0].ID
	e.want(400, id+"/failure", `{"worker_id":"a"}`)
	e.want(400, id+"/extend-lock", `{"worker_id":"a"}`)
	e.want(400, id+"/complete", `{}`)
	if e.end() != open {
		t.Error("bad input ended the task")
	}
}

// Another topic's worker gets nothing, and is remembered.
func TestEngineKeepsTopicsApart(t *testing.T) {
	t.Parallel()
	e := newEngine(t, time.Minute)
	if text := e.want(200, "fetch-and-lock", `{"worker_id":"a","topic":"mail.send"}`); string(bytes.TrimSpace(text)) != "[]" {
		t.Errorf("%s", text)
	}
	if got := e.otherTopics(); len(got) != 1 || got[0] != "mail.send" || e.deliveries.Load() != 0 {
		t.Errorf("topics %q, %d deliveries", got, e.deliveries.Load())
	}
}

// A report that the worker dies at is neither carried out nor answered.
func TestEngineWithholds(t *testing.T) {
	t.Parallel()
	e := newEngine(t, time.Minute)
	id := e.fetch("a")[0].ID
	e.dead.Store(true)
	if status, _ := e.call(id+"/complete", `{"worker_id":"a"}`); status != 0 {
		t.Errorf("answered %d", status)
	}
	if e.end() != open {
		t.Error("carried out")
	}
}
