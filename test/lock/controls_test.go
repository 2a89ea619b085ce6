package lock_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/chaos/history"
	"github.com/d0720281/redlock/internal/inject"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/virtual"
)

// The negative controls: the algorithm is built wrongly, one rule at a time, and the checker of
// package chaos/history must notice it from what the clients saw alone. Each schedule is a
// counterexample of an exhaustive search, or similar to one. It also runs with the correct
// algorithm, in which the checker must find nothing.

// control is one wrong build, and a schedule that shows its fault.
type control struct {
	name     string
	spoil    func(testing.TB, *trial)
	nodes    int
	schedule func(*trial)
	leases   int    // that the correct algorithm grants
	problem  string // that the checker finds in the wrong build: a rule, and a part of the text
}

const (
	overlap = "I1: two holders for "
	revival = "I8: valid again after its end"
	orphan  = "I6: node 2 has a key"
)

// controls returns all controls.
//
// Source: ALGORITHM section 13, "Negative controls".
func controls() []control {
	return []control{
		{"guard off", guardOff, 3, emptyRestart, 1, overlap},
		{"quarantine shorter than the TTL", shortQuarantine, 3, emptyRestart, 1, overlap},
		{"quarantined votes counted", wrongRules("votelessCount"), 3, emptyRestart, 1, overlap},
		{"quarantined fills counted", wrongRules("votelessCount"), 3, filledRestart, 2, overlap},
		{"run id of the first connection kept", firstRunKept, 3, oldCopy, 1, overlap},
		{"clock steps ignored", wrongRules("ignoresSteps"), 3, clockStep, 1, overlap},
		{"owner id reused across tries", wrongRules("reuseID"), 3, lateDelete, 1, overlap},
		{"validity from the last reply", wrongRules("validityFromReply"), 3, slowReplies, 2, overlap},
		{"late extension", wrongRules("lateExtension"), 3, lateExtension, 2, revival},
		{"token without second round", wrongRules("oneRound"), 3, unevenCounters, 2, "I2: fence 64065 of c after fence 64129 of c"},
		{"raise by id only, with retries", change(raiseTest, idOnly), 3, lateRaise(true), 1, "I2: fence 64065 twice"},
		{"raise without hold", change(raiseTest, "if false then"), 3, lateRaise(false), 1, "I2: fence 64065 twice"},
		{"lost counter starts anew", change("(median <= wish and wish <= median + 1000000 and wish or median)", "64"), 3, lostCounters, 2, "I2: fence 1 twice"},
		{"a lost acquire arrives after the release", wrongRules("lostIsGone"), 3, lostRequest(false), 1, orphan},
		{"a lost extend arrives after the release", wrongRules("lostIsGone"), 3, lostRequest(true), 1, orphan},
		{"q = N/2", wrongRules("fewerVotes"), 4, halves, 0, overlap},
		{"lists of 3 and 5 masters", twoMoreMasters, 5, twoLists, 1, overlap},
		{"lists with one master exchanged", change("return shared > 0 and", "return false and"), 4, exchanged, 1, overlap},
	}
}

func TestControls(t *testing.T) {
	for _, c := range controls() {
		t.Run(c.name, func(t *testing.T) {
			t.Run("as it is", func(t *testing.T) {
				seen := c.run(t, false)
				if problems := seen.Problems(); len(problems) > 0 {
					t.Errorf("problems: got %q, want none", problems)
				}
				if got := seen.Leases(); got != c.leases+1 {
					t.Errorf("leases: got %d, want %d: the schedule has come apart", got, c.leases+1)
				}
			})
			t.Run("built wrongly", func(t *testing.T) {
				seen := c.run(t, true)
				violations := seen.Check(locktest.BookRules)
				rule, text, _ := strings.Cut(c.problem, ": ")
				if !slices.ContainsFunc(violations, func(v history.Violation) bool { return v.Rule == rule && strings.Contains(v.Text, text) }) {
					t.Errorf("got violations %q, want %q", violations, c.problem)
				}
				// Porcupine, which shares no code with the rules, must notice as well.
				if c.problem != revival && c.problem != orphan && !slices.ContainsFunc(violations, func(v history.Violation) bool { return v.Rule == "lock" }) {
					t.Errorf("got violations %q, want a violation of the whole history", violations)
				}
				t.Logf("%q", violations)
			})
		})
	}
}

