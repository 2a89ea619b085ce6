package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/redistest"
)

// holding returns which of some resources a node has a key of.
func (c *cluster) holding(node int, resources ...string) (held []string) {
	for _, r := range resources {
		if c.nodes[node].Exists(context.Background(), "redlock:"+r).Val() == 1 {
			held = append(held, r)
		}
	}
	return held
}

// A lease on several resources has a token for each, keeps all others out, and ends on all.
//
// Source: ALGORITHM section 12.
func TestLockAll(t *testing.T) {
	c := start(t, 3)
	l, rival := open(t, c.addrs, redlock.WithOwner("a")), open(t, c.addrs)
	m, err := l.LockAll(t.Context(), []string{"c", "a", "b", "a"})
	must(t, err)
	var names []string
	for _, p := range m.Parts() {
		names = append(names, p.Resource)
		if p.Fence <= 0 || p.Fence != m.Fence(p.Resource) || p.Token == "" {
			t.Errorf("got part %+v, fence %d", p, m.Fence(p.Resource))
		}
	}
	if !slices.Equal(names, []string{"a", "b", "c"}) || m.Fence("d") != 0 || m.Owner() != "a" || m.Err() != nil {
		t.Errorf("got parts %v, fence of another %d, owner %q, %v", names, m.Fence("d"), m.Owner(), m.Err())
	}
	if v := m.Validity(); v < redlock.DefaultTTL/2 || v > redlock.DefaultTTL {
		t.Errorf("got a validity of %v", v)
	}
	for _, r := range names {
		if _, err := rival.TryLock(t.Context(), r); !errors.Is(err, redlock.ErrTaken) {
			t.Errorf("%s: got %v, want ErrTaken", r, err)
		}
	}
	_, err = rival.TryLockAll(t.Context(), []string{"Z", "b", "z"})
	var refused *redlock.QuorumError
	if !errors.As(err, &refused) || !errors.Is(err, redlock.ErrTaken) || refused.Resource != "b" {
		t.Errorf("got %v, want that b is taken", err)
	}
	c.empty(t, "redlock:Z")
	c.empty(t, "redlock:z")
	must(t, m.Extend(t.Context()))
	must(t, m.Unlock(t.Context()))
	for _, r := range names {
		c.empty(t, "redlock:"+r)
	}
	if cause := context.Cause(m.Context()); !errors.Is(cause, redlock.ErrReleased) || !errors.Is(m.Err(), redlock.ErrReleased) || m.Validity() > 0 {
		t.Errorf("after Unlock: got cause %v, %v, validity %v", cause, m.Err(), m.Validity())
	}
	for what, err := range map[string]error{"Unlock": m.Unlock(t.Context()), "Extend": m.Extend(t.Context())} {
		if !errors.Is(err, redlock.ErrNotHeld) || !errors.Is(err, redlock.ErrReleased) {
			t.Errorf("%s after Unlock: got %v, want ErrNotHeld and ErrReleased", what, err)
		}
	}
	next, err := rival.TryLockAll(t.Context(), names)
	must(t, err)
	for _, r := range names {
		if next.Fence(r) <= m.Fence(r) {
			t.Errorf("%s: got fence %d after %d", r, next.Fence(r), m.Fence(r))
		}
	}
}

// What is wrong with the arguments is told before any node is asked.
func TestLockAllRefused(t *testing.T) {
	l := open(t, []string{"127.0.0.1:1"})
	many := make([]string, redlock.MaxResources+1)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	var none context.Context
	for _, test := range []struct {
		name  string
		ctx   context.Context
		names []string
		opts  []redlock.LockOption
		want  string
	}{
		{"no names", t.Context(), nil, nil, "0 resources: must be from 1 to 64"},
		{"too many names", t.Context(), many, nil, "65 resources: must be from 1 to 64"},
		{"an empty name", t.Context(), []string{"a", ""}, nil, "the resource is empty"},
		{"a key of the library", t.Context(), []string{"a", "a~fence"}, nil, `ends in "~fence"`},
		{"a long name", t.Context(), []string{"a", strings.Repeat("a", 513)}, nil, "513 bytes"},
		{"no context", none, []string{"a"}, nil, "ctx is nil"},
		{"re-entry", t.Context(), []string{"a"}, []redlock.LockOption{redlock.WithReentry()}, "WithReentry is for single resources"},
		{"a bad option", t.Context(), []string{"a"}, []redlock.LockOption{redlock.WithTTL(0)}, "WithTTL(0s)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, lockErr := l.LockAll(test.ctx, test.names, test.opts...)
			_, tryErr := l.TryLockAll(test.ctx, test.names, test.opts...)
			doErr := l.DoAll(test.ctx, test.names, func(context.Context, *redlock.MultiLease) error { return nil }, test.opts...)
			for _, err := range []error{lockErr, tryErr, doErr} {
				if !errors.Is(err, redlock.ErrConfig) || !strings.Contains(err.Error(), test.want) {
					t.Errorf("got %v, want ErrConfig with %q", err, test.want)
				}
			}
		})
	}
	if err := l.DoAll(t.Context(), []string{"a"}, nil); !errors.Is(err, redlock.ErrConfig) {
		t.Errorf("DoAll without a function: got %v, want ErrConfig", err)
	}
}

