package redlock

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/d0720281/redlock/internal/attempt"
	"github.com/d0720281/redlock/internal/line"
	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/wire"
)

// pool is the N nodes of a Locker, with all that its leases and callers share.
//
// # Mutexes
//
// A goroutine that holds a mutex may lock those further down, and no other of the same kind.
// No callback of the caller, no log and no end of a context happens under a mutex. A build with
// the tag lockorder checks both; package lockorder has the order.
//
//	Calls      the calls under way, until Close               redlock.go
//	Lines      the callers of the process, by resource        internal/line/lines.go
//	Grant      one attempt, or one lease and its holds      acquire.go, grant.go, renew.go, release.go
//	Outage     whether the log has an outage                  log.go
//	Renewer    the leases by the time when they are due       renew.go
//	Admission  the attempts that may ask                      internal/line/admission.go
//	Node       the requests and the connection of one node    internal/node/node.go
//	Watch      what the clocks of all nodes show together     internal/clockwatch/clockwatch.go
//	Servers    which node is which server                     internal/node/identity.go
//	Events     what the observers have still to be told       observe.go
//
// # Goroutines
//
//	goroutine       number                      ends                                      waited for by
//	Node.serve      one for each node           when Set.Stop has it shut                 Set.Stop
//	Node.read       one for each connection     with the connection                       Set.Stop
//	renewer.run     one                         by renewer.close                          pool.stop
//	events.run      one                         by events.close, with all events told     Locker.stop
//	subscription    one for each queue node     by pool.deafen                            pool.stop
//	                that the process listens to
//	of node.Each    one for each node and call  with the answer, the context or Close     node.Each
//	of former.tell  one for each node           with the answer, after 1 s or by Close    pool.stop
//	of callOutside  one for each call of a      when that returns                         the caller, for a
//	                dialer or a provider                                                  time; then outside.leave
//
// Nodes, renewer and events start with the first call. Every other goroutine is the caller's.
type pool struct {
	conf      *config
	set       *node.Set
	nodes     []*node.Node
	need      int                                                   // votes that make a quorum
	skew      func(node int, now instant) (err error, certain bool) // see attempt
	renewer   *renewer
	events    *events // of the Locker
	lines     *line.Lines[*grant, call]
	timers    timers
	admission line.Admission
	changes   atomic.Int64 // counts the calls of changed
	channel   string       // on which queue nodes call this process

	callsOut, renewalsOut outage       // of which the log tells
	votedAt               atomic.Int64 // instant of the log's last line that a quorum votes; 0: none

	opened  context.Context // ends when no new attempt may begin
	shut    context.CancelCauseFunc
	closing <-chan struct{} // closed when opened ends

	watcher errgroup.Group // the renewer's goroutine

	hearing       context.Context // of the subscriptions; ends when no caller waits any more
	deafen        context.CancelFunc
	listeners     errgroup.Group // the goroutines of the subscriptions, and of former.tell
	subscriptions []*node.Subscription
}

func newPool(c *config, masters []redis.Options, ev *events) *pool {
	p := &pool{
		conf:    c,
		need:    c.rules.Quorum(quorum(len(masters))),
		lines:   line.New[*grant, call](&line.DefaultPolicy, c.keyPrefix == ""),
		renewer: newRenewer(c.clock),
		events:  ev,
		channel: c.keyPrefix + "~inbox:" + c.newToken("", 0),
	}
	p.callsOut.text, p.callsOut.after = "no quorum of the masters gives a usable answer; calls of Lock go on trying", outageNotice
	p.renewalsOut.text = "renewals find no quorum of the masters; leases end unless a renewal does in time"
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
		Label:     c.owner,
		Clock:     c.clock,
		Events:    p.events,
		Rules:     c.rules,
		Granted:   func() bool { return ev.counts[EventAcquired].Load() > 0 },
		Changed:   p.changed,
		Corrected: p.renewer.wake.Set,
	}, masters)
	p.nodes = p.set.Nodes()
	p.skew = func(i int, now instant) (error, bool) {
		if err := p.nodes[i].Contested(now); err != nil { // another node has said so since the vote came in
			return err, true
		}
		if err, certain := p.nodes[i].TooFar(now); err != nil {
			return err, certain
		}
		if p.nodes[i].IsUnheard(now) {
			return attempt.ErrUnheard, false
		}
		return nil, true
	}
	for _, n := range p.nodes {
		p.subscriptions = append(p.subscriptions, node.NewSubscription(n))
	}
	return p
}

