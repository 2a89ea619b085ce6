// Package node handles one Redis master for the clients of a lock: its connection, the requests
// and their order, its vote, the identity of its server and its clock. The package knows no
// lease and no attempt: each request names the receiver of its reply.
package node

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/clockwatch"
	"github.com/d0720281/redlock/internal/lockorder"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/rules"
	"github.com/d0720281/redlock/internal/wire"
)

// Config is what all nodes of a Locker have in common.
type Config struct {
	Timeout time.Duration // of one exchange with a node
	MaxTTL  time.Duration // the largest TTL that this client asks for
	Drift   float64       // factor by which clocks may run apart
	Prefix  string        // of all keys
	Quorum  int           // nodes that decide
	Guard   bool          // the restart guard is on
	Trusted bool          // a restart loses nothing where there is an append-only file
	Channel string        // on which the nodes call this process
	Label   string        // of this client, for people; "" for none
	Clock   *clock.Lease
	Events  Events
	Rules   *rules.Rules

	// Granted reports whether the nodes have granted a lease to this Locker; nil if that is not
	// known.
	Granted func() bool
	// Changed is called after a node has answered for the first time, or again after it was down,
	// and after a node was found that cannot take part.
	Changed func()
	// Corrected is called after the local clock was found to have stood still.
	Corrected func()
}

// Events has methods that are called when something happens to a node. They must not block.
// They are called without any mutex of this package.
type Events interface {
	Asked(n *Node, took time.Duration, err error)
	Down(n *Node, err error)
	Up(n *Node)
	Audited(n *Node, before, now *Audit) // before is nil at the first contact
	Quarantined(n *Node, left time.Duration)
	Stepped(n *Node, by time.Duration)
	StoodStill(d time.Duration)
	Starved(waited time.Duration) // replies waited in this process
	Warning(n *Node, err error)
}

// Set is the fixed set of nodes of a Locker.
type Set struct {
	conf  *Config
	nodes []*Node
	watch *clockwatch.Watch
	ids   *identities
	list  string // of masters, see Members

	named []string                // the masters as in the list, by node
	view  atomic.Int64            // counts changes of the servers behind the addresses
	heard atomic.Pointer[hearsay] // nil if no client with a larger TTL is known

	awaitsClocks, awaitsAll atomic.Pointer[survey] // nil while no call waits for the nodes
	surveyed                atomic.Bool            // a survey has told the clocks
	starved                 atomic.Int64           // when a warning may say next that replies waited in this process; an instant

	quit    context.Context // ends when Stop waits no longer
	quitNow context.CancelFunc
	running errgroup.Group
}

// NewSet makes the nodes for some masters. Nothing is sent before Start.
func NewSet(conf Config, masters []redis.Options) *Set {
	s := &Set{conf: &conf, list: Members(masters), named: membersOf(masters)}
	s.quit, s.quitNow = context.WithCancel(context.Background())
	addrs := make([]string, len(masters))
	for i := range masters {
		addrs[i] = masters[i].Addr
	}
	s.ids = newIdentities(addrs)
	s.watch = clockwatch.New(clockwatch.Config{
		Nodes: len(masters), Quorum: conf.Quorum, MaxTTL: conf.MaxTTL, MaxSkew: conf.maxSkew(), Drift: conf.Drift, Clock: conf.Clock, Rules: conf.Rules,
	})
	for i := range masters {
		s.nodes = append(s.nodes, newNode(s, i, masters[i]))
	}
	return s
}

// Nodes returns the nodes, in the order of the masters.
func (s *Set) Nodes() []*Node { return s.nodes }

// Start runs the nodes' goroutines.
func (s *Set) Start() {
	for _, n := range s.nodes {
		s.running.Go(func() error { n.serve(); return nil })
	}
}

// Stop lets the nodes send the requests that they have, for grace at most, and waits until their
// goroutines have ended.
func (s *Set) Stop(grace time.Duration) {
	defer time.AfterFunc(grace, s.quitNow).Stop()
	by := s.conf.Clock.Instant().Add(grace)
	for _, n := range s.nodes {
		n.shut(by)
	}
	_ = s.running.Wait() // no goroutine returns an error: receivers and Events get the errors
	s.quitNow()
}

// Misconfigured returns the error of a list of masters that cannot make a quorum, because two of
// them are one server. It returns nil if no such error is known.
func (s *Set) Misconfigured() error { return s.ids.misconfigured() }

// Refused returns an error if some node refuses the list of masters. What a node that is down has said does not count.
//
// Source: ALGORITHM section 8, "Membership".
func (s *Set) Refused() error {
	for _, n := range s.nodes {
		if err := n.Conflict(); errors.Is(err, reason.Version) {
			return err
		} else if err != nil {
			return &Marked{reason.Membership, fmt.Errorf("the list of masters of this client, %s, is refused", otherIn(s.list).Lists)}
		}
	}
	return nil
}

