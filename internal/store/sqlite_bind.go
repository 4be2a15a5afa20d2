package store

import (
	"fmt"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/idemstore/idemstore/internal/idem"
)

// binder binds the parameters of a statement one after the other, and remembers the first fault.
type binder struct {
	stmt *sqlite3.Stmt
	last int
	err  error
}

func (b *binder) next(bind func(param int) error) {
	b.last++
	if b.err == nil {
		b.err = bind(b.last)
	}
}

func (b *binder) text(s string)   { b.next(func(i int) error { return b.stmt.BindText(i, s) }) }
func (b *binder) number(n int64)  { b.next(func(i int) error { return b.stmt.BindInt64(i, n) }) }
func (b *binder) integer(n int32) { b.number(int64(n)) }
func (b *binder) flag(f bool)     { b.next(func(i int) error { return b.stmt.BindBool(i, f) }) }
func (b *binder) null()           { b.next(b.stmt.BindNull) }

// bytes binds NULL where there are none, which are not those of length 0.
func (b *binder) bytes(p []byte) {
	if p == nil {
		b.null()
		return
	}
	b.next(func(i int) error { return b.stmt.BindBlob(i, p) })
}

func (b *binder) optional(s *string) {
	if s == nil {
		b.null()
		return
	}
	b.text(*s)
}

func (b *binder) time(t time.Time) {
	if t.IsZero() {
		b.null()
		return
	}
	b.number(t.UnixMicro())
}

func (b *binder) response(r *idem.Response) {
	status, head, body := columnsOf(r)
	if status == nil {
		b.null()
	} else {
		b.integer(*status)
	}
	b.bytes(head)
	b.bytes(body)
}

// entry binds the first 24 parameters of sqliteInsert and sqliteUpdate.
func (b *binder) entry(e *idem.Entry) error {
	b.text(e.TaskID)
	b.integer(e.Attempt)
	b.number(e.Version)
	return putEntry(b, e)
}

// run executes the statement. The parameters are let go: a body may be large.
func (b *binder) run() error {
	if b.err == nil {
		b.err = b.stmt.Exec()
	}
	if err := b.stmt.ClearBindings(); b.err == nil {
		b.err = err
	}
	return b.err
}

// row reads the columns of a result one after the other.
type row struct {
	stmt *sqlite3.Stmt
	last int
}

func (r *row) next() int { r.last++; return r.last - 1 }

func (r *row) text() string  { return r.stmt.ColumnText(r.next()) }
func (r *row) number() int64 { return r.stmt.ColumnInt64(r.next()) }
func (r *row) flag() bool    { return r.stmt.ColumnBool(r.next()) }

func (r *row) time() time.Time {
	i := r.next()
	if r.stmt.ColumnType(i) == sqlite3.NULL {
		return time.Time{}
	}
	return time.UnixMicro(r.stmt.ColumnInt64(i)).UTC()
}

func (r *row) bytes() []byte {
	i := r.next()
	if r.stmt.ColumnType(i) == sqlite3.NULL {
		return nil
	}
	return r.stmt.ColumnBlob(i, []byte{})
}

// entry reads what sqliteLoad selects.
func (r *row) entry(task string) (*idem.Entry, error) {
	e := &idem.Entry{Key: idem.Key{TaskID: task, Attempt: int32(r.number())}, Version: r.number(), State: idem.State(r.text())}
	e.ReservationID, e.Owner, e.Fence = r.text(), r.text(), r.number()
	e.Handler, e.RequestHash, e.Explicit, e.TaskScope, e.LeaseSeconds = r.text(), r.text(), r.flag(), r.flag(), int(r.number())
	e.ReservedAt, e.LeaseUntil, e.DispatchedAt = r.time(), r.time(), r.time()
	e.RecordedAt, e.RecordedBy, e.Late, e.ExpiresAt = r.time(), r.text(), r.flag(), r.time()
	more := r.bytes()
	var status *int32
	if i := r.next(); r.stmt.ColumnType(i) != sqlite3.NULL {
		code := int32(r.stmt.ColumnInt(i))
		status = &code
	}
	asked, head, body := r.flag(), r.bytes(), r.bytes()
	var err error
	if e.Response, err = responseOf(status, head, body, !asked); err != nil {
		return nil, fmt.Errorf("read the entry %s: %w", e.Key, err)
	}
	return e, decodeMore(e, more)
}
