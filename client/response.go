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
	"strconv"
	"unicode/utf8"

	"github.com/idemstore/idemstore/api"
)

// Response is what came of an effect.
type Response struct {
	// Status is 100 to 599. 0 becomes 200. Any other is none of HTTP, and becomes 502, with its number in the header
	// Upstream-Status: what happened is recorded, whatever the upstream calls it.
	Status int

	// Header is recorded, but for what the service is told to drop. A value that is not UTF-8 is recorded as the Latin-1 that
	// HTTP once meant.
	Header http.Header

	Body []byte // nil: there was none, which is not the same as an empty one

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

// maxBody is the largest body that any service can be told to keep.
const maxBody = 16 << 20

// FromHTTP reads an upstream's answer. One that breaks off is an error, and not one of which it is known that nothing
// happened. A body over 16 MiB, which no service keeps, is Omitted.
func FromHTTP(res *http.Response) (Response, error) {
	out := Response{Status: res.StatusCode, Header: res.Header}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxBody+1))
	if err == nil && len(body) <= maxBody {
		out.Body = body
		return out, nil
	}
	sum, size := sha256.New(), int64(len(body))
	if err == nil {
		sum.Write(body)
		var more int64
		more, err = io.Copy(sum, res.Body)
		size += more
	}
	if err != nil {
		return Response{}, fmt.Errorf("reading the upstream's answer: %w", err)
	}
	out.Omitted = &Omitted{SHA256: hex.EncodeToString(sum.Sum(nil)), Size: size}
	return out, nil
}

// withStatus is the response with a status that can be recorded.
func (r Response) withStatus() Response {
	switch {
	case r.Status == 0:
		r.Status = http.StatusOK
	case r.Status < 100 || r.Status > 599:
		r.Header = r.Header.Clone()
		if r.Header == nil {
			r.Header = make(http.Header)
		}
		r.Header.Set("Upstream-Status", strconv.Itoa(r.Status))
		r.Status = http.StatusBadGateway
	}
	return r
}

// offer is the response as it is recorded: the same bytes for the same response, so that repeating it is seen as such.
func (r Response) offer() *api.OfferedResponse {
	out := &api.OfferedResponse{Status: &r.Status}
	if len(r.Header) > 0 {
		pairs := [][2]string{}
		for _, name := range slices.Sorted(maps.Keys(r.Header)) {
			for _, value := range r.Header[name] {
				pairs = append(pairs, [2]string{name, readable(value)})
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

// readable is a header's value as JSON can hold it.
func readable(value string) string {
	if utf8.ValidString(value) {
		return value
	}
	runes := make([]rune, len(value))
	for i := range len(value) {
		runes[i] = rune(value[i])
	}
	return string(runes)
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
