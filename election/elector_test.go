package election_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/election"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/internal/virtual"
)

// candidate is an Elector whose Run has a goroutine of its own.
type candidate struct {
	*election.Elector
	stop context.CancelFunc
	led  chan *redlock.Lease // the lease of each term, sent when lead is called
	done chan struct{}       // closed when Run has returned
	err  error               // result of Run

	mu     sync.Mutex
	causes []error // of the ends of lead's contexts
}

// leading is a lead that waits for the end of its context.
func leading(ctx context.Context, _ *redlock.Lease) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func campaign(t *testing.T, l *redlock.Locker, lead func(context.Context, *redlock.Lease) error, opts ...redlock.LockOption) *candidate {
	t.Helper()
	e, err := election.New(l, "r", opts...)
	if err != nil {
		t.Fatalf("New: got %v, want no error", err)
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

// term waits for the next term.
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
		locktest.WantMatch(t, "IsLeader", err, []error{election.ErrNotLeader})
	}
}

// One process leads. When its context ends, the other one leads without waiting for the TTL.
func TestVirtualElectorHandsOn(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		a := campaign(t, b.Locker(), leading)
		first := a.term(t)
		z := campaign(t, b.Locker(), leading)
		time.Sleep(time.Minute)
		wantLeading(t, a, true)
		wantLeading(t, z, false)
		locktest.WantMatch(t, "IsLeader of the other", z.IsLeader(t.Context()), []error{election.ErrNotLeader, redlock.ErrTaken}, redlock.ErrNoQuorum)
		if got := a.Lease(); got != first {
			t.Errorf("Lease: got %v, want that of the term", got)
		}

		start := time.Now()
		a.stop()
		second := z.term(t)
		locktest.WantWithin(t, "the next term", start, 100*time.Millisecond)
		<-a.done
		locktest.WantMatch(t, "Run whose context has ended", a.err, []error{context.Canceled}, redlock.ErrLost, redlock.ErrNotHeld)
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

// A leader that is cut off is told before another process can lead, and campaigns again.
func TestVirtualElectorLoses(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		a := campaign(t, b.Locker(), leading)
		first := a.term(t)
		time.Sleep(time.Minute)
		b.All((*virtual.Node).Blackhole)
		time.Sleep(20 * time.Second)
		wantLeading(t, a, false)
		locktest.WantMatch(t, "cause of the term's context", a.cause(0), []error{redlock.ErrLost, reason.Expired})
		locktest.WantMatch(t, "IsLeader", a.IsLeader(t.Context()), []error{election.ErrNotLeader, redlock.ErrNoQuorum}, redlock.ErrTaken)
		if err := a.Healthy(0); err != nil {
			t.Errorf("Healthy while the masters are down: got %v, want no error", err)
		}
		b.All((*virtual.Node).Heal)
		if second := a.term(t); second.Fence() <= first.Fence() {
			t.Errorf("fencing tokens: got %d after %d, want them to rise", second.Fence(), first.Fence())
		}
		wantLeading(t, a, true)
	})
}

// While lead runs on after its lease, this process does not lead again, and is not healthy.
func TestVirtualElectorWaitsForLead(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.Locker()
		goOn := make(chan struct{})
		a := campaign(t, l, func(ctx context.Context, lease *redlock.Lease) error {
			<-goOn
			return leading(ctx, lease)
		}, redlock.WithTTL(time.Second))
		lease := a.term(t)
		b.All((*virtual.Node).Blackhole)
		<-lease.Context().Done()
		if left := lease.Validity(); left <= 0 || a.Healthy(0) != nil {
			t.Errorf("with %v left: got Healthy %v, want no error yet", left, a.Healthy(0))
		}
		wantLeading(t, a, false)
		b.All((*virtual.Node).Heal)
		z := campaign(t, b.Locker(), leading)
		z.term(t)
		time.Sleep(5 * time.Second)
		wantLeading(t, z, true)
		wantLeading(t, a, false)
		locktest.WantMatch(t, "IsLeader", a.IsLeader(t.Context()), []error{election.ErrNotLeader, redlock.ErrLost})
		if err := a.Healthy(time.Minute); err != nil {
			t.Errorf("Healthy(1m): got %v, want no error", err)
		}
		locktest.WantMatch(t, "Healthy(1s)", a.Healthy(time.Second), []error{redlock.ErrLost})
		z.stop()
		time.Sleep(5 * time.Second)
		if len(a.led) != 0 {
			t.Error("got a term while lead of the last one still runs, want none")
		}
		close(goOn)
		a.term(t)
		if err := a.Healthy(0); err != nil {
			t.Errorf("Healthy in the next term: got %v, want no error", err)
		}
		wantLeading(t, a, true)
	})
}

