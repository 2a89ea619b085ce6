package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/redistest"
)

// sharded returns a Locker for groups of the bubble's nodes, which have their votes.
func (b *bubble) sharded(groups [][]int, opts ...redlock.Option) *redlock.Locker {
	b.t.Helper()
	masters := make([][]*redis.Options, len(groups))
	for i, nodes := range groups {
		for _, n := range nodes {
			masters[i] = append(masters[i], &redis.Options{Addr: b.nodes[n].Addr(), Dialer: b.nodes[n].Dial})
		}
	}
	l, err := redlock.NewShardedFromOptions(masters, append([]redlock.Option{redlock.WithClock(redlock.RuntimeClock()), redlock.WithLogger(nil)}, opts...)...)
	if err != nil {
		b.t.Fatalf("NewShardedFromOptions: got %v, want no error", err)
	}
	b.t.Cleanup(func() { _ = l.Close() })
	b.vouch()
	return l
}

var (
	groupsAB  = [][]int{{0, 1, 2}, {3, 4, 5}}
	groupsAC  = [][]int{{0, 1, 2}, {6, 7, 8}}
	groupsABC = [][]int{{0, 1, 2}, {3, 4, 5}, {6, 7, 8}}
)

// inGroup returns a resource of a group.
func inGroup(t *testing.T, l *redlock.Locker, group int) string {
	t.Helper()
	for i := range 100 {
		if r := fmt.Sprintf("r%d", i); l.GroupOf(r) == group {
			return r
		}
	}
	t.Fatalf("no resource belongs to group %d", group)
	return ""
}

// A resource has its keys in its own group. A group without a quorum stops its own resources
// alone, for longer than a survey counts.
//
// Source: ALGORITHM section 8, "Groups".
func TestVirtualGroups(t *testing.T) {
	inBubble(t, 6, func(t *testing.T, b *bubble) {
		l := b.sharded(groupsAB)
		for group, nodes := range groupsAB {
			lease := b.lock(l, inGroup(t, l, group))
			b.wantHolding(lease.Resource(), nodes...)
			if in, err := l.Inspect(t.Context(), lease.Resource()); err != nil || in.Verdict != redlock.VerdictHeld || len(in.Masters) != 3 {
				t.Errorf("Inspect in group %d: got %v by %d masters, %v; want HELD by 3", group, in.Verdict, len(in.Masters), err)
			}
			b.unlock(lease)
		}
		report, err := l.Check(t.Context())
		if err != nil || len(report.Groups) != 2 || report.Groups[1].Voting != 3 || report.Groups[1].Masters[0].Master != b.nodes[3].Addr() {
			t.Errorf("Check: got %+v, %v; want 3 votes in each of two groups", report, err)
		}
		stats := l.Stats()
		if len(stats.Masters) != 6 || stats.Masters[2].Group != 1 || stats.Masters[3].Group != 2 || stats.Counts.Acquired != 2 {
			t.Errorf("Stats: got %+v, want 3 masters in each of two groups, and 2 leases", stats)
		}
		held := b.lock(l, inGroup(t, l, 0))
		b.each((*bubbleNode).blackhole, 4, 5)
		time.Sleep(time.Minute)
		if err := held.Err(); err != nil {
			t.Errorf("a lease of group 0, while group 1 has no quorum: got %v, want it held", err)
		}
		b.unlock(held)
		b.unlock(b.lock(l, held.Resource()))
		if _, err := l.TryLock(t.Context(), inGroup(t, l, 1)); !errors.Is(err, redlock.ErrNoQuorum) {
			t.Errorf("TryLock in group 1: got %v, want ErrNoQuorum", err)
		}
		fresh := b.sharded(groupsAB)
		b.unlock(b.lock(fresh, held.Resource()))
	})
}

