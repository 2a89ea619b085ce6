package redlock

import (
	"context"
	"errors"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	maxBatch     = 256                    // requests in one command: a millisecond or so of the node's time
	firstBackoff = 20 * time.Millisecond  // after the first failure of a node or of a release
	maxBackoff   = 500 * time.Millisecond // between two tries
)

// request is one message of an attempt to one node.
type request struct {
	op      op
	node    int
	grant   *grant
	counter int64   // came with the grant on this node; 0 = none or unknown
	target  int64   // counter of the lease; for an acquire, where to start a missing one
	end     instant // the node timeout: neither sent nor carried out after it
	round   *round  // for an extend, what it counts for
	who     string  // at the gate: who waits, or has done; "" anywhere else
	resent  bool    // once, on a new connection
	kept    bool    // in the lane's backlog

	notAfter int64 // end as node time, us
}

// lane carries all messages to one node, in order, on one connection. Requests
// queue; one goroutine sends all that is queued as one call of the script, and while
// that is under way the next batch collects. So an idle lane adds no delay and a busy
// one sends deep batches, and nobody but this goroutine waits for the node. (The client
// library's automatic pipelines are no faster and hide which connection carried what:
// bench/README.md.)
//
// A connection is never replaced behind the lane's back: each has a client of its
// own that dials once. What was sent before a change of connection may still
// arrive after it, which is why a trace is kept for each attempt.
//
// Source: ALGORITHM section 5 ("one lane per node, same connection").
type lane struct {
	index   int
	addr    string
	hash    uint64 // of the address
	opt     redis.Options
	timeout time.Duration // for one exchange
	conf    *config

	events *events
	roster *roster
	watch  *watch
	quit   context.Context // ends when Close waits no longer

	wake       chan struct{}              // holds one token: there may be something to do
	sample     atomic.Pointer[sample]     // the node's clock; nil until it was first reached
	skewed     atomic.Bool                // that clock is too far from the others
	wantSample atomic.Bool                // somebody needs a new one
	isDown     atomic.Bool                // whether down is set
	inbox      *inbox                     // for what this node says as a gate
	orders     atomic.Int32               // an order of the watch
	votesAt    atomic.Int64               // when the node has a vote again, an instant
	warned     atomic.Bool                // a caller who waits for that has been told
	distrustTo atomic.Int64               // view.until, for others to read
	roundTrip  atomic.Int64               // of the last exchange, in nanoseconds; 0 before the first
	inspected  atomic.Pointer[inspection] // what the node said of itself

	mu      sync.Mutex
	queue   []*request // guarded by mu
	errands []*errand  // guarded by mu
	down    error      // why the node is not asked, nil while it is; written by serve's goroutine under mu
	reached bool       // guarded by mu; at some time
	failure error      // guarded by mu; what down was last
	failed  time.Time  // guarded by mu; when down was last set from nil
	closeBy instant    // guarded by mu; never until Close: when to give up

	// Used by the goroutine of serve alone.
	client   *redis.Client // nil while there is no connection
	conn     *redis.Conn   // the client's one connection
	run      string        // identity of the server at its other end
	guarding guarding      // what the scripts are told first
	view     clockView

	pending []*request    // taken from queue, sent next
	spare   []*request    // the slice that queue gets when it is taken
	backlog []retry       // releases to be sent again
	backoff time.Duration // 0 after a good exchange
	probeAt instant       // when to connect again while down
	args    []any         // scratch space of command
	replies []reply       // scratch space of exchange
}

// trace is what a lane knows of one attempt on its node. Only the lane's own
// goroutine uses it.
type trace struct {
	sent   bool    // a message of the attempt may have reached the node
	deadBy instant // messages without a reply do nothing after this
}

func newLane(p *pool, index int, opt redis.Options, g guarding) *lane {
	n := &lane{
		index:    index,
		addr:     opt.Addr,
		hash:     hashOf(opt.Addr),
		opt:      opt,
		timeout:  p.conf.laneTimeout(),
		conf:     p.conf,
		events:   p.events,
		roster:   p.roster,
		watch:    p.watch,
		guarding: g,
		view:     newClockView(),
		quit:     p.quit,
		wake:     make(chan struct{}, 1),
		closeBy:  never,
	}
	n.votesAt.Store(math.MinInt64)
	n.distrustTo.Store(math.MinInt64)
	lockProfile(&n.opt, n.timeout)
	n.inbox = &inbox{lane: n, channel: p.channel}
	return n
}

