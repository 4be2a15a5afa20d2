package examples_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/internal/server"
	"github.com/idemstore/idemstore/internal/store"
)

// world is an engine with one batch of tasks, an upstream and a store, between which and the worker the first answer to each
// verb is lost.
type world struct {
	engine, upstream, front *httptest.Server
	store                   http.Handler

	mu      sync.Mutex
	tasks   map[string][]map[string]any // by topic, that nobody has fetched yet
	reports map[string]string
	effects map[string]int
	bodies  map[string]string
	lost    map[string]bool
	unsure  string // a task whose reserve in the batch is carried out, and answered 503 at first
}

func newWorld(t *testing.T) *world {
	t.Helper()
	backend, err := store.Open(t.Context(), "sqlite::memory:", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(backend.Close)
	keeper := store.NewBatcher(backend, idem.DefaultPolicy, store.Lanes(backend))
	t.Cleanup(keeper.Close)
	w := &world{
		tasks: make(map[string][]map[string]any), reports: make(map[string]string), effects: make(map[string]int),
		bodies: make(map[string]string), lost: make(map[string]bool),
	}
	w.store = server.New(keeper, backend, &server.Tokens{}, zerolog.Nop(), server.Config{MaxBodyBytes: 4096, KeyTemplate: server.DefaultKeyTemplate})
	for at, handle := range map[**httptest.Server]http.HandlerFunc{&w.engine: w.serveEngine, &w.upstream: w.serveUpstream, &w.front: w.loseFirst} {
		*at = httptest.NewServer(handle)
		t.Cleanup((*at).Close)
	}
	return w
}

func (w *world) serveEngine(rw http.ResponseWriter, r *http.Request) {
	var in struct {
		Topic     string            `json:"topic"`
		Variables []json.RawMessage `json:"variables"`
	}
	_ = json.NewDecoder(r.Body).Decode(&in)
	call := path.Base(r.URL.Path)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case call == "fetch-and-lock" && w.tasks[in.Topic] != nil:
		_ = json.NewEncoder(rw).Encode(w.tasks[in.Topic])
		delete(w.tasks, in.Topic)
	case call == "fetch-and-lock":
		w.mu.Unlock()
		<-time.After(100 * time.Millisecond) // the hold of a fetch that finds nothing
		w.mu.Lock()
		_, _ = io.WriteString(rw, "[]")
	case call == "extend-lock":
		rw.WriteHeader(http.StatusNoContent)
	default:
		w.reports[path.Base(path.Dir(r.URL.Path))] += fmt.Sprintf("%s %s\n", call, bytes.Join(raw(in.Variables), []byte(" ")))
		rw.WriteHeader(http.StatusNoContent)
	}
}

func raw(messages []json.RawMessage) [][]byte {
	out := make([][]byte, len(messages))
	for i, m := range messages {
		out[i] = m
	}
	return out
}

func (w *world) serveUpstream(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.mu.Lock()
	defer w.mu.Unlock()
	name := path.Base(r.URL.Path)
	switch {
	case r.Method == http.MethodPost:
		w.effects[name]++
		w.bodies[name] = string(body)
		rw.WriteHeader(http.StatusCreated)
	case w.effects[name] == 0:
		rw.WriteHeader(http.StatusNotFound)
		return
	}
	if name == "large" {
		_, _ = io.WriteString(rw, strings.Repeat("x", 5000))
	}
	_, _ = io.WriteString(rw, "did "+name)
}

func (w *world) loseFirst(rw http.ResponseWriter, r *http.Request) {
	verb := path.Base(r.URL.Path)
	w.mu.Lock()
	first := !w.lost[verb]
	w.lost[verb] = true
	w.mu.Unlock()
	if first {
		w.store.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	}
	w.mu.Lock()
	unsure := w.unsure
	if verb == "reserve" {
		w.unsure = ""
	}
	w.mu.Unlock()
	if verb != "reserve" || unsure == "" {
		w.store.ServeHTTP(rw, r)
		return
	}
	answer := httptest.NewRecorder()
	w.store.ServeHTTP(answer, r)
	var batch struct {
		Results []struct {
			Status int            `json:"status"`
			Body   map[string]any `json:"body"`
		} `json:"results"`
	}
	_ = json.Unmarshal(answer.Body.Bytes(), &batch)
	for i := range batch.Results {
		if result := &batch.Results[i]; result.Body["task_id"] == unsure {
			result.Status, result.Body = http.StatusServiceUnavailable, map[string]any{"code": "unavailable", "outcome": "unavailable", "status": 503}
		}
	}
	rw.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(rw).Encode(batch)
}

