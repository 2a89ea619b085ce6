package election_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/election"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/redistest"
)

// candidate is an Elector whose Run has a goroutine of its own.
type candidate struct {
	*election.Elector
	stop context.CancelFunc
	led  chan *redlock.Lease // the lease of each term, sent when lead is called
	done chan struct{}       // closed when Run has returned
}

// leading is a lead that waits for the end of its context.
func leading(ctx context.Context, _ *redlock.Lease) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func campaign(t testing.TB, l *redlock.Locker, lead func(context.Context, *redlock.Lease) error, opts ...redlock.LockOption) *candidate {
	t.Helper()
	e, err := election.New(l, "r", opts...)
	locktest.Must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	c := &candidate{Elector: e, stop: stop, led: make(chan *redlock.Lease, 100), done: make(chan struct{})}
	go func() {
		defer close(c.done)
		_ = c.Run(ctx, func(ctx context.Context, lease *redlock.Lease) error {
			c.led <- lease
			return lead(ctx, lease)
		})
	}()
	t.Cleanup(func() { stop(); <-c.done })
	return c
}

// term waits for the next term.
func (c *candidate) term(t testing.TB) *redlock.Lease {
	t.Helper()
	return locktest.Receive(t, c.led, "a term")
}

func wantLeading(t testing.TB, c *candidate, want bool) {
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

func TestElectorBadArguments(outer *testing.T) {
	t := redistest.Timed(outer)
	l := locktest.Open(t, []string{"127.0.0.1:1"})
	prefixed := locktest.Open(t, []string{"127.0.0.1:1"}, redlock.WithKeyPrefix("a~"))
	reentrant := locktest.Open(t, []string{"127.0.0.1:1"}, redlock.WithReentry())
	elector := func(l *redlock.Locker, resource string, opts ...redlock.LockOption) error {
		_, err := election.New(l, resource, opts...)
		return err
	}
	e, err := election.New(l, "r")
	locktest.Must(t, err)
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

// A context whose Err blocks blocks Run, also at its end, but no other method.
func TestVirtualElectorContextThatBlocks(t *testing.T) {
	for _, closed := range []bool{false, true} { // Run ends when the Locker is closed
		locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
			let := make(chan struct{})
			t.Cleanup(func() { close(let) })
			l := b.Locker()
			e, err := election.New(l, "e")
			locktest.Must(t, err)
			if closed {
				locktest.Must(t, l.Close())
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
