package order_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/internal/virtual"
)

// distant makes all nodes answer after a round trip.
func distant(b *locktest.Bubble, roundTrip time.Duration) {
	b.All(func(n *virtual.Node) { n.Latency(roundTrip/2, roundTrip/2) })
}

// Inspect, Check and Stats delay neither calls nor renewals.
//
// Source: ALGORITHM section 5, "order of requests".
func TestVirtualLooksHoldUpNothing(t *testing.T) {
	t.Parallel()
	redistest.TakesSeconds(t)
	for _, test := range []struct {
		callers   int
		roundTrip time.Duration
		ttl       time.Duration // of a lease that is held meanwhile, in two of the cases
	}{{10, 40 * time.Millisecond, time.Second}, {100, 2 * time.Millisecond, 100 * time.Millisecond}} {
		locktest.Subtest(t, fmt.Sprintf("%d callers of Inspect, round trip %v", test.callers, test.roundTrip), 3, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker(redlock.WithLogger(nil), redlock.WithTTL(test.ttl), redlock.WithMaxTTL(test.ttl))
			held := b.Lock(l, "held")
			distant(b, test.roundTrip)
			ctx, cancel := context.WithCancel(t.Context())
			var asking sync.WaitGroup
			var looks atomic.Int64
			for i := range test.callers {
				asking.Go(func() {
					for ctx.Err() == nil {
						switch i % 3 {
						case 0:
							_, _ = admin.Check(ctx, l)
						default:
							_, _ = admin.Inspect(ctx, l, "held")
						}
						looks.Add(1)
					}
				})
			}
			for range redistest.Rounds(6, 40) {
				began := time.Now()
				lease, err := l.TryLock(t.Context(), "r")
				locktest.Must(t, err)
				locktest.WantWithin(t, "a lease", began, 2*test.roundTrip) // its own round trip, and the rest of the exchange before it
				began = time.Now()
				locktest.Must(t, lease.Unlock(t.Context()))
				locktest.WantWithin(t, "an unlock", began, 2*test.roundTrip)
			}
			time.Sleep(2 * test.ttl)
			if err := held.Context().Err(); err != nil {
				t.Errorf("the lease that was held meanwhile: got %v, want it renewed", context.Cause(held.Context()))
			}
			cancel()
			asking.Wait()
			if least := int64(test.callers) * int64(2*test.ttl/test.roundTrip) / 4; looks.Load() < least {
				t.Errorf("got %d looks, want at least %d: they have to go on, too", looks.Load(), least)
			}
			b.Unlock(held)
		})
	}
}

// goodput returns how many times a second callers lock and unlock resources of their own, by their
// own clock, and how many of their attempts fail.
func goodput(t *testing.T, callers int, roundTrip, during time.Duration) (perSecond float64, failures int64) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker(redlock.WithLogger(nil), redlock.WithTTL(3*time.Second), redlock.WithMaxTTL(3*time.Second))
		held := make([]*redlock.Lease, 20)
		for i := range held {
			held[i] = b.Lock(l, fmt.Sprint("held ", i))
		}
		distant(b, roundTrip)
		ctx, cancel := context.WithTimeout(t.Context(), during)
		defer cancel()
		var working sync.WaitGroup
		var sections, failed atomic.Int64
		for i := range callers {
			working.Go(func() {
				for ctx.Err() == nil {
					lease, err := l.TryLock(t.Context(), fmt.Sprint("own ", i))
					if err != nil {
						failed.Add(1)
						continue
					}
					if ctx.Err() == nil {
						sections.Add(1)
					}
					_ = lease.Unlock(t.Context())
				}
			})
		}
		working.Wait()
		for i, lease := range held {
			if lease.Context().Err() != nil {
				t.Errorf("%d callers, round trip %v: lease %d was lost: %v", callers, roundTrip, i, context.Cause(lease.Context()))
			}
		}
		perSecond, failures = float64(sections.Load())/during.Seconds(), failed.Load()
	})
	return perSecond, failures
}

// If there are more callers than the masters can serve, they queue, and do not fail. The rate of
// sections does not fall, and no lease is lost.
//
// Source: ALGORITHM section 10, "Admission".
func TestVirtualOverload(t *testing.T) {
	t.Parallel()
	redistest.TakesSeconds(t)
	const roundTrip = 40 * time.Millisecond
	best := 0.0
	for callers := 250; callers <= redistest.Rounds(1000, 4000); callers *= 4 {
		got, refused := goodput(t, callers, roundTrip, time.Second)
		t.Logf("%5d callers: %6.0f sections/s, %d refused", callers, got, refused)
		if got < 0.9*best {
			t.Errorf("%d callers: got %.0f sections/s, want no fewer than %.0f with fewer callers", callers, got, best)
		}
		if refused > 0 {
			t.Errorf("%d callers: got %d refused, want none", callers, refused)
		}
		best = max(best, got)
	}
}

// If a network device forgets an idle connection, no call fails: a request without an answer is
// repeated on a new connection.
//
// Source: ALGORITHM section 5.
func TestVirtualIdleConnectionsAreDropped(t *testing.T) {
	for _, roundTrip := range []time.Duration{0, 2 * time.Millisecond, 40 * time.Millisecond} {
		locktest.Subtest(t, roundTrip.String(), 3, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker(redlock.WithLogger(nil))
			distant(b, roundTrip)
			for _, idle := range []time.Duration{10 * time.Second, time.Minute, time.Hour} {
				b.All((*virtual.Node).SwallowConns)
				time.Sleep(idle)
				lease, err := l.TryLock(t.Context(), "r")
				if err != nil {
					t.Fatalf("TryLock after %v: got %v, want a lease", idle, err)
				}
				b.Unlock(lease)
				b.WantHolding("r")
			}
		})
	}
}

// sluggish is a connection on which replies arrive in small pieces.
type sluggish struct{ net.Conn }

func (c sluggish) Read(b []byte) (int, error) {
	time.Sleep(time.Millisecond)
	return c.Conn.Read(b[:min(len(b), 4)])
}

// The timeout of an exchange that was answered long ago ends nothing while a later reply has arrived
// only in part.
//
// Source: ALGORITHM section 5.
func TestVirtualRepliesInPieces(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		options := make([]*redis.Options, len(b.Nodes))
		for i, n := range b.Nodes {
			options[i] = &redis.Options{Addr: n.Addr(), Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := n.Dial(ctx, network, addr)
				return sluggish{conn}, err
			}}
		}
		l, err := redlock.NewFromOptions(options, redlock.WithMasterTimeout(time.Second))
		locktest.Must(t, err)
		defer func() { locktest.Must(t, l.Close()) }()
		b.Vouch()
		for i := range 200 {
			lease, err := l.TryLock(t.Context(), "r")
			if err != nil {
				t.Fatalf("round %d: TryLock: got %v, want a lease", i, err)
			}
			locktest.Must(t, lease.Unlock(t.Context()))
		}
	})
}
