package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/idemstore/idemstore/internal/idem"
)

// never is the Before of a change that can wait for ever.
var never = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// pgSwapTries bounds how often a batch is sent again because one of its changes undid it.
const pgSwapTries = 4

// Swap implements idem.Store.
func (p *Postgres) Swap(ctx context.Context, changes []idem.Change) ([]bool, time.Time, error) {
	written := make([]bool, len(changes))
	byKey := make(map[idem.Key]int, len(changes))
	open := make([]*idem.Change, 0, len(changes))
	for i := range changes {
		byKey[changes[i].Entry.Key] = i
		open = append(open, &changes[i])
	}
	slices.SortFunc(open, func(a, b *idem.Change) int {
		return compareKeys(a.Entry.Key, b.Entry.Key)
	})
	for range pgSwapTries {
		clear(written)
		now, err := p.swap(ctx, open, func(k idem.Key) { written[byKey[k]] = true })
		var pgErr *pgconn.PgError
		if err == nil || !errors.As(err, &pgErr) || pgErr.Code != pgDivisionByZero {
			return written, now, err
		}
		// The whole batch was undone because of a row that was gone, or a time that had come. What is to be refused is found out, and
		// the others are tried again.
		if open, err = p.sound(ctx, open); err != nil {
			return nil, time.Time{}, err
		}
	}
	return nil, time.Time{}, notWritten(errors.New("rows kept disappearing from under the batch"))
}

// swap is one try, and tells which keys were written.
func (p *Postgres) swap(ctx context.Context, changes []*idem.Change, wrote func(idem.Key)) (time.Time, error) {
	shift := p.opts.shift()
	var entries entryArrays
	var same sameArrays
	var events eventArrays
	entries.earliest = never
	for _, c := range changes {
		before := never
		if !c.Before.IsZero() {
			before = c.Before.Add(-shift)
		}
		var err error
		if c.Same {
			same.add(c, before)
		} else {
			err = entries.add(c, before)
		}
		for i := 0; err == nil && i < len(c.Events); i++ {
			err = events.add(&c.Events[i], c.Entry.Key)
		}
		if err != nil {
			return time.Time{}, notWritten(fmt.Errorf("encode the change of %s: %w", c.Entry.Key, err))
		}
	}
	var sql string
	var args []any
	switch {
	case len(changes) == 0:
	case len(same.taskID) == 0 && len(events.taskID) == 0:
		sql, args = pgSwapEntries, entries.args()
	case len(entries.taskID) == 0:
		sql, args = pgSwapEvents, append(same.args(), events.args()...)
	default:
		sql, args = pgSwapBoth, slices.Concat(entries.args(), same.args(), events.args())
	}
	var k idem.Key
	return p.send(ctx, sql, args, func(rows pgx.Rows) error {
		if err := rows.Scan(&k.TaskID, &k.Attempt); err != nil {
			return err
		}
		wrote(k)
		return nil
	})
}

// sound leaves out the changes of rows that are gone, and those whose time has come.
func (p *Postgres) sound(ctx context.Context, changes []*idem.Change) ([]*idem.Change, error) {
	var tasks []string
	var attempts []int32
	for _, c := range changes {
		if c.Base != 0 {
			tasks, attempts = append(tasks, c.Entry.TaskID), append(attempts, c.Entry.Attempt)
		}
	}
	gone := make(map[idem.Key]bool)
	now, err := p.send(ctx, pgMissing, []any{tasks, attempts}, func(rows pgx.Rows) error {
		var k idem.Key
		defer func() { gone[k] = true }()
		return rows.Scan(&k.TaskID, &k.Attempt)
	})
	if err != nil {
		return nil, notWritten(err)
	}
	return slices.DeleteFunc(changes, func(c *idem.Change) bool {
		return gone[c.Entry.Key] || !c.Before.IsZero() && !now.Before(c.Before)
	}), nil
}

// entryArrays are the columns of pgEntries.
type entryArrays struct {
	taskID, state, reservationID, owner, handler, requestHash []string
	attempt, leaseSeconds, doubts                             []int32
	version, fence                                            []int64
	explicit, taskScope, late                                 []bool
	base                                                      []*int64
	alone, recordedBy, more                                   []*string
	before, expiresAt                                         []time.Time
	reservedAt, leaseUntil, dispatchedAt, recordedAt          []*time.Time
	status                                                    []*int32
	head, body                                                [][]byte
	earliest                                                  time.Time // of the times before which rows must be inserted
}

