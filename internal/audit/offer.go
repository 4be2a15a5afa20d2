package audit

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/idemstore/idemstore/api"
)

// maxBody bounds what is read as a response: the most that a service can be set to keep, in base64 and with its headers.
const maxBody = 32 << 20

// Response makes the response that is recorded: of a status, headers and a file with the body.
func (s *Session) Response(status int, headers []string, bodyFile string) (*api.OfferedResponse, error) {
	r := &api.OfferedResponse{Status: &status}
	pairs := make([][2]string, 0, len(headers))
	for _, h := range headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok {
			return nil, fail(Usage, "--record-header %q: want a header such as \"Content-Type: application/json\"", h)
		}
		pairs = append(pairs, [2]string{name, strings.TrimSpace(value)})
	}
	if len(pairs) > 0 {
		text, err := json.Marshal(pairs)
		if err != nil {
			return nil, err
		}
		r.Headers = (*api.OfferedHeaders)(&text)
	}
	if bodyFile == "" {
		return r, nil
	}
	body, err := s.readFile(bodyFile)
	if err != nil {
		return nil, err
	}
	if text := string(body); utf8.ValidString(text) {
		r.Body = &text
	} else {
		r.BodyBase64 = &body
	}
	return r, nil
}

// ResponseFile reads the response that is recorded, as the service shows one in JSON.
func (s *Session) ResponseFile(file string) (*api.OfferedResponse, error) {
	text, err := s.readFile(file)
	if err != nil {
		return nil, err
	}
	var r api.OfferedResponse
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return nil, fail(Usage, "--response-file %s: want a response as the service shows one, such as {\"status\": 201, \"body\": \"...\"}: %v", file, err)
	}
	if d.More() {
		return nil, fail(Usage, "--response-file %s: something stands behind the response", file)
	}
	return &r, nil
}

// readFile reads a file, or for - what comes in.
func (s *Session) readFile(name string) ([]byte, error) {
	in := s.In
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, fail(Usage, "%v", err)
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxBody+1))
	if err != nil {
		return nil, fail(Failed, "reading %s: %v", name, err)
	}
	if len(text) > maxBody {
		return nil, fail(Usage, "%s: larger than any service keeps; record it with body_omitted, in a --response-file", name)
	}
	return text, nil
}

// preview is an offered response as one that is shown.
func preview(o *api.OfferedResponse) *api.Response {
	r := &api.Response{
		Status: 200, Body: o.Body, BodyBase64: o.BodyBase64, BodyOmitted: o.BodyOmitted, BodySha256: o.BodySha256, BodySize: o.BodySize,
	}
	if o.Status != nil {
		r.Status = *o.Status
	}
	return r
}
