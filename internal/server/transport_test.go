package server_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/idemstore/idemstore/internal/server"
)

func TestContentTypes(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		k := s.key(t)
		for kind, status := range map[string]int{
			"application/json": 201, "Application/JSON": 201, "application/json; charset=utf-8": 201, "application/json;charset=\"UTF-8\"": 201,
			"application/json; charset=latin1": 415, "text/json": 415, "text/plain": 415, "application/problem+json": 415, "application/jsonp": 415,
			"application/x-www-form-urlencoded": 415, "application/json, text/plain": 415, "application/json; charset": 415, "json": 415, "*/*": 415, "": 415,
			";": 415, "application/": 415,
		} {
			c := call{method: http.MethodPost, path: s.key(t).path("reserve"), body: obj{"owner": "w"}, header: map[string]string{"Content-Type": kind}}
			a := s.send(t, c)
			if a.status != status {
				t.Errorf("%q: %s", kind, a)
			}
			if status == 415 && !strings.Contains(a.want(415, "unsupported_media_type").text("detail"), "application/json") {
				t.Errorf("%q: detail does not say what to send: %s", kind, a)
			}
			for _, path := range []string{k.path("dispatch"), k.path("renew"), k.path("record"), k.path("release"), "/v1/batch/reserve", "/v1/batch/record"} {
				c.path, c.body = path, "not JSON"
				want := 400 // the kind is in order, the body is not
				if status == 415 {
					want = 415
				}
				if a := s.send(t, c); a.status != want {
					t.Errorf("%s of %q: %s", path, kind, a)
				}
			}
		}
	})
}

// pad is a body of just so many bytes: white space is JSON too.
func pad(body string, size int) string { return body + strings.Repeat(" ", size-len(body)) }

// Every body has its cap, whether its length is announced or not.
func TestBodyCaps(t *testing.T) {
	t.Parallel()
	s := shared.service(t, engines[0])
	const small, response = 64 << 10, 6*(server.DefaultMaxBodyBytes+32<<10) + 64<<10
	for verb, most := range map[string]int{"reserve": small, "dispatch": small, "renew": small, "record": response, "release": response} {
		k := s.key(t)
		if most == small {
			k.post(verb, pad("{}", most)).want(400, "invalid_request")
			k.post(verb, pad("{}", most+1)).want(413, "body_too_large")
		}
		for size, want := range map[int]int{most: 400, most + 1: 413} {
			s.chunks(t, k.path(verb), pad("{}", size), want)
		}
	}
}

// chunks posts a body whose length is not announced.
func (s *service) chunks(t *testing.T, path, body string, want int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+path, struct{ io.Reader }{strings.NewReader(body)})
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if text, _ := io.ReadAll(res.Body); res.StatusCode != want {
		t.Errorf("%d bytes for %s: %d %s", len(body), path, res.StatusCode, text)
	}
}

