package store

import (
	"regexp"
	"strconv"
)

// One statement serves every kind of change: an upsert by primary key, guarded by the version. A batch is arrays of one length, one for
// each column, so the text does not change with the size of the batch and is prepared once. Of its forms, those leave out what a batch
// does not have: events, or anything but events; and for a single change there are no arrays.

// pgBegin is sent before every statement, in the same round trip and the same transaction. It reads the time, by itself and first: so it
// is never later than what is then read or written, and an engine of many machines evaluates it on the one that was asked. And it asks
// whether this is a standby, which may be behind; see errStandby.
//
// Its settings end with the transaction (the "true"), so that they work through a pooler that gives each transaction another session.
// Without enable_seqscan=off a plan that was made while the table was nearly empty would read the whole table for each batch, until
// autovacuum looks at it: minutes, at tens of thousands of rows a second. Left to itself, the server plans a small batch anew each time,
// which costs as much as carrying it out. And a table that can only be read whole, as a small one without an index, would look so dear
// without a sequential scan that the server compiles the statement first.
const pgBegin = `
SELECT clock_timestamp(), pg_is_in_recovery(),
       set_config('lock_timeout', '1s', true),
       set_config('statement_timeout', '5s', true),
       set_config('enable_seqscan', 'off', true),
       set_config('jit', 'off', true),
       set_config('plan_cache_mode', 'force_generic_plan', true)`

// pgEntries writes entries and gives the keys of those that it wrote.
//
//   - "later" are the changes that must be alone and are not: a later attempt has a row.
//   - A change of a row that is not there (base NULL) is inserted, unless there is one: then no version equals NULL.
//   - A change of a row that is there meets it as a conflict. The version and the time are checked after the row's lock was got.
//   - Two things could still be inserted that must not be: the change of a row that is gone, and one whose time came while it waited for
//     another's insert of the same key, which then was rolled back. The division by zero undoes the whole batch; see Swap.
//   - The rows are locked in the order of the arrays, which is that of the keys, so two replicas never wait for each other. Nothing may
//     be joined to the arrays that could change it.
//   - A stored response is never changed. Keeping the old one where the record is the same spares writing a large body again.
const pgEntries = `
later AS (
    SELECT c.nth
    FROM (SELECT generate_subscripts($2::int[], 1) AS nth, unnest($6::text[]) AS alone, unnest($2::int[]) AS attempt) AS c
    JOIN entries e ON e.task_id = c.alone AND e.attempt > c.attempt
    WHERE e.task_id = ANY ($6::text[])
),
written AS (
    INSERT INTO entries AS e (
        task_id, attempt, version, swap_base, swap_before,
        state, reservation_id, owner, fence, handler, request_hash, explicit, task_scope, lease_seconds,
        reserved_at, lease_until, dispatched_at, recorded_at, recorded_by, late, doubts, expires_at, more,
        response_status, response_head, response_body)
    SELECT
        c.task_id, c.attempt, c.version, c.base, CASE WHEN c.base IS NOT NULL THEN c.before END,
        c.state::entry_state, c.reservation_id, c.owner, c.fence, c.handler, c.request_hash, c.explicit, c.task_scope, c.lease_seconds,
        c.reserved_at, c.lease_until, c.dispatched_at, c.recorded_at, c.recorded_by, c.late, c.doubts, c.expires_at, c.more::json,
        c.response_status, c.response_head, c.response_body
    FROM (SELECT
        generate_subscripts($2::int[], 1) AS nth,
        unnest($1::text[]) AS task_id, unnest($2::int[]) AS attempt, unnest($3::bigint[]) AS version, unnest($4::bigint[]) AS base,
        unnest($5::timestamptz[]) AS before, unnest($6::text[]) AS alone,
        unnest($7::text[]) AS state, unnest($8::text[]) AS reservation_id, unnest($9::text[]) AS owner, unnest($10::bigint[]) AS fence,
        unnest($11::text[]) AS handler, unnest($12::text[]) AS request_hash, unnest($13::bool[]) AS explicit,
        unnest($14::bool[]) AS task_scope, unnest($15::int[]) AS lease_seconds,
        unnest($16::timestamptz[]) AS reserved_at, unnest($17::timestamptz[]) AS lease_until, unnest($18::timestamptz[]) AS dispatched_at,
        unnest($19::timestamptz[]) AS recorded_at, unnest($20::text[]) AS recorded_by, unnest($21::bool[]) AS late,
        unnest($22::int[]) AS doubts, unnest($23::timestamptz[]) AS expires_at, unnest($24::text[]) AS more,
        unnest($25::int[]) AS response_status, unnest($26::bytea[]) AS response_head, unnest($27::bytea[]) AS response_body
    ) AS c
    WHERE clock_timestamp() < c.before AND c.nth NOT IN (SELECT nth FROM later)
    ON CONFLICT (task_id, attempt) DO UPDATE SET
        version = excluded.version, state = excluded.state,
        reservation_id = excluded.reservation_id, owner = excluded.owner, fence = excluded.fence, handler = excluded.handler,
        request_hash = excluded.request_hash, explicit = excluded.explicit, task_scope = excluded.task_scope,
        lease_seconds = excluded.lease_seconds, reserved_at = excluded.reserved_at, lease_until = excluded.lease_until,
        dispatched_at = excluded.dispatched_at, recorded_at = excluded.recorded_at, recorded_by = excluded.recorded_by,
        late = excluded.late, doubts = excluded.doubts, expires_at = excluded.expires_at, more = excluded.more,
        response_status = excluded.response_status,
        response_head = CASE WHEN e.recorded_at = excluded.recorded_at THEN e.response_head ELSE excluded.response_head END,
        response_body = CASE WHEN e.recorded_at = excluded.recorded_at THEN e.response_body ELSE excluded.response_body END
    WHERE e.version = excluded.swap_base AND clock_timestamp() < excluded.swap_before
    RETURNING e.task_id, e.attempt, 1 / (e.swap_base IS NULL AND clock_timestamp() < $28::timestamptz)::int AS sound
)`

