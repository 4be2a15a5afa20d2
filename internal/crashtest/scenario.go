package crashtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Point is a moment of a worker's life at which it can be killed. Each is marked by a request that the worker makes.
type Point string

const (
	NoKill        Point = "none"
	BeforeReserve Point = "before-reserve"  // the reserve is seen, and not passed on
	AfterReserve  Point = "after-reserve"   // the grant is committed, and its answer withheld
	BeforeEffect  Point = "before-effect"   // the request is seen at the upstream, and not acted upon
	AfterEffect   Point = "after-effect"    // the upstream has acted, and its answer is withheld
	BeforeRecord  Point = "before-record"   // the record is seen, and not passed on
	AfterRecord   Point = "after-record"    // the record is committed, and its answer withheld
	BeforeEnd     Point = "before-complete" // complete (or failure, or bpmn-error) is seen, and not carried out
	WhileRenewed  Point = "during-renewed-lease"
)

// Points are all of them, in the order of a worker's life.
var Points = []Point{NoKill, BeforeReserve, AfterReserve, BeforeEffect, AfterEffect, BeforeRecord, AfterRecord, BeforeEnd, WhileRenewed}

// Scenario is what the upstream does.
type Scenario string

const (
	Plain    Scenario = "plain"    // acts and answers 201
	Slow     Scenario = "slow"     // acts, and answers only when a lease that was not renewed would have passed
	Refuses  Scenario = "refuses"  // cannot be connected to at first
	Declines Scenario = "declines" // answers 402 and does not act: a result
	Fails    Scenario = "fails"    // answers 503 once and does not act
	Falters  Scenario = "falters"  // acts, and answers 500 once
	Drops    Scenario = "drops"    // acts, and drops the connection once
)

// Scenarios are all of them.
var Scenarios = []Scenario{Plain, Slow, Refuses, Declines, Fails, Falters, Drops}

// Handlers that the crash test knows what to expect of. All others are judged by what they do when nobody is killed.
const (
	HTTPCall      = "http.call"       // a write to an upstream that ignores Idempotency-Key
	HTTPCallKeyed = "http.call.keyed" // a write to an upstream that honours it
	HTTPGet       = "http.get"        // a read
	CSVRead       = "csv.read"
	CSVWrite      = "csv.write"
)

// Case is one life of a worker with one task.
type Case struct {
	Handler  string   `json:"handler"`
	Scenario Scenario `json:"scenario"`
	Point    Point    `json:"kill_point"`
}

func (c Case) String() string { return fmt.Sprintf("%s %s %s", c.Handler, c.Scenario, c.Point) }

// known says whether it is known beforehand how many effects are due.
func (c Case) known() bool {
	return slices.Contains([]string{HTTPCall, HTTPCallKeyed, HTTPGet, CSVRead, CSVWrite}, c.Handler)
}

// usual says whether the others of its handler are judged by what is done in it.
func (c Case) usual() bool { return !c.known() && c.Scenario == Plain && c.Point == NoKill }

// due is how many effects are.
func (c Case) due() int {
	if c.Scenario == Declines || c.Handler == CSVRead { // nobody sees a file being read
		return 0
	}
	return 1
}

// casesOf are the cases worth running of a handler. Where the upstream misbehaves, only those points are among them that
// another state of the key makes different from the plain scenario.
func casesOf(handler string) []Case {
	plain := Points[:len(Points)-1]
	points := map[Scenario][]Point{Plain: plain}
	switch handler {
	case HTTPCall, HTTPCallKeyed:
		points[Slow] = []Point{NoKill, WhileRenewed}
		points[Refuses] = []Point{NoKill}
		points[Declines] = []Point{NoKill, BeforeRecord, AfterRecord, BeforeEnd}
		points[Fails] = []Point{NoKill, BeforeEnd}
		points[Falters] = []Point{NoKill}
		points[Drops] = []Point{NoKill, BeforeEnd}
	case HTTPGet:
		points[Plain] = []Point{NoKill, BeforeEffect, AfterEffect, BeforeEnd}
	case CSVRead:
		points[Plain] = []Point{NoKill, BeforeEnd}
	case CSVWrite:
		points[Plain] = []Point{NoKill, BeforeReserve, AfterReserve, BeforeRecord, AfterRecord, BeforeEnd}
	}
	var cases []Case
	for _, scenario := range Scenarios {
		for _, point := range points[scenario] {
			cases = append(cases, Case{Handler: handler, Scenario: scenario, Point: point})
		}
	}
	return cases
}

// cases are those that were asked for.
func (o *Options) cases() ([]Case, error) {
	if err := checkNames("kill point", o.Points, Points); err != nil {
		return nil, err
	}
	if err := checkNames("scenario", o.Scenarios, Scenarios); err != nil {
		return nil, err
	}
	if len(o.Handlers) == 0 {
		return nil, errors.New("no handler is named; say by --handler what the worker handles")
	}
	var cases []Case
	for i, handler := range o.Handlers {
		if handler == "" || slices.Contains(o.Handlers[:i], handler) {
			return nil, fmt.Errorf("handler %q: each wants a name, and is named once", handler)
		}
		of := slices.DeleteFunc(casesOf(handler), func(c Case) bool {
			return len(o.Points) > 0 && !slices.Contains(o.Points, c.Point) ||
				len(o.Scenarios) > 0 && !slices.Contains(o.Scenarios, c.Scenario)
		})
		if len(of) == 0 {
			return nil, fmt.Errorf("handler %s has no case with these kill points and scenarios", handler)
		}
		if usual := (Case{handler, Plain, NoKill}); !usual.known() && !slices.Contains(of, usual) {
			of = append(of, usual) // by which the others are judged
		}
		cases = append(cases, of...)
	}
	return cases, nil
}

func checkNames[T ~string](what string, given, known []T) error {
	for _, name := range given {
		if !slices.Contains(known, name) {
			return fmt.Errorf("there is no %s %q; there are %s", what, name, join(known))
		}
	}
	return nil
}

func join[T ~string](names []T) string {
	words := make([]string, len(names))
	for i, n := range names {
		words[i] = string(n)
	}
	return strings.Join(words, ", ")
}
