package server_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/idemstore/idemstore/internal/server"
)

// Bytes in, bytes out: the response comes back as it was recorded.

func TestEveryByteComesBack(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		random := make([]byte, 4096)
		for i := range random {
			random[i] = byte(rand.Uint32())
		}
		for _, body := range [][]byte{all, random, {}, {0}, []byte("\xef\xbb\xbfBOM"), []byte("\xed\xa0\x80"), []byte("\xc0\x80"), bytes.Repeat([]byte{0xff}, 70000)} {
			k := s.key(t)
			encoded := base64.StdEncoding.EncodeToString(body)
			k.record("", obj{"body_base64": encoded}, obj{"owner": "x"}).want(201, "recorded")
			k.record("", obj{"body_base64": encoded}, obj{"owner": "x"}).want(200, "recorded")
			if raw := k.replay("?raw=true").raw; !bytes.Equal(raw, body) {
				t.Errorf("%.20x came back as %.20x", body, raw)
			}
			want := obj{"status": 200, "headers": []any{}, "body_base64": encoded}
			k.replay("?body=base64").has(obj{"response": want})
			if utf8.Valid(body) {
				want = obj{"status": 200, "headers": []any{}, "body": string(body)}
			}
			k.reserve().want(200, "recorded").has(obj{"response": want})
		}
	})
}

func TestEveryTextComesBack(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		for _, text := range []string{
			"", "\x00", "a\x00b", "\"\\/\b\f\n\r\t", "<>&\u2028\u2029", "☃ 𝄞 \U0010ffff", "\ufffd\uffff\ufeff", "{\"n\":12345678901234567890.12345678901234567890e400}",
			`{"a":1,"a":2}`, "null", strings.Repeat("é", 5000),
		} {
			k := s.key(t)
			k.record("", obj{"body": text}, obj{"owner": "x"}).want(201, "recorded")
			k.reserve().want(200, "recorded").has(obj{"response": obj{"status": 200, "headers": []any{}, "body": text}})
			if raw := k.replay("?raw=true").raw; string(raw) != text {
				t.Errorf("%.40q came back as %.40q", text, raw)
			}
		}
		// However it is escaped on its way in.
		k := s.key(t)
		k.post("record", `{"owner":"x","response":{"body":"\u0061\ud834\udd1e\u0000\/"}}`).want(201, "recorded")
		if raw := k.replay("?raw=true").raw; string(raw) != "a𝄞\x00/" {
			t.Errorf("escapes came back as %q", raw)
		}
	})
}

// No body and an empty one are two things.
func TestAbsentAndEmptyBodies(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		empty := obj{"status": 200, "headers": []any{}, "body": ""}
		absent := obj{"status": 200, "headers": []any{}}
		for _, b := range []struct{ offered, want obj }{
			{obj{}, absent},
			{obj{"body": nil}, absent},
			{obj{"body_base64": nil, "body": nil}, absent},
			{obj{"body_omitted": false}, absent},
			{obj{"body_omitted": nil, "body_sha256": nil, "body_size": nil}, absent},
			{obj{"body": ""}, empty},
			{obj{"body_base64": ""}, empty},
			{obj{"body": "", "body_base64": nil}, empty},
		} {
			k := s.key(t)
			k.record("", b.offered, obj{"owner": "x"}).want(201, "recorded")
			k.replay("").has(obj{"response": b.want})
			other := absent
			if equal(b.want, absent) {
				other = empty
			}
			k.record("", other, obj{"owner": "x"}).want(409, "already_recorded").has(obj{"response": b.want})
		}
	})
}

