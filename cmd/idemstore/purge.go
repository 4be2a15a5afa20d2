package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
	"github.com/idemstore/idemstore/internal/store"
)

// purgeTells is how often a purge that takes long says how far it is.
const purgeTells = 5 * time.Second

type purgeCmd struct {
	database
	EventRetention string `env:"IDEMSTORE_EVENT_RETENTION" default:"2160h" help:"How long events are kept; a duration, 24h or more (${env})."`
	DryRun         bool   `help:"Change nothing, and say what would go."`
	Output         string `default:"text" enum:"text,json" help:"text, or json for scripts."`
}

// Help implements kong's HelpProvider.
func (purgeCmd) Help() string {
	return `It sweeps once over the whole table and the trail, in short transactions, with pauses between them, and may run beside any
number of replicas. Interrupted, it stops between two transactions; running it again goes on. Keys and responses carry
their own retention; only that of events is said here, and has to be the same as serve's.

Exit status: 0 when it came to its end, 1 when not, 2 when it was called wrongly.

Example:

  idemstore purge --database-url postgres://idemstore@db/idemstore --dry-run
  idemstore purge --database-url postgres://idemstore@db/idemstore --output json`
}

// Run implements the subcommand.
func (c *purgeCmd) Run(e *env) error {
	if err := checkDatabaseURL(c.DatabaseURL); err != nil {
		return usageError{fmt.Errorf("IDEMSTORE_DATABASE_URL: %w", err)}
	}
	retention, err := duration(c.EventRetention, minInDoubtRetention, maxLongRetention)
	if err != nil {
		return usageError{fmt.Errorf("IDEMSTORE_EVENT_RETENTION: %w", err)}
	}
	backend, err := store.Open(e.ctx, c.DatabaseURL, store.Options{Existing: true})
	if err != nil {
		return err
	}
	defer backend.Close()
	if err := backend.Ready(e.ctx); err != nil {
		return err
	}
	keeper := store.NewBatcher(backend, idem.DefaultPolicy, store.Lanes(backend)) // it only tells of ends, which the policy has no part in
	defer keeper.Close()

	told := time.Now()
	purged, err := store.NewPurger(backend, keeper, retention).Whole(e.ctx, c.DryRun, func(part float64, p store.Purged) {
		if time.Since(told) > purgeTells {
			told = time.Now()
			fmt.Fprintf(e.stderr, "%.0f %% of the table was swept: %d entries, %d keys in doubt\n", 100*part, p.Entries, p.InDoubt)
		}
	})
	return c.finish(e, purged, err)
}

// finish prints what was done, also where it did not come to its end, and says why it did not.
func (c *purgeCmd) finish(e *env, p store.Purged, err error) error {
	if printErr := c.print(e, p); err == nil {
		err = printErr
	}
	n := len(p.Events.Waiting)
	switch {
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted before the end; run it again to go on")
	case err == nil && n > 0:
		return fmt.Errorf("weeks of events left because somebody reads the trail: %d; run it again when that has ended", n)
	default:
		return err
	}
}

func (c *purgeCmd) print(e *env, p store.Purged) error {
	if c.Output == "json" {
		return json.NewEncoder(e.stdout).Encode(reportOf(p, c.DryRun))
	}
	title := "purged"
	if c.DryRun {
		title = "would go"
	}
	table := tabwriter.NewWriter(e.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "\t%s\tpast retention by\n", title)
	row := func(what string, n int, lag time.Duration) {
		since := "-"
		if n > 0 {
			since = lag.Round(time.Second).String()
		}
		fmt.Fprintf(table, "%s\t%d\t%s\n", what, n, since)
	}
	row("entries", p.Entries, p.EntriesLag)
	row("keys in doubt", p.InDoubt, p.InDoubtLag)
	row("events", p.Events.Deleted, p.Events.DeletedLag)
	row("weeks of events", len(p.Events.Weeks), p.Events.WeeksLag)
	if err := table.Flush(); err != nil {
		return err
	}
	if len(p.Events.Weeks) > 0 {
		fmt.Fprintf(e.stdout, "weeks: %s\n", strings.Join(p.Events.Weeks, " "))
	}
	if len(p.Events.Waiting) > 0 {
		fmt.Fprintf(e.stdout, "left: %s\n", strings.Join(p.Events.Waiting, " "))
	}
	return nil
}

// purgeReport is the result for scripts.
type purgeReport struct {
	DryRun     bool        `json:"dry_run"`
	Complete   bool        `json:"complete"`
	Entries    purgedRows  `json:"entries"`
	InDoubt    purgedRows  `json:"in_doubt"`
	Events     purgedRows  `json:"events"`
	EventWeeks purgedWeeks `json:"event_weeks"`
}

type purgedRows struct {
	Count   int     `json:"count"`
	Overdue float64 `json:"overdue_seconds"` // how long the first of them was past its retention
}

type purgedWeeks struct {
	Dropped []string `json:"dropped"`
	Waiting []string `json:"waiting"`
	Overdue float64  `json:"overdue_seconds"`
}

func reportOf(p store.Purged, dry bool) purgeReport {
	return purgeReport{
		DryRun: dry, Complete: p.Whole,
		Entries:    purgedRows{p.Entries, p.EntriesLag.Seconds()},
		InDoubt:    purgedRows{p.InDoubt, p.InDoubtLag.Seconds()},
		Events:     purgedRows{p.Events.Deleted, p.Events.DeletedLag.Seconds()},
		EventWeeks: purgedWeeks{append([]string{}, p.Events.Weeks...), append([]string{}, p.Events.Waiting...), p.Events.WeeksLag.Seconds()},
	}
}
