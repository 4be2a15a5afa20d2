package metrics

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/internal/server"
	"github.com/idemstore/idemstore/internal/store"
)

// scraped is what a scrape brings: the value of each series, by how it is written.
type scraped map[string]float64

func scrape(t *testing.T, r *prometheus.Registry) scraped {
	t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	all := scraped{}
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		i := strings.LastIndexByte(line, ' ')
		value, err := strconv.ParseFloat(strings.TrimSpace(line[i:]), 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all[line[:i]] = value
	}
	return all
}

func (s scraped) want(t *testing.T, series string, value float64) {
	t.Helper()
	if got, ok := s[series]; !ok || got != value {
		t.Errorf("%s: want %g, got %g (there: %t)", series, value, got, ok)
	}
}

// of counts the series of a metric.
func (s scraped) of(name string) (n int) {
	for series := range s {
		if strings.HasPrefix(series, name+"{") {
			n++
		}
	}
	return n
}

func TestHandlersAreBounded(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	m := New(r, "test")
	m.Answered(server.Answered{Verb: "reserve", Handler: "first", Code: idem.CodeReserved})
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			for j := range 1000 {
				m.Answered(server.Answered{Verb: "reserve", Handler: fmt.Sprintf("h-%d", 500*i+j), Code: idem.CodeReserved})
				m.wrote(&idem.Event{Kind: idem.EventRecordedLate, Handler: fmt.Sprintf("e-%d-%d", i, j)})
			}
		})
	}
	callers.Wait()
	m.Answered(server.Answered{Verb: "reserve", Handler: "first", Code: idem.CodeReserved})
	m.Answered(server.Answered{Verb: "reserve", Code: idem.CodeReserved})
	all := scrape(t, r)
	all.want(t, `idemstore_reserve_total{handler="first",outcome="reserved"}`, 2)
	all.want(t, `idemstore_reserve_total{handler="none",outcome="reserved"}`, 1)
	if n := all.of("idemstore_reserve_total"); n > maxHandlers+2 || all[`idemstore_reserve_total{handler="other",outcome="reserved"}`] == 0 {
		t.Errorf("%d series, of others %g", n, all[`idemstore_reserve_total{handler="other",outcome="reserved"}`])
	}
	var sum float64
	labels := map[string]bool{}
	for series, value := range all {
		if name, rest, _ := strings.Cut(series, "{"); name == "idemstore_reserve_total" || name == "idemstore_late_records_total" {
			sum += value
			label, _, _ := strings.Cut(strings.TrimPrefix(rest, `handler="`), `"`)
			labels[label] = true
		}
	}
	if sum != 16_003 {
		t.Errorf("%g were counted of 16003", sum)
	}
	if len(labels) != maxHandlers+2 {
		t.Errorf("%d handlers are told apart, want %d, %s and %s", len(labels), maxHandlers, noHandler, other)
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	m := New(r, "test")
	for verb := range verbs {
		m.Answered(server.Answered{Verb: verb, Handler: "h", Code: idem.CodeInDoubt, Repeated: verb == "record"})
	}
	m.Answered(server.Answered{Verb: "of a caller", Handler: "h", Code: idem.CodeInDoubt})
	all := scrape(t, r)
	for verb := range verbs {
		all.want(t, `idemstore_`+verb+`_total{handler="h",outcome="in_doubt"}`, 1)
	}
	all.want(t, `idemstore_repeated_refusals_total{handler="h",outcome="in_doubt",verb="record"}`, 1)
	if n := all.of("idemstore_repeated_refusals_total"); n != 2 { // and the one that is there from the start
		t.Errorf("%d series of repeated refusals", n)
	}
}

func TestRequestsAreBounded(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	m := New(r, "test")
	for i := range 1000 {
		m.Began()
		m.Served(fmt.Sprintf("METHOD%d", i), "", 404, time.Millisecond)
	}
	m.Began()
	m.Began()
	m.Began()
	m.Served("GET", "/v1/x", 0, time.Millisecond)
	m.Served("POST", "/v1/x", 201, 3*time.Millisecond)
	all := scrape(t, r)
	all.want(t, `idemstore_http_request_duration_seconds_count{method="other",route="unmatched",status="4xx"}`, 1000)
	all.want(t, `idemstore_http_request_duration_seconds_bucket{method="POST",route="/v1/x",status="2xx",le="0.0025"}`, 0)
	all.want(t, `idemstore_http_request_duration_seconds_bucket{method="POST",route="/v1/x",status="2xx",le="0.005"}`, 1)
	all.want(t, `idemstore_http_requests_in_flight`, 1)
	all.want(t, `idemstore_http_request_duration_seconds_count{method="GET",route="/v1/x",status="none"}`, 1)
	if n := all.of("idemstore_http_request_duration_seconds_count"); n != 3 {
		t.Errorf("%d series", n)
	}
}

