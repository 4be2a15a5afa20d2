package crashtest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// processAttributes: a group of its own, so that all of it can be killed, and dead with the crash test at the latest.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// killTree kills a process that runs, its group, and its descendants, also those that have left the group.
func killTree(pid int) {
	left := descendants(pid) // while they are known to be
	killGroup(pid)
	for _, p := range left {
		_ = syscall.Kill(p, syscall.SIGKILL) // an error: it is gone
	}
}

// killMarked kills every process that has the variable in its environment, and returns when they are dead: those that
// have left the group, and whose parent is gone.
func killMarked(variable string) {
	const patience = 5 * time.Second                                         // a process that does not die by then waits for a device
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); { // each look takes some milliseconds
		left := 0
		for _, p := range processes() {
			if p.has(variable) {
				left++
				_ = syscall.Kill(p.pid, syscall.SIGKILL)
			}
		}
		if left == 0 {
			return
		}
	}
}

type process struct{ pid, parent int }

// processes are all that run, but for the dead that wait to be collected.
func processes() (all []process) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		var p process
		var state string
		stat, _ := os.ReadFile(file) // none: it is gone
		name := bytes.LastIndexByte(stat, ')')
		if name < 0 {
			continue
		}
		if n, _ := fmt.Sscan(string(stat[name+1:]), &state, &p.parent); n < 2 || state == "Z" || state == "X" {
			continue
		}
		p.pid, _ = strconv.Atoi(filepath.Base(filepath.Dir(file))) // it is a number
		all = append(all, p)
	}
	return all
}

// has says whether the process has the variable in its environment. That of another user is not to be read.
func (p process) has(variable string) bool {
	environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid))
	return bytes.Contains(append([]byte{0}, environ...), []byte("\x00"+variable+"\x00"))
}

func descendants(pid int) (found []int) {
	children := make(map[int][]int)
	for _, p := range processes() {
		children[p.parent] = append(children[p.parent], p.pid)
	}
	next := children[pid]
	for len(next) > 0 {
		found = append(found, next[0])
		next = append(next[1:], children[next[0]]...)
	}
	return found
}
