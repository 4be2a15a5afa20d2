package server

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/rs/zerolog"

	"github.com/idemstore/idemstore/api"
)

// What a request makes the service allocate is bounded by what is of use in it, not by how often it can repeat nothing.
func TestListsOfNothingAreNotTakenApart(t *testing.T) { //nolint:paralleltest // it counts allocations
	long := func(open, item, end string) []byte {
		return append(append([]byte(open), bytes.Repeat([]byte(item), 1<<20)...), end...)
	}
	const most = 10_000
	for name, read := range map[string]func() error{
		"items": func() error {
			_, err := readItems(long(`{"items":[0`, ",0", "]}"), false)
			return err
		},
		"headers": func() error {
			_, err := readHeaders(long(`[["a","b"]`, `,["a","b"]`, "]"))
			return err
		},
		"one header's values": func() error {
			_, err := readHeaders(long(`{"a":["b"`, `,"b"`, "]}"))
			return err
		},
	} {
		body := 0
		if n := testing.AllocsPerRun(1, func() {
			if read() == nil {
				body++
			}
		}); n > most || body > 0 {
			t.Errorf("%s: %v allocations, and %d times no error", name, n, body)
		}
	}
}

func TestIgnoredMembersAreNamedUpToAHundred(t *testing.T) {
	t.Parallel()
	var members strings.Builder
	for i := range 2000 {
		members.WriteString(`,"x` + strings.Repeat("y", i) + `":1`)
	}
	ignored, err := lenient([]byte(`{"owner":"w"`+members.String()+`,"response":{"z":1}}`), new(api.RecordRequest))
	if err != nil || len(ignored) != maxIgnored {
		t.Errorf("%d are named, %v", len(ignored), err)
	}
	if _, err := lenient([]byte(`{"owner":"w"`+members.String()+`,"Owner":"w"}`), new(api.RecordRequest)); err == nil {
		t.Error("a known member in another letter case passed behind many unknown ones")
	}
}

// docs/security.md says of each call who may make it.
func TestSecurityPageSaysWhoMayDoWhat(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	told := make(map[string]string)
	for _, row := range regexp.MustCompile("(?m)^\\| `((?:GET|POST) /v1/[^`]+)` \\| (.+) \\|$").FindAllStringSubmatch(string(text), -1) {
		told[row[1]] = row[2]
	}
	words := map[bool]string{true: "yes", false: "-"}
	for route, role := range needed {
		var may []string
		for _, r := range roles {
			may = append(may, words[(&Identity{roles: []Role{r}}).May(role)])
		}
		if want := strings.Join(may, " | "); told[route] != want {
			t.Errorf("%s: the page says %q, and so it is: %q", route, told[route], want)
		}
		delete(told, route)
	}
	if len(told) > 0 {
		t.Errorf("the page tells of calls that there are not: %v", told)
	}
}

// Whatever becomes of a large body, its room is given back; and while it is read, it counts.
func TestRoomOfBodiesIsGivenBack(t *testing.T) {
	t.Parallel()
	s := New(nil, nil, new(Tokens), zerolog.Nop(), Config{MaxBodyBytes: 1 << 20}) // no keeper: what reaches it panics
	padded := func(json string) io.Reader { return strings.NewReader(json + strings.Repeat(" ", 1<<20)) }
	const record = "/v1/tasks/a/attempts/0/record"
	for name, c := range map[string]struct {
		path string
		body io.Reader
		want int
	}{
		"not JSON":       {record, padded("{"), 400},
		"no batch":       {"/v1/batch/record", padded("[]"), 400},
		"breaks off":     {record, io.MultiReader(padded("{"), iotest.ErrReader(errors.New("gone"))), 400},
		"too large":      {record, strings.NewReader(strings.Repeat(" ", 20<<20)), 413},
		"carried out":    {record, padded(`{"owner":"w","response":{}}`), 500},
		"without a room": {record, &crowd{s: s, Reader: padded("{")}, 429},
	} {
		highest := int64(0)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, c.path, io.MultiReader(c.body, &peek{s, &highest}))
		r.ContentLength = -1
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
		if left := s.bodies.Load(); left != 0 {
			t.Errorf("%s: %d bytes are held when it is over", name, left)
			s.bodies.Store(0)
		}
		if c.want == 500 && highest != 1<<20+int64(len(`{"owner":"w","response":{}}`))-maxSmallBody {
			t.Errorf("%s: %d bytes counted while it was read", name, highest)
		}
	}
}

// peek sees, where a body ends, what is held of all bodies.
type peek struct {
	s    *Server
	seen *int64
}

func (p *peek) Read([]byte) (int, error) {
	*p.seen = p.s.bodies.Load()
	return 0, io.EOF
}

// crowd has others take all the room while a body is read.
type crowd struct {
	io.Reader
	s    *Server
	came bool
}

func (c *crowd) Read(p []byte) (int, error) {
	if !c.came {
		c.came = true
		c.s.bodies.Add(maxBodies)
	}
	n, err := c.Reader.Read(p)
	if err == io.EOF {
		c.s.bodies.Add(-maxBodies)
	}
	return n, err
}
