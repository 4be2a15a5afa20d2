package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/jackc/pgx/v5"
)

// wantsPooler says whether tests are to reach their server through a PgBouncer.
func wantsPooler() bool { return os.Getenv("IDEMSTORE_TEST_PGBOUNCER") == "1" }

// A pooler is a PgBouncer in transaction mode before one server.
type pooler struct {
	process
	port int
}

// poolerSettings lets everybody in, as the servers of tests do. Its own default has it wait for 15 seconds after a server was down.
const poolerSettings = `
[databases]
* = host=%s port=%d user=%s%s

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 2000
default_pool_size = 20
server_login_retry = 1
server_tls_sslmode = prefer
`

// newPooler starts a PgBouncer before the server at a URL.
func newPooler(ctx context.Context, serverURL string) (*pooler, error) {
	program, err := findPooler()
	if err != nil {
		return nil, err
	}
	config, err := pgx.ParseConfig(serverURL)
	if err != nil {
		return nil, err
	}
	dir, err := makeDir("") // memory may not be to run programs from
	if err != nil {
		return nil, err
	}
	p := &pooler{process: process{dir: dir}}
	if err := p.start(ctx, program, config); err != nil {
		return nil, errors.Join(err, p.destroy())
	}
	return p, nil
}

func (p *pooler) start(ctx context.Context, program string, to *pgx.ConnConfig) error {
	// A copy, because whoever it runs as may not be allowed to look into the directory that it is from.
	copied := filepath.Join(p.dir, "pgbouncer")
	text, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	if err := os.WriteFile(copied, text, 0o755); err != nil { //nolint:gosec // it is a program
		return err
	}
	if p.port, err = freePort(ctx); err != nil {
		return err
	}
	quoted := func(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
	password := "" // an empty one it takes for a fault
	if to.Password != "" {
		password = " password=" + quoted(to.Password)
	}
	settings := fmt.Sprintf(poolerSettings, quoted(to.Host), to.Port, quoted(to.User), password, p.port)
	file := filepath.Join(p.dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(settings), 0o644); err != nil { //nolint:gosec // of a server for tests
		return err
	}
	if err := p.launch(exec.Command(copied, file)); err != nil { //nolint:noctx // it outlives the start
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	err = waitReady(ctx, p.exited, func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", p.address())
		if err != nil {
			return err
		}
		return conn.Close()
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, p.tail())
	}
	return nil
}

func (p *pooler) address() string { return fmt.Sprintf("127.0.0.1:%d", p.port) }

const execMode = "default_query_exec_mode"

// before turns the URL of a database into one that leads through the pooler. Debian's PgBouncer knows no prepared statements yet.
func (p *pooler) before(databaseURL string) string {
	u, err := url.Parse(databaseURL)
	if err != nil {
		panic("pgtest: the server's URL was checked before: " + err.Error())
	}
	return fmt.Sprintf("postgres://%s%s?sslmode=disable&%s=cache_describe", p.address(), u.EscapedPath(), execMode)
}

// findPooler returns the program: in PATH, where Debian's package has it, or where scripts/install-test-deps.sh puts it.
func findPooler() (string, error) {
	_, here, _, _ := runtime.Caller(0)
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer", filepath.Join(filepath.Dir(here), "../../bin/pgbouncer")} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("no pgbouncer in PATH, /usr/sbin or bin/: scripts/install-test-deps.sh gets it")
}
