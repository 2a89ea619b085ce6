package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
)

// candidate is an Elector that runs in a goroutine of its own.
type candidate struct {
	*redlock.Elector
	stop context.CancelFunc
	led  chan *redlock.Lease // a lease for each term, when lead is called
	done chan struct{}       // closed when Run has returned
	err  error               // what it returned

	mu     sync.Mutex
	causes []error // that lead's contexts ended with
}

// leading waits for the end of its context.
func leading(ctx context.Context, _ *redlock.Lease) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func campaign(t *testing.T, l *redlock.Locker, lead func(context.Context, *redlock.Lease) error, opts ...redlock.LockOption) *candidate {
	t.Helper()
	e, err := redlock.NewElector(l, "r", opts...)
	if err != nil {
		t.Fatalf("NewElector: got %v, want no error", err)
	}
	c := &candidate{Elector: e}
	c.run(t, lead)
	return c
}

func (c *candidate) run(t *testing.T, lead func(context.Context, *redlock.Lease) error) {
	ctx, stop := context.WithCancel(t.Context())
	c.stop, c.led, c.done = stop, make(chan *redlock.Lease, 100), make(chan struct{})
	go func() {
		defer close(c.done)
		c.err = c.Run(ctx, func(ctx context.Context, lease *redlock.Lease) error {
			c.led <- lease
			defer func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.causes = append(c.causes, context.Cause(ctx))
			}()
			return lead(ctx, lease)
		})
	}()
	t.Cleanup(func() { stop(); <-c.done })
}

func (c *candidate) cause(i int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i >= len(c.causes) {
		return nil
	}
	return c.causes[i]
}

// term waits for the next one.
func (c *candidate) term(t *testing.T) *redlock.Lease {
	t.Helper()
	return locktest.Receive(t, c.led, "a term")
}

func wantLeading(t *testing.T, c *candidate, want bool) {
	t.Helper()
	if got := c.Leading(); got != want {
		t.Errorf("Leading: got %t, want %t", got, want)
	}
	if got := c.Lease() != nil; got != want {
		t.Errorf("Lease: got one %t, want %t", got, want)
	}
	switch err := c.IsLeader(t.Context()); {
	case want && err != nil:
		t.Errorf("IsLeader: got %v, want no error", err)
	case !want:
		wantMatch(t, "IsLeader", err, []error{redlock.ErrNotLeader})
	}
}

// One leads, and when its context ends the other does, without waiting for the TTL.
func TestVirtualElectorHandsOn(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		a := campaign(t, b.locker(), leading)
		first := a.term(t)
		z := campaign(t, b.locker(), leading)
		time.Sleep(time.Minute)
		wantLeading(t, a, true)
		wantLeading(t, z, false)
		wantMatch(t, "IsLeader of the other", z.IsLeader(t.Context()), []error{redlock.ErrNotLeader, redlock.ErrTaken}, redlock.ErrNoQuorum)
		if got := a.Lease(); got != first {
			t.Errorf("Lease: got %v, want that of the term", got)
		}

		start := time.Now()
		a.stop()
		second := z.term(t)
		wantWithin(t, "the next term", start, 100*time.Millisecond)
		<-a.done
		wantMatch(t, "Run whose context has ended", a.err, []error{context.Canceled}, redlock.ErrLost, redlock.ErrNotHeld)
		wantLeading(t, a, false)
		wantLeading(t, z, true)
		if err := errors.Join(a.Healthy(0), z.Healthy(0)); err != nil {
			t.Errorf("Healthy: got %v, want no error", err)
		}
		if second.Fence() <= first.Fence() {
			t.Errorf("fencing tokens: got %d after %d, want them to rise", second.Fence(), first.Fence())
		}
	})
}

// A leader that is cut off is told before anybody else leads, and campaigns again.
func TestVirtualElectorLoses(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		a := campaign(t, b.locker(), leading)
		first := a.term(t)
		time.Sleep(time.Minute)
		b.all((*bubbleNode).blackhole)
		time.Sleep(20 * time.Second)
		wantLeading(t, a, false)
		wantMatch(t, "cause of the term's context", a.cause(0), []error{redlock.ErrLost, redlock.ErrExpired})
		wantMatch(t, "IsLeader", a.IsLeader(t.Context()), []error{redlock.ErrNotLeader, redlock.ErrNoQuorum}, redlock.ErrTaken)
		if err := a.Healthy(0); err != nil {
			t.Errorf("Healthy while the masters are down: got %v, want no error", err)
		}
		b.all((*bubbleNode).heal)
		if second := a.term(t); second.Fence() <= first.Fence() {
			t.Errorf("fencing tokens: got %d after %d, want them to rise", second.Fence(), first.Fence())
		}
		wantLeading(t, a, true)
	})
}

