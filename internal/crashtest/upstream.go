package crashtest

import (
	"io"
	"net/http"
	"sync"

	"github.com/google/uuid"
)

// upstream is what the worker's effects happen to: one resource, at a path of its own. Every request to it but GET and
// HEAD is an effect. GET tells whether it has happened, so that a worker in doubt can find out.
type upstream struct {
	path     string
	scenario Scenario
	keyed    bool // the same Idempotency-Key gets the first answer again, and no second effect
	exists   bool // there is something to read from the beginning
	watch    upstreamWatch

	mu       sync.Mutex
	effects  []string          // the receipt of each
	byKey    map[string]string // Idempotency-Key to receipt
	stumbled bool              // has failed, dropped or been slow, which it is once
}

// upstreamWatch is told what arrives. Where arrived or acted says false, the worker is dead, and nothing more is done.
type upstreamWatch interface {
	arrived(look bool) bool         // a request is here; if it is no look, an effect is about to happen
	acted(look bool) bool           // it has happened, or was declined
	answered(look bool, status int) // the answer, that it has happened or what else came of it, is on its way to the worker
	slowly(*http.Request)           // returns when a lease that was not renewed would have passed
}

func (u *upstream) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(u.path, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			u.look(w)
			return
		}
		u.act(w, r)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusNotFound, map[string]string{"error": "no task has this url: " + r.URL.Path})
	})
	return mux
}

// look tells whether the effect has happened.
func (u *upstream) look(w http.ResponseWriter) {
	if !u.watch.arrived(true) {
		hangUp()
	}
	u.mu.Lock()
	var receipt string
	if u.exists {
		receipt = "from the beginning"
	}
	if len(u.effects) > 0 {
		receipt = u.effects[0]
	}
	u.mu.Unlock()
	if !u.watch.acted(true) {
		hangUp()
	}
	if receipt == "" {
		answer(w, http.StatusNotFound, map[string]string{"error": "nothing has happened here"})
		return
	}
	u.watch.answered(true, http.StatusOK)
	u.receipt(w, http.StatusOK, receipt)
}

// act performs the effect, as the scenario has it.
func (u *upstream) act(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // only then is it seen that the worker has gone
	if !u.watch.arrived(false) {
		hangUp()
	}
	stumbles := u.stumbles()
	receipt := ""
	if u.scenario != Declines && !(u.scenario == Fails && stumbles) {
		receipt = u.perform(r.Header.Get("Idempotency-Key"))
	}
	if !u.watch.acted(false) || u.scenario == Drops && stumbles {
		hangUp()
	}
	if u.scenario == Slow && stumbles {
		u.watch.slowly(r)
	}
	status, what := http.StatusCreated, ""
	switch {
	case u.scenario == Declines:
		status, what = http.StatusPaymentRequired, "declined"
	case u.scenario == Fails && stumbles:
		status, what = http.StatusServiceUnavailable, "try again"
	case u.scenario == Falters && stumbles:
		status, what = http.StatusInternalServerError, "something broke"
	}
	u.watch.answered(false, status)
	if what != "" {
		answer(w, status, map[string]string{"error": what})
		return
	}
	u.receipt(w, status, receipt)
}

// stumbles is true once.
func (u *upstream) stumbles() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	first := !u.stumbled
	u.stumbled = true
	return first
}

// perform is the effect itself.
func (u *upstream) perform(key string) (receipt string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.keyed && key != "" && u.byKey[key] != "" {
		return u.byKey[key]
	}
	receipt = uuid.NewString()
	u.effects = append(u.effects, receipt)
	u.byKey[key] = receipt
	return receipt
}

func (u *upstream) receipt(w http.ResponseWriter, status int, receipt string) {
	w.Header().Set("Location", u.path)
	answer(w, status, map[string]string{"id": receipt})
}

func (u *upstream) receipts() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]string(nil), u.effects...)
}
