package store

import (
	"context"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/idemstore/idemstore/internal/idem"
)

// sqliteSweepRows is how many rows one step looks at.
const sqliteSweepRows = 1000

// sqliteSweep reads the next rows in the order in which they lie. The body, which comes last, is not read.
const sqliteSweep = `
SELECT rowid, task_id, attempt, expires_at,
    state <> 'recorded' AND (doubts > 0 OR state IN ('reserved', 'dispatched') AND (NOT explicit OR dispatched_at IS NOT NULL))
FROM entries WHERE rowid > ?1 ORDER BY rowid LIMIT ?2`

// Sweep implements Backend.
func (s *SQLite) Sweep(ctx context.Context) (Swept, error) {
	var swept Swept
	var first time.Time
	_, err := s.do(ctx, s.begin, func(now time.Time) error {
		var past []int64
		seen := 0
		from := s.swept
		err := s.each(sqliteSweep, func(row *sqlite3.Stmt) error {
			seen++
			s.swept = row.ColumnInt64(0)
			expires := time.UnixMicro(row.ColumnInt64(3))
			switch {
			case now.Before(expires):
			case row.ColumnBool(4):
				swept.InDoubt = append(swept.InDoubt, idem.Key{TaskID: row.ColumnText(1), Attempt: int32(row.ColumnInt64(2))})
			default:
				past = append(past, s.swept)
				if first.IsZero() || expires.Before(first) {
					first = expires
					swept.Lag = now.Sub(first)
				}
			}
			return nil
		}, from, sqliteSweepRows)
		if seen < sqliteSweepRows {
			s.swept = 0
		}
		for i := 0; err == nil && i < len(past); i++ {
			err = s.each(`DELETE FROM entries WHERE rowid = ?1`, nil, past[i])
		}
		swept.Deleted = len(past)
		if err != nil {
			return err
		}
		return s.each(`SELECT coalesce(max(rowid), 0) FROM entries`, func(row *sqlite3.Stmt) error {
			swept.Steps = int(row.ColumnInt64(0)/sqliteSweepRows) + 1
			return nil
		})
	})
	return swept, err
}

// PurgeEvents implements Backend. Events lie in the order of their time, so the oldest come first.
func (s *SQLite) PurgeEvents(ctx context.Context, retention time.Duration) error {
	for {
		var old []int64
		_, err := s.do(ctx, s.begin, func(now time.Time) error {
			err := s.each(`SELECT rowid, at FROM events ORDER BY rowid LIMIT ?1`, func(row *sqlite3.Stmt) error {
				if row.ColumnInt64(1) < now.Add(-retention).UnixMicro() {
					old = append(old, row.ColumnInt64(0))
				}
				return nil
			}, sqliteSweepRows)
			for i := 0; err == nil && i < len(old); i++ {
				err = s.each(`DELETE FROM events WHERE rowid = ?1`, nil, old[i])
			}
			return err
		})
		if err != nil || len(old) < sqliteSweepRows {
			return err
		}
	}
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
