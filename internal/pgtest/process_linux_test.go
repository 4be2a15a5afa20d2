package pgtest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// A test process that is killed takes its server along, and the next one removes its directory.
func TestKilledProcessLeavesNothing(t *testing.T) {
	t.Parallel()
	cmd := rerun(t, "TestHelperUses", "PGTEST_HELPER=wait", "IDEMSTORE_TEST_POSTGRES=local")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var dir string
	var pid int
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if n, _ := fmt.Sscanf(lines.Text(), "server %d %s", &pid, &dir); n == 2 {
			break
		}
	}
	if dir == "" {
		t.Fatal("the helper did not start a server")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, stdout)
	_ = cmd.Wait()

	deadline := time.Now().Add(20 * time.Second)
	for !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		if time.Now().After(deadline) {
			t.Fatalf("the server %d outlives its test", pid)
		}
		<-time.After(10 * time.Millisecond)
	}
	removeStale(filepath.Dir(dir))
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", dir, err)
	}
}
