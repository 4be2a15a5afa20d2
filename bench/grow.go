package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/google/uuid"
)

// grow measures what a large table costs: pairs and replays at no rows, then at so many recorded ones, with random ids
// and with ids that grow with time.
func (b *bench) grow(rows int, rounds int, d time.Duration) error {
	for _, kind := range []string{"random", "time-ordered"} {
		if err := b.db.psql("TRUNCATE entries"); err != nil {
			return err
		}
		ids := uuid.NewRandom
		if kind == "time-ordered" {
			ids = uuid.NewV7
		}
		newTask = func() string { return uuid.Must(ids()).String() }
		none, err := b.growthRound(rounds, d)
		if err != nil {
			return err
		}
		begun := time.Now()
		if err := b.db.load(rows, newTask, time.Now()); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%d rows with %s ids were loaded in %s\n", rows, kind, time.Since(begun).Round(time.Second))
		many, err := b.growthRound(rounds, d)
		if err != nil {
			return err
		}
		fmt.Printf("%s ids, %d rows: pairs %.0f/s, were %.0f/s: %.2f; replays %.0f/s, were %.0f/s: %.2f (at least 0.85)\n", kind, rows,
			many.pairs, none.pairs, many.pairs/none.pairs, many.replays, none.replays, many.replays/none.replays)
		if err := b.db.sizes(os.Stdout); err != nil {
			return err
		}
	}
	return nil
}

type growth struct{ pairs, replays float64 }

func (b *bench) growthRound(rounds int, d time.Duration) (growth, error) {
	var pairs, replays []result
	tasks, _, err := b.prepare(2000)
	if err != nil {
		return growth{}, err
	}
	for range rounds {
		p, err := b.run(64, d, 0, pair)
		if err != nil {
			return growth{}, err
		}
		r, err := b.run(64, d, 0, replayOf(tasks))
		if err != nil {
			return growth{}, err
		}
		pairs, replays = append(pairs, p), append(replays, r)
	}
	return growth{median(pairs).ops, median(replays).ops}, nil
}

// load fills the table by COPY with rows that were recorded up to a time, a millisecond apart.
func (p *postgres) load(rows int, id func() string, upTo time.Time) error {
	const columns = "task_id, attempt, version, state, reservation_id, owner, fence, handler, request_hash, explicit, task_scope, " +
		"lease_seconds, reserved_at, lease_until, recorded_at, recorded_by, late, doubts, expires_at, response_status, response_head, response_body"
	cmd := exec.Command(p.bin+"/psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", "COPY entries ("+columns+") FROM STDIN", p.url())
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	var errs strings.Builder
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		return err
	}
	out := bufio.NewWriterSize(in, 1<<20)
	body := strings.Repeat("30313233343536373839", 50)
	upTo = upTo.UTC()
	const form = "2006-01-02 15:04:05.000000Z"
	for i := range rows {
		at := upTo.Add(-time.Duration(rows-i) * time.Millisecond)
		_, err = fmt.Fprintf(out, "%s\t0\t1\trecorded\t%s\tbench\t1\thttp.call\t\tf\tf\t60\t%s\t%s\t%[3]s\tbench\tf\t0\t%[5]s\t201\t\\\\x00\t\\\\x%[6]s\n",
			id(), uuid.NewString(), at.Format(form), at.Add(time.Minute).Format(form), at.Add(336*time.Hour).Format(form), body)
		if err != nil {
			break
		}
	}
	if err == nil {
		err = out.Flush()
	}
	in.Close()
	if waitErr := cmd.Wait(); waitErr != nil {
		return fmt.Errorf("COPY: %w: %s", waitErr, errs.String())
	}
	if err != nil {
		return err
	}
	for _, sql := range []string{"VACUUM (ANALYZE, FREEZE) entries", "CHECKPOINT"} {
		if err := p.psql(sql); err != nil {
			return err
		}
	}
	return nil
}

// sizes reports the bytes a row costs, index by index, and how many updates were HOT.
func (p *postgres) sizes(out io.Writer) error {
	const sql = `
SELECT 'rows ' || c.reltuples::bigint || ', table ' || round(pg_relation_size(c.oid) / greatest(c.reltuples, 1)) || ' B a row, TOAST ' ||
       round(coalesce(pg_total_relation_size(nullif(c.reltoastrelid, 0)), 0) / greatest(c.reltuples, 1)) || ' B' FROM pg_class c WHERE relname = 'entries'
UNION ALL SELECT 'index ' || i.indexrelid::regclass || ' ' || round(pg_relation_size(i.indexrelid) / greatest(c.reltuples, 1)) || ' B a row'
       FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid WHERE c.relname = 'entries'
UNION ALL SELECT 'HOT updates ' || n_tup_hot_upd || ' of ' || n_tup_upd FROM pg_stat_user_tables WHERE relname = 'entries'`
	text, err := exec.Command(p.bin+"/psql", "-X", "-q", "-t", "-A", "-c", sql, p.url()).CombinedOutput()
	if err != nil {
		return fmt.Errorf("psql: %w: %s", err, text)
	}
	_, err = fmt.Fprintln(out, strings.TrimSpace(string(text)))
	return err
}
