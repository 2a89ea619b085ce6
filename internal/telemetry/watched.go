package telemetry

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
)

// Gauges are what several Lockers have at one moment.
type Gauges struct {
	Leases  map[redlock.Mode]int // held; a lease that is held twice counts twice
	Waiting int
	Quorum  bool // each Locker has as many masters with a vote as a grant needs
	Masters []Master
}

// Master is what the Lockers know of a master.
type Master struct {
	Addr       string
	Asked      bool // a Locker has asked it
	Up         bool // no Locker that has asked it found it down
	Quarantine time.Duration
}

// Watched has the Lockers that gauges are about. The zero value has none. It is safe for concurrent use.
type Watched struct {
	mu      sync.Mutex
	lockers map[*redlock.Locker]*watch // guarded by mu
}

// watch is what Watched knows of a Locker.
type watch struct {
	exchanges uint64    // at the last look
	since     time.Time // of that number
	asking    bool      // by Watched
}

const (
	idle   = 30 * time.Second // without an exchange, until the masters are asked
	askFor = 5 * time.Second  // at most
)

// Add adds a Locker, once, until it is closed.
func (w *Watched) Add(l *redlock.Locker) {
	if _, err := l.Settings(); err != nil { // here, and not in the goroutine of a collection
		panic("redlock: Watch: the Locker is nil, or was not made by New")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lockers == nil {
		w.lockers = make(map[*redlock.Locker]*watch)
	}
	if w.lockers[l] == nil {
		w.lockers[l] = new(watch)
	}
}

// Remove removes a Locker, and reports whether none is left.
func (w *Watched) Remove(l *redlock.Locker) (last bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.lockers, l)
	return len(w.lockers) == 0
}

// Gauges returns the gauges, or false if each Locker is closed. A Locker learns of a master by asking it:
// if one has had no exchange for a while, Gauges makes it ask, and the next call has what it found.
func (w *Watched) Gauges() (g Gauges, some bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.lockers, func(l *redlock.Locker, _ *watch) bool { return closed(l) })
	g.Leases = map[redlock.Mode]int{redlock.ModeExclusive: 0, redlock.ModeShared: 0}
	g.Quorum = true
	masters := make(map[string]Master)
	for l, of := range w.lockers {
		s := l.Stats()
		w.keepAskingLocked(l, of, s.Counts[redlock.EventExchange])
		g.Waiting += s.Waiting
		for _, le := range s.Leases {
			g.Leases[le.Mode] += le.Handles
		}
		votes := 0
		for _, m := range s.Masters {
			if m.State != redlock.MasterDown && m.Quarantine == 0 && !m.Skewed {
				votes++
			}
			have, known := masters[m.Master]
			masters[m.Master] = Master{
				Addr:       m.Master,
				Asked:      have.Asked || m.State != redlock.MasterUntried,
				Up:         (have.Up || !known) && m.State != redlock.MasterDown,
				Quarantine: max(have.Quarantine, m.Quarantine),
			}
		}
		g.Quorum = g.Quorum && votes > len(s.Masters)/2
	}
	g.Masters = slices.SortedFunc(maps.Values(masters), func(a, b Master) int { return cmp.Compare(a.Addr, b.Addr) })
	return g, len(w.lockers) > 0
}

// keepAskingLocked asks the masters of a Locker that has had no exchange for a while.
func (w *Watched) keepAskingLocked(l *redlock.Locker, of *watch, exchanges uint64) {
	now := time.Now()
	if exchanges != of.exchanges || of.since.IsZero() {
		of.exchanges, of.since = exchanges, now
		return
	}
	if of.asking || now.Sub(of.since) < idle {
		return
	}
	of.asking = true
	go func() { // ends with askFor, or as the Locker is closed
		ctx, cancel := context.WithTimeout(context.Background(), askFor)
		defer cancel()
		_, _ = admin.Check(ctx, l) // the Locker keeps what it learns
		w.mu.Lock()
		defer w.mu.Unlock()
		of.asking, of.since = false, time.Now()
	}()
}

func closed(l *redlock.Locker) bool {
	select {
	case <-l.Done():
		return true
	default:
		return false
	}
}
