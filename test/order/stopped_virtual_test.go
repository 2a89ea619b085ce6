package order_test

import (
	"testing"
	"time"

	"github.com/d0720281/redlock/internal/line"
	"github.com/d0720281/redlock/internal/locktest"
)

// The head of the queue is stopped when the holder unlocks. Its turn lasts 250 ms, and the next process looks in
// time: the stopped head costs 0.6 s at most. Of 16 one may cost more: in about 3,000 one was seen that cost 0.85 s. The
// control: without the rule several of 16 cost more.
//
// Source: ALGORITHM section 10, "Timer".
func TestVirtualStoppedHead(t *testing.T) {
	if costs := costsOfStoppedHead(t); len(costs) > 1 {
		t.Errorf("a stopped head costs %v, want %v at most", costs, mostOfStoppedHead)
	}
	near := line.DefaultPolicy.Near
	defer func() { line.DefaultPolicy.Near = near }()
	line.DefaultPolicy.Near = 0
	for range 10 {
		if costs := costsOfStoppedHead(t); len(costs) > 1 {
			return
		}
	}
	t.Errorf("without the rule a stopped head costs no more than %v", mostOfStoppedHead)
}

const mostOfStoppedHead = 600 * time.Millisecond

// costsOfStoppedHead returns the times, of 16, that the next process waits after the holder's Unlock for longer than it
// should. One process or three stand before it, of which the first is stopped.
func costsOfStoppedHead(t *testing.T) (costs []time.Duration) {
	for _, ahead := range []int{1, 3} {
		for at := time.Duration(0); at < 1200*time.Millisecond; at += 150 * time.Millisecond {
			locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
				var stopped locktest.Uplink
				holder, next := b.WarmLocker(), b.WarmLocker()
				head := locktest.LockerBy(b, &stopped)
				held := b.Lock(holder, "r")
				before := []*locktest.Waiter{b.Wait(t.Context(), head)}
				time.Sleep(50 * time.Millisecond)
				for range ahead - 1 {
					before = append(before, b.Wait(t.Context(), b.WarmLocker()))
					time.Sleep(50 * time.Millisecond)
				}
				last := b.Wait(t.Context(), next)
				time.Sleep(3*time.Second + at)
				stopped.Dead.Store(true)
				since := time.Now()
				b.Unlock(held)
				for _, w := range before[1:] {
					b.Unlock(b.Got(w))
				}
				b.Unlock(b.Got(last))
				if cost := time.Since(since); cost > mostOfStoppedHead {
					costs = append(costs, cost)
				}
				stopped.Dead.Store(false)
			})
		}
	}
	return costs
}