// ErrClosed is the error of a node whose Set is stopped.
var ErrClosed = errors.New("redlock: locker is closed")

const (
	maxFlights = 8 // exchanges under way

	farAway      = time.Millisecond      // from this round trip on several exchanges are under way
	idleAfter    = 5 * time.Second       // without a reply a connection may have been dropped on the way
	refusedPause = 50 * time.Millisecond // between two tries where connections are refused, which costs next to nothing
)

// Node is one master. All requests to it go over one connection, in order. Requests queue. One
// goroutine writes all queued requests as one call of the script, another takes the replies.
// To a node nearby there is one call at a time, and requests queue for the next call meanwhile:
// an idle node adds no delay, and a busy node gets large batches. To a node far away several
// calls are under way.
//
// A connection is never replaced unnoticed. A request from before a change can still arrive
// after it. Therefore [Key] remembers what was sent.
//
// Source: ALGORITHM section 5 ("one connection per node, in order").
type Node struct {
	set  *Set
	conf *Config
	where
	login

	wake     lockorder.Signal // there may be something to do
	standing atomic.Pointer[Standing]
	orders   atomic.Int32          // of the clock watch, not carried out yet: a set of clockwatch.Action
	audit    atomic.Pointer[Audit] // what the node said of itself
	signs
	known

	mu      lockorder.Mutex[lockorder.Node] // guards all below
	queue   queue
	flights []*flight     // under way, the oldest first
	free    []*flight     // for reuse
	link    *link         // the connection; nil while there is none
	closeBy clock.Instant // when to give up; never until the Set is stopped
	retries retries       // releases to be sent again
	probe   probing
	guard   guard
	near    nearest // how far away the node is
	refusal refusing
	talk
}

// where is how a node is reached.
type where struct {
	index int
	addr  string
	opt   redis.Options
}

// login has what this client tells the server of its user.
type login struct {
	provider provider
	sent     atomic.Pointer[string] // the password that the server was sent last; not nil
}

// signs are the signs of life of a node.
type signs struct {
	linked    atomic.Bool  // there is a connection
	looking   atomic.Bool  // the address is being looked up
	heard     atomic.Int64 // when the server last answered; an instant
	answered  atomic.Int64 // when the node last answered a survey, or the first questions on a connection; an instant
	roundTrip atomic.Int64 // of the last exchange, in nanoseconds; 0 before the first
}

// known is the server behind a node's address, as this client and the node know it.
type known struct {
	server     atomic.Pointer[server] // nil before the first connection
	introduced atomic.Int64           // when this client first knew the present server; an instant
	taken      atomic.Int64           // when this client sent its last join that the node has evaluated; an instant
}

// talk has what a node and this client have told each other of servers and TTLs; guarded by the node's mutex.
type talk struct {
	contests []contest     // by the node that has told it; nil for none so far
	told     bool          // that the server is contested was warned of
	asked    hearsay       // the largest TTL that this client has asked the node for
	former   clock.Instant // when the server before this one last answered; clock.Start for none, and when this one has told its quarantine
}

func newNode(s *Set, index int, opt redis.Options) *Node {
	n := &Node{
		set:     s,
		conf:    s.conf,
		where:   where{index, opt.Addr, opt},
		wake:    lockorder.NewSignal(),
		closeBy: clock.Never,
		talk:    talk{former: clock.Start},
		guard:   newGuard(s.conf, s.list),
		queue:   queue{latest: make(map[place]*Request)},
	}
	n.opt.DialTimeout = 4 * s.conf.Timeout // several round trips with TLS; no caller waits for it
	n.provider = newProvider(n, &n.opt)
	n.sent.Store(new(string))
	n.answered.Store(int64(clock.Start))
	n.taken.Store(int64(clock.Start))
	n.standing.Store(&Standing{Hash: Hash(opt.Addr), trust: trust{votesAt: clock.Start, distrustTo: clock.Start}})
	return n
}

// Set returns the Set that the node belongs to.
func (n *Node) Set() *Set { return n.set }

// Index returns the node's index in the Set.
func (n *Node) Index() int { return n.index }

// Addr returns the address of the master, without credentials.
func (n *Node) Addr() string { return n.addr }

// LooksUp reports whether the address of the master is being looked up.
func (n *Node) LooksUp() bool { return n.looking.Load() }

// Options returns the options by which the node connects to the master.
func (n *Node) Options() redis.Options { return n.opt }

// RoundTrip returns the duration of the last exchange, or 0 before the first.
func (n *Node) RoundTrip() time.Duration { return time.Duration(n.roundTrip.Load()) }