// run goes through the schedule, and at the end, without faults, locks the resource once more.
func (c control) run(t *testing.T, wrong bool) *locktest.Book {
	tr := &trial{Book: locktest.NewBook(), masters: 4}
	if wrong {
		c.spoil(t, tr)
	}
	locktest.InBubble(t, c.nodes, func(t *testing.T, b *locktest.Bubble) {
		tr.Bubble = b
		c.schedule(tr)
		b.All(func(n *virtual.Node) { n.Heal(); n.Latency(0, 0) })
		time.Sleep(3 * locktest.TTL) // keys and quarantines have expired
		tr.must(tr.try(b.Locker()))
	})
	return tr.Book
}

func wrongRules(way string) func(testing.TB, *trial) {
	return func(t testing.TB, _ *trial) { inject.Rules(t, way) }
}

// change replaces parts of the script: old, new, old, new.
func change(parts ...string) func(testing.TB, *trial) {
	return func(t testing.TB, _ *trial) { inject.Script(t, strings.NewReplacer(parts...).Replace) }
}

// silence keeps the masters from telling of other servers, which shows a restart as well.
var silence = []string{"contested[#contested + 1] = claim.value", "local _ = claim.value"}

func shortQuarantine(t testing.TB, c *trial) {
	change(append(silence, "  local left = born and born + length", "  length = length - 2300\n  local left = born and born + length",
		"born + length <= moment", "born + length - 2300 <= moment")...)(t, c)
}

func firstRunKept(t testing.TB, c *trial) {
	wrongRules("keepsRunID")(t, c)
	change(silence...)(t, c)
}

func guardOff(_ testing.TB, c *trial) { c.opts = []redlock.Option{redlock.WithoutRestartGuard()} }

func twoMoreMasters(t testing.TB, c *trial) {
	change("return shared > 0 and", "return false and")(t, c)
	c.masters = 5
}

// The line of the script that keeps a counter from being raised if its grant is not held any more,
// and the line that does not.
const (
	raiseTest = "if get(key) ~= value then"
	idOnly    = "if not owns(get(key), value) then"
)

// trial is one run of a schedule.
type trial struct {
	*locktest.Bubble
	*locktest.Book
	opts    []redlock.Option
	masters int // of the longer list
	begun   time.Time
}

// two returns the Lockers of most schedules.
func (c *trial) two() (a, b *redlock.Locker) {
	a, b = c.WarmLocker(c.opts...), c.WarmLocker(c.opts...)
	c.begun = time.Now()
	return a, b
}

// at sleeps until a moment of the schedule.
func (c *trial) at(d time.Duration) { time.Sleep(time.Until(c.begun.Add(d))) }

// try makes one attempt, and records its outcome.
func (c *trial) try(l *redlock.Locker, opts ...redlock.LockOption) *redlock.Lease {
	lease, err := c.Take("r", false, func() (*redlock.Lease, error) {
		return l.TryLock(c.T.Context(), "r", append(opts, redlock.WithoutRenewal())...)
	})
	if err != nil {
		c.T.Logf("after %v: %v", time.Since(c.begun), err)
		return nil
	}
	return lease
}

// must checks that there is a lease, without which the schedule cannot go on.
func (c *trial) must(lease *redlock.Lease) *redlock.Lease {
	c.T.Helper()
	if lease == nil {
		c.T.Fatal("no lease: the schedule has come apart")
	}
	return lease
}

// unlocked releases a lease, which must succeed.
func (c *trial) unlocked(lease *redlock.Lease) {
	c.T.Helper()
	if err := c.Free(c.T.Context(), c.must(lease)); err != nil {
		c.T.Errorf("Unlock: got %v, want no error", err)
	}
	synctest.Wait()
}

// without is like try, but some nodes get no message of it.
func (c *trial) without(nodes []int, l *redlock.Locker, opts ...redlock.LockOption) *redlock.Lease {
	c.Each((*virtual.Node).Blackhole, nodes...)
	lease := c.try(l, opts...)
	synctest.Wait()
	c.Each((*virtual.Node).Heal, nodes...)
	return lease
}

// meanwhile runs do while the schedule goes on. The schedule calls wait to wait for its end.
func meanwhile(do func()) (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	return func() { <-done }
}

// count sets the fencing counters, in blocks, to values that failed attempts may have left.
func (c *trial) count(blocks ...int64) {
	for i, n := range c.Nodes {
		n.Put(redlock.DefaultKeyPrefix+"r~fence", strconv.FormatInt(64*(1000+blocks[i]), 10), time.Hour)
	}
}

