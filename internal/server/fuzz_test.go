package server

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/rs/zerolog"

	"github.com/idemstore/idemstore/internal/idem"
)

// The seeds of these tests are in testdata/fuzz, and what they have found is beside them.

// decoding is a server that only reads.
func decoding() *Server {
	return New(nil, nil, new(Tokens), zerolog.Nop(), Config{
		MaxBodyBytes: 1 << 10, KeyTemplate: DefaultKeyTemplate, DeniedHeaders: DefaultDeniedHeaders,
	})
}

var fuzzCall = idem.Call{Key: idem.Key{TaskID: "t"}, Actor: idem.Actor{Token: "anonymous", RequestID: "r"}}

// refusedWell checks that an error is one that a caller is told, and that the telling is sound.
func refusedWell(t *testing.T, s *Server, err error) {
	t.Helper()
	a := s.faultOf(&request{id: "r", identity: anonymous}, err)
	if a.status < 400 || a.status > 499 {
		t.Fatalf("answered %d: %v", a.status, err)
	}
	var field *idem.FieldError
	if errors.As(err, &field) && (field.Field == "" || field.Reason == "") {
		t.Fatalf("a fault that says nothing: %#v", field)
	}
	if out := encode(a.body); !utf8.Valid(out) || !json.Valid(out) {
		t.Fatalf("an answer that is no JSON: %q", out)
	}
}

// understoodWell checks that a command keeps every limit and can be carried out.
func understoodWell(t *testing.T, s *Server, a ask) {
	t.Helper()
	if err := a.cmd.Validate(); err != nil {
		t.Fatalf("taken, and yet: %v", err)
	}
	if a.wait < 0 || a.wait > idem.MaxWaitSeconds*time.Second {
		t.Fatalf("a wait of %s", a.wait)
	}
	var r *idem.Response
	switch cmd := a.cmd.(type) {
	case *idem.Record:
		r = cmd.Response
	case *idem.Release:
		r = cmd.Response
	case *idem.Resolve:
		r = cmd.Response
	}
	if r == nil {
		return
	}
	if int64(len(r.Body)) > s.config.MaxBodyBytes || len(r.Headers) > idem.MaxHeaders || r.Omitted && r.HasBody {
		t.Fatalf("a response over its limits: %+v", r)
	}
	for _, h := range r.Headers {
		if s.denied[strings.ToLower(h[0])] {
			t.Fatalf("%s is kept", h[0])
		}
	}
	if out := encode(response(r, false)); !json.Valid(out) {
		t.Fatalf("a response that cannot be replayed: %q", out)
	}
}

// FuzzBody reads a body as each verb does.
func FuzzBody(f *testing.F) {
	s := decoding()
	readers := []reader{readReserve, readDispatch, readRenew, readRecord, readRelease, readResolve}
	f.Fuzz(func(t *testing.T, verb byte, body []byte) {
		a, err := readers[int(verb)%len(readers)](s, fuzzCall, body)
		if err != nil {
			refusedWell(t, s, err)
			return
		}
		if !utf8.Valid(body) || !json.Valid(body) {
			t.Fatalf("taken, and no JSON: %q", body)
		}
		understoodWell(t, s, a)
	})
}

// FuzzItems takes a batch apart.
func FuzzItems(f *testing.F) {
	s := decoding()
	f.Fuzz(func(t *testing.T, lenientOutside bool, body []byte) {
		items, err := readItems(body, lenientOutside)
		if err != nil {
			refusedWell(t, s, err)
			return
		}
		if len(items) > idem.MaxBatch {
			t.Fatalf("%d items", len(items))
		}
		if err := wellFormed(body); err != nil {
			t.Fatalf("taken apart, and yet: %v", err)
		}
		for _, item := range items {
			a, err := readReserve(s, fuzzCall, item)
			if lenientOutside {
				a, err = readRecord(s, fuzzCall, item)
			}
			if err != nil {
				refusedWell(t, s, err)
				continue
			}
			understoodWell(t, s, a)
		}
	})
}

// FuzzHeaders reads headers in both forms. What was read is read again from what is replayed.
func FuzzHeaders(f *testing.F) {
	f.Fuzz(func(t *testing.T, value []byte) {
		if !jsontext.Value(value).IsValid() {
			return // it comes from a body that was read as JSON
		}
		headers, err := readHeaders(value)
		if err != nil {
			refusedWell(t, decoding(), err)
			return
		}
		replayed, err := json.Marshal(headers)
		if err != nil {
			t.Fatal(err)
		}
		again, err := readHeaders(replayed)
		if err != nil || !slices.Equal(again, headers) {
			t.Fatalf("%q became %q, %v", headers, again, err)
		}
	})
}

// FuzzQuery reads a query as each call that takes one does.
func FuzzQuery(f *testing.F) {
	s := decoding()
	f.Fuzz(func(t *testing.T, query string) {
		r := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/v1/entries", RawQuery: query}}
		told := func(err error) bool {
			if err != nil {
				refusedWell(t, s, err)
			}
			return err == nil
		}
		if q, err := readEntryQuery(r); told(err) && (q.Limit < 1 || q.Limit > idem.MaxPage || q.Validate() != nil) {
			t.Fatalf("entries: %+v", q)
		}
		for _, whole := range []bool{false, true} {
			if q, err := readEventQuery(r, whole); told(err) && (q.Limit < 1 || q.Limit > idem.MaxPage || q.Validate() != nil) {
				t.Fatalf("events: %+v", q)
			}
		}
		if a, _, err := readReplay(fuzzCall, r); told(err) {
			understoodWell(t, s, a)
		}
		filters := filtersOf(r, "after", "before")
		filters.time("after")
		told(filters.fault)
	})
}

