package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/chaos/history"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
)

// scene has a holder, and a rival that tries to get the resource all the time.
type scene struct {
	*Run
	t      testing.TB
	holder *worker
	lease  *held

	stop  context.CancelFunc
	rival sync.WaitGroup
	turn  sync.Mutex // see alone

}

// opening waits for a lease whose keys are on all nodes: on a quorum, if the lease is not renewed.
func opening(t testing.TB, r *Run, change func(*ClientConfig)) *scene {
	t.Helper()
	s := &scene{Run: r, t: t}
	conf := r.config("holder", nil)
	if change != nil {
		change(&conf)
	}
	c, err := r.Client(conf)
	locktest.Must(t, err)
	s.holder = &worker{Client: c}
	s.hold()
	conf.Name = "rival"
	rival, err := r.Client(conf)
	locktest.Must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	s.stop = stop
	s.rival.Go(func() {
		w := &worker{Client: rival}
		for ctx.Err() == nil {
			s.alone(func() { w.with(ctx, "hot", w.try, func(context.Context, *held) {}) })
			sleep(ctx, 3*time.Millisecond)
		}
		_ = rival.Close()
	})
	t.Cleanup(func() { stop(); s.rival.Wait(); _ = c.Close() })
	redistest.Eventually(t, 10*time.Second, func() bool {
		asked := slices.ContainsFunc(r.History.So(), func(a history.Acquisition) bool { return a.Client == "rival" && a.Return > 0 })
		for _, l := range r.Look(t.Context(), []string{"hot"}, false)[:len(conf.Masters)] {
			asked = asked && (conf.Still || l.Keys["hot"].ID != "")
		}
		return asked
	}, "all masters have the key, and the rival has asked")
	return s
}

// alone calls do while the rival asks for nothing.
func (s *scene) alone(do func()) {
	s.turn.Lock()
	defer s.turn.Unlock()
	do()
}

// hold takes the lease.
func (s *scene) hold() {
	s.t.Helper()
	redistest.Eventually(s.t, 10*time.Second, func() (ok bool) { // a busy machine may miss master timeouts
		var err error
		s.lease, err = s.holder.try("hot")
		return err == nil
	}, "the holder has the lease")
}

// each calls do for some nodes at the same time.
func (s *scene) each(do func(Node) error, nodes ...int) {
	s.t.Helper()
	var g sync.WaitGroup
	for _, i := range nodes {
		g.Go(func() {
			if err := do(s.Cluster.Nodes()[i]); err != nil {
				s.t.Errorf("node %d: %v", i, err)
			}
		})
	}
	g.Wait()
}

// look looks at the lease until it is over, or until the time is up.
func (s *scene) look(long time.Duration) (left time.Duration) {
	for until := s.Now() + long; s.Now() < until; time.Sleep(5 * time.Millisecond) {
		if left = s.lease.Look(); left <= 0 {
			return left
		}
	}
	return left
}

// another reports whether another client has had the lease after a moment.
func (s *scene) another(after time.Duration) bool {
	return slices.ContainsFunc(s.History.So(), func(a history.Acquisition) bool {
		return a.Client != "holder" && a.Held && a.Return > after
	})
}

// next returns the first grant of the resource after a moment.
func (s *scene) next(after time.Duration, within time.Duration) *history.Acquisition {
	s.t.Helper()
	time.Sleep(within) // the rival goes on trying
	s.stop()
	s.rival.Wait()
	for _, a := range s.History.Done {
		if a.Client == "rival" && a.Held && a.Return > after {
			return a
		}
	}
	return nil
}

func restarts(d Data) func(Node) error { return func(n Node) error { return n.Restart(d) } }

// quarantineOf returns the shortest time for which a node that lost its data has no vote.
func quarantineOf(ttl time.Duration) time.Duration { return ttl*102/100 + 100*time.Millisecond }

