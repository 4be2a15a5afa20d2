package store

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
)

// Whoever asks a file neither waits for the one that writes nor keeps it waiting.
func TestSQLiteQuestionsBesideTheWriter(t *testing.T) {
	t.Parallel()
	s := openLite(t, filepath.Join(t.TempDir(), "x.db"))
	e := reserved(fresh())
	swap(t, s, over(nil, e))
	s.run(t, `BEGIN IMMEDIATE; UPDATE entries SET owner = 'not yet'`)
	if got, _, err := s.Entry(t.Context(), e.Key); err != nil || got == nil || got.Owner != e.Owner {
		t.Errorf("while another writes: %+v, %v", got, err)
	}
	s.run(t, `ROLLBACK`)

	q := s.statement()
	q.add(`SELECT task_id FROM entries`)
	_, err := s.ask(t.Context(), q, func(scanner) error { // in the middle of a question
		n := *e
		n.Version++
		wantWritten(t, s, []idem.Change{over(e, &n)}, true)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A question that takes longer than it may is broken off, and so is that of one that hung up.
func TestSQLiteQuestionThatIsTooSlow(t *testing.T) {
	t.Parallel()
	for _, path := range []string{":memory:", filepath.Join(t.TempDir(), "x.db")} {
		s := openLite(t, path)
		endless := s.statement()
		endless.add(`WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n) SELECT max(n) FROM n`)
		s.questions.bound = 50 * time.Millisecond
		_, err := s.ask(t.Context(), endless, func(scanner) error { return nil })
		if !errors.Is(err, idem.ErrTooSlow) || errors.Is(err, idem.ErrUnavailable) {
			t.Errorf("%s: got %v, want %v", path, err, idem.ErrTooSlow)
		}
		s.questions.bound = readTime
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		_, err = s.ask(ctx, endless, func(scanner) error { return nil })
		if !errors.Is(err, idem.ErrUnavailable) || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: of one that hung up: %v", path, err)
		}
		e := reserved(fresh())
		swap(t, s, over(nil, e))
		if got, _, err := s.Entry(t.Context(), e.Key); err != nil || got == nil {
			t.Errorf("%s: afterwards: %+v, %v", path, got, err)
		}
	}
}

// planned asks for the plan of each statement before the statement itself.
type planned struct {
	asker
	plans []string
}

func (x *planned) ask(ctx context.Context, s statement, read func(scanner) error) (time.Time, error) {
	if s.sql != "" {
		explain := s
		explain.sql = "EXPLAIN QUERY PLAN " + s.sql
		plan := s.sql
		_, err := x.asker.ask(ctx, explain, func(row scanner) error {
			var id, parent, unused int
			var line string
			err := row.Scan(&id, &parent, &unused, &line)
			plan += "\n" + line
			return err
		})
		if err != nil {
			return time.Time{}, err
		}
		x.plans = append(x.plans, plan)
	}
	return x.asker.ask(ctx, s, read)
}

// Every page is searched for in an index, in its order. What only an index for it can answer names it, so it fails without.
func TestSQLitePlans(t *testing.T) {
	t.Parallel()
	s := openLite(t, ":memory:")
	x := &planned{asker: s.questions}
	s.asker = x
	yes := true
	for _, q := range []idem.EntryQuery{
		{},
		{State: idem.Reserved},
		{State: idem.Recorded},
		{InDoubt: &yes, Owner: "a"},
		{TaskID: "a", Owner: "a"},
		{ReservedBefore: time.Now(), RecordedAfter: time.Now()},
	} {
		if _, err := s.Entries(t.Context(), q); err != nil {
			t.Errorf("%+v: %v", q, err)
		}
	}
	for _, q := range []idem.EventQuery{
		{},
		{Oldest: true},
		{Kind: idem.EventReplayed},
		{Kind: idem.EventPurged},
		{Kind: idem.EventPurged, Actor: "a", Oldest: true},
		{TaskID: "a", Kind: idem.EventPurged},
		{After: time.Now(), Handler: "a"},
	} {
		if _, err := s.Events(t.Context(), q); err != nil {
			t.Errorf("%+v: %v", q, err)
		}
	}
	if len(x.plans) < 13 {
		t.Errorf("%d plans", len(x.plans))
	}
	for _, plan := range x.plans {
		if !strings.Contains(plan, "\nSEARCH e") || strings.Contains(plan, "TEMP B-TREE") || strings.Contains(plan, "\nSCAN e") {
			t.Error(plan)
		}
	}
}

func TestSQLiteQuestionsCannotWrite(t *testing.T) {
	t.Parallel()
	s := openLite(t, filepath.Join(t.TempDir(), "x.db"))
	q := s.statement()
	q.add(`DELETE FROM entries`)
	if _, err := s.ask(t.Context(), q, nil); err == nil || !strings.Contains(err.Error(), "readonly") && !strings.Contains(err.Error(), "read") {
		t.Errorf("a question wrote: %v", err)
	}
}
