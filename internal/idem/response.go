package idem

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
)

// Header is one header line of a recorded response, its name in the case in which it came.
type Header [2]string

// Response is what an upstream answered, kept and replayed byte for byte.
type Response struct {
	Status  int
	Headers []Header

	// HasBody keeps no body and an empty body apart.
	HasBody bool
	Body    []byte

	// Omitted stands for a body that was too large to keep: its digest and size are kept in its place.
	Omitted    bool
	BodySHA256 string
	BodySize   int64

	// Partial marks a response of which only the status was loaded. It is never replayed as it is.
	Partial bool
}

// Equal says whether two responses are the same: status, headers in order and case, and bytes.
func (r *Response) Equal(o *Response) bool {
	return r.Status == o.Status && slices.Equal(r.Headers, o.Headers) &&
		r.HasBody == o.HasBody && bytes.Equal(r.Body, o.Body) &&
		r.Omitted == o.Omitted && r.BodySHA256 == o.BodySHA256 && r.BodySize == o.BodySize
}

// digest is a short name of a response, by which a repeated refusal is known. Every part is preceded by its length,
// so that no two responses run together.
func (r *Response) digest() string {
	if r == nil {
		return ""
	}
	h := sha256.New()
	number := func(n int64) { _ = binary.Write(h, binary.BigEndian, n) }
	text := func(s string) { number(int64(len(s))); h.Write([]byte(s)) }
	number(int64(r.Status))
	number(int64(len(r.Headers)))
	for _, line := range r.Headers {
		text(line[0])
		text(line[1])
	}
	_ = binary.Write(h, binary.BigEndian, [2]bool{r.HasBody, r.Omitted})
	text(string(r.Body))
	text(r.BodySHA256)
	number(r.BodySize)
	return hex.EncodeToString(h.Sum(nil)[:12])
}
