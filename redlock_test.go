package redlock_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/inside"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/internal/wire"
)

// TestMain fails the run if a goroutine is left when all tests are over.
//
// Source: ALGORITHM section 13, I11.
func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.WithExamples(m)) }

// The tests of this file follow the algorithm, a test for each step, on real masters.
// distlock is https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/.

// Source: distlock, steps 1 and 2: the client takes the same key with the same
// random value on all instances; and "Correct Implementation with a Single Instance":
// SET with NX and PX.
func TestStep2SameKeyAndValueOnAllNodes(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.Start(t, 5)
	le := locktest.Lock(t, locktest.Open(t, c.Addrs), "stock", redlock.WithTTL(5*time.Second))
	redistest.Eventually(t, 5*time.Second, func() bool { return c.Count("redlock:stock") == 5 }, "all nodes hold the key")
	for i, v := range c.Holders("redlock:stock") {
		if !strings.HasPrefix(v, le.Token()+"|") {
			t.Errorf("node %d: got value %q, want a value that starts with the token %s", i, v, le.Token())
		}
		if pttl := c.Nodes[i].PTTL(t.Context(), "redlock:stock").Val(); pttl <= 0 || pttl > 5*time.Second {
			t.Errorf("node %d: got PTTL %v, want at most the TTL of 5s", i, pttl)
		}
	}
	locktest.Must(t, le.Unlock(t.Context()))
}

// Source: distlock, step 3: the lock is acquired if the majority, N/2+1, granted it.
func TestStep3MajorityDecides(outer *testing.T) {
	t := redistest.Timed(outer)
	for _, n := range []int{1, 2, 3, 4, 5} {
		c := locktest.Start(t, n)
		l := locktest.Open(t, c.Addrs)
		for taken := range n + 1 {
			for i, node := range c.Nodes {
				locktest.Must(t, node.Del(t.Context(), "redlock:r", "redlock:r~fence").Err())
				if i < taken {
					locktest.Must(t, node.Set(t.Context(), "redlock:r", "another", time.Minute).Err())
				}
			}
			le, err := l.TryLock(t.Context(), "r")
			if free := n - taken; free >= n/2+1 {
				if err != nil {
					t.Fatalf("N=%d with %d free: got %v, want a lease", n, free, err)
				}
				locktest.Must(t, le.Unlock(t.Context()))
			} else {
				locktest.WantErr(t, err, redlock.ErrNotAcquired, redlock.ErrTaken)
				var q *redlock.QuorumError
				if !errors.As(err, &q) || q.Need != n/2+1 || q.Resource != "r" || len(q.Masters) < taken-(n-n/2-1) {
					t.Fatalf("N=%d with %d free: got %+v, want a QuorumError with what the nodes said", n, free, q)
				}
			}
		}
	}
}

// Source: distlock, step 4: the validity is the initial one minus the time elapsed,
// and "MIN_VALIDITY" minus the drift.
func TestStep4ValidityIsLessThanTTL(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.Start(t, 3)
	l := locktest.Open(t, c.Addrs, redlock.WithTTL(2*time.Second), redlock.WithDrift(0.1))
	le := locktest.Lock(t, l, "r", redlock.WithoutRenewal())
	if v := le.Validity(); v > 2*time.Second-202*time.Millisecond || v < time.Second {
		t.Errorf("got validity %v, want at most TTL - drift = 1.798s, and at least half of the TTL", v)
	}
	// Source: distlock, "Making the algorithm more reliable: Extending the lock"; ALGORITHM section 6.
	redistest.Eventually(t, 5*time.Second, func() bool { return le.Validity() < 1600*time.Millisecond }, "some validity is used up")
	before := le.Validity()
	locktest.Must(t, le.Extend(t.Context()))
	if v := le.Validity(); v <= before {
		t.Errorf("got validity %v after Extend, want more than %v", v, before)
	}
	locktest.Must(t, le.Unlock(t.Context()))
	if v := le.Validity(); v > 0 {
		t.Errorf("after Unlock: got validity %v, want none", v)
	}
	locktest.WantErr(t, le.Extend(t.Context()), redlock.ErrNotHeld, redlock.ErrReleased)
}

