package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idemstore/idemstore/internal/idem"
)

// pgSweepBlocks is how many blocks of the table one step looks at: some 1,500 rows, and some ten milliseconds.
const pgSweepBlocks = 256

// pgClaim takes the next blocks for this replica. It is a transaction of its own, so that replicas work side by side; the
// blocks of one that dies meanwhile wait for the next sweep.
const pgClaim = `
UPDATE sweep SET next = CASE WHEN was.next + $1 >= was.blocks THEN 0 ELSE was.next + $1 END
FROM (SELECT next, pg_relation_size('entries') / current_setting('block_size')::bigint AS blocks FROM sweep FOR UPDATE) AS was
RETURNING was.next, was.blocks`

// The table is swept by the place of its rows and not by an index on expires_at, which would cost every reserve and
// record (measured: a btree a fifth, and no HOT update).
//
// Rows that others hold are passed over: whoever changes a row that is past its retention gives it a new life.
const (
	pgPast = `FROM entries WHERE ctid >= $1::text::tid AND ctid < $2::text::tid AND expires_at <= clock_timestamp() - $3::interval`

	pgSweep = `
WITH past AS MATERIALIZED (SELECT ctid ` + pgPast + ` AND NOT (` + sqlInDoubt + `) FOR UPDATE SKIP LOCKED),
gone AS (DELETE FROM entries WHERE ctid = ANY (ARRAY(SELECT ctid FROM past)) RETURNING expires_at)
SELECT count(*), coalesce(clock_timestamp() - $3::interval - min(expires_at), '0') FROM gone`

	pgSweepInDoubt = `SELECT task_id, attempt ` + pgPast + ` AND ` + sqlInDoubt
)

// Sweep implements Backend.
func (p *Postgres) Sweep(ctx context.Context) (Swept, error) {
	var swept Swept
	var next, blocks int64
	_, err := p.send(ctx, pgClaim, []any{pgSweepBlocks}, func(rows pgx.Rows) error { return rows.Scan(&next, &blocks) })
	if err != nil {
		return swept, err
	}
	swept.Steps = int(blocks/pgSweepBlocks) + 1
	// Callers' time is the real one plus a shift, so what has ended for them is what will have for the database.
	part := []any{fmt.Sprintf("(%d,0)", next), fmt.Sprintf("(%d,0)", next+pgSweepBlocks), -p.opts.shift()}
	_, err = p.send(ctx, pgSweep, part, func(rows pgx.Rows) error { return rows.Scan(&swept.Deleted, &swept.Lag) })
	if err != nil {
		return swept, err
	}
	_, err = p.send(ctx, pgSweepInDoubt, part, func(rows pgx.Rows) error {
		var k idem.Key
		defer func() { swept.InDoubt = append(swept.InDoubt, k) }()
		return rows.Scan(&k.TaskID, &k.Attempt)
	})
	return swept, err
}

// pgOldWeeks are the partitions of which every event is past its retention, by their names.
const pgOldWeeks = `
SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = 'events'::regclass AND c.relname ~ '^events_\d{8}$'
  AND (to_date(right(c.relname, 8), 'YYYYMMDD') + 7)::timestamp AT TIME ZONE 'UTC' <= clock_timestamp() - $1::interval`

// PurgeEvents implements Backend: whole weeks are dropped, which costs the same whatever is in them.
func (p *Postgres) PurgeEvents(ctx context.Context, retention time.Duration) error {
	retention -= p.opts.shift()
	var weeks []string
	_, err := p.send(ctx, pgOldWeeks, []any{retention}, func(rows pgx.Rows) error {
		var week string
		defer func() { weeks = append(weeks, week) }()
		return rows.Scan(&week)
	})
	for i := 0; err == nil && i < len(weeks); i++ {
		_, err = p.send(ctx, "DROP TABLE IF EXISTS "+pgx.Identifier{weeks[i]}.Sanitize(), nil, ignore)
	}
	if err == nil { // what no week was made for
		_, err = p.send(ctx, "DELETE FROM events_default WHERE at < clock_timestamp() - $1::interval", []any{retention}, ignore)
	}
	return err
}
