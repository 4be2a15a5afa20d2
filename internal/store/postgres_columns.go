package store

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/idemstore/idemstore/internal/idem"
)

// pgRows are rows on their way to the server: an array for each column, which a statement takes apart with unnest. They are
// in the server's binary form from the beginning: pgx would take slices as well, but it boxes every element of them, and finds
// its way through those that may be NULL by reflection, which took a tenth of the service's CPU where much is written.
type pgRows struct {
	expected int // rows
	columns  []pgColumn
	n, at    int
}

// pgColumn is an array, or its only element.
type pgColumn struct {
	element uint32 // the type's OID
	n       int
	nulls   bool
	values  []byte // each behind its length
	room    int    // that all columns together take
}

// begin begins a row, whose columns follow in order.
func (r *pgRows) begin() { r.n, r.at = r.n+1, 0 }

func (r *pgRows) put(element, length uint32) *pgColumn {
	if r.at == len(r.columns) {
		size := pgLength
		if length != math.MaxUint32 {
			size += int(length)
		}
		r.columns = append(r.columns, pgColumn{element: element, values: make([]byte, 0, min(r.expected*size, pgFirstRoom))})
	}
	c := &r.columns[r.at]
	r.at++
	c.values = binary.BigEndian.AppendUint32(c.values, length)
	return c
}

func (r *pgRows) null(element uint32) { r.put(element, math.MaxUint32).nulls = true }

func (r *pgRows) text(s string) {
	c := r.put(pgtype.TextOID, uint32(len(s)))
	c.values = append(c.values, s...)
}

func (r *pgRows) optional(s *string) {
	if s == nil {
		r.null(pgtype.TextOID)
		return
	}
	r.text(*s)
}

func (r *pgRows) flag(f bool) {
	c, b := r.put(pgtype.BoolOID, 1), byte(0)
	if f {
		b = 1
	}
	c.values = append(c.values, b)
}

func (r *pgRows) integer(n int32) {
	c := r.put(pgtype.Int4OID, 4)
	c.values = binary.BigEndian.AppendUint32(c.values, uint32(n))
}

func (r *pgRows) number(n int64) {
	c := r.put(pgtype.Int8OID, 8)
	c.values = binary.BigEndian.AppendUint64(c.values, uint64(n))
}

// pgEpoch is where the server's time begins, in microseconds of Unix.
const pgEpoch = 946_684_800_000_000

// time is NULL where there is none.
func (r *pgRows) time(t time.Time) {
	if t.IsZero() {
		r.null(pgtype.TimestamptzOID)
		return
	}
	c := r.put(pgtype.TimestamptzOID, 8)
	c.values = binary.BigEndian.AppendUint64(c.values, uint64(t.UnixMicro()-pgEpoch))
}

func (r *pgRows) uuid(id [16]byte) {
	c := r.put(pgtype.UUIDOID, uint32(len(id)))
	c.values = append(c.values, id[:]...)
}

// bytes is NULL where there are none, which are not those of length 0.
func (r *pgRows) bytes(p []byte) {
	if p == nil {
		r.null(pgtype.ByteaOID)
		return
	}
	c := r.put(pgtype.ByteaOID, uint32(len(p)))
	c.values = append(c.values, p...)
}

// response is three columns.
func (r *pgRows) response(of *idem.Response) {
	status, head, body := columnsOf(of)
	if status == nil {
		r.null(pgtype.Int4OID)
	} else {
		r.integer(*status)
	}
	r.bytes(head)
	r.bytes(body)
}

// arrays are the parameters, of so many columns; NULL, of which unnest makes no row, where there are no rows.
func (r *pgRows) arrays(columns int) []any {
	args := make([]any, columns)
	room := 0
	for i := range r.columns {
		room += pgArrayHeader + len(r.columns[i].values)
	}
	for i := range r.columns {
		c := &r.columns[i]
		c.n, c.room = r.n, room
		args[i] = c
	}
	return args
}

// scalars are the parameters of the only row.
func (r *pgRows) scalars() []any {
	args := make([]any, len(r.columns))
	for i := range r.columns {
		switch c := &r.columns[i]; {
		case c.nulls:
		case c.element == pgtype.TextOID: // which is sent as text anyway
			args[i] = string(c.values[pgLength:])
		default:
			args[i] = (*pgScalar)(c)
		}
	}
	return args
}

