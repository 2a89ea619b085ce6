package etcd

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/redistest"
)

// lock waits for a key, and returns how to give it back.
type lock func(ctx context.Context, key string) (unlock func(context.Context) error, err error)

// contender is a lock by its name.
type contender struct {
	name string
	lock lock
}

// contenders returns this library over three masters without persistence, etcd over three members that do not
// force writes to the disk, and over three that do.
func contenders(b *testing.B) []contender {
	l, err := redlock.New(redistest.Addrs(redistest.Masters(b, 3)))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	if err := admin.Bootstrap(b.Context(), l); err != nil {
		b.Fatal(err)
	}
	return []contender{
		{"ours", func(ctx context.Context, key string) (func(context.Context) error, error) {
			lease, err := l.Lock(ctx, key)
			if err != nil {
				return nil, err
			}
			return lease.Unlock, nil
		}},
		{"etcd-without-fsync", dial(b, startMembers(b, true))},
		{"etcd", dial(b, startMembers(b, false))},
	}
}

// dial makes a mutex of etcd for each use, as two uses of one would share a key. All have the lease of one
// session, which renews it.
func dial(b *testing.B, endpoints []string) lock {
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
	return func(ctx context.Context, key string) (func(context.Context) error, error) {
		m := concurrency.NewMutex(session, key)
		return m.Unlock, m.Lock(ctx)
	}
}

// BenchmarkCycle measures locking and unlocking a free resource: each caller has a resource of its own.
func BenchmarkCycle(b *testing.B) {
	list := contenders(b)
	for _, callers := range []int{1, 256} {
		for _, c := range list {
			b.Run(fmt.Sprintf("callers=%d/who=%s", callers, c.name), func(b *testing.B) {
				cycles(b, c.lock, callers, callers) // connects
				b.ResetTimer()
				took := cycles(b, c.lock, callers, b.N)
				b.StopTimer()
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
				b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
			})
		}
	}
}

// cycles makes n cycles, and returns how long each took.
func cycles(b *testing.B, lock lock, callers, n int) (took []time.Duration) {
	var working sync.WaitGroup
	var begun atomic.Int64
	took = make([]time.Duration, n)
	for k := range callers {
		key := fmt.Sprint("own:", k)
		working.Go(func() {
			for i := begun.Add(1); i <= int64(n); i = begun.Add(1) {
				start := time.Now()
				unlock, err := lock(b.Context(), key)
				if err == nil {
					err = unlock(context.Background())
				}
				if err != nil {
					b.Error(err)
				}
				took[i-1] = time.Since(start)
			}
		})
	}
	working.Wait()
	return took
}
