package idem

// Expire looks whether a key's retention has ended in doubt, and if so tells it to the trail. It changes nothing else.
type Expire struct {
	Call
}

// Validate implements Command.
func (c *Expire) Validate() error { return nil }

func (c *Expire) decide(d *decider) {
	// The look itself, which every judgement begins with, tells it.
	if d.own == nil {
		d.refuse(CodeNotFound, nil)
		d.out.First = d.change(d.key) >= 0
		return
	}
	d.show(CodeInProgress, d.own)
}
