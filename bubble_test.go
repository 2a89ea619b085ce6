package redlock_test

import (
	"cmp"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
)

// This file has the nodes of the tests in virtual time. They are fakes: each is a
// miniredis behind pipes inside a testing/synctest bubble, where time stands still
// while anything runs and jumps to the next timer when nothing does. So every
// moment is exact, and a wait costs nothing. What a real server does differently
// is for the tests against real servers to find.

// bubble is some fake nodes and what uses them.
type bubble struct {
	t     *testing.T
	nodes []*bubbleNode

	vouched sync.Once
}

// inBubble runs f in a bubble with n nodes, and shuts everything down after it:
// Lockers first, then nodes, then what dials in the background.
func inBubble(t *testing.T, n int, f func(t *testing.T, b *bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{t: t}
		for i := range n {
			b.nodes = append(b.nodes, newBubbleNode(t, i))
		}
		t.Cleanup(func() { // runs after those that close the Lockers
			for _, node := range b.nodes {
				node.close()
			}
			time.Sleep(10 * time.Second)
		})
		f(t, b)
	})
}

// locker is a Locker for all nodes. The bubble's clock is also its own.
func (b *bubble) locker(opts ...redlock.Option) *redlock.Locker {
	b.t.Helper()
	masters := make([]*redis.Options, len(b.nodes))
	for i, n := range b.nodes {
		masters[i] = &redis.Options{Addr: n.addr, Dialer: n.dial}
	}
	opts = append([]redlock.Option{redlock.WithClock(redlock.RuntimeClock())}, opts...)
	l, err := redlock.NewFromOptions(masters, opts...)
	if err != nil {
		b.t.Fatalf("NewFromOptions: got %v, want no error", err)
	}
	b.t.Cleanup(func() { _ = l.Close() })
	b.vouch()
	return l
}

// vouch has new nodes vote at once, as Bootstrap does, but without a Locker and where some
// are down.
func (b *bubble) vouch() {
	b.vouched.Do(func() {
		for _, n := range b.nodes {
			for field, v := range map[string]string{"run": n.identity(), "born": "0", "maxttl": "50"} {
				n.redis.HSet(redlock.DefaultKeyPrefix+"~guard", field, v)
			}
		}
	})
}

// warm connects a Locker to all nodes and has every script known there, so that the
// next call costs what it costs in the steady state.
func (b *bubble) warm(l *redlock.Locker) {
	b.t.Helper()
	lease := b.lock(l, "warm")
	if err := lease.Extend(b.t.Context()); err != nil {
		b.t.Fatalf("warming up: Extend: got %v, want no error", err)
	}
	b.unlock(lease)
	synctest.Wait()
	for _, n := range b.nodes {
		n.forgetCalls()
	}
}

// warmLocker is a Locker that has been warmed up.
func (b *bubble) warmLocker(opts ...redlock.Option) *redlock.Locker {
	b.t.Helper()
	l := b.locker(opts...)
	b.warm(l)
	return l
}

func (b *bubble) lock(l *redlock.Locker, resource string, opts ...redlock.LockOption) *redlock.Lease {
	b.t.Helper()
	lease, err := l.TryLock(b.t.Context(), resource, opts...)
	if err != nil {
		b.t.Fatalf("TryLock(%q): got %v, want a lease", resource, err)
	}
	synctest.Wait() // for the nodes that were not needed
	return lease
}

func (b *bubble) unlock(lease *redlock.Lease) {
	b.t.Helper()
	if err := lease.Unlock(b.t.Context()); err != nil {
		b.t.Errorf("Unlock of %q: got %v, want no error", lease.Resource(), err)
	}
	synctest.Wait()
}

// each does something to some nodes, by index.
func (b *bubble) each(do func(*bubbleNode), nodes ...int) {
	for _, i := range nodes {
		do(b.nodes[i])
	}
}

// all does something to all nodes.
func (b *bubble) all(do func(*bubbleNode)) {
	for _, n := range b.nodes {
		do(n)
	}
}

// holding is the indexes of the nodes that have the key of resource.
func (b *bubble) holding(resource string) []int {
	synctest.Wait()
	var list []int
	for i, n := range b.nodes {
		if n.value(resource) != "" {
			list = append(list, i)
		}
	}
	return list
}

func (b *bubble) wantHolding(resource string, want ...int) {
	b.t.Helper()
	if got := b.holding(resource); !slices.Equal(got, want) {
		b.t.Errorf("nodes that have the key of %q: got %v, want %v", resource, got, want)
	}
}

