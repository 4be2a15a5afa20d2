package pgtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

const startPatience = 30 * time.Second

// startLocal starts the shared server from installed programs. What it holds is worth nothing after a crash, so it need not be safe from one.
func startLocal(ctx context.Context) (*server, error) {
	p, err := newPostmaster(ctx, "-c", "fsync=off", "-c", "full_page_writes=off")
	if err != nil {
		return nil, err
	}
	return &server{url: p.url(), stop: p.destroy}, nil
}

// A postmaster is a server program with its own data directory.
type postmaster struct {
	process
	programs string   // the directory of initdb and postgres
	port     int      // on 127.0.0.1, where every local user may connect as superuser
	settings []string // of postgres
}

// newPostmaster creates a data directory and starts a server in it.
func newPostmaster(ctx context.Context, settings ...string) (*postmaster, error) {
	return createPostmaster(ctx, (*postmaster).initialize, settings...)
}

// createPostmaster has the data directory filled in some way, and starts a server in it.
func createPostmaster(ctx context.Context, fill func(*postmaster, context.Context) error, settings ...string) (*postmaster, error) {
	programs, err := findPrograms(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := makeDir(memoryDir())
	if err != nil {
		return nil, err
	}
	p := &postmaster{process: process{dir: dir}, programs: programs, settings: settings}
	if err := fill(p, ctx); err != nil {
		return nil, errors.Join(err, p.destroy())
	}
	// Between finding a port free and listening on it, another process may take it.
	for range 3 {
		if p.port, err = freePort(ctx); err != nil {
			break
		}
		if err = p.start(ctx); err == nil {
			return p, nil
		}
		if !errors.Is(err, errExited) {
			break
		}
	}
	return nil, errors.Join(err, p.destroy())
}

func (p *postmaster) url() string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", p.port)
}

func (p *postmaster) data() string { return filepath.Join(p.dir, "data") }

func (p *postmaster) initialize(ctx context.Context) error {
	return p.run(ctx, "initdb", "--pgdata", p.data(), "--username", "postgres", "--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-sync")
}

// run runs one of the server's programs to its end.
func (p *postmaster) run(ctx context.Context, program string, arguments ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(p.programs, program), arguments...)
	if err := p.prepare(cmd); err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", program, err, out)
	}
	return nil
}

// start runs the server and returns when it answers.
func (p *postmaster) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	arguments := []string{
		"-D", p.data(), "-p", strconv.Itoa(p.port),
		"-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories=", // their paths are too long for a socket on some systems
		"-c", "max_connections=200",
		"-c", "dynamic_shared_memory_type=mmap", // in the data directory: a killed server leaves nothing in /dev/shm
	}
	cmd := exec.Command(filepath.Join(p.programs, "postgres"), append(arguments, p.settings...)...) //nolint:noctx // it outlives the start
	if err := p.launch(cmd); err != nil {
		return err
	}
	if err := waitReady(ctx, p.exited, p.answers); err != nil {
		return errors.Join(fmt.Errorf("%w\n%s", err, p.tail()), p.crash())
	}
	return nil
}

// answers tells whether this very server can be reached, not one that was faster to take the port.
func (p *postmaster) answers(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, p.url())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var data string
	if err := conn.QueryRow(ctx, "SHOW data_directory").Scan(&data); err != nil {
		return err
	}
	if data != p.data() {
		return errors.New("another server answers")
	}
	return nil
}

// freePort finds one below those that the system gives to outgoing connections. While a server is down, a client that keeps dialing a
// port among those may end up connected to itself, and the server cannot come back.
func freePort(ctx context.Context) (int, error) {
	var err error
	for range 50 {
		port := 15000 + rand.IntN(15000)
		var listener net.Listener
		if listener, err = new(net.ListenConfig).Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return port, listener.Close()
		}
	}
	return 0, fmt.Errorf("find a free port: %w", err)
}

const dirPrefix = "idemstore-pgtest-"

// makeDir makes the directory of one server, below base or else where temporary files are. Its name tells which process it belongs to, so
// that one that was killed can be cleaned up after.
func makeDir(base string) (string, error) {
	base = cmp.Or(base, os.TempDir())
	removeStale(base)
	return os.MkdirTemp(base, fmt.Sprintf("%s%d-", dirPrefix, os.Getpid()))
}

// removeStale removes the directories of processes that are gone.
func removeStale(base string) {
	dirs, _ := filepath.Glob(filepath.Join(base, dirPrefix+"*-*"))
	for _, dir := range dirs {
		text, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), dirPrefix), "-")
		pid, err := strconv.Atoi(text)
		if err != nil {
			continue
		}
		process, err := os.FindProcess(pid)
		if err != nil {
			continue
		}
		if errors.Is(process.Signal(syscall.Signal(0)), os.ErrProcessDone) {
			_ = os.RemoveAll(dir) // somebody else's, perhaps: the next one may succeed
		}
	}
}
