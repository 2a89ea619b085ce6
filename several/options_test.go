package several_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/several"
)

// terms has the promises of the options of a call.
type terms struct {
	ttl, maxHold, minHold, grace time.Duration
	manual                       bool
	owner                        string
}

const ttl = 4 * time.Second

// choices are the options that hold for the whole lease, with values that go together.
var choices = []struct {
	name string
	opt  redlock.LockOption
	set  func(*terms)
}{
	{"nothing", redlock.WithMinHold(0), func(*terms) {}},
	{"WithTTL", redlock.WithTTL(ttl + time.Second), func(p *terms) { p.ttl += time.Second }},
	{"WithoutRenewal", redlock.WithoutRenewal(), func(p *terms) { p.manual = true }},
	{"WithMaxHold", redlock.WithMaxHold(2 * ttl), func(p *terms) { p.maxHold = 2 * ttl }},
	{"WithMinHold", redlock.WithMinHold(ttl/2 - 1), func(p *terms) { p.minHold = ttl/2 - 1 }},
	{"WithGrace", redlock.WithGrace(ttl / 4), func(p *terms) { p.grace = ttl / 4 }},
	{"WithOwner", redlock.WithOwner("label"), func(p *terms) { p.owner = "label" }},
	{"WithQuarantineWait", redlock.WithQuarantineWait(time.Minute), func(*terms) {}},
}

// granted is a lease that a call returned at a moment.
type granted struct {
	*several.Lease
	at     time.Time
	unlock func() error // by which the call's user ends it
}

// calls are the ways to get a lease on "a" and "c", to be written, and on "b", to be read. Those that wait do so for
// "b", with "a".
var calls = []struct {
	name  string
	waits bool
	get   func(t *testing.T, l *redlock.Locker, names several.Names, opts ...redlock.LockOption) granted
}{
	{"Lock", true, func(t *testing.T, l *redlock.Locker, names several.Names, opts ...redlock.LockOption) granted {
		lease, err := several.Lock(t.Context(), l, names, opts...)
		locktest.Must(t, err)
		return granted{lease, time.Now(), func() error { return lease.Unlock(t.Context()) }}
	}},
	{"TryLock", false, func(t *testing.T, l *redlock.Locker, names several.Names, opts ...redlock.LockOption) granted {
		lease, err := several.TryLock(t.Context(), l, names, opts...)
		locktest.Must(t, err)
		return granted{lease, time.Now(), func() error { return lease.Unlock(t.Context()) }}
	}},
	{"Do", true, func(t *testing.T, l *redlock.Locker, names several.Names, opts ...redlock.LockOption) granted {
		got, over, result := make(chan *several.Lease), make(chan struct{}), make(chan error, 1)
		go func() {
			result <- several.Do(t.Context(), l, names, func(_ context.Context, lease *several.Lease) error {
				got <- lease
				<-over
				return nil
			}, opts...)
		}()
		return granted{<-got, time.Now(), func() error { close(over); return <-result }}
	}},
}

