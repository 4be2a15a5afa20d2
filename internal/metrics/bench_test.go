package metrics

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/internal/server"
)

// What one request costs in being counted: it must stay well under a microsecond and allocate nothing.
func BenchmarkRequest(b *testing.B) {
	m := New(prometheus.NewRegistry(), "test")
	a := server.Answered{Verb: "reserve", Handler: "http.call", Code: idem.CodeReserved}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			m.Began()
			m.Answered(a)
			m.Served("POST", "/v1/tasks/{task_id}/attempts/{attempt}/reserve", 201, 1300*time.Microsecond)
		}
	})
}

// The same of a caller that sends another handler each time.
func BenchmarkManyHandlers(b *testing.B) {
	m := New(prometheus.NewRegistry(), "test")
	var names [4096]string
	for i := range names {
		names[i] = "handler-" + string(rune('a'+i%26)) + time.Duration(i).String()
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		m.Answered(server.Answered{Verb: "reserve", Handler: names[i%len(names)], Code: idem.CodeReserved})
		i++
	}
}

func BenchmarkEvent(b *testing.B) {
	m := New(prometheus.NewRegistry(), "test")
	e := &idem.Event{Kind: idem.EventRecordedLate, Handler: "http.call"}
	b.ReportAllocs()
	for b.Loop() {
		m.wrote(e)
	}
}
