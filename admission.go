package redlock

import (
	"context"
	"time"

	"github.com/d0720281/redlock/internal/lockorder"
)

// admission bounds the attempts that ask nodes at one time, so that overload becomes a queue
// in front of the nodes: one among their requests would let each attempt run out of its
// time. The bound follows the time to the answers. While that is short it grows, and the
// masters are used as far as they go; when it comes near the node timeout it falls.
//
// The first in the queue is the first to be let in.
type admission struct {
	mu      lockorder.Mutex[lockorder.Admission]
	limit   int       // guarded by mu; 0 for the least
	asking  int       // guarded by mu; attempts that were let in and have no answers yet
	waiting []*entry  // guarded by mu; those that were not, the first first
	calm    time.Time // guarded by mu; before this the bound does not fall again
}

// entry is a place in the queue of the admission.
type entry struct {
	let chan struct{} // closed when the attempt may begin
	in  bool
}

// The bound is at least what one exchange carries, so that a node that is slow for another
// reason costs nothing.
const (
	leastAsking = 256
	mostAsking  = 1 << 14
)

// enter waits until an attempt may ask. Its error is that of the context or the Locker.
func (a *admission) enter(ctx context.Context, closing <-chan struct{}) error {
	a.mu.Lock()
	if a.asking < max(a.limit, leastAsking) && len(a.waiting) == 0 {
		a.asking++
		a.mu.Unlock()
		return nil
	}
	e := &entry{let: make(chan struct{})}
	a.waiting = append(a.waiting, e)
	a.mu.Unlock()
	admitted := false
	defer func() { // also if a method of ctx panics
		if !admitted {
			a.withdraw(e)
		}
	}()
	err := until(ctx, closing, e.let, 0)
	admitted = err == nil
	return err
}

// withdraw is for an attempt that does not wait any more.
func (a *admission) withdraw(e *entry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e.in { // in the same moment
		a.asking--
		a.admitLocked()
		return
	}
	for i, other := range a.waiting {
		if other == e {
			a.waiting = append(a.waiting[:i], a.waiting[i+1:]...)
			break
		}
	}
}

// leave is for an attempt that has its answers, or has ended: that took so long, of a node
// timeout.
func (a *admission) leave(took, timeout time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asking--
	limit := max(a.limit, leastAsking)
	switch {
	case took < timeout/4:
		if len(a.waiting) > 0 {
			a.limit = min(limit+1, mostAsking)
		}
	case took > timeout/2:
		if now := time.Now(); now.After(a.calm) { // once for what was sent at the same time
			a.limit, a.calm = max(limit*3/4, leastAsking), now.Add(took)
		}
	}
	a.admitLocked()
}

// admitLocked lets in as many as there is room for.
func (a *admission) admitLocked() {
	for a.asking < max(a.limit, leastAsking) && len(a.waiting) > 0 {
		e := a.waiting[0]
		a.waiting[0] = nil
		a.waiting = a.waiting[1:]
		e.in = true
		a.asking++
		close(e.let)
	}
}
