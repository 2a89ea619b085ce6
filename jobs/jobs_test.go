package jobs_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/internal/virtual"
	"github.com/d0720281/redlock/jobs"
)

func newLocker(t testing.TB, l *redlock.Locker, minHold time.Duration, opts ...redlock.LockOption) *jobs.Locker {
	t.Helper()
	j, err := jobs.New(l, append(opts, redlock.WithMinHold(minHold))...)
	locktest.Must(t, err)
	return j
}

// Of several machines that begin at the same moment, exactly one runs the job.
func TestVirtualAtOneMoment(t *testing.T) {
	redistest.TakesSeconds(t)
	for _, machines := range []int{2, 3, 7} {
		for seed := range uint64(redistest.Rounds(6, 50)) {
			locktest.InBubble(t, 5, func(t *testing.T, b *locktest.Bubble) {
				var all []*jobs.Locker
				for range machines {
					l := b.WarmLocker()
					all = append(all, newLocker(t, l, 5*time.Second))
				}
				random := rand.New(rand.NewPCG(seed, 0))
				b.All(func(n *virtual.Node) {
					n.Latency(time.Duration(random.IntN(2000))*time.Microsecond, time.Duration(random.IntN(2000))*time.Microsecond)
				})
				var mu sync.Mutex
				var running sync.WaitGroup
				got := 0
				for _, j := range all {
					after := time.Duration(random.IntN(1500)) * time.Microsecond
					running.Go(func() {
						time.Sleep(after)
						lock, err := j.Lock(t.Context(), "r")
						if err != nil {
							locktest.WantMatch(t, "Lock", err, []error{redlock.ErrTaken})
							return
						}
						mu.Lock()
						got++
						mu.Unlock()
						_ = lock.Unlock(t.Context())
					})
				}
				running.Wait()
				if got != 1 {
					t.Errorf("%d machines, seed %d: got %d runs, want 1", machines, seed, got)
				}
			})
		}
	}
}

// A job that is left out is logged once, although some runs find another holder's key on the one master
// that answers: that is no sign that the masters are well.
func TestVirtualLeftOutOnce(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		var log locktest.Records
		l := b.WarmLocker(redlock.WithLogger(slog.New(&log)))
		j := newLocker(t, l, 0)
		b.Nodes[0].Kill()
		b.Nodes[1].Hang()
		time.Sleep(time.Second)
		taken := 0
		for i := range 20 {
			if i%2 == 1 { // the master that hangs is not known to
				b.Nodes[1].Resume()
				time.Sleep(5 * time.Second)
				b.Nodes[2].Put(redlock.DefaultKeyPrefix+"r", "another|1", 5*time.Second)
				b.Nodes[1].Hang()
			}
			_, err := j.Lock(t.Context(), "r")
			if errors.Is(err, redlock.ErrTaken) {
				taken++
				var refused *redlock.QuorumError
				if !errors.As(err, &refused) || refused.HeldByQuorum() {
					t.Errorf("got %v, want it held by no quorum", err)
				}
			}
			time.Sleep(time.Second)
		}
		if taken == 0 {
			t.Error("got no call that found the lock taken, want some")
		}
		if got := len(log.With("left out")); got != 1 {
			t.Errorf("got %d lines in the log about runs that are left out, want 1", got)
		}
	})
}

