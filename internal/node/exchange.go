package node

import (
	"cmp"
	"context"
	"errors"
	"net"
	"time"

	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/clockwatch"
	"github.com/d0720281/redlock/internal/resp"
	"github.com/d0720281/redlock/internal/wire"
)

// This file handles exchanges: the requests that are written to a node at once, and the replies. This happens to a request:
//
//  1. Send queues it (node.go, queue.go), and wakes the node's goroutine, which calls write.
//  2. flightLocked takes it from the queue, with others. A request that is too late, or that the node need not have, ends
//     here, by ErrTimeout or ErrUnsent.
//  3. encodeLocked sets its notAfter, and encodes the flight: the join if one is due, the batch as one call of the script,
//     and the tasks.
//  4. receive, in the goroutine of the connection, reads the replies to the oldest flight.
//  5. landed passes the node's clock on, and then puts the whole batch back if the node has carried out nothing of it, or
//     else has takeLocked judge each reply: whether the node has a vote, whether the master refuses, whether a release is
//     repeated (settle.go).
//  6. tell, without the mutex, judges the vote again if another reply has changed the node's standing, and calls Receive of
//     the sender.
//
// If the connection fails in between, dropLinkLocked queues the request once more, or ends it by the error.

// flight is an exchange that is under way.
type flight struct {
	batch  []*Request
	join   *task   // sent before the batch: the client's list of masters; nil for none
	tasks  []*task // sent behind the batch, one after the other
	sent   clockwatch.Moment
	began  clock.Instant
	due    clock.Instant // when to give up the connection
	unsure bool          // the connection may have been dropped on the way: then a missing reply says nothing about the node
}

// outcomes collects the replies and events that are reported after the mutexes were unlocked.
type outcomes struct {
	firsts  []func() // run before the replies are handed out: they change what the replies are judged by
	replies []reply
	calls   []func()
}

type reply struct {
	r        *Request
	rep      Reply
	standing *Standing // by which the vote was judged; nil for none
}

func (o *outcomes) add(r *Request, rep Reply) { o.replies = append(o.replies, reply{r: r, rep: rep}) }
func (o *outcomes) first(f func())            { o.firsts = append(o.firsts, f) }
func (o *outcomes) after(f func())            { o.calls = append(o.calls, f) }

func (o *outcomes) addTask(t *task, err error) {
	o.after(func() { t.done(answers{err: err}) })
}

// tell reports all outcomes of the moment now, and empties the list. If one reply shows that the
// node must not vote, for example because it has lost a key, the later replies are no votes.
func (o *outcomes) tell(n *Node, now clock.Instant) {
	for i, f := range o.firsts {
		o.firsts[i] = nil
		f()
	}
	for i := range o.replies {
		one := o.replies[i]
		o.replies[i] = reply{}
		if present := n.standing.Load(); one.standing != nil && one.standing != present && one.rep.void == nil {
			one.rep.void = present.Void(now, one.r.Op.Wants())
		}
		one.rep.At = now
		one.rep.counts = one.rep.withoutVote() && n.conf.Rules.CountsVoteless
		one.r.To.Receive(one.r, one.rep)
	}
	for i, f := range o.calls {
		o.calls[i] = nil
		f()
	}
	o.firsts, o.replies, o.calls = o.firsts[:0], o.replies[:0], o.calls[:0]
}

// locked calls f under the mutex, and then reports the outcomes.
func (n *Node) locked(f func(out *outcomes)) {
	var out outcomes
	n.mu.Lock()
	f(&out)
	n.mu.Unlock()
	out.tell(n, n.now())
}

