package locktest

import (
	"sync/atomic"
	"time"

	"github.com/d0720281/redlock"
)

// JumpClock is a clock that can jump ahead, as after a suspend.
type JumpClock struct {
	redlock.Clock
	ahead atomic.Int64
}

// NewJumpClock returns a clock that runs with the time of the bubble.
func NewJumpClock() *JumpClock { return &JumpClock{Clock: redlock.RuntimeClock()} }

// Now implements [redlock.Clock].
func (c *JumpClock) Now() time.Duration { return c.Clock.Now() + time.Duration(c.ahead.Load()) }

// Jump moves the clock ahead.
func (c *JumpClock) Jump(d time.Duration) { c.ahead.Add(int64(d)) }