// The holder has nodes 0 and 1. Node 0 forgets the key, and could grant it to another client that
// has node 2, as long as the lease is valid.
//
// Source: ALGORITHM section 8.
func emptyRestart(c *trial) {
	holder, other := c.two()
	c.without([]int{2}, holder)
	c.Nodes[0].RestartEmpty()
	c.at(time.Second)
	c.try(other)
	c.at(9500 * time.Millisecond)
	c.try(other)
}

// The holder has nodes 0 and 1. The other client has the vote of node 2 when that restarts empty,
// and the holder's renewal sets the key there again. If that counted, the lease would be longer.
// Then the key on node 1 expires, which the other client needed. The counter of node 2 must be
// larger than that of node 1, because it starts later. Otherwise the second round asks node 2, and
// finds out.
//
// Source: ALGORITHM section 6 ("never counted"); section 13, "Negative controls".
func filledRestart(c *trial) {
	const ttl = time.Second
	holder, other := c.two()
	lease := c.must(c.without([]int{2}, holder, redlock.WithTTL(ttl)))
	c.at(930 * time.Millisecond)
	c.Nodes[1].Latency(75*time.Millisecond, 0) // until the key there has expired
	wait := meanwhile(func() { c.try(other, redlock.WithTTL(ttl)) })
	c.at(940 * time.Millisecond)
	c.Nodes[1].Latency(0, 0)
	c.Nodes[1].Blackhole()
	c.Nodes[2].RestartEmpty()
	_ = lease.Extend(c.T.Context())
	synctest.Wait() // all requests have been sent
	c.Nodes[1].Heal()
	wait()
}

// The holder has nodes 0 and 1. Node 0 dies while a request of another client is under way, and
// comes back with a copy of its data from before the lease, including the marker. The request is
// sent again: only the run id tells that this is another process.
//
// Source: ALGORITHM section 8, "restart with RDB" and "Client side"; SCENARIOS rows 7, 8
// and 13.
func oldCopy(c *trial) {
	holder, other := c.two()
	c.without([]int{2}, holder)
	c.Nodes[0].Latency(20*time.Millisecond, 0)
	wait := meanwhile(func() { c.try(other) })
	c.at(5 * time.Millisecond)
	c.Nodes[0].Kill()
	locktest.Erase(c.Nodes[0])
	c.Nodes[0].Restart()
	wait()
}

// The holder has nodes 0 and 1. The clock of node 0 is stepped forward, and the key expires there.
// The first request after that comes too late by the node's clock, as its time limit is from the
// clock before the step. The second request does not.
//
// Source: ALGORITHM section 9; SCENARIOS row 30.
func clockStep(c *trial) {
	holder, other := c.two()
	c.without([]int{2}, holder)
	c.at(time.Second)
	c.Nodes[0].RunClock(1, locktest.TTL)
	for range 2 {
		c.try(other)
		time.Sleep(time.Second)
	}
}

// The first try loses a reply of node 0 and fails, so that its release is repeated when the lost
// request cannot arrive any more. Meanwhile the second try has nodes 0 and 1. With the same id the
// release would delete its key on node 0, and another client could have nodes 0 and 2.
//
// Source: ALGORITHM section 3, point 1.
func lateDelete(c *trial) {
	holder, other := c.two()
	c.Each(locktest.Steal, 1, 2)
	c.Nodes[0].Latency(0, 100*time.Millisecond)
	c.Each(func(n *virtual.Node) { n.Latency(0, 50*time.Millisecond) }, 1, 2)
	wait := meanwhile(func() { c.try(holder) })
	c.at(10 * time.Millisecond)
	c.Nodes[0].Latency(0, 0)
	c.Nodes[0].BreakOff()
	wait()
	c.at(110 * time.Millisecond) // the releases have come back
	c.Each(func(n *virtual.Node) { n.Latency(0, 0); locktest.Erase(n) }, 1, 2)
	c.without([]int{2}, holder)
	c.at(300 * time.Millisecond)
	c.try(other)
}

// The connection to node 2 breaks while a request is on its way. The request is sent once more, and then
// the lease is released, which node 2 confirms. The first request arrives after that, and sets the key
// for its TTL, unless the release is sent again.
//
// Source: ALGORITHM section 5, "A connection that breaks"; section 13, I6.
func lostRequest(extend bool) func(*trial) {
	return func(c *trial) {
		holder, _ := c.two()
		var lease *redlock.Lease
		ask := func() { lease = c.try(holder) }
		if extend {
			ask()
			ask = func() { _ = c.must(lease).Extend(c.T.Context()) }
		}
		synctest.Wait()
		c.Nodes[2].Latency(100*time.Millisecond, 0)
		wait := meanwhile(ask)
		c.at(10 * time.Millisecond)
		c.Nodes[2].Latency(0, 0)
		c.Nodes[2].BreakOff()
		synctest.Wait() // the request has been sent again
		wait()
		c.unlocked(lease)
		c.Healed = time.Duration(time.Now().UnixNano())
		c.at(3 * locktest.MasterTimeout)
		c.LookAt(c.Bubble, "r")
	}
}