// wantSince checks that a moment is exactly so long after another.
func wantSince(t *testing.T, what string, since time.Time, want time.Duration) {
	t.Helper()
	if got := time.Since(since); got != want {
		t.Errorf("%s: got it after %v, want %v", what, got, want)
	}
}

// wantWithin checks that a moment is at most so long after another.
func wantWithin(t *testing.T, what string, since time.Time, atMost time.Duration) {
	t.Helper()
	if got := time.Since(since); got > atMost {
		t.Errorf("%s: got it after %v, want at most %v", what, got, atMost)
	}
}

// wantMatch checks what an error matches, and what it does not.
func wantMatch(t *testing.T, what string, err error, want []error, not ...error) {
	t.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Errorf("%s: got error %v, want one that matches %v", what, err, w)
		}
	}
	for _, n := range not {
		if errors.Is(err, n) {
			t.Errorf("%s: got error %v, want one that does not match %v", what, err, n)
		}
	}
}

// wantDone waits for a context and checks what ended it.
func wantDone(t *testing.T, ctx context.Context, want []error, not ...error) {
	t.Helper()
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Minute):
		t.Fatal("got a context that goes on, want one that ends")
	}
	wantMatch(t, "cause of the context", context.Cause(ctx), want, not...)
}

// bubbleNode is one fake master, and the network in front of it.
type bubbleNode struct {
	addr string

	mu    sync.Mutex
	redis *miniredis.Miniredis
	conns map[*bubbleConn]bool
	calls []bubbleCall
	known map[string]bool // scripts that the node has been sent

	// A message may be published while mu is held, and what is written to a connection must
	// get away then. So what decides about that has another mutex; to change it takes both.
	wire sync.Mutex

	down        bool          // connections are refused: nothing runs there
	black       bool          // requests and replies are swallowed, for good
	mute        bool          // requests arrive, replies do not
	hung        chan struct{} // requests wait until it is closed; nil while the node is well
	there, back time.Duration // latency of requests and of replies
	answer      string        // what every script is answered with, unless it is empty
	native      bool          // the scripts run as Go code, see bubbleScripts
	runID       atomic.Value  // string; new with each start of the process
	rate        float64
	offset      time.Duration
	zero        time.Time // when rate and offset began
}

// bubbleCall is a script that arrived at a node.
type bubbleCall struct {
	at     time.Time
	op     string
	key    string
	id     string
	before string // value of the key before the command
}

func newBubbleNode(t *testing.T, index int) *bubbleNode {
	n := &bubbleNode{
		addr:  fmt.Sprintf("10.0.0.%d:6379", index+1),
		conns: make(map[*bubbleConn]bool),
	}
	n.boot(t.Fatalf)
	return n
}

// boot starts an empty server.
func (n *bubbleNode) boot(fatalf func(string, ...any)) {
	n.redis = miniredis.NewMiniRedis()
	n.redis.ClockTTL(true)
	n.known = make(map[string]bool)
	n.newRun()
	c, err := n.redis.Dial() // makes the server, which the hook needs
	if err != nil {
		fatalf("miniredis: %v", err)
		return
	}
	_ = c.Close()
	n.redis.Server().SetPreHook(n.arrived)
}

func (n *bubbleNode) close() {
	n.resume()
	n.kill()
	n.mu.Lock()
	r := n.redis
	n.mu.Unlock()
	r.Close()
}

// set changes the state of the node.
func (n *bubbleNode) set(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wire.Lock()
	defer n.wire.Unlock()
	change()
}

// kill ends the process: its connections die, new ones are refused.
func (n *bubbleNode) kill() {
	n.mu.Lock()
	n.down = true
	conns := n.conns
	n.conns = make(map[*bubbleConn]bool)
	n.mu.Unlock()
	for c := range conns {
		c.cut()
	}
}

// restart starts it again with the data it had.
func (n *bubbleNode) restart() {
	n.newRun()
	n.set(func() { n.down = false })
}

// identity is what the library makes of what the node says of itself.
func (n *bubbleNode) identity() string { return n.runID.Load().(string) + ":bubble" }

func (n *bubbleNode) newRun() { n.runID.Store(strings.ReplaceAll(uuid.NewString(), "-", "")) }

