package redlock

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/wire"
)

// This file gets permits of a semaphore. A permit is a slot, and a slot is an ordinary lease, so exclusion,
// validity and fencing tokens of a permit are those of a lease. The rule here is about the choice: the
// queue node chooses free slots and takes them, and the attempt then asks the other nodes for the same
// slots.
//
// Source: ALGORITHM section 14.

// choice is the part of an attempt for permits at the queue node. It lives as long as the leases of its
// slots: what else the queue node has of the attempt is dropped after them.
type choice struct {
	pool      *pool
	base      string   // name of the semaphore on the nodes
	keys      node.Key // of the semaphore; its id is that of all slots
	config    lockConfig
	start     instant
	queueNode int
	reply     chan node.Reply // has room for the one reply
	failed    []*MasterError  // the queue nodes that could not choose
	parts     atomic.Int32    // slots with leases that are not released yet
	others    []*grant        // of the slots but the first, until the call takes them
}

// acquirePermits makes one attempt. If it fails, releases are on their way to all nodes.
func (p *pool) acquirePermits(ctx context.Context, base string, lc lockConfig, how strategy) (*grant, *failure) {
	if closed(ctx.Done()) {
		return nil, &failure{err: endedBy(ctx)}
	}
	name := lc.line(base).name()
	if err := p.set.Misconfigured(); err != nil {
		return nil, &failure{err: errorf("lock %q: %w: %w", name, ErrNotAcquired, err)}
	}
	if err := p.admission.enter(ctx, p.closing); err != nil {
		return nil, &failure{err: errorf("lock %q: %w: %w", name, ErrNotAcquired, err)}
	}
	began := p.now()
	answered := began
	var c *choice
	var granted, queued, elsewhere bool
	defer func() { // also if a method of ctx panics
		p.admission.leave(answered.Sub(began), lc.timeout())
		if c != nil && !granted {
			c.drop(p.now(), how.waits, queued, elsewhere)
		}
	}()
	now := p.set.AwaitClocks(ctx, p.closing, began, lc.timeout())
	c, rep, over := p.choose(ctx, base, lc, how, now)
	answered = p.now()
	var f *failure
	if rep.Code != wire.Chosen || over != nil {
		f = c.refusedBy(rep, over, how)
	} else {
		if rep.Extra != 0 {
			p.events.permitsDiffer(lc.line(base))
		}
		var first *grant
		if first, f = c.askOthers(ctx, rep, how); f == nil {
			granted = true
			return first, nil
		}
	}
	elsewhere = f.elsewhere
	queued = f.queued && !f.verdict.Permanent() && p.goesOn(ctx, lc.line(base))
	f.queued = queued
	return nil, f
}

// chooserOf returns the node that chooses slots of a semaphore, if those in but cannot. It is the queue
// node. But a node in quarantine may have forgotten which slots are taken, and is chosen only if there is
// no other.
func (p *pool) chooserOf(base string, but []int) int {
	now, voteless := p.now(), slices.Clone(but)
	for i, n := range p.nodes {
		if n.Standing().VotesIn(now) > 0 {
			voteless = append(voteless, i)
		}
	}
	if best := p.queueNodeBut(base, voteless); !slices.Contains(voteless, best) {
		return best
	}
	return p.queueNodeBut(base, but)
}

// choose asks the queue node for slots. If that node fails, or has no vote, choose asks the next one, under
// a new id: a request without an answer may still be carried out. over says that the caller has stopped
// waiting.
func (p *pool) choose(ctx context.Context, base string, lc lockConfig, how strategy, now instant) (c *choice, rep node.Reply, over error) {
	var failed []*MasterError
	var tried []int
	var returned bool // from the methods of ctx, which may panic
	defer func() {
		if !returned && c != nil {
			c.drop(p.now(), false, false, false)
		}
	}()
	for {
		returned = false
		c = &choice{pool: p, base: base, config: lc, start: now, queueNode: p.chooserOf(base, tried), reply: make(chan node.Reply, 1), failed: failed}
		p.initKey(&c.keys, base, lc)
		process := wire.NoProcess
		if how.waits {
			process = p.queuesAs(lc.line(base))
		}
		r := &node.Request{
			Op: wire.Acquire, Node: c.queueNode, Key: &c.keys, Target: p.set.Seed(now, lc.timeout()), Timeout: lc.timeout(),
			Process: process, Permits: lc.permits, First: 1 + rand.N(lc.permits.Of), To: c,
		}
		if err := p.nodes[c.queueNode].Send(r, now); err != nil {
			c.reply <- node.Reply{Err: err}
		}
		select {
		case rep = <-c.reply:
		case <-ctx.Done():
			over = contextError(ctx)
		case <-p.closing:
			over = ErrClosed
		}
		returned = true
		if over != nil {
			return c, rep, over
		}
		refusal := c.refusal(rep)
		if heardFrom(c.queueNode, rep).refused || refusal == nil {
			return c, rep, nil
		}
		c.failed = append(c.failed, p.nodeError(c.queueNode, wire.Acquire.String(), refusal, lc.timeout()))
		tried = append(tried, c.queueNode)
		if slices.Contains(tried, p.chooserOf(base, tried)) {
			return c, rep, nil // there is no other node
		}
		c.drop(p.now(), false, false, false)
		failed, now = c.failed, p.now()
	}
}

