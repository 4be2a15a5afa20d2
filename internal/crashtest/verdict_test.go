package crashtest

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	plain := Case{HTTPCall, Plain, AfterEffect}
	for _, c := range []struct {
		name string
		Case
		Evidence
		want Verdict
	}{
		{"once", plain, Evidence{Ended: completed, Effects: 1}, Pass},
		{"twice", plain, Evidence{Ended: completed, Effects: 2}, Duplicate},
		{"twice, and still in doubt", plain, Evidence{Effects: 2, InDoubt: []string{"a/0"}}, Duplicate},
		{"asked again", plain, Evidence{Ended: completed, Effects: 1, Repeated: 1}, Duplicate},
		{"read twice", Case{HTTPGet, Plain, BeforeEnd}, Evidence{Ended: completed, Effects: 2}, Pass},
		{"never", plain, Evidence{Ended: completed}, Lost},
		{"never, and in doubt", plain, Evidence{Ended: completed, InDoubt: []string{"a/0"}}, Lost},
		{"failed without it", plain, Evidence{Ended: failed}, Lost},
		{"failed after it", plain, Evidence{Ended: failed, Effects: 1}, Lost},
		{"failed in doubt", plain, Evidence{Ended: failed, InDoubt: []string{"a/0"}}, Hidden},
		{"stuck", plain, Evidence{Effects: 1}, Lost},
		{"crashing", plain, Evidence{Crashes: 5}, Lost},
		{"torn", Case{CSVWrite, Plain, NoKill}, Evidence{Ended: completed, Effects: 1, Torn: true}, Lost},
		{"completed in doubt", plain, Evidence{Ended: completed, Effects: 1, InDoubt: []string{"a/0"}}, Hidden},
		{"left alone", plain, Evidence{Effects: 1, InDoubt: []string{"a/0"}}, Reported},
		{"left alone after a blind takeover", plain, Evidence{Effects: 1, InDoubt: []string{"a/0"}, BlindTakeovers: 1}, Hidden},
		{"blind", plain, Evidence{Ended: completed, Effects: 1, BlindTakeovers: 1}, Hidden},
		{"blind where it may be repeated", Case{HTTPCallKeyed, Plain, AfterEffect}, Evidence{Ended: completed, Effects: 1, BlindTakeovers: 1}, Pass},
		{"made up", plain, Evidence{Ended: completed, Effects: 1, MadeUp: 1}, Hidden},
		{"begun without a lease", plain, Evidence{Ended: completed, Effects: 1, Unreserved: 1}, Hidden},
		{"where it may be repeated", Case{HTTPCallKeyed, Plain, AfterEffect}, Evidence{Ended: completed, Effects: 1, Unreserved: 1}, Pass},
		{"begun too late", plain, Evidence{Ended: completed, Effects: 1, Overdue: 1}, Hidden},
		{"of the instance", plain, Evidence{Ended: completed, Effects: 1, Shared: 1}, Lost},
		{"lapsed", Case{HTTPCall, Slow, NoKill}, Evidence{Ended: completed, Effects: 1, Lapsed: 1}, Hidden},
		{"lapsed on a slow machine", plain, Evidence{Ended: completed, Effects: 1, Lapsed: 1}, Pass},
		{"declined", Case{HTTPCall, Declines, NoKill}, Evidence{Ended: errored}, Pass},
		{"declined and failed", Case{HTTPCall, Declines, NoKill}, Evidence{Ended: failed}, Pass},
		{"read a file", Case{CSVRead, Plain, NoKill}, Evidence{Ended: completed}, Pass},
	} {
		got, why := judge(c.Case, &c.Evidence, c.due(), time.Second)
		if got != c.want || got.Bad() != (why != "" && got != Reported) {
			t.Errorf("%s: %s (%s), want %s", c.name, got, why, c.want)
		}
	}
}

// What a handler of one's own does when nobody kills it is always looked at: the other cases are judged by it.
func TestCases(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		Options
		want string
	}{
		{Options{Handlers: []string{"own"}, Points: []Point{AfterEffect}}, "[own plain after-effect own plain none]"},
		{Options{Handlers: []string{HTTPCall}, Points: []Point{AfterEffect}}, "[http.call plain after-effect]"},
		{Options{Handlers: []string{HTTPCall, CSVRead}, Points: []Point{NoKill}, Scenarios: []Scenario{Plain, Slow}}, "[http.call plain none http.call slow none csv.read plain none]"},
	} {
		if got, err := c.cases(); err != nil || fmt.Sprint(got) != c.want {
			t.Errorf("%v: %v (%v)", c.Handlers, got, err)
		}
	}
}

func sample() *Report {
	cases := []Case{{"own", Plain, NoKill}, {"own", Plain, AfterEffect}, {"own", Plain, AfterReserve}, {HTTPCall, Plain, AfterEffect}}
	return report(cases, []Evidence{
		{Ended: completed, Effects: 2},
		{Ended: completed, Effects: 3, Killed: true, Seconds: 0.25},
		{Ended: completed, Effects: 2},
		{Effects: 1, Killed: true, InDoubt: []string{"a/0"}},
	}, time.Second, 1500*time.Millisecond)
}

