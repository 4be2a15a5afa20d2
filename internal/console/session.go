package console

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	cookieName = "idemstore_session"
	// sessionTime is how long a session is good for, a working day.
	sessionTime = 8 * time.Hour
	// maxSmallForm is the most that a form without a response needs.
	maxSmallForm = 64 << 10
)

// role is what a page asks of who looks at it.
type role int

const (
	anybody role = iota
	auditor
	operator
)

func (r role) String() string { return [...]string{"none", "auditor", "operator"}[r] }

func (c *Caller) may(r role) bool {
	return r == anybody || r == auditor && (c.Auditor || c.Operator) || r == operator && c.Operator
}

// as serves a page to whoever has signed in and has the role. A form is taken only with the session's own form token.
func (c *console) as(needs role, p page) http.HandlerFunc {
	return c.anyone(func(v *visit) error {
		if !v.recognise() {
			return v.ask()
		}
		v.told("", nil)
		if !v.caller.may(needs) {
			return refusal(http.StatusForbidden, "The token does not allow this.",
				"%s lacks the role %s. Sign out, and in again with a token that has it.", v.caller.Name, needs)
		}
		if v.r.Method == http.MethodPost {
			v.r.Body = http.MaxBytesReader(v.w, v.r.Body, formGrowth*c.MaxBodyBytes+maxSmallForm)
			if err := parseForm(v.r); err != nil {
				return err
			}
			if !hmac.Equal([]byte(v.r.PostForm.Get("form")), []byte(v.form)) {
				return errStale
			}
		}
		return p(v)
	})
}

// formGrowth is how much longer bytes become in base64 and in a form's encoding of that.
const formGrowth = 4

func parseForm(r *http.Request) error {
	err := r.ParseForm()
	var tooLarge *http.MaxBytesError
	if err == nil || errors.As(err, &tooLarge) {
		return err
	}
	return refusal(http.StatusBadRequest, "This is not a form.", "Its encoding is broken. Nothing was done.")
}

// recognise finds the session. Where nobody needs a token everybody has one: its form token keeps other sites out.
func (v *visit) recognise() bool {
	if payload, caller, ok := v.c.session(v.r); ok {
		v.caller, v.known, v.form = caller, true, sign(caller.Key, "form", payload)
		return true
	}
	if !v.c.Tokens.Open() {
		return false
	}
	v.begin(anonymous)
	return true
}

// anonymous is everybody where nobody needs a token.
var anonymous = Caller{Name: "anonymous", Auditor: true, Operator: true}

// session reads the request's session, if it is one of ours, of a token that is still known, and has not ended.
func (c *console) session(r *http.Request) (payload []byte, caller Caller, ok bool) {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return nil, Caller{}, false
	}
	encoded, signature, _ := strings.Cut(cookie.Value, ".")
	payload, err = base64.RawURLEncoding.DecodeString(encoded)
	// Only as it was written: base64 has several ways to say the same bytes, and what was signed is the bytes.
	if err != nil || len(payload) < sessionHead || base64.RawURLEncoding.EncodeToString(payload) != encoded {
		return nil, Caller{}, false
	}
	caller, ok = anonymous, true
	if name := string(payload[sessionHead:]); !c.Tokens.Open() {
		caller, ok = c.Tokens.Named(name)
	}
	if !ok || !hmac.Equal([]byte(signature), []byte(sign(caller.Key, "session", payload))) {
		return nil, Caller{}, false
	}
	ends := time.Unix(int64(binary.BigEndian.Uint64(payload)), 0)
	return payload, caller, c.Now().Before(ends)
}

// sessionHead is when the session ends and what is random of it. The token's name follows.
const sessionHead = 8 + 16

