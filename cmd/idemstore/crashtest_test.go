//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/idemstore/idemstore/internal/crashtest"
	"github.com/idemstore/idemstore/internal/server"
)

// beWorker is the argument that makes the test binary a worker of handler http.call.keyed. What follows is whether it
// sends a key, and a file for its process ID and that of a child that it starts.
const beWorker = "be-a-worker"

func runWorker(kind, pids string) {
	child := exec.Command("sleep", "3600") //nolint:noctx // to be left
	if err := child.Start(); err != nil {
		panic(err)
	}
	if err := os.WriteFile(pids, fmt.Appendf(nil, "%d %d", os.Getpid(), child.Process.Pid), 0o600); err != nil {
		panic(err)
	}
	engine := os.Getenv("CONDUIT_URL") + "/api/v1/external-tasks/"
	for {
		var tasks []struct {
			ID        string
			Variables []struct{ Name, Value string }
		}
		_ = json.Unmarshal(post(engine+"fetch-and-lock", "", `{"worker_id":"w","max_jobs":1}`), &tasks)
		for _, task := range tasks {
			key := ""
			if kind == "right" {
				key = task.ID
			}
			for _, v := range task.Variables {
				if v.Name == "url" {
					post(v.Value, key, "{}")
				}
			}
			post(engine+task.ID+"/complete", "", `{"worker_id":"w"}`)
		}
	}
}

func post(url, key, body string) []byte {
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body)) //nolint:noctx // a kill ends it
	if err != nil {
		panic(err)
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	return text
}

// crashtestArgs are the arguments of a short crash test of a worker, before which flags may stand.
func crashtestArgs(t *testing.T, kind string, flags ...string) (args []string, pids string) {
	t.Helper()
	pids = filepath.Join(t.TempDir(), "pids")
	args = append([]string{"crashtest", "--handler", "http.call.keyed", "--point", "none,after-effect", "--scenario", "plain"}, flags...)
	return append(args, "--", os.Args[0], beWorker, kind, pids), pids
}

func TestCrashtestExitStatus(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind           string
		code           int
		stdout, stderr string
	}{
		{"right", exitOK, "2 tasks in", "2/2 http.call.keyed plain"},
		{"wrong", exitFailed, "DUPLICATE: the effect happened 2 times", "1 of 2 tasks went wrong"},
	} {
		args, _ := crashtestArgs(t, c.kind)
		stdout, stderr, code := output(t, nil, args...)
		if code != c.code || !strings.Contains(stdout, c.stdout) || !strings.Contains(stderr, c.stderr) {
			t.Errorf("%s: exit %d\nstdout: %s\nstderr: %s", c.kind, code, stdout, stderr)
		}
	}
	for _, c := range []struct {
		args   []string
		stderr string
	}{
		{[]string{"--", "no-such-command"}, "idemstore: the worker cannot be started: there is no command \"no-such-command\" in PATH\n"},
		{[]string{"--", "false"}, "ended before it called fetch-and-lock at CONDUIT_URL: exit status 1"},
		{[]string{}, "command"},
		{[]string{"--point", "lunch", "--", "true"}, "no kill point"},
		{[]string{"--handler", "", "--", "true"}, "no handler is named"},
		{[]string{"--store", "", "--", "true"}, "--store must be a URL such as http://127.0.0.1:8080, not \"\""},
		{[]string{"--store", "127.0.0.1:1", "--", "true"}, "--store must be a URL such as http://127.0.0.1:8080, not \"127.0.0.1:1\""},
		{[]string{"--output", "xml", "--", "true"}, "output"},
		{[]string{"--max-lease", "1500ms", "--", "true"}, "--max-lease must be whole seconds"},
		{[]string{"--patience", "0s", "--", "true"}, "--patience must be above 0"},
		{[]string{"--parallel", "0", "--", "true"}, "--parallel must be at least 1"},
		{[]string{"--variables-file", "nothing.json", "--", "true"}, "nothing.json"},
		{[]string{"--store", "http://127.0.0.1:1", "--", "true"}, "the store at http://127.0.0.1:1 cannot be reached"},
	} {
		stdout, stderr, code := output(t, nil, append([]string{"crashtest"}, c.args...)...)
		if code != exitUsage || !strings.Contains(stderr, c.stderr) || stdout != "" {
			t.Errorf("%q: exit %d\nstdout: %s\nstderr: %s", c.args, code, stdout, stderr)
		}
	}
}