// What announces too much is refused before any of it is read.
func TestAnnouncedBodiesAreRefusedUnread(t *testing.T) {
	t.Parallel()
	s := shared.service(t, engines[0])
	for path, most := range map[string]int{
		s.key(t).path("reserve"): 64 << 10, s.key(t).path("record"): 8 << 20, "/v1/batch/reserve": 32 << 20, "/v1/batch/record": 32 << 20,
	} {
		for _, length := range []int{most + 1<<20, 1 << 40} {
			start := time.Now()
			a := s.exchange(t, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", path, length))
			if a.status != 413 || !bytes.Contains(a.raw, []byte("body_too_large")) {
				t.Errorf("%s of %d bytes: %s", path, length, a)
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("%s of %d bytes was answered after %s", path, length, took)
			}
		}
		a := s.exchange(t, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", path, 1<<40))
		if a.status != 413 {
			t.Errorf("%s: a body that waits to be asked for: %s", path, a)
		}
	}
}

// A client that sends everything before it reads, as simple ones do, sees the answer and not a broken pipe.
func TestAClientThatIsStillSendingSeesTheAnswer(t *testing.T) {
	t.Parallel()
	s := shared.service(t, engines[0])
	for path, size := range map[string]int{s.key(t).path("record"): 20 << 20, "/v1/batch/record": 40 << 20} {
		conn := s.dial(t)
		if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", path, size); err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(conn, zeros{}, int64(size)); err != nil {
			t.Fatalf("%s: while sending: %v", path, err)
		}
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		_ = res.Body.Close()
		if res.StatusCode != 413 {
			t.Errorf("%s: %d", path, res.StatusCode)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestContentEncodingIsRefused(t *testing.T) {
	t.Parallel()
	s := shared.service(t, engines[0])
	for encoding, want := range map[string]int{"gzip": 415, "identity": 201, "br, gzip": 415} {
		c := call{method: http.MethodPost, path: s.key(t).path("reserve"), body: obj{"owner": "w"}, header: map[string]string{"Content-Encoding": encoding}}
		if a := s.send(t, c); a.status != want {
			t.Errorf("%s: %s", encoding, a)
		}
	}
}

// dial opens a connection to speak without an HTTP client's help.
func (s *service) dial(t *testing.T) *net.TCPConn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(soon))
	return conn.(*net.TCPConn)
}

// exchange sends bytes, and reads one answer.
func (s *service) exchange(t *testing.T, text string) answer {
	t.Helper()
	conn := s.dial(t)
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	method, _, _ := strings.Cut(text, " ")
	res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{t: t, status: res.StatusCode, header: res.Header, raw: body}
}

// A body that ends before its length is no request.
func TestCutBodies(t *testing.T) {
	t.Parallel()
	s := shared.service(t, engines[0])
	k := s.key(t)
	conn := s.dial(t)
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"owner\":\"w\"}", k.path("reserve"))
	_ = conn.CloseWrite()
	text, _ := io.ReadAll(conn)
	if !bytes.Contains(text, []byte(" 400 ")) {
		t.Errorf("answered %s", text)
	}
	k.replay("").want(404, "not_found")
}

func TestPaths(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		fresh := func() string { return s.key(t).task }
		for _, task := range []string{
			fresh(), strings.ToUpper(fresh()), "...", "." + fresh(), fresh() + ".", ".." + fresh(), "A~b@c_d:e-" + fresh(), text("x", 219) + fresh(),
		} {
			k := s.key(t)
			k.task = task
			k.replay("").want(404, "not_found").has(obj{"task_id": kept(task)})
		}
		for task, same := range map[string]string{"%61bc": "abc", "a%2Db": "a-b", "a%3ab": "a:b", "%7Ea%40b": "~a@b", "x%2Ey": "x.y"} {
			k := s.key(t)
			k.task = task
			k.replay("").want(404, "not_found").has(obj{"task_id": same})
		}
		for _, task := range []string{
			".", "..", "%2e", "%2E%2e", ".%2E", "a%2Fb", "a%2fb%2Fc", "%2F", "a%5Cb", "a%20b", "a+b", "a%00", "%C3%A9", "%ff", "a,b", "a;b", "a%25", "a%2541",
			"a%3Fb", "a%23", "a=b", "a&b", "a*", "(a)", "a!", "a$", "%7Ba%7D", text("x", 256), text("%78", 256), strings.ToUpper(fresh()) + text("x", 220),
		} {
			for _, verb := range []string{"reserve", "dispatch", "renew", "record", "release", "replay"} {
				k := s.key(t)
				k.task = task
				if verb == "replay" {
					k.replay("?wait_seconds=x&owner=").wantField("task_id")
				} else {
					k.post(verb, "not JSON").wantField("task_id")
				}
			}
		}
	})
}

// kept is how a task_id is kept.
func kept(task string) string {
	if len(task) == 36 {
		return strings.ToLower(task)
	}
	return task
}

func TestAttemptsInPaths(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		k := s.key(t)
		send := func(attempt, verb string) answer {
			c := call{method: http.MethodPost, path: fmt.Sprintf("/v1/tasks/%s/attempts/%s/%s", k.task, attempt, verb), body: obj{"owner": "w"}}
			if verb == "replay" {
				c.method, c.body = http.MethodGet, nil
			}
			return s.send(t, c)
		}
		for attempt, n := range map[string]int{"0": 0, "1": 1, "10": 10, "2147483647": 2147483647, "%30": 0, "1%30": 10} {
			send(attempt, "replay").want(404, "not_found").has(obj{"attempt": n})
		}
		for _, attempt := range []string{
			"007", "00", "01", "+1", "%2B1", "-1", "-0", "2147483648", "4294967296", "9223372036854775808", "99999999999999999999999", "1.0", "1e1", "0x1",
			"0b1", "1_000", "%20", "1%20", "%201", "%D9%A1", "x", "null", "true", "%2F", "0%2F", "1,2", ",", ".", "..", "1%00", "%ff", text("1", 1000),
		} {
			for _, verb := range []string{"reserve", "dispatch", "renew", "record", "release", "replay"} {
				send(attempt, verb).wantField("attempt")
			}
		}
		k.replay("").want(404, "not_found")
	})
}

