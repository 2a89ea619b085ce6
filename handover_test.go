package redlock

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock/internal/line"
	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/wire"
)

// handing is a Locker that holds a resource by one grant, and callers that want it. Its nodes do not
// run: requests stay in their queues.
type handing struct {
	*pool
	g     *grant
	lease *Lease
}

func newHanding(t *testing.T, opts ...Option) *handing {
	t.Helper()
	l, err := New([]string{"10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379"}, opts...)
	must(t, err)
	t.Cleanup(func() { l.pool.shut(ErrClosed); l.pool.deafen() })
	h := &handing{pool: l.pool}
	h.take(t)
	return h
}

// take makes the Locker get the resource by an attempt.
func (h *handing) take(t *testing.T) {
	t.Helper()
	g := new(grant)
	g.init(h.pool, "r", h.conf.lockConfig)
	g.start = h.pool.now()
	g.term.Begin(g.start)
	g.target = 6400
	g.setDeadlineLocked(g.start, g.TTL)
	for _, n := range h.pool.nodes {
		g.keys.AssumeSent(n)
	}
	h.g = g
	h.lease = &Lease{h.grantLease(context.Background(), g, nil, time.Now())}
}

// A lease that has ended before it has a hold gives out a context that has ended, too.
func TestHoldOfALeaseThatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHanding(t)
		h.g.mu.Lock()
		after := h.g.endLocked(ErrLost, h.pool.now())
		late := h.g.newHoldLocked(t.Context())
		h.g.mu.Unlock()
		run(after)
		if lease := (&Lease{late}); !errors.Is(lease.Err(), ErrLost) || !errors.Is(context.Cause(lease.Context()), ErrLost) {
			t.Errorf("got %v and %v, want ErrLost", lease.Err(), context.Cause(lease.Context()))
		}
	})
}

// waiter is a caller that stands in a line.
type waiter struct {
	*caller
	wake <-chan struct{}
}

// caller gets in line as Lock does, after a first look.
func (h *handing) caller(ctx context.Context) waiter {
	lc := h.conf.lockConfig
	c := h.pool.lines.Join(lc.key("r"), call{ctx: ctx, done: ctx.Done(), config: lc, began: time.Now()})
	return waiter{c, h.pool.lines.Look(c).Wake}
}

// told reports whether the caller has been told to look again, which it then does.
func (c waiter) told() bool {
	select {
	case <-c.wake:
		return true
	default:
		return false
	}
}

// crowd pretends that other processes wait, that the grant took 1 ms, was handed over so many times
// and is so old, and that the callers in line were there when it was made, or were not.
func (h *handing) crowd(handed int, waited bool, age time.Duration) {
	h.g.hand.count, h.g.hand.took = handed, time.Millisecond
	if waited {
		h.pool.lines.Freed(h.g.key(), h.g)
		h.pool.lines.Held(h.g.key(), h.g, nil, h.g.queueNode)
	}
	h.pool.lines.Hear(h.g.key(), wire.Word{Heard: true, Others: 1}, time.Minute, 0)
	time.Sleep(age)
}

// wantAdvice checks what a caller is told to do.
func wantAdvice(t *testing.T, what string, got, want line.Advice) {
	t.Helper()
	got.Wake, got.How.Number = nil, 0
	if got != want {
		t.Errorf("%s: got %+v, want %+v", what, got, want)
	}
}

// sent returns how many releases wait to be sent since its last call.
func (h *handing) sent() int {
	releases := 0
	for _, n := range h.pool.nodes {
		for _, r := range n.Unsent() {
			if r.Op == wire.Release {
				releases++
			}
		}
	}
	return releases
}