// Two masters of a group that restart empty do not stop the other group, and a client that
// comes then waits for their quarantine.
//
// Source: ALGORITHM section 8, "Groups", "Reason for 2 Quarantine after M.born".
func TestVirtualGroupsRestart(t *testing.T) {
	inBubble(t, 6, func(t *testing.T, b *bubble) {
		l := b.sharded(groupsAB)
		r := inGroup(t, l, 0)
		b.unlock(b.lock(l, r))
		b.each((*bubbleNode).restartEmpty, 3, 4)
		for range 30 {
			time.Sleep(time.Second)
			b.unlock(b.lock(l, r))
		}
		b.each((*bubbleNode).restartEmpty, 3, 4)
		fresh := b.sharded(groupsAB)
		if _, err := fresh.TryLock(t.Context(), r); !errors.Is(err, redlock.ErrQuarantine) {
			t.Errorf("TryLock of a new client: got %v, want ErrQuarantine", err)
		}
		began := time.Now()
		lease, err := fresh.Lock(t.Context(), r)
		must(t, err)
		b.unlock(lease)
		if waited := time.Since(began); waited < 20*time.Second || waited > 22*time.Second {
			t.Errorf("Lock of a new client took %v, want two quarantines", waited)
		}
	})
}

// Clients with different groups are refused, though the groups that they ask have no master in
// common. Without the survey both have the resource.
//
// Source: ALGORITHM section 8, "Groups".
func TestVirtualGroupsDiffer(t *testing.T) {
	for name, other := range map[string][][]int{
		"another group in the same place": groupsAC,
		"a group more":                    groupsABC,
		"a group less":                    {{0, 1, 2}},
		"in another order":                {{3, 4, 5}, {0, 1, 2}},
		"a master exchanged":              {{0, 1, 6}, {3, 4, 5}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 9, func(t *testing.T, b *bubble) {
				first, second := b.sharded(groupsAB), b.sharded(other)
				lease := b.lock(first, inGroup(t, first, 1))
				for range 5 {
					if _, err := second.TryLock(t.Context(), lease.Resource()); !errors.Is(err, redlock.ErrMembership) {
						t.Fatalf("TryLock: got %v, want ErrMembership", err)
					}
					time.Sleep(10 * time.Second)
				}
				b.unlock(lease)
				must(t, first.Close())
				gone := time.Now()
				for {
					lease, err := second.TryLock(t.Context(), lease.Resource())
					if err == nil {
						b.unlock(lease)
						break
					}
					if time.Since(gone) > time.Minute {
						t.Fatalf("a minute later: got %v, want a lease", err)
					}
					time.Sleep(100 * time.Millisecond)
				}
				if waited := time.Since(gone); waited < 10*time.Second || waited > 26*time.Second {
					t.Errorf("the groups were in use for %v more, want two quarantines from the last join", waited)
				}
			})
		})
	}
	t.Run("without the survey", func(t *testing.T) {
		redlock.Break(t, "noSurvey")
		inBubble(t, 9, func(t *testing.T, b *bubble) {
			first, second := b.sharded(groupsAB), b.sharded(groupsAC)
			lease := b.lock(first, inGroup(t, first, 1))
			if _, err := second.TryLock(t.Context(), lease.Resource()); err != nil {
				t.Errorf("got %v, want the second holder that the rule prevents", err)
			}
		})
	})
	t.Run("a master is added within a group", func(t *testing.T) {
		inBubble(t, 9, func(t *testing.T, b *bubble) {
			first, second := b.sharded(groupsAB), b.sharded([][]int{{0, 1, 2}, {3, 4, 5, 6}})
			lease := b.lock(first, inGroup(t, first, 1))
			if _, err := second.TryLock(t.Context(), lease.Resource()); !errors.Is(err, redlock.ErrTaken) {
				t.Errorf("TryLock: got %v, want ErrTaken", err)
			}
			b.unlock(lease)
			b.unlock(b.lock(second, lease.Resource()))
		})
	})
}

