package redlock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/d0720281/redlock/internal/node"
)

// pool is one group of N nodes of a Locker, with all that its leases and callers share.
//
// # Mutexes
//
// A goroutine that holds a mutex may lock those further down, and no other of the same kind.
// No callback of the caller, no log and no end of a context happens under a mutex. A build with
// the tag lockorder checks both; package lockorder has the order.
//
//	Calls      the calls under way, until Close               redlock.go
//	Waitlines  the callers of the process, by resource        waitline.go, handover.go
//	Grant      one attempt, or one lease and its handles      acquire.go, grant.go, renew.go, release.go
//	Renewer    the leases by the time when they are due       renewer.go
//	Admission  the attempts that may ask                      admission.go
//	Node       the requests and the connection of one node    internal/node/node.go
//	Watch      what the clocks of all nodes show together     internal/node/clockwatch.go
//	Servers    which node is which server                     internal/node/identity.go
//	Events     what the observers have still to be told       observe.go
//
// # Goroutines
//
//	goroutine       number                      ends                                      waited for by
//	Node.serve      one for each node           when Set.Stop has it shut                 Set.Stop
//	Node.read       one for each connection     with the connection                       Set.Stop
//	renewer.run     one for each group          by renewer.close                          pool.stop
//	events.run      one                         by events.close, with all events told     Locker.stop
//	survey.run      one, with several groups    when Close begins                         Locker.stop
//	subscription    one for each queue node     by pool.deafen                            pool.stop
//	                that the process listens to
//	of onEach       one for each node and call  with the answer, the context or Close     onEach
//	of survey.round one for each node           with the answer, the verdict or Close     survey.round
//	of inParallel   one for each resource       with the attempt, the extend or the       inParallel
//	                of a LockAll                release of that resource
//
// Nodes, renewer, events and survey start with the first call. Every other goroutine is the caller's.
type pool struct {
	conf      *config
	group     int // number of the group, from 0
	set       *node.Set
	nodes     []*node.Node
	need      int                                                   // votes that make a quorum
	skew      func(node int, now instant) (err error, certain bool) // see attempt
	renewer   *renewer
	events    *events // of the Locker
	waitlines waitlines
	timers    timers
	admission admission
	outage    outage
	channel   string // on which queue nodes call this process

	opened  context.Context // ends when no new attempt may begin
	shut    context.CancelCauseFunc
	closing <-chan struct{} // closed when opened ends

	watcher errgroup.Group // the renewer's goroutine

	hearing       context.Context // of the subscriptions; ends when no caller waits any more
	deafen        context.CancelFunc
	listeners     errgroup.Group // the goroutines of the subscriptions
	subscriptions []*node.Subscription
}

// newPool makes the pool of one of several groups, whose lists of masters lists has.
func newPool(c *config, lists [][]redis.Options, group int, ev *events) *pool {
	masters := lists[group]
	p := &pool{
		group:     group,
		conf:      c,
		need:      c.rules.quorum(len(masters)),
		waitlines: waitlines{policy: &c.queue, foreign: foreignHolders{search: c.keyPrefix == ""}},
		renewer:   newRenewer(c.clock),
		events:    ev,
		channel:   c.keyPrefix + "~inbox:" + c.rules.newID(),
	}
	p.opened, p.shut = context.WithCancelCause(context.Background())
	p.closing = p.opened.Done()
	p.hearing, p.deafen = context.WithCancel(context.Background())
	p.set = node.NewSet(node.Config{
		Timeout:   c.nodeTimeoutOfAll(),
		MaxTTL:    c.maxTTL,
		Drift:     c.drift,
		Prefix:    c.keyPrefix,
		Quorum:    p.need,
		Guard:     c.guard,
		Trusted:   c.trusted,
		Channel:   p.channel,
		Clock:     c.clock,
		Events:    p.events,
		Rules:     c.rules.node,
		Corrected: p.renewer.poke,
		Groups:    lists,
	}, masters)
	p.nodes = p.set.Nodes()
	p.skew = func(i int, now instant) (error, bool) { return p.nodes[i].TooFar(now) }
	for _, n := range p.nodes {
		p.subscriptions = append(p.subscriptions, node.NewSubscription(n))
	}
	return p
}

func (p *pool) now() instant { return p.conf.clock.Instant() }

// start starts the goroutines of the nodes and of the renewer.
func (p *pool) start() {
	p.set.Start()
	p.watcher.Go(func() error { p.renewer.run(p.set.Hold); return nil })
}

// timers keeps idle timers for reuse.
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

// awaitVotes returns how long to wait for nodes in quarantine, after an attempt that lacked
// their votes. It logs that for the operator, once for each quarantine.
func (p *pool) awaitVotes(e *QuorumError) time.Duration {
	const atMost = time.Second // an operator may call Bootstrap meanwhile
	wait, voteless := atMost, make(map[*node.Node]time.Duration)
	for _, failed := range e.Masters {
		if failed.Quarantine == 0 {
			continue
		}
		wait = min(wait, failed.Quarantine)
		for _, n := range p.nodes {
			if n.Addr() == failed.Master {
				voteless[n] = failed.Quarantine
			}
		}
	}
	p.events.waiting(voteless)
	return wait
}

// onEach calls ask for all nodes at the same time, and returns their results by node. The
// context of ask ends with ctx or with the Locker.
func onEach[T any](ctx context.Context, p *pool, ask func(context.Context, *node.Node) (T, error)) ([]T, []error) {
	results, errs := make([]T, len(p.nodes)), make([]error, len(p.nodes))
	both, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(p.opened, func() { cancel(ErrClosed) })()
	defer context.AfterFunc(ctx, func() { cancel(errCallOver) })()
	var asked sync.WaitGroup
	for i, n := range p.nodes {
		asked.Go(func() { results[i], errs[i] = ask(both, n) })
	}
	asked.Wait()
	for i, err := range errs {
		if err == errCallOver {
			errs[i] = contextError(ctx)
		}
	}
	return results, errs
}

// errCallOver stands for the end of a call's context, because the cause of that context may be
// of a type that cannot be compared.
var errCallOver = errors.New("the call is over")

// stop lets the nodes send the requests that they have, for grace at most, and waits until every
// goroutine has ended.
func (p *pool) stop(grace time.Duration) {
	p.deafen()
	_ = p.listeners.Wait()
	p.set.Stop(grace)
	p.renewer.close()
	_ = p.watcher.Wait()
}
