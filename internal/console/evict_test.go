package console_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/idemstore/idemstore/internal/idem"
)

var hiddenField = regexp.MustCompile(`<input type="hidden" name="([^"]+)" value="([^"]*)">`)

// confirm sends the form of a review as a browser does.
func (c *client) confirm(review reply) reply {
	c.t.Helper()
	form := url.Values{"step": {"do"}}
	_, main, _ := strings.Cut(review.body, "<main")
	for _, m := range hiddenField.FindAllStringSubmatch(main, -1) {
		form.Add(m[1], html.UnescapeString(m[2]))
	}
	return c.do(c.request("POST", "/console/release-owner", form))
}

// holds reserves a key for 300 seconds.
func (s *service) holds(t *testing.T, owner string, explicit bool) *worker {
	t.Helper()
	w := s.worker(t, owner, task())
	w.do(&idem.Reserve{Call: w.call(), Owner: owner, ReservationID: w.id, LeaseSeconds: 300, Explicit: explicit})
	return w
}

func TestOwnerIsReleased(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	c := s.as(t, "operator")
	const owner = "worker/7 & co"
	reserve := func(explicit bool) *worker {
		w := s.worker(t, owner, task())
		w.do(&idem.Reserve{Call: w.call(), Owner: owner, ReservationID: w.id, LeaseSeconds: 300, Explicit: explicit})
		return w
	}
	harmless, promised, acting := reserve(true), reserve(true), reserve(false)
	promised.do(&idem.Dispatch{Call: promised.call(), ReservationID: promised.id})
	c.get("/console/release-owner").want(200, "Show what it holds").without("Go on to confirm")
	c.get("/console/entries?owner=worker%2F7+%26+co").want(200, "/console/release-owner?owner=worker%2f7%20%26%20co")
	c.get("/console/release-owner?owner=worker%2F7+%26+co").want(200, harmless.key.TaskID, promised.key.TaskID, acting.key.TaskID, "cannot have acted", "nothing: it may have acted")
	c.get("/console/release-owner?owner=nobody").want(200, "holds nothing")
	c.post("/console/release-owner", "owner", owner, "step", "do").want(400, "Reason is required")
	review := c.post("/console/release-owner", "owner", owner, "reason", "the node is gone", "step", "review").want(200, "End 1 of 3 grants", "the node is gone")
	if out := s.worker(t, "next", harmless.key).reserve(); out.Code != idem.CodeInProgress {
		t.Fatalf("before it was confirmed: %s", out.Code)
	}
	page := c.confirm(review).want(200, "ended", "stands")
	if ended, stands := strings.Count(page.body, ">ended<"), strings.Count(page.body, "<strong>stands<"); ended != 1 || stands != 2 {
		t.Errorf("%d ended, %d stand", ended, stands)
	}
	if out := s.worker(t, "next", harmless.key).reserve(); out.Code != idem.CodeReserved {
		t.Errorf("after it: %s", out.Code)
	}
	if out := s.worker(t, "next", acting.key).reserve(); out.Code != idem.CodeInProgress {
		t.Errorf("one that may have acted: %s", out.Code)
	}
	review = c.post("/console/release-owner", "owner", owner, "reason", "the node burnt", "force", "true", "step", "review").want(200, "End 2 of 2 grants", "it happens twice")
	page = c.confirm(review).want(200)
	if ended := strings.Count(page.body, ">ended<"); ended != 2 {
		t.Errorf("%d ended", ended)
	}
	c.get(taskPath(acting.key)).want(200, "the node burnt", "holder", owner)
	c.post("/console/release-owner", "owner", owner, "reason", "again", "step", "do").want(200, "It held nothing")
}

// What was not shown is not ended, whatever is granted between the look and the word.
func TestOnlyWhatWasShownIsReleased(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	c := s.as(t, "operator")
	shown, moved := s.holds(t, "gone", true), s.holds(t, "gone", true)
	review := c.post("/console/release-owner", "owner", "gone", "reason", "scrapped", "force", "true", "step", "review").want(200, "End 2 of 2 grants")
	since := s.holds(t, "gone", false)
	moved.do(&idem.Release{Call: moved.call(), ReservationID: moved.id})
	again := s.worker(t, "gone", moved.key)
	if out := again.reserve(); out.Code != idem.CodeReserved || out.Entry.Fence != 2 {
		t.Fatalf("granted again: %s", out.Code)
	}
	page := c.confirm(review).want(200)
	if ended, stands := strings.Count(page.body, ">ended<"), strings.Count(page.body, "<strong>stands<"); ended != 1 || stands != 1 {
		t.Errorf("%d ended, %d stand: %s", ended, stands, page.body)
	}
	for w, want := range map[*worker]idem.Code{shown: idem.CodeReserved, since: idem.CodeInProgress, moved: idem.CodeInProgress} {
		if out := s.worker(t, "next", w.key).reserve(); out.Code != want {
			t.Errorf("%s is answered %s, want %s", w.key, out.Code, want)
		}
	}
	for _, bad := range []string{"", "0", "0 1", "0 0 x", "x 1 y", "0 1 a/b"} {
		r := c.post("/console/release-owner", "owner", "gone", "reason", "r", "step", "do", "key", bad)
		r.want(http.StatusBadRequest, "none of ours")
	}
	c.post("/console/release-owner", "owner", "gone", "reason", "r", "step", "do", "next", "nowhere.").want(400, "leads nowhere")
	c.get("/console/release-owner?owner=gone&cursor=recorded.").want(400, "leads nowhere")
}

// The rest is reached, however many of those before it stay.
func TestTheRestOfAnOwnerIsReached(t *testing.T) {
	t.Parallel()
	s := start(t, setup{})
	c := s.as(t, "operator")
	var old []*worker
	for range 3 {
		old = append(old, s.holds(t, "gone", true))
	}
	for i := range 230 {
		w := s.holds(t, "gone", false)
		if i < 20 {
			w.do(&idem.Dispatch{Call: w.call(), ReservationID: w.id})
		}
	}
	seen := make(map[string]bool)
	path := "/console/release-owner?owner=gone"
	for pages := 0; path != ""; pages++ {
		if pages > 3 {
			t.Fatal("there is no end")
		}
		u, err := url.Parse(path)
		if err != nil {
			t.Fatal(err)
		}
		c.get(path).want(200)
		done := c.confirm(c.post("/console/release-owner", "owner", "gone", "reason", "scrapped", "step", "review", "cursor", u.Query().Get("cursor")).want(200)).want(200)
		for _, m := range regexp.MustCompile(`href="/console/tasks/(order-[0-9a-f]+)`).FindAllStringSubmatch(done.body, -1) {
			seen[m[1]] = true
		}
		path = link(done.body, "Go on with the rest")
	}
	if len(seen) != 233 {
		t.Errorf("%d of 233 were looked at", len(seen))
	}
	for _, w := range old {
		if out := s.worker(t, "next", w.key).reserve(); out.Code != idem.CodeReserved {
			t.Errorf("%s is answered %s", w.key, out.Code)
		}
	}
}