// add gives the worker a task, whose effect is known to the upstream by a name.
func (w *world) add(name string) (id string) {
	return w.give("http.call", w.asks(name, `{"amount": 1}`))
}

// asks are the variables of a task that posts a body.
func (w *world) asks(name string, body any) map[string]any {
	return map[string]any{"url": w.upstream.URL + "/" + name, "method": "POST", "body": body}
}

// give gives the worker a task of a topic.
func (w *world) give(topic string, variables map[string]any) (id string) {
	id = uuid.NewString()
	list := []any{}
	for name, value := range variables {
		kind := "Json"
		if _, is := value.(string); is {
			kind = "String"
		}
		list = append(list, map[string]any{"name": name, "value_type": kind, "value": value})
	}
	w.tasks[topic] = append(w.tasks[topic], map[string]any{"id": id, "topic": topic, "retries": 3, "retry_count": 0, "variables": list})
	return id
}

// ask calls the store itself, past the network.
func (w *world) ask(t *testing.T, method, id, verb string, body map[string]any) (int, map[string]any) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequestWithContext(t.Context(), method, "/v1/tasks/"+id+"/attempts/0/"+verb, bytes.NewReader(text))
	req.Header.Set("Content-Type", "application/json")
	res := httptest.NewRecorder()
	w.store.ServeHTTP(res, req)
	var out map[string]any
	if err := json.Unmarshal(res.Body.Bytes(), &out); err != nil {
		t.Fatalf("%v in %s", err, res.Body)
	}
	return res.Code, out
}

// One fetch of many: what is new is done, what is recorded is replayed, what is in doubt is looked into, what another holds is
// left alone. And no answer that is lost does any harm.
func TestWorkersBatch(t *testing.T) {
	t.Parallel()
	goWorker := filepath.Join(t.TempDir(), "worker")
	build(t, goWorker, "go", ".")
	for name, command := range workers(goWorker) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			first, recorded, happened, undone, held, large, last := w.add("first"), w.add("recorded"), w.add("happened"), w.add("undone"), w.add("held"), w.add("large"), w.add("last")
			for id, lease := range map[string]int{recorded: 60, happened: 1, undone: 1, held: 600} {
				reservation := uuid.NewString()
				w.ask(t, http.MethodPost, id, "reserve", map[string]any{"owner": "another", "reservation_id": reservation, "lease_seconds": lease})
				if id == recorded {
					w.ask(t, http.MethodPost, id, "record", map[string]any{"reservation_id": reservation, "response": map[string]any{"status": 201, "body": "from another"}})
				}
			}
			w.effects["happened"] = 1
			for _, id := range []string{happened, undone} {
				eventually(t, id+" is not in doubt", func() bool {
					_, out := w.ask(t, http.MethodGet, id, "replay", nil)
					return out["outcome"] == "in_doubt"
				})
			}
			run(t, command, "CONDUIT_URL="+w.engine.URL, "IDEMSTORE_URL="+w.front.URL, "UPSTREAM_URL="+w.upstream.URL)
			want := map[string]string{first: "did first", recorded: "from another", happened: "did happened", undone: "did undone", large: "did large", last: "did last"}
			eventually(t, "not all is completed", func() bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				return len(w.reports) >= len(want)
			})
			w.mu.Lock()
			defer w.mu.Unlock()
			for id, body := range want {
				if got := w.reports[id]; strings.Count(got, "\n") != 1 || !strings.HasPrefix(got, "complete ") || !strings.Contains(got, body) {
					t.Errorf("want complete with %q, got %.300s", body, got)
				}
			}
			if len(w.reports[held]) > 0 {
				t.Errorf("another holds it, and it is reported: %s", w.reports[held])
			}
			for name, n := range map[string]int{"first": 1, "recorded": 0, "happened": 1, "undone": 1, "held": 0, "large": 1, "last": 1} {
				if w.effects[name] != n {
					t.Errorf("%s: %d effects, want %d", name, w.effects[name], n)
				}
			}
			if _, out := w.ask(t, http.MethodGet, large, "replay", nil); !strings.Contains(fmt.Sprint(out["response"]), "body_size:5009") {
				t.Errorf("the large one is kept as %v", out)
			}
		})
	}
}

