package line

import (
	"slices"
	"time"

	"github.com/d0720281/redlock/internal/lockorder"
)

// Admission bounds what is under way at the nodes by what comes back in time, as TCP does: the attempts and the rounds of
// renewals of a process. Attempts wait here, first come, first served, before their time begins; renewals do not wait, and take
// the room of attempts, so that a process gets no more leases than it can renew. Without the bound each attempt would time out
// where the nodes, or the process itself, cannot keep up, and all would be given back and asked for again together.
//
// The limit follows the time to the answers, less that of the network. While they come fast, the limit grows, so that the nodes
// are fully used. When that time comes near the node timeout, the limit falls.
type Admission struct {
	mu      lockorder.Mutex[lockorder.Admission]
	limit   int           // guarded by mu; 0 for firstLimit
	asking  int           // guarded by mu; attempts and renewals that have no answers yet
	waiting []*entry      // guarded by mu; attempts that were not admitted yet, in order
	calm    time.Time     // guarded by mu; before this the limit does not fall again
	held    time.Time     // guarded by mu; until then renewals come late
	least   time.Duration // guarded by mu; the shortest time to the answers of late: that of the network
	turned  time.Time     // guarded by mu; since when least counts
}

// Count returns how many attempts and renewals ask the nodes, and how many wait for admission.
func (a *Admission) Count() (asking, waiting int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asking, len(a.waiting)
}

// entry is a place in the queue of the admission.
type entry struct {
	let chan struct{} // closed when the attempt may begin
	in  bool
}

const (
	firstLimit = 256 // the requests of one exchange
	leastLimit = 16
	mostLimit  = 1 << 14
	leastFor   = 10 * time.Second
)

// hasRoomLocked reports whether another attempt may ask. One always may if nothing is under way.
func (a *Admission) hasRoomLocked() bool {
	return a.asking == 0 || a.asking < a.boundLocked() && (a.held.IsZero() || time.Now().After(a.held))
}

func (a *Admission) boundLocked() int {
	if a.limit == 0 {
		a.limit = firstLimit
	}
	return a.limit
}

// Hold keeps attempts waiting for d while anything is under way, because renewals come late: the process has as many leases as
// it can renew.
func (a *Admission) Hold(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held = time.Now().Add(d)
}

// Renew notes that a renewal asks. Leave ends it, too.
func (a *Admission) Renew() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asking++
}

// Enter waits until an attempt may ask. If it may not at once, wait has to wait for the channel to
// be closed. The error is that of wait: the attempt may not ask then.
func (a *Admission) Enter(wait func(admitted <-chan struct{}) error) error {
	a.mu.Lock()
	if a.hasRoomLocked() && len(a.waiting) == 0 {
		a.asking++
		a.mu.Unlock()
		return nil
	}
	e := &entry{let: make(chan struct{})}
	a.waiting = append(a.waiting, e)
	a.mu.Unlock()
	admitted := false
	defer func() { // also if wait panics
		if !admitted {
			a.withdraw(e)
		}
	}()
	err := wait(e.let)
	admitted = err == nil
	return err
}

// withdraw removes an attempt that does not wait any more.
func (a *Admission) withdraw(e *entry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e.in { // it was admitted in the same moment
		a.asking--
		a.admitLocked()
		return
	}
	a.waiting = slices.DeleteFunc(a.waiting, func(other *entry) bool { return other == e })
}

// Leave is called when an attempt or a renewal has its answers, or has ended. took is the time to its answers; 0 if it has asked
// no node.
func (a *Admission) Leave(took, timeout time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asking--
	if took > 0 {
		a.adaptLocked(took, timeout)
	}
	a.admitLocked()
}

func (a *Admission) adaptLocked(took, timeout time.Duration) {
	now := time.Now()
	if old := now.Sub(a.turned) > leastFor; old || took < a.least {
		a.least = took
		if old {
			a.turned = now
		}
	}
	spare := timeout - min(a.least, timeout)
	switch late := took - a.least; {
	case late <= spare/4:
		if len(a.waiting) > 0 {
			a.limit = min(a.boundLocked()+1, mostLimit)
		}
	case late > spare/2:
		if now.After(a.calm) { // once for all that were sent at the same time
			a.limit, a.calm = max(a.boundLocked()/2, leastLimit), now.Add(took)
		}
	}
}

// admitLocked admits as many attempts as the limit allows.
func (a *Admission) admitLocked() {
	for len(a.waiting) > 0 && a.hasRoomLocked() {
		e := a.waiting[0]
		a.waiting[0] = nil
		a.waiting = a.waiting[1:]
		e.in = true
		a.asking++
		close(e.let)
	}
}