func TestBadArguments(outer *testing.T) {
	t := redistest.Timed(outer)
	l := locktest.Open(t, []string{"127.0.0.1:1"})
	reentrant := locktest.Open(t, []string{"127.0.0.1:1"}, redlock.WithReentry())
	prefixed := locktest.Open(t, []string{"127.0.0.1:1"}, redlock.WithKeyPrefix("a~"))
	locker := func(l *redlock.Locker, minHold time.Duration, opts ...redlock.LockOption) error {
		if minHold != 0 {
			opts = append(opts, redlock.WithMinHold(minHold))
		}
		_, err := jobs.New(l, opts...)
		return err
	}
	lock := func(l *redlock.Locker, name string) error {
		_, err := newLocker(t, l, 0).Lock(t.Context(), name)
		return err
	}
	do := func(ctx context.Context, name string) error {
		return newLocker(t, l, 0).Run(ctx, name, func(context.Context, *redlock.Lease) error {
			t.Errorf("the job %q ran", name)
			return nil
		})
	}
	var none context.Context
	for name, err := range map[string]error{
		"no Locker":                         locker(nil, 0),
		"a negative minimum":                locker(l, -1),
		"a minimum as long as the longest":  locker(l, time.Minute, redlock.WithMaxHold(time.Minute)),
		"a minimum that outlasts the lease": locker(l, 5*time.Second, redlock.WithoutRenewal()),
		"re-entry":                          locker(l, 0, redlock.WithReentry()),
		"shared":                            locker(l, 0, redlock.Shared()),
		"re-entry for all":                  locker(reentrant, 0),
		"a TTL that is too long":            locker(l, 0, redlock.WithTTL(time.Hour)),
		"a nil option":                      locker(l, 0, nil),
		"Lock without a context":            func() error { _, err := newLocker(t, l, 0).Lock(none, "r"); return err }(),
		"Lock without a name":               lock(l, ""),
		"Lock with a name of the library":   lock(l, "r~queue"),
		"Lock with one with the prefix":     lock(prefixed, "turn"),
		"Run without a context":             do(none, "r"),
		"Run without a name":                do(t.Context(), ""),
		"Run with a name of the library":    do(t.Context(), "r~queue"),
		"Run without a job":                 newLocker(t, l, 0).Run(t.Context(), "r", nil),
	} {
		locktest.WantMatch(t, name, err, []error{redlock.ErrConfig}, redlock.ErrNotAcquired)
	}
	for _, l := range []*redlock.Locker{l, reentrant, prefixed} {
		if n := l.Stats().Masters[0]; n.State != redlock.MasterUntried {
			t.Errorf("got a node that is %v, want it not asked", n.State)
		}
	}
}

// Each option of the leases means for a job what it means for a lock, or New refuses it.
func TestVirtualOptions(t *testing.T) {
	for name, test := range map[string]struct {
		resource string
		take     func(*testing.T, *jobs.Locker, *locktest.Held) error
	}{
		"Lock": {"r", func(t *testing.T, j *jobs.Locker, h *locktest.Held) error {
			lock, err := j.Lock(t.Context(), "r")
			if err == nil {
				h.Lease, h.Work, h.End = lock, lock.Context(), func() { _ = lock.Unlock(t.Context()) }
			}
			return err
		}},
		"Run": {"r", func(t *testing.T, j *jobs.Locker, h *locktest.Held) error {
			return h.Run(t, func(work func(context.Context, locktest.HeldLease) error) error {
				return j.Run(t.Context(), "r", func(ctx context.Context, lease *redlock.Lease) error { return work(ctx, lease) })
			})
		}},
		"Run with a permit": {"r~1", func(t *testing.T, j *jobs.Locker, h *locktest.Held) error {
			return h.Run(t, func(work func(context.Context, locktest.HeldLease) error) error {
				return j.Run(t.Context(), "r", func(ctx context.Context, lease *redlock.Lease) error { return work(ctx, lease) }, jobs.Permits(1))
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.EachOption(t, 3, locktest.Entry{
				Resource: test.resource, Refuses: []string{"WithReentry", "Shared"},
				Take: func(b *locktest.Bubble, opts ...redlock.LockOption) (h locktest.Held, err error) {
					h.Locker = b.Locker()
					j, err := jobs.New(h.Locker, opts...)
					if err != nil {
						return h, err
					}
					err = test.take(b.T, j, &h)
					return h, err
				},
			})
		})
	}
}

// TestMain fails the run if a goroutine is left when all tests are over.
func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.WithExamples(m)) }