// A lease goes unchanged to the head of the line, and to no other caller.
//
// Source: ALGORITHM section 10, "Hand-over inside the process".
func TestHandOverConditions(t *testing.T) {
	const ttl = DefaultTTL
	for _, test := range []struct {
		name string
		opts []Option
		do   func(h *handing, c waiter) // before Unlock
		want bool
	}{
		{name: "as it should be", want: true},
		{name: "to a caller of a process that the queue node has called, too", want: true, do: func(h *handing, _ waiter) { h.pool.lines.Call(line.Key{Resource: "r"}, 0) }},
		{name: "to a head that is about to ask", do: func(h *handing, c waiter) {
			h.pool.lines.Freed(h.g.key(), h.g)
			h.pool.lines.Call(line.Key{Resource: "r"}, 0)
			h.pool.lines.Look(c.caller)
			h.pool.lines.Held(h.g.key(), h.g, nil, line.Nowhere) // by TryLock
		}},
		{name: "to a head with other options", do: func(_ *handing, c waiter) { c.Call.config.TTL = time.Second }},
		{name: "to a head with another owner", do: func(_ *handing, c waiter) { c.Call.config.owner = "another" }},
		{name: "to a head whose context has ended", do: func(_ *handing, c waiter) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			c.Call.ctx, c.Call.done = ctx, ctx.Done()
		}},
		{name: "without a caller", do: func(h *handing, c waiter) { h.pool.lines.Leave(c.caller) }},
		{name: "of what another grant of the process has", do: func(h *handing, _ waiter) { h.pool.lines.Held(h.g.key(), &grant{resource: "r"}, nil, line.Nowhere) }},
		{name: "half a TTL after the grant", want: true, do: func(*handing, waiter) { time.Sleep(ttl/2 - 102*time.Millisecond) }},
		{name: "with too little validity left", do: func(*handing, waiter) { time.Sleep(ttl/2 - 102*time.Millisecond + 1) }},
		{name: "renewed, half a TTL after the grant", want: true, do: func(h *handing, _ waiter) {
			time.Sleep(ttl / 2)
			h.g.setDeadlineLocked(h.pool.now(), h.g.TTL)
		}},
		{name: "renewed, more than half a TTL after the grant", do: func(h *handing, _ waiter) {
			time.Sleep(ttl/2 + 1)
			h.g.setDeadlineLocked(h.pool.now(), h.g.TTL)
		}},
		{name: "the last token", want: true, do: func(h *handing, _ waiter) { h.g.hand.count = 62 }},
		{name: "without a token left", do: func(h *handing, _ waiter) { h.g.hand.count = 63 }},
		{name: "the last while others wait", want: true, do: func(h *handing, _ waiter) { h.crowd(15, true, 8*time.Millisecond) }},
		{name: "too many while others wait", do: func(h *handing, _ waiter) { h.crowd(16, true, 8*time.Millisecond) }},
		{name: "in line since the grant, while others wait", want: true, do: func(h *handing, _ waiter) { h.crowd(4, true, time.Second) }},
		{name: "in line after the grant, while others wait", do: func(h *handing, _ waiter) { h.crowd(5, false, 8*time.Millisecond) }},
		{name: "the last token, before that has paid off", want: true, do: func(h *handing, _ waiter) { h.crowd(62, false, 8*time.Millisecond-1) }},
		{name: "without a token left, before that has paid off", do: func(h *handing, _ waiter) { h.crowd(63, false, 8*time.Millisecond-1) }},
		{name: "with a maximum hold near its end", want: true, opts: []Option{WithMaxHold(10 * time.Second)}, do: func(*handing, waiter) {
			time.Sleep(4 * time.Second)
		}},
		{name: "after the deadline", opts: []Option{WithMaxHold(10 * time.Second)}, do: func(h *handing, _ waiter) {
			h.g.term.Shorten(h.pool.now())
		}},
		{name: "of a lease that is lost", do: func(h *handing, _ waiter) { run(h.g.endLocked(errLostQuorum, h.pool.now())) }},
		{name: "of a lease that has another hold", do: func(h *handing, _ waiter) {
			h.lease.reenter(context.Background(), false, true)
		}},
		{name: "of a lease whose other hold was unlocked", want: true, do: func(h *handing, _ waiter) {
			inner, _ := h.lease.reenter(context.Background(), false, true)
			_, _ = h.unlock(h.lease.hold)
			h.lease = &Lease{inner}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHanding(t, test.opts...)
				c := h.caller(context.Background())
				if test.do != nil {
					test.do(h, c)
				}
				for c.told() {
					continue
				}
				if got := h.passToNext(h.lease.hold, h.pool.now()); got != test.want {
					t.Errorf("got %v, want %v", got, test.want)
				}
				if got := c.Call.lease != nil; got != test.want {
					t.Errorf("the caller has a lease: got %v, want %v", got, test.want)
				}
				if test.want && !c.told() {
					t.Error("got the caller not told, want it told")
				}
				if !test.want && h.g.term.Stands() && h.lease.done {
					t.Error("got the lease over, want nothing done")
				}
				if got := h.sent(); got != 0 {
					t.Errorf("releases: got %d, want none yet", got)
				}
			})
		})
	}
}

