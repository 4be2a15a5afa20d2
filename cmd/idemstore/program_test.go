package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/idemstore/idemstore/internal/pgtest"
)

// TestMain lets the test binary be the program itself, so that tests can start it, kill it and start it again, or a worker.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == beWorker {
		runWorker(os.Args[2], os.Args[3])
		return
	}
	if os.Getenv("IDEMSTORE_TEST_RUN_MAIN") == "1" {
		main()
		return
	}
	pgtest.Main(m)
}

const patience = 30 * time.Second

// program is a running idemstore.
type program struct {
	t      *testing.T
	cmd    *exec.Cmd
	url    string
	exited chan error

	mu  sync.Mutex
	log bytes.Buffer
}

// command is the program with arguments and nothing of the environment but what is given.
func command(ctx context.Context, env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append([]string{"IDEMSTORE_TEST_RUN_MAIN=1", "HOME=" + os.TempDir(), "PATH=" + os.Getenv("PATH")}, env...)
	return cmd
}

// output runs a subcommand to its end.
func output(t *testing.T, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := command(ctx, env, args...)
	cmd.Dir = t.TempDir()
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// start runs serve on free ports until the test ends, and waits until it answers.
func start(t *testing.T, env []string, args ...string) *program {
	t.Helper()
	p := &program{t: t, exited: make(chan error, 1)}
	args = append([]string{"serve", "--listen", "127.0.0.1:0", "--metrics-listen", ""}, args...)
	p.cmd = command(context.Background(), env, args...)
	p.cmd.Dir = t.TempDir()
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stderr = p.cmd.Stdout
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	listens := make(chan string, 1)
	go func() { p.exited <- p.follow(out, listens) }()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("the program's log:\n%s", p.logged())
		}
	})
	select {
	case address := <-listens:
		p.url = "http://" + address
	case err := <-p.exited:
		p.exited <- err
		t.Fatalf("serve ended: %v\n%s", err, p.logged())
	case <-time.After(patience):
		t.Fatalf("serve says nothing:\n%s", p.logged())
	}
	return p
}

// follow keeps the log and finds the address in it.
func (p *program) follow(out io.Reader, listens chan<- string) error {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		p.mu.Lock()
		p.log.Write(append(lines.Bytes(), '\n'))
		p.mu.Unlock()
		if address := memberOf(lines.Text(), "idemstore serves", "listen"); address != "" {
			listens <- address
		}
	}
	return p.cmd.Wait()
}

func (p *program) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

func (p *program) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// kill is SIGKILL, and waits for the end.
func (p *program) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL) // it may have ended
	err := <-p.exited
	p.exited <- err
}

// ended waits for the program's end by itself and returns its exit status.
func (p *program) ended() int {
	p.t.Helper()
	select {
	case err := <-p.exited:
		p.exited <- err
	case <-time.After(patience):
		p.t.Fatalf("it does not end:\n%s", p.logged())
	}
	return p.cmd.ProcessState.ExitCode()
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !so(); {
		if time.Now().After(deadline) {
			t.Fatalf("in %s it did not come to this: %s", patience, what)
		}
	}
}

// answer is what the API said.
type answer struct {
	status int
	header http.Header
	body   map[string]any
	err    error
}

func send(method, url, token, body string) answer {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer res.Body.Close()
	a := answer{status: res.StatusCode, header: res.Header}
	a.err = json.NewDecoder(res.Body).Decode(&a.body)
	return a
}

func (a answer) want(t *testing.T, status int, outcome string) {
	t.Helper()
	if a.err != nil || a.status != status || a.body["outcome"] != outcome {
		t.Fatalf("got %d %v (%v), want %d %s", a.status, a.body, a.err, status, outcome)
	}
}

// task is the URL of attempt 0 of a task.
func (p *program) task(id string) string { return p.url + "/v1/tasks/" + id + "/attempts/0" }

// pair reserves a key and records a response to it, and says whether both were acknowledged.
func (p *program) pair(id string) bool {
	reservation := uuid.NewString()
	reserved := send("POST", p.task(id)+"/reserve", "", fmt.Sprintf(`{"owner":"w","reservation_id":%q}`, reservation))
	if reserved.status != http.StatusCreated {
		return false
	}
	body := fmt.Sprintf(`{"reservation_id":%q,"response":{"status":201,"body":%q}}`, reservation, "of "+id)
	return send("POST", p.task(id)+"/record", "", body).status == http.StatusCreated
}

// engines are the databases that a program is tested on: a file, and a Postgres that was migrated.
var engines = map[string]func(t *testing.T) string{
	"SQLite":   func(t *testing.T) string { return "sqlite:" + t.TempDir() + "/idemstore.db" },
	"Postgres": func(t *testing.T) string { return pgtest.New(t) },
}

func onEveryEngine(t *testing.T, test func(t *testing.T, databaseURL string)) {
	t.Helper()
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}
