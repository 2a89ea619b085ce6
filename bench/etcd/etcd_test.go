package etcd

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	recipe "go.etcd.io/etcd/client/v3/experimental/recipes"
	"go.uber.org/zap"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/redistest"
)

// kind says how a lock is held.
type kind int

const (
	mutex  kind = iota
	reader      // shared with other readers
	writer      // excludes readers
)

// locker is one client with its connections. It is safe for concurrent use.
type locker interface {
	// lock waits for a key, and returns how to give it back.
	lock(ctx context.Context, key string, how kind) (unlock func(context.Context) error, err error)
}

// contenders returns by name how to make clients: this library over three masters without persistence,
// etcd over three members that force each write to the disk, and over three that do not.
func contenders(b *testing.B) []contender {
	masters := redistest.Addrs(redistest.Masters(b, 3))
	ours := contender{"ours", func(b *testing.B) locker {
		l, err := redlock.New(masters)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = l.Close() })
		if err := admin.Bootstrap(b.Context(), l); err != nil {
			b.Fatal(err)
		}
		return oursLocker{l}
	}}
	list := []contender{ours}
	for _, noFsync := range []bool{true, false} {
		endpoints, name := startMembers(b, noFsync), "etcd"
		if noFsync {
			name = "etcd-without-fsync"
		}
		list = append(list, contender{name, func(b *testing.B) locker {
			client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = client.Close() })
			session, err := concurrency.NewSession(client, concurrency.WithTTL(10))
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = session.Close() })
			return etcdLocker{session}
		}})
	}
	return list
}

type contender struct {
	name string
	dial func(*testing.B) locker
}

type oursLocker struct{ locker *redlock.Locker }

func (o oursLocker) lock(ctx context.Context, key string, how kind) (func(context.Context) error, error) {
	var mode []redlock.LockOption
	if how == reader {
		mode = append(mode, redlock.Shared())
	}
	lease, err := o.locker.Lock(ctx, key, mode...)
	if err != nil {
		return nil, err
	}
	return lease.Unlock, nil
}

// etcdLocker makes a mutex for each use, as two uses of one would share a key. All have the lease of one
// session, which renews it.
type etcdLocker struct{ session *concurrency.Session }

func (e etcdLocker) lock(ctx context.Context, key string, how kind) (func(context.Context) error, error) {
	rw := recipe.NewRWMutex(e.session, key)
	without := func(unlock func() error) func(context.Context) error {
		return func(context.Context) error { return unlock() }
	}
	switch how {
	case reader:
		return without(rw.RUnlock), rw.RLock()
	case writer:
		return without(rw.Unlock), rw.Lock()
	}
	m := concurrency.NewMutex(e.session, key)
	return m.Unlock, m.Lock(ctx)
}

// BenchmarkCycle measures locking and unlocking a free resource: each goroutine of one client has a resource
// of its own.
func BenchmarkCycle(b *testing.B) {
	list := contenders(b)
	for _, g := range []int{1, 16, 256} {
		for _, c := range list {
			b.Run(fmt.Sprintf("g=%d/who=%s", g, c.name), func(b *testing.B) {
				l := c.dial(b)
				cycles(b, l, g, g)
				b.ResetTimer()
				waits := cycles(b, l, g, b.N)
				b.StopTimer()
				slices.Sort(waits)
				b.ReportMetric(float64(waits[len(waits)/2].Microseconds()), "p50-us")
				b.ReportMetric(float64(waits[len(waits)*99/100].Microseconds()), "p99-us")
			})
		}
	}
}

// cycles makes n cycles in g goroutines, and returns how long each took.
func cycles(b *testing.B, l locker, g, n int) (took []time.Duration) {
	var working sync.WaitGroup
	var begun atomic.Int64
	took = make([]time.Duration, n)
	for k := range g {
		working.Go(func() {
			for i := begun.Add(1); i <= int64(n); i = begun.Add(1) {
				start := time.Now()
				visit(b, l, fmt.Sprint("own:", k), mutex, 0)
				took[i-1] = time.Since(start)
			}
		})
	}
	working.Wait()
	return took
}

// BenchmarkReaders measures callers of which one in 20 writes, and the others read. Each of 4 clients has
// 8 callers that hold one resource for a while.
func BenchmarkReaders(b *testing.B) {
	list := contenders(b)
	for _, hold := range []time.Duration{time.Millisecond, 10 * time.Millisecond} {
		for _, c := range list {
			b.Run(fmt.Sprintf("hold=%v/who=%s", hold, c.name), func(b *testing.B) {
				var working sync.WaitGroup
				var begun atomic.Int64
				clients := make([]locker, 4)
				for i := range clients {
					clients[i] = c.dial(b)
				}
				b.ResetTimer()
				for i, l := range clients {
					for k := range 8 {
						rng := rand.New(rand.NewPCG(uint64(i), uint64(k)))
						working.Go(func() {
							for begun.Add(1) <= int64(b.N) {
								how := reader
								if rng.IntN(20) == 0 {
									how = writer
								}
								visit(b, l, "book", how, hold)
							}
						})
					}
				}
				working.Wait()
			})
		}
	}
}

// visit locks a resource, holds it for a while and unlocks it.
func visit(b *testing.B, l locker, key string, how kind, hold time.Duration) {
	unlock, err := l.lock(b.Context(), key, how)
	if err == nil {
		time.Sleep(hold)
		err = unlock(context.Background())
	}
	if err != nil {
		b.Error(err)
	}
}
