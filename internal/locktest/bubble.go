// Package locktest has what the tests of package redlock and of the packages on top of it
// share: masters and Lockers in virtual time, a clock that jumps, a log that is kept, and
// checks.
package locktest

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/virtual"
)

// Bubble is some fake masters in a testing/synctest bubble, and the Lockers that use them.
// Time stands still in a bubble while a goroutine runs, and jumps to the next timer when all
// wait. So every moment is exact, and a wait costs nothing. Tests on real servers find what a
// real server does differently.
type Bubble struct {
	T     *testing.T
	Nodes []*virtual.Node

	vouched sync.Once
}

// InBubble calls f in a bubble with n nodes. After f it shuts everything down: Lockers first,
// then nodes, then what dials in the background.
func InBubble(t *testing.T, n int, f func(t *testing.T, b *Bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &Bubble{T: t}
		for i := range n {
			b.Nodes = append(b.Nodes, virtual.New(fmt.Sprintf("10.0.0.%d:6379", i+1)))
		}
		t.Cleanup(func() { // runs after the cleanups that close the Lockers
			for _, node := range b.Nodes {
				node.Close()
			}
			time.Sleep(10 * time.Second)
		})
		f(t, b)
	})
}

// Subtest is InBubble as a subtest.
func Subtest(t *testing.T, name string, n int, f func(t *testing.T, b *Bubble)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { InBubble(t, n, f) })
}

// Part returns a bubble with some of the nodes, for a Locker with another list of masters. It
// vouches for none of them.
func (b *Bubble) Part(nodes ...int) *Bubble {
	part := &Bubble{T: b.T}
	for _, i := range nodes {
		part.Nodes = append(part.Nodes, b.Nodes[i])
	}
	part.vouched.Do(func() {})
	return part
}

// Locker returns a Locker for all nodes, with the clock of the bubble. The nodes have their
// votes.
func (b *Bubble) Locker(opts ...redlock.Option) *redlock.Locker {
	b.T.Helper()
	options := make([]*redis.Options, len(b.Nodes))
	for i, n := range b.Nodes {
		options[i] = &redis.Options{Addr: n.Addr(), Dialer: n.Dial}
	}
	l, err := redlock.NewFromOptions(options, opts...)
	if err != nil {
		b.T.Fatalf("NewFromOptions: got %v, want no error", err)
	}
	b.T.Cleanup(func() { _ = l.Close() })
	b.Vouch()
	return l
}

// Vouch has new nodes vote at once, as Bootstrap does, but without a Locker and where some
// nodes are down. A second call does nothing.
func (b *Bubble) Vouch() { b.vouched.Do(b.VouchAgain) }

// VouchAgain does what Vouch does, with every call.
func (b *Bubble) VouchAgain() {
	for _, n := range b.Nodes {
		for field, v := range map[string]string{"run": n.Identity(), "born": "0", "servers": ""} {
			n.Inside(func(r *miniredis.Miniredis, _ time.Time) { r.HSet(redlock.DefaultKeyPrefix+"~guard", field, v) })
		}
	}
}

// Warm connects a Locker to all nodes, and makes every script known there. The next call then
// costs what it costs in the steady state.
func (b *Bubble) Warm(l *redlock.Locker) {
	b.T.Helper()
	lease := b.Lock(l, "warm")
	if err := lease.Extend(b.T.Context()); err != nil {
		b.T.Fatalf("warming up: Extend: got %v, want no error", err)
	}
	b.Unlock(lease)
	synctest.Wait()
	for _, n := range b.Nodes {
		n.ForgetCalls()
	}
}

// WarmLocker returns a Locker that has been warmed up.
func (b *Bubble) WarmLocker(opts ...redlock.Option) *redlock.Locker {
	b.T.Helper()
	l := b.Locker(opts...)
	b.Warm(l)
	return l
}

// Lock takes a lease by TryLock, and waits until all nodes have answered.
func (b *Bubble) Lock(l *redlock.Locker, resource string, opts ...redlock.LockOption) *redlock.Lease {
	b.T.Helper()
	lease, err := l.TryLock(b.T.Context(), resource, opts...)
	if err != nil {
		b.T.Fatalf("TryLock(%q): got %v, want a lease", resource, err)
	}
	synctest.Wait() // for the nodes that were not needed
	return lease
}

// Unlock ends a lease, and waits until all nodes have been told.
func (b *Bubble) Unlock(lease *redlock.Lease) {
	b.T.Helper()
	if err := lease.Unlock(b.T.Context()); err != nil {
		b.T.Errorf("Unlock of %q: got %v, want no error", lease.Resource(), err)
	}
	synctest.Wait()
}