// restartEmpty ends the process, if it runs, and starts it again without data.
func (n *bubbleNode) restartEmpty() {
	n.kill()
	n.mu.Lock()
	old := n.redis
	n.mu.Unlock()
	old.Close()
	n.set(func() {
		n.boot(func(format string, args ...any) { panic(fmt.Sprintf(format, args...)) })
		n.down = false
	})
}

// hang stops the process as SIGSTOP does: connections can be made and requests
// sent, but they are only carried out when it resumes.
func (n *bubbleNode) hang() {
	n.set(func() {
		if n.hung == nil {
			n.hung = make(chan struct{})
		}
	})
}

func (n *bubbleNode) resume() {
	n.set(func() {
		if n.hung != nil {
			close(n.hung)
			n.hung = nil
		}
	})
}

func (n *bubbleNode) blackhole() { n.set(func() { n.black = true }) }
func (n *bubbleNode) silence()   { n.set(func() { n.mute = true }) }

// goNative has the node run the scripts as Go code, for tests that need many.
func goNative(n *bubbleNode) { n.set(func() { n.native = true }) }

// heal takes back every fault but a slow network and a strange clock.
func (n *bubbleNode) heal() {
	n.resume()
	n.set(func() { n.black, n.mute, n.down, n.answer = false, false, false, "" })
}

// latency delays what is sent from now on.
func (n *bubbleNode) latency(there, back time.Duration) {
	n.set(func() { n.there, n.back = there, back })
}

// replyWith has the node answer every script with an error of Redis.
func (n *bubbleNode) replyWith(message string) { n.set(func() { n.answer = message }) }

// runClock has the node's clock run at a rate from now on, and step by offset now.
func (n *bubbleNode) runClock(rate float64, step time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.clockLocked()
	n.zero, n.rate = time.Now(), rate
	n.offset = now.Sub(n.zero) + step
}

func (n *bubbleNode) clockLocked() time.Time {
	if n.zero.IsZero() {
		return time.Now()
	}
	run := time.Duration(float64(time.Since(n.zero)) * n.rate)
	return n.zero.Add(run + n.offset)
}

// tickLocked tells the server what its clock shows.
func (n *bubbleNode) tickLocked() {
	if !n.zero.IsZero() {
		n.redis.SetTime(n.clockLocked())
	}
}

// value is what the node has for a resource: "" for nothing.
func (n *bubbleNode) value(resource string) string {
	return n.at(redlock.DefaultKeyPrefix + resource)
}

func (n *bubbleNode) at(key string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tickLocked()
	v, _ := n.redis.Get(key)
	return v
}

// put sets a key behind everybody's back.
func (n *bubbleNode) put(key, value string, ttl time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tickLocked()
	n.redis.Del(key)
	if value != "" {
		_ = n.redis.Set(key, value)
		n.redis.SetTTL(key, ttl)
	}
}

// seen counts the scripts of one name that arrived for a resource.
func (n *bubbleNode) seen(op, resource string) int { return len(n.callsOf(op, resource)) }

func (n *bubbleNode) callsOf(op, resource string) []bubbleCall {
	n.mu.Lock()
	defer n.mu.Unlock()
	var list []bubbleCall
	for _, c := range n.calls {
		if c.op == op && c.key == redlock.DefaultKeyPrefix+resource {
			list = append(list, c)
		}
	}
	return list
}

func (n *bubbleNode) forgetCalls() { n.set(func() { n.calls = nil }) }

