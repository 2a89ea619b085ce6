package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/bench/internal/contender"
	"github.com/d0720281/redlock/bench/internal/measure"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/jobs"
	"github.com/d0720281/redlock/semaphore"
	"github.com/d0720281/redlock/several"
)

// way is a way to hold something, as a contender. What it holds is in its keys.
type way func(ctx context.Context, key string) (contender.Lease, error)

func (w way) Lock(ctx context.Context, key string) (contender.Lease, error) { return w(ctx, key) }
func (w way) Close() error                                                  { return nil }

// done is a lease that has ended by itself.
type done struct{}

func (done) Extend(context.Context) error { return errors.ErrUnsupported }
func (done) Unlock(context.Context) error { return nil }

// leased makes a contender's lease of a call that returns one, or an error.
func leased[L contender.Lease](l L, err error) (contender.Lease, error) {
	if err != nil {
		return nil, err
	}
	return l, nil
}

// reading locks as a reader.
func reading(l *redlock.Locker) way {
	return func(ctx context.Context, key string) (contender.Lease, error) {
		return leased(l.Lock(ctx, key, redlock.Shared()))
	}
}

// severally locks the resources whose names a comma separates.
func severally(l *redlock.Locker) way {
	return func(ctx context.Context, key string) (contender.Lease, error) {
		return leased(several.Lock(ctx, l, several.Names{Write: strings.Split(key, ",")}))
	}
}

// permits acquires n permits of k.
func permits(tb testing.TB, l *redlock.Locker, k, n int) way {
	tb.Helper()
	s, err := semaphore.New(l, "permits", k)
	must(tb, err)
	return func(ctx context.Context, _ string) (contender.Lease, error) { return leased(s.Acquire(ctx, n)) }
}

// some returns the names of the first resources.
func some(n int) string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprint("part-", i))
	}
	return strings.Join(names, ",")
}

// BenchmarkPackage measures one caller of what is built on the lock, beside Lock and Unlock, on three masters and
// with nothing in its way. One operation is a slice of some time.
func BenchmarkPackage(b *testing.B) {
	const slice = 150 * time.Millisecond
	addrs := redistest.Addrs(redistest.Masters(b, 3))
	l := newLocker(b, addrs)
	schedule, err := jobs.New(l)
	must(b, err)
	ways := map[string]struct {
		keys string
		way
	}{
		"Lock":            {"k", func(ctx context.Context, key string) (contender.Lease, error) { return leased(l.Lock(ctx, key)) }},
		"Lock,shared":     {"k", reading(l)},
		"semaphore,1of10": {"", permits(b, l, 10, 1)},
		"semaphore,4of10": {"", permits(b, l, 10, 4)},
		"several,1":       {some(1), severally(l)},
		"several,2":       {some(2), severally(l)},
		"several,8":       {some(8), severally(l)},
		"one-by-one,8": {some(8), func(ctx context.Context, key string) (contender.Lease, error) {
			var leases []*redlock.Lease
			for _, name := range strings.Split(key, ",") {
				one, err := l.Lock(ctx, name)
				if err != nil {
					return nil, err
				}
				leases = append(leases, one)
			}
			return each(leases), nil
		}},
		"jobs": {"job", func(ctx context.Context, key string) (contender.Lease, error) {
			return done{}, schedule.Run(ctx, key, func(context.Context, *redlock.Lease) error { return nil }, jobs.At(time.Now()))
		}},
	}
	var all []contender.Contender
	for name, w := range ways {
		all = append(all, contender.Contender{Name: name})
		for range 20 {
			held, err := w.Lock(b.Context(), w.keys)
			if err == nil {
				err = held.Unlock(b.Context())
			}
			if err != nil {
				b.Fatalf("%s: %v", name, err)
			}
		}
	}
	slices.SortFunc(all, func(a, b contender.Contender) int { return strings.Compare(a.Name, b.Name) })
	rounds(b, 10, all, func(b *testing.B, c contender.Contender) {
		w := ways[c.Name]
		load := measure.Load{Lockers: []contender.Locker{w}, Callers: 1, Key: measure.Same(w.keys), For: slice, Grace: grace}
		r, used := under(b, load, addrs, nil)
		report(b, costs(r, used))
		b.ReportMetric(measure.Micros(r.Cycle.At(50)), "p50-us")
	})
}

