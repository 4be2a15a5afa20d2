package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/ncruces/go-sqlite3"

	"github.com/idemstore/idemstore/internal/idem"
)

func openLite(t *testing.T, path string) *SQLite {
	t.Helper()
	return openTest(t, "sqlite:"+path, new(atomic.Int64)).(*SQLite)
}

// run executes a statement on the store's connection.
func (s *SQLite) run(t *testing.T, sql string) {
	t.Helper()
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if err := s.conn.Exec(sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func TestSQLiteCannotBeOpened(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("this is no database\n", 500)), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, word := range map[string]string{
		filepath.Join(dir, "missing", "x.db"): "no such file",
		text:                                  "not a database",
		dir:                                   "unable to open",
		"":                                    "needs a path",
		"//host/x.db":                         "takes a path and no host",
	} {
		_, err := Open(t.Context(), "sqlite:"+path, Options{})
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("sqlite:%s: %v does not say %q", path, err, word)
		}
	}
}

// What was committed is there when the file is opened again, by a path of any kind.
func TestSQLiteFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a b?c#d%20e;ü.db")
	first := openLite(t, path)
	e := recorded(reserved(fresh()), responses["every byte"])
	swap(t, first, over(nil, e))
	first.Close()
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	wantEntry(t, loadOne(t, openLite(t, path), e.Key), e)
}

func TestSQLiteIsDurable(t *testing.T) {
	t.Parallel()
	s := openLite(t, filepath.Join(t.TempDir(), "x.db"))
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2"} {
		stmt, _, err := s.conn.Prepare("PRAGMA " + pragma)
		if err != nil || !stmt.Step() || stmt.ColumnText(0) != want {
			t.Errorf("%s is not %s: %v", pragma, want, err)
		}
		_ = stmt.Close()
	}
}

// Two processes on one file (here, two stores) see each other's changes, and wait for each other.
func TestSQLiteTwoOnOneFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.db")
	stores := []*SQLite{openLite(t, path), openLite(t, path)}
	e := reserved(fresh())
	swap(t, stores[0], over(nil, e))
	wantEntry(t, loadOne(t, stores[1], e.Key), e)
	wantWritten(t, stores[1], []idem.Change{over(nil, reserved(e.Key))}, false)

	var all sync.WaitGroup
	wins := make([]atomic.Int64, 50)
	tasks := make([]string, len(wins))
	for i := range tasks {
		tasks[i] = uuid.NewString()
	}
	for _, s := range stores {
		for range 3 {
			all.Go(func() {
				for i := range wins {
					written, _, err := s.Swap(context.Background(), []idem.Change{over(nil, reserved(idem.Key{TaskID: tasks[i]}))})
					if err != nil {
						t.Error(err)
						return
					}
					if written[0] {
						wins[i].Add(1)
					}
				}
			})
		}
	}
	all.Wait()
	for i := range wins {
		if n := wins[i].Load(); n != 1 {
			t.Errorf("key %d was granted %d times", i, n)
		}
	}
}

// Another's transaction that does not end is an error that wrote nothing, and so is a caller's own end while it waits.
func TestSQLiteFileStaysLocked(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.db")
	s, other := openLite(t, path), openLite(t, path)
	s.run(t, `PRAGMA busy_timeout = 50`)
	other.run(t, `BEGIN IMMEDIATE`)
	change := over(nil, reserved(fresh()))
	if _, _, err := s.Swap(t.Context(), []idem.Change{change}); !errors.Is(err, idem.ErrNotWritten) || !errors.Is(err, sqlite3.BUSY) {
		t.Errorf("got %v, want %v because it is busy", err, idem.ErrNotWritten)
	}
	s.run(t, `PRAGMA busy_timeout = 60000`)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := s.Swap(ctx, []idem.Change{change}); !errors.Is(err, idem.ErrNotWritten) {
		t.Errorf("got %v, want %v", err, idem.ErrNotWritten)
	}
	other.run(t, `ROLLBACK`)
	wantWritten(t, s, []idem.Change{change}, true)
}

func TestSQLiteReadOnly(t *testing.T) {
	t.Parallel()
	s := openLite(t, filepath.Join(t.TempDir(), "x.db"))
	e := reserved(fresh())
	swap(t, s, over(nil, e))
	s.run(t, `PRAGMA query_only = on`)
	if _, _, err := s.Swap(t.Context(), []idem.Change{over(nil, reserved(fresh()))}); !errors.Is(err, idem.ErrNotWritten) {
		t.Errorf("got %v, want %v", err, idem.ErrNotWritten)
	}
	wantEntry(t, loadOne(t, s, e.Key), e)
	s.run(t, `PRAGMA query_only = off`)
	swap(t, s, over(nil, reserved(fresh())))
}