func (n *lane) now() instant { return instant(n.conf.clock.Now()) }

// send queues a request. It answers at once with the reason if the node is known
// to be down, in which case nothing will be sent and nothing reported. A release
// is always taken: the lane goes on with it until the node confirms it or the key
// has expired.
func (n *lane) send(r *request) error {
	n.mu.Lock()
	if n.down != nil && r.op != opRelease {
		defer n.mu.Unlock()
		return n.down
	}
	n.queue = append(n.queue, r)
	n.mu.Unlock()
	n.poke()
	return nil
}

func (n *lane) poke() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// shut makes serve end as soon as nothing is left to send, or the node does not
// answer, or at by.
func (n *lane) shut(by instant) {
	n.mu.Lock()
	n.closeBy = by
	n.mu.Unlock()
	n.poke()
}

// serve is the lane's goroutine.
func (n *lane) serve() {
	defer n.hangUp()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	now := n.now()
	for {
		closeBy := n.take()
		n.trim(now)
		n.heed(now)
		if n.down != nil && now < n.probeAt {
			n.failPending(n.down, now)
		}
		idle := len(n.pending)+len(n.backlog) == 0
		if now >= closeBy || closeBy < never && (idle || n.down != nil) {
			n.abandon(now)
			return
		}
		due := n.due()
		if due <= now {
			now = n.cycle(now)
			continue
		}
		if due = min(due, closeBy); due == never {
			<-n.wake
		} else {
			timer.Reset(due.sub(now))
			select {
			case <-n.wake:
			case <-timer.C:
			}
		}
		now = n.now()
	}
}

// take moves what is queued to pending, unless the last batch is not through.
func (n *lane) take() (closeBy instant) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.pending) == 0 {
		clear(n.spare)
		n.pending, n.queue = n.queue, n.spare[:0]
		n.spare = n.pending
	}
	return n.closeBy
}

// trim answers the pending requests that have become pointless.
func (n *lane) trim(now instant) {
	keep := n.pending[:0]
	for _, r := range n.pending {
		switch sent := r.grant.traces[n.index].sent; {
		case r.op == opRelease && !sent, r.op != opRelease && r.grant.abandoned.Load():
			n.deliver(r, reply{err: errUnsent})
		case r.op != opRelease && now > r.end:
			n.deliver(r, reply{err: errNodeTimeout})
		default:
			keep = append(keep, r)
		}
	}
	n.pending = keep
}

// due is when the lane next has something to do.
func (n *lane) due() instant {
	switch {
	case n.down != nil:
		return n.probeAt
	case len(n.pending) > 0 || n.hasChores():
		return math.MinInt64
	}
	due := never
	if n.view.suspect {
		due = n.view.judgeBy
	}
	for i := range n.backlog {
		due = min(due, n.backlog[i].at)
	}
	return due
}

// cycle connects if it has to and sends one batch. It returns what time it is then.
func (n *lane) cycle(now instant) instant {
	if n.client == nil {
		err := n.connect()
		now = n.now()
		if err != nil {
			n.goDown(err, now)
			return now
		}
		n.comeUp(now)
		n.trim(now)
	}
	if n.hasChores() {
		err := n.chores()
		now = n.now()
		if err != nil {
			n.hangUp()
			if !isBroken(err) {
				n.goDown(err, now)
			}
			return now
		}
	}
	if batch := n.batch(now); len(batch) > 0 {
		now = n.exchange(batch, now)
	}
	return now
}

// hasChores reports whether there is something to do that is no request.
func (n *lane) hasChores() bool {
	if n.view.marking || n.wantSample.Load() {
		return true
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.errands) > 0
}

// chores does it, before the next batch. Its error is that of a connection which is of no
// more use.
func (n *lane) chores() error {
	if n.view.marking {
		if err := n.mark(); err != nil {
			return err
		}
	}
	if n.wantSample.Swap(false) {
		if err := n.readClock(context.Background(), n.conn); !survives(err) {
			return err
		}
	}
	return n.runErrands()
}