// The calls of clients that are refused leave no trace in the counters of their groups: after the
// change the tokens go on rising, although those clients had asked before the former ones first
// locked the resource.
//
// Source: ALGORITHM section 8, "Groups": no acquire is sent while no survey counts.
func TestVirtualGroupsRefusedCallsCountNothing(t *testing.T) {
	inBubble(t, 9, func(t *testing.T, b *bubble) {
		first, second := b.sharded(groupsAB), b.sharded(groupsABC)
		r := moves(first, second)
		b.unlock(b.lock(first, "other"))
		refused := func() {
			t.Helper()
			for range 10 {
				if _, err := second.TryLock(t.Context(), r); !errors.Is(err, redlock.ErrMembership) {
					t.Fatalf("TryLock of the new client: got %v, want ErrMembership", err)
				}
				time.Sleep(time.Second)
			}
		}
		refused()
		before := b.lock(first, r)
		b.unlock(before)
		refused()
		must(t, first.Close())
		time.Sleep(30 * time.Second)
		after := b.lock(second, r)
		if after.Fence() <= before.Fence() {
			t.Errorf("fencing tokens: got %d after the change of groups and %d before it, want a larger one", after.Fence(), before.Fence())
		}
		b.unlock(after)
	})
}

// A group whose masters are out of memory may have the groups of another client, so it is not
// passed over.
//
// Source: ALGORITHM section 8, "Groups".
func TestVirtualGroupsOutOfMemory(t *testing.T) {
	inBubble(t, 9, func(t *testing.T, b *bubble) {
		first, second := b.sharded(groupsAB), b.sharded(groupsAC)
		lease := b.lock(first, inGroup(t, first, 1))
		refuse := func(text string) { b.each(func(n *bubbleNode) { n.replyWith(text) }, 0, 1, 2) }
		refuse("OOM command not allowed when used memory > 'maxmemory'.")
		if _, err := second.TryLock(t.Context(), lease.Resource()); !errors.Is(err, redlock.ErrNoQuorum) {
			t.Errorf("TryLock with other groups, while the common group is out of memory: got %v, want ErrNoQuorum", err)
		}
		refuse("")
		b.unlock(lease)
	})
}

// A client that only looks keeps no client with other groups out, and sees that they differ.
//
// Source: ALGORITHM section 8, "Membership": looking does not join.
func TestVirtualGroupsLook(t *testing.T) {
	inBubble(t, 9, func(t *testing.T, b *bubble) {
		looks, locks := b.sharded(groupsAB), b.sharded(groupsAC)
		for range 10 {
			if in, err := looks.Inspect(t.Context(), "r"); err != nil || in.Verdict != redlock.VerdictFree {
				t.Fatalf("Inspect: got %v, %v; want FREE", in.Verdict, err)
			}
			if _, err := looks.Check(t.Context()); err != nil {
				t.Fatalf("Check: got %v, want no error", err)
			}
			time.Sleep(5 * time.Second)
		}
		lease := b.lock(locks, inGroup(t, locks, 1))
		if _, err := looks.Check(t.Context()); !errors.Is(err, redlock.ErrMembership) {
			t.Errorf("Check while another client has other groups: got %v, want ErrMembership", err)
		}
		b.unlock(lease)
	})
}

// A client that was paused for so long that others have taken its place does not go by a survey
// of before.
//
// Source: ALGORITHM section 8, "Groups": a survey counts for half a quarantine.
func TestVirtualGroupsSurveyLapses(t *testing.T) {
	inBubble(t, 9, func(t *testing.T, b *bubble) {
		first := b.sharded(groupsAB)
		r := inGroup(t, first, 1)
		b.unlock(b.lock(first, r))
		b.each((*bubbleNode).blackhole, 0, 1, 2, 3, 4, 5) // for the first client
		time.Sleep(40 * time.Second)
		b.each((*bubbleNode).heal, 0, 1, 2, 3, 4, 5)
		second := b.sharded(groupsAC)
		lease := b.lock(second, r)
		time.Sleep(5 * time.Second) // the first client connects again
		if _, err := first.TryLock(t.Context(), r); !errors.Is(err, redlock.ErrMembership) {
			t.Errorf("TryLock of the first client: got %v, want ErrMembership", err)
		}
		b.unlock(lease)
	})
}

