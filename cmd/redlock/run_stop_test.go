//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/redistest"
)

// isStopped reports whether a process is stopped.
func isStopped(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && strings.Contains(string(stat), ") T ")
}

// A stop from a terminal that is not redlock's standard input stops the command as well. Both
// continue together.
func TestStopWithoutATerminal(t *testing.T) {
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

// If another process stops the command, redlock keeps the lock.
func TestAStoppedCommandKeepsTheLock(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, redlock.DefaultMaxTTL)
	file := filepath.Join(t.TempDir(), "pid")
	p := c.start(t, "k", "--ttl", "2s", "-v", "-c", `echo $$ > `+file+`; while test -e `+file+`; do sleep 0.02; done; exit 5`)
	pid := numberIn(t, file)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2400 * time.Millisecond) // without a renewal the lock would end
	if code, _ := c.start(t, "k", "-n", "--", "true").wait(t); code != exitConflict {
		t.Errorf("got code %d from another redlock, want %d", code, exitConflict)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	p.signal(t, syscall.SIGCONT) // redlock forwards it
	if code, rec := p.wait(t); code != 5 {
		t.Errorf("got code %d, %+v, %s; want 5", code, rec, p.all())
	}
}

// Signals that nohup ignores are ignored by the command, too.
func TestIgnoredSignals(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, redlock.DefaultMaxTTL)
	file := filepath.Join(t.TempDir(), "pid")
	cmd := c.command("sh", "-c", `trap '' HUP; exec redlock run k -c 'echo $$ > `+file+`; while test -s `+file+`; do sleep 0.02; done'`)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := numberIn(t, file)
	for _, p := range []int{cmd.Process.Pid, pid} {
		if err := syscall.Kill(p, syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(100 * time.Millisecond) // a process that does not ignore the signal dies
	if err := os.Truncate(file, 0); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("got %v, want no harm done", err)
	}
}
