package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/exaring/otelpgx"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/idemstore/idemstore/internal/store"
)

const (
	// flushTime is what the last spans get of the stop's budget.
	flushTime = 3 * time.Second
	// complainEvery is how often it is logged that spans cannot be sent.
	complainEvery = time.Minute
)

// tracing sends spans of requests, of rounds and of what Postgres was asked to where OpenTelemetry's own variables say. It is
// nil where they say nothing, and then nothing is wrapped.
type tracing struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

// tracingWanted reads the variables that turn it on and off. A reason says why it stays off against what they want: those
// variables are often set for all programs of a machine, so what this one cannot do keeps it from nothing.
func tracingWanted(env func(string) string) (wanted bool, reason string) {
	first := func(names ...string) string {
		for _, name := range names {
			if v := strings.TrimSpace(env(name)); v != "" {
				return v
			}
		}
		return ""
	}
	exporter := first("OTEL_TRACES_EXPORTER")
	protocol := first("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
	switch {
	case strings.EqualFold(first("OTEL_SDK_DISABLED"), "true") || exporter == "none":
	case first("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT") == "":
	case exporter != "" && exporter != "otlp":
		return false, fmt.Sprintf("OTEL_TRACES_EXPORTER is %q, and spans are only sent by otlp", exporter)
	case protocol != "" && protocol != "http/protobuf":
		return false, fmt.Sprintf("the OTLP protocol is %q, and only http/protobuf is spoken", protocol)
	default:
		return true, ""
	}
	return false, ""
}

// newTracing starts tracing if it is wanted. Endpoint, headers, sampler and limits are read by the SDK itself.
func newTracing(ctx context.Context, log zerolog.Logger) (*tracing, error) {
	wanted, reason := tracingWanted(os.Getenv)
	if reason != "" {
		log.Warn().Str("reason", reason).Msg("nothing is traced")
	}
	if !wanted {
		return nil, nil
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	about, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithAttributes(attribute.String("service.name", "idemstore"), attribute.String("service.version", version())),
		resource.WithFromEnv()) // the last one wins
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithResource(about),
		sdktrace.WithBatcher(&quietExporter{SpanExporter: exporter, log: log}))
	return &tracing{provider: provider, tracer: provider.Tracer("github.com/idemstore/idemstore")}, nil
}

// options has Postgres traced.
func (t *tracing) options() store.Options {
	if t == nil {
		return store.Options{}
	}
	return store.Options{Tracer: otelpgx.NewTracer(otelpgx.WithTracerProvider(t.provider), otelpgx.WithMeterProvider(noop.NewMeterProvider()))}
}

// handler has requests traced, under the trace that they bring along. The server names the span, as it knows the route.
func (t *tracing) handler(next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return otelhttp.NewHandler(next, "request", otelhttp.WithTracerProvider(t.provider),
		otelhttp.WithMeterProvider(noop.NewMeterProvider()), otelhttp.WithPropagators(propagation.TraceContext{}),
		otelhttp.WithFilter(func(r *http.Request) bool { return r.URL.Path != "/healthz" && r.URL.Path != "/readyz" }))
}

// rounds has rounds of group commit traced.
func (t *tracing) rounds(b *store.Batcher) {
	if t != nil {
		b.Traced = t.round
	}
}

// round begins the span of a round. It stands in the trace of its first caller that has one, and is linked to the others.
func (t *tracing) round(callers []context.Context) (context.Context, func()) {
	var parent, last trace.SpanContext
	var links []trace.Link
	for _, caller := range callers {
		c := trace.SpanContextFromContext(caller)
		switch {
		case !c.IsSampled() || c.SpanID() == last.SpanID(): // of a batch's items, all have the same
			continue
		case !parent.IsValid():
			parent = c
		default:
			links = append(links, trace.Link{SpanContext: c})
		}
		last = c
	}
	ctx := context.Background()
	if !parent.IsValid() {
		return ctx, func() {}
	}
	ctx, span := t.tracer.Start(trace.ContextWithSpanContext(ctx, parent), "round", trace.WithLinks(links...),
		trace.WithAttributes(attribute.Int("idemstore.commands", len(callers))))
	return ctx, func() { span.End() }
}

// close sends what is left, if somebody takes it soon.
func (t *tracing) close(ctx context.Context) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // spans that nobody takes are lost; the exporter has logged it
}

// quietExporter logs now and then that spans cannot be sent, where the SDK would each time.
type quietExporter struct {
	sdktrace.SpanExporter
	log zerolog.Logger

	mu       sync.Mutex
	lost     int
	complain time.Time // not before
}

// ExportSpans implements sdktrace.SpanExporter.
func (e *quietExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	if err == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lost += len(spans)
	if now := time.Now(); now.After(e.complain) {
		e.log.Warn().Err(err).Int("spans", e.lost).Msg("spans could not be sent and are lost; requests go on as ever")
		e.lost, e.complain = 0, now.Add(complainEvery)
	}
	return nil
}