// scripted is a store that answers as it is told.
type scripted struct {
	idem.Store
	written []bool
	err     error
}

func (s scripted) Load(context.Context, []idem.Key) ([]*idem.Entry, time.Time, error) {
	return nil, time.Time{}, s.err
}

func (s scripted) Swap(context.Context, []idem.Change) ([]bool, time.Time, error) {
	return s.written, time.Time{}, s.err
}

// Only what was written is counted, each event once.
func TestWhatIsWritten(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	m := New(r, "test")
	events := func(kinds ...idem.EventKind) (c idem.Change) {
		for _, kind := range kinds {
			c.Events = append(c.Events, idem.Event{Kind: kind, Handler: "h", Detail: map[string]any{"verb": "record", "same_response": false}})
		}
		return c
	}
	same := idem.Change{Events: []idem.Event{{Kind: idem.EventDuplicateRecord, Handler: "h", Detail: map[string]any{"verb": "record", "same_response": true}}}}
	changes := []idem.Change{events(kinds...), events(kinds...), same, {}}
	swap := func(s scripted) {
		_, _, _ = m.Store(s).Swap(t.Context(), changes)
		_, _, _ = m.Store(s).Load(t.Context(), nil)
	}
	swap(scripted{written: []bool{true, false, true, true}})
	swap(scripted{err: errors.New("nobody knows")})
	got := scrape(t, r)
	for _, kind := range kinds {
		want := 1.0
		if kind == idem.EventDuplicateRecord {
			want = 2
		}
		got.want(t, fmt.Sprintf("idemstore_events_total{kind=%q}", kind), want)
	}
	for _, series := range []string{
		`idemstore_duplicate_records_total{handler="h",same_response="false",verb="record"}`,
		`idemstore_duplicate_records_total{handler="h",same_response="true",verb="record"}`,
		`idemstore_late_records_total{handler="h"}`, `idemstore_takeovers_total{handler="h"}`, `idemstore_doubts_found_total{handler="h"}`,
		`idemstore_purged_in_doubt_total`, `idemstore_swaps_lost_total`, `idemstore_store_errors_total{call="swap"}`,
		`idemstore_store_errors_total{call="load"}`,
	} {
		got.want(t, series, 1)
	}
	got.want(t, `idemstore_store_duration_seconds_count{call="swap"}`, 2)
}

func TestRoundsQueueAndPools(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	m := New(r, "test")
	m.Round(store.Round{Waited: []time.Duration{time.Millisecond, 3 * time.Millisecond}, Took: 4 * time.Millisecond})
	m.Queue(func() store.Queue {
		return store.Queue{Commands: 5, MaxCommands: 20, Bytes: 40, MaxBytes: 80, Refused: 7}
	})
	m.Pools(func() []store.Pool {
		return []store.Pool{{Name: "commands", Max: 4, InUse: 2, Idle: 1, New: 1, Acquired: 9, Waited: 3, Wait: 1500 * time.Millisecond, GivenUp: 8}}
	})
	m.Purged(3, time.Minute)
	m.PurgedEvents(70, 2)
	m.PurgeFailed()
	got := scrape(t, r)
	for series, value := range map[string]float64{
		`idemstore_round_commands_sum`:                               2,
		`idemstore_round_commands_count`:                             1,
		`idemstore_round_duration_seconds_sum`:                       .004,
		`idemstore_command_wait_seconds_sum`:                         .004,
		`idemstore_command_wait_seconds_count`:                       2,
		`idemstore_queue_commands`:                                   5,
		`idemstore_queue_bytes`:                                      40,
		`idemstore_queue_fullness_ratio`:                             .5,
		`idemstore_queue_refused_total`:                              7,
		`idemstore_pool_max_connections{pool="commands"}`:            4,
		`idemstore_pool_connections{pool="commands",state="idle"}`:   1,
		`idemstore_pool_connections{pool="commands",state="in_use"}`: 2,
		`idemstore_pool_connections{pool="commands",state="new"}`:    1,
		`idemstore_pool_acquired_total{pool="commands"}`:             9,
		`idemstore_pool_waited_total{pool="commands"}`:               3,
		`idemstore_pool_wait_seconds_total{pool="commands"}`:         1.5,
		`idemstore_pool_given_up_total{pool="commands"}`:             8,
		`idemstore_purged_entries_total`:                             3,
		`idemstore_purge_lag_seconds`:                                60,
		`idemstore_purged_events_total`:                              70,
		`idemstore_purged_event_partitions_total`:                    2,
		`idemstore_purge_errors_total`:                               1,
	} {
		got.want(t, series, value)
	}
	if at := got["idemstore_purge_last_step_timestamp_seconds"]; time.Since(time.UnixMilli(int64(at*1000))).Abs() > time.Minute {
		t.Errorf("the last step was at %f", at)
	}
}

