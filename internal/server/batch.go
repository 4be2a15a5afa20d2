package server

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"
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
	body, err := s.readBody(r, maxBatchBody)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	items, err := readItems(body, lenientOutside)
	if err != nil {
		s.fail(w, r, cmp.Or(wellFormed(body), err)) // JSON that is none is told first, and where it is
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
	verb := strings.TrimPrefix(chi.RouteContext(r.Context()).RoutePattern(), batchRoute)
	results := s.do(r.Context(), cmds...)
	if len(results) > 0 && allBusy(results) {
		for _, cmd := range cmds {
			s.observeItem(verb, cmd, &idem.Outcome{}, codeTooManyRequests)
		}
		s.fail(w, r, idem.ErrBusy)
		return
	}
	for i, a := range asks {
		var result idem.Result
		if a.cmd != nil {
			result, results = results[0], results[1:]
			answers[i] = s.answerItem(req, a, &result)
		}
		s.observeItem(verb, a.cmd, &result.Outcome, answers[i].code)
	}
	s.sendBatch(w, answers)
}

func (s *Server) answerItem(req *request, a ask, result *idem.Result) answer {
	if result.Err != nil {
		req.err = result.Err // the last one speaks for all
		return s.faultOf(req, result.Err)
	}
	answer := s.answerTo(req, a, &result.Outcome)
	s.warn(req, result.Outcome.Key, answer.code)
	return answer
}

func allBusy(results []idem.Result) bool {
	for _, r := range results {
		if !errors.Is(r.Err, idem.ErrBusy) {
			return false
		}
	}
	return true
}

// sendBatch puts the answers together by hand, as each is JSON already. What it sends is an api.BatchAnswer.
func (s *Server) sendBatch(w http.ResponseWriter, answers []answer) {
	var out bytes.Buffer
	out.Grow(512*len(answers) + 16)
	out.WriteString(`{"results":[`)
	for i, a := range answers {
		if i > 0 {
			out.WriteByte(',')
		}
		out.WriteString(`{"status":`)
		out.WriteString(strconv.Itoa(a.status))
		out.WriteString(`,"body":`)
		encodeTo(&out, a.body)
		out.WriteByte('}')
	}
	out.WriteString("]}")
	sendJSON(w, http.StatusOK, "application/json", out.Bytes())
}

// readItems takes a batch apart without judging what is in its items, each of which answers for itself. It stops where
// there are too many: a list of nothing can be very long.
func readItems(body []byte, lenientOutside bool) ([]jsontext.Value, error) {
	dec := outside(body)
	if start, err := dec.ReadToken(); err != nil {
		return nil, fault(err)
	} else if start.Kind() != '{' {
		return nil, &idem.FieldError{Field: "body", Reason: "must be an object"}
	}
	var items []jsontext.Value
	for dec.PeekKind() == '"' {
		token, err := dec.ReadToken()
		if err != nil {
			return nil, fault(err)
		}
		field := token.String()
		switch {
		case field == "items" && items != nil:
			return nil, &idem.FieldError{Field: field, Reason: "stands there twice"}
		case field == "items":
			items, err = elements(dec, body)
		case strings.EqualFold(field, "items"):
			return nil, &idem.FieldError{Field: field, Reason: "must be written items"}
		case !lenientOutside:
			return nil, &idem.FieldError{Field: cmp.Or(field, "body"), Reason: unknownMember}
		default:
			err = fault(dec.SkipValue())
		}
		if err != nil {
			return nil, err
		}
	}
	if _, err := dec.ReadToken(); err != nil { // the end of the object
		return nil, fault(err)
	}
	if _, err := dec.ReadToken(); err != io.EOF { //nolint:errorlint // the decoder promises io.EOF itself
		return nil, &idem.FieldError{Field: "body", Reason: "has something behind its end"}
	}
	if items == nil {
		return nil, &idem.FieldError{Field: "items", Reason: "is required"}
	}
	return items, nil
}

// outside reads what is around the items: what one of them may not have must not fail the call.
func outside(body []byte) *jsontext.Decoder {
	return jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// wellFormed checks the JSON of a batch token by token, so that a fault is found where it is and not in the item around it.
func wellFormed(body []byte) error {
	return fault(outside(body).SkipValue())
}

// elements reads the array that comes next. They are parts of the body.
func elements(dec *jsontext.Decoder, body []byte) ([]jsontext.Value, error) {
	if dec.PeekKind() != '[' {
		if err := dec.SkipValue(); err != nil {
			return nil, fault(err)
		}
		return nil, &idem.FieldError{Field: "items", Reason: "must be an array"}
	}
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
		end := int(dec.InputOffset())
		items = append(items, body[end-len(value):end:end])
	}
	_, err := dec.ReadToken()
	return items, fault(err)
}
