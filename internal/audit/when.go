package audit

import (
	"context"
	"fmt"
	"time"
)

// now is the service's time, to the second, or this machine's where the service has not told it.
func (s *Session) now() time.Time {
	if date := s.Service.date.Load(); date != nil {
		return *date
	}
	return s.Now()
}

// Ago is the moment so long ago, by the service's clock.
func (s *Session) Ago(ctx context.Context, age time.Duration) (time.Time, error) {
	res, err := s.Service.api.GetHealth(ctx) // whatever it answers, it says when
	if err != nil {
		return time.Time{}, s.Service.noAnswer(err)
	}
	return s.now().Add(-age), res.Body.Close()
}

// moment reads a timestamp of the service. One that cannot be read is the zero time.
func moment(stamp string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, stamp)
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}

// toSecond shows a timestamp without its fractions.
func toSecond(stamp string) string {
	t := moment(stamp)
	if t.IsZero() {
		return stamp
	}
	return t.Format(time.RFC3339)
}

// age says how long ago a moment was, or how soon it will be.
func age(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	if d := t.Sub(now); d >= time.Second {
		return "in " + span(d)
	}
	return span(now.Sub(t)) + " ago"
}

// span is a duration in the two largest units that it has.
func span(d time.Duration) string {
	seconds := int64(max(0, d) / time.Second)
	switch {
	case seconds < 60:
		return fmt.Sprintf("%ds", seconds)
	case seconds < 3600:
		return fmt.Sprintf("%dm%ds", seconds/60, seconds%60)
	case seconds < 86400:
		return fmt.Sprintf("%dh%dm", seconds/3600, seconds%3600/60)
	default:
		return fmt.Sprintf("%dd%dh", seconds/86400, seconds%86400/3600)
	}
}

// withAge is a timestamp and its age, for where there is room for both.
func withAge(stamp string, now time.Time) string {
	return stamp + " (" + age(moment(stamp), now) + ")"
}
