// Package virtual has Redis masters for tests in virtual time. Each is a miniredis behind
// pipes inside a testing/synctest bubble. There time stands still while any goroutine runs,
// and jumps to the next timer when none does. Tests against real servers have to find what
// real servers do differently.
package virtual

import (
	"context"
	"crypto/sha1"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/d0720281/redlock/internal/fault"
)

// Node is one fake master, and the network in front of it. Use [New], and only inside a
// bubble. A test calls Close and then sleeps for some seconds, for pending dials.
type Node struct {
	addr string

	mu      sync.Mutex
	redis   *miniredis.Miniredis
	scripts *scripts
	conns   map[*conn]bool
	calls   []Call

	// A message may be published while mu is held, and then data must still leave the
	// connections. So the fields below, which decide about that, have another mutex. Changing
	// them takes both.
	wire sync.Mutex

	down        bool // connections are refused: no server runs
	fault       fault.Fault
	hung        chan struct{} // requests wait until it is closed; nil while the node is well
	there, back time.Duration // latency of requests and of replies
	answer      string        // every script is answered with it, unless it is empty
	runs        atomic.Int64  // number of runs of the process
	runID       atomic.Value  // string; new with each run
	rate        float64
	offset      time.Duration
	zero        time.Time // when the present rate and offset began
}

// New returns a node without data.
func New(addr string) *Node {
	n := &Node{addr: addr, conns: make(map[*conn]bool)}
	n.boot()
	return n
}

// Addr returns the name of the node. Only Dial can dial it.
func (n *Node) Addr() string { return n.addr }

// boot starts an empty server.
func (n *Node) boot() {
	n.redis = miniredis.NewMiniRedis()
	n.redis.ClockTTL(true)
	n.newRun()
	c, err := n.redis.Dial() // makes the server, which the hook needs
	if err != nil {
		panic(fmt.Sprintf("virtual: miniredis: %v", err)) // this cannot fail
	}
	_ = c.Close()
	s := newScripts(n.redis)
	n.scripts = s
	s.srv.SetPreHook(func(p *server.Peer, cmd string, args ...string) bool { return n.answers(p, s, cmd, args) })
}

// answers is called before each command, including those of scripts. It reports whether it has
// answered. For a command of a script it must not take mu, which is held then.
func (n *Node) answers(p *server.Peer, s *scripts, cmd string, args []string) bool {
	switch {
	case cmd == "INFO":
		p.WriteBulk("# Server\r\nredis_version:7.0.15\r\nrun_id:" + n.RunID() + "\r\nrole:master\r\nmaster_replid:" + replID + "\r\n" +
			"maxmemory:0\r\nmaxmemory_policy:noeviction\r\naof_enabled:0\r\ncluster_enabled:0\r\n")
		return true
	case cmd == "SELECT" && len(args) == 1 && number(args[0]) > 15: // miniredis has any number of databases
		p.WriteError("ERR DB index is out of range")
		return true
	case (cmd == "EVAL" || cmd == "EVALSHA") && len(args) > 1 && p != s.peer:
		n.mu.Lock()
		defer n.mu.Unlock()
		if args[0] == requests.Source || args[0] == requests.Hash && s.find(args[0]) != nil {
			n.recordLocked(args[1:])
		}
		if n.answer != "" {
			p.WriteError(n.answer)
			return true
		}
	}
	return s.answer(p, cmd, args...)
}

// Close ends the node.
func (n *Node) Close() {
	n.Resume()
	n.Kill()
	n.mu.Lock()
	r := n.redis
	n.mu.Unlock()
	r.Close()
}

// set changes the state of the node.
func (n *Node) set(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wire.Lock()
	defer n.wire.Unlock()
	change()
}

// Kill ends the process: its connections die, new ones are refused.
func (n *Node) Kill() {
	n.set(func() { n.down = true })
	n.Reset()
}

// Reset breaks all connections, with all data under way.
func (n *Node) Reset() {
	n.mu.Lock()
	conns := n.conns
	n.conns = make(map[*conn]bool)
	n.mu.Unlock()
	for c := range conns {
		c.cut()
	}
}

// Restart starts the process again, after a kill if it runs. It keeps its data, but not the
// scripts.
func (n *Node) Restart() {
	n.Kill()
	n.Resume()
	n.newRun()
	n.ForgetScripts()
	n.set(func() { n.down = false })
}

// ForgetScripts is like SCRIPT FLUSH.
func (n *Node) ForgetScripts() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.scripts.forget()
}

// RestartEmpty is Restart without data.
func (n *Node) RestartEmpty() {
	n.Kill()
	n.Resume()
	n.mu.Lock()
	old := n.redis
	n.mu.Unlock()
	old.Close()
	n.set(func() {
		n.boot()
		n.down = false
	})
}

// newRun gives the process a run id that is the same in every run of a test: the choice of
// the queue node depends on it.
func (n *Node) newRun() {
	n.runID.Store(fmt.Sprintf("%x", sha1.Sum(fmt.Appendf(nil, "%s %d", n.addr, n.runs.Add(1)))))
}

