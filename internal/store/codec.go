package store

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/idemstore/idemstore/internal/idem"
)

// more is what the happy path never has: one column that is NULL there.
type more struct {
	Former     []idem.Former  `json:"former,omitempty"`
	Spent      []idem.Spent   `json:"spent,omitempty"`
	Takeovers  int            `json:"takeovers,omitzero"`
	Found      int64          `json:"found,omitzero"`
	Barred     bool           `json:"barred,omitzero"`
	Refusals   []idem.Refusal `json:"refusals,omitempty"`
	ReleasedAt time.Time      `json:"released_at,omitzero"`
	ByOperator bool           `json:"by_operator,omitzero"`
	// RecordedBy is the reservation that recorded, where it is not the current grant's.
	RecordedBy *string `json:"recorded_reservation_id,omitempty"`
}

// encodeMore returns nil where there is nothing to keep.
func encodeMore(e *idem.Entry) (*string, error) {
	m := more{
		Former: e.Former, Spent: e.Spent, Takeovers: e.Takeovers, Found: e.Found, Barred: e.Barred,
		Refusals:   e.Refusals,
		ReleasedAt: e.ReleasedAt, ByOperator: e.ByOperator,
	}
	if e.State == idem.Recorded && e.RecordedReservationID != e.ReservationID {
		m.RecordedBy = &e.RecordedReservationID
	}
	if len(m.Former)+len(m.Spent)+len(m.Refusals) == 0 && m.Takeovers == 0 && m.Found == 0 && !m.Barred &&
		m.ReleasedAt.IsZero() && !m.ByOperator && m.RecordedBy == nil {
		return nil, nil
	}
	return encodeJSON(m)
}

func decodeMore(e *idem.Entry, text []byte) error {
	if e.State == idem.Recorded {
		e.RecordedReservationID = e.ReservationID
	}
	if text == nil {
		return nil
	}
	var m more
	if err := json.Unmarshal(text, &m); err != nil {
		return fmt.Errorf("read the entry %s: %w", e.Key, err)
	}
	e.Former, e.Spent, e.Takeovers, e.Found, e.Refusals = m.Former, m.Spent, m.Takeovers, m.Found, m.Refusals
	e.ReleasedAt, e.ByOperator, e.Barred = m.ReleasedAt, m.ByOperator, m.Barred
	if m.RecordedBy != nil {
		e.RecordedReservationID = *m.RecordedBy
	}
	return nil
}

func encodeDetail(detail map[string]any) (*string, error) {
	if detail == nil {
		return nil, nil
	}
	return encodeJSON(detail)
}

