package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/virtual"
)

// A lease is judged by the holder's clock alone: if it jumps ahead, as after a suspend, the lease is
// over at the first look. The start value of the clock does not matter.
//
// Source: ALGORITHM sections 7 and 11.
func TestVirtualClockOfTheHolder(t *testing.T) {
	locktest.Subtest(t, "jumps past the deadline", 3, func(t *testing.T, b *locktest.Bubble) {
		clock := locktest.NewJumpClock()
		l, other := b.WarmLocker(redlock.WithClock(clock)), b.WarmLocker()
		watched, extended, unlocked := b.Lock(l, "watched"), b.Lock(l, "extended"), b.Lock(l, "unlocked")
		ctx := watched.Context()
		time.Sleep(1300 * time.Millisecond)
		clock.Jump(time.Hour)
		locktest.WantMatch(t, "Err", watched.Err(), []error{redlock.ErrLost, reason.Expired}, redlock.ErrReleased)
		if ctx.Err() != nil {
			t.Error("the context has ended, want it to know nothing yet")
		}
		b.All(func(n *virtual.Node) { n.RunClock(1, time.Hour) })
		_, _ = other.TryLock(t.Context(), "r") // learns that the nodes' clocks have jumped
		synctest.Wait()
		start := time.Now()
		for _, lease := range []*redlock.Lease{watched, extended, unlocked} {
			locktest.WantValidity(t, lease, 0)
			if _, err := other.Lock(t.Context(), lease.Resource()); err != nil {
				t.Errorf("Lock by another Locker: got %v, want a lease", err)
			}
		}
		locktest.WantMatch(t, "Extend", extended.Extend(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrLost, reason.Expired})
		locktest.WantMatch(t, "Unlock", unlocked.Unlock(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrLost, reason.Expired})
		locktest.WantSince(t, "typed errors", start, 0)
		locktest.WantDone(t, ctx, []error{redlock.ErrLost, reason.Expired})
		locktest.WantWithin(t, "end of the context", start, time.Second)
		time.Sleep(5 * time.Second)
		for _, lease := range []*redlock.Lease{watched, extended, unlocked} {
			b.WantHolding(lease.Resource(), 0, 1, 2) // for the other Locker
		}
	})
	for _, ahead := range []time.Duration{-1000 * time.Hour, 1000 * time.Hour, 1<<63 - 1 - time.Hour} {
		locktest.Subtest(t, fmt.Sprintf("starts at %v", ahead), 3, func(t *testing.T, b *locktest.Bubble) {
			clock := locktest.NewJumpClock()
			clock.Jump(ahead)
			l := b.WarmLocker(redlock.WithClock(clock))
			lease := b.Lock(l, "r")
			locktest.WantValidity(t, lease, locktest.Validity)
			time.Sleep(time.Minute)
			locktest.Must(t, context.Cause(lease.Context()))
			b.Unlock(lease)
		})
	}
}