func TestStanding(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	m := New(r, "test")
	now := time.Now()
	var asked int
	answer := idem.Standing{Now: now, Open: 3, InDoubt: 2, Oldest: &idem.Entry{
		State: idem.Reserved, Grant: idem.Grant{LeaseUntil: now.Add(-time.Minute)},
		Former: []idem.Former{{Doubt: true, Grant: idem.Grant{LeaseUntil: now.Add(-time.Hour)}}},
	}}
	var fault error
	s := m.standing(func(context.Context) (idem.Standing, error) { asked++; return answer, fault })
	s.clock = func() time.Time { return now }
	r.MustRegister(s)
	got := scrape(t, r)
	got.want(t, "idemstore_open", 3)
	got.want(t, "idemstore_in_doubt", 2)
	got.want(t, "idemstore_oldest_in_doubt_seconds", 3600)

	// However many scrape, the store is asked every few seconds.
	answer = idem.Standing{Now: now}
	scrape(t, r).want(t, "idemstore_open", 3)
	now = now.Add(sampleEvery)
	got = scrape(t, r)
	got.want(t, "idemstore_in_doubt", 0)
	got.want(t, "idemstore_oldest_in_doubt_seconds", 0)
	if asked != 2 {
		t.Errorf("the store was asked %d times", asked)
	}

	// What is not known is not there.
	now, fault = now.Add(sampleEvery), errors.New("nobody answers")
	got = scrape(t, r)
	for _, series := range []string{"idemstore_open", "idemstore_in_doubt", "idemstore_oldest_in_doubt_seconds"} {
		if value, ok := got[series]; ok {
			t.Errorf("%s is %g, and is not known", series, value)
		}
	}
	got.want(t, "idemstore_standing_errors_total", 1)
	scrape(t, r).want(t, "idemstore_standing_errors_total", 1)
}

// A store that does not answer holds a scrape up for a moment, and the next not at all.
func TestAScrapeDoesNotWaitLong(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	m := New(r, "test")
	var asked int
	m.Ready(func(ctx context.Context) error { asked++; <-ctx.Done(); return ctx.Err() })
	begun := time.Now()
	scrape(t, r).want(t, "idemstore_ready", 0)
	if took := time.Since(begun); took > sampleTime+5*time.Second {
		t.Errorf("the scrape took %s", took)
	}
	scrape(t, r).want(t, "idemstore_ready", 0)
	if asked != 1 {
		t.Errorf("the store was asked %d times", asked)
	}
}

//nolint:paralleltest // it counts the allocations of the whole process
func TestCountingAllocatesNothing(t *testing.T) {
	m := New(prometheus.NewRegistry(), "test")
	late := &idem.Event{Kind: idem.EventRecordedLate, Handler: "http.call"}
	allocated := testing.AllocsPerRun(1000, func() {
		m.Began()
		m.Answered(server.Answered{Verb: "reserve", Handler: "http.call", Code: idem.CodeReserved, Repeated: true})
		m.Served("POST", "/v1/tasks/{task_id}/attempts/{attempt}/reserve", 201, time.Millisecond)
		m.wrote(late)
	})
	if allocated != 0 {
		t.Errorf("%g allocations a request", allocated)
	}
}