// decodeDetail leaves numbers as they were written.
func decodeDetail(text []byte) (detail map[string]any, err error) {
	if text == nil {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	err = d.Decode(&detail)
	return detail, err
}

func encodeJSON(v any) (*string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	s := string(text)
	return &s, nil
}

// doubts counts the inherited doubts, so that keys in doubt can be found without reading the JSON.
func doubts(e *idem.Entry) int32 {
	var n int32
	for i := range e.Former {
		if e.Former[i].Doubt {
			n++
		}
	}
	return n
}

const (
	headKept    = 0 // the body, if there is one, is kept
	headOmitted = 1 // its digest and size are kept in its place
)

// encodeHead returns what a response has beside status and body, nil if it has nothing. Each text is preceded by its length, so that
// every byte survives.
func encodeHead(r *idem.Response) []byte {
	if len(r.Headers) == 0 && !r.Omitted {
		return nil
	}
	size := 1 + binary.MaxVarintLen64
	for _, h := range r.Headers {
		size += len(h[0]) + len(h[1]) + 6
	}
	head := append(make([]byte, 0, size), headKept)
	text := func(s string) { head = append(binary.AppendUvarint(head, uint64(len(s))), s...) }
	if r.Omitted {
		head[0] = headOmitted
		text(r.BodySHA256)
		head = binary.AppendUvarint(head, uint64(r.BodySize))
	}
	for _, h := range r.Headers {
		text(h[0])
		text(h[1])
	}
	return head
}

var errHead = errors.New("the stored head of a response cannot be read")

func decodeHead(r *idem.Response, head []byte) error {
	if head == nil {
		return nil
	}
	if len(head) == 0 || head[0] > headOmitted {
		return errHead
	}
	r.Omitted = head[0] == headOmitted
	rest, ok := head[1:], true
	number := func() uint64 {
		n, size := binary.Uvarint(rest)
		if size <= 0 {
			ok = false
			return 0
		}
		rest = rest[size:]
		return n
	}
	text := func() string {
		n := number()
		if n > uint64(len(rest)) {
			ok = false
			return ""
		}
		s := string(rest[:n])
		rest = rest[n:]
		return s
	}
	if r.Omitted {
		r.BodySHA256, r.BodySize = text(), int64(number())
	}
	for ok && len(rest) > 0 {
		r.Headers = append(r.Headers, idem.Header{text(), text()})
	}
	if !ok {
		return errHead
	}
	return nil
}

// columns takes the values of a row one after the other, in the form of an engine. A time that is zero is NULL.
type columns interface {
	text(string)
	optional(*string)
	flag(bool)
	integer(int32)
	number(int64)
	time(time.Time)
	response(*idem.Response)
}

// putEntry puts what is in an entry behind its key and its version, in the order of both engines.
func putEntry(to columns, e *idem.Entry) error {
	more, err := encodeMore(e)
	if err != nil {
		return err
	}
	var recordedBy *string
	if !e.RecordedAt.IsZero() {
		recordedBy = &e.RecordedBy
	}
	to.text(string(e.State))
	to.text(e.ReservationID)
	to.text(e.Owner)
	to.number(e.Fence)
	to.text(e.Handler)
	to.text(e.RequestHash)
	to.flag(e.Explicit)
	to.flag(e.TaskScope)
	to.integer(int32(e.LeaseSeconds))
	to.time(e.ReservedAt)
	to.time(e.LeaseUntil)
	to.time(e.DispatchedAt)
	to.time(e.RecordedAt)
	to.optional(recordedBy)
	to.flag(e.Late)
	to.integer(doubts(e))
	to.time(e.ExpiresAt)
	to.optional(more)
	to.response(e.Response)
	return nil
}

// putEvent puts what is in an event behind its key, its time and its id, in the order of both engines.
func putEvent(to columns, e *idem.Event) error {
	detail, err := encodeDetail(e.Detail)
	if err != nil {
		return err
	}
	to.number(e.Fence)
	to.text(string(e.Kind))
	to.text(plain(e.Handler))
	to.text(plain(e.Owner))
	to.text(plain(e.Token))
	to.text(plain(e.RequestID))
	to.optional(detail)
	to.response(e.Response)
	return nil
}

// columnsOf are the three columns of a response. A body that is nil is none, one of length 0 is an empty one.
func columnsOf(r *idem.Response) (status *int32, head, body []byte) {
	if r == nil {
		return nil, nil, nil
	}
	code := int32(r.Status)
	if r.HasBody {
		body = r.Body
		if body == nil {
			body = []byte{}
		}
	}
	return &code, encodeHead(r), body
}

// responseOf is the response of three columns.
func responseOf(status *int32, head, body []byte, partial bool) (*idem.Response, error) {
	if status == nil {
		return nil, nil
	}
	r := &idem.Response{Status: int(*status)}
	if partial {
		r.Partial = true
		return r, nil
	}
	r.HasBody, r.Body = body != nil, body
	return r, decodeHead(r, head)
}

// An eventID is a UUID of version 7, except that the bits below the millisecond are not all random: ids are in the order of time,
// and those of one swap in the order of the events.
func eventID(at time.Time, nth int) [16]byte {
	var id [16]byte
	micros := uint64(at.UnixMicro())
	binary.BigEndian.PutUint64(id[8:], rand.Uint64())
	binary.BigEndian.PutUint16(id[8:], 0x8000|uint16(nth)&0x3fff)
	binary.BigEndian.PutUint64(id[:], micros/1000<<16|0x7000|micros%1000)
	return id
}

// plain makes sure that a text can be stored: one bad text must not fail what is written beside it. What is validated is not changed.
func plain(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
