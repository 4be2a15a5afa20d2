package crashtest

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// rows are what csv.write is to write.
var rows = [][]string{{"id", "name", "amount"}, {"1", "Ada, the first", "12.50"}, {"2", `Grace "Amazing"`, "7"}}

// files are the directory of a case, in which a worker's handlers read and write.
type files struct {
	dir  string
	path string // of the file of csv.read and csv.write
	tmp  string // for the worker's temporary files, many of which a kill leaves
}

func newFiles(dir, handler string) (files, error) {
	f := files{dir: dir, path: filepath.Join(dir, "table.csv"), tmp: dir + ".tmp"}
	for _, d := range []string{f.dir, f.tmp} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return f, err
		}
	}
	if handler != CSVRead {
		return f, nil
	}
	var text bytes.Buffer
	w := csv.NewWriter(&text)
	_ = w.WriteAll(rows) // into memory
	return f, os.WriteFile(f.path, text.Bytes(), 0o600)
}

// written says how often the rows stand in the file, and whether something else does.
func (f files) written() (times int, torn bool) {
	text, err := os.ReadFile(f.path)
	if err != nil {
		return 0, false
	}
	got, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	for err == nil && len(got) >= len(rows) && reflect.DeepEqual(got[:len(rows)], rows) {
		times++
		got = got[len(rows):]
	}
	return times, err != nil || len(got) > 0
}

// told is how many effects a handler has told of that nobody else can see: a line each in the file effects.
func (f files) told() int {
	text, _ := os.ReadFile(filepath.Join(f.dir, "effects")) // most write none
	return bytes.Count(text, []byte("\n"))
}

// openLog makes the file for the worker's output.
func openLog(logDir, dir string, c Case) (*os.File, error) {
	name := dir + ".log"
	if logDir != "" {
		if err := os.MkdirAll(logDir, 0o777); err != nil {
			return nil, fmt.Errorf("--log-dir: %w", err)
		}
		plain := func(r rune) rune {
			if r == '/' || r <= ' ' {
				return '_'
			}
			return r
		}
		name = filepath.Join(logDir, strings.Map(plain, fmt.Sprintf("%s-%s-%s.log", c.Handler, c.Scenario, c.Point)))
	}
	file, err := os.Create(name)
	if err != nil && logDir != "" {
		return nil, fmt.Errorf("--log-dir: %w", err)
	}
	return file, err
}

// variablesOf gives values their types, by name in order.
func variablesOf(values map[string]any) []variable {
	list := make([]variable, 0, len(values))
	for name, value := range values {
		list = append(list, variable{Name: name, Type: typeOf(value), Value: value})
	}
	slices.SortFunc(list, func(a, b variable) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func typeOf(value any) string {
	switch v := value.(type) {
	case nil:
		return "Null"
	case string:
		return "String"
	case bool:
		return "Boolean"
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return "Long"
		}
		return "Double"
	default:
		return "Json"
	}
}
