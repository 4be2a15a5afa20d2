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
	began        time.Time
	starting     time.Duration // from the start of a process to its first fetch, of all
	firstGiven   time.Time     // when the task was handed out first
	doubtSince   time.Time     // when the worker was told first that the key is in doubt
	endedAt      time.Time     // when it was seen that the task has ended
	lastActivity time.Time     // when something was last done about the task
}

// life is what is known of the process that runs now.
type life struct {
	started  time.Time
	fetched  bool            // has asked for the topic
	accepted bool            // has learnt from the upstream that the effect happened
	declined bool            // has learnt that it did not
	granted  bool            // has been granted the key
	inDoubt  bool            // was told last that the key is in doubt
	told     map[string]bool // the doubts that it was told of, by attempt and fence
	looked   bool            // has asked the upstream whether it happened, since it was told of the newest of them
	holds    lease
	killed   bool
}

// lease is one that was granted.
type lease struct {
	until    time.Time // zero: none is held
	promised bool      // nothing happens before the dispatch, so that it may pass until then
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
	if !t.life.fetched && t.seen.Lives <= maxStarts {
		t.starting += time.Since(t.life.started)
	}
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
	switch until := t.life.holds.until; {
	case until.IsZero():
		t.seen.Unreserved++
	case t.lastActivity.After(until.Add(t.opts.MaxLease / 4)): // a request may be under way for a while
		t.seen.Overdue++
	}
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
func (t *trial) answered(look bool, status int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if accepted(status) {
		t.life.accepted = true
	} else {
		t.life.declined = true
	}
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
	if t.engine.shared(c.key) {
		t.seen.Shared++
	}
	switch c.verb {
	case "reserve":
		return t.reach(BeforeReserve)
	case "record":
		c.madeUp = t.opened && t.madeUp(c, receipts)
		return t.reach(BeforeRecord)
	case "renew":
		c.late = !t.life.holds.promised && !t.life.holds.until.IsZero() && time.Now().After(t.life.holds.until)
	}
	return true
}

// madeUp says whether a response is recorded that the upstream gave neither this process nor, by its receipt, another.
func (t *trial) madeUp(c *storeCall, receipts []string) bool {
	for _, receipt := range receipts {
		if c.carries(receipt) {
			return false
		}
	}
	if accepted(c.body.Response.Status) {
		return !t.life.accepted || c.names("id") // of something that never was
	}
	return !t.life.declined
}

// accepted says whether an upstream's answer means that the effect happened.
func accepted(status int) bool { return status < http.StatusBadRequest }

// told implements storeWatch.
func (t *trial) told(c *storeCall, a storeAnswer) bool {
	if c.verb == "release" && a.status == http.StatusOK {
		t.letConnect()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if a.Outcome == "in_doubt" && a.status == http.StatusConflict {
		t.inDoubt(c, a, now)
		return true
	}
	if a.Outcome == "lease_lost" && c.verb == "dispatch" {
		t.life.holds = lease{}
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
		t.lastActivity, t.life.holds = now, lease{}
	case "dispatch":
		t.life.holds = lease{until: now.Add(a.lease())}
	case "renew":
		t.seen.Renewed++
		if c.late {
			t.seen.Lapsed++
		}
		t.life.holds.until = now.Add(a.lease())
		return t.inFlight == 0 || t.reach(WhileRenewed)
	}
	return true
}

// inDoubt is what the worker has been told. A look from before it knew of a doubt says nothing about that one.
func (t *trial) inDoubt(c *storeCall, a storeAnswer, now time.Time) {
	t.life.inDoubt = true
	for _, takeover := range a.Takeovers {
		doubt := c.key.taskID + string(takeover)
		if !t.life.told[doubt] {
			t.life.told[doubt], t.life.looked = true, false
		}
	}
	if t.doubtSince.IsZero() {
		t.doubtSince = now
	}
	t.seen.ToldInDoubt++
}

// granted is a reserve that was.
func (t *trial) granted(c *storeCall, a storeAnswer, now time.Time) bool {
	t.lastActivity = now
	t.life.granted = true
	t.lease = a.lease()
	t.life.holds = lease{until: now.Add(t.lease), promised: c.body.Dispatch == "explicit"}
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
