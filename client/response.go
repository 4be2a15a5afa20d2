package client

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"unicode/utf8"

	"github.com/idemstore/idemstore/api"
)

// Response is what came of an effect.
type Response struct {
	Status int // 100 to 599; 0 is recorded as 200
	Header http.Header
	Body   []byte // nil: there was none, which is not the same as an empty one

	// Omitted stands in for a body that was too large to keep.
	Omitted *Omitted

	// Replayed says that the effect was not performed by this call: the response was recorded before, or found by a look.
	Replayed bool

	// Duplicate says that the effect was performed by this call, and that another response had been recorded meanwhile, which
	// is this one: it happened twice. The service has kept this call's own response as evidence.
	Duplicate bool
}

// Omitted tells of a body that was too large to keep.
type Omitted struct {
	SHA256 string // in hex
	Size   int64
}

// FromHTTP reads an upstream's answer. One that breaks off is an error, and not one of which it is known that nothing
// happened.
func FromHTTP(res *http.Response) (Response, error) {
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return Response{}, fmt.Errorf("reading the upstream's answer: %w", err)
	}
	return Response{Status: res.StatusCode, Header: res.Header, Body: body}, nil
}

// offer is the response as it is recorded: the same bytes for the same response, so that repeating it is seen as such.
func (r Response) offer() *api.OfferedResponse {
	status := r.Status
	if status == 0 {
		status = http.StatusOK
	}
	out := &api.OfferedResponse{Status: &status}
	if len(r.Header) > 0 {
		pairs := [][2]string{}
		for _, name := range slices.Sorted(maps.Keys(r.Header)) {
			for _, value := range r.Header[name] {
				pairs = append(pairs, [2]string{name, value})
			}
		}
		text, _ := json.Marshal(pairs) // strings always can be
		headers := api.OfferedHeaders(text)
		out.Headers = &headers
	}
	switch {
	case r.Omitted != nil:
		omitted := true
		out.BodyOmitted, out.BodySha256, out.BodySize = &omitted, &r.Omitted.SHA256, &r.Omitted.Size
	case r.Body == nil:
	case utf8.Valid(r.Body):
		text := string(r.Body)
		out.Body = &text
	default:
		out.BodyBase64 = &r.Body
	}
	return out
}

// withoutBody is the response with the body's hash in its place.
func (r Response) withoutBody() Response {
	sum := sha256.Sum256(r.Body)
	r.Omitted = &Omitted{SHA256: hex.EncodeToString(sum[:]), Size: int64(len(r.Body))}
	r.Body = nil
	return r
}

// kept is a response as the service has it.
func kept(in *api.Response) Response {
	out := Response{Status: in.Status, Header: make(http.Header)}
	for _, pair := range in.Headers {
		out.Header.Add(pair[0], pair[1])
	}
	switch {
	case in.BodyOmitted != nil && in.BodySha256 != nil && in.BodySize != nil:
		out.Omitted = &Omitted{SHA256: *in.BodySha256, Size: *in.BodySize}
	case in.Body != nil:
		out.Body = []byte(*in.Body)
	case in.BodyBase64 != nil:
		out.Body = *in.BodyBase64
	}
	return out
}
