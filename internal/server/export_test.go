package server_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
)

const (
	csvType    = "text/csv"
	ndjsonType = "application/x-ndjson"
)

// ndjson reads an export of the trail, each line held to what an event has.
func (s *service) ndjson(t testing.TB, query string) (events []obj) {
	t.Helper()
	a := s.get(t, "/v1/events?"+query, "Accept", ndjsonType).ok()
	if got := a.header.Get("Content-Type"); got != ndjsonType {
		t.Errorf("Content-Type %q", got)
	}
	if len(a.raw) > 0 && !bytes.HasSuffix(a.raw, []byte("\n")) {
		t.Errorf("the last line has no end")
	}
	for line := range bytes.Lines(a.raw) {
		var event obj
		if err := json.Unmarshal(line, &event); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		inspectLook("event", event, func(format string, args ...any) { t.Errorf(format, append(args, line)...) })
		events = append(events, event)
	}
	return events
}

// csv reads an export as RFC 4180 says, by header.
func (s *service) csv(t testing.TB, query string) (rows []map[string]string) {
	t.Helper()
	a := s.get(t, "/v1/events?"+query, "Accept", csvType).ok()
	if got := a.header.Get("Content-Type"); got != "text/csv; charset=utf-8; header=present" {
		t.Errorf("Content-Type %q", got)
	}
	var header []string
	for i, cells := range rfc4180(t, string(a.raw)) {
		if i == 0 {
			header = cells
			continue
		}
		if len(cells) != len(header) {
			t.Fatalf("row %d has %d cells: %q", i, len(cells), cells)
		}
		row := make(map[string]string)
		for j, cell := range cells {
			row[header[j]] = cell
		}
		rows = append(rows, row)
	}
	if len(header) != 18 {
		t.Fatalf("the header is %q", header)
	}
	return rows
}

// rfc4180 reads by the grammar, and nothing but it: encoding/csv is lenient, and changes line breaks inside cells.
func rfc4180(t testing.TB, text string) (rows [][]string) {
	t.Helper()
	row := []string{}
	for text != "" {
		var cell strings.Builder
		if text[0] == '"' {
			for text = text[1:]; ; {
				before, after, ok := strings.Cut(text, `"`)
				if !ok {
					t.Fatal("a quoted cell does not end")
				}
				cell.WriteString(before)
				text = after
				if !strings.HasPrefix(text, `"`) {
					break
				}
				cell.WriteByte('"')
				text = text[1:]
			}
		} else {
			n := strings.IndexAny(text, ",\r\n\"")
			if n < 0 {
				t.Fatal("the last row does not end with CRLF")
			}
			cell.WriteString(text[:n])
			text = text[n:]
		}
		row = append(row, cell.String())
		switch {
		case strings.HasPrefix(text, ","):
			text = text[1:]
		case strings.HasPrefix(text, "\r\n"):
			text = text[2:]
			rows, row = append(rows, row), []string{}
		default:
			t.Fatalf("after a cell comes %.20q", text)
		}
	}
	return rows
}

// Both exports have all events, newest first, each as it is in a page; in CSV nothing that a spreadsheet would run.
func TestExports(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		h := "=h+" + uuid.NewString()
		k := s.key(t)
		k.record(k.reserve(obj{"handler": h}).id(), obj{"body": "first"}).want(201, "recorded")
		for i, offer := range offers {
			k.record("", offer[0], obj{"owner": fmt.Sprintf("=cmd|' /C calc'!A%d", i)}).want(409, "already_recorded")
		}
		reasons := []string{"=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "a\r\nb\n", `say "hi", you`, "\x00", "\u2028;", "'", "é"}
		for i, reason := range reasons {
			free := s.key(t)
			id := free.reserve(obj{"handler": h, "owner": string("=+-@\"',;"[i%8]) + "w"}).id()
			free.release(id, obj{"reason": reason, "response": obj{"body": reason + text("x", i)}}).want(200, "released")
		}
		query := url.Values{"handler": {h}}.Encode()
		pages, _ := s.all(t, "events", 3, "handler", h)
		lines, rows := s.ndjson(t, query), s.csv(t, query)
		if n := len(offers) + len(reasons); len(lines) != n || len(rows) != n || !equal(lines, pages) {
			t.Fatalf("%d lines, %d rows, %d in pages, want %d", len(lines), len(rows), len(pages), n)
		}
		for i, row := range rows {
			sameRow(t, row, lines[i])
		}
		if n := len(s.csv(t, query+"&kind=released&after="+url.QueryEscape(fmt.Sprint(lines[2]["at"])))); n != 3 {
			t.Errorf("%d rows of the newest three", n)
		}
		if n := len(s.csv(t, query+"&kind=purged")) + len(s.ndjson(t, query+"&kind=purged")); n != 0 {
			t.Errorf("%d rows of nothing", n)
		}
	})
}

