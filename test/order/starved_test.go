//go:build unix

package order_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/redistest"
)

// A process that lacks processor time gets its locks and keeps them: a parent stops it for 300 ms, and lets it run for 12, again and
// again. Without the bound on what is under way, and with time-outs that are believed at once, 155 of 1,000 callers got a lease, and
// lost it.
//
// Source: ALGORITHM section 10, "Admission"; section 5, "Late looks".
func TestStarvedProcess(outer *testing.T) {
	const variable, callers = "REDLOCK_TEST_STARVED", 1000
	if addrs := os.Getenv(variable); addrs != "" {
		starved(outer, strings.Split(addrs, ","), callers)
		return
	}
	if !redistest.Long() {
		outer.Skip("takes long: REDLOCK_LONG=yes")
	}
	t := redistest.Timed(outer)
	child := exec.Command(os.Args[0], "-test.run=^TestStarvedProcess$")
	child.Env = append(os.Environ(), variable+"="+strings.Join(redistest.Addrs(redistest.Masters(t, 3)), ","))
	out := new(bytes.Buffer)
	child.Stdout, child.Stderr = out, out
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	for {
		select {
		case err := <-ended:
			if err != nil || strings.Contains(out.String(), "is down") || regexp.MustCompile("replies waited.*master=").Match(out.Bytes()) {
				t.Errorf("got %v, want no error, and no master blamed: %s", err, out)
			}
			return
		case <-time.After(12 * time.Millisecond):
			_ = child.Process.Signal(syscall.SIGSTOP) // fails once the child has ended
			time.Sleep(300 * time.Millisecond)
			_ = child.Process.Signal(syscall.SIGCONT)
		}
	}
}

// starved is the child: it holds the leases of so many callers for a time in which each is renewed.
func starved(t *testing.T, addrs []string, callers int) {
	l, err := redlock.New(addrs)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for admin.Bootstrap(t.Context(), l) != nil {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var g sync.WaitGroup
	var lost atomic.Int64
	for i := range callers {
		g.Go(func() {
			lease, err := l.Lock(ctx, fmt.Sprint("starved ", i))
			if err != nil {
				t.Error(err)
				return
			}
			select {
			case <-lease.Context().Done():
			case <-time.After(10 * time.Second):
			}
			if errors.Is(lease.Err(), redlock.ErrLost) {
				lost.Add(1)
			}
		})
	}
	g.Wait()
	if n := lost.Load(); n > int64(callers)/20 {
		t.Errorf("%d of %d leases were lost, want at most a twentieth", n, callers)
	}
}
