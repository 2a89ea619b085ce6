package main

import (
	"runtime"
	"slices"
	"testing"
)

// What the tests of this package need of the system. Tests of files with build tags are missing
// where the system lacks it, without a word; this test has the words.
func TestSystem(t *testing.T) {
	unix := []string{"aix", "android", "darwin", "dragonfly", "freebsd", "illumos", "ios", "linux", "netbsd", "openbsd", "solaris"}
	for _, need := range []struct {
		tests string
		on    []string
		lacks string
	}{
		{"run, doctor and TLS", unix, "needs signals, process groups and a Unix shell"},
		{"terminals and watch", []string{"linux", "darwin"}, "needs pseudo-terminals that the tests can open"},
		{"stopped commands", []string{"linux"}, "needs the state of a process in /proc"},
	} {
		t.Run(need.tests, func(t *testing.T) {
			if !slices.Contains(need.on, runtime.GOOS) {
				t.Skip(need.lacks)
			}
		})
	}
}
