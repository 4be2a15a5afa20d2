package pgtest

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestMain(m *testing.M) { Main(m) }

func TestEveryDatabaseIsFreshAndGoesAway(t *testing.T) {
	t.Parallel()
	var first string
	var forgotten *pgx.Conn
	used := t.Run("use", func(t *testing.T) {
		first = New(t)
		second := New(t)
		mustExec(t, first, "INSERT INTO entries SELECT * FROM entries") // the schema is there
		mustExec(t, first, "CREATE TABLE mine ()")
		if got := tables(t, second); strings.Contains(got, "mine") {
			t.Errorf("the second database has the first one's table: %s", got)
		}
		// A test that forgets a connection must not keep its database alive.
		var err error
		if forgotten, err = pgx.Connect(t.Context(), first); err != nil {
			t.Fatal(err)
		}
	})
	if !used {
		return
	}
	if err := forgotten.Ping(t.Context()); err == nil {
		t.Error("a connection outlives its database")
	}
	if err := execute(t.Context(), first, "SELECT 1"); err == nil {
		t.Error("the database is still there after its test")
	}
}

func TestEmpty(t *testing.T) {
	t.Parallel()
	if got := tables(t, Empty(t)); got != "" {
		t.Errorf("tables in an empty database: %s", got)
	}
}

func TestTemplateIsMadeOnce(t *testing.T) {
	t.Parallel()
	instance := Server(t)
	admin := instance.postmaster.url()

	// What a process leaves that dies half way through: a database of the right name that nobody finished.
	hash, err := (&server{url: admin}).makeTemplate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mustExec(t, admin, "ALTER DATABASE "+hash+" IS_TEMPLATE false")
	mustExec(t, databaseURL(admin, hash), "DROP TABLE entries")

	var group sync.WaitGroup
	for range 6 { // as many processes
		group.Go(func() {
			s := &server{url: admin}
			name, err := s.clone(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			if got := tables(t, databaseURL(admin, name)); !strings.Contains(got, "entries") {
				t.Errorf("a copy of an unfinished template: %q", got)
			}
		})
	}
	group.Wait()
	before := query(t, admin, "SELECT string_agg(oid::text, ' ') FROM pg_database WHERE datistemplate")
	if _, err := (&server{url: admin}).clone(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := query(t, admin, "SELECT string_agg(oid::text, ' ') FROM pg_database WHERE datistemplate"); after != before {
		t.Errorf("templates changed from %s to %s", before, after)
	}
}

func TestServerComesBackWithItsData(t *testing.T) {
	t.Parallel()
	instance := Server(t)
	mustExec(t, instance.URL(), "CREATE TABLE kept ()")
	for _, end := range []func() error{instance.Stop, instance.Kill, instance.Stop} {
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if err := execute(t.Context(), instance.URL(), "SELECT 1"); err == nil {
			t.Fatal("a stopped server answers")
		}
		if err := instance.Start(); err != nil {
			t.Fatal(err)
		}
		if got := tables(t, instance.URL()); !strings.Contains(got, "entries") || !strings.Contains(got, "kept") {
			t.Errorf("tables after a restart: %s", got)
		}
	}
	if got := query(t, instance.URL(), "SHOW fsync"); got != "on" {
		t.Errorf("fsync is %s", got)
	}
	if log, err := instance.Log(); err != nil || strings.Count(string(log), "database system is ready") != 4 {
		t.Errorf("the log of four lives: %v\n%s", err, log)
	}
}

func TestWithoutMain(t *testing.T) {
	t.Parallel()
	out, err := rerun(t, "TestHelperUses", "PGTEST_HELPER=no-main").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "pgtest.Main(m)") {
		t.Errorf("want a failure that tells how to write TestMain, got %v\n%s", err, out)
	}
}

// TestHelperUses is what the tests above run in a process of its own.
func TestHelperUses(t *testing.T) { //nolint:paralleltest // it is alone in its process
	switch os.Getenv("PGTEST_HELPER") {
	case "no-main":
		shared.promised.Store(false)
		New(t)
	case "wait":
		p, err := newPostmaster(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("\nserver %d %s\n", p.os.Pid, p.dir) //nolint:forbidigo // to the test that started this process
		select {}
	}
}

func rerun(t *testing.T, test string, environment ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+test+"$", "-test.v")
	cmd.Env = append(os.Environ(), environment...)
	return cmd
}

func tables(t *testing.T, url string) string {
	t.Helper()
	return query(t, url, "SELECT coalesce(string_agg(tablename, ' '), '') FROM pg_tables WHERE schemaname = 'public'")
}

func query(t *testing.T, url, statement string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer conn.Close(t.Context())
	var answer string
	if err := conn.QueryRow(t.Context(), statement).Scan(&answer); err != nil {
		t.Error(err)
	}
	return answer
}

func mustExec(t *testing.T, url, statement string) {
	t.Helper()
	if err := execute(t.Context(), url, statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}
