package store

// The changes of a batch are written one by one: what costs is the commit, which they share.

// sqliteInsert and sqliteUpdate have the same parameters up to ?24, so that they are bound in one way.
const sqliteInsert = `
INSERT INTO entries (
    task_id, attempt, version, state, reservation_id, owner, fence, handler, request_hash, explicit, task_scope, lease_seconds,
    reserved_at, lease_until, dispatched_at, recorded_at, recorded_by, late, doubts, expires_at, more,
    response_status, response_head, response_body)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24)
ON CONFLICT (task_id, attempt) DO NOTHING`

// sqliteUpdate never changes a stored response: it takes that of the row where the record is the same.
const sqliteUpdate = `
UPDATE entries SET
    version = ?3, state = ?4, reservation_id = ?5, owner = ?6, fence = ?7, handler = ?8, request_hash = ?9,
    explicit = ?10, task_scope = ?11, lease_seconds = ?12, reserved_at = ?13, lease_until = ?14, dispatched_at = ?15,
    recorded_at = ?16, recorded_by = ?17, late = ?18, doubts = ?19, expires_at = ?20, more = ?21,
    response_status = ?22,
    response_head = CASE WHEN recorded_at = ?16 THEN response_head ELSE ?23 END,
    response_body = CASE WHEN recorded_at = ?16 THEN response_body ELSE ?24 END
WHERE task_id = ?1 AND attempt = ?2 AND version = ?25`

const sqliteLater = `SELECT 1 FROM entries WHERE task_id = ?1 AND attempt > ?2 LIMIT 1`

const sqliteStanding = `SELECT 1 FROM entries WHERE task_id = ?1 AND attempt = ?2 AND version = ?3`

const sqliteEvent = `
INSERT INTO events (
    task_id, attempt, at, id, fence, kind, handler, owner, token, request_id, detail, response_status, response_head, response_body)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)`

// sqliteLoad reads every attempt of the task ?1, and the responses of those attempts that stand in ?2, a list like ",0,3,".
const sqliteLoad = `
SELECT
    attempt, version, state, reservation_id, owner, fence, handler, request_hash, explicit, task_scope, lease_seconds,
    reserved_at, lease_until, dispatched_at, recorded_at, recorded_by, late, expires_at, more, response_status,
    asked, CASE WHEN asked THEN response_head END, CASE WHEN asked THEN response_body END
FROM (SELECT *, instr(?2, ',' || attempt || ',') > 0 AS asked FROM entries WHERE task_id = ?1)`
