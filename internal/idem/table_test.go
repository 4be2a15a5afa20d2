package idem_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/idemstore/idemstore/internal/idem"
)

// word is what a cell of the table says: the answer, and what it leaves in the trail.
type word struct {
	code   idem.Code
	ok     bool
	first  bool
	events string
	write  bool  // a row changes
	fence  int64 // by how much the key's fence grows; a grant on an absent key begins at 1
}

// words are the cells' language. Beside them:
//
//   - the offered response, not the first, is in the trail (its kind is the word's)
//     !  the doubt was found for the first time, which is an event
//     ~  the end of a doubt by retention was found, which is an event
//     @  the answer tells of another attempt
var words = map[string]word{
	"grant":    {code: idem.CodeReserved, ok: true, write: true, fence: 1},
	"take":     {code: idem.CodeReserved, ok: true, write: true, fence: 1, events: "taken_over"},
	"same":     {code: idem.CodeReserved, ok: true},
	"replay":   {code: idem.CodeRecorded, ok: true, events: "replayed"},
	"mismatch": {code: idem.CodeRequestMismatch, events: "refused_mismatch", write: true},

	"dispatched": {code: idem.CodeDispatched, ok: true, write: true},
	"renewed":    {code: idem.CodeRenewed, ok: true, write: true},
	"revived":    {ok: true, write: true, fence: 1},

	"first":   {code: idem.CodeRecorded, ok: true, first: true, write: true},
	"in-step": {code: idem.CodeRecorded, ok: true, first: true, write: true, fence: 1}, // a grant ended in one step
	"late":    {code: idem.CodeRecorded, ok: true, first: true, write: true, events: "recorded_late"},
	"again":   {code: idem.CodeRecorded, ok: true},
	"again+":  {code: idem.CodeRecorded, ok: true, write: true, events: "duplicate_record"},

	"let":   {code: idem.CodeReleased, ok: true, write: true, events: "released"},
	"let?":  {code: idem.CodeInDoubt, ok: true, write: true, events: "released"},
	"nop":   {code: idem.CodeReleased, ok: true},
	"nop+":  {code: idem.CodeReleased, ok: true, write: true, events: "released"},
	"nop?":  {code: idem.CodeInDoubt, ok: true},
	"nop?+": {code: idem.CodeInDoubt, ok: true, write: true, events: "released"},

	"kept":    {code: idem.CodeRecorded, ok: true, first: true, write: true, events: "resolved"},
	"dropped": {code: idem.CodeReleased, ok: true, write: true, events: "resolved"},
	"gone":    {code: idem.CodeReleased, ok: true, write: true, events: "resolved"},
	"gone?":   {code: idem.CodeInDoubt, ok: true, write: true, events: "resolved"},

	"none":   {code: idem.CodeNotFound},
	"none+":  {code: idem.CodeNotFound, write: true, events: "refused_record"},
	"alien":  {code: idem.CodeNotHolder},
	"alien+": {code: idem.CodeNotHolder, write: true, events: "refused_record"},
	"taken":  {code: idem.CodeAlreadyRecorded},
	"taken+": {code: idem.CodeAlreadyRecorded, write: true, events: "duplicate_record"},
	"lost":   {code: idem.CodeLeaseLost},
	"lost+":  {code: idem.CodeLeaseLost, write: true, events: "refused_record"},
	"busy":   {code: idem.CodeInProgress},
	"busy+":  {code: idem.CodeInProgress, write: true, events: "refused_record"},
	"doubt":  {code: idem.CodeInDoubt},
	"doubt+": {code: idem.CodeInDoubt, write: true, events: "refused_record"},
}

