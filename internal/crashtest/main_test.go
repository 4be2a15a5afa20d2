package crashtest_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain lets the test binary be a worker, right or wrong, so that the tests need no other program.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == beWorker {
		os.Exit(runWorker(os.Args[2], os.Args[3:]...)) //nolint:forbidigo // a TestMain is a main
	}
	goleak.VerifyTestMain(m)
}
