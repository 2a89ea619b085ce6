// Package history records what clients of a lock saw, all by one clock, and checks it
// against the promises of the algorithm (ALGORITHM section 13). It knows nothing of Redis,
// of the library or of time: a history is data, and a check is a function of it.
package history

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Kind is the kind of a [Record].
type Kind string

// The kinds, in their order within one acquisition.
const (
	Called  Kind = "called"  // Lock or TryLock was called
	Granted Kind = "granted" // it returned a lease
	Refused Kind = "refused" // it returned an error
	Seen    Kind = "seen"    // the holder looked at its lease
	Over    Kind = "over"    // the lease ended by itself, and its context with it
	Ended   Kind = "ended"   // the holder is about to unlock
	Freed   Kind = "freed"   // Unlock has returned
)

// Record is one thing that a client saw. All clients of a history share a clock: on one
// machine CLOCK_MONOTONIC, in virtual time the clock of the bubble.
type Record struct {
	Kind     Kind          `json:"k"`
	Client   string        `json:"c"`           // process, or a stand-in for one
	Op       uint64        `json:"o"`           // number of the acquisition within the client, from 1
	Resource string        `json:"r,omitempty"` // of Called; of Granted, if the call was for a permit: its slot
	Waits    bool          `json:"w,omitempty"` // of Called: a Lock, which waits
	Shared   bool          `json:"s,omitempty"` // of Called: for a lease that readers share
	Permits  int           `json:"p,omitempty"` // of Called: for one of so many permits of a semaphore
	Group    uint64        `json:"g,omitempty"` // of Called: number of the first acquisition of the same call, if the call was for several resources
	Keep     time.Duration `json:"m,omitempty"` // of Called: minimum hold, for which the resource stays taken after the grant
	Former   string        `json:"d,omitempty"` // of Called: token of the lease that the call adopts
	At       time.Duration `json:"a"`
	Until    time.Duration `json:"u,omitempty"` // end of the validity, as the holder saw it at At
	Token    string        `json:"t,omitempty"` // of Granted
	Fence    int64         `json:"f,omitempty"` // of Granted
	Why      string        `json:"y,omitempty"` // of Refused and Over
}

// Expired is the Why of a lease whose validity ran out.
const Expired = "expired"

// Acquisition is one call of Lock or TryLock and its outcome. A time of zero is unknown: the
// outcome of a call without a return is unknown.
type Acquisition struct {
	Client, Resource string
	Waits            bool
	Shared           bool
	Semaphore        string // of which this is a permit; "" for a lock
	Permits          int    // that the semaphore has
	Group            uint64 // of the acquisitions of one call of the client; 0 for a call for one resource
	Keep             time.Duration
	Former           string // token of the lease that the call adopts; "" for a call that adopts none
	Call, Return     time.Duration
	Held             bool // the call returned a lease
	Why              string
	Token            string
	Fence            int64
	Until            time.Duration // end of the validity, when the holder last looked
	Seen             time.Duration // when the holder last looked and found the lease valid
	Over             time.Duration // when the holder found that the lease had ended early
	Left             time.Duration // validity left at that time; negative: the context was late
	Ended, Freed     time.Duration
	Reach            time.Duration // the longest validity that the holder saw

	lapsed bool // the holder saw that the lease was over

	// The first call that adopts the lease, and the first that has done so. A holder that has not detached its
	// lease may believe in it for longer.
	adopting, adopted time.Duration

	// Numbers of records, which give the order at one instant of virtual time.
	granted, seen int
}

// End is the time until which the holder had a right to assume that it alone has the
// resource. Events while the holder was stopped or killed do not count. A minimum hold counts
// from a moment after the call.
func (a *Acquisition) End() time.Duration {
	end := a.Until
	if a.Over > 0 && a.Why != Expired {
		end = min(end, a.Seen) // lost at some time after that
	}
	if a.Ended > 0 {
		end = min(end, max(a.Ended, a.Call+a.Keep))
	}
	if a.adopted > 0 {
		end = min(end, a.adopted)
	}
	return end
}

// void reports whether the lease was over before the call returned.
func (a *Acquisition) void() bool { return a.Until <= a.Return }

// meets reports whether the lease is valid when a later lease is granted.
func (a *Acquisition) meets(next *Acquisition) bool {
	if a.adopted > 0 && next.Return >= a.adopted {
		return false
	}
	return next.Return < a.End() || next.Return == a.Seen && a.seen > next.granted
}

