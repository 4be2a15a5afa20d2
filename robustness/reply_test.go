package robustness

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/idemstore/idemstore/api"
	"github.com/idemstore/idemstore/internal/idem"
)

// reply is an answer: the members of all answers and problems in one, as far as they are compared.
type reply struct {
	Status int `json:"-"`

	Outcome         string              `json:"outcome"`
	Attempt         *int32              `json:"attempt"`
	ReservationID   string              `json:"reservation_id"`
	Fence           int64               `json:"fence"`
	Owner           string              `json:"owner"`
	ReservedAt      time.Time           `json:"reserved_at"`
	LeaseUntil      time.Time           `json:"lease_until"`
	LeaseLeft       int                 `json:"lease_seconds_left"`
	ExpiresAt       time.Time           `json:"expires_at"`
	RecordedAt      time.Time           `json:"recorded_at"`
	RecordedBy      string              `json:"recorded_by"`
	Late            bool                `json:"late"`
	Response        *api.Response       `json:"response"`
	Doubts          []api.Doubt         `json:"doubts"`
	Takeovers       []api.Takeover      `json:"takeovers"`
	TakeoversLeft   *int                `json:"takeovers_left"`
	ReplayedAttempt *int32              `json:"replayed_attempt"`
	Others          *[]api.OtherAttempt `json:"other_attempts"`
	State           string              `json:"state"` // of an entry, which resolve answers
	Detail          string              `json:"detail"`
	matched         bool                // of an age
}

func readReply(status int, body []byte) (*reply, error) {
	var r reply
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, fmt.Errorf("an answer %d that is no JSON: %w: %.200s", status, err, body)
	}
	r.Status = status
	return &r, nil
}

// certain says whether the answer tells what became of the command.
func (r *reply) certain() bool { return r.Status < 500 && r.Status != 429 }

// responseOf is a response as the service keeps it.
func responseOf(r *api.Response) *idem.Response {
	if r == nil {
		return nil
	}
	out := &idem.Response{Status: r.Status}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, h)
	}
	switch {
	case r.Body != nil:
		out.HasBody, out.Body = true, []byte(*r.Body)
	case r.BodyBase64 != nil:
		out.HasBody, out.Body = true, *r.BodyBase64
	case r.BodyOmitted != nil:
		out.Omitted, out.BodySHA256, out.BodySize = *r.BodyOmitted, *r.BodySha256, *r.BodySize
	}
	return out
}

// tells says whether an outcome of the model is what the reply says, and if not, where they part.
func (r *reply) tells(cmd idem.Command, out *idem.Outcome) error {
	want := expected(cmd, out)
	if r.Status != want.Status || r.Outcome != want.Outcome && r.State != want.Outcome {
		return fmt.Errorf("%d %s%s, not %d %s", r.Status, r.Outcome, r.State, want.Status, want.Outcome)
	}
	e := out.Entry
	if e == nil {
		return nil
	}
	differ := func(member string, got, want any) error {
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("%s %v, not %v", member, got, want)
		}
		return nil
	}
	checks := []error{}
	check := func(member string, got, want any) { checks = append(checks, differ(member, got, want)) }
	if r.Fence != 0 {
		check("fence", r.Fence, e.Fence)
	}
	if !r.LeaseUntil.IsZero() {
		check("lease_until", idem.Stamp(r.LeaseUntil), idem.Stamp(e.LeaseUntil))
	}
	if !r.ReservedAt.IsZero() {
		check("reserved_at", idem.Stamp(r.ReservedAt), idem.Stamp(e.ReservedAt))
	}
	if !r.RecordedAt.IsZero() {
		check("recorded_at", idem.Stamp(r.RecordedAt), idem.Stamp(e.RecordedAt))
		check("recorded_by", r.RecordedBy, e.RecordedBy)
		check("late", r.Late, e.Late)
	}
	if !r.ExpiresAt.IsZero() {
		check("expires_at", idem.Stamp(r.ExpiresAt), idem.Stamp(e.ExpiresAt))
	}
	if r.Response != nil && !responseOf(r.Response).Equal(e.Response) {
		checks = append(checks, fmt.Errorf("another response than was recorded"))
	}
	if r.Doubts != nil {
		var got, model []string
		for _, d := range r.Doubts {
			got = append(got, fmt.Sprint(d.Owner, d.Fence, d.ReservedAt, d.LeaseUntil, d.Dispatched))
		}
		for _, g := range out.Doubts {
			model = append(model, fmt.Sprint(g.Owner, g.Fence, idem.Stamp(g.ReservedAt), idem.Stamp(g.LeaseUntil), !g.DispatchedAt.IsZero()))
		}
		check("doubts", got, model)
	}
	if r.Takeovers != nil && out.Takeovers != nil {
		var got []idem.Takeover
		for _, t := range r.Takeovers {
			got = append(got, idem.Takeover{Attempt: *t.Attempt, Fence: t.Fence})
		}
		check("takeovers", got, out.Takeovers)
		check("takeovers_left", *r.TakeoversLeft, out.TakeoversLeft)
	}
	if r.Others != nil && out.Others != nil {
		var got []string
		var model []string
		for _, o := range *r.Others {
			got = append(got, fmt.Sprint(o.Attempt, o.State, o.InDoubt))
		}
		for _, o := range out.Others {
			model = append(model, fmt.Sprint(o.Attempt, o.State, o.InDoubt))
		}
		check("other_attempts", got, model)
	}
	for _, err := range checks {
		if err != nil {
			return err
		}
	}
	return nil
}

// expected is the status and the word of an outcome.
func expected(cmd idem.Command, out *idem.Outcome) reply {
	r := reply{Status: 200, Outcome: string(out.Code)}
	if !out.OK {
		switch r.Status = 409; out.Code {
		case idem.CodeNotFound:
			r.Status = 404
		case idem.CodeRequestMismatch:
			r.Status = 422
		default:
		}
		return r
	}
	switch cmd.(type) {
	case *idem.Reserve:
		if out.Code == idem.CodeReserved {
			r.Status = 201
		}
	case *idem.Record:
		if out.First {
			r.Status = 201
		}
	default:
	}
	return r
}
