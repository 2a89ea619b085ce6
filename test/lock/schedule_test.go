package lock_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/jobs"
)

const (
	dueEvery = 2 * time.Second
	dueTimes = 6
)

// Two processes have the schedule of a job. One of them is stopped (SIGSTOP) over every second due time, and
// goes on 1.2 s after that. Each run is made once.
func TestStoppedOverDueTimes(t *testing.T) {
	redistest.TakesSeconds(t)
	t.Parallel()
	if addrs := os.Getenv(childEnv); addrs != "" {
		var first int64
		_, err := fmt.Scan(&first)
		locktest.Must(t, err)
		followSchedule(t, strings.Split(addrs, ","), time.UnixMilli(first), func(i int) { fmt.Println("ran", i) }, func(i int) { fmt.Println("called", i) })
		return
	}
	c := locktest.Start(t, 3)
	child := exec.Command(os.Args[0], "-test.run=^TestStoppedOverDueTimes$", "-test.timeout=2m")
	child.Env = append(os.Environ(), childEnv+"="+strings.Join(c.Addrs, ","))
	out, err := child.StdoutPipe()
	locktest.Must(t, err)
	in, err := child.StdinPipe()
	locktest.Must(t, err)
	locktest.Must(t, child.Start())
	t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
	first := time.Now().Add(time.Second).Truncate(time.Millisecond)
	_, err = fmt.Fprintln(in, first.UnixMilli())
	locktest.Must(t, err)

	var mu sync.Mutex
	runs := make([]int, dueTimes)
	ran := func(i int) {
		mu.Lock()
		defer mu.Unlock()
		runs[i]++
	}
	var here sync.WaitGroup
	here.Go(func() { followSchedule(t, c.Addrs, first, ran, func(int) {}) })
	lines, calls := bufio.NewScanner(out), 0
	for calls < dueTimes && lines.Scan() {
		var i int
		if _, err := fmt.Sscanf(lines.Text(), "ran %d", &i); err == nil {
			ran(i)
		}
		if _, err := fmt.Sscanf(lines.Text(), "called %d", &i); err == nil {
			if calls++; i%2 == 0 {
				suspend(t, child.Process)
				time.Sleep(time.Until(first.Add(time.Duration(i+1)*dueEvery + 1200*time.Millisecond)))
				proceed(t, child.Process)
			}
		}
	}
	here.Wait()
	mu.Lock()
	defer mu.Unlock()
	for i, n := range runs {
		if n != 1 {
			t.Errorf("due time %d: got %d runs, want 1", i, n)
		}
	}
	if calls != dueTimes {
		t.Errorf("the child made %d calls, want %d", calls, dueTimes)
	}
}

// followSchedule calls RunAt at each due time, and then called.
func followSchedule(t *testing.T, addrs []string, first time.Time, ran, called func(i int)) {
	j, err := jobs.New(locktest.Open(t, addrs))
	if err != nil {
		t.Error(err)
		return
	}
	for i := range dueTimes {
		due := first.Add(time.Duration(i) * dueEvery)
		time.Sleep(time.Until(due))
		if err := j.RunAt(context.Background(), "job", due, func(context.Context, *redlock.Lease) error { ran(i); return nil }); err != nil {
			t.Errorf("RunAt %d: got %v, want no error", i, err)
		}
		called(i)
	}
}
