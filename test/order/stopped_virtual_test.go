package order_test

import (
	"testing"
	"time"

	"github.com/d0720281/redlock/internal/line"
	"github.com/d0720281/redlock/internal/locktest"
)

// The head of the queue is stopped when the holder unlocks. Its turn lasts 250 ms, and the next process looks in
// time: the stopped head costs 0.6 s at most. The control: without the rule it costs more.
//
// Source: ALGORITHM section 10, "Timer".
func TestVirtualStoppedHead(t *testing.T) {
	const most = 600 * time.Millisecond
	if cost := mostOfStoppedHead(t); cost > most {
		t.Errorf("a stopped head costs %v, want %v at most", cost, most)
	}
	near := line.DefaultPolicy.Near
	defer func() { line.DefaultPolicy.Near = near }()
	line.DefaultPolicy.Near = 0
	if cost := mostOfStoppedHead(t); cost <= most {
		t.Errorf("without the rule a stopped head costs %v, want more than %v", cost, most)
	}
}

// mostOfStoppedHead returns the longest time that the next process waits after the holder's Unlock. One process or
// three stand before it, of which the first is stopped.
func mostOfStoppedHead(t *testing.T) (most time.Duration) {
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
				most = max(most, time.Since(since))
				stopped.Dead.Store(false)
			})
		}
	}
	return most
}
