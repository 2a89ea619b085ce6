package lock_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/reason"
)

const childEnv = "REDLOCK_TEST_CHILD"

// A process that was stopped (SIGSTOP) past the end of its lease knows so at its first look, before
// any timer or master has told it, and its context ends. The next holder, which came meanwhile, has
// the larger token.
//
// Source: ALGORITHM sections 7 and 11.
func TestStoppedProcess(t *testing.T) {
	t.Parallel()
	if addrs := os.Getenv(childEnv); addrs != "" {
		beStopped(t, strings.Split(addrs, ","))
		return
	}
	c := locktest.Start(t, 3)
	l := locktest.Open(t, c.Addrs, shortLived...)
	child := exec.Command(os.Args[0], "-test.run=^TestStoppedProcess$", "-test.timeout=1m")
	child.Env = append(os.Environ(), childEnv+"="+strings.Join(c.Addrs, ","))
	out, err := child.StdoutPipe()
	locktest.Must(t, err)
	locktest.Must(t, child.Start())
	t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
	lines := bufio.NewScanner(out)
	read := func(format string, into ...any) {
		t.Helper()
		for lines.Scan() {
			if _, err := fmt.Sscanf(lines.Text(), format, into...); err == nil {
				return
			}
		}
		t.Fatalf("the child ended before it said %q: %v", format, lines.Err())
	}
	var fence int64
	read("held with fence %d", &fence)
	suspend(t, child.Process)
	le, err := l.Lock(t.Context(), "r")
	proceed(t, child.Process)
	locktest.Must(t, err)
	if le.Fence() <= fence {
		t.Errorf("got fence %d after %d, want a larger fence", le.Fence(), fence)
	}
	var valid, lost, expired bool
	read("first look: valid %t", &valid)
	read("ended: lost %t, expired %t", &lost, &expired)
	if valid || !lost || !expired {
		t.Errorf("got valid %v, lost %v, expired %v; want it over, and to know why", valid, lost, expired)
	}
	locktest.Must(t, le.Extend(t.Context())) // which the child has not touched
	locktest.Unlock(t, le)
}

var shortLived = []redlock.Option{redlock.WithTTL(time.Second), redlock.WithMaxTTL(time.Second), redlock.WithMasterTimeout(250 * time.Millisecond)}

// beStopped holds a lease until it finds that it was stopped, and prints what it knows then.
func beStopped(t *testing.T, addrs []string) {
	l := locktest.Open(t, addrs, shortLived...)
	le := locktest.Lock(t, l, "r")
	ctx := le.Context()
	fmt.Printf("held with fence %d\n", le.Fence())
	for last := time.Now(); time.Since(last) < 500*time.Millisecond && ctx.Err() == nil; {
		last = time.Now()
		time.Sleep(time.Millisecond) // a stop makes this longer
	}
	fmt.Printf("first look: valid %t\n", le.Validity() > 0)
	<-ctx.Done()
	fmt.Printf("ended: lost %t, expired %t\n", errors.Is(le.Extend(t.Context()), redlock.ErrLost), errors.Is(le.Extend(t.Context()), reason.Expired))
}
