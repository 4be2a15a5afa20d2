package store

import (
	"sync"
	"sync/atomic"
)

// watchers are told when an entry of their task was changed here.
type watchers struct {
	count atomic.Int64 // so that writers pass by without the lock while nobody watches
	mu    sync.Mutex
	tasks map[string]*watched
}

// watched is what the watchers of one task share until its next change.
type watched struct {
	changed chan struct{}
	count   int
}

func (w *watchers) watch(taskID string) (<-chan struct{}, func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tasks == nil {
		w.tasks = make(map[string]*watched)
	}
	on := w.tasks[taskID]
	if on == nil {
		on = &watched{changed: make(chan struct{})}
		w.tasks[taskID] = on
	}
	on.count++
	w.count.Add(1)
	return on.changed, sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.count.Add(-1)
		if on.count--; on.count == 0 && w.tasks[taskID] == on {
			delete(w.tasks, taskID)
		}
	})
}

func (w *watchers) changed(taskID string) {
	if w.count.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if on := w.tasks[taskID]; on != nil {
		close(on.changed)
		delete(w.tasks, taskID)
	}
}
