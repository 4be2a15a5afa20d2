package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/idemstore/idemstore/internal/pgtest"
)

// receiver takes spans as a collector does, by OTLP over HTTP.
type receiver struct {
	url   string
	mu    sync.Mutex
	calls int
	spans []span
}

type span struct {
	service, scope, name, trace, id, parent string
	attributes                              map[string]string
}

func startReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	s := httptest.NewServer(r)
	t.Cleanup(s.Close)
	r.url = s.URL
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	var sent collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &sent)
	}
	if err != nil || req.URL.Path != "/v1/traces" {
		http.Error(w, fmt.Sprint(req.URL.Path, err), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	for _, resource := range sent.GetResourceSpans() {
		var service string
		for _, a := range resource.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				service = a.GetValue().GetStringValue()
			}
		}
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				got := span{
					service: service, scope: scope.GetScope().GetName(), name: s.GetName(), trace: hex.EncodeToString(s.GetTraceId()),
					id: hex.EncodeToString(s.GetSpanId()), parent: hex.EncodeToString(s.GetParentSpanId()), attributes: map[string]string{},
				}
				for _, a := range s.GetAttributes() {
					got.attributes[a.GetKey()] = a.GetValue().GetStringValue()
				}
				r.spans = append(r.spans, got)
			}
		}
	}
}

// find returns the first span that is so.
func (r *receiver) find(so func(span) bool) (span, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.spans, so)
	if i < 0 {
		return span{}, false
	}
	return r.spans[i], true
}

const (
	traceID      = "4bf92f3577b34da6a3ce929d0e0e4736"
	callersSpan  = "00f067aa0ba902b7"
	traceparent  = "00-" + traceID + "-" + callersSpan + "-01"
	reserveRoute = "/v1/tasks/{task_id}/attempts/{attempt}/reserve"
)

// reserveTraced reserves a fresh key as a part of the trace above.
func (p *program) reserveTraced() {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, p.task(uuid.NewString())+"/reserve", strings.NewReader(`{"owner":"w"}`))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Traceparent", traceparent)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusCreated {
		p.t.Fatalf("reserve: %d", res.StatusCode)
	}
}

// line is the line of the log about the first request on a route.
func (p *program) line(route string) map[string]any {
	for line := range strings.Lines(p.logged()) {
		var all map[string]any
		if json.Unmarshal([]byte(line), &all) == nil && all["route"] == route {
			return all
		}
	}
	return nil
}

// A request that brings a trace along is a span in it, under the pattern of its route, and below it is what Postgres was asked.
func TestARequestIsTraced(t *testing.T) {
	t.Parallel()
	r := startReceiver(t)
	p := start(t, []string{
		"IDEMSTORE_DATABASE_URL=" + pgtest.New(t), "IDEMSTORE_LOG_LEVEL=debug", "OTEL_EXPORTER_OTLP_ENDPOINT=" + r.url, "OTEL_SERVICE_NAME=fleet-store",
		"OTEL_BSP_SCHEDULE_DELAY=10",
	})
	send("GET", p.url+"/healthz", "", "")
	p.reserveTraced()
	var request, round, query span
	eventually(t, "the request, its round and what Postgres was asked are spans", func() bool {
		var ok [3]bool
		request, ok[0] = r.find(func(s span) bool { return s.parent == callersSpan })
		round, ok[1] = r.find(func(s span) bool { return s.parent == request.id && request.id != "" })
		query, ok[2] = r.find(func(s span) bool {
			return s.parent == round.id && strings.Contains(s.scope, "otelpgx") && round.id != ""
		})
		return ok == [3]bool{true, true, true}
	})
	if request.name != "POST "+reserveRoute || request.attributes["http.route"] != reserveRoute || request.service != "fleet-store" {
		t.Errorf("the request is %+v", request)
	}
	for _, s := range []span{request, round, query} {
		if s.trace != traceID {
			t.Errorf("in another trace: %+v", s)
		}
	}
	eventually(t, "the request is logged", func() bool { return p.line(reserveRoute) != nil })
	if line := p.line(reserveRoute); line["trace_id"] != traceID || line["request_id"] == "" {
		t.Errorf("logged: %v", line)
	}
	if s, ok := r.find(func(s span) bool { return strings.Contains(s.name, "healthz") }); ok {
		t.Errorf("a health check is traced: %+v", s)
	}
}

// What is in the queue of spans at the stop is sent before the exit.
func TestSpansAreSentAtTheStop(t *testing.T) {
	t.Parallel()
	r := startReceiver(t)
	p := start(t, []string{
		"IDEMSTORE_DATABASE_URL=sqlite::memory:", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=" + r.url + "/v1/traces", "OTEL_BSP_SCHEDULE_DELAY=600000",
	})
	p.reserveTraced()
	p.signal(syscall.SIGTERM)
	if code := p.ended(); code != exitOK {
		t.Fatalf("exit status %d", code)
	}
	if s, ok := r.find(func(s span) bool { return s.parent == callersSpan }); !ok || s.service != "idemstore" {
		t.Errorf("sent: %+v", s)
	}
}

