package metrics

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// children are values by key. One that was made is found without a lock and without allocating. There are few of them and
// soon no new ones, so making one may be slow.
type children[K comparable, T any] struct {
	mu   sync.Mutex
	made atomic.Pointer[map[K]T]
}

// get returns the child of a key, if it was made.
func (c *children[K, T]) get(key K) (child T, ok bool) {
	if made := c.made.Load(); made != nil {
		child, ok = (*made)[key]
	}
	return child, ok
}

// of returns the child of a key, made when it is first asked for.
func (c *children[K, T]) of(key K, born func(K) T) T {
	if child, ok := c.get(key); ok {
		return child
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if child, ok := c.get(key); ok {
		return child
	}
	next := map[K]T{}
	if made := c.made.Load(); made != nil {
		maps.Copy(next, *made)
	}
	child := born(key)
	next[key] = child
	c.made.Store(&next)
	return child
}

func (c *children[K, T]) count() int {
	if made := c.made.Load(); made != nil {
		return len(*made)
	}
	return 0
}

// counters are a vector's, by what their labels are made of.
type counters[K comparable] struct {
	vec    *prometheus.CounterVec
	labels func(K) []string
	known  children[K, prometheus.Counter]
}

func newCounters[K comparable](vec *prometheus.CounterVec, labels func(K) []string) *counters[K] {
	return &counters[K]{vec: vec, labels: labels}
}

func (c *counters[K]) get(key K) prometheus.Counter { return c.known.of(key, c.child) }

func (c *counters[K]) child(key K) prometheus.Counter { return c.vec.WithLabelValues(c.labels(key)...) }

const (
	maxHandlers = 50
	noHandler   = "none"
	// other stands for all that are too many.
	other = "other"
)

// few tells the first names apart that it meets: so many, whatever callers send.
type few struct {
	max   int
	full  atomic.Bool
	mu    sync.Mutex
	names children[string, string]
}

// label is the value under which a name is counted.
func (f *few) label(name string) string {
	if name == "" {
		return noHandler
	}
	if label, ok := f.names.get(name); ok {
		return label
	}
	if f.full.Load() {
		return other
	}
	return f.meet(name)
}

func (f *few) meet(name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if label, ok := f.names.get(name); ok {
		return label
	}
	if f.names.count() >= f.max {
		f.full.Store(true)
		return other
	}
	return f.names.of(strings.Clone(name), func(name string) string { return name }) // not the request that it came in
}
