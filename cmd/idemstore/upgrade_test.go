package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idemstore/idemstore/internal/pgtest"
)

// The schema is migrated before the next version of the program is started, and until then this one serves as if nothing was: no call
// fails, and no replica says that it is not ready.
func TestLaterSchemaUnderLoad(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	f := newFleet(t, url)
	asked := f.question()
	conn, err := pgx.Connect(t.Context(), pgtest.Direct(t, url))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), `SET lock_timeout = '100ms'`); err != nil { // as migrations do
		t.Fatal(err)
	}
	for i := range 3 {
		for _, table := range []string{"entries", "events", "sweep"} {
			alter := fmt.Sprintf(`ALTER TABLE %s ADD COLUMN later%d integer DEFAULT 7`, table, i)
			eventually(t, alter, func() bool {
				_, err := conn.Exec(t.Context(), alter)
				return err == nil
			})
			f.flows(20)
		}
		if _, err := conn.Exec(t.Context(), `INSERT INTO goose_db_version (version_id, is_applied) VALUES ($1, true)`, 3+i); err != nil {
			t.Fatal(err)
		}
		f.flows(20)
	}
	f.stop()
	asked()
	f.judge(pgtest.Direct(t, url))
	f.neverFailed(http.StatusOK)
	_, stderr, code := output(t, []string{"IDEMSTORE_DATABASE_URL=" + url}, "serve", "--listen", "127.0.0.1:0", "--metrics-listen", "")
	if code != exitFailed || !strings.Contains(stderr, "version 5") || !strings.Contains(stderr, "needs 2") {
		t.Errorf("a new start: exit %d: %s", code, stderr)
	}
}

// The newest migration is taken back and applied again, by the program itself, without a call that fails. In between no replica is ready.
func TestMigrateUnderLoad(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	f := newFleet(t, url)
	asked := f.question()
	env := []string{"IDEMSTORE_DATABASE_URL=" + pgtest.Direct(t, url)}
	for _, direction := range []string{"down", "up"} {
		if stdout, stderr, code := output(t, env, "migrate", direction); code != exitOK {
			t.Fatalf("migrate %s: exit %d: %s%s", direction, code, stdout, stderr)
		}
		f.flows(50)
	}
	f.recovers(back)
	f.stop()
	asked()
	f.judge(pgtest.Direct(t, url))
	f.neverFailed(http.StatusOK, http.StatusServiceUnavailable)
}

// question has each replica asked all that operators ask, until the returned function is called.
func (f *fleet) question() (end func()) {
	stop := make(chan struct{})
	var asking sync.WaitGroup
	for _, p := range f.replicas {
		asking.Go(func() {
			for {
				for _, path := range []string{"/v1/entries?limit=5", "/v1/entries?state=recorded&limit=5", "/v1/events?limit=5", "/v1/stats", "/v1/tasks/" + f.name + "-1"} {
					select {
					case <-stop:
						return
					case <-time.After(10 * time.Millisecond):
					}
					if a := send("GET", p.url+path, "", ""); a.err != nil || a.status != http.StatusOK {
						f.t.Errorf("%s: %d %v %v", path, a.status, a.body, a.err)
					}
				}
				ready := send("GET", p.url+"/readyz", "", "").status
				f.mu.Lock()
				f.ready[ready]++
				f.mu.Unlock()
			}
		})
	}
	return func() { close(stop); asking.Wait() }
}

// neverFailed says that no call of a worker's failed, and that /readyz gave these statuses alone.
func (f *fleet) neverFailed(ready ...int) {
	f.t.Helper()
	for status := range f.statuses {
		if status >= http.StatusInternalServerError {
			f.t.Errorf("%d calls were answered %d", f.statuses[status], status)
		}
	}
	for _, status := range ready {
		delete(f.ready, status)
	}
	if len(f.ready) > 0 {
		f.t.Errorf("/readyz: %v", f.ready)
	}
}
