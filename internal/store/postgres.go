package store

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/migrations"
)

const (
	pgConnectTimeout = 3 * time.Second // unless the URL says connect_timeout
	// pgPatience bounds a whole call where the server's own timeouts cannot: nobody answers, or a commit waits for a standby.
	pgPatience = 10 * time.Second
	// pgWeeksAhead is how far ahead there are partitions for events, as the migration made them.
	pgWeeksAhead = 27
)

// Postgres is the store in PostgreSQL. Any number of replicas may use one database.
//
// Nothing in it is bound to a session, so it works through a pooler in transaction mode, such as PgBouncer. One that knows no prepared
// statements wants default_query_exec_mode=cache_describe (or exec) in the URL; without, statements are prepared, which is fastest.
type Postgres struct {
	pool       *pgxpool.Pool
	opts       Options
	questions  *pgQuestions
	purgeBytes int64       // pgPurgeBytes, but in tests
	met        atomic.Bool // the schema that this program knows
	reader
}

func openPostgres(ctx context.Context, databaseURL string, opts Options) (*Postgres, error) {
	config, err := poolConfig(databaseURL, "idemstore")
	if err != nil {
		return nil, err
	}
	if opts.MaxConns > 0 {
		config.MaxConns = int32(opts.MaxConns)
	}
	config.ConnConfig.Tracer = opts.Tracer
	config.AfterConnect = registerColumns
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	questions, err := openQuestions(ctx, databaseURL, opts)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &Postgres{
		pool: pool, opts: opts, questions: questions, purgeBytes: pgPurgeBytes, reader: newReader(questions),
	}, nil
}

// poolConfig is what a URL says, for a pool that calls itself by a name where the URL does not.
func poolConfig(databaseURL, name string) (*pgxpool.Config, error) {
	if _, err := parsePostgresURL(databaseURL); err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil { // one of the pool's own settings
		u, parseErr := url.Parse(databaseURL)
		if parseErr != nil {
			return nil, errors.New("database URL is not a valid URL")
		}
		return nil, fmt.Errorf("database URL: %s", hidePassword(err.Error(), u))
	}
	conn := config.ConnConfig
	if conn.ConnectTimeout == 0 || conn.ConnectTimeout > time.Minute { // not said in the URL
		conn.ConnectTimeout = pgConnectTimeout
	}
	if conn.RuntimeParams["application_name"] == "" {
		conn.RuntimeParams["application_name"] = name
	}
	config.PingTimeout = time.Second // a connection that is dead must leave time to take another
	return config, nil
}

// Close implements idem.Store.
func (p *Postgres) Close() {
	p.questions.pool.Close()
	p.pool.Close()
}

// Ready implements idem.Store.
func (p *Postgres) Ready(ctx context.Context) error {
	var readOnly bool
	var have int64
	_, err := p.send(ctx, pgReady, nil, func(rows pgx.Rows) error { return rows.Scan(&readOnly, &have) })
	var pgErr *pgconn.PgError
	switch {
	case errors.As(err, &pgErr) && pgErr.Code == pgUndefinedTable:
		have = 0 // never migrated
	case err != nil:
		return fmt.Errorf("reach the database: %w", cause(err))
	case readOnly:
		p.pool.Reset() // another host of the URL may take writes
		return errors.New("the database is read-only")
	}
	// Whoever starts must meet its own schema. Once it has, it goes on with a later one that is compatible: the schema is migrated before
	// the next version of the program is started, and until then this one has to serve.
	want := latestVersion(migrations.Postgres)
	if p.met.Load() && compatible(have, want) {
		return nil
	}
	err = checkVersion(have, want)
	p.met.CompareAndSwap(false, err == nil)
	return err
}

// Upkeep makes the partitions for the events of the coming weeks, where they are missing: the next week first, and each by
// itself, because whoever writes to events_default waits while it is searched for events of that week.
//
// A week of which events_default holds events, as after the service was off for half a year, stays there; those that follow
// are made all the same. PurgeEvents deletes from events_default too, so nothing stays for ever.
func (p *Postgres) Upkeep(ctx context.Context) error {
	for week := range pgWeeksAhead {
		ahead := p.opts.shift() + time.Duration(week)*7*24*time.Hour
		if _, err := p.send(ctx, pgMakePartition, []any{ahead}, ignore); err != nil {
			return fmt.Errorf("make room for the events of the coming weeks: %w", cause(err))
		}
	}
	return nil
}

