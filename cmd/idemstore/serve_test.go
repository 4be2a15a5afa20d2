package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/idemstore/idemstore/internal/pgtest"
)

func TestServe(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, databaseURL string) {
		p := start(t, []string{"IDEMSTORE_DATABASE_URL=" + databaseURL})
		id := uuid.NewString()
		if !p.pair(id) {
			t.Fatal("reserve and record were not acknowledged")
		}
		replayed := send("POST", p.task(id)+"/reserve", "", `{"owner":"another"}`)
		replayed.want(t, http.StatusOK, "recorded")
		if body := replayed.body["response"].(map[string]any)["body"]; body != "of "+id {
			t.Errorf("replayed %v", body)
		}
		if !strings.Contains(p.logged(), "anonymous") {
			t.Error("a start without tokens must say that every caller may do everything")
		}
	})
}

// What was answered is there after kill -9, at any moment.
func TestKilledAtAnyMoment(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, databaseURL string) {
		env := []string{"IDEMSTORE_DATABASE_URL=" + databaseURL}
		p := start(t, env)
		var mu sync.Mutex
		var acknowledged []string
		count := func() int { mu.Lock(); defer mu.Unlock(); return len(acknowledged) }
		var workers sync.WaitGroup
		for range 8 {
			workers.Go(func() {
				for {
					id := uuid.NewString()
					if !p.pair(id) {
						return
					}
					mu.Lock()
					acknowledged = append(acknowledged, id)
					mu.Unlock()
				}
			})
		}
		eventually(t, "200 pairs are acknowledged", func() bool { return count() >= 200 })
		p.kill()
		workers.Wait()
		p = start(t, env)
		for _, id := range acknowledged {
			replayed := send("GET", p.task(id)+"/replay", "", "")
			replayed.want(t, http.StatusOK, "recorded")
			if body := replayed.body["response"].(map[string]any)["body"]; body != "of "+id {
				t.Fatalf("%s: replayed %v", id, body)
			}
		}
	})
}

// On SIGTERM: not ready, waits end, what was begun is answered, exit 0.
func TestStopsInOrder(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, databaseURL string) {
		p := start(t, []string{"IDEMSTORE_DATABASE_URL=" + databaseURL})
		held := p.task(uuid.NewString()) + "/reserve"
		send("POST", held, "", `{"owner":"holder"}`).want(t, http.StatusCreated, "reserved")
		waited := make(chan answer, 1)
		go func() { waited <- send("POST", held, "", `{"owner":"waiter","wait_seconds":60}`) }()
		ids := make(chan string, 10_000)
		var workers sync.WaitGroup
		for range 4 {
			workers.Go(func() {
				for {
					id := uuid.NewString()
					if !p.pair(id) {
						return
					}
					ids <- id
				}
			})
		}
		eventually(t, "pairs flow", func() bool { return len(ids) > 20 })
		p.signal(syscall.SIGTERM)
		eventually(t, "it says that it is not ready", func() bool {
			a := send("GET", p.url+"/readyz", "", "")
			return a.err != nil || a.status == http.StatusServiceUnavailable
		})
		(<-waited).want(t, http.StatusConflict, "in_progress")
		if code := p.ended(); code != exitOK {
			t.Fatalf("exit status %d", code)
		}
		workers.Wait()
		close(ids)
		p = start(t, []string{"IDEMSTORE_DATABASE_URL=" + databaseURL})
		for id := range ids {
			send("GET", p.task(id)+"/replay", "", "").want(t, http.StatusOK, "recorded")
		}
	})
}