func (n *Node) now() clock.Instant { return n.conf.Clock.Instant() }

// Standing returns the present standing of the node.
func (n *Node) Standing() *Standing { return n.standing.Load() }

// standLocked replaces the standing by a changed copy.
func (n *Node) standLocked(change func(*Standing)) {
	next := *n.standing.Load()
	change(&next)
	n.standing.Store(&next)
}

// enterLocked moves the phase of a doubt about the node.
func (n *Node) enterLocked(h happening) {
	if t := n.Standing().trust; transitions[h][t.phase] != t.phase {
		n.standLocked(func(s *Standing) { s.enter(h) })
	}
}

// Send queues a request at the present moment. If the node is known to be down, or to refuse every
// acquire, Send returns the reason, and neither sends the request nor calls its receiver. It accepts
// every release, and repeats it until the master confirms it or the key has expired.
func (n *Node) Send(r *Request, now clock.Instant) error {
	n.mu.Lock()
	if down := n.standing.Load().Down; down != nil && !r.isRelease() {
		n.mu.Unlock()
		return down
	}
	r.queued = now
	r.Key.began.CompareAndSwap(0, int64(now))
	switch tr := &r.Key.traffic[n.index]; {
	case r.Op.Wants():
		if err := n.refusal.known(now); err != nil {
			if !tr.sent {
				tr.denied = undone
			}
			n.mu.Unlock()
			return err
		}
	case r.Op == wire.Release && tr.denied == doubtful && n.refusal.goesOn(now):
		n.retryLocked(r, nextDoubt(now))
		n.mu.Unlock()
		n.wake.Set()
		return nil
	}
	first := n.queue.empty()
	n.queue.add(r)
	news := first || n.queue.full() // of any other request serve learns when it sends those before it
	n.mu.Unlock()
	if news {
		n.wake.Set()
	}
	return nil
}

// AssumeSent makes sure that a release is sent to a node, although no other request was: the node
// may have the key all the same.
func (k *Key) AssumeSent(n *Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	k.traffic[n.index].sent = true
}

// DueAt returns when a request without an answer times out. Its node timeout counts from when
// it was sent; until then due is 0. hasTurn reports whether such a request will be sent: the
// node is connected, or sends the request again after an idle connection was dropped.
func (n *Node) DueAt(r *Request) (due clock.Instant, hasTurn bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if r.sent != 0 {
		return r.sent.Add(r.Timeout), true
	}
	return 0, n.link != nil || r.resent && n.standing.Load().Down == nil
}

// shut makes serve end: when nothing is left to send, when the node does not answer, or at by.
func (n *Node) shut(by clock.Instant) {
	n.mu.Lock()
	n.closeBy = by
	n.retries.sendNow(n.now(), n.isDoubtful)
	n.mu.Unlock()
	n.wake.Set()
}

// serve is the goroutine that connects and writes.
func (n *Node) serve() {
	defer n.provider.end(n.set.quit, n)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var out outcomes
	written := false // since the clock was read, which costs a system call
	for now := n.now(); ; {
		n.mu.Lock()
		next, due := n.planLocked(now, &out)
		n.mu.Unlock()
		out.tell(n, now)
		switch next {
		case stop:
			return
		case dial:
			n.connect(&out)
			now, written = n.now(), false
			continue
		case write:
			if written {
				now = n.now()
			}
			n.write(now, &out)
			written = true
			continue
		}
		if due == clock.Never {
			<-n.wake
		} else {
			timer.Reset(due.Sub(now))
			select {
			case <-n.wake:
			case <-timer.C:
			}
		}
		now, written = n.now(), false
	}
}

// step is what serve does next.
type step int

const (
	wait step = iota
	dial
	write
	stop
)

// planLocked decides what serve does next, and when to look again if it waits.
func (n *Node) planLocked(now clock.Instant, out *outcomes) (next step, due clock.Instant) {
	n.heedLocked(now, out)
	n.pruneLocked(now, out)
	down := n.standing.Load().Down
	if down != nil && now < n.probe.at {
		n.failQueuedLocked(down, now, out)
	}
	idle := n.queue.empty() && len(n.retries.list) == 0 && len(n.flights) == 0
	if now >= n.closeBy || n.closeBy < clock.Never && (idle || down != nil) {
		n.abandonLocked(now, out)
		return stop, 0
	}
	if n.link == nil {
		due = n.connectAtLocked(down)
		if due <= now {
			return dial, 0
		}
	} else {
		due = n.writeAtLocked()
		if due <= now {
			return write, 0
		}
	}
	return wait, min(due, n.Standing().judgeAt(), n.closeBy)
}

