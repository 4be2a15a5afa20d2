package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/internal/pgtest"
	"github.com/idemstore/idemstore/internal/store"
)

// aged is a store's URL in whose past, two hundred days ago, ten responses were recorded, four keys left in doubt, and a
// replay told.
func aged(t *testing.T, databaseURL string) string {
	t.Helper()
	b, err := store.Open(t.Context(), databaseURL, store.Options{Shift: func() time.Duration { return -200 * 24 * time.Hour }})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	k := store.NewDirect(b, idem.DefaultPolicy)
	call := func() idem.Call { return idem.Call{Key: idem.Key{TaskID: uuid.NewString()}} }
	for i := range 14 {
		r := &idem.Reserve{Call: call(), Owner: "w", ReservationID: uuid.NewString(), LeaseSeconds: 60}
		cmds := []idem.Command{r}
		if i < 10 {
			cmds = append(cmds, &idem.Record{Call: r.Call, ReservationID: r.ReservationID, Response: &idem.Response{Status: 200}})
		}
		if i == 0 {
			cmds = append(cmds, &idem.Replay{Call: r.Call, Owner: "w"})
		}
		for _, res := range k.Do(t.Context(), cmds...) {
			if res.Err != nil {
				t.Fatal(res.Err)
			}
		}
	}
	return databaseURL
}

// A dry run says what would go and leaves it; the run says the same and does it; the next has nothing to do.
func TestPurgeCommand(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, databaseURL string) {
		env := []string{"IDEMSTORE_DATABASE_URL=" + aged(t, databaseURL), "IDEMSTORE_EVENT_RETENTION=24h"}
		text, stderr, code := output(t, env, "purge", "--dry-run")
		words := strings.Join(strings.Fields(text), " ")
		if code != exitOK || stderr != "" || !regexp.MustCompile(`^would go past retention by entries 10 4464h0m\d+s keys in doubt 4 2639h`).MatchString(words) {
			t.Errorf("exit %d: %s%s", code, text, stderr)
		}
		for i, args := range [][]string{{"--dry-run"}, {}, {}} {
			stdout, stderr, code := output(t, env, append([]string{"purge", "--output", "json"}, args...)...)
			var got purgeReport
			if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != exitOK || stderr != "" {
				t.Fatalf("exit %d, %v: %s%s", code, err, stdout, stderr)
			}
			entries, doubts, events := 10, 4, 1
			if i == 2 {
				entries, doubts, events = 0, 0, 0
			}
			if got.Entries.Count != entries || got.InDoubt.Count != doubts || got.Events.Count != events || !got.Complete || got.DryRun != (len(args) > 0) {
				t.Errorf("run %d: %s", i, stdout)
			}
		}
	})
}

// Beside a service that purges too, and serves meanwhile.
func TestPurgeCommandBesideAService(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, databaseURL string) {
		env := []string{"IDEMSTORE_DATABASE_URL=" + aged(t, databaseURL)}
		p := start(t, env)
		for range 3 {
			if stdout, stderr, code := output(t, env, "purge"); code != exitOK {
				t.Errorf("exit %d: %s%s", code, stdout, stderr)
			}
			if !p.pair(uuid.NewString()) {
				t.Error("the service does not serve")
			}
		}
		eventually(t, "nothing is left to purge", func() bool {
			stdout, _, _ := output(t, env, "purge", "--dry-run", "--output", "json")
			return strings.Contains(stdout, `"entries":{"count":0`) && strings.Contains(stdout, `"in_doubt":{"count":0`)
		})
	})
}

// A database that is not there, or has another schema, is refused and not touched.
func TestPurgeCommandRefuses(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing.db")
	empty := filepath.Join(t.TempDir(), "empty.db")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		word string
	}{
		{[]string{"--database-url", "sqlite:" + missing}, exitFailed, "no such file"},
		{[]string{"--database-url", "sqlite:" + empty}, exitFailed, "idemstore migrate up"},
		{[]string{"--database-url", pgtest.Empty(t)}, exitFailed, "idemstore migrate up"},
		{[]string{"--database-url", "postgres://u@127.0.0.1:1/x"}, exitFailed, "reach the database"},
		{[]string{"--database-url", "mysql://x"}, exitUsage, "IDEMSTORE_DATABASE_URL"},
		{[]string{"--event-retention", "1h"}, exitUsage, "IDEMSTORE_EVENT_RETENTION"},
		{[]string{"--output", "xml"}, exitUsage, "output"},
	} {
		stdout, stderr, code := output(t, nil, append([]string{"purge", "--dry-run"}, c.args...)...)
		if code != c.code || stdout != "" || !strings.Contains(stderr, c.word) {
			t.Errorf("%q: exit %d: %s%s, want %d and %q", c.args, code, stdout, stderr, c.code, c.word)
		}
	}
	if _, err := os.Stat(missing); err == nil {
		t.Error("it made a database")
	}
	if stdout, _, code := output(t, nil, "purge", "--help"); code != exitOK || !strings.Contains(stdout, "idemstore purge --database-url") {
		t.Errorf("help: exit %d: %s", code, stdout)
	}
}

// Weeks that are left because somebody reads the trail are said, and the exit status tells a script.
func TestPurgeCommandLeavesWhatIsRead(t *testing.T) {
	t.Parallel()
	p := store.Purged{Events: store.SweptEvents{Weeks: []string{"events_20260105"}, Waiting: []string{"events_20260112"}}}
	var out strings.Builder
	if err := (&purgeCmd{Output: "text"}).finish(&env{stdout: &out}, p, nil); err == nil || !strings.Contains(err.Error(), "reads the trail: 1") {
		t.Errorf("%v", err)
	}
	if !strings.Contains(out.String(), "weeks: events_20260105") || !strings.Contains(out.String(), "left: events_20260112") {
		t.Error(out.String())
	}
	if err := (&purgeCmd{Output: "json"}).finish(&env{stdout: &out}, p, context.Canceled); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("%v", err)
	}
}
