package robustness

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/jackc/pgx/v5"

	"github.com/idemstore/idemstore/internal/idem"
)

// check is what a violation was found by.
type check string

const (
	linearizable check = "linearizable"
	undecided    check = "linearizable, or not"
	oneLive      check = "one live reservation"
	kept         check = "records are kept"
	acknowledged check = "acknowledged is stored"
	sameBytes    check = "replayed as recorded"
	trail        check = "the trail is whole"
	effectOnce   check = "effects at most once"
	resolvable   check = "every key resolvable"
	answers      check = "answers that may be"
)

// violation is a promise that was broken.
type violation struct {
	check check
	text  string
}

func (v violation) String() string { return fmt.Sprintf("%s: %s", v.check, v.text) }

// transitions are the versions of each key beside the ones before them.
const transitions = `
WITH steps AS (
    SELECT l.*, task_id || '/' || attempt AS key,
           lag(gone, 1, true) OVER w AS p_gone, lag(state) OVER w AS p_state, lag(fence) OVER w AS p_fence,
           lag(reservation_id) OVER w AS p_reservation_id, lag(lease_until) OVER w AS p_lease_until, lag(expires_at) OVER w AS p_expires_at,
           lag(explicit) OVER w AS p_explicit, lag(dispatched_at) OVER w AS p_dispatched_at, lag(doubts) OVER w AS p_doubts,
           lag(recorded_at) OVER w AS p_recorded_at, lag(response_status) OVER w AS p_status,
           lag(response_head) OVER w AS p_head, lag(response_body) OVER w AS p_body
    FROM ledger l WINDOW w AS (PARTITION BY task_id, attempt ORDER BY n)
)`

// invariants are promises that SQL can hold against the ledger. Each statement gives a line for each time that one was broken.
var invariants = []struct {
	check check
	sql   string
}{
	{oneLive, `
SELECT format('%s was granted to %s at %s, while %s held it until %s', key, reservation_id, at, p_reservation_id, p_lease_until)
FROM steps WHERE NOT gone AND NOT p_gone AND state IN ('reserved', 'dispatched', 'recorded') AND p_state IN ('reserved', 'dispatched')
  AND reservation_id <> p_reservation_id AND at < p_lease_until`},
	{kept, `
SELECT format('%s, recorded at %s and to be kept until %s, became %s at %s', key, p_recorded_at, p_expires_at, CASE WHEN gone THEN 'nothing' ELSE state END, at)
FROM steps WHERE NOT p_gone AND p_state = 'recorded' AND at < p_expires_at
  AND (gone OR state <> 'recorded' OR recorded_at <> p_recorded_at OR response_status <> p_status
       OR response_body IS DISTINCT FROM p_body OR response_head IS DISTINCT FROM p_head)`},
	{kept, `
SELECT format('%s, to be kept until %s, was purged at %s', key, expires_at, at) FROM steps WHERE gone AND at < expires_at`},
	{trail, `
SELECT format('%s was taken over at %s by %s, and no event of that transaction tells it', key, at, reservation_id)
FROM steps s WHERE NOT gone AND NOT p_gone AND state = 'reserved' AND fence > 1 AND reservation_id <> p_reservation_id AND at < p_expires_at
  AND (p_doubts > 0 OR p_state IN ('reserved', 'dispatched') AND (NOT p_explicit OR p_dispatched_at IS NOT NULL))
  AND NOT EXISTS (SELECT FROM events e WHERE e.task_id = s.task_id AND e.attempt = s.attempt AND e.kind = 'taken_over' AND e.xmin = s.xid)
  AND p_state <> 'recorded'`},
	{trail, `
SELECT format('%s was recorded late at %s, and no event of that transaction tells it', key, recorded_at)
FROM steps s WHERE NOT gone AND state = 'recorded' AND late AND (p_gone OR p_state <> 'recorded')
  AND NOT EXISTS (SELECT FROM events e WHERE e.task_id = s.task_id AND e.attempt = s.attempt AND e.kind = 'recorded_late' AND e.xmin = s.xid)`},
	{trail, `
SELECT format('%s was released at %s, and no event of that transaction tells it', key, at)
FROM steps s WHERE NOT gone AND NOT p_gone AND state = 'released' AND p_state IN ('reserved', 'dispatched')
  AND NOT EXISTS (SELECT FROM events e WHERE e.task_id = s.task_id AND e.attempt = s.attempt AND e.kind IN ('released', 'resolved') AND e.xmin = s.xid)`},
	{trail, `
SELECT format('%s: an event "%s" at %s tells of fence %s, which the key never had', e.task_id || '/' || e.attempt, e.kind, e.at, e.fence)
FROM events e WHERE e.kind IN ('taken_over', 'recorded_late') AND NOT EXISTS (
    SELECT FROM ledger l WHERE l.task_id = e.task_id AND l.attempt = e.attempt AND l.xid = e.xmin)`},
}

