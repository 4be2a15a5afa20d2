package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idemstore/idemstore/internal/idem"
)

// Load implements idem.Store.
func (p *Postgres) Load(ctx context.Context, keys []idem.Key) ([]*idem.Entry, time.Time, error) {
	if len(keys) == 0 {
		now, err := p.send(ctx, "", nil, ignore)
		return nil, now, err
	}
	var entries []*idem.Entry
	tasks, askedTasks, askedAttempts := arraysOf(keys)
	now, err := p.send(ctx, pgLoad, []any{tasks, askedTasks, askedAttempts}, func(rows pgx.Rows) error {
		e, err := scanEntry(rows)
		entries = append(entries, e)
		return err
	})
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("read from the database: %w", cause(err))
	}
	return entries, now, nil
}

// arraysOf are the tasks of the keys, each once, and the keys, each once.
func arraysOf(keys []idem.Key) (tasks, keyTasks []string, keyAttempts []int32) {
	keys = slices.Clone(keys)
	slices.SortFunc(keys, compareKeys)
	for _, k := range slices.Compact(keys) {
		if len(tasks) == 0 || tasks[len(tasks)-1] != k.TaskID {
			tasks = append(tasks, k.TaskID)
		}
		keyTasks, keyAttempts = append(keyTasks, k.TaskID), append(keyAttempts, k.Attempt)
	}
	return tasks, keyTasks, keyAttempts
}

func scanEntry(row scanner) (*idem.Entry, error) {
	var e idem.Entry
	var reservedAt, leaseUntil, dispatchedAt, recordedAt *time.Time
	var recordedBy *string
	var status *int32
	var partial bool
	var more, head, body []byte
	err := row.Scan(&e.TaskID, &e.Attempt, &e.Version,
		&e.State, &e.ReservationID, &e.Owner, &e.Fence, &e.Handler, &e.RequestHash, &e.Explicit, &e.TaskScope, &e.LeaseSeconds,
		&reservedAt, &leaseUntil, &dispatchedAt, &recordedAt, &recordedBy, &e.Late, &e.ExpiresAt, &more,
		&status, &partial, &head, &body)
	if err != nil {
		return nil, err
	}
	e.ReservedAt, e.LeaseUntil, e.DispatchedAt, e.RecordedAt = utc(reservedAt), utc(leaseUntil), utc(dispatchedAt), utc(recordedAt)
	e.ExpiresAt = e.ExpiresAt.UTC()
	if recordedBy != nil {
		e.RecordedBy = *recordedBy
	}
	if e.Response, err = responseOf(status, head, body, partial); err != nil {
		return nil, fmt.Errorf("read the entry %s: %w", e.Key, err)
	}
	return &e, decodeMore(&e, more)
}

func utc(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}
