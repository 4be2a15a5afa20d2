package main

import (
	"syscall"
	"testing"
)

// A crash test that is itself killed takes its worker along; only what the worker has started stays.
func TestCrashtestKilled(t *testing.T) {
	t.Parallel()
	args, pids := crashtestArgs(t, "right")
	args[6] = "slow" // long enough to be caught in
	cmd := command(t.Context(), []string{"TMPDIR=" + t.TempDir()}, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	worker, child := running(t, pids)
	t.Cleanup(func() { _ = syscall.Kill(child, syscall.SIGKILL) })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	eventually(t, "the worker is gone", func() bool { return dead(worker) })
}