// endings are how a lease ends. Each checks what the options promise for that.
var endings = []struct {
	name  string
	check func(t *testing.T, b *locktest.Bubble, l *redlock.Locker, g granted, p terms)
}{
	{"unlocked at once", func(t *testing.T, b *locktest.Bubble, _ *redlock.Locker, g granted, p terms) {
		locktest.Must(t, g.unlock())
		locktest.WantSince(t, "Unlock", g.at, 0)
		for _, part := range g.Parts() {
			if !errors.Is(part.Err(), redlock.ErrReleased) || part.Validity() > 0 {
				t.Errorf("%s after Unlock: got %v, validity %v; want ErrReleased", part.Resource(), part.Err(), part.Validity())
			}
		}
		wantTaken(b, g.at, p.minHold, 10*time.Millisecond)
	}},
	{"a part is unlocked by itself", func(t *testing.T, b *locktest.Bubble, _ *redlock.Locker, g granted, p terms) {
		locktest.Must(t, g.Part("a").Unlock(t.Context()))
		wantTaken(b, g.at, p.minHold, 10*time.Millisecond, "a")
		b.WantHolding("c", 0, 1, 2)
		locktest.Must(t, g.unlock())
	}},
	{"kept", func(t *testing.T, _ *locktest.Bubble, _ *redlock.Locker, g granted, p terms) {
		if p.maxHold == 0 && !p.manual {
			time.Sleep(time.Minute)
			locktest.Must(t, errors.Join(g.Err(), g.Extend(t.Context()), g.unlock()))
			return
		}
		cause := redlock.ErrLost
		if !p.manual {
			time.Sleep(p.maxHold - time.Second)
			if v := g.Validity(); v != time.Second {
				t.Errorf("got validity %v a second before the bound, want 1s", v)
			}
			cause = redlock.ErrMaxHold
		}
		<-g.Context().Done()
		held := time.Since(g.at)
		if p.manual && (held < p.ttl/2-p.ttl/50 || held > p.ttl) || !p.manual && held != p.maxHold {
			t.Errorf("got the end after %v", held)
		}
		locktest.WantMatch(t, "the cause", context.Cause(g.Context()), []error{redlock.ErrLost, cause})
		locktest.WantMatch(t, "Unlock", g.unlock(), []error{redlock.ErrNotHeld, redlock.ErrLost, cause})
	}},
	{"a part is lost", func(t *testing.T, b *locktest.Bubble, l *redlock.Locker, g granted, p terms) {
		_, err := admin.Break(t.Context(), l, "b")
		locktest.Must(t, err)
		_ = g.Extend(t.Context()) // without renewal nothing else tells
		<-g.Context().Done()
		locktest.WantMatch(t, "the cause", context.Cause(g.Context()), []error{redlock.ErrLost, redlock.ErrBroken})
		stays := max(g.Part("a").Validity(), g.Part("c").Validity()) + p.grace
		wantTaken(b, time.Now(), stays, time.Second, "a", "c")
		locktest.WantMatch(t, "Unlock", g.unlock(), []error{redlock.ErrNotHeld, redlock.ErrLost})
	}},
	{"unlocked after a loss", func(t *testing.T, b *locktest.Bubble, l *redlock.Locker, g granted, _ terms) {
		_, err := admin.Break(t.Context(), l, "b")
		locktest.Must(t, err)
		_ = g.Extend(t.Context())
		<-g.Context().Done()
		_ = g.unlock()
		b.WantHolding("a")
	}},
}

// wantTaken checks that resources stay taken for a time, and are free soon after.
func wantTaken(b *locktest.Bubble, since time.Time, stays, soon time.Duration, names ...string) {
	b.T.Helper()
	if len(names) == 0 {
		names = []string{"a", "c"}
	}
	if stays > 0 {
		time.Sleep(time.Until(since.Add(stays - time.Millisecond)))
		for _, name := range names {
			b.WantHolding(name, 0, 1, 2)
		}
	}
	time.Sleep(time.Until(since.Add(stays + soon)))
	for _, name := range names {
		b.WantHolding(name)
	}
}

// Every option that several does not refuse keeps the meaning that it has for a single lock, for the whole lease
// and from the moment at which it has all parts: alone with each call, and beside each other option that New was given (a third
// of them unless tests that take long run), with one of the endings, or with each of them if tests are [redistest.Long].
func TestVirtualOptions(t *testing.T) {
	redistest.TakesSeconds(t)
	for i, outer := range choices {
		for k, inner := range choices {
			if i > 0 && (i == k || k == 0 || (i+k)%3 > 0 && !redistest.Once()) {
				continue
			}
			for _, call := range calls {
				if i > 0 && call.name != "Lock" {
					continue
				}
				for e, ending := range endings {
					if i > 0 && e != (i+k)%len(endings) && !redistest.Long() {
						continue
					}
					t.Run(fmt.Sprintf("%s/%s beside %s/%s", call.name, inner.name, outer.name, ending.name), func(t *testing.T) {
						locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
							p := terms{ttl: ttl, owner: "mine"}
							outer.set(&p)
							inner.set(&p)
							silent := redlock.WithLogger(nil)
							holder := b.WarmLocker(silent)
							l := b.WarmLocker(silent, redlock.WithTTL(ttl), redlock.WithOwner("mine"), outer.opt)
							if call.waits {
								busy := b.Lock(holder, "b")
								for after := time.Second; after < 3*ttl; after += time.Second {
									time.AfterFunc(after, func() {
										if got := b.Nodes[0].Get(redlock.DefaultKeyPrefix + "a"); got == "" && t.Context().Err() == nil {
											t.Errorf("after %v of the wait: got nothing held, want %q", after, "a")
										}
									})
								}
								time.AfterFunc(3*ttl+ttl/2, func() { _ = busy.Unlock(t.Context()) })
							}
							g := call.get(t, l, several.Names{Write: []string{"c", "a"}, Read: []string{"b"}}, inner.opt)
							if v, most := g.Validity(), p.ttl-p.grace; v < p.ttl/2 || v > most || v < most-p.ttl/3-p.ttl/20 {
								t.Errorf("got validity %v at the grant, want from %v to %v", v, p.ttl/2, most)
							}
							for _, part := range g.Parts() {
								if part.Owner() != p.owner || (part.Mode() == redlock.ModeShared) != (part.Resource() == "b") {
									t.Errorf("got the owner %q of %s, %s; want %q", part.Owner(), part.Resource(), part.Mode(), p.owner)
								}
							}
							ending.check(t, b, holder, g, p)
						})
					})
				}
			}
		}
	}
}