// Each calls do with some of the nodes, by index.
func (b *Bubble) Each(do func(*virtual.Node), nodes ...int) {
	for _, i := range nodes {
		do(b.Nodes[i])
	}
}

// All calls do with every node.
func (b *Bubble) All(do func(*virtual.Node)) {
	for _, n := range b.Nodes {
		do(n)
	}
}

// Holding returns the indexes of the nodes that have the key of resource.
func (b *Bubble) Holding(resource string) []int {
	synctest.Wait()
	var list []int
	for i, n := range b.Nodes {
		if n.Get(redlock.DefaultKeyPrefix+resource) != "" {
			list = append(list, i)
		}
	}
	return list
}

// WantHolding checks which nodes have the key of resource, by index.
func (b *Bubble) WantHolding(resource string, want ...int) {
	b.T.Helper()
	if got := b.Holding(resource); !slices.Equal(got, want) {
		b.T.Errorf("nodes that have the key of %q: got %v, want %v", resource, got, want)
	}
}

// WantCalls checks how many requests about "r" each node has had.
func (b *Bubble) WantCalls(op string, want int) {
	b.T.Helper()
	for i, n := range b.Nodes {
		if got := n.Seen(op, "r"); got != want {
			b.T.Errorf("%s seen by node %d: got %d, want %d", op, i, got, want)
		}
	}
}

// For a lease with the default TTL and drift.
const (
	TTL           = 10 * time.Second
	Drift         = 102 * time.Millisecond // 1 % and 2 ms
	Lead          = 200 * time.Millisecond // a fiftieth
	MasterTimeout = 250 * time.Millisecond
	Validity      = TTL - Drift
	Reconnect     = 4*MasterTimeout + 500*time.Millisecond + 4*MasterTimeout // a dial that fails, the longest pause, a dial that succeeds
)

// Steal makes a node hold "r" for another client.
func Steal(n *virtual.Node) { n.Put(redlock.DefaultKeyPrefix+"r", "another-holder|1", time.Hour) }

// Left returns the keys of a node, except the marker and the fencing counters.
func Left(n *virtual.Node) (list []string) {
	n.Inside(func(r *miniredis.Miniredis, _ time.Time) {
		_, _ = r.Get("") // this expires keys that are due
		list = slices.DeleteFunc(r.Keys(), func(k string) bool {
			return strings.HasSuffix(k, "~fence") || strings.HasSuffix(k, "~guard")
		})
	})
	return list
}

// WantNothingLeft checks that no node has such a key.
func WantNothingLeft(b *Bubble) {
	b.T.Helper()
	for i, n := range b.Nodes {
		if got := Left(n); len(got) > 0 {
			b.T.Errorf("keys on node %d: got %q, want none", i, got)
		}
	}
}

// HandOn returns a lease that was detached, with its key on all three nodes.
func HandOn(b *Bubble, resource string, opts ...redlock.LockOption) *redlock.Lease {
	b.T.Helper()
	le := b.Lock(b.WarmLocker(), resource, opts...)
	if _, err := le.Detach(); err != nil {
		b.T.Fatalf("Detach: got %v, want no error", err)
	}
	return le
}

// Handle returns the Handle of a lease that no call has returned.
func Handle(resource, token string, fence int64) (h redlock.Handle) {
	text := fmt.Sprintf("redlock1:%d:%s:%s", fence, url.QueryEscape(token), url.QueryEscape(resource))
	if err := h.UnmarshalText([]byte(strings.ReplaceAll(text, "~", "%7E"))); err != nil {
		panic(err)
	}
	return h
}

// BetweenRounds calls do when an Adopt that begins now has looked at all nodes, and before it
// asks them to extend.
func BetweenRounds(b *Bubble, do func()) {
	const there = 50 * time.Millisecond
	b.All(func(n *virtual.Node) { n.Latency(there, 0) })
	go func() {
		time.Sleep(there + there/2)
		do()
	}()
}

// Quarantine is the quarantine of a node with the default largest TTL.
const Quarantine = 10300 * time.Millisecond

// RefusedBy returns the answer of the node of that index in a QuorumError, "" for none.
func RefusedBy(b *Bubble, node int, err error) string {
	var q *redlock.QuorumError
	if errors.As(err, &q) {
		for _, e := range q.Masters {
			if e.Master == b.Nodes[node].Addr() {
				return e.Err.Error()
			}
		}
	}
	return ""
}

// Erase makes a node forget the key of "r", as a DEL by hand does.
func Erase(n *virtual.Node) { n.Put(redlock.DefaultKeyPrefix+"r", "", 0) }
