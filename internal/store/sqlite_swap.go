package store

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/idemstore/idemstore/internal/idem"
)

// Swap implements idem.Store.
func (s *SQLite) Swap(ctx context.Context, changes []idem.Change) ([]bool, time.Time, error) {
	written := make([]bool, len(changes))
	order := make([]int, len(changes))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return compareKeys(changes[a].Entry.Key, changes[b].Entry.Key) })
	events := 0
	now, err := s.do(ctx, s.begin, func(now time.Time) error {
		for _, i := range order {
			c := &changes[i]
			ok, err := s.write(c, now)
			if err != nil {
				return fmt.Errorf("write the change of %s: %w", c.Entry.Key, err)
			}
			written[i] = ok
			for j := 0; ok && j < len(c.Events); j++ {
				if err := s.tell(&c.Events[j], c.Entry.Key, events); err != nil {
					return fmt.Errorf("write an event of %s: %w", c.Entry.Key, err)
				}
				events++
			}
		}
		return nil
	})
	if err != nil {
		return nil, time.Time{}, err
	}
	return written, now, nil
}

// write writes the entry of one change, unless it is to be refused.
func (s *SQLite) write(c *idem.Change, now time.Time) (bool, error) {
	if !c.Before.IsZero() && !now.Before(c.Before) {
		return false, nil
	}
	if c.Same {
		return s.exists(s.standing, c.Entry.Key, c.Base)
	}
	if c.Alone {
		if later, err := s.exists(s.later, c.Entry.Key); later || err != nil {
			return false, err
		}
	}
	stmt := s.insert
	if c.Base != 0 {
		stmt = s.update
	}
	b := binder{stmt: stmt}
	if err := b.entry(c.Entry); err != nil {
		return false, err
	}
	if c.Base != 0 {
		b.number(c.Base)
	}
	if err := b.run(); err != nil {
		return false, err
	}
	return s.conn.Changes() > 0, nil
}

func (s *SQLite) exists(stmt *sqlite3.Stmt, k idem.Key, version ...int64) (bool, error) {
	b := binder{stmt: stmt}
	b.text(k.TaskID)
	b.integer(k.Attempt)
	for _, v := range version {
		b.number(v)
	}
	if b.err != nil {
		return false, b.err
	}
	found := stmt.Step()
	if err := stmt.Err(); err != nil {
		_ = stmt.Reset() // tells the same
		return false, err
	}
	return found, stmt.Reset()
}

func (s *SQLite) tell(e *idem.Event, of idem.Key, nth int) error {
	b := binder{stmt: s.event}
	b.text(of.TaskID)
	b.integer(of.Attempt)
	b.time(e.At)
	b.text(formatUUID(eventID(e.At, nth)))
	if err := putEvent(&b, e); err != nil {
		return err
	}
	return b.run()
}

func formatUUID(id [16]byte) string {
	digits := hex.EncodeToString(id[:])
	return digits[:8] + "-" + digits[8:12] + "-" + digits[12:16] + "-" + digits[16:20] + "-" + digits[20:]
}

// Load implements idem.Store.
func (s *SQLite) Load(ctx context.Context, keys []idem.Key) ([]*idem.Entry, time.Time, error) {
	asked := make(map[string]string) // by task, the attempts in the form that sqliteLoad wants
	for _, k := range keys {
		list := asked[k.TaskID]
		if list == "" {
			list = ","
		}
		asked[k.TaskID] = list + strconv.Itoa(int(k.Attempt)) + ","
	}
	var entries []*idem.Entry
	now, err := s.do(ctx, s.beginRead, func(time.Time) error {
		for task, attempts := range asked {
			var err error
			if entries, err = s.loadTask(entries, task, attempts); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("read from the database: %w", cause(err))
	}
	return entries, now, nil
}

func (s *SQLite) loadTask(entries []*idem.Entry, task, attempts string) ([]*idem.Entry, error) {
	b := binder{stmt: s.load}
	b.text(task)
	b.text(attempts)
	if b.err != nil {
		return nil, b.err
	}
	for s.load.Step() {
		r := row{stmt: s.load}
		e, err := r.entry(strings.Clone(task))
		if err != nil {
			_ = s.load.Reset()
			return nil, err
		}
		entries = append(entries, e)
	}
	if err := s.load.Err(); err != nil {
		_ = s.load.Reset()
		return nil, err
	}
	return entries, s.load.Reset()
}
