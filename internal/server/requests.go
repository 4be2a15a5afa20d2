package server

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/idemstore/idemstore/api"
	"github.com/idemstore/idemstore/internal/idem"
)

// ask is a request in the words of idem, and what the answer says of how it was read.
type ask struct {
	cmd     idem.Command
	wait    time.Duration
	dropped []string // headers of the response that are never kept
	ignored []string // members of a record that are not known
}

// keyOf reads the key from the path, and has the log tell it.
func keyOf(r *http.Request) (idem.Key, error) {
	key, err := newKey(pathPart(r, "task_id"), pathPart(r, "attempt"))
	if err == nil {
		req := requestOf(r.Context())
		req.task, req.attempt, req.keyed = key.TaskID, key.Attempt, true
	}
	return key, err
}

// taskOf reads the task from the path of a call about all its attempts, and has the log tell it.
func taskOf(r *http.Request) (string, error) {
	task, err := idem.ParseTaskID(pathPart(r, "task_id"))
	requestOf(r.Context()).task = task
	return task, err
}

// pathPart is a parameter of the path, without its percent signs.
func pathPart(r *http.Request, name string) string {
	raw := chi.URLParam(r, name)
	if r.URL.RawPath != "" {
		if plain, err := url.PathUnescape(raw); err == nil {
			return plain
		}
	}
	return raw
}

func newKey(taskID, attempt string) (idem.Key, error) {
	id, err := idem.ParseTaskID(taskID)
	if err != nil {
		return idem.Key{}, err
	}
	n, err := idem.ParseAttempt(attempt)
	return idem.Key{TaskID: id, Attempt: n}, err
}

// A reader makes a command of a body. Everything in it has been checked when there is no error.
type reader func(s *Server, call idem.Call, body []byte) (ask, error)

func readReserve(s *Server, call idem.Call, body []byte) (ask, error) {
	var in api.ReserveRequest
	if err := strict(body, &in); err != nil {
		return ask{}, err
	}
	wait := number(in.WaitSeconds, 0)
	if err := idem.Range("wait_seconds", int64(wait), 0, idem.MaxWaitSeconds); err != nil {
		return ask{}, err
	}
	a, err := s.reserve(call, &in)
	a.wait = time.Duration(wait) * time.Second
	return a, err
}

// reserve makes the command of a reserve that came alone or in a batch.
func (s *Server) reserve(call idem.Call, in *api.ReserveRequest) (ask, error) {
	cmd := &idem.Reserve{
		Call: call, Owner: in.Owner, ReservationID: word(in.ReservationID), Handler: word(in.Handler),
		RequestHash: word(in.RequestHash), LeaseSeconds: number(in.LeaseSeconds, idem.DefaultLease),
	}
	if err := notEmpty(member{"reservation_id", in.ReservationID}, member{"handler", in.Handler}, member{"request_hash", in.RequestHash}); err != nil {
		return ask{}, err
	}
	if in.ReservationID == nil {
		cmd.ReservationID = uuid.NewString()
	}
	if in.Dispatch != nil {
		if !in.Dispatch.Valid() {
			return ask{}, &idem.FieldError{Field: "dispatch", Reason: `must be "implicit" or "explicit"`}
		}
		cmd.Explicit = *in.Dispatch == api.DispatchModeExplicit
	}
	if in.Scope != nil {
		if !in.Scope.Valid() {
			return ask{}, &idem.FieldError{Field: "scope", Reason: `must be "attempt" or "task"`}
		}
		cmd.TaskScope = *in.Scope == api.ScopeTask
	}
	if in.Takeovers != nil {
		for i, t := range *in.Takeovers {
			if t.Attempt == nil {
				return ask{}, &idem.FieldError{Field: "takeovers[" + strconv.Itoa(i) + "].attempt", Reason: "is required"}
			}
			cmd.Takeovers = append(cmd.Takeovers, idem.Takeover{Attempt: *t.Attempt, Fence: t.Fence})
		}
	}
	return ask{cmd: cmd}, cmd.Validate()
}

func readDispatch(_ *Server, call idem.Call, body []byte) (ask, error) {
	var in api.DispatchRequest
	if err := strict(body, &in); err != nil {
		return ask{}, err
	}
	cmd := &idem.Dispatch{Call: call, ReservationID: in.ReservationID}
	return ask{cmd: cmd}, cmd.Validate()
}

