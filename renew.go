package redlock

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/d0720281/redlock/internal/attempt"
	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/lockorder"
	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/term"
	"github.com/d0720281/redlock/internal/wire"
)

// This file keeps a lease alive, and ends it on time if the renewals fail. First come the rounds of
// one lease, and then the renewer, which decides when each lease is due.

// round is one extend sent to all nodes, and their answers.
type round struct {
	grant    *grant
	start    instant
	ttl      time.Duration // of the keys, from then on
	shared   bool          // the requests are those of a reader
	counted  int           // nodes that extended the key
	out      int           // nodes that did not, or cannot any more
	answered []bool        // by node
	servers  []string      // of the nodes that were counted
	asks     bool          // the admission counts it
	tally    attempt.Tally
	done     chan struct{} // closed when tally is decided; nil if no call waits for the round
}

// startRoundLocked sends an extend with a TTL to all nodes.
//
// Source: ALGORITHM section 6.
func (g *grant) startRoundLocked(now instant, ttl time.Duration) *round {
	r := &round{grant: g, start: now, ttl: ttl, shared: g.shared, answered: make([]bool, len(g.nodes))}
	reqs := make([]node.Request, len(g.nodes))
	g.pool.admission.Renew()
	r.asks = true
	for i := range reqs {
		g.extendOnLocked(r, &reqs[i], i, now)
	}
	return r
}

// extendOnLocked sends the extend of a round to one node.
func (g *grant) extendOnLocked(r *round, req *node.Request, i int, now instant) {
	*req = node.Request{
		Op: wire.Extend, Node: i, Key: &g.keys,
		Counter: g.nodes[i].counter, Target: g.target, Timeout: g.Timeout(), Shared: r.shared, To: r,
	}
	if r.ttl != g.TTL {
		req.TTL = node.Millis(r.ttl)
	}
	g.noteLocked(i, wire.Extend, errUndecided)
	err := error(node.ErrGone)
	if g.nodes[i].state == keyHeld || !g.foreign { // a foreign lease is not filled: its holder may release it meanwhile
		err = g.pool.nodes[i].Send(req, now)
	}
	if err != nil {
		r.out++
		r.answered[i] = true
		g.noteLocked(i, wire.Extend, err)
	}
}

// Receive implements [node.Receiver].
func (rd *round) Receive(r *node.Request, rep node.Reply) {
	g := rd.grant
	g.mu.Lock()
	after := g.extendedLocked(rd, r.Node, rep)
	g.mu.Unlock()
	run(after)
}

// extendedLocked takes a node's answer to an extend. The caller runs the result after it has
// unlocked the mutex.
//
// Source: ALGORITHM section 6, "Counted" and "Lost now".
func (g *grant) extendedLocked(rd *round, i int, rep node.Reply) (after []func()) {
	p := &g.nodes[i]
	err := rep.Refusal(&g.keys)
	g.noteLocked(i, wire.Extend, err)
	counted := false
	switch missing := rep.Code == wire.Filled || rep.Code == wire.FilledVoteless; {
	case rep.Err != nil: // the node may still hold the key: only the deadline ends that belief
	case missing && p.state != keyNever: // in between, the node may have granted the key to another process
		p.set(false)
		g.forgotLocked(i, rep)
	case rep.Code == wire.Taken && rd.shared != g.shared: // sent before the lease was downgraded, and overtaken
	case rep.Code == wire.Taken, rep.Code == wire.TakenAway, rep.Code == wire.Adopted:
		p.set(false)
	case missing, rep.Code == wire.Kept, rep.Code == wire.KeptVoteless:
		p.set(true)
		p.keepsTo = max(p.keepsTo, g.keyLife(rd.start, rd.ttl))
		twice := rep.Server != "" && slices.Contains(rd.servers, rep.Server)
		if !rep.Voteless() && !twice {
			counted = true
			rd.servers = append(rd.servers, rep.Server)
			g.noteLocked(i, wire.Extend, nil)
		}
	}
	if !g.term.Stands() {
		rd.leave(rep.At)
		return nil
	}
	if counted {
		rd.counted++
	} else {
		rd.out++
	}
	rd.answered[i] = true
	held := 0 // nodes that hold the key, or may hold it as they have not answered yet
	for k := range g.nodes {
		if g.nodes[k].state == keyHeld || !rd.answered[k] {
			held++
		}
	}
	if !exclusive(len(g.nodes), g.pool.need, held) {
		rd.concludeLocked(attempt.Impossible, rep.At)
		return g.endLocked(g.lostQuorumLocked(), g.pool.now())
	}
	return g.judgeRoundLocked(rd)
}

