package sharing_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/locktest"
)

// Which holders may have a resource together, on real masters of which one is killed and one hangs: each
// pair of kinds, by one Locker and by two.
//
// Source: ALGORITHM section 12.
func TestConflicts(t *testing.T) {
	c := locktest.Start(t, 5)
	patient := redlock.WithMasterTimeout(2 * time.Second) // all masters that are left have to answer
	l, other := locktest.Open(t, c.Addrs, patient), locktest.Open(t, c.Addrs, patient)
	locktest.ReachAll(t, l, other)
	locktest.Must(t, errors.Join(c.Procs[0].Kill(), c.Procs[1].Pause()))
	ctx := t.Context()
	type get = func(*redlock.Locker) (*redlock.Lease, error)
	kinds := map[string]get{
		"writer": func(l *redlock.Locker) (*redlock.Lease, error) { return l.TryLock(ctx, "r") },
		"reader": func(l *redlock.Locker) (*redlock.Lease, error) { return l.TryLock(ctx, "r", redlock.Shared()) },
		"writer that reads on": func(l *redlock.Locker) (*redlock.Lease, error) {
			lease, err := l.TryLock(ctx, "r")
			if err == nil {
				err = lease.Downgrade(ctx)
			}
			return lease, err
		},
	}
	isReader := map[string]bool{"reader": true, "writer that reads on": true}
	for has, first := range kinds {
		for wants, second := range kinds {
			together := isReader[has] && wants == "reader"
			for where, by := range map[string]*redlock.Locker{"same Locker": l, "another Locker": other} {
				t.Run(has+", "+wants+", "+where, func(t *testing.T) {
					held, err := first(l)
					locktest.Must(t, err)
					next, err := second(by)
					if together && err != nil || !together && !errors.Is(err, redlock.ErrTaken) {
						t.Errorf("got %v, want them together: %v", err, together)
					}
					if next != nil && next.Fence() < held.Fence() {
						t.Errorf("got fence %d after %d", next.Fence(), held.Fence())
					}
					if next != nil {
						locktest.Must(t, next.Unlock(ctx))
					}
					locktest.Must(t, held.Unlock(ctx))
				})
			}
		}
	}
}

// Readers and writers of several Lockers all get their turns, and no writer is beside another holder,
// while one master is killed and one hangs. A store that checks tokens refuses no holder.
//
// Source: ALGORITHM section 12; section 13, I1, I2 and I14.
func TestReadersAndWritersTakeTurns(t *testing.T) {
	const lockers, readers, turns = 3, 4, 12
	c := locktest.Start(t, 5)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var done sync.WaitGroup
	var inside, written, most, problems atomic.Int64 // inside: readers count 1, a writer counts 1000
	check := func(ok bool, format string, args ...any) {
		if !ok && problems.Add(1) < 5 {
			t.Errorf(format, args...)
		}
	}
	reading := func(le *redlock.Lease, began int64) {
		n := inside.Add(1)
		check(n < 1000, "a reader beside a writer")
		if n > most.Load() {
			most.Store(n)
		}
		w := written.Load()
		check(le.Fence() >= began && le.Fence() >= w, "a reader with token %d after %d of a writer", le.Fence(), w)
		time.Sleep(time.Millisecond)
		inside.Add(-1)
	}
	for i := range lockers {
		l := locktest.Open(t, c.Addrs)
		for k := range readers + 1 {
			rng := rand.New(rand.NewPCG(uint64(i), uint64(k)))
			done.Go(func() {
				for turn := range turns {
					if i == 0 && k == 0 && turn == turns/3 {
						if err := errors.Join(c.Procs[0].Kill(), c.Procs[1].Pause()); err != nil {
							t.Error(err)
						}
					}
					began := written.Load()
					mode := []redlock.LockOption{redlock.Shared()}
					if k == 0 {
						mode = nil
					}
					le, err := l.Lock(ctx, "r", mode...)
					if err != nil {
						t.Errorf("Locker %d, caller %d: %v", i, k, err)
						return
					}
					if k > 0 {
						reading(le, began)
					} else {
						check(inside.Add(1000) == 1000, "a writer beside another holder")
						check(le.Fence() > written.Load(), "a writer with token %d after %d", le.Fence(), written.Load())
						written.Store(le.Fence())
						time.Sleep(time.Millisecond)
						inside.Add(-1000)
						if rng.IntN(2) == 0 {
							// The quorum is all that are left, and may be late, here and in Unlock.
							if err := le.Downgrade(ctx); err != nil && !errors.Is(err, redlock.ErrNoQuorum) {
								t.Errorf("Downgrade: %v", err)
							}
							reading(le, began)
						}
					}
					if err := le.Unlock(ctx); err != nil && !errors.Is(err, redlock.ErrNoQuorum) {
						t.Errorf("Locker %d, caller %d: Unlock: %v", i, k, err)
					}
				}
			})
		}
	}
	done.Wait()
	if most.Load() < 2 {
		t.Errorf("got %d readers together at most, or little was tested", most.Load())
	}
	t.Logf("%d readers together at most", most.Load())
}