// check holds a step against a cell.
func (s step) check(t *testing.T, cell string) {
	t.Helper()
	base := strings.Trim(cell, "!~@")
	want, known := words[base]
	if !known {
		t.Fatalf("the table has no word %q", cell)
	}
	events := strings.Fields(want.events)
	if strings.Contains(cell, "!") {
		events, want.write = append(events, "found_in_doubt"), true
	}
	if strings.Contains(cell, "~") {
		events, want.write = append(events, "purged"), true
	}
	slices.Sort(events)
	if base == "revived" {
		want.code = idem.CodeRenewed
		if _, ok := s.cmd.(*idem.Dispatch); ok {
			want.code = idem.CodeDispatched
		}
	}
	o := s.Outcome
	if o.Code != want.code || o.OK != want.ok || o.First != want.first || o.Repeated {
		t.Errorf("want %s: code %s ok %t first %t; have %s ok %t first %t repeated %t",
			cell, want.code, want.ok, want.first, o.Code, o.OK, o.First, o.Repeated)
	}
	if have := s.kinds(); !slices.Equal(have, events) {
		t.Errorf("want %s: events %v, have %v", cell, events, have)
	}
	own := s.cmd.Target().Attempt
	if other := o.Entry != nil && o.Entry.Attempt != own; other != strings.Contains(cell, "@") {
		t.Errorf("want %s: the answer tells of %v", cell, o.Entry)
	}
	if wrote := slices.ContainsFunc(s.Changes, func(c idem.Change) bool { return !c.Same }); wrote != want.write {
		t.Errorf("want %s: a row is written: %t, have %t", cell, want.write, wrote)
	}
	before, after := fenceAt(s.before[own], s), fenceAt(s.after[own], s)
	if want.ok && after != before+want.fence || !want.ok && after != before {
		t.Errorf("want %s: fence %d grows by %d, have %d", cell, before, want.fence, after)
	}
	if want.code == idem.CodeNotFound != (o.Entry == nil) {
		t.Errorf("want %s: entry %v", cell, o.Entry)
	}
}

func fenceAt(e *idem.Entry, s step) int64 {
	if e == nil || e.Expired(s.now) {
		return 0
	}
	return e.Fence
}

// column is one variant of a command. It is made anew for each cell.
type column struct {
	name string
	cmd  func(w *world) idem.Command
}

// table runs every cell of a table of states and columns. The first line of text names the columns, and every state and
// column must stand in it, rows once; states may share one.
func table(t *testing.T, text string, states []state, columns []column) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(text), "\n")
	head := strings.Fields(lines[0])[1:]
	if len(head) != len(columns) {
		t.Fatalf("the table has %d columns, want %d", len(head), len(columns))
	}
	rows := make(map[string][]string)
	for _, line := range lines[1:] {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if _, twice := rows[fields[0]]; twice || len(fields)-1 != len(columns) {
			t.Fatalf("row %s: twice %t, %d cells, want %d", fields[0], twice, len(fields)-1, len(columns))
		}
		rows[fields[0]] = fields[1:]
	}
	used := make(map[string]bool)
	for _, s := range states {
		name := cmp.Or(s.row, s.name)
		row, ok := rows[name]
		if !ok {
			t.Fatalf("state %s is missing", name)
		}
		used[name] = true
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			s.build(t, w)
			if have := describe(w.rows[0], w); s.want != "" && have != s.want {
				t.Fatalf("the state came out as %q, want %q", have, s.want)
			}
			for i, c := range columns {
				if head[i] != c.name {
					t.Fatalf("column %d is %s, want %s", i, head[i], c.name)
				}
				t.Run(c.name, func(t *testing.T) {
					f := w.fork()
					f.do(t, c.cmd(f)).check(t, row[i])
				})
			}
		})
	}
	for name := range rows {
		if !used[name] {
			t.Errorf("there is no state %s", name)
		}
	}
}

func describe(e *idem.Entry, w *world) string {
	if e == nil {
		return "none"
	}
	text := string(e.State)
	for _, mark := range []struct {
		is   bool
		text string
	}{
		{e.Live(w.now), " live"},
		{len(e.Doubts(w.now)) > 0, fmt.Sprintf(" doubts=%d", len(e.Doubts(w.now)))},
		{e.InDoubt(w.now), " in-doubt"},
		{e.Late, " late"},
		{e.Expired(w.now), " expired"},
	} {
		if mark.is {
			text += mark.text
		}
	}
	return text
}