// write sends the requests that wait.
func (n *Node) write(now clock.Instant, out *outcomes) {
	n.mu.Lock()
	l := n.link
	if l == nil {
		n.mu.Unlock()
		return
	}
	f := n.flightLocked(now, l, out)
	if f == nil {
		n.mu.Unlock()
		out.tell(n, now)
		return
	}
	n.flights = append(n.flights, f)
	l.out = n.encodeLocked(f, l, l.out[:0])
	arm := len(n.flights) == 1 && (l.armed == clock.Never || f.due < l.armed)
	if arm {
		l.armed = f.due
	}
	n.mu.Unlock()
	out.tell(n, now)
	if arm {
		l.wakeReaderAt(f.due.Sub(now))
	}
	if _, err := l.conn.Write(l.out); err != nil {
		n.broken(l, err, out)
	}
}

// flightLocked returns the next exchange, or nil if there is nothing to send.
func (n *Node) flightLocked(now clock.Instant, l *link, out *outcomes) *flight {
	f := n.newFlightLocked()
	switch {
	case n.Standing().phase != unmarked:
	case n.guard.on:
		n.enterLocked(told)
		f.tasks = append(f.tasks, n.markTask())
	default:
		n.distrustLocked(unmarkable, out)
	}
	if n.ordered(clockwatch.Ask) != 0 {
		f.tasks = append(f.tasks, n.clockTask())
	}
	k := min(len(n.queue.tasks), maxTasks)
	f.tasks = append(f.tasks, n.queue.tasks[:k]...)
	n.queue.tasks = append(n.queue.tasks[:0], n.queue.tasks[k:]...)
	var along func(*Request) bool
	if n.refusal.since != 0 && len(n.queue.lists[acquires]) > 0 {
		along = n.isDoubtful
	}
	f.batch = n.retries.take(f.batch, now, n.conf.Timeout, along)
	f.batch = n.queue.take(f.batch, maxBatch, func(r *Request) error {
		sent := r.Key.traffic[n.index].sent
		switch {
		case r.isRelease() && !sent && r.Process == "", !r.isRelease() && r.Key.abandoned.Load():
			return ErrUnsent // the queue node is told of each end: the process may have its turn there
		case n.isNeedless(r):
			return ErrUnsent
		case !r.isRelease() && now > r.expires():
			return ErrTimeout
		}
		return nil
	}, func(r *Request, why error) { out.add(r, Reply{Err: why}) })
	n.queue.regroup(f.batch)
	if len(f.batch) == 0 && len(f.tasks) == 0 {
		n.free = append(n.free, f)
		return nil
	}
	n.joinLocked(f, l, now)
	f.sent, f.began = n.set.watch.Moment(now), now
	f.due, f.unsure = now.Add(n.conf.Timeout), false
	if now.Sub(l.heard) > idleAfter && len(n.flights) == 0 && !l.fresh {
		f.due, f.unsure = now.Add(max(n.conf.Timeout/4, min(2*n.near.roundTrip(), n.conf.Timeout))), true
	}
	return f
}

func (n *Node) newFlightLocked() *flight {
	if k := len(n.free); k > 0 {
		f := n.free[k-1]
		n.free = n.free[:k-1]
		return f
	}
	return new(flight)
}

// encodeLocked encodes a flight as commands. lua/begin.lua describes the command of the batch.
func (n *Node) encodeLocked(f *flight, l *link, b []byte) []byte {
	median := n.set.watch.Median(f.sent)
	if f.join != nil {
		b = f.join.write(n, l, median, b)
	}
	if len(f.batch) > 0 {
		for _, r := range f.batch {
			r.complete()
			r.sent = f.began
			r.notAfter = n.set.watch.NotAfter(n.index, r.end())
			tr := &r.Key.traffic[n.index]
			tr.sent = true
			if !r.isRelease() {
				tr.denied = notDenied
			}
		}
		groups := groupsOf(f.batch)
		args := 4 + headArgs
		guarded := false
		for g := range groups {
			args += g[0].groupArgs() + len(g)*(1+requestArgs)
			guarded = guarded || g[0].guarded()
		}
		b = resp.AppendCommand(b, args)
		b = l.appendScript(b, &wire.Requests)
		b = resp.AppendInt(b, int64(1+len(f.batch)))
		b = resp.AppendString(b, n.guard.marker)
		for _, r := range f.batch {
			b = resp.AppendString(b, r.Key.Lock)
		}
		proof := ""
		switch {
		case !n.guard.on || !guarded:
		case f.join != nil:
			proof = wire.Joining
		default:
			proof = l.proof
		}
		b = n.appendHead(b, proof, median)
		for g := range groups {
			b = g[0].appendGroup(b, len(g))
			for _, r := range g {
				b = r.append(b)
			}
		}
	}
	for _, t := range f.tasks {
		t.sent = f.sent
		b = t.write(n, l, median, b)
	}
	return b
}

