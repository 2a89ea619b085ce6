//go:build linux

package main

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
)

// isStopped reports whether a process is stopped.
func isStopped(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && strings.Contains(string(stat), ") T ")
}

// A stop from a terminal that is not redlock's standard input stops the command as well. Both
// continue together.
func TestStopWithoutATerminal(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := newCluster(t, 3, redlock.DefaultMaxTTL)
	file := filepath.Join(t.TempDir(), "pid")
	// A shell that is starting a program when the signal comes waits for that program, which is
	// stopped, and is not stopped itself. So this shell starts no program any more.
	p := c.start(t, "k", "-c", `trap 'kill $!; exit 5' USR1; sleep 60 & echo $$ > `+file+`; wait`)
	pid := numberIn(t, file)
	p.signal(t, syscall.SIGTSTP)
	redistest.Eventually(t, 30*time.Second, func() bool { return isStopped(pid) && isStopped(p.cmd.Process.Pid) }, "both are stopped")
	p.signal(t, syscall.SIGCONT)
	redistest.Eventually(t, 30*time.Second, func() bool { return !isStopped(pid) && !isStopped(p.cmd.Process.Pid) }, "both go on")
	p.signal(t, syscall.SIGUSR1)
	if code, rec := p.wait(t); code != 5 {
		t.Errorf("got code %d, %+v, %s; want 5", code, rec, p.all())
	}
}

// Process 1 of a container has to reap what the command leaves behind.
func TestProcessOneReaps(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := newCluster(t, 3, redlock.DefaultMaxTTL)
	dir := t.TempDir()
	cmd := c.command("redlock", "run", "k", "-c", `for i in 1 2 3 4 5; do sh -c 'sleep 0.1 & : >'`+dir+`/$i; done; until test -e `+dir+`/end; do sleep 0.02; done`)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EINVAL) {
		t.Skip("needs the right to make a PID namespace: ", err)
	} else {
		must(t, err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	redistest.Eventually(t, 30*time.Second, exists(filepath.Join(dir, "5")), "all orphans have begun")
	redistest.Eventually(t, 10*time.Second, func() bool { return childrenOf(t, cmd.Process.Pid) == 1 }, "the orphans are reaped, and the command runs")
	must(t, os.WriteFile(filepath.Join(dir, "end"), nil, 0o600))
	must(t, cmd.Wait())
}

// childrenOf counts the children of a process, dead ones too.
func childrenOf(t testing.TB, pid int) (n int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	must(t, err)
	for _, file := range stats {
		stat, _ := os.ReadFile(file) // it may have ended
		if _, rest, ok := strings.Cut(string(stat), ") "); ok && strings.Fields(rest)[1] == strconv.Itoa(pid) {
			n++
		}
	}
	return n
}

// If another process stops the command, redlock keeps the lock.
func TestAStoppedCommandKeepsTheLock(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := newCluster(t, 3, redlock.DefaultMaxTTL)
	file := filepath.Join(t.TempDir(), "pid")
	p := c.start(t, "k", "--ttl", "2s", "-v", "-c", `echo $$ > `+file+`; while test -e `+file+`; do sleep 0.02; done; exit 5`)
	pid := numberIn(t, file)
	must(t, syscall.Kill(pid, syscall.SIGSTOP))
	time.Sleep(2400 * time.Millisecond) // without a renewal the lock would end
	if code, _ := c.start(t, "k", "-n", "--", "true").wait(t); code != exitConflict {
		t.Errorf("got code %d from another redlock, want %d", code, exitConflict)
	}
	must(t, os.Remove(file))
	p.signal(t, syscall.SIGCONT) // redlock forwards it
	if code, rec := p.wait(t); code != 5 {
		t.Errorf("got code %d, %+v, %s; want 5", code, rec, p.all())
	}
}

// Signals that nohup ignores are ignored by the command, too.
func TestIgnoredSignals(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := newCluster(t, 3, redlock.DefaultMaxTTL)
	file := filepath.Join(t.TempDir(), "pid")
	cmd := c.command("sh", "-c", `trap '' HUP; exec redlock run k -c 'echo $$ > `+file+`; while test -s `+file+`; do sleep 0.02; done'`)
	must(t, cmd.Start())
	pid := numberIn(t, file)
	for _, p := range []int{cmd.Process.Pid, pid} {
		must(t, syscall.Kill(p, syscall.SIGHUP))
	}
	time.Sleep(100 * time.Millisecond) // a process that does not ignore the signal dies
	must(t, os.Truncate(file, 0))
	if err := cmd.Wait(); err != nil {
		t.Errorf("got %v, want no harm done", err)
	}
}

// A connection to a master that is closed at the other end raises the signal of a broken output, and ends no command.
func TestBrokenConnectionEndsNoCommand(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := newCluster(t, 3, redlock.DefaultMaxTTL)
	l := locktest.Open(t, redistest.Addrs(c.list))
	lease := locktest.Lock(t, l, "k")
	cmd := c.command("redlock", "watch", "k", "--interval", "100ms")
	out, writer, err := os.Pipe()
	must(t, err)
	cmd.Stdout, cmd.Stderr = writer, writer
	must(t, errors.Join(cmd.Start(), writer.Close()))
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	lines := bufio.NewReader(out)
	line := func() string {
		text, err := lines.ReadString('\n')
		must(t, err)
		return text
	}
	for !strings.Contains(line(), "HELD") {
	}
	for range 5 {
		must(t, cmd.Process.Signal(syscall.SIGPIPE))
		must(t, lease.Unlock(t.Context()))
		for !strings.Contains(line(), "FREE") {
		}
		lease = locktest.Lock(t, l, "k")
		for !strings.Contains(line(), "HELD") {
		}
	}
	must(t, out.Close()) // now nothing reads the output
	must(t, lease.Unlock(t.Context()))
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("the command goes on, want it to end with its output")
		_ = cmd.Process.Kill()
	}
}
