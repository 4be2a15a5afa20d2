package crashtest

import "syscall"

// processAttributes: a group of its own, so that all of it can be killed, and dead with the crash test at the latest.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
