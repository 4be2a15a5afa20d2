package audit

import (
	"context"
	"fmt"
	"io"

	"github.com/idemstore/idemstore/api"
)

// Task tells of a task over its attempts: what each is now, one timeline of what happened, and the responses in it.
func (s *Session) Task(ctx context.Context, id string) error {
	if id == "." || id == ".." {
		return fail(Usage, "%q is no task id", id)
	}
	body, err := s.Service.answer(s.Service.api.GetTask(ctx, id))
	if err != nil {
		return err
	}
	if s.Output == JSON {
		return s.document(body)
	}
	var task api.Task
	if err := s.Service.read(body, &task); err != nil {
		return err
	}
	say(s.Out, "Task %s: %s, %s", task.TaskID, count(len(task.Attempts), "attempt"), count(len(task.Events), "event"))
	if len(task.Attempts) > 0 {
		fmt.Fprintln(s.Out)
		if err := s.attempts(task.Attempts); err != nil {
			return err
		}
	}
	line := newTimeline(&task, s.now())
	findings, err := s.findings(ctx, &task)
	if err != nil {
		return err
	}
	if len(findings) > 0 {
		fmt.Fprintln(s.Out)
	}
	for _, f := range findings {
		say(s.Out, "%s", line.advise(task.TaskID, f))
	}
	fmt.Fprintln(s.Out, "\nTimeline")
	t := newTable(s.Out, "AT", ">AGE", ">ATTEMPT", ">FENCE", "WHAT", "WHO", "TOKEN", "DETAIL")
	var rows [][]string
	for _, f := range line.facts {
		rows = append(rows, []string{
			f.stamp, age(f.at, s.now()), fmt.Sprint(f.attempt), fence(f.fence), f.what, some(f.who), some(f.token), some(f.detail),
		})
	}
	if err := t.rows(rows...); err != nil {
		return err
	}
	if len(line.responses) > 0 {
		fmt.Fprintln(s.Out, "\nResponses")
	}
	for i, r := range line.responses {
		say(s.Out, "[%d] %s", i+1, measure(r))
		s.showResponse(s.Out, r)
	}
	return nil
}

func (s *Session) attempts(entries []api.Entry) error {
	t := newTable(s.Out, ">ATTEMPT", "STATE", "OWNER", ">FENCE", "HANDLER", "DISPATCH", "LEASE UNTIL", "RECORDED BY", "DOUBTS", "EXPIRES")
	var rows [][]string
	for _, e := range entries {
		rows = append(rows, []string{
			fmt.Sprint(e.Attempt), standing(&e), e.Owner, fmt.Sprint(e.Fence), or(e.Handler, "-"), string(e.Dispatch),
			toSecond(e.LeaseUntil), or(e.RecordedBy, "-"), doubters(&e), toSecond(e.ExpiresAt),
		})
	}
	return t.rows(rows...)
}

// Entry shows one entry, its response included.
func (s *Session) Entry(ctx context.Context, id string, attempt int32) error {
	body, err := s.entry(ctx, id, attempt)
	if err != nil {
		return err
	}
	return s.showEntry(body)
}

func (s *Session) entry(ctx context.Context, id string, attempt int32) (io.ReadCloser, error) {
	if id == "." || id == ".." {
		return nil, fail(Usage, "%q is no task id", id)
	}
	return s.Service.answer(s.Service.api.GetEntry(ctx, id, attempt))
}

// showEntry shows the entry that an answer is.
func (s *Session) showEntry(body io.ReadCloser) error {
	if s.Output == JSON {
		return s.document(body)
	}
	var e api.Entry
	if err := s.Service.read(body, &e); err != nil {
		return err
	}
	return s.describe(s.Out, &e)
}

// describe writes an entry as a list of its members.
func (s *Session) describe(out io.Writer, e *api.Entry) error {
	now := s.now()
	when := func(stamp *string) string {
		if stamp == nil {
			return "-"
		}
		return withAge(*stamp, now)
	}
	for _, member := range [][2]string{
		{"task", e.TaskID},
		{"attempt", fmt.Sprint(e.Attempt)},
		{"state", standing(e)},
		{"fence", fmt.Sprint(e.Fence)},
		{"owner", e.Owner},
		{"handler", or(e.Handler, "-")},
		{"request hash", or(e.RequestHash, "-")},
		{"dispatch", string(e.Dispatch)},
		{"reserved", withAge(e.ReservedAt, now)},
		{"lease until", withAge(e.LeaseUntil, now)},
		{"dispatched", when(e.DispatchedAt)},
		{"recorded", when(e.RecordedAt)},
		{"recorded by", or(e.RecordedBy, "-")},
		{"expires", withAge(e.ExpiresAt, now)},
	} {
		say(out, "%-14s%s", member[0], member[1])
	}
	if len(e.Doubts) > 0 {
		fmt.Fprintln(out, "\nThey may have acted:")
		t := newTable(out, ">FENCE", "OWNER", "RESERVED", "LEASE UNTIL", ">AGE", "DISPATCHED")
		var rows [][]string
		for _, d := range e.Doubts {
			rows = append(rows, []string{fmt.Sprint(d.Fence), d.Owner, d.ReservedAt, d.LeaseUntil, age(moment(d.LeaseUntil), now), yes(d.Dispatched)})
		}
		if err := t.rows(rows...); err != nil {
			return err
		}
	}
	if e.Response != nil {
		fmt.Fprintln(out)
		say(out, "Response: %s", measure(e.Response))
		s.showResponse(out, e.Response)
	}
	return nil
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func fence(n int64) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// document passes one JSON document on as the service wrote it.
func (s *Session) document(body io.ReadCloser) error {
	defer body.Close()
	end := &lastByte{out: s.exact()}
	if _, err := io.Copy(end, body); err != nil {
		return s.Service.cut(err)
	}
	if end.last != '\n' {
		_, err := end.Write([]byte("\n"))
		return err
	}
	return nil
}

// lastByte remembers how what was written through it ended.
type lastByte struct {
	out  io.Writer
	last byte
}

func (l *lastByte) Write(p []byte) (int, error) {
	if len(p) > 0 {
		l.last = p[len(p)-1]
	}
	return l.out.Write(p)
}
