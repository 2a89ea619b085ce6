package guard_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/virtual"
)

// A call that makes one attempt waits for masters in quarantine if it may and if that is known to suffice.
func TestVirtualQuarantineWait(t *testing.T) {
	const long = 2 * locktest.Quarantine
	calls := map[string]func(l *redlock.Locker, ctx context.Context, opts ...redlock.LockOption) (func(), error){
		"TryLock": func(l *redlock.Locker, ctx context.Context, opts ...redlock.LockOption) (func(), error) {
			lease, err := l.TryLock(ctx, "r", opts...)
			return func() { _ = lease.Unlock(ctx) }, err
		},
		"a reader's TryLock": func(l *redlock.Locker, ctx context.Context, opts ...redlock.LockOption) (func(), error) {
			lease, err := l.TryLock(ctx, "r", append(opts, redlock.Shared())...)
			return func() { _ = lease.Unlock(ctx) }, err
		},
	}
	for name, try := range calls {
		hold := func(b *locktest.Bubble, l *redlock.Locker) (end func()) { // what keeps the call out
			lease := b.Lock(l, "r")
			return func() { b.Unlock(lease) }
		}
		// All masters restarted empty long ago, and no client has asked since: their quarantine counts
		// from now.
		anew := func(b *locktest.Bubble) {
			b.All((*virtual.Node).RestartEmpty)
			time.Sleep(time.Hour)
		}
		t.Run(name+" waits", func(t *testing.T) {
			locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
				l := b.WarmLocker()
				anew(b)
				start := time.Now()
				end, err := try(l, t.Context(), redlock.WithQuarantineWait(long))
				if err != nil {
					t.Fatalf("got %v, want a lease", err)
				}
				end()
				if took := time.Since(start); took < locktest.Quarantine-time.Second || took > locktest.Quarantine+time.Second {
					t.Errorf("took %v, want about %v", took, locktest.Quarantine)
				}
			})
		})
		t.Run(name+" does not wait for longer than it may", func(t *testing.T) {
			locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
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
		})
		t.Run(name+" does not wait for a holder, nor for masters that are down", func(t *testing.T) {
			locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
				l := b.WarmLocker()
				end := hold(b, b.WarmLocker())
				start := time.Now()
				_, err := try(l, t.Context(), redlock.WithQuarantineWait(long))
				locktest.WantMatch(t, name, err, []error{redlock.ErrTaken})
				locktest.WantWithin(t, name, start, 0)
				end()
				synctest.Wait()
				b.Each((*virtual.Node).Kill, 0, 1)
				_, err = try(l, t.Context(), redlock.WithQuarantineWait(long))
				locktest.WantMatch(t, name, err, []error{redlock.ErrNoQuorum}, redlock.ErrQuarantine)
				locktest.WantWithin(t, name, start, time.Second)
			})
		})
		t.Run(name+" finds a holder after the quarantine", func(t *testing.T) {
			locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
				l, other := b.WarmLocker(), b.WarmLocker()
				anew(b)
				start := time.Now()
				time.AfterFunc(locktest.Quarantine/2, func() { b.VouchAgain(); hold(b, other) })
				_, err := try(l, t.Context(), redlock.WithQuarantineWait(long))
				locktest.WantMatch(t, name, err, []error{redlock.ErrTaken})
				locktest.WantWithin(t, name, start, locktest.Quarantine/2+1500*time.Millisecond)
			})
		})
		t.Run(name+" ends with its context and with the Locker", func(t *testing.T) {
			locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
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
		})
	}
}
