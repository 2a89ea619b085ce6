package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/chaos/history"
	"github.com/d0720281/redlock/internal/redistest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silent{}) // masters that are down are what this is about
	if beChild() {
		return
	}
	if pool, err := Connect(); err == nil {
		if err := Sweep(pool); err != nil {
			fmt.Fprintln(os.Stderr, "chaos: leftovers of an earlier run:", err)
		}
	}
	goleak.VerifyTestMain(m,
		// The engine's client keeps connections for later.
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// containers starts n masters in containers, or skips.
func containers(t *testing.T, n int) []*Container {
	t.Helper()
	pool, err := Connect()
	if err != nil {
		redistest.Missing(t, "docker", "needs a container engine: "+err.Error())
	}
	image, err := FindImage(pool)
	if err != nil {
		redistest.Missing(t, "docker", "needs an image: "+err.Error())
	}
	list := make([]*Container, n)
	t.Cleanup(func() {
		var g errgroup.Group
		for _, c := range list {
			if c != nil {
				g.Go(c.Close)
			}
		}
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	var g errgroup.Group
	for i := range list {
		g.Go(func() (err error) {
			list[i], err = StartContainer(pool, image)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	return list
}

func open(t *testing.T, addrs []string, opts ...redlock.Option) *redlock.Locker {
	t.Helper()
	l, err := redlock.New(addrs, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // some tests leave nothing to confirm a release
	return l
}

// bootstrap has new masters vote at once.
func bootstrap(t *testing.T, addrs []string, opts ...redlock.Option) {
	t.Helper()
	if err := open(t, addrs, opts...).Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Masters killed and paused in mid-lease: a minority costs nothing, and with the
// quorum gone the holder knows before anybody else can be granted the resource.
func TestContainersKilledMidLease(t *testing.T) {
	nodes := containers(t, 5)
	addrs := redistest.Addrs(nodes)
	bootstrap(t, addrs)
	holder, rival := open(t, addrs, redlock.WithTTL(2*time.Second)), open(t, addrs, redlock.WithTTL(2*time.Second))
	lease, err := holder.Lock(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	refused := func(when string) {
		t.Helper()
		if _, err := rival.TryLock(t.Context(), "r"); !errors.Is(err, redlock.ErrNotAcquired) {
			t.Fatalf("%s: rival got %v, want to be refused", when, err)
		}
	}
	refused("all up")
	if err := nodes[0].Kill(); err != nil {
		t.Fatal(err)
	}
	refused("one killed")
	if err := nodes[1].Pause(); err != nil {
		t.Fatal(err)
	}
	refused("another paused")
	for range 3 {
		if err := lease.Extend(t.Context()); err != nil {
			t.Fatalf("with a quorum of three: %v", err)
		}
	}

	var lostAt, grantedAt atomic.Int64
	began := time.Now()
	stop := context.AfterFunc(lease.Context(), func() { lostAt.Store(int64(time.Since(began))) })
	defer stop()
	if err := nodes[2].Kill(); err != nil {
		t.Fatal(err)
	}
	refused("a majority gone")
	<-lease.Context().Done()
	if cause := context.Cause(lease.Context()); !errors.Is(cause, redlock.ErrLost) {
		t.Errorf("got cause %v, want ErrLost", cause)
	}
	for _, n := range nodes[:3] { // two come back empty, one with what it had
		if err := n.Resume(); err != nil {
			t.Fatal(err)
		}
	}
	for _, i := range []int{0, 2} {
		if err := nodes[i].Restart(); err != nil {
			t.Fatal(err)
		}
	}
	next, err := rival.Lock(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	grantedAt.Store(int64(time.Since(began)))
	redistest.Eventually(t, 5*time.Second, func() bool { return lostAt.Load() > 0 }, "the loss is told")
	if grantedAt.Load() < lostAt.Load() {
		t.Errorf("rival was granted the lease %v before the holder was told", time.Duration(lostAt.Load()-grantedAt.Load()))
	}
	if next.Fence() <= lease.Fence() {
		t.Errorf("got fence %d after %d, want a larger one", next.Fence(), lease.Fence())
	}
	if err := next.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// Three processes' worth of workers share a counter while masters are paused and
// unpaused, one at a time. What a paused master was sent is carried out when it goes
// on: nothing of that may stay.
func TestContainersPausedUnderLoad(t *testing.T) {
	nodes := containers(t, 5)
	addrs := redistest.Addrs(nodes)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	bootstrap(t, addrs)
	var inside, overlaps, done atomic.Int64
	counter := 0 // guarded by the lock under test
	var workers, faults sync.WaitGroup
	stop := make(chan struct{})
	faults.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
			if err := errors.Join(nodes[i%5].Pause(), pause(stop, 300*time.Millisecond), nodes[i%5].Resume()); err != nil {
				t.Error(err)
			}
		}
	})
	for range 3 {
		l := open(t, addrs)
		for range 5 {
			workers.Go(func() {
				for range 10 {
					err := l.Do(ctx, "counter", func(context.Context, *redlock.Lease) error {
						if inside.Add(1) != 1 {
							overlaps.Add(1)
						}
						counter++
						inside.Add(-1)
						return nil
					})
					if err != nil && !errors.Is(err, redlock.ErrNoQuorum) { // a release may go unconfirmed
						t.Error(err)
					}
					done.Add(1)
				}
			})
		}
	}
	workers.Wait()
	close(stop)
	faults.Wait()
	if overlaps.Load() != 0 || int64(counter) != done.Load() || done.Load() != 150 {
		t.Errorf("got %d overlaps, counter %d after %d sections, want 0, 150 and 150", overlaps.Load(), counter, done.Load())
	}
	for _, n := range nodes {
		client := redistest.Client(t, n.Addr())
		redistest.Eventually(t, 15*time.Second, func() bool {
			return client.Exists(context.Background(), "redlock:counter").Val() == 0
		}, "no key is left on "+n.Addr())
	}
}

// pause sleeps for d, or less if stop is closed.
func pause(stop <-chan struct{}, d time.Duration) error {
	select {
	case <-stop:
	case <-time.After(d):
	}
	return nil
}

// The checks above see two holders where there are two: without a common set of
// masters nothing keeps the second out.
func TestContainersControlOverlapIsSeen(t *testing.T) {
	nodes := containers(t, 2)
	a, b := open(t, []string{nodes[0].Addr()}), open(t, []string{nodes[1].Addr()})
	for _, n := range nodes {
		bootstrap(t, []string{n.Addr()})
	}
	first, err := a.TryLock(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	second, err := b.TryLock(t.Context(), "r")
	if err != nil {
		t.Fatalf("got %v, want a second holder: the masters have nothing in common", err)
	}
	if first.Validity() <= 0 || second.Validity() <= 0 {
		t.Error("got no overlap of two leases that nothing keeps apart")
	}
}

// inContainers starts a run on containers.
func inContainers(t *testing.T, n int) *Run {
	t.Helper()
	pool, err := Connect()
	if err != nil {
		redistest.Missing(t, "docker", "needs a container engine: "+err.Error())
	}
	c, err := StartContainers(pool, n)
	return begin(t, c, err, 2*testTTL)
}

// Every fault that exists there, in mid-lease, on masters in containers.
//
// Source: SCENARIOS rows 1, 3, 4, 9, 14, 17, 19, 53 and 54.
func TestContainerFaults(t *testing.T) {
	faults := FaultsOf(Containers)
	for half := range 2 {
		t.Run(fmt.Sprint("cluster ", half), func(t *testing.T) {
			t.Parallel()
			r := inContainers(t, 5)
			for _, f := range faults[half*len(faults)/2 : (half+1)*len(faults)/2] {
				t.Run(strings.ReplaceAll(f.Name, ",", ""), func(t *testing.T) {
					r.History = new(history.History)
					inflict(t, r, f)
					time.Sleep(r.Rules().Settled)
					r.Settle(12 * time.Second)
					check(t, r)
					t.Log(Measure(r.History))
				})
			}
		})
	}
}

// A random schedule of faults over containers.
//
// Source: SCENARIOS row 65.
func TestSoakContainers(t *testing.T) {
	soaks(t, Containers)
}
