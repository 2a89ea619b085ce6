package guard_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/door"
	"github.com/d0720281/redlock/internal/inside"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/internal/virtual"
)

// Settings are the defaults, then the options of New, then those of the call.
func TestSettings(outer *testing.T) {
	t := redistest.Timed(outer)
	const quarantine = 10300 * time.Millisecond
	plain := locktest.Open(t, []string{"127.0.0.1:1"})
	set := locktest.Open(t, []string{"127.0.0.1:1"}, redlock.WithTTL(4*time.Second), redlock.WithMasterTimeout(70*time.Millisecond), redlock.WithGrace(time.Second), redlock.WithReentry())
	for _, test := range []struct {
		name   string
		locker *redlock.Locker
		opts   []redlock.LockOption
		want   door.Settings
	}{
		{"defaults", plain, nil, door.Settings{TTL: 10 * time.Second, MasterTimeout: 250 * time.Millisecond, Quarantine: quarantine, Renewed: true}},
		{"options of the call", plain, []redlock.LockOption{redlock.WithTTL(time.Second), redlock.WithoutRenewal(), redlock.WithReentry(), redlock.Shared()},
			door.Settings{TTL: time.Second, MasterTimeout: 100 * time.Millisecond, Quarantine: quarantine, Reentry: true, Shared: true}},
		{"options of New", set, nil,
			door.Settings{TTL: 4 * time.Second, MasterTimeout: 70 * time.Millisecond, Quarantine: quarantine, Grace: time.Second, Renewed: true, Reentry: true}},
		{"options of both", set, []redlock.LockOption{redlock.WithMaxHold(time.Minute), redlock.WithGrace(0), redlock.WithQuarantineWait(time.Second)},
			door.Settings{TTL: 4 * time.Second, MasterTimeout: 70 * time.Millisecond, Quarantine: quarantine, QuarantineWait: time.Second, MaxHold: time.Minute, Renewed: true, Reentry: true}},
	} {
		got, err := inside.Of(test.locker).Settings(test.opts...)
		if got.Clock == nil || got.Owner == "" || got.MaxTTL != redlock.DefaultMaxTTL {
			t.Errorf("%s: got clock %v, owner %q, largest TTL %v; want defaults", test.name, got.Clock, got.Owner, got.MaxTTL)
		}
		got.Clock, got.Owner, got.MaxTTL = nil, "", 0
		if err != nil || got != test.want {
			t.Errorf("%s: got %+v, %v, want %+v", test.name, got, err, test.want)
		}
	}
	for name, opts := range map[string][]redlock.LockOption{
		"nil":                   {nil},
		"a TTL over WithMaxTTL": {redlock.WithTTL(time.Hour)},
	} {
		got, err := inside.Of(plain).Settings(opts...)
		locktest.WantMatch(t, name, err, []error{redlock.ErrConfig})
		if got != (door.Settings{}) {
			t.Errorf("%s: got %+v, want the zero value", name, got)
		}
	}
}

// A context of Within ends with the lease, or with its parent context.
func TestVirtualWithin(t *testing.T) {
	type key struct{}
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		lease := b.Lock(l, "r")
		outer, cancelOuter := context.WithTimeoutCause(context.WithValue(t.Context(), key{}, "value"), time.Minute, errors.New("late"))
		defer cancelOuter()

		ctx, cancel := lease.Within(outer)
		if ctx.Err() != nil || ctx.Value(key{}) != "value" {
			t.Errorf("got error %v, value %v, want none, and that of the outer context", ctx.Err(), ctx.Value(key{}))
		}
		got, ok := ctx.Deadline()
		if want, _ := outer.Deadline(); !ok || !got.Equal(want) {
			t.Errorf("deadline: got %v, %t, want that of the outer context", got, ok)
		}
		_, err := l.Lock(ctx, "r")
		locktest.WantMatch(t, "Lock inside", err, []error{redlock.ErrReentry})
		cancel()
		locktest.WantDone(t, ctx, []error{context.Canceled}, redlock.ErrLost, redlock.ErrReleased)
		locktest.Must(t, lease.Err())

		start := time.Now()
		ctx, cancel = lease.Within(outer)
		defer cancel()
		<-ctx.Done()
		locktest.WantSince(t, "the end of the outer context", start, time.Minute)
		if cause := context.Cause(ctx); ctx.Err() != context.DeadlineExceeded || cause == nil || cause.Error() != "late" {
			t.Errorf("got %v because of %v, want it as the outer context has it", ctx.Err(), cause)
		}

		ctx, cancel = lease.Within(t.Context())
		defer cancel()
		b.All((*virtual.Node).Blackhole)
		locktest.WantDone(t, ctx, []error{redlock.ErrLost, reason.Expired})
		ctx, cancel = lease.Within(t.Context())
		defer cancel()
		if ctx.Err() == nil {
			t.Error("got a context of a lease that is over, and the context goes on")
		}
		locktest.WantDone(t, ctx, []error{redlock.ErrLost, reason.Expired})
	})
}

// The channel of Done is closed when Close is called, not when it returns.
func TestVirtualDone(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		b.Lock(l, "r")
		select {
		case <-inside.Of(l).Done():
			t.Error("got an end before Close")
		default:
		}
		b.All((*virtual.Node).Hang) // so that Close takes a while
		closed := make(chan struct{})
		go func() { _ = l.Close(); close(closed) }()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("Close has returned, want it to wait")
		default:
		}
		select {
		case <-inside.Of(l).Done():
		default:
			t.Error("got no end while Close runs")
		}
		_, err := l.TryLock(t.Context(), "r")
		locktest.WantMatch(t, "TryLock", err, []error{redlock.ErrClosed})
		<-closed
	})
}

// The logger is that of the Locker.
func TestLogger(outer *testing.T) {
	t := redistest.Timed(outer)
	logger, text := locktest.LogText()
	l := locktest.Open(t, []string{"127.0.0.1:1"}, redlock.WithLogger(logger))
	inside.Of(l).Logger().With("a", 1).WithGroup("g").Warn("told", "b", 2)
	if got := text(); !strings.Contains(got, "level=WARN msg=told a=1 g.b=2") {
		t.Errorf("log: got %q, want the line with its attributes", got)
	}
	inside.Of(locktest.Open(t, []string{"127.0.0.1:1"}, redlock.WithLogger(nil))).Logger().Warn("x")

	standard := slog.Default()
	t.Cleanup(func() { slog.SetDefault(standard) })
	l = locktest.Open(t, []string{"127.0.0.1:1"})
	general, text := locktest.LogText()
	slog.SetDefault(general)
	inside.Of(l).Logger().Warn("told", "b", 3)
	if got := text(); !strings.Contains(got, "msg=told b=3") {
		t.Errorf("log: got %q, want the line, as that is the default of the moment", got)
	}
}