// read is the goroutine that takes the replies of a connection.
func (n *Node) read(l *link) {
	var out outcomes
	var room []Reply
	for {
		err := l.in.Wait()
		if err == nil {
			room, err = n.receive(l, room[:0], &out)
		}
		if err != nil {
			n.broken(l, err, &out)
			return
		}
	}
}

// arrivals is the io.Reader of a node's reader: it reads from the connection, and waits as long
// as the oldest exchange has time. A reply that has arrived in part gets no more time.
type arrivals struct {
	n *Node
	l *link
}

func (a arrivals) Read(b []byte) (int, error) {
	for {
		k, err := a.l.conn.Read(b)
		if k > 0 || !IsTimeout(err) {
			return k, err
		}
		if err := a.n.overdue(a.l, err); err != nil {
			return 0, err
		}
	}
}

// overdue is called when nothing has arrived on a connection by a time. It returns the reason to
// give up the connection, or nil if there is time left.
func (n *Node) overdue(l *link, err error) error {
	now := n.now()
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.link != l: // not in use yet, or no longer
		return err
	case len(n.flights) == 0:
		l.armed = clock.Never
		l.wakeReaderAt(0)
		return nil
	case now < n.flights[0].due:
		l.armed = n.flights[0].due
		l.wakeReaderAt(l.armed.Sub(now))
		return nil
	case l.armed.Missed(now) > 0: // a reply that has arrived is read before the timeout is believed
		l.missed = l.armed.Missed(now)
		l.armed = now.Add(min(l.missed, n.conf.Timeout))
		l.wakeReaderAt(l.armed.Sub(now))
		return nil
	case n.flights[0].unsure:
		return errDropped
	}
	return ErrTimeout
}

// starvedLocked reports that replies have waited in this process for so long, at most once in starvedEvery for all nodes.
func (n *Node) starvedLocked(waited time.Duration, now clock.Instant, out *outcomes) {
	if last := n.set.starved.Load(); clock.Instant(last).Sub(now) <= 0 && n.set.starved.CompareAndSwap(last, int64(now.Add(starvedEvery))) {
		out.after(func() { n.conf.Events.Starved(waited) })
	}
}

const starvedEvery = 10 * time.Second

var errDropped = errors.New("an idle connection was dropped on the way")

// receive takes the reply to the oldest flight. It returns an error of the connection.
func (n *Node) receive(l *link, room []Reply, out *outcomes) ([]Reply, error) {
	n.mu.Lock()
	if n.link != l || len(n.flights) == 0 {
		n.mu.Unlock()
		return room, errUnasked
	}
	f := n.flights[0]
	n.mu.Unlock()
	var micros int64
	var joined any
	var refused error
	var err error
	if f.join != nil {
		if joined, err = l.in.Value(); err != nil {
			return room, err
		}
	}
	if len(f.batch) > 0 {
		if micros, room, refused, err = readBatch(l.in, len(f.batch), room); err != nil {
			return room, err
		}
		for i := range room { // none of which may count for something else
			if room[i].Err == nil && !room[i].Code.Answers(f.batch[i].Op) {
				return room, ErrBadReply
			}
		}
	}
	values := make([][]any, 0, len(f.tasks))
	for _, t := range f.tasks {
		list, err := readValues(l.in, t.replies)
		if err != nil {
			return room, err
		}
		values = append(values, list)
	}
	n.landed(l, f, joined, micros, room, refused, values, out)
	return room, nil
}

