package redlock

import (
	"container/heap"
	"time"

	"github.com/d0720281/redlock/internal/lockorder"
)

// renewer watches the time of all leases of a Locker, in one goroutine. It does no I/O, so that
// it ends every lease on time: renewals go through the nodes' queues. Renewals that are due
// together go into one batch for each node.
type renewer struct {
	clock Clock
	wake  chan struct{}

	mu     lockorder.Mutex[lockorder.Renewer]
	leases leaseHeap // guarded by mu
	next   instant   // guarded by mu; when the goroutine means to wake up
	closed bool      // guarded by mu
}

// maxNap bounds how long the renewer sleeps while there are leases. Timers stand
// still while the machine is suspended; the clock does not.
const maxNap = time.Second

func newRenewer(clock Clock) *renewer {
	return &renewer{clock: clock, wake: make(chan struct{}, 1), next: never}
}

// add begins to watch a lease that was granted after since.
func (k *renewer) add(g *grant, due, since instant) {
	k.mu.Lock()
	defer k.mu.Unlock()
	g.renewal.due = due
	heap.Push(&k.leases, g)
	k.pokeIfLateLocked(due, since)
}

// update makes the goroutine check a lease at once, after a change to the lease.
func (k *renewer) update(g *grant) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if g.renewal.slot < 0 {
		return // the lease is over
	}
	now := instant(k.clock.Now())
	g.renewal.due = now
	heap.Fix(&k.leases, g.renewal.slot)
	k.pokeIfLateLocked(now, now)
}

// remove stops watching a lease.
func (k *renewer) remove(g *grant) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if g.renewal.slot >= 0 {
		heap.Remove(&k.leases, g.renewal.slot)
	}
}

// all returns every lease that the renewer watches.
func (k *renewer) all() []*grant {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]*grant(nil), k.leases...)
}

// pokeIfLateLocked wakes the goroutine if it would sleep past due. If the clock has jumped over
// the moment at which the goroutine meant to wake up, the timer is not reliable, and the
// goroutine is woken, too.
func (k *renewer) pokeIfLateLocked(due, now instant) {
	if due < k.next || k.next <= now {
		k.poke()
	}
}

func (k *renewer) poke() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// close ends run.
func (k *renewer) close() {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	k.poke()
}

// run is the renewer's goroutine. hold keeps the nodes from sending while the renewals of one moment
// are queued.
func (k *renewer) run(hold func() (release func())) {
	timer := time.NewTimer(maxNap)
	defer timer.Stop()
	var due []*grant
	for {
		now := instant(k.clock.Now())
		var closed bool
		if due, closed = k.takeDue(due[:0], now); closed {
			return
		}
		release := func() {}
		if few := len(due) <= MaxResources; few && len(due) > 1 { // many fill an exchange by themselves
			release = hold()
		}
		for _, g := range due {
			k.checked(g, g.check(now), now)
		}
		release()
		clear(due)
		timer.Reset(k.nap())
		select {
		case <-timer.C:
		case <-k.wake:
		}
	}
}

// takeDue returns the leases that are due. They stay in the heap, marked by looked, so that all,
// remove and update find them meanwhile.
func (k *renewer) takeDue(due []*grant, now instant) (_ []*grant, closed bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(k.leases) > 0 && k.leases[0].renewal.due <= now {
		g := k.leases[0]
		due = append(due, g)
		g.renewal.due = looked(now)
		heap.Fix(&k.leases, 0)
	}
	return due, k.closed
}

// looked returns the due time that marks a lease as being checked since now.
func looked(now instant) instant { return now.Add(maxNap) }

// checked notes when a lease that was checked is due next, unless the lease was removed or
// updated meanwhile.
func (k *renewer) checked(g *grant, next, now instant) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case g.renewal.slot < 0:
	case next == never:
		heap.Remove(&k.leases, g.renewal.slot)
	case g.renewal.due == looked(now):
		g.renewal.due = next
		if next <= now { // happens only with wrong rules; the goroutine must not spin even then
			g.renewal.due = now.Add(time.Millisecond)
		}
		heap.Fix(&k.leases, g.renewal.slot)
	}
}

// nap returns how long the goroutine may sleep.
func (k *renewer) nap() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := instant(k.clock.Now()) // the checks have taken time
	k.next = never
	if len(k.leases) == 0 {
		return time.Hour
	}
	k.next = min(k.leases[0].renewal.due, now.Add(maxNap))
	return k.next.Sub(now)
}

// leaseHeap implements heap.Interface. It is ordered by due.
type leaseHeap []*grant

func (h leaseHeap) Len() int           { return len(h) }
func (h leaseHeap) Less(i, j int) bool { return h[i].renewal.due < h[j].renewal.due }
func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].renewal.slot, h[j].renewal.slot = i, j
}

func (h *leaseHeap) Push(x any) {
	g := x.(*grant)
	g.renewal.slot = len(*h)
	*h = append(*h, g)
}

func (h *leaseHeap) Pop() any {
	last := len(*h) - 1
	g := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	g.renewal.slot = -1
	return g
}
