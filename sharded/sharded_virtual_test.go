package sharded_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/inject"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/internal/virtual"
	"github.com/d0720281/redlock/sharded"
)

// open returns a Locker for groups of the bubble's nodes, which have their votes.
func open(b *locktest.Bubble, groups [][]int, opts ...redlock.Option) *sharded.Locker {
	b.T.Helper()
	masters := make([][]*redis.Options, len(groups))
	for i, nodes := range groups {
		for _, n := range nodes {
			masters[i] = append(masters[i], &redis.Options{Addr: b.Nodes[n].Addr(), Dialer: b.Nodes[n].Dial})
		}
	}
	l, err := sharded.NewFromOptions(masters, append([]redlock.Option{redlock.WithClock(redlock.RuntimeClock()), redlock.WithLogger(nil)}, opts...)...)
	if err != nil {
		b.T.Fatalf("NewFromOptions: got %v, want no error", err)
	}
	b.T.Cleanup(func() { _ = l.Close() })
	b.Vouch()
	return l
}

// lock takes a lease by TryLock, and waits until all masters have answered.
func lock(b *locktest.Bubble, l *sharded.Locker, resource string) *redlock.Lease {
	b.T.Helper()
	lease, err := l.TryLock(b.T.Context(), resource)
	locktest.Must(b.T, err)
	synctest.Wait()
	return lease
}

var (
	groupsAB  = [][]int{{0, 1, 2}, {3, 4, 5}}
	groupsAC  = [][]int{{0, 1, 2}, {6, 7, 8}}
	groupsABC = [][]int{{0, 1, 2}, {3, 4, 5}, {6, 7, 8}}
)

// inGroup returns a resource of a group.
func inGroup(t *testing.T, l *sharded.Locker, group int) string {
	t.Helper()
	for i := range 100 {
		if r := fmt.Sprintf("r%d", i); l.GroupOf(r) == l.Groups()[group] {
			return r
		}
	}
	t.Fatalf("no resource belongs to group %d", group)
	return ""
}

// A resource has its keys in its own group. A group without a quorum stops its own resources
// alone, for longer than a survey counts, and also for a client that comes then.
//
// Source: ALGORITHM section 8, "Groups".
func TestVirtualGroups(t *testing.T) {
	for name, fail := range map[string]func(n *virtual.Node){
		"no answer":     (*virtual.Node).Blackhole,
		"too late":      func(n *virtual.Node) { n.Latency(200*time.Millisecond, 200*time.Millisecond) },
		"no connection": (*virtual.Node).Kill,
	} {
		t.Run(name, func(t *testing.T) { groupWithoutQuorum(t, fail) })
	}
}

func groupWithoutQuorum(t *testing.T, fail func(n *virtual.Node)) {
	locktest.InBubble(t, 6, func(t *testing.T, b *locktest.Bubble) {
		l := open(b, groupsAB)
		for group, nodes := range groupsAB {
			lease := lock(b, l, inGroup(t, l, group))
			b.WantHolding(lease.Resource(), nodes...)
			b.Unlock(lease)
		}
		held := lock(b, l, inGroup(t, l, 0))
		b.Each(fail, 4, 5)
		time.Sleep(time.Minute)
		if err := held.Err(); err != nil {
			t.Errorf("a lease of group 0, while group 1 has no quorum: got %v, want it held", err)
		}
		b.Unlock(held)
		b.Unlock(lock(b, l, held.Resource()))
		if _, err := l.TryLock(t.Context(), inGroup(t, l, 1)); !errors.Is(err, redlock.ErrNoQuorum) {
			t.Errorf("TryLock in group 1: got %v, want ErrNoQuorum", err)
		}
		fresh := open(b, groupsAB)
		b.Unlock(lock(b, fresh, held.Resource()))
	})
}

