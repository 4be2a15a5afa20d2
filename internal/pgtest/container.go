package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
	"github.com/testcontainers/testcontainers-go/modules/postgres"
)

// containerPatience is for pulling the image and starting it: a registry that hangs should not hang the tests.
const containerPatience = 2 * time.Minute

func startContainer(ctx context.Context, image string) (s *server, err error) {
	defer func() { // testcontainers panics where it cannot make out which engine to talk to
		if p := recover(); p != nil {
			err = fmt.Errorf("testcontainers: %v", p)
		}
	}()
	if _, set := os.LookupEnv("TESTCONTAINERS_RYUK_DISABLED"); !set {
		// Else it pulls and starts a second image, to clean up after the first.
		if err := os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true"); err != nil {
			return nil, err
		}
	}
	log.SetDefault(log.NewNoopLogger())

	pulling, cancel := context.WithTimeout(ctx, containerPatience)
	defer cancel()
	password := rand.Text()
	container, err := postgres.Run(pulling, image,
		postgres.WithPassword(password),
		testcontainers.WithCmdArgs("-c", "full_page_writes=off", "-c", "max_connections=200"), // fsync is off already
		testcontainers.WithLogger(log.NewNoopLogger()),
	)
	stop := func() error {
		if container == nil {
			return nil
		}
		return testcontainers.TerminateContainer(container, testcontainers.StopTimeout(0)) // nothing in it is worth a clean shutdown
	}
	if err != nil {
		if pulling.Err() != nil {
			err = fmt.Errorf("not up within %s (docker pull %s first?): %w", containerPatience, image, err)
		}
		return nil, errors.Join(err, stop())
	}
	address, err := container.PortEndpoint(ctx, "5432/tcp", "")
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	url, err := reach(ctx, password, address)
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	return &server{url: url, stop: stop}, nil
}

// reach waits for the server in a container and returns its URL. An engine that runs inside the same container as the tests publishes
// its ports on the loopback, while testcontainers takes such an engine to be outside; the password tells that it is the right server.
func reach(ctx context.Context, password, address string) (string, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	var url string
	err = waitReady(ctx, nil, func(ctx context.Context) error {
		var errs []error
		for _, candidate := range []string{address, net.JoinHostPort("127.0.0.1", port)} {
			url = fmt.Sprintf("postgres://postgres:%s@%s/postgres?sslmode=disable", password, candidate)
			err := execute(ctx, url+"&connect_timeout=2", "SELECT 1")
			if err == nil {
				return nil
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
	return url, err
}
