package pgtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

const defaultImage = "postgres:17-alpine"

// environment is all that decides where the Postgres comes from.
type environment struct {
	choice string // IDEMSTORE_TEST_POSTGRES
	url    string // IDEMSTORE_TEST_DATABASE_URL
	image  string // IDEMSTORE_TEST_POSTGRES_IMAGE

	useURL         func(ctx context.Context, url string) (*server, error)
	startContainer func(ctx context.Context, image string) (*server, error)
	startLocal     func(ctx context.Context) (*server, error)
}

func environmentFromOS() environment {
	return environment{
		choice:         os.Getenv("IDEMSTORE_TEST_POSTGRES"),
		url:            os.Getenv("IDEMSTORE_TEST_DATABASE_URL"),
		image:          cmp.Or(os.Getenv("IDEMSTORE_TEST_POSTGRES_IMAGE"), defaultImage),
		useURL:         useURL,
		startContainer: startContainer,
		startLocal:     startLocal,
	}
}

// find returns the first server that works, or tells what was tried and what would help.
func (e environment) find(ctx context.Context) (*server, error) {
	given := func() (*server, error) { return e.useURL(ctx, e.url) }
	container := func() (*server, error) { return e.startContainer(ctx, e.image) }
	local := func() (*server, error) { return e.startLocal(ctx) }

	switch {
	case e.choice == "url" && e.url == "":
		return nil, errors.New("pgtest: IDEMSTORE_TEST_POSTGRES=url needs IDEMSTORE_TEST_DATABASE_URL")
	case e.choice == "url", e.choice == "" && e.url != "":
		return only(given, "IDEMSTORE_TEST_DATABASE_URL was given and is what the tests must use, but it fails")
	case e.choice == "container":
		return only(container, "IDEMSTORE_TEST_POSTGRES=container allows nothing else, but it fails")
	case e.choice == "local":
		return only(local, "IDEMSTORE_TEST_POSTGRES=local allows nothing else, but it fails")
	case e.choice != "":
		return nil, fmt.Errorf("pgtest: IDEMSTORE_TEST_POSTGRES=%s: want url, container or local", e.choice)
	}

	s, containerErr := container()
	if containerErr == nil {
		return s, nil
	}
	s, localErr := local()
	if localErr == nil {
		return s, nil
	}
	return nil, fmt.Errorf(`pgtest: these tests need a Postgres and found none.
Tried, in this order:
  - IDEMSTORE_TEST_DATABASE_URL: not set
  - a container of %s: %s
  - the server programs of an installed PostgreSQL: %s
Any one of these will do:
  - PostgreSQL's server programs, 14 or later: scripts/install-test-deps.sh (on Debian and Ubuntu: apt-get install postgresql)
  - a Docker engine that has or can pull %s (another image: IDEMSTORE_TEST_POSTGRES_IMAGE)
  - a server of yours: IDEMSTORE_TEST_DATABASE_URL=postgres://user:password@host:5432/database, where the user may create databases`,
		e.image, indent(containerErr), indent(localErr), e.image)
}

func only(start func() (*server, error), complaint string) (*server, error) {
	s, err := start()
	if err != nil {
		return nil, fmt.Errorf("pgtest: %s: %w", complaint, err)
	}
	return s, nil
}

func indent(err error) string { return strings.ReplaceAll(err.Error(), "\n", "\n    ") }
