package metrics

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/idemstore/idemstore/internal/idem"
)

// trail counts what is written to the store: there passes, once and whoever asked, everything that the service decides.
type trail struct {
	events     *counters[string]
	duplicates *counters[[3]string]
	late       *counters[string]
	takeovers  *counters[string]
	found      *counters[string]
	lost       prometheus.Counter
	load, swap timed
}

var kinds = []idem.EventKind{
	idem.EventReplayed, idem.EventTakenOver, idem.EventFoundInDoubt, idem.EventRefusedMismatch, idem.EventReleased,
	idem.EventRecordedLate, idem.EventDuplicateRecord, idem.EventRefusedRecord, idem.EventResolved, idem.EventPurged,
}

// timed are the calls of one kind.
type timed struct {
	seconds  prometheus.Observer
	failures prometheus.Counter
}

func (t *trail) register(f promauto.Factory) {
	one := func(l string) []string { return []string{l} }
	three := func(l [3]string) []string { return l[:] }
	t.events = newCounters(f.NewCounterVec(counter("events_total", "Events that this replica wrote to the trail."), []string{"kind"}), one)
	t.duplicates = newCounters(f.NewCounterVec(counter("duplicate_records_total",
		"Responses that were offered for a key that has one, by another than who recorded it or with another response."),
		[]string{"verb", "same_response", "handler"}), three)
	t.late = newCounters(f.NewCounterVec(counter("late_records_total", "First records that came after their lease had passed."), []string{"handler"}), one)
	t.takeovers = newCounters(f.NewCounterVec(counter("takeovers_total", "Grants past a doubt that a worker had looked into."), []string{"handler"}), one)
	t.found = newCounters(f.NewCounterVec(counter("doubts_found_total", "Doubts that were found, each the first time."), []string{"handler"}), one)
	// There from the start: a count that comes into being at 1 is not seen to rise.
	for _, same := range []string{"true", "false"} {
		t.duplicates.get([3]string{"record", same, noHandler})
	}
	for _, kind := range kinds {
		t.events.get(string(kind))
	}
	for _, c := range []*counters[string]{t.late, t.takeovers, t.found} {
		c.get(noHandler)
	}
	t.lost = f.NewCounter(counter("swaps_lost_total", "Changes whose row another had changed first: decided anew, and tried again."))
	seconds := f.NewHistogramVec(histogram("store_duration_seconds", "How long the store took.", storeSeconds), []string{"call"})
	failures := f.NewCounterVec(counter("store_errors_total", "Calls of the store that failed."), []string{"call"})
	t.load = timed{seconds.WithLabelValues("load"), failures.WithLabelValues("load")}
	t.swap = timed{seconds.WithLabelValues("swap"), failures.WithLabelValues("swap")}
}

// Store counts what is written to a store, and how long it takes.
func (m *Metrics) Store(s idem.Store) idem.Store { return &counted{Store: s, m: m} }

type counted struct {
	idem.Store
	m *Metrics
}

// Load implements idem.Store.
func (c *counted) Load(ctx context.Context, keys []idem.Key) ([]*idem.Entry, time.Time, error) {
	begun := time.Now()
	entries, now, err := c.Store.Load(ctx, keys)
	c.m.load.took(begun, err)
	return entries, now, err
}

// Swap implements idem.Store.
func (c *counted) Swap(ctx context.Context, changes []idem.Change) ([]bool, time.Time, error) {
	begun := time.Now()
	written, now, err := c.Store.Swap(ctx, changes)
	c.m.swap.took(begun, err)
	if err != nil {
		return written, now, err
	}
	for i := range changes {
		if !written[i] {
			c.m.lost.Inc()
			continue
		}
		for j := range changes[i].Events {
			c.m.wrote(&changes[i].Events[j])
		}
	}
	return written, now, nil
}

func (t *timed) took(begun time.Time, err error) {
	t.seconds.Observe(time.Since(begun).Seconds())
	if err != nil {
		t.failures.Inc()
	}
}

func (m *Metrics) wrote(e *idem.Event) {
	m.events.get(string(e.Kind)).Inc()
	handler := m.handlers.label(e.Handler)
	switch e.Kind {
	case idem.EventDuplicateRecord:
		same, _ := e.Detail["same_response"].(bool)
		verb, _ := e.Detail["verb"].(string)
		m.duplicates.get([3]string{verb, strconv.FormatBool(same), handler}).Inc()
	case idem.EventRecordedLate:
		m.late.get(handler).Inc()
	case idem.EventTakenOver:
		m.takeovers.get(handler).Inc()
	case idem.EventFoundInDoubt:
		m.found.get(handler).Inc()
	case idem.EventPurged:
		m.inDoubt.Inc()
	default: // by its kind alone
	}
}
