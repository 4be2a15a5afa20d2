package store

import (
	"context"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/idemstore/idemstore/internal/idem"
)

const (
	// sqliteSweepRows is how many rows one step looks at.
	sqliteSweepRows = 1000
	// sqlitePurgeBytes bounds the responses that one transaction deletes: everybody else waits meanwhile.
	sqlitePurgeBytes = 32 << 20
)

// A sweep reads the next rows in the order in which they lie, and then deletes those of them that it may. The body, which
// comes last, is not read: its length stands at the row's beginning.
const (
	sqliteSweep = `
SELECT rowid, task_id, attempt, expires_at, ` + sqlInDoubt + `, coalesce(length(response_body), 0)
FROM entries WHERE rowid > ?1 ORDER BY rowid LIMIT ?2`

	sqlitePurge = `DELETE FROM entries WHERE rowid > ?1 AND rowid <= ?2 AND expires_at <= ?3 AND NOT (` + sqlInDoubt + `)`

	// Events lie in the order of their time, so the oldest come first. A clock that was ahead for a while leaves some that
	// seem young before others: all of them are kept for longer by as much as it was ahead.
	sqliteOldEvents = `
SELECT rowid, at, coalesce(length(response_body), 0)
FROM events WHERE rowid > ?1 ORDER BY rowid LIMIT ?2`

	sqlitePurgeEvents = `DELETE FROM events WHERE rowid > ?1 AND rowid <= ?2 AND at <= ?3`
)

// Sweep implements Backend.
func (s *SQLite) Sweep(ctx context.Context) (swept Swept, err error) {
	_, err = s.do(ctx, s.begin, func(now time.Time) error {
		swept, err = s.sweepPart(now, s.swept, false)
		if err == nil {
			s.swept = swept.Next
		}
		return err
	})
	return swept, err
}

// SweepFrom implements Backend. A place is the number of a row.
func (s *SQLite) SweepFrom(ctx context.Context, from int64, dry bool) (swept Swept, err error) {
	begin := s.begin
	if dry {
		begin = s.beginRead
	}
	_, err = s.do(context.WithoutCancel(ctx), begin, func(now time.Time) error {
		swept, err = s.sweepPart(now, from, dry)
		return err
	})
	return swept, err
}

func (s *SQLite) sweepPart(now time.Time, from int64, dry bool) (Swept, error) {
	var swept Swept
	part := sqlitePart{to: from, limit: s.purgeBytes}
	err := s.each(sqliteSweep, func(row *sqlite3.Stmt) error {
		if !part.next(row.ColumnInt64(0)) {
			return nil
		}
		overdue := now.Sub(time.UnixMicro(row.ColumnInt64(3)))
		switch {
		case overdue < 0:
		case row.ColumnBool(4):
			swept.InDoubt = append(swept.InDoubt, idem.Key{TaskID: row.ColumnText(1), Attempt: int32(row.ColumnInt64(2))})
			swept.DoubtLag = max(swept.DoubtLag, overdue)
		default:
			part.bytes += row.ColumnInt64(5)
			swept.Deleted++
			swept.Lag = max(swept.Lag, overdue)
		}
		return nil
	}, from, sqliteSweepRows)
	if err != nil {
		return swept, err
	}
	swept.Next = part.rest()
	if !dry && swept.Deleted > 0 {
		if err := s.each(sqlitePurge, nil, from, part.to, now.UnixMicro()); err != nil {
			return swept, err
		}
	}
	return swept, s.each(`SELECT coalesce(max(rowid), 0) FROM entries`, func(row *sqlite3.Stmt) error {
		swept.Steps = int(row.ColumnInt64(0)/sqliteSweepRows) + 1
		return nil
	})
}

// sqlitePart is the rows that one transaction looks at.
type sqlitePart struct {
	to    int64 // the last row
	rows  int
	bytes int64 // of the responses that are deleted
	limit int64 // of the bytes
}

// next says whether a row belongs to the part.
func (p *sqlitePart) next(row int64) bool {
	if p.bytes >= p.limit {
		return false
	}
	p.to = row
	p.rows++
	return true
}

// rest is where the next part begins; 0: there is none.
func (p *sqlitePart) rest() int64 {
	if p.rows < sqliteSweepRows && p.bytes < p.limit {
		return 0
	}
	return p.to
}

// PurgeEvents implements Backend.
func (s *SQLite) PurgeEvents(ctx context.Context, retention time.Duration, dry bool) (SweptEvents, error) {
	var swept SweptEvents
	begin := s.begin
	if dry {
		begin = s.beginRead
	}
	for from, more := int64(0), true; more; {
		if ctx.Err() != nil {
			return swept, ctx.Err()
		}
		var deleted int
		var lag time.Duration
		var part sqlitePart
		_, err := s.do(context.WithoutCancel(ctx), begin, func(now time.Time) error {
			part, deleted, lag = sqlitePart{to: from, limit: s.purgeBytes}, 0, 0
			now = now.Add(-retention)
			err := s.each(sqliteOldEvents, func(row *sqlite3.Stmt) error {
				if overdue := now.Sub(time.UnixMicro(row.ColumnInt64(1))); part.next(row.ColumnInt64(0)) && overdue >= 0 {
					part.bytes += row.ColumnInt64(2)
					deleted++
					lag = max(lag, overdue)
				}
				return nil
			}, from, sqliteSweepRows)
			if err != nil || dry || deleted == 0 {
				return err
			}
			return s.each(sqlitePurgeEvents, nil, from, part.to, now.UnixMicro())
		})
		if err != nil {
			return swept, err
		}
		swept.Deleted, swept.DeletedLag = swept.Deleted+deleted, max(swept.DeletedLag, lag)
		from = part.rest()
		more = deleted > 0 && from > 0
	}
	return swept, nil
}

// each runs a statement that is not worth keeping, and gives its rows to read.
func (s *SQLite) each(sql string, read func(row *sqlite3.Stmt) error, numbers ...int64) error {
	stmt, _, err := s.conn.Prepare(sql)
	if err != nil {
		return err
	}
	defer func() { _ = stmt.Close() }() // tells again what its last step told
	for i, n := range numbers {
		if err := stmt.BindInt64(i+1, n); err != nil {
			return err
		}
	}
	for stmt.Step() {
		if err := read(stmt); err != nil {
			return err
		}
	}
	return stmt.Err()
}