// While lead goes on after its lease, this process does not lead again, and is not healthy.
func TestVirtualElectorWaitsForLead(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		l := b.locker()
		goOn := make(chan struct{})
		a := campaign(t, l, func(ctx context.Context, lease *redlock.Lease) error {
			<-goOn
			return leading(ctx, lease)
		}, redlock.WithTTL(time.Second))
		lease := a.term(t)
		b.all((*bubbleNode).blackhole)
		<-lease.Context().Done()
		if left := lease.Validity(); left <= 0 || a.Healthy(0) != nil {
			t.Errorf("with %v left: got Healthy %v, want no error yet", left, a.Healthy(0))
		}
		wantLeading(t, a, false)
		b.all((*bubbleNode).heal)
		z := campaign(t, b.locker(), leading)
		z.term(t)
		time.Sleep(5 * time.Second)
		wantLeading(t, z, true)
		wantLeading(t, a, false)
		wantMatch(t, "IsLeader", a.IsLeader(t.Context()), []error{redlock.ErrNotLeader, redlock.ErrLost})
		if err := a.Healthy(time.Minute); err != nil {
			t.Errorf("Healthy(1m): got %v, want no error", err)
		}
		wantMatch(t, "Healthy(1s)", a.Healthy(time.Second), []error{redlock.ErrLost})
		z.stop()
		time.Sleep(5 * time.Second)
		if len(a.led) != 0 {
			t.Error("got a term while lead of the last one goes on, want none")
		}
		close(goOn)
		a.term(t)
		if err := a.Healthy(0); err != nil {
			t.Errorf("Healthy in the next term: got %v, want no error", err)
		}
		wantLeading(t, a, true)
	})
}

// After a pause Leading looks at the clock: no timer has fired yet.
func TestVirtualElectorAfterAPause(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		clock := locktest.NewJumpClock()
		a := campaign(t, b.locker(redlock.WithClock(clock)), leading)
		lease := a.term(t)
		synctest.Wait()
		wantLeading(t, a, true)
		clock.Jump(time.Minute)
		if a.cause(0) != nil {
			t.Fatal("the context has ended, want it to know nothing yet")
		}
		wantLeading(t, a, false)
		wantMatch(t, "IsLeader", a.IsLeader(t.Context()), []error{redlock.ErrNotLeader, redlock.ErrLost})
		if err := a.Healthy(time.Second); err == nil {
			t.Error("Healthy: got no error, want one while lead has not noticed")
		}
		a.term(t) // the keys were free long ago
		if err := lease.Unlock(t.Context()); !errors.Is(err, redlock.ErrNotHeld) {
			t.Errorf("Unlock of the first term: got %v, want ErrNotHeld", err)
		}
	})
}

// Resign ends the term, and the one who waits leads; its own turn comes again.
func TestVirtualElectorResigns(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		a := campaign(t, b.locker(), leading)
		a.term(t)
		z := campaign(t, b.locker(), leading)
		time.Sleep(5 * time.Second)
		z.Resign() // it has nothing to resign from
		wantLeading(t, a, true)
		for round := range 5 {
			start := time.Now()
			a.Resign()
			z.term(t)
			wantWithin(t, "the other's term", start, 100*time.Millisecond)
			wantMatch(t, "cause of the term's context", a.cause(round), []error{redlock.ErrReleased}, redlock.ErrLost)
			time.Sleep(time.Second)
			wantLeading(t, a, false)
			z.Resign()
			a.term(t)
			time.Sleep(time.Second)
		}
		a.stop()
		<-a.done
		wantMatch(t, "Run", a.err, []error{context.Canceled}, redlock.ErrReleased)
	})
}

