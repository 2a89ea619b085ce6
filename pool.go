package redlock

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

// pool is the fixed set of N nodes, each behind a lane of its own.
type pool struct {
	conf    *config
	lanes   []*lane
	keeper  *keeper
	events  *events
	closing chan struct{} // closed when no new attempt may begin

	quit      context.Context // of the lanes; ends when stop waits no longer
	quitNow   context.CancelFunc
	startOnce sync.Once
	lanesRun  errgroup.Group // the lanes' goroutines
	watchers  errgroup.Group // the keeper's, and the observer's if there is one
}

func newPool(c *config, masters []redis.Options, ev *events) *pool {
	p := &pool{
		conf:    c,
		keeper:  newKeeper(c.clock),
		events:  ev,
		closing: make(chan struct{}),
	}
	p.quit, p.quitNow = context.WithCancel(context.Background())
	for i := range masters {
		p.lanes = append(p.lanes, newLane(p.quit, i, masters[i], c, ev))
	}
	return p
}

func (p *pool) now() instant { return instant(p.conf.clock.Now()) }

// start runs the lanes and the keeper when there is something to do for the first
// time.
func (p *pool) start() {
	p.startOnce.Do(func() {
		for _, lane := range p.lanes {
			p.lanesRun.Go(func() error { lane.run(); return nil })
		}
		p.watchers.Go(func() error { p.keeper.run(); return nil })
		if p.events != nil {
			p.watchers.Go(func() error { p.events.run(); return nil })
		}
	})
}

// hint is where a fencing counter that no node has should start, in microseconds:
// ahead of every node's clock, so that all nodes start at the same number.
//
// Source: ALGORITHM section 4, "hint".
func (p *pool) hint(timeout time.Duration) int64 {
	var latest int64
	now := p.now()
	for _, lane := range p.lanes {
		if s := lane.sample.Load(); s != nil {
			latest = max(latest, s.estimate(now))
		}
	}
	if latest == 0 {
		return 0
	}
	return latest + timeout.Microseconds()
}

// stop lets the lanes send what they have, for grace at the most, and waits for every
// goroutine to end.
func (p *pool) stop(grace time.Duration) {
	p.startOnce.Do(func() {}) // a pool that never ran does not start any more
	defer time.AfterFunc(grace, p.quitNow).Stop()
	by := p.now().add(grace)
	for _, lane := range p.lanes {
		lane.shut(by)
	}
	_ = p.lanesRun.Wait() // a lane reports to its callers, not here
	p.keeper.close()
	if p.events != nil {
		p.events.close()
	}
	_ = p.watchers.Wait()
	p.quitNow()
}
