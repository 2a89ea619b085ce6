package order_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
)

// Tests in which many callers contend for one resource, on real masters.

// crowd has the callers of some Lockers, and their leases.
type crowd struct {
	inside, overlaps atomic.Int64
	last             int64 // fencing token; only the holder accesses it
	falls            int
	leases           [][]int // numbers of leases by Locker and caller
}

// run lets callers lock and unlock until the context ends, and each at least so often.
func (c *crowd) run(ctx context.Context, t *testing.T, lockers []*redlock.Locker, callers, least int) {
	var ended sync.WaitGroup
	c.leases = make([][]int, len(lockers))
	for i, l := range lockers {
		c.leases[i] = make([]int, callers)
		for k := range callers {
			ended.Go(func() {
				for ctx.Err() == nil || c.leases[i][k] < least {
					le, err := l.Lock(t.Context(), "r")
					if err != nil {
						t.Error(err)
						return
					}
					if c.inside.Add(1) != 1 {
						c.overlaps.Add(1)
					}
					if le.Fence() <= c.last {
						c.falls++
					}
					c.last = le.Fence()
					c.leases[i][k]++
					c.inside.Add(-1)
					if err := le.Unlock(t.Context()); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	ended.Wait()
}

// fairness returns Jain's index of some shares: 1 if they are equal.
func fairness(shares []int) float64 {
	var sum, squares float64
	for _, n := range shares {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	return sum * sum / (float64(len(shares)) * squares)
}

func total(shares []int) (sum int) {
	for _, n := range shares {
		sum += n
	}
	return sum
}

// Lockers take turns, and so do the callers of each: none is left out.
//
// Source: ALGORITHM section 10; section 13, I1, I2 and I10.
func TestCrowdOfLockers(t *testing.T) {
	c := locktest.Start(t, 3)
	lockers := []*redlock.Locker{locktest.Open(t, c.Addrs), locktest.Open(t, c.Addrs), locktest.Open(t, c.Addrs)}
	for _, l := range lockers {
		c.Warm(t, l)
	}
	// The queue node cannot call a process whose subscription, which begins with its first wait, is
	// not confirmed: the first round is not counted.
	var first, crowd crowd
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	first.run(ctx, t, lockers, 20, 1)
	ctx, cancel = context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	crowd.run(ctx, t, lockers, 20, 5)
	if crowd.overlaps.Load() != 0 || crowd.falls != 0 {
		t.Errorf("got %d times two holders and %d tokens that fell, want none", crowd.overlaps.Load(), crowd.falls)
	}
	var shares []int
	for i, callers := range crowd.leases {
		shares = append(shares, total(callers))
		if got := fairness(callers); got < 0.9 {
			t.Errorf("fairness among the callers of Locker %d: got %.2f, want at least 0.9: %v", i, got, callers)
		}
	}
	if got := fairness(shares); got < 0.9 {
		t.Errorf("fairness among the Lockers: got %.2f, want at least 0.9: %v", got, shares)
	}
	t.Logf("leases by Locker: %v", shares)
	for _, l := range lockers {
		locktest.Must(t, l.Close())
	}
	c.Empty(t, "redlock:r")
	for i, n := range c.Nodes { // the turn of a process that was called last lives for 250 ms
		redistest.Eventually(t, 5*time.Second, func() bool { return len(n.Keys(t.Context(), "redlock:r*").Val()) <= 1 },
			fmt.Sprintf("node %d has the counter alone", i))
	}
}

// Any number of callers of one Locker needs no more connections than one, and few messages.
//
// Source: ALGORITHM section 10, "Hand-over inside the process".
func TestCrowdOfOneLocker(t *testing.T) {
	const callers = 5000
	c := locktest.Start(t, 3)
	l := locktest.Open(t, c.Addrs)
	c.Warm(t, l)
	calls := func() (n int) {
		for _, n0 := range c.Nodes {
			for line := range strings.Lines(n0.Info(t.Context(), "commandstats").Val()) {
				if stat, found := strings.CutPrefix(line, "cmdstat_eval"); found {
					_, stat, _ = strings.Cut(stat, "calls=")
					stat, _, _ = strings.Cut(stat, ",")
					more, err := strconv.Atoi(stat)
					locktest.Must(t, err)
					n += more
				}
			}
		}
		return n
	}
	before := calls()
	held := locktest.Lock(t, l, "r")
	var crowd crowd
	go func() {
		for end := time.Now().Add(10 * time.Second); l.Stats().Waiting < callers && time.Now().Before(end); {
			time.Sleep(time.Millisecond) // until all are in line
		}
		for i, n := range c.Nodes {
			if got := len(strings.Split(strings.TrimSpace(n.ClientList(t.Context()).Val()), "\n")); got > 4 {
				t.Errorf("connections to node %d: got %d, want at most 4, with that of this test", i, got)
			}
		}
		if err := held.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	crowd.run(ended, t, []*redlock.Locker{l}, callers, 1)
	if crowd.overlaps.Load() != 0 || crowd.falls != 0 {
		t.Errorf("got %d times two holders and %d tokens that fell, want none", crowd.overlaps.Load(), crowd.falls)
	}
	// 5001 leases are 79 grants, each of an acquire and a release on each node.
	if got := calls() - before; got > 2*3*callers/10 {
		t.Errorf("calls of the script for %d leases: got %d, want at most %d", callers, got, 2*3*callers/10)
	}
	locktest.Must(t, l.Close())
	c.Empty(t, "redlock:r")
}

// crowdEnv has the addresses of the masters for a process of TestCrowdOfProcesses.
const crowdEnv = "REDLOCK_TEST_CROWD"

// Two processes take turns. A master that has no part in the lock checks that no two are inside at a
// time.
//
// Source: ALGORITHM section 10; section 13, I1, I2 and I10.
func TestCrowdOfProcesses(t *testing.T) {
	if addrs := os.Getenv(crowdEnv); addrs != "" {
		beCrowd(t, strings.Split(addrs, ","))
		return
	}
	c := locktest.Start(t, 3)
	judge := redistest.Masters(t, 1)[0]
	var reports [2]*bufio.Scanner
	var children [2]*exec.Cmd
	for i := range reports {
		child := exec.Command(os.Args[0], "-test.run=^TestCrowdOfProcesses$", "-test.timeout=1m")
		child.Env = append(os.Environ(), crowdEnv+"="+strings.Join(append(slices.Clone(c.Addrs), judge.Addr()), ","))
		out, err := child.StdoutPipe()
		locktest.Must(t, err)
		locktest.Must(t, child.Start())
		t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
		reports[i], children[i] = bufio.NewScanner(out), child
	}
	var shares []int
	for i, lines := range reports {
		var leases, least, overlaps, falls int
		var said []string
		for lines.Scan() {
			if n, _ := fmt.Sscanf(lines.Text(), "leases %d, least %d, overlaps %d, falls %d", &leases, &least, &overlaps, &falls); n != 4 {
				said = append(said, lines.Text())
			}
		}
		if err := children[i].Wait(); err != nil {
			t.Errorf("process %d: %v\n%s", i, err, strings.Join(said, "\n"))
		}
		shares = append(shares, leases)
		if leases == 0 || least == 0 || overlaps != 0 || falls != 0 {
			t.Errorf("process %d: got %d leases, at least %d for each caller, %d times two holders, %d tokens that fell", i, leases, least, overlaps, falls)
		}
	}
	if got := fairness(shares); got < 0.8 {
		t.Errorf("fairness among the processes: got %.2f, want at least 0.8: %v", got, shares)
	}
	t.Logf("leases by process: %v", shares)
}

// beCrowd runs one of the processes. It counts leases after a first round of a tenth of a second: the queue node
// cannot call a process whose subscription, which begins with its first wait, is not confirmed.
func beCrowd(t *testing.T, addrs []string) {
	judge := redistest.Client(t, addrs[len(addrs)-1])
	l := locktest.Open(t, addrs[:len(addrs)-1])
	locktest.Must(t, locktest.Lock(t, l, "warm").Unlock(t.Context()))
	// enter is one command: it returns how many are inside, and the largest token so far.
	enter := redis.NewScript(`local n = redis.call('INCR', 'inside')
local last = tonumber(redis.call('GETSET', 'fence', ARGV[1]) or 0)
return {n, last < tonumber(ARGV[1]) and 1 or 0}`)
	const callers = 10
	var mu sync.Mutex
	var overlaps, falls int
	var leases []int
	for i, during := range []time.Duration{100 * time.Millisecond, time.Second} {
		here := fmt.Sprint("here", i)
		locktest.Must(t, judge.Incr(t.Context(), here).Err())
		for judge.Get(t.Context(), here).Val() != "2" { // both begin together
			time.Sleep(time.Millisecond)
		}
		leases = make([]int, callers)
		ctx, cancel := context.WithTimeout(t.Context(), during)
		var ended sync.WaitGroup
		for k := range callers {
			ended.Go(func() {
				for ctx.Err() == nil || leases[k] == 0 {
					err := l.Do(t.Context(), "r", func(_ context.Context, le *redlock.Lease) error {
						got, err := enter.Run(t.Context(), judge, nil, le.Fence()).Int64Slice()
						if err != nil {
							return err
						}
						mu.Lock()
						if got[0] != 1 {
							overlaps++
						}
						if got[1] != 1 {
							falls++
						}
						leases[k]++
						mu.Unlock()
						return judge.Decr(t.Context(), "inside").Err()
					})
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		ended.Wait()
		cancel()
	}
	fmt.Printf("leases %d, least %d, overlaps %d, falls %d\n", total(leases), slices.Min(leases), overlaps, falls)
}
