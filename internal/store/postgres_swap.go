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
	entries.expected, same.expected, events.expected = len(changes), len(changes), len(changes)
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
	case len(changes) == 1 && same.n == 0 && events.n == 0:
		sql, args = pgSwapOne, entries.one()
	case same.n == 0 && events.n == 0:
		sql, args = pgSwapEntries, entries.args()
	case entries.n == 0:
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
	pgRows
	earliest time.Time // of the times before which rows must be inserted
}

func (a *entryArrays) add(c *idem.Change, before time.Time) error {
	a.begin()
	a.text(c.Entry.TaskID)
	a.integer(c.Entry.Attempt)
	a.number(c.Entry.Version)
	if c.Base != 0 {
		a.number(c.Base)
	} else {
		a.null(pgtype.Int8OID)
		if before.Before(a.earliest) {
			a.earliest = before
		}
	}
	a.time(before)
	var alone *string
	if c.Alone {
		alone = &c.Entry.TaskID
	}
	a.optional(alone)
	return putEntry(a, c.Entry)
}

func (a *entryArrays) args() []any { return append(a.arrays(27), a.earliest) }

// one is args where there is one entry.
func (a *entryArrays) one() []any { return append(a.scalars(), a.earliest) }

// sameArrays are the columns of pgStanding.
type sameArrays struct{ pgRows }

func (a *sameArrays) add(c *idem.Change, before time.Time) {
	a.begin()
	a.text(c.Entry.TaskID)
	a.integer(c.Entry.Attempt)
	a.number(c.Base)
	a.time(before)
}

func (a *sameArrays) args() []any { return a.arrays(4) }

// eventArrays are the columns of pgEvents.
type eventArrays struct{ pgRows }

func (a *eventArrays) add(e *idem.Event, of idem.Key) error {
	id := eventID(e.At, a.n)
	a.begin()
	a.text(of.TaskID)
	a.integer(of.Attempt)
	a.time(e.At)
	a.uuid(id)
	return putEvent(a, e)
}

func (a *eventArrays) args() []any { return a.arrays(14) }
