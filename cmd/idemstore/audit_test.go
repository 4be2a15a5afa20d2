package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/uuid"
)

// ordered checks that the words come in this order, each on a later line.
func ordered(t *testing.T, text string, words ...string) {
	t.Helper()
	lines := strings.Split(text, "\n")
	for _, word := range words {
		i := slices.IndexFunc(lines, func(l string) bool { return regexp.MustCompile(word).MatchString(l) })
		if i < 0 {
			t.Fatalf("%q is missing, or in the wrong place:\n%s", word, text)
		}
		lines = lines[i+1:]
	}
}

// The staged incident: a worker vanishes between its side effect and its record and is taken over; its record comes late. An
// operator finds who did what when, with both responses, and closes another key that was left in doubt.
func TestIncident(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, databaseURL string) {
		o := operate(t, databaseURL)
		charged, stuck := "charged-"+uuid.NewString(), "stuck-"+uuid.NewString()
		o.audit(t, "auditor", "", "entries", "--in-doubt").want(exitNothing)

		lost := o.vanish(t, charged, "worker-a")
		o.audit(t, "auditor", "", "entries", "--in-doubt").want(exitOK, charged, "worker-a#1")
		granted := o.reserve(charged, "worker-b", `,"takeovers":[{"attempt":0,"fence":1}]`)
		granted.want(t, http.StatusCreated, "reserved")
		o.record(charged, granted.body["reservation_id"].(string), "charge ch_2").want(t, http.StatusCreated, "recorded")
		o.record(charged, lost, "charge ch_1\x1b[31m").want(t, http.StatusConflict, "already_recorded")

		told := o.audit(t, "auditor", "", "task", charged).want(exitOK, "It may have happened twice: worker-a#1 offered another response", "worker-a", "ch_1", "ch_2")
		_, timeline, _ := strings.Cut(told.stdout, "Timeline")
		ordered(t, timeline, " reserved +worker-a", " lease passed +worker-a", " taken_over +worker-b", " reserved +worker-b",
			" recorded +worker-b .* charge ch_2", " duplicate_record +worker-a +the-worker .* charge ch_1", "^Responses", "charge ch_2", "charge ch_1")
		if strings.Contains(told.stdout, "\x1b") {
			t.Error("an escape of the upstream's reaches the terminal")
		}
		found := o.audit(t, "auditor", "", "events", "--kind", "duplicate_record", "--since", "1h", "--output", "json").want(exitOK)
		var event struct {
			Task     string                `json:"task_id"`
			Response struct{ Body string } `json:"response"`
		}
		if err := json.Unmarshal([]byte(found.stdout), &event); err != nil || event.Task != charged || event.Response.Body != "charge ch_1\x1b[31m" {
			t.Errorf("got %+v (%v) of %s", event, err, found.stdout)
		}
		o.audit(t, "auditor", "", "entries", "--in-doubt").want(exitNothing)

		o.vanish(t, stuck, "worker-c")
		o.audit(t, "auditor", "", "entries", "--in-doubt", "--output", "json").want(exitOK, stuck)
		o.audit(t, "auditor", "", "task", stuck).want(exitOK, "idemstore audit resolve "+stuck+" 0")
		o.audit(t, "operator", "", "resolve", stuck, "0").want(exitUsage, "--fence 1", "worker-c")
		settle := []string{"resolve", stuck, "0", "--release", "--fence", "1", "--reason", "no charge upstream", "--yes"}
		o.audit(t, "operator", "", slices.Concat(settle[:5], []string{"7"}, settle[6:])...).want(exitRefused, "newest fence is 1")
		o.audit(t, "operator", "", settle[:8]...).want(exitUsage, "--yes")
		o.audit(t, "auditor", "", settle...).want(exitFailed, "403", "operator")
		o.audit(t, "operator", "", settle...).want(exitOK, "released")
		o.audit(t, "auditor", "", "entries", "--in-doubt").want(exitNothing)
		told = o.audit(t, "auditor", "", "task", stuck).want(exitOK)
		ordered(t, told.stdout, " reserved +worker-c", " lease passed +worker-c", " resolved +the-operator .*no charge upstream")
		o.reserve(stuck, "worker-d", "").want(t, http.StatusCreated, "reserved")
	})
}

