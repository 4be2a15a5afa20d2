package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/idemstore/idemstore/internal/store"
)

// commit tells of group commit.
type commit struct {
	commands prometheus.Histogram
	waited   prometheus.Histogram
	took     prometheus.Histogram
}

func (c *commit) register(f promauto.Factory) {
	c.commands = f.NewHistogram(histogram("round_commands", "Commands that a round of group commit carried out.", roundCommands))
	c.waited = f.NewHistogram(histogram("command_wait_seconds", "How long commands waited for their round.", storeSeconds))
	c.took = f.NewHistogram(histogram("round_duration_seconds", "How long rounds took, with all their tries.", storeSeconds))
}

// Round is to be told of each round.
func (m *Metrics) Round(r store.Round) {
	m.commands.Observe(float64(len(r.Waited)))
	m.took.Observe(r.Took.Seconds())
	for _, waited := range r.Waited {
		m.waited.Observe(waited.Seconds())
	}
}

// Queue shows what waits for group commit.
func (m *Metrics) Queue(now func() store.Queue) { m.registry.MustRegister(queue{now}) }

type queue struct{ now func() store.Queue }

var (
	queueCommands = desc("queue_commands", "Commands that wait for their round.")
	queueBytes    = desc("queue_bytes", "Bytes of responses that wait for their round.")
	queueFullness = desc("queue_fullness_ratio", "How much of the queue is taken, by commands or by bytes; at 1 callers are sent away with 429.")
	queueRefused  = desc("queue_refused_total", "Commands that were sent away because the queue was full.")
)

// Describe implements prometheus.Collector.
func (queue) Describe(d chan<- *prometheus.Desc) {
	d <- queueCommands
	d <- queueBytes
	d <- queueFullness
	d <- queueRefused
}

// Collect implements prometheus.Collector.
func (q queue) Collect(c chan<- prometheus.Metric) {
	now := q.now()
	fullness := max(float64(now.Commands)/float64(now.MaxCommands), float64(now.Bytes)/float64(now.MaxBytes))
	c <- prometheus.MustNewConstMetric(queueCommands, prometheus.GaugeValue, float64(now.Commands))
	c <- prometheus.MustNewConstMetric(queueBytes, prometheus.GaugeValue, float64(now.Bytes))
	c <- prometheus.MustNewConstMetric(queueFullness, prometheus.GaugeValue, fullness)
	c <- prometheus.MustNewConstMetric(queueRefused, prometheus.CounterValue, float64(now.Refused))
}

// Pools shows the pools of connections.
func (m *Metrics) Pools(now func() []store.Pool) { m.registry.MustRegister(pools{now}) }

type pools struct{ now func() []store.Pool }

var (
	poolMax         = desc("pool_max_connections", "Connections that a pool may have.", "pool")
	poolConnections = desc("pool_connections", "Connections that a pool has, by what they do.", "pool", "state")
	poolAcquired    = desc("pool_acquired_total", "How often a connection was taken from a pool.", "pool")
	poolWaited      = desc("pool_waited_total", "How often none was idle, so that one had to be waited for or made.", "pool")
	poolWait        = desc("pool_wait_seconds_total", "How long that took, altogether.", "pool")
	poolGivenUp     = desc("pool_given_up_total", "How often nobody waited for it to the end.", "pool")
)

// Describe implements prometheus.Collector.
func (pools) Describe(d chan<- *prometheus.Desc) {
	for _, of := range []*prometheus.Desc{poolMax, poolConnections, poolAcquired, poolWaited, poolWait, poolGivenUp} {
		d <- of
	}
}

// Collect implements prometheus.Collector.
func (p pools) Collect(c chan<- prometheus.Metric) {
	for _, now := range p.now() {
		gauge := func(d *prometheus.Desc, value int, labels ...string) {
			c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), append([]string{now.Name}, labels...)...)
		}
		total := func(d *prometheus.Desc, value float64) {
			c <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, value, now.Name)
		}
		gauge(poolMax, now.Max)
		gauge(poolConnections, now.InUse, "in_use")
		gauge(poolConnections, now.Idle, "idle")
		gauge(poolConnections, now.New, "new")
		total(poolAcquired, float64(now.Acquired))
		total(poolWaited, float64(now.Waited))
		total(poolWait, now.Wait.Seconds())
		total(poolGivenUp, float64(now.GivenUp))
	}
}
