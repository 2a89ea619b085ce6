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
				locktest.WantMatch(t, name, err, []error{redlock.ErrMasterSetup, reason.Membership})
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

// A lease that was granted without a slow master ends when that master refuses the client's list, or its version.
func TestVirtualLateRefusal(t *testing.T) {
	for why, refuse := range map[error]func(*testing.T, *locktest.Bubble){
		reason.Membership: func(t *testing.T, b *locktest.Bubble) { b.Unlock(b.Lock(b.Part(0, 1, 2).WarmLocker(), "x")) },
		reason.Version: func(t *testing.T, b *locktest.Bubble) {
			b.Nodes[0].Inside(func(r *miniredis.Miniredis, now time.Time) {
				r.HSet(redlock.DefaultKeyPrefix+"~guard", "protocol", fmt.Sprint("99 ", now.Add(time.Hour).UnixMilli()))
			})
		},
	} {
		locktest.InBubble(t, 5, func(t *testing.T, b *locktest.Bubble) {
			b.Vouch()
			b.All(func(n *virtual.Node) { n.Latency(time.Millisecond, time.Millisecond) })
			refuse(t, b)
			b.Nodes[0].Latency(40*time.Millisecond, 40*time.Millisecond)
			lease, err := b.Part(0, 3, 4).Locker().TryLock(t.Context(), "r")
			locktest.Must(t, err)
			select {
			case <-lease.Context().Done():
			case <-time.After(time.Second):
			}
			locktest.WantMatch(t, "the lease", lease.Err(), []error{redlock.ErrLost, why})
		})
	}
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

// A client joins again when a join would not outlast the next lease, and never with a look or a release.
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
		for range 5 {
			b.Unlock(b.Lock(l, "r"))
			time.Sleep(50 * time.Millisecond)
		}
		if got := joins(b.Nodes[0]); got != joined {
			t.Errorf("after 250 ms: got lists %q, want them as they were: %q", got, joined)
		}
		time.Sleep(time.Second)
		b.Unlock(b.Lock(l, "r"))
		if got := joins(b.Nodes[0]); got == joined {
			t.Errorf("after 1.25 s: got lists %q, want the list with another time", got)
		}
	})
}
