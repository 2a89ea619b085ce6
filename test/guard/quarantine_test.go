package guard_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

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

// A lease with a TTL of a minute counts for clients that expect ten seconds, until the last such lease must be over.
//
// Source: ALGORITHM section 8, "MaxTTL".
func TestVirtualLargerTTLIsForgotten(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		b.Vouch()
		large, usual := b.WarmLocker(redlock.WithMaxTTL(time.Minute)), b.WarmLocker()
		want := func(longest string) {
			t.Helper()
			b.Unlock(b.Lock(usual, "other"))
			b.Nodes[0].Inside(func(r *miniredis.Miniredis, _ time.Time) {
				if got := r.HGet(redlock.DefaultKeyPrefix+"~guard", "maxttl"); got != longest {
					t.Errorf("got %s ms for the largest TTL, want %s", got, longest)
				}
			})
		}
		want("10000")
		lease := b.Lock(large, "r", redlock.WithTTL(time.Minute))
		for range 10 {
			want("60000")
			time.Sleep(time.Minute) // it is renewed
		}
		b.Unlock(lease)
		want("60000")
		time.Sleep(100 * time.Second)
		want("60000") // it was asked for up to 20 s before, and counts for two quarantines
		time.Sleep(23 * time.Second)
		want("10000")
	})
}

// The warning about a quarantine names redlock init only if no master has a vote, as all have said, and in a
// process that had no lease: with votes for all masters at once, a lease from before the quarantine would have company.
func TestHintOfAQuarantine(t *testing.T) {
	for _, test := range []struct {
		name  string
		empty []int // the nodes that lose their data
		leads bool  // the Locker had a lease before
		want  bool  // redlock init is named
	}{
		{"new masters", []int{0, 1, 2}, false, true},
		{"one master has a vote", []int{1, 2}, false, false},
		{"all masters lose their data under a lease", []int{0, 1, 2}, true, false},
		{"two masters lose their data under a lease", []int{0, 1}, true, false},
	} {
		locktest.Subtest(t, test.name, 3, func(t *testing.T, b *locktest.Bubble) {
			logger, text := locktest.LogText()
			l := b.Locker(redlock.WithLogger(logger))
			if test.leads {
				b.Lock(l, "r")
			}
			b.Each((*virtual.Node).RestartEmpty, test.empty...)
			if test.want { // all masters have answered before one call waits for them
				_, _ = l.TryLock(t.Context(), "other")
				time.Sleep(time.Second)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			lease, err := l.Lock(ctx, "other")
			locktest.Must(t, err)
			b.Unlock(lease)
			var hint string
			for line := range strings.Lines(text()) {
				if strings.Contains(line, "masters in quarantine") {
					_, hint, _ = strings.Cut(line, "hint=")
					break
				}
			}
			if !strings.HasPrefix(strings.Trim(hint, `"`), "wait ") || strings.Contains(hint, "redlock init") != test.want {
				t.Errorf("got the hint %q, want how long to wait, and redlock init named: %v; the log is\n%s", hint, test.want, text())
			}
		})
	}
}
