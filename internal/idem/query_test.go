package idem

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestQueriesAreValidated(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	long := strings.Repeat("é", MaxName)
	for _, tc := range []struct {
		query interface{ Validate() error }
		field string
	}{
		{&EntryQuery{}, ""},
		{&EntryQuery{TaskID: "a", Handler: long, Owner: "wörker 1", Limit: MaxPage}, ""},
		{&EntryQuery{ReservedAfter: noon, ReservedBefore: noon.Add(1), RecordedAfter: noon, RecordedBefore: noon.Add(1)}, ""},
		{&EntryQuery{TaskID: ".."}, "task_id"},
		{&EntryQuery{Handler: "a\n"}, "handler"},
		{&EntryQuery{Handler: long + "x"}, "handler"},
		{&EntryQuery{Owner: "\xff"}, "owner"},
		{&EntryQuery{Owner: "a\x00"}, "owner"},
		{&EntryQuery{ReservedAfter: noon, ReservedBefore: noon}, "reserved_before"},
		{&EntryQuery{RecordedAfter: noon.Add(1), RecordedBefore: noon}, "recorded_before"},
		{&EntryQuery{Limit: -1}, "limit"},
		{&EntryQuery{Limit: MaxPage + 1}, "limit"},
		{&EventQuery{}, ""},
		{&EventQuery{TaskID: "a", Handler: "h", Actor: long, After: noon, Before: noon.Add(1), Limit: 1}, ""},
		{&EventQuery{TaskID: "a b"}, "task_id"},
		{&EventQuery{Handler: "\x7f"}, "handler"},
		{&EventQuery{Actor: long + "x"}, "actor"},
		{&EventQuery{After: noon, Before: noon}, "before"},
		{&EventQuery{Limit: MaxPage + 1}, "limit"},
	} {
		var fault *FieldError
		err := tc.query.Validate()
		if errors.As(err, &fault); (err == nil) != (tc.field == "") || fault != nil && fault.Field != tc.field {
			t.Errorf("%+v: %v, want %q", tc.query, err, tc.field)
		}
	}
	q := &EventQuery{TaskID: "8D0A7B5C-2c41-4f0e-9a57-3f6e1b9c0d24"}
	if err := q.Validate(); err != nil || q.TaskID != "8d0a7b5c-2c41-4f0e-9a57-3f6e1b9c0d24" || q.Limit != DefaultPage {
		t.Errorf("%v: %+v", err, q)
	}
}

func TestPeriodOfStats(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		after, before time.Time
		field         string
	}{
		{noon, noon.Add(1), ""},
		{noon, noon.Add(MaxPeriod), ""},
		{noon, noon.Add(MaxPeriod + 1), "after"},
		{noon, noon, "before"},
		{noon, noon.Add(-1), "before"},
	} {
		var fault *FieldError
		err := ValidatePeriod(tc.after, tc.before)
		if errors.As(err, &fault); (err == nil) != (tc.field == "") || fault != nil && fault.Field != tc.field {
			t.Errorf("%s to %s: %v, want %q", tc.after, tc.before, err, tc.field)
		}
	}
}
