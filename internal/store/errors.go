package store

import "errors"

// ErrSchema says of a store that its schema is of another version than this program knows.
var ErrSchema = errors.New("the schema is of another version")