// run has the worker run until the test ends.
func run(t *testing.T, command []string, environ ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Env = append(os.Environ(), environ...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the worker wrote:\n%s", log.Bytes())
		}
	})
}

// eventually polls until something is so. It has the patience for a worker that starts a process for each step, on a busy machine.
func eventually(t *testing.T, otherwise string, so func() bool) {
	t.Helper()
	tick, until := time.NewTicker(20*time.Millisecond), time.After(3*time.Minute)
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-until:
			t.Fatal(otherwise)
		}
	}
}

// What a task asks for is sent as it is. What cannot be sent, or written, fails by itself, and takes nothing along.
func TestWorkersOddTasks(t *testing.T) {
	t.Parallel()
	goWorker := filepath.Join(t.TempDir(), "worker")
	build(t, goWorker, "go", ".")
	odd := "é\u2028 'one' \"two\" $HOME `three` \\n\n\n"
	for name, command := range workers(goWorker) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			url := w.upstream.URL + "/bad"
			bad := make(map[string]string)
			fails := func(why, topic string, variables map[string]any) { bad[w.give(topic, variables)] = why }
			first := w.add("first")
			fails("no variables", "http.call", nil)
			exact := w.give("http.call", w.asks("odd{1,2}[3-4]", odd))
			fails("no url", "http.call", map[string]any{"method": "POST", "body": "x"})
			fails("an object for a url", "http.call", map[string]any{"method": "POST", "url": map[string]any{"a": 1}, "body": "x"})
			object := w.give("http.call", w.asks("object", map[string]any{"amount": 100.1, "note": []any{"é", nil, true}}))
			fails("no method", "http.call", map[string]any{"url": url, "body": "x"})
			fails("two methods", "http.call", map[string]any{"method": "POST PUT", "url": url, "body": "x"})
			w.unsure = w.add("unsure")
			unsure := w.unsure
			empty := w.give("http.call", w.asks("empty", nil))
			nowhere := w.give("http.call", map[string]any{"method": "POST", "url": "http://nowhere.invalid/", "body": "x"})
			bad[nowhere] = "no such host"
			last := w.add("last")
			fails("keyed, no url", "http.call.keyed", map[string]any{"method": "POST", "body": "x"})
			fails("get, another scheme", "http.get", map[string]any{"url": "ftp://127.0.0.1/x"})
			missing := filepath.Join(t.TempDir(), "missing", "file.csv")
			fails("nowhere to write to", "csv.write", map[string]any{"path": missing, "rows": [][]string{{"a"}}})
			fails("no rows", "csv.write", map[string]any{"path": filepath.Join(t.TempDir(), "file.csv")})
			fails("no path", "csv.write", map[string]any{"rows": [][]string{{"a"}}})
			fails("nothing to read", "csv.read", map[string]any{"path": missing})
			fails("no path to read", "csv.read", nil)
			good := map[string]string{first: "did first", exact: "did odd", object: "did object", unsure: "did unsure", empty: "did empty", last: "did last"}
			run(t, command, "CONDUIT_URL="+w.engine.URL, "IDEMSTORE_URL="+w.front.URL, "UPSTREAM_URL="+w.upstream.URL)
			eventually(t, "not all is reported", func() bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				return len(w.reports) >= len(good)+len(bad)
			})
			w.mu.Lock()
			defer w.mu.Unlock()
			for id, want := range good {
				if got := w.reports[id]; !strings.HasPrefix(got, "complete ") || !strings.Contains(got, want) {
					t.Errorf("want complete with %q, got %.300s", want, got)
				}
			}
			for id, why := range bad {
				if got := w.reports[id]; !strings.HasPrefix(got, "failure ") {
					t.Errorf("%s: want failure, got %.300s", why, got)
				}
			}
			for name, n := range w.effects {
				if n != 1 {
					t.Errorf("%s: %d effects", name, n)
				}
			}
			want := map[string]string{"first": `{"amount": 1}`, "odd{1,2}[3-4]": odd, "object": `{"amount":100.1,"note":["é",null,true]}`, "unsure": `{"amount": 1}`, "empty": "", "last": `{"amount": 1}`}
			if !reflect.DeepEqual(w.bodies, want) {
				t.Errorf("the upstream got %q, want %q", w.bodies, want)
			}
			if _, out := w.ask(t, http.MethodGet, nowhere, "replay", nil); out["outcome"] != "not_found" {
				t.Errorf("nothing was sent, and it is %v", out["outcome"])
			}
		})
	}
}
