package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/idemstore/idemstore/internal/idem"
)

// sqliteQuestions asks SQLite what operators ask. A file has a connection of its own for it, which neither waits for the one that writes
// nor keeps it waiting. In memory the two take turns.
type sqliteQuestions struct {
	*turns
	now   func() time.Time
	bound time.Duration
}

// openQuestions opens the connection for questions, once the database is as it shall be.
func (s *SQLite) openQuestions(path string) error {
	q := &sqliteQuestions{turns: s.turns, now: s.now, bound: readTime}
	s.questions, s.reader = q, newReader(q)
	if path == sqliteInMemory {
		return nil
	}
	conn, err := sqlite3.OpenFlags(sqliteFile(path)+"?_pragma=query_only(true)", sqlite3.OPEN_READONLY|sqlite3.OPEN_URI)
	if err != nil {
		return err
	}
	q.turns = &turns{turn: make(chan struct{}, 1), conn: conn}
	return conn.BusyTimeout(sqliteBusy)
}

// closeQuestions closes the connection for questions, where it is another.
func (s *SQLite) closeQuestions() {
	q := s.questions
	if q == nil || q.turns == s.turns {
		return
	}
	q.turn <- struct{}{}
	defer func() { <-q.turn }()
	if q.conn != nil {
		_ = q.conn.Close()
	}
	q.conn = nil
}

func (q *sqliteQuestions) dialect() dialect {
	return dialect{param: "?", size: "octet_length", hints: true}
}

// ask implements asker.
func (q *sqliteQuestions) ask(ctx context.Context, s statement, read func(scanner) error) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, q.bound)
	defer cancel()
	select {
	case q.turn <- struct{}{}:
		defer func() { <-q.turn }()
	case <-ctx.Done():
		return time.Time{}, unanswered(ctx.Err(), false)
	}
	if q.conn == nil {
		return time.Time{}, unanswered(errClosed, false)
	}
	now := q.now()
	if s.sql == "" {
		return now, nil
	}
	defer q.conn.SetInterrupt(q.conn.SetInterrupt(ctx))
	if err := q.run(s.sql, s.args, read); err != nil && !errors.Is(err, errEnough) {
		return time.Time{}, unanswered(sqliteError(ctx, err), errors.Is(ctx.Err(), context.DeadlineExceeded))
	}
	return now, nil
}

func (q *sqliteQuestions) run(sql string, args []any, read func(scanner) error) error {
	stmt, _, err := q.conn.Prepare(sql)
	if err != nil {
		return err
	}
	defer func() { _ = stmt.Close() }() // tells again what its last step told
	b := binder{stmt: stmt}
	for _, arg := range args {
		switch arg := arg.(type) {
		case string:
			b.text(arg)
		case int:
			b.number(int64(arg))
		case int32:
			b.number(int64(arg))
		case int64:
			b.number(arg)
		case time.Time:
			b.number(arg.UnixMicro())
		default:
			return fmt.Errorf("cannot ask SQLite with %T", arg)
		}
	}
	if b.err != nil {
		return b.err
	}
	for stmt.Step() {
		if err := read(&row{stmt: stmt}); err != nil {
			return err
		}
	}
	return stmt.Err()
}

// Scan implements scanner.
func (r *row) Scan(dest ...any) error {
	for _, d := range dest {
		null := r.stmt.ColumnType(r.last) == sqlite3.NULL
		switch d := d.(type) {
		case *string:
			*d = r.text()
		case *idem.State:
			*d = idem.State(r.text())
		case *idem.EventKind:
			*d = idem.EventKind(r.text())
		case **string:
			text := r.text()
			if *d = &text; null {
				*d = nil
			}
		case *int:
			*d = int(r.number())
		case *int32:
			*d = int32(r.number())
		case **int32:
			number := int32(r.number())
			if *d = &number; null {
				*d = nil
			}
		case *int64:
			*d = r.number()
		case *bool:
			*d = r.flag()
		case *time.Time:
			*d = r.time()
		case **time.Time:
			at := r.time()
			if *d = &at; null {
				*d = nil
			}
		case *[]byte:
			*d = r.bytes()
		default:
			return fmt.Errorf("cannot read a column of SQLite into %T", d)
		}
	}
	return nil
}