// A majority is hurt. There are still never two holders, the holder learns of the loss in
// time, and in the end everything works again.
func TestMajorities(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	for _, test := range []struct {
		name     string
		hurt     func(*scene)
		survives bool
		quiet    time.Duration // for this long no client is granted the resource
	}{
		{"killed, and back with their data", func(s *scene) { // row 2
			s.each(Node.Kill, 0, 1, 2)
			s.look(2 * s.TTL)
			s.each(restarts(Kept), 0, 1, 2)
		}, false, processTTL},
		{"all restart empty at once", func(s *scene) { // row 5
			s.each(restarts(Empty), 0, 1, 2, 3, 4)
			s.look(2 * s.TTL)
		}, false, quarantineOf(processTTL)},
		{"hung for less than the validity", func(s *scene) { // rows 15 and 40
			s.each(Node.Pause, 0, 1, 2)
			s.look(s.TTL / 3)
			s.each(Node.Resume, 0, 1, 2)
			s.look(s.TTL)
		}, true, 0},
		{"hung for longer than the TTL", func(s *scene) { // row 16
			s.each(Node.Pause, 0, 1, 2)
			s.look(3 * s.TTL / 2)
			s.each(Node.Resume, 0, 1, 2)
		}, false, processTTL / 2},
		{"all out of reach", func(s *scene) { // row 18; the rival is cut off, too
			s.each(func(n Node) error { return n.Net(masters.Blackhole) }, 0, 1, 2, 3, 4)
			s.look(2 * s.TTL)
			s.each(func(n Node) error { return n.Net(masters.Pass) }, 0, 1, 2, 3, 4)
		}, false, processTTL / 2},
		{"slow for all", func(s *scene) { // row 27
			s.each(func(n Node) error { n.Latency(tooSlow, 0); return nil }, 0, 1, 2, 3, 4)
			s.look(2 * s.TTL)
			s.each(func(n Node) error { n.Latency(0, 0); return nil }, 0, 1, 2, 3, 4)
		}, false, processTTL / 2},
	} {
		t.Run(test.name, func(t *redistest.T) {
			t.Parallel()
			r := processes(t, 5, ProcessOptions{})
			s := opening(t, r, nil)
			began, had := r.Now(), s.lease.Look()
			test.hurt(s)
			left := s.lease.Look()
			if survived := left > 0; survived != test.survives {
				t.Errorf("got %v left, %v; want it to survive: %v", left, context.Cause(s.lease.Lease.Context()), test.survives)
			}
			fence := s.lease.Lease.Fence()
			_ = s.lease.Free(t.Context())
			r.History.Healed = r.Now()
			next := s.next(began, 3*r.TTL)
			switch {
			case next == nil:
				t.Error("no client got the resource when all was well again")
			case next.Fence <= fence:
				redistest.Broken(t, fmt.Sprintf("got fence %d after %d", next.Fence, fence))
			case next.Return < began+min(test.quiet, had):
				t.Errorf("a client got the resource after %v, want it to take %v: the lease had %v left", next.Return-began, test.quiet, had)
			}
			check(t, r)
		})
	}
}

// After a holder is killed, a waiter gets the resource once the keys have expired, within
// the waiter's timer.
//
// Source: SCENARIOS row 49.
func TestKilledHolder(outer *testing.T) {
	t := redistest.Timed(outer)
	if !sharedClock {
		t.Skip("needs a clock that processes share: Linux")
	}
	t.Parallel()
	r := processes(t, 5, ProcessOptions{})
	child, err := r.Child(r.config("client 0", map[string]int{"long": 1}))
	locktest.Must(t, err)
	resource := func() (name string) {
		for _, a := range r.History.So() {
			if a.Held {
				name = a.Resource
			}
		}
		return name
	}
	redistest.Eventually(t, 10*time.Second, func() bool { return resource() != "" }, "the client has a lease")
	locktest.Must(t, child.Kill())
	died := r.Now()
	c, err := r.Client(r.config("next", nil))
	locktest.Must(t, err)
	h, err := (&worker{Client: c}).wait(t.Context())(resource())
	locktest.Must(t, err)
	if took, most := r.Now()-died, r.TTL+r.Rules().Late+1200*time.Millisecond; took > most {
		t.Errorf("the next client got it after %v, want at most %v", took, most)
	}
	if err := errors.Join(h.Free(t.Context()), c.Close()); err != nil {
		t.Error(err)
	}
	check(t, r)
}

