// Package migrations holds the schema of each engine as goose files, so that the program carries them with it.
//
// A file that has been released is never edited: a database that has applied it will not apply it again. A change is a new file.
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
