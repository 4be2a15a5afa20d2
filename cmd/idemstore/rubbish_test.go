package main

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
)

// dial opens a connection to the program, to speak without an HTTP client's help.
func (p *program) dial(t *testing.T) *net.TCPConn {
	t.Helper()
	_, address, _ := strings.Cut(p.url, "://")
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return conn.(*net.TCPConn)
}

// wire are the bytes of a request to reserve a fresh key, with the header lines that are to stand in it.
func wire(body string, lines ...string) string {
	lines = append([]string{"POST /v1/tasks/" + uuid.NewString() + "/attempts/0/reserve HTTP/1.1", "Host: x", "Content-Type: application/json"}, lines...)
	return strings.Join(lines, "\r\n") + "\r\n\r\n" + body
}

func get(path string, lines ...string) string {
	return strings.Join(append([]string{"GET " + path + " HTTP/1.1", "Host: x"}, lines...), "\r\n") + "\r\n\r\n"
}

const (
	owner   = `{"owner":"w"}` // 13 bytes
	chunked = "Transfer-Encoding: chunked"
)

// What comes over a connection and what is answered to it, answer by answer. Where net/http refuses before there is a request, the
// answer is its own, in plain text; all others are JSON.
var exchanges = []struct {
	name, bytes string
	statuses    []int
}{
	{"three requests at once", get("/healthz") + wire(owner, "Content-Length: 13") + get("/v1/tasks/none"), []int{200, 201, 404}},
	{"a refusal between two requests", wire("{}", "Content-Length: 2") + get("/healthz"), []int{400, 200}},
	{"chunks", wire("6\r\n{\"owne\r\n7\r\nr\":\"w\"}\r\n0\r\n\r\n", chunked) + get("/healthz"), []int{201, 200}},
	{"chunks with an extension and a trailer", wire("d;a=b\r\n"+owner+"\r\n0\r\nX-Trailer: y\r\n\r\n", chunked) + get("/healthz"), []int{201, 200}},
	{"a huge chunk extension", wire("d;"+strings.Repeat("x", 5000)+"\r\n"+owner+"\r\n0\r\n\r\n", chunked), []int{400}},
	{"more extension than body", wire(strings.Repeat("1;"+strings.Repeat("x", 2000)+"\r\n \r\n", 20)+"0\r\n\r\n", chunked), []int{400}},
	{"a chunk size that is none", wire("zz\r\n"+owner, chunked), []int{400}},
	{"a negative chunk size", wire("-1\r\n"+owner, chunked), []int{400}},
	{"a chunk size beyond 64 bits", wire("ffffffffffffffffff\r\n"+owner, chunked), []int{400}},
	{"a chunk longer than it says", wire("5\r\n"+owner+"\r\n0\r\n\r\n", chunked), []int{400}},
	{"two lengths", wire(owner, "Content-Length: 13", "Content-Length: 12"), []int{400}},
	{"the same length twice", wire(owner, "Content-Length: 13", "Content-Length: 13"), []int{201}},
	{"a length with a sign", wire(owner, "Content-Length: +13"), []int{400}},
	{"a length in hexadecimal", wire(owner, "Content-Length: 0xd"), []int{400}},
	{"a length beyond 64 bits", wire(owner, "Content-Length: 99999999999999999999"), []int{400}},
	{"an encoding that is not known", wire(owner, "Transfer-Encoding: gzip"), []int{501}},
	{"two encodings", wire(owner, chunked, "Transfer-Encoding: identity"), []int{501}},
	{"an expectation that is not known", wire(owner, "Expect: tea", "Content-Length: 13"), []int{417}},
	{"an absolute target", strings.Replace(get("/healthz"), "/healthz", "http://elsewhere.test/healthz", 1), []int{200}},
	{"no host", "GET /healthz HTTP/1.1\r\n\r\n", []int{400}},
	{"two hosts", get("/healthz", "Host: y"), []int{400}},
	{"a host that is none", "GET /healthz HTTP/1.1\r\nHost: a b\r\n\r\n", []int{400}},
	{"a header without a colon", get("/healthz", "nonsense"), []int{400}},
	{"white space before a colon", get("/healthz", "X-A : b"), []int{400}},
	{"NUL in a header", get("/healthz", "X-A: \x00"), []int{400}},
	{"a header of 40 KiB", get("/healthz", "X-A: "+strings.Repeat("a", 40<<10)), []int{431}},
	{"10,000 headers", get("/healthz", strings.Repeat("X-A: b\r\n", 10_000)+"X-A: b"), []int{431}},
	{"a path of 40 KiB", get("/" + strings.Repeat("a", 40<<10)), []int{431}},
	{"HTTP/0.9", "GET /healthz\r\n\r\n", []int{400}},
	{"HTTP/1.0", "GET /healthz HTTP/1.0\r\n\r\n", []int{200}},
	{"HTTP/3.0", "GET /healthz HTTP/3.0\r\nHost: x\r\n\r\n", []int{505}},
	{"HTTP/2 without TLS, as known", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", []int{404}},
	{"HTTP/2 without TLS, by Upgrade", get("/healthz", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"), []int{200}},
	{"a WebSocket", get("/healthz", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: AAAA", "Sec-WebSocket-Version: 13"), []int{200}},
	{"HEAD", strings.Replace(get("/healthz"), "GET", "HEAD", 1), []int{405}},
	{"OPTIONS", strings.Replace(get("/healthz"), "GET", "OPTIONS", 1), []int{405}},
	{"OPTIONS of everything", strings.Replace(get("*"), "GET", "OPTIONS", 1), []int{404}},
	{"TRACE", strings.Replace(get("/healthz", "X-Secret: s3cr3t-header"), "GET", "TRACE", 1), []int{405}},
	{"CONNECT", "CONNECT elsewhere.test:443 HTTP/1.1\r\nHost: elsewhere.test:443\r\n\r\n", []int{404}},
	{"a method that is none", strings.Replace(get("/healthz"), "GET", "G\x01T", 1), []int{400}},
	{"the beginning of TLS", "\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\r\n\r\n", []int{400}},
	{"binary rubbish", "\x00\xff\xfe\x01\r\n\r\n", []int{400}},
	{"rubbish behind a request", get("/healthz") + "\x00\x01\x02\r\n\r\n", []int{200, 400}},
}

func TestRubbishOnTheWire(t *testing.T) {
	t.Parallel()
	p := start(t, []string{"IDEMSTORE_DATABASE_URL=sqlite::memory:"})
	for _, x := range exchanges {
		conn := p.dial(t)
		if _, err := io.WriteString(conn, x.bytes); err != nil && x.statuses[0] < 400 {
			t.Errorf("%s: %v", x.name, err)
		}
		method, _, _ := strings.Cut(x.bytes, " ")
		in := bufio.NewReader(conn)
		for n, want := range x.statuses {
			res, err := http.ReadResponse(in, &http.Request{Method: method})
			if err != nil {
				t.Errorf("%s, answer %d: %v", x.name, n, err)
				break
			}
			body, err := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if res.StatusCode != want || err != nil || res.ProtoMajor != 1 {
				t.Errorf("%s, answer %d: %s %s, %v; want %d", x.name, n, res.Status, body, err, want)
			}
			if kind := res.Header.Get("Content-Type"); strings.HasSuffix(kind, "json") != (res.Header.Get("X-Request-Id") != "") ||
				strings.HasSuffix(kind, "json") && method != http.MethodHead && !json.Valid(body) {
				t.Errorf("%s, answer %d: %v %s", x.name, n, res.Header, body)
			}
			if bytes.Contains(body, []byte("s3cr3t-header")) {
				t.Errorf("%s: it says back what it was told: %s", x.name, body)
			}
		}
		_ = conn.Close()
	}
	if !p.pair(uuid.NewString()) {
		t.Error("after all that it does not serve")
	}
	for line := range strings.Lines(p.logged()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("no line of JSON in the log: %s", line)
		}
	}
}

// statusOf is that of the answer that comes next.
func statusOf(conn net.Conn) (int, error) {
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	return res.StatusCode, nil
}

// A client that has sent everything and closes its side is answered, and one that has not is not waited for.
func TestHalfClosedConnections(t *testing.T) {
	t.Parallel()
	p := start(t, []string{"IDEMSTORE_DATABASE_URL=sqlite::memory:"})
	for what, want := range map[string]int{
		get("/openapi.yaml"):                          200,
		wire(`{"own`, "Content-Length: 13"):           400,
		wire("6\r\n{\"owne", chunked):                 400,
		wire(`{"own`, "Content-Length: 13", "X: y"):   400,
		"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Cut: ": 0, // nothing that could be answered
	} {
		conn := p.dial(t)
		_, _ = io.WriteString(conn, what)
		_ = conn.CloseWrite()
		begun := time.Now()
		if status, err := statusOf(conn); want == 0 && err == nil && status < 400 || want != 0 && status != want {
			t.Errorf("%q: %d, %v", what, status, err)
		}
		if took := time.Since(begun); took > readTime/2 {
			t.Errorf("%q was waited for, %s", what, took)
		}
	}
}

// A body that comes drop by drop is given up after readTime, and holds up nobody.
func TestSlowBodiesAreGivenUp(t *testing.T) {
	t.Parallel()
	p := start(t, []string{"IDEMSTORE_DATABASE_URL=sqlite::memory:"})
	const slow = 50
	begun := time.Now()
	var conns []*net.TCPConn
	for range slow {
		conn := p.dial(t)
		_ = conn.SetDeadline(begun.Add(readTime + patience))
		_, _ = io.WriteString(conn, wire(`{"owner"`, "Content-Length: 13"))
		conns = append(conns, conn)
	}
	if !p.pair(uuid.NewString()) {
		t.Error("slow bodies hold up others")
	}
	for _, conn := range conns {
		if status, err := statusOf(conn); status != http.StatusBadRequest {
			t.Errorf("after %s: %d, %v", time.Since(begun), status, err)
		}
	}
	if took := time.Since(begun); took < readTime-time.Second || took > readTime+patience/2 {
		t.Errorf("they were given up after %s", took)
	}
}

// Clients that ask for megabytes again and again and read none of it hold their own connections, and nothing of others.
func TestSlowReadersHoldUpNobody(t *testing.T) {
	t.Parallel()
	p := measured(t, "sqlite::memory:")
	large := p.task("large")
	if a := send("POST", large+"/record", "", `{"owner":"w","response":{"body":"`+strings.Repeat("x", 1<<20)+`"}}`); a.status != http.StatusCreated {
		t.Fatalf("record: %d", a.status)
	}
	before := p.memory(t)
	const readers, each = 50, 40
	for range readers {
		conn := p.dial(t)
		_ = conn.SetReadBuffer(4 << 10)
		_, _ = io.WriteString(conn, strings.Repeat(get("/v1/tasks/large/attempts/0/replay?raw=true"), each))
	}
	for range 50 {
		begun := time.Now()
		if !p.pair(uuid.NewString()) {
			t.Fatal("slow readers hold up others")
		}
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("a pair took %s", took)
		}
	}
	if more := p.memory(t) - before; more > readers*4<<20+128<<20 {
		t.Errorf("%d slow readers cost %d MiB", readers, more>>20)
	}
}

// Rubbish instead of a handshake, and protocols that are too old, are refused; what comes after them is served.
func TestRubbishInsteadOfTLS(t *testing.T) {
	t.Parallel()
	cert, key := selfSigned(t)
	p := start(t, []string{"IDEMSTORE_DATABASE_URL=sqlite::memory:", "IDEMSTORE_TLS_CERT=" + cert, "IDEMSTORE_TLS_KEY=" + key, "IDEMSTORE_LOG_LEVEL=debug"})
	for what, want := range map[string]string{
		"\x16\x03\x01\xff\xff":                         "",
		"\x16\x03\x01\x00\x05\x01\x00\xff\xff\xff":     "",
		strings.Repeat("\x00", 5000):                   "",
		"\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10": "", // SSL 2
		get("/healthz"):                                "HTTP/1.0 400",
	} {
		conn := p.dial(t)
		_, _ = io.WriteString(conn, what)
		_ = conn.CloseWrite()
		got, _ := io.ReadAll(conn)
		if !bytes.HasPrefix(got, []byte(want)) || want == "" && bytes.Contains(got, []byte("HTTP/")) {
			t.Errorf("%.20q: answered %q", what, got)
		}
	}
	file, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(file)
	for version, good := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		conn := tls.Client(p.dial(t), &tls.Config{RootCAs: pool, ServerName: "localhost", MinVersion: version, MaxVersion: version}) //nolint:gosec // too old on purpose
		if err := conn.HandshakeContext(t.Context()); (err == nil) != good {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "localhost"}, ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, strings.Replace(p.task(uuid.NewString()), "http:", "https:", 1)+"/reserve", strings.NewReader(owner))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusCreated || res.ProtoMajor != 2 {
		t.Errorf("over TLS: %s by %s", res.Status, res.Proto)
	}
	eventually(t, "failed handshakes are in the log", func() bool { return strings.Contains(p.logged(), "TLS handshake error") })
	for line := range strings.Lines(p.logged()) {
		var l struct{ Level, Message string }
		if json.Unmarshal([]byte(line), &l) != nil || strings.Contains(l.Message, "TLS handshake error") && l.Level != "debug" {
			t.Errorf("the log has %s", line)
		}
	}
}

// Thousands of connections that say nothing cost memory, and nothing else. IDEMSTORE_TEST_CONNECTIONS=10000 takes more of them; under the race
// detector each costs five times as much as it does.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	p := measured(t, "sqlite::memory:")
	wanted, err := strconv.Atoi(cmp.Or(os.Getenv("IDEMSTORE_TEST_CONNECTIONS"), "2000"))
	if err != nil {
		t.Fatal(err)
	}
	connections := min(wanted, openFiles(t)/2)
	before := p.memory(t)
	for range connections {
		conn := p.dial(t)
		_, _ = io.WriteString(conn, get("/healthz"))
	}
	begun := time.Now()
	for range 20 {
		if !p.pair(uuid.NewString()) {
			t.Fatal("it does not serve")
		}
	}
	after := p.memory(t)
	t.Logf("%d idle connections: from %d MiB to %d MiB; 20 pairs took %s", connections, before>>20, after>>20, time.Since(begun))
	if more := after - before; more > int64(connections)*160<<10+64<<20 {
		t.Errorf("%d connections cost %d MiB", connections, more>>20)
	}
}

// openFiles is how many files and connections a process may have open.
func openFiles(t *testing.T) int {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	return int(min(limit.Cur, 1<<20))
}

// memory is what the program has of the machine's.
func (p *program) memory(t *testing.T) int64 {
	t.Helper()
	all, _ := p.scrape()
	resident, err := strconv.ParseFloat(all["process_resident_memory_bytes"].series[""], 64)
	if err != nil {
		t.Fatal(err)
	}
	return int64(resident)
}
