// Package audit is the operators' client of a running service: it asks what happened, settles keys in doubt, and shows
// answers to people as tables and to scripts as the service's own JSON and CSV.
//
// What it shows was written by others: owners and handlers by workers, headers and bodies by whatever upstream they called.
// None of it reaches a terminal with control characters in it. A file or a pipe gets JSON and CSV byte for byte.
package audit

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// Forms of output.
const (
	Table = "table"
	JSON  = "json"
	CSV   = "csv"
)

// Session is one command's world.
type Session struct {
	Service *Service
	In      io.Reader
	Out     io.Writer
	Err     io.Writer
	// Which of them are a terminal: a person can be asked, sees progress, and must be kept from raw bytes.
	InTerminal, OutTerminal, ErrTerminal bool

	Output string // Table, JSON or CSV
	Bodies bool   // show bodies whole
	Now    func() time.Time

	tick time.Duration // between two looks of a watch; for tests
}

// Class is what a failure means to a script.
type Class int

// Classes of failures.
const (
	Failed  Class = iota // no answer, or none that helps
	Usage                // a question that cannot be
	Nothing              // an answer: there is no such thing
	Refused              // the state of the key forbids it
)

// Error is a failure in words for a person: what happened, and what to do next.
type Error struct {
	Class Class
	text  string
}

func (e *Error) Error() string { return e.text }

// fail makes an Error. Its text is safe to show, whoever wrote parts of it.
func fail(c Class, format string, args ...any) *Error {
	return &Error{Class: c, text: safe(fmt.Sprintf(format, args...))}
}

// is says whether an error is of a class.
func is(err error, c Class) bool {
	var e *Error
	return errors.As(err, &e) && e.Class == c
}

// exact is where JSON and CSV go: untouched, unless to a terminal.
func (s *Session) exact() io.Writer {
	if s.OutTerminal {
		return &armour{out: s.Out}
	}
	return s.Out
}

// say writes a line for a person.
func say(w io.Writer, format string, args ...any) {
	fmt.Fprintln(w, safe(fmt.Sprintf(format, args...)))
}
