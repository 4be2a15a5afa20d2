package server

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/idemstore/idemstore/internal/idem"
)

// Caps on what is read of a request. Text may take six bytes a character in JSON (\u0000), so a body that carries a
// response may be that much larger than the response.
const (
	maxSmallBody = 64 << 10
	maxBatchBody = 32 << 20
	jsonGrowth   = 6
)

// errTooLarge says that a request, or the response that it carries, is over its cap.
type errTooLarge struct {
	limit    int64
	response bool // the carried response's body is, not the request
}

func (e *errTooLarge) Error() string {
	if e.response {
		return fmt.Sprintf("the response's body is larger than %d bytes; record it with body_omitted: true, body_sha256 and body_size", e.limit)
	}
	return fmt.Sprintf("the request is larger than %d bytes", e.limit)
}

// errMediaType says that a body did not say application/json.
var errMediaType = errors.New("send the body with Content-Type: application/json")

// readBody reads a request's body up to a cap. A body that announces more is refused before any of it is read.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if !saysJSON(r.Header.Get("Content-Type")) {
		return nil, errMediaType
	}
	if r.ContentLength > limit {
		return nil, &errTooLarge{limit: limit}
	}
	var body []byte
	var err error
	if in := http.MaxBytesReader(w, r.Body, limit); r.ContentLength >= 0 {
		body = make([]byte, r.ContentLength)
		_, err = io.ReadFull(in, body)
	} else {
		body, err = io.ReadAll(in)
	}
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return nil, &errTooLarge{limit: limit}
	case err != nil:
		return nil, &idem.FieldError{Field: "body", Reason: "did not arrive whole"}
	}
	return body, nil
}

func saysJSON(contentType string) bool {
	if contentType == "application/json" {
		return true
	}
	kind, params, err := mime.ParseMediaType(contentType)
	charset, ok := params["charset"]
	return err == nil && kind == "application/json" && (!ok || strings.EqualFold(charset, "utf-8"))
}

// strict refuses what it does not understand, and names it: unknown and repeated members, members in another letter
// case, wrong types, numbers out of range, invalid UTF-8, trailing data.
func strict(body []byte, into any) error {
	if jsontext.Value(body).Kind() == 'n' { // null, which JSON would take for a struct without members
		return &idem.FieldError{Field: "body", Reason: "must be an object"}
	}
	return fault(json.Unmarshal(body, into, json.RejectUnknownMembers(true)))
}

// lenient takes a record, which is refused for no member that it has too many: a fact would be lost. It returns the
// names of those that it ignored. A known member in another letter case is refused, being more likely a slip.
func lenient(body []byte, into any) (ignored []string, err error) {
	if err = strict(body, into); err == nil {
		return nil, nil
	}
	var f *idem.FieldError
	if !errors.As(err, &f) || f.Reason != unknownMember {
		return nil, err
	}
	if err = fault(json.Unmarshal(body, into)); err != nil {
		return nil, err
	}
	return unknownMembers(body, reflect.TypeOf(into).Elem(), "", nil)
}

// unknownMembers adds the members of an object, and of the objects in it, that the struct does not have.
func unknownMembers(object jsontext.Value, t reflect.Type, prefix string, unknown []string) ([]string, error) {
	var members map[string]jsontext.Value
	if err := json.Unmarshal(object, &members); err != nil {
		return nil, fault(err)
	}
	known := make(map[string]reflect.Type)
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		known[name] = f.Type
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		lower := strings.ToLower(name)
		inner, ok := known[name]
		switch {
		case ok && inner.Kind() == reflect.Pointer && inner.Elem().Kind() == reflect.Struct:
			var err error
			if unknown, err = unknownMembers(members[name], inner.Elem(), prefix+name+".", unknown); err != nil {
				return nil, err
			}
		case ok:
		case known[lower] != nil:
			return nil, &idem.FieldError{Field: prefix + name, Reason: "must be written " + lower}
		default:
			unknown = append(unknown, prefix+name)
		}
	}
	return unknown, nil
}

const unknownMember = "is not a field of this request"

// fault says in words which field cannot be.
func fault(err error) error {
	if err == nil {
		return nil
	}
	var semantic *json.SemanticError
	if errors.As(err, &semantic) {
		field := fieldOf(semantic.JSONPointer)
		switch {
		case errors.Is(err, json.ErrUnknownName):
			return &idem.FieldError{Field: field, Reason: unknownMember}
		case semantic.GoType != nil:
			return &idem.FieldError{Field: field, Reason: "must be " + wanted(semantic.GoType)}
		}
		return &idem.FieldError{Field: field, Reason: "has a value that cannot be"}
	}
	var syntactic *jsontext.SyntacticError
	if errors.As(err, &syntactic) {
		field := fieldOf(syntactic.JSONPointer)
		switch {
		case errors.Is(err, jsontext.ErrDuplicateName):
			return &idem.FieldError{Field: field, Reason: "stands there twice"}
		case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
			return &idem.FieldError{Field: field, Reason: "ends too early: the JSON is not whole"}
		}
		return &idem.FieldError{Field: field, Reason: fmt.Sprintf("is not JSON, at byte %d", syntactic.ByteOffset)}
	}
	return &idem.FieldError{Field: "body", Reason: "is not the JSON that is wanted"}
}

// wanted names the JSON type that a Go type takes, in the reader's words.
func wanted(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "a whole number in range"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "a string of base64 (RFC 4648, section 4, padded)"
		}
		return "an array"
	default:
		return "an object"
	}
}

// fieldOf writes a JSON pointer as a path: /takeovers/0/fence is takeovers[0].fence.
func fieldOf(p jsontext.Pointer) string {
	var path strings.Builder
	for token := range p.Tokens() {
		if _, err := strconv.Atoi(token); err == nil && path.Len() > 0 {
			fmt.Fprintf(&path, "[%s]", token)
			continue
		}
		if path.Len() > 0 {
			path.WriteByte('.')
		}
		path.WriteString(token)
	}
	if path.Len() == 0 {
		return "body"
	}
	return path.String()
}
