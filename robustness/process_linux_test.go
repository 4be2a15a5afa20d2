package robustness

import "syscall"

// attributes has a process end with the one that started it.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