// After a pause Leading goes by the clock, before a timer has fired.
func TestVirtualElectorAfterAPause(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		clock := locktest.NewJumpClock()
		a := campaign(t, b.Locker(redlock.WithClock(clock)), leading)
		lease := a.term(t)
		synctest.Wait()
		wantLeading(t, a, true)
		clock.Jump(time.Minute)
		if a.cause(0) != nil {
			t.Fatal("the context has ended, want it to end later")
		}
		wantLeading(t, a, false)
		locktest.WantMatch(t, "IsLeader", a.IsLeader(t.Context()), []error{election.ErrNotLeader, redlock.ErrLost})
		if err := a.Healthy(time.Second); err == nil {
			t.Error("Healthy: got no error, want one while lead runs on")
		}
		a.term(t) // the keys have expired long ago
		if err := lease.Unlock(t.Context()); !errors.Is(err, redlock.ErrNotHeld) {
			t.Errorf("Unlock of the first term: got %v, want ErrNotHeld", err)
		}
	})
}

// Resign ends the term, and the process that waits leads. The first one leads again later.
func TestVirtualElectorResigns(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		a := campaign(t, b.Locker(), leading)
		a.term(t)
		z := campaign(t, b.Locker(), leading)
		time.Sleep(5 * time.Second)
		z.Resign() // has no effect: it does not lead
		wantLeading(t, a, true)
		for round := range 5 {
			start := time.Now()
			a.Resign()
			z.term(t)
			locktest.WantWithin(t, "the other's term", start, 100*time.Millisecond)
			locktest.WantMatch(t, "cause of the term's context", a.cause(round), []error{redlock.ErrReleased}, redlock.ErrLost)
			time.Sleep(time.Second)
			wantLeading(t, a, false)
			z.Resign()
			a.term(t)
			time.Sleep(time.Second)
		}
		a.stop()
		<-a.done
		locktest.WantMatch(t, "Run", a.err, []error{context.Canceled}, redlock.ErrReleased)
	})
}

