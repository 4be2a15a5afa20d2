package idem

import "time"

// Code is the one word that an answer comes down to.
type Code string

const (
	// Granted, kept, replayed, let go.
	CodeReserved   Code = "reserved"
	CodeRecorded   Code = "recorded"
	CodeDispatched Code = "dispatched"
	CodeRenewed    Code = "renewed"
	CodeReleased   Code = "released"

	// Refused.
	CodeNotFound        Code = "not_found"
	CodeInProgress      Code = "in_progress"
	CodeInDoubt         Code = "in_doubt"
	CodeAlreadyRecorded Code = "already_recorded"
	CodeLeaseLost       Code = "lease_lost"
	CodeNotHolder       Code = "not_holder"
	CodeRequestMismatch Code = "request_mismatch"
)

// Outcome is what a caller is told.
type Outcome struct {
	Code Code
	// OK tells success from refusal where the code alone does not: a release is answered in_doubt when it left the key so.
	OK bool
	// First: the record is the first one; or an Expire that told the end of a doubt.
	First bool
	Key   Key
	// Entry is the entry that the answer tells of, as it is after the command. Its Attempt differs from the key's where
	// another attempt stands in the way or is replayed. It is nil where nothing is known of the key.
	Entry *Entry
	// Now is the database's time of the judgement.
	Now time.Time

	Doubts        []Grant
	Takeovers     []Takeover
	TakeoversLeft int

	// Others lists the task's other attempts; nil where the answer does not.
	Others        []Other
	IgnoredFields []string
	// Repeated: a refusal that is in the trail already, to be counted and logged only.
	Repeated bool
}

// Other tells of another attempt of the task.
type Other struct {
	Attempt int32
	State   State
	InDoubt bool
	Status  int // of the recorded response; 0: none
}

// EventKind is what an event of the trail tells of.
type EventKind string

const (
	EventReplayed        EventKind = "replayed"
	EventTakenOver       EventKind = "taken_over"
	EventFoundInDoubt    EventKind = "found_in_doubt"
	EventRefusedMismatch EventKind = "refused_mismatch"
	EventReleased        EventKind = "released"
	EventRecordedLate    EventKind = "recorded_late"
	EventDuplicateRecord EventKind = "duplicate_record"
	EventRefusedRecord   EventKind = "refused_record"
	EventResolved        EventKind = "resolved"
	EventPurged          EventKind = "purged"
)

// Event is a line of the trail. The happy path writes none: the entry itself tells it.
type Event struct {
	ID   string // given by the store
	At   time.Time
	Kind EventKind
	Key
	Fence   int64
	Handler string
	Owner   string // the worker or operator that acted, by its own word
	Actor
	Detail   map[string]any
	Response *Response // evidence: the whole response that was offered
}

// Change is what a decision makes of one entry, to be written with its events in one transaction or not at all.
type Change struct {
	Entry *Entry // as it shall be
	Base  int64  // the version that was decided upon; 0: no row

	// Same: the entry stays as it is, and the events are written if it still is at Base.
	Same bool
	// Alone: nothing was known of the task's other attempts. To be refused if a later attempt has a row.
	Alone bool
	// Before is the end of what was judged by time. To be refused when the database's clock has reached it.
	Before time.Time

	Events []Event
}

// Stamp writes a time as everybody sees it: RFC 3339 in UTC with microseconds.
func Stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }
