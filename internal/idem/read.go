package idem

import (
	"context"
	"errors"
	"time"
)

// Reader answers what operators ask of a store. It stands beside the hot path: on few connections of its own, each question
// bounded in time and in what it brings at once. It holds nothing between two pages, so they are not one moment's; but the
// order is such that no entry or event that was there throughout is left out or shown twice, whatever arrives meanwhile. An
// entry that is granted anew meanwhile moves to the front, and may be left out.
//
// Errors are ErrUnavailable and ErrTooSlow, and wrap what they come from, which is for the log alone. Where too many
// questions wait, and where the caller's context was cancelled, it is ErrUnavailable. A key past its retention is not
// shown, purged or not.
type Reader interface {
	// Entry returns one entry with its response, nil where nothing is known of the key, and the database's time.
	Entry(ctx context.Context, key Key) (*Entry, time.Time, error)

	// Entries returns a page of entries.
	Entries(ctx context.Context, q EntryQuery) (EntryPage, error)

	// Events returns a page of the trail.
	Events(ctx context.Context, q EventQuery) (EventPage, error)

	// Stats counts what was reserved, and what happened, from after on and before before; a zero time is no bound. Each
	// entry and event of that time is read, so of very many ErrTooSlow is all that is told.
	Stats(ctx context.Context, after, before time.Time) (Stats, error)

	// Standing counts what is open now. It is cheap enough to be asked every few seconds.
	Standing(ctx context.Context) (Standing, error)
}

// ErrTooSlow says that a question took longer than it may. Nothing is wrong with the store; a narrower one succeeds.
var ErrTooSlow = errors.New("the question took longer than it may")

// Pages.
const (
	DefaultPage = 100
	MaxPage     = 1000
)

// EntryQuery asks for entries: those of which everything that is set is so. Times are from After on and before Before.
type EntryQuery struct {
	// TaskID asks for the attempts of one task, lowest first and with their responses. Without it, the newest reservation
	// comes first and responses are Partial.
	TaskID         string
	State          State
	InDoubt        *bool
	Handler, Owner string

	ReservedAfter, ReservedBefore time.Time
	RecordedAfter, RecordedBefore time.Time

	Limit int
	From  *EntryPosition // the page begins behind this
}

// EntryPosition is the place of an entry in a listing. In that of a task only Attempt counts.
type EntryPosition struct {
	ReservedAt time.Time
	Key
}

// EntryPage is some entries, and where the next page begins: nil where there is none. A page can hold fewer than asked for,
// even none, and still not be the last: where few of very many entries are asked for, or responses are large.
type EntryPage struct {
	Entries []*Entry
	Next    *EntryPosition
	Now     time.Time
}

// EventQuery asks for events: those of which everything that is set is so. Actor is an owner's name or a token's.
type EventQuery struct {
	Kind                   EventKind
	TaskID, Handler, Actor string
	After, Before          time.Time

	Oldest bool // oldest first; else newest first
	Limit  int
	From   *EventPosition // the page begins behind this
}

// EventPosition is the place of an event in the trail. ID is one that a page has shown. An event can arrive some seconds
// after later ones, as it is as old as its judgement: who follows the trail looks back as far.
type EventPosition struct {
	At time.Time
	ID string
}

// EventPage is some events, and where the next page begins, as of EntryPage.
type EventPage struct {
	Events []Event
	Next   *EventPosition
}

// Standing is what is open at one moment.
type Standing struct {
	Now     time.Time
	Open    int64 // a live lease is held
	InDoubt int64
	Oldest  *Entry // of those in doubt, the one of which a doubt has stood longest
}

// Stats counts the entries that were reserved in a period by what they are now, and the events of that period by kind.
type Stats struct {
	Standing
	Totals   Counts
	Handlers []NamedCounts // largest first, by entries and events together; at most MaxNames
	Owners   []NamedCounts // the same
	// MoreHandlers and MoreOwners: how many names are left out.
	MoreHandlers, MoreOwners int64
}

// MaxNames bounds how many handlers and how many owners Stats tells apart.
const MaxNames = 100

// Counts are entries by state and events by kind. InDoubt are entries; they stand among those of their state too.
type Counts struct {
	States  map[State]int64
	InDoubt int64
	Events  map[EventKind]int64
}

// NamedCounts are those of one handler or owner.
type NamedCounts struct {
	Name string
	Counts
}