// Source: distlock, step 5: a client that failed to acquire unlocks all instances,
// even those it believed it could not lock.
func TestStep5FailureRollsBackEveryNode(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.Start(t, 5)
	l := locktest.Open(t, c.Addrs)
	for _, n := range c.Nodes[:3] {
		locktest.Must(t, n.Set(t.Context(), "redlock:r", "another", time.Minute).Err())
	}
	for range 5 {
		_, err := l.TryLock(t.Context(), "r")
		locktest.WantErr(t, err, redlock.ErrTaken)
	}
	redistest.Eventually(t, 5*time.Second, func() bool { return c.Count("redlock:r") == 3 }, "only the other's keys are left")
	for i, v := range c.Holders("redlock:r")[:3] {
		if v != "another" {
			t.Errorf("node %d: got %q, want the other holder's key untouched", i, v)
		}
	}
}

// endsWhenAsked is a context that ends at the n-th call of one of its methods, at any point of a
// call that uses it.
type endsWhenAsked struct {
	context.Context
	left atomic.Int64
	end  context.CancelFunc
}

func (c *endsWhenAsked) Done() <-chan struct{} {
	if c.left.Add(-1) < 0 {
		c.end()
	}
	return c.Context.Done()
}

// At whatever moment the context of a waiting Lock ends, the error has that, and the reason of the
// last attempt that had a verdict. A waiter looks at its context about once a second.
func TestVirtualLockCutShortAtAnyMoment(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		le := b.Lock(b.WarmLocker(), "r")
		l := b.WarmLocker()
		taken := 0
		for looks := range 24 {
			ctx := &endsWhenAsked{}
			ctx.Context, ctx.end = context.WithCancel(t.Context())
			ctx.left.Store(int64(looks))
			_, err := l.Lock(ctx, "r")
			locktest.WantErr(t, err, redlock.ErrNotAcquired, context.Canceled)
			if errors.Is(err, redlock.ErrNoQuorum) {
				t.Errorf("%d looks: got %v, want no alarm: the nodes are well", looks, err)
			}
			if errors.Is(err, redlock.ErrTaken) {
				taken++
			} else if taken > 0 {
				t.Errorf("%d looks: got %v, want the verdict of the attempts before: taken", looks, err)
			}
		}
		if taken == 0 {
			t.Error("no call got as far as an attempt with a verdict")
		}
		b.Unlock(le)
		b.WantHolding("r")
	})
}

// A key that holds another type is an error at once, which names the key.
func TestWrongTypeAtTheKey(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.Start(t, 3)
	l := locktest.Open(t, c.Addrs)
	for _, n := range c.Nodes {
		locktest.Must(t, n.LPush(t.Context(), "redlock:list", "x").Err())
		locktest.Must(t, n.Set(t.Context(), "redlock:counted~fence", "no number", 0).Err())
	}
	for _, resource := range []string{"list", "counted"} {
		_, err := l.Lock(t.Context(), resource) // waiting would never end
		locktest.WantErr(t, err, redlock.ErrNotAcquired, reason.WrongType)
		var q *redlock.QuorumError
		if !errors.As(err, &q) {
			t.Fatalf("%s: got %v, want a QuorumError", resource, err)
		}
		for _, n := range q.Masters {
			if errors.Is(n, reason.WrongType) && (!slices.Contains(c.Addrs, n.Master) || !strings.Contains(n.Error(), "redlock:"+resource)) {
				t.Errorf("%s: got %v, want an error that names node and key", resource, n)
			}
		}
	}
	// On a minority only these votes are lost.
	locktest.Must(t, c.Nodes[0].LPush(t.Context(), "redlock:mixed", "x").Err())
	locktest.Must(t, locktest.Lock(t, l, "mixed").Unlock(t.Context()))
}

// Any string is a resource: a name has no syntax.
func TestResourceNames(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.Start(t, 3)
	l := locktest.Open(t, c.Addrs)
	for _, r := range []string{" ", "{a}b", "a}b{", "x|0", "\x00\xff", "日本", strings.Repeat("n", redlock.MaxResourceLength), "a~fenc"} {
		a := locktest.Lock(t, l, r)
		if _, err := l.TryLock(t.Context(), r); !errors.Is(err, redlock.ErrTaken) {
			t.Errorf("%q: got %v, want ErrTaken", r, err)
		}
		locktest.Must(t, a.Unlock(t.Context()))
	}
	for _, r := range []string{"", strings.Repeat("n", redlock.MaxResourceLength+1), "a~fence"} {
		_, err := l.Lock(t.Context(), r)
		locktest.WantErr(t, err, redlock.ErrConfig)
		_, err = l.TryLock(t.Context(), r)
		locktest.WantErr(t, err, redlock.ErrConfig)
	}
}