// Every fault of a client, in mid-lease, while other clients want the resource.
//
// Source: SCENARIOS rows 34 and 49.
func TestClientFaults(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	if !sharedClock {
		t.Skip("needs a clock that processes share: Linux")
	}
	for _, fault := range ClientFaults {
		t.Run(fault, func(t *redistest.T) {
			t.Parallel()
			r := processes(t, 3, ProcessOptions{})
			p := &people{r: r, list: make([]*Child, 2), born: make([]int, 2)}
			conf := r.config("client 0", map[string]int{"hot": 1, "long": 3, "rival": 2, "line": 2})
			conf.Pause = breath
			for i := range p.list {
				locktest.Must(t, p.start(i, conf))
			}
			holds := func(client string) (n int) {
				for _, a := range r.History.So() {
					if a.Held && a.Client == client {
						n++
					}
				}
				return n
			}
			redistest.Eventually(t, 10*time.Second, func() bool { return holds("client 0.1") > 20 && holds("client 1.1") > 20 }, "both are at work")
			f := history.Fault{Name: fault, On: "client 0", Node: -1, At: r.Now()}
			if err := p.suffer(t.Context(), 0, fault, 3*r.TTL/2, conf); err != nil {
				t.Error(err)
			}
			f.Healed = r.Now()
			r.History.Faults, r.History.Healed = append(r.History.Faults, f), f.Healed
			time.Sleep(r.TTL / 2) // the clients work without a fault
			if err := p.stop(); err != nil {
				t.Error(err)
			}
			time.Sleep(r.Rules().Settled)
			r.Settle(12 * time.Second)
			check(t, r)
			t.Log(Measure(r.History))
		})
	}
}

// A client is stopped in the middle of its work for longer than its lease. A store that
// compares fencing tokens refuses its late write; a store that does not loses updates.
//
// Source: ALGORITHM section 1, "Not promised"; SCENARIOS row 34.
func TestStoppedHolderAtTheStore(outer *testing.T) {
	t := redistest.Timed(outer)
	if !sharedClock {
		t.Skip("needs a clock that processes share: Linux")
	}
	t.Parallel()
	r := processes(t, 3, ProcessOptions{})
	shop := redistest.Masters(t, 1)[0]
	var children []*Child
	for i := range 2 {
		conf := r.config(fmt.Sprint("client ", i), map[string]int{"stock": 2})
		conf.Store, conf.Seed = shop.Addr(), uint64(i)
		c, err := r.Child(conf)
		locktest.Must(t, err)
		children = append(children, c)
	}
	redistest.Eventually(t, 10*time.Second, func() bool { return r.written() > 50 }, "both clients sell")
	var lost []history.Access
	for i := 0; i < 24 && len(lost) == 0; i++ {
		c, name := children[i%2], fmt.Sprint("client ", i%2)
		f := history.Fault{Name: clientStopped, On: name, Node: -1, At: r.Now()}
		locktest.Must(t, c.pause())
		time.Sleep(r.TTL + 400*time.Millisecond) // its lease ends, and the other client sells
		locktest.Must(t, c.resume())
		f.Healed = r.Now()
		r.History.Faults = append(r.History.Faults, f)
		time.Sleep(50 * time.Millisecond) // it writes, if the store takes the write
		r.mu.Lock()
		lost = history.Lost(of(r.Accesses, open))
		r.mu.Unlock()
	}
	for _, c := range children {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	}
	sales := of(r.Accesses, fenced)
	if n := len(history.Lost(sales)); n > 0 || len(history.Stale(sales)) > 0 {
		redistest.Broken(t, fmt.Sprintf("%d lost updates and stale accesses %v at the store that compares tokens", n, history.Stale(sales)))
	}
	if len(lost) == 0 {
		t.Error("the store that takes everything has lost nothing: this proves nothing")
	}
	reads, writes := refused(sales)
	t.Logf("%d reads and writes, %d reads and %d writes refused, 0 updates lost; compared at the write only %d lost; without tokens %d lost",
		len(sales), reads, writes, len(history.Lost(of(r.Accesses, writesFenced))), len(lost))
	check(t, r)
}