// lostQuorumLocked returns the cause for the end of a lease when too few nodes have its key.
func (g *grant) lostQuorumLocked() error {
	said := func(why error) bool { return g.countLocked(func(p *nodeKey) bool { return p.err == why }) > 0 }
	switch {
	case said(node.ErrAdopted):
		return errLostAdopted
	case said(node.ErrTakenAway):
		return term.ErrBroken
	}
	return errLostQuorum
}

// concludeLocked sets the verdict of the round, and wakes the call that waits for it.
func (rd *round) concludeLocked(v attempt.Tally, now instant) {
	if rd.tally != attempt.Undecided {
		return
	}
	rd.tally = v
	rd.leave(now)
	if rd.done != nil {
		close(rd.done)
	}
}

// leave tells the admission that the round has its answers.
func (rd *round) leave(now instant) {
	if rd.asks {
		rd.asks = false
		rd.grant.pool.admission.Leave(now.Sub(rd.start), rd.grant.Timeout())
	}
}

// forgotLocked is called for a node that lacked the key. If the node should still have had the
// key, that is reported. If the node has a vote all the same, its marker does not show the
// loss: the node is put in quarantine for all clients.
//
// Source: ALGORITHM section 6, "Counted", and section 8, last row of the table.
func (g *grant) forgotLocked(i int, rep node.Reply) {
	n := g.pool.nodes[i]
	switch {
	case !g.term.Stands() || g.pool.now() >= g.nodes[i].keepsTo:
		return
	case n.Standing().Unclear() || g.pool.set.InDoubt():
		return // a clock is in doubt, so the key may have expired
	}
	g.pool.events.keyLost(g, n.Addr())
	if rep.Code == wire.Filled {
		n.Forgot()
	}
}

// judgeRoundLocked decides the round as soon as the answers allow it. A quorum that is
// complete only after the deadline does not revive the lease: in between, another holder may
// have had the resource.
func (g *grant) judgeRoundLocked(rd *round) (after []func()) {
	if rd.tally != attempt.Undecided {
		return nil
	}
	now := g.pool.now()
	v := attempt.Decide(len(g.nodes), g.pool.need, rd.counted, rd.out)
	switch {
	case v == attempt.Undecided:
		return nil
	case v == attempt.Reached && !g.pool.conf.rules.Over(validity(g.term.Deadline(), now) <= 0):
		if rd.done == nil && g.term.Deadline().Sub(now) < g.TTL/2 { // a third of the TTL should have gone by
			g.pool.admission.Hold(g.TTL / 3)
		}
		rd.concludeLocked(attempt.Reached, now)
		g.setDeadlineLocked(rd.start, rd.ttl)
		g.term.Renewed(rd.start)
		g.renewal.count++
		g.renewal.last = nil
		g.pool.events.round(EventExtended, g, nil)
		g.pool.noteRenewal(nil)
		if !g.Manual && rd.done == nil { // the lease lasts, and its holder must hear of a Break; Close ends all leases before it waits for the listeners
			g.pool.listen(g.pool.queueNodeOf(g.resource))
		}
	default:
		rd.concludeLocked(attempt.Impossible, now)
		g.term.Failed(now)
		failed := g.roundErrorLocked(rd)
		g.renewal.last = failed
		g.pool.events.round(EventExtendFailed, g, failed)
		g.pool.noteRenewal(failed)
	}
	return []func(){func() { g.pool.renewer.update(g) }}
}

