package masters

import (
	"errors"
	"fmt"
	"regexp"
	"time"
)

var (
	// ErrNoCompiler is returned if a master is to start with a movable clock, and no compiler
	// is there to build it.
	ErrNoCompiler = errors.New("masters: needs a C compiler (cc or gcc) on the PATH")
	// ErrTrueClock is returned if the clock of a master is to be moved that was started
	// without [ProcessConfig.Skew].
	ErrTrueClock = errors.New("masters: started without Skew, its clock cannot be moved")
)

// maxDrift is how many parts per million a clock may be fast or slow.
const maxDrift = 1_000_000

// StepClock moves the server's wall clock by d, forward or back from its present time, at
// once and to the microsecond. The server's other clocks, and all other processes, are not
// affected.
//
// It works in every state but closed, and its effect outlasts a kill and a restart. Without
// [ProcessConfig.Skew] it returns [ErrTrueClock]. The clock stays within six days of the
// true time.
func (p *Process) StepClock(d time.Duration) error {
	return p.setClock(func(offset, ppm, _ int64) (int64, int64) {
		return offset + d.Microseconds(), ppm
	})
}

// DriftClock makes the server's wall clock run fast by ppm parts per million from now on,
// or slow if ppm is negative. With 0 it runs true again, and keeps what it has gained. At
// most ppm is a million: the clock runs twice as fast, or stands still. Otherwise
// DriftClock is like [Process.StepClock].
func (p *Process) DriftClock(ppm int) error {
	if ppm < -maxDrift || ppm > maxDrift {
		return fmt.Errorf("masters: a drift of %d ppm is more than %d", ppm, maxDrift)
	}
	return p.setClock(func(offset, old, run int64) (int64, int64) {
		return offset + run/maxDrift*(old-int64(ppm)) + run%maxDrift*(old-int64(ppm))/maxDrift, int64(ppm)
	})
}

// setClock applies change to the offset in µs and the rate in ppm of the server's clock;
// run is the number of µs for which the rate has been in force.
func (p *Process) setClock(change func(offset, ppm, run int64) (int64, int64)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return ErrClosed
	case !p.cfg.Skew:
		return fmt.Errorf("%w: redis-server on %s", ErrTrueClock, p.addr)
	}
	if err := p.changeSkew(change); err != nil {
		return fmt.Errorf("masters: clock of %s: %w", p.addr, err)
	}
	if looksNowAndThen.MatchString(versionOf(p.cfg.Binary)) && p.Pid() != 0 {
		time.Sleep(untilItLooks)
	}
	return nil
}

// looksNowAndThen matches servers that read the wall clock only every untilItLooks and use
// another clock in between.
var looksNowAndThen = regexp.MustCompile(`^Valkey server v=(9|\d\d)`)

const untilItLooks = 150 * time.Millisecond
