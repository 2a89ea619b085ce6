package redlocktest

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/virtual"
)

// Master is one master of a [Cluster], and the network in front of it. All clients of the
// cluster see the same of it. What is done to it takes effect at once; an order that makes
// no sense fails the test.
type Master struct {
	t    testing.TB
	name string
	node *virtual.Node

	mu   sync.Mutex
	down bool
}

// Addr is the master's address, as it is in errors, events and reports. It cannot be
// dialled but by way of [Cluster.Options].
func (m *Master) Addr() string { return m.node.Addr() }

// Kill ends the master: connections break and new ones are refused, until Restart or
// RestartEmpty.
func (m *Master) Kill() {
	m.t.Helper()
	m.whileUp("Kill", func() {
		m.node.Kill()
		m.down = true
	})
}

// Restart starts the master again, after a kill if it runs, with the data that it had. It
// has no vote until its quarantine is over, as any master that restarted: 10.3 s by default.
// A hang is over then; what the network does is not.
func (m *Master) Restart() { m.start(m.node.Restart) }

// RestartEmpty is Restart without data.
func (m *Master) RestartEmpty() { m.start(m.node.RestartEmpty) }

func (m *Master) start(again func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	again()
	m.down = false
}

// Empty deletes everything, as FLUSHALL does. The master has no vote until its quarantine
// is over.
func (m *Master) Empty() {
	m.t.Helper()
	m.whileUp("Empty", func() { m.node.Inside(func(r *miniredis.Miniredis, _ time.Time) { r.FlushAll() }) })
}

// Hang stops the master as SIGSTOP stops a process: connections can be made and requests
// sent, but they are carried out when it goes on, which is with Heal.
func (m *Master) Hang() {
	m.t.Helper()
	m.whileUp("Hang", m.node.Hang)
}

// Partition cuts the master off: what is sent to it and what it sends is lost, and nobody
// is told, until Heal.
func (m *Master) Partition() {
	m.t.Helper()
	m.whileUp("Partition", func() { m.node.Net(masters.Blackhole) })
}

// LoseReplies has the master do what it is asked, and its replies lost, until Heal.
func (m *Master) LoseReplies() {
	m.t.Helper()
	m.whileUp("LoseReplies", func() { m.node.Net(masters.LoseReplies) })
}

// Latency adds d to each round trip to the master, half of it each way, for what is sent
// from now on. 0, and Heal, end it.
func (m *Master) Latency(d time.Duration) {
	m.t.Helper()
	if d < 0 {
		m.t.Fatalf("redlocktest: Latency(%v) of %s: must not be negative", d, m.name)
	}
	m.whileUp("Latency", func() { m.node.Latency(d/2, d-d/2) })
}

// Heal ends what Hang, Partition, LoseReplies and Latency began. A clock that was moved
// stays where it is.
func (m *Master) Heal() {
	m.t.Helper()
	m.whileUp("Heal", func() {
		m.node.Net(masters.Pass)
		m.node.Latency(0, 0)
		m.node.Resume()
	})
}

// MoveClock steps the master's clock by d, back if that is negative, and with it the end of
// its keys. It runs on from there as fast as all others.
func (m *Master) MoveClock(d time.Duration) {
	m.t.Helper()
	m.whileUp("MoveClock", func() { m.node.RunClock(1, d) })
}

// Token is the token whose key the master has for a resource, under the default key
// prefix. It is "" if there is none, or if the master was killed.
func (m *Master) Token(resource string) (token string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return ""
	}
	m.node.Inside(func(r *miniredis.Miniredis, _ time.Time) {
		value, _ := r.Get(redlock.DefaultKeyPrefix + resource) // an error is no key
		token, _, _ = strings.Cut(value, "|")
	})
	return token
}

// whileUp does something to a master that has not been killed.
func (m *Master) whileUp(what string, do func()) {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		m.t.Fatalf("redlocktest: %s of %s, which was killed: Restart or RestartEmpty brings it back", what, m.name)
	}
	do()
}

// vouch writes the marker of a master that is known to be new, as redlock.Locker.Bootstrap
// does: who it is, that it remembers all there ever was, and the least of the largest TTLs.
func (m *Master) vouch() {
	m.node.Inside(func(r *miniredis.Miniredis, _ time.Time) {
		r.HSet(redlock.DefaultKeyPrefix+"~guard", "run", m.node.RunID()+":virtual", "born", "0", "maxttl", "50")
	})
}
