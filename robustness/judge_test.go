package robustness

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/google/uuid"

	"github.com/idemstore/idemstore/internal/idem"
)

// The model knows right answers from wrong ones, and what may have happened from what has not.
func TestModel(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	policy, key := idem.DefaultPolicy, idem.Key{TaskID: uuid.NewString()}
	one, two := uuid.NewString(), uuid.NewString()
	reserve := func(id string, takeovers ...idem.Takeover) *idem.Reserve {
		return &idem.Reserve{Call: idem.Call{Key: key}, Owner: "w", ReservationID: id, LeaseSeconds: 1, Takeovers: takeovers}
	}
	second := reserve(two)
	second.Attempt = 1
	third := reserve(uuid.NewString())
	third.Attempt = 1
	held := &reply{Status: 409, Outcome: "in_progress", Fence: 1, LeaseUntil: at(1006)}
	granted := func(fence int64, ms int) *reply {
		return &reply{
			Status: 201, Outcome: "reserved", Fence: fence, Owner: "w", ReservedAt: at(ms), LeaseUntil: at(ms + 1000),
			ExpiresAt: at(ms + 1000).Add(policy.InDoubtRetention),
		}
	}
	inProgress := &reply{Status: 409, Outcome: "in_progress", Fence: 1, LeaseUntil: at(1005)}
	inDoubt := &reply{Status: 409, Outcome: "in_doubt", Fence: 1}
	did := func(cmd idem.Command, begun, ended int, r *reply) *call {
		return &call{cmd: cmd, begun: nanos(at(begun)), ended: nanos(at(ended)), reply: r}
	}
	lost := func(cmd idem.Command, begun int) *call {
		return &call{cmd: cmd, begun: nanos(at(begun)), ended: forever}
	}
	stored := version{
		key: key, at: at(5), state: "reserved", fence: 1, reservation: one, leaseSeconds: 1, reservedAt: at(5), leaseUntil: at(1005),
		expiresAt: at(1005).Add(policy.InDoubtRetention),
	}
	cases := []struct {
		name   string
		calls  []*call
		ledger []version
		want   bool
	}{
		{"a grant, and another in its way", []*call{did(reserve(one), 0, 10, granted(1, 5)), did(reserve(two), 20, 30, inProgress)}, nil, true},
		{"granted to two", []*call{did(reserve(one), 0, 10, granted(1, 5)), did(reserve(two), 20, 30, granted(2, 25))}, nil, false},
		{"in doubt too early", []*call{did(reserve(one), 0, 10, granted(1, 5)), did(reserve(two), 20, 30, inDoubt)}, nil, false},
		{"in doubt when the lease may have passed", []*call{did(reserve(one), 0, 10, granted(1, 5)), did(reserve(two), 20, 1005, inDoubt)}, nil, true},
		{"in progress when the lease has passed", []*call{did(reserve(one), 0, 10, granted(1, 5)), did(reserve(two), 1010, 1020, inProgress)}, nil, false},
		{"dated before it was asked for", []*call{did(reserve(one), 10, 20, granted(1, 5))}, nil, false},
		{"dated half an hour ahead", []*call{did(reserve(one), 0, 10, granted(1, 30*60*1000))}, nil, false},
		{"a takeover of a doubt that was looked into", []*call{
			did(reserve(one), 0, 10, granted(1, 5)), did(reserve(two, idem.Takeover{Fence: 1}), 1010, 1020, granted(2, 1015)),
		}, nil, true},
		{"a takeover by an old look", []*call{
			did(reserve(one), 0, 10, granted(1, 5)), did(reserve(two, idem.Takeover{Fence: 7}), 1010, 1020, granted(2, 1015)),
		}, nil, false},
		{"two attempts at the same instant", []*call{did(reserve(one), 0, 10, granted(1, 5)), did(second, 0, 10, granted(1, 6))}, nil, true},
		{"two attempts at the same instant, and both in the way", []*call{
			did(reserve(one), 0, 10, granted(1, 5)), did(second, 0, 10, granted(1, 6)),
			did(third, 20, 30, held), did(reserve(uuid.NewString()), 20, 30, inProgress),
		}, nil, true},
		{"two attempts, one after the other", []*call{did(reserve(one), 0, 10, granted(1, 5)), did(second, 20, 30, granted(1, 25))}, nil, false},
		{"a lost call that happened", []*call{lost(reserve(one), 0), did(reserve(two), 20, 30, inProgress)}, []version{stored}, true},
		{"a lost call that did not happen", []*call{lost(reserve(one), 0), did(reserve(two), 20, 30, granted(1, 25))}, nil, true},
		{"a lost call that left nothing and is in the way", []*call{lost(reserve(one), 0), did(reserve(two), 20, 30, inProgress)}, nil, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := &ledger{policy: policy, versions: c.ledger}
			m := newModel(policy, l, c.calls).porcupine()
			if got := porcupine.CheckOperations(m, l.operations(c.calls)); got != c.want {
				t.Errorf("explained: %t, want %t", got, c.want)
			}
		})
	}
}
