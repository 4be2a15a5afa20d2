package crashtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/idemstore/idemstore/internal/crashtest"
)

// Whether a run ends or is broken off: neither the worker nor what it has started is left.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	for _, interrupted := range []bool{false, true} {
		t.Run(fmt.Sprint("interrupted ", interrupted), func(t *testing.T) {
			t.Parallel()
			pids := filepath.Join(t.TempDir(), "pids")
			opts := options(t, leaves, pids)
			opts.Scenarios, opts.Points = []crashtest.Scenario{crashtest.Plain}, []crashtest.Point{crashtest.NoKill}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if interrupted {
				opts.Scenarios = []crashtest.Scenario{crashtest.Slow} // long enough to be caught in
				go func() {
					for len(readPIDs(pids)) < 2 && ctx.Err() == nil {
						<-time.After(time.Millisecond)
					}
					cancel()
				}()
			}
			_, err := crashtest.Run(ctx, opts)
			if (err != nil) != interrupted {
				t.Fatal(err)
			}
			if interrupted && !strings.Contains(err.Error(), "interrupted") {
				t.Error(err)
			}
			started := readPIDs(pids)
			if len(started) != 2 {
				t.Fatalf("the worker started %v", started)
			}
			for _, pid := range started {
				gone(t, pid)
			}
		})
	}
}

func readPIDs(file string) []int {
	text, _ := os.ReadFile(file)
	var a, b int
	if n, _ := fmt.Sscan(string(text), &a, &b); n != 2 {
		return nil
	}
	return []int{a, b}
}

// gone waits until there is no such process. One that is dead and only not yet collected by init counts as gone.
func gone(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(soon); ; <-time.After(time.Millisecond) {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || strings.Contains(string(stat), ") Z ") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d is left", pid)
		}
	}
}

// What a worker leaves behind where temporary files are goes with the case.
func TestTemporaryFilesAreTheCases(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	opts := options(t, litters)
	opts.Scenarios, opts.Points = []crashtest.Scenario{crashtest.Plain}, []crashtest.Point{crashtest.AfterEffect}
	run(t, opts)
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("%s is left (%v)", left, err)
	}
}
