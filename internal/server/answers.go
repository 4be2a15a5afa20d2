package server

import (
	"bytes"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/idemstore/idemstore/api"
	"github.com/idemstore/idemstore/internal/idem"
)

// answer is what a command is answered, alone or as an item of a batch.
type answer struct {
	status   int
	code     code
	body     any // of the api package
	replayed bool
}

// answerTo says an outcome in the words of the API.
func (s *Server) answerTo(req *request, a ask, out *idem.Outcome) answer {
	a.ignored = append(a.ignored, out.IgnoredFields...)
	if !out.OK {
		return s.refusal(req, a, out)
	}
	e, key := out.Entry, out.Key
	ans := answer{status: http.StatusOK, code: out.Code}
	switch cmd := a.cmd.(type) {
	case *idem.Reserve:
		if out.Code == idem.CodeRecorded {
			ans.replayed, ans.body = true, replayed(out, false)
			break
		}
		ans.status = http.StatusCreated
		ans.body = s.reserved(out)
	case *idem.Replay:
		ans.replayed, ans.body = true, replayed(out, false)
	case *idem.Dispatch:
		ans.body = &api.Dispatched{
			TaskID: key.TaskID, Attempt: key.Attempt, Outcome: api.DispatchedOutcomeDispatched, Fence: e.Fence,
			LeaseUntil: stamp(e.LeaseUntil), LeaseSecondsLeft: secondsLeft(e, out.Now), ExpiresAt: stamp(e.ExpiresAt),
		}
	case *idem.Renew:
		ans.body = &api.Renewed{
			TaskID: key.TaskID, Attempt: key.Attempt, Outcome: api.RenewedOutcomeRenewed, Fence: e.Fence,
			LeaseUntil: stamp(e.LeaseUntil), LeaseSecondsLeft: secondsLeft(e, out.Now),
			RenewAfterSeconds: renewAfter(e, out.Now), ExpiresAt: stamp(e.ExpiresAt),
		}
	case *idem.Record:
		if out.First {
			ans.status = http.StatusCreated
		}
		ans.body = &api.Recorded{
			TaskID: key.TaskID, Attempt: key.Attempt, Outcome: api.RecordedOutcomeRecorded, Fence: e.Fence,
			RecordedAt: stamp(e.RecordedAt), RecordedBy: e.RecordedBy, Late: e.Late, ExpiresAt: stamp(e.ExpiresAt),
			DroppedHeaders: list(a.dropped), IgnoredFields: list(a.ignored),
		}
	case *idem.Release:
		ans.body = &api.Released{
			TaskID: key.TaskID, Attempt: key.Attempt, Outcome: api.ReleasedOutcome(ans.code), Fence: e.Fence,
			ExpiresAt: stamp(e.ExpiresAt), Doubts: doubts(out.Doubts), DroppedHeaders: list(a.dropped),
		}
	case *idem.Resolve:
		ans.body = entryOf(e, out.Now)
	default:
		panic(fmt.Sprintf("no answer to %T", cmd))
	}
	return ans
}

func (s *Server) reserved(out *idem.Outcome) *api.Reserved {
	e := out.Entry
	body := &api.Reserved{
		TaskID: e.TaskID, Attempt: e.Attempt, Outcome: api.ReservedOutcomeReserved,
		ReservationID: e.ReservationID, Fence: e.Fence, Owner: e.Owner,
		ReservedAt: stamp(e.ReservedAt), LeaseUntil: stamp(e.LeaseUntil), LeaseSecondsLeft: secondsLeft(e, out.Now),
		RenewAfterSeconds: renewAfter(e, out.Now), ExpiresAt: stamp(e.ExpiresAt),
		IdempotencyKey: s.idempotencyKey(e.Key), Doubts: doubts(out.Doubts), OtherAttempts: others(out.Others),
	}
	if e.Handler != "" {
		body.Handler = &e.Handler
	}
	return body
}

// idempotencyKey is the header value for an upstream that honours one: the same for every delivery.
func (s *Server) idempotencyKey(k idem.Key) string {
	key := strings.ReplaceAll(s.config.KeyTemplate, "{attempt}", strconv.Itoa(int(k.Attempt)))
	return strings.ReplaceAll(key, "{task_id}", k.TaskID)
}

