package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// newBench builds the program, starts a Postgres of its own on the disk with the durability that it has by default, and
// idemstore in front of it.
func newBench(ctx context.Context) (_ *bench, err error) {
	b := &bench{}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if b.dir, err = os.MkdirTemp("", "idemstore-bench-"); err != nil {
		return nil, err
	}
	if err := os.Chmod(b.dir, 0o755); err != nil {
		return nil, err
	}
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", b.program(), "./cmd/idemstore").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	if b.db, err = startPostgres(b.dir); err != nil {
		return nil, err
	}
	if out, err := exec.CommandContext(ctx, b.program(), "migrate", "up", "--database-url", b.db.url()).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	if err := b.db.psql(pgbenchSetup); err != nil {
		return nil, err
	}
	if b.service, err = b.start(b.db.url(), ""); err != nil {
		return nil, err
	}
	b.service.recorded, b.service.held, err = b.prepare(2000)
	return b, err
}

func (b *bench) program() string { return filepath.Join(b.dir, "idemstore") }

func (b *bench) close() {
	if b.service != nil {
		b.service.stop()
	}
	if b.db != nil {
		b.db.stop()
	}
	if b.dir != "" {
		_ = os.RemoveAll(b.dir)
	}
}

// with runs a measurement against another service than the usual one: "one" carries each request out by itself,
// "sqlite" keeps everything in a file.
func (b *bench) with(kind string, measure func() (result, error)) (result, error) {
	usual := b.service
	defer func() { b.service = usual }()
	url, test := b.db.url(), ""
	if kind == "one" {
		test = "IDEMSTORE_TEST_ONE_AT_A_TIME=1"
	} else {
		dir, err := os.MkdirTemp(b.dir, "sqlite-")
		if err != nil {
			return result{}, err
		}
		url = "sqlite:" + dir + "/bench.db"
	}
	var err error
	if b.service, err = b.start(url, test); err != nil {
		return result{}, err
	}
	defer b.service.stop()
	return measure()
}

// service is a running idemstore.
type service struct {
	cmd      *exec.Cmd
	address  string
	recorded []string // tasks
	held     string
}

func (b *bench) start(databaseURL, env string) (*service, error) {
	s := &service{cmd: exec.Command(b.program(), "serve", "--listen", "127.0.0.1:0", "--metrics-listen", "", "--database-url", databaseURL)}
	s.cmd.Env = append(os.Environ(), env)
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.cmd.Stderr = os.Stderr
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewReader(out)
	for s.address == "" {
		text, err := lines.ReadBytes('\n')
		if err != nil {
			return nil, fmt.Errorf("idemstore serves nothing: %w", err)
		}
		var line struct{ Listen string }
		_ = json.Unmarshal(text, &line)
		s.address = line.Listen
	}
	go func() { _, _ = lines.WriteTo(discard{}) }() // a log that is read, as in production
	return s, nil
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

func (s *service) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGKILL)
	_ = s.cmd.Wait()
}

// postgres is a server of our own.
type postgres struct {
	bin, dir string
	port     int
	cmd      *exec.Cmd
	version  string
}

func startPostgres(dir string) (*postgres, error) {
	bins, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	if len(bins) == 0 {
		return nil, errors.New("no PostgreSQL programs in /usr/lib/postgresql; install your system's postgresql package")
	}
	p := &postgres{bin: slices.Max(bins), dir: filepath.Join(dir, "postgres")}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p.port = l.Addr().(*net.TCPAddr).Port
	l.Close()
	if err := os.Mkdir(p.dir, 0o700); err != nil {
		return nil, err
	}
	attr, err := unprivileged(p.dir)
	if err != nil {
		return nil, err
	}
	init := exec.Command(p.bin+"/initdb", "-D", p.dir, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C")
	init.SysProcAttr = attr
	init.Dir = "/"
	if out, err := init.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	p.cmd = exec.Command(p.bin+"/postgres", "-D", p.dir, "-p", strconv.Itoa(p.port), "-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories=", "-c", "max_connections=300", "-c", "shared_buffers=1GB", "-c", "max_wal_size=8GB")
	p.cmd.SysProcAttr = attr
	p.cmd.Dir = "/"
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(30 * time.Second); ; {
		if err = p.psql("SELECT 1"); err == nil {
			break
		}
		if time.Now().After(deadline) {
			return nil, err
		}
		time.Sleep(100 * time.Millisecond)
	}
	out, _ := exec.Command(p.bin+"/postgres", "--version").Output()
	p.version = strings.TrimSpace(regexp.MustCompile(`[0-9.]+`).FindString(string(out)))
	return p, nil
}

// unprivileged drops root, under which Postgres does not run.
func unprivileged(dir string) (*syscall.SysProcAttr, error) {
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
	if os.Geteuid() != 0 {
		return attr, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return attr, os.Chown(dir, uid, gid)
}

func (p *postgres) url() string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", p.port)
}

func (p *postgres) psql(sql string) error {
	out, err := exec.Command(p.bin+"/psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", sql, p.url()).CombinedOutput()
	if err != nil {
		return fmt.Errorf("psql: %w: %s", err, out)
	}
	return nil
}

func (p *postgres) stop() {
	if p.cmd == nil || p.cmd.Process == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGQUIT)
	_ = p.cmd.Wait()
}

// cpu is the CPU time that each has used so far.
type cpu struct{ service, db, load time.Duration }

func (b *bench) cpu() cpu {
	var c cpu
	if b.service.cmd != nil {
		c.service = processTime(b.service.cmd.Process.Pid, false)
	}
	if b.db != nil {
		c.db = b.db.cpu()
	}
	var self syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &self)
	c.load = time.Duration(self.Utime.Nano() + self.Stime.Nano())
	return c
}

// memory is what the service holds, in megabytes.
func (b *bench) memory() float64 {
	if b.service.cmd == nil {
		return 0
	}
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.service.cmd.Process.Pid))
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	kb, _ := strconv.ParseFloat(strings.Fields(rest + " 0")[0], 64)
	return kb / 1024
}

// cpu sums the server's processes, those that have ended included.
func (p *postgres) cpu() time.Duration {
	pid := p.cmd.Process.Pid
	sum := processTime(pid, true)
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for _, child := range strings.Fields(string(children)) {
		n, _ := strconv.Atoi(child)
		sum += processTime(n, false)
	}
	return sum
}

// processTime reads a process's CPU time, in ticks of 10 ms, with that of its ended children if wanted.
func processTime(pid int, children bool) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	var ticks int
	for i := 11; i < 15 && (i < 13 || children); i++ {
		n, _ := strconv.Atoi(string(fields[i]))
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
