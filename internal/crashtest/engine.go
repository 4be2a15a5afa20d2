package crashtest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// retries is how many failures a task may report before it has failed for good.
const retries = 3

// fetchHold is how long a fetch waits for a task.
const fetchHold = 500 * time.Millisecond

// variable is one of a task's.
type variable struct {
	Name  string `json:"name"`
	Type  string `json:"value_type"`
	Value any    `json:"value"`
}

// ending is how a task came to its end.
type ending string

const (
	open      ending = ""
	completed ending = "completed"
	failed    ending = "failed"     // for good
	errored   ending = "bpmn-error" // ended by the model
)

// engine hands out one task at least once, as external-task engines do: locked for a while, again when the lock has
// passed, with the retry count moved on by a reported failure alone.
type engine struct {
	taskID    string
	instance  string // that the task is one of
	execution string // of the instance, which may come by the task again
	topic     string
	variables []variable
	lockTTL   time.Duration // no lock lasts longer, whatever was asked for
	watch     engineWatch
	over      <-chan struct{} // no fetch is held any more

	mu          sync.Mutex
	changed     chan struct{} // closed at the next change
	holder      string
	lockedUntil time.Time
	retryCount  int
	ended       ending
	topics      []string // that were asked for
}

// engineWatch is told what a worker does. Where it says no, the worker is dead: nothing is carried out or answered.
type engineWatch interface {
	fetched()
	delivered()
	reported() bool
}

// unlock ends the lock of a holder that is known to be dead, as its TTL would a little later.
func (e *engine) unlock() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lockedUntil = time.Time{}
	e.announce()
}

// key is under which the store keeps the task's present attempt.
func (e *engine) key() key {
	e.mu.Lock()
	defer e.mu.Unlock()
	return key{e.taskID, strconv.Itoa(e.retryCount)}
}

// shared says whether a key is that of more than the task.
func (e *engine) shared(k key) bool {
	of := func(id string) bool { return id != "" && strings.Contains(k.taskID, id) }
	return !of(e.taskID) && (of(e.instance) || of(e.execution))
}

func (e *engine) end() ending {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ended
}

func (e *engine) failures() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.retryCount
}

// otherTopics are those that were asked for in vain.
func (e *engine) otherTopics() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(e.topics), func(topic string) bool { return topic == "" || topic == e.topic })
}

// announce tells those who wait for a task. The caller holds e.mu.
func (e *engine) announce() {
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *engine) handler() http.Handler {
	const tasks = "POST /api/v1/external-tasks/"
	always := func(engineRequest) bool { return true }
	hasCode := func(r engineRequest) bool { return r.ErrorCode != "" }
	hasMessage := func(r engineRequest) bool { return r.ErrorMessage != nil }
	mux := http.NewServeMux()
	mux.HandleFunc(tasks+"fetch-and-lock", e.fetchAndLock)
	mux.HandleFunc(tasks+"{id}/complete", e.report(always, "", e.complete))
	mux.HandleFunc(tasks+"{id}/bpmn-error", e.report(hasCode, "error_code", e.bpmnError))
	mux.HandleFunc(tasks+"{id}/failure", e.report(hasMessage, "error_message", e.failure))
	mux.HandleFunc(tasks+"{id}/extend-lock", e.extendLock)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusNotFound, "U404", "the engine has no "+r.Method+" "+r.URL.Path, "see the calls of external-tasks")
	})
	return mux
}

// engineRequest is the body of any of the calls.
type engineRequest struct {
	WorkerID     string   `json:"worker_id"`
	Topic        string   `json:"topic"`
	MaxJobs      *int     `json:"max_jobs"`
	LockSeconds  *float64 `json:"lock_duration_secs"`
	ErrorMessage *string  `json:"error_message"`
	ErrorCode    string   `json:"error_code"`
}

// task is what a fetch answers.
type task struct {
	ID          string     `json:"id"`
	Topic       string     `json:"topic"`
	InstanceID  string     `json:"instance_id"`
	ExecutionID string     `json:"execution_id"`
	LockedUntil time.Time  `json:"locked_until"`
	Retries     int        `json:"retries"`
	RetryCount  int        `json:"retry_count"`
	Variables   []variable `json:"variables"`
}

// fetchAndLock answers as soon as there is a task, or after a short hold.
func (e *engine) fetchAndLock(w http.ResponseWriter, r *http.Request) {
	req, ok := readRequest(w, r)
	if !ok {
		return
	}
	if req.MaxJobs != nil && (*req.MaxJobs < 1 || *req.MaxJobs > 100) {
		refuse(w, http.StatusBadRequest, "U400", "max_jobs is not within 1 to 100", "ask for 1 to 100")
		return
	}
	if e.offers(req) {
		e.watch.fetched()
	}
	until := time.NewTimer(fetchHold)
	defer until.Stop()
	for {
		tasks, changed, wait := e.take(req)
		if len(tasks) > 0 {
			e.watch.delivered()
			answer(w, http.StatusOK, tasks)
			return
		}
		passes := time.NewTimer(wait)
		select {
		case <-changed:
		case <-passes.C:
		case <-until.C:
			answer(w, http.StatusOK, tasks)
			passes.Stop()
			return
		case <-e.over:
			answer(w, http.StatusOK, tasks)
			passes.Stop()
			return
		case <-r.Context().Done():
			passes.Stop()
			return
		}
		passes.Stop()
	}
}