// changed is called when a node can be asked that could not before, or was found that cannot take
// part.
func (p *pool) changed() {
	p.changes.Add(1)
	cannot := func(n *node.Node) bool { return errors.Is(n.Standing().Down, ErrMasterSetup) }
	p.lines.Changed(p.quorumUp() || slices.ContainsFunc(p.nodes, cannot), p.queueNodeOf)
}

// quorumUp reports whether a quorum of the nodes is not known to be down.
func (p *pool) quorumUp() bool {
	up := 0
	for _, n := range p.nodes {
		if n.Standing().Down == nil {
			up++
		}
	}
	return up >= p.need
}

func (p *pool) now() instant { return p.conf.clock.Instant() }

// stood returns for how long the clock is known to have stood still.
func (p *pool) stood() time.Duration { return p.conf.clock.Stood() }

// start starts the goroutines of the nodes and of the renewer.
func (p *pool) start() {
	p.set.Start()
	p.watcher.Go(func() error { p.renewer.run(); return nil })
}

// until blocks until ready is closed or has a token, or until d is over. A d of 0 is never
// over. If the context or the Locker ends first, until returns that as an error.
func until(ctx context.Context, closing, ready <-chan struct{}, d time.Duration) error {
	var after <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		after = timer.C
	}
	select {
	case <-ready:
	case <-after:
	case <-ctx.Done():
		return reason.OfContext(ctx)
	case <-closing:
		return ErrClosed
	}
	return nil
}

// closed reports whether a context has ended, by its channel. Err of a context can be foreign
// code that blocks. So Err is called only after the context has ended, only by the goroutine of
// the call, and not under a mutex.
func closed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
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
	if p.events.waiting(p.set, voteless) {
		p.callsOut.begins(p.now())
	}
	return wait
}

// stop lets the nodes send the requests that they have, for grace at most, and waits until every
// goroutine has ended.
func (p *pool) stop(grace time.Duration) {
	p.deafen()
	_ = p.listeners.Wait()
	p.set.Stop(grace)
	p.renewer.close()
	_ = p.watcher.Wait()
}

// newToken returns a random token, with the label of its owner, and with a time of the masters' clocks, us; without one
// if that is not positive. The source of random numbers is named here and never fails. That of package uuid is a
// variable of the whole program, which another package can make deterministic.
//
// Source: ALGORITHM section 3, point 1.
func (c *config) newToken(owner string, micros int64) string {
	id := uuid.Must(uuid.NewRandomFromReader(rand.Reader))
	if micros > 0 {
		id = wire.Stamped(id, micros/1000)
	}
	return c.rules.ID(wire.Token(id, owner))
}

// quorumError returns the error of a round over all nodes.
func (p *pool) quorumError(op, resource string, granted int, reasons ...error) *QuorumError {
	return &QuorumError{Op: op, Resource: resource, Granted: granted, Need: p.need, Total: len(p.nodes), Reasons: reasons}
}

// nodeError returns the error of one node for op. If err is nil, the node had not answered when
// the round was decided. If such a node is down, or has said before that it is in quarantine, the
// error is that.
func (p *pool) nodeError(i int, op string, err error, timeout time.Duration) *MasterError {
	n := p.nodes[i]
	if err == nil || err == errUndecided {
		err = errUndecided
		known := n.Standing()
		if left := known.SaidIn(p.now()); left > 0 {
			err = node.Quarantine(left)
		}
		if known.Down != nil {
			err = known.Down
		}
	}
	if err == node.ErrTimeout {
		if err = timeoutError(timeout); n.LooksUp() {
			err = reason.Errorf("%w: %w", err, node.ErrLookup)
		}
	}
	if err == node.ErrUnseeded {
		err = cmp.Or(n.TooFarNow(), err) // the clocks may be known, and disagree
	}
	var left node.Quarantine
	var holder node.HeldByOther
	errors.As(err, &left)
	errors.As(err, &holder)
	return &MasterError{Master: n.Addr(), Op: op, Err: err, Quarantine: time.Duration(left), Owner: holder.Owner, HeldFor: holder.For, ExpiresIn: holder.Left}
}

// updated returns a verdict with what is known now of the nodes that were undecided.
func (p *pool) updated(e *QuorumError) *QuorumError {
	more := *e
	more.Masters = slices.Clone(e.Masters)
	for k, was := range e.Masters {
		if was.Err == errUndecided {
			i := slices.IndexFunc(p.nodes, func(n *node.Node) bool { return n.Addr() == was.Master })
			more.Masters[k] = p.nodeError(i, was.Op, errUndecided, 0)
		}
	}
	return &more
}
