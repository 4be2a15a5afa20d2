package server

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
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
	maxKeysBody  = 512 << 10
	maxBatchBody = 32 << 20
	maxDrain     = 128 << 20
	jsonGrowth   = 6

	// maxBodies bounds what is in memory of all bodies together, from when it arrives until the request is answered. Of each
	// the first maxSmallBody bytes do not count: whoever only reserves never waits for those who send megabytes.
	maxBodies = 128 << 20
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
var errMediaType = errors.New("send the body with Content-Type: application/json, and without Content-Encoding")

// errCrowded says that the bodies of other requests leave no room for this one.
var errCrowded = fmt.Errorf("%w: too many large requests at once", idem.ErrBusy)

// metered counts what is read of a body among those of all requests.
type metered struct {
	io.Reader
	s    *Server
	req  *request
	free int // bytes to come that do not count
}

func (m *metered) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	free := min(n, m.free)
	m.free -= free
	if counted := int64(n - free); counted > 0 {
		m.req.held += counted
		if m.s.bodies.Add(counted) > maxBodies {
			return n, errCrowded
		}
	}
	return n, err
}

// letGo gives back the room that a request's body has taken.
func (s *Server) letGo(req *request) {
	s.bodies.Add(-req.held)
	req.held = 0
}

// readBody reads a request's body up to a cap. Memory is taken for what arrives, not for what is announced.
func (s *Server) readBody(r *http.Request, limit int64) ([]byte, error) {
	if err := noQuery(r); err != nil {
		return nil, err
	}
	if !saysJSON(r.Header.Get("Content-Type")) || encoded(r.Header.Get("Content-Encoding")) {
		return nil, errMediaType
	}
	if r.ContentLength > limit {
		return nil, &errTooLarge{limit: limit}
	}
	var body bytes.Buffer
	body.Grow(int(min(max(r.ContentLength, 0), maxSmallBody)) + bytes.MinRead)
	_, err := body.ReadFrom(&metered{io.LimitReader(r.Body, limit+1), s, requestOf(r.Context()), maxSmallBody})
	switch {
	case errors.Is(err, errCrowded):
		return nil, err
	case int64(body.Len()) > limit:
		return nil, &errTooLarge{limit: limit}
	case err != nil:
		return nil, &idem.FieldError{Field: "body", Reason: "did not arrive whole"}
	}
	return body.Bytes(), nil
}

// refuseUnread sends an answer to a request of which too much was announced or came, and then lets its body run out,
// within bounds: a client that is still sending when the connection closes sees a broken pipe and not the answer, and
// would try again for ever. One that asked first (Expect: 100-continue) is not sending.
func refuseUnread(w http.ResponseWriter, r *http.Request, send func()) {
	connection := http.NewResponseController(w)
	_ = connection.EnableFullDuplex() // to answer before the body was read; HTTP/2 always can
	w.Header().Set("Connection", "close")
	send()
	_ = connection.Flush()
	if r.Header.Get("Expect") == "" {
		_, _ = io.CopyN(io.Discard, r.Body, maxDrain)
	}
}

func encoded(contentEncoding string) bool {
	return contentEncoding != "" && !strings.EqualFold(contentEncoding, "identity")
}

// noQuery refuses a query where the body says everything: whoever put wait_seconds there would not wait.
func noQuery(r *http.Request) error {
	if r.URL.RawQuery == "" {
		return nil
	}
	name, _, _ := strings.Cut(r.URL.RawQuery, "=")
	if plain, err := url.QueryUnescape(name); err == nil {
		name = plain
	}
	return &idem.FieldError{Field: cmp.Or(name, "query"), Reason: "belongs into the body: this call takes no query"}
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

// unknownMembers adds the members of an object, and of the objects in it, that the struct does not have. Past
// maxIgnored there is no use in more.
func unknownMembers(object jsontext.Value, t reflect.Type, prefix string, unknown []string) ([]string, error) {
	known := make(map[string]reflect.Type)
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		known[name] = f.Type
	}
	dec := jsontext.NewDecoder(bytes.NewReader(object))
	if _, err := dec.ReadToken(); err != nil {
		return nil, fault(err)
	}
	for dec.PeekKind() != '}' {
		token, err := dec.ReadToken()
		if err != nil {
			return nil, fault(err)
		}
		name := token.String()
		value, err := dec.ReadValue()
		if err != nil {
			return nil, fault(err)
		}
		lower := strings.ToLower(name)
		inner, ok := known[name]
		switch {
		case ok && value.Kind() == '{' && inner.Kind() == reflect.Pointer && inner.Elem().Kind() == reflect.Struct:
			if unknown, err = unknownMembers(value.Clone(), inner.Elem(), prefix+name+".", unknown); err != nil {
				return nil, err
			}
		case ok:
		case known[lower] != nil:
			return nil, &idem.FieldError{Field: prefix + name, Reason: "must be written " + lower}
		case len(unknown) < maxIgnored:
			unknown = append(unknown, prefix+name)
		}
	}
	slices.Sort(unknown)
	return unknown, nil
}

// maxIgnored is how many ignored members are named.
const maxIgnored = 100

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