// Of a handler of one's own, as many effects are due as it has when nobody kills it.
func TestReport(t *testing.T) {
	t.Parallel()
	r := sample()
	if r.Bad() != 1 || r.Verdicts[Duplicate] != 1 || r.Verdicts[Pass] != 2 || r.Verdicts[Reported] != 1 {
		t.Errorf("%v", r.Verdicts)
	}
	var table, js, junit bytes.Buffer
	for _, err := range []error{r.WriteTable(&table), r.WriteJSON(&js), r.WriteJUnit(&junit)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{
		"own        plain     after-effect  3        0         0         DUPLICATE: the effect happened 3 times",
		"http.call  plain     after-effect  1        0         1         in doubt, reported",
		"marks the point:\n  own plain after-reserve\n",
		"4 tasks in 1.5 s: 2 pass; 1 in doubt, reported; 1 duplicate; 0 lost; 0 in doubt, hidden",
	} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in\n%s", want, table.String())
		}
	}
	var back struct {
		Verdicts map[string]int
		Tasks    []map[string]any
	}
	if err := json.Unmarshal(js.Bytes(), &back); err != nil || len(back.Tasks) != 4 || back.Verdicts["lost"] != 0 || back.Verdicts["duplicate"] != 1 {
		t.Errorf("%v\n%s", err, js.String())
	}
	if one := back.Tasks[1]; one["handler"] != "own" || one["kill_point"] != "after-effect" || one["verdict"] != "duplicate" || one["effects"] != 3.0 || one["killed"] != true {
		t.Errorf("%v", one)
	}
	var suite struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Skipped  int `xml:"skipped,attr"`
		Cases    []struct {
			Name    string `xml:"name,attr"`
			Time    string `xml:"time,attr"`
			Skipped *struct {
				Message string `xml:"message,attr"`
			} `xml:"skipped"`
			Failure *struct {
				Message string `xml:"message,attr"`
			} `xml:"failure"`
		} `xml:"testcase"`
	}
	if err := xml.Unmarshal(junit.Bytes(), &suite); err != nil || suite.Tests != 4 || suite.Failures != 1 || suite.Skipped != 1 || len(suite.Cases) != 4 {
		t.Fatalf("%v\n%s", err, junit.String())
	}
	if c := suite.Cases[2]; c.Skipped == nil || !strings.Contains(c.Skipped.Message, "not killed") {
		t.Errorf("a point that was not reached: %s", junit.String())
	}
	if c := suite.Cases[1]; c.Time != "0.250" || c.Skipped != nil || c.Failure == nil || c.Failure.Message != "the effect happened 3 times" || suite.Cases[0].Failure != nil {
		t.Errorf("%s", junit.String())
	}
}

// A proxy in the environment is not for what runs on loopback.
func TestWorkersCallWithoutAProxy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ upper, lower, want string }{
		{"", "", "NO_PROXY=127.0.0.1 no_proxy=127.0.0.1"},
		{"a.example", "", "NO_PROXY=a.example,127.0.0.1 no_proxy=a.example,127.0.0.1"},
		{"a.example", "b.example,c.example", "NO_PROXY=a.example,127.0.0.1 no_proxy=b.example,c.example,127.0.0.1"},
		{"", "*", "NO_PROXY=* no_proxy=*"},
	} {
		got := strings.Join(direct(func(name string) string { return map[string]string{"NO_PROXY": c.upper, "no_proxy": c.lower}[name] }), " ")
		if got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

func TestFiles(t *testing.T) {
	t.Parallel()
	f, err := newFiles(filepath.Join(t.TempDir(), "case"), CSVWrite)
	if err != nil {
		t.Fatal(err)
	}
	const table = "id,name,amount\n1,\"Ada, the first\",12.50\n2,\"Grace \"\"Amazing\"\"\",7\n"
	for _, c := range []struct {
		text  string
		times int
		torn  bool
	}{{table, 1, false}, {strings.ReplaceAll(table, "\n", "\r\n"), 1, false}, {table + table, 2, false}, {table[:40], 0, true}, {table + "3,", 0, true}, {table + "3,x,y\n", 1, true}, {"", 0, false}} {
		if err := os.WriteFile(f.path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if times, torn := f.written(); times != c.times || torn != c.torn {
			t.Errorf("%q: %d times, torn %v", c.text, times, torn)
		}
	}
	if f.told() != 0 {
		t.Error("effects without a file of that name")
	}
	if err := os.WriteFile(filepath.Join(f.dir, "effects"), []byte("one\ntwo\n"), 0o600); err != nil || f.told() != 2 {
		t.Errorf("told %d (%v)", f.told(), err)
	}
	read, err := newFiles(filepath.Join(t.TempDir(), "case"), CSVRead)
	if err != nil {
		t.Fatal(err)
	}
	if times, torn := read.written(); times != 1 || torn {
		t.Errorf("what is to be read: %d, torn %v", times, torn)
	}
}
