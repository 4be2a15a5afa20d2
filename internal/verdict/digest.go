package verdict

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// Response is what of a response makes it another one.
type Response struct {
	Status  int
	Headers [][2]string
	HasBody bool
	Body    []byte
	Omitted string // what is known of a body that was not kept
}

// Digest is what a verdict knows a response by, so that nobody has to keep its bytes. No two responses run together.
func (r Response) Digest() string {
	h := sha256.New()
	number := func(n int) { _ = binary.Write(h, binary.BigEndian, int64(n)) }
	text := func(s string) { number(len(s)); h.Write([]byte(s)) }
	number(r.Status)
	number(len(r.Headers))
	for _, line := range r.Headers {
		text(line[0])
		text(line[1])
	}
	text(r.Omitted)
	_ = binary.Write(h, binary.BigEndian, r.HasBody)
	h.Write(r.Body) // it is the last
	return hex.EncodeToString(h.Sum(nil))
}