// take locks the task for the caller if it is free, or says when to look again.
func (e *engine) take(req engineRequest) (tasks []task, changed <-chan struct{}, wait time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	tasks = []task{}
	if !slices.Contains(e.topics, req.Topic) {
		e.topics = append(e.topics, req.Topic)
	}
	if e.ended != open || !e.offers(req) {
		return tasks, e.changed, time.Hour
	}
	if wait := time.Until(e.lockedUntil); wait > 0 {
		return tasks, e.changed, wait
	}
	e.holder, e.lockedUntil = req.WorkerID, time.Now().Add(e.lock(req))
	return []task{{
		ID: e.taskID, Topic: e.topic, InstanceID: e.instance, ExecutionID: e.execution, LockedUntil: e.lockedUntil.UTC(),
		Retries: retries, RetryCount: e.retryCount, Variables: e.variables,
	}}, e.changed, 0
}

// offers says whether the caller asks for what there is. Without a topic it asks for any.
func (e *engine) offers(req engineRequest) bool { return req.Topic == "" || req.Topic == e.topic }

func (e *engine) lock(req engineRequest) time.Duration {
	const defaultSeconds = 30
	seconds := float64(defaultSeconds)
	if req.LockSeconds != nil {
		seconds = *req.LockSeconds
	}
	return min(time.Duration(seconds*float64(time.Second)), e.lockTTL)
}

// report makes a handler of what moves the task on. It is the holder's to do; a lock that passed is still the holder's
// until another has it.
func (e *engine) report(check func(engineRequest) bool, want string, carryOut func()) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		req, ok := readRequest(w, r)
		if !ok || !e.holds(w, r, req) {
			return
		}
		if !check(req) {
			refuse(w, http.StatusBadRequest, "U400", want+" is missing", "send it")
			return
		}
		if !e.watch.reported() {
			hangUp()
		}
		if !e.holds(w, r, req) { // meanwhile
			return
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		carryOut()
		e.holder, e.lockedUntil = "", time.Time{}
		e.announce()
		w.WriteHeader(http.StatusNoContent)
	}
}

func (e *engine) complete() { e.ended = completed }

func (e *engine) bpmnError() { e.ended = errored }

func (e *engine) failure() {
	e.retryCount++
	if e.retryCount >= retries {
		e.ended = failed
	}
}

func (e *engine) extendLock(w http.ResponseWriter, r *http.Request) {
	req, ok := readRequest(w, r)
	if !ok || !e.holds(w, r, req) {
		return
	}
	if req.LockSeconds == nil {
		refuse(w, http.StatusBadRequest, "U400", "lock_duration_secs is missing", "say for how long")
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lockedUntil = time.Now().Add(e.lock(req))
	w.WriteHeader(http.StatusNoContent)
}

// holds refuses whoever does not hold the task.
func (e *engine) holds(w http.ResponseWriter, r *http.Request, req engineRequest) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case r.PathValue("id") != e.taskID:
		refuse(w, http.StatusNotFound, "U404", "there is no task "+r.PathValue("id"), "fetch a task first")
	case e.ended != open:
		refuse(w, http.StatusConflict, "U409", "the task has ended", "leave it")
	case e.holder != req.WorkerID:
		refuse(w, http.StatusConflict, "U409", "the task is not locked by this worker", "leave it to the one who has it")
	default:
		return true
	}
	return false
}

// readRequest reads what every call has.
func readRequest(w http.ResponseWriter, r *http.Request) (engineRequest, bool) {
	var req engineRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&req); err != nil {
		refuse(w, http.StatusBadRequest, "U400", "the body is not the JSON of this call: "+err.Error(), "send JSON")
		return req, false
	}
	if req.WorkerID == "" {
		refuse(w, http.StatusBadRequest, "U400", "worker_id is missing", "say who you are")
		return req, false
	}
	if req.LockSeconds != nil && *req.LockSeconds <= 0 {
		refuse(w, http.StatusBadRequest, "U400", "lock_duration_secs is not above 0", "ask for some seconds")
		return req, false
	}
	return req, true
}

func refuse(w http.ResponseWriter, status int, code, message, action string) {
	answer(w, status, map[string]string{"code": code, "message": message, "action": action})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // whoever asked has left
}

// hangUp ends a request without an answer.
func hangUp() { panic(http.ErrAbortHandler) }
