package audit

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const doubtful = `{"task_id":"t","attempt":0,"state":"dispatched","in_doubt":true,"owner":"worker-a","fence":2,"dispatch":"explicit","reserved_at":"2026-11-29T20:00:00.000000Z",
 "lease_until":"2026-11-29T20:01:00.000000Z","dispatched_at":"2026-11-29T20:00:10.000000Z","late":false,"expires_at":"2027-02-27T20:51:00.000000Z",
 "doubts":[{"owner":"worker-a","fence":2,"reserved_at":"2026-11-29T20:00:00.000000Z","lease_until":"2026-11-29T20:01:00.000000Z","dispatched":true}]}`

const settled = `{"task_id":"t","attempt":0,"state":"released","in_doubt":false,"owner":"worker-a","fence":2,"dispatch":"explicit","reserved_at":"2026-11-29T20:00:00.000000Z",
 "lease_until":"2026-11-29T20:01:00.000000Z","late":false,"expires_at":"2027-02-27T20:51:00.000000Z","doubts":[]}`

func resolving(t *testing.T, a answer) *fake {
	f := newFake(t)
	f.answers["GET /v1/tasks/t/attempts/0"] = answer{200, doubtful}
	f.answers["POST /v1/tasks/t/attempts/0/resolve"] = a
	return f
}

// sent is the body of the last request, if that was the command and not a question.
func (f *fake) sent(path string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	last := len(f.asked) - 1
	if f.asked[last].Method != "POST" || f.asked[last].URL.EscapedPath() != path {
		return ""
	}
	return strings.TrimSpace(f.bodies[last])
}

const resolvePath = "/v1/tasks/t/attempts/0/resolve"

func TestResolveShowsAndAsks(t *testing.T) {
	t.Parallel()
	f := resolving(t, answer{200, settled})
	r := Resolution{Task: "t", Fence: 2, Reason: "asked the upstream"}
	for typed, done := range map[string]bool{"y\n": true, "YES\n": true, "n\n": false, "\n": false, "": false, "yes": true} {
		s := of(t, f)
		s.InTerminal, s.In = true, strings.NewReader(typed)
		err := s.Resolve(t.Context(), r)
		if (err == nil) != done || (f.sent(resolvePath) != "") != done {
			t.Errorf("typed %q: %v, sent %q", typed, err, f.sent(resolvePath))
		}
		if done {
			golden(t, "resolve", s.errs.String()+"\n"+s.out.String())
		}
	}
	wantClass(t, of(t, f).Resolve(t.Context(), r), Usage, "--yes")

	s := of(t, f)
	r.Yes, r.Force = true, true
	wantOK(t, s.Resolve(t.Context(), r))
	if sent := f.sent(resolvePath); sent != `{"action":"release","fence":2,"force":true,"reason":"asked the upstream"}` {
		t.Errorf("sent %s", sent)
	}
	if s.errs.String() != "" {
		t.Errorf("asked, with --yes: %q", s.errs.String())
	}
}

func TestResolveWithoutFence(t *testing.T) {
	t.Parallel()
	f := resolving(t, answer{200, settled})
	s := of(t, f)
	wantClass(t, s.Resolve(t.Context(), Resolution{Task: "t", Yes: true}), Usage, "--fence 2")
	if sent := f.sent(resolvePath); sent != "" {
		t.Errorf("sent %s", sent)
	}
	if !strings.Contains(s.errs.String(), "worker-a") {
		t.Errorf("it does not show the entry: %q", s.errs.String())
	}
	f.answers["GET /v1/tasks/t/attempts/0"] = answer{200, strings.Replace(settled, "released", "recorded", 1)}
	wantClass(t, of(t, f).Resolve(t.Context(), Resolution{Task: "t"}), Refused, "recorded")
	f.answers["GET /v1/tasks/t/attempts/0"] = answer{404, problemOf(404, "not_found", "Nothing is known.", "")}
	wantClass(t, of(t, f).Resolve(t.Context(), Resolution{Task: "t"}), Nothing)
}