// Do gives its function a context that ends with the caller's or with the lease, and unlocks in any case.
//
// Source: ALGORITHM section 7; the doc comment of Locker.Do.
func TestVirtualDo(t *testing.T) {
	type ctxKey struct{}
	errWork := errors.New("work failed")
	locktest.Subtest(t, "the function's context, and its error alone", 3, func(t *testing.T, b *locktest.Bubble) {
		ctx, end := context.WithTimeout(context.WithValue(t.Context(), ctxKey{}, "v"), time.Minute)
		defer end()
		ends, _ := ctx.Deadline()
		ctx, cancel := context.WithCancelCause(ctx)
		var inner context.Context
		gone := errors.New("the user went away")
		err := b.WarmLocker().Do(ctx, "r", func(ctx context.Context, lease *redlock.Lease) error {
			inner = ctx
			if at, ok := ctx.Deadline(); ctx.Value(ctxKey{}) != "v" || !ok || !at.Equal(ends) {
				t.Errorf("got the value %v and the deadline %v, %v, want those of the caller", ctx.Value(ctxKey{}), at, ok)
			}
			cancel(gone)
			locktest.WantDone(t, ctx, []error{gone}, redlock.ErrLost)
			locktest.Must(t, lease.Err()) // only the caller's context ended
			return errWork
		})
		if err != errWork || inner.Err() == nil {
			t.Errorf("Do: got %v, context %v, want the function's error as it is, and an ended context", err, inner.Err())
		}
		b.WantHolding("r")
	})
	locktest.Subtest(t, "the caller's deadline is told as such, every time", 1, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		for i := range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			err := l.Do(ctx, "r", func(ctx context.Context, _ *redlock.Lease) error {
				<-ctx.Done()
				return ctx.Err()
			})
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("call %d: got %v from the context, want DeadlineExceeded", i+1, err)
			}
		}
	})
	locktest.Subtest(t, "a lease that is lost", 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		start := time.Now()
		err := l.Do(t.Context(), "r", func(ctx context.Context, _ *redlock.Lease) error {
			b.All((*virtual.Node).Blackhole)
			locktest.WantDone(t, ctx, []error{redlock.ErrLost, reason.Expired})
			locktest.WantSince(t, "end of the context", start, locktest.Validity-locktest.Lead)
			return errWork
		})
		locktest.WantMatch(t, "Do", err, []error{errWork, redlock.ErrLost, reason.Expired})
		if joined, ok := err.(interface{ Unwrap() []error }); !ok || joined.Unwrap()[0] != errWork {
			t.Errorf("Do: got %v, want the function's error first", err)
		}
	})
	locktest.Subtest(t, "a lease that is lost unnoticed", 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker(redlock.WithoutRenewal())
		err := l.Do(t.Context(), "r", func(context.Context, *redlock.Lease) error {
			time.Sleep(time.Minute)
			return nil
		})
		locktest.WantMatch(t, "Do", err, []error{redlock.ErrLost, reason.Expired})
	})
	locktest.Subtest(t, "a panic", 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		func() {
			defer func() {
				if got := recover(); got != "oops" {
					t.Errorf("panic: got %v, want oops", got)
				}
			}()
			_ = l.Do(t.Context(), "r", func(context.Context, *redlock.Lease) error { panic("oops") })
		}()
		b.WantHolding("r")
	})
}

