package idem

import (
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits and defaults of what a caller may send. Sizes of bodies are configured, and kept by the server.
const (
	MaxName          = 255 // characters of an owner or handler
	MaxRequestHash   = 128 // characters of a request_hash
	MaxReason        = 1000
	MaxTakeovers     = 16 // takeovers of one key, takeovers in one reserve, and attempts that may stand in the way
	MaxHeaders       = 100
	MaxHeaderBytes   = 32 << 10
	MaxBatch         = 1000
	MaxWaitSeconds   = 60
	DefaultLease     = 60 // seconds
	MaxLease         = 86400
	MinRetention     = 3600 // seconds
	MaxRetention     = 31536000
	MinStatus        = 100
	MaxStatus        = 599
	DefaultStatus    = 200
	sha256HexDigits  = 64
	maxSafeJSONCount = 1<<53 - 1 // the largest whole number that every JSON reader keeps exactly
)

// Validate implements Command.
func (c *Reserve) Validate() error {
	c.ReservationID = strings.ToLower(c.ReservationID)
	if err := first(name("owner", c.Owner, true), name("handler", c.Handler, false), hash(c.RequestHash),
		reservationID(c.ReservationID, true), Range("lease_seconds", int64(c.LeaseSeconds), 1, MaxLease)); err != nil {
		return err
	}
	if c.ReservationID == strings.ToLower(c.TaskID) {
		return &FieldError{"reservation_id", "must be random for each delivery, and is the task_id"}
	}
	return c.validateTakeovers()
}

func (c *Reserve) validateTakeovers() error {
	if len(c.Takeovers) > MaxTakeovers {
		return &FieldError{"takeovers", fmt.Sprintf("must have at most %d items", MaxTakeovers)}
	}
	seen := make(map[int32]bool, len(c.Takeovers))
	for i, t := range c.Takeovers {
		field := fmt.Sprintf("takeovers[%d]", i)
		if err := first(Range(field+".attempt", int64(t.Attempt), 0, math.MaxInt32),
			Range(field+".fence", t.Fence, 1, math.MaxInt64)); err != nil {
			return err
		}
		if seen[t.Attempt] {
			return &FieldError{field + ".attempt", "must not be named twice"}
		}
		seen[t.Attempt] = true
	}
	return nil
}

// Validate implements Command.
func (c *Dispatch) Validate() error {
	c.ReservationID = strings.ToLower(c.ReservationID)
	return reservationID(c.ReservationID, true)
}

// Validate implements Command.
func (c *Renew) Validate() error {
	c.ReservationID = strings.ToLower(c.ReservationID)
	return first(reservationID(c.ReservationID, true), Range("lease_seconds", int64(c.LeaseSeconds), 1, MaxLease))
}

// Validate implements Command.
func (c *Record) Validate() error {
	c.ReservationID = strings.ToLower(c.ReservationID)
	if c.ReservationID == "" && c.Owner == "" {
		return &FieldError{"owner", "is required where no reservation_id is given"}
	}
	if c.Response == nil {
		return &FieldError{"response", "is required"}
	}
	if c.RetentionSeconds != 0 {
		if err := Range("retention_seconds", int64(c.RetentionSeconds), MinRetention, MaxRetention); err != nil {
			return err
		}
	}
	return first(reservationID(c.ReservationID, c.ReservationID != ""), name("owner", c.Owner, false), hash(c.RequestHash),
		c.Response.validate())
}

// Validate implements Command.
func (c *Release) Validate() error {
	c.ReservationID = strings.ToLower(c.ReservationID)
	if err := first(reservationID(c.ReservationID, true), text("reason", c.Reason, MaxReason, false)); err != nil {
		return err
	}
	return c.Response.validate()
}

// Validate implements Command.
func (c *Replay) Validate() error { return name("owner", c.Owner, true) }

// Validate implements Command.
func (c *Resolve) Validate() error {
	if err := first(reason(c.Reason), Range("fence", c.Fence, 1, math.MaxInt64)); err != nil {
		return err
	}
	return c.Response.validate()
}

// Validate implements Command.
func (c *Evict) Validate() error {
	return first(name("owner", c.Owner, true), reason(c.Reason))
}

func (r *Response) validate() error {
	if r == nil {
		return nil
	}
	r.BodySHA256 = strings.ToLower(r.BodySHA256)
	if err := Range("response.status", int64(r.Status), MinStatus, MaxStatus); err != nil {
		return err
	}
	if len(r.Headers) > MaxHeaders {
		return &FieldError{"response.headers", fmt.Sprintf("must have at most %d values", MaxHeaders)}
	}
	size := 0
	for _, h := range r.Headers {
		size += len(h[0]) + len(h[1])
		if h[0] == "" {
			return &FieldError{"response.headers", "must name each header"}
		}
	}
	if size > MaxHeaderBytes {
		return &FieldError{"response.headers", fmt.Sprintf("must be at most %d bytes in all, names and values", MaxHeaderBytes)}
	}
	return r.validateOmitted()
}

func (r *Response) validateOmitted() error {
	switch {
	case !r.Omitted && r.BodySHA256 != "":
		return &FieldError{"response.body_sha256", "goes with body_omitted: true alone"}
	case !r.Omitted && r.BodySize != 0:
		return &FieldError{"response.body_size", "goes with body_omitted: true alone"}
	case !r.Omitted:
		return nil
	case r.HasBody:
		return &FieldError{"response.body_omitted", "must not stand beside a body"}
	case len(r.BodySHA256) != sha256HexDigits || strings.Trim(r.BodySHA256, "0123456789abcdef") != "":
		return &FieldError{"response.body_sha256", "must be the 64 hexadecimal digits of the omitted body's SHA-256"}
	}
	return Range("response.body_size", r.BodySize, 0, maxSafeJSONCount)
}

// Range checks a whole number against its limits.
func Range(field string, n, low, high int64) error {
	if n < low || n > high {
		return &FieldError{field, fmt.Sprintf("must be a whole number from %d to %d", low, high)}
	}
	return nil
}

func reservationID(s string, given bool) error {
	if given && s == "" {
		return &FieldError{"reservation_id", "is required"}
	}
	if s != "" && !isUUID(s) {
		return &FieldError{"reservation_id", "must be a UUID (8-4-4-4-12 hexadecimal digits)"}
	}
	return nil
}

func hash(s string) error {
	if len(s) > MaxRequestHash || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return &FieldError{"request_hash", fmt.Sprintf("must be 1 to %d visible ASCII characters", MaxRequestHash)}
	}
	return nil
}

func name(field, s string, required bool) error {
	if err := text(field, s, MaxName, required); err != nil {
		return err
	}
	if strings.ContainsFunc(s, unicode.IsControl) {
		return &FieldError{field, "must have no control characters"}
	}
	return nil
}

// reason is what an operator must give: whoever reads the trail a month later has nothing else.
func reason(s string) error {
	if s != "" && strings.TrimSpace(s) == "" {
		return &FieldError{"reason", "must say why"}
	}
	return text("reason", s, MaxReason, true)
}

func text(field, s string, most int, required bool) error {
	switch {
	case s == "" && required:
		return &FieldError{field, "is required"}
	case !utf8.ValidString(s):
		return &FieldError{field, "must be UTF-8"}
	case utf8.RuneCountInString(s) > most:
		return &FieldError{field, fmt.Sprintf("must be 1 to %d characters", most)}
	}
	return nil
}

// first is the first fault, if there is one.
func first(faults ...error) error {
	for _, err := range faults {
		if err != nil {
			return err
		}
	}
	return nil
}
