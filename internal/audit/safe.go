package audit

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// safe replaces what a terminal could obey (control characters, escapes, marks that turn the direction of writing) and bytes
// that are not UTF-8 by their numbers. The result is one line.
func safe(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }) {
		return s
	}
	var out strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&out, `\x%02x`, s[0])
		case r == '\n':
			out.WriteString(`\n`)
		case r == '\r':
			out.WriteString(`\r`)
		case r == '\t':
			out.WriteString(`\t`)
		case unicode.IsPrint(r):
			out.WriteRune(r)
		default:
			out.WriteString(numbered(r))
		}
		s = s[size:]
	}
	return out.String()
}

// numbered writes a character as JSON would.
func numbered(r rune) string {
	if r > 0xffff {
		r -= 0x10000
		return fmt.Sprintf(`\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
	}
	return fmt.Sprintf(`\u%04x`, r)
}

// shorten cuts a text to so many characters, and says so with three dots.
func shorten(s string, limit int) string {
	for i := range s {
		if limit == 0 {
			return s[:i] + "..."
		}
		limit--
	}
	return s
}

// armour passes JSON and CSV on to a terminal: line ends as they are, everything else that a terminal could obey by its
// number. To JSON that makes no difference: there it stands in strings only, and means the same.
type armour struct {
	out  io.Writer
	held []byte // the beginning of a character, or a CR whose LF may come
}

func (a *armour) Write(p []byte) (int, error) {
	text := append(a.held, p...) //nolint:gocritic // what was held is in front of what came, and is given up
	var out bytes.Buffer
	for len(text) > 0 && utf8.FullRune(text) {
		if text[0] == '\r' && len(text) == 1 {
			break
		}
		r, size := utf8.DecodeRune(text)
		switch {
		case bytes.HasPrefix(text, []byte("\r\n")):
			size = 2
			out.WriteString("\r\n")
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&out, `\x%02x`, text[0])
		case r == '\n' || unicode.IsPrint(r):
			out.WriteRune(r)
		default:
			out.WriteString(numbered(r))
		}
		text = text[size:]
	}
	a.held = bytes.Clone(text)
	if _, err := a.out.Write(out.Bytes()); err != nil {
		return 0, err
	}
	return len(p), nil
}