// judge holds all promises against what was seen.
func judge(ctx context.Context, conn *pgx.Conn, h *history, u *upstream, policy idem.Policy, patience time.Duration, folder string) ([]violation, error) {
	var found []violation
	for _, i := range invariants {
		lines, err := query(ctx, conn, transitions+i.sql)
		if err != nil {
			return nil, err
		}
		for _, text := range lines {
			found = append(found, violation{i.check, text})
		}
	}
	ledgers, err := readLedger(ctx, conn, policy)
	if err != nil {
		return nil, err
	}
	for _, text := range u.twice() {
		found = append(found, violation{effectOnce, text})
	}
	tasks := h.byTask()
	told, err := readReplays(ctx, conn)
	if err != nil {
		return nil, err
	}
	for task, calls := range tasks {
		if n := replays(calls); n > told[task] {
			found = append(found, violation{trail, fmt.Sprintf("task %s was replayed %d times, and the trail tells of %d", task, n, told[task])})
		}
		l := ledgers[task]
		if l == nil {
			l = &ledger{policy: policy}
		}
		for _, c := range calls {
			found = append(found, l.holds(c)...)
		}
	}
	return append(found, linearize(tasks, ledgers, policy, patience, folder)...), nil
}

// replays counts the answers that gave a recorded response out.
func replays(calls []*call) (n int) {
	for _, c := range calls {
		switch c.cmd.(type) {
		case *idem.Reserve, *idem.Replay:
			if !c.lost() && c.reply.Status == 200 {
				n++
			}
		default:
		}
	}
	return n
}

// readReplays counts those of each task that the trail tells of.
func readReplays(ctx context.Context, conn *pgx.Conn) (map[string]int, error) {
	rows, err := conn.Query(ctx, "SELECT task_id, count(*) FROM events WHERE kind = 'replayed' GROUP BY task_id")
	if err != nil {
		return nil, err
	}
	told := map[string]int{}
	var task string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&task, &n}, func() error {
		told[task] = n
		return nil
	})
	return told, err
}

// holds holds one answer against what was stored.
func (l *ledger) holds(c *call) []violation {
	if c.lost() {
		return nil
	}
	r := c.reply
	key := c.cmd.Target()
	if r.Attempt != nil {
		key.Attempt = *r.Attempt
	}
	if r.ReplayedAttempt != nil {
		key.Attempt = *r.ReplayedAttempt
	}
	stored := func(is func(v *version) bool) bool {
		return slices.ContainsFunc(l.versions, func(v version) bool { return v.key == key && !v.gone && is(&v) })
	}
	var found []violation
	if r.Status == 201 && r.ReservationID != "" && !stored(func(v *version) bool { return v.reservation == r.ReservationID && v.fence == r.Fence }) {
		found = append(found, violation{acknowledged, "a grant that was never stored: " + c.String()})
	}
	if record, ok := c.cmd.(*idem.Record); ok && r.Status < 300 && !stored(func(v *version) bool {
		return v.state == "recorded" && v.recordedAt.Equal(r.RecordedAt) && bytes.Equal(v.body, record.Response.Body)
	}) {
		found = append(found, violation{acknowledged, "a record that was never stored: " + c.String()})
	}
	if r.Response != nil && !r.RecordedAt.IsZero() && !stored(func(v *version) bool {
		return v.recordedAt.Equal(r.RecordedAt) && v.status == r.Response.Status && bytes.Equal(v.body, responseOf(r.Response).Body)
	}) {
		found = append(found, violation{sameBytes, "what nobody recorded: " + c.String()})
	}
	return found
}

// pictures bounds how many histories are drawn. When so many were found wrong, no others are looked at.
const pictures = 10

// linearize looks, task by task, for an order of the calls in which Decide would have answered as the service did.
func linearize(tasks map[string][]*call, ledgers map[string]*ledger, policy idem.Policy, patience time.Duration, folder string) []violation {
	var mu sync.Mutex
	var found []violation
	names := make(chan string, len(tasks))
	for task := range tasks {
		names <- task
	}
	close(names)
	var checkers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		checkers.Go(func() {
			for task := range names {
				l := ledgers[task]
				if l == nil {
					l = &ledger{policy: policy}
				}
				m := newModel(policy, l, tasks[task]).porcupine()
				result, info := porcupine.CheckOperationsVerbose(m, l.operations(tasks[task]), patience)
				if result == porcupine.Ok {
					continue
				}
				v := violation{linearizable, "no order of the calls of task " + task + " explains the answers"}
				if result == porcupine.Unknown {
					v = violation{undecided, fmt.Sprintf("an order of the calls of task %s was not found within %s, nor that there is none", task, patience)}
				}
				mu.Lock()
				enough := len(found) >= pictures
				if !enough {
					picture := filepath.Join(folder, "task-"+task+".html")
					if err := porcupine.VisualizePath(m, info, picture); err != nil {
						picture = err.Error()
					}
					v.text += ": " + picture
					found = append(found, v)
				}
				mu.Unlock()
				if enough {
					return
				}
			}
		})
	}
	checkers.Wait()
	return found
}

// operations are the calls as porcupine takes them, less those that cannot have done anything.
func (l *ledger) operations(calls []*call) []porcupine.Operation {
	var list []porcupine.Operation
	for _, c := range calls {
		if c.lost() && !l.trace(c) {
			continue
		}
		list = append(list, porcupine.Operation{ClientId: c.client, Input: c, Call: c.begun, Return: c.ended})
	}
	return list
}

// write leaves a history where a person can read it.
func (h *history) write(folder string) error {
	tasks := h.byTask()
	var b strings.Builder
	for _, task := range slices.Sorted(maps.Keys(tasks)) {
		for _, c := range tasks[task] {
			ended := "-"
			if !c.lost() {
				ended = clock(time.Unix(0, c.ended))
			}
			fmt.Fprintf(&b, "%s %s %3d %s\n", clock(time.Unix(0, c.begun)), ended, c.client, c)
		}
	}
	return os.WriteFile(filepath.Join(folder, "history.txt"), []byte(b.String()), 0o600)
}
