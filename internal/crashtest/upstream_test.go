package crashtest

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// onlooker lets everything pass.
type onlooker struct{ slow int }

func (*onlooker) arrived(bool) bool      { return true }
func (*onlooker) acted(bool) bool        { return true }
func (*onlooker) answered(bool, int)     {}
func (o *onlooker) slowly(*http.Request) { o.slow++ }

func TestUpstream(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		scenario Scenario
		keyed    bool
		calls    string // method and Idempotency-Key each
		want     string // statuses; 0 is no answer
		effects  int
	}{
		{Plain, false, "GET: POST:a GET: POST:a", "404 201 200 201", 2},
		{Plain, true, "POST:a POST:a PUT:b POST: POST:", "201 201 201 201 201", 4},
		{Slow, false, "POST: POST:", "201 201", 2},
		{Declines, false, "POST: POST: GET:", "402 402 404", 0},
		{Fails, false, "POST: GET: POST: GET:", "503 404 201 200", 1},
		{Falters, false, "POST: GET: POST:", "500 200 201", 2},
		{Falters, true, "POST:a POST:a", "500 201", 1},
		{Drops, false, "POST: GET: HEAD:", "0 200 200", 1},
		{Drops, true, "POST:a POST:a", "0 201", 1},
	} {
		t.Run(fmt.Sprint(c.scenario, " ", c.keyed), func(t *testing.T) {
			t.Parallel()
			watch := new(onlooker)
			u := &upstream{path: "/orders/1", scenario: c.scenario, keyed: c.keyed, watch: watch, byKey: make(map[string]string)}
			var got []string
			for _, call := range strings.Fields(c.calls) {
				method, key, _ := strings.Cut(call, ":")
				got = append(got, fmt.Sprint(try(t, u.handler(), method, key)))
			}
			if strings.Join(got, " ") != c.want || len(u.receipts()) != c.effects {
				t.Errorf("got %s and %d effects, want %s and %d", got, len(u.receipts()), c.want, c.effects)
			}
			if slow := c.scenario == Slow; slow != (watch.slow == 1) {
				t.Errorf("slow %d times", watch.slow)
			}
		})
	}
}

func try(t *testing.T, h http.Handler, method, key string) (status int) {
	t.Helper()
	defer func() {
		if recover() == http.ErrAbortHandler { //nolint:errorlint // a panic's value
			status = 0
		}
	}()
	r := httptest.NewRequestWithContext(t.Context(), method, "/orders/1", strings.NewReader("{}"))
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

func TestClosedPort(t *testing.T) {
	t.Parallel()
	port, err := reservePort()
	if err != nil {
		t.Fatal(err)
	}
	dial := func() error {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", port.addr)
		if err == nil {
			return c.Close()
		}
		return err
	}
	if err := dial(); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("before it listens: %v", err)
	}
	l, err := port.listen()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := dial(); err != nil {
		t.Errorf("after: %v", err)
	}
}