// After Resign, or the end of ctx, lead keeps its lease until it has returned.
func TestVirtualElectorKeepsTheLeaseWhileLeadWindsDown(t *testing.T) {
	for name, end := range map[string]func(*candidate){
		"Resign": func(c *candidate) { c.Resign() },
		"ctx":    func(c *candidate) { c.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
				a := campaign(t, b.Locker(), func(ctx context.Context, lease *redlock.Lease) error {
					<-ctx.Done()
					time.Sleep(time.Minute)
					if left := lease.Validity(); left <= 0 {
						t.Errorf("after a minute of winding down: got a validity of %v, want it renewed", left)
					}
					return nil
				})
				a.term(t)
				z := campaign(t, b.Locker(), leading)
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

// If lead returns before its term is over, Run returns the same, and the lease is released.
func TestVirtualElectorLeadReturns(t *testing.T) {
	failure := errors.New("disk full")
	for name, want := range map[string]error{"nil": nil, "an error": failure, "an error of some other context": context.Canceled} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
				a := campaign(t, b.Locker(), func(context.Context, *redlock.Lease) error { return want })
				<-a.done
				if a.err != want && !errors.Is(a.err, want) {
					t.Errorf("Run: got %v, want %v", a.err, want)
				}
				b.WantHolding("r")
				wantLeading(t, a, false)
				if err := a.Healthy(0); !errors.Is(err, want) || (err == nil) != (want == nil) {
					t.Errorf("Healthy after Run: got %v, want %v", err, want)
				}
				if err := a.IsLeader(t.Context()); !errors.Is(err, election.ErrNotLeader) || want != nil && !errors.Is(err, want) {
					t.Errorf("IsLeader after Run: got %v, want ErrNotLeader and %v", err, want)
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

// A Run that lead ended by a panic, or by the end of its goroutine, is not healthy.
func TestVirtualElectorLeadPanics(t *testing.T) {
	for name, lead := range map[string]func(){"panic": func() { panic("lead") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
				e, err := election.New(b.Locker(), "r")
				locktest.Must(t, err)
				var run sync.WaitGroup
				run.Add(1)
				go func() {
					defer run.Done()
					defer func() { _ = recover() }()
					_ = e.Run(t.Context(), func(context.Context, *redlock.Lease) error { lead(); return nil })
				}()
				run.Wait()
				if err := e.Healthy(0); err == nil {
					t.Error("Healthy: got no error, want one")
				}
				b.WantHolding("r")
			})
		})
	}
}

// An error of lead after the end of its term is logged, unless it follows from the end.
func TestVirtualElectorLogsLateErrors(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		var log locktest.Records
		answers := []error{errors.New("rollback failed"), nil, context.Canceled, redlock.ErrLost, fmt.Errorf("store: %w", context.Canceled)}
		terms := 0
		a := campaign(t, b.Locker(redlock.WithLogger(slog.New(&log))), func(ctx context.Context, _ *redlock.Lease) error {
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
		for _, n := range b.Nodes {
			n.Put(redlock.DefaultKeyPrefix+"r", "", 0) // so another process may have led
		}
		a.Resign()
		time.Sleep(time.Second)
		if lines := log.With("after a term"); len(lines) != 2 || !errors.Is(lines[1]["error"].(error), redlock.ErrNotHeld) {
			t.Errorf("log after the loss of all keys: got %v, want ErrNotHeld", lines[1:])
		}
	})
}

// If lead notices the loss by the clock and returns before its context has ended, its term was
// over, too.
func TestVirtualElectorLeadLearnsOfTheLoss(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		clock := locktest.NewJumpClock()
		a := campaign(t, b.Locker(redlock.WithClock(clock)), func(ctx context.Context, lease *redlock.Lease) error {
			clock.Jump(time.Minute)
			if lease.Validity() > 0 || ctx.Err() != nil {
				t.Errorf("after a pause: got a validity of %v, context %v; want none, and a context that has not ended", lease.Validity(), ctx.Err())
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

// A panic in lead reaches the caller of Run after the release of the lease.
func TestVirtualElectorPanic(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		e, err := election.New(b.Locker(), "r")
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
		b.WantHolding("r")
		if e.Leading() {
			t.Error("Leading: got true, want false")
		}
		c := &candidate{Elector: e}
		c.run(t, leading)
		c.term(t)
	})
}

// Close ends the term and Run.
func TestVirtualElectorClosed(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.Locker()
		a := campaign(t, l, leading)
		a.term(t)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		<-a.done
		locktest.WantMatch(t, "cause of the term's context", a.cause(0), []error{redlock.ErrReleased, redlock.ErrClosed})
		locktest.WantMatch(t, "Run", a.err, []error{redlock.ErrClosed})
		locktest.WantMatch(t, "Healthy", a.Healthy(time.Hour), []error{redlock.ErrClosed})
		wantLeading(t, a, false)
	})
}

// Close ends the context of lead, and keeps the lease until lead has returned, for 10 s at most.
func TestVirtualElectorKeepsTheLeaseAfterClose(t *testing.T) {
	for winds, keeps := range map[time.Duration]time.Duration{0: 0, 5 * time.Second: 5 * time.Second, time.Minute: 10 * time.Second} {
		t.Run(winds.String(), func(t *testing.T) {
			locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
				l := b.Locker()
				a := campaign(t, l, func(ctx context.Context, lease *redlock.Lease) error {
					<-ctx.Done()
					time.Sleep(winds)
					return nil
				}, redlock.WithTTL(2*time.Second))
				a.term(t)
				z := campaign(t, b.Locker(), leading, redlock.WithTTL(2*time.Second))
				start := time.Now()
				locktest.Must(t, l.Close())
				wantLeading(t, a, false)
				z.term(t)
				if took := time.Since(start); took < keeps || took > keeps+time.Second {
					t.Errorf("the other leads after %v, want %v", took, keeps)
				}
				<-a.done
				locktest.WantMatch(t, "cause of the term's context", a.cause(0), []error{redlock.ErrReleased, redlock.ErrClosed})
				locktest.WantMatch(t, "Run", a.err, []error{redlock.ErrClosed})
			})
		})
	}
}

