package store

import (
	"sync/atomic"
	"testing"

	"github.com/idemstore/idemstore/internal/pgtest"
)

func TestPools(t *testing.T) {
	t.Parallel()
	backend := openTest(t, pgtest.New(t), new(atomic.Int64))
	for range 3 {
		if err := backend.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := backend.Standing(t.Context()); err != nil {
		t.Fatal(err)
	}
	pools := Pools(backend)
	if len(pools) != 2 || pools[0].Name != "commands" || pools[1].Name != "reads" {
		t.Fatalf("got %+v", pools)
	}
	for _, p := range pools {
		if p.Max < 1 || p.Acquired < 1 || p.Idle+p.InUse+p.New < 1 || p.Waited < 1 {
			t.Errorf("got %+v", p)
		}
	}
	if pools[0].Acquired < 3 {
		t.Errorf("got %+v", pools[0])
	}
	if pools := Pools(openTest(t, "sqlite::memory:", new(atomic.Int64))); pools != nil {
		t.Errorf("SQLite has no pool, got %+v", pools)
	}
}
