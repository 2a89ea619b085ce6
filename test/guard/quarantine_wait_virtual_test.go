package guard_test

import (
	"context"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/virtual"
)

// A call that makes one attempt waits for masters in quarantine if it may and if that is known to suffice.
func TestVirtualQuarantineWait(t *testing.T) {
	const long = 2 * locktest.Quarantine
	for name, mode := range map[string][]redlock.LockOption{"TryLock": nil, "a reader's TryLock": {redlock.Shared()}} {
		try := func(l *redlock.Locker, ctx context.Context, opts ...redlock.LockOption) (*redlock.Lease, error) {
			return l.TryLock(ctx, "r", append(opts, mode...)...)
		}
		// All masters restarted empty long ago, and no client has asked since: their quarantine counts from now.
		anew := func(b *locktest.Bubble) {
			b.All((*virtual.Node).RestartEmpty)
			time.Sleep(time.Hour)
		}
		locktest.Subtest(t, name+" waits", 3, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker()
			anew(b)
			start := time.Now()
			lease, err := try(l, t.Context(), redlock.WithQuarantineWait(long))
			locktest.Must(t, err)
			b.Unlock(lease)
			if took := time.Since(start); took < locktest.Quarantine-time.Second || took > locktest.Quarantine+time.Second {
				t.Errorf("took %v, want about %v", took, locktest.Quarantine)
			}
		})
		locktest.Subtest(t, name+" does not wait for longer than it may", 3, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker()
			anew(b)
			deadline, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			for _, test := range []struct {
				ctx  context.Context
				opts []redlock.LockOption
			}{
				{t.Context(), nil},
				{t.Context(), []redlock.LockOption{redlock.WithQuarantineWait(5 * time.Second)}},
				{deadline, []redlock.LockOption{redlock.WithQuarantineWait(long)}},
			} {
				start := time.Now()
				_, err := try(l, test.ctx, test.opts...)
				locktest.WantMatch(t, name, err, []error{redlock.ErrNotAcquired, redlock.ErrNoQuorum, redlock.ErrQuarantine}, context.DeadlineExceeded)
				locktest.WantWithin(t, name, start, time.Second) // until the masters are connected to
			}
		})
		locktest.Subtest(t, name+" does not wait for a holder, nor for masters that are down", 3, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker()
			held := b.Lock(b.WarmLocker(), "r")
			start := time.Now()
			_, err := try(l, t.Context(), redlock.WithQuarantineWait(long))
			locktest.WantMatch(t, name, err, []error{redlock.ErrTaken})
			locktest.WantWithin(t, name, start, 0)
			b.Unlock(held)
			b.Each((*virtual.Node).Kill, 0, 1)
			_, err = try(l, t.Context(), redlock.WithQuarantineWait(long))
			locktest.WantMatch(t, name, err, []error{redlock.ErrNoQuorum}, redlock.ErrQuarantine)
			locktest.WantWithin(t, name, start, time.Second)
		})
		locktest.Subtest(t, name+" finds a holder after the quarantine", 3, func(t *testing.T, b *locktest.Bubble) {
			l, other := b.WarmLocker(), b.WarmLocker()
			anew(b)
			start := time.Now()
			time.AfterFunc(locktest.Quarantine/2, func() { b.VouchAgain(); b.Lock(other, "r") })
			_, err := try(l, t.Context(), redlock.WithQuarantineWait(long))
			locktest.WantMatch(t, name, err, []error{redlock.ErrTaken})
			locktest.WantWithin(t, name, start, locktest.Quarantine/2+1500*time.Millisecond)
		})
		locktest.Subtest(t, name+" ends with its context and with the Locker", 3, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker()
			anew(b)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(3500*time.Millisecond, cancel) // between two attempts
			start := time.Now()
			_, err := try(l, ctx, redlock.WithQuarantineWait(long))
			locktest.WantMatch(t, name, err, []error{redlock.ErrQuarantine, context.Canceled})
			locktest.WantSince(t, name, start, 3500*time.Millisecond)
			time.AfterFunc(3*time.Second, func() { _ = l.Close() })
			_, err = try(l, t.Context(), redlock.WithQuarantineWait(long))
			locktest.WantMatch(t, name, err, []error{redlock.ErrClosed, redlock.ErrNotAcquired})
			locktest.WantSince(t, name, start, 6500*time.Millisecond)
		})
	}
}