// Resign and the end of ctx leave lead its lease until it has wound down.
func TestVirtualElectorKeepsTheLeaseWhileLeadWindsDown(t *testing.T) {
	for name, end := range map[string]func(*candidate){
		"Resign": func(c *candidate) { c.Resign() },
		"ctx":    func(c *candidate) { c.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, b *bubble) {
				a := campaign(t, b.locker(), func(ctx context.Context, lease *redlock.Lease) error {
					<-ctx.Done()
					time.Sleep(time.Minute)
					if left := lease.Validity(); left <= 0 {
						t.Errorf("after a minute of winding down: got a validity of %v, want it renewed", left)
					}
					return nil
				})
				a.term(t)
				z := campaign(t, b.locker(), leading)
				start := time.Now()
				end(a)
				wantLeading(t, a, false)
				select {
				case <-z.led:
				case <-time.After(2 * time.Minute):
					t.Fatal("got no other leader")
				}
				if took := time.Since(start); took < time.Minute || took > time.Minute+100*time.Millisecond {
					t.Errorf("the other leads after %v, want 1 m", took)
				}
			})
		})
	}
}

// What lead returns before its term is over ends Run, and the lease is released.
func TestVirtualElectorLeadReturns(t *testing.T) {
	failure := errors.New("disk full")
	for name, want := range map[string]error{"nil": nil, "an error": failure, "an error of some other context": context.Canceled} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, b *bubble) {
				a := campaign(t, b.locker(), func(context.Context, *redlock.Lease) error { return want })
				<-a.done
				if a.err != want && !errors.Is(a.err, want) {
					t.Errorf("Run: got %v, want %v", a.err, want)
				}
				b.wantHolding("r")
				wantLeading(t, a, false)
				if err := a.Healthy(0); !errors.Is(err, want) || (err == nil) != (want == nil) {
					t.Errorf("Healthy after Run: got %v, want %v", err, want)
				}
				a.run(t, leading)
				a.term(t)
				if err := a.Healthy(0); err != nil {
					t.Errorf("Healthy while it runs again: got %v, want no error", err)
				}
			})
		})
	}
}

// What lead returns after it had lost is logged unless it follows from that.
func TestVirtualElectorLogsLateErrors(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		var log records
		answers := []error{errors.New("rollback failed"), nil, context.Canceled, redlock.ErrLost, fmt.Errorf("store: %w", context.Canceled)}
		terms := 0
		a := campaign(t, b.locker(redlock.WithLogger(slog.New(&log))), func(ctx context.Context, _ *redlock.Lease) error {
			<-ctx.Done()
			if terms++; terms > len(answers) {
				return nil
			}
			return answers[terms-1]
		}, redlock.WithMaxHold(10*time.Second))
		for range answers {
			a.term(t)
		}
		a.term(t)
		var said []string
		for _, line := range log.With("leader") {
			said = append(said, fmt.Sprint(line["error"]))
		}
		if want := []string{"rollback failed"}; !slices.Equal(said, want) {
			t.Errorf("log: got %q, want %q", said, want)
		}
	})
}

// A lead that learns of the loss by itself, before its context has ended, has lost too.
func TestVirtualElectorLeadLearnsOfTheLoss(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		clock := locktest.NewJumpClock()
		a := campaign(t, b.locker(redlock.WithClock(clock)), func(ctx context.Context, lease *redlock.Lease) error {
			clock.Jump(time.Minute)
			if lease.Validity() > 0 || ctx.Err() != nil {
				t.Errorf("after a pause: got a validity of %v, context %v; want it over, and a context that does not know", lease.Validity(), ctx.Err())
			}
			return errors.New("stopped in time")
		})
		a.term(t)
		a.term(t)
		select {
		case <-a.done:
			t.Errorf("Run: got %v, want it to go on", a.err)
		default:
		}
		a.stop()
	})
}

// A panic in lead reaches the caller of Run, after the lease was released.
func TestVirtualElectorPanic(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		e, err := redlock.NewElector(b.locker(), "r")
		if err != nil {
			t.Fatal(err)
		}
		var caught any
		func() {
			defer func() { caught = recover() }()
			_ = e.Run(t.Context(), func(context.Context, *redlock.Lease) error { panic("oh") })
		}()
		if caught != "oh" {
			t.Errorf("got panic %v, want that of lead", caught)
		}
		b.wantHolding("r")
		if e.Leading() {
			t.Error("Leading: got true, want false")
		}
		c := &candidate{Elector: e}
		c.run(t, leading)
		c.term(t)
	})
}

