package store

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/internal/pgtest"
)

// BenchmarkSwap writes so many fresh rows and then records each of them with 500 bytes: two swaps, and a pair for each row.
func BenchmarkSwap(b *testing.B) {
	onEveryBackendB(b, func(b *testing.B, s Backend, rows int) {
		for b.Loop() {
			fresh, records := pairs(rows)
			benchSwap(b, s, fresh)
			benchSwap(b, s, records)
		}
	})
}

// BenchmarkReplay tells of a replay of each of so many rows, which stay as they are.
func BenchmarkReplay(b *testing.B) {
	onEveryBackendB(b, func(b *testing.B, s Backend, rows int) {
		_, same := pairs(rows)
		for i := range same {
			same[i].Base = 0
		}
		benchSwap(b, s, same)
		for i := range same {
			e := same[i].Entry
			same[i] = idem.Change{
				Entry: e, Base: e.Version, Same: true, Before: e.ExpiresAt,
				Events: []idem.Event{{At: e.RecordedAt, Kind: idem.EventReplayed, Key: e.Key, Fence: 1, Owner: "http-worker-9", Actor: idem.Actor{Token: "workers"}}},
			}
		}
		for b.Loop() {
			benchSwap(b, s, same)
		}
	})
}

func onEveryBackendB(b *testing.B, bench func(b *testing.B, s Backend, rows int)) {
	for name, url := range map[string]func() string{
		"Postgres": func() string { return pgtest.New(b) },
		"SQLite":   func() string { return "sqlite:" + b.TempDir() + "/idemstore.db" },
	} {
		for _, rows := range []int{1, 16, 64, 256} {
			b.Run(fmt.Sprintf("%s/rows=%d", name, rows), func(b *testing.B) {
				s, err := Open(b.Context(), url(), Options{})
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				bench(b, s, rows)
				b.ReportMetric(float64(rows*b.N)/b.Elapsed().Seconds(), "rows/s")
			})
		}
	}
}

var benchBody = func() []byte {
	body := make([]byte, 0, 512)
	for len(body) < 500 {
		body = append(body, uuid.NewString()...)
	}
	return body[:500]
}()

var benchVersion atomic.Int64

// pairs are the changes of a worker's happy path.
func pairs(rows int) (fresh, records []idem.Change) {
	for range rows {
		id := uuid.Must(uuid.NewV7())
		e := reserved(idem.Key{TaskID: id.String()})
		e.Version = benchVersion.Add(2)
		e.Owner, e.Handler, e.RequestHash = "http-worker-7d2", "http.call", "sha256:9f86d081884c7d659a2feaa0c55ad015"
		r := recorded(e, &idem.Response{
			Status: 201, Headers: []idem.Header{{"content-type", "application/json"}}, HasBody: true, Body: benchBody,
		})
		fresh = append(fresh, idem.Change{Entry: e, Alone: true, Before: e.LeaseUntil})
		records = append(records, idem.Change{Entry: r, Base: e.Version, Before: e.LeaseUntil})
	}
	return fresh, records
}

func benchSwap(b *testing.B, s Backend, changes []idem.Change) {
	b.Helper()
	written, _, err := s.Swap(b.Context(), changes)
	if err != nil {
		b.Fatal(err)
	}
	for _, ok := range written {
		if !ok {
			b.Fatal("refused")
		}
	}
}
