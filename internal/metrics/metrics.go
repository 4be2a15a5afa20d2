// Package metrics counts what the service does, for Prometheus: it is told by those who do it, who know nothing of
// Prometheus themselves. docs/metrics.md has every name.
//
// What callers choose is never a label as it is: of the handlers, the first few are told apart; of everything else that they
// name, nothing is.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics are those of one service.
type Metrics struct {
	answers
	requests
	trail
	commit
	purge

	registry prometheus.Registerer
	handlers few
}

// New makes metrics and registers them.
func New(r prometheus.Registerer, version string) *Metrics {
	m := &Metrics{registry: r, handlers: few{max: maxHandlers}}
	f := promauto.With(r)
	m.answers.register(f)
	m.requests.register(f)
	m.trail.register(f)
	m.commit.register(f)
	m.purge.register(f)
	f.NewGaugeVec(opts("build_info", "The version that runs; always 1."), []string{"version"}).WithLabelValues(version).Set(1)
	return m
}

const namespace = "idemstore"

func opts(name, help string) prometheus.GaugeOpts {
	return prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}
}

func counter(name, help string) prometheus.CounterOpts {
	return prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}
}

func histogram(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}
}

// Buckets of histograms.
var (
	// A request may wait a minute for a key.
	requestSeconds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	// The store is given ten seconds.
	storeSeconds  = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	roundCommands = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000}
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
}