// Close ends the term, and Run with it.
func TestVirtualElectorClosed(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		l := b.locker()
		a := campaign(t, l, leading)
		a.term(t)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		<-a.done
		wantMatch(t, "cause of the term's context", a.cause(0), []error{redlock.ErrReleased, redlock.ErrClosed})
		wantMatch(t, "Run", a.err, []error{redlock.ErrClosed})
		wantMatch(t, "Healthy", a.Healthy(time.Hour), []error{redlock.ErrClosed})
		wantLeading(t, a, false)
	})
}

// Two Electors of one Locker are two candidates; one Elector runs once.
func TestVirtualElectorsOfOneLocker(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		l := b.locker()
		a := campaign(t, l, leading)
		a.term(t)
		z := campaign(t, l, leading)
		time.Sleep(time.Second)
		wantMatch(t, "IsLeader of the other", z.IsLeader(t.Context()), []error{redlock.ErrNotLeader, redlock.ErrTaken})
		wantMatch(t, "a second Run", a.Run(t.Context(), leading), []error{redlock.ErrConfig})
		wantLeading(t, a, true)
		a.stop()
		z.term(t)
		wantLeading(t, z, true)
	})
}

func TestElectorBadArguments(t *testing.T) {
	l := open(t, []string{"127.0.0.1:1"})
	reentrant := open(t, []string{"127.0.0.1:1"}, redlock.WithReentry())
	elector := func(l *redlock.Locker, resource string, opts ...redlock.LockOption) error {
		_, err := redlock.NewElector(l, resource, opts...)
		return err
	}
	e, err := redlock.NewElector(l, "r")
	if err != nil {
		t.Fatal(err)
	}
	var none context.Context
	for name, err := range map[string]error{
		"no Locker":              elector(nil, "r"),
		"no resource":            elector(l, ""),
		"a name of the library":  elector(l, "r~fence"),
		"a TTL that is too long": elector(l, "r", redlock.WithTTL(time.Hour)),
		"a nil option":           elector(l, "r", nil),
		"re-entry":               elector(l, "r", redlock.WithReentry()),
		"re-entry for all":       elector(reentrant, "r"),
		"Run without a context":  e.Run(none, leading),
		"Run without a lead":     e.Run(t.Context(), nil),
	} {
		wantMatch(t, name, err, []error{redlock.ErrConfig})
	}
	if err := e.IsLeader(t.Context()); !errors.Is(err, redlock.ErrNotLeader) || !strings.Contains(err.Error(), "does not campaign") {
		t.Errorf("IsLeader before Run: got %v, want that it does not campaign", err)
	}
}

// On real masters: a leader that is cut off from them has stopped when the other begins.
func TestElectorCutOff(t *testing.T) {
	c := startProxied(t, 3)
	near := open(t, redistest.Addrs(c.proxies), redlock.WithTTL(time.Second))
	far := open(t, c.addrs, redlock.WithTTL(time.Second))

	var mu sync.Mutex
	leaders, most := 0, 0
	lead := func(ctx context.Context, _ *redlock.Lease) error {
		count := func(d int) {
			mu.Lock()
			defer mu.Unlock()
			leaders += d
			most = max(most, leaders)
		}
		count(1)
		<-ctx.Done()
		count(-1)
		return nil
	}
	a := campaign(t, near, lead)
	first := a.term(t)
	z := campaign(t, far, lead)
	for _, p := range c.proxies {
		must(t, p.Set(masters.Blackhole))
	}
	second := z.term(t)
	wantLeading(t, a, false)
	wantLeading(t, z, true)
	for _, p := range c.proxies {
		must(t, p.Set(masters.Pass))
	}
	var third *redlock.Lease
	for z.Resign(); third == nil; {
		select {
		case third = <-a.led:
		case <-z.led: // the other had not been reached by its masters yet
			z.Resign()
		case <-time.After(20 * time.Second):
			t.Fatal("nobody leads")
		}
	}
	if first.Fence() >= second.Fence() || second.Fence() >= third.Fence() {
		t.Errorf("fencing tokens: got %d, %d, %d, want them to rise", first.Fence(), second.Fence(), third.Fence())
	}
	mu.Lock()
	defer mu.Unlock()
	if most != 1 {
		t.Errorf("leaders at one time: got %d, want 1", most)
	}
}
