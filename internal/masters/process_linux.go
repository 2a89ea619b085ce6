package masters

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"time"
)

// sysProcAttr makes the kernel kill the server when this process dies. It also puts the
// server into a process group of its own, so that a Ctrl-C at the terminal reaches only us.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// suspend stops the process and waits until it has stopped: the signal may take a moment
// to reach a server that is running on another core.
func suspend(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Microsecond) {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(p.Pid) + "/stat")
		if err != nil {
			return err
		}
		// "pid (name) state ...", and the name may hold anything.
		if after := stat[bytes.LastIndexByte(stat, ')')+1:]; bytes.HasPrefix(after, []byte(" T")) {
			return nil
		}
	}
	return os.ErrDeadlineExceeded
}

func proceed(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
