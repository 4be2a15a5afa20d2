package server

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/idemstore/idemstore/api"
	"github.com/idemstore/idemstore/internal/idem"
)

// queryOf reads a query as strictly as a body: only parameters that the call takes, each once. A slip must not look like an answer.
func queryOf(r *http.Request, takes ...string) (map[string]string, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, &idem.FieldError{Field: "query", Reason: "is not URL-encoded"}
	}
	values := make(map[string]string, len(query))
	for _, name := range slices.Sorted(maps.Keys(query)) {
		switch {
		case !slices.Contains(takes, name):
			return nil, &idem.FieldError{Field: cmp.Or(name, "query"), Reason: unknownMember}
		case len(query[name]) > 1:
			return nil, &idem.FieldError{Field: name, Reason: "stands there twice"}
		}
		values[name] = query[name][0]
	}
	return values, nil
}

// wholeNumber reads decimal digits as they are written in only one way.
func wholeNumber(field, value string, low, high int64) (int64, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != value {
		n = low - 1
	}
	return n, idem.Range(field, n, low, high)
}

// filters are the parameters of a read. One that is empty is one left out. The first fault is kept.
type filters struct {
	values map[string]string
	fault  error
}

func filtersOf(r *http.Request, takes ...string) *filters {
	values, err := queryOf(r, takes...)
	return &filters{values, err}
}

func (f *filters) wrong(field, reason string) {
	if f.fault == nil {
		f.fault = &idem.FieldError{Field: field, Reason: reason}
	}
}

// oneOf reads a word of a closed list.
func (f *filters) oneOf(field string, valid func(string) bool, words string) string {
	value := f.values[field]
	if value != "" && !valid(value) {
		f.wrong(field, "must be "+words)
	}
	return value
}

func (f *filters) time(field string) time.Time {
	value := f.values[field]
	if value == "" {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339Nano, value)
	if err != nil || at.IsZero() || strings.Contains(value, ",") { // which Go takes for a decimal point
		f.wrong(field, "must be a time as in RFC 3339, such as 2026-11-29T20:46:07Z; in a URL the + of an offset is written %2B")
	}
	return at.UTC()
}

func (f *filters) limit() int {
	value := f.values["limit"]
	if value == "" {
		return idem.DefaultPage
	}
	n, err := wholeNumber("limit", value, 1, idem.MaxPage)
	if err != nil && f.fault == nil {
		f.fault = err
	}
	return int(n)
}

// place reads where the page before ended.
func (f *filters) place(into mark) bool {
	value := f.values["cursor"]
	if value == "" {
		return false
	}
	if err := readCursor(value, into); err != nil && f.fault == nil {
		f.fault = err
	}
	return true
}

const (
	wordsOfState = `"reserved", "dispatched", "recorded" or "released"`
	wordsOfKind  = "one of the kinds that /openapi.yaml lists"
)

func readEntryQuery(r *http.Request) (idem.EntryQuery, error) {
	f := filtersOf(r, "state", "in_doubt", "handler", "owner", "reserved_after", "reserved_before", "recorded_after", "recorded_before",
		"limit", "cursor")
	state := f.oneOf("state", func(s string) bool { return api.AttemptState(s).Valid() }, wordsOfState)
	q := idem.EntryQuery{
		State: idem.State(state), Handler: f.values["handler"], Owner: f.values["owner"],
		ReservedAfter: f.time("reserved_after"), ReservedBefore: f.time("reserved_before"),
		RecordedAfter: f.time("recorded_after"), RecordedBefore: f.time("recorded_before"), Limit: f.limit(),
	}
	if word := f.oneOf("in_doubt", func(s string) bool { return s == "true" || s == "false" }, "true or false"); word != "" {
		doubt := word == "true"
		q.InDoubt = &doubt
	}
	var m entryMark
	if f.place(&m) {
		q.From = m.position()
	}
	return q, cmp.Or(f.fault, q.Validate())
}

// readEventQuery reads what is asked of the trail. All that match are asked for at once where whole is set.
func readEventQuery(r *http.Request, whole bool) (idem.EventQuery, error) {
	f := filtersOf(r, "kind", "task_id", "handler", "actor", "after", "before", "limit", "cursor")
	kind := f.oneOf("kind", func(s string) bool { return api.EventKind(s).Valid() }, wordsOfKind)
	q := idem.EventQuery{
		Kind: idem.EventKind(kind), TaskID: f.values["task_id"], Handler: f.values["handler"], Actor: f.values["actor"],
		After: f.time("after"), Before: f.time("before"), Limit: f.limit(),
	}
	for _, name := range []string{"cursor", "limit"} {
		if _, ok := f.values[name]; ok && whole {
			f.wrong(name, "goes with pages of JSON alone; narrow an export by time")
		}
	}
	var m eventMark
	if f.place(&m) {
		q.From = m.position()
	}
	if whole {
		q.Limit = idem.MaxPage
	}
	return q, cmp.Or(f.fault, q.Validate())
}
