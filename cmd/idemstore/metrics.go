package main

import (
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/idemstore/idemstore/internal/metrics"
	"github.com/idemstore/idemstore/internal/store"
)

// newRegistry is a registry with what is so of every Go program.
func newRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector())
	return registry
}

// measure has the metrics told of what happens behind the API, and what they ask for at a scrape.
func (v *service) measure(m *metrics.Metrics, batcher *store.Batcher) {
	batcher.Told = m.Round
	m.Queue(batcher.Queue)
	m.Pools(func() []store.Pool { return store.Pools(v.backend) })
	m.Ready(v.backend.Ready)
	m.Standing(v.backend.Standing)
}

// metricsHandler is what the second listener serves: metrics, and profiles of the running process. Neither needs a
// token, so it belongs on loopback or a network of operators.
func metricsHandler(from prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(from, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}
