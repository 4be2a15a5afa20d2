package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Standby starts a server that follows this one. From then on this one confirms nothing that the standby has not written, too.
func (i *Instance) Standby(t testing.TB) *Instance {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	primary := i.postmaster
	p, err := createPostmaster(ctx, func(p *postmaster, ctx context.Context) error {
		return p.run(ctx, "pg_basebackup", "--pgdata", p.data(), "--dbname", primary.conninfo(), "--write-recovery-conf", "--checkpoint=fast", "--no-sync")
	})
	if err != nil {
		t.Fatalf("pgtest: start a standby: %v", err)
	}
	destroyed(t, p)
	if err := primary.waitForStandby(ctx); err != nil {
		t.Fatalf("pgtest: have the primary wait for its standby: %v", err)
	}
	return &Instance{postmaster: p, database: i.database, url: databaseURL(p.url(), i.database)}
}

// Promote makes a standby the primary, and returns when it takes writes.
func (i *Instance) Promote(ctx context.Context) error {
	return i.postmaster.run(ctx, "pg_ctl", "promote", "--wait", "--pgdata", i.postmaster.data())
}

// Follow brings back a server that was shut down, as a standby of the one that was promoted in its place.
func (i *Instance) Follow(ctx context.Context, primary *Instance) error {
	p := i.postmaster
	if err := os.WriteFile(filepath.Join(p.data(), "standby.signal"), nil, 0o644); err != nil { //nolint:gosec // of a server for tests
		return err
	}
	p.settings = append(p.settings, "-c", "primary_conninfo="+primary.postmaster.conninfo())
	if err := p.start(ctx); err != nil {
		return err
	}
	return primary.postmaster.waitForStandby(ctx)
}

func (p *postmaster) conninfo() string {
	return fmt.Sprintf("host=127.0.0.1 port=%d user=postgres", p.port)
}

// waitForStandby makes commits wait for a standby, and returns when there is one to wait for.
func (p *postmaster) waitForStandby(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, p.url())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for _, statement := range []string{"ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return waitReady(ctx, p.exited, func(ctx context.Context) error {
		var there bool
		err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = 'sync')").Scan(&there)
		if err == nil && !there {
			err = errors.New("nobody follows it")
		}
		return err
	})
}
