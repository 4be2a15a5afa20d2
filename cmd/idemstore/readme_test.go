package main

import (
	"bufio"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/idemstore/idemstore"
	"github.com/idemstore/idemstore/internal/server"
)

func readDoc(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The README's calls are made, in its order, of a program with its defaults, and answered as it shows.
func TestReadmeCalls(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Fatalf("this test makes the README's calls as a reader would, with curl: %v", err)
	}
	p := start(t, nil)
	blocks := regexp.MustCompile("(?s)```sh\n([^`]*curl[^`]*)```\n+```http\n([^`]*)```").FindAllStringSubmatch(readDoc(t, "README.md"), -1)
	if len(blocks) < 4 {
		t.Fatalf("the README shows %d calls with their answers, want 4 or more", len(blocks))
	}
	for _, block := range blocks {
		call, want := block[1], block[2]
		script := `curl() { command curl --silent --show-error --include --max-time 20 "$@"; }` + "\n" +
			strings.ReplaceAll(call, "http://127.0.0.1:8080", p.url)
		have, err := exec.CommandContext(t.Context(), "sh", "-c", script).CombinedOutput()
		if err != nil {
			t.Fatalf("%s%v\n%s", call, err, have)
		}
		compareAnswers(t, call, readAnswer(t, string(have)), readAnswer(t, want))
	}
}

// shown is an answer as it came, or as the README shows it.
type shown struct {
	status string
	header http.Header
	body   any // JSON, its times taken out; or else text
}

func readAnswer(t *testing.T, text string) shown {
	t.Helper()
	res, err := http.ReadResponse(bufio.NewReader(strings.NewReader(text)), nil)
	if err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	a := shown{status: res.Status, header: res.Header, body: strings.TrimSpace(string(body))}
	var value any
	if json.Unmarshal(body, &value) == nil {
		a.body = withoutTimes(value)
	}
	return a
}

func compareAnswers(t *testing.T, call string, have, want shown) {
	t.Helper()
	if have.status != want.status || !reflect.DeepEqual(have.body, want.body) {
		t.Errorf("%s\nis answered %s %v\nthe README shows %s %v", call, have.status, have.body, want.status, want.body)
	}
	for name, values := range want.header {
		if !slices.Equal(have.header.Values(name), values) {
			t.Errorf("%s\nis answered %s: %q, the README shows %q", call, name, have.header.Values(name), values)
		}
	}
}

var timestamp = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$`)

// withoutTimes replaces the timestamps in a value.
func withoutTimes(value any) any {
	switch v := value.(type) {
	case string:
		return timestamp.ReplaceAllString(v, "a time")
	case []any:
		for i := range v {
			v[i] = withoutTimes(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = withoutTimes(v[name])
		}
	}
	return value
}

// The README's table of settings has each of them, with its default, and so has the help.
func TestReadmeSettings(t *testing.T) {
	t.Parallel()
	shown := make(map[string]string)
	for _, row := range regexp.MustCompile("(?m)^\\| `(IDEMSTORE_[A-Z_]+)` \\| (?:none|`([^`]*)`) \\| .").FindAllStringSubmatch(readDoc(t, "README.md"), -1) {
		shown[row[1]] = row[2]
	}
	help, _, code := output(t, nil, "serve", "--help")
	if code != exitOK {
		t.Fatalf("serve --help: exit status %d", code)
	}
	real := make(map[string]string)
	for _, field := range reflect.VisibleFields(reflect.TypeFor[settings]()) {
		name := field.Tag.Get("env")
		real[name] = strings.ReplaceAll(field.Tag.Get("default"), "${denied}", strings.Join(server.DefaultDeniedHeaders, ","))
		if !strings.Contains(help, "("+name+")") || real[name] != "" && !strings.Contains(help, `="`+real[name]+`"`) {
			t.Errorf("serve --help does not tell %s and its default %q", name, real[name])
		}
	}
	if !maps.Equal(shown, real) {
		t.Errorf("the README shows\n%v\nthe program has\n%v", shown, real)
	}
}

// The tables of answers tell the right status, the protocol's of every code; and each code has its page.
func TestDocumentedCodes(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	page := func(code string) string {
		res, err := http.Get(p.url + "/problems/" + strings.ReplaceAll(code, "_", "-")) //nolint:noctx // the program is killed with the test
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	documented := make(map[string]bool)
	for doc, row := range map[string]*regexp.Regexp{
		"README.md":        regexp.MustCompile("(?m)^\\| (?P<status>[45]\\d\\d) `(?P<code>[a-z_]+)` \\|"),
		"docs/protocol.md": regexp.MustCompile("(?m)^\\| `(?P<code>[a-z_]+)` \\| (?P<status>[45]\\d\\d) \\|"),
	} {
		rows := row.FindAllStringSubmatch(readDoc(t, doc), -1)
		if len(rows) < 10 {
			t.Errorf("%s: only %d codes were found", doc, len(rows))
		}
		for _, r := range rows {
			code, status := r[row.SubexpIndex("code")], r[row.SubexpIndex("status")]
			documented[code] = true
			if !strings.Contains(page(code), "<code>"+code+"</code> · "+status) {
				t.Errorf("%s says that %s is %s; its page says otherwise:\n%s", doc, code, status, page(code))
			}
		}
	}
	enum := regexp.MustCompile(`(?s)\n    ProblemCode:\n.*?enum:\n((?: +- [a-z_]+\n)+)`).FindSubmatch(idemstore.OpenAPI)
	if enum == nil {
		t.Fatal("openapi.yaml has no ProblemCode")
	}
	for _, code := range strings.Fields(strings.ReplaceAll(string(enum[1]), "- ", "")) {
		if !documented[code] {
			t.Errorf("docs/protocol.md does not tell of %s", code)
		}
	}
}
