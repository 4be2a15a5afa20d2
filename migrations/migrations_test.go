package migrations_test

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"

	"github.com/idemstore/idemstore/migrations"
)

var engines = map[string]fs.FS{"postgres": migrations.Postgres, "sqlite": migrations.SQLite}

func TestEveryFileIsNumberedAndHasBothDirections(t *testing.T) {
	t.Parallel()
	name := regexp.MustCompile(`^\d{5}_[a-z0-9_]+\.sql$`)
	for engine, files := range engines {
		for file, text := range read(t, files) {
			if !name.MatchString(file) {
				t.Errorf("%s/%s: want a name like 00002_add_column.sql", engine, file)
			}
			for _, direction := range []string{"-- +goose Up", "-- +goose Down"} {
				if !strings.Contains(text, direction) {
					t.Errorf("%s/%s has no %q", engine, file, direction)
				}
			}
		}
	}
}

// Nobody waits behind an ALTER TABLE that waits for somebody who reads for long.
func TestPostgresAltersWithoutWaiting(t *testing.T) {
	t.Parallel()
	for name, text := range read(t, migrations.Postgres) {
		if strings.Contains(text, "\nALTER TABLE") && !strings.Contains(text, "SET LOCAL lock_timeout") {
			t.Errorf("postgres/%s alters a table without a lock_timeout", name)
		}
	}
}

// Two processes that migrate one SQLite file at once are told apart by the transaction around each migration.
func TestSQLiteMigratesInTransactions(t *testing.T) {
	t.Parallel()
	for file, text := range read(t, migrations.SQLite) {
		if strings.Contains(strings.ToUpper(text), "NO TRANSACTION") {
			t.Errorf("sqlite/%s must run in a transaction", file)
		}
	}
}

// read returns the text of every file by its name.
func read(t *testing.T, files fs.FS) map[string]string {
	t.Helper()
	names, err := fs.Glob(files, "*.sql")
	if err != nil || len(names) == 0 {
		t.Fatalf("no migrations: %v", err)
	}
	texts := make(map[string]string)
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = string(text)
	}
	return texts
}
