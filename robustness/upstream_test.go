package robustness

import (
	"fmt"
	"sync"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
)

// upstream is what the workers' side effects happen to. It honours no key of anybody's: it does what it is told, as often
// as it is told.
type upstream struct {
	mu      sync.Mutex
	effects map[idem.Key][]effect
	excused map[idem.Key]bool // somebody chose to repeat, in spite of a doubt
	n       int
}

type effect struct {
	owner       string
	reservation string
	at          time.Time
	response    *idem.Response
}

func newUpstream() *upstream {
	return &upstream{effects: map[idem.Key][]effect{}, excused: map[idem.Key]bool{}}
}

// act has the effect happen, if that can still be begun in time: a worker looks at its own clock right before.
func (u *upstream) act(key idem.Key, owner, reservation string, lease time.Time) (*idem.Response, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	if !now.Before(lease) {
		return nil, false
	}
	u.n++
	r := &idem.Response{
		Status: 201, Headers: []idem.Header{{"Content-Type", "text/plain"}, {"X-N", fmt.Sprint(u.n)}},
		HasBody: true, Body: fmt.Appendf(nil, "effect %d of %s by %s\x00\xff", u.n, key, owner),
	}
	u.effects[key] = append(u.effects[key], effect{owner, reservation, now, r})
	return r, true
}

// look is what a worker asks by the natural key of what it would do: whether that was done, and what came of it.
func (u *upstream) look(key idem.Key) *idem.Response {
	u.mu.Lock()
	defer u.mu.Unlock()
	if done := u.effects[key]; len(done) > 0 {
		return done[0].response
	}
	return nil
}

// excuse says that somebody chose to repeat what may have been done.
func (u *upstream) excuse(key idem.Key) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.excused[key] = true
}

// twice are the keys whose effect happened more than once, and nobody chose that.
func (u *upstream) twice() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	var list []string
	for key, done := range u.effects {
		if len(done) < 2 || u.excused[key] {
			continue
		}
		text := fmt.Sprintf("the effect of %s happened %d times:", key, len(done))
		for _, e := range done {
			text += fmt.Sprintf(" by %s under %s at %s;", e.owner, short(e.reservation), clock(e.at))
		}
		list = append(list, text)
	}
	return list
}

func (u *upstream) isExcused(key idem.Key) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.excused[key]
}
