package console_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
)

// replay is what the next worker is given.
func (s *service) replay(t *testing.T, k idem.Key) idem.Outcome {
	t.Helper()
	w := s.worker(t, "next", k)
	return w.do(&idem.Replay{Call: w.call(), Owner: w.owner})
}

func TestResolveRecords(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	c := s.as(t, "operator")
	for name, is := range map[string]struct {
		body, encoding string
		want           []byte
	}{
		"text":   {"{\"amount\":1.00}\r\nsecond line\r\n", "text", []byte("{\"amount\":1.00}\nsecond line\n")},
		"base64": {base64.StdEncoding.EncodeToString([]byte{0, 255, '\r', '\n'}), "base64", []byte{0, 255, '\r', '\n'}},
		"none":   {"", "text", nil},
	} {
		k := task()
		s.doubt(t, "worker-a", k)
		c.get(resolvePath(k)).want(200, `name="fence" value="1"`, "in doubt", "worker-a")
		fields := []string{
			"action", "record", "fence", "1", "reason", "seen in the ledger", "status", "201", "content_type", "application/json",
			"body", is.body, "encoding", is.encoding, "step",
		}
		c.post(resolvePath(k), append(fields, "review")...).want(200, "Record", "at fence <strong>1</strong>", "201", "seen in the ledger", "worker-a</bdi>, fence 1", "Signed by")
		if code := s.replay(t, k).Code; code != idem.CodeInDoubt {
			t.Fatalf("%s: before it was confirmed the key is %s", name, code)
		}
		c.post(resolvePath(k), append(fields, "edit")...).want(200, "seen in the ledger", "checked", "Go on to confirm")
		r := c.post(resolvePath(k), append(fields, "do")...)
		if r.status != 303 || r.header.Get("Location") != taskPath(k)+"?resolved=0" {
			t.Fatalf("%s: %d to %s: %s", name, r.status, r.header.Get("Location"), r.body)
		}
		c.get(r.header.Get("Location")).want(200, "Attempt 0 was resolved", "Resolved by an operator: recorded", "seen in the ledger", "operator")
		out := s.replay(t, k)
		want := &idem.Response{Status: 201, Headers: []idem.Header{{"Content-Type", "application/json"}}, HasBody: is.want != nil, Body: is.want}
		if out.Code != idem.CodeRecorded || !out.Entry.Response.Equal(want) {
			t.Errorf("%s: %s %+v", name, out.Code, out.Entry.Response)
		}
		if out.Entry.RecordedBy != "operator" {
			t.Errorf("%s: recorded by %s", name, out.Entry.RecordedBy)
		}
		c.get(resolvePath(k)).want(200, "there is nothing to resolve").without("Go on to confirm")
	}
}

func TestResolveReleases(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	c := s.as(t, "operator")
	k := task()
	s.doubt(t, "worker-a", k)
	fields := []string{"action", "release", "fence", "1", "reason", "the upstream knows nothing of it", "step"}
	c.post(resolvePath(k), append(fields, "review")...).want(200, "Release", "it happens twice")
	if r := c.post(resolvePath(k), append(fields, "do")...); r.status != 303 {
		t.Fatalf("%d: %s", r.status, r.body)
	}
	if out := s.worker(t, "next", k).reserve(); out.Code != idem.CodeReserved || !out.OK {
		t.Errorf("the next reserve is answered %s", out.Code)
	}
	c.get(taskPath(k)).want(200, "Resolved by an operator: released", "the upstream knows nothing of it")
}

// What cannot be done any more is refused, with what the key is now.
func TestResolveMeetsAnotherState(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	c := s.as(t, "operator")
	fields := func(step, fence string) []string {
		return []string{"action", "release", "fence", fence, "reason", "gone", "step", step}
	}
	for _, step := range []string{"review", "do"} {
		moved := task()
		s.doubt(t, "worker-a", moved)
		next := s.worker(t, "worker-b", moved)
		next.reserve(idem.Takeover{Fence: 1})
		s.pass(t, time.Minute)
		c.post(resolvePath(moved), fields(step, "1")...).want(409, "Nothing was done", "fence 1, and it is at fence 2 now", "worker-b", "Look again")

		live := s.worker(t, "busy", task())
		live.reserve()
		c.post(resolvePath(live.key), fields(step, "1")...).want(409, "Nothing was done", "A lease is live", "busy")

		done := s.worker(t, "quick", task())
		done.reserve()
		done.record(200, "text/plain", "what it says")
		c.post(resolvePath(done.key), fields(step, "1")...).want(409, "Nothing was done", "a record is final", "what it says")

		c.post(resolvePath(task()), fields(step, "1")...).want(404, "Nothing is known of this key")
	}
	c.get(resolvePath(task())).want(404, "Nothing is known of this key")
}

