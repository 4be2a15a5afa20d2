package main

import (
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"
)

// safeBuilder is a strings.Builder for several goroutines.
type safeBuilder struct {
	mu  sync.Mutex
	out strings.Builder
}

func (b *safeBuilder) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.Write(p)
}

func (b *safeBuilder) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.String()
}

func TestLogBuffer(t *testing.T) {
	t.Parallel()
	var out safeBuilder
	b := newLogBuffer(&out)
	log := zerolog.New(b)
	log.Info().Msg("one")
	log.Warn().Msg("two")
	if got := out.String(); !strings.Contains(got, "one") || !strings.Contains(got, "two") {
		t.Errorf("a warning, and what came before it, is written at once: %q", got)
	}
	log.Info().Msg("three")
	eventually(t, "it is written soon", func() bool { return strings.Contains(out.String(), "three") })
	log.Info().Msg("four")
	b.close()
	if !strings.Contains(out.String(), "four") {
		t.Error("the last line was not written at the end")
	}
	if got := strings.Count(out.String(), "\n"); got != 4 {
		t.Errorf("%d lines, want 4", got)
	}
}