// Only the whole key tells whether it is one of the library's own keys: the prefix and the resource
// together can make up such a key. Every method refuses it, without asking a node.
//
// Source: ALGORITHM section 2.
func TestReservedKeys(outer *testing.T) {
	t := redistest.Timed(outer)
	id := locktest.NewID()
	for _, suffix := range []string{"~fence", "~guard", "~queue", "~seen", "~turn", "~readers", "~adopted"} {
		for cut := range len(suffix) {
			key := "p:a" + suffix
			cut += len("p:a")
			prefix, resource := key[:cut], key[cut:]
			l := locktest.Open(t, []string{"127.0.0.1:1"}, redlock.WithKeyPrefix(prefix))
			fn := func(context.Context, *redlock.Lease) error { return nil }
			ctx, cancel := context.WithTimeout(t.Context(), time.Second) // no call may wait
			defer cancel()
			for name, call := range map[string]func() error{
				"CheckResource": func() error { return inside.Of(l).CheckResource("", resource) },
				"Lock":          func() error { _, err := l.Lock(ctx, resource); return err },
				"TryLock":       func() error { _, err := l.TryLock(ctx, resource); return err },
				"a reader":      func() error { _, err := l.TryLock(ctx, resource, redlock.Shared()); return err },
				"Do":            func() error { return l.Do(ctx, resource, fn) },
				"Adopt":         func() error { _, err := l.Adopt(ctx, locktest.Handle(resource, id, 1)); return err },
			} {
				if err := call(); !errors.Is(err, redlock.ErrConfig) {
					t.Errorf("%s(%q) behind the prefix %q: got %v, want ErrConfig", name, resource, prefix, err)
				}
			}
			for _, n := range l.Stats().Masters {
				if n.State != redlock.MasterUntried {
					t.Errorf("prefix %q, resource %q: a node was asked", prefix, resource)
				}
			}
			// A key that only contains such a suffix is an ordinary key.
			if err := inside.Of(l).CheckResource("", resource+"s"); err != nil {
				t.Errorf("%q behind the prefix %q: got %v, want no error", resource+"s", prefix, err)
			}
		}
	}
	locktest.WantErr(t, inside.Of(locktest.Open(t, []string{"127.0.0.1:1"}, redlock.WithKeyPrefix("a~"))).CheckResource("", "turn"), redlock.ErrConfig)
}

// The text of a Handle is one word in a shell, and no other text is read: not that of earlier versions of the command, a
// token, nor one that was changed.
func TestHandleText(t *testing.T) {
	const id = "Xp3k9QzAXp3k9QzAXp3k9Q"
	for _, test := range []struct{ token, resource, want string }{
		{id, "stock:7", "redlock1:64:Xp3k9QzAXp3k9QzAXp3k9Q:stock%3A7"},
		{id + `;a"b'c$d` + "`e`&(f)*[g]\\~ +%41", "~\xff", "redlock1:64:Xp3k9QzAXp3k9QzAXp3k9Q%3Ba%22b%27c%24d%60e%60%26%28f%29%2A%5Bg%5D%5C%7E+%2B%2541:%7E%FF"},
	} {
		h := locktest.Handle(test.resource, test.token, 64)
		if h.String() != test.want || h.Resource() != test.resource || h.Fence() != 64 {
			t.Errorf("got %v for %q, %d; want %s", h, h.Resource(), h.Fence(), test.want)
		}
		data, err := json.Marshal(map[string]redlock.Handle{"a": h, "none": {}})
		var back map[string]redlock.Handle
		if err = errors.Join(err, json.Unmarshal(data, &back)); err != nil || back["a"] != h || back["none"] != (redlock.Handle{}) {
			t.Errorf("got %v, %v of %s", back, err, data)
		}
	}
	for text, want := range map[string]string{
		id: "is a token", id + ";web-1": "is a token", id + "%3Bweb-1%3A4711%3Aacquire": "is a token",
		"redlock2:64:" + id + ":a": "another version", "redlock1:064:" + id + ":a": "no Handle", "redlock1:64:" + id + ":a ": "no Handle",
		"redlock1:64:" + id: "no Handle", "redlock1:0:" + id + ":a": "no Handle", "redlock1:64:token:a": "no Handle", "a": "no Handle", "redlock1:64:" + id + ":": "no Handle",
	} {
		var h redlock.Handle
		if err := h.UnmarshalText([]byte(text)); !errors.Is(err, redlock.ErrConfig) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), id) || h != (redlock.Handle{}) {
			t.Errorf("%q: got %v, %v; want %q", text, h, err, want)
		}
	}
}

