package lock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/internal/wire"
)

const moved = "moved"

// wantEnded checks that a lease has ended, by each method that tells.
func wantEnded(t testing.TB, le *redlock.Lease, why error) {
	t.Helper()
	select {
	case <-le.Context().Done():
	default:
		t.Error("got a context that goes on, want an ended context")
	}
	if v := le.Validity(); v > 0 {
		t.Errorf("got a validity of %v, want none", v)
	}
	_, detached := le.Detach()
	for name, err := range map[string]error{
		"Context": context.Cause(le.Context()), "Err": le.Err(), "Extend": le.Extend(t.Context()), "Detach": detached, "Unlock": le.Unlock(t.Context()),
	} {
		if !errors.Is(err, why) || name != "Context" && name != "Err" && !errors.Is(err, redlock.ErrNotHeld) {
			t.Errorf("%s: got %v, want %v", name, err, why)
		}
	}
}

// everywhere waits until all nodes have the key of the resource "moved".
func everywhere(c *locktest.Cluster, t testing.TB) {
	t.Helper()
	redistest.Eventually(t, 5*time.Second, func() bool { return c.Count("redlock:"+moved) == len(c.Nodes) }, "all nodes have the key")
}

// A lease that goes from one Locker to another stays the same.
func TestDetachAndAdopt(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := locktest.Start(t, 3)
	const ttl = 2 * time.Second // long enough for a busy machine
	var gone atomic.Value
	first := locktest.Open(t, c.Addrs, redlock.WithTTL(2*time.Second),
		locktest.On(func(e redlock.Event) { gone.Store(e) }, redlock.EventReleased))
	le := locktest.Lock(t, first, moved)
	everywhere(c, t)
	handle, err := le.Detach()
	locktest.Must(t, err)
	wantEnded(t, le, redlock.ErrDetached)
	locktest.Must(t, first.Close())
	if e, ok := gone.Load().(redlock.Event); !ok || !errors.Is(e.Err, redlock.ErrDetached) || e.Fence != le.Fence() {
		t.Errorf("got event %+v, want an event of %v", e, redlock.ErrDetached)
	}
	if n := c.Count("redlock:" + moved); n != 3 {
		t.Fatalf("got the key on %d nodes after Close, want 3", n)
	}

	second, other := locktest.Open(t, c.Addrs, redlock.WithMasterTimeout(ttl/4)), locktest.Open(t, c.Addrs)
	if _, err := other.TryLock(t.Context(), moved); !errors.Is(err, redlock.ErrTaken) {
		t.Errorf("detached: got %v, want %v", err, redlock.ErrTaken)
	}
	next, err := second.Adopt(t.Context(), handle, redlock.WithTTL(ttl))
	locktest.Must(t, err)
	if next.Fence() <= le.Fence() {
		redistest.Broken(t, fmt.Sprintf("fence %d after %d", next.Fence(), le.Fence()))
	}
	if next.Token() == le.Token() || next.Fence() <= le.Fence()+63 || next.Resource() != moved {
		t.Errorf("got %s, %d; want another token than %s, and a fence behind the block of %d", next.Token(), next.Fence(), le.Token(), le.Fence())
	}
	if v := next.Validity(); v <= 0 || v > ttl {
		t.Errorf("got a validity of %v, want up to %v", v, ttl)
	}
	time.Sleep(2*time.Second + ttl) // it is renewed: the TTLs of both are over
	if _, err := other.TryLock(t.Context(), moved); !errors.Is(err, redlock.ErrTaken) {
		t.Errorf("adopted: got %v, want %v", err, redlock.ErrTaken)
	}
	handle, err = next.Detach() // and adopted again
	locktest.Must(t, err)
	next, err = other.Adopt(t.Context(), handle, redlock.WithTTL(ttl))
	locktest.Must(t, err)
	locktest.Must(t, next.Unlock(t.Context()))
	c.Empty(t, "redlock:"+moved)
	if last := locktest.Lock(t, other, moved); last.Fence() <= next.Fence() {
		redistest.Broken(t, fmt.Sprintf("fence %d after %d", last.Fence(), next.Fence()))
	}
}

