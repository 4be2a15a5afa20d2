package store

import (
	"sync"

	"github.com/idemstore/idemstore/internal/idem"
)

// recent remembers what this replica has just written, as guesses for what comes next on the same keys: a record
// follows its reserve. And it remembers the records that it has read, so that a replay of one that is asked for again and
// again is one exchange with the database and not two. A wrong guess costs a second try, never a wrong answer, so nothing
// is ever invalidated for correctness' sake.
//
// Two generations, the older dropped whole when the younger is full, bound its memory without a list to keep in order.
type recent struct {
	mu         sync.Mutex
	young, old map[idem.Key]*idem.Entry
	size       int
}

const (
	recentBytes = 16 << 20 // of one generation
	recentBody  = 16 << 10 // larger bodies are loaded when they are wanted
	recentEntry = 1 << 10  // what an entry weighs without its response
	recentItem  = 256      // and each earlier grant, spent reservation or refusal that it remembers
)

// weight is the bytes of memory that a response takes.
func weight(r *idem.Response) int {
	if r == nil {
		return 0
	}
	bytes := len(r.Body)
	for _, h := range r.Headers {
		bytes += len(h[0]) + len(h[1]) + 32
	}
	return bytes
}

// memoryOf is about what an entry takes.
func memoryOf(e *idem.Entry) int {
	return recentEntry + weight(e.Response) + recentItem*(len(e.Former)+len(e.Spent)+len(e.Refusals))
}

func (r *recent) get(k idem.Key) *idem.Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.young[k]; e != nil {
		return e
	}
	return r.old[k]
}

func (r *recent) put(e *idem.Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(e.Key)
	size := memoryOf(e)
	if size > recentEntry+recentBody {
		return
	}
	if r.young == nil || r.size+size > recentBytes {
		r.young, r.old, r.size = make(map[idem.Key]*idem.Entry), r.young, 0
	}
	r.young[e.Key] = e
	r.size += size
}

func (r *recent) drop(k idem.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(k)
}

func (r *recent) forget(k idem.Key) {
	if e := r.young[k]; e != nil {
		r.size -= memoryOf(e)
	}
	delete(r.young, k)
	delete(r.old, k)
}