// What an operator records, with bytes from standard input, is what is replayed.
func TestAuditResolveRecords(t *testing.T) {
	t.Parallel()
	o := operate(t, "sqlite::memory:")
	id := uuid.NewString()
	o.vanish(t, id, "w")
	resolve := []string{"resolve", id, "0", "--fence", "1", "--reason", "found it upstream", "--record-status", "402", "--record-header", "X-Charge: a, b", "--record-body", "-"}
	o.audit(t, "operator", "\xffraw", resolve...).want(exitUsage, "--yes")
	o.audit(t, "operator", "\xffraw", append(resolve, "--yes")...).want(exitOK, "recorded", "the-operator")
	replayed := send("GET", o.task(id)+"/replay", o.worker, "")
	replayed.want(t, http.StatusOK, "recorded")
	have, err := json.Marshal(replayed.body["response"])
	if want := `{"body_base64":"/3Jhdw==","headers":[["X-Charge","a, b"]],"status":402}`; err != nil || string(have) != want {
		t.Errorf("replayed %s (%v), want %s", have, err, want)
	}
	entry := o.audit(t, "auditor", "", "entry", id, "0", "--output", "json").want(exitOK)
	var e struct{ Response json.RawMessage }
	if err := json.Unmarshal([]byte(entry.stdout), &e); err != nil {
		t.Fatal(err)
	}
	other := uuid.NewString()
	o.vanish(t, other, "w")
	o.audit(t, "operator", string(e.Response), "resolve", other, "0", "--response-file", "-", "--fence", "1", "--reason", "the same", "--yes").want(exitOK)
	o.audit(t, "operator", "", "resolve", other, "0", "--release", "--fence", "1", "--reason", "again", "--yes").want(exitRefused, "Recorded is: 402")
}

func TestAuditReleaseOwner(t *testing.T) {
	t.Parallel()
	o := operate(t, "sqlite::memory:")
	var ids []string
	for range 3 {
		id := uuid.NewString()
		o.reserve(id, "gone/1", `,"dispatch":"explicit"`).want(t, http.StatusCreated, "reserved")
		ids = append(ids, id)
	}
	acted := uuid.NewString()
	o.reserve(acted, "gone/1", "").want(t, http.StatusCreated, "reserved")
	release := []string{"release-owner", "gone/1", "--reason", "scrapped", "--yes"}
	o.audit(t, "operator", "", release[:4]...).want(exitUsage, "--yes")
	o.audit(t, "operator", "", release...).want(exitRefused, append(ids, "on 1 key and keeps")...)
	for _, id := range ids {
		o.reserve(id, "another", "").want(t, http.StatusCreated, "reserved")
	}
	o.reserve(acted, "another", "").want(t, http.StatusConflict, "in_progress")
	o.audit(t, "operator", "", append(release, "--force", "--output", "json")...).want(exitOK, acted, `"released":true`)
	o.reserve(acted, "another", "").want(t, http.StatusCreated, "reserved")
	o.audit(t, "operator", "", "release-owner", "nobody", "--reason", "x", "--yes").want(exitNothing)
	o.audit(t, "auditor", "", "events", "--task", acted).want(exitOK, "resolved", "the-operator", "holder=gone/1", "scrapped")
}

// Every event is shown as it happens, once, also after the service was killed and started again.
func TestAuditWatch(t *testing.T) {
	t.Parallel()
	database := "IDEMSTORE_DATABASE_URL=sqlite:" + t.TempDir() + "/idemstore.db"
	p := start(t, []string{database})
	o := &operations{program: p, secrets: map[string]string{}}
	before, first, second := uuid.NewString(), uuid.NewString(), uuid.NewString()
	replay := func(id string) {
		t.Helper()
		if !o.pair(id) {
			t.Fatal("not acknowledged")
		}
		send("GET", o.task(id)+"/replay", "", "").want(t, http.StatusOK, "recorded")
	}
	replay(before)
	cmd := o.as(context.Background(), "", "watch", "--output", "json")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	errs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	shown, said := follow(out), follow(errs)
	said.until(t, "Watching")
	eventually(t, "it has looked for the first time", func() bool { return strings.Count(p.logged(), `"route":"/v1/events"`) > 2 })
	replay(first)
	shown.until(t, first)
	address := strings.TrimPrefix(p.url, "http://")
	p.kill()
	said.until(t, "Watching goes on")
	o.program = start(t, []string{database}, "--listen", address)
	replay(second)
	said.until(t, "answers again")
	shown.until(t, second)
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	shown.ended(t)
	said.ended(t)
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	for id, n := range map[string]int{before: 0, first: 1, second: 1} {
		if have := shown.count(id); have != n {
			t.Errorf("%s was shown %d times, want %d", id, have, n)
		}
	}
}

// following is what a running program has written so far.
type following struct {
	mu   sync.Mutex
	text string
	end  chan struct{}
}

func follow(in io.Reader) *following {
	f := &following{end: make(chan struct{})}
	go func() {
		defer close(f.end)
		for lines := bufio.NewScanner(in); lines.Scan(); {
			f.mu.Lock()
			f.text += lines.Text() + "\n"
			f.mu.Unlock()
		}
	}()
	return f
}

func (f *following) count(word string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Count(f.text, word)
}

func (f *following) has(word string) bool { return f.count(word) > 0 }

func (f *following) until(t *testing.T, word string) {
	t.Helper()
	eventually(t, word+" is said", func() bool { return f.has(word) })
}

