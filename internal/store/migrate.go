package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"

	"github.com/idemstore/idemstore/migrations"
)

// Dialect names an engine that can be migrated.
type Dialect string

// The engines that can be migrated.
const (
	DialectPostgres Dialect = "postgres"
	DialectSQLite   Dialect = "sqlite"
)

// ErrNothingToRollBack is returned by [Migrator.Down] when no migration is applied.
var ErrNothingToRollBack = errors.New("no migration to roll back")

// A Migrator brings the schema of one database to the version that this program was built for.
//
// Any number of them may work on one database at once, in one process or many: each migration is applied exactly once and all of them
// succeed. On Postgres an advisory lock sees to it. It belongs to a session, so the URL must lead to the database itself and not to a pooler
// in transaction mode. SQLite has no lock that outlives a transaction; see [sqliteVersions].
type Migrator struct {
	db      *sql.DB
	dialect Dialect
	files   fs.FS
	close   func() error
}

// MigrationStatus tells of one migration. AppliedAt is zero while it is pending.
type MigrationStatus struct {
	Version   int64
	Name      string
	AppliedAt time.Time
}

// Pending tells whether the migration has yet to be applied.
func (s MigrationStatus) Pending() bool { return s.AppliedAt.IsZero() }

// OpenMigrator opens the database at a URL: postgres://, postgresql://, sqlite:PATH or sqlite::memory:.
func OpenMigrator(ctx context.Context, databaseURL string) (*Migrator, error) {
	db, dialect, err := openForMigration(databaseURL)
	if err != nil {
		return nil, err
	}
	if err := db.PingContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to the database: %w", err), db.Close())
	}
	m := NewMigrator(db, dialect)
	m.close = db.Close
	return m, nil
}

// NewMigrator migrates a database that is already open, and leaves it open: the only way into an SQLite that lives in memory.
func NewMigrator(db *sql.DB, dialect Dialect) *Migrator {
	files := migrations.Postgres
	if dialect == DialectSQLite {
		files = migrations.SQLite
	}
	return &Migrator{db: db, dialect: dialect, files: files, close: func() error { return nil }}
}

// Close closes what [OpenMigrator] opened.
func (m *Migrator) Close() error { return m.close() }

// Up applies what is pending and returns the names of what this call applied, also beside an error. A database that needs nothing is only read.
func (m *Migrator) Up(ctx context.Context) ([]string, error) {
	var applied []string
	giveUp := time.Now().Add(lockPatience)
	for {
		pending, err := m.pending(ctx)
		if err != nil || !pending {
			return applied, err
		}
		provider, err := m.provider()
		if err != nil {
			return applied, err
		}
		results, err := provider.Up(ctx)
		var partial *goose.PartialError
		switch {
		case err == nil:
			return append(applied, resultNames(results)...), nil
		case !errors.As(err, &partial):
			return applied, fmt.Errorf("apply migrations: %w", err)
		}
		applied = append(applied, resultNames(partial.Applied)...)
		if held(partial.Err) && time.Now().Before(giveUp) {
			select {
			case <-time.After(lockPause):
				continue
			case <-ctx.Done():
				return applied, ctx.Err()
			}
		}
		if failed := partial.Failed.Source; !m.overtaken(ctx, failed.Version) {
			return applied, fmt.Errorf("apply migration %s: %w", path.Base(failed.Path), partial.Err)
		}
	}
}

const (
	// lockPatience is for how long a migration is tried that gives up rather than wait for a lock.
	lockPatience = 2 * time.Minute
	lockPause    = 500 * time.Millisecond
)

// held tells whether a migration failed because somebody held a table for longer than it wanted to wait.
func held(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == pgLockTimeout
}

// overtaken tells whether a migration failed because another process has applied it in the meantime: see [sqliteVersions].
func (m *Migrator) overtaken(ctx context.Context, version int64) bool {
	if m.dialect != DialectSQLite {
		return false
	}
	applied, err := m.applied(ctx)
	_, ok := applied[version]
	return err == nil && ok
}

// Down rolls back the latest migration and returns its name, or [ErrNothingToRollBack].
func (m *Migrator) Down(ctx context.Context) (string, error) {
	provider, err := m.provider()
	if err != nil {
		return "", err
	}
	result, err := provider.Down(ctx)
	if errors.Is(err, goose.ErrNoNextVersion) {
		return "", ErrNothingToRollBack
	}
	if err != nil {
		return "", fmt.Errorf("roll back a migration: %w", err)
	}
	return path.Base(result.Source.Path), nil
}