// batch picks what to send next: releases whose time has come again, then what
// was queued.
func (n *lane) batch(now instant) []*request {
	n.prune(now)
	var again []*request
	for i := range n.backlog {
		if b := &n.backlog[i]; now >= b.at && len(again) < maxBatch {
			again = append(again, b.request)
			b.wait = nextBackoff(b.wait) // it stays until it is confirmed
			b.at = now.add(n.timeout + b.wait)
		}
	}
	room := min(len(n.pending), maxBatch-len(again))
	batch := n.pending[:room:room]
	if len(again) > 0 {
		batch = append(again, batch...)
	}
	n.pending = n.pending[room:]
	return batch
}

// exchange sends a batch and hands out the replies. It returns what time it is then:
// reading the clock is a system call, and a lane does so once per exchange.
func (n *lane) exchange(batch []*request, now instant) instant {
	asked := now
	replies, now, failure := n.perform(batch, n.replies[:0], now)
	var resend []*request
	var unwritable error
	voidForAll, voidForGrants := n.voteless(now)
	for i, r := range batch {
		rep, tr := replies[i], &r.grant.traces[n.index]
		if rep.server = n.run; n.run == unknownRun {
			rep.server = ""
		}
		switch rep.void = voidForAll; {
		case n.view.marking: // since a reply of this very batch, perhaps
			rep.void = errForgot
		case r.op == opAcquire:
			rep.void = voidForGrants
		}
		if rep.code == codeStale {
			failure = errStale
		}
		if rep.err != nil {
			if !isReply(rep.err) { // it may still be carried out
				if r.op == opAcquire || r.op == opExtend { // which could set the key
					tr.deadBy = max(tr.deadBy, n.deadBy(r.end))
				}
				if !isTimeout(rep.err) && !r.resent && (r.op == opRelease || now < r.end) {
					r.resent = true // goes out once more on the next connection
					resend = append(resend, r)
					continue
				}
			}
			switch {
			case isUnwritable(rep.err):
				unwritable = rep.err
			case isTimeout(rep.err):
				rep.err = errNodeTimeout
			}
			rep.err = nodeFailure(rep.err)
		}
		if r.op == opRelease {
			n.settle(r, tr, rep, now)
		}
		n.deliver(r, rep)
	}
	n.replies = replies
	n.events.nodeAsked(n.addr, now.sub(asked), exchangeError(failure, unwritable))
	if len(resend) > 0 {
		n.pending = append(resend, n.pending...) // in the order they came
	}
	switch {
	case unwritable != nil:
		n.hangUp()
		n.goDown(unwritable, now)
	case failure == nil:
		n.backoff = 0
	case failure == errStale:
		n.hangUp()
		n.goDown(errStale, now)
	case isTimeout(failure):
		n.hangUp()
		n.goDown(errNodeTimeout, now)
	default:
		n.hangUp() // which says little about the node: there is another try at once
	}
	return now
}

// exchangeError is why an exchange was of no use; nil if it was.
func exchangeError(failure, unwritable error) error {
	switch {
	case unwritable != nil:
		return unwritable
	case failure != nil && isTimeout(failure): // which allocates, even to say no
		return errNodeTimeout
	}
	return failure
}

// perform has the node carry out requests, and appends a reply for each. failure is
// set if the connection is of no more use.
func (n *lane) perform(batch []*request, replies []reply, now instant) (_ []reply, received instant, failure error) {
	sent := n.momentAt(now)
	values, err := n.command(batch, evalsha)
	if says(err, "NOSCRIPT") { // restarted, or flushed: nothing was carried out
		values, err = n.command(batch, eval)
	}
	received = n.now()
	if err == nil {
		n.roundTrip.Store(int64(received.sub(now)))
		var h heading
		if h, replies, err = parseReplies(values, len(batch), replies); err == nil {
			if h.micros > 0 {
				n.observeClock(h.micros, sent, received)
				n.noteQuarantine(h.left, received)
			}
			return replies, received, nil
		}
	}
	if len(batch) > 1 && says(err, "NOPERM") {
		// One key that the user may not touch has the whole batch refused.
		for i := range batch {
			var one []reply
			one, received, failure = n.perform(batch[i:i+1], nil, received)
			replies = append(replies, one...)
		}
		return replies, received, failure
	}
	for range batch {
		replies = append(replies, reply{err: err})
	}
	if isReply(err) {
		err = nil
	}
	return replies, received, err
}