// each is the leases of several calls of Lock.
type each []*redlock.Lease

func (each) Extend(context.Context) error { return errors.ErrUnsupported }

func (e each) Unlock(ctx context.Context) (err error) {
	for _, lease := range e {
		err = errors.Join(err, lease.Unlock(ctx))
	}
	return err
}

// BenchmarkCrowd lets callers of some Lockers be in each other's way: nine callers in three Lockers want one, two or
// three of six resources; 32 callers in four Lockers want one resource, of which one in 20 writes; 100 callers want
// one of ten permits. used-% is the part of the permits' time in which they are held.
func BenchmarkCrowd(b *testing.B) {
	one := func(l *redlock.Locker) contender.Locker { return contender.Ours(l) }
	for _, test := range []struct {
		name             string
		lockers, callers int
		hold, slice      time.Duration
		of               int // resources that can be held at a time
		key              func(*measure.Caller) string
		way              func(*redlock.Locker) contender.Locker
	}{
		{"several=1of1", 3, 3, 2 * time.Millisecond, 2 * time.Second, 1, measure.Same("r0"), one},
		{"several=1of6", 3, 3, 2 * time.Millisecond, 2 * time.Second, 6, names(1, 6), one},
		{"several=2of6", 3, 3, 2 * time.Millisecond, 2 * time.Second, 6, names(2, 6), func(l *redlock.Locker) contender.Locker { return severally(l) }},
		{"several=3of6", 3, 3, 2 * time.Millisecond, 2 * time.Second, 6, names(3, 6), func(l *redlock.Locker) contender.Locker { return severally(l) }},
		{"readers=none", 4, 8, time.Millisecond, time.Second, 1, measure.Same("book"), one},
		{"readers=19of20", 4, 8, time.Millisecond, time.Second, 1, func(c *measure.Caller) string {
			return map[bool]string{true: "write", false: "read"}[c.IntN(20) == 0]
		}, func(l *redlock.Locker) contender.Locker {
			return way(func(ctx context.Context, how string) (contender.Lease, error) {
				if how == "write" {
					return leased(l.Lock(ctx, "shelf"))
				}
				return leased(l.Lock(ctx, "shelf", redlock.Shared()))
			})
		}},
		{"permits=10", 1, 100, 10 * time.Millisecond, time.Second, 10, measure.Same("s"), func(l *redlock.Locker) contender.Locker { return permits(b, l, 10, 1) }},
		{"permits=10", 4, 25, 10 * time.Millisecond, time.Second, 10, measure.Same("s"), func(l *redlock.Locker) contender.Locker { return permits(b, l, 10, 1) }},
	} {
		b.Run(fmt.Sprintf("%s/lockers=%d/callers=%d/hold=%v", test.name, test.lockers, test.callers, test.hold), func(b *testing.B) {
			addrs := redistest.Addrs(redistest.Masters(b, 3))
			var lockers []contender.Locker
			for range test.lockers {
				l := newLocker(b, addrs)
				warm(b, 5, 1, contender.Ours(l))
				lockers = append(lockers, test.way(l))
			}
			rounds(b, 5, contender.Named("ours"), func(b *testing.B, _ contender.Contender) {
				load := measure.Load{Lockers: lockers, Callers: test.callers, Key: test.key, Hold: test.hold, For: test.slice}
				if *quick {
					load.For /= 2
				}
				r, used := under(b, load, addrs, nil)
				cost := costs(r, used)
				report(b, map[string]float64{"ns/op": cost["ns/op"], "turns/s": cost["turns/s"], "commands": cost["commands"]})
				report(b, map[string]float64{"jain": measure.Jain(r.Turns), "used-%": 100 * r.Held.Seconds() / r.Took.Seconds() / float64(test.of)})
				reportWaits(b, r)
			})
		})
	}
}

// names chooses n of some resources at random.
func names(n, of int) func(*measure.Caller) string {
	return func(c *measure.Caller) string {
		var chosen []string
		for _, i := range c.Perm(of)[:n] {
			chosen = append(chosen, fmt.Sprint("r", i))
		}
		return strings.Join(chosen, ",")
	}
}