func TestSQLiteReady(t *testing.T) {
	t.Parallel()
	s := openLite(t, ":memory:")
	s.run(t, `INSERT INTO goose_db_version (version_id, is_applied, tstamp) VALUES (99, 1, datetime('now'))`)
	wantNotReady(t, s, "version 99", "needs 2")
}

func TestSQLiteIsFull(t *testing.T) {
	t.Parallel()
	s := openLite(t, filepath.Join(t.TempDir(), "x.db"))
	s.run(t, `PRAGMA max_page_count = 200`)
	testFull(t, s, func() { s.run(t, `PRAGMA max_page_count = 100000`) })
}

// testFull fills a store. What does not fit is refused, whole, and the store goes on as soon as there is room.
func testFull(t *testing.T, s *SQLite, makeRoom func()) {
	t.Helper()
	var kept []*idem.Entry
	var err error
	body := &idem.Response{Status: 200, HasBody: true, Body: []byte(strings.Repeat("x", 100_000))}
	for i := 0; err == nil && i < 1000; i++ {
		e := recorded(reserved(fresh()), body)
		if _, _, err = s.Swap(t.Context(), []idem.Change{over(nil, e)}); err == nil {
			kept = append(kept, e)
		}
	}
	if !errors.Is(err, idem.ErrNotWritten) || !errors.Is(err, sqlite3.FULL) && !errors.Is(err, sqlite3.IOERR_WRITE) {
		t.Fatalf("after %d: got %v, want %v because it is full", len(kept), err, idem.ErrNotWritten)
	}
	large, small := recorded(reserved(fresh()), body), reserved(fresh())
	changes := []idem.Change{over(nil, small, happened(small.Key, idem.EventReplayed)), over(nil, large)}
	for range 3 {
		if _, _, err := s.Swap(t.Context(), changes); !errors.Is(err, idem.ErrNotWritten) {
			t.Fatalf("still full: got %v, want %v", err, idem.ErrNotWritten)
		}
		if got := load(t, s, small.Key, large.Key); len(got) > 0 || len(eventsOf(t, s, small.TaskID)) > 0 {
			t.Fatalf("half of it was written: %+v", got)
		}
	}
	makeRoom()
	wantWritten(t, s, changes, true, true)
	for _, e := range append(kept, small, large) {
		wantEntry(t, loadOne(t, s, e.Key), e)
	}
}

// The clock may be set back; time does not run backwards.
func TestSQLiteTimeIsMonotone(t *testing.T) {
	t.Parallel()
	s := openLite(t, ":memory:")
	ahead := now(t, s).Add(time.Minute)
	s.last = ahead // as if the clock had been set back by a minute since
	if got := now(t, s); got.Before(ahead) {
		t.Errorf("the time went from %v to %v", ahead, got)
	}
}

// A database's files are for its owner alone, whichever command makes them; one that was there keeps the mode that it had.
func TestSQLiteFilesArePrivate(t *testing.T) {
	t.Parallel()
	for name, make1 := range map[string]func(t *testing.T, path string){
		"serve": func(t *testing.T, path string) {
			b, err := Open(t.Context(), "sqlite:"+path, Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(b.Close)
		},
		"migrate": func(t *testing.T, path string) {
			m, err := OpenMigrator(t.Context(), "sqlite:"+path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = m.Close() })
			if _, err := m.Up(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		for before, want := range map[os.FileMode]os.FileMode{0: 0o600, 0o640: 0o640} {
			dir := t.TempDir()
			path := filepath.Join(dir, "a database?&#%.db")
			if before != 0 {
				if err := errors.Join(os.WriteFile(path, nil, before), os.Chmod(path, before)); err != nil {
					t.Fatal(err)
				}
			}
			make1(t, path)
			files, err := os.ReadDir(dir)
			if err != nil || len(files) == 0 {
				t.Fatal(files, err)
			}
			for _, f := range files {
				info, err := f.Info()
				if err != nil {
					t.Fatal(err)
				}
				if strings.HasSuffix(f.Name(), "-shm") {
					continue // where in the WAL which page is, and nothing of what is on it
				}
				if got := info.Mode().Perm(); got != want {
					t.Errorf("%s: %s has the mode %o, want %o", name, f.Name(), got, want)
				}
			}
		}
	}
}
