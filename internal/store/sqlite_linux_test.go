package store

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A disk that is really full: a small file system of the test's own, where it may mount one. Elsewhere TestSQLiteIsFull has to do.
func TestSQLiteDiskIsFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Logf("cannot mount: %v", err)
		return
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("a closed store holds on to its files: %v", err)
			_ = syscall.Unmount(dir, syscall.MNT_DETACH)
		}
	})
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	testFull(t, openLite(t, filepath.Join(dir, "x.db")), func() {
		if err := errors.Join(os.Remove(ballast), syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=64m")); err != nil {
			t.Fatal(err)
		}
	})
}
