package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/idemstore/idemstore/internal/server"
)

// FuzzTraceHeaders sends a request that says of which trace it is: whatever it says, it is answered, has a trace of its own or the
// one that it names, and its line in the log is whole.
func FuzzTraceHeaders(f *testing.F) {
	provider := sdktrace.NewTracerProvider()
	tr := &tracing{provider: provider, tracer: provider.Tracer("test")}
	f.Fuzz(func(t *testing.T, parent, state, id string) {
		var log bytes.Buffer
		h := tr.handler(server.New(nil, nil, new(server.Tokens), zerolog.New(&log), server.Config{}))
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/openapi.yaml", nil)
		r.Header = http.Header{"Traceparent": {parent}, "Tracestate": {state}, "X-Request-Id": {id}}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		var line struct {
			TraceID   string `json:"trace_id"`
			RequestID string `json:"request_id"`
		}
		if err := json.Unmarshal(log.Bytes(), &line); err != nil || bytes.Count(log.Bytes(), []byte("\n")) != 1 {
			t.Fatalf("logged %q: %v", log.Bytes(), err)
		}
		if _, err := trace.TraceIDFromHex(line.TraceID); err != nil || w.Code != http.StatusOK || line.RequestID != w.Header().Get("X-Request-Id") {
			t.Fatalf("%d, logged %q, request id %q", w.Code, log.Bytes(), w.Header().Get("X-Request-Id"))
		}
	})
}

// FuzzSettings reads every setting that is text: what is taken can be used, and no refusal quotes a password.
func FuzzSettings(f *testing.F) {
	f.Fuzz(func(t *testing.T, database, listen, duration, bytes, template, denied, level string) {
		const password = "pass-6b1f"
		s := settings{
			DatabaseURL: strings.ReplaceAll(database, "PASSWORD", password), Listen: listen, MetricsListen: listen, Auth: "none", Retention: duration,
			InDoubtRetention: duration, EventRetention: duration, MaxBodyBytes: bytes, KeyTemplate: template, DeniedHeaders: denied,
			LogLevel: level, LogFormat: "json",
		}
		c, err := s.resolve()
		if err != nil {
			if strings.Contains(err.Error(), password) {
				t.Fatalf("a password is quoted: %v", err)
			}
			return
		}
		if c.policy.Retention < minRetention || c.policy.InDoubtRetention < minInDoubtRetention || c.server.MaxBodyBytes < 1 ||
			c.server.MaxBodyBytes > server.MaxMaxBodyBytes || !strings.Contains(c.server.KeyTemplate, "{task_id}") {
			t.Fatalf("taken: %+v", s)
		}
	})
}
