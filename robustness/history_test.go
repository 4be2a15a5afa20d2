package robustness

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
)

// call is one command as its caller saw it. Its times are the machine's, which are the database's too.
type call struct {
	client       int
	cmd          idem.Command
	begun, ended int64 // Unix nanoseconds; forever where nobody answered
	reply        *reply
}

const forever = math.MaxInt64

// lost says that nobody answered: the command may have been carried out, or not, or may be yet.
func (c *call) lost() bool { return c.reply == nil }

// history is what all callers saw.
type history struct {
	mu    sync.Mutex
	calls []*call
}

func (h *history) add(c ...*call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, c...)
}

// byTask are the calls, one list a task, in the order in which they began. Attempts of one task bear on each other, so
// that a task is the smallest thing that can be judged by itself.
func (h *history) byTask() map[string][]*call {
	h.mu.Lock()
	defer h.mu.Unlock()
	tasks := make(map[string][]*call)
	for _, c := range h.calls {
		task := c.cmd.Target().TaskID
		tasks[task] = append(tasks[task], c)
	}
	for _, calls := range tasks {
		slices.SortStableFunc(calls, func(a, b *call) int { return int(min(max(a.begun-b.begun, -1), 1)) })
	}
	return tasks
}

func nanos(t time.Time) int64 { return t.UnixNano() }

// age is no command of the service: it brings the end of a key's retention near, as an hour's wait would. The harness
// does it by SQL, under a new version, as another replica's write.
type age struct {
	idem.Replay           // for its key; a command cannot be made outside idem
	until       time.Time // the end of retention from now on
}

// lost counts the calls that nobody answered.
func (h *history) lost() (n int) {
	for _, c := range h.calls {
		if c.lost() {
			n++
		}
	}
	return n
}
