package store

import (
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
)

const (
	// pageBytes bounds what the rows of a page weigh, but for its first.
	pageBytes = 8 << 20
	// pageTime bounds how long a page is looked for; what was found until then is one.
	pageTime = 2 * time.Second

	// The first stride goes over so many rows, and none over more than the last; each is to take no longer than strideTime.
	firstStride = 2000
	lastStride  = 256_000
	strideTime  = 200 * time.Millisecond
)

// listing is rows in the order of an index.
//
// Where a condition is not served by that index, few of very many rows may be wanted. Such a listing is gone through in strides: the
// index alone tells where the stride ends, and what matches is read between. So each statement is short, and a page can end, with where
// the next begins, though nothing was found.
type listing struct {
	table, index string
	columns      []string            // of the order
	key          func(p place) []any // their values
	back         bool                // from the last to the first
	place        string              // the columns of a place
	parted       bool                // by time, so that a plain condition on it spares looking into other times' parts

	begin, end place // from behind begin up to end

	served  []clause // by the index
	sifted  []clause // not
	weight  string   // what a row weighs
	read    string   // its columns
	nothing bool     // no row can match
}

// place is where a row stands in an order: a time, or the last there is, and what keeps apart what has the same.
type place struct {
	at   time.Time
	name string
	nth  int32
}

var (
	dawn  = time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC)
	noRow = place{at: dawn, nth: -1}
)

// between adds the condition that a row stands behind one place and not behind the other.
//
// It compares whole rows, so that an index is entered exactly where the page begins.
func (l *listing) between(s *statement, begin, end place) {
	after, until := " > ", " <= "
	if l.back {
		after, until = " < ", " >= "
	}
	values := l.key(begin)
	row := "(" + strings.Join(l.columns, ", ") + ")"
	marks := "(?" + strings.Repeat(", ?", len(values)-1) + ")"
	s.add(row+after+marks, values...)
	s.and(when(row+until+marks, l.key(end)...))
	if l.parted {
		if l.back {
			begin, end = end, begin
		}
		s.and(when("at BETWEEN ? AND ?", begin.at, end.at))
	}
}

// ordered is the ORDER BY of a listing.
func (l *listing) ordered() string {
	way := ""
	if l.back {
		way = " DESC"
	}
	return " ORDER BY " + strings.Join(l.columns, way+", ") + way
}

// further is the place of the nth row behind a place, whether it matches or not; false, if there are not so many.
func (r reader) further(ctx context.Context, l *listing, begin place, n int) (p place, found bool, err error) {
	s := r.statement()
	s.add("SELECT " + l.place + " FROM " + l.table + s.dialect.by(l.index) + " WHERE ")
	l.between(&s, begin, l.end)
	s.and(l.served...)
	s.add(l.ordered()+" LIMIT 1 OFFSET ?", n-1)
	_, err = r.ask(ctx, s, func(row scanner) error {
		found = true
		return row.Scan(&p.at, &p.name, &p.nth)
	})
	p.at = p.at.UTC()
	return p, found, err
}

// stretch is a part of a listing, and how much of it is wanted.
type stretch struct {
	begin, end place
	limit      int   // in rows
	room       int64 // in bytes
	always     int   // so many rows have room, whatever they weigh
}

// rows reads what matches in a stretch. more: there is more of it than was wanted.
func rows[T any](ctx context.Context, r reader, l *listing, of stretch, scan func(scanner) (T, error)) (got []T, weight int64, more bool, err error) {
	s := r.statement()
	s.add("SELECT weight, " + l.read + " FROM (")
	if s.dialect.sums {
		s.add("SELECT *, nth <= ? AND (nth <= ? OR total <= ?) AS fits FROM (", of.limit, of.always, of.room)
		s.add("SELECT *, " + l.weight + " AS weight, row_number() OVER w AS nth, sum(" + l.weight + ") OVER w AS total")
	} else {
		s.add("SELECT *, true AS fits, " + l.weight + " AS weight")
	}
	s.add(" FROM " + l.table + s.dialect.by(l.index) + " WHERE ")
	l.between(&s, of.begin, of.end)
	s.and(l.served...)
	s.and(l.sifted...)
	if s.dialect.sums {
		s.add(" WINDOW w AS (" + l.ordered() + " ROWS UNBOUNDED PRECEDING)")
	}
	s.add(l.ordered()+" LIMIT ?)", of.limit+1)
	if s.dialect.sums {
		s.add(" AS numbered) AS summed" + l.ordered())
	}
	_, err = r.ask(ctx, s, func(row scanner) error {
		var w int64
		v, err := scan(weighed{row, &w})
		if err != nil {
			return err
		}
		if len(got) == of.limit || len(got) >= of.always && weight+w > of.room {
			more = true
			return errEnough
		}
		got, weight = append(got, v), weight+w
		return nil
	})
	return got, weight, more, err
}

// weighed reads the weight of a row before the rest of it.
type weighed struct {
	scanner
	weight *int64
}

func (w weighed) Scan(dest ...any) error { return w.scanner.Scan(append([]any{w.weight}, dest...)...) }

// page reads rows until there are as many as wanted, and where the next page begins.
func page[T any](ctx context.Context, r reader, l *listing, limit int, scan func(scanner) (T, error), at func(T) place) (
	found []T, next *place, err error,
) {
	if l.nothing {
		return nil, nil, nil
	}
	if limit = min(limit, idem.MaxPage); limit <= 0 {
		limit = idem.DefaultPage
	}
	begun, begin, room := time.Now(), l.begin, r.room
	for stride := r.stride; ; {
		started := time.Now()
		end, whole := l.end, true
		if len(l.sifted) > 0 {
			p, ok, err := r.further(ctx, l, begin, stride)
			if err != nil {
				return shortPage(l, found, begin, err)
			}
			if ok {
				end, whole = p, false
			}
		}
		wanted := stretch{begin: begin, end: end, limit: limit - len(found), room: room}
		if len(found) == 0 {
			wanted.always = 1
		}
		got, weight, more, err := rows(ctx, r, l, wanted, scan)
		if err != nil {
			return shortPage(l, found, begin, err)
		}
		found, room = append(found, got...), room-weight
		if more {
			end = begin
			if len(got) > 0 {
				end = at(got[len(got)-1])
			}
			return found, &end, nil
		}
		if whole {
			return found, nil, nil
		}
		if len(found) == limit || time.Since(begun) >= r.patience {
			return found, &end, nil
		}
		begin = end
		stride = nextStride(stride, time.Since(started))
	}
}

// shortPage is what there is when a stride was too slow: those before it are a page, if there were any.
func shortPage[T any](l *listing, found []T, begin place, err error) ([]T, *place, error) {
	if errors.Is(err, idem.ErrTooSlow) && begin != l.begin {
		return found, &begin, nil
	}
	return nil, nil, err
}

func nextStride(stride int, took time.Duration) int {
	switch {
	case took < strideTime/2:
		stride *= 2
	case took > strideTime:
		stride /= 2
	}
	return max(1, min(stride, lastStride))
}

// orMost is a bound of an order that is set or not.
func orMost(t time.Time) time.Time {
	if t.IsZero() {
		return never
	}
	return storable(t)
}

func orLeast(t time.Time) time.Time {
	if t.IsZero() {
		return dawn
	}
	return storable(t)
}

const lastAttempt = math.MaxInt32
