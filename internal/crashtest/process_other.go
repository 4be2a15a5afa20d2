//go:build unix && !linux

package crashtest

import "syscall"

// processAttributes: a group of its own, so that all of it can be killed. Only Linux ends it if the crash test is killed itself.
func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// killTree kills a process that runs, and its group. Only Linux tells which processes have left that.
func killTree(pid int) { killGroup(pid) }

func killMarked(string) {}
