package console

import (
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/idemstore/idemstore/internal/idem"
)

// resolvePage is what an operator fills in, what is to be confirmed, or why it was not done.
type resolvePage struct {
	Entry  entryView
	Form   resolveForm
	Fault  string        // of the form
	Review *responseView // what would be recorded
	Moved  string        // why what was asked could not be done any more
}

// resolveForm is the form as it was sent. It goes from the form to its confirmation and back by the browser.
type resolveForm struct {
	Action      string // record or release
	Fence       int64  // that was looked at
	Reason      string
	Force       bool
	Status      string
	ContentType string
	Body        string
	Encoding    string // of Body: text or base64
}

func (c *console) resolvePage(v *visit) error {
	e, now, err := c.entry(v)
	if err != nil {
		return err
	}
	p := resolvePage{Entry: viewEntry(e, now), Form: resolveForm{Fence: e.Fence, Status: strconv.Itoa(idem.DefaultStatus), Encoding: "text"}}
	return v.show(http.StatusOK, "resolve", "Resolve", p)
}

// resolve takes the form: to show what would be done, to change it, or to do it.
func (c *console) resolve(v *visit) error {
	e, now, err := c.entry(v)
	if err != nil {
		return err
	}
	p := resolvePage{Entry: viewEntry(e, now), Form: readResolve(v.r)}
	cmd, err := c.command(v, e.Key, p.Form)
	if err != nil {
		p.Fault = faultOf(err)
		return v.show(http.StatusBadRequest, "resolve", "Resolve", p)
	}
	switch v.r.PostForm.Get("step") {
	case "edit":
		return v.show(http.StatusOK, "resolve", "Resolve", p)
	case "do":
		return c.carryOut(v, cmd, p)
	}
	if p.Moved = moved(e, now, p.Form); p.Moved != "" {
		return v.show(http.StatusConflict, "resolve", "Resolve", p)
	}
	p.Review = viewResponse(cmd.Response, "")
	return v.show(http.StatusOK, "confirm", "Confirm", p)
}

func readResolve(r *http.Request) resolveForm {
	form := r.PostForm
	fence, _ := strconv.ParseInt(form.Get("fence"), 10, 64) // 0 is refused
	return resolveForm{
		Action: form.Get("action"), Fence: fence, Reason: strings.TrimSpace(lines(form.Get("reason"))), Force: form.Get("force") != "",
		Status: strings.TrimSpace(form.Get("status")), ContentType: strings.TrimSpace(form.Get("content_type")),
		Body: lines(form.Get("body")), Encoding: form.Get("encoding"),
	}
}

// lines undoes what browsers do to the ends of lines in a form.
func lines(s string) string { return strings.ReplaceAll(s, "\r\n", "\n") }

// command is what the form comes to.
func (c *console) command(v *visit, k idem.Key, f resolveForm) (*idem.Resolve, error) {
	cmd := &idem.Resolve{
		Call:  idem.Call{Key: k, Actor: idem.Actor{Token: v.caller.Name, RequestID: v.requestID()}},
		Fence: f.Fence, Reason: f.Reason, Force: f.Force,
	}
	switch f.Action {
	case "record":
		response, err := c.readResponse(f)
		if err != nil {
			return nil, err
		}
		cmd.Response = response
	case "release":
	default:
		return nil, &idem.FieldError{Field: "action", Reason: "must be chosen: did it happen or not"}
	}
	err := cmd.Validate()
	return cmd, err
}

func (c *console) readResponse(f resolveForm) (*idem.Response, error) {
	status, err := strconv.Atoi(f.Status)
	if err != nil {
		return nil, &idem.FieldError{Field: "status", Reason: "must be a number such as 200"}
	}
	r := &idem.Response{Status: status}
	if f.ContentType != "" {
		if strings.ContainsFunc(f.ContentType, unicode.IsControl) {
			return nil, &idem.FieldError{Field: "content_type", Reason: "must have no control characters"}
		}
		r.Headers = []idem.Header{{"Content-Type", f.ContentType}}
	}
	if f.Body == "" {
		return r, nil
	}
	r.HasBody, r.Body = true, []byte(f.Body)
	if f.Encoding == "base64" {
		if r.Body, err = base64.StdEncoding.DecodeString(strings.Join(strings.Fields(f.Body), "")); err != nil {
			return nil, &idem.FieldError{Field: "body", Reason: "must be base64, as was chosen"}
		}
	}
	if int64(len(r.Body)) > c.MaxBodyBytes {
		return nil, &idem.FieldError{Field: "body", Reason: "must be at most " + number(c.MaxBodyBytes) + " bytes"}
	}
	return r, nil
}

// moved says why what is asked cannot be done as the key is now. Whether it can is judged again when it is done.
func moved(e *idem.Entry, now time.Time, f resolveForm) string {
	switch {
	case e.State == idem.Recorded:
		return "A response was recorded meanwhile, and a record is final."
	case e.Live(now) && !f.Force:
		return "A lease is live: the holder may be acting now. Wait until it has passed, or say that it is to be ended all the same."
	case e.Fence != f.Fence:
		return movedOn(e, f)
	default:
		return ""
	}
}

func movedOn(e *idem.Entry, f resolveForm) string {
	return "The key has moved on: you looked at fence " + strconv.FormatInt(f.Fence, 10) + ", and it is at fence " +
		strconv.FormatInt(e.Fence, 10) + " now. Look again before you decide."
}

// carryOut does what was confirmed.
func (c *console) carryOut(v *visit, cmd *idem.Resolve, p resolvePage) error {
	result := c.Keeper.Do(v.ctx, cmd)[0]
	if result.Err != nil {
		return result.Err
	}
	out := &result.Outcome
	v.told(out.Code, nil)
	if out.OK {
		return v.redirect(taskPath(cmd.TaskID) + "?resolved=" + strconv.Itoa(int(cmd.Attempt)))
	}
	if out.Entry == nil {
		return refusal(http.StatusNotFound, "Nothing is known of this key any more.", "Its retention has ended meanwhile. Nothing was done.")
	}
	p.Entry = viewEntry(out.Entry, out.Now)
	if p.Moved = moved(out.Entry, out.Now, p.Form); p.Moved == "" {
		p.Moved = "The key is " + p.Entry.Standing + ", and was not resolved."
	}
	return v.show(http.StatusConflict, "resolve", "Resolve", p)
}

// faultOf is an error of a form in words.
func faultOf(err error) string {
	s := strings.TrimPrefix(err.Error(), "response.")
	return strings.ToUpper(s[:1]) + strings.ReplaceAll(s[1:], "_", " ") + "."
}
