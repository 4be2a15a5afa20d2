package idem

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Key names what may happen once: one attempt of one task.
//
// TaskID is the engine's id of the task, stable across deliveries. Attempt is the engine's retry count of it: a crash
// and redelivery leave it unchanged, only a failure that a worker reports moves it on.
type Key struct {
	TaskID  string
	Attempt int32
}

func (k Key) String() string { return k.TaskID + "/" + strconv.Itoa(int(k.Attempt)) }

// maxTaskID is the longest task_id, in characters.
const maxTaskID = 255

// ParseTaskID checks a task_id and returns the form in which it is kept: a UUID in any letter case is the same task.
func ParseTaskID(s string) (string, error) {
	const want = "must be 1 to 255 characters of A-Z a-z 0-9 . _ ~ : @ - and neither \".\" nor \"..\""
	if s == "" || len(s) > maxTaskID || s == "." || s == ".." {
		return "", &FieldError{"task_id", want}
	}
	for i := range len(s) {
		if !taskIDByte[s[i]] {
			return "", &FieldError{"task_id", want}
		}
	}
	if isUUID(s) {
		return strings.ToLower(s), nil
	}
	return s, nil
}

// taskIDByte are the bytes that a task_id may have.
var taskIDByte = func() (may [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._~:@-") {
		may[c] = true
	}
	return may
}()

// ParseAttempt reads an attempt as it stands in a path: decimal digits without a leading zero.
func ParseAttempt(s string) (int32, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt32 || strconv.FormatInt(n, 10) != s {
		return 0, &FieldError{"attempt", "must be 0 to 2147483647 in decimal digits without a leading zero"}
	}
	return int32(n), nil
}

// isUUID says whether s has the form 8-4-4-4-12 of hexadecimal digits, in any letter case.
func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if c != '-' {
				return false
			}
			continue
		}
		if !('0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F') {
			return false
		}
	}
	return true
}

// FieldError says which field of a request cannot be, and what it must be.
type FieldError struct {
	Field  string
	Reason string
}

func (e *FieldError) Error() string { return fmt.Sprintf("%s %s", e.Field, e.Reason) }