// If a caller is handed a lease at the moment in which its context ends, it gives the lease back: to
// the next caller, or to the nodes.
func TestHeirGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHanding(t)
		heir, next := h.caller(context.Background()), h.caller(context.Background())
		_, _ = h.unlock(h.lease.hold)
		if heir.Call.lease == nil {
			t.Fatal("got no hand-over")
		}
		h.leave(heir.caller) // as waitFor does when its context has ended
		if next.Call.lease == nil || !next.told() {
			t.Fatal("got no lease for the next caller, want it handed on")
		}
		if (&Lease{heir.Call.lease}).Validity() != 0 || next.Call.lease.fence != heir.Call.lease.fence+1 {
			t.Errorf("got validity %v and fence %d after %d, want none and the next", (&Lease{heir.Call.lease}).Validity(), next.Call.lease.fence, heir.Call.lease.fence)
		}
		h.leave(next.caller)
		if got := h.sent(); got != 3 {
			t.Errorf("releases: got %d, want 3", got)
		}
		if got := h.pool.lines.Count(); got != 0 {
			t.Errorf("%d lines are left", got)
		}
		if (&Lease{next.Call.lease}).Validity() != 0 {
			t.Errorf("validity: got %v, want none", (&Lease{next.Call.lease}).Validity())
		}
	})
}

// A queue node's call is for the resource behind the key prefix.
func TestCalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHanding(t)
		h.pool.called(DefaultKeyPrefix + "s") // no caller wants it
		h.pool.called("")                     // a message that no Locker of ours has sent
		h.release(h.lease.hold, h.pool.now())
		c := h.caller(context.Background())
		h.pool.lines.Failed(c.caller, line.Failure{}, func(int) time.Duration { return time.Minute })
		h.pool.called(DefaultKeyPrefix + "s")
		h.pool.called("r" + DefaultKeyPrefix)
		wantAdvice(t, "a caller, for another resource", h.pool.lines.Look(c.caller), line.Advice{For: time.Minute})
		h.pool.called(DefaultKeyPrefix + "r")
		wantAdvice(t, "a caller", h.pool.lines.Look(c.caller), line.Advice{Step: line.Ask, How: line.Strategy{Waits: true}})
	})
}

// All clients that see the same nodes agree on the queue node of a resource. It moves only when a
// node is down. Each node is the queue node of about as many resources.
//
// Source: ALGORITHM section 10, "The queue node of a resource".
func TestQueueNodeOf(t *testing.T) {
	pools := make([]*pool, 2)
	for i, masters := range [][]string{
		{"10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379", "10.0.0.4:6379", "10.0.0.5:6379"},
		{"10.0.0.4:6379", "10.0.0.5:6379", "10.0.0.3:6379", "10.0.0.1:6379", "10.0.0.2:6379"},
	} {
		l, err := New(masters)
		must(t, err)
		t.Cleanup(func() { l.pool.shut(ErrClosed); l.pool.deafen() })
		pools[i] = l.pool
	}
	const resources = 5000
	var queueNodes [5]int
	first := make([]int, resources)
	name := func(i int) string { return "resource-" + string(rune(i)) }
	for i := range resources {
		first[i] = pools[0].queueNodeOf(name(i))
		queueNodes[first[i]]++
		if a, b := pools[0].nodes[first[i]].Addr(), pools[1].nodes[pools[1].queueNodeOf(name(i))].Addr(); a != b {
			t.Fatalf("%q: got %s with one list and %s with the other", name(i), a, b)
		}
	}
	for node, n := range queueNodes {
		if n < resources/5*8/10 || n > resources/5*12/10 {
			t.Errorf("node %d is the queue node of %d of %d resources, want about a fifth", node, n, resources)
		}
	}
	pools[0].nodes[3].TakeDown()
	var moved [5]int
	for i := range resources {
		queueNode := pools[0].queueNodeOf(name(i))
		switch {
		case queueNode == 3:
			t.Fatalf("%q: got a node that is down", name(i))
		case first[i] == 3:
			moved[queueNode]++
		case queueNode != first[i]:
			t.Fatalf("%q: got node %d, want %d as before", name(i), queueNode, first[i])
		}
	}
	for node, n := range moved {
		if node != 3 && n < queueNodes[3]/4/2 {
			t.Errorf("node %d got %d of %d, want about a quarter", node, n, queueNodes[3])
		}
	}
	for _, n := range pools[0].nodes {
		n.TakeDown()
	}
	pools[0].queueNodeOf("r") // some node, even if all are down
}

// quietEnd is a context that ends without waking those that wait for its end already: they see it
// when they look next.
type quietEnd struct {
	context.Context
	ended atomic.Bool
}