// Two Electors of one Locker are two candidates. A second Run of one Elector is refused.
func TestVirtualElectorsOfOneLocker(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.Locker()
		a := campaign(t, l, leading)
		a.term(t)
		z := campaign(t, l, leading)
		time.Sleep(time.Second)
		locktest.WantMatch(t, "IsLeader of the other", z.IsLeader(t.Context()), []error{election.ErrNotLeader, redlock.ErrTaken})
		locktest.WantMatch(t, "a second Run", a.Run(t.Context(), leading), []error{redlock.ErrConfig})
		wantLeading(t, a, true)
		a.stop()
		z.term(t)
		wantLeading(t, z, true)
	})
}

func TestElectorBadArguments(t *testing.T) {
	l := locktest.Open(t, []string{"127.0.0.1:1"})
	prefixed := locktest.Open(t, []string{"127.0.0.1:1"}, redlock.WithKeyPrefix("a~"))
	reentrant := locktest.Open(t, []string{"127.0.0.1:1"}, redlock.WithReentry())
	elector := func(l *redlock.Locker, resource string, opts ...redlock.LockOption) error {
		_, err := election.New(l, resource, opts...)
		return err
	}
	e, err := election.New(l, "r")
	if err != nil {
		t.Fatal(err)
	}
	leader := func(ctx context.Context) error {
		_, err := e.Leader(ctx)
		return err
	}
	var none context.Context
	for name, err := range map[string]error{
		"no Locker":                elector(nil, "r"),
		"no resource":              elector(l, ""),
		"a name of the library":    elector(l, "r~fence"),
		"a permit":                 elector(l, "r~1"),
		"a prefixed name":          elector(prefixed, "turn"),
		"a TTL that is too long":   elector(l, "r", redlock.WithTTL(time.Hour)),
		"a nil option":             elector(l, "r", nil),
		"re-entry":                 elector(l, "r", redlock.WithReentry()),
		"shared":                   elector(l, "r", redlock.Shared()),
		"re-entry for all":         elector(reentrant, "r"),
		"no Locker that New made":  elector(new(redlock.Locker), "r"),
		"Run without a context":    e.Run(none, leading),
		"Run without a lead":       e.Run(t.Context(), nil),
		"Leader without a context": leader(none),
		"Healthy with less than 0": e.Healthy(-1),
	} {
		locktest.WantMatch(t, name, err, []error{redlock.ErrConfig})
		called, _, _ := strings.Cut(name, " with")
		if called == name {
			called = "New"
		}
		if want := "redlock: invalid configuration: election: " + called + ": "; !strings.HasPrefix(fmt.Sprint(err), want) {
			t.Errorf("%s: got %v, want %q in front", name, err, want)
		}
	}
	if err := elector(prefixed, "turns"); err != nil {
		t.Errorf("a resource that only contains a name of the library: got %v, want no error", err)
	}
	for _, l := range []*redlock.Locker{l, prefixed, reentrant} {
		if n := l.Stats().Masters[0]; n.State != redlock.MasterUntried {
			t.Errorf("got a node that is %v, want it not asked", n.State)
		}
	}
	if err := e.IsLeader(t.Context()); !errors.Is(err, election.ErrNotLeader) || !strings.Contains(err.Error(), "does not campaign") {
		t.Errorf("IsLeader before Run: got %v, want ErrNotLeader, as it does not campaign", err)
	}
}