// begin gives the browser a session. The token is not in it, and no replica has to remember it.
func (v *visit) begin(caller Caller) {
	payload := make([]byte, sessionHead, sessionHead+len(caller.Name))
	binary.BigEndian.PutUint64(payload, uint64(v.c.Now().Add(sessionTime).Unix()))
	_, _ = rand.Read(payload[8:]) // never fails
	payload = append(payload, caller.Name...)
	v.caller, v.known, v.form = caller, true, sign(caller.Key, "form", payload)
	v.setCookie(base64.RawURLEncoding.EncodeToString(payload)+"."+sign(caller.Key, "session", payload), int(sessionTime.Seconds()))
}

func (v *visit) setCookie(value string, maxAge int) {
	http.SetCookie(v.w, &http.Cookie{
		Name: cookieName, Value: value, Path: Prefix, MaxAge: maxAge,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: v.r.TLS != nil,
	})
}

func sign(key []byte, purpose string, payload []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(purpose + "\x00"))
	mac.Write(payload)
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// ask leads whoever is not known to sign in.
func (v *visit) ask() error {
	here := v.r.URL.RequestURI()
	if v.r.Method != http.MethodGet {
		here = Prefix
	}
	if v.r.Method == http.MethodGet && v.r.Header.Get("Sec-Fetch-Site") == "cross-site" {
		// A link from elsewhere: the browser keeps a strict cookie back until the way leads on from a page of ours.
		return v.show(http.StatusOK, "onward", "One moment", here)
	}
	return v.redirect(Prefix + "/sign-in?" + url.Values{"next": {here}}.Encode())
}

// signInForm is what the page of it shows.
type signInForm struct {
	Next  string
	Fault string
}

func (v *visit) signInForm(status int, next, fault string) error {
	return v.show(status, "sign-in", "Sign in", signInForm{ownPath(next), fault})
}

func (c *console) signInPage(v *visit) error {
	if v.recognise() {
		return v.redirect(ownPath(v.r.FormValue("next")))
	}
	return v.signInForm(http.StatusOK, v.r.FormValue("next"), "")
}

func (c *console) signIn(v *visit) error {
	v.r.Body = http.MaxBytesReader(v.w, v.r.Body, maxSmallForm)
	if err := parseForm(v.r); err != nil {
		return err
	}
	next := v.r.PostForm.Get("next")
	if wait := c.failures.try(v.r.RemoteAddr); wait > 0 {
		seconds := int(wait.Seconds()) + 1
		v.w.Header().Set("Retry-After", strconv.Itoa(seconds))
		v.warn("console: too many tokens from this address were wrong")
		return v.signInForm(http.StatusTooManyRequests, next, "Too many tokens from your address were wrong. Try again in "+strconv.Itoa(seconds)+" seconds.")
	}
	caller, ok := c.Tokens.Check(strings.TrimSpace(v.r.PostForm.Get("token")))
	if !ok {
		v.warn("console: somebody tried to sign in with a token that is not known")
		return v.signInForm(http.StatusUnauthorized, next, "This token is not known here.")
	}
	c.failures.right(v.r.RemoteAddr)
	if !caller.may(auditor) {
		c.Told(v.r.Context(), caller.Name, "", nil)
		return v.signInForm(http.StatusForbidden, next, "The token "+caller.Name+" has neither the role auditor nor operator. The console needs one of them.")
	}
	v.begin(caller)
	v.told("", nil)
	return v.redirect(ownPath(next))
}

// warn tells the log of something, and from where it came.
func (v *visit) warn(text string) {
	address := v.r.RemoteAddr
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	v.c.Warn(v.requestID(), address, text)
}

// signOut has the browser forget the session.
func (c *console) signOut(v *visit) error {
	v.setCookie("", -1)
	return v.redirect(Prefix + "/sign-in")
}

// ownPath is where to go after signing in: to a page of the console, never elsewhere.
func ownPath(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || u.Opaque != "" || strings.Contains(next, `\`) ||
		u.Path != Prefix && !strings.HasPrefix(u.Path, Prefix+"/") || strings.Contains(u.Path, "/..") || u.Path == Prefix+"/sign-in" {
		return Prefix
	}
	return u.RequestURI()
}
