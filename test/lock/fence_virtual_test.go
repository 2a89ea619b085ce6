package lock_test

import (
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/inject"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/virtual"
)

// counterOf returns a node's fencing counter of a resource, 0 if there is none.
func counterOf(n *virtual.Node, resource string) int64 {
	c, _ := strconv.ParseInt(n.Get(redlock.DefaultKeyPrefix+resource+"~fence"), 10, 64)
	return c
}

// takeTurn locks a resource once, with a new Locker, and checks that the token is larger than the last.
func takeTurn(b *locktest.Bubble, resource string, last int64, opts ...redlock.Option) (fence int64) {
	b.T.Helper()
	l := b.Locker(append(opts, redlock.WithLogger(nil))...)
	lease := b.Lock(l, resource)
	if fence = lease.Fence(); fence <= last {
		b.T.Errorf("fencing token: got %d, want more than %d", fence, last)
	}
	b.Unlock(lease)
	if err := l.Close(); err != nil {
		b.T.Errorf("Close: got %v, want no error", err)
	}
	synctest.Wait()
	return fence
}

// raises returns how many requests to raise the counter of r the nodes have seen.
func raises(b *locktest.Bubble) (n int) {
	for _, node := range b.Nodes {
		n += node.Seen("raise", "r")
	}
	return n
}

// A master that restarts with an old copy of its data has an old counter, and is perhaps the only one of a quorum
// that took part in the last grant. Its counter starts anew from the clocks, also if its own clock was wrong when a
// client first met it, and was right before a client measured it again.
//
// Source: ALGORITHM section 4, "A counter that came back".
func TestVirtualCounterThatCameBack(t *testing.T) {
	for name, wrong := range map[string]time.Duration{"right clock": 0, "clock behind at first": -time.Hour, "clock ahead at first": time.Hour} {
		locktest.Subtest(t, name, 3, func(t *testing.T, b *locktest.Bubble) {
			fence := takeTurn(b, "r", 0)
			old := counterOf(b.Nodes[1], "r")
			b.Nodes[2].Kill()
			fence = takeTurn(b, "r", fence)
			b.Nodes[1].Restart()
			b.Nodes[1].RunClock(1, wrong)
			b.Nodes[1].Put(redlock.DefaultKeyPrefix+"r~fence", strconv.FormatInt(old, 10), 2*time.Hour)
			b.Nodes[2].Heal()
			other := takeTurn(b, "other", 0) // after which the node knows that it is another server
			b.Nodes[1].RunClock(1, -wrong)
			other = takeTurn(b, "other", other) // which begins the quarantine
			time.Sleep(locktest.Quarantine)
			takeTurn(b, "other", other)
			b.Nodes[0].Kill()
			fence = takeTurn(b, "r", fence)
			before := raises(b)
			takeTurn(b, "r", takeTurn(b, "r", fence))
			if got := raises(b); got > before {
				t.Errorf("raises after the counter began anew: got %d, want none", got-before)
			}
		})
	}
}

// A release that was queued before the node's vote came in has the counter of that vote all the same: the node
// then counts the token of the lease, and the next attempt needs no second round for it.
//
// Source: ALGORITHM section 5, "release".
func TestVirtualReleaseBeforeTheVoteLiftsTheCounter(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		b.Unlock(b.Lock(l, "r"))
		late := b.Nodes[(locktest.QueueNodeOf(l, "r")+1)%3]
		late.Put(redlock.DefaultKeyPrefix+"r~fence", strconv.FormatInt(counterOf(late, "r")-1000, 10), time.Minute)
		late.Latency(200*time.Microsecond, 200*time.Microsecond)
		lease := b.Lock(l, "r") // two nodes vote at once
		b.Unlock(lease)
		time.Sleep(time.Second)
		for i, n := range b.Nodes {
			if got, want := counterOf(n, "r"), lease.Fence()+63; got != want {
				t.Errorf("counter of node %d: got %d, want %d, that of the lease", i, got, want)
			}
		}
		b.WantCalls("raise", 0)
	})
}

