package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/driver"

	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/migrations"
)

// sqliteBusy is how long a process waits for another's transaction on the same file.
const sqliteBusy = 5 * time.Second

// turns is a connection that one call at a time uses.
type turns struct {
	turn chan struct{} // holds something while a call is under way
	conn *sqlite3.Conn // nil: closed
}

// SQLite is the store in a file, or in memory. It has one connection for all but operators' questions.
//
// Other processes may use the same file on the same machine: each waits for the other's transaction. Its time is this process's clock,
// which does not run backwards. A commit is on the disk before it is answered (WAL, synchronous=FULL).
type SQLite struct {
	*turns
	db   *sql.DB // what the migrator needs; here it only owns the connection
	hold *sql.Conn
	opts Options

	questions *sqliteQuestions
	reader

	clock sync.Mutex // over last
	last  time.Time
	// swept is where the purge has come to.
	swept      int64
	purgeBytes int64 // sqlitePurgeBytes, but in tests

	begin, beginRead, commit, rollback, load, later, insert, update, standing, event *sqlite3.Stmt
}

// openSQLite opens what follows "sqlite:", made and migrated where it has to be.
func openSQLite(ctx context.Context, path string, opts Options) (_ *SQLite, err error) {
	dsn, err := sqliteMigrationDSN(path)
	if err != nil {
		return nil, err
	}
	fail := func(err error) error { return fmt.Errorf("open the SQLite database %q: %w", path, err) }
	if opts.Existing {
		if _, err := os.Stat(path); err != nil { // the driver would make it
			return nil, fail(err)
		}
	}
	makePrivate(path)
	db, err := driver.Open(dsn, setUpSQLite)
	if err != nil {
		return nil, fail(err)
	}
	db.SetMaxOpenConns(1) // in memory, another connection would be another database
	s := &SQLite{turns: &turns{turn: make(chan struct{}, 1)}, db: db, opts: opts, purgeBytes: sqlitePurgeBytes}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	migrator := NewMigrator(db, DialectSQLite)
	if opts.Existing {
		err = mustBeCurrent(ctx, migrator)
	} else {
		_, err = migrator.Up(ctx)
	}
	if err != nil {
		return nil, fail(err)
	}
	if s.hold, err = db.Conn(ctx); err != nil {
		return nil, fail(err)
	}
	err = s.hold.Raw(func(c any) error {
		s.conn = c.(driver.Conn).Raw()
		return s.prepare()
	})
	if err == nil {
		err = s.openQuestions(path)
	}
	if err != nil {
		return nil, fail(err)
	}
	return s, nil
}

func mustBeCurrent(ctx context.Context, m *Migrator) error {
	have, want, err := m.Version(ctx)
	if err != nil {
		return err
	}
	return checkVersion(have, want)
}

func setUpSQLite(c *sqlite3.Conn) error {
	if err := c.BusyTimeout(sqliteBusy); err != nil {
		return err
	}
	// In memory there is no WAL; the answer is then another mode and no error.
	return c.Exec(`PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL`)
}

func (s *SQLite) prepare() error {
	for text, stmt := range s.statements() {
		var err error
		if *stmt, _, err = s.conn.Prepare(text); err != nil {
			return err
		}
	}
	return nil
}

func (s *SQLite) statements() map[string]**sqlite3.Stmt {
	return map[string]**sqlite3.Stmt{
		`BEGIN IMMEDIATE`: &s.begin,
		`BEGIN`:           &s.beginRead,
		`COMMIT`:          &s.commit,
		`ROLLBACK`:        &s.rollback,
		sqliteLoad:        &s.load,
		sqliteLater:       &s.later,
		sqliteInsert:      &s.insert,
		sqliteUpdate:      &s.update,
		sqliteStanding:    &s.standing,
		sqliteEvent:       &s.event,
	}
}

// Close implements idem.Store.
func (s *SQLite) Close() {
	s.closeQuestions()
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	for _, stmt := range s.statements() {
		_ = (*stmt).Close() // else the connection would not close
		*stmt = nil
	}
	if s.hold != nil {
		_ = s.hold.Close()
	}
	_ = s.db.Close()
	s.hold, s.conn = nil, nil
}

// Ready implements idem.Store.
func (s *SQLite) Ready(ctx context.Context) error {
	var have int64
	_, err := s.do(ctx, s.begin, func(time.Time) error { // a transaction that could write
		version, _, err := s.conn.Prepare(`SELECT coalesce(max(version_id), 0) FROM goose_db_version`)
		if err != nil {
			return err
		}
		defer func() { _ = version.Close() }()
		if version.Step() {
			have = version.ColumnInt64(0)
		}
		return version.Err()
	})
	if err != nil {
		return fmt.Errorf("reach the database: %w", cause(err))
	}
	return checkVersion(have, latestVersion(migrations.SQLite))
}

// Upkeep does nothing: SQLite needs none.
func (s *SQLite) Upkeep(context.Context) error { return nil }

var errClosed = errors.New("the store is closed")

// do runs f in a transaction and returns the time that it was given. An error that is idem.ErrNotWritten left nothing behind.
func (s *SQLite) do(ctx context.Context, begin *sqlite3.Stmt, f func(now time.Time) error) (time.Time, error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return time.Time{}, notWritten(ctx.Err())
	}
	if s.conn == nil {
		return time.Time{}, notWritten(errClosed)
	}
	old := s.conn.SetInterrupt(ctx)
	err := begin.Exec()
	var now time.Time
	if err == nil {
		now = s.now()
		err = f(now)
	}
	s.conn.SetInterrupt(old) // a commit is not broken off, nor is a rollback
	if err != nil {
		s.undo()
		return time.Time{}, notWritten(sqliteError(ctx, err))
	}
	if err := s.commit.Exec(); err != nil {
		s.undo()
		if brokenOff(err) {
			return time.Time{}, notWritten(err)
		}
		return time.Time{}, err
	}
	return now, nil
}

// brokenOff says of a failed commit that the mark which makes it one is not on the disk: it is the last thing to be written, and a full disk
// (which this driver tells as a failed write) is found while writing. After any other fault, as of the fsync that follows, it may be there,
// for a process that opens the file after a crash.
func brokenOff(err error) bool {
	return errors.Is(err, sqlite3.FULL) || errors.Is(err, sqlite3.IOERR_WRITE) || errors.Is(err, sqlite3.BUSY)
}

// undo ends a transaction, if the fault has not done so already.
func (s *SQLite) undo() {
	if !s.conn.GetAutocommit() {
		_ = s.rollback.Exec() // where even that fails, so does the next call's BEGIN, and undoes it
	}
}

// now reads the clock. What writes calls it in a transaction, for which there is nothing to wait any more.
func (s *SQLite) now() time.Time {
	s.clock.Lock()
	defer s.clock.Unlock()
	if now := time.Now().UTC().Truncate(time.Microsecond); now.After(s.last) {
		s.last = now
	}
	return s.last.Add(s.opts.shift())
}

func sqliteError(ctx context.Context, err error) error {
	if errors.Is(err, sqlite3.INTERRUPT) && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

var _ idem.Store = (*SQLite)(nil)
