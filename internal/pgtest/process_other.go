//go:build !linux

package pgtest

import (
	"os"
	"syscall"
)

// memoryDir: only Linux has a directory in memory that everybody may write to.
func memoryDir() string { return "" }

// dieWithParent: only Linux can do it. Elsewhere a test that is killed leaves a server running.
func dieWithParent(*syscall.SysProcAttr) {}

// processAttributes: as root, initdb says itself why it will not run.
func processAttributes() (uid, gid int, attr *syscall.SysProcAttr, err error) {
	return os.Geteuid(), os.Getegid(), new(syscall.SysProcAttr), nil
}