func replayed(out *idem.Outcome, asBase64 bool) *api.Replayed {
	e := out.Entry
	return &api.Replayed{
		TaskID: out.Key.TaskID, Attempt: out.Key.Attempt, Outcome: api.ReplayedOutcomeRecorded, Fence: e.Fence,
		RecordedAt: stamp(e.RecordedAt), RecordedBy: e.RecordedBy, Late: e.Late, ExpiresAt: stamp(e.ExpiresAt),
		Response: *response(e.Response, asBase64), ReplayedAttempt: e.Attempt, OtherAttempts: others(out.Others),
	}
}

// refusal is the problem of a command that was judged, and refused.
func (s *Server) refusal(req *request, a ask, out *idem.Outcome) answer {
	p := newProblem(req, out.Code, "")
	p.TaskID, p.Attempt = &out.Key.TaskID, &out.Key.Attempt
	e := out.Entry
	switch out.Code {
	case idem.CodeInProgress:
		left := secondsLeft(e, out.Now)
		p.Attempt, p.Owner, p.Fence = &e.Attempt, &e.Owner, &e.Fence
		p.LeaseUntil, p.LeaseSecondsLeft = stampTo(e.LeaseUntil), &left
		p.ExpiresAt, p.OtherAttempts = stampTo(e.ExpiresAt), others(out.Others)
		p.RetryAfterSeconds = retryAfter(e.LeaseUntil.Sub(out.Now))
		p.Detail = fmt.Sprintf("%s is held by %s until %s. Perform nothing; ask again later, or reserve with wait_seconds.",
			e.Key, e.Owner, stamp(e.LeaseUntil))
	case idem.CodeInDoubt:
		if _, resolve := a.cmd.(*idem.Resolve); resolve {
			movedOn(p, out)
			break
		}
		list, takeovers := doubts(out.Doubts), takeovers(out.Takeovers)
		p.Attempt, p.Fence, p.Doubts = &e.Attempt, &e.Fence, &list
		p.Takeovers, p.TakeoversLeft = &takeovers, &out.TakeoversLeft
		p.ExpiresAt, p.OtherAttempts = stampTo(e.ExpiresAt), others(out.Others)
		p.Detail = inDoubtDetail(out)
	case idem.CodeAlreadyRecorded:
		p.Attempt, p.Fence, p.RecordedAt, p.RecordedBy = &e.Attempt, &e.Fence, stampTo(e.RecordedAt), &e.RecordedBy
		p.Late, p.ExpiresAt = &e.Late, stampTo(e.ExpiresAt)
		if _, renew := a.cmd.(*idem.Renew); !renew {
			p.Response = response(e.Response, false)
		}
		p.Detail = fmt.Sprintf("%s has the response that %s recorded at %s. Perform nothing more; that response is the result.",
			e.Key, e.RecordedBy, stamp(e.RecordedAt))
	case idem.CodeLeaseLost:
		p.Detail = fmt.Sprintf("The reservation of %s was released or superseded. Begin no side effect under it; reserve again with a fresh reservation_id.", out.Key)
	case idem.CodeNotHolder:
		p.Detail = fmt.Sprintf("%s was never granted to this reservation_id. Check that reservation_id, task_id and attempt belong together.", out.Key)
	case idem.CodeNotFound:
		p.Detail = fmt.Sprintf("Nothing is known of %s.", out.Key)
	case idem.CodeRequestMismatch:
		p.Detail = fmt.Sprintf("%s was reserved for a request with another request_hash. Perform nothing; find out why the same task makes two different requests.", out.Key)
	default:
		panic(fmt.Sprintf("%s is no refusal", out.Code))
	}
	if len(a.dropped) > 0 {
		p.DroppedHeaders = &a.dropped
	}
	if len(a.ignored) > 0 {
		p.IgnoredFields = &a.ignored
	}
	return answer{status: p.Status, code: out.Code, body: p}
}

func inDoubtDetail(out *idem.Outcome) string {
	next := "Look into it, then reserve again with these takeovers, and record what happened or do it."
	if out.TakeoversLeft == 0 {
		next = "No takeover is left: only an operator can resolve it."
	}
	last := out.Doubts[len(out.Doubts)-1]
	return fmt.Sprintf("%s is in doubt: the lease of %s ended at %s and nobody knows whether it acted. Perform nothing. %s",
		out.Entry.Key, last.Owner, stamp(last.LeaseUntil), next)
}

