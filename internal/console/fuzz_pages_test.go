package console_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// FuzzPages asks for a page, or sends a form of the session's own, with anything in path, query and form: no panic, no 5xx, and every answer
// says what a browser may do with it.
func FuzzPages(f *testing.F) {
	s := start(f, setup{open: true})
	known := task()
	s.doubt(f, "worker-a", known)
	ask := func(r *http.Request) *httptest.ResponseRecorder {
		r.RemoteAddr, r.Host = "192.0.2.1:1", "idemstore.test"
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, r)
		return w
	}
	first := ask(httptest.NewRequestWithContext(f.Context(), http.MethodGet, "/console/tasks/"+known.TaskID+"/attempts/0/resolve", nil))
	cookie, form := first.Result().Cookies()[0], formToken(first.Body.String())
	if form == "" {
		f.Fatal("no form")
	}
	f.Fuzz(func(t *testing.T, post bool, path, query, fields string) {
		target := (&url.URL{Path: "/console" + path, RawQuery: query}).RequestURI()
		address, err := url.ParseRequestURI(strings.ReplaceAll(target, "TASK", known.TaskID))
		if err != nil {
			return // what HTTP itself refuses
		}
		r := (&http.Request{
			Method: http.MethodGet, URL: address, Header: http.Header{},
			Body: http.NoBody, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		}).WithContext(t.Context())
		r.AddCookie(cookie)
		if post {
			r.Method = http.MethodPost
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Body = io.NopCloser(strings.NewReader("form=" + url.QueryEscape(form) + "&" + fields))
		}
		w := ask(r)
		if w.Code >= 500 || w.Code < 200 {
			t.Fatalf("%s %q: %d %s", r.Method, r.URL, w.Code, w.Body)
		}
		if (r.URL.Path == "/console" || strings.HasPrefix(r.URL.Path, "/console/")) && w.Header().Get("Content-Security-Policy") == "" {
			t.Fatalf("%s %q: an answer without a guard: %v", r.Method, r.URL, w.Header())
		}
		to, err := (&url.URL{Scheme: "https", Host: "idemstore.test"}).Parse(w.Header().Get("Location"))
		if err != nil || to.Host != "idemstore.test" || to.Scheme != "https" {
			t.Fatalf("%s %q: leads to %v, %v", r.Method, r.URL, to, err)
		}
	})
}
