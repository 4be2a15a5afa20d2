package idem_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/idemstore/idemstore/internal/idem"
)

// numbers are the values of a whole number about its limits, and whether each may be.
func numbers(low, high int64) map[int64]bool {
	return map[int64]bool{
		low: true, high: true, low + 1: true, high - 1: true,
		low - 1: false, high + 1: false, math.MinInt32: false, math.MaxInt32: high == math.MaxInt32,
	}
}

// texts are texts of about the most characters that may be, of one byte and of four, and whether each may be.
func texts(most int) map[string]bool {
	return map[string]bool{
		"x": true, strings.Repeat("x", most): true, strings.Repeat("🜚", most): true, "é ü": true,
		strings.Repeat("x", most+1): false, strings.Repeat("🜚", most+1): false, strings.Repeat("x", 1<<20): false,
		"a\xff": false, "\xed\xa0\x80": false,
	}
}

func field(name string, may bool) string {
	if may {
		return ""
	}
	return name
}

func short(v any) string { return fmt.Sprintf("%.40q", fmt.Sprint(v)) }

func TestNumbersHaveLimits(t *testing.T) {
	t.Parallel()
	for n, may := range numbers(1, 86400) {
		r, w := reserve(0, "a"), renew(0, "a")
		r.LeaseSeconds, w.LeaseSeconds = int(n), int(n)
		faulty(t, short(n), r.Validate(), field("lease_seconds", may))
		faulty(t, short(n), w.Validate(), field("lease_seconds", may))
	}
	for n, may := range numbers(3600, 31536000) {
		c := record(0, "a", answerA())
		c.RetentionSeconds = int(n)
		faulty(t, short(n), c.Validate(), field("retention_seconds", may))
	}
	for n, may := range numbers(100, 599) {
		r := &idem.Response{Status: int(n)}
		faulty(t, short(n), record(0, "a", r).Validate(), field("response.status", may))
		faulty(t, short(n), resolve(0, 1, r).Validate(), field("response.status", may))
		c := release(0, "a")
		c.Response = r
		faulty(t, short(n), c.Validate(), field("response.status", may))
	}
	for n, may := range map[int64]bool{1: true, math.MaxInt64: true, 0: false, -1: false, math.MinInt64: false} {
		faulty(t, short(n), resolve(0, n, nil).Validate(), field("fence", may))
		faulty(t, short(n), reserve(0, "a", naming(0, n)).Validate(), field("takeovers[0].fence", may))
	}
	for n, may := range map[int64]bool{0: true, math.MaxInt32: true, -1: false, math.MinInt32: false} {
		faulty(t, short(n), reserve(0, "a", naming(n, 1)).Validate(), field("takeovers[0].attempt", may))
	}
}

func TestTextsHaveLimits(t *testing.T) {
	t.Parallel()
	names := texts(255)
	for _, control := range []string{"a\x00", "\n", "a\tb", "\x7f", "\u0085"} {
		names[control] = false
	}
	for s, may := range names {
		r := reserve(0, "a")
		r.Owner = s
		faulty(t, short(s), r.Validate(), field("owner", may))
		r = reserve(0, "a")
		r.Handler = s
		faulty(t, short(s), r.Validate(), field("handler", may))
		faulty(t, short(s), unreserved(0, s, answerA()).Validate(), field("owner", may))
		p := replay(0)
		p.Owner = s
		faulty(t, short(s), p.Validate(), field("owner", may))
	}
	for s, may := range texts(1000) {
		c, r := release(0, "a"), resolve(0, 1, nil)
		c.Reason, r.Reason = s, s
		faulty(t, short(s), c.Validate(), field("reason", may))
		faulty(t, short(s), r.Validate(), field("reason", may))
	}
	for s, may := range map[string]bool{
		"": true, "!": true, "~": true, strings.Repeat("x", 128): true, "sha256:9f86": true,
		strings.Repeat("x", 129): false, strings.Repeat("x", 1<<20): false, "a b": false, "é": false, "\x7f": false, "a\n": false, "a\xff": false,
	} {
		r, c := reserve(0, "a"), record(0, "a", answerA())
		r.RequestHash, c.RequestHash = s, s
		faulty(t, short(s), r.Validate(), field("request_hash", may))
		faulty(t, short(s), c.Validate(), field("request_hash", may))
	}
}

func TestRequiredFields(t *testing.T) {
	t.Parallel()
	without := func(f func(*idem.Reserve)) *idem.Reserve { return reserve(0, "a", f) }
	faulty(t, "owner", without(func(c *idem.Reserve) { c.Owner = "" }).Validate(), "owner")
	faulty(t, "reservation_id", without(func(c *idem.Reserve) { c.ReservationID = "" }).Validate(), "reservation_id")
	faulty(t, "handler", without(func(c *idem.Reserve) { c.Handler = "" }).Validate(), "")
	faulty(t, "response", record(0, "a", nil).Validate(), "response")
	faulty(t, "owner", unreserved(0, "", answerA()).Validate(), "owner")
	faulty(t, "owner beside a reservation", record(0, "a", answerA()).Validate(), "")
	faulty(t, "owner", (&idem.Replay{Call: call(0)}).Validate(), "owner")
	faulty(t, "reason", (&idem.Resolve{Call: call(0), Fence: 1}).Validate(), "reason")
	faulty(t, "reason", release(0, "a").Validate(), "")
	for _, cmd := range []idem.Command{
		&idem.Dispatch{Call: call(0)}, &idem.Renew{Call: call(0), LeaseSeconds: 1}, &idem.Release{Call: call(0)},
	} {
		faulty(t, fmt.Sprintf("%T", cmd), cmd.Validate(), "reservation_id")
	}
}

