package redlock

import (
	"math/rand/v2"
	"time"
)

// This file leaves room for clients of another library that lock the same keys, such as redsync during a
// migration. They poll, each a few times a second, and stand in no queue. A process that takes a resource
// again at once, for its next caller, leaves them no gap at all: four callers of redsync got 2 turns beside
// 8,803 of four callers here. So a process that has had its share of turns leaves the resource free for a
// moment before it asks for it again. If the queue node has called the process, no other process of this
// library gets the resource in that time.
//
// A process has a share like that if it has met a key of another library. With the empty prefix, by which it
// may share keys, it also looks for such keys now and then.
//
// Source: ALGORITHM section 10, "Other libraries".

// foreignPolicy has the numbers.
type foreignPolicy struct {
	memory time.Duration // how long a client of another library counts after it was last met
	turns  int           // a process that has met one pauses after so many turns, or
	share  time.Duration // after this long
	search time.Duration // a process that looks for one pauses after this long
	pause  time.Duration // usual pause
}

var defaultForeignPolicy = foreignPolicy{memory: time.Minute, turns: 8, share: 150 * time.Millisecond, search: time.Second, pause: 50 * time.Millisecond}

// foreignHolders remembers on which resources this process has met clients of another library.
type foreignHolders struct {
	search  bool // the process may share all of its keys
	all     map[string]*foreignHolder
	sweepAt int
}

type foreignHolder struct {
	met   time.Time // when the client was last met; zero if there was none
	turns int       // of this process, since it met the client or the resource was free for a pause
	since time.Time // when the first of them began
	freed time.Time // when the last turn ended
	until time.Time // end of the pause; zero if there is none
}

// meet notes that another library's key was in the way.
func (h *foreignHolders) meet(resource string, now time.Time) {
	*h.of(resource, now) = foreignHolder{met: now, since: now}
}

// of returns what is known of a resource.
func (h *foreignHolders) of(resource string, now time.Time) *foreignHolder {
	if f := h.all[resource]; f != nil {
		return f
	}
	if h.all == nil {
		h.all = make(map[string]*foreignHolder)
	}
	f := &foreignHolder{since: now}
	h.all[resource] = f
	if len(h.all) > h.sweepAt {
		for r, f := range h.all {
			if f.old(now) && now.Sub(f.since) >= defaultForeignPolicy.memory {
				delete(h.all, r)
			}
		}
		h.sweepAt = 2*len(h.all) + 16
	}
	return f
}

// old reports whether no client of another library is known any more.
func (f *foreignHolder) old(now time.Time) bool { return now.Sub(f.met) >= defaultForeignPolicy.memory }

// turn notes that this process has the resource once more.
func (h *foreignHolders) turn(resource string, now time.Time) {
	f := h.all[resource]
	if f == nil && h.search {
		f = h.of(resource, now)
	}
	if f == nil {
		return
	}
	if f.turns == 0 {
		f.since = now
	}
	f.turns++
}

// freed notes that this process does not have the resource any more.
func (h *foreignHolders) freed(resource string, now time.Time) {
	if f := h.all[resource]; f != nil {
		f.freed = now
	}
}

// pause returns how long the process leaves the resource free before it asks for it; 0 if it may ask now.
func (h *foreignHolders) pause(resource string, now time.Time) time.Duration {
	p, f := &defaultForeignPolicy, h.all[resource]
	if f == nil || f.turns == 0 {
		return 0
	}
	turns, share := p.turns, p.share
	if f.old(now) {
		if !h.search {
			delete(h.all, resource)
			return 0
		}
		turns, share = 0, p.search
	}
	switch {
	case now.Before(f.until):
		return f.until.Sub(now)
	case !f.until.IsZero(), !f.freed.IsZero() && now.Sub(f.freed) >= p.pause: // there was room
		f.turns, f.until = 0, time.Time{}
	case turns > 0 && f.turns >= turns, now.Sub(f.since) >= share:
		d := p.pause*3/4 + rand.N(p.pause/2)
		f.until = now.Add(d)
		return d
	}
	return 0
}
