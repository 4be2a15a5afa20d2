package crashtest_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/idemstore/idemstore/internal/crashtest"
)

// A worker that has left its process group is killed like any other: what it has in memory does not save it, and nothing
// of it is left.
func TestWorkersOutsideTheGroup(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]crashtest.Verdict{good: crashtest.Pass, remembers: crashtest.Duplicate} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			pids := filepath.Join(t.TempDir(), "pids")
			opts := options(t, departs, kind, pids)
			opts.Scenarios, opts.Points = []crashtest.Scenario{crashtest.Plain}, []crashtest.Point{crashtest.AfterEffect}
			for _, r := range run(t, opts).Results {
				if r.Verdict != want || !r.Killed {
					t.Errorf("%s: %s (%s), want %s", r.Case, r.Verdict, r.Detail, want)
				}
			}
			text, err := os.ReadFile(pids)
			started := strings.Fields(string(text))
			if err != nil || len(started) < 2 {
				t.Fatalf("the worker started %v (%v)", started, err)
			}
			for _, word := range started {
				pid, err := strconv.Atoi(word)
				if err != nil {
					t.Fatal(err)
				}
				gone(t, pid)
			}
		})
	}
}
