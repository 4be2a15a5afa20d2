package pgtest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/idemstore/idemstore/migrations"
)

// clone creates a database with the schema in it.
func (s *server) clone(ctx context.Context) (string, error) {
	template, err := s.makeTemplate(ctx)
	if err != nil {
		return "", fmt.Errorf("prepare the template: %w", err)
	}
	return s.create(ctx, template)
}

// empty creates a database with nothing in it, not even what somebody has put into the server's template1.
func (s *server) empty(ctx context.Context) (string, error) { return s.create(ctx, "template0") }

func (s *server) create(ctx context.Context, template string) (string, error) {
	name := "idemstore_test_" + strings.ToLower(rand.Text())
	return name, execute(ctx, s.url, "CREATE DATABASE "+name+" TEMPLATE "+template)
}

func (s *server) drop(ctx context.Context, name string) error {
	return execute(ctx, s.url, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
}

// makeTemplate returns the name of a database that holds the schema, for others to be copied from.
//
// It is named after the migrations, so a changed schema gets another one and test processes that share a server share it too. They
// take turns at making it. The mark of a finished one is that Postgres is told that it is a template.
func (s *server) makeTemplate(ctx context.Context) (string, error) {
	s.template.Lock()
	defer s.template.Unlock()
	if s.ready != "" {
		return s.ready, nil
	}
	hash, err := hashFiles(migrations.Postgres)
	if err != nil {
		return "", err
	}
	name := "idemstore_template_" + hex.EncodeToString(hash[:8])

	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx) // and with it goes the lock
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", int64(binary.BigEndian.Uint64(hash[8:16]))); err != nil {
		return "", err
	}
	var finished bool
	err = conn.QueryRow(ctx, "SELECT datistemplate FROM pg_database WHERE datname = $1", name).Scan(&finished)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return "", err
	}
	if !finished {
		// One that is there all the same was left behind by a process that died while making it.
		for _, statement := range []string{"DROP DATABASE IF EXISTS " + name, "CREATE DATABASE " + name + " TEMPLATE template0"} {
			if _, err := conn.Exec(ctx, statement); err != nil {
				return "", err
			}
		}
		if err := migrate(ctx, databaseURL(s.url, name)); err != nil {
			return "", err
		}
		if _, err := conn.Exec(ctx, "ALTER DATABASE "+name+" IS_TEMPLATE true"); err != nil {
			return "", err
		}
	}
	s.ready = name
	return name, nil
}

// migrate does without the store's Migrator, so that the store's own tests can import this package.
func migrate(ctx context.Context, databaseURL string) error {
	config, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		return err
	}
	db := stdlib.OpenDB(*config)
	defer db.Close()
	provider, err := goose.NewProvider(goose.DialectPostgres, db, migrations.Postgres, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	_, err = provider.Up(ctx)
	return err
}

func hashFiles(files fs.FS) ([]byte, error) {
	hash := sha256.New()
	err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, path)
		hash.Write(fmt.Appendf(nil, "%s %d\n%s", path, len(text), text))
		return err
	})
	return hash.Sum(nil), err
}

// execute runs one statement on a connection of its own: nothing stays behind that a search for leaks would find.
func execute(ctx context.Context, databaseURL, statement string) error {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, statement)
	return err
}

// databaseURL is the URL of another database on the same server.
func databaseURL(server, name string) string {
	u, err := url.Parse(server)
	if err != nil {
		panic("pgtest: the server's URL was checked before: " + err.Error())
	}
	u.Path, u.RawPath = "/"+name, ""
	return u.String()
}