// Hang stops the process as SIGSTOP does: it takes connections and requests, but executes
// the requests only when it resumes.
func (n *Node) Hang() {
	n.set(func() {
		if n.hung == nil {
			n.hung = make(chan struct{})
		}
	})
}

// Resume ends a Hang.
func (n *Node) Resume() {
	n.set(func() {
		if n.hung != nil {
			close(n.hung)
			n.hung = nil
		}
	})
}

// Heal ends every fault except a slow network and a wrong clock. A killed process comes back
// with the same run id.
func (n *Node) Heal() {
	n.Resume()
	n.set(func() { n.fault, n.down, n.answer = fault.Pass, false, "" })
}

// Net sets the fault of the network. A black hole swallows data for good.
func (n *Node) Net(f fault.Fault) {
	n.set(func() { n.fault = f })
	if f == fault.Refuse {
		n.Reset()
	}
}

// Blackhole holds all that is sent to the node and all that the node sends, until Heal.
func (n *Node) Blackhole() { n.Net(fault.Blackhole) }

// LoseReplies lets requests arrive and loses the replies, until Heal.
func (n *Node) LoseReplies() { n.Net(fault.LoseReplies) }

// Latency delays what is sent from now on.
func (n *Node) Latency(there, back time.Duration) {
	n.set(func() { n.there, n.back = there, back })
}

// Refuse makes the node answer every script with an error of Redis, until Refuse("").
func (n *Node) Refuse(with string) { n.set(func() { n.answer = with }) }

// RunClock makes the node's clock run at a rate from now on, and steps it now.
func (n *Node) RunClock(rate float64, step time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.clockLocked()
	n.zero, n.rate = time.Now(), rate
	n.offset = now.Sub(n.zero) + step
}

func (n *Node) clockLocked() time.Time {
	if n.zero.IsZero() {
		return time.Now()
	}
	run := time.Duration(float64(time.Since(n.zero)) * n.rate)
	return n.zero.Add(run + n.offset)
}

// tickLocked sets the server's time to that of the node's clock.
func (n *Node) tickLocked() {
	if !n.zero.IsZero() {
		n.redis.SetTime(n.clockLocked())
	}
}

// Inside calls do with the data, past the network, and the time by the node's clock. This
// also works while the process is dead or stopped.
func (n *Node) Inside(do func(r *miniredis.Miniredis, clock time.Time)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tickLocked()
	do(n.redis, n.clockLocked())
}

// Up reports whether the process runs. A process that is stopped counts as running.
func (n *Node) Up() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.down
}

// Get returns the string at a key, or "".
func (n *Node) Get(key string) (value string) {
	n.Inside(func(r *miniredis.Miniredis, _ time.Time) { value, _ = r.Get(key) })
	return value
}

// prefix is redlock.DefaultKeyPrefix.
const prefix = "redlock:"

// Value returns the lock key of a resource behind the default prefix, or "".
func (n *Node) Value(resource string) string { return n.Get(prefix + resource) }

// Queued returns all that the node knows of the waiting processes of a resource, as text.
func (n *Node) Queued(key string) string {
	var b strings.Builder
	n.Inside(func(r *miniredis.Miniredis, _ time.Time) {
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

// Put sets a key past the network, for ever if ttl is 0. If value is "", it deletes the key.
func (n *Node) Put(key, value string, ttl time.Duration) {
	n.Inside(func(r *miniredis.Miniredis, _ time.Time) {
		r.Del(key)
		if value != "" {
			_ = r.Set(key, value)
			if ttl > 0 {
				r.SetTTL(key, ttl)
			}
		}
	})
}

// replID is the replication id of every node.
const replID = "virtual"

// Identity returns the identity that the library derives from the node's answers.
func (n *Node) Identity() string {
	if n.RunID() == "" {
		return ""
	}
	return n.RunID()[:min(len(n.RunID()), 16)] + ":" + replID
}

// RunAs gives the process another run id.
func (n *Node) RunAs(id string) { n.runID.Store(id) }

// RunID returns the id of the present or last run.
func (n *Node) RunID() string { return n.runID.Load().(string) }

// BreakOff ends the connections as their clients see it. What was sent still arrives.
func (n *Node) BreakOff() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		_ = c.wire.Close()
	}
}

// Conns returns the number of connections to the node.
func (n *Node) Conns() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.conns)
}

// Dial can be used as redis.Options.Dialer.
func (n *Node) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	n.mu.Lock()
	now, roundTrip := n.fault, n.there+n.back
	n.mu.Unlock()
	if now == fault.Blackhole {
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
	if n.down || now == fault.Refuse {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	inner, err := n.redis.Dial()
	if err != nil {
		return nil, err
	}
	outer, wire := net.Pipe()
	n.serve(wire, inner)
	return outer, nil
}
