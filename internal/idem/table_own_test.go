package idem_test

import (
	"testing"

	"github.com/idemstore/idemstore/internal/idem"
)

// The tables of one key by itself. What they expect is the protocol's text, never what the code came to.

// newest is the fence that a look would name.
func newest(w *world) int64 {
	if e := w.rows[0]; e != nil && e.Fence > 0 {
		return e.Fence
	}
	return 1
}

func right(w *world) func(*idem.Reserve) { return naming(0, newest(w)) }
func wrong(w *world) func(*idem.Reserve) { return naming(0, newest(w)+1) }

// sameMode promises what the current grant promised.
func sameMode(w *world) func(*idem.Reserve) {
	return func(c *idem.Reserve) { c.Explicit = w.rows[0] != nil && w.rows[0].Explicit }
}

func TestReserveTable(t *testing.T) {
	t.Parallel()
	fresh := func(change ...func(*idem.Reserve)) func(*world) idem.Command {
		return func(*world) idem.Command { return reserve(0, "fresh", change...) }
	}
	id := func(name string) func(*world) idem.Command {
		return func(w *world) idem.Command { return reserve(0, name, sameMode(w)) }
	}
	columns := []column{
		{"fresh", fresh()},
		{"same", id("cur")},
		{"owner", func(w *world) idem.Command {
			return reserve(0, "cur", sameMode(w), func(c *idem.Reserve) { c.Owner = "o-other" })
		}},
		{"mode", func(w *world) idem.Command {
			return reserve(0, "cur", sameMode(w), func(c *idem.Reserve) { c.Explicit = !c.Explicit })
		}},
		{"letgo", id("letgo")},
		{"past", id("past")},
		{"quiet", id("quiet")},
		{"doubter", id("doubter")},
		{"hash", fresh(otherHash)},
		{"nohash", fresh(noHash)},
		{"right", func(w *world) idem.Command { return reserve(0, "fresh", right(w)) }},
		{"wrong", func(w *world) idem.Command { return reserve(0, "fresh", wrong(w)) }},
		{"right/cur", func(w *world) idem.Command { return reserve(0, "cur", sameMode(w), right(w)) }},
		{"right/doubter", func(w *world) idem.Command { return reserve(0, "doubter", right(w)) }},
		{"task", fresh(taskScope)},
	}
	table(t, `
state                       fresh  same   owner  mode   letgo  past   quiet  doubter hash     nohash right  wrong  right/cur right/doubter task
absent                      grant  grant  grant  grant  grant  grant  grant  grant   grant    grant  grant  grant  grant     grant         grant
remembers                   grant  grant  grant  grant  grant  grant  grant  grant   grant    grant  grant  grant  grant     grant         grant
expired-record              grant  grant  grant  grant  grant  grant  grant  grant   grant    grant  grant  grant  grant     grant         grant
expired-doubt               grant~ grant~ grant~ grant~ grant~ grant~ grant~ grant~  grant~   grant~ grant~ grant~ grant~    grant~        grant~
expired-release             grant  grant  grant  grant  grant  grant  grant  grant   grant    grant  grant  grant  grant     grant         grant
live                        busy   same   busy   busy   lost   lost   lost   busy    mismatch busy   busy   busy   same      busy          busy
live-explicit               busy   same   busy   busy   lost   lost   lost   busy    mismatch busy   busy   busy   same      busy          busy
dispatched                  busy   busy   busy   busy   lost   lost   lost   busy    mismatch busy   busy   busy   busy      busy          busy
live-inherits               busy   same   busy   busy   lost   lost   lost   lost    mismatch busy   busy   busy   same      lost          busy
lapsed                      doubt! doubt! doubt! doubt! lost   lost   lost   doubt!  mismatch doubt! take   doubt! lost      take          doubt!
lapsed-dispatched           doubt! doubt! doubt! doubt! lost   lost   lost   doubt!  mismatch doubt! take   doubt! lost      take          doubt!
lapsed-explicit             grant  grant  grant  grant  lost   lost   lost   grant   grant    grant  grant  grant  grant     grant         grant
lapsed-explicit-inherits    doubt  doubt  doubt  doubt  lost   lost   lost   lost    mismatch doubt  take   doubt  lost      lost          doubt
lapsed-inherits             doubt! doubt! doubt! doubt! lost   lost   lost   lost    mismatch doubt! take   doubt! lost      lost          doubt!
released                    grant  lost   lost   lost   lost   lost   lost   grant   grant    grant  grant  grant  lost      grant         grant
released-inherits           doubt  lost   lost   lost   lost   lost   lost   lost    mismatch doubt  take   doubt  lost      lost          doubt
released-not-done-inherits  grant  lost   lost   lost   lost   lost   lost   lost    grant    grant  grant  grant  lost      lost          grant
operator-acted              grant  lost   lost   lost   lost   lost   lost   grant   grant    grant  grant  grant  lost      grant         grant
operator-idle               grant  lost   lost   lost   lost   lost   lost   grant   grant    grant  grant  grant  lost      grant         grant
recorded                    replay replay replay replay replay replay replay replay  mismatch replay replay replay replay    replay        replay
recorded-late               replay replay replay replay replay replay replay replay  mismatch replay replay replay replay    replay        replay
recorded-former-inherits    replay replay replay replay replay replay replay replay  mismatch replay replay replay replay    replay        replay
recorded-let-go-inherits    replay replay replay replay replay replay replay replay  mismatch replay replay replay replay    replay        replay
recorded-doubter-let-go     replay replay replay replay replay replay replay replay  mismatch replay replay replay replay    replay        replay
recorded-unreserved         replay replay replay replay replay replay replay replay  mismatch replay replay replay replay    replay        replay
recorded-operator           replay replay replay replay replay replay replay replay  mismatch replay replay replay replay    replay        replay
`, states(), columns)
}

