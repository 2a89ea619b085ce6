//go:build unix && !linux

package masters

import (
	"os"
	"syscall"
)

// sysProcAttr puts the server into a process group of its own, so that a Ctrl-C at the
// terminal reaches only us. The server survives this process.
func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func suspend(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func proceed(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