// send sends one statement behind pgBegin, as one transaction in one round trip, and gives each row to read. It returns the time that
// callers see. Without a statement it only tells the time.
func (p *Postgres) send(ctx context.Context, sql string, args []any, read func(pgx.Rows) error) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, pgPatience)
	defer cancel()
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		return time.Time{}, notWritten(err)
	}
	defer conn.Release()

	var batch pgx.Batch
	batch.Queue(pgBegin)
	if sql != "" {
		batch.Queue(sql, args...)
	}
	results := conn.SendBatch(ctx, &batch)
	var now time.Time
	var standby bool
	err = results.QueryRow().Scan(&now, &standby, nil, nil, nil, nil, nil)
	if err == nil && standby {
		err = errStandby
	}
	completed := false
	if err == nil && sql != "" {
		completed, err = readRows(results, read)
	}
	// What was sent is committed when the server is ready for more, not when the statement has completed: only Close sees that.
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return time.Time{}, p.fault(ctx, conn, completed, err)
	}
	return now.UTC().Add(p.opts.shift()), nil
}

// readRows says whether the statement came to its end.
func readRows(results pgx.BatchResults, read func(pgx.Rows) error) (completed bool, err error) {
	rows, err := results.Query()
	if err != nil {
		return false, err
	}
	defer rows.Close()
	for rows.Next() {
		if err := read(rows); err != nil {
			return true, err // a fault of ours: what the statement did is not known
		}
	}
	return rows.Err() == nil, rows.Err()
}

func ignore(pgx.Rows) error { return nil }

// errStandby is of a server that only follows another, and to which a connection may lead all the same: a proxy or a pooler keeps its
// clients when the server behind it is exchanged. Such a server takes no writes, and what it does not know may have been recorded.
var errStandby = errors.New("the server is a standby")

// fault sorts out what a failed call leaves behind.
func (p *Postgres) fault(ctx context.Context, conn *pgxpool.Conn, completed bool, err error) error {
	var pgErr *pgconn.PgError
	standby := errors.Is(err, errStandby)
	if standby || errors.As(err, &pgErr) && pgErr.Code == pgReadOnly {
		giveUp(ctx, p.pool, conn)
	}
	if standby || certainlyNotWritten(err, completed) {
		return notWritten(err)
	}
	return err
}

// giveUp closes a connection to a server that takes no writes, and has all others of its pool closed, so that new ones find the primary.
func giveUp(ctx context.Context, pool *pgxpool.Pool, conn *pgxpool.Conn) {
	_ = conn.Conn().Close(ctx)
	pool.Reset()
}

// Codes that mean something to this store.
const (
	pgReadOnly       = "25006" // read_only_sql_transaction
	pgUndefinedTable = "42P01"
	pgDivisionByZero = "22012"
	pgLockTimeout    = "55P03" // lock_not_available
	pgAdminShutdown  = "57P01"
	pgCrashShutdown  = "57P02"
	pgCannotConnect  = "57P03"
)

// certainlyNotWritten says whether an error means that the transaction left nothing behind. A statement that has completed is committed or
// not by the time that a session ends: nobody knows.
func certainlyNotWritten(err error, completed bool) bool {
	var pgErr *pgconn.PgError
	var preparing pgx.ErrPreprocessingBatch
	switch {
	case errors.As(err, &preparing):
		return true // it was never sent
	case errors.As(err, &pgErr):
	default:
		return pgconn.SafeToRetry(err)
	}
	switch {
	case pgErr.Code[:2] == "08", pgErr.Code == "40003", pgErr.Code == "XXA00":
		return false // connection lost, completion unknown: said by a pooler, or by an engine of many machines, of another's connection
	case pgErr.SeverityUnlocalized == "ERROR" || pgErr.SeverityUnlocalized == "" && pgErr.Severity == "ERROR":
		return true // the transaction was rolled back
	case completed:
		return false
	}
	// The session ended. Only these are known to be the server's own.
	return pgErr.Code == pgAdminShutdown || pgErr.Code == pgCrashShutdown || pgErr.Code == pgCannotConnect
}

var _ idem.Store = (*Postgres)(nil)
