package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/idemstore/idemstore/internal/server"
	"github.com/idemstore/idemstore/internal/store"
)

type migrateCmd struct {
	Up     migrateUpCmd     `cmd:"" help:"Apply what is missing. Any number may run at once; one applies."`
	Down   migrateDownCmd   `cmd:"" help:"Take the newest migration back, with the data that it brought."`
	Status migrateStatusCmd `cmd:"" help:"List the migrations and when they were applied."`
}

// database is the flag of what is migrated.
type database struct {
	DatabaseURL string `name:"database-url" env:"IDEMSTORE_DATABASE_URL" default:"sqlite:idemstore.db" help:"postgres://... or sqlite:PATH (${env})."`
}

func (d database) open(ctx context.Context) (*store.Migrator, error) {
	if err := checkDatabaseURL(d.DatabaseURL); err != nil {
		return nil, usageError{fmt.Errorf("IDEMSTORE_DATABASE_URL: %w", err)}
	}
	return store.OpenMigrator(ctx, d.DatabaseURL)
}

type migrateUpCmd struct{ database }

// Run implements the subcommand.
func (c *migrateUpCmd) Run(e *env) error {
	m, err := c.open(e.ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	applied, err := m.Up(e.ctx)
	for _, name := range applied {
		fmt.Fprintf(e.stdout, "applied %s\n", name)
	}
	if err != nil {
		return err
	}
	have, _, err := m.Version(e.ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(e.stdout, "the schema is at version %d\n", have)
	return nil
}

type migrateDownCmd struct{ database }

// Run implements the subcommand.
func (c *migrateDownCmd) Run(e *env) error {
	m, err := c.open(e.ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	name, err := m.Down(e.ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(e.stdout, "took back %s\n", name)
	return nil
}

type migrateStatusCmd struct{ database }

// Run implements the subcommand.
func (c *migrateStatusCmd) Run(e *env) error {
	m, err := c.open(e.ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	all, err := m.Status(e.ctx)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(e.stdout, 0, 0, 2, ' ', 0)
	for _, s := range all {
		when := "pending"
		if !s.Pending() {
			when = "applied " + s.AppliedAt.UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(table, "%s\t%s\n", s.Name, when)
	}
	return table.Flush()
}

type tokenCmd struct {
	New tokenNewCmd `cmd:"" help:"Make a token: it is printed once, with its line for the tokens file."`
}

type tokenNewCmd struct {
	Name string        `required:"" help:"Name of the token in logs and in the trail."`
	Role []server.Role `required:"" help:"worker, auditor or operator; several with commas between."`
}

// Run implements the subcommand.
func (c *tokenNewCmd) Run(e *env) error {
	secret, line, err := server.NewToken(c.Name, c.Role)
	if err != nil {
		return usageError{err}
	}
	fmt.Fprintf(e.stdout, "token: %s\nline:  %s\n", secret, line)
	fmt.Fprintln(e.stderr, "Give the token to its user; it cannot be shown again. Add the line to the tokens file and send SIGHUP.")
	return nil
}

// client is the flags of what asks a running service.
type client struct {
	URL string `name:"url" env:"IDEMSTORE_URL" default:"http://127.0.0.1:8080" help:"Address of the service (${env})."`
}

type healthcheckCmd struct {
	client
	Timeout time.Duration `default:"3s" help:"How long to wait for the answer."`
}

// Run implements the subcommand.
func (c *healthcheckCmd) Run(e *env) error {
	ctx, cancel := context.WithTimeout(e.ctx, c.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(c.URL, "/")+"/readyz", nil)
	if err != nil {
		return usageError{err}
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(res.Body, 4<<10))
	if res.StatusCode != http.StatusOK {
		return errors.New(strings.TrimSpace(res.Status + " " + string(body)))
	}
	fmt.Fprintln(e.stdout, "ready")
	return nil
}

type versionCmd struct{}

// Run implements the subcommand.
func (versionCmd) Run(e *env) error {
	_, err := fmt.Fprintln(e.stdout, "idemstore", version())
	return err
}

// release is set by the linker.
var release string

// version is the release, or what the build knows of its source.
func version() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v += " " + s.Value
		}
	}
	return v
}
