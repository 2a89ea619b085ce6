package election_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/election"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
)

// Any process can ask for the leader, also a process that does not campaign.
func TestVirtualLeader(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		watcher, err := election.New(b.WarmLocker(), "r")
		locktest.Must(t, err)
		if leader, err := watcher.Leader(t.Context()); !errors.Is(err, election.ErrNoLeader) || redlock.Reason(err) != "no_leader" || leader != (election.Leader{}) {
			t.Errorf("got %+v, %v; want no leader", leader, err)
		}

		c := campaign(t, b.WarmLocker(), leading, redlock.WithOwner("web-1"))
		lease := c.term(t)
		time.Sleep(time.Second)
		for who, e := range map[string]*election.Elector{"the leader": c.Elector, "another": watcher} {
			leader, err := e.Leader(t.Context())
			if err != nil || leader.Owner != "web-1" || leader.Fence != lease.Fence() || leader.Self != (e == c.Elector) {
				t.Errorf("%s: got %+v, %v; want web-1 with fence %d", who, leader, err, lease.Fence())
			}
		}

		b.Nodes[0].Kill()
		b.Nodes[1].Kill()
		_, err = watcher.Leader(t.Context())
		locktest.WantMatch(t, "with two masters down", err, []error{redlock.ErrNoQuorum}, election.ErrNoLeader)
		var none context.Context
		if _, err := watcher.Leader(none); !errors.Is(err, redlock.ErrConfig) {
			t.Errorf("nil context: got %v, want ErrConfig", err)
		}
	})
}

// Observe tells of each change, once, and ends with its context, with the loop, and with the Locker.
func TestVirtualObserve(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		watcher, err := election.New(b.WarmLocker(), "r")
		locktest.Must(t, err)
		ctx, stop := context.WithCancel(t.Context())
		var seen []string
		done := make(chan struct{})
		go func() {
			defer close(done)
			for leader, err := range watcher.Observe(ctx) {
				seen = append(seen, leader.Owner+redlock.Reason(err))
			}
		}()
		time.Sleep(5 * time.Second)
		a := campaign(t, b.WarmLocker(), leading, redlock.WithOwner("a"))
		a.term(t)
		time.Sleep(5 * time.Second)
		z := campaign(t, b.WarmLocker(), leading, redlock.WithOwner("z"))
		a.stop()
		z.term(t)
		time.Sleep(5 * time.Second)
		z.stop()
		<-z.done
		time.Sleep(5 * time.Second)
		b.Nodes[0].Kill()
		b.Nodes[1].Kill()
		time.Sleep(time.Minute)
		stop()
		<-done
		if want := []string{"no_leader", "a", "z", "no_leader", "no_quorum"}; !slices.Equal(seen, want) {
			t.Errorf("got %q, want %q", seen, want)
		}
		for range watcher.Observe(t.Context()) {
			break
		}
	})
}

func TestVirtualObserveEndsWithTheLocker(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		watcher, err := election.New(l, "r")
		locktest.Must(t, err)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range watcher.Observe(t.Context()) {
			}
		}()
		time.Sleep(time.Minute)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		select {
		case <-done:
		default:
			t.Error("got an observer that goes on, want it to end with its Locker")
		}
		var none context.Context
		n := 0
		for _, err := range watcher.Observe(none) {
			if n++; !errors.Is(err, redlock.ErrConfig) {
				t.Errorf("nil context: got %v, want ErrConfig", err)
			}
		}
		if n != 1 {
			t.Errorf("nil context: got %d results, want one", n)
		}
	})
}

// On real masters, who leads is seen while all answer, while two refuse connections, and while two hang. Observe tells of
// each change.
func TestLeaderOnRealMasters(outer *testing.T) {
	t := redistest.Timed(outer)
	list := locktest.Masters(t, 3)
	proxies := redistest.Proxied(t, list) // of the watcher: the leader itself reaches all masters
	watcher, err := election.New(locktest.Open(t, redistest.Addrs(proxies)), "r")
	locktest.Must(t, err)
	leader := campaign(t, locktest.Open(t, redistest.Addrs(list)), leading, redlock.WithOwner("web-1"))
	fence := leader.term(t).Fence()
	changes := make(chan string, 100)
	go func() {
		for leader, err := range watcher.Observe(t.Context()) {
			changes <- leader.Owner + redlock.Reason(err)
		}
	}()
	change := func(want string) {
		t.Helper()
		redistest.Eventually(t, 20*time.Second, func() bool { return locktest.Receive(t, changes, "a change") == want }, "Observe tells: "+want)
	}
	for _, f := range []masters.Fault{masters.Pass, masters.Refuse, masters.Pass, masters.Blackhole, masters.Pass} {
		for _, p := range proxies[1:] {
			locktest.Must(t, p.Set(f))
		}
		if f != masters.Pass {
			change("no_quorum")
			if got, err := watcher.Leader(t.Context()); !errors.Is(err, redlock.ErrNoQuorum) || got.Owner != "" {
				t.Errorf("%v: got %+v, %v, want ErrNoQuorum", f, got, err)
			}
			continue
		}
		change("web-1")
		redistest.Eventually(t, 20*time.Second, func() bool {
			got, err := watcher.Leader(t.Context())
			return err == nil && got.Owner == "web-1" && got.Fence == fence && !got.Self
		}, "Leader is web-1")
	}
}
