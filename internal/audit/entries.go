package audit

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/idemstore/idemstore/api"
)

// Entries lists entries, newest first.
func (s *Session) Entries(ctx context.Context, q api.ListEntriesParams, want Window) error {
	show := s.entryTable()
	switch s.Output {
	case JSON:
		out := s.exact()
		show = func(items []json.RawMessage) error { return lines(out, items) }
	case CSV:
		show = s.entryCSV()
	}
	ask := func(ctx context.Context, limit *int, cursor *string) (*http.Response, error) {
		q.Limit, q.Cursor = limit, cursor
		return s.Service.api.ListEntries(ctx, &q)
	}
	found, more, err := s.pages(ctx, ask, want, s.progress(true), show)
	if err != nil {
		return err
	}
	return s.listed(found, more, want)
}

func (s *Session) entryTable() func(items []json.RawMessage) error {
	t := newTable(s.Out, "TASK", ">ATTEMPT", "STATE", "OWNER", "HANDLER", ">FENCE", "RESERVED", ">AGE", "RECORDED", "RECORDED BY", "DOUBTS")
	return func(items []json.RawMessage) error {
		var rows [][]string
		for _, item := range items {
			var e api.Entry
			if err := s.Service.decode(item, &e); err != nil {
				return err
			}
			rows = append(rows, []string{
				e.TaskID, fmt.Sprint(e.Attempt), standing(&e), e.Owner, or(e.Handler, "-"), fmt.Sprint(e.Fence),
				toSecond(e.ReservedAt), age(moment(e.ReservedAt), s.now()), toSecond(or(e.RecordedAt, "-")), or(e.RecordedBy, "-"), doubters(&e),
			})
		}
		return t.rows(rows...)
	}
}

// standing is an entry's state in words.
func standing(e *api.Entry) string {
	text := string(e.State)
	if e.InDoubt {
		text += ", in doubt"
	}
	if e.Late {
		text += ", late"
	}
	return text
}

// doubters are the holders that may have acted, each with its fence.
func doubters(e *api.Entry) string {
	if len(e.Doubts) == 0 {
		return "-"
	}
	names := make([]string, len(e.Doubts))
	for i, d := range e.Doubts {
		names[i] = fmt.Sprintf("%s#%d", d.Owner, d.Fence)
	}
	return strings.Join(names, " ")
}

// or is an optional text, or what to show in its place.
func or(s *string, other string) string {
	if s == nil {
		return other
	}
	return *s
}

var entryColumns = []string{
	"task_id", "attempt", "state", "in_doubt", "owner", "fence", "handler", "dispatch", "request_hash", "reserved_at", "lease_until",
	"dispatched_at", "recorded_at", "recorded_by", "late", "expires_at", "doubts",
}

// entryCSV writes entries as the service writes events: RFC 4180, with a header, safe to open in a spreadsheet.
func (s *Session) entryCSV() func(items []json.RawMessage) error {
	w := csv.NewWriter(s.exact())
	w.UseCRLF = true // no cell has a line break in it: names have no control characters
	head := entryColumns
	return func(items []json.RawMessage) error {
		if head != nil {
			_ = w.Write(head) // Flush tells
			head = nil
		}
		for _, item := range items {
			var e api.Entry
			if err := s.Service.decode(item, &e); err != nil {
				return err
			}
			doubts := ""
			if len(e.Doubts) > 0 {
				text, err := json.Marshal(e.Doubts)
				if err != nil {
					return err
				}
				doubts = string(text)
			}
			row := []string{
				e.TaskID, fmt.Sprint(e.Attempt), string(e.State), strconv.FormatBool(e.InDoubt), e.Owner, fmt.Sprint(e.Fence), or(e.Handler, ""),
				string(e.Dispatch), or(e.RequestHash, ""), e.ReservedAt, e.LeaseUntil, or(e.DispatchedAt, ""), or(e.RecordedAt, ""),
				or(e.RecordedBy, ""), strconv.FormatBool(e.Late), e.ExpiresAt, doubts,
			}
			for i := range row {
				row[i] = harmless(row[i])
			}
			_ = w.Write(row)
		}
		w.Flush()
		return w.Error()
	}
}

// harmless keeps a spreadsheet from taking a cell for a formula.
func harmless(cell string) string {
	if cell != "" && strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
		return "'" + cell
	}
	return cell
}

// line writes one object on one line, otherwise as the service wrote it.
func line(out io.Writer, object json.RawMessage) error {
	var text bytes.Buffer
	if err := json.Compact(&text, object); err != nil {
		return err
	}
	text.WriteByte('\n')
	_, err := out.Write(text.Bytes())
	return err
}
