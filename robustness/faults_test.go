package robustness

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/jackc/pgx/v5"
)

// fault is one thing of the schedule.
type fault struct {
	at    time.Duration // since the run began
	what  string
	on    int // which replica
	lasts time.Duration
}

func (f fault) String() string {
	return fmt.Sprintf("%6.2fs  %-24s replica %d  for %.2fs", f.at.Seconds(), f.what, f.on, f.lasts.Seconds())
}

// kinds of faults, the usual ones more often.
var kinds = []string{
	"kill", "kill", "kill", "stop", "stop", "rolling restart", "db kill", "db connections cut", "db request lost", "db request lost",
	"db reply lost", "db reply lost", "db reply lost", "db slow", "db reset", "request lost", "reply lost", "reply lost", "slow", "reset", "reply cut short", "pool exhausted",
}

// schedule draws the faults of a run. Each kind comes once before any comes again, as long as there is time, so that a run of
// some minutes has had all of them whatever its seed.
func schedule(random *rand.Rand, duration time.Duration, replicas int) []fault {
	var list []fault
	var deck []string
	for at := time.Second; at < duration-time.Second; at += time.Duration(500+random.IntN(1500)) * time.Millisecond {
		if len(deck) == 0 {
			deck = append(deck, kinds...)
			random.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		}
		list = append(list, fault{at, deck[0], random.IntN(replicas), time.Duration(200+random.IntN(2800)) * time.Millisecond})
		deck = deck[1:]
	}
	return list
}

// inflict carries the schedule out, and returns when everything is healed again.
func (c *cluster) inflict(list []fault, begun time.Time, stop <-chan struct{}, failed func(error)) {
	var running sync.WaitGroup
	defer running.Wait()
	for _, f := range list {
		select {
		case <-stop:
			return
		case <-time.After(time.Until(begun.Add(f.at))):
		}
		running.Go(func() {
			if err := c.strike(f); err != nil {
				failed(fmt.Errorf("%s: %w", f, err))
			}
		})
	}
}

// strike has one fault come and go.
func (c *cluster) strike(f fault) error {
	r := c.replicas[f.on]
	switch f.what {
	case "db kill":
		return c.restartDB(f.lasts / 4)
	case "rolling restart":
		for _, r := range c.replicas {
			if err := r.restart(); err != nil {
				return err
			}
		}
		return nil
	}
	r.fault.Lock() // one at a time on one replica
	defer r.fault.Unlock()
	hold := func(p *toxiproxy.Proxy, stream, kind string, toxicity float64, attributes map[string]any) error {
		heal, err := toxic(p, stream, kind, toxicity, attributes)
		if err != nil {
			return err
		}
		<-time.After(f.lasts)
		return heal()
	}
	switch f.what {
	case "kill":
		r.kill()
		<-time.After(f.lasts / 4)
		return r.start()
	case "stop":
		r.signal(syscall.SIGSTOP)
		<-time.After(f.lasts)
		r.signal(syscall.SIGCONT)
		return nil
	case "db connections cut":
		return cut(r.toDB)
	case "db request lost":
		return hold(r.toDB, "upstream", "timeout", 1, map[string]any{"timeout": 0})
	case "db reply lost":
		return hold(r.toDB, "downstream", "timeout", 1, map[string]any{"timeout": 300})
	case "db slow":
		return hold(r.toDB, "downstream", "latency", 0.7, map[string]any{"latency": 300, "jitter": 250})
	case "db reset":
		return hold(r.toDB, "downstream", "reset_peer", 1, map[string]any{"timeout": 50})
	case "request lost":
		return hold(r.toAPI, "upstream", "timeout", 0.7, map[string]any{"timeout": 0})
	case "reply lost":
		return hold(r.toAPI, "downstream", "timeout", 0.7, map[string]any{"timeout": 200})
	case "slow":
		return hold(r.toAPI, "upstream", "latency", 0.7, map[string]any{"latency": 500, "jitter": 450})
	case "reset":
		return hold(r.toAPI, "downstream", "reset_peer", 0.7, map[string]any{"timeout": 20})
	case "reply cut short":
		return hold(r.toAPI, "downstream", "limit_data", 0.7, map[string]any{"bytes": 700})
	case "pool exhausted":
		return c.exhaust(f.lasts, r)
	}
	return fmt.Errorf("no such fault")
}

// exhaust takes every connection that the database has to give, and breaks those of a replica, which then finds none.
func (c *cluster) exhaust(duration time.Duration, r *replica) error {
	c.dbDown.Lock()
	defer c.dbDown.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), duration+5*time.Second)
	defer cancel()
	var taken []*pgx.Conn
	defer func() {
		for _, conn := range taken {
			_ = conn.Close(context.Background())
		}
	}()
	if err := cut(r.toDB); err != nil {
		return err
	}
	for until := time.Now().Add(duration); time.Now().Before(until) && ctx.Err() == nil; {
		conn, err := pgx.Connect(ctx, c.db.URL())
		if err != nil {
			<-time.After(20 * time.Millisecond)
			continue
		}
		taken = append(taken, conn)
	}
	return nil
}

// purge has the program's own purge run over the whole table again and again.
func (c *cluster) purge(program string, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(300 * time.Millisecond):
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		_ = exec.CommandContext(ctx, program, "purge", "--database-url", c.db.URL()).Run() // the database may be down
		cancel()
	}
}
