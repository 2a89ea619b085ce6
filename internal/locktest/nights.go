package locktest

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/redlocktest"
)

// Night is a time in which something happens to the three masters of a service.
type Night struct {
	Name   string
	leases int // that the service holds
	happen func(masters []*redlocktest.Master)
}

// Nights returns all nights.
func Nights() []Night {
	each := func(masters []*redlocktest.Master, do func(*redlocktest.Master)) {
		for _, m := range masters {
			do(m)
		}
	}
	return []Night{
		{"nothing happens", 10, func([]*redlocktest.Master) {}},
		{"a master is down for three minutes", 10, func(m []*redlocktest.Master) {
			m[0].Kill()
			time.Sleep(3 * time.Minute)
			m[0].Restart()
		}},
		{"a master hangs for three minutes", 10, func(m []*redlocktest.Master) {
			m[0].Hang()
			time.Sleep(3 * time.Minute)
			m[0].Heal()
		}},
		{"a master is emptied", 10, func(m []*redlocktest.Master) { m[0].Flush() }},
		{"two masters are down for three minutes", 10, func(m []*redlocktest.Master) {
			each(m[:2], (*redlocktest.Master).Kill)
			time.Sleep(3 * time.Minute)
			each(m[:2], (*redlocktest.Master).Restart)
		}},
		{"two masters hang for three seconds", 10, func(m []*redlocktest.Master) {
			each(m[:2], (*redlocktest.Master).Hang)
			time.Sleep(3 * time.Second)
			each(m[:2], (*redlocktest.Master).Heal)
		}},
		{"all masters restart empty at once", 10, func(m []*redlocktest.Master) {
			each(m, (*redlocktest.Master).Kill)
			time.Sleep(3 * time.Second)
			each(m, (*redlocktest.Master).RestartEmpty)
		}},
		{"the clock of a master is put forward by a minute, and back", 10, func(m []*redlocktest.Master) {
			m[0].MoveClock(time.Minute)
			time.Sleep(time.Minute)
			m[0].MoveClock(-time.Minute)
		}},
		{"a rolling upgrade, with 30 leases", 30, func(m []*redlocktest.Master) {
			each(m, func(m *redlocktest.Master) {
				m.Kill()
				time.Sleep(time.Second)
				m.RestartEmpty()
				time.Sleep(30 * time.Second)
			})
		}},
	}
}

// Live goes through the night, in a bubble of testing/synctest, with quiet before and after what happens. The
// service holds leases, locks another resource every three seconds, and has a caller that waits for a third one. opts are of
// its Locker; begun is called once that is made.
func (n Night) Live(t *testing.T, quiet time.Duration, begun func(), opts ...redlock.Option) {
	cluster := redlocktest.Start(t, 3)
	l, other := cluster.Locker(opts...), cluster.Locker()
	begun()
	wanted := Lock(t, other, "wanted")
	var held []*redlock.Lease
	for i := range n.leases {
		held = append(held, Lock(t, l, fmt.Sprint("held", i)))
	}
	ctx, stop := context.WithCancel(t.Context())
	var service sync.WaitGroup
	service.Go(func() { // it gets the lock where the holder loses it
		if lease, err := l.Lock(ctx, "wanted"); err == nil {
			<-ctx.Done()
			_ = lease.Unlock(context.Background())
		}
	})
	service.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(3 * time.Second) {
			_ = l.Do(ctx, "often", func(context.Context, *redlock.Lease) error { return nil })
		}
	})
	time.Sleep(quiet)
	n.happen(cluster.Masters())
	time.Sleep(quiet)
	stop()
	service.Wait()
	_ = wanted.Unlock(t.Context())
	runtime.KeepAlive(held) // or the log tells of leases that were dropped
}