func TestResolveForces(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	c := s.as(t, "operator")
	w := s.worker(t, "busy", task())
	w.reserve()
	c.get(resolvePath(w.key)).want(200, "End the live lease")
	fields := []string{"action", "release", "fence", "1", "reason", "it hangs", "force", "true", "step"}
	c.post(resolvePath(w.key), append(fields, "review")...).want(200, "The live lease of", "is ended", `name="force" value="true"`)
	if r := c.post(resolvePath(w.key), append(fields, "do")...); r.status != 303 {
		t.Fatalf("%d: %s", r.status, r.body)
	}
	c.get(taskPath(w.key)).want(200, "released", "forced")
	doubted := task()
	s.doubt(t, "worker-a", doubted)
	c.get(resolvePath(doubted)).want(200).without("End the live lease")
}

func TestResolveFormsThatCannotBe(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	c := s.as(t, "operator")
	k := task()
	s.doubt(t, "worker-a", k)
	good := map[string]string{"action": "record", "fence": "1", "reason": "because", "status": "200", "body": "x", "encoding": "text"}
	for _, is := range []struct{ field, value, want string }{
		{"action", "", "Action must be chosen"},
		{"action", "destroy", "Action must be chosen"},
		{"fence", "", "Fence must be"},
		{"fence", "0", "Fence must be"},
		{"reason", "  ", "Reason is required"},
		{"reason", strings.Repeat("é", 1001), "Reason must be"},
		{"reason", "\xff", "Reason must be UTF-8"},
		{"status", "OK", "Status must be a number"},
		{"status", "99", "Status must be"},
		{"content_type", "text/html\r\nSet-Cookie: x", "Content type must have no control characters"},
		{"content_type", strings.Repeat("x", 40<<10), "Headers must be at most"},
		{"body", strings.Repeat("x", 1<<20+1), "Body must be at most 1,048,576 bytes"},
		{"encoding", "base64", "Body must be base64"},
	} {
		for _, step := range []string{"review", "do"} {
			fields := []string{"step", step}
			for name, value := range good {
				if name != is.field {
					fields = append(fields, name, value)
				}
			}
			c.post(resolvePath(k), append(fields, is.field, is.value)...).want(400, is.want)
		}
	}
	c.post(resolvePath(k), "body", strings.Repeat("x", 5<<20)).want(413, "This is too large")
	req := c.request("POST", resolvePath(k), nil)
	req.Header.Set("Content-Type", "text/plain")
	if r := c.do(req); r.status != 403 {
		t.Errorf("no form at all: %d", r.status)
	}
	c.get(taskPath(k)).want(200, "in doubt").without("Resolved by")
}

// unsure is a keeper that does not know.
type unsure struct {
	idem.Keeper
	err error
}

func (u unsure) Do(context.Context, ...idem.Command) []idem.Result {
	return []idem.Result{{Err: u.err}}
}

func TestResolveMayNotKnow(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"may have been done or not": fmt.Errorf("%w: secret", idem.ErrUnavailable), "Nothing was done; try again": idem.ErrBusy,
	} {
		s := start(t, setup{keeper: func(k idem.Keeper) idem.Keeper { return unsure{k, err} }})
		k := task()
		s.doubt(t, "worker-a", k)
		r := s.as(t, "operator").post(resolvePath(k), "action", "release", "fence", "1", "reason", "because", "step", "do")
		if r.status != 503 && r.status != 429 {
			t.Errorf("%d", r.status)
		}
		r.want(r.status, want).without("secret")
	}
}
