package audit

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// progress tells a person at a terminal that something long goes on.
type progress struct {
	out         io.Writer // nil: nobody looks
	now         func() time.Time
	began, told time.Time
	width       int
}

const (
	progressAfter = time.Second
	progressEvery = 200 * time.Millisecond
)

// progress is told on the terminal of errors. It keeps quiet where what is found goes to the same screen as it comes.
func (s *Session) progress(alone bool) *progress {
	p := &progress{now: s.Now, began: s.Now()}
	if s.ErrTerminal && alone {
		p.out = s.Err
	}
	return p
}

func (p *progress) tell(format string, args ...any) {
	now := p.now()
	if p.out == nil || now.Sub(p.began) < progressAfter || now.Sub(p.told) < progressEvery {
		return
	}
	p.told = now
	text := fmt.Sprintf(format, args...)
	fmt.Fprintf(p.out, "\r%s%s", text, strings.Repeat(" ", max(0, p.width-len(text))))
	p.width = len(text)
}

// clear takes the line away.
func (p *progress) clear() {
	if p.width > 0 {
		fmt.Fprintf(p.out, "\r%s\r", strings.Repeat(" ", p.width))
		p.width = 0
	}
}
