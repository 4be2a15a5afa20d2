package pgtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
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
	programs string   // the directory of initdb and postgres
	dir      string   // holds the data and the log, and is removed at the end
	port     int      // on 127.0.0.1, where every local user may connect as superuser
	settings []string // of postgres

	process *os.Process
	exited  chan struct{} // closed when the process is gone
}

// newPostmaster creates a data directory and starts a server in it.
func newPostmaster(ctx context.Context, settings ...string) (*postmaster, error) {
	programs, err := findPrograms(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := makeDir()
	if err != nil {
		return nil, err
	}
	p := &postmaster{programs: programs, dir: dir, settings: settings}
	if err := p.initialize(ctx); err != nil {
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
	cmd := exec.CommandContext(ctx, filepath.Join(p.programs, "initdb"), "--pgdata", p.data(), "--username", "postgres",
		"--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-sync")
	if err := p.prepare(cmd); err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return nil
}

// prepare makes a command run as a user that Postgres accepts, in a directory that this user may enter, without the PGxxx variables around us.
func (p *postmaster) prepare(cmd *exec.Cmd) error {
	uid, gid, attr, err := processAttributes()
	if err != nil {
		return err
	}
	cmd.Dir, cmd.SysProcAttr = p.dir, attr
	cmd.Env = []string{"LC_ALL=C", "PATH=" + os.Getenv("PATH")}
	return os.Chown(p.dir, uid, gid)
}

// start runs the server and returns when it answers.
func (p *postmaster) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	log, err := os.Create(filepath.Join(p.dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()

	arguments := []string{
		"-D", p.data(), "-p", strconv.Itoa(p.port),
		"-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories=", // their paths are too long for a socket on some systems
		"-c", "max_connections=200",
		"-c", "dynamic_shared_memory_type=mmap", // in the data directory: a killed server leaves nothing in /dev/shm
	}
	cmd := exec.Command(filepath.Join(p.programs, "postgres"), append(arguments, p.settings...)...) //nolint:noctx // it outlives the start
	cmd.Stdout, cmd.Stderr = log, log
	if err := p.prepare(cmd); err != nil {
		return err
	}
	dieWithParent(cmd.SysProcAttr)
	started, exited := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // the parent is this thread, so it has to stay
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
			close(exited)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	p.process, p.exited = cmd.Process, exited
	if err := waitReady(ctx, exited, p.answers); err != nil {
		return errors.Join(fmt.Errorf("%w\n%s", err, p.tail()), p.stop())
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

// stop ends the server as a crash would: no checkpoint, no goodbye.
func (p *postmaster) stop() error {
	if p.process == nil {
		return nil
	}
	if err := p.process.Signal(syscall.SIGQUIT); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.exited:
	case <-time.After(startPatience):
		return fmt.Errorf("the server does not stop\n%s", p.tail())
	}
	p.process = nil
	return nil
}

// destroy leaves nothing behind.
func (p *postmaster) destroy() error { return errors.Join(p.stop(), os.RemoveAll(p.dir)) }

// tail is the end of the server's log.
func (p *postmaster) tail() string {
	text, err := os.ReadFile(filepath.Join(p.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-2000):])
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

// makeDir makes the directory of one server. Its name tells which process it belongs to, so that one that was killed can be cleaned up after.
func makeDir() (string, error) {
	base := memoryDir()
	if base == "" {
		base = os.TempDir()
	}
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
