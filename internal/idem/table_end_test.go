package idem_test

import (
	"testing"

	"github.com/idemstore/idemstore/internal/idem"
)

// A release as it is most often.
func TestReleaseTable(t *testing.T) {
	t.Parallel()
	table(t, `
state                       cur   doubter quiet letgo past  stranger
absent                      none  none    none  none  none  none
remembers                   none  none    none  none  none  none
expired-record              none  none    none  none  none  none
expired-doubt               none~ none~   none~ none~ none~ none~
expired-release             none  none    none  none  none  none
live                        let   alien   nop   nop   nop   alien
live-explicit               let   alien   nop   nop   nop   alien
dispatched                  let   alien   nop   nop   nop   alien
live-inherits               let?  let     nop   nop   nop   alien
lapsed                      let   alien   nop?! nop?! nop?! alien
lapsed-dispatched           let   alien   nop?! nop?! nop?! alien
lapsed-explicit             let   alien   nop   nop   nop   alien
lapsed-explicit-inherits    let?  let     nop?  nop?  nop?  alien
lapsed-inherits             let?  let?!   nop?! nop?! nop?! alien
released                    nop   alien   nop   nop   nop   alien
released-inherits           nop?  let     nop?  nop?  nop?  alien
released-not-done-inherits  nop   nop     nop   nop   nop   alien
operator-acted              nop   alien   nop   nop   nop   alien
operator-idle               nop   alien   nop   nop   nop   alien
recorded                    taken alien   taken nop   taken alien
recorded-late               taken alien   taken nop   taken alien
recorded-former-inherits    taken taken   taken nop   taken alien
recorded-let-go-inherits    nop   taken   taken nop   taken alien
recorded-doubter-let-go     taken nop     taken nop   taken alien
recorded-unreserved         nop   alien   taken nop   taken alien
recorded-operator           taken alien   taken nop   taken alien
`, states(), everyone("", func(name string) idem.Command { return release(0, name) }))
}

// A release by one that has learned that no earlier holder acted. It is the present holder's word alone.
func TestReleaseEarlierNotDoneTable(t *testing.T) {
	t.Parallel()
	table(t, `
state                       cur   doubter quiet letgo past  stranger
absent                      none  none    none  none  none  none
remembers                   none  none    none  none  none  none
expired-record              none  none    none  none  none  none
expired-doubt               none~ none~   none~ none~ none~ none~
expired-release             none  none    none  none  none  none
live                        let   alien   nop   nop   nop   alien
live-explicit               let   alien   nop   nop   nop   alien
dispatched                  let   alien   nop   nop   nop   alien
live-inherits               let   let     nop   nop   nop   alien
lapsed                      let   alien   nop?! nop?! nop?! alien
lapsed-dispatched           let   alien   nop?! nop?! nop?! alien
lapsed-explicit             let   alien   nop   nop   nop   alien
lapsed-explicit-inherits    let   let     nop?  nop?  nop?  alien
lapsed-inherits             let   let?!   nop?! nop?! nop?! alien
released                    nop   alien   nop   nop   nop   alien
released-inherits           nop?  let     nop?  nop?  nop?  alien
released-not-done-inherits  nop   nop     nop   nop   nop   alien
operator-acted              nop   alien   nop   nop   nop   alien
operator-idle               nop   alien   nop   nop   nop   alien
recorded                    taken alien   taken nop   taken alien
recorded-late               taken alien   taken nop   taken alien
recorded-former-inherits    taken taken   taken nop   taken alien
recorded-let-go-inherits    nop   taken   taken nop   taken alien
recorded-doubter-let-go     taken nop     taken nop   taken alien
recorded-unreserved         nop   alien   taken nop   taken alien
recorded-operator           taken alien   taken nop   taken alien
`, states(), everyone("", func(name string) idem.Command {
		c := release(0, name)
		c.EarlierNotDone = true
		return c
	}))
}

