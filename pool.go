package redlock

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

// pool is the fixed set of N nodes, each behind a lane of its own.
type pool struct {
	conf    *config
	lanes   []*lane
	keeper  *keeper
	events  *events
	roster  *roster
	watch   *watch
	turns   turns
	timers  timers
	list    string        // fingerprint of the masters
	channel string        // on which the gates call this process
	closing chan struct{} // closed when no new attempt may begin

	quit      context.Context // of the lanes; ends when stop waits no longer
	quitNow   context.CancelFunc
	startOnce sync.Once
	lanesRun  errgroup.Group // the lanes' goroutines
	watchers  errgroup.Group // the keeper's, and the observer's if there is one

	hearing   context.Context // of the listeners; ends when nobody waits any more
	deafen    context.CancelFunc
	listeners errgroup.Group // the inboxes'
}

func newPool(c *config, masters []redis.Options, ev *events) *pool {
	p := &pool{
		conf:    c,
		keeper:  newKeeper(c.clock),
		events:  ev,
		closing: make(chan struct{}),
	}
	p.quit, p.quitNow = context.WithCancel(context.Background())
	p.hearing, p.deafen = context.WithCancel(context.Background())
	p.channel = c.keyPrefix + "~inbox:" + uuid.NewString()
	addrs := make([]string, len(masters))
	for i := range masters {
		addrs[i] = masters[i].Addr
	}
	g := newGuarding(c, addrs)
	p.list = g.list
	p.roster = newRoster(addrs)
	p.watch = &watch{clock: c.clock, keeper: p.keeper, events: ev}
	for i := range masters {
		p.lanes = append(p.lanes, newLane(p, i, masters[i], g))
	}
	p.watch.lanes = p.lanes
	return p
}

func (p *pool) now() instant { return instant(p.conf.clock.Now()) }

// start runs the lanes and the keeper when there is something to do for the first
// time.
func (p *pool) start() {
	p.startOnce.Do(func() {
		for _, lane := range p.lanes {
			p.lanesRun.Go(func() error { lane.serve(); return nil })
		}
		p.watchers.Go(func() error { p.keeper.run(); return nil })
		p.watchers.Go(func() error { p.events.run(); return nil })
	})
}

// timers are those that no call uses just now.
type timers struct{ idle sync.Pool }

func (t *timers) start(d time.Duration) *time.Timer {
	if timer, ok := t.idle.Get().(*time.Timer); ok {
		timer.Reset(d)
		return timer
	}
	return time.NewTimer(d)
}

func (t *timers) stop(timer *time.Timer) {
	timer.Stop()
	t.idle.Put(timer)
}

// hint is where a fencing counter that no node has should start, in microseconds:
// ahead of every node's clock, so that all nodes start at the same number.
//
// Source: ALGORITHM section 4, "hint".
func (p *pool) hint(timeout time.Duration) int64 {
	var latest int64
	now := p.conf.clock.shown(p.now())
	for _, lane := range p.lanes {
		if s := lane.sample.Load(); s != nil && !lane.skewed.Load() {
			latest = max(latest, s.estimate(now))
		}
	}
	if latest == 0 {
		return 0
	}
	return latest + timeout.Microseconds()
}

// awaitVotes is how long to wait for nodes in quarantine, after an attempt that failed for
// want of their votes. It has the operator told, once for each quarantine.
func (p *pool) awaitVotes(e *QuorumError) time.Duration {
	const atMost = time.Second // somebody may vouch for them
	wait := atMost
	for _, n := range e.Nodes {
		if n.Quarantine == 0 {
			continue
		}
		wait = min(wait, n.Quarantine)
		for _, lane := range p.lanes {
			if lane.addr == n.Node && !lane.warned.Swap(true) {
				p.events.waiting(n.Node, n.Quarantine)
			}
		}
	}
	return wait
}

// stop lets the lanes send what they have, for grace at the most, and waits for every
// goroutine to end.
func (p *pool) stop(grace time.Duration) {
	p.startOnce.Do(func() {}) // a pool that never ran does not start any more
	defer time.AfterFunc(grace, p.quitNow).Stop()
	p.deafen()
	_ = p.listeners.Wait()
	by := p.now().add(grace)
	for _, lane := range p.lanes {
		lane.shut(by)
	}
	_ = p.lanesRun.Wait() // a lane reports to its callers, not here
	p.keeper.close()
	p.events.close()
	_ = p.watchers.Wait()
	p.quitNow()
}
