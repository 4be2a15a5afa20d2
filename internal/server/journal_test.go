package server_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// journal is the log of one service. At the service's end it is held to what was answered.
type journal struct {
	mu      sync.Mutex
	lines   [][]byte
	wanted  map[string]entry // by request id
	secrets []string
}

// entry is what a line about a request tells.
type entry struct {
	Level, Message, Method, Route, Outcome, Token string
	RequestID                                     string `json:"request_id"`
	TaskID                                        string `json:"task_id"`
	Attempt                                       int
	Status                                        int
	Duration                                      *float64 `json:"duration_ms"`
	Error                                         string
	Items                                         int
	Repeated                                      bool
}

func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, bytes.Clone(line))
	return len(line), nil
}

// secret must never be in a line, nor may its hash.
func (j *journal) secret(s string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	sum := sha256.Sum256([]byte(s))
	j.secrets = append(j.secrets, s, hex.EncodeToString(sum[:]))
}

// doubtful are the outcomes that someone should look into.
var doubtful = []string{"in_doubt", "already_recorded", "lease_lost", "not_holder", "request_mismatch"}

// expect has an answer's line looked for.
func (j *journal) expect(c call, req *http.Request, path string, a answer) {
	outcome, _ := a.body["outcome"].(string)
	if a.header.Get("Content-Type") == "application/octet-stream" {
		outcome = "recorded"
	}
	if strings.HasSuffix(path, "/resolve") && a.status == 200 {
		outcome, _ = a.body["state"].(string) // what it was settled to
	}
	e := entry{Level: "info", Method: c.method, Route: path, Outcome: outcome, Status: a.status, RequestID: a.header.Get("X-Request-Id")}
	results, _ := a.body["results"].([]any)
	failed := slices.ContainsFunc(results, func(r any) bool {
		status, _ := r.(obj)["status"].(float64)
		return status >= 500 || r.(obj)["outcome"] == "unavailable"
	})
	switch {
	case a.status >= 500 || failed:
		e.Level = "error"
	case slices.Contains(doubtful, outcome):
		e.Level = "warn"
	case path == "/healthz" || path == "/readyz":
		e.Level = "debug"
	}
	part := strings.Split(req.URL.Path, "/")
	field, _ := a.body["field"].(string)
	wrongKey := (field == "task_id" || field == "attempt") && !bytes.Contains(c.bytes(), []byte(field))
	if strings.HasPrefix(path, "/v1/tasks/") && len(part) > 3 && !wrongKey && a.status != 401 && a.status != 403 {
		e.TaskID = part[3]
		if len(e.TaskID) == 36 {
			e.TaskID = strings.ToLower(e.TaskID)
		}
		if len(part) > 5 {
			e.Attempt, _ = strconv.Atoi(part[5])
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.wanted == nil {
		j.wanted = make(map[string]entry)
	}
	j.wanted[e.RequestID] = e
}

// of is the lines about a request. They may come a moment after its answer.
func (j *journal) of(requestID string) []entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	var found []entry
	for _, line := range j.lines {
		var e entry
		if json.Unmarshal(line, &e) == nil && e.RequestID == requestID {
			found = append(found, e)
		}
	}
	return found
}

// faults tells of secrets in the log, and of answers that have not exactly one line that tells of them.
func (j *journal) faults() (faults []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	found := make(map[string]int)
	for _, line := range j.lines {
		for _, s := range j.secrets {
			if bytes.Contains(line, []byte(s)) {
				faults = append(faults, fmt.Sprintf("a token is in the log: %s", line))
			}
		}
		var got entry
		if err := json.Unmarshal(line, &got); err != nil {
			faults = append(faults, fmt.Sprintf("a line of the log is no JSON: %s", line))
			continue
		}
		want, ok := j.wanted[got.RequestID]
		if !ok || got.Message != "request" {
			continue
		}
		found[got.RequestID]++
		if got.Token == "" || got.Duration == nil {
			faults = append(faults, fmt.Sprintf("no token or no duration in the log: %s", line))
		}
		want.Message, want.Token, want.Duration, want.Error, want.Items, want.Repeated = got.Message, got.Token, got.Duration, got.Error, got.Items, got.Repeated
		if want.Route == "" {
			want.Route = got.Route // of no operation
		}
		if got != want {
			faults = append(faults, fmt.Sprintf("in the log: %s want %+v", line, want))
		}
	}
	for id, want := range j.wanted {
		if found[id] != 1 {
			faults = append(faults, fmt.Sprintf("%d lines in the log of %+v", found[id], want))
		}
	}
	return faults
}