// Reason has a word for ErrNotLeader, unless the error has a more precise one.
func TestReason(t *testing.T) {
	for err, want := range map[error]string{
		election.ErrNotLeader: "not_leader",
		fmt.Errorf("%w of %q yet", election.ErrNotLeader, "r"):                     "not_leader",
		fmt.Errorf("%w: %w", election.ErrNotLeader, redlock.ErrTaken):              "taken",
		fmt.Errorf("%w: %w", election.ErrNotLeader, reason.Expired):                "expired",
		fmt.Errorf("%w: it has ended: %w", election.ErrNotLeader, redlock.ErrLost): "not_leader",
	} {
		if got := redlock.Reason(err); got != want {
			t.Errorf("%v: got %q, want %q", err, got, want)
		}
	}
}

// A lead that runs on after it unlocked or detached its lease is not healthy, either.
func TestVirtualElectorLeadEndsItsLease(t *testing.T) {
	for name, end := range map[string]func(*redlock.Lease) error{
		"Unlock": func(l *redlock.Lease) error { return l.Unlock(context.Background()) },
		"Detach": (*redlock.Lease).Detach,
	} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
				goOn := make(chan struct{})
				a := campaign(t, b.Locker(), func(ctx context.Context, lease *redlock.Lease) error {
					if err := end(lease); err != nil {
						t.Errorf("got %v, want no error", err)
					}
					<-goOn
					return nil
				})
				a.term(t)
				synctest.Wait()
				wantLeading(t, a, false)
				time.Sleep(time.Minute)
				if err := a.Healthy(time.Minute); err != nil {
					t.Errorf("Healthy(1m) after a minute: got %v, want no error", err)
				}
				if err := a.Healthy(time.Minute - 1); err == nil {
					t.Error("Healthy(1m-1ns) after a minute: got no error, want one")
				}
				close(goOn)
				a.term(t) // Run campaigns again
			})
		})
	}
}

// Close ends Run at once, also in the pause after a term.
func TestVirtualElectorClosedAfterATerm(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.Locker()
		a := campaign(t, l, leading)
		a.term(t)
		a.Resign()
		time.Sleep(time.Second)
		start := time.Now()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		<-a.done
		locktest.WantSince(t, "the end of Run", start, 0)
		locktest.WantMatch(t, "Run", a.err, []error{redlock.ErrClosed})
	})
}

// A context whose Err blocks blocks Run, also at its end, but no other method.
func TestVirtualElectorContextThatBlocks(t *testing.T) {
	for _, closed := range []bool{false, true} { // Run ends when the Locker is closed
		locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
			let := make(chan struct{})
			t.Cleanup(func() { close(let) })
			l := b.Locker()
			e, err := election.New(l, "e")
			if err != nil {
				t.Fatal(err)
			}
			if closed {
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			}
			go func() {
				_ = e.Run(locktest.SlowContext(t.Context(), let), func(context.Context, *redlock.Lease) error { return nil })
			}()
			synctest.Wait()
			_ = e.Healthy(0) // looks at the result of Run
			if e.Leading() || e.Lease() != nil {
				t.Error("got a leader, want none")
			}
			e.Resign()
		})
	}
}

// On real masters: a leader that is cut off from them has stopped before the other one begins.
func TestElectorCutOff(t *testing.T) {
	list := locktest.Masters(t, 3)
	proxies := redistest.Proxied(t, list)
	near := locktest.Open(t, redistest.Addrs(proxies), redlock.WithTTL(3*time.Second)) // a goroutine may be 60 ms late
	far := locktest.Open(t, redistest.Addrs(list), redlock.WithTTL(3*time.Second))
	set := func(f masters.Fault) {
		t.Helper()
		for _, p := range proxies {
			if err := p.Set(f); err != nil {
				t.Fatal(err)
			}
		}
	}

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
	set(masters.Blackhole)
	second := z.term(t)
	wantLeading(t, a, false)
	wantLeading(t, z, true)
	set(masters.Pass)
	var third *redlock.Lease
	for z.Resign(); third == nil; {
		select {
		case third = <-a.led:
		case <-z.led: // the first one was not connected to its masters yet
			z.Resign()
		case <-time.After(20 * time.Second):
			t.Fatal("got no leader")
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
