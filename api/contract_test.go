package api_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/idemstore/idemstore"
)

// document is the contract as it is embedded and served.
func document(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(idemstore.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestDocumentIsValid(t *testing.T) {
	t.Parallel()
	err := document(t).Validate(context.Background(),
		openapi3.EnableExamplesValidation(), openapi3.EnableSchemaDefaultsValidation(),
		openapi3.EnableSchemaPatternValidation(), openapi3.EnableMultiError())
	if err != nil {
		t.Fatal(err)
	}
}

// answer is one documented answer of one operation.
type answer struct {
	operation string
	path      string
	status    string
	response  *openapi3.Response
}

func operations(doc *openapi3.T) map[string]*openapi3.Operation {
	ops := make(map[string]*openapi3.Operation)
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			ops[method+" "+path] = op
		}
	}
	return ops
}

func answers(doc *openapi3.T) []answer {
	var list []answer
	for route, op := range operations(doc) {
		_, path, _ := strings.Cut(route, " ")
		for status, ref := range op.Responses.Map() {
			list = append(list, answer{op.OperationID, path, status, ref.Value})
		}
	}
	return list
}

// TestExamplesFitTheirSchemas goes beyond what Validate does: each example is held to its schema in its direction, and
// none is left without a place.
func TestExamplesFitTheirSchemas(t *testing.T) {
	t.Parallel()
	doc := document(t)
	unused := make(map[string]bool)
	for name := range doc.Components.Examples {
		unused["#/components/examples/"+name] = true
	}
	check := func(t *testing.T, where string, content openapi3.Content, direction openapi3.SchemaValidationOption) {
		t.Helper()
		for mediaType, media := range content {
			if strings.Contains(mediaType, "json") && len(media.Examples) == 0 {
				t.Errorf("%s: no example of %s", where, mediaType)
			}
			for name, ref := range media.Examples {
				delete(unused, ref.Ref)
				err := media.Schema.Value.VisitJSON(ref.Value.Value, direction, openapi3.EnableFormatValidation(), openapi3.MultiErrors())
				if err != nil {
					t.Errorf("%s, example %s: %v", where, name, err)
				}
			}
		}
	}
	for route, op := range operations(doc) {
		if op.RequestBody != nil {
			check(t, route, op.RequestBody.Value.Content, openapi3.VisitAsRequest())
		}
		for status, ref := range op.Responses.Map() {
			check(t, route+" "+status, ref.Value.Content, openapi3.VisitAsResponse())
		}
	}
	for name := range unused {
		t.Errorf("%s is the example of nothing", name)
	}
}

func TestParameterExamplesFitTheirSchemas(t *testing.T) {
	t.Parallel()
	doc := document(t)
	seen := 0
	for _, item := range doc.Paths.Map() {
		params := slices.Clone(item.Parameters)
		for _, op := range item.Operations() {
			params = append(params, op.Parameters...)
		}
		for _, ref := range params {
			seen++
			if ref.Value.Example == nil {
				t.Errorf("parameter %s has no example", ref.Value.Name)
				continue
			}
			if err := ref.Value.Schema.Value.VisitJSON(ref.Value.Example); err != nil {
				t.Errorf("parameter %s: %v", ref.Value.Name, err)
			}
		}
	}
	if seen == 0 {
		t.Fatal("no parameters")
	}
}

func TestProblemExamplesAgreeWithThemselves(t *testing.T) {
	t.Parallel()
	doc := document(t)
	shown := make(map[string]bool)
	for _, a := range answers(doc) {
		media := a.response.Content["application/problem+json"]
		if media == nil {
			continue
		}
		for name, ref := range media.Examples {
			p := ref.Value.Value.(map[string]any)
			code := p["code"].(string)
			shown[code] = true
			where := fmt.Sprintf("%s %s, example %s", a.operation, a.status, name)
			if p["outcome"] != code {
				t.Errorf("%s: outcome is %v, code is %s", where, p["outcome"], code)
			}
			if want := "/problems/" + strings.ReplaceAll(code, "_", "-"); p["type"] != want {
				t.Errorf("%s: type is %v, want %s", where, p["type"], want)
			}
			if got := fmt.Sprint(p["status"]); got != a.status {
				t.Errorf("%s: status is %s", where, got)
			}
			_, waits := p["retry_after_seconds"]
			if want := code == "in_progress" || code == "too_many_requests" || code == "unavailable"; waits != want {
				t.Errorf("%s: retry_after_seconds is there: %t, want %t", where, waits, want)
			}
			if !strings.Contains(*a.response.Description, "`"+code+"`") {
				t.Errorf("%s: %s is not in the answer's description", where, code)
			}
		}
	}
	for _, code := range doc.Components.Schemas["ProblemCode"].Value.Enum {
		if code := code.(string); !shown[code] && code != "method_not_allowed" { // which belongs to no operation
			t.Errorf("no example of %s", code)
		}
		if !strings.Contains(doc.Info.Description, fmt.Sprintf("| `%s` |", code)) {
			t.Errorf("%s is not in the table of problems", code)
		}
	}
}

