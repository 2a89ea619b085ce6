package redlock

import (
	"container/heap"
	"sync"
	"time"
)

// keeper is the one goroutine that watches the time of all leases of a Locker. It
// does no I/O: what it starts goes through the lanes, and what ends a lease on time
// waits for nothing. Leases that are due together find themselves in one batch of
// each lane.
type keeper struct {
	clock Clock
	wake  chan struct{}

	mu     sync.Mutex
	leases leaseHeap // guarded by mu
	next   instant   // guarded by mu; when the goroutine means to wake up
	closed bool      // guarded by mu
}

// maxNap bounds how long the keeper sleeps while there are leases. Timers stand
// still while the machine is suspended; the clock does not.
const maxNap = time.Second

func newKeeper(clock Clock) *keeper {
	return &keeper{clock: clock, wake: make(chan struct{}, 1), next: never}
}

// add begins to watch a lease.
func (k *keeper) add(g *grant, due instant) {
	k.mu.Lock()
	defer k.mu.Unlock()
	g.due = due
	heap.Push(&k.leases, g)
	k.pokeIfEarlierLocked(due)
}

// update looks at a lease again: something about it has changed.
func (k *keeper) update(g *grant) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if g.slot < 0 {
		return // it is being looked at, or over
	}
	g.due = instant(k.clock.Now())
	heap.Fix(&k.leases, g.slot)
	k.pokeIfEarlierLocked(g.due)
}

// remove stops watching a lease.
func (k *keeper) remove(g *grant) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if g.slot >= 0 {
		heap.Remove(&k.leases, g.slot)
	}
}

// all is every lease that is being watched.
func (k *keeper) all() []*grant {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]*grant(nil), k.leases...)
}

func (k *keeper) pokeIfEarlierLocked(due instant) {
	if due < k.next {
		k.poke()
	}
}

func (k *keeper) poke() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// close ends run.
func (k *keeper) close() {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	k.poke()
}

// run is the keeper's goroutine.
func (k *keeper) run() {
	timer := time.NewTimer(maxNap)
	defer timer.Stop()
	var due []*grant
	for {
		now := instant(k.clock.Now())
		k.mu.Lock()
		if k.closed {
			k.mu.Unlock()
			return
		}
		due = due[:0]
		for len(k.leases) > 0 && k.leases[0].due <= now {
			due = append(due, heap.Pop(&k.leases).(*grant))
		}
		k.mu.Unlock()

		for _, g := range due {
			if next := g.check(now); next < never {
				k.add(g, next)
			}
		}
		clear(due)

		k.mu.Lock()
		k.next = never
		if len(k.leases) > 0 {
			k.next = min(k.leases[0].due, now.add(maxNap))
		}
		next := k.next
		k.mu.Unlock()
		if next < never {
			timer.Reset(next.sub(now))
		} else {
			timer.Stop()
		}
		select {
		case <-timer.C:
		case <-k.wake:
		}
	}
}

// leaseHeap is ordered by due. It implements heap.Interface.
type leaseHeap []*grant

func (h leaseHeap) Len() int           { return len(h) }
func (h leaseHeap) Less(i, j int) bool { return h[i].due < h[j].due }
func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].slot, h[j].slot = i, j
}

func (h *leaseHeap) Push(x any) {
	g := x.(*grant)
	g.slot = len(*h)
	*h = append(*h, g)
}

func (h *leaseHeap) Pop() any {
	last := len(*h) - 1
	g := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	g.slot = -1
	return g
}