// A call with the context of a lease is distinguished from other callers: with WithReentry it gets
// another handle, without it an error in place of a deadlock.
//
// Source: the doc comment of WithReentry.
func TestVirtualReentry(t *testing.T) {
	locktest.Subtest(t, "without the option", 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		lease := b.Lock(l, "r")
		derived, cancel := context.WithTimeout(lease.Context(), time.Minute)
		defer cancel()
		_, err := l.Lock(derived, "r")
		locktest.WantMatch(t, "Lock", err, []error{redlock.ErrReentry}, redlock.ErrNotAcquired)
		_, err = l.TryLock(derived, "r")
		locktest.WantMatch(t, "TryLock", err, []error{redlock.ErrReentry}, redlock.ErrNotAcquired)
		_, err = l.Lock(context.WithoutCancel(derived), "r") // of a job that a handler leaves behind
		locktest.WantMatch(t, "Lock of a job", err, []error{redlock.ErrReentry}, redlock.ErrNotAcquired)
		if want := "needs a context that does not descend from it"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Lock of a job: got %v, want %q in it", err, want)
		}
		err = l.Do(t.Context(), "s", func(ctx context.Context, _ *redlock.Lease) error {
			return l.Do(ctx, "s", func(context.Context, *redlock.Lease) error { return nil })
		})
		locktest.WantMatch(t, "Do in Do", err, []error{redlock.ErrReentry})
		if want := `redlock: lock "s": resource already held`; !strings.HasPrefix(err.Error(), want) {
			t.Errorf("Do in Do: got %v, want %q in front: other packages take locks by TryLock", err, want)
		}
		locktest.Must(t, lease.Extend(t.Context()))
		b.WantHolding("r", 0, 1, 2)
		b.Unlock(lease)
		b.WantHolding("r")
	})
	locktest.Subtest(t, "LockAny takes no resource of its name", 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		lease := b.Lock(l, "r")
		any, err := l.LockAny(lease.Context(), "r", 2)
		locktest.Must(t, err)
		b.Unlock(any)
		b.WantHolding("r", 0, 1, 2)
		b.Unlock(lease)
	})
	locktest.Subtest(t, "the holds are counted", 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker(redlock.WithReentry())
		outer := b.Lock(l, "r")
		inner, err := l.Lock(outer.Context(), "r")
		locktest.Must(t, err)
		innermost, err := l.TryLock(inner.Context(), "r")
		locktest.Must(t, err)
		if inner.Fence() != outer.Fence() || innermost.Token() != outer.Token() {
			t.Errorf("inner handles: got fence %d, token %s, want %d, %s", inner.Fence(), innermost.Token(), outer.Fence(), outer.Token())
		}
		b.Unlock(inner)
		locktest.WantMatch(t, "unlocking it twice", inner.Unlock(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrReleased})
		locktest.WantMatch(t, "extending it", inner.Extend(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrReleased})
		if outer.Validity() <= 0 || outer.Context().Err() != nil || inner.Validity() > 0 {
			t.Errorf("validity: got %v outside and %v inside, want some and none", outer.Validity(), inner.Validity())
		}
		b.Unlock(outer)
		b.WantHolding("r", 0, 1, 2)
		time.Sleep(time.Minute) // the last handle keeps the lease renewed
		locktest.Must(t, innermost.Extend(t.Context()))
		b.Unlock(innermost)
		b.WantHolding("r")
		locktest.WantMatch(t, "unlocking once more", outer.Unlock(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrReleased})
	})
	locktest.Subtest(t, "other resources and other Lockers are asked for as usual", 3, func(t *testing.T, b *locktest.Bubble) {
		l, other := b.WarmLocker(redlock.WithReentry()), b.WarmLocker(redlock.WithReentry())
		r := b.Lock(l, "r")
		s, err := l.TryLock(r.Context(), "s")
		locktest.Must(t, err)
		again, err := l.TryLock(s.Context(), "r")
		if err != nil || again.Token() != r.Token() {
			t.Errorf("TryLock(r) inside s inside r: got %v, want a handle of r", err)
		}
		_, err = other.TryLock(s.Context(), "r")
		locktest.WantMatch(t, "TryLock(r) of another Locker", err, []error{redlock.ErrNotAcquired, redlock.ErrTaken})
		_, err = l.TryLock(t.Context(), "r")
		locktest.WantMatch(t, "TryLock(r) outside", err, []error{redlock.ErrNotAcquired, redlock.ErrTaken})
	})
	locktest.Subtest(t, "when the lease is over", 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker(redlock.WithReentry())
		first := b.Lock(l, "r")
		inside := context.WithoutCancel(first.Context())
		b.Unlock(first)
		second, err := l.TryLock(inside, "r")
		locktest.Must(t, err)
		if second.Token() == first.Token() || second.Fence() <= first.Fence() {
			t.Errorf("TryLock after Unlock: got token %s and fence %d, want a new lease", second.Token(), second.Fence())
		}
		b.Unlock(second)
		_, err = l.TryLock(first.Context(), "r")
		locktest.WantMatch(t, "TryLock with the lease's own context", err, []error{redlock.ErrNotAcquired, context.Canceled, redlock.ErrReleased})
	})
	locktest.Subtest(t, "a lost lease ends all handles", 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker(redlock.WithReentry(), redlock.WithoutRenewal())
		outer := b.Lock(l, "r")
		inner, err := l.TryLock(outer.Context(), "r")
		locktest.Must(t, err)
		a, c := outer.Context(), inner.Context()
		time.Sleep(locktest.TTL)
		for _, ctx := range []context.Context{a, c} {
			locktest.WantDone(t, ctx, []error{redlock.ErrLost, reason.Expired})
		}
		locktest.WantMatch(t, "Unlock inside", inner.Unlock(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrLost})
		locktest.WantMatch(t, "Unlock outside", outer.Unlock(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrLost})
	})
}