var errUnasked = errors.New("a reply that was not asked for")

func readValues(in *resp.Reader, k int) ([]any, error) {
	list := make([]any, 0, k)
	for range k {
		v, err := in.Value()
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

// landed hands out the replies to a flight.
func (n *Node) landed(l *link, f *flight, joined any, micros int64, replies []Reply, refused error, values [][]any, out *outcomes) {
	now := n.now()
	took := now.Sub(f.began)
	n.mu.Lock()
	if n.link != l {
		n.mu.Unlock() // the connection was given up meanwhile, with all its flights
		return
	}
	n.flights = append(n.flights[:0], n.flights[1:]...)
	l.heard, l.fresh = now, false
	if missed := l.missed; missed > 0 {
		l.missed = 0
		n.starvedLocked(missed, now, out)
	}
	n.near.add(took, now)
	n.roundTrip.Store(int64(took))
	var failure, unjoined error
	if f.join != nil {
		unjoined = n.joinedLocked(l, f, joined, now, out)
	}
	if unjoined == ErrStale {
		failure = ErrStale
	}
	switch {
	case Says(unjoined, "NOSCRIPT"): // what the batch did unproved is no vote; an attempt's requests can be repeated
		if Says(refused, "NOSCRIPT") {
			l.knows[&wire.Requests] = false
		}
		for _, r := range f.batch {
			r.resent = true
		}
		n.queue.putBack(f.batch)
	case refused == nil:
		if micros > 0 {
			n.observeLocked(micros, f.sent, now, out)
		}
		disbelieve(f.batch, replies, micros, n.conf.maxAhead())
		failure = cmp.Or(failure, n.takeLocked(l, f, replies, false, now, out))
	case Says(refused, "NOSCRIPT"): // nothing was carried out
		l.knows[&wire.Requests] = false
		n.queue.putBack(f.batch)
	case Says(refused, "UNPROVED"): // nor here: it goes once more, behind a join
		l.proof = ""
		n.queue.putBack(f.batch)
	case len(f.batch) > 1 && IsPermission(refused):
		// The server refuses the whole batch because of one key that the user may not touch.
		for _, r := range f.batch {
			r.alone = true
		}
		n.queue.putBack(f.batch)
	default:
		replies = replies[:0]
		for range f.batch {
			replies = append(replies, Reply{Err: refused})
		}
		failure = n.takeLocked(l, f, replies, true, now, out)
	}
	if failure == nil {
		n.probe.pause = 0
	} else {
		n.dropLinkLocked(failure, now, out)
		n.goDownLocked(failure, now, out)
	}
	for i, t := range f.tasks {
		out.after(func() { t.done(answers{values[i], t.sent, now, nil}) })
	}
	asked := len(f.batch) > 0
	clear(f.batch)
	clear(f.tasks)
	f.batch, f.tasks, f.join = f.batch[:0], f.tasks[:0], nil
	n.free = append(n.free, f)
	more := n.workAtLocked() < clock.Never || n.Standing().phase == suspect || n.closeBy < clock.Never
	n.mu.Unlock()
	if asked {
		n.conf.Events.Asked(n, took, failure)
	}
	out.tell(n, now)
	if more || failure != nil {
		n.wake.Set()
	}
}

// takeLocked turns replies into outcomes. whole says that they are one error, the reply to all
// requests. If the node must not be asked any more over this connection, takeLocked returns the
// reason.
func (n *Node) takeLocked(l *link, f *flight, replies []Reply, whole bool, now clock.Instant, out *outcomes) (failure error) {
	standing := n.standing.Load()
	voidForAll, voidForGrants := standing.Void(now, false), standing.Void(now, true)
	for i, r := range f.batch {
		rep := replies[i]
		answer := rep.Err
		if standing.refused != nil && !r.isRelease() && rep.Err == nil {
			rep = Reply{Err: standing.refused} // even if another holder has the key: waiting does not help
		}
		rep.Server = l.server
		rep.void, rep.votes = voidForAll, standing.VotesIn(now)
		if r.Op.Wants() {
			rep.void = voidForGrants
		}
		switch {
		case rep.void != nil:
		case n.isEarly(r):
			rep.void = ErrEarly
		case rep.votes > 0: // for a client with a larger MaxTTL than the node knows
			rep.void = Quarantine(rep.votes)
		}
		if rep.Err != nil && isUnwritable(rep.Err) {
			failure = rep.Err
		}
		if rep.Err != nil {
			rep.Err = nodeFailure(rep.Err)
		}
		switch {
		case r.isRelease():
			if r.resent && rep.Err == nil && (rep.Code == wire.Gone || rep.Code == wire.Adopted && r.Target == wire.ByHandle) {
				rep.Code = wire.Released // the first release, whose reply was lost, may have done it, and have made the id void
			}
			n.settleLocked(r, rep.Err, now)
		case r.Op.Wants() && rep.HasKey():
			r.Key.traffic[n.index].counter = rep.Counter
		case r.Op == wire.Acquire && rep.Code == wire.Busy && r.Key.traffic[n.index].deadBy == 0: // no request was lost
			r.Key.traffic[n.index].denied = taken
		}
		if r.Op.Wants() {
			n.refusedLocked(r, answer, whole, now)
		}
		out.replies = append(out.replies, reply{r, rep, standing})
	}
	return failure
}

// broken gives up a connection that failed. Requests without a reply may still be carried out.
// They are sent once more on the next connection, unless the node did not answer in time.
func (n *Node) broken(l *link, err error, out *outcomes) {
	now := n.now()
	n.mu.Lock()
	if n.link != l {
		n.mu.Unlock()
		return
	}
	if IsTimeout(err) {
		err = ErrTimeout
	}
	err = n.printable(err)
	if len(n.flights) > 0 && len(n.flights[0].batch) > 0 {
		took := now.Sub(n.flights[0].began)
		out.after(func() { n.conf.Events.Asked(n, took, err) })
	}
	n.dropLinkLocked(err, now, out)
	if err == ErrTimeout {
		n.goDownLocked(err, now, out)
	}
	n.mu.Unlock()
	out.tell(n, now)
	n.wake.Set()
}

// dropLinkLocked ends the connection, and decides which of the requests under way are sent again.
func (n *Node) dropLinkLocked(err error, now clock.Instant, out *outcomes) {
	l := n.link
	if l == nil {
		return
	}
	n.link = nil
	n.linked.Store(false)
	l.close()
	n.enterLocked(cutOff)
	flights := n.flights
	n.flights = nil
	var again []*Request
	for _, f := range flights {
		for _, r := range f.batch {
			tr := &r.Key.traffic[n.index]
			if r.guarded() { // which could set the key
				tr.deadBy = max(tr.deadBy, n.set.watch.DeadBy(n.index, r.end()))
			}
			if err != ErrTimeout && err != ErrClosed && !r.resent && (r.isRelease() || now < r.end()) {
				r.resent, r.sent = true, 0
				again = append(again, r)
				continue
			}
			if r.isRelease() {
				n.settleLocked(r, err, now)
			}
			out.add(r, Reply{Err: err})
		}
		for _, t := range f.tasks {
			if err != ErrTimeout && err != ErrClosed && !t.resent {
				t.resent = true
				n.queue.tasks = append(n.queue.tasks, t)
				continue
			}
			out.addTask(t, err)
		}
	}
	n.queue.putBack(again)
}

// IsTimeout reports whether an error is a timeout.
func IsTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout() || errors.Is(err, context.DeadlineExceeded)
}

// wakeReaderAt makes the reader look at the time after d, or not at all if d is 0.
func (l *link) wakeReaderAt(d time.Duration) {
	var at time.Time
	if d != 0 {
		at = time.Now().Add(max(d, 0))
	}
	_ = l.conn.SetReadDeadline(at) // fails on a connection that is closed, which the reader notices
}
