package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
)

// readTime bounds one statement of an operator's question, the wait for a connection included.
const readTime = 10 * time.Second

// asker is what an engine has of its own in answering operators.
type asker interface {
	// ask sends one SELECT, on connections that the hot path has no need of, and gives its rows to read until one is errEnough. It
	// returns the database's time, read before the rows; without a statement, nothing else.
	ask(ctx context.Context, s statement, read func(scanner) error) (time.Time, error)
	dialect() dialect
}

// scanner is a row of either engine.
type scanner interface{ Scan(dest ...any) error }

// errEnough ends the reading of rows.
var errEnough = errors.New("enough")

// reader implements idem.Reader over either engine. What it asks is the same SQL for both, but for what dialect tells.
type reader struct {
	asker
	stride   int           // the first, in rows
	room     int64         // what the rows of a page may weigh, but for its first
	patience time.Duration // after which what was found is a page
}

func newReader(a asker) reader {
	return reader{asker: a, stride: firstStride, room: pageBytes, patience: pageTime}
}

var _ idem.Reader = reader{}

// unanswered is the error of a question: one that took too long, or any other fault.
func unanswered(err error, tooSlow bool) error {
	kind := idem.ErrUnavailable
	if tooSlow {
		kind = idem.ErrTooSlow
	}
	return fmt.Errorf("%w: %w", kind, err)
}

// shown are the rows of keys of which something is known at a moment.
func shown(now time.Time) clause { return when("state <> 'absent' AND expires_at > ?", now) }

const (
	// sqlOpen is the condition of the index entries_open, word by word: else it is not used.
	sqlOpen = `(state IN ('reserved', 'dispatched') OR doubts > 0)`
	sqlLive = `(state IN ('reserved', 'dispatched') AND lease_until > ?)`
)

// Entry implements idem.Reader.
func (r reader) Entry(ctx context.Context, key idem.Key) (*idem.Entry, time.Time, error) {
	s := r.statement()
	s.add("SELECT" + entryColumns(true) + " FROM (SELECT *, true AS fits FROM entries")
	s.add(" WHERE task_id = ? AND attempt = ?) e", plain(key.TaskID), key.Attempt)
	var entry *idem.Entry
	now, err := r.ask(ctx, s, func(row scanner) (err error) {
		entry, err = scanEntry(row)
		return err
	})
	if err != nil {
		return nil, time.Time{}, err
	}
	if entry != nil && (entry.State == idem.Absent || entry.Expired(now)) {
		entry = nil
	}
	return entry, now, nil
}

// Standing implements idem.Reader.
func (r reader) Standing(ctx context.Context) (idem.Standing, error) {
	var standing idem.Standing
	now, err := r.ask(ctx, r.statement(), nil)
	if err != nil {
		return standing, err
	}
	standing.Now = now
	s := r.statement()
	s.add("SELECT count(CASE WHEN "+sqlLive+" THEN 1 END), count(CASE WHEN NOT "+sqlLive+" AND "+sqlInDoubt+" THEN 1 END)", now, now)
	s.add(" FROM entries" + r.dialect().by("entries_open") + " WHERE " + sqlOpen)
	s.and(shown(now))
	_, err = r.ask(ctx, s, func(row scanner) error { return row.Scan(&standing.Open, &standing.InDoubt) })
	if err != nil || standing.InDoubt == 0 {
		return standing, err
	}
	// Of a key that has only its last holder's doubt the column tells since when it stands; of one that inherited others, only the
	// entry as a whole does. Those are few.
	for _, few := range []struct {
		which clause
		order string
		limit int
	}{{when("doubts = 0"), "lease_until", 1}, {when("doubts > 0"), "reserved_at", idem.MaxPage}} {
		s = r.statement()
		s.add("SELECT" + entryColumns(false) + " FROM (SELECT *, true AS fits FROM entries" + r.dialect().by("entries_open") + " WHERE " + sqlOpen)
		s.and(shown(now), inDoubt(now), few.which)
		s.add(" ORDER BY "+few.order+", task_id, attempt LIMIT ?) e", few.limit)
		_, err = r.ask(ctx, s, func(row scanner) error {
			e, err := scanEntry(row)
			if err == nil && e.InDoubt(now) && (standing.Oldest == nil || e.DoubtSince(now).Before(standing.Oldest.DoubtSince(now))) {
				standing.Oldest = e
			}
			return err
		})
		if err != nil {
			return standing, err
		}
	}
	return standing, nil
}

// inDoubt is idem.Entry.InDoubt in SQL.
func inDoubt(now time.Time) clause { return when("NOT "+sqlLive+" AND "+sqlInDoubt, now) }