func (a *entryArrays) add(c *idem.Change, before time.Time) error {
	e := c.Entry
	more, err := encodeMore(e)
	if err != nil {
		return err
	}
	var base *int64
	if c.Base != 0 {
		base = &c.Base
	} else if before.Before(a.earliest) {
		a.earliest = before
	}
	var alone, recordedBy *string
	if c.Alone {
		alone = &e.TaskID
	}
	if !e.RecordedAt.IsZero() {
		recordedBy = &e.RecordedBy
	}
	status, head, body := columnsOf(e.Response)

	a.taskID = append(a.taskID, e.TaskID)
	a.attempt = append(a.attempt, e.Attempt)
	a.version = append(a.version, e.Version)
	a.base = append(a.base, base)
	a.before = append(a.before, before)
	a.alone = append(a.alone, alone)
	a.state = append(a.state, string(e.State))
	a.reservationID = append(a.reservationID, e.ReservationID)
	a.owner = append(a.owner, e.Owner)
	a.fence = append(a.fence, e.Fence)
	a.handler = append(a.handler, e.Handler)
	a.requestHash = append(a.requestHash, e.RequestHash)
	a.explicit = append(a.explicit, e.Explicit)
	a.taskScope = append(a.taskScope, e.TaskScope)
	a.leaseSeconds = append(a.leaseSeconds, int32(e.LeaseSeconds))
	a.reservedAt = append(a.reservedAt, pointer(e.ReservedAt))
	a.leaseUntil = append(a.leaseUntil, pointer(e.LeaseUntil))
	a.dispatchedAt = append(a.dispatchedAt, pointer(e.DispatchedAt))
	a.recordedAt = append(a.recordedAt, pointer(e.RecordedAt))
	a.recordedBy = append(a.recordedBy, recordedBy)
	a.late = append(a.late, e.Late)
	a.doubts = append(a.doubts, doubts(e))
	a.expiresAt = append(a.expiresAt, e.ExpiresAt)
	a.more = append(a.more, more)
	a.status = append(a.status, status)
	a.head = append(a.head, head)
	a.body = append(a.body, body)
	return nil
}

func (a *entryArrays) args() []any {
	return []any{
		a.taskID, a.attempt, a.version, a.base, a.before, a.alone,
		a.state, a.reservationID, a.owner, a.fence, a.handler, a.requestHash, a.explicit, a.taskScope, a.leaseSeconds,
		a.reservedAt, a.leaseUntil, a.dispatchedAt, a.recordedAt, a.recordedBy, a.late, a.doubts,
		a.expiresAt, a.more, a.status, a.head, a.body,
		a.earliest,
	}
}

// sameArrays are the columns of pgStanding.
type sameArrays struct {
	taskID  []string
	attempt []int32
	base    []int64
	before  []time.Time
}

func (a *sameArrays) add(c *idem.Change, before time.Time) {
	a.taskID = append(a.taskID, c.Entry.TaskID)
	a.attempt = append(a.attempt, c.Entry.Attempt)
	a.base = append(a.base, c.Base)
	a.before = append(a.before, before)
}

func (a *sameArrays) args() []any { return []any{a.taskID, a.attempt, a.base, a.before} }

// eventArrays are the columns of pgEvents.
type eventArrays struct {
	taskID, kind, handler, owner, token, requestID []string
	attempt                                        []int32
	at                                             []time.Time
	id                                             []pgtype.UUID
	fence                                          []int64
	detail                                         []*string
	status                                         []*int32
	head, body                                     [][]byte
}

func (a *eventArrays) add(e *idem.Event, of idem.Key) error {
	detail, err := encodeDetail(e.Detail)
	if err != nil {
		return err
	}
	status, head, body := columnsOf(e.Response)
	a.taskID = append(a.taskID, of.TaskID)
	a.attempt = append(a.attempt, of.Attempt)
	a.at = append(a.at, e.At)
	a.id = append(a.id, pgtype.UUID{Bytes: eventID(e.At, len(a.id)), Valid: true})
	a.fence = append(a.fence, e.Fence)
	a.kind = append(a.kind, string(e.Kind))
	a.handler = append(a.handler, plain(e.Handler))
	a.owner = append(a.owner, plain(e.Owner))
	a.token = append(a.token, plain(e.Token))
	a.requestID = append(a.requestID, plain(e.RequestID))
	a.detail = append(a.detail, detail)
	a.status = append(a.status, status)
	a.head = append(a.head, head)
	a.body = append(a.body, body)
	return nil
}

func (a *eventArrays) args() []any {
	return []any{
		a.taskID, a.attempt, a.at, a.id, a.fence, a.kind, a.handler, a.owner, a.token, a.requestID, a.detail,
		a.status, a.head, a.body,
	}
}