func TestResolveRecords(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		wantOK(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	s := of(t, newFake(t))
	for _, c := range []struct {
		headers          []string
		file, body, want string
	}{
		{nil, "", "", `{"status":201}`},
		{[]string{"Content-Type: application/json", "X: a:b"}, "", "", `{"headers":[["Content-Type","application/json"],["X","a:b"]],"status":201}`},
		{nil, write("empty", ""), "", `{"body":"","status":201}`},
		{nil, write("text", "é\u0000\n"), "", `{"body":"é\u0000\n","status":201}`},
		{nil, write("bytes", "\xff\xfe"), "", `{"body_base64":"//4=","status":201}`},
		{nil, "-", "from standard input", `{"body":"from standard input","status":201}`},
	} {
		s.In = strings.NewReader(c.body)
		response, err := s.Response(201, c.headers, c.file)
		wantOK(t, err)
		f := resolving(t, answer{200, settled})
		wantOK(t, of(t, f).Resolve(t.Context(), Resolution{Task: "t", Fence: 2, Reason: "r", Response: response, Yes: true}))
		want := `{"action":"record","fence":2,"force":false,"reason":"r","response":` + c.want + `}`
		if sent := f.sent(resolvePath); sent != want {
			t.Errorf("sent %s, want %s", sent, want)
		}
	}
	_, err := s.Response(201, []string{"no colon"}, "")
	wantClass(t, err, Usage, "no colon")
	_, err = s.Response(201, nil, filepath.Join(dir, "missing"))
	wantClass(t, err, Usage, "missing")

	response, err := s.ResponseFile(write("whole", `{"status":402,"headers":[["A","b"]],"body_omitted":true,"body_sha256":"00","body_size":9007199254740991}`))
	wantOK(t, err)
	if *response.Status != 402 || *response.BodySize != 9007199254740991 || string(*response.Headers) != `[["A","b"]]` {
		t.Errorf("read %+v", response)
	}
	for _, bad := range []string{"", "[]", `{"statuss":1}`, `{"status":200} {}`} {
		_, err := s.ResponseFile(write("bad", bad))
		wantClass(t, err, Usage, "--response-file")
	}
}

func TestResolveIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code, more string
		words      []string
	}{
		{"in_progress", `,"fence":2,"owner":"b"`, []string{"Nothing was done", "--force"}},
		{"in_doubt", `,"fence":7,"doubts":[]`, []string{"newest fence is 7", "audit task t"}},
		{"already_recorded", `,"fence":2,"response":{"status":201,"headers":[],"body":"the first one"}`, []string{"Nothing was changed"}},
	} {
		f := resolving(t, answer{409, problemOf(409, c.code, "It is so.", c.more)})
		s := of(t, f)
		err := s.Resolve(t.Context(), Resolution{Task: "t", Fence: 2, Reason: "r", Yes: true})
		wantClass(t, err, Refused, append(c.words, "It is so.")...)
		if c.code == "already_recorded" && !strings.Contains(s.errs.String(), "the first one") {
			t.Errorf("it does not show what is recorded: %q", s.errs.String())
		}
	}
}

// A command whose answer is lost may have been done.
func TestResolveWithoutAnswer(t *testing.T) {
	t.Parallel()
	f := resolving(t, answer{503, problemOf(503, "unavailable", "The store did not confirm it.", "")})
	wantClass(t, of(t, f).Resolve(t.Context(), Resolution{Task: "t", Fence: 2, Reason: "r", Yes: true}), Failed, "did not confirm", "not known", "again")
	f.answers["POST "+resolvePath] = answer{403, problemOf(403, "forbidden", "No.", "")}
	err := of(t, f).Resolve(t.Context(), Resolution{Task: "t", Fence: 2, Reason: "r", Yes: true})
	wantClass(t, err, Failed, "403")
	if strings.Contains(err.Error(), "not known") {
		t.Errorf("said %q", err)
	}
}

// What was done before an answer was lost is told, and shown.
func TestReleaseOwnerBreaksOff(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	const first = `{"owner":"w","results":[{"task_id":"t1","attempt":0,"fence":1,"released":true,"outcome":"released"}],"next_cursor":"more"}`
	f.answers["POST /v1/owners/w/release"] = answer{200, first}
	s := of(t, f)
	asked := 0
	s.Out = writer(func(p []byte) (int, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		asked++
		f.answers["POST /v1/owners/w/release"] = answer{503, problemOf(503, "unavailable", "Not now.", "")}
		return s.out.Write(p)
	})
	wantClass(t, s.ReleaseOwner(t.Context(), "w", "gone", false, true), Failed, "Not now.", "1 key", "again")
	if sent := f.sent("/v1/owners/w/release"); !strings.Contains(sent, `"cursor":"more"`) || asked != 1 || !strings.Contains(s.out.String(), "t1") {
		t.Errorf("sent %s, wrote %q", sent, s.out.String())
	}
}

