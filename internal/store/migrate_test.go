package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/idemstore/idemstore/internal/pgtest"
)

// onEveryEngine runs a test on an empty database of each engine.
func onEveryEngine(t *testing.T, test func(t *testing.T, url string)) {
	t.Helper()
	t.Run("postgres", func(t *testing.T) { t.Parallel(); test(t, pgtest.Empty(t)) })
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, "sqlite:"+filepath.Join(t.TempDir(), "a name?with 100%.db"))
	})
}

// threeMigrations are slow enough, and enough of them, for migrators to get into each other's way.
var threeMigrations = fstest.MapFS{
	"00001_one.sql": {Data: []byte("-- +goose Up\nCREATE TABLE one (n integer);\nINSERT INTO one VALUES (1);\n-- +goose Down\nDROP TABLE one;\n")},
	// Nothing in this one fails the second time but the version itself.
	"00002_two.sql":   {Data: []byte("-- +goose Up\nUPDATE one SET n = n + 1;\n-- +goose Down\nUPDATE one SET n = n - 1;\n")},
	"00003_three.sql": {Data: []byte("-- +goose Up\nCREATE TABLE three (n integer);\n-- +goose Down\nDROP TABLE three;\n")},
}

func TestMigrateUpAndDown(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, url string) {
		m := openMigrator(t, url)
		m.files = threeMigrations

		wantVersion(t, m, 0, 3)
		if got := tablesOf(t, m); got != "" {
			t.Errorf("a question made tables: %s", got)
		}
		if _, err := m.Down(t.Context()); !errors.Is(err, ErrNothingToRollBack) {
			t.Errorf("Down on an empty database: %v", err)
		}
		wantUp(t, m, "00001_one.sql 00002_two.sql 00003_three.sql")
		wantVersion(t, m, 3, 3)
		wantUp(t, m, "")
		if name, err := m.Down(t.Context()); name != "00003_three.sql" || err != nil {
			t.Errorf("Down: %q, %v", name, err)
		}
		wantVersion(t, m, 2, 3)
		status, err := m.Status(t.Context())
		if err != nil || len(status) != 3 || status[1].Pending() || !status[2].Pending() || status[2].Name != "00003_three.sql" {
			t.Errorf("Status: %+v, %v", status, err)
		}
		wantUp(t, m, "00003_three.sql")
	})
}

// The migrations that the program carries go all the way up and down and up again.
func TestMigrateForReal(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, url string) {
		m := openMigrator(t, url)
		if _, err := m.Up(t.Context()); err != nil {
			t.Fatal(err)
		}
		before := tablesOf(t, m)
		for {
			if _, err := m.Down(t.Context()); errors.Is(err, ErrNothingToRollBack) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if got := tablesOf(t, m); strings.Trim(got, " ") != "goose_db_version" {
			t.Errorf("left after rolling everything back: %s", got)
		}
		if _, err := m.Up(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := tablesOf(t, m); got != before {
			t.Errorf("second time up made %s, the first %s", got, before)
		}
	})
}

func TestMigrateReplicasAtOnce(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, url string) {
		m := openMigrator(t, url)
		m.files = threeMigrations
		upAtOnce(t, url, 6)
		wantVersion(t, m, 3, 3)

		// Again, now that making the table of versions does not keep them apart.
		for range threeMigrations {
			if _, err := m.Down(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		upAtOnce(t, url, 3)
		wantVersion(t, m, 3, 3)

		var n int
		if err := m.db.QueryRowContext(t.Context(), "SELECT n FROM one").Scan(&n); err != nil || n != 2 {
			t.Errorf("the second migration left %d, %v; want 2", n, err)
		}
	})
}

// upAtOnce has a number of replicas migrate the same database, and all of them succeed with every migration applied once.
func upAtOnce(t *testing.T, url string, replicas int) {
	t.Helper()
	var group sync.WaitGroup
	var mu sync.Mutex
	applied := make(map[string]int)
	start := make(chan struct{})
	for range replicas {
		m := openMigrator(t, url)
		m.files = threeMigrations
		group.Go(func() {
			<-start
			names, err := m.Up(t.Context())
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, name := range names {
				applied[name]++
			}
		})
	}
	close(start)
	group.Wait()
	if got := fmt.Sprint(applied); got != "map[00001_one.sql:1 00002_two.sql:1 00003_three.sql:1]" {
		t.Errorf("applied: %s", got)
	}
}

func TestMigrateLeavesAMigratedDatabaseAlone(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, url string) {
		m := openMigrator(t, url)
		if _, err := m.Up(t.Context()); err != nil {
			t.Fatal(err)
		}
		readOnly := "SET default_transaction_read_only = on"
		if m.dialect == DialectSQLite {
			readOnly = "PRAGMA query_only = on"
		}
		m.db.SetMaxOpenConns(1) // so that the setting is on the one that Up uses
		if _, err := m.db.ExecContext(t.Context(), readOnly); err != nil {
			t.Fatal(err)
		}
		wantUp(t, m, "")
	})
}

