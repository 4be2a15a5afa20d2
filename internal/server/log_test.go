package server_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/internal/server"
)

// Every answer of every test of this package has exactly one line in the log that agrees with it: the journals see to
// that. Here is what is beyond it.

func TestLogOfABatch(t *testing.T) {
	t.Parallel()
	withClock(t, func(t *testing.T, s *service) {
		doubt, recorded, free, hash := s.key(t), s.key(t), s.key(t).at(3), s.key(t)
		doubt.leave()
		recorded.record("", obj{}, obj{"owner": "x"}).want(201, "recorded")
		hash.reserve(hashed("a")).id()
		c := call{method: http.MethodPost, path: "/v1/batch/reserve", wrong: true, body: obj{"items": []obj{
			item(doubt, obj{"owner": "w"}), item(recorded, obj{"owner": "w"}), item(free, obj{"owner": "w"}), item(hash, obj{"owner": "w", "request_hash": "b"}), {},
		}}}
		a := s.send(t, c)
		lines := s.lines(t, a)
		if len(lines) != 3 {
			t.Fatalf("want a line for each doubtful item and one for the call, got %+v", lines)
		}
		for i, want := range []entry{{TaskID: doubt.task, Outcome: "in_doubt"}, {TaskID: hash.task, Outcome: "request_mismatch"}} {
			if got := lines[i]; got.Level != "warn" || got.TaskID != want.TaskID || got.Outcome != want.Outcome || got.Token != "anonymous" {
				t.Errorf("item %d: %+v", i, got)
			}
		}
		if got := lines[2]; got.Level != "info" || got.Items != 5 || got.TaskID != "" || got.Status != 200 {
			t.Errorf("call: %+v", got)
		}
	})
}

// Lines below the level are not written, and those of health and readiness are at debug.
func TestLogLevel(t *testing.T) {
	t.Parallel()
	for level, want := range map[zerolog.Level]int{zerolog.DebugLevel: 5, zerolog.InfoLevel: 3, zerolog.WarnLevel: 2, zerolog.ErrorLevel: 1} {
		var log bytes.Buffer
		n := 0
		keeper := broken{do: func(_ context.Context, cmds []idem.Command) []idem.Result {
			n++
			if n == 1 {
				return []idem.Result{{Outcome: idem.Outcome{Code: idem.CodeLeaseLost, Key: cmds[0].Target()}}}
			}
			return []idem.Result{{Err: idem.ErrUnavailable}}
		}}
		s := server.New(keeper, nil, new(server.Tokens), zerolog.New(&log).Level(level), server.Config{})
		for _, path := range []string{"/healthz", "/readyz", "/openapi.yaml", "/v1/tasks/a/attempts/0/renew", "/v1/tasks/a/attempts/0/renew"} {
			method := http.MethodGet
			if strings.HasSuffix(path, "renew") {
				method = http.MethodPost
			}
			r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(`{"reservation_id":"`+id+`"}`))
			r.Header.Set("Content-Type", "application/json")
			s.ServeHTTP(httptest.NewRecorder(), r)
		}
		if got := strings.Count(log.String(), "\n"); got != want {
			t.Errorf("at %s: %d lines, want %d:\n%s", level, got, want, log.String())
		}
	}
}

// A refusal that is in the trail already is counted and logged only.
func TestLogOfARepeatedRefusal(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		k := s.key(t)
		k.reserve().id()
		for _, repeated := range []bool{false, true} {
			a := k.record(id, obj{"body": "x"}).want(409, "not_holder")
			if line := s.lines(t, a)[0]; line.Repeated != repeated {
				t.Errorf("want repeated %t: %+v", repeated, line)
			}
		}
	})
}

// Nothing of what callers keep is in the log: neither bodies nor headers nor reservations.
func TestLogIsDiscreet(t *testing.T) {
	t.Parallel()
	s := start(t, setup{database: inMemory})
	k := s.key(t)
	holder := k.reserve(hashed("hash-of-it")).id()
	k.record(holder, obj{"body": "secret-body", "headers": obj{"X": "secret-header"}}).want(201, "recorded")
	k.replay("?owner=query-owner").want(200, "recorded")
	k.reserve(hashed("another-hash")).want(422, "request_mismatch")
	a := k.record(holder, obj{"body": "second-body"}).want(409, "already_recorded")
	s.lines(t, a)
	s.journal.mu.Lock()
	defer s.journal.mu.Unlock()
	for _, line := range s.journal.lines {
		for _, word := range []string{holder, "secret", "hash-of-it", "another-hash", "query-owner", "second-body"} {
			if bytes.Contains(line, []byte(word)) {
				t.Errorf("%s is in the log: %s", word, line)
			}
		}
	}
}
