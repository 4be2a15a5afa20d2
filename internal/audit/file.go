package audit

import (
	"io"
	"os"
	"path/filepath"
)

// intoFile has something written into a file, which appears whole or not at all: an export that broke off must not be taken
// for one that did not. Only its owner can read it, for it has customers' responses in it.
func intoFile(name string, write func(io.Writer) error) error {
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return intoDevice(name, write)
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return fail(Failed, "%v", err)
	}
	defer os.Remove(f.Name()) //nolint:errcheck // after success it is not there any more
	err = write(f)
	if err != nil {
		_ = f.Close() // it is thrown away
		return err
	}
	if err := f.Close(); err != nil {
		return fail(Failed, "%v", err)
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return fail(Failed, "%v", err)
	}
	return nil
}

// intoDevice writes to what is no file, such as a pipe.
func intoDevice(name string, write func(io.Writer) error) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return fail(Failed, "%v", err)
	}
	if err := write(f); err != nil {
		_ = f.Close() // what was said first counts
		return err
	}
	if err := f.Close(); err != nil {
		return fail(Failed, "%v", err)
	}
	return nil
}
