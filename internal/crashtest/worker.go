package crashtest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// worker is a running process of the worker, and all that it started: it leads a process group, and those that leave it
// have its mark.
type worker struct {
	cmd    *exec.Cmd
	mark   string        // a variable of their environment that nobody else has
	exited chan struct{} // closed when it is gone
	status string        // then: how it ended
}

const endedWell = "exit status 0"

// startWorker runs the command until it ends or is killed. Its output goes to the log.
func startWorker(command, environ []string, mark string, log *os.File) (*worker, error) {
	w := &worker{cmd: exec.Command(command[0], command[1:]...), mark: mark, exited: make(chan struct{})} //nolint:noctx // kill ends it, with its group
	w.cmd.Env, w.cmd.Stdout, w.cmd.Stderr = environ, log, log
	w.cmd.SysProcAttr = processAttributes()
	started := make(chan error)
	go func() {
		// A parent's death is the death of the thread that started the child, so that thread stays until the child is gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := w.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		if err := w.cmd.Wait(); err != nil {
			w.status = err.Error()
		} else {
			w.status = endedWell
		}
		killGroup(w.cmd.Process.Pid) // what it started and left
		killMarked(w.mark)
		close(w.exited)
	}()
	if err := <-started; err != nil {
		return nil, notStarted(command[0], err)
	}
	return w, nil
}

// kill returns when the worker is dead.
func (w *worker) kill() {
	select {
	case <-w.exited:
	default:
		killTree(w.cmd.Process.Pid)
		<-w.exited
	}
}

// notStarted says why a command does not start, for the person who wrote it.
func notStarted(name string, err error) error {
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("the worker cannot be started: there is no command %q in PATH", name)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("the worker cannot be started: %s may not be executed", name)
	case errors.Is(err, fs.ErrNotExist):
		if _, statErr := os.Stat(name); statErr == nil {
			return fmt.Errorf("the worker cannot be started: the interpreter that the first line of %s names is not here", name)
		}
		return fmt.Errorf("the worker cannot be started: there is no file %s", name)
	default:
		return fmt.Errorf("the worker cannot be started: %w", err)
	}
}

// lastLines are the end of a log.
func lastLines(file string, n int) string {
	text, err := os.ReadFile(file)
	text = bytes.TrimSpace(text)
	if err != nil || len(text) == 0 {
		return " It wrote nothing."
	}
	lines := strings.Split(string(text), "\n")
	lines = lines[max(0, len(lines)-n):]
	return " Its last lines:\n  " + strings.Join(lines, "\n  ")
}
