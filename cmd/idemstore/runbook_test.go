package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/idemstore/idemstore/internal/pgtest"
)

var update = flag.Bool("update", false, "write what the runbook's commands really answer into docs/runbook.md")

// The runbook's commands are run in its order, and answer what it shows: times, sizes and random ids apart.
func TestRunbook(t *testing.T) {
	t.Parallel()
	page := readDoc(t, "docs/runbook.md")
	blocks := regexp.MustCompile("(?s)(?:<!-- stage: ([a-z ]+) -->\n)?```sh\n(.*?)```\n\n```text\n(.*?)```").FindAllStringSubmatchIndex(page, -1)
	if commands := strings.Count(page, "```sh\n"); len(blocks) != commands || commands < 12 {
		t.Fatalf("the runbook has %d commands, and %d with an answer", commands, len(blocks))
	}
	d := newDuty(t)
	var out strings.Builder
	done := 0
	for _, at := range blocks {
		if at[2] >= 0 {
			d.stage(page[at[2]:at[3]])
		}
		script, want := page[at[4]:at[5]], page[at[6]:at[7]]
		have := d.run(script)
		if !*update && steady(have) != steady(want) {
			t.Errorf("%sanswers\n%s\nand the runbook shows\n%s", script, have, want)
		}
		out.WriteString(page[done:at[6]] + have)
		done = at[7]
	}
	if *update {
		if err := os.WriteFile("../../docs/runbook.md", []byte(out.String()+page[done:]), 0o644); err != nil { //nolint:gosec // a document
			t.Fatal(err)
		}
	}
}

// unsteady is what differs from one run to the next.
var unsteady = []struct{ is, as string }{
	{`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`, "TIME"},
	{`\b\d+[smhd](\d+[smh])? ago`, "AGE"},
	{`\(in \d+d\d+h\)`, "(IN)"},
	{`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b[0-9a-f]{24}\b`, "ID"},
	{`[0-9a-f]{64}|\b[0-9A-Za-z_-]{40,}\b`, "SECRET"},
	{`\b\d+ (bytes|kB|MB)\b`, "SIZE"},
	{`events_\d{8}`, "events_WEEK"},
	{`applied \d{4}\S+`, "applied TIME"},
	{` +`, " "},
	{`-{3,}`, "---"},
}

func steady(text string) string {
	for _, u := range unsteady {
		text = regexp.MustCompile(u.is).ReplaceAllString(text, u.as)
	}
	return strings.TrimSpace(text)
}

// duty is a service, what has happened to it, and the shell of the person on call.
type duty struct {
	*operations
	databaseURL string
	dir         string
	env         map[string]string
}

func newDuty(t *testing.T) *duty {
	for _, program := range []string{"curl", "psql", "pg_dump", "pg_restore", "createdb"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("this test does what the runbook says, with %s: %v", program, err)
		}
	}
	d := &duty{databaseURL: pgtest.New(t), dir: t.TempDir()}
	d.operations = operate(t, d.databaseURL)
	wrapper := fmt.Sprintf("#!/bin/sh\nIDEMSTORE_TEST_RUN_MAIN=1 exec %q \"$@\"\n", os.Args[0])
	if err := os.WriteFile(filepath.Join(d.dir, "idemstore"), []byte(wrapper), 0o700); err != nil { //nolint:gosec // to be run
		t.Fatal(err)
	}
	d.env = map[string]string{
		"PATH": d.dir + ":" + os.Getenv("PATH"), "HOME": d.dir, "LC_ALL": "C",
		"IDEMSTORE_URL": d.url, "IDEMSTORE_TOKEN": d.secrets["operator"], "IDEMSTORE_DATABASE_URL": d.databaseURL,
	}
	return d
}

// run is what a command of the page says, with what is this run's own taken out.
func (d *duty) run(script string) string {
	d.t.Helper()
	cmd := exec.CommandContext(d.t.Context(), "sh", "-c", script)
	cmd.Dir = d.dir
	for name, value := range d.env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		d.t.Fatal(err)
	}
	text := strings.ReplaceAll(string(out), d.url, "https://idemstore.internal")
	for _, secret := range d.secrets {
		if strings.Contains(text, secret) {
			d.t.Errorf("a token is in the answer to %s", script)
		}
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text
}

// stage has happen what the next part of the page is about.
func (d *duty) stage(name string) {
	d.t.Helper()
	switch name {
	case "doubt":
		d.vanish(d.t, "charge-43", "worker-7")
	case "second doubt":
		d.backUp()
		d.vanish(d.t, "charge-44", "worker-7")
	case "duplicate":
		first := d.vanish(d.t, "charge-42", "worker-a")
		second := d.reserve("charge-42", "worker-b", `,"takeovers":[{"attempt":0,"fence":1}]`)
		second.want(d.t, http.StatusCreated, "reserved")
		d.record("charge-42", second.body["reservation_id"].(string), `{"id":"ch_2"}`).want(d.t, http.StatusCreated, "recorded")
		d.record("charge-42", first, `{"id":"ch_1"}`).want(d.t, http.StatusConflict, "already_recorded")
	case "gone":
		d.reserve("charge-45", "worker-9", `,"lease_seconds":3600,"dispatch":"explicit"`).want(d.t, http.StatusCreated, "reserved")
		d.reserve("charge-46", "worker-9", `,"lease_seconds":3600`).want(d.t, http.StatusCreated, "reserved")
	case "outage":
		nowhere, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // to have a port on which nobody listens
		if err != nil {
			d.t.Fatal(err)
		}
		nowhere.Close()
		p := start(d.t, []string{"IDEMSTORE_DATABASE_URL=postgres://" + nowhere.Addr().String() + "/idemstore"})
		d.env["IDEMSTORE_URL"] = p.url
	case "back":
		d.env["IDEMSTORE_URL"] = d.url
	case "restored":
		p := start(d.t, []string{"IDEMSTORE_DATABASE_URL=" + d.env["RESTORED_URL"]})
		d.env["RESTORED"], d.env["WORKER_TOKEN"] = p.url, d.worker
	default:
		d.t.Fatalf("the runbook has a stage %q, and the test has none", name)
	}
}

// backUp makes the backup that the last part of the page restores.
func (d *duty) backUp() {
	d.t.Helper()
	d.env["BACKUP_TIME"] = time.Now().UTC().Format(time.RFC3339Nano)
	if said := d.run(`pg_dump --format custom --file idemstore.dump "$IDEMSTORE_DATABASE_URL"`); said != "" {
		d.t.Fatal(said)
	}
	restored, err := url.Parse(d.databaseURL)
	if err != nil {
		d.t.Fatal(err)
	}
	restored.Path = "/idemstore_restored"
	d.env["RESTORED_URL"] = restored.String()
	d.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, "dropdb", "--force", "--if-exists", "--maintenance-db", d.databaseURL, "idemstore_restored")
		if out, err := cmd.CombinedOutput(); err != nil {
			d.t.Errorf("%v: %s", err, out)
		}
	})
}
