package server_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/internal/server"
	"github.com/idemstore/idemstore/internal/store"
)

// FuzzRequest reads its input as HTTP, as many requests as there are in it, and has the whole service answer them: no panic, no
// 5xx, JSON where JSON is said, and one sound line in the log.
func FuzzRequest(f *testing.F) {
	backend, err := store.Open(f.Context(), inMemory, store.Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(backend.Close)
	batcher := store.NewBatcher(backend, idem.DefaultPolicy, store.Lanes(backend))
	f.Cleanup(batcher.Close)
	f.Fuzz(func(t *testing.T, raw []byte) {
		var log bytes.Buffer
		s := server.New(batcher, backend, new(server.Tokens), zerolog.New(&log), server.Config{
			MaxBodyBytes: 1 << 10, KeyTemplate: server.DefaultKeyTemplate, DeniedHeaders: server.DefaultDeniedHeaders,
		})
		s.Drain() // so that nobody waits
		for in := bufio.NewReader(bytes.NewReader(raw)); ; {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			log.Reset()
			w := httptest.NewRecorder()
			if answered := serves(t, s, w, r.WithContext(t.Context())); answered {
				soundAnswer(t, r, w)
			}
			soundLine(t, w, log.Bytes())
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
		}
	})
}

// serves says whether a request was answered to its end; a stream of more than a page is not, as the service stops.
func serves(t *testing.T, s *server.Server, w http.ResponseWriter, r *http.Request) (whole bool) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			whole = false
			if p != http.ErrAbortHandler { //nolint:errorlint // the very value
				t.Fatalf("panic: %v", p)
			}
		}
	}()
	s.ServeHTTP(w, r)
	return true
}

func soundAnswer(t *testing.T, r *http.Request, w *httptest.ResponseRecorder) {
	t.Helper()
	stopping := w.Code == http.StatusServiceUnavailable && r.URL.Path == "/readyz"
	if w.Code < 200 || w.Code >= 500 && !stopping {
		t.Fatalf("%s %s: %d %s", r.Method, r.URL, w.Code, w.Body)
	}
	if !sane(w.Header().Get("X-Request-Id")) || w.Header().Get("Cache-Control") != "no-store" {
		t.Fatalf("%s %s: headers %v", r.Method, r.URL, w.Header())
	}
	kind := w.Header().Get("Content-Type")
	if strings.HasSuffix(kind, "json") && kind != "application/x-ndjson" && !json.Valid(w.Body.Bytes()) {
		t.Fatalf("%s %s: no JSON: %q", r.Method, r.URL, w.Body)
	}
	if (w.Code >= 400) != (kind == "application/problem+json") {
		t.Fatalf("%s %s: %d of the type %q", r.Method, r.URL, w.Code, kind)
	}
	var problem struct {
		Status                      int
		Code, Outcome, Detail, Type string
		RequestID                   string `json:"request_id"`
	}
	if w.Code < 400 {
		return
	}
	if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil || problem.Status != w.Code || problem.Code == "" || problem.Outcome != problem.Code ||
		problem.Detail == "" || problem.Type == "" || problem.RequestID != w.Header().Get("X-Request-Id") {
		t.Fatalf("%s %s: a problem that is none: %v %s", r.Method, r.URL, err, w.Body)
	}
	if after, err := strconv.Atoi(w.Header().Get("Retry-After")); (w.Code == 429 || w.Code == 503) && (err != nil || after < 1) {
		t.Fatalf("%s %s: %d without Retry-After", r.Method, r.URL, w.Code)
	}
}

// soundLine checks that each line of the log is a whole object, and that the last one tells of the request.
func soundLine(t *testing.T, w *httptest.ResponseRecorder, log []byte) {
	t.Helper()
	lines := bytes.Split(bytes.TrimSuffix(log, []byte("\n")), []byte("\n"))
	for _, line := range lines {
		var l struct {
			Level, Message string
			RequestID      string `json:"request_id"`
		}
		if err := json.Unmarshal(line, &l); err != nil || l.Level == "" || l.RequestID != w.Header().Get("X-Request-Id") {
			t.Fatalf("logged %q: %v", line, err)
		}
		if l.Message == "a handler panicked" {
			t.Fatalf("%s", line)
		}
	}
}