func TestMigrateFailureIsRolledBackAndNamed(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, url string) {
		m := openMigrator(t, url)
		m.files = fstest.MapFS{
			"00001_one.sql": threeMigrations["00001_one.sql"],
			"00002_bad.sql": {Data: []byte("-- +goose Up\nCREATE TABLE half (n integer);\nINSERT INTO nowhere VALUES (1);\n-- +goose Down\nDROP TABLE half;\n")},
		}
		names, err := m.Up(t.Context())
		if fmt.Sprint(names) != "[00001_one.sql]" || err == nil || !strings.Contains(err.Error(), "apply migration 00002_bad.sql") {
			t.Errorf("Up: %v, %v", names, err)
		}
		if got := tablesOf(t, m); strings.Contains(got, "half") {
			t.Errorf("half a migration stays: %s", got)
		}
		m.files = threeMigrations // mended
		wantUp(t, m, "00002_two.sql 00003_three.sql")
	})
}

func TestMigrateOlderProgramThanDatabase(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, url string) {
		m := openMigrator(t, url)
		m.files = threeMigrations
		wantUp(t, m, "00001_one.sql 00002_two.sql 00003_three.sql")
		m.files = fstest.MapFS{"00001_one.sql": threeMigrations["00001_one.sql"]}
		wantUp(t, m, "")
		wantVersion(t, m, 3, 1)
	})
}

func TestMigrateAnOpenDatabaseInMemory(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite3", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	m := NewMigrator(db, DialectSQLite)
	if names, err := m.Up(t.Context()); len(names) == 0 || err != nil {
		t.Fatalf("Up: %v, %v", names, err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if err := db.PingContext(t.Context()); err != nil {
		t.Errorf("the migrator closed a database that is not its own: %v", err)
	}
	openMigrator(t, "sqlite::memory:")
}

func TestMigrateRefusesAnUnknownDialect(t *testing.T) {
	t.Parallel()
	if _, err := NewMigrator(new(sql.DB), "oracle").Up(t.Context()); err == nil || !strings.Contains(err.Error(), "oracle") {
		t.Errorf("Up: %v", err)
	}
}

func TestOpenMigratorErrorsKeepThePassword(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"", "mysql://u:secret@127.0.0.1/db", "u:secret@127.0.0.1/db", "sqlite:", "sqlite:///secret.db",
		"postgres://u:secret@127.0.0.1:1/db",                                        // nobody listens
		"postgres://u:secret@127.0.0.1:none/db",                                     // no port
		"postgres://u:pass/secret@127.0.0.1/db",                                     // cut in two by what should be escaped
		"postgres://u:%zzsecret@127.0.0.1/db",                                       // no escape
		"postgres://u:secret@127.0.0.1/db?sslmode=secret",                           // a setting that is refused
		"postgres://127.0.0.1/db?user=u&password=secret&connect_timeout=secret",     // a password among the settings
		"postgres://u:s%65cret@127.0.0.1/db?sslmode=verify-full&sslrootcert=secret", // a file that is not there
		"sqlite:" + filepath.Join(t.TempDir(), "none", "x.db"),                      // no such folder
	} {
		m, err := OpenMigrator(t.Context(), url)
		if err == nil {
			_ = m.Close()
			t.Errorf("%q opens", url)
		} else if strings.Contains(err.Error(), "secret") && !strings.HasPrefix(url, "sqlite:") {
			t.Errorf("the error for %q tells the password: %v", url, err)
		}
	}
}

func openMigrator(t *testing.T, url string) *Migrator {
	t.Helper()
	m, err := OpenMigrator(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func wantUp(t *testing.T, m *Migrator, want string) {
	t.Helper()
	names, err := m.Up(t.Context())
	if got := strings.Join(names, " "); got != want || err != nil {
		t.Errorf("Up applied %q, %v; want %q", got, err, want)
	}
}

func wantVersion(t *testing.T, m *Migrator, wantHave, wantWant int64) {
	t.Helper()
	have, want, err := m.Version(t.Context())
	if have != wantHave || want != wantWant || err != nil {
		t.Errorf("Version: %d of %d, %v; want %d of %d", have, want, err, wantHave, wantWant)
	}
}

// tablesOf lists the tables of a database, but for SQLite's own.
func tablesOf(t *testing.T, m *Migrator) string {
	t.Helper()
	list := `SELECT coalesce(string_agg(tablename, ' ' ORDER BY tablename), '') FROM pg_tables WHERE schemaname = 'public'`
	if m.dialect == DialectSQLite {
		list = `SELECT coalesce(group_concat(name, ' '), '') FROM (SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name)`
	}
	var names string
	if err := m.db.QueryRowContext(context.WithoutCancel(t.Context()), list).Scan(&names); err != nil {
		t.Error(err)
	}
	return names
}
