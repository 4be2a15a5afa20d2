package idem_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/idemstore/idemstore/internal/idem"
)

// faulty checks that an error names a field, and that it is as wanted: "" is no error.
func faulty(t *testing.T, what string, err error, field string) {
	t.Helper()
	var fault *idem.FieldError
	switch {
	case field == "" && err != nil:
		t.Errorf("%s: %v", what, err)
	case field != "" && !errors.As(err, &fault):
		t.Errorf("%s: no fault, want one in %s: %v", what, field, err)
	case field != "" && (fault.Field != field || fault.Reason == "" || !strings.HasPrefix(err.Error(), field+" ")):
		t.Errorf("%s: fault %q, want one in %s", what, err, field)
	}
}

func TestParseTaskID(t *testing.T) {
	t.Parallel()
	const uuid = "0d9cf0a1-1b2c-4d3e-8f4a-5b6c7d8e9f0a"
	for _, c := range []struct{ in, want string }{
		{"a", "a"},
		{"Az09._~:@-", "Az09._~:@-"},
		{"...", "..."},
		{".a", ".a"},
		{"..a", "..a"},
		{strings.Repeat("x", 255), strings.Repeat("x", 255)},
		{uuid, uuid},
		{strings.ToUpper(uuid), uuid},
		{"0D9cf0A1-1b2c-4d3e-8f4a-5b6c7d8e9f0a", uuid},
		{"FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF", "ffffffff-ffff-ffff-ffff-ffffffffffff"},
		// Not quite UUIDs, and so kept as they are.
		{strings.ToUpper(uuid) + "A", strings.ToUpper(uuid) + "A"},
		{"G" + strings.ToUpper(uuid[1:]), "G" + strings.ToUpper(uuid[1:])},
		{strings.ToUpper(uuid[:8]) + "_" + uuid[9:], strings.ToUpper(uuid[:8]) + "_" + uuid[9:]},
		{strings.ToUpper(strings.ReplaceAll(uuid, "-", "")), strings.ToUpper(strings.ReplaceAll(uuid, "-", ""))},
		{"ABCDEFAB-CDEF-ABCD-EFAB-CDEFABCDEF-A", "ABCDEFAB-CDEF-ABCD-EFAB-CDEFABCDEF-A"},
	} {
		have, err := idem.ParseTaskID(c.in)
		faulty(t, c.in, err, "")
		if have != c.want {
			t.Errorf("%q is kept as %q, want %q", c.in, have, c.want)
		}
	}
	for _, in := range []string{
		"", ".", "..", strings.Repeat("x", 256), strings.Repeat("x", 1<<20), "a b", "a/b", "a%2Fb", "a\x00", "a\n", "é", "a\xff", "a+b", "a,b", "{}", "a#b", "a?b",
	} {
		if len(in) > 300 {
			_, err := idem.ParseTaskID(in)
			faulty(t, "an absurdly long one", err, "task_id")
			continue
		}
		_, err := idem.ParseTaskID(in)
		faulty(t, in, err, "task_id")
	}
}

func TestParseAttempt(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]int32{"0": 0, "1": 1, "10": 10, "2147483646": math.MaxInt32 - 1, "2147483647": math.MaxInt32} {
		have, err := idem.ParseAttempt(in)
		faulty(t, in, err, "")
		if have != want {
			t.Errorf("%q is read as %d", in, have)
		}
	}
	for _, in := range []string{
		"", "-1", "-0", "+1", "00", "01", "2147483648", "4294967296", "9223372036854775808", strings.Repeat("9", 1000),
		"1.0", "1e3", "0x1", "1_000", " 1", "1 ", "١", "one",
	} {
		_, err := idem.ParseAttempt(in)
		faulty(t, in, err, "attempt")
	}
}

func TestKeyString(t *testing.T) {
	t.Parallel()
	if have := (idem.Key{TaskID: "t:1", Attempt: 12}).String(); have != "t:1/12" {
		t.Errorf("a key shows as %q", have)
	}
}