func TestHeadersComeBack(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		pairs := [][]string{
			{"X-B", "2"}, {"x-b", "1"}, {"X-A", ""}, {"X-B", "2"}, {"odd name:", " spaces kept "}, {"\x00\u2028☃", "\x00\r\n\"é𝄞"}, {"Content-Type", "text/html"},
		}
		k := s.key(t)
		k.record("", obj{"headers": pairs}, obj{"owner": "x"}).want(201, "recorded").has(obj{"dropped_headers": []any{}})
		k.replay("").has(obj{"response": obj{"status": 200, "headers": pairs}})
		k.reserve().has(obj{"response": obj{"status": 200, "headers": pairs}})

		object := s.key(t)
		object.post("record", `{"owner":"x","response":{"headers":{"z":"1","Z":["2","3"],"a":[],"m":"","é":["\u0000"]}}}`).want(201, "recorded")
		object.replay("").has(obj{"response": obj{"status": 200, "headers": [][]string{{"z", "1"}, {"Z", "2"}, {"Z", "3"}, {"m", ""}, {"é", "\x00"}}}})

		for _, none := range []any{nil, []any{}, obj{}} {
			k := s.key(t)
			k.record("", obj{"headers": none}, obj{"owner": "x"}).want(201, "recorded")
			k.replay("").has(obj{"response": obj{"status": 200, "headers": []any{}}})
		}
	})
}

func TestDeniedHeadersAreDropped(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		denied := []string{
			"Set-Cookie", "Cookie", "Authorization", "Proxy-Authorization", "Proxy-Authenticate", "WWW-Authenticate", "Connection", "Keep-Alive",
			"Transfer-Encoding", "TE", "Trailer", "Upgrade",
		}
		var pairs [][]string
		for _, name := range denied {
			pairs = append(pairs, []string{name, "secret"}, []string{"X-" + name, "kept"})
		}
		k := s.key(t)
		id := k.reserve().id()
		k.record(id, obj{"headers": pairs}).want(201, "recorded").has(obj{"dropped_headers": denied})
		a := k.replay("").want(200, "recorded")
		if headers := a.body["response"].(obj)["headers"].([]any); len(headers) != len(denied) || bytes.Contains(a.raw, []byte("secret")) {
			t.Errorf("kept: %s", a)
		}
		k.record(id, obj{"headers": pairs, "status": 500}).want(409, "already_recorded").has(obj{"dropped_headers": denied})

		cased := s.key(t)
		cased.record("", obj{"headers": obj{"sEt-cOOkie": []string{"a", "b"}, "x": "1"}}, obj{"owner": "x"}).want(201, "recorded").has(obj{
			"dropped_headers": []string{"sEt-cOOkie"}, // as it was written, once
		})
		released := s.key(t)
		released.release(released.reserve().id(), obj{"response": obj{"headers": [][]string{{"te", "x"}}}}).want(200, "released").has(obj{
			"dropped_headers": []string{"te"},
		})
	})
}

func TestDeniedHeadersAreConfigured(t *testing.T) {
	t.Parallel()
	s := start(t, setup{database: inMemory, config: server.Config{DeniedHeaders: []string{" x-Secret "}}})
	k := s.key(t)
	k.record("", obj{"headers": [][]string{{"X-SECRET", "1"}, {"Set-Cookie", "2"}}}, obj{"owner": "x"}).want(201, "recorded").has(obj{
		"dropped_headers": []string{"X-SECRET"},
	})
	k.replay("").has(obj{"response": obj{"status": 200, "headers": [][]string{{"Set-Cookie", "2"}}}})
}

func TestEveryStatusComesBack(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		for _, status := range []int{100, 101, 199, 200, 204, 304, 402, 500, 599} {
			k := s.key(t)
			k.record("", obj{"status": status}, obj{"owner": "x"}).want(201, "recorded")
			k.replay("").want(200, "recorded").has(obj{"response": obj{"status": status, "headers": []any{}}})
			k.at(1).replay("").want(404, "not_found").has(obj{"attempt": 1})
			k.at(1).reserve().want(201, "reserved").has(obj{"other_attempts": []obj{
				{"attempt": 0, "state": "recorded", "in_doubt": false, "response_status": status},
			}})
		}
	})
}

// A response of the largest size, in the form that takes most bytes on the wire.
func TestTheLargestBody(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, s *service) {
		k := s.key(t)
		k.post("record", fmt.Sprintf(`{"owner":"x","response":{"body":"%s"}}`, strings.Repeat(`\u0000`, 1<<20))).want(201, "recorded")
		if raw := k.replay("?raw=true").raw; len(raw) != 1<<20 || len(bytes.Trim(raw, "\x00")) != 0 {
			t.Errorf("%d bytes came back", len(raw))
		}
	})
}
