package redlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/internal/virtual"
	"github.com/d0720281/redlock/internal/wire"
)

// The names that the tests of this package use for the bubbles of internal/locktest and their
// nodes.
//
// Tests in virtual time assert exact moments. Their nodes run the real scripts unless a test
// makes them native.

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

// goNative makes the node run the scripts as Go code, for tests that need many.
func goNative(n *bubbleNode) { n.Native(true) }

// value returns the node's lock key of a resource: "" for none.
func (n *bubbleNode) value(resource string) string { return n.Get(redlock.DefaultKeyPrefix + resource) }

// seen counts the scripts of one name that arrived for a resource.
func (n *bubbleNode) seen(op, resource string) int { return len(n.callsOf(op, resource)) }

func (n *bubbleNode) callsOf(op, resource string) []virtual.Call {
	return slices.DeleteFunc(n.Calls(), func(c virtual.Call) bool {
		return c.Op != op || c.Key != redlock.DefaultKeyPrefix+resource
	})
}

// hear records the messages that are published to some channels of a node, which must stay up
// until the returned function is called.
func (n *bubbleNode) hear(channels ...string) (heard func() string, mute func(channel string, on bool), stop func()) {
	var sub *miniredis.Subscriber
	n.inside(func(r *miniredis.Miniredis) { sub = r.NewSubscriber() })
	for _, c := range channels {
		sub.Subscribe(c)
	}
	var mu sync.Mutex
	var list []string
	go func() {
		for m := range sub.Messages() {
			mu.Lock()
			list = append(list, m.Channel+":"+m.Message)
			mu.Unlock()
		}
	}()
	heard = func() string {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		defer func() { list = nil }()
		return strings.Join(list, " ")
	}
	mute = func(channel string, on bool) {
		if on {
			sub.Unsubscribe(channel)
		} else {
			sub.Subscribe(channel)
		}
	}
	return heard, mute, sub.Close
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

// marker returns a field of the marker of the key "k".
func (n *bubbleNode) marker(field string) (value string) {
	n.inside(func(r *miniredis.Miniredis) { value = r.HGet("k~guard", field) })
	return value
}

// TestBubbleScripts sends random requests to two nodes. One runs the Lua files, the other their
// twins in Go. Replies, keys, expiries and published messages must be the same.
//
// Source: lua/*.lua; ALGORITHM sections 3 to 6 and 10.
func TestBubbleScripts(t *testing.T) {
	t.Parallel()
	redistest.Lua(t)
	inBubble(t, 2, func(t *testing.T, b *bubble) {
		b.nodes[1].Native(true)
		var clients [2]*redis.Client
		var heard [2]func() string
		var mute [2]func(string, bool)
		for i, n := range b.nodes {
			clients[i] = redis.NewClient(&redis.Options{Addr: n.Addr(), Dialer: n.Dial, Protocol: 2, DisableIdentity: true, MaxRetries: -1})
			t.Cleanup(func() { _ = clients[i].Close() })
			var stop func()
			heard[i], mute[i], stop = n.hear("p", "q", "s")
			t.Cleanup(stop)
		}
		rng := rand.New(rand.NewPCG(1, 2))
		names, ids := []string{"k", "k~fence"}, []string{"a", "b;web 1"}
		seen := make(map[int64]int)    // by code
		counts := make(map[int64]int)  // the same, with other processes waiting
		marked := make(map[string]int) // by operation on markers
		calls, skipped, missed, both, called := 0, 0, 0, 0, 0
		for _, n := range b.nodes {
			n.RunAs("one")
		}
		for step := range 6000 {
			time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond)
			switch rng.IntN(30) {
			case 0:
				time.Sleep(time.Duration(2+rng.IntN(3)) * time.Second) // waiting processes may lose their place
			case 1:
				time.Sleep(10 * time.Second) // and the queue expires
			case 4:
				who := []string{"-", "p", "q"}[rng.IntN(3)]
				for _, n := range b.nodes {
					n.put("k~turn", who, 0) // by an operator, without an expiry
				}
			case 3:
				left := time.Duration(20+100*rng.IntN(2)) * time.Millisecond
				for _, n := range b.nodes {
					n.put("k", "foreign", left)
				}
			case 5, 6:
				of := []string{ids[0], ids[1], wire.Readers}[rng.IntN(3)]
				for _, n := range b.nodes {
					n.put("k", wire.Placeholder(of), 300*time.Millisecond)
				}
			case 2:
				on := rng.IntN(2) == 0
				mute[0]("s", on)
				mute[1]("s", on)
			}
			now := time.Now().UnixMicro()
			run := []string{"", "?", "one:virtual", "one:virtual", "one:virtual", "two:virtual"}[rng.IntN(6)]
			count := func() string { // what a counter or a key may hold, or nothing
				v := b.nodes[0].at(names[rng.IntN(2)])
				if _, after, found := strings.Cut(v, "|"); found {
					v = after
				}
				return strconv.FormatInt(number(v), 10)
			}
			const skew = 101_000 // us
			median := []int64{0, now, now, now, now + skew/2, now - skew/3, now + skew + 1, now - skew - 1000}[rng.IntN(8)]
			argv := []any{run, median, fmt.Sprintf("2000 %d %d 1.02 %d", skew, 100+20*rng.IntN(2), rng.IntN(2))}
			common := slices.Clone(argv)
			keys := []string{"k~guard"}
			before := b.nodes[0].queued("k")
			for range 1 + rng.IntN(3) { // groups of one or two
				few := 1 + rng.IntN(2)
				for range few {
					keys = append(keys, names[0])
				}
				by := []int64{0, now - 5, now + 5}[rng.IntN(3)]
				id, ttl := ids[rng.IntN(2)], 50+rng.IntN(300)
				target := number(count()) + int64(rng.IntN(100))
				if rng.IntN(10) == 0 {
					target = now + skew + 1e6 + int64(rng.IntN(3)-1) // as far ahead as possible, or further
				}
				who := []string{"-", "p", "q", "r", "s"}[rng.IntN(5)] // r never listens
				process := who
				if rng.IntN(2) == 0 {
					process = "" // not the queue node
				}
				given := count()
				same := any(target)
				if given != "0" && rng.IntN(3) == 0 {
					same = wire.Same
				}
				kind := rng.IntN(10)
				var group, each []any
				switch kind {
				case 0, 1, 2:
					group = []any{int(wire.Acquire), few, process, ttl, by}
				case 3:
					group, each = []any{int(wire.Raise), few, ""}, []any{id + "|" + count(), target}
				case 4, 8, 9:
					grant := id + "|" + given
					if held := b.nodes[0].at("k"); strings.Contains(held, "|") && rng.IntN(4) > 0 {
						grant = held
						if !strings.HasSuffix(held, "|0") && rng.IntN(4) > 0 {
							same = wire.Same
						}
					}
					group, each = []any{int(wire.Extend), few, "", ttl, by}, []any{grant, same}
				case 5, 6:
					group, each = []any{int(wire.Release), few, process}, []any{id + "|" + given, []any{0, same}[rng.IntN(2)]}
				case 7:
					group, each = []any{int(wire.Rest), few, who}, []any{id + "|" + []string{"0", count()}[rng.IntN(2)], 0}
				}
				if rng.IntN(5) < 2 { // of a reader
					group[0] = int(wire.Op(group[0].(int)).Shared())
					if process := group[2].(string); process != "" && process != "-" {
						group[2] = process + wire.OfReaders
					}
				}
				argv = append(argv, group...)
				for range few {
					if kind <= 2 {
						each = []any{ids[rng.IntN(2)], median + int64(rng.IntN(3)-1)*700_000}
					}
					argv = append(argv, each...)
				}
			}
			if rng.IntN(20) == 0 {
				for _, n := range b.nodes {
					n.put("k~guard", "", 0) // the node has lost its data
				}
			}
			if rng.IntN(30) == 0 {
				id := []string{"one", "two"}[rng.IntN(2)]
				for _, n := range b.nodes {
					n.RunAs(id) // and this time it has kept its data
				}
			}
			if rng.IntN(40) == 0 {
				for _, n := range b.nodes {
					n.put(names[1], "", 0) // the counter has expired
				}
			}
			if rng.IntN(7) == 0 {
				ahead := strconv.FormatInt(now+skew+1e6-64+int64(rng.IntN(3)-1), 10)
				granted := rng.IntN(2) == 0
				for _, n := range b.nodes {
					n.put(names[1], ahead, time.Second)
					if granted {
						n.put(names[0], "a|"+ahead, 40*time.Millisecond)
					}
				}
			}
			var got [2]string
			if rng.IntN(4) == 0 { // a request about the node itself
				what := []string{wire.Look, wire.Join, wire.Vouch, wire.Mark}[rng.IntN(4)]
				mark := append(common, what, []string{"a b c", "a b d", "a b c d", "x y z", "a", "d", "a b c / d e f", "a b c d / d e f", "a b c / g h i"}[rng.IntN(9)])
				seen := []any{b.nodes[0].marker("run"), b.nodes[0].marker("made")}
				if i := rng.IntN(4); i < 2 {
					seen[i] = "1" // the value has changed since
				}
				mark = append(mark, seen...)
				for i, c := range clients {
					reply, err := c.Eval(t.Context(), wire.Marker.Source, keys[:1], mark...).Slice()
					got[i] = fmt.Sprint(mark, reply, err)
				}
				if got[0] != got[1] {
					t.Fatalf("step %d: Go got %s, want %s as Lua", step, got[1], got[0])
				}
				if !strings.Contains(got[0], " -1 0 ") {
					marked[what]++
				}
			}
			for i, c := range clients {
				reply, err := c.Eval(t.Context(), wire.Requests.Source, keys, argv...).Int64Slice()
				got[i] = fmt.Sprint(reply, err)
				for at := 2; at < len(reply); at += 3 {
					seen[reply[at]]++
					switch code := reply[at]; {
					case code == 1 && reply[at+2] > 0, (code == 3 || code == 8) && reply[at+1] > 0:
						counts[code]++
					}
				}
				for _, k := range names {
					b.nodes[i].inside(func(r *miniredis.Miniredis) {
						v, _ := r.Get(k)
						got[i] += fmt.Sprintf(" %s=%s for %v", k, v, r.TTL(k))
					})
				}
				b.nodes[i].inside(func(r *miniredis.Miniredis) {
					readers, _ := r.SortedSet("k~readers")
					got[i] += fmt.Sprintf(" readers %v for %v", readers, r.TTL("k~readers"))
					if len(readers) == 2 {
						both++
					}
				})
				told := heard[i]()
				calls += len(strings.Fields(told))
				called += strings.Count(told, wire.OfReaders)
				got[i] += b.nodes[i].queued("k") + " told " + told
				for _, field := range []string{"run", "made", "born", "maxttl", "lists", "since"} {
					got[i] += " " + field + "=" + b.nodes[i].marker(field)
				}
			}
			if got[0] != got[1] {
				t.Fatalf("step %d, %v: Go got %s, want %s as Lua; before%s", step, argv, got[1], got[0], before)
			}
			if strings.Contains(got[0], " turn - for") && !strings.Contains(before, " turn -") {
				missed++
			}
			if strings.Contains(before, "r:") && !strings.Contains(got[0], "r:") {
				skipped++
			}
		}
		for i, n := range b.nodes {
			if native, lua := n.Ran(); native > 0 != (i == 1) || lua > 0 != (i == 0) {
				t.Errorf("node %d: got %d scripts run as Go and %d as Lua, want them all as Go, or all as Lua", i, native, lua)
			}
		}
		for _, code := range []int64{1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 20, 21, 22, 23, 24, 25, 30, 31} {
			if seen[code] < 20 {
				t.Errorf("replies with code %d: got %d, want at least 20, or little was compared", code, seen[code])
			}
		}
		for _, code := range []int64{1, 3, 8} {
			if counts[code] < 20 {
				t.Errorf("replies with code %d and other waiting processes: got %d, want at least 20", code, counts[code])
			}
		}
		for _, what := range []string{"look", "vouch", "mark"} {
			if marked[what] < 20 {
				t.Errorf("%s of a marker: got %d, want at least 20", what, marked[what])
			}
		}
		if both < 20 || called < 20 {
			t.Errorf("got two readers %d times and %d readers called, want at least 20 and 20", both, called)
		}
		if calls < 40 || skipped < 8 || missed < 8 {
			t.Errorf("got %d messages told, %d places lost by a process that does not listen and %d releases missed, want at least 40, 8 and 8", calls, skipped, missed)
		}
	})
}

// A node recognises the library's scripts: with native it runs them as Go.
func TestBubbleNative(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		b.all(goNative)
		b.warmLocker()
		for i, n := range b.nodes {
			if native, lua := n.Ran(); native < 2 || lua > 0 { // the extend and the release can go together
				t.Errorf("node %d: got %d scripts run as Go and %d as Lua, want at least 2 and none", i, native, lua)
			}
		}
	})
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		redlock.BreakScript(t, func(script string) string { return script + "\n" })
		b.all(goNative)
		b.warmLocker()
		for i, n := range b.nodes {
			if native, lua := n.Ran(); native+lua > 0 {
				t.Errorf("node %d: got %d and %d scripts taken for the library's, want none, as the script is broken on purpose", i, native, lua)
			}
		}
	})
}