// A call whose deadline comes before the masters have their votes does not wait for the deadline. A call
// whose deadline comes later waits for the votes.
//
// Source: ALGORITHM section 8.
func TestVirtualDeadlineBeforeTheVotes(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		b.Each((*virtual.Node).RestartEmpty, 0, 1)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := l.Lock(ctx, "r")
		locktest.WantMatch(t, "Lock", err, []error{redlock.ErrNotAcquired, redlock.ErrNoQuorum, redlock.ErrQuarantine}, context.DeadlineExceeded)
		locktest.WantWithin(t, "Lock", start, 2*time.Second) // until the masters are connected to
		var refused *redlock.QuorumError
		if !errors.As(err, &refused) || refused.Masters[0].Quarantine < 8*time.Second {
			t.Errorf("got %v, want the time left of the quarantine", err)
		}
		longer, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		lease, err := l.Lock(longer, "r")
		locktest.Must(t, err)
		b.Unlock(lease)
	})
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) { // the third master may come back with its vote
		l := b.WarmLocker()
		b.Each((*virtual.Node).RestartEmpty, 0)
		b.Nodes[1].Kill()
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()
		w := b.Wait(ctx, l)
		time.Sleep(3 * time.Second)
		b.Nodes[1].Heal()
		b.Unlock(b.Got(w))
	})
}

// Leases are not lost in silence, and their number makes no noise: the log has when they end, how many were lost
// and why, and the first grant after the outage.
func TestVirtualLossesAreLogged(t *testing.T) {
	const leases = 100
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		said := new(locktest.Records)
		l := b.WarmLocker(redlock.WithLogger(slog.New(said)))
		for i := range leases {
			b.Lock(l, fmt.Sprint("stock-", i))
		}
		b.Each((*virtual.Node).Hang, 0, 1)
		time.Sleep(5 * time.Second)
		ending := said.With("renewals find no quorum")
		if len(ending) != 1 || ending[0]["leases"] != int64(leases) || ending[0]["level"] != slog.LevelWarn ||
			ending[0]["first_ends_in"].(time.Duration) < 5*time.Second || ending[0]["last_ends_in"].(time.Duration) > 7*time.Second {
			t.Errorf("after 5 s: got %v, want one warning with %d leases that end in about 6 s", ending, leases)
		}
		time.Sleep(10 * time.Second)
		lost := said.With("lease lost")
		if len(lost) != 2 || lost[1]["more"] != int64(leases-2) || !strings.Contains(fmt.Sprint(lost[0]["error"]), "validity ran out") {
			t.Errorf("after 15 s: got %v, want two lines that count %d leases, with the reason", lost, leases)
		}
		b.Each((*virtual.Node).Resume, 0, 1)
		time.Sleep(locktest.Reconnect)
		before := said.With("masters votes")
		b.Unlock(b.Lock(l, "r"))
		time.Sleep(time.Second)
		if after := said.With("masters votes"); len(before) != 0 || len(after) != 1 || after[0]["after"].(time.Duration) < 11*time.Second {
			t.Errorf("got %v before the first grant and %v after it, want one line after it, with the length of the outage", before, after)
		}
		if warnings := slices.DeleteFunc(said.List(), func(line map[string]any) bool { return line["level"].(slog.Level) < slog.LevelInfo }); len(warnings) > 25 {
			t.Errorf("got %d lines, want at most 25: %v", len(warnings), warnings)
		}
	})
}