// A lease that the nodes do not have cannot be adopted, and no key is written.
func TestAdoptWhatIsNotHeld(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.Start(t, 3)
	l := locktest.Open(t, c.Addrs)
	const key = "redlock:" + moved
	token := locktest.NewID()
	put := func(values ...string) {
		t.Helper()
		for i, v := range values {
			locktest.Must(t, c.Nodes[i].Del(t.Context(), key).Err())
			if v != "" {
				locktest.Must(t, c.Nodes[i].Set(t.Context(), key, v, time.Minute).Err())
			}
		}
	}
	count := func(counter int64) {
		for _, n := range c.Nodes {
			locktest.Must(t, n.Set(t.Context(), key+"~fence", counter, time.Minute).Err())
		}
	}
	mine, fill, other := token+"|6400", token+"|0", locktest.NewID()+"|6400"
	for _, test := range []struct {
		name    string
		values  []string
		fence   int64
		counter int64
		want    []error
		not     error
	}{
		{"no node has it", []string{"", "", ""}, 6337, 6400, []error{redlock.ErrNotHeld}, redlock.ErrNoQuorum},
		{"another has it", []string{other, other, other}, 6337, 6400, []error{redlock.ErrNotHeld}, redlock.ErrTaken},
		{"too few nodes have it", []string{mine, "", other}, 6337, 6400, []error{redlock.ErrNotHeld}, redlock.ErrNoQuorum},
		{"another fencing token", []string{mine, mine, mine}, 6336, 6400, []error{redlock.ErrNotHeld}, redlock.ErrNoQuorum},
		{"another fencing token, beyond", []string{mine, mine, mine}, 6401, 6400, []error{redlock.ErrNotHeld}, redlock.ErrNoQuorum},
		{"another holder had it in between", []string{fill, fill, fill}, 6337, 6401, []error{redlock.ErrNotHeld}, redlock.ErrNoQuorum},
	} {
		t.Run(test.name, func(t *redistest.T) {
			put(test.values...)
			count(test.counter)
			before := fmt.Sprint(c.Holders(key))
			le, err := l.Adopt(t.Context(), locktest.Handle(moved, token, test.fence))
			if le != nil {
				t.Fatal("got a lease, want none")
			}
			locktest.WantMatch(t, "Adopt", err, test.want, test.not, redlock.ErrConfig)
			var failed *redlock.QuorumError
			if !errors.As(err, &failed) || failed.Op != "adopt" || failed.Need != 2 {
				t.Errorf("got %#v, want a QuorumError", err)
			}
			if after := fmt.Sprint(c.Holders(key)); after != before {
				t.Errorf("got %v on the nodes, want %v as before", after, before)
			}
			for i, n := range c.Nodes {
				if left := n.PTTL(t.Context(), key).Val(); test.values[i] != "" && left < 50*time.Second {
					t.Errorf("got a key that lives for %v, want it as it was", left)
				}
			}
		})
	}

	put(fill, fill, "")
	count(6400 + 63)
	le, err := l.Adopt(t.Context(), locktest.Handle(moved, token, 6400), redlock.WithTTL(2*time.Second))
	locktest.Must(t, err) // after masters have restarted one by one all nodes have only filled keys
	if le.Fence() < 6464 {
		t.Errorf("got fence %d, want one behind the block of 6400", le.Fence())
	}
	everywhere(c, t)
	locktest.Must(t, le.Unlock(t.Context()))
	c.Empty(t, key)
}

// A release by a Handle whose replies are lost is sent again, and finds its own mark: that confirms it.
//
// Source: ALGORITHM section 2, "idempotent", and section 6, "By Handle".
func TestUnlockByHandleTwice(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.StartProxied(t, 3)
	l, heir := locktest.Open(t, c.Via), locktest.Open(t, c.Via, redlock.WithMasterTimeout(2*time.Second))
	c.Cluster.Warm(t, heir)
	le := locktest.Lock(t, l, moved)
	everywhere(c.Cluster, t)
	handle, err := le.Detach()
	locktest.Must(t, err)
	for _, p := range c.Proxies {
		p.HoldNextRequest([]byte(wire.Requests.Hash), 200*time.Millisecond)
	}
	done := make(chan error, 1)
	go func() { done <- heir.Unlock(t.Context(), handle) }()
	for _, p := range c.Proxies {
		redistest.Eventually(t, 5*time.Second, func() bool { return p.Stats().Held > 0 }, "the release is on its way")
		p.LoseNextReply()
	}
	for _, p := range c.Proxies {
		redistest.Eventually(t, 5*time.Second, func() bool { return p.Stats().Lost > 0 }, "its reply is lost")
		p.ResetAll()
	}
	locktest.Must(t, <-done)
	c.Empty(t, "redlock:"+moved)
}