// A master whose clock is a day ahead starts no fencing counter from that clock. So the day has no
// effect after the clock has been corrected, and no token falls when counters have expired.
//
// Source: ALGORITHM section 4.
func TestVirtualFenceAfterAClockWasCorrected(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		b.Nodes[2].RunClock(1, 24*time.Hour)
		last := takeTurn(b, "r", 0)
		if c := counterOf(b.Nodes[2], "r"); c != 0 {
			t.Errorf("counter of the master whose clock is wrong: got %d, want no counter", c)
		}
		b.Nodes[2].RunClock(1, -24*time.Hour)
		b.Nodes[0].Kill()
		last = takeTurn(b, "r", last)
		if ahead := last - time.Now().UnixMicro(); ahead > 10*time.Second.Microseconds() {
			t.Errorf("fencing token: got a token that is %v ahead of the clocks", time.Duration(ahead)*time.Microsecond)
		}
		b.Nodes[0].Heal()
		time.Sleep(2 * 100 * time.Second) // the idle counters expire
		for _, n := range b.Nodes {
			if c := counterOf(n, "r"); c != 0 {
				t.Errorf("counter after %v: got %d, want none", 2*100*time.Second, c)
			}
		}
		takeTurn(b, "r", last)
	})
}

// A counter that is ahead of its master's clock does not expire before the clock has passed it: the
// next counter starts from that clock.
//
// Source: ALGORITHM section 4.
func TestVirtualCounterOutlivesItsValue(t *testing.T) {
	const ttl = 50 * time.Millisecond // an idle counter lives for 500 ms
	opts := []redlock.Option{redlock.WithTTL(ttl), redlock.WithMaxTTL(ttl)}
	for _, way := range []string{"acquire", "raise", "extend", "release"} {
		locktest.Subtest(t, "raised by "+way, 3, func(t *testing.T, b *locktest.Bubble) {
			ahead := strconv.FormatInt(time.Now().Add(time.Second).UnixMicro(), 10)
			b.Nodes[0].Put("redlock:r~fence", ahead, ttl)
			if way == "acquire" {
				b.Nodes[1].Put("redlock:r~fence", ahead, ttl)
			}
			l := b.Locker(append(opts, redlock.WithLogger(nil))...)
			lease := b.Lock(l, "r")
			if way == "extend" {
				time.Sleep(2 * ttl)
			}
			last := lease.Fence()
			b.Unlock(lease)
			time.Sleep(600 * time.Millisecond)
			last = takeTurn(b, "r", last, opts...)
			time.Sleep(1200 * time.Millisecond)
			takeTurn(b, "r", last, opts...)
		})
	}
}

// If one master has a counter that no grant can have set, the master loses its vote for the resource,
// by an error that names both. The others decide, and their counters stay as they are.
//
// Source: ALGORITHM section 4.
func TestVirtualCounterThatIsTooFarAhead(t *testing.T) {
	t.Parallel()
	for name, counter := range map[string]string{
		"below 2^53":          "8999999999999999",
		"the largest integer": "9223372036854775807",
		"a day":               strconv.FormatInt(time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC).UnixMicro(), 10),
	} {
		locktest.Subtest(t, name, 3, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker(redlock.WithLogger(nil))
			last := takeTurn(b, "r", 0)
			b.Nodes[1].Put("redlock:r~fence", counter, 20*time.Second)
			for range 3 {
				last = takeTurn(b, "r", last)
			}
			if ahead := last - time.Now().UnixMicro(); ahead > 10*time.Second.Microseconds() {
				t.Errorf("fencing token: got a token that is %v ahead of the clocks", time.Duration(ahead)*time.Microsecond)
			}
			for i, n := range b.Nodes {
				if c := counterOf(n, "r"); i != 1 && c > last+64 {
					t.Errorf("counter of node %d: got %d, want what was granted, %d", i, c, last)
				}
			}
			b.Lock(l, "another") // the master has a vote for every other resource
			b.Nodes[0].Kill()
			_, err := l.TryLock(t.Context(), "r")
			locktest.WantMatch(t, "TryLock with another master down", err, []error{redlock.ErrNoQuorum}, reason.WrongType, redlock.ErrTaken)
			if said := locktest.RefusedBy(b, 1, err); !strings.Contains(said, "redlock:r~fence") || !strings.Contains(said, "ahead") {
				t.Errorf("got %q, want the key and what is wrong with it", said)
			}
			// Waiting helps: the counter expires.
			began := time.Now()
			lease, err := l.Lock(t.Context(), "r")
			locktest.Must(t, err)
			if lease.Fence() <= last {
				t.Errorf("fencing token: got %d, want more than %d", lease.Fence(), last)
			}
			locktest.WantWithin(t, "the lease", began, 25*time.Second)
			b.Unlock(lease)
		})
	}
}

