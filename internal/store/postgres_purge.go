package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idemstore/idemstore/internal/idem"
)

const (
	// pgSweepBlocks is how many blocks of a table one step looks at: some 400 entries, and a few milliseconds. Steps of 256 purge no
	// more a second, and made the 99th percentile of reserves beside them 1.15 and 1.55 of what it is without, where these make it 1.0.
	pgSweepBlocks = 64
	// pgPurgeBytes bounds the responses that one transaction deletes. A large one lies in pieces of 2 KB, each deleted for
	// itself: unbounded, a part full of bodies of 1 MB would take longer than a statement may.
	pgPurgeBytes = 64 << 20
)

// pgClaim takes the next blocks for this replica. It is a transaction of its own, so that replicas work side by side; the
// blocks of one that dies meanwhile wait for the next sweep.
const pgClaim = `
UPDATE sweep SET next = CASE WHEN was.next + $1 >= was.blocks THEN 0 ELSE was.next + $1 END
FROM (SELECT next, pg_relation_size('entries') / current_setting('block_size')::bigint AS blocks FROM sweep FOR UPDATE) AS was
RETURNING was.next, was.blocks`

// A table is swept by the place of its rows and not by an index on their time, which would cost every reserve and record
// (measured: a btree a fifth, and no HOT update).
const (
	pgPast       = `FROM entries WHERE ctid >= $1::text::tid AND ctid < $2::text::tid AND expires_at <= clock_timestamp() - $3::interval`
	pgPastEvents = `FROM events_default WHERE ctid >= $1::text::tid AND ctid < $2::text::tid AND at <= clock_timestamp() - $3::interval`
	pgOverdue    = `, coalesce(clock_timestamp() - $3::interval - min(%s), '0') `

	pgDoubtful = `SELECT task_id, attempt, clock_timestamp() - $3::interval - expires_at ` + pgPast + ` AND ` + sqlInDoubt
)

var (
	pgSweep          = pgDelete("entries", "expires_at", pgPast+` AND NOT (`+sqlInDoubt+`)`)
	pgSweepDry       = `SELECT count(*)` + fmt.Sprintf(pgOverdue, "expires_at") + `, 0 ` + pgPast + ` AND NOT (` + sqlInDoubt + `)`
	pgSweepEvents    = pgDelete("events_default", "at", pgPastEvents)
	pgSweepEventsDry = `SELECT count(*)` + fmt.Sprintf(pgOverdue, "at") + `, 0 ` + pgPastEvents
)

// pgDelete deletes of what is past its retention as much as $4 bytes of responses allow, at least one row. It tells how
// many rows went, for how long the first of them was overdue, and how many are left for another transaction.
//
// Rows that others hold are passed over: another purger deletes them, and whoever changes a row that is past its retention
// gives it a new life. What was changed since the statement began is judged anew before it is locked.
func pgDelete(table, at, past string) string {
	return `
WITH past AS MATERIALIZED (
    SELECT ctid, coalesce(octet_length(response_head), 0) + coalesce(octet_length(response_body), 0) AS size ` + past + ` FOR UPDATE SKIP LOCKED),
few AS (SELECT ctid, sum(size) OVER (ORDER BY ctid) - size AS before FROM past),
gone AS (DELETE FROM ` + table + ` WHERE ctid = ANY (ARRAY(SELECT ctid FROM few WHERE before < $4)) RETURNING ` + at + `)
SELECT count(*)` + fmt.Sprintf(pgOverdue, at) + `, (SELECT count(*) FROM few WHERE before >= $4) FROM gone`
}

// Sweep implements Backend.
func (p *Postgres) Sweep(ctx context.Context) (Swept, error) {
	var from, blocks int64
	_, err := p.send(ctx, pgClaim, []any{pgSweepBlocks}, func(rows pgx.Rows) error { return rows.Scan(&from, &blocks) })
	if err != nil {
		return Swept{}, err
	}
	return p.sweepPart(ctx, from, blocks, false)
}

// SweepFrom implements Backend. A place is a block of the table.
func (p *Postgres) SweepFrom(ctx context.Context, from int64, dry bool) (Swept, error) {
	blocks, err := p.blocks(ctx, "entries")
	if err != nil {
		return Swept{}, err
	}
	return p.sweepPart(ctx, from, blocks, dry)
}

// blocks is the size of a table.
func (p *Postgres) blocks(ctx context.Context, table string) (n int64, err error) {
	const sql = `SELECT pg_relation_size($1::text::regclass) / current_setting('block_size')::bigint`
	_, err = p.send(ctx, sql, []any{table}, func(rows pgx.Rows) error { return rows.Scan(&n) })
	return n, err
}