// sameRow compares a row with its event. A cell that a spreadsheet would run has an apostrophe before it, and no other has.
func sameRow(t testing.TB, row map[string]string, event obj) {
	t.Helper()
	actor, response := event["actor"].(obj), obj{}
	want := map[string]any{
		"id": event["id"], "at": event["at"], "kind": event["kind"], "task_id": event["task_id"], "attempt": event["attempt"], "fence": event["fence"],
		"handler": event["handler"], "actor_owner": actor["owner"], "actor_token": actor["token"], "request_id": event["request_id"],
	}
	if event["response"] != nil {
		response = event["response"].(obj)
	}
	want["response_status"], want["response_body_omitted"] = response["status"], response["body_omitted"]
	want["response_body_sha256"] = response["body_sha256"]
	body, isText := response["body"].(string)
	want["response_body"], want["response_body_base64"] = body, response["body_base64"]
	if isText && strings.Contains(body, "\x00") {
		want["response_body"], want["response_body_base64"] = "", base64.StdEncoding.EncodeToString([]byte(body))
	}
	for name, v := range want {
		plain := ""
		switch v := v.(type) {
		case nil:
		case float64:
			plain = strconv.FormatFloat(v, 'f', -1, 64)
		default:
			plain = fmt.Sprint(v)
		}
		if plain != "" && strings.ContainsAny(plain[:1], "=+-@\t\r") {
			plain = "'" + plain
		}
		if row[name] != plain {
			t.Errorf("%s: %.200q, want %.200q", name, row[name], plain)
		}
	}
	for name, cell := range row {
		if cell != "" && strings.ContainsAny(cell[:1], "=+-@\t\r") {
			t.Errorf("%s: a spreadsheet would run %.100q", name, cell)
		}
	}
	for name, v := range map[string]any{"detail": event["detail"], "response_headers": response["headers"], "response_body_size": response["body_size"]} {
		var got any
		if v == nil && row[name] == "" {
			continue
		}
		if err := json.Unmarshal([]byte(row[name]), &got); err != nil || !equal(got, v) {
			t.Errorf("%s: %.200q, want %.200v", name, row[name], v)
		}
	}
}

// What Accept prefers is given; JSON where it has no preference, or none that can be met.
func TestAccept(t *testing.T) {
	t.Parallel()
	s := shared.service(t, engines[0])
	for accept, want := range map[string]string{
		"": jsonType, "*/*": jsonType, "application/json": jsonType, "application/*": jsonType, "image/png": jsonType, "text/html, */*;q=0.8": jsonType, "nonsense": jsonType,
		"text/csv": csvType, "TEXT/CSV; charset=utf-8; header=present": csvType, "text/*": csvType, "text/csv, */*": csvType, "text/html, text/csv;q=0.1": csvType,
		"application/x-ndjson": ndjsonType, "application/json;q=0.5, application/x-ndjson": ndjsonType, "text/csv;q=0.5, application/x-ndjson;q=0.6": ndjsonType,
		"application/json;q=0, */*;q=0.1": ndjsonType, "application/*;q=0.1, text/csv;q=0": jsonType, "text/csv;q=0": jsonType, "text/csv;q=x": jsonType, "text/csv;q=2": jsonType,
		"application/json, text/csv": jsonType, "text/csv;q=0.5, */*": jsonType,
	} {
		a := s.get(t, "/v1/events?task_id=none", "Accept", accept).ok()
		if got, _, _ := strings.Cut(a.header.Get("Content-Type"), ";"); got != want || a.header.Get("Vary") != "Accept" {
			t.Errorf("%q: %s", accept, got)
		}
	}
	for _, c := range []string{"limit=1", "limit=", "cursor=x", "cursor="} {
		field, _, _ := strings.Cut(c, "=")
		s.get(t, "/v1/events?"+c, "Accept", csvType).wantField(field)
		s.get(t, "/v1/events?"+c, "Accept", ndjsonType).wantField(field)
	}
	s.get(t, "/v1/events?kind=x", "Accept", csvType).wantField("kind")
}

const jsonType = "application/json"