var closedChannel = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (c *quietEnd) Done() <-chan struct{} {
	if c.ended.Load() {
		return closedChannel
	}
	return nil
}

func (c *quietEnd) Err() error {
	if c.ended.Load() {
		return context.Canceled
	}
	return nil
}

// A process that goes on waiting tells the queue node so when it rolls its attempt back. Any other
// end is a release.
//
// Source: ALGORITHM section 10, "rest".
func TestWhoRests(t *testing.T) {
	busy, queued, granted := node.Reply{Code: wire.Busy, Counter: 1, Extra: 5}, node.Reply{Code: wire.Queued, Extra: 5}, node.Reply{Code: wire.Granted, Counter: 64}
	busyElsewhere := node.Reply{Code: wire.Busy, Extra: 5}
	for _, test := range []struct {
		name      string
		queueNode node.Reply // what it answers, if it does
		others    node.Reply
		over      bool // the caller's context has ended
		behind    bool // another caller waits behind it
		try       bool // the attempt is that of a TryLock
		rests     bool
	}{
		{name: "refused by the queue node", queueNode: busy, rests: true},
		{name: "another has been called", queueNode: queued, rests: true},
		{name: "refused by a quorum of the others", queueNode: granted, others: busyElsewhere, rests: true},
		{name: "the nodes are in trouble", queueNode: granted, others: node.Reply{Err: node.ErrTimeout}},
		{name: "nothing was heard of the queue node", queueNode: node.Reply{Err: node.ErrTimeout}, others: busyElsewhere},
		{name: "refused, and the caller gives up", queueNode: busy, over: true},
		{name: "refused, the caller gives up and another goes on", queueNode: busy, over: true, behind: true, rests: true},
		{name: "refused by the queue node, of a TryLock", queueNode: busy, try: true},
		{name: "refused by the others, of a TryLock", queueNode: granted, others: busyElsewhere, try: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHanding(t)
				h.release(h.lease.hold, h.pool.now())
				h.sent()
				p, queueNode := h.pool, h.pool.queueNodeOf("r")
				ctx := &quietEnd{Context: context.Background()}
				if !test.try {
					p.lines.Join(line.Key{Resource: "r"}, call{ctx: ctx, done: ctx.Done(), config: p.conf.lockConfig})
				}
				if test.behind {
					h.caller(context.Background())
				}
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					if _, f := h.attempt(ctx, "r", p.conf.lockConfig, nil, line.Strategy{Waits: !test.try}); f == nil {
						t.Error("got a grant, want none")
					}
				}()
				for over := false; !over; {
					synctest.Wait()
					var asked []*node.Request
					for i := range p.nodes { // the queue node answers first, as the others may decide
						asked = append(asked, p.nodes[(queueNode+i)%len(p.nodes)].Unsent()...)
					}
					for _, r := range asked {
						rep := test.others
						if r.Node == queueNode {
							rep = test.queueNode
							ctx.ended.Store(test.over)
						}
						rep.At = p.now()
						r.To.Receive(r, rep)
					}
					select {
					case <-ended:
						over = true
					case <-time.After(time.Millisecond):
					}
				}
				for i, n := range p.nodes {
					want, who := wire.Release, ""
					counter := int64(0) // of a grant alone: a refusal of the queue node counts the waiters
					if given := map[bool]node.Reply{true: test.queueNode, false: test.others}[i == queueNode]; given.Code == wire.Granted {
						counter = given.Counter
					}
					switch {
					case i != queueNode:
					case test.try:
						who = wire.NoProcess
					default:
						who = p.channel
						if test.rests {
							want = wire.Rest
						}
					}
					sent := n.Unsent()
					if len(sent) != 1 || sent[0].Op != want || sent[0].Process != who || sent[0].Counter != counter {
						t.Errorf("node %d, the queue node is %d: got %+v, want a %v by %q with counter %d", i, queueNode, requests(sent), want, who, counter)
					}
				}
			})
		})
	}
}