// refusal returns why the queue node did not choose, or why its choice is of no use; nil if it is.
func (c *choice) refusal(rep node.Reply) error {
	slot := int(rep.Counter) // that the reply is about, if it is about one
	switch rep.Code {
	case wire.Chosen:
		slot, rep = rep.Slots[0].Number, rep.Slot(0)
	case wire.BadType, wire.Ahead:
	default:
		return rep.Refusal(&c.keys)
	}
	return rep.Refusal(&node.Key{Lock: wire.Slot(c.keys.Lock, slot)})
}

// Receive implements [node.Receiver]. No caller waits for the answers to the releases.
func (c *choice) Receive(r *node.Request, rep node.Reply) {
	if r.Op == wire.Acquire {
		c.reply <- rep
	}
}

// refusedBy returns the failure of an attempt that got no slots from the queue node.
func (c *choice) refusedBy(rep node.Reply, over error, how strategy) *failure {
	f := &failure{queue: heardFrom(c.queueNode, rep)}
	f.queued = how.waits && f.queue.refused
	reason := ErrNoQuorum
	switch {
	case over != nil:
		reason = over
		c.failed = append(c.failed, c.pool.nodeError(c.queueNode, wire.Acquire.String(), nil, c.config.timeout()))
	case f.queue.refused:
		reason = ErrTaken
		c.failed = append(c.failed, c.pool.nodeError(c.queueNode, wire.Acquire.String(), c.refusal(rep), c.config.timeout()))
	}
	e := c.pool.quorumError("lock", c.config.line(c.base).name(), 0, ErrNotAcquired, reason)
	e.Masters = c.failed
	f.err, f.verdict = e, e
	return f
}

// askOthers asks the other nodes for the slots that the queue node has chosen: each slot is an attempt of
// its own, which has the queue node's answer already. It returns the grant of the first slot; the choice
// has the others.
func (c *choice) askOthers(ctx context.Context, rep node.Reply, how strategy) (*grant, *failure) {
	slots, failures := make([]*acquisition, len(rep.Slots)), make([]*failure, len(rep.Slots))
	held := false
	defer func() { // also if a method of ctx panics
		for _, a := range slots {
			if !held && a != nil {
				a.sendReleases(c.pool.now(), false)
			}
		}
	}()
	release := c.pool.set.Hold()
	for i, s := range rep.Slots {
		slots[i] = c.slot(s.Number)
		slots[i].askFrom(c, rep.Slot(i), how)
	}
	release()
	inParallel(len(slots), func(i int) { failures[i] = slots[i].conclude(slots[i].await(ctx)) })
	if i := slices.IndexFunc(failures, func(f *failure) bool { return f != nil }); i >= 0 {
		return nil, failures[i]
	}
	held = true
	c.parts.Store(int32(len(slots)))
	for _, a := range slots[1:] {
		c.others = append(c.others, &a.grant)
	}
	return &slots[0].grant, nil
}

// takeOthers returns the grants of the other slots, to the call that made the attempt. A later holder of
// the first slot, by hand-over, gets none.
func (c *choice) takeOthers() (others []*grant) {
	others, c.others = c.others, nil
	return others
}

// slot returns the attempt for a slot.
func (c *choice) slot(number int) *acquisition {
	a := newAcquisition(c.pool, wire.Slot(c.base, number), c.config)
	a.keys.ID, a.choice = c.keys.ID, c
	return a
}

// askFrom begins the attempt for a slot with the queue node's answer, as if the queue node had been asked
// first.
func (a *acquisition) askFrom(c *choice, rep node.Reply, how strategy) {
	a.mu.Lock()
	a.beginLocked(strategy{waits: how.waits, queueNodeFirst: true}, c.start, c.queueNode)
	a.attempt.step(event{what: begun}, c.start, nil)
	a.mu.Unlock()
	a.keys.AssumeSent(a.pool.nodes[c.queueNode])
	a.Receive(&node.Request{Op: wire.Acquire, Node: c.queueNode, Key: &a.keys, Process: wire.NoProcess}, rep)
}

// drop tells the queue node that the attempt has failed: it drops all slots of the attempt. If rests is
// true, the process goes on waiting, and joins the queue; granted says that the queue node had chosen. If
// rests is false and leaves is true, the process leaves the queue.
func (c *choice) drop(now instant, leaves, rests, granted bool) {
	c.keys.Abandon()
	r := c.release(wire.NoProcess)
	switch process := c.pool.queuesAs(c.config.line(c.base)); {
	case rests:
		r.Op, r.Process = wire.Rest, process
		if granted {
			r.Counter = 1
		}
	case leaves:
		r.Process = process
	}
	_ = c.pool.nodes[c.queueNode].Send(r, now) // Send accepts every release
}

// partReleased notes that the slot of a lease has been released. After the last one the queue node calls
// the next process.
func (c *choice) partReleased(now instant) {
	if c.parts.Add(-1) != 0 {
		return
	}
	_ = c.pool.nodes[c.queueNode].Send(c.release(wire.NoProcess), now)
	if present := c.pool.chooserOf(c.base, nil); present != c.queueNode { // processes may wait there by now
		c.keys.AssumeSent(c.pool.nodes[present])
		r := c.release(wire.NoProcess)
		r.Node = present
		_ = c.pool.nodes[present].Send(r, now)
	}
}

func (c *choice) release(process string) *node.Request {
	return &node.Request{
		Op: wire.Release, Node: c.queueNode, Key: &c.keys, Permits: c.config.permits, Process: process, Timeout: c.config.timeout(), To: c,
	}
}
