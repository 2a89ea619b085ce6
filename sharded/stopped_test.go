//go:build unix

package sharded_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/sharded"
)

// waiterEnv has the masters of two groups and the resource for which a process waits.
const waiterEnv = "REDLOCK_SHARDED_WAITER"

// A process is stopped while it waits for a resource, and the groups are changed meanwhile. When it goes on, it does
// not get the resource in the former group.
//
// Source: ALGORITHM section 8, "Groups".
func TestGroupsWaiterStopped(t *testing.T) {
	open := func(groups ...[]string) *sharded.Locker {
		l, err := sharded.New(groups, redlock.WithTTL(400*time.Millisecond), redlock.WithMaxTTL(400*time.Millisecond), redlock.WithLogger(nil))
		locktest.Must(t, err)
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	if args := strings.Split(os.Getenv(waiterEnv), ","); len(args) > 1 {
		_, err := open(args[:3], args[3:6]).Lock(t.Context(), args[6])
		fmt.Println("waited:", redlock.Reason(err))
		return
	}
	procs := redistest.Masters(t, 9)
	addrs := redistest.Addrs(procs)
	former, later := open(addrs[:3], addrs[3:6]), open(addrs[:3], addrs[6:])
	r := inGroup(t, former, 1)
	busy, err := former.Lock(t.Context(), r)
	locktest.Must(t, err)

	waiter := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	waiter.Env = append(os.Environ(), waiterEnv+"="+strings.Join(append(slices.Clone(addrs[:6]), r), ","))
	var out strings.Builder
	waiter.Stdout = &out
	locktest.Must(t, waiter.Start())
	t.Cleanup(func() { _ = waiter.Process.Kill() })
	redistest.Eventually(t, 10*time.Second, func() bool {
		return slices.ContainsFunc(addrs[3:6], func(a string) bool {
			return redistest.Client(t, a).Exists(t.Context(), redlock.DefaultKeyPrefix+r+"~queue").Val() == 1
		})
	}, "the process does not wait")
	locktest.Must(t, waiter.Process.Signal(syscall.SIGSTOP))
	time.Sleep(50 * time.Millisecond) // until it stands still
	locktest.Must(t, busy.Unlock(t.Context()))
	locktest.Must(t, former.Close())

	var lease *redlock.Lease
	redistest.Eventually(t, 10*time.Second, func() bool {
		lease, err = later.TryLock(t.Context(), r)
		return err == nil
	}, "the later groups do not get the resource")
	shared := func(do func(*masters.Process) error) {
		for _, p := range procs[:3] {
			locktest.Must(t, do(p))
		}
	}
	shared((*masters.Process).Pause)
	locktest.Must(t, waiter.Process.Signal(syscall.SIGCONT))
	time.Sleep(60 * time.Millisecond) // its first requests time out, as those do that it sent before it was stopped
	shared((*masters.Process).Resume)
	locktest.Must(t, waiter.Wait())
	if !strings.Contains(out.String(), "waited: membership\n") {
		t.Errorf("the process that was stopped: got %q, want the reason membership", out.String())
	}
	locktest.Must(t, lease.Unlock(t.Context()))
}
