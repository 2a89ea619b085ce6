package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/inside"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/virtual"
	"github.com/d0720281/redlock/several"
)

// The start value of the holder's clock does not matter.
//
// Source: ALGORITHM sections 7 and 11.
func TestVirtualClockOfTheHolder(t *testing.T) {
	for _, ahead := range []time.Duration{-1000 * time.Hour, 1000 * time.Hour, 1<<63 - 1 - time.Hour} {
		locktest.Subtest(t, fmt.Sprintf("starts at %v", ahead), 3, func(t *testing.T, b *locktest.Bubble) {
			clock := locktest.NewJumpClock()
			clock.Jump(ahead)
			l := b.WarmLocker(inside.WithClock(clock))
			lease := b.Lock(l, "r")
			locktest.WantValidity(t, lease, locktest.Validity)
			time.Sleep(time.Minute)
			locktest.Must(t, context.Cause(lease.Context()))
			b.Unlock(lease)
		})
	}
}

// No look at the context of a lease says nil after the end, though no goroutine of the library has run since.
//
// Source: ALGORITHM section 7.
func TestVirtualContextIsExact(t *testing.T) {
	within := func(ctx context.Context, _ context.CancelFunc) context.Context { return ctx }
	for name, of := range map[string]func(*redlock.Lease, *several.Lease) context.Context{
		"Context": func(one *redlock.Lease, _ *several.Lease) context.Context { return one.Context() },
		"Within": func(one *redlock.Lease, _ *several.Lease) context.Context {
			return within(one.Within(within(one.Within(context.Background()))))
		},
		"Context of several": func(_ *redlock.Lease, all *several.Lease) context.Context { return all.Context() },
		"Within of several": func(_ *redlock.Lease, all *several.Lease) context.Context {
			return within(all.Within(context.Background()))
		},
	} {
		locktest.Subtest(t, name, 3, func(t *testing.T, b *locktest.Bubble) {
			clock := locktest.NewJumpClock()
			l := b.WarmLocker(inside.WithClock(clock))
			one := b.Lock(l, "r")
			all, err := several.Lock(t.Context(), l, several.Names{Write: []string{"a", "b"}})
			locktest.Must(t, err)
			ctx := of(one, all)
			clock.Jump(locktest.Validity - redlock.DefaultTTL/50 - 1)
			locktest.Must(t, ctx.Err())
			clock.Jump(1)
			if ctx.Err() == nil {
				t.Error("got no error at the end")
			}
			locktest.WantMatch(t, "cause", context.Cause(ctx), []error{redlock.ErrLost, reason.Expired})
			if _, open := <-ctx.Done(); open {
				t.Error("got a Done that is open, want it closed")
			}
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
