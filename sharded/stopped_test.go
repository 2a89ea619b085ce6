//go:build unix

package sharded_test

import (
	"bufio"
	"errors"
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
// not get the resource in the former group. When it gets it, after the later clients have gone, its token is larger than theirs.
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
		l := open(args[:3], args[3:6])
		_, err := l.Lock(t.Context(), args[6])
		fmt.Println("refused:", errors.Is(err, redlock.ErrMasters))
		for deadline := time.Now().Add(10 * time.Second); err != nil && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			var lease *redlock.Lease
			if lease, err = l.Lock(t.Context(), args[6]); err == nil {
				fmt.Println("fence:", lease.Fence())
			}
		}
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
	pipe, err := waiter.StdoutPipe()
	locktest.Must(t, err)
	out := bufio.NewReader(pipe)
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
	if line, err := out.ReadString('\n'); line != "refused: true\n" {
		t.Fatalf("the process that was stopped: got %q, %v, want ErrMasters", line, err)
	}
	locktest.Must(t, lease.Unlock(t.Context()))
	lease, err = later.Lock(t.Context(), r)
	locktest.Must(t, err)
	locktest.Must(t, lease.Unlock(t.Context()))
	locktest.Must(t, later.Close())
	var fence int64
	if _, err := fmt.Fscanf(out, "fence: %d", &fence); err != nil || fence <= lease.Fence() {
		t.Errorf("the token of the process that was stopped: got %d, %v, want more than %d", fence, err, lease.Fence())
	}
	locktest.Must(t, waiter.Wait())
}