// An outage is logged, once, if all that callers know of their resources is that other processes have them.
func TestVirtualOutageOfTakenLocksIsLogged(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		said := new(locktest.Records)
		other, l := b.WarmLocker(), b.WarmLocker(redlock.WithLogger(slog.New(said)))
		ctx, cancel := context.WithCancel(t.Context())
		var waiters []*locktest.Waiter
		for i := range 20 {
			r := fmt.Sprint("r", i)
			b.Lock(other, r)
			waiters = append(waiters, b.WaitFor(ctx, l, r))
			time.Sleep(50 * time.Millisecond)
		}
		b.Each((*virtual.Node).Kill, 0, 1)
		time.Sleep(25 * time.Second)
		if n, ends := len(said.With("no quorum")), len(said.With("masters votes")); n != 1 || ends != 0 {
			t.Errorf("in the outage: got %d warnings and %d lines about its end, want 1 and 0", n, ends)
		} else if text := fmt.Sprint(said.With("no quorum")[0]["masters"]); strings.Count(text, "refused") != 2 || strings.Contains(text, b.Nodes[2].Addr()) {
			t.Errorf("masters in the warning: got %s, want the two that are down", text)
		}
		b.All((*virtual.Node).Heal)
		time.Sleep(5 * time.Second)
		if n, ends := len(said.With("no quorum")), len(said.With("masters votes")); n != 1 || ends != 1 {
			t.Errorf("after the outage: got %d warnings and %d lines about its end, want 1 and 1", n, ends)
		}
		cancel()
		for _, w := range waiters {
			<-w.Done
		}
	})
}

// A quarantine that lasts longer than the masters had said, as their clocks are wrong, is logged again.
func TestVirtualEndlessQuarantineIsLoggedAgain(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		said := new(locktest.Records)
		l := b.WarmLocker(redlock.WithLogger(slog.New(said)))
		for i, wrong := range []time.Duration{-time.Hour, time.Hour} {
			b.Nodes[i].RestartEmpty()
			b.Nodes[i].RunClock(1, wrong)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		_, err := l.Lock(ctx, "r")
		locktest.WantMatch(t, "Lock", err, []error{redlock.ErrQuarantine})
		list := said.With("masters in quarantine")
		if len(list) < 4 || len(list) > 14 {
			t.Errorf("in 2 minutes: got %d lines, want one each 20 s for each of two masters or both", len(list))
		}
	})
}

// A Lock without a deadline does not wait in silence: the log is told once that no quorum answers, and
// once that it does again.
func TestVirtualOutageIsLogged(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		said := new(locktest.Records)
		l := b.WarmLocker(redlock.WithLogger(slog.New(said)))
		silent := func() []map[string]any { return append(said.With("no quorum"), said.With("masters votes")...) }
		b.Each((*virtual.Node).Kill, 0, 1)
		_, err := l.TryLock(t.Context(), "r")
		locktest.WantMatch(t, "TryLock", err, []error{redlock.ErrNoQuorum})
		b.All((*virtual.Node).Heal)
		time.Sleep(locktest.Reconnect)
		b.Unlock(b.Lock(l, "r"))
		if list := silent(); len(list) != 0 {
			t.Errorf("one attempt without a quorum: got %v, want nothing", list)
		}
		b.Each((*virtual.Node).Kill, 0, 1)
		w := b.Wait(t.Context(), l)
		time.Sleep(900 * time.Millisecond)
		if list := silent(); len(list) != 0 {
			t.Errorf("after 0.9 s: got %v, want nothing", list)
		}
		time.Sleep(10 * time.Second)
		list := said.With("no quorum")
		if len(list) != 1 || list[0]["level"] != slog.LevelWarn || !strings.Contains(fmt.Sprint(list[0]["masters"]), b.Nodes[0].Addr()+": ") {
			t.Errorf("after 10.9 s: got %v, want one warning with the masters", list)
		}
		b.All((*virtual.Node).Heal)
		b.Unlock(b.Got(w))
		if list := said.With("masters votes"); len(list) != 1 || list[0]["level"] != slog.LevelInfo {
			t.Errorf("after the outage: got %v, want one line", list)
		}
	})
}
