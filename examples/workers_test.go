// Package examples_test has the workers in this directory killed at every point of their lives.
package examples_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// points are those at which a worker is killed, by handler. Those of Go that others have not are tested beside it.
var points = map[string][]string{
	"http.call": {
		"before-reserve", "after-reserve", "before-effect", "after-effect", "before-record", "after-record", "before-complete",
		"during-renewed-lease",
	},
	"http.call.keyed": {"before-effect", "after-effect", "before-complete"},
	"http.get":        {"before-effect", "after-effect", "before-complete"},
	"csv.read":        {"before-complete"},
	"csv.write":       {"before-complete"},
}

func TestMain(m *testing.M) {
	for _, program := range []string{"python3", "node", "bash", "curl", "jq"} {
		if _, err := exec.LookPath(program); err != nil {
			fmt.Fprintf(os.Stderr, "the workers need %s: %v; scripts/install-test-deps.sh installs it\n", program, err)
			os.Exit(1) //nolint:forbidigo // a TestMain is a main
		}
	}
	m.Run()
}

func TestWorkersPassTheCrashTest(t *testing.T) {
	t.Parallel()
	idemstore := filepath.Join(t.TempDir(), "idemstore")
	build(t, idemstore, "..", "./cmd/idemstore")
	worker := filepath.Join(t.TempDir(), "worker")
	build(t, worker, "go", ".")
	for name, command := range workers(worker) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			crashtest(t, idemstore, command)
		})
	}
}

// workers are the commands that start them, by language.
func workers(built string) map[string][]string {
	return map[string][]string{
		"python": {"python3", "-B", "python/worker.py"},
		"node":   {"node", "node/worker.mjs"},
		"bash":   {"bash", "bash/worker.sh"},
		"go":     {built},
	}
}

func build(t *testing.T, to, dir, what string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", to, what)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build %s in %s: %v\n%s", what, dir, err, out)
	}
}

// result is what the crash test tells of one task.
type result struct {
	Handler  string `json:"handler"`
	Scenario string `json:"scenario"`
	Point    string `json:"kill_point"`
	Killed   bool   `json:"killed"`
	Verdict  string `json:"verdict"`
	Detail   string `json:"detail"`
}

func crashtest(t *testing.T, idemstore string, command []string) {
	t.Helper()
	logs := t.TempDir()
	// Leases and patience are for a machine that has other things to do too.
	args := []string{"crashtest", "--output", "json", "--parallel", "4", "--max-lease", "5s", "--settle", "15s", "--patience", "90s", "--start-timeout", "60s", "--log-dir", logs}
	for handler := range points {
		args = append(args, "--handler", handler)
	}
	cmd := exec.CommandContext(t.Context(), idemstore, append(append(args, "--"), command...)...)
	var out, progress bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &progress
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // so that it ends its worker
	failed := cmd.Run()
	var report struct {
		Tasks []result `json:"tasks"`
	}
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatalf("%v; %v\n%s%s", failed, err, out.Bytes(), progress.Bytes())
	}
	killed := make(map[string]bool)
	for _, r := range report.Tasks {
		if r.Killed || r.Point == "none" {
			killed[r.Handler+" "+r.Point] = true
		}
		if r.Verdict != "pass" {
			t.Errorf("%s, upstream %s, killed %s: %s: %s\n%s", r.Handler, r.Scenario, r.Point, r.Verdict, r.Detail, logOf(t, logs, r))
		}
	}
	for handler, at := range points {
		for _, p := range append([]string{"none"}, at...) {
			if !killed[handler+" "+p] {
				t.Errorf("%s: the worker was never killed %s", handler, p)
			}
		}
	}
	if failed != nil && !t.Failed() {
		t.Errorf("%v\n%s", failed, progress.Bytes())
	}
}

func logOf(t *testing.T, dir string, r result) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, strings.Join([]string{r.Handler, r.Scenario, r.Point}, "-")+".log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