// Without its variables, or against them, nothing is sent and nothing is wrapped.
func TestNothingIsTracedUnlessItIsWanted(t *testing.T) {
	t.Parallel()
	for name, env := range map[string][]string{
		"default": nil, "disabled": {"OTEL_SDK_DISABLED=true"}, "no exporter": {"OTEL_TRACES_EXPORTER=none"}, "grpc": {"OTEL_EXPORTER_OTLP_PROTOCOL=grpc"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startReceiver(t)
			if name != "default" {
				env = append(env, "OTEL_EXPORTER_OTLP_ENDPOINT="+r.url)
			}
			p := start(t, append(env, "IDEMSTORE_DATABASE_URL=sqlite::memory:"))
			p.reserveTraced()
			p.signal(syscall.SIGTERM)
			if code := p.ended(); code != exitOK {
				t.Fatalf("exit status %d", code)
			}
			if r.calls != 0 || strings.Contains(p.logged(), "trace_id") {
				t.Errorf("%d calls of the collector; the log:\n%s", r.calls, p.logged())
			}
			if told := strings.Contains(p.logged(), "nothing is traced"); told != (name == "grpc") {
				t.Errorf("what cannot be is told, and nothing else:\n%s", p.logged())
			}
		})
	}
	var off *tracing
	handler := http.NewServeMux()
	if off.handler(handler) != http.Handler(handler) || off.options().Tracer != nil {
		t.Error("it is off, and yet something is wrapped")
	}
}

func TestTracingWanted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		env          string
		want, reason bool
	}{
		{"", false, false},
		{"OTEL_SERVICE_NAME=x OTEL_TRACES_EXPORTER=otlp", false, false},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://x", true, false},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://x", true, false},
		{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://x", false, false},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://x OTEL_TRACES_EXPORTER=otlp OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf OTEL_SDK_DISABLED=false", true, false},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://x OTEL_SDK_DISABLED=TRUE", false, false},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://x OTEL_TRACES_EXPORTER=none", false, false},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://x OTEL_TRACES_EXPORTER=zipkin", false, true},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://x OTEL_EXPORTER_OTLP_PROTOCOL=grpc", false, true},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://x OTEL_EXPORTER_OTLP_PROTOCOL=grpc OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf", true, false},
	} {
		env := map[string]string{}
		for pair := range strings.FieldsSeq(c.env) {
			name, value, _ := strings.Cut(pair, "=")
			env[name] = value
		}
		if wanted, reason := tracingWanted(func(name string) string { return env[name] }); wanted != c.want || (reason != "") != c.reason {
			t.Errorf("%s: %t %q", c.env, wanted, reason)
		}
	}
}

// A collector that is down costs a line in the log, and neither requests nor the stop.
func TestACollectorThatIsDown(t *testing.T) {
	t.Parallel()
	down := httptest.NewServer(http.NotFoundHandler())
	down.Close()
	p := start(t, []string{
		"IDEMSTORE_DATABASE_URL=sqlite::memory:", "OTEL_EXPORTER_OTLP_ENDPOINT=" + down.URL, "OTEL_BSP_SCHEDULE_DELAY=1",
		"OTEL_BSP_MAX_QUEUE_SIZE=8", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=4", "OTEL_BSP_EXPORT_TIMEOUT=50",
	})
	for range 100 {
		begun := time.Now()
		p.reserveTraced()
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("a request took %s", took)
		}
	}
	const complaint = "spans could not be sent"
	eventually(t, "the loss is logged", func() bool { return strings.Contains(p.logged(), complaint) })
	p.stopsSoon()
	if n := strings.Count(p.logged(), complaint); n != 1 {
		t.Errorf("it is logged %d times", n)
	}
}

// The same while the exporter is still trying, as by default it does for a long time.
func TestTheStopDoesNotWaitForACollector(t *testing.T) {
	t.Parallel()
	down := httptest.NewServer(http.NotFoundHandler())
	down.Close()
	p := start(t, []string{"IDEMSTORE_DATABASE_URL=sqlite::memory:", "OTEL_EXPORTER_OTLP_ENDPOINT=" + down.URL})
	p.reserveTraced()
	p.stopsSoon()
}

func (p *program) stopsSoon() {
	p.t.Helper()
	begun := time.Now()
	p.signal(syscall.SIGTERM)
	if code := p.ended(); code != exitOK {
		p.t.Fatalf("exit status %d", code)
	}
	if took := time.Since(begun); took > stopNotice+flushTime+5*time.Second {
		p.t.Errorf("the stop took %s", took)
	}
	if !strings.Contains(p.logged(), `"stopped"`) {
		p.t.Error("the stop did not come to its end")
	}
}

// A round stands in the trace of its first caller that has one, and is linked to those of the others, each once.
func TestARoundIsLinkedToItsCallers(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	tr := &tracing{provider: provider, tracer: provider.Tracer("test")}
	caller := func(n byte, flags trace.TraceFlags) context.Context {
		return trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{n}, SpanID: trace.SpanID{n}, TraceFlags: flags,
		}))
	}
	_, end := tr.round([]context.Context{t.Context(), caller(1, 0)})
	end()
	if got := spans.GetSpans(); len(got) != 0 {
		t.Fatalf("nobody is traced, and yet: %+v", got)
	}
	second, third := caller(2, trace.FlagsSampled), caller(3, trace.FlagsSampled)
	ctx, end := tr.round([]context.Context{caller(1, 0), second, second, third, third})
	if ctx.Done() != nil {
		t.Error("a round does not end with a caller")
	}
	end()
	got := spans.GetSpans()
	if len(got) != 1 || got[0].Parent.SpanID() != (trace.SpanID{2}) || got[0].SpanContext.TraceID() != (trace.TraceID{2}) {
		t.Fatalf("got %+v", got)
	}
	if links := got[0].Links; len(links) != 1 || links[0].SpanContext.SpanID() != (trace.SpanID{3}) {
		t.Errorf("links: %+v", links)
	}
	if got[0].Name != "round" {
		t.Errorf("it is called %s", got[0].Name)
	}
}
