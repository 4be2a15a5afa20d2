package store

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
)

// dialect is how the engines' SQL differs where operators' questions are asked.
type dialect struct {
	param string // what a parameter's number follows
	uuid  string // makes a uuid of a text, where that is a type
	size  string // how many bytes a column takes that is text, without reading it
	hints bool   // an index can be named; else the server finds it by itself
	// sums: a running sum is worth having the server do: its rows have been sent before anybody can say that they are enough.
	sums bool
}

func (d dialect) by(index string) string {
	if !d.hints || index == "" {
		return ""
	}
	return " INDEXED BY " + index
}

// statement is SQL that grows, with its arguments.
type statement struct {
	dialect dialect
	sql     string
	args    []any
}

func (r reader) statement() statement { return statement{dialect: r.dialect()} }

// rowID is an argument that is the id of an event.
type rowID string

// add adds SQL in which each ? stands for an argument.
func (s *statement) add(sql string, args ...any) {
	for _, arg := range args {
		before, after, _ := strings.Cut(sql, "?")
		cast := ""
		if id, ok := arg.(rowID); ok {
			arg, cast = string(id), s.dialect.uuid
		}
		s.args = append(s.args, arg)
		s.sql += before + s.dialect.param + strconv.Itoa(len(s.args)) + cast
		sql = after
	}
	s.sql += sql
}

// clause is a condition and its arguments.
type clause struct {
	sql  string
	args []any
}

func when(sql string, args ...any) clause { return clause{sql, args} }

func (s *statement) and(clauses ...clause) {
	for _, c := range clauses {
		s.add(" AND ("+c.sql+")", c.args...)
	}
}

// entryColumns are what scanEntry reads, of a relation that says of each row whether what is large of it is to be read too.
func entryColumns(responses bool) string {
	response := "true, NULL, NULL"
	if responses {
		response = "false, CASE WHEN fits THEN response_head END, CASE WHEN fits THEN response_body END"
	}
	return `
task_id, attempt, version,
CAST(state AS text), reservation_id, owner, fence, handler, request_hash, explicit, task_scope, lease_seconds,
reserved_at, lease_until, dispatched_at, recorded_at, recorded_by, late, expires_at, CASE WHEN fits THEN CAST(more AS text) END,
response_status, ` + response
}

const eventColumns = `
CAST(id AS text) AS id_text, at, kind, task_id, attempt, fence, handler, owner, token, request_id,
CASE WHEN fits THEN CAST(detail AS text) END, response_status, CASE WHEN fits THEN response_head END, CASE WHEN fits THEN response_body END`

func scanEvent(row scanner) (e idem.Event, err error) {
	var detail, head, body []byte
	var status *int32
	err = row.Scan(&e.ID, &e.At, &e.Kind, &e.TaskID, &e.Attempt, &e.Fence, &e.Handler, &e.Owner, &e.Token, &e.RequestID,
		&detail, &status, &head, &body)
	if err != nil {
		return e, err
	}
	e.At = e.At.UTC()
	if e.Detail, err = decodeDetail(detail); err == nil {
		e.Response, err = responseOf(status, head, body, false)
	}
	if err != nil {
		return e, fmt.Errorf("read the event %s of %s: %w", e.ID, e.Key, err)
	}
	return e, nil
}

// storable is the first moment that can be stored and is not before t, or the last there is.
func storable(t time.Time) time.Time {
	down := t.Truncate(time.Microsecond)
	switch {
	case t.Before(dawn):
		return dawn
	case t.After(never):
		return never
	case down.Before(t):
		return down.Add(time.Microsecond)
	}
	return t
}
