package locktest

import (
	"sync"
	"time"

	"github.com/d0720281/redlock/internal/clock"
)

// JumpClock is a clock that can jump ahead, as after a suspend, or stand still, as that of a paused machine does. Meanwhile the
// goroutines go on running.
type JumpClock struct {
	clock.Source
	mu    sync.Mutex
	still bool
	at    time.Duration // where it stands
	ahead time.Duration
}

// NewJumpClock returns a clock that runs with the time of the bubble.
func NewJumpClock() *JumpClock { return &JumpClock{Source: clock.Runtime()} }

// Now implements [clock.Source].
func (c *JumpClock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.still {
		return c.at
	}
	return c.Source.Now() + c.ahead
}

// Jump moves the clock ahead.
func (c *JumpClock) Jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

// Stand makes the clock stand still for d, and returns when it runs again.
func (c *JumpClock) Stand(d time.Duration) {
	c.mu.Lock()
	c.at, c.still = c.Source.Now()+c.ahead, true
	c.mu.Unlock()
	time.Sleep(d)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead, c.still = c.at-c.Source.Now(), false
}
