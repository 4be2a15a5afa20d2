package store

import (
	"context"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/idemstore/idemstore/internal/idem"
)

// sqliteSweepRows is how many rows one step looks at.
const sqliteSweepRows = 1000

// A sweep reads the next rows in the order in which they lie, and then deletes those of them that it may. The body, which
// comes last, is not read.
const (
	sqliteSweep = `
SELECT rowid, task_id, attempt, expires_at, ` + sqlInDoubt + `
FROM entries WHERE rowid > ?1 ORDER BY rowid LIMIT ?2`

	sqlitePurge = `DELETE FROM entries WHERE rowid > ?1 AND rowid <= ?2 AND expires_at <= ?3 AND NOT (` + sqlInDoubt + `)`

	// Events lie in the order of their time, so the oldest come first.
	sqlitePurgeEvents = `DELETE FROM events WHERE at < ?1 AND rowid IN (SELECT rowid FROM events ORDER BY rowid LIMIT ?2)`
)

// Sweep implements Backend.
func (s *SQLite) Sweep(ctx context.Context) (Swept, error) {
	var swept Swept
	_, err := s.do(ctx, s.begin, func(now time.Time) error {
		seen, from, to := 0, s.swept, s.swept
		err := s.each(sqliteSweep, func(row *sqlite3.Stmt) error {
			seen++
			to = row.ColumnInt64(0)
			expires := time.UnixMicro(row.ColumnInt64(3))
			switch {
			case now.Before(expires):
			case row.ColumnBool(4):
				swept.InDoubt = append(swept.InDoubt, idem.Key{TaskID: row.ColumnText(1), Attempt: int32(row.ColumnInt64(2))})
			default:
				swept.Lag = max(swept.Lag, now.Sub(expires))
			}
			return nil
		}, from, sqliteSweepRows)
		if err != nil {
			return err
		}
		if err := s.each(sqlitePurge, nil, from, to, now.UnixMicro()); err != nil {
			return err
		}
		swept.Deleted = int(s.conn.Changes())
		if s.swept = to; seen < sqliteSweepRows {
			s.swept = 0
		}
		return s.each(`SELECT coalesce(max(rowid), 0) FROM entries`, func(row *sqlite3.Stmt) error {
			swept.Steps = int(row.ColumnInt64(0)/sqliteSweepRows) + 1
			return nil
		})
	})
	return swept, err
}

// PurgeEvents implements Backend.
func (s *SQLite) PurgeEvents(ctx context.Context, retention time.Duration) error {
	for {
		var deleted int64
		_, err := s.do(ctx, s.begin, func(now time.Time) error {
			err := s.each(sqlitePurgeEvents, nil, now.Add(-retention).UnixMicro(), sqliteSweepRows)
			deleted = s.conn.Changes()
			return err
		})
		if err != nil || deleted < sqliteSweepRows {
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
