package guard_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/virtual"
)

// joins returns the lists of masters in use on a node, and when a client joined with each.
func joins(n *virtual.Node) (text string) {
	n.Inside(func(r *miniredis.Miniredis, _ time.Time) { text = r.HGet(redlock.DefaultKeyPrefix+"~guard", "lists") })
	return text
}

// lists returns the lists without the times, shortened.
func lists(n *virtual.Node) (lists []string) {
	for line := range strings.Lines(joins(n)) {
		_, list, _ := strings.Cut(strings.TrimSpace(line), " ")
		lists = append(lists, strings.ReplaceAll(strings.ReplaceAll(list, "10.0.0.", ""), ":6379", ""))
	}
	return lists
}

// Two clients have lists that differ in one master of three. The first client holds a lease on the
// masters that the second one cannot reach or does not have. The second client gets no lease until
// the first one's list is not in use any more.
//
// Source: ALGORITHM section 8, "Membership".
func TestVirtualExchangedMaster(t *testing.T) {
	locktest.InBubble(t, 4, func(t *testing.T, b *locktest.Bubble) {
		b.Vouch()
		before, after := b.Part(0, 1, 2), b.Part(0, 1, 3)
		first := before.WarmLocker()
		b.Nodes[0].Blackhole()
		lease := b.Lock(first, "r") // on nodes 1 and 2
		b.Nodes[0].Heal()
		b.Nodes[1].Blackhole()
		second := after.Locker()
		for range 3 {
			if _, err := second.TryLock(t.Context(), "r"); !errors.Is(err, reason.Membership) {
				t.Fatalf("TryLock with the other list, by nodes 0 and 3: got %v, want reason.Membership", err)
			}
			time.Sleep(time.Second)
		}
		b.Nodes[1].Heal()
		time.Sleep(time.Second)
		if _, err := second.Lock(t.Context(), "r"); !errors.Is(err, reason.Membership) {
			t.Errorf("Lock with the other list: got %v, want an end with reason.Membership", err)
		}
		b.Unlock(lease)
		locktest.Must(t, first.Close())
		gone := time.Now()
		for {
			lease, err := second.TryLock(t.Context(), "r")
			if err == nil {
				b.Unlock(lease)
				break
			}
			if !errors.Is(err, reason.Membership) || time.Since(gone) > 30*time.Second {
				t.Fatalf("TryLock %v later: got %v, want reason.Membership, and a lease after some time", time.Since(gone), err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if waited := time.Since(gone); waited < 10*time.Second || waited > 21*time.Second {
			t.Errorf("the list was in use for %v more, want two quarantines from its last join", waited)
		}
	})
}

// Of a list that one master refuses the others do not hear: the client asks them for no vote.
func TestVirtualRefusedListIsNotJoined(t *testing.T) {
	locktest.InBubble(t, 7, func(t *testing.T, b *locktest.Bubble) {
		b.Vouch()
		b.All(func(n *virtual.Node) { n.Latency(time.Millisecond, time.Millisecond) })
		service, wrong := b.Part(0, 1, 2, 3, 4), b.Part(1, 5, 6)
		early := wrong.Locker()
		lease := b.Lock(service.WarmLocker(redlock.WithOwner("service")), "r")
		for name, l := range map[string]*redlock.Locker{"new": wrong.Locker(), "opened before": early} {
			for _, take := range []func(*redlock.Locker, context.Context, string, ...redlock.LockOption) (*redlock.Lease, error){
				(*redlock.Locker).TryLock, (*redlock.Locker).TryLock, (*redlock.Locker).Lock,
			} {
				_, err := take(l, t.Context(), "r")
				locktest.WantMatch(t, name, err, []error{redlock.ErrMasters, reason.Membership})
				for _, text := range []string{b.Nodes[5].Addr(), b.Nodes[0].Addr(), "service"} {
					if !strings.Contains(fmt.Sprint(err), text) || redlock.Reason(err) != "membership" {
						t.Errorf("%s: got %v, want %q named", name, err, text)
					}
				}
			}
		}
		for _, i := range []int{5, 6} {
			if got := joins(b.Nodes[i]); got != "" {
				t.Errorf("node %d: got lists %q, want none", i, got)
			}
		}
		b.Unlock(lease)
	})
}

// A master is added, and another one removed, while locks are used. No call fails.
func TestVirtualMasterAddedAndRemoved(t *testing.T) {
	locktest.InBubble(t, 4, func(t *testing.T, b *locktest.Bubble) {
		b.Vouch()
		parts := []*locktest.Bubble{b.Part(0, 1, 2), b.Part(0, 1, 2, 3), b.Part(1, 2, 3)}
		old := parts[0].WarmLocker()
		for i, next := range parts[1:] {
			l := next.WarmLocker()
			for range 3 {
				b.Unlock(b.Lock(old, "r"))
				b.Unlock(b.Lock(l, "r"))
				time.Sleep(time.Second)
			}
			locktest.Must(t, old.Close())
			old = l
			if i == 0 {
				time.Sleep(21 * time.Second) // the clients with the first list have finished
			}
		}
		for _, i := range []int{1, 2, 3} {
			if got := strings.Join(lists(b.Nodes[i]), ", "); !strings.Contains(got, "2 3 4") {
				t.Errorf("node %d: got lists %q, want the last one among them", i, got)
			}
		}
	})
}

// A master restarts empty, and a client with a wrong list is the first to ask it after that. This
// gives the client no second vote.
func TestVirtualExchangedMasterAfterARestart(t *testing.T) {
	locktest.InBubble(t, 4, func(t *testing.T, b *locktest.Bubble) {
		b.Vouch()
		before, after := b.Part(0, 1, 2), b.Part(0, 1, 3)
		first := before.WarmLocker()
		second := after.Locker()
		lease := b.Lock(first, "r")
		b.Nodes[0].RestartEmpty()
		for range 30 {
			if _, err := second.TryLock(t.Context(), "r"); !errors.Is(err, reason.Membership) {
				t.Fatalf("TryLock with the other list: got %v, want reason.Membership", err)
			}
			time.Sleep(time.Second)
		}
		locktest.Must(t, lease.Extend(t.Context()))
		if got := lists(b.Nodes[0]); len(got) != 1 {
			t.Errorf("the restarted node: got lists %q, want that of the first client", got)
		}
		b.Unlock(lease)
	})
}

// A client sends its list as seldom as possible, and never with a look or a release.
func TestVirtualJoins(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		looking := b.Locker()
		_, err := admin.Check(t.Context(), looking)
		locktest.Must(t, err)
		_, err = admin.Inspect(t.Context(), looking, "r")
		locktest.Must(t, err)
		if got := lists(b.Nodes[0]); len(got) != 0 {
			t.Errorf("after Check and Inspect: got lists %q, want none", got)
		}
		l := b.WarmLocker()
		joined := joins(b.Nodes[0])
		for range 50 {
			b.Unlock(b.Lock(l, "r"))
			time.Sleep(100 * time.Millisecond)
		}
		if got := joins(b.Nodes[0]); got != joined {
			t.Errorf("after 5 s: got lists %q, want them as they were: %q", got, joined)
		}
		time.Sleep(time.Second)
		b.Unlock(b.Lock(l, "r"))
		if got := joins(b.Nodes[0]); got == joined {
			t.Errorf("after 6 s: got lists %q, want the list with another time", got)
		}
	})
}

// One master of three refuses a new client's list, and answers last. If it answers within twice the time of the others, the client is
// granted nothing. Otherwise it loses the lease as soon as that master answers, and is granted none from then on.
func TestVirtualRefusalThatComesLast(t *testing.T) {
	for _, late := range []time.Duration{
		15 * time.Millisecond, // it refuses before the others are asked for the lock
		21 * time.Millisecond, // meanwhile
		35 * time.Millisecond,
	} {
		locktest.InBubble(t, 5, func(t *testing.T, b *locktest.Bubble) {
			b.Vouch()
			b.Unlock(b.Lock(b.Part(0, 1, 2).WarmLocker(), "r"))
			for i, n := range b.Nodes {
				n.Latency(5*time.Millisecond, 5*time.Millisecond)
				if i == 0 {
					n.Latency(late/2, late/2)
				}
			}
			wrong := b.Part(0, 3, 4).Locker()
			lease, err := wrong.TryLock(t.Context(), "r")
			if late < 30*time.Millisecond {
				locktest.WantMatch(t, late.String(), err, []error{redlock.ErrNoQuorum, reason.Membership})
				if !strings.Contains(fmt.Sprint(err), b.Nodes[0].Addr()+": no vote") {
					t.Errorf("%v: got %v, want it to say what the master answered", late, err)
				}
				return
			}
			locktest.Must(t, err)
			time.Sleep(6 * late) // it has yet to connect
			if err := lease.Err(); !errors.Is(err, redlock.ErrLost) || !errors.Is(err, reason.Membership) {
				t.Errorf("got a lease with the error %v, want it lost for the list of masters", err)
			}
			_, err = wrong.TryLock(t.Context(), "r")
			locktest.WantErr(t, err, reason.Membership)
		})
	}
}