// FuzzCursor reads a cursor of each kind. What is taken for one is written the same way again.
func FuzzCursor(f *testing.F) {
	f.Fuzz(func(t *testing.T, cursor string) {
		for _, m := range []mark{new(entryMark), new(eventMark), new(heldMark)} {
			if err := readCursor(cursor, m); err != nil {
				refusedWell(t, decoding(), err)
				continue
			}
			again := reflect.New(reflect.TypeOf(m).Elem()).Interface().(mark)
			if err := readCursor(*writeCursor(m), again); err != nil || !reflect.DeepEqual(m, again) {
				t.Fatalf("%+v became %+v, %v", m, again, err)
			}
		}
	})
}

// FuzzTokens reads a tokens file. Its faults quote nothing of it but names, and a file with a fault changes nothing.
func FuzzTokens(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string) {
		secret, line, err := NewToken("known", []Role{RoleWorker})
		if err != nil {
			t.Fatal(err)
		}
		var tokens Tokens
		if err := tokens.Load(line); err != nil {
			t.Fatal(err)
		}
		if err := tokens.Load(text); err != nil {
			if _, ok := tokens.identify("Bearer " + secret); !ok {
				t.Fatal("a file with a fault took a token away")
			}
			for _, word := range strings.Fields(text) {
				if len(word) > 20 && (!tokenName.MatchString(word) || strings.HasPrefix(word, tokenPrefix)) && strings.Contains(err.Error(), word) {
					t.Fatalf("the fault quotes the file: %v", err)
				}
			}
			return
		}
		for _, tok := range *tokens.known.Load() {
			if !tokenName.MatchString(tok.Name) || len(tok.roles) == 0 {
				t.Fatalf("took %+v", tok.Identity)
			}
		}
		if _, ok := tokens.identify("Bearer " + secret); ok && !strings.Contains(text, strings.Fields(line)[2]) {
			t.Fatal("a token that is not in the file is known")
		}
	})
}

// FuzzCSV writes an event as a row and reads it back with encoding/csv, which takes CRLF inside a cell for LF.
func FuzzCSV(f *testing.F) {
	f.Fuzz(func(t *testing.T, handler, owner, reason, header, value string, body []byte, status int) {
		e := &idem.Event{
			ID: "01", Kind: idem.EventReleased, Key: fuzzCall.Key, Actor: fuzzCall.Actor, Handler: handler, Owner: owner, Detail: map[string]any{"reason": reason},
			Response: &idem.Response{Status: status, HasBody: true, Body: body, Headers: []idem.Header{{header, value}}},
		}
		row := csvLine(bytes.Clone(csvHeader), e)
		rows, err := csv.NewReader(bytes.NewReader(row)).ReadAll()
		if err != nil || len(rows) != 2 || len(rows[1]) != len(rows[0]) {
			t.Fatalf("%q: %d rows, %v", row, len(rows), err)
		}
		cells := make(map[string]string)
		for i, name := range rows[0] {
			cell := rows[1][i]
			cells[name] = cell
			if cell != "" && strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
				t.Fatalf("%s is a formula: %q", name, cell)
			}
		}
		same := func(name, want string) {
			want = strings.ReplaceAll(want, "\r\n", "\n")
			if got := cells[name]; got != want && got != "'"+want {
				t.Fatalf("%s: %q became %q", name, want, got)
			}
		}
		same("handler", handler)
		same("actor_owner", owner)
		if utf8.Valid(body) && bytes.IndexByte(body, 0) < 0 {
			same("response_body", string(body))
		}
		for _, name := range []string{"detail", "response_headers"} {
			if !json.Valid([]byte(cells[name])) {
				t.Fatalf("%s is no JSON: %q", name, cells[name])
			}
		}
		line := jsonLine(nil, e)
		if bytes.Count(line, []byte("\n")) != 1 || !json.Valid(line) {
			t.Fatalf("no line of JSON: %q", line)
		}
	})
}

// FuzzHeaderFields reads what a request's headers say: its id, its token, what it accepts, and what its body is.
func FuzzHeaderFields(f *testing.F) {
	f.Fuzz(func(t *testing.T, value string) {
		if id := requestID(value); len(id) < 1 || len(id) > 128 || strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' }) {
			t.Fatalf("%q became the id %q", value, id)
		}
		offered := []string{jsonType, ndjsonType, csvType}
		if form := preferred([]string{value}, offered); !slices.Contains(offered, form) {
			t.Fatalf("%q likes %q best", value, form)
		}
		saysJSON(value)
		encoded(value)
		var tokens Tokens
		_, line, err := NewToken("known", []Role{RoleWorker})
		if err == nil {
			err = tokens.Load(line)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := tokens.identify(value); ok {
			t.Fatalf("%q is somebody's token", value)
		}
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/healthz", nil)
		r.Header = http.Header{"X-Request-Id": {value}, "Accept": {value}, "Content-Type": {value}}
		decoding().ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			t.Fatalf("answered %d", w.Code)
		}
	})
}