// A call that ends during the survey matches its context's error, and the cause.
func TestVirtualGroupsGiveUp(t *testing.T) {
	locktest.InBubble(t, 6, func(t *testing.T, b *locktest.Bubble) {
		l := open(b, groupsAB)
		b.All((*virtual.Node).Blackhole)
		why := errors.New("the request was dropped")
		ctx, drop := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Millisecond, func() { drop(why) })
		_, err := l.Lock(ctx, "r")
		locktest.WantMatch(t, "Lock", err, []error{redlock.ErrNotAcquired, context.Canceled, why})
		closed := make(chan error)
		time.AfterFunc(time.Millisecond, func() { closed <- l.Close() })
		_, err = l.Lock(t.Context(), "r")
		locktest.WantMatch(t, "Lock, closed meanwhile", err, []error{redlock.ErrNotAcquired, redlock.ErrClosed})
		locktest.Must(t, <-closed)
		_, err = l.Lock(t.Context(), "r")
		locktest.WantMatch(t, "Lock after Close", err, []error{redlock.ErrClosed}, redlock.ErrNotAcquired)
	})
}

// Two masters of a group that restart empty do not stop the other group. A client that comes then waits
// for their quarantine: they may have forgotten clients with other groups. It does so although the third
// master refuses the user, and although another client has its key on the two.
//
// Source: ALGORITHM section 8, "Groups".
func TestVirtualGroupsRestart(t *testing.T) {
	locktest.InBubble(t, 6, func(t *testing.T, b *locktest.Bubble) {
		l := open(b, groupsAB)
		r := inGroup(t, l, 0)
		b.Unlock(lock(b, l, r))
		b.Each((*virtual.Node).RestartEmpty, 3, 4)
		for range 30 {
			time.Sleep(time.Second)
			b.Unlock(lock(b, l, r))
		}
		b.Each((*virtual.Node).RestartEmpty, 3, 4)
		b.Nodes[5].Refuse("NOPERM this user has no permissions to run the 'evalsha' command")
		b.Each(func(n *virtual.Node) { n.Put(redlock.DefaultKeyPrefix+"sharded", "another client|0", time.Second) }, 3, 4)
		fresh := open(b, groupsAB)
		if _, err := fresh.TryLock(t.Context(), r); !errors.Is(err, redlock.ErrQuarantine) {
			t.Errorf("TryLock of a new client: got %v, want ErrQuarantine", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := fresh.Lock(ctx, r)
		locktest.WantMatch(t, "Lock of a new client, for a second", err, []error{redlock.ErrQuarantine}, context.DeadlineExceeded)
		locktest.WantWithin(t, "the error, as the quarantine is longer", began, 500*time.Millisecond)
		began = time.Now()
		lease, err := fresh.Lock(t.Context(), r)
		locktest.Must(t, err)
		b.Unlock(lease)
		if waited := time.Since(began); waited < 8*time.Second || waited > 11*time.Second {
			t.Errorf("Lock of a new client took %v, want the rest of a quarantine", waited)
		}
	})
}

// Clients with different groups are refused, though the groups that they ask have no master in
// common. Without the survey both have the resource.
//
// Source: ALGORITHM section 8, "Groups".
func TestVirtualGroupsDiffer(t *testing.T) {
	redistest.TakesSeconds(t)
	for name, other := range map[string][][]int{
		"another group in the same place": groupsAC,
		"a group more":                    groupsABC,
		"a group less":                    {{0, 1, 2}},
		"in another order":                {{3, 4, 5}, {0, 1, 2}},
		"a master exchanged":              {{0, 1, 6}, {3, 4, 5}},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, 9, func(t *testing.T, b *locktest.Bubble) {
				first, second := open(b, groupsAB), open(b, other)
				lease := lock(b, first, inGroup(t, first, 1))
				for range 5 {
					if _, err := second.TryLock(t.Context(), lease.Resource()); !errors.Is(err, reason.Membership) {
						t.Fatalf("TryLock: got %v, want reason.Membership", err)
					}
					time.Sleep(10 * time.Second)
				}
				b.Unlock(lease)
				locktest.Must(t, first.Close())
				gone := time.Now()
				for {
					lease, err := second.TryLock(t.Context(), lease.Resource())
					if err == nil {
						b.Unlock(lease)
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
		locktest.InBubble(t, 9, func(t *testing.T, b *locktest.Bubble) {
			first, second := open(b, groupsAB), open(b, groupsAC)
			lease := lock(b, first, inGroup(t, first, 1))
			if _, err := second.GroupOf(lease.Resource()).TryLock(t.Context(), lease.Resource()); err != nil {
				t.Errorf("got %v, want the second holder that the rule prevents", err)
			}
		})
	})
	t.Run("a master is added within a group", func(t *testing.T) {
		locktest.InBubble(t, 9, func(t *testing.T, b *locktest.Bubble) {
			first, second := open(b, groupsAB), open(b, [][]int{{0, 1, 2}, {3, 4, 5, 6}})
			lease := lock(b, first, inGroup(t, first, 1))
			if _, err := second.TryLock(t.Context(), lease.Resource()); !errors.Is(err, redlock.ErrTaken) {
				t.Errorf("TryLock: got %v, want ErrTaken", err)
			}
			b.Unlock(lease)
			b.Unlock(lock(b, second, lease.Resource()))
		})
	})
}

// The calls of clients that are refused leave no trace in the counters of their groups: after the
// change the tokens go on rising, although those clients had asked before the former ones first
// locked the resource.
//
// Source: ALGORITHM section 8, "Groups".
func TestVirtualGroupsRefusedCallsCountNothing(t *testing.T) {
	locktest.InBubble(t, 9, func(t *testing.T, b *locktest.Bubble) {
		first, second := open(b, groupsAB), open(b, groupsABC)
		r := moves(first, second)
		b.Unlock(lock(b, first, "other"))
		refused := func() {
			t.Helper()
			for range 10 {
				if _, err := second.TryLock(t.Context(), r); !errors.Is(err, reason.Membership) {
					t.Fatalf("TryLock of the new client: got %v, want reason.Membership", err)
				}
				time.Sleep(time.Second)
			}
		}
		refused()
		before := lock(b, first, r)
		b.Unlock(before)
		refused()
		locktest.Must(t, first.Close())
		time.Sleep(30 * time.Second)
		after := lock(b, second, r)
		if after.Fence() <= before.Fence() {
			t.Errorf("fencing tokens: got %d after the change of groups and %d before it, want a larger one", after.Fence(), before.Fence())
		}
		b.Unlock(after)
	})
}

// A group whose masters are out of memory may have the groups of another client, so it is not
// passed over.
//
// Source: ALGORITHM section 8, "Groups".
func TestVirtualGroupsOutOfMemory(t *testing.T) {
	locktest.InBubble(t, 9, func(t *testing.T, b *locktest.Bubble) {
		first, second := open(b, groupsAB), open(b, groupsAC)
		lease := lock(b, first, inGroup(t, first, 1))
		refuse := func(text string) { b.Each(func(n *virtual.Node) { n.Refuse(text) }, 0, 1, 2) }
		refuse("OOM command not allowed when used memory > 'maxmemory'.")
		if _, err := second.TryLock(t.Context(), lease.Resource()); !errors.Is(err, redlock.ErrNoQuorum) {
			t.Errorf("TryLock with other groups, while the common group is out of memory: got %v, want ErrNoQuorum", err)
		}
		refuse("")
		b.Unlock(lease)
	})
}

// A client that was cut off for so long that others have taken its place does not go by a survey
// of before. It waits for the quarantine of the masters that refuse it, if they restart empty after
// that survey has lapsed: they have forgotten the others.
//
// Source: ALGORITHM section 8, "Groups": a survey counts for half a quarantine.
func TestVirtualGroupsSurveyLapses(t *testing.T) {
	for name, test := range map[string]struct{ cut, restart time.Duration }{
		"the last survey that passed counts no longer": {29 * time.Second, 3 * time.Second}, // the second client is let in after two quarantines, 20.6 s
		"a group has named other groups since":         {40 * time.Second, 500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, 9, func(t *testing.T, b *locktest.Bubble) {
				first := open(b, groupsAB)
				r := inGroup(t, first, 1)
				b.Unlock(lock(b, first, r))
				b.Each((*virtual.Node).Blackhole, 0, 1, 2, 3, 4, 5) // for the first client
				time.Sleep(test.cut)
				b.Each((*virtual.Node).Heal, 0, 1, 2, 3, 4, 5)
				second := open(b, groupsAC)
				lease := lock(b, second, r)
				time.Sleep(5 * time.Second) // the first client connects again
				if _, err := first.TryLock(t.Context(), r); !errors.Is(err, reason.Membership) {
					t.Errorf("TryLock of the first client: got %v, want reason.Membership", err)
				}
				time.Sleep(test.restart)
				b.Each((*virtual.Node).RestartEmpty, 0, 1, 2)
				time.Sleep(500 * time.Millisecond) // the first client connects again; the next survey of the second one is later
				if _, err := first.TryLock(t.Context(), r); !errors.Is(err, redlock.ErrQuarantine) {
					t.Errorf("TryLock of the first client after a restart: got %v, want ErrQuarantine", err)
				}
				b.Unlock(lease)
			})
		})
	}
}

// A client whose process stood still between two surveys, while others took its place, does not go by the last
// survey either: its clock shows that the survey counts no longer.
//
// Source: ALGORITHM section 8, "Groups": a survey counts for half a quarantine.
func TestVirtualGroupsStandstill(t *testing.T) {
	locktest.InBubble(t, 9, func(t *testing.T, b *locktest.Bubble) {
		clock := locktest.NewJumpClock()
		first := open(b, groupsAB, redlock.WithClock(clock))
		r := inGroup(t, first, 1)
		b.Unlock(lock(b, first, r))
		b.Each((*virtual.Node).RestartEmpty, 0, 1, 2) // which forget the groups of the first client
		b.VouchAgain()
		second := open(b, groupsAC)
		lease := lock(b, second, r)
		time.Sleep(time.Second) // the first client connects again; its next survey is later
		synctest.Wait()
		clock.Jump(6 * time.Second)
		if _, err := first.TryLock(t.Context(), r); !errors.Is(err, reason.Membership) {
			t.Errorf("TryLock of the first client: got %v, want reason.Membership", err)
		}
		b.Unlock(lease)
	})
}

// moves returns a resource that belongs to another group for the second Locker.
func moves(before, after *sharded.Locker) string {
	for i := 0; ; i++ {
		if r := fmt.Sprint("m", i); slices.Index(before.Groups(), before.GroupOf(r)) != slices.Index(after.Groups(), after.GroupOf(r)) {
			return r
		}
	}
}

// changeOver is two fleets of clients with different groups that lock the same resources under load.
type changeOver struct {
	*locktest.Book
	resources []string
	working   sync.WaitGroup

	mu      sync.Mutex
	atWork  map[string]int // holders by resource
	twice   int            // times that a resource had two
	before  int            // leases of the former fleet,
	after   int            // and of the new one
	refused int            // calls that returned reason.Membership
}

// runFleets starts the former fleet, then the new one beside it, closes the former one once that is
// over, and lets the new one work. The history is not checked: with two holders that can take for ever.
func runFleets(t *testing.T, before, after []*sharded.Locker, over func(c *changeOver) bool, resources ...string) *changeOver {
	t.Helper()
	c := &changeOver{Book: locktest.NewBook(), resources: resources, atWork: make(map[string]int)}
	wait := func(cond func() bool, what string) {
		t.Helper()
		redistest.Eventually(t, time.Minute, func() bool { c.mu.Lock(); defer c.mu.Unlock(); return cond() }, what)
	}
	closing := func(fleet []*sharded.Locker) {
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

func (c *changeOver) start(t *testing.T, fleet []*sharded.Locker, leases *int) {
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
func (c *changeOver) turn(t *testing.T, l *sharded.Locker, resource string, leases *int) bool {
	const moment = 20 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	lease, err := c.Take(resource, true, func() (*redlock.Lease, error) { return l.Lock(ctx, resource) })
	c.mu.Lock()
	switch {
	case err == nil:
		*leases++
		if c.atWork[resource]++; c.atWork[resource] > 1 {
			c.twice++
		}
	case errors.Is(err, reason.Membership):
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
	_ = c.Free(t.Context(), lease)
	return true
}

// How the two fleets meet.
func newOnesRefused(c *changeOver) bool { return c.refused >= 20 }
func twoHolders(c *changeOver) bool     { return c.twice > 10 }

var eight = []string{"r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7"}

// Two fleets change over under load, from two groups to three and back, before the counters of the
// former groups expire. There are never two holders, and no token falls.
//
// Source: ALGORITHM section 8, "Groups".
func TestVirtualGroupsChangeOver(t *testing.T) {
	t.Parallel()
	redistest.TakesSeconds(t)
	opts := []redlock.Option{redlock.WithTTL(400 * time.Millisecond), redlock.WithMaxTTL(400 * time.Millisecond)}
	change := func(t *testing.T, b *locktest.Bubble, from, to [][]int, over func(*changeOver) bool, opts []redlock.Option, resources ...string) *changeOver {
		return runFleets(t,
			[]*sharded.Locker{open(b, from, opts...), open(b, from, opts...)},
			[]*sharded.Locker{open(b, to, opts...), open(b, to, opts...)}, over, resources...)
	}
	t.Run("by the recipe", func(t *testing.T) {
		locktest.InBubble(t, 9, func(t *testing.T, b *locktest.Bubble) {
			for _, to := range [][2][][]int{{groupsAB, groupsABC}, {groupsABC, groupsAB}, {groupsAB, groupsAC}} {
				if problems := change(t, b, to[0], to[1], newOnesRefused, opts, eight...).Problems(); len(problems) > 0 {
					t.Errorf("from %v to %v: got %v, want no problem", to[0], to[1], problems)
				}
			}
		})
	})
	t.Run("without the guard", func(t *testing.T) {
		locktest.InBubble(t, 9, func(t *testing.T, b *locktest.Bubble) {
			moved := moves(open(b, groupsAB), open(b, groupsABC))
			change(t, b, groupsAB, groupsABC, twoHolders, append(slices.Clone(opts), redlock.WithoutRestartGuard()), moved)
		})
	})
}

// A resource goes to another group and back, while its counter in the first group lives. The
// tokens rise. They fall if the first group counts on from its counter.
//
// Source: ALGORITHM section 8, "Groups", "M.since".
func TestVirtualGroupsThereAndBack(t *testing.T) {
	there := func(t *testing.T, b *locktest.Bubble) (fences []int64) {
		opts := []redlock.Option{redlock.WithTTL(time.Second), redlock.WithMaxTTL(time.Second)}
		for _, groups := range [][][]int{groupsAB, groupsAC, groupsAB} {
			l := open(b, groups, opts...)
			lease := lock(b, l, inGroup(t, l, 1))
			fences = append(fences, lease.Fence())
			b.Unlock(lease)
			locktest.Must(t, l.Close())
			time.Sleep(4 * time.Second) // counters live for 10 s
		}
		return fences
	}
	locktest.InBubble(t, 9, func(t *testing.T, b *locktest.Bubble) {
		if got := there(t, b); !rise(got) {
			t.Errorf("fencing tokens: got %v, want them to rise", got)
		}
	})
	t.Run("without M.since", func(t *testing.T) {
		inject.Script(t, func(script string) string {
			return strings.ReplaceAll(script, "tonumber(known[4])", "nil")
		})
		locktest.InBubble(t, 9, func(t *testing.T, b *locktest.Bubble) {
			if got := there(t, b); rise(got) {
				t.Errorf("fencing tokens: got %v, want them to fall", got)
			}
		})
	})
}

// On real masters two fleets change over under load, from two groups to three.
//
// Source: ALGORITHM section 8, "Groups".
func TestGroupsChangeOver(t *testing.T) {
	addrs := redistest.Addrs(redistest.Masters(t, 9))
	before, after := [][]string{addrs[:3], addrs[3:6]}, [][]string{addrs[:3], addrs[3:6], addrs[6:]}
	fleet := func(groups [][]string, opts ...redlock.Option) (fleet []*sharded.Locker) {
		for range 2 {
			l, err := sharded.New(groups, append([]redlock.Option{redlock.WithTTL(400 * time.Millisecond), redlock.WithMaxTTL(400 * time.Millisecond), redlock.WithLogger(nil)}, opts...)...)
			locktest.Must(t, err)
			fleet = append(fleet, l)
		}
		return fleet
	}
	if problems := runFleets(t, fleet(before), fleet(after), newOnesRefused, eight...).Problems(); len(problems) > 0 {
		t.Errorf("got %v, want no problem", problems)
	}
	unguarded := []redlock.Option{redlock.WithKeyPrefix("unguarded:"), redlock.WithoutRestartGuard()}
	former, later := fleet(before, unguarded...), fleet(after, unguarded...)
	runFleets(t, former, later, twoHolders, moves(former[0], later[0]))
}

// rise reports whether each number is larger than the one before it.
func rise(list []int64) bool {
	for i := 1; i < len(list); i++ {
		if list[i] <= list[i-1] {
			return false
		}
	}
	return true
}
