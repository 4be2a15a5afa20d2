// Package store keeps entries and the trail: in PostgreSQL for a fleet, in SQLite for one machine. Both pass one suite of tests.
//
// What a store promises is [idem.Store]. It compares and swaps, and decides nothing.
package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idemstore/idemstore/internal/idem"
)

// Backend is a store that is open.
type Backend interface {
	idem.Store
	idem.Reader

	// Upkeep does what has to be done every few days for the store to go on serving well. Any number of replicas may do it at once.
	Upkeep(ctx context.Context) error

	// Sweep goes on where the last sweep came to, which all replicas share, over a part of the entries, and deletes those
	// whose retention has ended. Keys in doubt stay, and are named.
	Sweep(ctx context.Context) (Swept, error)

	// SweepFrom does so from a place of the caller's choice: 0, or the Next of the part before. Dry, it changes nothing and
	// counts what it would delete. When the context ends it stops between two transactions, here as below.
	SweepFrom(ctx context.Context, from int64, dry bool) (Swept, error)

	// PurgeEvents deletes events that are older than this. On Postgres they go by the week, so some are kept a week longer.
	// Dry, it changes nothing and says what would go.
	PurgeEvents(ctx context.Context, retention time.Duration, dry bool) (SweptEvents, error)
}

// Options are what can be set beside the URL.
type Options struct {
	// MaxConns bounds the connections to Postgres. 0: what the URL says (pool_max_conns), or else the number of CPUs, at least 4.
	MaxConns int

	// Tracer is told what Postgres is asked; nil: nobody.
	Tracer pgx.QueryTracer

	// Existing: an SQLite database must be there, its schema the one that this program knows; else it is made and migrated.
	Existing bool

	// Shift moves the store's time, for tests that do not want to wait for a lease to pass. nil: not at all.
	Shift func() time.Duration
}

// CheckURL says what is wrong with a URL that no database needs to be asked about. No password is in the error.
func CheckURL(databaseURL string) error {
	if path, ok := strings.CutPrefix(databaseURL, "sqlite:"); ok {
		_, err := sqliteMigrationDSN(path)
		return err
	}
	_, err := poolConfig(databaseURL, "")
	return err
}

// Open opens the store at a URL: postgres://, postgresql://, sqlite:PATH or sqlite::memory:.
//
// A Postgres that cannot be reached now is no error: Ready tells, and the store serves as soon as it can. Its schema is
// [Migrator]'s business. An SQLite database is made and migrated here, unless it is to exist.
func Open(ctx context.Context, databaseURL string, opts Options) (Backend, error) {
	scheme, rest, _ := strings.Cut(databaseURL, ":")
	switch scheme {
	case "postgres", "postgresql":
		return openPostgres(ctx, databaseURL, opts)
	case "sqlite":
		return openSQLite(ctx, rest, opts)
	default:
		return nil, errors.New("database URL must begin with sqlite:, postgres:// or postgresql://")
	}
}

// compareKeys is the order in which rows are written.
func compareKeys(a, b idem.Key) int {
	return cmp.Or(strings.Compare(a.TaskID, b.TaskID), cmp.Compare(a.Attempt, b.Attempt))
}

// latestVersion is the schema version that the migrations lead to. Their names begin with it.
func latestVersion(files fs.FS) int64 {
	names, _ := fs.Glob(files, "*.sql") // the pattern is good
	var latest int64
	for _, name := range names {
		number, _, _ := strings.Cut(name, "_")
		version, _ := strconv.ParseInt(number, 10, 64)
		latest = max(latest, version)
	}
	return latest
}

func checkVersion(have, want int64) error {
	if have == want {
		return nil
	}
	cure := "idemstore migrate up brings it there"
	if have > want {
		cure = "it is a newer program's"
	}
	return fmt.Errorf("%w: the database has version %d and this program needs %d; %s", ErrSchema, have, want, cure)
}

// compatible says whether a program that knows one version goes on working with a later one; see package migrations.
func compatible(have, want int64) bool { return have >= want && have/1000 == want/1000 }

// notWritten says of an error that nothing was written.
func notWritten(err error) error { return unwritten{err} }

type unwritten struct{ error }

func (u unwritten) Error() string   { return idem.ErrNotWritten.Error() + ": " + u.error.Error() }
func (u unwritten) Unwrap() []error { return []error{idem.ErrNotWritten, u.error} }

// cause is what is to be told of an error where nobody asked whether anything was written.
func cause(err error) error {
	var u unwritten
	if errors.As(err, &u) {
		return u.error
	}
	return err
}

// shift is the time that a store's callers see beside the real one.
func (o Options) shift() time.Duration {
	if o.Shift == nil {
		return 0
	}
	return o.Shift()
}
