// Package bench compares this library with other libraries that lock over Redis, and with
// the least that a lock can cost. It also shows that this library and redsync, the most used
// one for Go, keep each other out. README.md says how to run it, and RESULTS.md what it found.
//
// It is a module of its own, so that importing the library does not require the others. The
// package has tests and benchmarks only:
//
//   - bench_test.go: how contenders take their turns, and what is reported of a load
//   - cycle_test.go: free keys, also with masters that are far
//   - hot_test.go: one key that many want, also with a master or a process unlike the others
//   - faults_test.go: one or two of five masters are down
//   - packages_test.go: the packages on top of the lock, free and contended
//   - permits_test.go: semaphores by their number of permits
//   - leases_test.go: many leases in one process
//   - failures_test.go, one_server_test.go: what the other libraries do when something fails
//   - interop_test.go: this library and others on the same keys
//   - contenders_test.go: each contender works
//
// internal/contender has the contenders behind one interface, and internal/measure the load that all
// benchmarks put on them.
package bench