func readRenew(_ *Server, call idem.Call, body []byte) (ask, error) {
	var in api.RenewRequest
	if err := strict(body, &in); err != nil {
		return ask{}, err
	}
	cmd := &idem.Renew{Call: call, ReservationID: in.ReservationID, LeaseSeconds: number(in.LeaseSeconds, idem.DefaultLease)}
	return ask{cmd: cmd}, cmd.Validate()
}

func readRecord(s *Server, call idem.Call, body []byte) (ask, error) {
	var in api.RecordRequest
	ignored, err := lenient(body, &in)
	if err != nil {
		return ask{}, err
	}
	return s.record(call, &in, ignored)
}

// record makes the command of a record that came alone or in a batch.
func (s *Server) record(call idem.Call, in *api.RecordRequest, ignored []string) (ask, error) {
	if err := notEmpty(member{"reservation_id", in.ReservationID}, member{"owner", in.Owner}, member{"request_hash", in.RequestHash}); err != nil {
		return ask{}, err
	}
	if in.RetentionSeconds != nil {
		// Here, as 0 stands for the policy's from now on.
		if err := idem.Range("retention_seconds", int64(*in.RetentionSeconds), idem.MinRetention, idem.MaxRetention); err != nil {
			return ask{}, err
		}
	}
	response, dropped, err := s.response(in.Response)
	if err != nil {
		return ask{}, err
	}
	cmd := &idem.Record{
		Call: call, ReservationID: word(in.ReservationID), Owner: word(in.Owner), RequestHash: word(in.RequestHash),
		RetentionSeconds: number(in.RetentionSeconds, 0), Response: response,
	}
	return ask{cmd: cmd, dropped: dropped, ignored: ignored}, cmd.Validate()
}

func readRelease(s *Server, call idem.Call, body []byte) (ask, error) {
	var in api.ReleaseRequest
	if err := strict(body, &in); err != nil {
		return ask{}, err
	}
	if err := notEmpty(member{"reason", in.Reason}); err != nil {
		return ask{}, err
	}
	response, dropped, err := s.response(in.Response)
	if err != nil {
		return ask{}, err
	}
	cmd := &idem.Release{
		Call: call, ReservationID: in.ReservationID, Reason: word(in.Reason), Response: response,
		EarlierNotDone: yes(in.EarlierNotDone),
	}
	return ask{cmd: cmd, dropped: dropped}, cmd.Validate()
}

// response reads an offered response, less the headers that are never kept.
func (s *Server) response(in *api.OfferedResponse) (*idem.Response, []string, error) {
	if in == nil {
		return nil, nil, nil
	}
	if err := notEmpty(member{"response.body_sha256", in.BodySha256}); err != nil {
		return nil, nil, err
	}
	out := &idem.Response{
		Status: number(in.Status, idem.DefaultStatus), Omitted: in.BodyOmitted != nil && *in.BodyOmitted,
		BodySHA256: word(in.BodySha256),
	}
	if in.BodySize != nil {
		out.BodySize = *in.BodySize
	} else if out.Omitted {
		return nil, nil, &idem.FieldError{Field: "response.body_size", Reason: "is required where the body is omitted"}
	}
	switch {
	case in.Body != nil && in.BodyBase64 != nil:
		return nil, nil, &idem.FieldError{Field: "response.body_base64", Reason: "must not stand beside body"}
	case in.Body != nil:
		out.HasBody, out.Body = true, []byte(*in.Body)
	case in.BodyBase64 != nil:
		out.HasBody, out.Body = true, *in.BodyBase64
	}
	if int64(len(out.Body)) > s.config.MaxBodyBytes {
		return nil, nil, &errTooLarge{limit: s.config.MaxBodyBytes, response: true}
	}
	var dropped []string
	if in.Headers != nil {
		headers, err := readHeaders(jsontext.Value(*in.Headers))
		if err != nil {
			return nil, nil, err
		}
		for _, h := range headers {
			if !s.denied[strings.ToLower(h[0])] {
				out.Headers = append(out.Headers, h)
			} else if !slices.Contains(dropped, h[0]) {
				dropped = append(dropped, h[0])
			}
		}
	}
	return out, dropped, nil
}