// slow makes a Locker wait before it tries to lock "b", as for a quarantine.
var slow = redlock.WithTracer(func(ctx context.Context, op, resource string) func(*redlock.Lease, error) {
	if op == "TryLock" && resource == "b" {
		select {
		case <-ctx.Done():
		case <-time.After(time.Minute):
		}
	}
	return nil
})

// While TryLock waits for one part, it extends the others. If one cannot be locked, it does not wait.
func TestVirtualTryLockWaits(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker(slow)
		lease, err := several.TryLock(t.Context(), l, write("a", "b"), redlock.WithoutRenewal())
		locktest.Must(t, err)
		if v := lease.Validity(); v < redlock.DefaultTTL/2 {
			t.Errorf("got validity %v, want half of the TTL at least", v)
		}
		locktest.Must(t, lease.Unlock(t.Context()))

		_, err = several.TryLock(t.Context(), l, write("a", "b"), redlock.WithoutRenewal())
		locktest.Must(t, err)
		closing := time.Now()
		locktest.Must(t, l.Close()) // no work is done under the lease
		locktest.WantSince(t, "Close", closing, 0)
		l = b.WarmLocker(slow)
		z := b.Lock(b.WarmLocker(), "z")
		start := time.Now()
		err = try(t.Context(), l, write("a", "b", "z"), redlock.WithMinHold(time.Minute))
		locktest.WantSince(t, "TryLock", start, 0)
		var refused *redlock.QuorumError
		locktest.WantMatch(t, "TryLock", err, []error{redlock.ErrNotAcquired, redlock.ErrTaken}, context.Canceled)
		if !errors.As(err, &refused) || refused.Resource != "z" {
			t.Errorf("got %v, want the error of z", err)
		}
		b.WantHolding("a")
		b.Unlock(z)
	})
}

// Options that make no sense for the whole are refused before any master is asked, with each call and by New.
func TestRefusedOptions(outer *testing.T) {
	t := redistest.Timed(outer)
	for name, opt := range map[string]redlock.LockOption{"WithReentry": redlock.WithReentry(), "Shared": redlock.Shared(), "a wrong option": redlock.WithTTL(1)} {
		for _, byNew := range []bool{false, true} {
			l, opts := locktest.Open(t, []string{"127.0.0.1:1"}, redlock.WithLogger(nil)), []redlock.LockOption{opt}
			if byNew && name != "a wrong option" {
				l, opts = locktest.Open(t, []string{"127.0.0.1:1"}, redlock.WithLogger(nil), opt), nil
			}
			_, lock := several.Lock(t.Context(), l, write("a"), opts...)
			_, tryLock := several.TryLock(t.Context(), l, write("a"), opts...)
			do := several.Do(t.Context(), l, write("a"), func(context.Context, *several.Lease) error { return nil }, opts...)
			for call, err := range map[string]error{"Lock": lock, "TryLock": tryLock, "Do": do} {
				locktest.WantMatch(t, call+" with "+name, err, []error{redlock.ErrConfig})
			}
			if state := l.Stats().Masters[0].State; state != redlock.MasterUntried {
				t.Errorf("%s: got a master that is %v, want none to have been asked", name, state)
			}
		}
	}
}