// until ends by whichever comes first, and says which.
func TestUntil(t *testing.T) {
	reason := errors.New("shutting down")
	type ends struct {
		cancel         context.CancelCauseFunc
		closing, ready chan struct{}
	}
	cancels := func(cause error) func(ends) { return func(e ends) { e.cancel(cause) } }
	readies := func(e ends) { close(e.ready) }
	for _, test := range []struct {
		name   string
		before bool       // it happens before the call, and not a second later
		what   func(ends) // what happens
		pause  time.Duration
		after  time.Duration
		want   []error
	}{
		{"ready before", true, readies, 0, 0, nil},
		{"ready before with a pause", true, readies, time.Hour, 0, nil},
		{"ready meanwhile", false, readies, time.Hour, time.Second, nil},
		{"ready meanwhile without a pause", false, readies, 0, time.Second, nil},
		{"the pause is over", false, func(ends) {}, 100 * time.Millisecond, 100 * time.Millisecond, nil},
		{"the context is cancelled", false, cancels(nil), time.Hour, time.Second, []error{context.Canceled}},
		{"the context is cancelled without a pause", false, cancels(nil), 0, time.Second, []error{context.Canceled}},
		{"the context has a cause", false, cancels(reason), time.Hour, time.Second, []error{context.Canceled, reason}},
		{"the context has a deadline", false, func(ends) {}, 0, 2 * time.Second, []error{context.DeadlineExceeded}},
		{"the Locker is closed", false, func(e ends) { close(e.closing) }, time.Hour, time.Second, []error{ErrClosed}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
				defer stop()
				ctx, cancel := context.WithCancelCause(ctx)
				e := ends{cancel, make(chan struct{}), make(chan struct{})}
				if test.before {
					test.what(e)
				} else {
					time.AfterFunc(time.Second, func() { test.what(e) })
				}
				start := time.Now()
				err := until(ctx, e.closing, e.ready, test.pause)
				if got := time.Since(start); got != test.after || len(test.want) == 0 && err != nil {
					t.Errorf("got %v after %v, want %v after %v", err, got, test.want, test.after)
				}
				for _, want := range test.want {
					if !errors.Is(err, want) {
						t.Errorf("got %v, want it to match %v", err, want)
					}
				}
				time.Sleep(time.Second) // for what happens later
			})
		})
	}
}

// requests has what requests say, for messages.
func requests(sent []*node.Request) (list []node.Request) {
	for _, r := range sent {
		list = append(list, *r)
	}
	return list
}

// A TAKEN that answers a request of before the downgrade says nothing: the reader's request went before.
// A TAKEN that answers a reader's request ends the lease.
//
// Source: ALGORITHM section 12, "Downgrade".
func TestTakenOfBeforeADowngrade(t *testing.T) {
	for _, late := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			h := newHanding(t)
			for i := range h.g.nodes {
				h.g.nodes[i].state = keyHeld
			}
			round := func() *round {
				h.g.mu.Lock()
				defer h.g.mu.Unlock()
				return h.g.startRoundLocked(h.pool.now(), h.g.TTL)
			}
			rd := round()
			if changed, err := h.lease.share(); !changed || err != nil {
				t.Fatalf("got %v, %v", changed, err)
			}
			if !late {
				rd = round()
			}
			for i := range 2 {
				rd.Receive(&node.Request{Op: wire.Extend, Node: i}, node.Reply{Code: wire.Taken, At: h.pool.now()})
			}
			if lost := errors.Is(h.lease.Err(), ErrLost); lost == late {
				t.Errorf("of before the downgrade: %v; got the lease lost: %v", late, lost)
			}
		})
	}
}

// The release of a reader's lease does not take its process out of the queue: other callers of the process
// may wait there by then. That of a downgraded lease does not either.
func TestReleaseOfAReaderKeepsThePlace(t *testing.T) {
	for _, downgraded := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			h := newHanding(t)
			h.g.name = line.Key{}.Ticket(h.pool.channel)
			if downgraded {
				if _, err := h.lease.share(); err != nil {
					t.Fatal(err)
				}
			} else {
				h.release(h.lease.hold, h.pool.now())
				h.sent()
				lc := h.conf.lockConfig
				lc.shared = true
				g := new(grant)
				g.init(h.pool, "r", lc)
				g.name = line.Key{Shared: true}.Ticket(h.pool.channel)
				for _, n := range h.pool.nodes {
					g.keys.AssumeSent(n)
				}
				h.lease = &Lease{h.grantLease(t.Context(), g, nil, time.Now())}
			}
			h.release(h.lease.hold, h.pool.now())
			named := 0
			for _, n := range h.pool.nodes {
				for _, r := range n.Unsent() {
					if r.Process != "" {
						named++
						if r.Process != wire.NoProcess || !r.Shared {
							t.Errorf("downgraded: %v; got a release by %q, shared %v", downgraded, r.Process, r.Shared)
						}
					}
				}
			}
			if named == 0 {
				t.Error("got no release at the queue node")
			}
		})
	}
}
