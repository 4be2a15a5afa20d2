package crashtest

import (
	"net/http"
	"os"
	"sync"
	"time"
)

// trial runs one case. Whatever the worker asks of engine, store or upstream passes through it, so it knows the order
// of events, and kills the worker at the very request that marks the case's point.
type trial struct {
	Case
	opts     *Options
	client   *http.Client
	engine   *engine
	upstream *upstream
	files    files
	log      *os.File
	environ  []string
	over     chan struct{} // closed at the end
	open     func() error  // lets the upstream be connected to

	mu           sync.Mutex
	worker       *worker
	life         life
	seen         Evidence
	keys         map[key]bool  // by which the store was asked
	recorded     map[key]bool  // those that are
	sent         map[key]bool  // those whose effect was asked for
	opened       bool          // the upstream can be connected to
	inFlight     int           // effects whose answer is held back
	lease        time.Duration // of the last grant
	firstGiven   time.Time     // when the task was handed out first
	doubtSince   time.Time     // when the worker was told first that the key is in doubt
	endedAt      time.Time     // when it was seen that the task has ended
	lastActivity time.Time     // when something was last done about the task
}

// life is what is known of the process that runs now.
type life struct {
	started  time.Time
	fetched  bool // has asked for the topic
	looked   bool // has asked the upstream whether it happened
	answered bool // has learnt from the upstream what came of the effect
	granted  bool // has been granted the key
	inDoubt  bool // was told last that the key is in doubt
	killed   bool
}

// reach marks a point. If it is the one to be killed at, the worker is dead on return, and what marked the point must
// go no further. The caller holds t.mu, so nothing else goes on meanwhile.
func (t *trial) reach(points ...Point) (alive bool) {
	if t.seen.Killed {
		return true
	}
	for _, p := range points {
		if p == t.Point {
			t.seen.Killed, t.life.killed = true, true
			t.worker.kill()
			t.engine.unlock()
			return false
		}
	}
	return true
}

// fetched implements engineWatch.
func (t *trial) fetched() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.life.fetched = true
}

// delivered implements engineWatch.
func (t *trial) delivered() {
	t.mu.Lock()
	t.seen.Deliveries++
	again := t.seen.Deliveries > 1
	if !again {
		t.firstGiven = time.Now()
	}
	t.mu.Unlock()
	if again {
		t.letConnect()
	}
}

// reported implements engineWatch.
func (t *trial) reported() bool {
	t.letConnect()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lastActivity = time.Now()
	return t.reach(BeforeEnd)
}

// arrived implements upstreamWatch.
func (t *trial) arrived(look bool) bool {
	key := t.engine.key()
	t.mu.Lock()
	defer t.mu.Unlock()
	if look {
		t.life.looked = true
		return t.Handler != HTTPGet || t.reach(BeforeEffect)
	}
	t.lastActivity = time.Now()
	if !t.reach(BeforeEffect) {
		return false
	}
	if t.recorded[key] && t.sent[key] {
		t.seen.Repeated++
	}
	t.sent[key] = true
	return true
}

// acted implements upstreamWatch.
func (t *trial) acted(look bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return look && t.Handler != HTTPGet || t.reach(AfterEffect)
}

// answered implements upstreamWatch.
func (t *trial) answered(look bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.life.answered = true
	if look {
		t.seen.Reads++
	}
}

// slowly implements upstreamWatch.
func (t *trial) slowly(r *http.Request) {
	t.mu.Lock()
	t.inFlight++
	hold := time.NewTimer(t.lease * 3 / 2)
	t.mu.Unlock()
	defer hold.Stop()
	select {
	case <-hold.C:
	case <-r.Context().Done():
	case <-t.over:
	}
	t.mu.Lock()
	t.inFlight--
	t.mu.Unlock()
}

// asked implements storeWatch.
func (t *trial) asked(c *storeCall) bool {
	receipts := t.upstream.receipts()
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.key.taskID != "" {
		t.keys[c.key] = true
	}
	switch c.verb {
	case "reserve":
		return t.reach(BeforeReserve)
	case "record":
		c.madeUp = !t.life.answered && t.opened
		for _, receipt := range receipts {
			c.madeUp = c.madeUp && !c.carries(receipt)
		}
		return t.reach(BeforeRecord)
	}
	return true
}

// told implements storeWatch.
func (t *trial) told(c *storeCall, a storeAnswer) bool {
	if c.verb == "release" && a.status == http.StatusOK {
		t.letConnect()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if a.Outcome == "in_doubt" && a.status == http.StatusConflict {
		t.life.inDoubt = true
		if t.doubtSince.IsZero() {
			t.doubtSince = now
		}
		t.seen.ToldInDoubt++
		return true
	}
	if a.status >= 300 {
		return true
	}
	switch c.verb {
	case "reserve", "replay":
		if a.Outcome == "recorded" {
			t.seen.Replayed++
			return true
		}
		return t.granted(c, a, now)
	case "record":
		t.lastActivity = now
		t.recorded[c.key] = true
		if c.madeUp {
			t.seen.MadeUp++
		}
		if a.Late && t.life.granted {
			t.seen.Lapsed++
		}
		return t.reach(AfterRecord)
	case "release":
		t.lastActivity = now
	case "renew":
		t.seen.Renewed++
		return t.inFlight == 0 || t.reach(WhileRenewed)
	}
	return true
}

// granted is a reserve that was.
func (t *trial) granted(c *storeCall, a storeAnswer, now time.Time) bool {
	t.lastActivity = now
	t.life.granted = true
	t.lease = time.Duration(a.LeaseSeconds * float64(time.Second))
	if t.life.inDoubt && len(c.body.Takeovers) > 0 {
		t.seen.Takeovers++
		if !t.life.looked {
			t.seen.BlindTakeovers++
		}
	}
	t.life.inDoubt = false
	return t.reach(AfterReserve)
}

// letConnect opens an upstream that refused: the worker has shown what it makes of that.
func (t *trial) letConnect() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.opened {
		return
	}
	t.opened = true
	t.seen.fault = t.open()
}
