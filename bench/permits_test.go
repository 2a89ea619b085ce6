package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/d0720281/redlock/bench/internal/contender"
	"github.com/d0720281/redlock/bench/internal/measure"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/semaphore"
)

// BenchmarkPermits measures what a caller waits for one of K permits, all of which another Locker has but for
// one: how=back, until the other one has given it back; how=free, if it is free. how=idle is the part of a core that
// the three masters need together while the permits are held, and for a caller that waits while nothing happens.
func BenchmarkPermits(b *testing.B) {
	for _, k := range []int{2, 8, 100, 1000} {
		b.Run(fmt.Sprintf("K=%d", k), func(b *testing.B) {
			addrs := redistest.Addrs(redistest.Masters(b, 3))
			theirs, err := semaphore.New(newLocker(b, addrs), "s", k)
			must(b, err)
			mine, err := semaphore.New(newLocker(b, addrs), "s", k)
			must(b, err)
			held, err := theirs.Acquire(b.Context(), k)
			must(b, err)
			parts := held.Parts()
			// pass gives a permit back, and returns how long the caller has waited from then on, or from its call.
			pass := func(waits bool) time.Duration {
				var got time.Time
				ready := make(chan error, 1)
				acquire := func() {
					lease, err := mine.Acquire(b.Context(), 1)
					if got = time.Now(); err == nil {
						err = lease.Unlock(b.Context())
					}
					ready <- err
				}
				if waits {
					go acquire()
					time.Sleep(50*time.Millisecond + rand.N(50*time.Millisecond)) // until it waits
				}
				began, err := time.Now(), parts[0].Unlock(b.Context())
				if !waits {
					began = time.Now()
					acquire()
				}
				if err == nil {
					err = <-ready
				}
				var again *semaphore.Lease
				if err == nil {
					again, err = theirs.Acquire(b.Context(), 1)
				}
				must(b, err)
				parts = append(parts[1:], again.Parts()...)
				return got.Sub(began)
			}
			for how, waits := range map[string]bool{"back": true, "free": false} {
				b.Run("how="+how, func(b *testing.B) {
					passes := 20
					if *quick {
						passes = 5
					}
					rounds(b, 3, contender.Named("ours"), func(b *testing.B, _ contender.Contender) {
						took := make(measure.Latency, passes)
						for i := range took {
							took[i] = pass(waits)
						}
						slices.Sort(took)
						report(b, map[string]float64{"ns/op": 0, "p50-us": measure.Micros(took.At(50)), "max-us": measure.Micros(took.At(100))})
					})
				})
			}
			b.Run("how=idle/who=ours", func(b *testing.B) {
				servers, err := measure.NewServers(b.Context(), addrs)
				must(b, err)
				defer servers.Close()
				during := 3 * time.Second
				if *quick {
					during /= 3
				}
				idle := func() float64 {
					time.Sleep(500 * time.Millisecond) // what began before settles
					used, err := servers.During(b.Context(), nil, func() { time.Sleep(during) })
					must(b, err)
					return 100 * used.CPU.Seconds() / during.Seconds()
				}
				holding := idle()
				ctx, cancel := context.WithCancel(b.Context())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					_, _ = mine.Acquire(ctx, 1)
				}()
				report(b, map[string]float64{"ns/op": 0, "held-%core": holding, "waits-%core": max(0, idle()-holding)})
				cancel()
				<-ended
			})
		})
	}
}
