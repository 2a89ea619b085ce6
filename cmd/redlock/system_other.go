//go:build !(linux || darwin || dragonfly || freebsd || netbsd || openbsd)

package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// Without process groups and signals redlock can kill the command alone, not its children, and
// cannot ask it to end before.

const shell = "" // no shell is certain to exist

var (
	endSignals = []os.Signal{os.Interrupt}
	forwarded  = endSignals
	jobSignals []os.Signal

	brokenOutput []syscall.Signal // a write returns an error
)

func surviveOutput() {}

func isBroken(os.Signal) bool { return false }

func ownGroup(*terminal) *syscall.SysProcAttr { return nil }

func (c *child) end(syscall.Signal) {}

func (c *child) killRest() {}

func (c *child) remains() bool { return false }

func adoptOrphans() {}
func reapOrphans()  {}

func (c *child) kill() { _ = c.cmd.Process.Kill() } // it may have ended

func (c *child) watch() {
	state, err := c.cmd.Process.Wait()
	c.status = status{code: exitBroken, ended: time.Now()}
	if err == nil {
		c.status.code = state.ExitCode()
	}
}

func (c *child) reap() {}

func parseSignal(s string) (syscall.Signal, error) {
	if s == "TERM" || s == "SIGTERM" { // the default
		return syscall.SIGTERM, nil
	}
	return 0, fmt.Errorf("%q: %w here", s, errors.ErrUnsupported)
}

func signalName(s syscall.Signal) string { return s.String() }

// terminal is the controlling terminal, which this system cannot lend to a command.
type terminal struct{}

func openTerminal(*os.File) *terminal { return nil }

func (*terminal) takeBack() {}

func ignoreTTOU() {}

func (w *watchdog) pass(os.Signal) {} // an interrupt from the console has gone to both processes

func (w *watchdog) stopped() {}
