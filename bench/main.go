// Command bench measures idemstore against its reference, pgbench, side by side on one Postgres: same server, same
// durability, same columns, interleaved, several rounds. Absolute times mean little on a shared machine; ratios do.
//
//	go run ./bench            the whole table, some five minutes
//	go run ./bench -short     under a minute, and fails when the pair ratio falls under -floor
//	go run ./bench -grow N    pairs and replays beside N recorded rows
//	go run ./bench -purge N   reserves while N expired rows are purged
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"time"
)

func main() {
	short := flag.Bool("short", false, "only pairs at 64 connections and pgbench, one connection count; fails under -floor")
	floor := flag.Float64("floor", 0.5, "with -short: the least pair ratio that passes")
	rounds := flag.Int("rounds", 3, "rounds; the table shows medians")
	seconds := flag.Int("seconds", 4, "seconds a measurement")
	only := flag.String("only", "", "only the measurements whose name contains this, and pgbench")
	profile := flag.String("cpuprofile", "", "file for a CPU profile of the load generator")
	rows := flag.Int("grow", 0, "instead, measure pairs and replays at no rows and at so many")
	purge := flag.Int("purge", 0, "instead, measure reserves at half load without and with so many expired rows being purged")
	against := flag.String("against", "", "only drive the service at this host:port on loopback with pairs, to profile it")
	connections := flag.Int("connections", 64, "with -against: so many")
	batch := flag.Int("batch", 0, "with -against: in batches of so many")
	replays := flag.Bool("replays", false, "with -against: replays, of keys that it records first")
	flag.Parse()
	if *against != "" {
		if err := drive(*against, *connections, *batch, *replays, time.Duration(*seconds)*time.Second); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	o := options{*short, *floor, *rounds, time.Duration(*seconds) * time.Second, *only, *rows, *purge}
	stopProfile, err := profileTo(*profile)
	if err == nil {
		err = run(ctx, o)
		stopProfile()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// drive keeps a service that runs already busy.
func drive(address string, connections, batch int, replays bool, d time.Duration) error {
	b := &bench{service: &service{address: address}}
	next := pair
	if batch > 0 {
		next = batches(batch)
	}
	if replays {
		tasks, _, err := b.prepare(2000)
		if err != nil {
			return err
		}
		next = replayOf(tasks)
	}
	r, err := b.run(connections, d, 0, next)
	fmt.Printf("%.0f/s  p50 %s  p99 %s\n", r.ops, r.p50, r.p99)
	return err
}

type options struct {
	short  bool
	floor  float64
	rounds int
	each   time.Duration
	only   string
	grow   int
	purge  int
}

// measurement is a line of the table.
type measurement struct {
	name string
	run  func(d time.Duration) (result, error)
}

// bench is one Postgres, and idemstore in front of it.
type bench struct {
	dir     string
	db      *postgres
	service *service
}

func run(ctx context.Context, o options) error {
	b, err := newBench(ctx)
	if err != nil {
		return err
	}
	defer b.close()
	if o.grow > 0 {
		return b.grow(o.grow, o.rounds, o.each)
	}
	if o.purge > 0 {
		return b.purge(o.purge, o.rounds, o.each)
	}
	list := b.measurements()
	if o.short {
		list, o.rounds = shortOnes(list), 3
	}
	list = slices.DeleteFunc(list, func(m measurement) bool { return !wanted(m.name, o.only) })
	results := make(map[string][]result)
	for round := range o.rounds {
		// In another order each time: what one leaves behind, such as rows to vacuum, is not always felt by the same other.
		for _, i := range rand.Perm(len(list)) {
			m := list[i]
			if ctx.Err() != nil {
				return ctx.Err()
			}
			r, err := m.run(o.each)
			if err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
			results[m.name] = append(results[m.name], r)
			fmt.Fprintf(os.Stderr, "round %d  %-34s %9.0f/s  p50 %-10s p99 %s\n", round+1, m.name, r.ops, r.p50, r.p99)
		}
	}
	fmt.Printf("%s, %d CPUs, %s; Postgres %s, default durability; medians of %d rounds of %s\n\n",
		runtime.Version(), runtime.NumCPU(), time.Now().UTC().Format(time.DateOnly), b.db.version, o.rounds, o.each)
	table(os.Stdout, list, results)
	figures := ratios(results)
	printRatios(os.Stdout, figures)
	if got := figures[0].value; o.short && got < o.floor {
		return fmt.Errorf("pairs at 64 connections are %.2f of pgbench's, under the floor of %.2f: is group commit broken?", got, o.floor)
	}
	return nil
}