// The negative controls that need no switch in the library: each makes two holders, and
// the checker must find them.
//
// Source: ALGORITHM section 13, "Negative controls"; the others are in
// TestControls of test/lock.
func TestProcessControls(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	for _, test := range []struct {
		name   string
		change func(*ClientConfig)
		sin    func(*scene)
	}{
		{"guard off, restarts without data", func(c *ClientConfig) { c.Unsafe = true }, func(s *scene) { s.each(restarts(Empty), 0, 1, 2) }},
		{"guard off, an old copy of the data", func(c *ClientConfig) { c.Unsafe = true }, func(s *scene) { s.each(restarts(Stale), 0, 1, 2) }},
		{"guard off, FLUSHALL", func(c *ClientConfig) { c.Unsafe = true }, func(s *scene) { s.each(does("flushall"), 0, 1, 2, 3, 4) }},
		{"keys deleted by hand", func(*ClientConfig) {}, func(s *scene) { s.each(does("del", redlock.DefaultKeyPrefix+"hot"), 0, 1, 2, 3, 4) }},
		// With the guard, masters take no votes of the second list.
		{"guard off, lists of 3 and 5 masters", func(c *ClientConfig) { c.Masters, c.Unsafe = c.Masters[:3], true }, func(s *scene) {
			conf := s.config("other", nil)
			conf.Unsafe = true
			conf.MaxTTL = s.TTL
			l, err := NewClient(conf, s.Cluster.Masters(), s.Now, s.History.Add, nil)
			locktest.Must(s.t, err)
			s.each(does("del", redlock.DefaultKeyPrefix+"hot"), 2) // as if the holder had not reached it
			s.alone(func() {
				_, _ = (&worker{Client: l}).try("hot") // it may fail, as a key of the rival can be there still
			})
			_ = l.Close()
		}},
	} {
		t.Run(test.name, func(t *redistest.T) {
			t.Parallel()
			redistest.Server(t)
			var found []history.Violation
			for range 6 { // a reply may be late: the rival misses the moment
				c, err := StartProcesses(t.Context(), 5, ProcessOptions{})
				r := begin(t, c, err, 2*processTTL)
				// A renewal would put the keys back, and one that meets a restart begins at once.
				s := opening(t, r, func(c *ClientConfig) { c.Still = true; test.change(c) })
				s.each(Node.Mark, 0, 1, 2)
				if test.name == "guard off, an old copy of the data" {
					s.alone(func() {
						_ = s.lease.Free(t.Context())
						time.Sleep(50 * time.Millisecond) // the release reaches all nodes
						s.each(Node.Mark, 0, 1, 2)        // before the next key is set
						s.hold()
					})
				}
				began := r.Now()
				test.sin(s)
				for s.look(r.TTL/40) > 0 && !s.another(began) {
				}
				s.look(r.TTL / 40)
				_ = s.lease.Free(t.Context())
				s.stop()
				s.rival.Wait()
				found = r.History.Check(history.Rules{})
				if slices.ContainsFunc(found, func(v history.Violation) bool { return v.Rule == "I1" }) &&
					slices.ContainsFunc(found, func(v history.Violation) bool { return v.Rule == "lock" }) {
					return
				}
			}
			t.Errorf("got %v, want two holders to be found by both checks", found)
		})
	}
}

// orders returns every order of the steps of n holders, each of which reads and then
// writes. A step is the number of its holder.
func orders(n int) (list [][]int) {
	done := make([]int, n)
	var order []int
	var extend func()
	extend = func() {
		if len(order) == 2*n {
			list = append(list, slices.Clone(order))
			return
		}
		for holder := range n {
			if done[holder] < 2 {
				done[holder]++
				order = append(order, holder)
				extend()
				order = order[:len(order)-1]
				done[holder]--
			}
		}
	}
	extend()
	return list
}

// inOrder has holders increment a register. Holder i has token i + 1.
func inOrder(t testing.TB, shop string, r register, order []int) (accesses []history.Access) {
	t.Helper()
	var tick time.Duration
	now := func() time.Duration { tick++; return tick }
	s := newStore(shop, "client", now, func(a history.Access) { accesses = append(accesses, a) })
	defer s.client.Close()
	locktest.Must(t, s.client.FlushAll(t.Context()).Err())
	type sale struct {
		value           int64
		began, accepted bool
	}
	sales := make([]sale, len(order)/2)
	calls := 0
	for _, holder := range order {
		switch h := &sales[holder]; {
		case !h.began:
			h.began = true
			h.value, h.accepted = s.read(r, int64(holder+1))
			calls++
		case h.accepted:
			s.write(r, int64(holder+1), h.value)
			calls++
		}
	}
	if len(accesses) != calls {
		t.Fatalf("got %d accesses of %d: the store does not answer", len(accesses), calls)
	}
	return accesses
}

