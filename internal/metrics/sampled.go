package metrics

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/idemstore/idemstore/internal/idem"
)

const (
	// sampleEvery is how often the store is asked at most, however many scrape.
	sampleEvery = 5 * time.Second
	// sampleTime bounds how long a scrape waits for the store.
	sampleTime = 2 * time.Second
)

// sampled is what the store is asked for when somebody scrapes.
type sampled[T any] struct {
	ask   func(context.Context) (T, error)
	clock func() time.Time

	mu    sync.Mutex
	asked time.Time
	value T
	err   error
}

// now returns an answer that is a few seconds old at most, or the failure to get one.
func (s *sampled[T]) now() (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.clock(); s.asked.IsZero() || now.Sub(s.asked) >= sampleEvery {
		ctx, cancel := context.WithTimeout(context.Background(), sampleTime)
		defer cancel()
		s.value, s.err = s.ask(ctx)
		s.asked = s.clock()
	}
	return s.value, s.err
}

// Standing shows what is open and in doubt. What the store does not tell is left out: it is not 0.
func (m *Metrics) Standing(ask func(context.Context) (idem.Standing, error)) {
	m.registry.MustRegister(m.standing(ask))
}

func (m *Metrics) standing(ask func(context.Context) (idem.Standing, error)) *standing {
	failures := prometheus.NewCounter(counter("standing_errors_total", "How often the store did not tell what is open and in doubt."))
	return &standing{failures: failures, sampled: sampled[idem.Standing]{clock: time.Now, ask: func(ctx context.Context) (idem.Standing, error) {
		s, err := ask(ctx)
		if err != nil {
			failures.Inc()
		}
		return s, err
	}}}
}

type standing struct {
	sampled[idem.Standing]
	failures prometheus.Counter
}

var (
	open          = desc("open", "Keys that somebody holds under a live lease.")
	inDoubt       = desc("in_doubt", "Keys in doubt.")
	oldestInDoubt = desc("oldest_in_doubt_seconds", "How long ago the last lease of the oldest key in doubt passed; 0 if there is none.")
	readiness     = desc("ready", "1 if the store can serve, else 0.")
)

// Describe implements prometheus.Collector.
func (s *standing) Describe(d chan<- *prometheus.Desc) {
	d <- open
	d <- inDoubt
	d <- oldestInDoubt
	s.failures.Describe(d)
}

// Collect implements prometheus.Collector.
func (s *standing) Collect(c chan<- prometheus.Metric) {
	now, err := s.now()
	s.failures.Collect(c)
	if err != nil {
		return
	}
	age := 0.0
	if now.Oldest != nil {
		age = now.Now.Sub(now.Oldest.DoubtSince(now.Now)).Seconds()
	}
	c <- prometheus.MustNewConstMetric(open, prometheus.GaugeValue, float64(now.Open))
	c <- prometheus.MustNewConstMetric(inDoubt, prometheus.GaugeValue, float64(now.InDoubt))
	c <- prometheus.MustNewConstMetric(oldestInDoubt, prometheus.GaugeValue, age)
}

// Ready shows whether the store can serve.
func (m *Metrics) Ready(ask func(context.Context) error) {
	m.registry.MustRegister(&ready{sampled[struct{}]{clock: time.Now, ask: func(ctx context.Context) (struct{}, error) {
		return struct{}{}, ask(ctx)
	}}})
}

type ready struct{ sampled[struct{}] }

// Describe implements prometheus.Collector.
func (r *ready) Describe(d chan<- *prometheus.Desc) { d <- readiness }

// Collect implements prometheus.Collector.
func (r *ready) Collect(c chan<- prometheus.Metric) {
	value := 1.0
	if _, err := r.now(); err != nil {
		value = 0
	}
	c <- prometheus.MustNewConstMetric(readiness, prometheus.GaugeValue, value)
}