func TestCrashtestOutputs(t *testing.T) {
	t.Parallel()
	args, _ := crashtestArgs(t, "wrong", "--output", "json")
	stdout, _, _ := output(t, nil, args...)
	var report struct {
		Verdicts map[string]int
		Tasks    []struct{ Verdict string }
	}
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || len(report.Tasks) != 2 || report.Verdicts["duplicate"] != 1 || report.Tasks[0].Verdict != "pass" {
		t.Errorf("%v\n%s", err, stdout)
	}
	args, _ = crashtestArgs(t, "wrong", "--output", "junit")
	stdout, _, _ = output(t, nil, args...)
	var suite struct {
		XMLName  xml.Name `xml:"testsuite"`
		Tests    int      `xml:"tests,attr"`
		Failures int      `xml:"failures,attr"`
	}
	if err := xml.Unmarshal([]byte(stdout), &suite); err != nil || suite.Tests != 2 || suite.Failures != 1 {
		t.Errorf("%v\n%s", err, stdout)
	}
}

// A store that runs already may stand in for the test's own, and the worker gets its token.
func TestCrashtestOnARunningStore(t *testing.T) {
	t.Parallel()
	token, entry, err := server.NewToken("w", []server.Role{server.RoleWorker})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte(entry+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, []string{"IDEMSTORE_DATABASE_URL=sqlite::memory:", "IDEMSTORE_TOKENS_FILE=" + file})
	args, _ := crashtestArgs(t, "right", "--store", p.url)
	if _, stderr, code := output(t, []string{"IDEMSTORE_TOKEN=" + token}, args...); code != exitOK {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if _, stderr, code := output(t, []string{"IDEMSTORE_TOKEN=wrong"}, args...); code != exitUsage || !strings.Contains(stderr, "does not know the token") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

// Variables of one's own reach the worker with their types.
func TestCrashtestVariables(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "variables.json")
	if err := os.WriteFile(file, []byte(`{"to":"x","n":3,"list":[1]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	c := crashtestCmd{VariablesFile: file, Variable: map[string]string{"to": "a;b,c"}}
	got, err := c.variables()
	if err != nil || fmt.Sprint(got) != "map[list:[1] n:3 to:a;b,c]" {
		t.Errorf("%v (%v)", got, err)
	}
	for _, text := range []string{`[]`, `null`, `{`} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := c.variables(); err == nil || !strings.Contains(err.Error(), "must hold a JSON object") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Ctrl-C ends the test within seconds, and takes along the worker, what the worker has started, and all files.
func TestCrashtestInterrupted(t *testing.T) {
	t.Parallel()
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			args, pids := crashtestArgs(t, "right")
			args[6] = "slow" // long enough to be caught in
			tmp := t.TempDir()
			cmd := command(t.Context(), []string{"TMPDIR=" + tmp}, args...)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			worker, child := running(t, pids)
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			var exit *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitUsage || !strings.Contains(stderr.String(), "interrupted") {
				t.Errorf("%v: %s", err, stderr.String())
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("it took %s", took)
			}
			for _, pid := range []int{worker, child} {
				eventually(t, "nothing is left", func() bool { return dead(pid) })
			}
			if left, _ := os.ReadDir(tmp); len(left) > 0 {
				t.Errorf("%s is left", left)
			}
		})
	}
}

// A test that is interrupted before it has begun says so, and nothing of what it was about to do.
func TestCrashtestInterruptedAtOnce(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	elsewhere := "http://127.0.0.1:1"
	for _, store := range []*string{nil, &elsewhere} {
		c := crashtestCmd{Command: []string{"true"}, Handler: []string{crashtest.HTTPCall}, Store: store}
		if err := c.Run(&env{ctx: ctx, stdout: io.Discard, stderr: io.Discard}); !errors.As(err, new(usageError)) || err.Error() != crashtest.ErrInterrupted.Error() {
			t.Errorf("%v", err)
		}
	}
}

// running waits until the worker runs.
func running(t *testing.T, pids string) (worker, child int) {
	t.Helper()
	eventually(t, "the worker runs", func() bool {
		text, _ := os.ReadFile(pids)
		n, _ := fmt.Sscan(string(text), &worker, &child)
		return n == 2
	})
	return worker, child
}

// dead says whether a process is gone, or only waits to be collected by init.
func dead(pid int) bool {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || strings.Contains(string(stat), ") Z ")
}
