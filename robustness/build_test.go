package robustness

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// program is an idemstore to be run as a replica.
type program struct {
	path  string
	clock string // how wrong its clock is; only one that was built with wrongClock heeds it
}

// The service has no switches for tests of this kind. What is wrong in a program on purpose is put into its source by the
// compiler's -overlay while it is built, so that nothing of it is in any other build.

// overlay are the files that stand in for those of the repository, by their path in it.
type overlay map[string]string

// build builds the program, with those files in place of others.
func build(t *testing.T, name string, o overlay) string {
	t.Helper()
	dir := t.TempDir()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	replace := map[string]string{}
	for path, text := range o {
		file := filepath.Join(dir, strings.ReplaceAll(path, "/", "_"))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(root, path)] = file
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), list, 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, name)
	cmd := exec.CommandContext(t.Context(), "go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", out, "./cmd/idemstore")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, text)
	}
	return out
}

// manyLanes has a further lane of group commit opened for each command that waits: so few callers would never see two.
func manyLanes(o overlay) error {
	const path, often = "internal/store/queue.go", "	deep = 32\n"
	if _, ok := o[path]; ok {
		return fmt.Errorf("%s is replaced already", path)
	}
	text, err := os.ReadFile(filepath.Join("..", path))
	if err == nil && strings.Count(string(text), often) != 1 {
		err = fmt.Errorf("%s does not say once when a lane is opened", path)
	}
	o[path] = strings.Replace(string(text), often, "	deep = 1\n", 1)
	return err
}

// clocked are the packages of which every look at the clock is by a wrong one.
var clocked = []string{"cmd/idemstore", "internal/store", "internal/server", "internal/metrics"}

// centre is the judgement's own package, which looks at no clock, unless it was broken so that it does.
const centre = "internal/idem"

var looksAtClock = regexp.MustCompile(`\btime\.(Now|Since|Until)\b`)

// wrongClock sets the clock of a program wrong by IDEMSTORE_TEST_CLOCK: every look that its own source takes. What measures
// time by the difference of two looks is as right as ever.
func wrongClock(o overlay) error {
	for _, dir := range append(slices.Clone(clocked), centre) {
		files, err := filepath.Glob(filepath.Join("..", dir, "*.go"))
		if err != nil {
			return err
		}
		name, found := "", false
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") || strings.HasSuffix(file, "_other.go") {
				continue
			}
			path := filepath.Join(dir, filepath.Base(file))
			text, ok := o[path]
			if !ok {
				bytes, err := os.ReadFile(file)
				if err != nil {
					return err
				}
				text = string(bytes)
			}
			if name == "" {
				name = regexp.MustCompile(`(?m)^package (\w+)`).FindStringSubmatch(text)[1]
			}
			if !looksAtClock.MatchString(text) {
				continue
			}
			o[path], found = looksAtClock.ReplaceAllString(text, "wrong$1")+"\nvar _ = time.Second\n", true
		}
		if !found && dir != centre {
			return fmt.Errorf("nothing in %s looks at the clock any more: take it off the list", dir)
		}
		if !found {
			continue
		}
		o[filepath.Join(dir, "wrong_clock.go")] = fmt.Sprintf(wrongClockSource, name)
	}
	return nil
}

const wrongClockSource = `package %s

import (
	"os"
	"time"
)

var wrongBy, _ = time.ParseDuration(os.Getenv("IDEMSTORE_TEST_CLOCK"))

// Without the monotonic part, as that would not be wrong by as much.
func wrongNow() time.Time                    { return time.Now().Round(0).Add(wrongBy) }
func wrongSince(t time.Time) time.Duration   { return wrongNow().Sub(t) }
func wrongUntil(t time.Time) time.Duration   { return t.Sub(wrongNow()) }

var _, _, _ = wrongNow, wrongSince, wrongUntil
`
