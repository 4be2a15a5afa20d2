package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/idemstore/idemstore"
)

// contract is openapi.yaml, and the routes in it.
var contract = sync.OnceValues(func() (*openapi3.T, routers.Router) {
	doc, err := openapi3.NewLoader().LoadFromData(idemstore.OpenAPI)
	if err != nil {
		panic(err)
	}
	doc.Servers = nil // any address
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		panic(err)
	}
	for _, text := range []string{"application/yaml", "text/html", "text/csv", "application/x-ndjson"} { // their schemas say string
		openapi3filter.RegisterBodyDecoder(text, openapi3filter.PlainBodyDecoder)
	}
	openapi3filter.RegisterBodyDecoder("application/problem+json", openapi3filter.JSONBodyDecoder)
	return doc, router
})

// inspect holds an answer to the document, and to what the protocol says of every answer.
func (s *service) inspect(t testing.TB, c call, req *http.Request, a answer) {
	t.Helper()
	fault := func(format string, args ...any) {
		t.Helper()
		t.Errorf("%s %s: "+format, append([]any{c.method, c.path}, append(args, "in "+a.String())...)...)
	}
	path, err := conform(c, req, a)
	if err != nil {
		fault("%v %s", err)
	}
	s.inspectHeaders(c, req, a, fault)
	if a.body != nil && strings.HasPrefix(c.path, "/v1/") || a.status >= 400 {
		s.inspectMembers(c, a, fault)
	}
	s.journal.expect(c, req, path, a)
}

// conform holds a request and its answer to the document, and returns the path as it stands there.
func conform(c call, req *http.Request, a answer) (string, error) {
	doc, router := contract()
	route, params, err := router.FindRoute(req)
	if err != nil { // of no operation
		if code := a.body["code"]; code == "no_such_route" || code == "method_not_allowed" {
			return "", doc.Components.Schemas["Problem"].Value.VisitJSON(a.body)
		}
		return "", err
	}
	for name, escaped := range params {
		if plain, err := url.PathUnescape(escaped); err == nil {
			params[name] = plain
		}
	}
	input := &openapi3filter.RequestValidationInput{
		Request: req, PathParams: params, Route: route,
		Options: &openapi3filter.Options{
			AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true, SkipSettingDefaults: true,
			SchemaValidationOptions: []openapi3.SchemaValidationOption{openapi3.EnableFormatValidation()},
		},
	}
	// What is not refused for its form must be of the form that the document asks for.
	if !c.wrong && !slices.Contains([]int{400, 401, 403, 413, 415}, a.status) {
		req.Body = io.NopCloser(bytes.NewReader(c.bytes()))
		if err := openapi3filter.ValidateRequest(context.Background(), input); err != nil {
			return route.Path, err
		}
	}
	out := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: a.status, Header: a.header, Options: input.Options,
	}
	if err := openapi3filter.ValidateResponse(context.Background(), out.SetBodyBytes(a.raw)); err != nil {
		return route.Path, err
	}
	return route.Path, declared(route.Operation.Responses.Status(a.status).Value, a.header)
}

// declared finds headers that the document does not tell of.
func declared(response *openapi3.Response, header http.Header) error {
	known := []string{"Content-Type", "Content-Length", "Date", "Content-Security-Policy"}
	for name := range response.Headers {
		known = append(known, http.CanonicalHeaderKey(name))
	}
	for name := range header {
		if !slices.Contains(known, name) && !(name == "X-Content-Type-Options" && strings.HasPrefix(header.Get("Content-Type"), "text/html")) {
			return &openapi3filter.ResponseError{Reason: "the header " + name + " is not declared"}
		}
	}
	return nil
}