// everyone is a column for each way to stand to the key.
func everyone(suffix string, cmd func(name string) idem.Command) []column {
	var columns []column
	for _, name := range []string{"cur", "doubter", "quiet", "letgo", "past", "stranger"} {
		columns = append(columns, column{name + suffix, func(*world) idem.Command { return cmd(name) }})
	}
	return columns
}

func TestDispatchTable(t *testing.T) {
	t.Parallel()
	table(t, `
state                       cur        doubter quiet letgo past  stranger
absent                      none       none    none  none  none  none
remembers                   none       none    none  none  none  none
expired-record              none       none    none  none  none  none
expired-doubt               none~      none~   none~ none~ none~ none~
expired-release             none       none    none  none  none  none
live                        dispatched alien   lost  lost  lost  alien
live-explicit               dispatched alien   lost  lost  lost  alien
dispatched                  dispatched alien   lost  lost  lost  alien
live-inherits               dispatched lost    lost  lost  lost  alien
lapsed                      revived    alien   lost  lost  lost  alien
lapsed-dispatched           revived    alien   lost  lost  lost  alien
lapsed-explicit             revived    alien   lost  lost  lost  alien
lapsed-explicit-inherits    revived    lost    lost  lost  lost  alien
lapsed-inherits             revived    lost    lost  lost  lost  alien
released                    lost       alien   lost  lost  lost  alien
released-inherits           lost       lost    lost  lost  lost  alien
released-not-done-inherits  lost       lost    lost  lost  lost  alien
operator-acted              lost       alien   lost  lost  lost  alien
operator-idle               lost       alien   lost  lost  lost  alien
recorded                    taken      alien   taken taken taken alien
recorded-late               taken      alien   taken taken taken alien
recorded-former-inherits    taken      taken   taken taken taken alien
recorded-let-go-inherits    taken      taken   taken taken taken alien
recorded-doubter-let-go     taken      taken   taken taken taken alien
recorded-unreserved         taken      alien   taken taken taken alien
recorded-operator           taken      alien   taken taken taken alien
`, states(), everyone("", func(name string) idem.Command { return dispatch(0, name) }))
}

func TestRenewTable(t *testing.T) {
	t.Parallel()
	table(t, `
state                       cur     doubter quiet letgo past  stranger
absent                      none    none    none  none  none  none
remembers                   none    none    none  none  none  none
expired-record              none    none    none  none  none  none
expired-doubt               none~   none~   none~ none~ none~ none~
expired-release             none    none    none  none  none  none
live                        renewed alien   lost  lost  lost  alien
live-explicit               renewed alien   lost  lost  lost  alien
dispatched                  renewed alien   lost  lost  lost  alien
live-inherits               renewed lost    lost  lost  lost  alien
lapsed                      revived alien   lost  lost  lost  alien
lapsed-dispatched           revived alien   lost  lost  lost  alien
lapsed-explicit             revived alien   lost  lost  lost  alien
lapsed-explicit-inherits    revived lost    lost  lost  lost  alien
lapsed-inherits             revived lost    lost  lost  lost  alien
released                    lost    alien   lost  lost  lost  alien
released-inherits           lost    lost    lost  lost  lost  alien
released-not-done-inherits  lost    lost    lost  lost  lost  alien
operator-acted              lost    alien   lost  lost  lost  alien
operator-idle               lost    alien   lost  lost  lost  alien
recorded                    taken   alien   taken taken taken alien
recorded-late               taken   alien   taken taken taken alien
recorded-former-inherits    taken   taken   taken taken taken alien
recorded-let-go-inherits    taken   taken   taken taken taken alien
recorded-doubter-let-go     taken   taken   taken taken taken alien
recorded-unreserved         taken   alien   taken taken taken alien
recorded-operator           taken   alien   taken taken taken alien
`, states(), everyone("", func(name string) idem.Command { return renew(0, name) }))
}