// Status lists the migrations that this program knows, oldest first. It writes nothing.
func (m *Migrator) Status(ctx context.Context) ([]MigrationStatus, error) {
	provider, err := m.provider()
	if err != nil {
		return nil, err
	}
	applied, err := m.applied(ctx)
	if err != nil {
		return nil, err
	}
	sources := provider.ListSources()
	list := make([]MigrationStatus, 0, len(sources))
	for _, source := range sources {
		list = append(list, MigrationStatus{
			Version:   source.Version,
			Name:      path.Base(source.Path),
			AppliedAt: applied[source.Version],
		})
	}
	return list, nil
}

// Version returns the version that the database has (0: none) and the one that this program wants. It writes nothing. A database
// that is ahead belongs to a newer program.
func (m *Migrator) Version(ctx context.Context) (have, want int64, err error) {
	list, err := m.Status(ctx)
	if err != nil {
		return 0, 0, err
	}
	applied, err := m.applied(ctx)
	if err != nil {
		return 0, 0, err
	}
	for version := range applied {
		have = max(have, version)
	}
	return have, list[len(list)-1].Version, nil // goose refuses an empty list
}

func (m *Migrator) pending(ctx context.Context) (bool, error) {
	list, err := m.Status(ctx)
	if err != nil {
		return false, err
	}
	for _, s := range list {
		if s.Pending() {
			return true, nil
		}
	}
	return false, nil
}

// applied reads goose's table by hand: its own Status and GetVersions create the table, and a question should not write.
func (m *Migrator) applied(ctx context.Context) (map[int64]time.Time, error) {
	exists := `SELECT to_regclass('` + goose.DefaultTablename + `') IS NOT NULL`
	if m.dialect == DialectSQLite {
		exists = `SELECT count(*) > 0 FROM sqlite_schema WHERE type = 'table' AND name = '` + goose.DefaultTablename + `'`
	}
	applied := make(map[int64]time.Time)
	var found bool
	if err := m.db.QueryRowContext(ctx, exists).Scan(&found); err != nil {
		return nil, fmt.Errorf("look for the table of migrations: %w", err)
	}
	if !found {
		return applied, nil
	}
	rows, err := m.db.QueryContext(ctx, `SELECT version_id, tstamp FROM `+goose.DefaultTablename+` WHERE version_id > 0`)
	if err != nil {
		return nil, fmt.Errorf("read the table of migrations: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var version int64
		var at time.Time
		if err := rows.Scan(&version, &at); err != nil {
			return nil, fmt.Errorf("read the table of migrations: %w", err)
		}
		applied[version] = at
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read the table of migrations: %w", err)
	}
	return applied, nil
}

// provider makes a fresh one for every call, because a provider tries only once in its life to create its table: one that failed for
// want of a connection would never work again.
func (m *Migrator) provider() (*goose.Provider, error) {
	dialect, option, err := m.engine()
	if err != nil {
		return nil, fmt.Errorf("set up migrations: %w", err)
	}
	provider, err := goose.NewProvider(dialect, m.db, m.files, option, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, fmt.Errorf("read migrations: %w", err)
	}
	return provider, nil
}

// engine returns what keeps two migrators on one database apart.
func (m *Migrator) engine() (goose.Dialect, goose.ProviderOption, error) {
	switch m.dialect {
	case DialectPostgres:
		// A try every second, for two minutes: longer than a migration should take, shorter than a deployment's patience. Tries, because
		// a session that waits inside pg_advisory_lock holds a snapshot, and CREATE INDEX CONCURRENTLY would wait for that in turn.
		locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 120))
		if err != nil {
			return "", nil, err
		}
		return goose.DialectPostgres, goose.WithSessionLocker(locker), nil
	case DialectSQLite:
		versions, err := database.NewStore(goose.DialectSQLite3, goose.DefaultTablename)
		if err != nil {
			return "", nil, err
		}
		return goose.DialectCustom, goose.WithStore(sqliteVersions{versions}), nil
	default:
		return "", nil, fmt.Errorf("unknown database dialect %q", m.dialect)
	}
}

// sqliteVersions is goose's table of versions with at most one row a version.
//
// Two processes may set out to apply the same migration. The second waits for the first's transaction and then fails, on what the first
// has created or at the latest on this table's key, and its own transaction leaves nothing behind. [Migrator.Up] sees that it was overtaken.
type sqliteVersions struct{ database.Store }

func (s sqliteVersions) CreateVersionTable(ctx context.Context, db database.DBTxConn) error {
	_, err := db.ExecContext(ctx, `CREATE TABLE `+s.Tablename()+` (
		id INTEGER PRIMARY KEY,
		version_id INTEGER NOT NULL UNIQUE,
		is_applied INTEGER NOT NULL,
		tstamp TIMESTAMP NOT NULL DEFAULT (datetime('now'))
	)`)
	return err
}

func resultNames(results []*goose.MigrationResult) []string {
	names := make([]string, 0, len(results))
	for _, r := range results {
		names = append(names, path.Base(r.Source.Path))
	}
	return names
}