// moves returns a resource that belongs to another group for the second Locker.
func moves(before, after *redlock.Locker) string {
	for i := 0; ; i++ {
		if r := fmt.Sprint("m", i); before.GroupOf(r) != after.GroupOf(r) {
			return r
		}
	}
}

// changeOver is two fleets of clients with different groups that lock the same resources under load.
type changeOver struct {
	*book
	resources []string
	working   sync.WaitGroup

	mu      sync.Mutex
	atWork  map[string]int // holders by resource
	twice   int            // times that a resource had two
	before  int            // leases of the former fleet,
	after   int            // and of the new one
	refused int            // calls that returned ErrMembership
}

// runFleets starts the former fleet, then the new one beside it, closes the former one once that is
// over, and lets the new one work. The history is not checked: with two holders that can take for ever.
func runFleets(t *testing.T, before, after []*redlock.Locker, over func(c *changeOver) bool, resources ...string) *changeOver {
	t.Helper()
	c := &changeOver{book: newBook(), resources: resources, atWork: make(map[string]int)}
	wait := func(cond func() bool, what string) {
		t.Helper()
		redistest.Eventually(t, time.Minute, func() bool { c.mu.Lock(); defer c.mu.Unlock(); return cond() }, what)
	}
	closing := func(fleet []*redlock.Locker) {
		for _, l := range fleet {
			_ = l.Close() // a holder may have it at this moment
		}
	}
	defer c.working.Wait()
	defer closing(after)
	defer closing(before)
	c.start(t, before, &c.before)
	wait(func() bool { return c.before >= 20 }, "the former fleet works")
	c.start(t, after, &c.after)
	wait(func() bool { return over(c) }, "both fleets have met")
	closing(before)
	c.mu.Lock()
	from := c.after
	c.mu.Unlock()
	wait(func() bool { return c.after >= from+50 }, "the new fleet works alone")
	return c
}

func (c *changeOver) start(t *testing.T, fleet []*redlock.Locker, leases *int) {
	for k, l := range fleet {
		for w := range 2 {
			c.working.Go(func() {
				for i := 2*k + 5*w; ; i++ {
					if !c.turn(t, l, c.resources[i%len(c.resources)], leases) {
						return
					}
				}
			})
		}
	}
}

// turn makes one call, and works for a moment if it gets a lease. It reports false if the Locker is
// closed.
func (c *changeOver) turn(t *testing.T, l *redlock.Locker, resource string, leases *int) bool {
	const moment = 20 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	lease, err := c.take(resource, true, func() (*redlock.Lease, error) { return l.Lock(ctx, resource) })
	c.mu.Lock()
	switch {
	case err == nil:
		*leases++
		if c.atWork[resource]++; c.atWork[resource] > 1 {
			c.twice++
		}
	case errors.Is(err, redlock.ErrMembership):
		c.refused++
	}
	c.mu.Unlock()
	if err != nil {
		time.Sleep(moment)
		return !errors.Is(err, redlock.ErrClosed)
	}
	select {
	case <-time.After(moment):
	case <-lease.Context().Done():
	}
	c.mu.Lock()
	c.atWork[resource]--
	c.mu.Unlock()
	_ = c.free(t.Context(), lease)
	return true
}

// How the two fleets meet.
func newOnesRefused(c *changeOver) bool { return c.refused >= 20 }
func twoHolders(c *changeOver) bool     { return c.twice > 10 }

var eight = []string{"r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7"}

