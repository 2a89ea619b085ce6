// Package bench compares this library with other libraries that lock over Redis, and with
// the least that a lock can cost. It also shows that this library and redsync, the most used
// one for Go, keep each other out. See README.md.
//
// It is a module of its own, so that importing the library does not require the others. The
// package has tests and benchmarks only; cmd/report measures the figures of RESULTS.md.
package bench