// command sends requests as one command; lua/begin.lua says what it is made of.
func (n *lane) command(batch []*request, call [2]any) ([]any, error) {
	args := append(n.args[:0], call[0], call[1], 1+2*len(batch), &n.guarding.marker)
	for _, r := range batch {
		r.grant.traces[n.index].sent = true
		r.notAfter = n.notAfter(r.end)
		args = append(args, &r.grant.key, &r.grant.counterKey)
	}
	args = append(args, n.guarding.args[:]...)
	for _, r := range batch {
		args = r.appendArgs(args)
	}
	ctx := context.Background() // bounded by the client's read and write time-outs
	cmd := redis.NewSliceCmd(ctx, args...)
	err := n.conn.Process(ctx, cmd)
	clear(args)
	n.args = args
	return cmd.Val(), err
}

// appendArgs appends the number of the request's function and its arguments. Numbers
// go to the client library by address, which saves boxing them.
func (r *request) appendArgs(args []any) []any {
	g, number := r.grant, r.op
	switch {
	case r.who != "" && r.op == opAcquire:
		number = opAcquireAtGate
	case r.who != "":
		number = opReleaseAtGate
	}
	args = append(args, int(number), &g.id)
	switch r.op {
	case opAcquire:
		args = append(args, &g.ttlMillis, &r.notAfter, &r.target)
	case opExtend:
		args = append(args, &g.ttlMillis, &r.notAfter, &r.counter, &r.target)
	case opRaise, opRelease:
		args = append(args, &r.counter, &r.target)
	}
	if r.who != "" {
		args = append(args, &r.who)
	}
	return args
}

// notAfter is the latest node time at which a request that lives until end may still be
// carried out.
func (n *lane) notAfter(end instant) int64 {
	return n.sample.Load().notAfter(n.conf.clock.shown(end), n.conf.drift)
}

// deadBy is when the node's clock has passed notAfter(end).
func (n *lane) deadBy(end instant) instant {
	shown := n.conf.clock.shown(end)
	return n.sample.Load().deadBy(shown, n.conf.drift).add(end.sub(shown))
}

// deliver reports the outcome of a request to its attempt.
func (n *lane) deliver(r *request, rep reply) { r.grant.receive(r, rep) }

// failPending answers what waits to be sent while the node is not reachable.
func (n *lane) failPending(err error, now instant) {
	for _, r := range n.pending {
		switch {
		case r.op != opRelease:
			n.deliver(r, reply{err: err})
		case r.grant.traces[n.index].sent:
			n.retryRelease(r, now)
			n.deliver(r, reply{err: err})
		default:
			n.deliver(r, reply{err: errUnsent})
		}
	}
	n.pending = nil
	n.prune(now)
	n.failErrands(err)
}

// goDown stops asking the node. It is probed in the background until it answers.
func (n *lane) goDown(err error, now instant) {
	n.mu.Lock()
	first := n.down == nil
	n.down = err
	n.failure = err
	if first {
		n.failed = time.Now()
	}
	n.isDown.Store(true)
	n.pending = append(n.pending, n.queue...)
	n.queue = nil
	n.mu.Unlock()
	n.spare = nil
	n.failPending(err, now)
	n.probeAt = now.add(n.backoff)
	n.backoff = nextBackoff(n.backoff)
	if first {
		n.events.nodeDown(n.addr, err)
	}
}

// comeUp begins to ask the node again.
func (n *lane) comeUp(now instant) {
	n.mu.Lock()
	was := n.down
	n.down, n.reached = nil, true
	n.isDown.Store(false)
	n.mu.Unlock()
	if was != nil {
		n.events.nodeUp(n.addr)
	}
	for i := range n.backlog { // what waited for the node need not wait longer
		if b := &n.backlog[i]; b.grant.traces[n.index].deadBy <= now {
			b.at = now
		}
	}
}

// abandon answers everything that is left when the lane ends.
func (n *lane) abandon(now instant) {
	n.mu.Lock()
	n.down = ErrClosed
	n.pending = append(n.pending, n.queue...)
	n.queue = nil
	n.mu.Unlock()
	n.failPending(ErrClosed, now)
}

func nextBackoff(d time.Duration) time.Duration {
	return min(max(2*d, firstBackoff), maxBackoff)
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout() || errors.Is(err, context.DeadlineExceeded)
}