// Two fleets change over under load, from two groups to three and back, before the counters of the
// former groups expire. There are never two holders, and no token falls.
//
// Source: ALGORITHM section 8, "Groups", "Changing the set".
func TestVirtualGroupsChangeOver(t *testing.T) {
	t.Parallel()
	opts := []redlock.Option{redlock.WithTTL(400 * time.Millisecond), redlock.WithMaxTTL(400 * time.Millisecond)}
	change := func(t *testing.T, b *bubble, from, to [][]int, over func(*changeOver) bool, opts []redlock.Option, resources ...string) *changeOver {
		return runFleets(t,
			[]*redlock.Locker{b.sharded(from, opts...), b.sharded(from, opts...)},
			[]*redlock.Locker{b.sharded(to, opts...), b.sharded(to, opts...)}, over, resources...)
	}
	t.Run("by the recipe", func(t *testing.T) {
		inBubble(t, 9, func(t *testing.T, b *bubble) {
			for _, to := range [][2][][]int{{groupsAB, groupsABC}, {groupsABC, groupsAB}, {groupsAB, groupsAC}} {
				if problems := change(t, b, to[0], to[1], newOnesRefused, opts, eight...).problems(); len(problems) > 0 {
					t.Errorf("from %v to %v: got %v, want no problem", to[0], to[1], problems)
				}
			}
		})
	})
	t.Run("without the guard", func(t *testing.T) {
		inBubble(t, 9, func(t *testing.T, b *bubble) {
			moved := moves(b.sharded(groupsAB), b.sharded(groupsABC))
			change(t, b, groupsAB, groupsABC, twoHolders, append(slices.Clone(opts), redlock.WithoutRestartGuard()), moved)
		})
	})
}

// A resource goes to another group and back, while its counter in the first group lives. The
// tokens rise. They fall if the first group counts on from its counter.
//
// Source: ALGORITHM section 8, "Groups", "M.since".
func TestVirtualGroupsThereAndBack(t *testing.T) {
	there := func(t *testing.T, b *bubble) (fences []int64) {
		opts := []redlock.Option{redlock.WithTTL(time.Second), redlock.WithMaxTTL(time.Second)}
		for _, groups := range [][][]int{groupsAB, groupsAC, groupsAB} {
			l := b.sharded(groups, opts...)
			lease := b.lock(l, inGroup(t, l, 1))
			fences = append(fences, lease.Fence())
			b.unlock(lease)
			must(t, l.Close())
			time.Sleep(4 * time.Second) // counters live for 10 s
		}
		return fences
	}
	inBubble(t, 9, func(t *testing.T, b *bubble) {
		if got := there(t, b); !slices.IsSorted(got) {
			t.Errorf("fencing tokens: got %v, want them to rise", got)
		}
	})
	t.Run("without M.since", func(t *testing.T) {
		redlock.BreakScript(t, func(script string) string {
			return strings.ReplaceAll(script, "tonumber(known[4])", "nil")
		})
		inBubble(t, 9, func(t *testing.T, b *bubble) {
			if got := there(t, b); slices.IsSorted(got) {
				t.Errorf("fencing tokens: got %v, want them to fall", got)
			}
		})
	})
}

// On real masters two fleets change over under load, from two groups to three.
//
// Source: ALGORITHM section 8, "Groups", "Changing the set".
func TestGroupsChangeOver(t *testing.T) {
	addrs := redistest.Addrs(redistest.Masters(t, 9))
	before, after := [][]string{addrs[:3], addrs[3:6]}, [][]string{addrs[:3], addrs[3:6], addrs[6:]}
	fleet := func(groups [][]string, opts ...redlock.Option) (fleet []*redlock.Locker) {
		for range 2 {
			l, err := redlock.NewSharded(groups, append([]redlock.Option{redlock.WithTTL(400 * time.Millisecond), redlock.WithMaxTTL(400 * time.Millisecond), redlock.WithLogger(nil)}, opts...)...)
			must(t, err)
			fleet = append(fleet, l)
		}
		return fleet
	}
	if problems := runFleets(t, fleet(before), fleet(after), newOnesRefused, eight...).problems(); len(problems) > 0 {
		t.Errorf("got %v, want no problem", problems)
	}
	unguarded := []redlock.Option{redlock.WithKeyPrefix("unguarded:"), redlock.WithoutRestartGuard()}
	former, later := fleet(before, unguarded...), fleet(after, unguarded...)
	runFleets(t, former, later, twoHolders, moves(former[0], later[0]))
}
