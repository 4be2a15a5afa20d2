package api_test

import (
	"encoding/csv"
	stdjson "encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-chi/chi/v5"
	"github.com/go-json-experiment/json"

	"github.com/idemstore/idemstore/api"
)

// models are the Go types of the document's objects. A missing or a stale one fails TestModelsAreTheSchemas.
var models = map[string]reflect.Type{
	"Actor":               reflect.TypeFor[api.Actor](),
	"BatchAnswer":         reflect.TypeFor[api.BatchAnswer](),
	"BatchRecordItem":     reflect.TypeFor[api.BatchRecordItem](),
	"BatchRecordRequest":  reflect.TypeFor[api.BatchRecordRequest](),
	"BatchReserveItem":    reflect.TypeFor[api.BatchReserveItem](),
	"BatchReserveRequest": reflect.TypeFor[api.BatchReserveRequest](),
	"BatchResult":         reflect.TypeFor[api.BatchResult](),
	"Counts":              reflect.TypeFor[api.Counts](),
	"DispatchRequest":     reflect.TypeFor[api.DispatchRequest](),
	"Dispatched":          reflect.TypeFor[api.Dispatched](),
	"Doubt":               reflect.TypeFor[api.Doubt](),
	"Entry":               reflect.TypeFor[api.Entry](),
	"EntryCounts":         reflect.TypeFor[api.EntryCounts](),
	"EntryList":           reflect.TypeFor[api.EntryList](),
	"Event":               reflect.TypeFor[api.Event](),
	"EventCounts":         reflect.TypeFor[api.EventCounts](),
	"EventList":           reflect.TypeFor[api.EventList](),
	"FailedResponse":      reflect.TypeFor[api.FailedResponse](),
	"HandlerCounts":       reflect.TypeFor[api.HandlerCounts](),
	"Health":              reflect.TypeFor[api.Health](),
	"OfferedResponse":     reflect.TypeFor[api.OfferedResponse](),
	"OtherAttempt":        reflect.TypeFor[api.OtherAttempt](),
	"OwnerCounts":         reflect.TypeFor[api.OwnerCounts](),
	"HeldKey":             reflect.TypeFor[api.HeldKey](),
	"OwnerReleaseRequest": reflect.TypeFor[api.OwnerReleaseRequest](),
	"OwnerReleaseResult":  reflect.TypeFor[api.OwnerReleaseResult](),
	"OwnerReleased":       reflect.TypeFor[api.OwnerReleased](),
	"Problem":             reflect.TypeFor[api.Problem](),
	"Readiness":           reflect.TypeFor[api.Readiness](),
	"RecordRequest":       reflect.TypeFor[api.RecordRequest](),
	"Recorded":            reflect.TypeFor[api.Recorded](),
	"ReleaseRequest":      reflect.TypeFor[api.ReleaseRequest](),
	"Released":            reflect.TypeFor[api.Released](),
	"RenewRequest":        reflect.TypeFor[api.RenewRequest](),
	"Renewed":             reflect.TypeFor[api.Renewed](),
	"Replayed":            reflect.TypeFor[api.Replayed](),
	"ReserveRequest":      reflect.TypeFor[api.ReserveRequest](),
	"Reserved":            reflect.TypeFor[api.Reserved](),
	"ResolveRequest":      reflect.TypeFor[api.ResolveRequest](),
	"Response":            reflect.TypeFor[api.Response](),
	"Stats":               reflect.TypeFor[api.Stats](),
	"Takeover":            reflect.TypeFor[api.Takeover](),
	"Task":                reflect.TypeFor[api.Task](),
}

// TestModelsAreTheSchemas sees a document that was changed without generating again, and what would make JSON surprising.
func TestModelsAreTheSchemas(t *testing.T) {
	t.Parallel()
	doc := document(t)
	for name, ref := range doc.Components.Schemas {
		schema := ref.Value
		if !schema.Type.Is("object") {
			continue
		}
		model := models[name]
		if model == nil {
			t.Errorf("%s has no model", name)
			continue
		}
		for _, method := range []string{"MarshalJSON", "UnmarshalJSON", "MarshalJSONTo", "UnmarshalJSONFrom", "MarshalText", "UnmarshalText"} {
			if _, ok := reflect.PointerTo(model).MethodByName(method); ok {
				t.Errorf("%s has a method %s", name, method)
			}
		}
		var fields, members []string
		for member := range schema.Properties {
			members = append(members, member)
		}
		for field := range model.Fields() {
			member, options, _ := strings.Cut(field.Tag.Get("json"), ",")
			fields = append(fields, member)
			optional := !slices.Contains(schema.Required, member)
			if optional != (options != "") || optional && field.Type.Kind() != reflect.Pointer {
				t.Errorf("%s.%s: optional %t, but %s `%s`", name, member, optional, field.Type, field.Tag)
			}
			request := strings.HasSuffix(name, "Request") || strings.HasSuffix(name, "Item")
			if optional && !request && field.Type.Elem().Kind() == reflect.Slice && options != "omitzero" && member != "headers" {
				t.Errorf("%s.%s would be left out when it is empty: `%s`", name, member, field.Tag)
			}
		}
		slices.Sort(fields)
		slices.Sort(members)
		if !slices.Equal(fields, members) {
			t.Errorf("%s has the fields %v, and its schema %v", name, fields, members)
		}
	}
}