// Callers that name resources in any order all get their turn, alone, on real masters of which one is
// killed and one hangs meanwhile. Callers of single resources are among them.
//
// Source: ALGORITHM section 12; section 15, I1, I2 and I17.
func TestLockAllCrosswise(t *testing.T) {
	const lockers, callers, turns, resources = 3, 5, 12, 5
	c := start(t, 5)
	var inside [resources]atomic.Int64
	var last [resources]int64 // fencing token; only the holder accesses it
	var overlaps, falls atomic.Int64
	var done sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	work := func(m *redlock.MultiLease) {
		for _, p := range m.Parts() {
			r := int(p.Resource[0] - 'a')
			if inside[r].Add(1) != 1 {
				overlaps.Add(1)
			}
			if p.Fence <= last[r] {
				falls.Add(1)
			}
			last[r] = p.Fence
		}
		time.Sleep(time.Millisecond)
		for _, p := range m.Parts() {
			inside[p.Resource[0]-'a'].Add(-1)
		}
	}
	for i := range lockers {
		l := open(t, c.addrs)
		for k := range callers {
			rng := rand.New(rand.NewPCG(uint64(i), uint64(k)))
			done.Go(func() {
				for turn := range turns {
					if i == 0 && k == 0 && turn == turns/3 {
						if err := errors.Join(c.procs[0].Kill(), c.procs[1].Pause()); err != nil {
							t.Error(err)
						}
					}
					var names []string
					for _, r := range rng.Perm(resources)[:1+rng.IntN(3)] {
						names = append(names, string(rune('a'+r)))
					}
					m, err := l.LockAll(ctx, names)
					if err != nil {
						t.Errorf("Locker %d, caller %d: %v: %v", i, k, names, err)
						return
					}
					work(m)
					if err := m.Unlock(ctx); err != nil {
						t.Errorf("Locker %d, caller %d: Unlock of %v: %v", i, k, names, err)
					}
				}
			})
		}
	}
	done.Wait()
	if overlaps.Load() != 0 || falls.Load() != 0 {
		t.Errorf("got %d overlaps and %d tokens that fell, want none", overlaps.Load(), falls.Load())
	}
}

// Control: callers that take the same resources one after the other, in the order in which they name
// them, wait for each other for ever.
func TestLockAllCrosswiseByHand(t *testing.T) {
	c := start(t, 3)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var done, first sync.WaitGroup
	first.Add(2)
	var waiting atomic.Int64
	for _, names := range [][]string{{"a", "b"}, {"b", "a"}} {
		l := open(t, c.addrs)
		done.Go(func() {
			outer, err := l.Lock(t.Context(), names[0])
			first.Done()
			first.Wait()
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := l.Lock(ctx, names[1]); errors.Is(err, context.DeadlineExceeded) {
				waiting.Add(1)
			}
			if err := outer.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	done.Wait()
	if waiting.Load() != 2 {
		t.Errorf("got %d callers that waited until their time was over, want 2", waiting.Load())
	}
}

// While a call waits for a resource it holds those before it and not those behind it. When it gives
// up, it holds nothing.
func TestLockAllWaits(t *testing.T) {
	c := start(t, 3)
	holder, l := open(t, c.addrs), open(t, c.addrs)
	b := lock(t, holder, "b")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got := make(chan error, 1)
	go func() {
		_, err := l.LockAll(ctx, []string{"c", "b", "a"})
		got <- err
	}()
	redistest.Eventually(t, 10*time.Second, func() bool {
		return slices.Equal(c.holding(0, "a", "b", "c"), []string{"a", "b"}) && l.WhyWaiting("b") != nil
	}, "it holds a, and waits for b")
	if err := l.WhyWaiting("b"); !errors.Is(err, redlock.ErrTaken) {
		t.Errorf("got %v, want ErrTaken", err)
	}
	cancel()
	err := <-got
	var refused *redlock.QuorumError
	if !errors.As(err, &refused) || refused.Resource != "b" || !errors.Is(err, redlock.ErrTaken) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want ErrTaken of b and context.Canceled", err)
	}
	c.empty(t, "redlock:a")
	must(t, b.Unlock(t.Context()))
	m, err := l.LockAll(t.Context(), []string{"a", "b", "c"})
	must(t, err)
	must(t, m.Unlock(t.Context()))
}

// DoAll runs its function under all resources, and tells of a loss.
func TestDoAll(t *testing.T) {
	c := start(t, 3)
	l, rival := open(t, c.addrs), open(t, c.addrs)
	err := l.DoAll(t.Context(), []string{"a", "b"}, func(ctx context.Context, m *redlock.MultiLease) error {
		if _, err := l.TryLock(ctx, "b"); !errors.Is(err, redlock.ErrReentry) {
			t.Errorf("Lock inside: got %v, want ErrReentry", err)
		}
		if _, err := l.LockAll(ctx, []string{"b", "c"}); !errors.Is(err, redlock.ErrReentry) {
			t.Errorf("LockAll inside: got %v, want ErrReentry", err)
		}
		inner, err := l.TryLock(m.Context(), "b", redlock.WithReentry())
		must(t, err)
		must(t, inner.Unlock(ctx))
		_, err = rival.Break(ctx, "a")
		must(t, err)
		<-ctx.Done()
		if cause := context.Cause(ctx); !errors.Is(cause, redlock.ErrBroken) || !strings.Contains(cause.Error(), `"a"`) {
			t.Errorf("got cause %v, want that a was broken", cause)
		}
		return context.Cause(ctx)
	})
	if !errors.Is(err, redlock.ErrLost) || !errors.Is(err, redlock.ErrBroken) || !errors.Is(err, redlock.ErrNotHeld) {
		t.Errorf("got %v, want ErrLost by Break", err)
	}
	c.empty(t, "redlock:b")
	failed := errors.New("failed")
	if err := l.DoAll(t.Context(), []string{"b", "c"}, func(context.Context, *redlock.MultiLease) error { return failed }); !errors.Is(err, failed) || errors.Is(err, redlock.ErrLost) {
		t.Errorf("got %v, want the function's error", err)
	}
	c.empty(t, "redlock:c")
}
