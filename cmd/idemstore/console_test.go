package main

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// The console is in the program, over the same store and under the same log.
func TestConsole(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, databaseURL string) {
		p := start(t, []string{"IDEMSTORE_DATABASE_URL=" + databaseURL})
		id := uuid.NewString()
		if !p.pair(id) {
			t.Fatal("reserve and record were not acknowledged")
		}
		p.page(t, "/console", "Overview", "This replica, last hour")
		p.page(t, "/console/tasks/"+id, "of "+id, "One response is recorded")
		p.page(t, "/console/entries?owner=w", id)
		p.page(t, "/console/doubts", "No key is in doubt.")
		p.page(t, "/console/events", "No event is like this.")
		eventually(t, "the log has the console's requests", func() bool {
			return strings.Contains(p.logged(), `"route":"/console/*","status":200`)
		})
	})
}

func (p *program) page(t *testing.T, path string, wants ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d (%v): %s", path, res.StatusCode, err, body)
	}
	for _, want := range wants {
		if !strings.Contains(string(body), want) {
			t.Errorf("%s lacks %q: %s", path, want, body)
		}
	}
}
