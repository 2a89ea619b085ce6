package redlock_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/virtual"
)

// The names that the tests of this package use for the bubbles of internal/locktest and their
// nodes.
//
// Tests in virtual time assert exact moments.

// bubble has fake nodes and Lockers for them.
type bubble struct {
	*locktest.Bubble
	t     *testing.T
	nodes []*bubbleNode
}

func newBubble(of *locktest.Bubble) *bubble {
	b := &bubble{Bubble: of, t: of.T}
	for _, n := range of.Nodes {
		b.nodes = append(b.nodes, &bubbleNode{n})
	}
	return b
}

// inBubble runs f in a bubble with n nodes, and shuts everything down after it.
func inBubble(t *testing.T, n int, f func(t *testing.T, b *bubble)) {
	t.Helper()
	locktest.InBubble(t, n, func(t *testing.T, b *locktest.Bubble) { f(t, newBubble(b)) })
}

func (b *bubble) vouch() { b.Vouch() }

func (b *bubble) locker(opts ...redlock.Option) *redlock.Locker {
	b.t.Helper()
	return b.Locker(opts...)
}

func (b *bubble) warm(l *redlock.Locker) {
	b.t.Helper()
	b.Warm(l)
}

func (b *bubble) warmLocker(opts ...redlock.Option) *redlock.Locker {
	b.t.Helper()
	return b.WarmLocker(opts...)
}

func (b *bubble) lock(l *redlock.Locker, resource string, opts ...redlock.LockOption) *redlock.Lease {
	b.t.Helper()
	return b.Lock(l, resource, opts...)
}

func (b *bubble) unlock(lease *redlock.Lease) {
	b.t.Helper()
	b.Unlock(lease)
}

// each calls do for some nodes, by index.
func (b *bubble) each(do func(*bubbleNode), nodes ...int) {
	for _, i := range nodes {
		do(b.nodes[i])
	}
}

// all calls do for all nodes.
func (b *bubble) all(do func(*bubbleNode)) {
	for _, n := range b.nodes {
		do(n)
	}
}

func (b *bubble) holding(resource string) []int { return b.Holding(resource) }

func (b *bubble) wantHolding(resource string, want ...int) {
	b.t.Helper()
	b.WantHolding(resource, want...)
}

var (
	wantSince  = locktest.WantSince
	wantWithin = locktest.WantWithin
	wantMatch  = locktest.WantMatch
	wantDone   = locktest.WantDone
)

// For a lease with the default TTL and drift.
const (
	ttl10       = 10 * time.Second
	drift10     = 102 * time.Millisecond // 1 % and 2 ms
	lead10      = 200 * time.Millisecond // a fiftieth
	timeout10   = 250 * time.Millisecond // of one node
	validity10  = ttl10 - drift10
	reconnect10 = 4*timeout10 + 500*time.Millisecond + 4*timeout10 // a dial that fails, the longest pause, a dial that succeeds
)

// waiter is a call of Lock in a goroutine of its own.
type waiter struct {
	lease *redlock.Lease
	err   error
	at    time.Time // when it returned
	done  chan struct{}
}

func (b *bubble) wait(ctx context.Context, l *redlock.Locker, opts ...redlock.LockOption) *waiter {
	return b.waitFor(ctx, l, "r", opts...)
}

func (b *bubble) waitFor(ctx context.Context, l *redlock.Locker, resource string, opts ...redlock.LockOption) *waiter {
	w := &waiter{done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.lease, w.err = l.Lock(ctx, resource, opts...)
		w.at = time.Now()
	}()
	synctest.Wait() // it gets in line
	return w
}

// got waits for the lease of a call.
func (b *bubble) got(w *waiter) *redlock.Lease {
	b.t.Helper()
	select {
	case <-w.done:
	case <-time.After(20 * time.Second):
		b.t.Fatal("Lock: got nothing for 20 s, want a lease")
	}
	if w.err != nil {
		b.t.Fatalf("Lock: got %v, want a lease", w.err)
	}
	return w.lease
}

// wantCalls checks how many requests about "r" each node has had.
func (b *bubble) wantCalls(op string, want int) {
	b.t.Helper()
	for i, n := range b.nodes {
		if got := n.seen(op, "r"); got != want {
			b.t.Errorf("%s seen by node %d: got %d, want %d", op, i, got, want)
		}
	}
}

// bubbleNode is one fake master and the network in front of it, with the names that the tests here
// use.
type bubbleNode struct{ *virtual.Node }

func (n *bubbleNode) kill()         { n.Kill() }
func (n *bubbleNode) restart()      { n.Restart() }
func (n *bubbleNode) restartEmpty() { n.RestartEmpty() }
func (n *bubbleNode) hang()         { n.Hang() }
func (n *bubbleNode) resume()       { n.Resume() }
func (n *bubbleNode) heal()         { n.Heal() }
func (n *bubbleNode) blackhole()    { n.Net(masters.Blackhole) }
func (n *bubbleNode) breakOff()     { n.BreakOff() }
func (n *bubbleNode) forgetCalls()  { n.ForgetCalls() }
func (n *bubbleNode) swallowConns() { n.SwallowConns() }
func (n *bubbleNode) silence()      { n.Net(masters.LoseReplies) }

func (n *bubbleNode) latency(there, back time.Duration)         { n.Latency(there, back) }
func (n *bubbleNode) replyWith(message string)                  { n.Refuse(message) }
func (n *bubbleNode) runClock(rate float64, step time.Duration) { n.RunClock(rate, step) }
func (n *bubbleNode) at(key string) string                      { return n.Get(key) }
func (n *bubbleNode) put(key, value string, ttl time.Duration)  { n.Put(key, value, ttl) }
func (n *bubbleNode) inside(do func(r *miniredis.Miniredis)) {
	n.Inside(func(r *miniredis.Miniredis, _ time.Time) { do(r) })
}

// value returns the node's lock key of a resource: "" for none.
func (n *bubbleNode) value(resource string) string { return n.Get(redlock.DefaultKeyPrefix + resource) }

// seen counts the scripts of one name that arrived for a resource.
func (n *bubbleNode) seen(op, resource string) int { return len(n.callsOf(op, resource)) }

func (n *bubbleNode) callsOf(op, resource string) []virtual.Call {
	return slices.DeleteFunc(n.Calls(), func(c virtual.Call) bool {
		return c.Op != op || c.Key != redlock.DefaultKeyPrefix+resource
	})
}

// queued returns all that a queue node knows of the waiting processes of a resource, as text.
func (n *bubbleNode) queued(key string) string {
	var b strings.Builder
	n.inside(func(r *miniredis.Miniredis) {
		if all, err := r.SortedSet(key + "~queue"); err == nil {
			fmt.Fprintf(&b, " queue %v for %v", all, r.TTL(key+"~queue"))
		}
		if fields, err := r.HKeys(key + "~seen"); err == nil {
			fmt.Fprintf(&b, " seen")
			for _, f := range fields {
				fmt.Fprintf(&b, " %s:%s", f, r.HGet(key+"~seen", f))
			}
			fmt.Fprintf(&b, " for %v", r.TTL(key+"~seen"))
		}
		if called, err := r.Get(key + "~turn"); err == nil {
			fmt.Fprintf(&b, " turn %s for %v", called, r.TTL(key+"~turn"))
		}
	})
	return b.String()
}

func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}