// Replies take longer than the drift. If validity counted from their arrival, it would end after
// the keys have expired.
//
// Source: ALGORITHM section 3, "Never measure validity from a reply"; section 13, "Negative controls".
func slowReplies(c *trial) {
	holder, other := c.two()
	c.All(func(n *virtual.Node) { n.Latency(0, 240*time.Millisecond) })
	c.try(holder)
	c.All(func(n *virtual.Node) { n.Latency(0, 0) })
	c.at(locktest.TTL + time.Millisecond)
	c.try(other)
}

// The holder has nodes 0 and 1, and extends in time. Node 0 keeps the key, but its reply is slow;
// node 1 does not get the message; node 2 gets it late. Before that another client has locked
// nodes 1 and 2, and released them. Then two nodes have said yes.
//
// Source: ALGORITHM section 6, "MUST NOT revive the lease"; SCENARIOS row 39.
func lateExtension(c *trial) {
	const ttl = time.Second
	holder, other := c.two()
	lease := c.must(c.without([]int{2}, holder, redlock.WithTTL(ttl)))
	c.at(960 * time.Millisecond)
	c.Nodes[0].Latency(0, 170*time.Millisecond)
	c.Nodes[1].Blackhole()
	c.Nodes[2].Latency(80*time.Millisecond, 0)
	wait := meanwhile(func() { _ = lease.Extend(c.T.Context()) })
	c.at(965 * time.Millisecond)
	c.All(func(n *virtual.Node) { n.Heal(); n.Latency(0, 0) })
	c.at(ttl + time.Millisecond)
	c.unlocked(c.try(other))
	c.at(1200 * time.Millisecond)
	wait()
	c.Look()
}

// The counter of node 0 is larger than the others. The first lease has nodes 0 and 1, and its holder
// dies without a release, which would tell node 1 too. The next lease has nodes 1 and 2. Without the
// second round these do not know the first lease's token.
//
// Source: ALGORITHM section 4.
func unevenCounters(c *trial) {
	first, second := c.two()
	c.count(2, 0, 0)
	c.without([]int{2}, first)
	c.at(locktest.TTL + time.Millisecond)
	c.without([]int{0}, second)
}

// The first attempt has nodes 0 and 2, and has to raise the counter of node 2 to that of node 0.
// Before the raise arrives its key on node 2 is gone, and the second attempt is granted exactly that
// counter there. The test for the id alone also fails, if the second key is gone as well and a
// message that was sent twice has set the first attempt's key again.
//
// Source: ALGORITHM section 4, "raise".
func lateRaise(twice bool) func(*trial) {
	return func(c *trial) {
		first, second := c.two()
		c.count(1, 0, 0)
		c.Nodes[0].Latency(0, 20*time.Millisecond)
		c.Nodes[1].Blackhole()
		if twice {
			c.Nodes[2].Latency(100*time.Millisecond, 0)
		}
		wait := meanwhile(func() { c.try(first) })
		c.at(5 * time.Millisecond)
		if twice {
			c.Nodes[2].Latency(0, 0)
			c.Nodes[2].BreakOff()
		}
		c.at(10 * time.Millisecond)
		c.Nodes[2].Latency(150*time.Millisecond, 0) // for the raise
		c.at(30 * time.Millisecond)
		c.All(func(n *virtual.Node) { n.Heal(); n.Latency(0, 0) })
		locktest.Erase(c.Nodes[2])
		c.try(second)
		if twice {
			locktest.Erase(c.Nodes[2])
		}
		wait()
	}
}

// All counters are lost between two leases. They start again from the clock, which is ahead of all
// earlier counters.
//
// Source: ALGORITHM section 4, "A missing counter"; SCENARIOS row 61.
func lostCounters(c *trial) {
	first, second := c.two()
	c.unlocked(c.try(first))
	c.All(func(n *virtual.Node) { n.Put(redlock.DefaultKeyPrefix+"r~fence", "", 0) })
	c.at(time.Second)
	c.try(second)
}

// Each of two Lockers reaches one half of the nodes.
//
// Source: ALGORITHM section 1, q.
func halves(c *trial) {
	a, b := c.two()
	c.without([]int{2, 3}, a)
	c.without([]int{0, 1}, b)
}

