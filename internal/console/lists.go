package console

import (
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/idemstore/idemstore/internal/idem"
)

// listed is how many a page of a list holds.
const listed = 50

// inputTime is how a filter writes a time.
const inputTime = "2006-01-02 15:04:05"

// filters reads what a list is narrowed by. The first that cannot be is remembered.
type filters struct {
	query url.Values
	set   []detail // those that are, in order
	err   error
}

// text is a filter as it stands.
func (f *filters) text(name string) string {
	value := strings.TrimSpace(f.query.Get(name))
	if value != "" {
		f.set = append(f.set, detail{strings.ReplaceAll(name, "_", " "), value})
	}
	return value
}

func (f *filters) fault(name, want string) { f.valid(&idem.FieldError{Field: name, Reason: want}) }

// valid takes what a check said.
func (f *filters) valid(err error) {
	if f.err == nil {
		f.err = err
	}
}

// oneOf is a filter that has few values.
func (f *filters) oneOf(name string, values []string) string {
	value := f.text(name)
	if value != "" && !slices.Contains(values, value) {
		f.fault(name, "must be one of "+strings.Join(values, ", "))
		return ""
	}
	return value
}

// time is a filter by time, in UTC unless it says otherwise.
func (f *filters) time(name string) time.Time {
	value := f.text(name)
	if value == "" {
		return time.Time{}
	}
	for _, layout := range []string{inputTime, "2006-01-02 15:04", time.DateOnly, time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04"} {
		if t, err := time.Parse(layout, value); err == nil {
			return t.UTC()
		}
	}
	f.fault(name, "must be a time such as 2026-11-30 14:05, in UTC")
	return time.Time{}
}

// older is the link to the next page: the same filters, from another place.
func (f *filters) older(path, cursor string) string {
	if cursor == "" {
		return ""
	}
	return f.link(path, "cursor", cursor)
}

// link has the same filters, and one more unless it is empty.
func (f *filters) link(path, name, value string) string {
	q := url.Values{}
	for k, values := range f.query {
		if len(values) > 0 && values[0] != "" && k != "cursor" {
			q.Set(k, values[0])
		}
	}
	if value != "" {
		q.Set(name, value)
	}
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// Cursors hold a place in a list.

func entryCursor(p *idem.EntryPosition) string {
	if p == nil {
		return ""
	}
	return cursor(p.ReservedAt, strconv.Itoa(int(p.Attempt))+" "+p.TaskID)
}

func readEntryCursor(s string) (*idem.EntryPosition, error) {
	if s == "" {
		return nil, nil
	}
	at, rest, err := readCursor(s)
	attempt, task, _ := strings.Cut(rest, " ")
	n, errAttempt := idem.ParseAttempt(attempt)
	id, errTask := idem.ParseTaskID(task)
	if errors.Join(err, errAttempt, errTask) != nil {
		return nil, errCursor
	}
	return &idem.EntryPosition{ReservedAt: at, Key: idem.Key{TaskID: id, Attempt: n}}, nil
}

func eventCursor(p *idem.EventPosition) string {
	if p == nil {
		return ""
	}
	return cursor(p.At, p.ID)
}

func readEventCursor(s string) (*idem.EventPosition, error) {
	if s == "" {
		return nil, nil
	}
	at, id, err := readCursor(s)
	if err != nil || id == "" || len(id) > 255 || strings.ContainsFunc(id, unseen) {
		return nil, errCursor
	}
	return &idem.EventPosition{At: at, ID: id}, nil
}

var errCursor = refusal(http.StatusBadRequest, "This link leads nowhere.", "The place in the list that it names is none. Begin at the first page.")

func cursor(at time.Time, rest string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(at.UTC().Format(time.RFC3339Nano) + " " + rest))
}

func readCursor(s string) (time.Time, string, error) {
	text, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return time.Time{}, "", err
	}
	at, rest, _ := strings.Cut(string(text), " ")
	t, err := time.Parse(time.RFC3339Nano, at)
	return t, rest, err
}

// listPage is a page of a list, with its filters.
type listPage struct {
	Path   string
	Query  url.Values // the filters, as they were given
	Set    []detail   // the same, by name
	Kinds  []string   // of events, or states of entries: what can be chosen
	Fault  string     // why there is no list
	Older  string
	First  string // link to the first page, if this is a later one
	Export string // link to the list as CSV

	Entries []entryView
	Events  []eventView
	Oldest  *entryView // of those in doubt, the one that waits longest
}

// Value is a filter as it was given.
func (p listPage) Value(name string) string { return p.Query.Get(name) }

// list shows a list, or beside its filters why there is none.
func (v *visit) list(name, title string, f *filters, p listPage, err error) error {
	p.Path, p.Query, p.Set = v.r.URL.Path, f.query, f.set
	if f.query.Get("cursor") != "" {
		p.First = f.link(p.Path, "", "")
	}
	status := http.StatusOK
	var field *idem.FieldError
	switch {
	case errors.As(err, &field):
		status, p.Fault = http.StatusBadRequest, field.Error()+"."
	case errors.Is(err, idem.ErrTooSlow):
		status, p.Fault = http.StatusServiceUnavailable, "This took longer than it may. Nothing is wrong with the store; a shorter period, or one more filter, succeeds."
	case err != nil:
		return err
	}
	return v.show(status, name, title, p)
}

