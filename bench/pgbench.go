package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// pgbenchSetup makes a table with the columns, constraints and storage of the entries, and rows to read by key.
const pgbenchSetup = `
CREATE TABLE bench_entries (LIKE entries INCLUDING ALL);
ALTER TABLE bench_entries SET (fillfactor = 60); -- as of entries; LIKE leaves it out
INSERT INTO bench_entries (task_id, attempt, version, state, reservation_id, owner, fence, handler, request_hash, explicit, task_scope,
    lease_seconds, reserved_at, lease_until, recorded_at, recorded_by, late, doubts, expires_at, response_status, response_head, response_body)
SELECT 'read-' || i, 0, 1, 'recorded', gen_random_uuid()::text, 'bench', 1, 'http.call', '', false, false, 60, now(), now() + interval '60 s',
    now(), 'bench', false, 0, now() + interval '14 days', 201, '\x00', convert_to(repeat('0123456789', 50), 'UTF8')
FROM generate_series(1, 2000) AS i;
ANALYZE bench_entries`

const pgbenchInsertSQL = `
\set a random(1, 4000000000000000000)
\set b random(1, 4000000000000000000)
INSERT INTO bench_entries (task_id, attempt, version, state, reservation_id, owner, fence, handler, request_hash, explicit, task_scope, lease_seconds, reserved_at, lease_until, late, doubts, expires_at) VALUES (lpad(:a::text, 19, '0') || '-' || lpad(:b::text, 16, '0'), 0, 1, 'reserved', lpad(:b::text, 36, '0'), 'bench', 1, 'http.call', '', false, false, 60, now(), now() + interval '60 s', false, 0, now() + interval '90 days');
`

const pgbenchUpdateSQL = `UPDATE bench_entries SET version = 2, state = 'recorded', recorded_at = now(), recorded_by = 'bench', expires_at = now() + interval '14 days', response_status = 201, response_head = '\x00', response_body = convert_to(repeat('0123456789', 50), 'UTF8') WHERE task_id = lpad(:a::text, 19, '0') || '-' || lpad(:b::text, 16, '0') AND attempt = 0 AND version = 1;
`

// The scripts: single-row transactions, as each worker would send them without a service.
const (
	pgbenchPairs  = pgbenchInsertSQL + pgbenchUpdateSQL
	pgbenchInsert = pgbenchInsertSQL
	pgbenchRead   = `\set a random(1, 2000)
SELECT * FROM bench_entries WHERE task_id = 'read-' || :a AND attempt = 0;
`
)

var (
	pgbenchRate    = regexp.MustCompile(`tps = ([0-9.]+)`)
	pgbenchLatency = regexp.MustCompile(`latency average = ([0-9.]+) ms`)
)

// pgbench runs a script, each run of which is one operation.
func (b *bench) pgbench(script string, clients int, d time.Duration) (result, error) {
	dir, err := os.MkdirTemp(b.dir, "pgbench-")
	if err != nil {
		return result{}, err
	}
	file := filepath.Join(dir, "script.sql")
	if err := os.WriteFile(file, []byte(strings.TrimSpace(script)+"\n"), 0o600); err != nil {
		return result{}, err
	}
	cmd := exec.Command(b.db.bin+"/pgbench", "-n", "-M", "prepared", "-f", file, "-c", strconv.Itoa(clients),
		"-j", strconv.Itoa(min(clients, 2)), "-T", strconv.Itoa(max(1, int(d.Seconds()))), b.db.url())
	before := b.cpu()
	out, err := cmd.CombinedOutput()
	after := b.cpu()
	if err != nil {
		return result{}, fmt.Errorf("pgbench: %w: %s", err, out)
	}
	number := func(in *regexp.Regexp) float64 {
		found := in.FindSubmatch(out)
		if found == nil {
			return 0
		}
		n, _ := strconv.ParseFloat(string(found[1]), 64)
		return n
	}
	rate, latency := number(pgbenchRate), number(pgbenchLatency)
	if rate == 0 {
		return result{}, fmt.Errorf("pgbench says no rate: %s", out)
	}
	ops := rate * d.Seconds()
	mean := time.Duration(latency * float64(time.Millisecond))
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return result{
		ops: rate, p50: mean, p99: mean,
		dbUS: float64((after.db - before.db).Microseconds()) / ops, loadUS: float64(used.Microseconds()) / ops,
	}, nil
}
