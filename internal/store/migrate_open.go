package store

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "github.com/ncruces/go-sqlite3/driver" // registers "sqlite3"
)

// openForMigration opens the pool that a [Migrator] works on.
func openForMigration(databaseURL string) (*sql.DB, Dialect, error) {
	scheme, rest, _ := strings.Cut(databaseURL, ":")
	switch scheme {
	case "postgres", "postgresql":
		config, err := parsePostgresURL(databaseURL)
		if err != nil {
			return nil, "", err
		}
		config.RuntimeParams["timezone"] = "UTC" // goose's timestamps carry no zone
		return stdlib.OpenDB(*config), DialectPostgres, nil
	case "sqlite":
		dsn, err := sqliteMigrationDSN(rest)
		if err != nil {
			return nil, "", err
		}
		makePrivate(rest)
		db, err := sql.Open("sqlite3", dsn)
		if err != nil {
			return nil, "", fmt.Errorf("open SQLite database %q: %w", rest, err)
		}
		db.SetMaxOpenConns(1) // in memory, every connection is a database of its own
		return db, DialectSQLite, nil
	default:
		return nil, "", errors.New("database URL must begin with sqlite:, postgres:// or postgresql://")
	}
}

// parsePostgresURL is pgx.ParseConfig whose errors can be printed: none of them tells the password.
func parsePostgresURL(databaseURL string) (*pgx.ConnConfig, error) {
	u, err := url.Parse(databaseURL)
	if err != nil {
		// What is wrong is often the password itself, cut in two by a character that should have been escaped, so say nothing of it.
		return nil, errors.New("database URL is not a valid URL; want postgres://user:password@host:port/database, with / ? # @ % in the password percent-encoded")
	}
	if !pairsOnly(u.RawQuery) { // that would be quoted, and may be a part of a password
		return nil, errors.New("database URL: what follows the ? must be name=value pairs joined by &, with & ; = % in a value percent-encoded")
	}
	config, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		return nil, fmt.Errorf("database URL: %s", hidePassword(err.Error(), u))
	}
	return config, nil
}

// pairsOnly says whether a query is nothing but names with values.
func pairsOnly(query string) bool {
	for pair := range strings.SplitSeq(query, "&") {
		if pair != "" && !strings.Contains(pair, "=") {
			return false
		}
	}
	_, err := url.ParseQuery(query)
	return err == nil
}

// hidePassword blanks the URL's passwords, as they are and as they were written, in a text that may quote them.
func hidePassword(text string, u *url.URL) string {
	var secrets []string
	if password, ok := u.User.Password(); ok {
		_, written, _ := strings.Cut(u.User.String(), ":")
		secrets = append(secrets, password, written)
	}
	for _, name := range []string{"password", "sslpassword"} {
		for _, password := range u.Query()[name] {
			secrets = append(secrets, password, url.QueryEscape(password))
		}
	}
	for _, secret := range secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "xxxxx")
		}
	}
	return text
}

// sqliteMigrationDSN turns what follows "sqlite:" into what the driver wants.
func sqliteMigrationDSN(path string) (string, error) {
	switch {
	case path == "":
		return "", errors.New("database URL sqlite: needs a path, as in sqlite:idemstore.db or sqlite:/var/lib/idemstore/idemstore.db")
	case strings.HasPrefix(path, "//"):
		// Elsewhere sqlite:///x is a relative path, here it would be an absolute one: do not guess.
		return "", errors.New("database URL sqlite: takes a path and no host: write sqlite:relative/path or sqlite:/absolute/path")
	case path == sqliteInMemory:
		return "file::memory:?_pragma=busy_timeout(60000)", nil
	default:
		// Transactions begin immediate, so that two of them queue up instead of failing where they would upgrade a lock.
		// What SQLite puts beside the file is for whom the file is for.
		return sqliteFile(path) + "?_txlock=immediate&_pragma=busy_timeout(60000)&modeof=" +
			strings.ReplaceAll(url.QueryEscape(path), "+", "%20"), nil
	}
}

// makePrivate makes the file of a database where there is none, for its owner alone: all responses will be in it. Where it cannot,
// SQLite says why.
func makePrivate(path string) {
	if path == sqliteInMemory {
		return
	}
	if f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600); err == nil {
		_ = f.Close()
	}
}

// sqliteInMemory is what stands in the place of a path.
const sqliteInMemory = ":memory:"

func sqliteFile(path string) string { return "file:" + (&url.URL{Path: path}).EscapedPath() }