func (s *service) inspectHeaders(c call, req *http.Request, a answer, fault func(string, ...any)) {
	if got := a.header.Values("Cache-Control"); !slices.Equal(got, []string{"no-store"}) {
		fault("Cache-Control %q %s", got)
	}
	if sent, got := req.Header.Get("X-Request-Id"), a.header.Get("X-Request-Id"); sane(sent) && got != sent || !sane(got) {
		fault("X-Request-Id is %q, sent was %q %s", got, sent)
	}
	replayed := a.status == 200 && (strings.HasSuffix(c.path, "/reserve") && !strings.Contains(c.path, "batch") || strings.Contains(c.path, "/replay"))
	if got := a.header.Get("Idempotency-Replayed"); (got == "true") != replayed {
		fault("Idempotency-Replayed is %q %s", got)
	}
	raw := a.header.Get("Content-Type") == "application/octet-stream"
	if (a.header.Get("Idempotency-Status") != "") != raw || raw && a.header.Get("X-Content-Type-Options") != "nosniff" {
		fault("headers of raw bytes: %v %s", a.header)
	}
	waits := a.status == 429 || a.status == 503 || a.status == 409 && a.body["code"] == "in_progress"
	after, ok := a.body["retry_after_seconds"].(float64)
	if got := a.header.Get("Retry-After"); (got != "") != waits || ok != waits || ok && got != strconv.Itoa(int(after)) {
		fault("Retry-After is %q, retry_after_seconds %v %s", got, a.body["retry_after_seconds"])
	}
	if _, ok := a.header["Allow"]; ok != (a.status == 405) {
		fault("Allow is %q %s", a.header["Allow"])
	}
	if _, ok := a.header["Www-Authenticate"]; ok != (a.status == 401) {
		fault("WWW-Authenticate is %q %s", a.header["Www-Authenticate"])
	}
}