const (
	pgArrayHeader = 20
	pgLength      = 4
	pgFirstRoom   = 64 << 10 // at most, for a column of values that are like its first
)

type pgScalar pgColumn

// TextValue implements pgtype.TextValuer, for where the URL has statements sent without asking for their types first.
func (c *pgColumn) TextValue() (pgtype.Text, error) {
	out := []byte{'{'}
	for rest := c.values; len(rest) > 0; {
		if len(out) > 1 {
			out = append(out, ',')
		}
		length := binary.BigEndian.Uint32(rest)
		rest = rest[pgLength:]
		if length == math.MaxUint32 {
			out = append(out, "NULL"...)
			continue
		}
		out = append(out, '"')
		out = append(out, quoteElement.Replace(textOf(c.element, rest[:length]))...)
		out = append(out, '"')
		rest = rest[length:]
	}
	return pgtype.Text{String: string(append(out, '}')), Valid: true}, nil
}

// TextValue implements pgtype.TextValuer.
func (c *pgScalar) TextValue() (pgtype.Text, error) {
	return pgtype.Text{String: textOf(c.element, c.values[pgLength:]), Valid: true}, nil
}

var quoteElement = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// textOf is a value in the server's text form.
func textOf(element uint32, value []byte) string {
	switch element {
	case pgtype.TextOID:
		return string(value)
	case pgtype.BoolOID:
		return strconv.FormatBool(value[0] != 0)
	case pgtype.Int4OID:
		return strconv.Itoa(int(int32(binary.BigEndian.Uint32(value))))
	case pgtype.Int8OID:
		return strconv.FormatInt(int64(binary.BigEndian.Uint64(value)), 10)
	case pgtype.TimestamptzOID:
		return idem.Stamp(time.UnixMicro(int64(binary.BigEndian.Uint64(value)) + pgEpoch))
	case pgtype.UUIDOID:
		return uuid.UUID(value).String()
	default:
		return `\x` + hex.EncodeToString(value)
	}
}

// registerColumns has a connection take columns as parameters.
func registerColumns(_ context.Context, conn *pgx.Conn) error {
	types := conn.TypeMap()
	for _, oid := range []uint32{
		pgtype.BoolOID, pgtype.Int4OID, pgtype.Int8OID, pgtype.TimestamptzOID, pgtype.ByteaOID,
		pgtype.TextArrayOID, pgtype.BoolArrayOID, pgtype.Int4ArrayOID, pgtype.Int8ArrayOID, pgtype.TimestamptzArrayOID, pgtype.ByteaArrayOID,
		pgtype.UUIDArrayOID,
	} {
		if t, ok := types.TypeForOID(oid); ok {
			types.RegisterType(&pgtype.Type{Name: t.Name, OID: oid, Codec: columnCodec{t.Codec}})
		}
	}
	return nil
}

// columnCodec is a type's codec that takes columns too.
type columnCodec struct{ pgtype.Codec }

// PlanEncode implements pgtype.Codec.
func (c columnCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if format == pgtype.BinaryFormatCode {
		switch value.(type) {
		case *pgColumn:
			return encodeArray{}
		case *pgScalar:
			return encodeScalar{}
		}
	}
	return c.Codec.PlanEncode(m, oid, format, value)
}

type encodeArray struct{}

// Encode implements pgtype.EncodePlan.
func (encodeArray) Encode(value any, buf []byte) ([]byte, error) {
	c := value.(*pgColumn)
	if cap(buf)-len(buf) < pgArrayHeader+len(c.values) {
		buf = slices.Grow(buf, c.room) // once for all
	}
	nulls := uint32(0)
	if c.nulls {
		nulls = 1
	}
	for _, n := range []uint32{1, nulls, c.element, uint32(c.n), 1} { // one dimension; its length, and the index of its first element
		buf = binary.BigEndian.AppendUint32(buf, n)
	}
	return append(buf, c.values...), nil
}

type encodeScalar struct{}

// Encode implements pgtype.EncodePlan.
func (encodeScalar) Encode(value any, buf []byte) ([]byte, error) {
	return append(buf, value.(*pgScalar).values[pgLength:]...), nil
}