// readHeaders reads headers as pairs, or as an object of strings or arrays of strings, in the order in which they stand.
func readHeaders(value jsontext.Value) ([]idem.Header, error) {
	wrong := &idem.FieldError{
		Field: "response.headers", Reason: "must be [name, value] pairs, or an object of strings or arrays of strings",
	}
	if value.Kind() == 'n' {
		return nil, nil
	}
	dec := jsontext.NewDecoder(bytes.NewReader(value))
	start, err := dec.ReadToken()
	if err != nil || start.Kind() != '[' && start.Kind() != '{' {
		return nil, wrong
	}
	read := readPair
	if start.Kind() == '{' {
		read = readMember
	}
	var headers []idem.Header
	for dec.PeekKind() != ']' && dec.PeekKind() != '}' {
		more, ok := read(dec)
		if !ok {
			return nil, wrong
		}
		if headers = append(headers, more...); len(headers) > maxHeadersRead {
			return nil, &idem.FieldError{Field: "response.headers", Reason: fmt.Sprintf("must have at most %d values", idem.MaxHeaders)}
		}
	}
	return headers, nil
}

const (
	// maxHeadersRead bounds what is read before the headers that are never kept are dropped.
	maxHeadersRead = 10 * idem.MaxHeaders
)

// readPair reads ["name", "value"].
func readPair(dec *jsontext.Decoder) ([]idem.Header, bool) {
	pair, ok := readStrings(dec, 3)
	if !ok || len(pair) != 2 {
		return nil, false
	}
	return []idem.Header{{pair[0], pair[1]}}, true
}

// readMember reads "name": "value", or "name": ["value", "value"].
func readMember(dec *jsontext.Decoder) ([]idem.Header, bool) {
	token, err := dec.ReadToken()
	if err != nil {
		return nil, false
	}
	name := token.String() // before the next read, which voids the token
	var values []string
	var ok bool
	if dec.PeekKind() == '"' {
		token, err = dec.ReadToken()
		values, ok = []string{token.String()}, err == nil
	} else {
		values, ok = readStrings(dec, maxHeadersRead+1)
	}
	headers := make([]idem.Header, len(values))
	for i, v := range values {
		headers[i] = idem.Header{name, v}
	}
	return headers, ok
}

// readStrings reads an array of nothing but strings. It goes no further where there are as many as the caller has use for.
func readStrings(dec *jsontext.Decoder, most int) ([]string, bool) {
	if start, err := dec.ReadToken(); err != nil || start.Kind() != '[' {
		return nil, false
	}
	var values []string
	for dec.PeekKind() != ']' {
		token, err := dec.ReadToken()
		if err != nil || token.Kind() != '"' {
			return nil, false
		}
		if values = append(values, token.String()); len(values) == most {
			return values, true
		}
	}
	_, err := dec.ReadToken()
	return values, err == nil
}

// replayForm is how a replay is wanted.
type replayForm struct {
	raw    bool // the bytes alone
	base64 bool
}

// readReplay reads a replay's query. What stands there and is empty is a slip.
func readReplay(call idem.Call, r *http.Request) (ask, replayForm, error) {
	var form replayForm
	values, err := queryOf(r, "owner", "wait_seconds", "body", "raw")
	if err != nil {
		return ask{}, form, err
	}
	cmd := &idem.Replay{Call: call, Owner: call.Token}
	if owner, ok := values["owner"]; ok {
		cmd.Owner = owner
	}
	var wait int64
	if text, ok := values["wait_seconds"]; ok {
		if wait, err = wholeNumber("wait_seconds", text, 0, idem.MaxWaitSeconds); err != nil {
			return ask{}, form, err
		}
	}
	if word, ok := values["body"]; ok {
		if form.base64 = word == "base64"; !form.base64 {
			return ask{}, form, &idem.FieldError{Field: "body", Reason: `must be "base64"`}
		}
	}
	if word, ok := values["raw"]; ok {
		if form.raw = word == "true"; !form.raw && word != "false" {
			return ask{}, form, &idem.FieldError{Field: "raw", Reason: "must be true or false"}
		}
	}
	return ask{cmd: cmd, wait: time.Duration(wait) * time.Second}, form, cmd.Validate()
}

// member is an optional member of a request.
type member struct {
	name  string
	value *string
}

// notEmpty refuses an optional member that is there and says nothing: most often a variable that was not set.
func notEmpty(members ...member) error {
	for _, m := range members {
		if m.value != nil && *m.value == "" {
			return &idem.FieldError{Field: m.name, Reason: "must not be empty; leave it out instead"}
		}
	}
	return nil
}

func word(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func number(n *int, otherwise int) int {
	if n == nil {
		return otherwise
	}
	return *n
}
