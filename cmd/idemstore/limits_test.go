package main

import (
	"strings"
	"testing"
	"time"
)

// Every setting at its limits, one past them, and far past them.
func TestLimitsOfSettings(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<20)
	for name, c := range map[string]struct {
		set        func(s *settings, value string)
		good, over []string
	}{
		"IDEMSTORE_RETENTION": {
			func(s *settings, v string) { s.Retention = v },
			[]string{"1h", "8760h"},
			[]string{"59m59s", "8760h0m1s", "9223372036854775807ns", "99999999999h", "0", "-1h", "1y", "", long},
		},
		"IDEMSTORE_IN_DOUBT_RETENTION": {
			func(s *settings, v string) { s.InDoubtRetention = v },
			[]string{"24h", "87600h"},
			[]string{"23h59m59s", "87600h0m1s", "99999999999h", "0", "-24h", long},
		},
		"IDEMSTORE_EVENT_RETENTION": {
			func(s *settings, v string) { s.EventRetention = v },
			[]string{"24h", "87600h"},
			[]string{"23h59m59s", "87600h0m1s", "99999999999h", "0", long},
		},
		"IDEMSTORE_MAX_BODY_BYTES": {
			func(s *settings, v string) { s.MaxBodyBytes = v },
			[]string{"1", "16777216"},
			[]string{"0", "16777217", "-1", "9223372036854775807", "9223372036854775808", "1e3", "1_000", " 1", "", long},
		},
		"IDEMSTORE_KEY_TEMPLATE": {
			func(s *settings, v string) { s.KeyTemplate = v },
			[]string{"{task_id}", strings.Repeat("k", 246) + "{task_id}"},
			[]string{strings.Repeat("k", 247) + "{task_id}", "", "{task_id}\x7f", "{task_id}é", long + "{task_id}"},
		},
		"IDEMSTORE_LISTEN": {
			func(s *settings, v string) { s.Listen = v },
			[]string{"127.0.0.1:0", "127.0.0.1:65535", "localhost:1"},
			[]string{"127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1", ":", "", "127.0.0.1:99999999999999999999", long},
		},
		"IDEMSTORE_METRICS_LISTEN": {
			func(s *settings, v string) { s.MetricsListen = v },
			[]string{"", "127.0.0.1:0", ":65535"},
			[]string{":65536", "127.0.0.1", long},
		},
		"IDEMSTORE_DENIED_HEADERS": {
			func(s *settings, v string) { s.DeniedHeaders = v },
			[]string{"", "A", strings.Repeat("A-b,", 1000)},
			[]string{"A B", "A:", "A\x00", "\xff", strings.Repeat("A,", 1000) + "é"},
		},
	} {
		for i, value := range append(append([]string{}, c.good...), c.over...) {
			s := valid()
			c.set(&s, value)
			_, err := s.resolve()
			if good := i < len(c.good); good && err != nil || !good && (err == nil || !strings.Contains(err.Error(), name)) {
				t.Errorf("%s, %.40q: %v", name, value, err)
			}
		}
	}
}

// What keeps slow, many and large clients from doing harm has these values, as docs/security.md says.
func TestTimeoutsAndLimitsOfConnections(t *testing.T) {
	t.Parallel()
	v := &service{}
	api, aside := v.newHTTP(nil), v.newAside()
	for what, values := range map[string][2]any{
		"headers of the API":          {api.ReadHeaderTimeout, 5 * time.Second},
		"bodies of the API":           {api.ReadTimeout, 30 * time.Second},
		"answers of the API":          {api.WriteTimeout, 100 * time.Second},
		"idle connections of the API": {api.IdleTimeout, 2 * time.Minute},
		"header bytes of the API":     {api.MaxHeaderBytes, 32 << 10},
		"headers of metrics":          {aside.ReadHeaderTimeout, 5 * time.Second},
		"bodies of metrics":           {aside.ReadTimeout, 30 * time.Second},
		"answers of metrics":          {aside.WriteTimeout, time.Duration(0)}, // a profile takes as long as it is asked to
		"idle connections of metrics": {aside.IdleTimeout, 2 * time.Minute},
		"header bytes of metrics":     {aside.MaxHeaderBytes, 32 << 10},
		"HTTP/2 without TLS":          {api.Protocols == nil || !api.Protocols.UnencryptedHTTP2(), true},
		"connections have a log":      {api.ErrorLog != nil && aside.ErrorLog != nil, true},
		"OPTIONS * is ours to answer": {api.DisableGeneralOptionsHandler, true},
	} {
		if values[0] != values[1] {
			t.Errorf("%s: %v, want %v", what, values[0], values[1])
		}
	}
}
