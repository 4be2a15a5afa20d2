package server

import (
	"encoding/base64"
	"time"

	"github.com/google/uuid"

	"github.com/idemstore/idemstore/internal/idem"
)

// mark is what a cursor says: where the next page begins. Clients take it for opaque; it is no secret.
type mark interface{ valid() bool }

// entryMark is a place in a list of entries.
type entryMark struct {
	At      int64  `json:"at"` // microseconds
	TaskID  string `json:"task_id"`
	Attempt int32  `json:"attempt"`
}

func markOfEntry(p *idem.EntryPosition) *entryMark {
	return &entryMark{At: p.ReservedAt.UnixMicro(), TaskID: p.TaskID, Attempt: p.Attempt}
}

func (m *entryMark) position() *idem.EntryPosition {
	return &idem.EntryPosition{ReservedAt: time.UnixMicro(m.At).UTC(), Key: idem.Key{TaskID: m.TaskID, Attempt: m.Attempt}}
}

func (m *entryMark) valid() bool {
	id, err := idem.ParseTaskID(m.TaskID)
	return err == nil && id == m.TaskID && m.Attempt >= 0 && sensible(m.At)
}

// eventMark is a place in the trail.
type eventMark struct {
	At int64  `json:"at"`
	ID string `json:"id"`
}

func markOfEvent(p *idem.EventPosition) *eventMark { return &eventMark{At: p.At.UnixMicro(), ID: p.ID} }

func (m *eventMark) position() *idem.EventPosition {
	return &idem.EventPosition{At: time.UnixMicro(m.At).UTC(), ID: m.ID}
}

func (m *eventMark) valid() bool {
	id, err := uuid.Parse(m.ID)
	return err == nil && id.String() == m.ID && sensible(m.At)
}

// heldMark is a place in what an owner holds: first what is reserved, then what is dispatched.
type heldMark struct {
	State idem.State `json:"state"`
	From  *entryMark `json:"from,omitempty"`
}

func (m *heldMark) valid() bool {
	return (m.State == idem.Reserved || m.State == idem.Dispatched) && (m.From == nil || m.From.valid())
}

var lastTime = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC).UnixMicro()

func sensible(micros int64) bool { return micros >= 0 && micros <= lastTime }

func writeCursor(m mark) *string {
	cursor := base64.RawURLEncoding.EncodeToString(encode(m))
	return &cursor
}

func readCursor(cursor string, into mark) error {
	text, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(cursor) > maxCursor || strict(text, into) != nil || !into.valid() {
		return &idem.FieldError{Field: "cursor", Reason: "must be the next_cursor of the page before, as it was given"}
	}
	return nil
}

// maxCursor is longer than any that is written.
const maxCursor = 1024
