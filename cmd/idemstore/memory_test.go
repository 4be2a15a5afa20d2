package main

import (
	"bytes"
	"math"
	"os"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/rs/zerolog"
)

// The limit is the whole process's, and so far above what it uses that tests beside this one do not feel it.
func TestContainersMemoryIsHeeded(t *testing.T) {
	if given, ok := os.LookupEnv("GOMEMLIMIT"); ok {
		t.Setenv("GOMEMLIMIT", given) // and back again
		if err := os.Unsetenv("GOMEMLIMIT"); err != nil {
			t.Fatal(err)
		}
	}
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	var log bytes.Buffer
	v := &service{log: zerolog.New(&log)}

	v.limitMemory(memlimit.Limit(1_000_000_000_000))
	if got := debug.SetMemoryLimit(-1); got != 900_000_000_000 {
		t.Errorf("the limit is %d", got)
	}
	if !strings.Contains(log.String(), `"bytes":900000000000`) {
		t.Errorf("logged %q", log.String())
	}

	log.Reset()
	v.limitMemory(func() (uint64, error) { return 0, memlimit.ErrNoLimit })
	if got := debug.SetMemoryLimit(-1); got != math.MaxInt64 || log.Len() > 0 {
		t.Errorf("without a limit it is %d, and logged %q", got, log.String())
	}

	t.Setenv("GOMEMLIMIT", "1TiB") // read by the runtime when the program starts
	debug.SetMemoryLimit(1 << 40)
	v.limitMemory(memlimit.Limit(2_000_000_000_000))
	if got := debug.SetMemoryLimit(-1); got != 1<<40 {
		t.Errorf("a limit from the environment became %d", got)
	}
}
