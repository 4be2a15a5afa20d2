package audit

import (
	"io"
	"strings"
	"unicode/utf8"
)

// table writes rows in columns. It may be given more rows later: columns stay where they are, or grow.
type table struct {
	out    io.Writer
	head   []string // one that begins with > is a column of numbers, set to the right
	widths []int
	begun  bool
}

func newTable(out io.Writer, head ...string) *table {
	return &table{out: out, head: head, widths: make([]int, len(head))}
}

// rows writes some rows, under the head if they are the first. Cells may hold anything.
func (t *table) rows(rows ...[]string) error {
	var lines [][]string
	if !t.begun {
		t.begun = true
		names := make([]string, len(t.head))
		for i, name := range t.head {
			names[i] = strings.TrimPrefix(name, ">")
		}
		lines = append(lines, names)
	}
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = safe(cell)
		}
		lines = append(lines, cells)
	}
	for _, cells := range lines {
		for i, cell := range cells {
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cell))
		}
	}
	var text strings.Builder
	for _, cells := range lines {
		var line strings.Builder
		for i, cell := range cells {
			gap := strings.Repeat(" ", t.widths[i]-utf8.RuneCountInString(cell))
			if strings.HasPrefix(t.head[i], ">") {
				line.WriteString(gap + cell + "  ")
			} else {
				line.WriteString(cell + gap + "  ")
			}
		}
		text.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(t.out, text.String())
	return err
}
