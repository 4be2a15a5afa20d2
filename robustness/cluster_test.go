package robustness

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/idemstore/idemstore/internal/pgtest"
)

// cluster is everything that a run breaks.
type cluster struct {
	db       *pgtest.Instance
	dbDown   sync.Mutex // held while the database is down, and while somebody speaks to it past the replicas
	replicas []*replica
	folder   string // of logs
}

// replica is a place in which one process of the program after the other serves, behind a proxy on either side.
type replica struct {
	name    string
	program string
	clock   string // by how much its clock is wrong
	log     *os.File
	dbURL   string           // through its own proxy
	toDB    *toxiproxy.Proxy // between it and the database
	toAPI   *toxiproxy.Proxy // between the workers and it

	fault   sync.Mutex // held by what is done to it
	mu      sync.Mutex
	process *os.Process
	exited  chan struct{}
}

// newCluster starts a database and replicas, each of its own program.
func newCluster(t *testing.T, folder string, programs []program) *cluster {
	t.Helper()
	c := &cluster{db: pgtest.Server(t), folder: folder}
	log := zerolog.Nop()
	proxies := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), log)
	proxy := func(name, upstream string) *toxiproxy.Proxy {
		p := toxiproxy.NewProxy(proxies, name, "127.0.0.1:0", upstream)
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Stop)
		return p
	}
	direct, err := url.Parse(c.db.URL())
	if err != nil {
		t.Fatal(err)
	}
	for i, program := range programs {
		r := &replica{name: fmt.Sprintf("replica-%d", i), program: program.path, clock: program.clock}
		if r.log, err = os.Create(filepath.Join(folder, r.name+".log")); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.log.Close() })
		r.toDB = proxy(r.name+"-db", direct.Host)
		through := *direct
		through.Host = r.toDB.Listen
		r.dbURL = through.String()
		r.toAPI = proxy(r.name+"-api", "127.0.0.1:1")
		t.Cleanup(r.kill)
		if err := r.start(); err != nil {
			t.Fatal(err)
		}
		c.replicas = append(c.replicas, r)
	}
	return c
}

// start starts a process and returns when it serves.
func (r *replica) start() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	cmd := exec.Command(r.program, "serve", "--listen", "127.0.0.1:0", "--metrics-listen", "", "--database-url", r.dbURL, "--log-level", "info") //nolint:noctx // it outlives the call
	cmd.Env = append(os.Environ(), "IDEMSTORE_TEST_CLOCK="+r.clock)
	cmd.SysProcAttr = attributes()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = r.log
	started := make(chan error)
	exited := make(chan struct{})
	lines := bufio.NewReader(out)
	go func() {
		runtime.LockOSThread() // the process ends with the thread that started it
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_, _ = cmd.Process.Wait()
			close(exited)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	r.process, r.exited = cmd.Process, exited
	var line struct{ Listen string }
	for line.Listen == "" {
		text, err := lines.ReadBytes('\n')
		_, _ = r.log.Write(text)
		if err != nil {
			return fmt.Errorf("%s does not serve: %w; see its log", r.name, err)
		}
		_ = json.Unmarshal(text, &line)
	}
	go func() { _, _ = io.Copy(r.log, lines) }()
	return r.leadTo(line.Listen)
}

// leadTo has the proxy lead to where the program serves now. For that it listens anew, at a port that meanwhile can have become another's:
// it waits for it.
func (r *replica) leadTo(address string) (err error) {
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); <-time.After(20 * time.Millisecond) {
		err = r.toAPI.Update(&toxiproxy.Proxy{Listen: r.toAPI.Listen, Upstream: address, Enabled: true})
		if !errors.Is(err, syscall.EADDRINUSE) {
			return err
		}
	}
	return err
}

func (r *replica) signal(s os.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process != nil {
		_ = r.process.Signal(s)
	}
}

// end sends a signal that ends the process, and waits for the end.
func (r *replica) end(s os.Signal, patience time.Duration) error {
	r.mu.Lock()
	process, exited := r.process, r.exited
	r.process = nil
	r.mu.Unlock()
	if process == nil {
		return nil
	}
	_ = process.Signal(s)
	select {
	case <-exited:
		return nil
	case <-time.After(patience):
		_ = process.Kill()
		<-exited
		return fmt.Errorf("%s did not end within %s of %s", r.name, patience, s)
	}
}

func (r *replica) kill() { _ = r.end(syscall.SIGKILL, time.Minute) }

// restart has it stop in good order, and start again.
func (r *replica) restart() error {
	r.fault.Lock()
	defer r.fault.Unlock()
	if err := r.end(syscall.SIGTERM, time.Minute); err != nil {
		return err
	}
	return r.start()
}

// url is where workers reach it.
func (r *replica) url() string { return "http://" + r.toAPI.Listen }

// restartDB kills the database's first process, as the kernel would, and brings it back.
func (c *cluster) restartDB(down time.Duration) error {
	c.dbDown.Lock()
	defer c.dbDown.Unlock()
	if err := c.db.Kill(); err != nil {
		return err
	}
	<-time.After(down)
	return c.db.Start()
}

// toxic puts a fault on a proxy and returns what takes it away again.
func toxic(p *toxiproxy.Proxy, stream, kind string, toxicity float64, attributes map[string]any) (func() error, error) {
	text, err := json.Marshal(map[string]any{"type": kind, "stream": stream, "toxicity": toxicity, "attributes": attributes})
	if err != nil {
		return nil, err
	}
	w, err := p.Toxics.AddToxicJson(strings.NewReader(string(text)))
	if err != nil {
		return nil, fmt.Errorf("%s on %s: %w", kind, p.Name, err)
	}
	return func() error {
		ctx, cancel := contextWithTimeout()
		defer cancel()
		return p.Toxics.RemoveToxic(ctx, w.Name)
	}, nil
}

// cut closes every connection of a proxy, which goes on listening: a port that it let go could be another's a moment later.
func cut(p *toxiproxy.Proxy) error {
	heal, err := toxic(p, "downstream", "timeout", 1, map[string]any{"timeout": 1})
	if err != nil {
		return err
	}
	return heal()
}
