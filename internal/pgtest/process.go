package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// A process is a program that was started in a directory of its own, with a log. It ends with the process that started it.
type process struct {
	dir    string // is removed at the end
	os     *os.Process
	exited chan struct{} // closed when the process is gone
}

// prepare makes a command run as a user that Postgres accepts, in a directory that this user may enter, without the PGxxx variables around us.
func (p *process) prepare(cmd *exec.Cmd) error {
	uid, gid, attr, err := processAttributes()
	if err != nil {
		return err
	}
	cmd.Dir, cmd.SysProcAttr = p.dir, attr
	cmd.Env = []string{"LC_ALL=C", "PATH=" + os.Getenv("PATH")}
	return os.Chown(p.dir, uid, gid)
}

// launch starts a command that goes on by itself.
func (p *process) launch(cmd *exec.Cmd) error {
	log, err := os.OpenFile(filepath.Join(p.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) // one log for all its lives
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := p.prepare(cmd); err != nil {
		return err
	}
	dieWithParent(cmd.SysProcAttr)
	started, exited := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // the parent is this thread, so it has to stay
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
			close(exited)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	p.os, p.exited = cmd.Process, exited
	return nil
}

// stop ends the process by a signal.
func (p *process) stop(signal syscall.Signal) error {
	if p.os == nil {
		return nil
	}
	if err := p.os.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.exited:
	case <-time.After(startPatience):
		return fmt.Errorf("the server does not stop\n%s", p.tail())
	}
	p.os = nil
	return nil
}

// crash ends the process at once: no checkpoint, no goodbye.
func (p *process) crash() error { return p.stop(syscall.SIGQUIT) }

// destroy leaves nothing behind.
func (p *process) destroy() error { return errors.Join(p.crash(), os.RemoveAll(p.dir)) }

// tail is the end of the log.
func (p *process) tail() string {
	text, err := os.ReadFile(filepath.Join(p.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-2000):])
}
