package console_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/idemstore/idemstore/internal/console"
	"github.com/idemstore/idemstore/internal/idem"
)

func TestTally(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	w := s.worker(t, "worker-a", task())
	w.reserve()
	w.record(200, "text/plain", "ok")
	for range 3 {
		w.id = uuid.NewString()
		w.reserve()
	}
	s.worker(t, "worker-b", task()).reserve()
	figures := func() string {
		page := s.as(t, "auditor").get("/console").want(200).body
		var all []string
		for _, name := range []string{"Reserved", "Recorded", "Replayed"} {
			_, rest, _ := strings.Cut(page, "<strong>"+name+`</strong> <span class="muted">`)
			n, _, _ := strings.Cut(rest, " in all")
			_, rest, _ = strings.Cut(rest, " by the minute: ")
			rate, _, _ := strings.Cut(rest, "</title>")
			bars := strings.Count(strings.Split(strings.Split(rest, `class="bars" d="`)[1], `"`)[0], "M")
			all = append(all, n+", "+rate+", "+strconv.Itoa(bars)+" bars")
		}
		return strings.Join(all, "; ")
	}
	for _, is := range []struct {
		after time.Duration
		want  string
	}{
		{0, "0, 0 a second now, 0 at most, 0 bars; 0, 0 a second now, 0 at most, 0 bars; 0, 0 a second now, 0 at most, 0 bars"}, // not a whole step yet
		{10 * time.Second, "2, 0.03 a second now, 0.03 at most, 1 bars; 1, 0.02 a second now, 0.02 at most, 1 bars; 3, 0.05 a second now, 0.05 at most, 1 bars"},
		{55 * time.Minute, "2, 0 a second now, 0.03 at most, 1 bars; 1, 0 a second now, 0.02 at most, 1 bars; 3, 0 a second now, 0.05 at most, 1 bars"},
		{6 * time.Minute, "0, 0 a second now, 0 at most, 0 bars; 0, 0 a second now, 0 at most, 0 bars; 0, 0 a second now, 0 at most, 0 bars"},
	} {
		s.later.Add(int64(is.after))
		if got := figures(); got != is.want {
			t.Errorf("after %s: %s\nwant %s", is.after, got, is.want)
		}
	}
}

// canned is a keeper that costs nothing.
type canned struct {
	idem.Keeper
	results []idem.Result
}

func (c canned) Do(context.Context, ...idem.Command) []idem.Result { return c.results }

func TestTallyCostsNoMemory(t *testing.T) { //nolint:paralleltest // it counts what is allocated
	tally := console.NewTally(canned{results: []idem.Result{{Outcome: idem.Outcome{OK: true, Code: idem.CodeReserved}}}}, time.Now)
	cmds := []idem.Command{&idem.Reserve{}}
	if n := testing.AllocsPerRun(1000, func() { tally.Do(context.Background(), cmds...) }); n > 0 {
		t.Errorf("%.1f allocations a call", n)
	}
}