// A release with the response that failed, which is evidence whatever becomes of the release.
func TestReleaseWithResponseTable(t *testing.T) {
	t.Parallel()
	table(t, `
state                       cur    doubter quiet  letgo  past   stranger
absent                      none+  none+   none+  none+  none+  none+
remembers                   none+  none+   none+  none+  none+  none+
expired-record              none+  none+   none+  none+  none+  none+
expired-doubt               none+~ none+~  none+~ none+~ none+~ none+~
expired-release             none+  none+   none+  none+  none+  none+
live                        let    alien+  nop+   nop+   nop+   alien+
live-explicit               let    alien+  nop+   nop+   nop+   alien+
dispatched                  let    alien+  nop+   nop+   nop+   alien+
live-inherits               let?   let     nop+   nop+   nop+   alien+
lapsed                      let    alien+  nop?+! nop?+! nop?+! alien+
lapsed-dispatched           let    alien+  nop?+! nop?+! nop?+! alien+
lapsed-explicit             let    alien+  nop+   nop+   nop+   alien+
lapsed-explicit-inherits    let?   let     nop?+  nop?+  nop?+  alien+
lapsed-inherits             let?   let?!   nop?+! nop?+! nop?+! alien+
released                    nop+   alien+  nop+   nop+   nop+   alien+
released-inherits           nop?+  let     nop?+  nop?+  nop?+  alien+
released-not-done-inherits  nop+   nop+    nop+   nop+   nop+   alien+
operator-acted              nop+   alien+  nop+   nop+   nop+   alien+
operator-idle               nop+   alien+  nop+   nop+   nop+   alien+
recorded                    taken+ alien+  taken+ nop+   taken+ alien+
recorded-late               taken+ alien+  taken+ nop+   taken+ alien+
recorded-former-inherits    taken+ taken+  taken+ nop+   taken+ alien+
recorded-let-go-inherits    nop+   taken+  taken+ nop+   taken+ alien+
recorded-doubter-let-go     taken+ nop+    taken+ nop+   taken+ alien+
recorded-unreserved         nop+   alien+  taken+ nop+   taken+ alien+
recorded-operator           taken+ alien+  taken+ nop+   taken+ alien+
`, states(), everyone("", func(name string) idem.Command {
		c := release(0, name)
		c.Reason, c.Response = "connection reset", answerB()
		return c
	}))
}

// The verbs of those who hold nothing: record without a reservation, and replay. "walker" is who so recorded.
func TestUnreservedTable(t *testing.T) {
	t.Parallel()
	columns := []column{
		{"walker=A", func(*world) idem.Command { return unreserved(0, "walker", answerA()) }},
		{"walker=B", func(*world) idem.Command { return unreserved(0, "walker", answerB()) }},
		{"other=A", func(*world) idem.Command { return unreserved(0, "other", answerA()) }},
		{"other=B", func(*world) idem.Command { return unreserved(0, "other", answerB()) }},
		{"replay", func(*world) idem.Command { return replay(0) }},
	}
	table(t, `
state                       walker=A walker=B other=A  other=B  replay
absent                      in-step  in-step  in-step  in-step  none
remembers                   in-step  in-step  in-step  in-step  none
expired-record              in-step  in-step  in-step  in-step  none
expired-doubt               in-step~ in-step~ in-step~ in-step~ none~
expired-release             in-step  in-step  in-step  in-step  none
live                        busy+    busy+    busy+    busy+    busy
live-explicit               busy+    busy+    busy+    busy+    busy
dispatched                  busy+    busy+    busy+    busy+    busy
live-inherits               busy+    busy+    busy+    busy+    busy
lapsed                      doubt+!  doubt+!  doubt+!  doubt+!  doubt!
lapsed-dispatched           doubt+!  doubt+!  doubt+!  doubt+!  doubt!
lapsed-explicit             in-step  in-step  in-step  in-step  none
lapsed-explicit-inherits    doubt+   doubt+   doubt+   doubt+   doubt
lapsed-inherits             doubt+!  doubt+!  doubt+!  doubt+!  doubt!
released                    in-step  in-step  in-step  in-step  none
released-inherits           doubt+   doubt+   doubt+   doubt+   doubt
released-not-done-inherits  in-step  in-step  in-step  in-step  none
operator-acted              in-step  in-step  in-step  in-step  none
operator-idle               in-step  in-step  in-step  in-step  none
recorded                    again+   taken+   again+   taken+   replay
recorded-late               again+   taken+   again+   taken+   replay
recorded-former-inherits    again+   taken+   again+   taken+   replay
recorded-let-go-inherits    again+   taken+   again+   taken+   replay
recorded-doubter-let-go     again+   taken+   again+   taken+   replay
recorded-unreserved         again    taken+   again+   taken+   replay
recorded-operator           again+   taken+   again+   taken+   replay
`, states(), columns)
}