// sane says whether an id of a request is to be taken over: short and of visible ASCII.
func sane(id string) bool {
	return id != "" && len(id) <= 128 && strings.Trim(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._:/+=@~") == ""
}

// members are those of each answer, beside task_id attempt outcome or those of every problem.
var members = map[string]string{
	"reserve reserved":    "reservation_id fence owner reserved_at lease_until lease_seconds_left renew_after_seconds expires_at idempotency_key doubts",
	"reserve recorded":    "replayed_attempt fence recorded_at recorded_by late expires_at response",
	"replay recorded":     "replayed_attempt fence recorded_at recorded_by late expires_at response",
	"dispatch dispatched": "fence lease_until lease_seconds_left expires_at",
	"renew renewed":       "fence lease_until lease_seconds_left renew_after_seconds expires_at",
	"record recorded":     "fence recorded_at recorded_by late expires_at dropped_headers ignored_fields",
	"release released":    "fence expires_at doubts dropped_headers",
	"release in_doubt":    "fence expires_at doubts dropped_headers",

	"invalid_request":        "field",
	"unauthenticated":        "",
	"forbidden":              "",
	"not_found":              "task_id attempt",
	"no_such_route":          "",
	"method_not_allowed":     "",
	"in_progress":            "task_id attempt owner fence lease_until lease_seconds_left expires_at retry_after_seconds",
	"in_doubt":               "task_id attempt fence doubts takeovers takeovers_left expires_at",
	"already_recorded":       "task_id attempt fence recorded_at recorded_by late expires_at response",
	"renew already_recorded": "task_id attempt fence recorded_at recorded_by late expires_at",
	"resolve in_doubt":       "task_id attempt fence doubts expires_at",
	"task not_found":         "task_id",
	"lease_lost":             "task_id attempt",
	"not_holder":             "task_id attempt",
	"body_too_large":         "",
	"unsupported_media_type": "",
	"request_mismatch":       "task_id attempt",
	"too_many_requests":      "retry_after_seconds",
	"internal":               "",
	"unavailable":            "retry_after_seconds",
}

// looks are the members of what is read.
var looks = map[string]string{
	"task": "task_id attempts events", "entries": "entries", "events": "events", "owner": "owner results",
	"stats": "after before totals handlers owners more_handlers more_owners open in_doubt duplicates",
	"item":  "task_id attempt fence released outcome",

	"entry": "task_id attempt state in_doubt owner fence dispatch reserved_at lease_until doubts late expires_at",
	"event": "id at kind task_id attempt fence actor request_id detail",
}

// inspectLook holds an answer to a question to exactly the members that it has.
func inspectLook(verb string, body obj, fault func(string, ...any)) {
	may, each := map[string][]string{
		"entries": {"next_cursor"}, "events": {"next_cursor"}, "owner": {"next_cursor"}, "stats": {"oldest_in_doubt"},
		"entry": {"handler", "request_hash", "dispatched_at"}, "event": {"handler", "response"},
	}[verb], map[string]string{"attempts": "entry", "entries": "listed", "events": "event", "results": "item", "oldest_in_doubt": "listed"}
	want := strings.Fields(looks[verb])
	if verb == "entry" || verb == "listed" || verb == "resolve" {
		want, may = strings.Fields(looks["entry"]), []string{"handler", "request_hash", "dispatched_at"}
		if body["state"] == "recorded" {
			want = append(want, "recorded_at", "recorded_by")
			if verb != "listed" {
				want = append(want, "response")
			}
		}
	}
	for name, value := range body {
		if i := slices.Index(want, name); i >= 0 {
			want = slices.Delete(want, i, i+1)
		} else if !slices.Contains(may, name) {
			fault("%s is not a member of %s %s", name, verb)
		}
		kind, nested := each[name]
		if items, ok := value.([]any); ok && nested {
			for _, item := range items {
				inspectLook(kind, item.(obj), fault)
			}
		} else if item, ok := value.(obj); ok && nested {
			inspectLook(kind, item, fault)
		}
	}
	if len(want) > 0 {
		fault("%v are missing of %s %s", want, verb)
	}
}

// verbOf is the last word of a route, and of those that end with a name what they tell of.
func verbOf(method string, part []string) string {
	switch {
	case len(part) == 4 && part[2] == "tasks" && method == http.MethodGet:
		return "task"
	case len(part) == 6 && part[4] == "attempts" && method == http.MethodGet:
		return "entry"
	case part[2] == "owners":
		return "owner"
	}
	return part[len(part)-1]
}

// inspectMembers holds an answer, or the answers of a batch, to exactly the members that it has.
func (s *service) inspectMembers(c call, a answer, fault func(string, ...any)) {
	route, _, _ := strings.Cut(c.path, "?")
	part := strings.Split(route, "/")
	verb := part[len(part)-1]
	if len(part) > 2 {
		verb = verbOf(c.method, part)
	}
	if _, ok := looks[verb]; a.status == 200 && (ok || verb == "resolve") {
		inspectLook(verb, a.body, fault)
		return
	}
	if !strings.HasPrefix(route, "/v1/batch/") || a.status != 200 {
		attempt, _ := strconv.Atoi(part[max(0, len(part)-2)])
		var sent obj
		_ = json.Unmarshal(c.bytes(), &sent)
		inspectBody(verb, a.status, a.header.Get("X-Request-Id"), attempt > 0 || sent["scope"] == "task", a.body, fault)
		return
	}
	var sent struct{ Items []obj }
	_ = json.Unmarshal(c.bytes(), &sent)
	results := a.body["results"].([]any)
	if len(results) != len(sent.Items) {
		fault("%d results of %d items %s", len(results), len(sent.Items))
		return
	}
	for i, r := range results {
		result, item := r.(obj), sent.Items[i]
		attempt, _ := item["attempt"].(float64)
		inspectBody(verb, int(result["status"].(float64)), a.header.Get("X-Request-Id"), attempt > 0 || item["scope"] == "task", result["body"].(obj), fault)
	}
}

func inspectBody(verb string, status int, requestID string, wide bool, body obj, fault func(string, ...any)) {
	outcome, _ := body["outcome"].(string)
	var want, may []string
	if status < 400 {
		want = append(strings.Fields(members[verb+" "+outcome]), "task_id", "attempt", "outcome")
		may = []string{"handler"}
	} else {
		list, ok := members[verb+" "+outcome]
		if !ok {
			list = members[outcome]
		}
		want = append(strings.Fields(list), "type", "title", "status", "detail", "code", "outcome", "request_id")
		may = []string{"dropped_headers", "ignored_fields"}
		if body["code"] != outcome || body["type"] != "/problems/"+strings.ReplaceAll(outcome, "_", "-") ||
			body["status"] != float64(status) || body["request_id"] != requestID {
			fault("code, outcome, type, status and request_id do not agree %s")
		}
	}
	if wide && (verb == "reserve" || verb == "replay") && slices.Contains([]string{"reserved", "recorded", "in_progress", "in_doubt"}, outcome) {
		want = append(want, "other_attempts")
	}
	for name := range body {
		if i := slices.Index(want, name); i >= 0 {
			want = slices.Delete(want, i, i+1)
		} else if !slices.Contains(may, name) || verb != "reserve" && name == "handler" {
			fault("%s is not a member of this answer %s", name)
		}
	}
	if len(want) > 0 {
		fault("%v are missing %s", want)
	}
}
