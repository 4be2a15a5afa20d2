package console

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"maps"
	"mime"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

//go:embed templates static
var files embed.FS

// view is what every page is rendered from.
type view struct {
	Title  string
	Here   string
	Caller Caller
	Known  bool
	Open   bool
	Form   string
	Page   any
}

// Style and Icon are where the console's own files are. Their names change with what is in them.
func (view) Style() string { return assets.named["console.css"] }

// Icon is the browser tab's.
func (view) Icon() string { return assets.named["icon.svg"] }

// templates are the pages, each with the layout around it.
var templates = func() map[string]*template.Template {
	layout := template.Must(template.New("layout").Funcs(template.FuncMap{
		"number": number, "visible": visible, "lines": visibleLines, "count": func(n int) string { return number(int64(n)) },
		"link": func(here, to, name string) any { return navLink{to, name, here == to} },
	}).ParseFS(files, "templates/layout.html", "templates/parts.html"))
	pages := make(map[string]*template.Template)
	names, _ := files.ReadDir("templates") // it is in the program
	for _, file := range names {
		name := strings.TrimSuffix(file.Name(), ".html")
		if name != "layout" && name != "parts" {
			pages[name] = template.Must(template.Must(layout.Clone()).ParseFS(files, "templates/"+file.Name())).Lookup("layout.html")
		}
	}
	return pages
}()

type navLink struct {
	To, Name string
	Here     bool
}

// assets are the files that pages ask for, under names that never mean other bytes.
var assets = func() (a struct {
	named map[string]string // from a file's name to its address
	files map[string][]byte // by the last part of that
},
) {
	a.named, a.files = make(map[string]string), make(map[string][]byte)
	entries, _ := files.ReadDir("static") // it is in the program
	for _, e := range entries {
		body, _ := files.ReadFile("static/" + e.Name())
		sum := sha256.Sum256(body)
		ext := path.Ext(e.Name())
		hashed := strings.TrimSuffix(e.Name(), ext) + "." + hex.EncodeToString(sum[:6]) + ext
		a.named[e.Name()], a.files[hashed] = Prefix+"/static/"+hashed, body
	}
	return a
}()

func static(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	body, ok := assets.files[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	w.Write(body)
}

// moment is a time and the time from which it is seen.
type moment struct {
	At  time.Time
	Now time.Time
}

// Zero says that there is no such time.
func (m moment) Zero() bool { return m.At.IsZero() }

// UTC is the time for people.
func (m moment) UTC() string { return m.At.UTC().Format("2006-01-02 15:04:05.000") }

// ISO is the time for programs.
func (m moment) ISO() string { return m.At.UTC().Format("2006-01-02T15:04:05.000000Z") }

// Ago says how far away it is.
func (m moment) Ago() string {
	switch d := m.Now.Sub(m.At); {
	case m.Now.IsZero():
		return ""
	case d > -time.Second && d < time.Second:
		return "just now"
	case d < 0:
		return "in " + span(-d)
	default:
		return span(d) + " ago"
	}
}

// Age is how long it has been.
func (m moment) Age() string { return span(m.Now.Sub(m.At)) }

// span is a duration in its two largest units.
func span(d time.Duration) string {
	d = d.Round(time.Second)
	day := 24 * time.Hour
	two := func(large, small time.Duration, l, s string) string {
		if rest := d % large / small; rest > 0 {
			return fmt.Sprintf("%d %s %d %s", d/large, l, rest, s)
		}
		return fmt.Sprintf("%d %s", d/large, l)
	}
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return two(time.Minute, time.Second, "min", "s")
	case d < day:
		return two(time.Hour, time.Minute, "h", "min")
	default:
		return two(day, time.Hour, "d", "h")
	}
}

// number groups digits by thousands.
func number(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if s[0] == '-' {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// visible names the characters that print as nothing, or that change how others print: text from outside could otherwise
// look like another.
func visible(s string) string {
	if !strings.ContainsFunc(s, unseen) {
		return s
	}
	var out strings.Builder
	for _, r := range s {
		if unseen(r) {
			fmt.Fprintf(&out, "⟨%U⟩", r)
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}

// unseen holds of a character that is not to be printed as it is. unicode.IsPrint knows all spaces but one to be unprintable;
// of them only those that move the line are named here.
func unseen(r rune) bool {
	return !unicode.IsPrint(r) && !unicode.Is(unicode.Zs, r)
}

// plain shows a value of an event's detail. Numbers are as they were, and text within a list cannot pass for its frame.
func plain(value any) string {
	if s, ok := value.(string); ok {
		return s
	}
	return framed(value)
}

func framed(value any) string {
	switch v := value.(type) {
	case map[string]any:
		parts := make([]string, 0, len(v))
		for _, name := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, name+" "+framed(v[name]))
		}
		return "(" + strings.Join(parts, ", ") + ")"
	case []any:
		parts := make([]string, 0, len(v))
		for _, item := range v {
			parts = append(parts, framed(item))
		}
		return strings.Join(parts, ", ")
	case string:
		if !simple.MatchString(v) {
			return strconv.Quote(v)
		}
		return v
	default:
		return fmt.Sprint(v)
	}
}

// simple is text that needs no quotes.
var simple = regexp.MustCompile(`^[A-Za-z0-9._:@+~/-]+$`)