// TestAnswersCarryTheCommonHeaders: so that a test which validates answers against the document sees them missing.
func TestAnswersCarryTheCommonHeaders(t *testing.T) {
	t.Parallel()
	for _, a := range answers(document(t)) {
		required := []string{"X-Request-Id", "Cache-Control"}
		switch {
		case a.status == "429" || a.status == "503":
			required = append(required, "Retry-After")
		case a.status == "200" && (a.operation == "reserve" || a.operation == "replay"):
			required = append(required, "Idempotency-Replayed")
		}
		for _, name := range required {
			if h := a.response.Headers[name]; h == nil || !h.Value.Required {
				t.Errorf("%s %s: header %s is not required", a.operation, a.status, name)
			}
		}
		if a.response.Headers["Location"] != nil {
			t.Errorf("%s %s: a Location", a.operation, a.status)
		}
	}
}

func TestOperationsListTheirAnswers(t *testing.T) {
	t.Parallel()
	for route, op := range operations(document(t)) {
		var statuses []string
		for status := range op.Responses.Map() {
			statuses = append(statuses, status)
		}
		if !strings.Contains(route, " /v1/") {
			if op.Security == nil || len(*op.Security) != 0 {
				t.Errorf("%s asks for a token", route)
			}
			continue
		}
		if op.Security != nil {
			t.Errorf("%s has a security of its own", route)
		}
		want := []string{"200", "400", "401", "403", "429", "500", "503"}
		if strings.HasPrefix(route, http.MethodPost) {
			want = append(want, "413", "415")
		}
		if strings.Contains(route, "{attempt}") && op.OperationID != "getEntry" {
			want = append(want, "409")
		}
		switch op.OperationID {
		case "reserve":
			want = append(want, "201", "422")
		case "record":
			want = append(want, "201", "404")
		case "dispatch", "renew", "release", "replay", "resolve", "getTask", "getEntry":
			want = append(want, "404")
		}
		slices.Sort(want)
		slices.Sort(statuses)
		if !slices.Equal(statuses, want) {
			t.Errorf("%s answers %v, want %v", route, statuses, want)
		}
	}
}

// TestOperationsSayWhoMayCall by their one tag: the roles, or batch, which is a worker's.
func TestOperationsSayWhoMayCall(t *testing.T) {
	t.Parallel()
	doc := document(t)
	roles := map[string]int{}
	for route, op := range operations(doc) {
		if len(op.Tags) != 1 || doc.Tags.Get(op.Tags[0]) == nil {
			t.Errorf("%s has the tags %v", route, op.Tags)
			continue
		}
		if strings.Contains(route, " /v1/") == (op.Tags[0] == "service") {
			t.Errorf("%s is of %s", route, op.Tags[0])
		}
		if read := op.Tags[0] == "auditor"; read && !strings.HasPrefix(route, http.MethodGet) {
			t.Errorf("%s changes something, and is an auditor's", route)
		}
		roles[op.Tags[0]]++
	}
	if roles["auditor"] != 5 || roles["operator"] != 2 || roles["worker"] != 6 || roles["batch"] != 2 {
		t.Errorf("%v", roles)
	}
}

// TestObjectsAreClosed: requests are refused for what is unknown, answers are tested for it; only record is lenient.
func TestObjectsAreClosed(t *testing.T) {
	t.Parallel()
	lenient := []string{"RecordRequest", "BatchRecordItem", "OfferedResponse"}
	objects := 0
	for name, ref := range document(t).Components.Schemas {
		if !ref.Value.Type.Is("object") {
			continue
		}
		objects++
		open := ref.Value.AdditionalProperties.Has
		if open == nil {
			t.Errorf("%s does not say whether it is closed", name)
		} else if *open != slices.Contains(lenient, name) {
			t.Errorf("%s is open: %t", name, *open)
		}
	}
	if objects == 0 {
		t.Fatal("no objects")
	}
}

// TestOptionalRequestMembersMayBeNull: null is the member left out.
func TestOptionalRequestMembersMayBeNull(t *testing.T) {
	t.Parallel()
	doc := document(t)
	for _, name := range []string{
		"ReserveRequest", "DispatchRequest", "RenewRequest", "RecordRequest", "ReleaseRequest",
		"BatchReserveItem", "BatchRecordItem", "OfferedResponse", "FailedResponse", "ResolveRequest", "OwnerReleaseRequest",
	} {
		schema := doc.Components.Schemas[name].Value
		for member, ref := range schema.Properties {
			required := slices.Contains(schema.Required, member)
			if err := ref.Value.VisitJSON(nil); (err == nil) == required {
				t.Errorf("%s.%s: required %t, null: %v", name, member, required, err)
			}
		}
	}
}

