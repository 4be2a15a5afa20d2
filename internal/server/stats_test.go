package server_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/idemstore/idemstore/internal/pgtest"
)

// What is counted is what was done, and no period but the one that was asked for.
func TestStats(t *testing.T) {
	t.Parallel()
	for _, engine := range engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			c := setup{database: inMemory}
			if engine == "postgres" {
				c.database = pgtest.New(t)
			}
			s := start(t, c)
			doubt, twice, free := s.key(t), s.key(t), s.key(t)
			begun := doubt.reserve(obj{"owner": "gone", "handler": "h", "lease_seconds": 30})
			s.pass(t, lease)
			doubt.reserve(obj{"owner": "finder"}).want(409, "in_doubt")
			twice.record(twice.reserve(obj{"owner": "a", "handler": "h"}).id(), obj{"body": "1"}).want(201, "recorded")
			twice.record(uuid.NewString(), obj{"body": "2"}).want(409, "not_holder")
			twice.record("", obj{"body": "2"}, obj{"owner": "b"}).want(409, "already_recorded")
			for range 3 {
				twice.replay("?owner=reader").want(200, "recorded")
			}
			free.reserve(obj{"owner": "a", "lease_seconds": 86400}).id()

			s.tick(t)
			a := s.find(t, "stats").ok().has(obj{"open": 1, "in_doubt": 1, "duplicates": 1, "more_handlers": 0, "more_owners": 0})
			zero := obj{
				"replayed": 0, "taken_over": 0, "found_in_doubt": 0, "refused_mismatch": 0, "released": 0, "recorded_late": 0,
				"duplicate_record": 0, "refused_record": 0, "resolved": 0, "purged": 0,
			}
			totals := obj{
				"entries": obj{"reserved": 2, "dispatched": 0, "recorded": 1, "released": 0, "in_doubt": 1},
				"events":  with(zero, obj{"replayed": 3, "found_in_doubt": 1, "duplicate_record": 1, "refused_record": 1}),
			}
			a.has(obj{"totals": totals})
			if oldest := a.body["oldest_in_doubt"].(obj); oldest["task_id"] != doubt.task || oldest["in_doubt"] != true {
				t.Errorf("the oldest in doubt is %v", oldest)
			}
			if period := a.time("before").Sub(a.time("after")); period != day {
				t.Errorf("the period is %s", period)
			}
			byName := func(list, name string) map[any]obj {
				all := make(map[any]obj)
				for _, c := range a.list(list) {
					all[c[name]] = c["counts"].(obj)["entries"].(obj)
				}
				return all
			}
			handlers, owners := byName("handlers", "handler"), byName("owners", "owner")
			if handlers["h"]["recorded"] != 1.0 || handlers["h"]["in_doubt"] != 1.0 || handlers[""]["reserved"] != 1.0 {
				t.Errorf("by handler: %v", handlers)
			}
			if owners["a"]["recorded"] != 1.0 || owners["a"]["reserved"] != 1.0 || owners["gone"]["in_doubt"] != 1.0 {
				t.Errorf("by owner: %v", owners)
			}

			// Until before the first: nothing, but what is open is open now.
			early := s.find(t, "stats", "before", begun.text("reserved_at")).ok().has(obj{
				"before": begun.body["reserved_at"], "open": 1, "in_doubt": 1, "duplicates": 0, "handlers": []any{}, "owners": []any{},
				"totals": obj{"entries": obj{"reserved": 0, "dispatched": 0, "recorded": 0, "released": 0, "in_doubt": 0}, "events": zero},
			})
			if period := early.time("before").Sub(early.time("after")); period != day {
				t.Errorf("the period is %s", period)
			}
			s.find(t, "stats", "after", offset(begun.time("reserved_at"), 3600)).ok().has(obj{"after": begun.body["reserved_at"], "totals": totals})
		})
	}
}

func TestStatsOfNothing(t *testing.T) {
	t.Parallel()
	s := start(t, setup{database: inMemory})
	s.find(t, "stats").ok().has(obj{"open": 0, "in_doubt": 0, "duplicates": 0, "handlers": []any{}, "owners": []any{}})
	s.find(t, "entries").ok().has(obj{"entries": []any{}})
	s.find(t, "events").ok().has(obj{"events": []any{}})
}
