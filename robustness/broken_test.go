package robustness

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// aBreak is a mistake that is put into the program, and what finds it. docs/robustness.md has the table.
type aBreak struct {
	name   string
	file   string
	old    string // stands there once
	broken string
	clocks bool // it takes replicas whose clocks are wrong
	by     []check
}

var breaks = []aBreak{
	{
		name: "a version check dropped", file: "internal/store/postgres_sql.go",
		old:    "WHERE e.version = excluded.swap_base AND clock_timestamp() < excluded.swap_before",
		broken: "WHERE clock_timestamp() < excluded.swap_before",
		by:     []check{linearizable, kept},
	},
	{
		name: "the fence ignored", file: "internal/idem/reserve.go",
		old:    "t.Attempt == e.Attempt && t.Fence == e.Fence",
		broken: "t.Attempt == e.Attempt",
		by:     []check{linearizable},
	},
	{
		name: "the clock local", file: "internal/store/clock.go", clocks: true,
		old:    "	c.mu.Lock()\n	defer c.mu.Unlock()\n	since := time.Since(c.heard)",
		broken: "	if true {\n		return time.Now().UTC().Truncate(time.Microsecond), 0, true\n	}\n	c.mu.Lock()\n	defer c.mu.Unlock()\n	since := time.Since(c.heard)",
		by:     []check{linearizable},
	},
	{
		name: "an answer before its commit", file: "internal/store/judge.go",
		old:    "	written, err := j.write(ctx, changes)",
		broken: "	for _, d := range dockets {\n		for _, v := range d.ready {\n			v.call.answer(v.outcome)\n		}\n	}\n	written, err := j.write(ctx, changes)",
		by:     []check{linearizable, acknowledged},
	},
	{
		name: "the swap's event outside the transaction", file: "internal/store/postgres_swap.go",
		old: "		sql, args = pgSwapBoth, slices.Concat(entries.args(), same.args(), events.args())",
		broken: `		if _, err := p.send(ctx, pgSwapEntries, entries.args(), func(rows pgx.Rows) error {
			var k idem.Key
			defer func() { wrote(k) }()
			return rows.Scan(&k.TaskID, &k.Attempt)
		}); err != nil {
			return time.Time{}, err
		}
		for _, c := range changes {
			if written := *c; !c.Same {
				written.Base = c.Entry.Version
				same.add(&written, never)
			}
		}
		sql, args = pgSwapEvents, append(same.args(), events.args()...)`,
		by: []check{trail},
	},
	{
		name: "a stale guess trusted", file: "internal/store/judge.go",
		old:    "return d.changes[own] != nil }",
		broken: "return true }",
		by:     []check{linearizable},
	},
	{
		name: "a takeover without expiry", file: "internal/idem/reserve.go",
		old:    "	case e.Live(d.now):\n		d.refuse(CodeInProgress, e)\n	default:\n		return false",
		broken: "	case e.Live(d.now) && len(c.Takeovers) == 0:\n		d.refuse(CodeInProgress, e)\n	default:\n		return false",
		by:     []check{oneLive, linearizable},
	},
	{
		name: "a takeover that forgets an inherited doubt", file: "internal/idem/entry.go",
		old:    "Former{Grant: e.Grant, Doubt: e.State != Released}",
		broken: "Former{Grant: e.Grant}",
		by:     []check{linearizable},
	},
	{
		name: "retention judged on the replica's clock", file: "internal/idem/entry.go", clocks: true,
		old:    "return !now.Before(e.ExpiresAt) }",
		broken: "return !time.Now().Before(e.ExpiresAt) }",
		by:     []check{kept, linearizable},
	},
	{
		name: "a passed lease taken for a release", file: "internal/idem/entry.go",
		old:    "return !e.Live(now) && len(e.Doubts(now)) > 0 }",
		broken: "return false }",
		by:     []check{effectOnce, linearizable, trail},
	},
	{
		name: "a purge that comes too early", file: "internal/store/postgres_purge.go",
		old:    "AND expires_at <= clock_timestamp() - $3::interval`",
		broken: "AND expires_at <= clock_timestamp() - $3::interval + interval '1 hour'`",
		by:     []check{kept},
	},
	{
		name: "a replayed body cut short", file: "internal/server/answers.go",
		old:    "		body := r.Body\n		if body == nil {",
		broken: "		body := r.Body[:max(0, len(r.Body)-1)]\n		if body == nil {",
		by:     []check{sameBytes, linearizable},
	},
}

var breaksFlag = flag.String("breaks", "a takeover without expiry,the swap's event outside the transaction", "which broken builds to try, with commas between; all: every one")

const (
	// A broken build is tried for so long, and as often, until it is caught.
	brokenTrial  = 12 * time.Second
	brokenTrials = 8
)

// apply puts a break into a program's source.
func (b *aBreak) apply(t *testing.T) overlay {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", b.file))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), b.old); n != 1 {
		t.Fatalf("%s: what is to be broken in %s stands there %d times, want once:\n%s", b.name, b.file, n, b.old)
	}
	o := overlay{b.file: strings.Replace(string(text), b.old, b.broken, 1)}
	if err := manyLanes(o); err != nil {
		t.Fatal(err)
	}
	if b.clocks {
		if err := wrongClock(o); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// Every break still says what it breaks, and is in the book.
func TestBreaksApply(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/robustness.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range breaks {
		b.apply(t)
		if !strings.Contains(string(text), "\n| "+b.name) {
			t.Errorf("docs/robustness.md has no line for %q", b.name)
		}
	}
}

// A check that finds nothing proves nothing until it has been seen to find something.
func TestBrokenBuildsAreCaught(t *testing.T) {
	t.Parallel()
	tried := 0
	for _, b := range breaks {
		if *breaksFlag != "all" && !slices.Contains(strings.Split(*breaksFlag, ","), b.name) {
			continue
		}
		tried++
		t.Run(b.name, func(t *testing.T) {
			path := build(t, "broken", b.apply(t))
			programs := []program{{path: path}, {path: path, clock: "30m"}, {path: path, clock: "-30m"}}
			begun := time.Now()
			caught := false
			for trial := 0; trial < brokenTrials && !caught; trial++ {
				seed := *seedFlag + uint64(trial)
				t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
					r := &run{seed: seed, duration: brokenTrial, finishIn: 15 * time.Second, patience: 5 * time.Second, programs: programs}
					count := map[check]int{}
					for _, v := range r.trial(t) {
						count[v.check]++
					}
					_ = os.RemoveAll(r.folder)
					t.Logf("after %s: %v", time.Since(begun).Round(time.Second), count)
					caught = slices.ContainsFunc(b.by, func(c check) bool { return count[c] > 0 })
				})
			}
			if !caught {
				t.Errorf("nobody noticed: want it found by %v", b.by)
			}
		})
	}
	if tried == 0 {
		t.Fatalf("no break is called %q", *breaksFlag)
	}
}
