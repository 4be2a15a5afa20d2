package store

import (
	"runtime"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Pool is what is known of a pool of connections to Postgres.
type Pool struct {
	Name             string
	Max              int           // connections
	InUse, Idle, New int           // New: on their way
	Acquired, Waited int64         // so far; Waited: of them, those that found none idle
	Wait             time.Duration // of those
	GivenUp          int64         // by callers, before they had one
}

// Lanes is how many rounds of a backend's are worth having under way at once. Those on SQLite, which has one writer, would only
// wait for each other.
func Lanes(b Backend) int {
	p, ok := b.(*Postgres)
	if !ok {
		return 1
	}
	return min(int(p.pool.Config().MaxConns), max(2, runtime.GOMAXPROCS(0)/2))
}

// Pools are a backend's, none where it has no pool.
func Pools(b Backend) []Pool {
	p, ok := b.(*Postgres)
	if !ok {
		return nil
	}
	return []Pool{pool("commands", p.pool), pool("reads", p.questions.pool)}
}

func pool(name string, p *pgxpool.Pool) Pool {
	s := p.Stat()
	return Pool{
		Name: name, Max: int(s.MaxConns()), InUse: int(s.AcquiredConns()), Idle: int(s.IdleConns()), New: int(s.ConstructingConns()),
		Acquired: s.AcquireCount(), Waited: s.EmptyAcquireCount(), Wait: s.EmptyAcquireWaitTime(), GivenUp: s.CanceledAcquireCount(),
	}
}
