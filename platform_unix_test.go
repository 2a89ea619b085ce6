//go:build unix

package redlock_test

import (
	"os"
	"syscall"
	"testing"
)

// suspend stops a process until proceed.
func suspend(t *testing.T, p *os.Process) {
	t.Helper()
	must(t, p.Signal(syscall.SIGSTOP))
}

func proceed(t *testing.T, p *os.Process) {
	t.Helper()
	must(t, p.Signal(syscall.SIGCONT))
}