// What the service says of a call that failed is not contradicted.
func TestReleaseOwnerIsToldNothing(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.answers["POST /v1/owners/w/release"] = answer{503, problemOf(503, "unavailable", "It was only a question: nothing was changed; ask again.", "")}
	err := of(t, f).ReleaseOwner(t.Context(), "w", "gone", false, true)
	wantClass(t, err, Failed, "nothing was changed", "safe")
	if strings.Contains(err.Error(), "not known") {
		t.Errorf("said %q", err)
	}
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// What is shown and confirmed is what is released, each key at the fence that was shown.
func TestReleaseOwner(t *testing.T) {
	t.Parallel()
	const path = "/v1/owners/worker%20a%2F7/release"
	f := newFake(t)
	f.entries = someEntries(2)
	f.entries[0] = json.RawMessage(strings.Replace(string(f.entries[0]), `"dispatched"`, `"reserved"`, 1))
	f.answers["POST "+path] = answer{200, `{"owner":"worker a/7","results":[
	 {"task_id":"task-0","attempt":0,"fence":3,"released":true,"outcome":"released"},
	 {"task_id":"task-1","attempt":1,"fence":3,"released":false,"outcome":"in_doubt"}]}`}
	s := of(t, f)
	s.InTerminal, s.In = true, strings.NewReader("y\n")
	wantClass(t, s.ReleaseOwner(t.Context(), "worker a/7", "gone", false, false), Refused, "on 1 key and keeps", "--force")
	golden(t, "release-owner", s.errs.String()+"\n"+s.out.String())
	if sent := f.sent(path); sent != `{"force":false,"keys":[{"attempt":0,"fence":3,"task_id":"task-0"},{"attempt":1,"fence":3,"task_id":"task-1"}],"reason":"gone"}` {
		t.Errorf("sent %s", sent)
	}

	f.answers["POST "+path] = answer{200, `{"owner":"worker a/7","results":[
	 {"task_id":"task-0","attempt":0,"fence":4,"released":false,"outcome":"in_progress"},
	 {"task_id":"task-1","attempt":1,"fence":3,"released":true,"outcome":"released"}]}`}
	s = of(t, f)
	s.InTerminal, s.In = true, strings.NewReader("y\n")
	wantClass(t, s.ReleaseOwner(t.Context(), "worker a/7", "gone", true, false), Refused, "1 key moved on since", "Look again")
	if !strings.Contains(s.errs.String(), "released, though it may have acted") {
		t.Errorf("it does not say what force does: %s", s.errs.String())
	}

	// More than one call takes.
	f.entries = someEntries(maxPage + 1)
	f.answers["POST "+path] = answer{200, `{"owner":"worker a/7","results":[]}`}
	s = of(t, f)
	s.InTerminal, s.In = true, strings.NewReader("y\n")
	wantClass(t, s.ReleaseOwner(t.Context(), "worker a/7", "gone", true, false), Nothing)
	if sent := f.sent(path); strings.Count(sent, "task_id") != 1 {
		t.Errorf("the second call sent %s", sent)
	}

	// With yes nothing is shown, and all that is found is released.
	f.entries = someEntries(2)
	f.answers["POST "+path] = answer{200, `{"owner":"worker a/7","results":[{"task_id":"t1","attempt":0,"fence":1,"released":true,"outcome":"in_doubt"}]}`}
	s = of(t, f)
	s.Output = JSON
	wantOK(t, s.ReleaseOwner(t.Context(), "worker a/7", "gone", true, true))
	if sent := f.sent(path); sent != `{"force":true,"reason":"gone"}` {
		t.Errorf("sent %s", sent)
	}
	if s.out.String() != `{"task_id":"t1","attempt":0,"fence":1,"released":true,"outcome":"in_doubt"}`+"\n" || s.errs.String() != "" {
		t.Errorf("wrote %q and %q", s.out.String(), s.errs.String())
	}

	f.answers["POST "+path] = answer{200, `{"owner":"worker a/7","results":[{"task_id":"t1","attempt":0,"fence":1,"released":false,"outcome":"unavailable"}]}`}
	wantClass(t, of(t, f).ReleaseOwner(t.Context(), "worker a/7", "gone", true, true), Failed, "not known")
	f.answers["POST "+path] = answer{200, `{"owner":"worker a/7","results":[]}`}
	wantClass(t, of(t, f).ReleaseOwner(t.Context(), "worker a/7", "gone", true, true), Nothing)
	f.entries = nil
	s = of(t, f)
	s.InTerminal = true
	wantClass(t, s.ReleaseOwner(t.Context(), "worker a/7", "gone", true, false), Nothing)
}
