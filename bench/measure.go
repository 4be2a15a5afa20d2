package main

import (
	"fmt"
	"io"
	"os"
	"runtime/pprof"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// measurements are the lines of the table.
func (b *bench) measurements() []measurement {
	var list []measurement
	add := func(name string, run func(d time.Duration) (result, error)) {
		list = append(list, measurement{name, run})
	}
	http := func(connections int, next func(int) operation) func(d time.Duration) (result, error) {
		return func(d time.Duration) (result, error) { return b.run(connections, d, 0, next) }
	}
	for _, clients := range []int{1, 16, 32, 64} {
		add(fmt.Sprintf("pgbench pairs, %d", clients), func(d time.Duration) (result, error) {
			return b.pgbench(pgbenchPairs, clients, d)
		})
	}
	add("pgbench insert, 1", func(d time.Duration) (result, error) { return b.pgbench(pgbenchInsert, 1, d) })
	add("pgbench read by key, 64", func(d time.Duration) (result, error) { return b.pgbench(pgbenchRead, 64, d) })
	for _, connections := range []int{1, 4, 16, 64, 256} {
		add(fmt.Sprintf("pairs, %d", connections), http(connections, pair))
	}
	add("reserve, 1", http(1, reserveOnly))
	add("reserve, 64 at half load", func(d time.Duration) (result, error) { return b.halfLoad(d) })
	add("replay, 64", func(d time.Duration) (result, error) { return b.run(64, d, 0, replayOf(b.service.recorded)) })
	add("hot key, 64", func(d time.Duration) (result, error) { return b.run(64, d, 0, hot(b.service.held)) })
	add("fresh reserve, 64", http(64, reserveOnly))
	for _, size := range []int{10, 50, 100} {
		add(fmt.Sprintf("pairs in batches of %d, 8", size), http(8, batches(size)))
	}
	add("mix, 64", func(d time.Duration) (result, error) { return b.run(64, d, 0, mix(b.service.recorded, b.service.held)) })
	add("pairs, one statement a request, 64", func(d time.Duration) (result, error) {
		return b.with("one", func() (result, error) { return b.run(64, d, 0, pair) })
	})
	add("pairs on SQLite, 64", func(d time.Duration) (result, error) {
		return b.with("sqlite", func() (result, error) { return b.run(64, d, 0, pair) })
	})
	return list
}

// halfLoad drives reserves at half of the rate that is the most, as open as 64 connections can.
func (b *bench) halfLoad(d time.Duration) (result, error) {
	most, err := b.run(64, d/2, 0, reserveOnly)
	if err != nil {
		return result{}, err
	}
	pace := time.Duration(float64(64*time.Second) / (most.ops / 2))
	return b.run(64, d, pace, reserveOnly)
}

func shortOnes(list []measurement) []measurement {
	return slices.DeleteFunc(slices.Clone(list), func(m measurement) bool {
		return !slices.Contains([]string{"pgbench pairs, 32", "pairs, 64"}, m.name)
	})
}

func wanted(name, only string) bool {
	return only == "" || strings.Contains(name, only) || strings.HasPrefix(name, "pgbench pairs")
}

func table(out io.Writer, list []measurement, results map[string][]result) {
	w := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	fmt.Fprintln(w, "| what, connections\t| a second\t| p50\t| p99\t| service CPU us\t| Postgres CPU us\t| load CPU us\t| service MB\t|")
	fmt.Fprintln(w, "|---\t|---:\t|---:\t|---:\t|---:\t|---:\t|---:\t|---:\t|")
	for _, m := range list {
		r := median(results[m.name])
		fmt.Fprintf(w, "| %s\t| %.0f\t| %s\t| %s\t| %.0f\t| %.0f\t| %.0f\t| %.0f\t|\n", m.name, r.ops,
			r.p50.Round(10*time.Microsecond), r.p99.Round(10*time.Microsecond), r.serviceUS, r.dbUS, r.loadUS, r.serviceMB)
	}
	w.Flush()
	fmt.Fprintln(out)
}

// median takes each figure's own.
func median(rs []result) result {
	if len(rs) == 0 {
		return result{}
	}
	mid := func(of func(result) float64) float64 {
		var all []float64
		for _, r := range rs {
			all = append(all, of(r))
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	return result{
		ops:       mid(func(r result) float64 { return r.ops }),
		p50:       time.Duration(mid(func(r result) float64 { return float64(r.p50) })),
		p99:       time.Duration(mid(func(r result) float64 { return float64(r.p99) })),
		serviceUS: mid(func(r result) float64 { return r.serviceUS }),
		dbUS:      mid(func(r result) float64 { return r.dbUS }),
		loadUS:    mid(func(r result) float64 { return r.loadUS }),
		serviceMB: mid(func(r result) float64 { return r.serviceMB }),
	}
}

// ratio is a figure of the second table, with what it should be.
type ratio struct {
	name   string
	value  float64
	target string
}

func ratios(results map[string][]result) []ratio {
	ops := func(name string) float64 { return median(results[name]).ops }
	p50 := func(name string) float64 { return float64(median(results[name]).p50) }
	best := 0.0
	for name := range results {
		if strings.HasPrefix(name, "pgbench pairs") {
			best = max(best, ops(name))
		}
	}
	half := median(results["reserve, 64 at half load"])
	return []ratio{
		{"pairs at 64 connections / pgbench's pairs at its best", ops("pairs, 64") / best, "at least 1.3, aim 2"},
		{"pairs at 256 connections / the same", ops("pairs, 256") / best, "at least 1.8, aim 2.6"},
		{"group commit / one statement a request, 64", ops("pairs, 64") / ops("pairs, one statement a request, 64"), "at least 2.5, aim 3.5"},
		{"pairs in batches of 100 / pgbench's", ops("pairs in batches of 100, 8") / best, "at least 5, aim 8"},
		{"replay at 64 / pgbench's read by key", ops("replay, 64") / ops("pgbench read by key, 64"), "at least 0.4, aim 0.8"},
		{"reserve p50, one connection / pgbench's insert p50", p50("reserve, 1") / p50("pgbench insert, 1"), "at most 2, aim 1.5"},
		{"p99 / p50 of reserve at half load", float64(half.p99) / float64(half.p50), "at most 8, aim 4"},
		{"hot key answers / fresh reserves, 64", ops("hot key, 64") / ops("fresh reserve, 64"), "at least 1, aim 1.5"},
		{"pairs on SQLite / pairs on Postgres, 64", ops("pairs on SQLite, 64") / ops("pairs, 64"), "at least 0.8, aim 1.5"},
	}
}

func printRatios(out io.Writer, rs []ratio) {
	w := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	fmt.Fprintln(w, "| ratio\t| value\t| wanted\t|")
	fmt.Fprintln(w, "|---\t|---:\t|---\t|")
	for _, r := range rs {
		if r.value > 0 && r.value < 1e6 {
			fmt.Fprintf(w, "| %s\t| %.2f\t| %s\t|\n", r.name, r.value, r.target)
		}
	}
	w.Flush()
}

func profileTo(file string) (stop func(), err error) {
	if file == "" {
		return func() {}, nil
	}
	f, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, err
	}
	return func() { pprof.StopCPUProfile(); _ = f.Close() }, nil
}
