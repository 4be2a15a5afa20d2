package robustness

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idemstore/idemstore/internal/idem"
)

// ledgerSQL keeps every version that a row ever had, in the transaction that made it. The versions of one key stand in
// the order in which they were committed: each writer held the row's lock.
const ledgerSQL = `
CREATE TABLE ledger (
    n bigserial PRIMARY KEY, at timestamptz NOT NULL, xid xid NOT NULL, gone boolean NOT NULL,
    task_id text COLLATE "C" NOT NULL, attempt integer NOT NULL, version bigint NOT NULL, state text NOT NULL, fence bigint NOT NULL,
    reservation_id text NOT NULL, owner text NOT NULL, explicit boolean NOT NULL, late boolean NOT NULL, doubts integer NOT NULL,
    lease_seconds integer NOT NULL, reserved_at timestamptz, lease_until timestamptz, dispatched_at timestamptz, recorded_at timestamptz,
    expires_at timestamptz NOT NULL, response_status integer, response_head bytea, response_body bytea, more json);
CREATE INDEX ledger_key ON ledger (task_id, attempt, n);
CREATE FUNCTION keep_ledger() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE e entries := CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
BEGIN
    INSERT INTO ledger (at, xid, gone, task_id, attempt, version, state, fence, reservation_id, owner, explicit, late, doubts,
        lease_seconds, reserved_at, lease_until, dispatched_at, recorded_at, expires_at, response_status, response_head, response_body, more)
    VALUES (clock_timestamp(), pg_current_xact_id()::xid, TG_OP = 'DELETE', e.task_id, e.attempt, e.version, e.state, e.fence,
        e.reservation_id, e.owner, e.explicit, e.late, e.doubts, e.lease_seconds, e.reserved_at, e.lease_until, e.dispatched_at,
        e.recorded_at, e.expires_at, e.response_status, e.response_head, e.response_body, e.more);
    RETURN NULL;
END $$;
CREATE TRIGGER keep_ledger AFTER INSERT OR UPDATE OR DELETE ON entries FOR EACH ROW EXECUTE FUNCTION keep_ledger()`

// version is a line of the ledger.
type version struct {
	key                                           idem.Key
	at                                            time.Time
	gone                                          bool
	state                                         string
	fence                                         int64
	reservation                                   string
	leaseSeconds                                  int
	reservedAt, leaseUntil, recordedAt, expiresAt time.Time
	status                                        int
	body                                          []byte
}

// ledger is what was kept of one task, or of all of them.
type ledger struct {
	policy   idem.Policy
	versions []version
}

func readLedger(ctx context.Context, conn *pgx.Conn, policy idem.Policy) (map[string]*ledger, error) {
	const never = `'0001-01-01 00:00+00'::timestamptz`
	rows, err := conn.Query(ctx, `SELECT task_id, attempt, at, gone, state, fence, reservation_id, lease_seconds,
		coalesce(reserved_at, `+never+`), coalesce(lease_until, `+never+`), coalesce(recorded_at, `+never+`), expires_at,
		coalesce(response_status, 0), response_body FROM ledger ORDER BY n`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	tasks := map[string]*ledger{}
	for rows.Next() {
		var v version
		if err := rows.Scan(&v.key.TaskID, &v.key.Attempt, &v.at, &v.gone, &v.state, &v.fence, &v.reservation, &v.leaseSeconds,
			&v.reservedAt, &v.leaseUntil, &v.recordedAt, &v.expiresAt, &v.status, &v.body); err != nil {
			return nil, err
		}
		l := tasks[v.key.TaskID]
		if l == nil {
			l = &ledger{policy: policy}
			tasks[v.key.TaskID] = l
		}
		l.versions = append(l.versions, v)
	}
	return tasks, rows.Err()
}

// times are those at which a call that nobody answered may have been carried out.
func (l *ledger) times(c *call, begun time.Time) []time.Time {
	list := []time.Time{begun}
	add := func(t time.Time) {
		if t = t.UTC(); t.After(begun.Add(-lag)) && !slices.Contains(list, t) {
			list = append(list, t)
		}
	}
	for i := range l.versions {
		v := &l.versions[i]
		if v.key != c.cmd.Target() {
			continue
		}
		add(v.reservedAt)
		add(v.recordedAt)
		add(v.expiresAt.Add(-l.policy.Retention))
		add(v.leaseUntil.Add(-time.Duration(v.leaseSeconds) * time.Second))
		if renew, ok := c.cmd.(*idem.Renew); ok {
			add(v.leaseUntil.Add(-time.Duration(renew.LeaseSeconds) * time.Second))
		}
	}
	if a, ok := c.cmd.(*age); ok {
		add(a.until.Add(-time.Microsecond))
	}
	return list
}

// knows says whether every entry that a step changed was once stored so.
func (l *ledger) knows(before, after map[int32]*idem.Entry) bool {
	for attempt, e := range after {
		if before[attempt] == e {
			continue
		}
		if !slices.ContainsFunc(l.versions, func(v version) bool {
			return v.key == e.Key && v.state == string(e.State) && v.fence == e.Fence && v.reservation == e.ReservationID &&
				v.leaseUntil.Equal(e.LeaseUntil) && v.expiresAt.Equal(e.ExpiresAt) && (e.Response == nil || v.recordedAt.Equal(e.RecordedAt))
		}) {
			return false
		}
	}
	return true
}

// trace says whether a call that nobody answered can have left anything behind. If not, it bears on nobody.
func (l *ledger) trace(c *call) bool {
	return slices.ContainsFunc(l.versions, func(v version) bool {
		if v.key != c.cmd.Target() || v.at.UnixNano() < c.begun {
			return false
		}
		switch cmd := c.cmd.(type) {
		case *idem.Reserve:
			return v.reservation == cmd.ReservationID
		case *idem.Record:
			return v.recordedAt.Year() > 1 && bytes.Equal(v.body, cmd.Response.Body)
		case *idem.Resolve:
			return cmd.Response == nil || bytes.Equal(v.body, cmd.Response.Body)
		case *age:
			return v.expiresAt.Equal(cmd.until)
		}
		return true
	})
}

// query runs a statement that looks for violations, each a line of text.
func query(ctx context.Context, conn *pgx.Conn, sql string) ([]string, error) {
	rows, err := conn.Query(ctx, sql)
	if err != nil {
		return nil, fmt.Errorf("%w in %s", err, sql)
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