// A store that compares fencing tokens at reads and at writes loses no update, in whatever
// order holders read and write. The control is a store that compares them at the write only:
// it accepts the write of an older holder between the read and the write of a younger one.
// The checker finds that.
//
// Source: ALGORITHM section 7.
func TestStoreOrders(outer *testing.T) {
	t := redistest.Timed(outer)
	redistest.Server(t)
	shop := redistest.Masters(t, 1)[0].Addr()
	lost := make(map[register][][]int)
	for _, r := range registers {
		for _, order := range orders(3) {
			accesses := inOrder(t, shop, r, order)
			gone, stale := history.Lost(accesses), history.Stale(accesses)
			if len(gone) > 0 {
				lost[r] = append(lost[r], order)
			}
			if len(gone) > 0 && len(stale) == 0 && r != open {
				t.Errorf("%s, order %v: got %v lost and nothing stale, want every loss to be found by its tokens, too", r.name, order, gone)
			}
			if r == fenced && len(gone)+len(stale) > 0 {
				t.Errorf("%s, order %v: got lost updates %v and stale accesses %v, want none", r.name, order, gone, stale)
			}
			if r == fenced && !slices.ContainsFunc(accesses, func(a history.Access) bool { return a.Write && a.Accepted && a.Fence == 3 }) {
				t.Errorf("%s, order %v: got the last holder refused, want its write accepted", r.name, order)
			}
		}
	}
	t.Logf("%d orders; %s: %d with a lost update; %s: %d; %s: %d", len(orders(3)),
		fenced.name, len(lost[fenced]), writesFenced.name, len(lost[writesFenced]), open.name, len(lost[open]))
	if len(lost[open]) <= len(lost[writesFenced]) {
		t.Errorf("got %d orders with a lost update without tokens and %d with tokens at the write, want fewer with tokens", len(lost[open]), len(lost[writesFenced]))
	}

	for _, order := range orders(2) {
		got := len(history.Lost(inOrder(t, shop, writesFenced, order))) > 0
		want := slices.Equal(order, []int{0, 1, 0, 1}) || slices.Equal(order, []int{1, 0, 0, 1}) // both read, the older writes, the younger writes
		if got != want {
			t.Errorf("%s, order %v: got an update lost: %v, want %v", writesFenced.name, order, got, want)
		}
	}
}

// An address leads to another server for a while, which is in use and gets its vote, and then to the first server again,
// which does not know what was granted meanwhile. The other masters know that the second server was in use: together with
// a master that the holder could not reach, the first one makes no second holder.
//
// Source: ALGORITHM section 8, "Servers".
func TestNameThatGoesBack(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	r := processes(t, 3, ProcessOptions{})
	spare := redistest.Masters(t, 1)[0]
	nodes := r.Cluster.Nodes()
	moved := nodes[0].(*realNode)
	home := moved.box.Addr()
	var clients [2]*worker
	for i, name := range []string{"a", "b"} {
		c, err := r.Client(r.config(name, nil))
		locktest.Must(t, err)
		defer c.Close()
		clients[i] = &worker{Client: c}
	}
	holder, rival := clients[0], clients[1]
	warm := func() {
		for _, w := range clients {
			if h, err := w.wait(t.Context())("warm"); err == nil {
				_ = h.Free(t.Context())
			}
		}
	}
	warm()
	locktest.Must(t, moved.proxy.Retarget(spare.Addr()))
	// The spare gets its vote: locks stay in use until its quarantine is over.
	for end := time.Now().Add(2 * quarantineOf(r.TTL)); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		warm()
	}
	for range redistest.Rounds(1, 3) {
		if second := rivalAfterReturn(t, holder, rival, moved, nodes[2], home); second != nil {
			redistest.Broken(t, "two holders after the address went back")
		}
		locktest.Must(t, moved.proxy.Retarget(spare.Addr()))
		warm()
	}
	for _, v := range r.History.Check(r.Rules()) {
		if v.Rule == "I1" {
			redistest.Broken(t, v)
		}
	}
}

// rivalAfterReturn has the holder lock while the first address leads to the spare server, lets the
// address lead home again, and returns the rival's lease, or nil if the rival was too late.
func rivalAfterReturn(t testing.TB, holder, rival *worker, moved *realNode, third Node, home string) (second *held) {
	t.Helper()
	locktest.Must(t, third.Net(masters.Refuse))
	var h *held
	redistest.Eventually(t, 10*time.Second, func() (locked bool) { // a key of the try before may have to expire
		var err error
		h, err = holder.try("hot")
		return err == nil
	}, "the holder has its lease, by the spare and the second master")
	locktest.Must(t, third.Net(masters.Pass))
	locktest.Must(t, moved.proxy.Retarget(home))
	for until := time.Now().Add(processTTL); second == nil && h.Look() > 0 && time.Now().Before(until); {
		second, _ = rival.try("hot")
	}
	if second != nil && h.Look() <= 0 { // the holder knew of its loss by then
		_ = second.Free(t.Context())
		second = nil
	}
	if second == nil {
		_ = h.Free(t.Context())
	}
	return second
}
