-- +goose Up

CREATE TYPE entry_state AS ENUM ('absent', 'reserved', 'dispatched', 'recorded', 'released');

-- One row a key. A change is written only over the version that it was decided upon, so nothing is locked while one thinks.
--
-- Reserve inserts a row of some 290 bytes, record makes it some 830 and moves it: that a key is open no longer is told by an index, so this
-- is no HOT update, and nor is dispatch. Renew is one, where the page has room. Measured at fillfactors of 20, 60 and 100, by reserve and record over
-- HTTP: the same rate and WAL (1.6 KB a pair), and 1025, 910 and 875 bytes a row.
CREATE TABLE entries (
    -- Fixed width first: such rows are smaller and quicker to read.
    version         bigint      NOT NULL, -- 0 means "no row" to those who decide
    fence           bigint      NOT NULL,
    expires_at      timestamptz NOT NULL,
    attempt         integer     NOT NULL,
    lease_seconds   integer     NOT NULL,
    doubts          integer     NOT NULL, -- how many inherited ones stand; the holder of a lapsed lease is one more
    state           entry_state NOT NULL,
    explicit        boolean     NOT NULL,
    task_scope      boolean     NOT NULL,
    late            boolean     NOT NULL,

    -- The key and the current grant. '' is "none": a record without a reservation has no id, and few name a handler.
    task_id         text COLLATE "C" NOT NULL,
    reservation_id  text COLLATE "C" NOT NULL,
    owner           text        NOT NULL,
    handler         text        NOT NULL,
    request_hash    text        NOT NULL,
    reserved_at     timestamptz,
    lease_until     timestamptz,
    dispatched_at   timestamptz,

    recorded_at     timestamptz,
    recorded_by     text,

    -- The response, byte for byte. A body that is NULL is none, one of length 0 is an empty one. The head holds the headers, or the digest and
    -- size of a body that was too large to keep, each text preceded by its length: header values may hold bytes that text and json cannot.
    response_status integer,
    response_head   bytea,
    response_body   bytea,

    -- What the happy path never has: earlier grants, spent reservations, remembered refusals and the like. It is json and not jsonb, which
    -- cannot hold the escape \u0000.
    more            json,

    -- Always NULL. A change brings what it was decided upon in these, for its ON CONFLICT to see.
    swap_base       bigint,
    swap_before     timestamptz,

    PRIMARY KEY (task_id, attempt),

    -- Rows that cannot be. Every statement reads these expressions anew, so they are few and short.
    CONSTRAINT entries_key CHECK (attempt >= 0 AND version <> 0),
    CONSTRAINT entries_grant CHECK (
        CASE WHEN state = 'absent' -- such a row only remembers refusals
        THEN fence = 0 AND num_nonnulls(reserved_at, lease_until, dispatched_at) = 0 AND owner = '' AND reservation_id = ''
        ELSE fence > 0 AND num_nonnulls(reserved_at, lease_until) = 2 AND lease_until >= reserved_at AND expires_at >= reserved_at
        END),
    CONSTRAINT entries_dispatch CHECK (dispatched_at >= reserved_at AND (state <> 'dispatched' OR dispatched_at IS NOT NULL)),
    CONSTRAINT entries_record CHECK (
        num_nonnulls(recorded_at, recorded_by, response_status) = CASE state WHEN 'recorded' THEN 3 ELSE 0 END
        AND (response_status IS NOT NULL OR response_body IS NULL) AND expires_at >= recorded_at)
) WITH (fillfactor = 60);

-- Bodies from some 2 KB on are compressed. With JSON of 3 and 16 KB, lz4 took 14 and 32 % more a second than the server's usual pglz and
-- came to the same size, half of what they are uncompressed, which was no quicker. A server that was built without it keeps pglz.
-- +goose StatementBegin
DO $$ BEGIN
    ALTER TABLE entries ALTER COLUMN response_body SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN NULL;
END $$;
-- +goose StatementEnd

-- Where the purge has come to, in blocks of entries, for all replicas.
CREATE TABLE sweep (next bigint NOT NULL);
CREATE UNIQUE INDEX sweep_one ON sweep ((true));
INSERT INTO sweep VALUES (0);

-- The trail: only ever added to, and dropped by the week. The key begins with task_id, so that it can be spread over machines by it.
CREATE TABLE events (
    at              timestamptz NOT NULL,
    id              uuid        NOT NULL, -- grows with time, and keeps apart what happened at the same moment
    fence           bigint      NOT NULL,
    attempt         integer     NOT NULL,
    task_id         text COLLATE "C" NOT NULL,
    kind            text COLLATE "C" NOT NULL,
    handler         text        NOT NULL,
    owner           text        NOT NULL, -- who acted, by its own word
    token           text        NOT NULL, -- who acted, by its token
    request_id      text        NOT NULL,
    detail          json,
    response_status integer, -- evidence, kept as a recorded response is
    response_head   bytea,
    response_body   bytea,

    PRIMARY KEY (task_id, at, id),
    CONSTRAINT events_response CHECK (response_status IS NOT NULL OR response_body IS NULL)
) PARTITION BY RANGE (at);

-- Takes what no week was made for: an event is never refused.
CREATE TABLE events_default PARTITION OF events DEFAULT;

-- Makes the partitions of the week of "from" and of those that follow, where they are missing, and returns how many it made.
--
-- A partition is made beside the table and then attached, because that lets others go on writing. A week of which events_default holds
-- events already stays there. Two callers take turns: the lock is the one that attaching takes anyway.
-- +goose StatementBegin
CREATE FUNCTION make_event_partitions(since timestamptz, weeks integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    week timestamp := date_trunc('week', since AT TIME ZONE 'UTC'); -- Monday, whatever the session's time zone
    part text;
    made integer := 0;
BEGIN
    FOR i IN 1..weeks LOOP
        part := 'events_' || to_char(week, 'YYYYMMDD');
        IF to_regclass(part) IS NULL THEN
            LOCK TABLE events IN SHARE UPDATE EXCLUSIVE MODE;
            IF to_regclass(part) IS NULL THEN
                BEGIN
                    EXECUTE format('CREATE TABLE %I (LIKE events INCLUDING ALL)', part);
                    EXECUTE format('ALTER TABLE events ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                        part, to_char(week, 'YYYY-MM-DD') || ' 00:00+00', to_char(week + interval '7 days', 'YYYY-MM-DD') || ' 00:00+00');
                    made := made + 1;
                EXCEPTION WHEN check_violation THEN
                    NULL;
                END;
            END IF;
        END IF;
        week := week + interval '7 days';
    END LOOP;
    RETURN made;
END
$$;
-- +goose StatementEnd

SELECT make_event_partitions(now(), 27);

-- +goose Down
DROP FUNCTION make_event_partitions(timestamptz, integer);
DROP TABLE events;
DROP TABLE sweep;
DROP TABLE entries;
DROP TYPE entry_state;
