package line

import (
	"slices"
	"time"

	"github.com/d0720281/redlock/internal/lockorder"
)

// Admission limits the attempts that ask nodes at the same time. Under overload, attempts wait
// here, first come, first served, before their time begins. If their requests waited at the
// nodes instead, each attempt would time out. The limit follows the time to the answers. While
// the answers come fast, the limit grows, so that the nodes are fully used. When that time comes
// near the node timeout, the limit falls.
type Admission struct {
	mu      lockorder.Mutex[lockorder.Admission]
	limit   int       // guarded by mu; 0 for leastAsking
	asking  int       // guarded by mu; attempts that were admitted and have no answers yet
	waiting []*entry  // guarded by mu; attempts that were not admitted yet, in order
	calm    time.Time // guarded by mu; before this the limit does not fall again
}

// Count returns how many attempts ask the nodes, and how many wait for admission.
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

// The least limit is the number of requests in one exchange, so that a node that is slow for
// another reason than overload has no effect.
const (
	leastAsking = 256
	mostAsking  = 1 << 14
)

// Enter waits until an attempt may ask. If it may not at once, wait has to wait for the channel to
// be closed. The error is that of wait: the attempt may not ask then.
func (a *Admission) Enter(wait func(admitted <-chan struct{}) error) error {
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

// Leave is called when an attempt has its answers, or has ended. took is the time to its answers.
func (a *Admission) Leave(took, timeout time.Duration) {
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
		if now := time.Now(); now.After(a.calm) { // once for all requests that were sent at the same time
			a.limit, a.calm = max(limit*3/4, leastAsking), now.Add(took)
		}
	}
	a.admitLocked()
}

// admitLocked admits as many attempts as the limit allows.
func (a *Admission) admitLocked() {
	for a.asking < max(a.limit, leastAsking) && len(a.waiting) > 0 {
		e := a.waiting[0]
		a.waiting[0] = nil
		a.waiting = a.waiting[1:]
		e.in = true
		a.asking++
		close(e.let)
	}
}
