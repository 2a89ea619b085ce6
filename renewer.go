package redlock

import (
	"container/heap"
	"time"

	"github.com/d0720281/redlock/internal/lockorder"
)

// renewer is the one goroutine that watches the time of all leases of a Locker. It
// does no I/O: what it starts goes through the nodes' queues, and what ends a lease on time
// waits for nothing. Leases that are due together find themselves in one batch of
// each node.
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

// update looks at a lease again: something about it has changed.
func (k *renewer) update(g *grant) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if g.renewal.slot < 0 {
		return // it is over
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

// all is every lease that is being watched.
func (k *renewer) all() []*grant {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]*grant(nil), k.leases...)
}

// pokeIfLateLocked wakes the goroutine if it would sleep past due. Where the clock has
// jumped over the moment at which it meant to wake up, its timer is not to be relied on.
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

// run is the renewer's goroutine.
func (k *renewer) run() {
	timer := time.NewTimer(maxNap)
	defer timer.Stop()
	var due []*grant
	for {
		now := instant(k.clock.Now())
		var closed bool
		if due, closed = k.takeDue(due[:0], now); closed {
			return
		}
		for _, g := range due {
			k.checked(g, g.check(now), now)
		}
		clear(due)
		timer.Reset(k.nap())
		select {
		case <-timer.C:
		case <-k.wake:
		}
	}
}

// takeDue lists the leases that are to be looked at. They stay where they are, marked
// as looked at now, so that whoever asks for all leases, removes one or has one looked
// at again meanwhile finds it.
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

// looked marks a lease that is being looked at.
func looked(now instant) instant { return now.Add(maxNap) }

// checked notes when a lease that was looked at is due next, unless it was removed or
// has to be looked at again already.
func (k *renewer) checked(g *grant, next, now instant) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case g.renewal.slot < 0:
	case next == never:
		heap.Remove(&k.leases, g.renewal.slot)
	case g.renewal.due == looked(now):
		g.renewal.due = next
		if next <= now { // only by wrong rules: the goroutine must not spin all the same
			g.renewal.due = now.Add(time.Millisecond)
		}
		heap.Fix(&k.leases, g.renewal.slot)
	}
}

// nap is how long the goroutine may sleep.
func (k *renewer) nap() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := instant(k.clock.Now()) // looking at the leases has taken time
	k.next = never
	if len(k.leases) == 0 {
		return time.Hour
	}
	k.next = min(k.leases[0].renewal.due, now.Add(maxNap))
	return k.next.Sub(now)
}

// leaseHeap is ordered by due. It implements heap.Interface.
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
