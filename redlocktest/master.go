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
	"github.com/d0720281/redlock/internal/wire"
)

// Master is one master of a [Cluster], with the network in front of it. All clients of the
// cluster see the same faults. Each method takes effect at once. A call that makes no sense in the
// present state of the master fails the test.
type Master struct {
	t    testing.TB
	name string
	node *virtual.Node

	mu   sync.Mutex
	down bool
}

// Addr returns the address of the master, as it is in errors, events and reports. Only a Locker
// with [Cluster.Options] can dial it.
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

// Restart starts the master again with the data that it had, after a kill if it runs. Like any
// master that restarted, it has no vote until its quarantine is over, 10.3 s by default. Restart
// ends a Hang, but no fault of the network.
func (m *Master) Restart() { m.start(m.node.Restart) }

// RestartEmpty is Restart without data.
func (m *Master) RestartEmpty() { m.start(m.node.RestartEmpty) }

func (m *Master) start(again func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	again()
	m.down = false
}

// Flush deletes everything, as FLUSHALL does. The master has no vote until its quarantine
// is over.
func (m *Master) Flush() {
	m.t.Helper()
	m.whileUp("Flush", func() { m.node.Inside(func(r *miniredis.Miniredis, _ time.Time) { r.FlushAll() }) })
}

// Hang stops the master like SIGSTOP stops a process: connections can be made and requests sent,
// but requests are carried out only after Heal.
func (m *Master) Hang() {
	m.t.Helper()
	m.whileUp("Hang", m.node.Hang)
}

// Partition cuts the master off until Heal: all data to it and from it is lost, without an error
// to either side.
func (m *Master) Partition() {
	m.t.Helper()
	m.whileUp("Partition", func() { m.node.Net(masters.Blackhole) })
}

// LoseReplies loses the replies of the master until Heal. The master carries out requests.
func (m *Master) LoseReplies() {
	m.t.Helper()
	m.whileUp("LoseReplies", func() { m.node.Net(masters.LoseReplies) })
}

// Latency adds d to each round trip to the master, half of it each way, for all data sent from
// now on. Latency(0) and Heal end it.
func (m *Master) Latency(d time.Duration) {
	m.t.Helper()
	if d < 0 {
		m.t.Fatalf("redlocktest: Latency(%v) of %s: must not be negative", d, m.name)
	}
	m.whileUp("Latency", func() { m.node.Latency(d/2, d-d/2) })
}

// Heal ends the faults of Hang, Partition, LoseReplies and Latency. It does not move the clock.
func (m *Master) Heal() {
	m.t.Helper()
	m.whileUp("Heal", func() {
		m.node.Net(masters.Pass)
		m.node.Latency(0, 0)
		m.node.Resume()
	})
}

// MoveClock steps the master's clock by d, back if d is negative. Its keys expire by the new time.
// The clock then runs on at the usual rate. Its year must be from 1970 to 2254, as a master's scripts count in
// microseconds.
func (m *Master) MoveClock(d time.Duration) {
	m.t.Helper()
	m.whileUp("MoveClock", func() {
		var year int
		m.node.Inside(func(_ *miniredis.Miniredis, now time.Time) { year = now.Add(d).UTC().Year() })
		if year < 1970 || year > 2254 {
			m.t.Fatalf("redlocktest: MoveClock(%v) of %s: leads to the year %d: must be from 1970 to 2254", d, m.name, year)
		}
		m.node.RunClock(1, d)
	})
}

// Token returns the token whose key the master has for a resource, under the default key prefix.
// It returns "" if there is none, or if the master was killed.
func (m *Master) Token(resource string) (token string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return ""
	}
	m.node.Inside(func(r *miniredis.Miniredis, _ time.Time) {
		value, _ := r.Get(redlock.DefaultKeyPrefix + resource) // an error is no key
		if token, _, _ = strings.Cut(value, "|"); !wire.IsToken(token) {
			token = "" // readers have the resource, or it was broken
		}
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

// vouch writes the marker of a master that is known to be new, as Bootstrap of package admin
// does: who it is, and that it remembers all there ever was.
func (m *Master) vouch() {
	m.node.Inside(func(r *miniredis.Miniredis, _ time.Time) {
		r.HSet(redlock.DefaultKeyPrefix+"~guard", "run", m.node.Identity(), "born", "0", "servers", "")
	})
}
