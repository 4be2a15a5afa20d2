package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/idemstore/idemstore/internal/server"
)

// requests counts what is HTTP about them.
type requests struct {
	inFlight prometheus.Gauge
	seconds  *prometheus.HistogramVec
	bySort   children[sort, prometheus.Observer]
}

type sort struct {
	method, route string
	class         int // of the status
}

func (r *requests) register(f promauto.Factory) {
	r.inFlight = f.NewGauge(opts("http_requests_in_flight", "Requests that are not answered yet, waiting ones included."))
	r.seconds = f.NewHistogramVec(histogram("http_request_duration_seconds",
		"How long requests took, by the pattern of their route.", requestSeconds), []string{"method", "route", "status"})
}

// Began implements server.Observer.
func (m *Metrics) Began() { m.inFlight.Inc() }

// Served implements server.Observer.
func (m *Metrics) Served(method, route string, status int, took time.Duration) {
	m.inFlight.Dec()
	if !methods[method] {
		method = other
	}
	if route == "" {
		route = "unmatched"
	}
	m.bySort.of(sort{method, route, status / 100}, m.makeSort).Observe(took.Seconds())
}

// methods are told apart; a caller may send any word.
var methods = map[string]bool{
	"GET": true, "HEAD": true, "POST": true, "PUT": true, "PATCH": true, "DELETE": true, "OPTIONS": true,
}

func (r *requests) makeSort(s sort) prometheus.Observer {
	class := "none" // broken off before there was a status
	if s.class > 0 {
		class = strconv.Itoa(s.class) + "xx"
	}
	return r.seconds.WithLabelValues(s.method, s.route, class)
}

var _ server.Observer = (*Metrics)(nil)
