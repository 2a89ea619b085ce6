// Package bench compares this library with others that lock over Redis, and with
// the least that a lock can cost. It also shows that it and redsync, the library for
// Go that most people use, keep each other out. See README.md.
//
// It is a module of its own, so that nobody who imports the library gets the others
// with it. The package has tests and benchmarks only; cmd/report measures what
// RESULTS.md tells.
package bench
