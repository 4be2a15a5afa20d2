package audit

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/idemstore/idemstore/api"
)

func TestRefusalsAreExplained(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		answer
		class Class
		words []string
	}{
		{answer{401, problemOf(401, "unauthenticated", "No.", "")}, Failed, []string{"401", "IDEMSTORE_TOKEN"}},
		{answer{403, problemOf(403, "forbidden", "It has the role worker.", "")}, Failed, []string{"403", "auditor", "operator", "It has the role worker."}},
		{answer{400, problemOf(400, "invalid_request", "must be shorter", `,"field":"handler"`)}, Usage, []string{"handler", "must be shorter"}},
		{answer{404, problemOf(404, "not_found", "Nothing is known.", "")}, Nothing, nil},
		{answer{404, problemOf(404, "no_such_route", "No.", "")}, Failed, []string{"older"}},
		{answer{409, problemOf(409, "in_doubt", "It is.", "")}, Refused, []string{"in_doubt"}},
		{answer{429, problemOf(429, "too_many_requests", "Wait.", "")}, Failed, []string{"429", "Wait."}},
		{answer{500, problemOf(500, "internal", "It broke.", "")}, Failed, []string{"500", "r-1"}},
		{answer{503, problemOf(503, "unavailable", "A shorter period succeeds.", "")}, Failed, []string{"A shorter period succeeds."}},
		{answer{502, "<html>"}, Failed, []string{"502", "--url"}},
		{answer{302, ""}, Failed, []string{"302", "--url"}},
		{answer{200, "<html>"}, Failed, []string{"not idemstore's"}},
		{answer{500, problemOf(500, "internal", hostile, "")}, Failed, nil},
	} {
		f := newFake(t)
		f.answers["GET /v1/stats"] = c.answer
		err := of(t, f).Stats(t.Context(), api.GetStatsParams{})
		wantClass(t, err, c.class, c.words...)
		if strings.Contains(err.Error(), "token-of-the-test") || strings.ContainsAny(err.Error(), "\x1b\u009b\u202e\r\n") {
			t.Errorf("said %q", err)
		}
	}
}

func TestNoAnswer(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	wantOK(t, err)
	address := "http://" + l.Addr().String()
	wantOK(t, l.Close())
	v, err := Dial(address, "token-of-the-test", time.Second)
	wantOK(t, err)
	s := &Session{Service: v, Now: time.Now, Output: Table}
	wantClass(t, s.Stats(t.Context(), api.GetStatsParams{}), Failed, address, "refused", "IDEMSTORE_URL")
}

// Nobody else gets the token, and no answer from elsewhere is taken for the service's.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	other := newFake(t)
	f := newFake(t)
	f.stream = func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	}
	s := of(t, f)
	s.Output = JSON
	wantClass(t, s.Events(t.Context(), api.ListEventsParams{}, Window{All: true}, ""), Failed, "307")
	if len(other.asked) > 0 {
		t.Error("the redirect was followed")
	}
}

func TestDial(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "127.0.0.1:8080", "ftp://h", "http://", "http://h/?x=1", "http://u:geheim@h", "http://u:geheim@h:x/%zz", "http://h/#f"} {
		_, err := Dial(bad, "", time.Second)
		wantClass(t, err, Usage, "IDEMSTORE_URL")
		if strings.Contains(err.Error(), "geheim") {
			t.Errorf("said %q", err)
		}
	}
	for _, bad := range []string{"geheim\n", "ge heim", "geheim\x00", "géheim"} {
		_, err := Dial("http://h", bad, time.Second)
		wantClass(t, err, Usage, "IDEMSTORE_TOKEN")
		if strings.Contains(err.Error(), "heim") {
			t.Errorf("said %q", err)
		}
	}
}

// Ages and verdicts go by the service's clock: that of this machine decides nothing.
func TestTheServicesClock(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.answers["GET /v1/tasks/t"] = answer{200, `{"task_id":"t","attempts":[{"task_id":"t","attempt":0,"state":"reserved","in_doubt":false,"owner":"w","fence":1,
	 "dispatch":"explicit","reserved_at":"2026-11-29T20:59:50.000000Z","lease_until":"2026-11-29T21:00:30.000000Z","doubts":[],"late":false,
	 "expires_at":"2027-02-27T20:51:00.000000Z"}],"events":[]}`}
	s := of(t, f)
	s.Session.Now = func() time.Time { return now.Add(time.Hour) }
	wantOK(t, s.Task(t.Context(), "t"))
	if out := s.out.String(); strings.Contains(out, "lease passed") || !strings.Contains(out, " 10s ago") {
		t.Errorf("a live grant is told as\n%s", out)
	}
	s = of(t, f)
	s.Session.Now = func() time.Time { return now.Add(time.Hour) }
	at, err := s.Ago(t.Context(), 30*time.Minute)
	if err != nil || !at.Equal(now.Add(-30*time.Minute)) {
		t.Errorf("30m ago was %s (%v)", at, err)
	}
}
