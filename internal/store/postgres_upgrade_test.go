package store

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/internal/pgtest"
	"github.com/idemstore/idemstore/migrations"
)

// nextMigration is all that there is, and one more that adds.
func nextMigration(t *testing.T) fs.FS {
	t.Helper()
	files := fstest.MapFS{"00003_next.sql": {Data: []byte(`
-- +goose Up
SET LOCAL lock_timeout = '100ms';
ALTER TABLE entries ADD COLUMN next integer;
ALTER TABLE events ADD COLUMN next integer;
-- +goose Down
`)}}
	names, err := fs.Glob(migrations.Postgres, "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := fs.ReadFile(migrations.Postgres, name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = &fstest.MapFile{Data: text}
	}
	return files
}

// While somebody reads for long, as a dump does, a migration is tried again and again, and nobody waits behind it.
func TestPostgresMigrationLetsOthersPass(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.Direct(t, pgtest.New(t)) // what keeps migrations apart is a lock of the session's
	b, reader := openPG(t, databaseURL), session(t, databaseURL)
	if err := b.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	must(t, reader, `BEGIN`)
	must(t, reader, `SELECT FROM events`)
	m := openMigrator(t, databaseURL)
	m.files = nextMigration(t)
	done := make(chan error, 1)
	go func() {
		names, err := m.Up(t.Context())
		if got := strings.Join(names, " "); err == nil && got != "00003_next.sql" {
			t.Errorf("applied %s", got)
		}
		done <- err
	}()
	for begun := time.Now(); time.Since(begun) < 3*lockPause; { // time for some tries
		e := reserved(fresh())
		wantWritten(t, b, []idem.Change{over(nil, e, happened(e.Key, idem.EventReplayed))}, true)
	}
	select {
	case err := <-done:
		t.Fatalf("it did not wait for the reader: %v", err)
	default:
	}
	must(t, reader, `COMMIT`)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	e := reserved(fresh())
	wantWritten(t, b, []idem.Change{over(nil, e, happened(e.Key, idem.EventReplayed))}, true)
	if got := eventsOf(t, b, e.TaskID); len(got) != 1 {
		t.Errorf("%d events", len(got))
	}
}

// Who has served on its own schema goes on with a later one that only added to it; who starts does not.
func TestPostgresReadyDuringAnUpgrade(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.New(t)
	b, conn := openPG(t, databaseURL), session(t, databaseURL)
	if err := b.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	must(t, conn, `INSERT INTO goose_db_version (version_id, is_applied) VALUES (3, true)`)
	if err := b.Ready(t.Context()); err != nil {
		t.Errorf("with a later schema: %v", err)
	}
	wantNotReady(t, openPG(t, databaseURL), "version 3", "needs 2", "newer program")
	must(t, conn, `INSERT INTO goose_db_version (version_id, is_applied) VALUES (1000, true)`)
	wantNotReady(t, b, "version 1000", "needs 2")
	must(t, conn, `DELETE FROM goose_db_version WHERE version_id > 1`)
	wantNotReady(t, b, "version 1", "needs 2", "migrate up")
}