// connectAtLocked returns when a connection is needed.
func (n *Node) connectAtLocked(down error) clock.Instant {
	if down != nil {
		return n.probe.at
	}
	return n.workAtLocked()
}

// workAtLocked returns when there is something to send.
func (n *Node) workAtLocked() clock.Instant {
	if !n.queue.empty() || n.hasChoresLocked() {
		return clock.Start
	}
	return n.retries.due()
}

// hasChoresLocked reports whether the node has work of its own, beside the requests.
func (n *Node) hasChoresLocked() bool {
	return n.Standing().phase == unmarked || clockwatch.Action(n.orders.Load())&clockwatch.Ask != 0
}

// writeAtLocked returns when the next exchange begins. To a node nearby it begins when the
// exchange under way has ended. To a node far away it begins when a batch is full, or when the
// oldest request has waited for an eighth of the round trip.
func (n *Node) writeAtLocked() clock.Instant {
	work := n.workAtLocked()
	rtt := n.near.roundTrip()
	switch {
	case len(n.flights) == 0:
		return work
	case len(n.flights) >= maxFlights, rtt < farAway:
		return clock.Never
	case n.queue.full(), n.hasChoresLocked():
		return clock.Start
	}
	due := work
	if oldest, some := n.queue.oldest(); some {
		due = oldest.Add(rtt / 8)
	}
	return due
}

// failQueuedLocked answers the queued requests of a node that cannot be reached.
func (n *Node) failQueuedLocked(err error, now clock.Instant, out *outcomes) {
	n.queue.drop(func(r *Request) bool {
		switch {
		case !r.isRelease():
			out.add(r, Reply{Err: err})
		case r.Key.traffic[n.index].sent:
			n.retryLocked(r, now)
			out.add(r, Reply{Err: err})
		default:
			out.add(r, Reply{Err: ErrUnsent})
		}
		return true
	})
	for _, t := range n.queue.tasks {
		out.addTask(t, err)
	}
	n.queue.tasks = nil
}

// goDownLocked marks the node as down. It is probed until it answers.
func (n *Node) goDownLocked(err error, now clock.Instant, out *outcomes) {
	was := n.standing.Load().Down
	first := was == nil
	if errors.Is(err, reason.Masters) && !errors.Is(was, reason.Masters) {
		out.after(n.conf.Changed)
	}
	n.standLocked(func(s *Standing) {
		s.Down, s.Failure = err, err
		if first {
			s.FailedAt = time.Now()
		}
	})
	n.failQueuedLocked(err, now, out)
	n.probe.failed(err, now)
	out.after(n.set.endSurveys)
	if first {
		out.after(func() { n.conf.Events.Down(n, err) })
	}
}

// comeUpLocked marks the node as up.
func (n *Node) comeUpLocked(now clock.Instant, out *outcomes) {
	was := *n.standing.Load()
	n.standLocked(func(s *Standing) { s.Down, s.Reached = nil, true })
	n.refusal = refusing{}
	if was.Down != nil {
		out.after(func() { n.conf.Events.Up(n) })
	}
	if was.Down != nil || !was.Reached {
		out.after(n.conf.Changed)
	}
	n.retries.sendNow(now, func(r *Request) bool { return r.Key.traffic[n.index].deadBy <= now }) // they waited for the node
}

// abandonLocked answers all requests that are left when the node ends.
func (n *Node) abandonLocked(now clock.Instant, out *outcomes) {
	n.standLocked(func(s *Standing) { s.Down = ErrClosed })
	n.dropLinkLocked(ErrClosed, now, out)
	n.failQueuedLocked(ErrClosed, now, out)
}

// probing is when to connect again while the node is down.
type probing struct {
	at    clock.Instant
	pause time.Duration // after the next failure; 0 after a good exchange
}

func (p *probing) failed(err error, now clock.Instant) {
	p.at = now.Add(p.pause)
	p.pause = longerPause(p.pause)
	if errors.Is(err, syscall.ECONNREFUSED) {
		p.pause = min(p.pause, refusedPause)
	}
}

// nearest is the shortest round trip of late: the time of the network alone, without that of a
// busy node.
type nearest struct {
	now, before time.Duration // of this span of nearestFor and of the one before; 0 for none
	turned      clock.Instant
}

const nearestFor = 5 * time.Second

func (m *nearest) add(d time.Duration, now clock.Instant) {
	if now.Sub(m.turned) > nearestFor {
		m.before, m.now, m.turned = m.now, 0, now
	}
	if m.now == 0 || d < m.now {
		m.now = d
	}
}

func (m *nearest) roundTrip() time.Duration {
	if m.before > 0 {
		return min(m.now, m.before)
	}
	return m.now
}