// pgStanding gives the keys of unchanged entries that still are at the version that was decided upon. Nothing is locked: whoever changes
// one at this moment comes after.
const pgStanding = `
standing AS (
    SELECT e.task_id, e.attempt
    FROM entries e
    JOIN (SELECT
        unnest($1::text[]) AS task_id, unnest($2::int[]) AS attempt, unnest($3::bigint[]) AS base, unnest($4::timestamptz[]) AS before
    ) AS s ON s.task_id = e.task_id AND s.attempt = e.attempt
    WHERE e.task_id = ANY ($1::text[]) -- always found by the index, whatever the join
      AND e.version = s.base AND clock_timestamp() < s.before
)`

// pgEvents writes the events of the changes that were kept.
const pgEvents = `
told AS (
    INSERT INTO events (
        task_id, attempt, at, id, fence, kind, handler, owner, token, request_id, detail,
        response_status, response_head, response_body)
    SELECT
        v.task_id, v.attempt, v.at, v.id, v.fence, v.kind, v.handler, v.owner, v.token, v.request_id, v.detail::json,
        v.response_status, v.response_head, v.response_body
    FROM (SELECT
        unnest($5::text[]) AS task_id, unnest($6::int[]) AS attempt, unnest($7::timestamptz[]) AS at, unnest($8::uuid[]) AS id,
        unnest($9::bigint[]) AS fence, unnest($10::text[]) AS kind, unnest($11::text[]) AS handler, unnest($12::text[]) AS owner,
        unnest($13::text[]) AS token, unnest($14::text[]) AS request_id, unnest($15::text[]) AS detail,
        unnest($16::int[]) AS response_status, unnest($17::bytea[]) AS response_head, unnest($18::bytea[]) AS response_body
    ) AS v
    JOIN kept ON kept.task_id = v.task_id AND kept.attempt = v.attempt
)`

const pgKept = `
SELECT task_id, attempt FROM `

var (
	// pgSwapEntries: changes without events, which is the happy path.
	pgSwapEntries = "WITH" + pgEntries + pgKept + "written"
	// pgSwapOne: one change without events, its values as they are and not in arrays: a lone caller waits for each microsecond.
	pgSwapOne = scalar(pgSwapEntries)
	// pgSwapEvents: only events, of entries that stay as they are. These are replays.
	pgSwapEvents = "WITH" + pgStanding + ", kept AS MATERIALIZED (SELECT * FROM standing)," + pgEvents + pgKept + "kept"
	// pgSwapBoth: everything.
	pgSwapBoth = "WITH" + pgEntries + "," + renumber(pgStanding, 28) +
		", kept AS MATERIALIZED (SELECT task_id, attempt FROM written UNION ALL SELECT * FROM standing)," +
		renumber(pgEvents, 28) + pgKept + "kept"
)

// renumber makes room for so many parameters before those of a piece of SQL.
func renumber(sql string, by int) string {
	return regexp.MustCompile(`\$\d+`).ReplaceAllStringFunc(sql, func(s string) string {
		n, _ := strconv.Atoi(s[1:])
		return "$" + strconv.Itoa(n+by)
	})
}

// scalar makes the statement for one change of that for arrays of them.
func scalar(sql string) string {
	sql = regexp.MustCompile(`generate_subscripts\([^)]*\)`).ReplaceAllString(sql, "1")
	return regexp.MustCompile(`(?:unnest|ANY )\((\$\d+::\w+)\[\]\)`).ReplaceAllString(sql, "$1")
}

// pgLoad reads every attempt of the tasks $1, and the responses of the keys ($2, $3).
const pgLoad = `
SELECT e.task_id, e.attempt, e.version,
       e.state::text, e.reservation_id, e.owner, e.fence, e.handler, e.request_hash, e.explicit, e.task_scope, e.lease_seconds,
       e.reserved_at, e.lease_until, e.dispatched_at, e.recorded_at, e.recorded_by, e.late, e.expires_at, e.more::text,
       e.response_status, asked.attempt IS NULL,
       CASE WHEN asked.attempt IS NOT NULL THEN e.response_head END,
       CASE WHEN asked.attempt IS NOT NULL THEN e.response_body END
FROM entries e
LEFT JOIN unnest($2::text[], $3::int[]) AS asked (task_id, attempt) ON asked.task_id = e.task_id AND asked.attempt = e.attempt
WHERE e.task_id = ANY ($1::text[])`

// pgMissing gives those of the keys that have no row.
const pgMissing = `
SELECT c.task_id, c.attempt
FROM unnest($1::text[], $2::int[]) AS c (task_id, attempt)
LEFT JOIN (SELECT task_id, attempt FROM entries WHERE task_id = ANY ($1::text[])) AS e ON e.task_id = c.task_id AND e.attempt = c.attempt
WHERE e.task_id IS NULL`

const pgReady = `
SELECT current_setting('transaction_read_only')::bool, (SELECT coalesce(max(version_id), 0) FROM goose_db_version)`

// pgMakePartition makes the partition for the events of the week that is so far ahead.
const pgMakePartition = `SELECT make_event_partitions(clock_timestamp() + $1::interval, 1)`