func TestNoSuchRoute(t *testing.T) {
	t.Parallel()
	s := shared.service(t, engines[0])
	k := s.key(t)
	for _, path := range []string{
		"/", "/v1", "/v1/", "/v1/tasks", "/v1/tasks/", "/v2/tasks/a/attempts/0/reserve", "/V1/tasks/a/attempts/0/reserve", "/v1/tasks/a/attempts/0/",
		"/v1/tasks/a/attempts", "/v1/tasks/a/attempts/0/reserve/", "/v1/tasks/a/attempts/0/Reserve", "/v1/tasks/a/attempts/0/reserve/x",
		"/v1//tasks/a/attempts/0/reserve", "//v1/tasks/a/attempts/0/reserve", "/v1/tasks/a/b/attempts/0/reserve", "/v1/tasks/a/attempts/0/delete",
		"/v1/tasks/a/attempts/0/res%65rve", "/%761/tasks/a/attempts/0/reserve", "/v1%2Ftasks/a/attempts/0/reserve", "/v1/x/../tasks/a/attempts/0/reserve",
		"/v1/batch", "/v1/batch/", "/v1/batch/reserve/", "/v1/batch/release", "/v1/owners", "/v1/owners/w", "/v1/owners/a/b/release", "/v1/owners/w/release/",
		"/v1/entries/", "/v1/entries/1", "/v1/events/", "/v1/events/1", "/v1/stats/", "/v1/tasks/a/", "/v1/tasks/a/b", "/healthz/", "/healthz/x", "/readyz/", "/metrics", "/openapi.json", "/openapi.yaml/",
		"/problems", "/problems/", "/favicon.ico", "/index.html", "/debug/pprof/", "/" + strings.Repeat("x", 4000),
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
			a := s.send(t, call{method: method, path: path, body: obj{}}).want(404, "no_such_route")
			if a.header.Get("Allow") != "" || a.header.Get("Location") != "" {
				t.Errorf("%s %s: %v", method, path, a.header)
			}
		}
	}
	for _, path := range []string{"/v1/tasks//attempts/0/reserve", "/v1/tasks/a/attempts//reserve"} { // no key at all
		if a := s.exchange(t, "POST "+path+" HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"); a.status != 400 {
			t.Errorf("%s: %s", path, a)
		}
	}
	k.replay("").want(404, "not_found") // which only ever says that nothing is known of the key
}

func TestMethodNotAllowed(t *testing.T) {
	t.Parallel()
	s := shared.service(t, engines[0])
	k := s.key(t)
	allowed := map[string]string{
		k.path("replay"): "GET", "/healthz": "GET", "/readyz": "GET", "/openapi.yaml": "GET", "/problems/in-doubt": "GET",
		"/v1/batch/reserve": "POST", "/v1/batch/record": "POST", "/v1/tasks/a%2Fb/attempts/-1/reserve": "POST",
		"/v1/tasks/a": "GET", "/v1/tasks/a/attempts/0": "GET", "/v1/entries": "GET", "/v1/events": "GET", "/v1/stats": "GET",
		"/v1/owners/w/release": "POST", "/v1/owners/a%2Fb/release": "POST",
	}
	for _, verb := range []string{"reserve", "dispatch", "renew", "record", "release", "resolve"} {
		allowed[k.path(verb)] = "POST"
	}
	for path, allow := range allowed {
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"} {
			if method == allow || method == "CONNECT" && strings.Contains(path, "%") {
				continue
			}
			a := s.send(t, call{method: method, path: path, body: obj{}}).want(405, "method_not_allowed")
			if got := a.header.Values("Allow"); len(got) != 1 || got[0] != allow {
				t.Errorf("%s %s: Allow %q", method, path, got)
			}
		}
		if a := s.exchange(t, "HEAD "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"); a.status != 405 || a.header.Get("Allow") != allow {
			t.Errorf("HEAD %s: %s %v", path, a, a.header)
		}
	}
	for path, want := range map[string]int{k.path("reserve"): 405, "/nothing": 404} { // a method of which nothing is known
		if a := s.exchange(t, "BREW "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"); a.status != want || (a.header.Get("Allow") == "POST") != (want == 405) {
			t.Errorf("BREW %s: %s %v", path, a, a.header)
		}
	}
}

func TestRequestIDs(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		made := make(map[string]bool)
		for id, sane := range map[string]bool{
			"01JDX7M3Q8Z5": true, "a": true, text("x", 128): true, "a.b-c_d:e": true, "A/b+c=@~": true,
			"": false, text("x", 129): false, "a b": false, "a\tb": false, "é": false, "a\"b": false, "<a>": false, "{}": false, "a;b": false, "a,b": false,
		} {
			c := call{method: http.MethodGet, path: s.key(t).path("replay"), header: map[string]string{"X-Request-Id": id}}
			a := s.send(t, c).want(404, "not_found")
			got := a.header.Get("X-Request-Id")
			if sane != (got == id) || a.text("request_id") != got || got == "" || made[got] {
				t.Errorf("%q became %q in %s", id, got, a)
			}
			made[got] = true
		}
	})
}

// A query on a verb that takes none is refused: whoever put wait_seconds there would not wait.
func TestQueryOfThePostingVerbs(t *testing.T) {
	t.Parallel()
	s := shared.service(t, engines[0])
	k := s.key(t)
	for _, verb := range []string{"reserve", "dispatch", "renew", "record", "release", "resolve"} {
		s.send(t, call{method: http.MethodPost, path: k.path(verb) + "?" + url.Values{"wait_seconds": {"5"}}.Encode(), body: obj{"owner": "w"}}).
			want(400, "invalid_request").has(obj{"field": "wait_seconds"})
	}
	k.replay("").want(404, "not_found")
}
