-- +goose Up

-- Indexes for operators, as on Postgres, where they are explained.
CREATE INDEX entries_reserved ON entries (reserved_at, task_id, attempt);
CREATE INDEX entries_open ON entries (reserved_at, task_id, attempt) WHERE state IN ('reserved', 'dispatched') OR doubts > 0;
CREATE INDEX events_at ON events (at, id);
CREATE INDEX events_kind ON events (kind, at, id) WHERE kind <> 'replayed';

-- +goose Down
DROP INDEX events_kind;
DROP INDEX events_at;
DROP INDEX entries_open;
DROP INDEX entries_reserved;
