package server

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/idemstore/idemstore"
	"github.com/idemstore/idemstore/internal/idem"
)

func TestEveryCodeHasAPage(t *testing.T) {
	t.Parallel()
	doc, err := openapi3.NewLoader().LoadFromData(idemstore.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, c := range doc.Components.Schemas["ProblemCode"].Value.Enum {
		documented = append(documented, c.(string))
	}
	var known []string
	for c := range pages {
		known = append(known, string(c))
	}
	slices.Sort(documented)
	slices.Sort(known)
	if !slices.Equal(known, documented) {
		t.Errorf("there are pages of %v; documented are %v", known, documented)
	}
	// And the status that its row in the document's table of problems says.
	statuses := make(map[code]int)
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([0-9]{3}) \\|").FindAllStringSubmatch(doc.Info.Description, -1) {
		statuses[code(row[1])], _ = strconv.Atoi(row[2])
	}
	for c, p := range pages {
		if p.status != statuses[c] {
			t.Errorf("%s is %d; documented is %d", c, p.status, statuses[c])
		}
		for _, text := range []string{p.title, p.means, p.todo} {
			if len(text) < 6 || strings.TrimSpace(text) != text {
				t.Errorf("the page of %s says %q", c, text)
			}
		}
	}
}

// Every code of a command is a success or has a page.
func TestEveryOutcomeIsKnown(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(gotoken.NewFileSet(), "../idem/outcome.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	codes := make(map[code]bool)
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && fmt.Sprint(spec.Type) == "Code" {
			value, _ := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			codes[code(value)] = true
		}
		return true
	})
	if len(codes) < 12 {
		t.Fatalf("found %v alone", codes)
	}
	for _, success := range []code{idem.CodeReserved, idem.CodeRecorded, idem.CodeDispatched, idem.CodeRenewed, idem.CodeReleased} {
		delete(codes, success)
	}
	for _, c := range slices.Sorted(maps.Keys(codes)) {
		if _, ok := pages[c]; !ok {
			t.Errorf("%s has no page", c)
		}
	}
	for c := range warns {
		if !codes[c] {
			t.Errorf("%s is warned of, and is no refusal", c)
		}
	}
}

func TestEveryErrorIsAProblem(t *testing.T) {
	t.Parallel()
	for _, e := range []struct {
		err  error
		want code
	}{
		{&idem.FieldError{Field: "x", Reason: "y"}, codeInvalidRequest},
		{fmt.Errorf("inside: %w", &idem.FieldError{Field: "x", Reason: "y"}), codeInvalidRequest},
		{&errTooLarge{limit: 1}, codeBodyTooLarge},
		{&errTooLarge{limit: 1, response: true}, codeBodyTooLarge},
		{errMediaType, codeUnsupportedMediaType},
		{idem.ErrBusy, codeTooManyRequests},
		{idem.ErrUnavailable, codeUnavailable},
		{context.Canceled, codeUnavailable},
		{context.DeadlineExceeded, codeUnavailable},
		{errors.New("anything"), codeInternal},
	} {
		a := new(Server).faultOf(&request{id: "r"}, e.err)
		if a.code != e.want || a.status != pages[e.want].status {
			t.Errorf("%v is %d %s", e.err, a.status, a.code)
		}
	}
}
