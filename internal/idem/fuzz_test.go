package idem_test

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/idemstore/idemstore/internal/idem"
)

// FuzzDecide reads its input as commands and the times between them. The seeds alone are a test.
func FuzzDecide(f *testing.F) {
	f.Add([]byte{})
	random := rand.NewChaCha8([32]byte{'i', 'd', 'e', 'm'})
	for range 150 {
		script := make([]byte, 400)
		_, _ = random.Read(script) // which never fails
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 2000 {
			return // longer than anything new
		}
		newWitness().perform(t, script)
	})
}

// FuzzKey reads a key as it stands in a path. What is taken is written in one way only.
func FuzzKey(f *testing.F) {
	f.Fuzz(func(t *testing.T, task, attempt string) {
		if id, err := idem.ParseTaskID(task); err == nil {
			if again, err := idem.ParseTaskID(id); err != nil || again != id || len(id) != len(task) || strings.Trim(id, allowedInTasks) != "" {
				t.Fatalf("%q became %q and %q, %v", task, id, again, err)
			}
		}
		if n, err := idem.ParseAttempt(attempt); err == nil && (n < 0 || strconv.Itoa(int(n)) != attempt) {
			t.Fatalf("%q became %d", attempt, n)
		}
	})
}

const allowedInTasks = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._~:@-"