// A name that could be mistaken for one of several resources, or for their queue, is refused.
func TestNamesOfSeveral(outer *testing.T) {
	t := redistest.Timed(outer)
	for prefix, names := range map[string]struct{ allowed, refused string }{
		"p:":  {"r~1 r~1000 r~1~1 r~~1 r1 r~1a 15", "r~0 r~1001 r~01 r~99999999999999999999 r~"},
		"p~":  {"15a r~5", "15"},
		"p~1": {"a", "5"},
	} {
		l := locktest.Open(t, []string{"127.0.0.1:1"}, redlock.WithKeyPrefix(prefix))
		for _, name := range strings.Fields(names.allowed) {
			if err := inside.Of(l).CheckResource("", name); err != nil {
				t.Errorf("%q behind the prefix %q: got %v, want it allowed", name, prefix, err)
			}
		}
		for _, name := range strings.Fields(names.refused) {
			if err := inside.Of(l).CheckResource("", name); !errors.Is(err, redlock.ErrConfig) {
				t.Errorf("%q behind the prefix %q: got %v, want ErrConfig", name, prefix, err)
			}
		}
	}
}

// Bad arguments of a call reach no node.
func TestBadArguments(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.Start(t, 1)
	l := locktest.Open(t, c.Addrs)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // no call may wait
	defer cancel()
	any := func(name string, n int, opts ...redlock.LockOption) func() error {
		return func() error { _, err := inside.Of(l).LockAny(ctx, name, n, opts...); return err }
	}
	for name, call := range map[string]func() error{
		"any of none":            any("r", 0),
		"any of -1":              any("r", -1),
		"any of too many":        any("r", wire.MaxOneOf+1),
		"any without a name":     any("", 1),
		"any of own keys":        any("r~turn", 1),
		"any of a queue":         any("r~", 1),
		"any, long name":         any(strings.Repeat("n", redlock.MaxResourceLength-1), 1),
		"any, long number":       any(strings.Repeat("n", redlock.MaxResourceLength-4), wire.MaxOneOf),
		"any, shared":            any("r", 2, redlock.Shared()),
		"any, re-entry":          any("r", 2, redlock.WithReentry()),
		"any, nil option":        any("r", 2, nil),
		"any, nil ctx":           func() error { var none context.Context; _, err := inside.Of(l).LockAny(none, "r", 2); return err },
		"Lock of one of several": func() error { _, err := l.Lock(ctx, "r~1"); return err },
		"Do of one of several": func() error {
			return l.Do(ctx, "r~1", func(context.Context, *redlock.Lease) error { return nil })
		},
		"nil ctx":      func() error { var none context.Context; _, err := l.Lock(none, "r"); return err },
		"nil fn":       func() error { return l.Do(t.Context(), "r", nil) },
		"nil option":   func() error { _, err := l.TryLock(t.Context(), "r", nil); return err },
		"short TTL":    func() error { _, err := l.TryLock(t.Context(), "r", redlock.WithTTL(time.Millisecond)); return err },
		"TTL over max": func() error { _, err := l.TryLock(t.Context(), "r", redlock.WithTTL(time.Minute)); return err },
	} {
		if err := call(); !errors.Is(err, redlock.ErrConfig) || errors.Is(err, redlock.ErrNotAcquired) {
			t.Errorf("%s: got %v, want ErrConfig and not ErrNotAcquired", name, err)
		}
	}
	err := any(strings.Repeat("n", redlock.MaxResourceLength-1), 10)()
	if err == nil || !strings.Contains(err.Error(), "has 511 bytes: at most 509 are") {
		t.Errorf("got %v, want the length of the name that was given, and what is allowed", err)
	}
	if keys, err := c.Nodes[0].DBSize(t.Context()).Result(); err != nil || keys != 1 {
		t.Errorf("got %d keys, %v, want the marker alone", keys, err)
	}
}