// History has the records of one run. Its methods are safe for concurrent use. Its fields
// may be read when the run is over.
type History struct {
	Done   []*Acquisition // in the order of their calls
	Rounds [][]Look       // one look at each node
	Faults []Fault
	Healed time.Duration // when the last fault ended; 0: never

	mu       sync.Mutex
	open     map[string]*Acquisition // guarded by mu; by client and number
	records  int                     // guarded by mu; number of records
	permits  []string                // guarded by mu; resources of permits that were granted, each once
	problems []Violation             // guarded by mu
}

// Fault is a fault of a node or a client.
type Fault struct {
	Name     string        `json:"name"`
	On       string        `json:"on"`   // "node 2", "client 1"; "client 1.2" is the second process of client 1
	Node     int           `json:"node"` // -1: no node
	At       time.Duration `json:"at"`
	Healed   time.Duration `json:"healed"`
	Voteless time.Duration `json:"voteless"` // until then the node may have no vote, or lack keys
}

// Margins says how long before leases that ran out their contexts ended.
type Margins struct {
	Count    int
	Smallest time.Duration // negative: late
	Late     int

	worst *Acquisition // with the smallest margin; nil if there is none
}

// Margins looks at all leases that ran out, except for those of clients that were stopped
// or stalled meanwhile.
func (h *History) Margins() (m Margins) {
	for _, a := range h.Done {
		if a.Over == 0 || a.Why != Expired || h.disturbed(a) {
			continue
		}
		if m.Count == 0 || a.Left < m.Smallest {
			m.Smallest, m.worst = a.Left, a
		}
		m.Count++
		if a.Left < 0 {
			m.Late++
		}
	}
	return m
}

func (h *History) disturbed(a *Acquisition) bool {
	return slices.ContainsFunc(h.faultsOf(a.Client), func(f Fault) bool { return f.At < a.Over && f.Healed > a.Return })
}

// faultsOf returns the faults of a client, in their order.
func (h *History) faultsOf(client string) (list []Fault) {
	for _, f := range h.Faults {
		if f.Node < 0 && (client == f.On || strings.HasPrefix(client, f.On+".")) {
			list = append(list, f)
		}
	}
	slices.SortFunc(list, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	return list
}

// Permits returns the resources of all permits that were granted so far, during the run.
func (h *History) Permits() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.permits)
}

// So returns what is known so far, during the run.
func (h *History) So() (list []Acquisition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range h.Done {
		list = append(list, *a)
	}
	return list
}

// Add adds a record. Records of one client must come in their order.
func (h *History) Add(r Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.records++
	id := fmt.Sprint(r.Client, " ", r.Op)
	if r.Kind == Called {
		a := &Acquisition{Client: r.Client, Resource: r.Resource, Waits: r.Waits, Shared: r.Shared, Permits: r.Permits, Group: r.Group, Keep: r.Keep, Former: r.Former, Call: r.At}
		if a.Permits > 0 {
			a.Semaphore = r.Resource
		}
		if h.open == nil {
			h.open = make(map[string]*Acquisition)
		}
		h.open[id] = a
		h.Done = append(h.Done, a)
		return
	}
	a := h.open[id]
	if a == nil {
		h.problems = append(h.problems, Violation{Rule: "history", At: r.At, Text: fmt.Sprintf("%s of acquisition %s, which no client called", r.Kind, id)})
		return
	}
	switch r.Kind {
	case Granted:
		a.Return, a.Held, a.Token, a.Fence = r.At, true, r.Token, r.Fence
		a.granted = h.records
		if a.Permits > 0 {
			a.Resource = r.Resource
			if !slices.Contains(h.permits, r.Resource) {
				h.permits = append(h.permits, r.Resource)
			}
		}
	case Refused:
		a.Return, a.Why = r.At, r.Why
		delete(h.open, id)
	case Seen:
		h.seenLocked(a, r)
	case Over:
		a.Over, a.Why, a.Left = r.At, r.Why, r.Until-r.At
	case Ended:
		a.Ended = r.At
	case Freed:
		a.Freed = r.At
		delete(h.open, id)
	}
}

// seenLocked adds a holder's look at its lease.
func (h *History) seenLocked(a *Acquisition, r Record) {
	valid := r.Until > r.At
	if valid && a.lapsed {
		h.problems = append(h.problems, Violation{Rule: "I8", At: r.At, Resource: a.Resource,
			Text: fmt.Sprintf("lease of %s with fence %d valid again after its end", a.Client, a.Fence)})
	}
	switch {
	case valid:
		a.Until, a.Seen, a.seen = r.Until, r.At, h.records
		a.Reach = max(a.Reach, r.Until-r.At)
	default:
		a.lapsed = true // the last look that found it valid stays
	}
}