func TestAdoptWithBadArguments(outer *testing.T) {
	t := redistest.Timed(outer)
	l := locktest.Open(t, []string{"127.0.0.1:1"})
	handle := locktest.Handle(moved, locktest.NewID(), 1)
	for name, try := range map[string]func() (*redlock.Lease, error){
		"no context":  func() (*redlock.Lease, error) { var none context.Context; return l.Adopt(none, handle) },
		"zero Handle": func() (*redlock.Lease, error) { return l.Adopt(t.Context(), redlock.Handle{}) },
		"a bad option": func() (*redlock.Lease, error) {
			return l.Adopt(t.Context(), handle, redlock.WithTTL(time.Hour))
		},
		"a wait that no Handle has": func() (*redlock.Lease, error) {
			return l.Adopt(t.Context(), handle, redlock.WithQuarantineWait(time.Second))
		},
	} {
		if le, err := try(); le != nil || !errors.Is(err, redlock.ErrConfig) {
			t.Errorf("%s: got %v, %v; want %v", name, le, err, redlock.ErrConfig)
		}
	}
	if err := locktest.Open(t, []string{"127.0.0.1:1"}, redlock.Shared()).Unlock(t.Context(), handle); !errors.Is(err, redlock.ErrConfig) ||
		!strings.Contains(err.Error(), "Unlock: Shared is given") {
		t.Errorf("Unlock by a Locker of readers: got %v, want %v, and the reason", err, redlock.ErrConfig)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Adopt(ctx, handle); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	locktest.Must(t, l.Close())
	if _, err := l.Adopt(t.Context(), handle); !errors.Is(err, redlock.ErrClosed) {
		t.Errorf("got %v, want %v", err, redlock.ErrClosed)
	}
}

const webOne = "web-1 4711 nightly"

// The error of a caller that is refused, and Inspect, tell whose lease it is and for how long.
//
// Source: ALGORITHM section 2, "label".
func TestOwner(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.Start(t, 3)
	holder, rival := locktest.Open(t, c.Addrs, redlock.WithOwner(webOne)), locktest.Open(t, c.Addrs)
	le := locktest.Lock(t, holder, "owned")
	redistest.Eventually(t, 5*time.Second, func() bool { return c.Count("redlock:owned") == 3 }, "all nodes have the key")
	if le.Owner() != webOne || !strings.HasSuffix(le.Token(), ";"+webOne) {
		t.Errorf("got owner %q, token %q", le.Owner(), le.Token())
	}

	_, err := rival.TryLock(t.Context(), "owned")
	var refused *redlock.QuorumError
	if !errors.As(err, &refused) || !errors.Is(err, redlock.ErrTaken) {
		t.Fatalf("got %v, want a QuorumError that matches ErrTaken", err)
	}
	owner, left := refused.Holder()
	if owner != webOne || left <= redlock.DefaultTTL/2 || left > redlock.DefaultTTL {
		t.Errorf("got owner %q for %v, want %q for up to %v", owner, left, webOne, redlock.DefaultTTL)
	}
	if text := err.Error(); !strings.Contains(text, "taken by another holder ("+webOne+", held for ") || !strings.Contains(text, ": held by "+webOne+" for ") {
		t.Errorf("got %q, want it to name the owner", text)
	}
	named := 0 // the others had not answered when it was decided
	for _, n := range refused.Masters {
		if n.Owner == webOne && n.ExpiresIn > 0 {
			named++
		}
	}
	if named < refused.Need {
		t.Errorf("got the owner from %d nodes, want it from %d: %v", named, refused.Need, err)
	}

	in, err := admin.Inspect(t.Context(), rival, "owned")
	locktest.Must(t, err)
	if in.Owner != webOne || in.Masters[0].Owner != webOne || in.Verdict != admin.VerdictHeld || in.Token != le.Token() {
		t.Errorf("got %+v", in)
	}
	locktest.Must(t, le.Unlock(t.Context()))
	if le = locktest.Lock(t, rival, "owned", redlock.WithOwner("")); le.Owner() != "" || strings.Contains(le.Token(), ";") {
		t.Errorf("without a label: got owner %q, token %q", le.Owner(), le.Token())
	}
	if owner := locktest.Lock(t, rival, "by default").Owner(); !regexp.MustCompile(fmt.Sprintf(`^[^:]+:%d:\S+$`, os.Getpid())).MatchString(owner) {
		t.Errorf("without WithOwner: got owner %q, want host:%d:program", owner, os.Getpid())
	}
	c.Fill(t, le)
	_, err = holder.TryLock(t.Context(), "owned")
	if !errors.As(err, &refused) {
		t.Fatal(err)
	}
	if owner, left := refused.Holder(); owner != "" || left <= 0 {
		t.Errorf("got owner %q for %v, want none for some time", owner, left)
	}
}

// A lease has the label of the process that adopted it, and keeps it when it is broken.
func TestOwnerStays(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.Start(t, 3)
	l := locktest.Open(t, c.Addrs)
	le := locktest.Lock(t, l, "moved", redlock.WithOwner("web-2"))
	everywhere(c, t)
	handle, err := le.Detach()
	locktest.Must(t, err)
	next, err := l.Adopt(t.Context(), handle, redlock.WithOwner(webOne))
	locktest.Must(t, err)
	if next.Owner() != webOne {
		t.Errorf("adopted: got owner %q, want %q", next.Owner(), webOne)
	}
	in, err := admin.Break(t.Context(), l, "moved")
	locktest.Must(t, err)
	if in.Owner != webOne {
		t.Errorf("broken: got owner %q, want %q", in.Owner, webOne)
	}
	in, err = admin.Inspect(t.Context(), l, "moved")
	locktest.Must(t, err)
	if in.Verdict != admin.VerdictBroken || in.Owner != webOne {
		t.Errorf("got %v of %q, want BROKEN of %q", in.Verdict, in.Owner, webOne)
	}
	if _, err := l.TryLock(t.Context(), "moved"); !errors.Is(err, redlock.ErrTaken) || !strings.Contains(err.Error(), webOne) {
		t.Errorf("got %v, want ErrTaken with %q", err, webOne)
	}
}
