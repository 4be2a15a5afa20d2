package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// operations is a service with tokens, and the command line of the people who look after it.
type operations struct {
	*program
	worker  string
	secrets map[string]string // by role
}

func operate(t *testing.T, databaseURL string) *operations {
	t.Helper()
	o := &operations{secrets: make(map[string]string)}
	var lines strings.Builder
	for _, role := range []string{"worker", "auditor", "operator"} {
		stdout, stderr, code := output(t, nil, "token", "new", "--name", "the-"+role, "--role", role)
		var secret string
		if _, err := fmt.Sscanf(stdout, "token: %s\n", &secret); code != exitOK || err != nil {
			t.Fatalf("token new: %d %v %s", code, err, stderr)
		}
		_, line, _ := strings.Cut(stdout, "line:  ")
		lines.WriteString(line)
		o.secrets[role] = secret
	}
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	o.program = start(t, []string{"IDEMSTORE_DATABASE_URL=" + databaseURL, "IDEMSTORE_TOKENS_FILE=" + file})
	o.worker = o.secrets["worker"]
	return o
}

// as is the program's audit with a token of a role.
func (o *operations) as(ctx context.Context, role string, args ...string) *exec.Cmd {
	return command(ctx, []string{"IDEMSTORE_URL=" + o.url, "IDEMSTORE_TOKEN=" + o.secrets[role]}, append([]string{"audit"}, args...)...)
}

// ran is how a run of audit ended.
type ran struct {
	t              *testing.T
	args           []string
	code           int
	stdout, stderr string
}

// audit runs audit as a role to its end. No token of anybody's is ever shown.
func (o *operations) audit(t *testing.T, role, stdin string, args ...string) ran {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := o.as(ctx, role, args...)
	var out, errs strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	for _, secret := range o.secrets {
		if strings.Contains(out.String()+errs.String(), secret) {
			t.Errorf("audit %v shows a token", args)
		}
	}
	return ran{t, args, cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// want checks the exit status, and that words are said on one of the outputs.
func (r ran) want(code int, words ...string) ran {
	r.t.Helper()
	if r.code != code {
		r.t.Fatalf("audit %v: exit status %d, want %d\n%s%s", r.args, r.code, code, r.stdout, r.stderr)
	}
	for _, word := range words {
		if !strings.Contains(r.stdout+r.stderr, word) {
			r.t.Errorf("audit %v does not say %q:\n%s%s", r.args, word, r.stdout, r.stderr)
		}
	}
	return r
}

func (o *operations) reserve(id, owner, more string) answer {
	body := fmt.Sprintf(`{"owner":%q,"reservation_id":%q,"handler":"charge"%s}`, owner, uuid.NewString(), more)
	return send("POST", o.task(id)+"/reserve", o.worker, body)
}

// vanish reserves a key for a second and leaves it in doubt. It returns the reservation.
func (o *operations) vanish(t *testing.T, id, owner string) string {
	t.Helper()
	granted := o.reserve(id, owner, `,"lease_seconds":1`)
	granted.want(t, http.StatusCreated, "reserved")
	eventually(t, id+" is in doubt", func() bool {
		return send("GET", o.task(id)+"/replay", o.worker, "").body["outcome"] == "in_doubt"
	})
	return granted.body["reservation_id"].(string)
}

func (o *operations) record(id, reservation, body string) answer {
	text, _ := json.Marshal(body) // of a string: cannot fail
	return send("POST", o.task(id)+"/record", o.worker, fmt.Sprintf(`{"reservation_id":%q,"response":{"status":201,"body":%s}}`, reservation, text))
}
