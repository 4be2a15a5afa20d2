package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
)

// pgReadConns is how many questions are answered at a time. Others wait, and take nothing from the hot path.
const pgReadConns = 4

// pgRead is to questions what pgBegin is to the hot path. Each is planned for what it asks: never by reading a whole table, sorting nothing
// that an index has in order, and on one processor.
const pgRead = `
SELECT clock_timestamp(), pg_is_in_recovery(),
       set_config('transaction_read_only', 'on', true),
       set_config('statement_timeout', $1, true),
       set_config('enable_seqscan', 'off', true),
       set_config('enable_sort', 'off', true),
       set_config('jit', 'off', true),
       set_config('max_parallel_workers_per_gather', '0', true),
       set_config('plan_cache_mode', 'force_custom_plan', true)`

const pgQueryCanceled = "57014" // by statement_timeout, or by us

// pgQuestions asks Postgres what operators ask.
type pgQuestions struct {
	pool  *pgxpool.Pool
	opts  Options
	bound time.Duration
}

func openQuestions(ctx context.Context, databaseURL string, opts Options) (*pgQuestions, error) {
	config, err := poolConfig(databaseURL, "idemstore-read")
	if err != nil {
		return nil, err
	}
	config.MaxConns, config.MinConns, config.MinIdleConns = pgReadConns, 0, 0
	config.ConnConfig.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler { return &pgCancel{conn: c} }
	config.ConnConfig.Tracer = opts.Tracer
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	return &pgQuestions{pool: pool, opts: opts, bound: readTime}, nil
}

// pgCancel has the server drop a question when its context ends: who hangs up leaves none behind.
//
// It stays until the other side has closed the connection that brought the request. pgx's own handler leaves as soon as the question has
// ended, and a PgBouncer that loses the one who cancels at that moment falls over, with everybody's connections (seen with 1.18).
type pgCancel struct {
	conn *pgconn.PgConn
	told chan struct{}
}

// HandleCancel implements ctxwatch.Handler.
func (c *pgCancel) HandleCancel(context.Context) {
	told := make(chan struct{})
	c.told = told
	_ = c.conn.Conn().SetDeadline(time.Now().Add(time.Second))
	go func() {
		defer close(told)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.conn.CancelRequest(ctx)
	}()
}

// HandleUnwatchAfterCancel implements ctxwatch.Handler.
func (c *pgCancel) HandleUnwatchAfterCancel() {
	<-c.told
	_ = c.conn.Conn().SetDeadline(time.Time{})
}

func (p *pgQuestions) dialect() dialect {
	return dialect{param: "$", uuid: "::uuid", size: "pg_column_size", sums: true}
}

// ask implements asker, in one round trip and one transaction.
func (p *pgQuestions) ask(ctx context.Context, s statement, read func(scanner) error) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, p.bound+time.Second) // the server's own bound comes first
	defer cancel()
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		return time.Time{}, unanswered(err, false)
	}
	defer conn.Release()

	var batch pgx.Batch
	batch.Queue(pgRead, strconv.FormatInt(p.bound.Milliseconds(), 10))
	if s.sql != "" {
		batch.Queue(s.sql, s.args...)
	}
	results := conn.SendBatch(ctx, &batch)
	var now time.Time
	var standby bool
	err = results.QueryRow().Scan(&now, &standby, nil, nil, nil, nil, nil, nil, nil)
	if err == nil && standby {
		err = errStandby
	}
	if err == nil && batch.Len() > 1 {
		_, err = readRows(results, func(rows pgx.Rows) error { return read(rows) })
	}
	if errors.Is(err, errEnough) {
		err = nil
	}
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		if errors.Is(err, errStandby) {
			giveUp(ctx, p.pool, conn)
		}
		if ctx.Err() != nil {
			err = ctx.Err()
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			_ = conn.Conn().Close(closing) // a late cancel must not meet the next question
			cancel()
		}
		var pgErr *pgconn.PgError
		slow := errors.As(err, &pgErr) && pgErr.Code == pgQueryCanceled || errors.Is(err, context.DeadlineExceeded)
		return time.Time{}, unanswered(err, slow)
	}
	return now.UTC().Add(p.opts.shift()), nil
}
