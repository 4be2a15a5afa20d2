package console_test

import (
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/idemstore/idemstore/internal/server"
)

func TestSessionCookie(t *testing.T) {
	t.Parallel()
	for _, secure := range []bool{false, true} {
		s := start(t, setup{tls: secure})
		c := s.client(t)
		if secure {
			trusting(c)
		}
		req := c.request("POST", "/console/sign-in", url.Values{"token": {s.secrets["auditor"]}})
		req.Header.Set("X-Forwarded-Proto", "https") // says whoever likes to
		cookies := (&http.Response{Header: c.do(req).header}).Cookies()
		if len(cookies) != 1 {
			t.Fatalf("%d cookies", len(cookies))
		}
		k := cookies[0]
		if !k.HttpOnly || k.SameSite != http.SameSiteStrictMode || k.Path != "/console" || k.Secure != secure || k.Domain != "" || k.MaxAge != 8*60*60 {
			t.Errorf("TLS %t: %s", secure, k.Raw)
		}
		if strings.Contains(k.Value, s.secrets["auditor"]) {
			t.Error("the token is in the cookie")
		}
	}
}

func trusting(c *client) {
	c.http.Transport.(*http.Transport).TLSClientConfig = insecure
}

func TestSessionsEnd(t *testing.T) {
	t.Parallel()
	in := func(c *client) bool { return c.get("/console").status == 200 }
	t.Run("when the token is withdrawn", func(t *testing.T) {
		t.Parallel()
		s := start(t, setup{})
		c, other := s.as(t, "operator"), s.as(t, "auditor")
		s.withdraw(t, "operator")
		if in(c) || !in(other) {
			t.Error("the wrong session ended")
		}
	})
	t.Run("when the token is replaced", func(t *testing.T) {
		t.Parallel()
		s := start(t, setup{})
		c := s.as(t, "operator")
		s.addToken(t, "operator", server.RoleOperator)
		if in(c) {
			t.Error("a session of the former token is good")
		}
	})
	t.Run("when the role is taken away", func(t *testing.T) {
		t.Parallel()
		s := start(t, setup{})
		c := s.as(t, "operator")
		s.lines["operator"] = strings.Replace(s.lines["operator"], " operator ", " worker ", 1)
		s.loadTokens(t)
		c.get("/console").want(403, "lacks the role auditor")
	})
	t.Run("after eight hours", func(t *testing.T) {
		t.Parallel()
		s := start(t, setup{})
		c := s.as(t, "operator")
		s.later.Add(int64(8*time.Hour - time.Minute))
		if !in(c) {
			t.Error("a session ended early")
		}
		s.later.Add(int64(2 * time.Minute))
		if in(c) {
			t.Error("a session did not end")
		}
	})
	t.Run("by signing out", func(t *testing.T) {
		t.Parallel()
		s := start(t, setup{})
		c := s.as(t, "operator")
		if r := c.post("/console/sign-out"); r.status != http.StatusSeeOther {
			t.Fatalf("%d", r.status)
		}
		if in(c) {
			t.Error("the browser still has a session")
		}
	})
	t.Run("if they are not ours", func(t *testing.T) {
		t.Parallel()
		s, foreign := start(t, setup{}), start(t, setup{})
		good, elsewhere := s.as(t, "operator").cookie(), foreign.as(t, "operator").cookie()
		payload, signature, _ := strings.Cut(good, ".")
		c := s.client(t)
		for _, value := range []string{elsewhere, payload, payload + ".", "." + signature, "B" + good[1:], good[:25] + another(good[25]) + good[26:], "", "....", good + "x"} {
			c.setCookie(value)
			if in(c) {
				t.Errorf("%q is a session", value)
			}
		}
		c.setCookie(good)
		if !in(c) {
			t.Error("and the good one is none")
		}
	})
}

// another is another character of a cookie.
func another(c byte) string {
	if c == 'x' {
		return "y"
	}
	return "x"
}

// A session is good at every replica that knows the token.
func TestSessionsHoldAtEveryReplica(t *testing.T) {
	t.Parallel()
	one, two := start(t, setup{}), start(t, setup{})
	two.lines = one.lines
	two.loadTokens(t)
	c := two.client(t)
	c.setCookie(one.as(t, "operator").cookie())
	c.get("/console").want(200)
}

func (c *client) at() *url.URL {
	u, err := url.Parse(c.s.url + "/console")
	if err != nil {
		c.t.Fatal(err)
	}
	return u
}

func (c *client) cookie() string {
	for _, k := range c.http.Jar.Cookies(c.at()) {
		return k.Value
	}
	c.t.Fatal("no cookie")
	return ""
}

func (c *client) setCookie(value string) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		c.t.Fatal(err)
	}
	jar.SetCookies(c.at(), []*http.Cookie{{Name: "idemstore_session", Value: value, Path: "/console"}})
	c.http.Jar = jar
}
