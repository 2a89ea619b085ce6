package redlock_test

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
)

// ender is a lease of any kind.
type ender interface {
	Unlock(ctx context.Context) error
}

// endable makes a lease of any kind out of a result.
func endable[L ender](lease L, err error) (ender, error) {
	if err != nil {
		return nil, err
	}
	return lease, nil
}

// Which holders may have a resource together, on real masters of which one is killed and one hangs: each
// pair of kinds, by one Locker and by two.
//
// Source: ALGORITHM sections 12, 13 and 14.
func TestConflicts(t *testing.T) {
	c := start(t, 5)
	l, other := open(t, c.addrs), open(t, c.addrs)
	reachAll(t, l, other)
	must(t, errors.Join(c.procs[0].Kill(), c.procs[1].Pause()))
	ctx := t.Context()
	type get = func(*redlock.Locker) (ender, error)
	kinds := map[string]get{
		"writer": func(l *redlock.Locker) (ender, error) { return endable(l.TryLock(ctx, "r")) },
		"reader": func(l *redlock.Locker) (ender, error) { return endable(l.TryRLock(ctx, "r")) },
		"writer that reads on": func(l *redlock.Locker) (ender, error) {
			lease, err := l.TryLock(ctx, "r")
			if err == nil {
				err = lease.Downgrade(ctx)
			}
			return endable(lease, err)
		},
		"several":      func(l *redlock.Locker) (ender, error) { return endable(l.TryLockAll(ctx, []string{"a", "r"})) },
		"permit":       func(l *redlock.Locker) (ender, error) { return endable(l.Semaphore("r", 2).TryAcquire(ctx, 1)) },
		"both permits": func(l *redlock.Locker) (ender, error) { return endable(l.Semaphore("r", 2).TryAcquire(ctx, 2)) },
	}
	isReader := map[string]bool{"reader": true, "writer that reads on": true}
	isPermit := map[string]bool{"permit": true, "both permits": true}
	for has, first := range kinds {
		for wants, second := range kinds {
			together := isReader[has] && wants == "reader" || isPermit[has] != isPermit[wants] || has == "permit" && wants == "permit"
			for where, by := range map[string]*redlock.Locker{"same Locker": l, "another Locker": other} {
				t.Run(has+", "+wants+", "+where, func(t *testing.T) {
					held, err := first(l)
					must(t, err)
					next, err := second(by)
					if together && err != nil || !together && !errors.Is(err, redlock.ErrTaken) {
						t.Errorf("got %v, want them together: %v", err, together)
					}
					if before, is := held.(*redlock.Lease); is && next != nil && !isPermit[wants] {
						if after := next.(*redlock.Lease); after.Fence() < before.Fence() {
							t.Errorf("got fence %d after %d", after.Fence(), before.Fence())
						}
					}
					if next != nil {
						must(t, next.Unlock(ctx))
					}
					must(t, held.Unlock(ctx))
				})
			}
		}
	}
}

// Readers and writers of several Lockers all get their turns, and no writer is beside another holder,
// while one master is killed and one hangs. A store that checks tokens refuses no holder.
//
// Source: ALGORITHM section 13; section 15, I1, I2 and I15.
func TestReadersAndWritersTakeTurns(t *testing.T) {
	const lockers, readers, turns = 3, 4, 12
	c := start(t, 5)
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
		l := open(t, c.addrs)
		for k := range readers + 1 {
			rng := rand.New(rand.NewPCG(uint64(i), uint64(k)))
			done.Go(func() {
				for turn := range turns {
					if i == 0 && k == 0 && turn == turns/3 {
						if err := errors.Join(c.procs[0].Kill(), c.procs[1].Pause()); err != nil {
							t.Error(err)
						}
					}
					began := written.Load()
					get := l.RLock
					if k == 0 {
						get = l.Lock
					}
					le, err := get(ctx, "r")
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
							if err := le.Downgrade(ctx); err != nil {
								t.Errorf("Downgrade: %v", err)
							}
							reading(le, began)
						}
					}
					if err := le.Unlock(ctx); err != nil {
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
	l := open(t, []string{"127.0.0.1:1"})
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
		_, lockErr := l.RLock(test.ctx, test.resource, test.opts...)
		_, tryErr := l.TryRLock(test.ctx, test.resource, test.opts...)
		doErr := l.RDo(test.ctx, test.resource, func(context.Context, *redlock.Lease) error { return nil }, test.opts...)
		for _, err := range []error{lockErr, tryErr, doErr} {
			if !errors.Is(err, redlock.ErrConfig) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want ErrConfig with %q", err, test.want)
			}
		}
	}
	if err := l.RDo(t.Context(), "r", nil); !errors.Is(err, redlock.ErrConfig) {
		t.Errorf("RDo without a function: got %v, want ErrConfig", err)
	}
}

// RDo and a lease of a reader, on real masters.
func TestRDo(t *testing.T) {
	c := start(t, 3)
	l, other := open(t, c.addrs, redlock.WithOwner("reader 1")), open(t, c.addrs)
	oops := errors.New("oops")
	err := l.RDo(t.Context(), "r", func(ctx context.Context, le *redlock.Lease) error {
		var refused *redlock.QuorumError
		if _, err := other.TryLock(ctx, "r"); !errors.As(err, &refused) || !errors.Is(err, redlock.ErrTaken) {
			return fmt.Errorf("TryLock beside a reader: %w", err)
		}
		if owner, left := refused.Holder(); owner != "reader 1" || left <= 0 {
			return fmt.Errorf("got owner %q and %v left", owner, left)
		}
		in, err := other.Inspect(ctx, "r")
		if err != nil || in.Verdict != redlock.VerdictShared || len(in.Readers) != 1 || in.Readers[0].Token != le.Token() || in.Readers[0].Owner != "reader 1" {
			return fmt.Errorf("got %+v, %w", in, err)
		}
		found := 0
		for in, err := range other.List(ctx) {
			if err != nil {
				return err
			}
			if in.Verdict == redlock.VerdictShared {
				found++
			}
		}
		if found != 1 {
			return fmt.Errorf("List: got %d shared resources", found)
		}
		return oops
	})
	if !errors.Is(err, oops) {
		t.Error(err)
	}
	must(t, lock(t, other, "r").Unlock(t.Context()))
	c.empty(t, "redlock:r")
	c.empty(t, "redlock:r~readers")
}