// What is wrong with the arguments is told before any node is asked.
func TestReadersRefused(t *testing.T) {
	l := locktest.Open(t, []string{"127.0.0.1:1"})
	var none context.Context
	for _, test := range []struct {
		ctx      context.Context
		resource string
		opts     []redlock.LockOption
		want     string
	}{
		{none, "r", nil, "ctx is nil"},
		{t.Context(), "", nil, "the resource is empty"},
		{t.Context(), "r~readers", nil, `ends in "~readers"`},
		{t.Context(), "r", []redlock.LockOption{redlock.WithTTL(0)}, "WithTTL(0s)"},
	} {
		_, lockErr := l.Lock(test.ctx, test.resource, append(test.opts, redlock.Shared())...)
		_, tryErr := l.TryLock(test.ctx, test.resource, append(test.opts, redlock.Shared())...)
		doErr := l.Do(test.ctx, test.resource, func(context.Context, *redlock.Lease) error { return nil }, append(test.opts, redlock.Shared())...)
		for _, err := range []error{lockErr, tryErr, doErr} {
			if !errors.Is(err, redlock.ErrConfig) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want ErrConfig with %q", err, test.want)
			}
		}
	}
	if err := l.Do(t.Context(), "r", nil, redlock.Shared()); !errors.Is(err, redlock.ErrConfig) {
		t.Errorf("Do without a function: got %v, want ErrConfig", err)
	}
}

// Do with a lease of a reader, on real masters.
func TestDoShared(t *testing.T) {
	c := locktest.Start(t, 3)
	l, other := locktest.Open(t, c.Addrs, redlock.WithOwner("reader 1")), locktest.Open(t, c.Addrs)
	oops := errors.New("oops")
	err := l.Do(t.Context(), "r", func(ctx context.Context, le *redlock.Lease) error {
		var refused *redlock.QuorumError
		if _, err := other.TryLock(ctx, "r"); !errors.As(err, &refused) || !errors.Is(err, redlock.ErrTaken) {
			return fmt.Errorf("TryLock beside a reader: %w", err)
		}
		if owner, left := refused.Holder(); owner != "reader 1" || left <= 0 {
			return fmt.Errorf("got owner %q and %v left", owner, left)
		}
		in, err := admin.Inspect(ctx, other, "r")
		if err != nil || in.Verdict != admin.VerdictShared || len(in.Readers) != 1 || in.Readers[0].Token != le.Token() || in.Readers[0].Owner != "reader 1" {
			return fmt.Errorf("got %+v, %w", in, err)
		}
		found := 0
		for in, err := range admin.List(ctx, other) {
			if err != nil {
				return err
			}
			if in.Verdict == admin.VerdictShared {
				found++
			}
		}
		if found != 1 {
			return fmt.Errorf("List: got %d shared resources", found)
		}
		return oops
	}, redlock.Shared())
	if !errors.Is(err, oops) {
		t.Error(err)
	}
	locktest.Must(t, locktest.Lock(t, other, "r").Unlock(t.Context()))
	c.Empty(t, "redlock:r")
	c.Empty(t, "redlock:r~readers")
}
