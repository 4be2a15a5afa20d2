package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"
)

// A server is a running Postgres on which databases may be created.
type server struct {
	url  string       // of a database to connect to while creating others
	stop func() error // takes away all that was started

	pooler *pooler // before it; nil: none

	template sync.Mutex
	ready    string // name of the template once there is one
}

// useURL takes a server that somebody else runs.
func useURL(ctx context.Context, given string) (*server, error) {
	if u, err := url.Parse(given); err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		return nil, errors.New("not a URL like postgres://user:password@host:5432/database") // and do not print it: it may hold a password
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := execute(ctx, given, "SELECT 1"); err != nil {
		return nil, err
	}
	return &server{url: given, stop: func() error { return nil }}, nil
}

// pool puts a PgBouncer before the server.
func (s *server) pool(ctx context.Context) error {
	p, err := newPooler(ctx, s.url)
	if err != nil {
		return fmt.Errorf("pgtest: IDEMSTORE_TEST_PGBOUNCER=1: %w", err)
	}
	s.pooler = p
	stop := s.stop
	s.stop = func() error { return errors.Join(p.destroy(), stop()) }
	return nil
}

var errExited = errors.New("the server exited")

// waitReady asks until the answer is good, the server has exited or time is up.
func waitReady(ctx context.Context, exited <-chan struct{}, ready func(context.Context) error) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-exited:
			return errExited
		case <-ctx.Done():
			return fmt.Errorf("the server does not get ready: %w", err)
		case <-tick.C:
		}
	}
}