func TestRefusesAnotherSchemaVersion(t *testing.T) {
	t.Parallel()
	url := pgtest.Empty(t)
	env := []string{"IDEMSTORE_DATABASE_URL=" + url}
	_, stderr, code := output(t, env, "serve", "--listen", "127.0.0.1:0", "--metrics-listen", "")
	if code != exitFailed || !strings.Contains(stderr, "version 0") || !strings.Contains(stderr, "needs 2") {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	for _, want := range []string{"applied 00001_init.sql\napplied 00002_reads.sql\nthe schema is at version 2\n", "the schema is at version 2\n"} {
		if stdout, stderr, code := output(t, env, "migrate", "up"); code != exitOK || stdout != want {
			t.Fatalf("migrate up: exit %d: %s%s", code, stdout, stderr)
		}
	}
	start(t, env)
	if stdout, _, _ := output(t, env, "migrate", "status"); strings.Count(stdout, "  applied 2") != 2 || strings.Contains(stdout, "pending") {
		t.Errorf("status: %s", stdout)
	}
	for _, name := range []string{"00002_reads.sql", "00001_init.sql"} {
		if stdout, _, code := output(t, env, "migrate", "down"); code != exitOK || stdout != "took back "+name+"\n" {
			t.Errorf("down: exit %d: %s", code, stdout)
		}
	}
	if stdout, _, _ := output(t, env, "migrate", "status"); stdout != "00001_init.sql   pending\n00002_reads.sql  pending\n" {
		t.Errorf("status: %s", stdout)
	}
}

func TestDatabaseGoesAndComesBack(t *testing.T) {
	t.Parallel()
	db := pgtest.Server(t)
	p := start(t, []string{"IDEMSTORE_DATABASE_URL=" + db.URL()})
	before := uuid.NewString()
	if !p.pair(before) {
		t.Fatal("not acknowledged")
	}
	if err := db.Stop(); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	refused := send("POST", p.task(uuid.NewString())+"/reserve", "", `{"owner":"w"}`)
	refused.want(t, http.StatusServiceUnavailable, "unavailable")
	if refused.header.Get("Retry-After") == "" {
		t.Error("503 without Retry-After")
	}
	if took := time.Since(begun); took > 15*time.Second {
		t.Errorf("the caller waited %s to hear it", took)
	}
	send("GET", p.url+"/readyz", "", "").want(t, http.StatusServiceUnavailable, "unavailable")
	if a := send("GET", p.url+"/healthz", "", ""); a.status != http.StatusOK {
		t.Errorf("healthz: %d", a.status)
	}
	if err := db.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "ready again", func() bool { return send("GET", p.url+"/readyz", "", "").status == http.StatusOK })
	send("GET", p.task(before)+"/replay", "", "").want(t, http.StatusOK, "recorded")
	eventually(t, "pairs flow again", func() bool { return p.pair(uuid.NewString()) })
}

// A service that starts before its database waits for it, and says so.
func TestStartsBeforeItsDatabase(t *testing.T) {
	t.Parallel()
	db := pgtest.Server(t)
	if err := db.Stop(); err != nil {
		t.Fatal(err)
	}
	p := start(t, []string{"IDEMSTORE_DATABASE_URL=" + db.URL()})
	send("GET", p.url+"/readyz", "", "").want(t, http.StatusServiceUnavailable, "unavailable")
	if err := db.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is ready", func() bool { return send("GET", p.url+"/readyz", "", "").status == http.StatusOK })
	if !p.pair(uuid.NewString()) {
		t.Error("not acknowledged")
	}
}

func TestTokensAreReadAgainOnHangup(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens")
	make1 := func(name string) (secret, line string) {
		stdout, _, code := output(t, nil, "token", "new", "--name", name, "--role", "worker")
		if code != exitOK {
			t.Fatalf("token new: exit %d", code)
		}
		if _, err := fmt.Sscanf(stdout, "token: %s\nline:  ", &secret); err != nil {
			t.Fatal(err)
		}
		_, line, _ = strings.Cut(stdout, "line:  ")
		return secret, line
	}
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	old, oldLine := make1("old")
	next, nextLine := make1("next")
	write("# fleet\n" + oldLine)
	p := start(t, []string{"IDEMSTORE_DATABASE_URL=sqlite::memory:", "IDEMSTORE_TOKENS_FILE=" + file})
	try := func(token string) int {
		return send("POST", p.task(uuid.NewString())+"/reserve", token, `{"owner":"w"}`).status
	}
	if got := try(""); got != http.StatusUnauthorized {
		t.Errorf("without a token: %d", got)
	}
	if got := try(old); got != http.StatusCreated {
		t.Errorf("old token: %d", got)
	}
	if got := try(next); got != http.StatusUnauthorized {
		t.Errorf("token that is not in the file yet: %d", got)
	}
	write(nextLine)
	p.signal(syscall.SIGHUP)
	eventually(t, "the new token is known", func() bool { return try(next) == http.StatusCreated })
	if got := try(old); got != http.StatusUnauthorized {
		t.Errorf("token that was taken out: %d", got)
	}
	write("rubbish")
	p.signal(syscall.SIGHUP)
	eventually(t, "the fault is logged", func() bool { return strings.Contains(p.logged(), "stays as it was") })
	if got := try(next); got != http.StatusCreated {
		t.Errorf("after a file that cannot be read: %d", got)
	}
	for _, secret := range []string{old, next} {
		if strings.Contains(p.logged(), secret) {
			t.Error("a token is in the log")
		}
	}
}

// A client that sends its headers drop by drop is let go.
func TestSlowClientsAreLetGo(t *testing.T) {
	t.Parallel()
	p := start(t, []string{"IDEMSTORE_DATABASE_URL=sqlite::memory:"})
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte("POST /v1/batch/reserve HTTP/1.1\r\nHost: x\r\n")); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(headerTime + 10*time.Second))
	begun := time.Now()
	_, err = conn.Read(make([]byte, 512))
	if took := time.Since(begun); err != nil && took > headerTime+9*time.Second {
		t.Errorf("after %s it is still open: %v", took, err)
	}
}
