package console_test

import (
	"encoding/hex"
	"html"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/idemstore/idemstore/internal/idem"
)

const hostile = `"><script>document.title="owned"</script><img src=x onerror=alert(1)>`

func TestHostileTextIsEscaped(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	c := s.as(t, "operator")
	w := s.hostile(t)
	s.later.Add(int64(time.Minute))
	for _, path := range []string{
		taskPath(w.key), "/console/events?task_id=" + w.key.TaskID, "/console/entries?owner=" + url.QueryEscape(w.owner),
		"/console/events?actor=" + url.QueryEscape(w.owner), "/console", "/console/entries?handler=" + url.QueryEscape(hostile),
		"/console/release-owner?owner=" + url.QueryEscape(w.owner), resolvePath(w.key),
	} {
		page := c.get(path)
		page.want(200, "&lt;script&gt;").without("<script", "<img")
	}
	for _, path := range []string{
		"/console/events?kind=" + url.QueryEscape(hostile), "/console/entries?reserved_after=" + url.QueryEscape(hostile),
		"/console/search?task_id=" + url.QueryEscape(hostile), "/console/sign-in?next=" + url.QueryEscape(hostile),
		"/console/tasks/" + url.PathEscape(hostile), "/console/events?cursor=" + url.QueryEscape(hostile),
	} {
		if r := c.get(path); r.status != 400 && r.status != 303 {
			t.Errorf("%s: %d", path, r.status)
		} else {
			r.without("<script", "<img")
		}
	}
}

// hostile is a key of which everything that comes from outside tries to run a script.
func (s *service) hostile(t testing.TB) *worker {
	t.Helper()
	w := s.worker(t, "evil "+hostile, task())
	reserve := func(w *worker, takeovers ...idem.Takeover) {
		w.do(&idem.Reserve{
			Call: w.call(), Owner: w.owner, ReservationID: w.id, Handler: hostile, LeaseSeconds: 30, Takeovers: takeovers,
			RequestHash: `"><script>1</script>`,
		})
	}
	response := func(body string) *idem.Response {
		return &idem.Response{Status: 200, Headers: []idem.Header{{"Content-Type", "text/html"}, {hostile, hostile}}, HasBody: true, Body: []byte(body)}
	}
	reserve(w)
	w.do(&idem.Release{Call: w.call(), ReservationID: w.id, Reason: hostile, Response: response(hostile)})
	w.id = uuid.NewString()
	reserve(w)
	w.do(&idem.Record{Call: w.call(), ReservationID: w.id, Response: response("<html>" + hostile)})
	w.do(&idem.Record{Call: w.call(), Owner: w.owner, Response: response(hostile + "!")})
	return w
}

func TestTextThatDoesNotPrintIsNamed(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	w := s.worker(t, "pay\u202egnp.exe", task())
	w.reserve()
	w.record(200, "text/plain", "a\u202eb\x1b[31mred\tcolumn\nline\u200b")
	s.as(t, "auditor").get(taskPath(w.key)).want(
		200, "pay⟨U+202E⟩gnp.exe", "a⟨U+202E⟩b⟨U+001B⟩[31mred\tcolumn\nline⟨U+200B⟩", "Characters that do not print are named",
	).without("\u202e", "\x1b", "\u200b")
}

func TestBodies(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	c := s.as(t, "auditor")
	deep := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	long := "é" + strings.Repeat("0123456789abcdé", 4999) + "0123456789the end"
	binary := "\x00\xff\xfe" + strings.Repeat("\x80", 1000)
	for name, is := range map[string]struct {
		body string
		want []string
		not  string
	}{
		"json":          {`{"n":10000000000000000000000.50,"n":1e400,"s":"\u003c"}`, []string{"of JSON, indented", `"n": 10000000000000000000000.50,`, `"n": 1e400`, `"s": "\u003c"`}, ""},
		"nearly json":   {`{"n":1}}`, []string{`{"n":1}}`, "8 bytes"}, "of JSON"},
		"a number":      {"1234567890123456789012", []string{"<pre", "1234567890123456789012</pre>"}, "of JSON"},
		"deep json":     {deep, []string{"10,000 bytes", "Shown are the first 8,192 bytes"}, "of JSON"},
		"long text":     {long, []string{"80,003 bytes", "Shown are the first 8,19"}, "the end"},
		"binary":        {binary, []string{"that are no text", "00 ff fe 80", "Shown are the first 256 bytes", "1,003 bytes"}, "\xff"},
		"leading lines": {"\n\nx", []string{"\n\n\nx</pre>"}, ""}, // HTML drops the first
	} {
		w := s.worker(t, "worker-a", task())
		w.reserve()
		w.record(200, "text/html", is.body)
		page := c.get(taskPath(w.key))
		unescaped := page
		unescaped.body = html.UnescapeString(page.body)
		unescaped.want(200, is.want...)
		if is.not != "" {
			unescaped.without(is.not)
		}
		if len(page.body) > 40<<10 {
			t.Errorf("%s: a page of %d bytes", name, len(page.body))
		}
		r := c.get(taskPath(w.key) + "/attempts/0/response")
		if r.body != is.body {
			t.Errorf("%s: the download has other bytes: %s", name, hex.EncodeToString([]byte(r.body[:min(len(r.body), 100)])))
		}
		isDownload(t, r)
	}
}

func isDownload(t *testing.T, r reply) {
	t.Helper()
	if r.status != 200 || r.header.Get("Content-Type") != "application/octet-stream" || r.header.Get("X-Content-Type-Options") != "nosniff" ||
		!strings.HasPrefix(r.header.Get("Content-Disposition"), "attachment;") || !strings.HasPrefix(r.header.Get("Content-Security-Policy"), "sandbox;") {
		t.Errorf("no safe download: %d, %v", r.status, r.header)
	}
}

func TestOmittedAndEmptyBodies(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	c := s.as(t, "auditor")
	for want, response := range map[string]*idem.Response{
		"body of 5,000,000 bytes was too large": {Status: 200, Omitted: true, BodySHA256: strings.Repeat("ab", 32), BodySize: 5e6},
		"with an empty body":                    {Status: 200, HasBody: true},
		"without a body":                        {Status: 204},
	} {
		w := s.worker(t, "worker-a", task())
		w.do(&idem.Record{Call: w.call(), Owner: w.owner, Response: response})
		c.get(taskPath(w.key)).want(200, want, response.BodySHA256).without("Download")
		c.get(taskPath(w.key)+"/attempts/0/response").want(404, "There is no body.")
	}
}

// The whole of an evidence is there to be had too.
func TestEvidenceDownload(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	k := task()
	s.incident(t, k)
	r := s.as(t, "auditor").get(html.UnescapeString(evidenceLink(t, s, k.TaskID)))
	isDownload(t, r)
	if r.body != other {
		t.Errorf("the evidence is %s", r.body)
	}
	s.as(t, "auditor").get(taskPath(k) + "/evidence?at=AAAA").want(400)
	s.as(t, "auditor").get(taskPath(task()) + "/evidence?at=" + strings.Split(evidenceLink(t, s, k.TaskID), "at=")[1]).want(404)
}