// In the states that are recorded, A is what is recorded.
func TestRecordTable(t *testing.T) {
	t.Parallel()
	var columns []column
	for _, r := range []struct {
		name string
		make func() *idem.Response
	}{{"=A", answerA}, {"=B", answerB}} {
		columns = append(columns, everyone(r.name, func(name string) idem.Command { return record(0, name, r.make()) })...)
	}
	table(t, `
state                       cur=A  doubter=A quiet=A letgo=A past=A stranger=A cur=B  doubter=B quiet=B letgo=B past=B stranger=B
absent                      none+  none+     none+   none+   none+  none+      none+  none+     none+   none+   none+  none+
remembers                   none+  none+     none+   none+   none+  none+      none+  none+     none+   none+   none+  none+
expired-record              none+  none+     none+   none+   none+  none+      none+  none+     none+   none+   none+  none+
expired-doubt               none+~ none+~    none+~  none+~  none+~ none+~     none+~ none+~    none+~  none+~  none+~ none+~
expired-release             none+  none+     none+   none+   none+  none+      none+  none+     none+   none+   none+  none+
live                        first  alien+    late    lost+   lost+  alien+     first  alien+    late    lost+   lost+  alien+
live-explicit               first  alien+    late    lost+   lost+  alien+     first  alien+    late    lost+   lost+  alien+
dispatched                  first  alien+    late    lost+   lost+  alien+     first  alien+    late    lost+   lost+  alien+
live-inherits               first  late      late    lost+   lost+  alien+     first  late      late    lost+   lost+  alien+
lapsed                      late   alien+    late    lost+   lost+  alien+     late   alien+    late    lost+   lost+  alien+
lapsed-dispatched           late   alien+    late    lost+   lost+  alien+     late   alien+    late    lost+   lost+  alien+
lapsed-explicit             late   alien+    late    lost+   lost+  alien+     late   alien+    late    lost+   lost+  alien+
lapsed-explicit-inherits    late   late      late    lost+   lost+  alien+     late   late      late    lost+   lost+  alien+
lapsed-inherits             late   late      late    lost+   lost+  alien+     late   late      late    lost+   lost+  alien+
released                    lost+  alien+    late    lost+   lost+  alien+     lost+  alien+    late    lost+   lost+  alien+
released-inherits           lost+  late      late    lost+   lost+  alien+     lost+  late      late    lost+   lost+  alien+
released-not-done-inherits  lost+  late      late    lost+   lost+  alien+     lost+  late      late    lost+   lost+  alien+
operator-acted              late   alien+    late    lost+   lost+  alien+     late   alien+    late    lost+   lost+  alien+
operator-idle               lost+  alien+    late    lost+   lost+  alien+     lost+  alien+    late    lost+   lost+  alien+
recorded                    again  alien+    again+  again+  again+ alien+     taken+ alien+    taken+  taken+  taken+ alien+
recorded-late               again  alien+    again+  again+  again+ alien+     taken+ alien+    taken+  taken+  taken+ alien+
recorded-former-inherits    again+ again     again+  again+  again+ alien+     taken+ taken+    taken+  taken+  taken+ alien+
recorded-let-go-inherits    again+ again     again+  again+  again+ alien+     taken+ taken+    taken+  taken+  taken+ alien+
recorded-doubter-let-go     again  again+    again+  again+  again+ alien+     taken+ taken+    taken+  taken+  taken+ alien+
recorded-unreserved         again+ alien+    again+  again+  again+ alien+     taken+ alien+    taken+  taken+  taken+ alien+
recorded-operator           again+ alien+    again+  again+  again+ alien+     taken+ alien+    taken+  taken+  taken+ alien+
`, states(), columns)
}