// newProblem is the RFC 9457 object of a code. Without a detail, it is the page's.
func newProblem(req *request, c code, detail string) *api.Problem {
	page := pages[c]
	if detail == "" {
		detail = page.means
	}
	return &api.Problem{
		Type: problemType(c), Title: page.title, Status: page.status, Detail: detail,
		Code: api.ProblemCode(c), Outcome: api.ProblemCode(c), RequestID: req.id,
	}
}

func problemType(c code) string { return "/problems/" + strings.ReplaceAll(string(c), "_", "-") }

// response shows a recorded response as it was recorded: the body as text when its bytes are UTF-8, else in base64.
func response(r *idem.Response, asBase64 bool) *api.Response {
	out := &api.Response{Status: r.Status, Headers: make([][2]string, len(r.Headers))}
	for i, h := range r.Headers {
		out.Headers[i] = h
	}
	switch {
	case r.Omitted:
		out.BodyOmitted, out.BodySha256, out.BodySize = &r.Omitted, &r.BodySHA256, &r.BodySize
	case !r.HasBody:
	case asBase64 || !utf8.Valid(r.Body):
		body := r.Body
		if body == nil {
			body = []byte{}
		}
		out.BodyBase64 = &body
	default:
		body := string(r.Body)
		out.Body = &body
	}
	return out
}

func doubts(grants []idem.Grant) []api.Doubt {
	list := make([]api.Doubt, 0, len(grants))
	for _, g := range grants {
		list = append(list, api.Doubt{
			Owner: g.Owner, Fence: g.Fence, ReservedAt: stamp(g.ReservedAt), LeaseUntil: stamp(g.LeaseUntil),
			Dispatched: !g.DispatchedAt.IsZero(),
		})
	}
	return list
}

func takeovers(ts []idem.Takeover) []api.Takeover {
	list := make([]api.Takeover, 0, len(ts))
	for _, t := range ts {
		list = append(list, api.Takeover{Attempt: &t.Attempt, Fence: t.Fence})
	}
	return list
}

func others(os []idem.Other) *[]api.OtherAttempt {
	if os == nil {
		return nil
	}
	list := make([]api.OtherAttempt, 0, len(os))
	for _, o := range os {
		other := api.OtherAttempt{Attempt: o.Attempt, State: api.AttemptState(o.State), InDoubt: o.InDoubt}
		if o.Status != 0 {
			other.ResponseStatus = &o.Status
		}
		list = append(list, other)
	}
	return &list
}

// list is an array in JSON also when there is nothing in it.
func list(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

// stamp writes a time as RFC 3339 in UTC with microseconds.
func stamp(t time.Time) string { return idem.Stamp(t) }

func stampTo(t time.Time) *string {
	s := stamp(t)
	return &s
}

// secondsLeft rounds down: a holder must not think that it has more.
func secondsLeft(e *idem.Entry, now time.Time) int {
	return int(max(0, e.LeaseUntil.Sub(now)) / time.Second)
}

// renewAfter is a third of what is left, so that a renewal may fail once and still come in time.
func renewAfter(e *idem.Entry, now time.Time) float64 {
	return math.Floor(max(0, e.LeaseUntil.Sub(now)).Seconds()/3*1000) / 1000
}

// retryAfter rounds up, and keeps to 1 to 60 seconds.
func retryAfter(d time.Duration) *int {
	seconds := int(min(max(math.Ceil(d.Seconds()), 1), 60))
	return &seconds
}

// encode writes JSON.
func encode(body any) []byte {
	var out bytes.Buffer
	out.Grow(512)
	encodeTo(&out, body)
	return out.Bytes()
}

// encodeTo writes JSON. What the server sends is always encodable: of what a caller sent, it may quote what is no UTF-8.
func encodeTo(out *bytes.Buffer, body any) {
	if err := json.MarshalWrite(out, body, jsontext.AllowInvalidUTF8(true)); err != nil {
		panic(fmt.Sprintf("encoding %T: %v", body, err))
	}
}
