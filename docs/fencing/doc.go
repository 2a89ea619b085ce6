// Package fencing has the code that docs/fencing.md shows, and tests that run it against
// SQLite and Redis. It is a module of its own so that the library does not depend on a
// database.
package fencing

import "errors"

// ErrFenced means that a later holder has read or written: the caller has lost its lease.
var ErrFenced = errors.New("a later holder has read or written")
