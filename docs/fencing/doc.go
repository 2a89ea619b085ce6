// Package fencing has the stores of docs/fencing.md, which shows them as they are here,
// and tests that run them against SQLite and Redis. It is a module of its own so that
// the library does not depend on a database.
package fencing

import "errors"

// ErrFenced says that a later holder has read or written: the caller has lost its lease.
var ErrFenced = errors.New("a later holder has read or written")