func TestReservationIDs(t *testing.T) {
	t.Parallel()
	const upper, lower = "0D9CF0A1-1B2C-4D3E-8F4A-5B6C7D8E9F0A", "0d9cf0a1-1b2c-4d3e-8f4a-5b6c7d8e9f0a"
	for s, may := range map[string]bool{
		upper: true, lower: true,
		"x": false, lower + "0": false, lower[1:]: false, "{" + lower + "}": false, "urn:uuid:" + lower: false, strings.ReplaceAll(lower, "-", ""): false,
	} {
		r, d, n, c, l := reserve(0, "a"), dispatch(0, "a"), renew(0, "a"), record(0, "a", answerA()), release(0, "a")
		r.ReservationID, d.ReservationID, n.ReservationID, c.ReservationID, l.ReservationID = s, s, s, s, s
		for _, cmd := range []idem.Command{r, d, n, c, l} {
			faulty(t, s, cmd.Validate(), field("reservation_id", may))
			if may && reservationOf(cmd) != lower {
				t.Errorf("%T keeps %q", cmd, reservationOf(cmd))
			}
		}
	}
	for _, id := range []string{upper, lower} {
		r := reserve(0, "a")
		r.TaskID, r.ReservationID = lower, id
		faulty(t, "a reservation that is the task", r.Validate(), "reservation_id")
	}
}

func TestTakeoversHaveLimits(t *testing.T) {
	t.Parallel()
	var pairs []int64
	for attempt := range int64(idem.MaxTakeovers) {
		pairs = append(pairs, attempt, 1)
	}
	faulty(t, "16", reserve(0, "a", naming(pairs...)).Validate(), "")
	faulty(t, "17", reserve(0, "a", naming(append(pairs, 99, 1)...)).Validate(), "takeovers")
	faulty(t, "twice", reserve(0, "a", naming(3, 1, 3, 2)).Validate(), "takeovers[1].attempt")
}

func TestResponsesHaveLimits(t *testing.T) {
	t.Parallel()
	headers := func(n, size int) *idem.Response {
		r := &idem.Response{Status: 200}
		for range n {
			r.Headers = append(r.Headers, idem.Header{"n", strings.Repeat("v", size-1)})
		}
		return r
	}
	digest := strings.Repeat("0a", 32)
	omitted := func(digest string, size int64) *idem.Response {
		return &idem.Response{Status: 200, Omitted: true, BodySHA256: digest, BodySize: size}
	}
	for _, c := range []struct {
		what  string
		r     *idem.Response
		field string
	}{
		{"100 headers", headers(100, 1), ""},
		{"101 headers", headers(101, 1), "response.headers"},
		{"32 KiB of headers", headers(64, 512), ""},
		{"a byte more", &idem.Response{Status: 200, Headers: append(headers(64, 512).Headers[1:], idem.Header{"name", strings.Repeat("v", 509)})}, "response.headers"},
		{"an absurd header", headers(1, 1<<24), "response.headers"},
		{"a long name", &idem.Response{Status: 200, Headers: []idem.Header{{strings.Repeat("n", 32<<10), "v"}}}, "response.headers"},
		{"a header without a name", &idem.Response{Status: 200, Headers: []idem.Header{{"", "v"}}}, "response.headers"},
		{"a header without a value", &idem.Response{Status: 200, Headers: []idem.Header{{"n", ""}}}, ""},
		{"no body", &idem.Response{Status: 200}, ""},
		{"an empty body", &idem.Response{Status: 200, HasBody: true}, ""},
		{"omitted", omitted(digest, 1), ""},
		{"omitted, empty", omitted(digest, 0), ""},
		{"omitted, the largest number", omitted(digest, 1<<53-1), ""},
		{"omitted, a larger one", omitted(digest, 1<<53), "response.body_size"},
		{"omitted, negative", omitted(digest, -1), "response.body_size"},
		{"omitted, no digest", omitted("", 1), "response.body_sha256"},
		{"omitted, a short digest", omitted(digest[1:], 1), "response.body_sha256"},
		{"omitted, a long digest", omitted(digest+"0", 1), "response.body_sha256"},
		{"omitted, no hexadecimal", omitted("g"+digest[1:], 1), "response.body_sha256"},
		{"omitted, none in the middle", omitted(digest[:31]+"g"+digest[32:], 1), "response.body_sha256"},
		{"omitted beside a body", &idem.Response{Status: 200, Omitted: true, BodySHA256: digest, HasBody: true}, "response.body_omitted"},
		{"a digest alone", &idem.Response{Status: 200, BodySHA256: digest}, "response.body_sha256"},
		{"a size alone", &idem.Response{Status: 200, BodySize: 1}, "response.body_size"},
	} {
		failed := release(0, "a")
		failed.Response = c.r
		for _, cmd := range []idem.Command{record(0, "a", c.r), unreserved(0, "o", c.r), resolve(0, 1, c.r), failed} {
			faulty(t, fmt.Sprintf("%T %s", cmd, c.what), cmd.Validate(), c.field)
		}
	}
	upper := omitted(strings.ToUpper(digest), 1)
	faulty(t, "a digest in capitals", record(0, "a", upper).Validate(), "")
	if upper.BodySHA256 != digest {
		t.Errorf("a digest is kept as %s", upper.BodySHA256)
	}
}
