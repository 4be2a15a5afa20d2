//go:build unix && !linux

package crashtest

import "syscall"

// processAttributes: a group of its own, so that all of it can be killed. Only Linux ends it if the crash test is killed itself.
func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