// An impossible counter in a master's reply is not believed, and reaches no other master.
//
// Source: ALGORITHM section 4.
func TestVirtualGrantThatIsNotBelieved(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker(redlock.WithLogger(nil))
		defer l.Close() // before the script is as it was again
		inject.Script(t, func(script string) string {
			return strings.Replace(script, "if code ~= 1 then counter = 0 end", "counter = 9e18", 1)
		})
		_, err := l.TryLock(t.Context(), "r")
		locktest.WantMatch(t, "TryLock", err, []error{redlock.ErrNoQuorum}, reason.WrongType, redlock.ErrTaken)
		ahead := 0
		for i, n := range b.Nodes {
			said := locktest.RefusedBy(b, i, err)
			if strings.Contains(said, "ahead") {
				ahead++
			} else if said != "" && !strings.Contains(said, "by the time it was decided") {
				t.Errorf("node %d: got %q, want what is wrong with its counter", i, said)
			}
			if got := n.CallsOf("raise", "r"); len(got) > 0 {
				t.Errorf("node %d: got %d raised counters, want none", i, len(got))
			}
		}
		if ahead == 0 {
			t.Errorf("got %v, want a master whose counter is ahead", err)
		}
	})
}

// If a resource is granted faster than the clock runs, its counters get as far ahead of the clock as
// they may. Then there is one grant for each 64 us of the clock, and tokens go on rising.
//
// Source: ALGORITHM section 4.
func TestGrantsOutrunTheClock(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		const maxAhead = locktest.Quarantine/2 + time.Second
		l := b.WarmLocker()
		for _, n := range b.Nodes { // as after many grants: there is room for three more
			n.Put(redlock.DefaultKeyPrefix+"r~fence", strconv.FormatInt(time.Now().Add(maxAhead).UnixMicro()-3*64, 10), time.Minute)
		}
		last := int64(0)
		grant := func(what string) {
			t.Helper()
			lease, err := l.TryLock(t.Context(), "r")
			locktest.Must(t, err)
			if lease.Fence() <= last {
				t.Errorf("%s: got the token %d after %d, want a larger token", what, lease.Fence(), last)
			}
			last = lease.Fence()
			b.Unlock(lease)
		}
		refused := func(what string) {
			t.Helper()
			_, err := l.TryLock(t.Context(), "r")
			locktest.WantMatch(t, what, err, []error{redlock.ErrNoQuorum}, redlock.ErrTaken)
			b.WantHolding("r")
		}
		for range 3 {
			grant("with room")
		}
		for range 5 {
			refused("at the bound")
			time.Sleep(63 * time.Microsecond)
			refused("64 us less 1 later")
			time.Sleep(time.Microsecond)
			grant("64 us later")
		}
		lease, err := l.Lock(t.Context(), "r") // it waits for the clock
		locktest.Must(t, err)
		if lease.Fence() <= last {
			t.Errorf("got the token %d after %d, want a larger token", lease.Fence(), last)
		}
		b.Unlock(lease)
	})
}