func (p *Postgres) sweepPart(ctx context.Context, from, blocks int64, dry bool) (swept Swept, err error) {
	swept.Steps = int(blocks/pgSweepBlocks) + 1
	if next := from + pgSweepBlocks; next < blocks {
		swept.Next = next
	}
	// Callers' time is the real one plus a shift, so what has ended for them is what will have for the database.
	past := -p.opts.shift()
	sql := pgSweep
	if dry {
		sql = pgSweepDry
	}
	if swept.Deleted, swept.Lag, err = p.deletePart(ctx, sql, from, past, dry); err != nil {
		return swept, err
	}
	_, err = p.send(ctx, pgDoubtful, pgPart(from, past), func(rows pgx.Rows) error {
		var k idem.Key
		var lag time.Duration
		err := rows.Scan(&k.TaskID, &k.Attempt, &lag)
		swept.InDoubt, swept.DoubtLag = append(swept.InDoubt, k), max(swept.DoubtLag, lag)
		return err
	})
	return swept, err
}

func pgPart(from int64, past time.Duration) []any {
	return []any{fmt.Sprintf("(%d,0)", from), fmt.Sprintf("(%d,0)", from+pgSweepBlocks), past}
}

// deletePart deletes what is past its retention in the blocks from one on, in as many transactions as that needs.
func (p *Postgres) deletePart(ctx context.Context, sql string, from int64, past time.Duration, dry bool) (deleted int, lag time.Duration, err error) {
	args := pgPart(from, past)
	if !dry {
		args = append(args, p.purgeBytes)
	}
	for left := 1; left > 0; {
		if ctx.Err() != nil {
			return deleted, lag, ctx.Err()
		}
		var n int
		var overdue time.Duration
		_, err = p.send(context.WithoutCancel(ctx), sql, args, func(rows pgx.Rows) error { return rows.Scan(&n, &overdue, &left) })
		if err != nil {
			return deleted, lag, err
		}
		deleted, lag = deleted+n, max(lag, overdue)
	}
	return deleted, lag, nil
}

// pgOldWeeks are the partitions of which every event is past its retention, oldest first, and for how long their first
// moment is.
const pgOldWeeks = `
SELECT c.relname, clock_timestamp() - $1::interval - w.monday
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid,
     LATERAL (SELECT CASE WHEN c.relname ~ '^events_\d{8}$' THEN to_date(right(c.relname, 8), 'YYYYMMDD')::timestamp AT TIME ZONE 'UTC' END AS monday) AS w
WHERE i.inhparent = 'events'::regclass AND w.monday + interval '168 hours' <= clock_timestamp() - $1::interval
ORDER BY c.relname`

// pgDropWeek drops a partition, whose name is one of pgOldWeeks. That locks the whole trail, and as long as it waits for
// somebody who reads, all who write wait behind it: so it gives up soon. (Where there is a default partition, none can be
// detached concurrently.)
//
// The trail's lock is taken before the partition is looked for. By itself the server finds the partition first and its parent
// then, and fails within where another replica has dropped it in between.
const pgDropWeek = `
DO $$ BEGIN SET LOCAL lock_timeout = '100ms'; LOCK TABLE ONLY events IN ACCESS EXCLUSIVE MODE; DROP TABLE %s; END $$`

// PurgeEvents implements Backend: whole weeks are dropped, which costs the same whatever is in them. What no week was
// made for lies in events_default, and is deleted from it.
func (p *Postgres) PurgeEvents(ctx context.Context, retention time.Duration, dry bool) (swept SweptEvents, err error) {
	past := retention - p.opts.shift()
	var weeks []string
	_, err = p.send(ctx, pgOldWeeks, []any{past}, func(rows pgx.Rows) error {
		var week string
		var lag time.Duration
		err := rows.Scan(&week, &lag)
		weeks, swept.WeeksLag = append(weeks, week), max(swept.WeeksLag, lag)
		return err
	})
	if err != nil {
		return swept, err
	}
	if swept.Weeks = weeks; !dry {
		if swept.Weeks, swept.Waiting, err = p.dropWeeks(ctx, weeks); err != nil {
			return swept, err
		}
	}
	blocks, err := p.blocks(ctx, "events_default")
	if err != nil {
		return swept, err
	}
	sql := pgSweepEvents
	if dry {
		sql = pgSweepEventsDry
	}
	for from := int64(0); from < blocks; from += pgSweepBlocks {
		deleted, lag, err := p.deletePart(ctx, sql, from, past, dry)
		swept.Deleted, swept.DeletedLag = swept.Deleted+deleted, max(swept.DeletedLag, lag)
		if err != nil {
			return swept, err
		}
	}
	return swept, nil
}

// dropWeeks drops partitions, and returns those that it dropped and those that are left. It gives up at the first that
// somebody uses: whoever reads the trail most often reads all of it.
func (p *Postgres) dropWeeks(ctx context.Context, weeks []string) (dropped, waiting []string, err error) {
	for i, week := range weeks {
		if ctx.Err() != nil {
			return dropped, weeks[i:], ctx.Err()
		}
		_, err := p.send(context.WithoutCancel(ctx), fmt.Sprintf(pgDropWeek, week), nil, ignore)
		var pgErr *pgconn.PgError
		code := ""
		if errors.As(err, &pgErr) {
			code = pgErr.Code
		}
		switch {
		case err == nil:
			dropped = append(dropped, week)
		case code == pgUndefinedTable: // another replica was faster
		case code == pgLockTimeout:
			return dropped, weeks[i:], nil
		default:
			return dropped, weeks[i:], err
		}
	}
	return dropped, nil, nil
}