// arrived is called by the server before each command, those of scripts included: it
// must not take the mutex for them, as the server's own is held then.
func (n *bubbleNode) arrived(p *server.Peer, cmd string, args ...string) bool {
	if cmd == "INFO" {
		p.WriteBulk("# Server\r\nredis_version:7.0.15\r\nrun_id:" + n.runID.Load().(string) + "\r\nrole:master\r\nmaster_replid:bubble\r\n" +
			"maxmemory:0\r\nmaxmemory_policy:noeviction\r\naof_enabled:0\r\ncluster_enabled:0\r\n")
		return true
	}
	if cmd != "EVAL" && cmd != "EVALSHA" {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	hash := args[0]
	if cmd == "EVAL" {
		hash = bubbleHash(args[0])
	} else if !n.known[hash] {
		p.WriteError("NOSCRIPT No matching script. Please use EVAL.")
		return true
	}
	n.known[hash] = true
	if hash != bubbleLuaHash() {
		return false
	}
	requests, common := parseRequests(args[1:])
	for _, r := range requests {
		c := bubbleCall{at: time.Now(), op: r.op, key: r.keys[0], id: r.argv[0]}
		c.before, _ = n.redis.Get(c.key)
		n.calls = append(n.calls, c)
	}
	if n.answer != "" {
		p.WriteError(n.answer)
		return true
	}
	if !n.native {
		return false
	}
	store := bubbleStore{redis: n.redis, now: n.clockLocked().UnixMicro(), counterTTL: common[0], block: number(common[1])}
	reply := []int64{0, 0}
	for _, r := range requests {
		if reply[0] == 0 && (r.op == "acquire" || r.op == "extend") {
			reply[0] = store.now
			store.left = bubbleGuard(store, args[2], common, n.identity())
			reply[1] = max(store.left, 0)
		}
		store.gate = r.gate
		three := bubbleScripts[r.op](store, r.keys, r.argv)
		reply = append(reply, three[:]...)
	}
	p.WriteLen(len(reply))
	for _, v := range reply {
		p.WriteInt(int(v))
	}
	return true
}

// bubbleRequest is one request of those that came in one call of the script.
type bubbleRequest struct {
	op         string
	gate       bool
	keys, argv []string
}

// parseRequests takes the arguments of the script apart, as lua/begin.lua explains
// them: from the number of keys on.
func parseRequests(args []string) (list []bubbleRequest, common []string) {
	keys := args[1 : 1+number(args[0])]
	args = args[1+len(keys):]
	keys = keys[1:] // the marker
	common, args = args[:6], args[6:]
	for ; len(keys) > 0; keys = keys[2:] {
		kind := bubbleKinds[number(args[0])]
		list = append(list, bubbleRequest{op: kind.op, gate: kind.gate, keys: keys[:2], argv: args[1 : 1+kind.args]})
		args = args[1+kind.args:]
	}
	return list, common
}

// bubbleKinds is the functions of the script by their number.
var bubbleKinds = map[int64]struct {
	op   string
	args int
	gate bool
}{1: {"acquire", 4, false}, 2: {"raise", 3, false}, 3: {"extend", 5, false}, 4: {"release", 3, false}, 5: {"acquire", 5, true}, 6: {"release", 4, true}}

// dial is a redis.Options.Dialer.
func (n *bubbleNode) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	n.mu.Lock()
	black, roundTrip := n.black, n.there+n.back
	n.mu.Unlock()
	if black {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if roundTrip > 0 {
		timer := time.NewTimer(roundTrip)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	inner, err := n.redis.Dial()
	if err != nil {
		return nil, err
	}
	outer, wire := net.Pipe()
	c := &bubbleConn{node: n, wire: wire, inner: inner, dead: make(chan struct{})}
	c.up.wake, c.down.wake = make(chan struct{}, 1), make(chan struct{}, 1)
	n.conns[c] = true
	go c.collect(&c.up, wire, func() (time.Duration, bool) { return n.there, !n.black })
	go c.collect(&c.down, inner, func() (time.Duration, bool) { return n.back, !n.black && !n.mute })
	go c.deliver(&c.up, inner, true)
	go c.deliver(&c.down, wire, false)
	return outer, nil
}

// bubbleConn is one connection: the client's pipe, the server's pipe, and what is on
// its way between them. What the client sent before it closed still arrives.
type bubbleConn struct {
	node        *bubbleNode
	wire, inner net.Conn
	up, down    bubbleWire
	once        sync.Once
	dead        chan struct{}
}

// bubbleWire is one direction of a connection.
type bubbleWire struct {
	mu     sync.Mutex
	chunks []bubbleChunk
	wake   chan struct{}
}

type bubbleChunk struct {
	data []byte // nil: the end
	due  time.Time
}

// cut ends the connection at once, with everything that is on its way.
func (c *bubbleConn) cut() {
	c.once.Do(func() { close(c.dead) })
	_ = c.wire.Close()
	_ = c.inner.Close()
}

// collect takes what one end writes and puts it on the wire, unless it is lost.
func (c *bubbleConn) collect(w *bubbleWire, from net.Conn, fate func() (latency time.Duration, arrives bool)) {
	buf := make([]byte, 4<<10)
	for {
		k, err := from.Read(buf)
		chunk := bubbleChunk{data: slices.Clone(buf[:k])}
		if err != nil {
			chunk.data = nil
		}
		c.node.wire.Lock()
		latency, arrives := fate()
		c.node.wire.Unlock()
		if arrives {
			chunk.due = time.Now().Add(latency)
			w.mu.Lock()
			w.chunks = append(w.chunks, chunk)
			w.mu.Unlock()
			select {
			case w.wake <- struct{}{}:
			default:
			}
		}
		if err != nil {
			return
		}
	}
}

// deliver takes what is on the wire to the other end, in order.
func (c *bubbleConn) deliver(w *bubbleWire, to net.Conn, isRequest bool) {
	for {
		w.mu.Lock()
		var next *bubbleChunk
		if len(w.chunks) > 0 {
			next = &w.chunks[0]
			w.chunks = w.chunks[1:]
		}
		w.mu.Unlock()
		if next == nil {
			select {
			case <-w.wake:
				continue
			case <-c.dead:
				return
			}
		}
		if wait := time.Until(next.due); wait > 0 {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-c.dead:
				timer.Stop()
				return
			}
		}
		for isRequest {
			c.node.mu.Lock()
			hung := c.node.hung
			c.node.mu.Unlock()
			if hung == nil {
				break
			}
			select {
			case <-hung:
			case <-c.dead:
				return
			}
		}
		if next.data == nil {
			_ = to.Close()
			return
		}
		if isRequest {
			c.node.mu.Lock()
			c.node.tickLocked()
			c.node.mu.Unlock()
		}
		_, _ = to.Write(next.data) // fails if the other end is closed: then it is lost
	}
}

// bubbleLua is the script that the library sends.
var bubbleLua = sync.OnceValue(func() string {
	var parts []string
	for _, name := range []string{"begin", "guard", "queue", "acquire", "raise", "extend", "release", "run"} {
		part, err := os.ReadFile("lua/" + name + ".lua")
		if err != nil {
			panic(err)
		}
		parts = append(parts, string(part))
	}
	return strings.Join(parts, "\n")
})

var bubbleLuaHash = sync.OnceValue(func() string { return bubbleHash(bubbleLua()) })

func bubbleHash(script string) string {
	sum := sha1.Sum([]byte(script))
	return hex.EncodeToString(sum[:])
}

// bubbleStore is the data of a node, for the functions in Go.
type bubbleStore struct {
	redis      *miniredis.Miniredis
	now        int64
	counterTTL string
	block      int64
	left       int64 // ms without a vote, -1 for a stale caller
	gate       bool  // the request says who waits, or has done
}

func (s bubbleStore) get(key string) (value string, exists bool) {
	value, err := s.redis.Get(key)
	return value, err == nil
}

func (s bubbleStore) set(key, value, millis string) {
	_ = s.redis.Set(key, value)
	s.expire(key, millis)
}

func (s bubbleStore) expire(key, millis string) {
	s.redis.SetTTL(key, time.Duration(number(millis))*time.Millisecond)
}

func (s bubbleStore) pttl(key string) int64 {
	return int64(s.redis.TTL(key) / time.Millisecond)
}

func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

// bubbleScripts is the four functions of the script a second time, in Go, for tests that
// would take too long with an interpreter. TestBubbleScripts compares them with the
// real ones. They know lock keys and counters that hold strings only.
var bubbleScripts = map[string]func(s bubbleStore, keys, argv []string) [3]int64{
	"acquire": func(s bubbleStore, keys, argv []string) [3]int64 {
		if by := number(argv[2]); by > 0 && s.now > by {
			return [3]int64{5, 0, 0}
		}
		if s.left < 0 {
			return [3]int64{6, 0, 0}
		}
		q, crowd := bubbleQueue{s, keys[0]}, false
		if s.gate {
			if crowd = q.crowded(); crowd {
				if called, some := s.get(q.turn()); some && called != argv[4] {
					return [3]int64{8, q.join(argv[4]), s.pttl(q.turn())}
				}
			}
		}
		if held, taken := s.get(keys[0]); taken {
			own, mine := strings.CutPrefix(held, argv[0]+"|")
			switch {
			case !mine && s.gate:
				rest := s.pttl(keys[0])
				if !strings.Contains(held, "|") && (rest <= 0 || rest > 50) {
					rest = 50
				}
				return [3]int64{3, q.join(argv[4]), rest}
			case !mine:
				return [3]int64{3, 0, s.pttl(keys[0])}
			case number(own) > 0 && s.left == 0:
				return [3]int64{2, number(own), 0}
			}
			return [3]int64{4, 0, s.left}
		}
		if s.left > 0 {
			s.set(keys[0], argv[0]+"|0", argv[1])
			if crowd {
				q.leave(argv[4])
			}
			return [3]int64{4, 0, s.left}
		}
		count := s.now
		if old, exists := s.get(keys[1]); exists {
			count = number(old) + s.block
		} else if hint := number(argv[3]); s.now <= hint && hint <= s.now+1e6 {
			count = hint
		}
		text := strconv.FormatInt(count, 10)
		s.set(keys[1], text, s.counterTTL)
		s.set(keys[0], argv[0]+"|"+text, argv[1])
		if crowd {
			q.leave(argv[4])
			return [3]int64{1, count, q.waiting()}
		}
		return [3]int64{1, count, 0}
	},
	"raise": func(s bubbleStore, keys, argv []string) [3]int64 {
		if held, _ := s.get(keys[0]); held != argv[0]+"|"+argv[1] {
			return [3]int64{11, 0, 0}
		}
		if old, _ := s.get(keys[1]); number(old) < number(argv[2]) {
			s.set(keys[1], argv[2], s.counterTTL)
		}
		return [3]int64{10, 0, 0}
	},
	"extend": func(s bubbleStore, keys, argv []string) [3]int64 {
		if by := number(argv[2]); by > 0 && s.now > by {
			return [3]int64{5, 0, 0}
		}
		if s.left < 0 {
			return [3]int64{6, 0, 0}
		}
		filled, kept := int64(22), int64(20)
		if s.left > 0 {
			filled, kept = 23, 21
		}
		held, exists := s.get(keys[0])
		switch {
		case !exists:
			s.set(keys[0], argv[0]+"|0", argv[1])
			return [3]int64{filled, 0, s.left}
		case !strings.HasPrefix(held, argv[0]+"|"):
			return [3]int64{24, 0, 0}
		}
		if s.pttl(keys[0]) < number(argv[1]) {
			s.expire(keys[0], argv[1])
		}
		if old, counts := s.get(keys[1]); counts && argv[3] != "0" && held == argv[0]+"|"+argv[3] {
			if number(old) < number(argv[4]) {
				s.set(keys[1], argv[4], s.counterTTL)
			} else {
				s.expire(keys[1], s.counterTTL)
			}
		}
		return [3]int64{kept, 0, s.left}
	},
	"release": func(s bubbleStore, keys, argv []string) [3]int64 {
		code := int64(31)
		if held, _ := s.get(keys[0]); strings.HasPrefix(held, argv[0]+"|") {
			code = 30
			s.redis.Del(keys[0])
			exact := held == argv[0]+"|"+argv[1] && argv[1] != "0" && argv[2] != "0"
			if old, counts := s.get(keys[1]); exact && counts && number(old) < number(argv[2]) {
				s.set(keys[1], argv[2], s.counterTTL)
			}
		}
		if q := (bubbleQueue{s, keys[0]}); s.gate && q.crowded() {
			q.leave(argv[3])
			if !s.redis.Exists(keys[0]) {
				q.callNext()
			}
		}
		return [3]int64{code, 0, 0}
	},
}

// bubbleQueue is lua/queue.lua in Go, for one lock key.
type bubbleQueue struct {
	bubbleStore
	key string
}

func (q bubbleQueue) queue() string { return q.key + "~queue" }
func (q bubbleQueue) seen() string  { return q.key + "~seen" }
func (q bubbleQueue) turn() string  { return q.key + "~turn" }

func (q bubbleQueue) crowded() bool { return q.redis.Exists(q.queue()) || q.redis.Exists(q.turn()) }

// members is who waits, with when they came.
func (q bubbleQueue) members() map[string]float64 {
	all, _ := q.redis.SortedSet(q.queue())
	return all
}

func (q bubbleQueue) waiting() int64 { return int64(len(q.members())) }

func (q bubbleQueue) join(who string) int64 {
	if who != "-" {
		if _, in := q.members()[who]; !in {
			_, _ = q.redis.ZAdd(q.queue(), float64(q.now), who)
		}
		q.redis.HSet(q.seen(), who, strconv.FormatFloat(float64(q.now)/1000, 'f', 0, 64))
		q.redis.SetTTL(q.queue(), 10*time.Second)
		q.redis.SetTTL(q.seen(), 10*time.Second)
	}
	return q.waiting()
}

// forget takes a process out of what is known of those who wait.
func (q bubbleQueue) forget(who string) {
	q.redis.HDel(q.seen(), who)
	if left, _ := q.redis.HKeys(q.seen()); len(left) == 0 {
		q.redis.Del(q.seen())
	}
}

func (q bubbleQueue) leave(who string) {
	_, _ = q.redis.ZRem(q.queue(), who)
	q.forget(who)
	if called, _ := q.get(q.turn()); called == who {
		q.redis.Del(q.turn())
	}
}

func (q bubbleQueue) callNext() {
	if called, some := q.get(q.turn()); some {
		q.redis.Publish(called, q.key)
		return
	}
	for range 16 {
		all := q.members()
		if len(all) == 0 {
			return
		}
		head := slices.MinFunc(slices.Collect(maps.Keys(all)), func(a, b string) int {
			return cmp.Or(cmp.Compare(all[a], all[b]), cmp.Compare(a, b))
		})
		_, _ = q.redis.ZRem(q.queue(), head)
		last := q.redis.HGet(q.seen(), head)
		q.forget(head)
		if float64(number(last)) > float64(q.now)/1000-3000 && q.redis.Publish(head, q.key) > 0 {
			q.set(q.turn(), head, "250")
			return
		}
	}
}

// bubbleGuard is lua/guard.lua in Go: ms without a vote, -1 for a stale caller.
func bubbleGuard(s bubbleStore, marker string, common []string, own string) int64 {
	run, given, trusted := common[2], number(common[3]), common[5] == "1"
	if run == "" {
		return 0
	}
	stretch, _ := strconv.ParseFloat(common[4], 64)
	get := func(field string) string { return s.redis.HGet(marker, field) }
	set := func(field string, v int64) { s.redis.HSet(marker, field, strconv.FormatInt(v, 10)) }
	now, born, longest := s.now/1000, number(get("born")), number(get("maxttl"))
	known := longest > 0
	if !known || get("run") != run && run != "?" {
		if known && get("run") == own {
			return -1
		}
		if !trusted || !known {
			born = now
		}
		s.redis.HSet(marker, "run", own)
		set("born", born)
		longest = max(longest, given)
		set("maxttl", longest)
	} else if longest < given {
		longest = given
		set("maxttl", longest)
	}
	whole := int64(math.Ceil(float64(longest)*stretch)) + 100
	left := born + whole - now
	if left > whole {
		set("born", now)
		left = whole
	}
	return max(left, 0)
}

// hear keeps what is published to some channels of a node, which has to be there until
// the returned function is called.
func (n *bubbleNode) hear(channels ...string) (heard func() string, mute func(channel string, on bool), stop func()) {
	sub := n.redis.NewSubscriber()
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

// queued is all that a gate has of those who wait for a resource, as text.
func (n *bubbleNode) queued(key string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tickLocked()
	var b strings.Builder
	if all, err := n.redis.SortedSet(key + "~queue"); err == nil {
		fmt.Fprintf(&b, " queue %v for %v", all, n.redis.TTL(key+"~queue"))
	}
	if fields, err := n.redis.HKeys(key + "~seen"); err == nil {
		fmt.Fprintf(&b, " seen")
		for _, f := range fields {
			fmt.Fprintf(&b, " %s:%s", f, n.redis.HGet(key+"~seen", f))
		}
		fmt.Fprintf(&b, " for %v", n.redis.TTL(key+"~seen"))
	}
	if called, err := n.redis.Get(key + "~turn"); err == nil {
		fmt.Fprintf(&b, " turn %s for %v", called, n.redis.TTL(key+"~turn"))
	}
	return b.String()
}

// TestBubbleScripts has random requests carried out by two nodes, one of which runs the
// Lua files and the other their twins in Go: replies, keys and lives must be the same, and
// what is told to those who wait.
//
// Source: lua/*.lua; ALGORITHM sections 3 to 6 and 10.
func TestBubbleScripts(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, b *bubble) {
		b.nodes[1].native = true
		var clients [2]*redis.Client
		var heard [2]func() string
		var mute [2]func(string, bool)
		for i, n := range b.nodes {
			clients[i] = redis.NewClient(&redis.Options{Addr: n.addr, Dialer: n.dial, Protocol: 2, DisableIdentity: true, MaxRetries: -1})
			t.Cleanup(func() { _ = clients[i].Close() })
			var stop func()
			heard[i], mute[i], stop = n.hear("p", "q", "s")
			t.Cleanup(stop)
		}
		rng := rand.New(rand.NewPCG(1, 2))
		names := []string{"k", "k~fence"}
		seen := make(map[int64]int)   // codes
		counts := make(map[int64]int) // of those, with others who wait
		calls, skipped := 0, 0
		for _, n := range b.nodes {
			n.runID.Store("one")
		}
		for step := range 1200 {
			time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond)
			switch rng.IntN(40) {
			case 0:
				time.Sleep(time.Duration(2+rng.IntN(2)) * time.Second) // who waits may lose its place
			case 1:
				time.Sleep(10 * time.Second) // and the queue is forgotten
			case 3:
				left := time.Duration(20+100*rng.IntN(2)) * time.Millisecond
				for _, n := range b.nodes {
					n.put("k", "foreign", left)
				}
			case 2:
				on := rng.IntN(2) == 0
				mute[0]("s", on)
				mute[1]("s", on)
			}
			now := time.Now().UnixMicro()
			run := []string{"", "?", "one:bubble", "one:bubble", "one:bubble", "two:bubble"}[rng.IntN(6)]
			count := func() string { // what a counter or a key may have, or nothing
				v, _ := b.nodes[0].redis.Get(names[rng.IntN(2)])
				if _, after, found := strings.Cut(v, "|"); found {
					v = after
				}
				return cmp.Or(v, "0")
			}
			argv := []any{"2000", "64", run, "100", "1.02", rng.IntN(2)}
			keys := []string{"k~guard"}
			before := b.nodes[0].queued("k")
			for range 1 + rng.IntN(3) {
				keys = append(keys, names...)
				by := []int64{0, now - 5, now + 5}[rng.IntN(3)]
				id, ttl := []string{"a", "b"}[rng.IntN(2)], 50+rng.IntN(300)
				target := number(count()) + int64(rng.IntN(100))
				who := []string{"-", "p", "q", "r", "s"}[rng.IntN(5)] // r never listens
				switch rng.IntN(7) {
				case 0:
					argv = append(argv, 1, id, ttl, by, now+int64(rng.IntN(3)-1)*700_000)
				case 1:
					argv = append(argv, 2, id, count(), target)
				case 2:
					argv = append(argv, 3, id, ttl, by, count(), target)
				case 3:
					argv = append(argv, 4, id, count(), target)
				case 4, 5:
					argv = append(argv, 5, id, ttl, by, now+int64(rng.IntN(3)-1)*700_000, who)
				case 6:
					argv = append(argv, 6, id, count(), target, who)
				}
			}
			if rng.IntN(20) == 0 {
				for _, n := range b.nodes {
					n.redis.Del("k~guard") // the node has lost data
				}
			}
			if rng.IntN(40) == 0 {
				for _, n := range b.nodes {
					n.put(names[1], "", 0) // the counter has expired
				}
			}
			var got [2]string
			for i, c := range clients {
				reply, err := c.Eval(t.Context(), bubbleLua(), keys, argv...).Int64Slice()
				got[i] = fmt.Sprint(reply, err)
				for at := 2; at < len(reply); at += 3 {
					seen[reply[at]]++
					switch code := reply[at]; {
					case code == 1 && reply[at+2] > 0, (code == 3 || code == 8) && reply[at+1] > 0:
						counts[code]++
					}
				}
				for _, k := range names {
					v, _ := b.nodes[i].redis.Get(k)
					got[i] += fmt.Sprintf(" %s=%s for %v", k, v, b.nodes[i].redis.TTL(k))
				}
				told := heard[i]()
				calls += len(strings.Fields(told))
				got[i] += b.nodes[i].queued("k") + " told " + told
			}
			if got[0] != got[1] {
				t.Fatalf("step %d, %v: Go got %s, want %s as Lua; before%s", step, argv, got[1], got[0], before)
			}
			if strings.Contains(before, "r:") && !strings.Contains(got[0], "r:") {
				skipped++
			}
		}
		for _, code := range []int64{1, 2, 3, 4, 5, 6, 8, 10, 11, 20, 21, 22, 23, 24, 30, 31} {
			if seen[code] < 20 {
				t.Errorf("replies with code %d: got %d, want at least 20, or little was compared", code, seen[code])
			}
		}
		for _, code := range []int64{1, 3, 8} {
			if counts[code] < 20 {
				t.Errorf("replies with code %d and others who wait: got %d, want at least 20", code, counts[code])
			}
		}
		if calls < 40 || skipped < 8 {
			t.Errorf("got %d messages told and %d places lost by one who does not listen, want at least 40 and 8", calls, skipped)
		}
	})
}
