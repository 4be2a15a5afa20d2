package idem_test

import (
	"math/rand/v2"
	"testing"
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
