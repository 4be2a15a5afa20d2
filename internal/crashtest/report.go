package crashtest

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is what a run comes to.
type Report struct {
	Results  []Result        `json:"tasks"`
	Verdicts map[Verdict]int `json:"verdicts"`
	Seconds  float64         `json:"seconds"`
}

// Result is what one case comes to.
type Result struct {
	Case
	Verdict Verdict `json:"verdict"`
	Detail  string  `json:"detail,omitempty"`
	Evidence
}

// unreached says whether all went well only because the worker was not killed.
func (r *Result) unreached() bool { return r.Point != NoKill && !r.Killed && !r.Verdict.Bad() }

// report judges. Of a handler that nobody knows here, as many effects are due as it had when it was not killed.
func report(cases []Case, seen []Evidence, patience, took time.Duration) *Report {
	r := &Report{Verdicts: make(map[Verdict]int), Seconds: took.Seconds()}
	usual := make(map[string]int)
	for i, c := range cases {
		if c.usual() {
			usual[c.Handler] = seen[i].Effects
		}
	}
	for _, v := range Verdicts {
		r.Verdicts[v] = 0
	}
	for i, c := range cases {
		due := c.due()
		if !c.known() {
			due = usual[c.Handler]
		}
		verdict, detail := judge(c, &seen[i], due, patience)
		r.Verdicts[verdict]++
		r.Results = append(r.Results, Result{Case: c, Verdict: verdict, Detail: detail, Evidence: seen[i]})
	}
	return r
}

// Bad is how many cases went wrong.
func (r *Report) Bad() int {
	bad := 0
	for v, n := range r.Verdicts {
		if v.Bad() {
			bad += n
		}
	}
	return bad
}

// WriteTable writes it for people. What was not killed because its point was not reached, and went well, is named below.
func (r *Report) WriteTable(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "HANDLER\tUPSTREAM\tKILLED\tEFFECTS\tREPLAYED\tIN DOUBT\tVERDICT")
	var unreached []string
	for i := range r.Results {
		res := &r.Results[i]
		point := string(res.Point)
		switch {
		case res.Point == NoKill:
			point = "-"
		case res.unreached():
			unreached = append(unreached, res.Case.String())
			continue
		case !res.Killed:
			point += " (not reached)"
		}
		verdict := string(res.Verdict)
		if res.Verdict.Bad() {
			verdict = strings.ToUpper(verdict) + ": " + res.Detail
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%d\t%d\t%s\n", res.Handler, res.Scenario, point, res.Effects, res.Replayed, len(res.InDoubt), verdict)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if len(unreached) > 0 {
		fmt.Fprintf(w, "\nNot killed, for it never made the request that marks the point:\n  %s\n", strings.Join(unreached, "\n  "))
	}
	parts := make([]string, len(Verdicts))
	for i, v := range Verdicts {
		parts[i] = fmt.Sprintf("%d %s", r.Verdicts[v], v)
	}
	_, err := fmt.Fprintf(w, "\n%d tasks in %.1f s: %s\n", len(r.Results), r.Seconds, strings.Join(parts, "; "))
	return err
}

// WriteJSON writes it for programs.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Time     string      `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Time    string        `xml:"time,attr"`
	Failure *junitFailure `xml:"failure,omitempty"`
	Skipped *junitSkipped `xml:"skipped,omitempty"`
	Out     string        `xml:"system-out,omitempty"`
}

type junitFailure struct {
	Type    string `xml:"type,attr"`
	Message string `xml:"message,attr"`
}

type junitSkipped struct {
	Message string `xml:"message,attr"`
}

// WriteJUnit writes it for CI.
func (r *Report) WriteJUnit(w io.Writer) error {
	suite := junitSuite{Name: "idemstore crashtest", Tests: len(r.Results), Failures: r.Bad(), Time: junitTime(r.Seconds)}
	for i := range r.Results {
		res := &r.Results[i]
		c := junitCase{Class: "crashtest." + res.Handler, Name: fmt.Sprintf("%s, killed %s", res.Scenario, res.Point), Time: junitTime(res.Seconds)}
		switch {
		case res.Verdict.Bad():
			c.Failure = &junitFailure{Type: string(res.Verdict), Message: res.Detail}
		case res.unreached():
			suite.Skipped++
			c.Skipped = &junitSkipped{Message: "not killed, for it never made the request that marks the point"}
		default:
			c.Out = fmt.Sprintf("%s; %d effects, %d replayed", res.Verdict, res.Effects, res.Replayed)
		}
		suite.Cases = append(suite.Cases, c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(suite); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func junitTime(seconds float64) string { return strconv.FormatFloat(seconds, 'f', 3, 64) }
