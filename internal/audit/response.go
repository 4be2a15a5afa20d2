package audit

import (
	"encoding/base64"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/idemstore/idemstore/api"
)

// How much of a response is shown, unless whole bodies are wanted.
const (
	briefBody  = 48
	shownBody  = 400
	shownLines = 10
	shownField = 120
)

// brief is a response in a few words.
func brief(r *api.Response) string {
	switch {
	case r.Body != nil && *r.Body != "":
		return fmt.Sprintf("%d %s", r.Status, shorten(*r.Body, briefBody))
	case r.Body != nil:
		return fmt.Sprintf("%d, empty body", r.Status)
	case r.BodyBase64 != nil:
		return fmt.Sprintf("%d, %d bytes that are no text", r.Status, len(*r.BodyBase64))
	case r.BodyOmitted != nil && *r.BodyOmitted:
		return fmt.Sprintf("%d, body too large to keep (%s)", r.Status, omitted(r))
	}
	return fmt.Sprintf("%d, no body", r.Status)
}

// omitted says what is known of a body that was not kept.
func omitted(r *api.Response) string {
	text := "sha256 unknown"
	if r.BodySha256 != nil {
		text = "sha256 " + *r.BodySha256
	}
	if r.BodySize != nil {
		text = fmt.Sprintf("%d bytes, %s", *r.BodySize, text)
	}
	return text
}

// same says whether two responses are one and the same.
func same(a, b *api.Response) bool {
	text := func(s *string) string { return or(s, "\x00") }
	bytes := func(b *[]byte) string {
		if b == nil {
			return "\x00"
		}
		return string(*b)
	}
	return a.Status == b.Status && slices.Equal(a.Headers, b.Headers) && text(a.Body) == text(b.Body) &&
		bytes(a.BodyBase64) == bytes(b.BodyBase64) && text(a.BodySha256) == text(b.BodySha256)
}

// showResponse writes a response's headers and body, each line set in. A body's own lines stay lines; nothing else in it is
// obeyed.
func (s *Session) showResponse(out io.Writer, r *api.Response) {
	headers := r.Headers
	if !s.Bodies && len(headers) > shownLines {
		headers = headers[:shownLines]
	}
	for _, h := range headers {
		value := h[1]
		if !s.Bodies {
			value = shorten(value, shownField)
		}
		say(out, "    %s: %s", h[0], value)
	}
	if left := len(r.Headers) - len(headers); left > 0 {
		say(out, "    (%d more headers; --bodies shows all)", left)
	}
	switch {
	case r.Body != nil && *r.Body != "":
		s.showBody(out, *r.Body, len(*r.Body))
	case r.Body != nil:
		say(out, "    (empty body)")
	case r.BodyBase64 != nil:
		say(out, "    (%d bytes that are no text, in base64)", len(*r.BodyBase64))
		s.showBody(out, inLines(base64.StdEncoding.EncodeToString(*r.BodyBase64)), len(*r.BodyBase64))
	case r.BodyOmitted != nil && *r.BodyOmitted:
		say(out, "    (the body was too large to keep: %s)", omitted(r))
	default:
		say(out, "    (no body)")
	}
}

func (s *Session) showBody(out io.Writer, body string, size int) {
	shown := body
	if !s.Bodies {
		shown = shorten(shown, shownBody)
		if parts := strings.SplitAfterN(shown, "\n", shownLines+1); len(parts) > shownLines {
			shown = strings.Join(parts[:shownLines], "") + "..."
		}
	}
	for l := range strings.SplitSeq(strings.TrimSuffix(shown, "\n"), "\n") {
		say(out, "    %s", strings.TrimSuffix(l, "\r"))
	}
	if shown != body {
		say(out, "    (%d bytes in all; --bodies shows them)", size)
	}
}

// inLines breaks base64 into lines as PEM does.
func inLines(text string) string {
	var out strings.Builder
	for chunk := range slices.Chunk([]byte(text), 64) {
		out.Write(chunk)
		out.WriteByte('\n')
	}
	return out.String()
}

// headerOf is the first value of a header, without regard to letter case.
func headerOf(r *api.Response, name string) string {
	for _, h := range r.Headers {
		if strings.EqualFold(h[0], name) {
			return h[1]
		}
	}
	return ""
}

// measure says what a response is, without its body.
func measure(r *api.Response) string {
	text := fmt.Sprint(r.Status)
	if kind := headerOf(r, "Content-Type"); kind != "" {
		text += " " + shorten(kind, briefBody)
	}
	switch {
	case r.Body != nil:
		text += fmt.Sprintf(", %d bytes", len(*r.Body))
	case r.BodyBase64 != nil:
		text += fmt.Sprintf(", %d bytes", len(*r.BodyBase64))
	}
	return text
}
