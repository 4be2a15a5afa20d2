package server

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/idemstore/idemstore/api"
	"github.com/idemstore/idemstore/internal/idem"
)

// BatchReserve implements api.ServerInterface.
func (s *Server) BatchReserve(w http.ResponseWriter, r *http.Request) {
	s.serveBatch(w, r, false, func(body jsontext.Value, call func(idem.Key) idem.Call) (ask, error) {
		var in api.BatchReserveItem
		if err := strict(body, &in); err != nil {
			return ask{}, err
		}
		key, err := itemKey(in.TaskID, in.Attempt)
		if err != nil {
			return ask{}, err
		}
		return s.reserve(call(key), &api.ReserveRequest{
			Owner: in.Owner, ReservationID: in.ReservationID, Handler: in.Handler, RequestHash: in.RequestHash,
			LeaseSeconds: in.LeaseSeconds, Dispatch: in.Dispatch, Scope: in.Scope, Takeovers: in.Takeovers,
		})
	})
}

// BatchRecord implements api.ServerInterface.
func (s *Server) BatchRecord(w http.ResponseWriter, r *http.Request) {
	s.serveBatch(w, r, true, func(body jsontext.Value, call func(idem.Key) idem.Call) (ask, error) {
		var in api.BatchRecordItem
		ignored, err := lenient(body, &in)
		if err != nil {
			return ask{}, err
		}
		key, err := itemKey(in.TaskID, in.Attempt)
		if err != nil {
			return ask{}, err
		}
		return s.record(call(key), &api.RecordRequest{
			ReservationID: in.ReservationID, Owner: in.Owner, RequestHash: in.RequestHash,
			RetentionSeconds: in.RetentionSeconds, Response: in.Response,
		}, ignored)
	})
}

func itemKey(taskID string, attempt *api.Attempt) (idem.Key, error) {
	if attempt == nil {
		return idem.Key{}, &idem.FieldError{Field: "attempt", Reason: "is required"}
	}
	return newKey(taskID, strconv.Itoa(int(*attempt)))
}

// serveBatch carries out the items as if one after the other. Only a fault outside the items fails the call.
func (s *Server) serveBatch(w http.ResponseWriter, r *http.Request, lenientOutside bool,
	read func(body jsontext.Value, call func(idem.Key) idem.Call) (ask, error),
) {
	req := requestOf(r.Context())
	body, err := readBody(r, maxBatchBody)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	items, err := readItems(body, lenientOutside)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	req.items = len(items)
	asks, answers := make([]ask, len(items)), make([]answer, len(items))
	var cmds []idem.Command
	for i, item := range items {
		a, err := read(item, func(k idem.Key) idem.Call { return s.call(req, k) })
		if err != nil {
			answers[i] = s.faultOf(req, err)
			continue
		}
		asks[i] = a
		cmds = append(cmds, a.cmd)
	}
	results := s.do(r.Context(), cmds...)
	if len(results) > 0 && allBusy(results) {
		s.fail(w, r, idem.ErrBusy)
		return
	}
	for i, a := range asks {
		if a.cmd == nil {
			continue
		}
		result := results[0]
		results = results[1:]
		if result.Err != nil {
			answers[i] = s.faultOf(req, result.Err)
			req.err = result.Err // the last one speaks for all
			continue
		}
		answers[i] = s.answerTo(req, a, &result.Outcome)
		s.warn(req, result.Outcome.Key, answers[i].code)
	}
	s.sendBatch(w, answers)
}

func allBusy(results []idem.Result) bool {
	for _, r := range results {
		if !errors.Is(r.Err, idem.ErrBusy) {
			return false
		}
	}
	return true
}

func (s *Server) sendBatch(w http.ResponseWriter, answers []answer) {
	out := api.BatchAnswer{Results: make([]api.BatchResult, len(answers))}
	for i, a := range answers {
		out.Results[i] = api.BatchResult{Status: a.status, Body: encode(a.body)}
	}
	sendJSON(w, http.StatusOK, "application/json", encode(&out))
}

// readItems takes a batch apart without judging what is in its items, each of which answers for itself.
func readItems(body []byte, lenientOutside bool) ([]jsontext.Value, error) {
	// What an item may not have must not fail the call, so only the outside is read strictly.
	loose := []json.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}
	if err := whole(body, loose...); err != nil {
		return nil, err
	}
	dec := jsontext.NewDecoder(bytes.NewReader(body), loose...)
	if start, err := dec.ReadToken(); err != nil || start.Kind() != '{' {
		return nil, &idem.FieldError{Field: "body", Reason: "must be an object"}
	}
	var items []jsontext.Value
	seen := false
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, fault(err)
		}
		field := name.String()
		value, err := dec.ReadValue()
		switch {
		case err != nil:
			return nil, fault(err)
		case field == "items" && seen:
			return nil, &idem.FieldError{Field: field, Reason: "stands there twice"}
		case field == "items":
			seen = true
			if items, err = elements(value, loose...); err != nil {
				return nil, err
			}
		case strings.EqualFold(field, "items"):
			return nil, &idem.FieldError{Field: field, Reason: "must be written items"}
		case !lenientOutside:
			return nil, &idem.FieldError{Field: field, Reason: unknownMember}
		}
	}
	if !seen {
		return nil, &idem.FieldError{Field: "items", Reason: "is required"}
	}
	return items, nil
}

// whole checks that a body is one JSON value with nothing behind it.
func whole(body []byte, opts ...json.Options) error {
	dec := jsontext.NewDecoder(bytes.NewReader(body), opts...)
	if err := dec.SkipValue(); err != nil {
		return fault(err)
	}
	if _, err := dec.ReadToken(); err != io.EOF { //nolint:errorlint // the decoder promises io.EOF itself
		return &idem.FieldError{Field: "body", Reason: "has something behind its end"}
	}
	return nil
}

// elements takes an array apart, and stops where it has too many: a list of nothing can be very long.
func elements(array jsontext.Value, opts ...json.Options) ([]jsontext.Value, error) {
	if array.Kind() != '[' {
		return nil, &idem.FieldError{Field: "items", Reason: "must be an array"}
	}
	array = array.Clone() // the decoder that it came from goes on
	dec := jsontext.NewDecoder(bytes.NewReader(array), opts...)
	if _, err := dec.ReadToken(); err != nil {
		return nil, fault(err)
	}
	items := []jsontext.Value{}
	for dec.PeekKind() != ']' {
		if len(items) == idem.MaxBatch {
			return nil, &idem.FieldError{Field: "items", Reason: "must have at most " + strconv.Itoa(idem.MaxBatch) + " items"}
		}
		value, err := dec.ReadValue()
		if err != nil {
			return nil, fault(err)
		}
		items = append(items, value.Clone())
	}
	return items, nil
}
