package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// purge tells of what is deleted because its retention has ended.
type purge struct {
	deleted                  prometheus.Counter
	inDoubt                  prometheus.Counter
	purgedEvents, partitions prometheus.Counter
	lag                      prometheus.Gauge
	lastStep                 prometheus.Gauge
	faults                   prometheus.Counter
}

func (p *purge) register(f promauto.Factory) {
	p.deleted = f.NewCounter(counter("purged_entries_total", "Entries that were deleted after their retention."))
	p.inDoubt = f.NewCounter(counter("purged_in_doubt_total", "Keys whose retention ended in doubt, which the trail tells."))
	p.purgedEvents = f.NewCounter(counter("purged_events_total", "Events that were deleted one by one after their retention."))
	p.partitions = f.NewCounter(counter("purged_event_partitions_total", "Partitions of events that were dropped after their retention, with all that was in them."))
	p.lag = f.NewGauge(opts("purge_lag_seconds", "For how long what the purge has just found was past its retention; 0 if it found nothing."))
	p.lastStep = f.NewGauge(opts("purge_last_step_timestamp_seconds", "When the purge last took a step that succeeded."))
	p.faults = f.NewCounter(counter("purge_errors_total", "Steps of the purge that failed; they are tried again."))
}

// Purged is to be told of each step of the purge: how many entries it deleted, and how far it lags behind.
func (m *Metrics) Purged(entries int, lag time.Duration) {
	m.deleted.Add(float64(entries))
	m.lag.Set(lag.Seconds())
	m.lastStep.Set(float64(time.Now().UnixMilli()) / 1000)
}

// PurgedEvents is to be told of each purge of the trail: how many events it deleted, and how many partitions it dropped.
func (m *Metrics) PurgedEvents(events, partitions int) {
	m.purgedEvents.Add(float64(events))
	m.partitions.Add(float64(partitions))
}

// PurgeFailed is to be told of each fault of the purge.
func (m *Metrics) PurgeFailed() { m.faults.Inc() }