func (f *following) ended(t *testing.T) {
	t.Helper()
	eventually(t, "the program has ended", func() bool {
		select {
		case <-f.end:
			return true
		default:
			return false
		}
	})
}

// A fault of the command line is told before anything is asked, and says nothing of the token.
func TestAuditUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{},
		{"task"},
		{"entry", "t"},
		{"entry", "t", "-1"},
		{"entry", "t", "x"},
		{"entries", "--limit", "0"},
		{"entries", "--limit", "5", "--all"},
		{"entries", "--state", "odd"},
		{"entries", "--since", "soon"},
		{"entries", "--since", "-1h"},
		{"entries", "--since", "1h", "--reserved-after", "2026-01-01"},
		{"entries", "--reserved-after", "yesterday"},
		{"entries", "--output", "xml"},
		{"events", "--kind", "odd"},
		{"events", "--file", "x"},
		{"events", "--limit", "0"},
		{"events", "--since", "1h", "--after", "2026-01-01"},
		{"stats", "--output", "csv"},
		{"watch", "--output", "csv"},
		{"resolve", "t", "0", "--fence", "1", "--reason", "r"},
		{"resolve", "t", "0", "--fence", "1", "--release"},
		{"resolve", "t", "0", "--fence", "-1"},
		{"resolve", "t", "0", "--release", "--record-status", "200", "--fence", "1", "--reason", "r"},
		{"resolve", "t", "0", "--release", "--record-body", "x"},
		{"release-owner", "w"},
		{"release-owner", "--reason", "r"},
		{"stats", "--tokne=very-secret"},
		{"stats", "--token", "very-secret", "x"},
		{"stats", "--url", "127.0.0.1"},
		{"stats", "--timeout", "x", "--token=very-secret"},
	} {
		stdout, stderr, code := output(t, []string{"IDEMSTORE_TOKEN=very-secret", "IDEMSTORE_URL=http://127.0.0.1:1"}, append([]string{"audit"}, args...)...)
		if code != exitUsage || stderr == "" {
			t.Errorf("audit %v: exit status %d, want %d\n%s%s", args, code, exitUsage, stdout, stderr)
		}
		if strings.Contains(stdout+stderr, "very-secret") {
			t.Errorf("audit %v shows the token:\n%s%s", args, stdout, stderr)
		}
	}
	_, stderr, code := output(t, []string{"IDEMSTORE_TOKEN=very-secret", "IDEMSTORE_URL=http://127.0.0.1:1"}, "audit", "stats")
	if code != exitFailed || !strings.Contains(stderr, "http://127.0.0.1:1") || strings.Contains(stderr, "very-secret") {
		t.Errorf("without a service: exit status %d, %s", code, stderr)
	}
}

// Each subcommand's help has examples that the program understands, and audit's tells the exit statuses.
func TestAuditHelp(t *testing.T) {
	t.Parallel()
	help := func(args ...string) string {
		stdout, _, code := output(t, []string{"IDEMSTORE_TOKEN=very-secret"}, append(append([]string{"audit"}, args...), "--help")...)
		if code != exitOK || strings.Contains(stdout, "very-secret") {
			t.Errorf("audit %v --help: exit status %d\n%s", args, code, stdout)
		}
		return stdout
	}
	whole := help()
	for i := exitOK; i <= exitRefused; i++ {
		if !regexp.MustCompile(fmt.Sprintf(`(?m)^    %d  \w`, i)).MatchString(whole) {
			t.Errorf("audit --help does not tell exit status %d", i)
		}
	}
	commands := regexp.MustCompile(`(?m)^  audit ([a-z-]+) `).FindAllStringSubmatch(whole, -1)
	if len(commands) != 8 {
		t.Errorf("audit --help tells of %d commands", len(commands))
	}
	for _, c := range commands {
		examples := regexp.MustCompile(`(?m)^    (idemstore audit .*)$`).FindAllStringSubmatch(help(c[1]), -1)
		if len(examples) < 2 {
			t.Errorf("audit %s --help has %d examples", c[1], len(examples))
		}
		for _, example := range examples {
			for _, args := range asTyped(t, example[1]) {
				var parsed cli
				if _, err := parsed.parser(io.Discard, io.Discard, func(int) {}).Parse(args); err != nil {
					t.Errorf("%s\n%v", example[1], err)
				}
			}
		}
	}
}

// asTyped is the arguments that a shell gives to each idemstore in a line.
func asTyped(t *testing.T, line string) [][]string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `idemstore() { printf '%s\0' "$@" > "$(mktemp args.XXXXXX)"; }; jq() { cat; }; less() { cat; }`+"\n"+line)
	cmd.Dir = dir
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", line, err, text)
	}
	files, err := filepath.Glob(dir + "/args.*")
	if err != nil || len(files) == 0 {
		t.Fatalf("%s runs no idemstore (%v)", line, err)
	}
	var calls [][]string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00"))
	}
	return calls
}
