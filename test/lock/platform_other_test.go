//go:build !unix

package lock_test

import (
	"os"
	"testing"
)

func suspend(t *testing.T, _ *os.Process) {
	t.Helper()
	t.Skip("needs SIGSTOP")
}

func proceed(*testing.T, *os.Process) {}
