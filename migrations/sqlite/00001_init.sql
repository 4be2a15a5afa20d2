-- +goose Up

-- One row a key, as on Postgres, where the columns are explained. Times are microseconds since 1970, in UTC.
CREATE TABLE entries (
    task_id         TEXT    NOT NULL,
    attempt         INTEGER NOT NULL CHECK (attempt >= 0),
    version         INTEGER NOT NULL CHECK (version <> 0),
    state           TEXT    NOT NULL CHECK (state IN ('absent', 'reserved', 'dispatched', 'recorded', 'released')),
    reservation_id  TEXT    NOT NULL,
    owner           TEXT    NOT NULL,
    fence           INTEGER NOT NULL,
    handler         TEXT    NOT NULL,
    request_hash    TEXT    NOT NULL,
    explicit        INTEGER NOT NULL,
    task_scope      INTEGER NOT NULL,
    lease_seconds   INTEGER NOT NULL,
    reserved_at     INTEGER,
    lease_until     INTEGER,
    dispatched_at   INTEGER,
    recorded_at     INTEGER,
    recorded_by     TEXT,
    late            INTEGER NOT NULL,
    doubts          INTEGER NOT NULL,
    expires_at      INTEGER NOT NULL,
    more            TEXT,
    response_status INTEGER,
    response_head   BLOB,
    response_body   BLOB,

    PRIMARY KEY (task_id, attempt),

    CONSTRAINT entries_grant CHECK (
        CASE WHEN state = 'absent'
        THEN fence = 0 AND reserved_at IS NULL AND lease_until IS NULL AND dispatched_at IS NULL AND owner = '' AND reservation_id = ''
        ELSE fence > 0 AND reserved_at IS NOT NULL AND lease_until IS NOT NULL AND lease_until >= reserved_at AND expires_at >= reserved_at
        END),
    CONSTRAINT entries_dispatch CHECK (dispatched_at >= reserved_at AND (state <> 'dispatched' OR dispatched_at IS NOT NULL)),
    CONSTRAINT entries_record CHECK (
        (recorded_at IS NOT NULL) + (recorded_by IS NOT NULL) + (response_status IS NOT NULL) = CASE state WHEN 'recorded' THEN 3 ELSE 0 END
        AND (response_status IS NOT NULL OR response_body IS NULL) AND expires_at >= recorded_at)
) STRICT;

CREATE TABLE events (
    task_id         TEXT    NOT NULL,
    attempt         INTEGER NOT NULL,
    at              INTEGER NOT NULL,
    id              TEXT    NOT NULL,
    kind            TEXT    NOT NULL,
    fence           INTEGER NOT NULL,
    handler         TEXT    NOT NULL,
    owner           TEXT    NOT NULL,
    token           TEXT    NOT NULL,
    request_id      TEXT    NOT NULL,
    detail          TEXT,
    response_status INTEGER,
    response_head   BLOB,
    response_body   BLOB,

    PRIMARY KEY (task_id, at, id),

    CONSTRAINT events_response CHECK (response_status IS NOT NULL OR response_body IS NULL)
) STRICT;

-- +goose Down
DROP TABLE events;
DROP TABLE entries;
