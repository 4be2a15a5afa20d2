package console

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/idemstore/idemstore/internal/idem"
)

const (
	shownText   = 8 << 10 // bytes of a text that a page shows
	shownBinary = 256     // bytes of what is no text
	maxIndented = 16 << 10
	maxDepth    = 32
)

// responseView is a response as a page shows it. It is hostile: nothing here decides by what its headers say it is.
type responseView struct {
	Status     int
	StatusText string
	Headers    []idem.Header
	Body       bodyView
	Download   string // where all of its bytes are
}

// bodyView is as much of a body as a page shows.
type bodyView struct {
	Kind   string // none, empty, omitted, json, text, binary
	Text   string
	Shown  int   // bytes of it, where not all are shown
	Size   int64 // bytes
	SHA256 string
	Named  bool // characters that do not print are named instead
}

func viewResponse(r *idem.Response, download string) *responseView {
	if r == nil {
		return nil
	}
	v := &responseView{Status: r.Status, StatusText: http.StatusText(r.Status), Headers: r.Headers, Body: viewBody(r)}
	if len(r.Body) > 0 {
		v.Download = download
	}
	return v
}

func viewBody(r *idem.Response) bodyView {
	switch {
	case r.Omitted:
		return bodyView{Kind: "omitted", Size: r.BodySize, SHA256: r.BodySHA256}
	case !r.HasBody:
		return bodyView{Kind: "none"}
	case len(r.Body) == 0:
		return bodyView{Kind: "empty"}
	}
	sum := sha256.Sum256(r.Body)
	v := bodyView{Size: int64(len(r.Body)), SHA256: hex.EncodeToString(sum[:])}
	if !utf8.Valid(r.Body) || bytes.IndexByte(r.Body, 0) >= 0 {
		v.Kind = "binary"
		v.Text = hex.Dump(r.Body[:min(len(r.Body), shownBinary)])
		if len(r.Body) > shownBinary {
			v.Shown = shownBinary
		}
		return v
	}
	v.Kind = "text"
	text := r.Body
	if indented, ok := indent(text); ok {
		v.Kind, text = "json", indented
	}
	if len(text) > shownText {
		text = text[:shownText]
		for !utf8.Valid(text) {
			text = text[:len(text)-1] // within a character
		}
		v.Shown = len(text)
	}
	v.Text = visibleLines(string(text))
	v.Named = v.Text != string(text)
	return v
}

// visibleLines is visible, but for what sets lines and columns.
func visibleLines(s string) string {
	s = strings.ReplaceAll(s, "\r\n", "\n")
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		cells := strings.Split(line, "\t")
		for j := range cells {
			cells[j] = visible(cells[j])
		}
		lines[i] = strings.Join(cells, "\t")
	}
	return strings.Join(lines, "\n")
}

// indent sets JSON out for reading. It only adds white space: no number and no text becomes another. What is long or deep
// stays as it is, since a few bytes of brackets can become very many of white space.
func indent(body []byte) ([]byte, bool) {
	if len(body) > maxIndented || depth(body) > maxDepth {
		return nil, false
	}
	first := bytes.TrimLeft(body, " \t\r\n")
	if len(first) == 0 || first[0] != '{' && first[0] != '[' {
		return nil, false
	}
	var out bytes.Buffer
	if err := json.Indent(&out, body, "", "  "); err != nil {
		return nil, false
	}
	return out.Bytes(), true
}

// depth is at least how deep JSON is nested.
func depth(body []byte) (deepest int) {
	open := 0
	for _, b := range body {
		switch b {
		case '{', '[':
			open++
		case '}', ']':
			open--
		}
		deepest = max(deepest, open)
	}
	return deepest
}

// send hands out a response's bytes as a file, which no browser opens, whatever they say they are.
func (v *visit) send(r *idem.Response, name string) error {
	if r == nil || len(r.Body) == 0 {
		return refusal(http.StatusNotFound, "There is no body.", "This response was kept without one.")
	}
	h := v.w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", `attachment; filename="`+name+`"`)
	h.Set("Content-Length", strconv.Itoa(len(r.Body)))
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'; frame-ancestors 'none'")
	v.w.Write(r.Body)
	return nil
}
