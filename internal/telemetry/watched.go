package telemetry

import (
	"cmp"
	"context"
	"errors"
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
	Quorum  bool // each Locker has as many masters with a vote as a grant needs, and they refused it nothing when asked
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
	grants uint64    // at the last look
	since  time.Time // of that number, or of the last answer
	asking bool      // by Watched
	none   bool      // the last answer: no lock can be granted
}

const (
	idle     = 30 * time.Second // without a grant, until the masters are asked
	askFor   = 5 * time.Second  // at most
	askAgain = time.Second      // before no lock can be granted
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

// Gauges returns the gauges, or false if each Locker is closed. A Locker learns of a master by asking it, and
// of a master that answers and takes no key by a grant alone: if a Locker has had no grant for a while, Gauges
// makes it ask, and the next call has what it found.
func (w *Watched) Gauges() (g Gauges, some bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.lockers, func(l *redlock.Locker, _ *watch) bool { return closed(l) })
	g.Leases = map[redlock.Mode]int{redlock.ModeExclusive: 0, redlock.ModeShared: 0}
	g.Quorum = true
	masters := make(map[string]Master)
	for l, of := range w.lockers {
		s := l.Stats()
		w.keepAskingLocked(l, of, s.Counts[redlock.EventAcquired])
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
		g.Quorum = g.Quorum && votes > len(s.Masters)/2 && !of.none
	}
	g.Masters = slices.SortedFunc(maps.Values(masters), func(a, b Master) int { return cmp.Compare(a.Addr, b.Addr) })
	return g, len(w.lockers) > 0
}

// keepAskingLocked asks the masters of a Locker that has had no grant for a while: each time, once no lock can be
// granted.
func (w *Watched) keepAskingLocked(l *redlock.Locker, of *watch, grants uint64) {
	now := time.Now()
	if grants != of.grants || of.since.IsZero() {
		of.grants, of.since, of.none = grants, now, false
		return
	}
	if of.asking || !of.none && now.Sub(of.since) < idle {
		return
	}
	of.asking = true
	go func() { // ends with askFor, or as the Locker is closed
		ctx, cancel := context.WithTimeout(context.Background(), askFor)
		defer cancel()
		_, err := admin.Check(ctx, l)            // the Locker keeps what it learns
		if errors.Is(err, redlock.ErrNoQuorum) { // or the process was paused
			select {
			case <-time.After(askAgain):
			case <-l.Done():
			}
			_, err = admin.Check(ctx, l)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		of.asking, of.since, of.none = false, time.Now(), errors.Is(err, redlock.ErrNoQuorum)
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
