// Package migrations holds the schema of each engine as goose files, so that the program carries them with it.
//
// A file that has been released is never edited: a database that has applied it will not apply it again. A change is a new file.
// A program that runs goes on while a migration adds to its schema, and until the next version is started in its place. So a migration only
// adds: no column, type or name that the version before uses goes or changes. One that must do otherwise takes the next thousand as its
// number (01000, 02000): with it, programs that only know an earlier one say that they are not ready.
//
// On Postgres, what alters a table has everybody wait who comes after it, for as long as it waits itself for who came before. So such a
// migration begins with SET LOCAL lock_timeout = '100ms', and is tried again.
//
// SQLite's files must not say "NO TRANSACTION": there the transaction is what makes two migrations at once safe.
package migrations

import (
	"embed"
	"io/fs"
)

//go:embed postgres/*.sql sqlite/*.sql
var files embed.FS

var (
	// Postgres are the migrations for PostgreSQL.
	Postgres = sub("postgres")
	// SQLite are the migrations for SQLite.
	SQLite = sub("sqlite")
)

func sub(folder string) fs.FS {
	fsys, err := fs.Sub(files, folder)
	if err != nil { // only a name that is not a valid path can fail
		panic(err)
	}
	return fsys
}