// TestModelsKeepExamples reads each example strictly into its model and writes it again: nothing is lost, nothing added.
func TestModelsKeepExamples(t *testing.T) {
	t.Parallel()
	kept := 0
	keep := func(where string, content openapi3.Content) {
		for mediaType, media := range content {
			if mediaType == "text/csv" { // read in TestCSVExampleHasTheColumns
				continue
			}
			name := strings.TrimPrefix(media.Schema.Ref, "#/components/schemas/")
			if mediaType == "application/x-ndjson" {
				name = "Event"
			}
			model := models[name]
			for example, ref := range media.Examples {
				lenient := example == "unknown-member" && name == "RecordRequest"
				var data []byte
				var err error
				if line, ok := ref.Value.Value.(string); ok {
					data = []byte(line)
				} else {
					data, err = stdjson.Marshal(ref.Value.Value)
				}
				if err != nil {
					t.Fatal(err)
				}
				v := reflect.New(model).Interface()
				if err := json.Unmarshal(data, v, json.RejectUnknownMembers(!lenient)); err != nil {
					t.Errorf("%s, example %s: %v", where, example, err)
					continue
				}
				if lenient {
					continue
				}
				kept++
				again, err := json.Marshal(v)
				if err != nil {
					t.Errorf("%s, example %s: %v", where, example, err)
					continue
				}
				if got, want := plain(t, again), plain(t, data); !reflect.DeepEqual(got, want) {
					t.Errorf("%s, example %s:\n got %s\nwant %s", where, example, again, data)
				}
			}
		}
	}
	for route, op := range operations(document(t)) {
		if op.RequestBody != nil {
			keep(route, op.RequestBody.Value.Content)
		}
		for status, ref := range op.Responses.Map() {
			keep(route+" "+status, ref.Value.Content)
		}
	}
	if kept == 0 {
		t.Fatal("no examples")
	}
}

// TestCSVExampleHasTheColumns reads it as RFC 4180 says: each row has the columns that the description lists.
func TestCSVExampleHasTheColumns(t *testing.T) {
	t.Parallel()
	op := document(t).Paths.Value("/v1/events").Get
	_, list, _ := strings.Cut(op.Description, "Columns: `")
	list, _, _ = strings.Cut(list, "`")
	for name, ref := range op.Responses.Status(http.StatusOK).Value.Content["text/csv"].Examples {
		rows, err := csv.NewReader(strings.NewReader(ref.Value.Value.(string))).ReadAll()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if want := strings.Fields(list); len(rows) < 2 || !slices.Equal(rows[0], want) {
			t.Errorf("%s: the header row is %v, want %v", name, rows[0], want)
		}
	}
}

// plain is JSON without its null members, which are members left out.
func plain(t *testing.T, data []byte) any {
	t.Helper()
	var v any
	if err := stdjson.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	var strip func(any) any
	strip = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			for k, m := range v {
				if m == nil {
					delete(v, k)
				} else {
					v[k] = strip(m)
				}
			}
		case []any:
			for i := range v {
				v[i] = strip(v[i])
			}
		}
		return v
	}
	return strip(v)
}

func TestHandlerRoutesWhatIsDocumented(t *testing.T) {
	t.Parallel()
	router := chi.NewRouter()
	api.HandlerFromMux(api.Unimplemented{}, router)
	var got, want []string
	err := chi.Walk(router, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		got = append(got, method+" "+route)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for route := range operations(document(t)) {
		want = append(want, route)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("routes %v, want %v", got, want)
	}
}

// echo answers a reserve with the key that reached it.
type echo struct{ api.Unimplemented }

func (echo) Reserve(w http.ResponseWriter, r *http.Request, taskID api.TaskID, attempt api.Attempt) {
	var req api.ReserveRequest
	if err := json.UnmarshalRead(r.Body, &req, json.RejectUnknownMembers(true)); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.MarshalWrite(w, api.Reserved{
		TaskID: taskID, Attempt: attempt, Outcome: api.ReservedOutcomeReserved, Owner: req.Owner, Fence: 1 << 60,
	})
}

func TestClientSpeaksToHandler(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(api.Handler(echo{}))
	defer srv.Close()
	client, err := api.NewClientWithResponses(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, taskID := range []string{"8d0a7b5c-2c41-4f0e-9a57-3f6e1b9c0d24", "order-4711:charge", "a~b@c_d", "...", "-"} {
		id := "0d9c6f1e-5b7a-4e2d-8c3f-9a1b2c3d4e5f"
		rsp, err := client.ReserveWithResponse(t.Context(), taskID, 2147483647, api.ReserveRequest{Owner: "wörker", ReservationID: &id})
		if err != nil {
			t.Fatal(err)
		}
		got := rsp.JSON201
		if got == nil {
			t.Fatalf("%s: %d %s", taskID, rsp.StatusCode(), rsp.Body)
		}
		if got.TaskID != taskID || got.Attempt != 2147483647 || got.Owner != "wörker" || got.Fence != 1<<60 {
			t.Errorf("%s: got %+v", taskID, got)
		}
		if !strings.Contains(string(rsp.Body), `"doubts":[]`) {
			t.Errorf("no empty list of doubts in %s", rsp.Body)
		}
	}
}
