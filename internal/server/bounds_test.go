package server

import (
	"bytes"
	"strings"
	"testing"

	"github.com/idemstore/idemstore/api"
)

// What a request makes the service allocate is bounded by what is of use in it, not by how often it can repeat nothing.
func TestListsOfNothingAreNotTakenApart(t *testing.T) { //nolint:paralleltest // it counts allocations
	long := func(open, item, end string) []byte {
		return append(append([]byte(open), bytes.Repeat([]byte(item), 1<<20)...), end...)
	}
	const most = 10_000
	for name, read := range map[string]func() error{
		"items": func() error {
			_, err := readItems(long(`{"items":[0`, ",0", "]}"), false)
			return err
		},
		"headers": func() error {
			_, err := readHeaders(long(`[["a","b"]`, `,["a","b"]`, "]"))
			return err
		},
		"one header's values": func() error {
			_, err := readHeaders(long(`{"a":["b"`, `,"b"`, "]}"))
			return err
		},
	} {
		body := 0
		if n := testing.AllocsPerRun(1, func() {
			if read() == nil {
				body++
			}
		}); n > most || body > 0 {
			t.Errorf("%s: %v allocations, and %d times no error", name, n, body)
		}
	}
}

func TestIgnoredMembersAreNamedUpToAHundred(t *testing.T) {
	t.Parallel()
	var members strings.Builder
	for i := range 2000 {
		members.WriteString(`,"x` + strings.Repeat("y", i) + `":1`)
	}
	ignored, err := lenient([]byte(`{"owner":"w"`+members.String()+`,"response":{"z":1}}`), new(api.RecordRequest))
	if err != nil || len(ignored) != maxIgnored {
		t.Errorf("%d are named, %v", len(ignored), err)
	}
	if _, err := lenient([]byte(`{"owner":"w"`+members.String()+`,"Owner":"w"}`), new(api.RecordRequest)); err == nil {
		t.Error("a known member in another letter case passed behind many unknown ones")
	}
}
