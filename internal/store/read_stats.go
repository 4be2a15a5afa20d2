package store

import (
	"context"
	"fmt"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
)

// Stats implements idem.Reader. Each row of either table is read once. The names that are largest, by entries and events together, are
// chosen by the server, so that what comes back is little, however many there are.
func (r reader) Stats(ctx context.Context, after, before time.Time) (idem.Stats, error) {
	standing, err := r.Standing(ctx)
	if err != nil {
		return idem.Stats{}, err
	}
	now, doubt := standing.Now, inDoubt(standing.Now)
	from, to := orLeast(after), orMost(before)
	s := r.statement()
	s.add(`
WITH e AS MATERIALIZED (
    SELECT handler, owner, CAST(state AS text) AS what, count(CASE WHEN `+doubt.sql+` THEN 1 END) AS doubt, count(*) AS n`, doubt.args...)
	s.add(" FROM entries"+r.dialect().by("entries_reserved")+" WHERE reserved_at >= ? AND reserved_at < ?", from, to)
	s.and(shown(now))
	s.add(`
    GROUP BY handler, owner, state
), v AS MATERIALIZED (
    SELECT handler, owner, kind AS what, 0 AS doubt, count(*) AS n`)
	s.add(" FROM events"+r.dialect().by("events_at")+" WHERE at >= ? AND at < ?", from, to)
	s.add(`
    GROUP BY handler, owner, kind
), every AS (
    SELECT 0 AS sort, handler, owner, what, doubt, n FROM e UNION ALL SELECT 1, handler, owner, what, doubt, n FROM v
), named AS (
    SELECT 0 AS dim, '' AS name, sort, what, sum(doubt) AS doubt, sum(n) AS n FROM every GROUP BY sort, what
    UNION ALL SELECT 1, handler, sort, what, sum(doubt), sum(n) FROM every GROUP BY handler, sort, what
    UNION ALL SELECT 2, owner, sort, what, sum(doubt), sum(n) FROM every GROUP BY owner, sort, what
), sized AS (
    SELECT *, sum(n) OVER (PARTITION BY dim, name) AS size FROM named
), ranked AS (
    SELECT *, dense_rank() OVER (PARTITION BY dim ORDER BY size DESC, name) AS rank FROM sized
), counted AS (
    SELECT *, max(rank) OVER (PARTITION BY dim) AS names FROM ranked
)
SELECT dim, name, sort, what, CAST(doubt AS bigint), CAST(n AS bigint), names FROM counted WHERE rank <= ? ORDER BY dim, rank, sort, what`, idem.MaxNames)

	stats := idem.Stats{Standing: standing, Totals: noCounts()}
	_, err = r.ask(ctx, s, func(row scanner) error { return addCount(&stats, row) })
	return stats, err
}

// addCount adds a row of what Stats asks.
func addCount(stats *idem.Stats, row scanner) error {
	var by, sort int
	var name, what string
	var doubt, n, names int64
	if err := row.Scan(&by, &name, &sort, &what, &doubt, &n, &names); err != nil {
		return fmt.Errorf("read a count: %w", err)
	}
	counts := &stats.Totals
	if by > 0 {
		list, more := &stats.Handlers, &stats.MoreHandlers
		if by == 2 {
			list, more = &stats.Owners, &stats.MoreOwners
		}
		if last := len(*list) - 1; last < 0 || (*list)[last].Name != name {
			*list = append(*list, idem.NamedCounts{Name: name, Counts: noCounts()})
		}
		counts = &(*list)[len(*list)-1].Counts
		*more = max(names-idem.MaxNames, 0)
	}
	if sort == 0 {
		counts.States[idem.State(what)] += n
		counts.InDoubt += doubt
	} else {
		counts.Events[idem.EventKind(what)] += n
	}
	return nil
}

func noCounts() idem.Counts {
	return idem.Counts{States: map[idem.State]int64{}, Events: map[idem.EventKind]int64{}}
}