var states = []string{string(idem.Reserved), string(idem.Dispatched), string(idem.Recorded), string(idem.Released)}

func (c *console) entries(v *visit) error {
	f := &filters{query: v.r.URL.Query()}
	q := idem.EntryQuery{
		State: idem.State(f.oneOf("state", states)), Handler: f.text("handler"), Owner: f.text("owner"),
		ReservedAfter: f.time("reserved_after"), ReservedBefore: f.time("reserved_before"),
		RecordedAfter: f.time("recorded_after"), RecordedBefore: f.time("recorded_before"),
	}
	live := f.oneOf("lease", []string{"live"}) != ""
	if live && q.State != "" && !slices.Contains(heldStates, q.State) {
		f.fault("lease", "goes with the states reserved and dispatched: a key that is "+string(q.State)+" has none")
	}
	if doubted := f.oneOf("in_doubt", []string{"true", "false"}); doubted != "" {
		q.InDoubt = new(bool)
		*q.InDoubt = doubted == "true"
	}
	f.valid(q.Validate())
	if live && f.err == nil {
		return c.listLive(v, f, q)
	}
	return c.listEntries(v, "entries", "Entries", f, q)
}

// listLive are the keys that somebody holds by a live lease: what the overview counts as open.
func (c *console) listLive(v *visit, f *filters, q idem.EntryQuery) error {
	q.Limit = listed
	list, next, err := c.held(v.ctx, q, f.query.Get("cursor"), func(e *idem.Entry, now time.Time) bool { return e.Live(now) })
	return v.list("entries", "Entries", f, listPage{Kinds: states, Entries: list, Older: f.older(v.r.URL.Path, next)}, err)
}

// doubts are the keys in doubt, the newest reservation first.
func (c *console) doubts(v *visit) error {
	yes := true
	return c.listEntries(v, "doubts", "In doubt", &filters{query: v.r.URL.Query()}, idem.EntryQuery{InDoubt: &yes})
}

func (c *console) listEntries(v *visit, name, title string, f *filters, q idem.EntryQuery) error {
	p := listPage{Kinds: states}
	if f.err != nil {
		return v.list(name, title, f, p, f.err)
	}
	var err error
	if q.From, err = readEntryCursor(f.query.Get("cursor")); err != nil {
		return err
	}
	q.Limit = listed
	page, err := c.Reader.Entries(v.ctx, q)
	for _, e := range page.Entries {
		p.Entries = append(p.Entries, viewEntry(e, page.Now))
	}
	p.Older = f.older(v.r.URL.Path, entryCursor(page.Next))
	if standing, err := c.standing(v.ctx); name == "doubts" && err == nil && standing.Oldest != nil {
		oldest := viewEntry(standing.Oldest, standing.Now)
		p.Oldest = &oldest
	}
	return v.list(name, title, f, p, err)
}

var eventKinds = []string{
	string(idem.EventReplayed), string(idem.EventTakenOver), string(idem.EventFoundInDoubt), string(idem.EventRefusedMismatch),
	string(idem.EventReleased), string(idem.EventRecordedLate), string(idem.EventDuplicateRecord),
	string(idem.EventRefusedRecord), string(idem.EventResolved), string(idem.EventPurged),
}

// eventQuery reads the filters of events.
func eventQuery(f *filters) idem.EventQuery {
	q := idem.EventQuery{
		Kind: idem.EventKind(f.oneOf("kind", eventKinds)), TaskID: f.text("task_id"), Handler: f.text("handler"),
		Actor: f.text("actor"), After: f.time("after"), Before: f.time("before"),
		Limit: idem.MaxPage,
	}
	f.valid(q.Validate())
	return q
}

// exportEvents hands out all events that the filters leave, as a file.
func (c *console) exportEvents(v *visit) error {
	f := &filters{query: v.r.URL.Query()}
	q := eventQuery(f)
	if f.err != nil {
		return f.err
	}
	v.w.Header().Set("Content-Disposition", `attachment; filename="events.csv"`)
	err := c.Export(v.w, v.r, q)
	if err != nil {
		v.w.Header().Del("Content-Disposition")
	}
	return err
}

func (c *console) events(v *visit) error {
	f := &filters{query: v.r.URL.Query()}
	p, q := listPage{Kinds: eventKinds}, eventQuery(f)
	if f.err != nil {
		return v.list("events", "Events", f, p, f.err)
	}
	var err error
	if q.From, err = readEventCursor(f.query.Get("cursor")); err != nil {
		return err
	}
	q.Limit = listed
	page, err := c.Reader.Events(v.ctx, q)
	standing, _ := c.standing(v.ctx) // for the database's time; without it no ages are shown
	for i := range page.Events {
		e := &page.Events[i]
		if e.Response != nil {
			e.Response = &idem.Response{Status: e.Response.Status} // all that a list shows of it
		}
		p.Events = append(p.Events, viewEvent(e, standing.Now))
	}
	p.Older, p.Export = f.older(v.r.URL.Path, eventCursor(page.Next)), f.link(v.r.URL.Path+".csv", "", "")
	return v.list("events", "Events", f, p, err)
}

// search leads to a task.
func (c *console) search(v *visit) error {
	id, err := idem.ParseTaskID(strings.TrimSpace(v.r.URL.Query().Get("task_id")))
	if err != nil {
		return err
	}
	return v.redirect(taskPath(id))
}
