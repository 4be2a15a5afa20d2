package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/idemstore/idemstore/internal/pgtest"
)

// back is how soon a replica must take keys once there is a primary again: a call that hangs is given up after 10 seconds.
const back = 15 * time.Second

// The primary is killed and its synchronous standby promoted: nothing that was acknowledged is lost, nothing is granted twice, and the
// replicas find the new primary by themselves.
func TestFailover(t *testing.T) {
	t.Parallel()
	primary := pgtest.Server(t)
	standby := primary.Standby(t)
	f := newFleet(t, hosts(t, primary.DirectURL(), standby.DirectURL()))
	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "no replica is ready", func() bool {
		for _, p := range f.replicas {
			if send("GET", p.url+"/readyz", "", "").status != http.StatusServiceUnavailable {
				return false
			}
		}
		return true
	})
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.recovers(back)
	f.flows(100)
	f.stop()
	f.judge(standby.DirectURL())
}

// A switchover behind poolers: the old primary comes back as a standby under its address, where the replicas' connections still lead. They
// are given up, those of the operators' questions too.
func TestSwitchoverBehindPoolers(t *testing.T) {
	t.Parallel()
	old := pgtest.Server(t)
	standby := old.Standby(t)
	oldPooler, newPooler := old.PoolerURL(t), standby.PoolerURL(t)
	f := newFleet(t, hosts(t, oldPooler, newPooler))
	for _, p := range f.replicas { // and has a connection for questions
		if a := send("GET", p.url+"/v1/tasks/"+f.name+"-1", "", ""); a.status != http.StatusOK {
			t.Fatal(a.body)
		}
	}
	if err := old.Shutdown(); err != nil {
		t.Fatal(err)
	}
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := old.Follow(t.Context(), standby); err != nil {
		t.Fatal(err)
	}
	f.recovers(back)
	f.flows(100)
	for _, p := range f.replicas {
		fresh := uuid.NewString()
		if !p.pair(fresh) {
			t.Fatal("not acknowledged")
		}
		var a answer
		eventually(t, "questions are answered", func() bool {
			a = send("GET", p.url+"/v1/tasks/"+fresh, "", "")
			return a.status != http.StatusServiceUnavailable
		})
		if a.status != http.StatusOK {
			t.Errorf("what was just recorded is not known: %d %v", a.status, a.body)
		}
	}
	f.stop()
	f.judge(standby.DirectURL())
	eventually(t, "nobody stays with the old primary", func() bool { return clients(t, oldPooler) == 0 })
}

// clients is how many connections a PgBouncer has to one of its databases.
func clients(t *testing.T, poolerURL string) (n int) {
	t.Helper()
	config, err := pgx.ParseConfig(poolerURL)
	if err != nil {
		t.Fatal(err)
	}
	database := config.Database
	config.Database, config.DefaultQueryExecMode = "pgbouncer", pgx.QueryExecModeSimpleProtocol
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), "SHOW CLIENTS")
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		for _, value := range rows.RawValues() {
			if strings.EqualFold(string(value), database) {
				n++
			}
		}
	}
	if rows.Err() != nil {
		t.Fatal(rows.Err())
	}
	return n
}