func TestSchemasSayWhatTheLimitsSay(t *testing.T) {
	t.Parallel()
	doc := document(t)
	item := func(schema string, path ...string) *openapi3.Schema {
		s := doc.Components.Schemas[schema].Value
		for _, p := range path {
			s = s.Properties[p].Value
		}
		return s
	}
	long := strings.Repeat("x", 255)
	headers := make([]any, 101)
	for i := range headers {
		headers[i] = []any{"a", "b"}
	}
	for _, tc := range []struct {
		name   string
		schema *openapi3.Schema
		good   []any
		bad    []any
	}{
		{
			"task_id", item("TaskId"),
			[]any{"a", "...", ".a", "..a", "a.", ".a.", "order-4711:charge", "A~b@c_d", long, "8D0A7B5C-2c41-4f0e-9a57-3f6e1b9c0d24"},
			[]any{"", ".", "..", "a b", "a/b", "é", "a\n", long + "x", "%41", float64(1)},
		},
		{
			"attempt", item("Attempt"),
			[]any{float64(0), float64(2147483647)},
			[]any{float64(-1), float64(2147483648), 0.5, "0"},
		},
		{
			"reservation_id", item("ReservationId"),
			[]any{"0d9c6f1e-5b7a-4e2d-8c3f-9a1b2c3d4e5f", "0D9C6F1E-5B7A-4E2D-8C3F-9A1B2C3D4E5F"},
			[]any{"", "0d9c6f1e5b7a4e2d8c3f9a1b2c3d4e5f", "{0d9c6f1e-5b7a-4e2d-8c3f-9a1b2c3d4e5f}", "0d9c6f1e-5b7a-4e2d-8c3f-9a1b2c3d4e5g"},
		},
		{
			"owner", item("ReserveRequest", "owner"),
			[]any{"w", "wörker 1", long},
			[]any{"", "a\nb", "a\x7f", "a\u0085", long + "x", nil},
		},
		{
			"request_hash", item("ReserveRequest", "request_hash"),
			[]any{"sha256:9f86", "!", strings.Repeat("~", 128), nil},
			[]any{"", "a b", "é", strings.Repeat("~", 129)},
		},
		{
			"lease_seconds", item("RenewRequest", "lease_seconds"),
			[]any{float64(1), float64(86400), nil},
			[]any{float64(0), float64(86401), 1.5, "60"},
		},
		{
			"wait_seconds", item("ReserveRequest", "wait_seconds"),
			[]any{float64(0), float64(60)},
			[]any{float64(-1), float64(61)},
		},
		{
			"retention_seconds", item("RecordRequest", "retention_seconds"),
			[]any{float64(3600), float64(31536000)},
			[]any{float64(3599), float64(31536001)},
		},
		{
			"scope", item("Scope"),
			[]any{"attempt", "task", nil},
			[]any{"", "Task", "all"},
		},
		{
			"dispatch", item("DispatchMode"),
			[]any{"implicit", "explicit", nil},
			[]any{"", "Explicit"},
		},
		{
			"reason", item("ReleaseRequest", "reason"),
			[]any{"x", strings.Repeat("x", 1000)},
			[]any{"", strings.Repeat("x", 1001)},
		},
		{
			"response.status", item("OfferedResponse", "status"),
			[]any{float64(100), float64(599), nil},
			[]any{float64(99), float64(600)},
		},
		{
			"response.headers", item("OfferedHeaders"),
			[]any{nil, []any{}, headers[:100], map[string]any{}, map[string]any{"a": "b", "c": []any{"d", "e"}}},
			[]any{headers, []any{[]any{"a"}}, []any{[]any{"a", "b", "c"}}, map[string]any{"a": float64(1)}, "a: b"},
		},
		{
			"resolve.action", item("ResolveRequest", "action"),
			[]any{"record", "release"},
			[]any{"", "Record", nil},
		},
		{
			"resolve.fence", item("ResolveRequest", "fence"),
			[]any{float64(1), float64(1 << 53)},
			[]any{float64(0), 1.5, "1", nil},
		},
		{
			"resolve.reason", item("ResolveRequest", "reason"),
			[]any{"x", strings.Repeat("é", 1000)},
			[]any{"", strings.Repeat("x", 1001), nil},
		},
		{
			"release of an owner: cursor", item("OwnerReleaseRequest", "cursor"),
			[]any{"e30", "-_", nil},
			[]any{"", "a=", "a+", strings.Repeat("A", 1025)},
		},
		{
			"limit", doc.Components.Parameters["Limit"].Value.Schema.Value,
			[]any{float64(1), float64(1000)},
			[]any{float64(0), float64(1001), 1.5},
		},
		{
			"event.fence", item("Event", "fence"),
			[]any{float64(0), float64(1)},
			[]any{float64(-1), "1"},
		},
		{
			"timestamp", item("Timestamp"),
			[]any{"2026-11-29T20:46:07.123456Z"},
			[]any{"2026-11-29T20:46:07Z", "2026-11-29T20:46:07.123Z", "2026-11-29T20:46:07.123456+00:00", "2026-11-29 20:46:07.123456Z"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, v := range tc.good {
				if err := tc.schema.VisitJSON(v, openapi3.EnableFormatValidation()); err != nil {
					t.Errorf("%.40q is refused: %v", v, err)
				}
			}
			for _, v := range tc.bad {
				if err := tc.schema.VisitJSON(v, openapi3.EnableFormatValidation()); err == nil {
					t.Errorf("%.40q is let through", v)
				}
			}
		})
	}
}
