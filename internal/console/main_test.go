package console_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(suite{m}) }

// suite is the tests of this package, and behind them the end of the browser that they share.
type suite struct{ m *testing.M }

func (s suite) Run() int {
	code := s.m.Run()
	stopChromium()
	return code
}
