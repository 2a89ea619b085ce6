package redlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
)

// A call that makes one attempt waits for masters in quarantine if it may and if that is known to suffice.
func TestVirtualQuarantineWait(t *testing.T) {
	const long = 2 * quarantine10
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
		hold := func(b *bubble, l *redlock.Locker) (end func()) { // what keeps the call out
			lease := b.lock(l, "r")
			return func() { b.unlock(lease) }
		}
		// All masters restarted empty long ago, and no client has asked since: their quarantine counts
		// from now.
		anew := func(b *bubble) {
			b.all((*bubbleNode).restartEmpty)
			time.Sleep(time.Hour)
		}
		t.Run(name+" waits", func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, b *bubble) {
				l := b.warmLocker()
				anew(b)
				start := time.Now()
				end, err := try(l, t.Context(), redlock.WithQuarantineWait(long))
				if err != nil {
					t.Fatalf("got %v, want a lease", err)
				}
				end()
				if took := time.Since(start); took < quarantine10-time.Second || took > quarantine10+time.Second {
					t.Errorf("took %v, want about %v", took, quarantine10)
				}
			})
		})
		t.Run(name+" does not wait for longer than it may", func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, b *bubble) {
				l := b.warmLocker()
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
					wantMatch(t, name, err, []error{redlock.ErrNotAcquired, redlock.ErrNoQuorum, redlock.ErrQuarantine}, context.DeadlineExceeded)
					wantWithin(t, name, start, time.Second) // until the masters are connected to
				}
			})
		})
		t.Run(name+" does not wait for a holder, nor for masters that are down", func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, b *bubble) {
				l := b.warmLocker()
				end := hold(b, b.warmLocker())
				start := time.Now()
				_, err := try(l, t.Context(), redlock.WithQuarantineWait(long))
				wantMatch(t, name, err, []error{redlock.ErrTaken})
				wantWithin(t, name, start, 0)
				end()
				synctest.Wait()
				b.each((*bubbleNode).kill, 0, 1)
				_, err = try(l, t.Context(), redlock.WithQuarantineWait(long))
				wantMatch(t, name, err, []error{redlock.ErrNoQuorum}, redlock.ErrQuarantine)
				wantWithin(t, name, start, time.Second)
			})
		})
		t.Run(name+" finds a holder after the quarantine", func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, b *bubble) {
				l, other := b.warmLocker(), b.warmLocker()
				anew(b)
				start := time.Now()
				time.AfterFunc(quarantine10/2, func() { b.VouchAgain(); hold(b, other) })
				_, err := try(l, t.Context(), redlock.WithQuarantineWait(long))
				wantMatch(t, name, err, []error{redlock.ErrTaken})
				wantWithin(t, name, start, quarantine10/2+1500*time.Millisecond)
			})
		})
		t.Run(name+" ends with its context and with the Locker", func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, b *bubble) {
				l := b.warmLocker()
				anew(b)
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(3500*time.Millisecond, cancel) // between two attempts
				start := time.Now()
				_, err := try(l, ctx, redlock.WithQuarantineWait(long))
				wantMatch(t, name, err, []error{redlock.ErrQuarantine, context.Canceled})
				wantSince(t, name, start, 3500*time.Millisecond)
				time.AfterFunc(3*time.Second, func() { _ = l.Close() })
				_, err = try(l, t.Context(), redlock.WithQuarantineWait(long))
				wantMatch(t, name, err, []error{redlock.ErrClosed, redlock.ErrNotAcquired})
				wantSince(t, name, start, 6500*time.Millisecond)
			})
		})
	}
}