// One Locker has the masters 0 to 2, and locks nodes 0 and 1. The other one has a longer list. Two of
// three nodes and three of four have a node in common; two of three and three of five need not.
//
// Source: ALGORITHM section 1, A3; section 8, "Node sets change one node at a time";
// SCENARIOS row 60.
func twoLists(c *trial) {
	c.Vouch()
	old := c.Part(0, 1, 2)
	changed := c.Part([]int{0, 1, 2, 3, 4}[:c.masters]...)
	a, b := old.WarmLocker(), changed.WarmLocker()
	c.begun = time.Now()
	c.without([]int{2}, a)
	c.try(b)
}

// One Locker has the masters 0 to 2, and locks nodes 1 and 2. The other one's list has master 3 in the
// place of master 2: there nodes 0 and 3 are a quorum.
//
// Source: ALGORITHM section 8, "Membership".
func exchanged(c *trial) {
	c.Vouch()
	old := c.Part(0, 1, 2)
	changed := c.Part(0, 1, 3)
	a, b := old.WarmLocker(), changed.Locker()
	c.begun = time.Now()
	c.without([]int{0}, a)
	c.without([]int{1}, b)
}

// Clocks of nodes may drift by less than half the drift allowance, and may be set to anything.
//
// Source: ALGORITHM section 1, A1; section 9.
func TestVirtualClocksOfNodes(t *testing.T) {
	locktest.Subtest(t, "an hour without a word makes no request late", 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker(redlock.WithTTL(50 * time.Millisecond)) // a node timeout of 5 ms
		b.All(func(n *virtual.Node) { n.RunClock(1.004, 0) })
		time.Sleep(time.Hour)
		lease, err := l.TryLock(t.Context(), "r")
		locktest.Must(t, err)
		b.Unlock(lease)
	})
	locktest.Subtest(t, "a step of all costs one attempt at most", 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		for name, step := range map[string]time.Duration{"back": -time.Hour, "ahead": time.Hour} {
			b.All(func(n *virtual.Node) { n.RunClock(1, step) })
			lease, err := l.TryLock(t.Context(), name)
			if err == nil { // the second reply showed that all had stepped before the first was counted
				b.Unlock(lease)
			} else {
				locktest.WantMatch(t, "TryLock", err, []error{redlock.ErrNotAcquired, redlock.ErrNoQuorum})
			}
			b.WantHolding(name)
			start := time.Now()
			lease, err = l.Lock(t.Context(), name)
			locktest.Must(t, err)
			locktest.WantSince(t, "Lock", start, 0)
			b.Unlock(lease)
		}
	})
}

// A caller hands its lease to the next one of its process: that has a larger token and at least half of its TTL, and
// the first one has nothing. With a rule of hand-overs left out the test notices.
//
// Source: ALGORITHM section 10, "In one process"; section 13, I1, I2 and "Negative controls".
func TestVirtualHandOverControls(t *testing.T) {
	for way, want := range map[string]string{
		"none": "", "sameToken": "I2 ", "keepsHold": "works after ", "lateHandOver": "granted with ",
	} {
		t.Run(way, func(t *testing.T) {
			if want != "" {
				inject.Rules(t, way)
			}
			locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
				seen := locktest.NewBook()
				l := b.WarmLocker(redlock.WithoutRenewal())
				take := func() (*redlock.Lease, error) {
					return seen.Take("r", true, func() (*redlock.Lease, error) { return l.Lock(t.Context(), "r") })
				}
				var problems []string
				handed := 0
				for _, hold := range []time.Duration{0, locktest.TTL * 6 / 10} {
					first, err := take()
					locktest.Must(t, err)
					work := first.Context()
					w := locktest.Begin(take)
					time.Sleep(hold)
					locktest.Must(t, seen.Free(t.Context(), first))
					next := b.Got(w)
					if next.Token() == first.Token() {
						handed++
					}
					if work.Err() == nil {
						problems = append(problems, "works after Unlock")
					}
					if left := next.Validity(); left < locktest.TTL/2 {
						problems = append(problems, fmt.Sprintf("granted with %v left", left))
					}
					_ = seen.Free(t.Context(), next)
				}
				problems = append(problems, seen.Problems()...)
				found := slices.ContainsFunc(problems, func(p string) bool { return strings.HasPrefix(p, want) })
				if handed == 0 || found == (want == "") {
					t.Errorf("got the problems %q and %d hand-overs, want %q and some", problems, handed, want)
				}
			})
		})
	}
}
