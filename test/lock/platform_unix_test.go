//go:build unix

package lock_test

import (
	"os"
	"syscall"
	"testing"

	"github.com/d0720281/redlock/internal/locktest"
)

// suspend stops a process until proceed.
func suspend(t *testing.T, p *os.Process) {
	t.Helper()
	locktest.Must(t, p.Signal(syscall.SIGSTOP))
}

func proceed(t *testing.T, p *os.Process) {
	t.Helper()
	locktest.Must(t, p.Signal(syscall.SIGCONT))
}
