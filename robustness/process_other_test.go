//go:build !linux

package robustness

import "syscall"

// attributes: only Linux has a process end with the one that started it.
func attributes() *syscall.SysProcAttr { return nil }
