package store

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/internal/pgtest"
)

// Under a steady load for five retentions the tables grow to what one retention needs, and no more.
func TestPostgresGrowthReachesAPlateau(t *testing.T) {
	t.Parallel()
	const (
		tick      = 7 * 24 * time.Hour / 2 // four of them are the retention of entries, eight that of events
		retention = 8 * tick
		ticks     = 24
		rows      = 300 // a tick
	)
	databaseURL := pgtest.New(t)
	var shift atomic.Int64
	b := openTest(t, databaseURL, &shift).(*Postgres)
	p := NewPurger(b, NewDirect(b, idem.DefaultPolicy), retention)
	conn := session(t, databaseURL)
	body := &idem.Response{Status: 200, HasBody: true, Body: make([]byte, 500)}

	var size, index [ticks]int64
	var past, ahead [ticks]int
	deleted := 0
	for i := range ticks {
		var changes []idem.Change
		for range rows {
			e := reserved(fresh())
			e.ReservedAt = e.ReservedAt.Add(time.Duration(shift.Load()))
			e.LeaseUntil = e.ReservedAt.Add(time.Minute)
			event := happened(e.Key, idem.EventReplayed)
			event.At = e.ReservedAt
			changes = append(changes, over(nil, recorded(e, body), event))
		}
		if _, _, err := b.Swap(t.Context(), changes); err != nil {
			t.Fatal(err)
		}
		if err := b.Upkeep(t.Context()); err != nil {
			t.Fatal(err)
		}
		deleted += whole(t, p, false).Entries
		must(t, conn, `VACUUM entries`) // as autovacuum does at ten thousand times the rows
		size[i] = ask[int64](t, conn, `SELECT pg_table_size('entries')`)
		index[i] = ask[int64](t, conn, `SELECT pg_indexes_size('entries')`)
		const weeks = `SELECT count(*) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
			WHERE i.inhparent = 'events'::regclass AND c.relname ~ '^events_\d{8}$' AND to_date(right(c.relname, 8), 'YYYYMMDD') `
		today := time.Now().UTC().Add(time.Duration(shift.Load()))
		past[i] = ask[int](t, conn, weeks+`<= $1`, today)
		ahead[i] = ask[int](t, conn, weeks+`> $1`, today)
		shift.Add(int64(tick))
	}
	const full = 10 // by then what lives is as much as it will ever be
	for i := full; i < ticks; i++ {
		// Five ticks' rows are there at most. One tick's more, where a vacuum came too early to see what could go.
		if size[i] > size[0]*13/2 || index[i] > index[full]*3/2 {
			t.Errorf("after %d ticks entries takes %d bytes, after one it was %d; its index takes %d, after %d ticks it was %d",
				i, size[i], size[0], index[i], full, index[full])
		}
		if past[i] < 5 || past[i] > 6 || ahead[i] < pgWeeksAhead-1 || ahead[i] > pgWeeksAhead {
			t.Errorf("after %d ticks there are %d weeks of events and %d ahead, want the 4 that are kept, the present, and half a year", i, past[i], ahead[i])
		}
	}
	if want := (ticks - 5) * rows; deleted < want || deleted > want+rows {
		t.Errorf("%d entries were purged, want about %d", deleted, want)
	}
	if n := ask[int](t, conn, `SELECT count(*) FROM events_default`); n != 0 {
		t.Errorf("%d events had no partition", n)
	}
	if n := ask[int](t, conn, `SELECT count(*) FROM events`); n > (8+3)*rows {
		t.Errorf("%d events are left", n)
	}
	t.Logf("bytes of entries: %v, of its index: %v; weeks of events: %v", size, index, past)
}
