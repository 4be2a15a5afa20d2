package idem

import (
	"fmt"
	"time"
)

// MaxPeriod bounds what Stats counts over.
const MaxPeriod = 366 * 24 * time.Hour

// Validate names the first member that cannot be, and puts the others into the form in which they are kept. It returns a
// *FieldError.
func (q *EntryQuery) Validate() error {
	if q.Limit == 0 {
		q.Limit = DefaultPage
	}
	return first(task(&q.TaskID), name("handler", q.Handler, false), name("owner", q.Owner, false),
		period("reserved_after", "reserved_before", q.ReservedAfter, q.ReservedBefore),
		period("recorded_after", "recorded_before", q.RecordedAfter, q.RecordedBefore),
		Range("limit", int64(q.Limit), 1, MaxPage))
}

// Validate is as that of an EntryQuery.
func (q *EventQuery) Validate() error {
	if q.Limit == 0 {
		q.Limit = DefaultPage
	}
	return first(task(&q.TaskID), name("handler", q.Handler, false), name("actor", q.Actor, false),
		period("after", "before", q.After, q.Before), Range("limit", int64(q.Limit), 1, MaxPage))
}

// ValidatePeriod checks what Stats is asked for.
func ValidatePeriod(after, before time.Time) error {
	if err := period("after", "before", after, before); err != nil {
		return err
	}
	if before.Sub(after) > MaxPeriod {
		return &FieldError{"after", fmt.Sprintf("must be at most %d days before the end of the period", MaxPeriod/(24*time.Hour))}
	}
	return nil
}

// task checks the id of a task that may be left out.
func task(id *string) (err error) {
	if *id != "" {
		*id, err = ParseTaskID(*id)
	}
	return err
}

// period refuses one that is over before it begins: a slip would look like a quiet time.
func period(from, to string, after, before time.Time) error {
	if !after.IsZero() && !before.IsZero() && !before.After(after) {
		return &FieldError{to, "must be later than " + from}
	}
	return nil
}