// An operator's word: with response A or B, or as not done (N); with the right fence or a wrong one; forced (f) or not.
func TestResolveTable(t *testing.T) {
	t.Parallel()
	var columns []column
	for _, what := range []struct {
		name string
		make func() *idem.Response
	}{{"A", answerA}, {"B", answerB}, {"N", func() *idem.Response { return nil }}} {
		for _, how := range []struct {
			name  string
			off   int64
			force bool
		}{{"right", 0, false}, {"f-right", 0, true}, {"wrong", 1, false}, {"f-wrong", 1, true}} {
			columns = append(columns, column{what.name + "/" + how.name, func(w *world) idem.Command {
				c := resolve(0, newest(w)+how.off, what.make())
				c.Force = how.force
				return c
			}})
		}
	}
	table(t, `
state                       A/right A/f-right A/wrong A/f-wrong B/right B/f-right B/wrong B/f-wrong N/right N/f-right N/wrong N/f-wrong
absent                      none+   none+     none+   none+     none+   none+     none+   none+     none    none      none    none
remembers                   none+   none+     none+   none+     none+   none+     none+   none+     none    none      none    none
expired-record              none+   none+     none+   none+     none+   none+     none+   none+     none    none      none    none
expired-doubt               none+~  none+~    none+~  none+~    none+~  none+~    none+~  none+~    none~   none~     none~   none~
expired-release             none+   none+     none+   none+     none+   none+     none+   none+     none    none      none    none
live                        busy+   kept      busy+   doubt+    busy+   kept      busy+   doubt+    busy    dropped   busy    doubt
live-explicit               busy+   kept      busy+   doubt+    busy+   kept      busy+   doubt+    busy    dropped   busy    doubt
dispatched                  busy+   kept      busy+   doubt+    busy+   kept      busy+   doubt+    busy    dropped   busy    doubt
live-inherits               busy+   kept      busy+   doubt+    busy+   kept      busy+   doubt+    busy    dropped   busy    doubt
lapsed                      kept    kept      doubt+! doubt+!   kept    kept      doubt+! doubt+!   dropped dropped   doubt!  doubt!
lapsed-dispatched           kept    kept      doubt+! doubt+!   kept    kept      doubt+! doubt+!   dropped dropped   doubt!  doubt!
lapsed-explicit             kept    kept      doubt+  doubt+    kept    kept      doubt+  doubt+    dropped dropped   doubt   doubt
lapsed-explicit-inherits    kept    kept      doubt+  doubt+    kept    kept      doubt+  doubt+    dropped dropped   doubt   doubt
lapsed-inherits             kept    kept      doubt+! doubt+!   kept    kept      doubt+! doubt+!   dropped dropped   doubt!  doubt!
released                    kept    kept      doubt+  doubt+    kept    kept      doubt+  doubt+    dropped dropped   doubt   doubt
released-inherits           kept    kept      doubt+  doubt+    kept    kept      doubt+  doubt+    dropped dropped   doubt   doubt
released-not-done-inherits  kept    kept      doubt+  doubt+    kept    kept      doubt+  doubt+    dropped dropped   doubt   doubt
operator-acted              kept    kept      doubt+  doubt+    kept    kept      doubt+  doubt+    dropped dropped   doubt   doubt
operator-idle               kept    kept      doubt+  doubt+    kept    kept      doubt+  doubt+    dropped dropped   doubt   doubt
recorded                    again+   again+     again+   again+     taken+  taken+    taken+  taken+    taken   taken     taken   taken
recorded-late               again+   again+     again+   again+     taken+  taken+    taken+  taken+    taken   taken     taken   taken
recorded-former-inherits    again+   again+     again+   again+     taken+  taken+    taken+  taken+    taken   taken     taken   taken
recorded-let-go-inherits    again+   again+     again+   again+     taken+  taken+    taken+  taken+    taken   taken     taken   taken
recorded-doubter-let-go     again+   again+     again+   again+     taken+  taken+    taken+  taken+    taken   taken     taken   taken
recorded-unreserved         again+   again+     again+   again+     taken+  taken+    taken+  taken+    taken   taken     taken   taken
recorded-operator           again   again     again   again     taken+  taken+    taken+  taken+    taken   taken     taken   taken
`, states(), columns)
}

// An operator's word that an owner is gone: the holder's (f: forced), or another name.
func TestEvictTable(t *testing.T) {
	t.Parallel()
	table(t, `
state                       cur   f-cur stranger f-stranger
absent                      none  none  none     none
remembers                   none  none  none     none
expired-record              none  none  none     none
expired-doubt               none~ none~ none~    none~
expired-release             none  none  none     none
live                        busy  gone  alien    alien
live-explicit               gone  gone  alien    alien
dispatched                  busy  gone  alien    alien
live-inherits               busy  gone? alien    alien
lapsed                      doubt! gone alien    alien
lapsed-dispatched           doubt! gone alien    alien
lapsed-explicit             gone  gone  alien    alien
lapsed-explicit-inherits    gone? gone? alien    alien
lapsed-inherits             doubt! gone? alien   alien
released                    nop   nop   alien    alien
released-inherits           nop?  nop?  alien    alien
released-not-done-inherits  nop   nop   alien    alien
operator-acted              nop   nop   alien    alien
operator-idle               nop   nop   alien    alien
recorded                    taken taken taken    taken
recorded-late               taken taken taken    taken
recorded-former-inherits    taken taken taken    taken
recorded-let-go-inherits    taken taken taken    taken
recorded-doubter-let-go     taken taken taken    taken
recorded-unreserved         taken taken taken    taken
recorded-operator           taken taken taken    taken
`, states(), []column{
		{"cur", func(*world) idem.Command { return evict(0, "o-cur", false) }},
		{"f-cur", func(*world) idem.Command { return evict(0, "o-cur", true) }},
		{"stranger", func(*world) idem.Command { return evict(0, "o-stranger", false) }},
		{"f-stranger", func(*world) idem.Command { return evict(0, "o-stranger", true) }},
	})
}