// extend makes one round for a holder, with a TTL of its own unless ttl is 0. It waits for the
// verdict of the round or the end of the lease.
func (g *grant) extend(ctx context.Context, le *hold, ttl time.Duration) error {
	rd, err := g.beginExtend(le, ttl)
	if err != nil {
		return err
	}
	over := le.context().Done()
	timer := time.NewTimer(g.Timeout())
	defer timer.Stop()
	var reasons []error
	for waits := true; waits; {
		waits = false
		select {
		case <-rd.done:
		case <-over:
			over, waits = nil, le.stands() // Close ends the context of a lease that it keeps
		case <-timer.C:
			reasons = append(reasons, timeoutError(g.Timeout()))
		case <-ctx.Done():
			reasons = append(reasons, reason.OfContext(ctx))
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case rd.tally == attempt.Reached:
		return nil
	case le.over != nil:
		return notHeld("extend", g.resource, le.over)
	}
	return g.roundErrorLocked(rd, reasons...)
}

// stands reports whether the hold has not ended.
func (le *hold) stands() bool {
	le.grant.mu.Lock()
	defer le.grant.mu.Unlock()
	return le.over == nil
}

func (g *grant) beginExtend(le *hold, ttl time.Duration) (rd *round, err error) {
	g.mu.Lock()
	now := g.pool.now()
	after := g.expireLocked(now)
	if le.over != nil {
		err = notHeld("extend", g.resource, le.over)
	} else {
		ttl = cmp.Or(ttl, g.TTL)
		g.keys.Live(ttl + driftAllowance(ttl, g.pool.conf.drift))
		rd = g.startRoundLocked(now, ttl)
		rd.done = make(chan struct{})
		after = g.judgeRoundLocked(rd)
	}
	g.mu.Unlock()
	run(after)
	return rd, err
}

// probe renews the lease at once: after a message that its lock was broken or adopted, or because the queue node of one of
// several resources lacks the key. The message is not believed: the renewal asks the nodes. A lease without renewal learns of a Break by Extend
// alone.
//
// Source: ALGORITHM section 5, "Break".
func (g *grant) probe() {
	g.mu.Lock()
	g.term.Hurry(g.pool.now())
	g.mu.Unlock()
	g.pool.renewer.update(g)
}

// brokenOn notes on which nodes a Break by the lease's own Locker has replaced keys: tokens has the
// token of each, or wire.Readers for the claims of all readers. It ends the lease if its own are too many for a quorum.
//
// Source: ALGORITHM section 5, "Break".
func (g *grant) brokenOn(tokens []string) {
	g.mu.Lock()
	taken := 0
	for i, token := range tokens {
		if token == g.keys.ID || g.shared && token == wire.Readers {
			taken++
			g.nodes[i].set(false)
			g.noteLocked(i, wire.Extend, node.ErrTakenAway)
		}
	}
	var after []func()
	if n := len(tokens); g.term.Stands() && !exclusive(n, g.pool.need, n-taken) {
		after = g.endLocked(term.ErrBroken, g.pool.now())
	}
	g.mu.Unlock()
	run(after)
}

func (g *grant) roundErrorLocked(rd *round, more ...error) *QuorumError {
	failed := func(p *nodeKey) bool { return p.op == wire.Extend && p.err != nil }
	return g.quorumErrorLocked("extend", rd.counted, failed, append([]error{ErrNoQuorum}, more...)...)
}

// check does what is due about the lease at now. It returns when to check again: never for a lease that is over.
func (g *grant) check(now instant) (next instant) {
	g.mu.Lock()
	next, after := g.checkLocked(now)
	g.mu.Unlock()
	run(after)
	return next
}

func (g *grant) checkLocked(now instant) (next instant, after []func()) {
	stood := g.pool.stood()
	switch g.term.Check(now, stood) {
	case term.ToUnlock:
		kept, end := g.holds[0], g.term.KeptUntil(stood)
		// Another caller may have the lease at the next check.
		return now.Add(time.Millisecond), []func(){func() { g.pool.unlockKept(kept, end) }}
	case term.ToEnd:
		after = g.expireLocked(now.Add(g.term.Lead()))
	case term.ToDrop: // other processes may have the resource
		after = []func(){func() { g.sendReleases(now, released) }}
	case term.ToRenew:
		g.reportDroppedLocked()
		after = g.judgeRoundLocked(g.startRoundLocked(now, g.TTL)) // with too many nodes down, the round has failed already
	}
	return g.term.Due(stood), after
}

// dueLocked returns when the renewer must check the lease next.
func (g *grant) dueLocked() instant { return g.term.Due(g.pool.stood()) }

// expireLocked ends the lease if its validity is over at now.
func (g *grant) expireLocked(now instant) (after []func()) {
	if cause := g.term.Expired(now, g.pool.stood()); cause != nil {
		return g.endLocked(g.withLastLocked(cause), now)
	}
	return nil
}

// withLastLocked returns the cause of a lease that ran out, with the verdict on the last renewal if that failed.
func (g *grant) withLastLocked(cause error) error {
	if last := g.renewal.last; last != nil && errors.Is(cause, reason.Expired) {
		return &ranOut{cause, last}
	}
	return cause
}

// endLocked ends the lease. The caller runs the result after it has unlocked the mutex; that
// ends the contexts.
func (g *grant) endLocked(cause error, now instant) (after []func()) {
	wasKept := g.term.Phase() == term.Kept
	g.term.End(cause, now)
	if cause != ErrDetached {
		g.keys.Abandon() // a renewal that is still queued would set keys again
	}
	for _, h := range g.holds {
		if end := h.overLocked(cause); end != nil {
			after = append(after, end)
		}
	}
	g.workedLocked()
	if errors.Is(cause, ErrLost) && !g.foreign {
		if !wasKept { // otherwise the work is done
			g.pool.events.lost(g, cause)
		}
		key := g.key()
		after = append(after, func() { g.pool.lines.Freed(key, g) })
		if g.term.Phase() == term.Broken {
			after = append(after, func() { g.pool.renewer.update(g) })
		}
	}
	return after
}

// renewer watches the time of all leases of a Locker, in one goroutine. It does no I/O, so that
// it ends every lease on time: renewals go through the nodes' queues. Renewals that are due
// together go into one batch for each node.
type renewer struct {
	clock clock.Source
	wake  lockorder.Signal

	mu     lockorder.Mutex[lockorder.Renewer]
	leases leaseHeap // guarded by mu
	next   instant   // guarded by mu; when the goroutine means to wake up
	closed bool      // guarded by mu
}

// maxNap bounds how long the renewer sleeps while there are leases. Timers stand
// still while the machine is suspended; the clock does not.
const maxNap = time.Second

func newRenewer(clock clock.Source) *renewer {
	return &renewer{clock: clock, wake: lockorder.NewSignal(), next: never}
}

// add begins to watch a lease that was granted after since.
func (rn *renewer) add(g *grant, due, since instant) {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	g.renewal.due = due
	heap.Push(&rn.leases, g)
	rn.pokeIfLateLocked(due, since)
}

// update makes the goroutine check a lease at once, after a change to the lease.
func (rn *renewer) update(g *grant) {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	if g.renewal.slot < 0 {
		return // the lease is over
	}
	now := instant(rn.clock.Now())
	g.renewal.due = now
	heap.Fix(&rn.leases, g.renewal.slot)
	rn.pokeIfLateLocked(now, now)
}

// remove stops watching a lease.
func (rn *renewer) remove(g *grant) {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	if g.renewal.slot >= 0 {
		heap.Remove(&rn.leases, g.renewal.slot)
	}
}

// all returns every lease that the renewer watches.
func (rn *renewer) all() []*grant {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	return append([]*grant(nil), rn.leases...)
}

// ends returns how many leases stand at now, and how long the first and the last of them do so
// without a renewal.
func (rn *renewer) ends(now instant) (leases int, first, last time.Duration) {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	for _, g := range rn.leases {
		if left := validity(g.term.Deadline(), now); left > 0 {
			if leases++; leases == 1 {
				first = left
			}
			first, last = min(first, left), max(last, left)
		}
	}
	return leases, first, last
}

// pokeIfLateLocked wakes the goroutine if it would sleep past due. If the clock has jumped over
// the moment at which the goroutine meant to wake up, the timer is not reliable, and the
// goroutine is woken, too.
func (rn *renewer) pokeIfLateLocked(due, now instant) {
	if due < rn.next || rn.next <= now {
		rn.wake.Set()
	}
}

// close ends run.
func (rn *renewer) close() {
	rn.mu.Lock()
	rn.closed = true
	rn.mu.Unlock()
	rn.wake.Set()
}

// run is the renewer's goroutine.
func (rn *renewer) run() {
	timer := time.NewTimer(maxNap)
	defer timer.Stop()
	var due []*grant
	for {
		now := instant(rn.clock.Now())
		var closed bool
		if due, closed = rn.takeDue(due[:0], now); closed {
			return
		}
		for _, g := range due {
			rn.checked(g, g.check(now), now)
		}
		clear(due)
		timer.Reset(rn.nap())
		select {
		case <-timer.C:
		case <-rn.wake:
		}
	}
}

// takeDue returns the leases that are due. They stay in the heap, marked by looked, so that all,
// remove and update find them meanwhile.
func (rn *renewer) takeDue(due []*grant, now instant) (_ []*grant, closed bool) {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	for len(rn.leases) > 0 && rn.leases[0].renewal.due <= now {
		g := rn.leases[0]
		due = append(due, g)
		g.renewal.due = looked(now)
		heap.Fix(&rn.leases, 0)
	}
	return due, rn.closed
}

// looked returns the due time that marks a lease as being checked since now.
func looked(now instant) instant { return now.Add(maxNap) }

// checked notes when a lease that was checked is due next, unless the lease was removed or
// updated meanwhile.
func (rn *renewer) checked(g *grant, next, now instant) {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	switch {
	case g.renewal.slot < 0:
	case next == never:
		heap.Remove(&rn.leases, g.renewal.slot)
	case g.renewal.due == looked(now):
		g.renewal.due = next
		if next <= now { // happens only with wrong rules; the goroutine must not spin even then
			g.renewal.due = now.Add(time.Millisecond)
		}
		heap.Fix(&rn.leases, g.renewal.slot)
	}
}

// nap returns how long the goroutine may sleep.
func (rn *renewer) nap() time.Duration {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	now := instant(rn.clock.Now()) // the checks have taken time
	rn.next = never
	if len(rn.leases) == 0 {
		return time.Hour
	}
	rn.next = min(rn.leases[0].renewal.due, now.Add(maxNap))
	return rn.next.Sub(now)
}

// leaseHeap implements heap.Interface. It is ordered by due.
type leaseHeap []*grant

func (h leaseHeap) Len() int           { return len(h) }
func (h leaseHeap) Less(i, j int) bool { return h[i].renewal.due < h[j].renewal.due }
func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].renewal.slot, h[j].renewal.slot = i, j
}

func (h *leaseHeap) Push(x any) {
	g := x.(*grant)
	g.renewal.slot = len(*h)
	*h = append(*h, g)
}

func (h *leaseHeap) Pop() any {
	last := len(*h) - 1
	g := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	g.renewal.slot = -1
	return g
}
