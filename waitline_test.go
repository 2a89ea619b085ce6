package redlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// stand puts a caller at the end of the line for a resource.
func (t *waitlines) stand(resource string) *caller {
	return t.join(context.Background(), resource, lockConfig{}, time.Now())
}

// atHeadNow reports whether it is the caller's turn.
func (c *caller) atHeadNow() bool { return c.line.first == c }

// wantTurn checks that the callers stand in this order, with the first at the head
// and none else, whichever way the line is followed.
func wantTurn(t *testing.T, callers ...*caller) {
	t.Helper()
	for i, c := range callers {
		if got, want := c.atHeadNow(), i == 0; got != want {
			t.Fatalf("caller %d of %d is at the head: got %v, want %v", i, len(callers), got, want)
		}
	}
	if len(callers) == 0 {
		return
	}
	l := callers[0].line
	var there, back []*caller
	for c := l.first; c != nil; c = c.next {
		there = append(there, c)
	}
	for c := l.rear; c != nil; c = c.ahead {
		back = append(back, c)
	}
	slices.Reverse(back)
	if !slices.Equal(there, callers) || !slices.Equal(back, callers) {
		t.Fatalf("the line has %d callers from the front and %d from the rear, want these %d", len(there), len(back), len(callers))
	}
}

func joinAll(turns *waitlines, resource string, n int) []*caller {
	callers := make([]*caller, n)
	for i := range callers {
		callers[i] = turns.stand(resource)
	}
	return callers
}

// Callers of one resource get their turn in the order they came.
//
// Source: ALGORITHM section 10, "FIFO per resource".
func TestTurns(t *testing.T) {
	t.Run("first come, first served", func(t *testing.T) {
		turns := newTurns()
		for line := joinAll(turns, "r", 5); len(line) > 0; line = line[1:] {
			wantTurn(t, line...)
			turns.leave(line[0])
		}
		if len(turns.lines) != 0 {
			t.Errorf("%d lines are left", len(turns.lines))
		}
	})
	for name, at := range map[string]int{"the head": 0, "the second": 1, "one in the middle": 2, "the last": 4} {
		t.Run(name+" leaves", func(t *testing.T) {
			turns := newTurns()
			line := joinAll(turns, "r", 5)
			gone := line[at]
			turns.leave(gone)
			line = slices.Delete(line, at, at+1)
			wantTurn(t, line...)
			if at > 0 && gone.atHeadNow() {
				t.Error("the one who left got a turn")
			}
			late := turns.stand("r")
			wantTurn(t, append(line, late)...)
		})
	}
	t.Run("all but the head leave", func(t *testing.T) {
		turns := newTurns()
		line := joinAll(turns, "r", 3)
		turns.leave(line[1])
		turns.leave(line[2])
		wantTurn(t, line[0])
		wantTurn(t, line[0], turns.stand("r"))
	})
	t.Run("another resource has a line of its own", func(t *testing.T) {
		turns := newTurns()
		a, b := joinAll(turns, "a", 2), joinAll(turns, "b", 2)
		turns.leave(a[0])
		wantTurn(t, a[1])
		wantTurn(t, b...)
	})
	t.Run("who comes when the line has emptied is at the head", func(t *testing.T) {
		turns := newTurns()
		turns.leave(turns.stand("r"))
		wantTurn(t, turns.stand("r"))
	})
}

// The lines behave as plain lists do while callers come and go, and no line is left over.
func TestTurnsAgainstPlainLists(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		turns := newTurns()
		lists := map[string][]*caller{}
		for range 300 {
			resource := string(rune('a' + rng.IntN(3)))
			list := lists[resource]
			switch {
			case len(list) == 0 || rng.IntN(2) == 0:
				list = append(list, turns.stand(resource))
			default:
				i := rng.IntN(len(list))
				turns.leave(list[i])
				list = slices.Delete(list, i, i+1)
			}
			if lists[resource] = list; len(list) == 0 {
				delete(lists, resource)
			}
			for _, l := range lists {
				wantTurn(t, l...)
			}
			if len(turns.lines) != len(lists) {
				t.Fatalf("seed %d: %d lines, want %d", seed, len(turns.lines), len(lists))
			}
		}
	}
}

// What the head's last attempt ended with is there for all who stand in its line.
func TestLastVerdict(t *testing.T) {
	turns := newTurns()
	last := func(c *caller) *QuorumError { v, _ := turns.last(c); return v }
	fail := func(c *caller, v *QuorumError) {
		turns.failed(c, &failure{err: v, verdict: v}, turns.policy.retryDelay)
	}
	line := joinAll(turns, "r", 2)
	if got := last(line[1]); got != nil {
		t.Errorf("before an attempt: got %v, want none", got)
	}
	first, second := &QuorumError{Op: "first"}, &QuorumError{Op: "second"}
	fail(line[0], first)
	fail(line[0], second)
	turns.leave(line[0])
	if got := last(line[1]); got != second {
		t.Errorf("got %v, want the last one", got)
	}
	turns.leave(line[1])
	if got := last(turns.stand("r")); got != nil {
		t.Errorf("in a new line: got %v, want none", got)
	}
}

// told reports whether a caller has been told to look again, which it then does.
func (c *caller) told() bool {
	select {
	case <-c.wake:
		return true
	default:
		return false
	}
}

// wantAdvice checks what a caller is told to do.
func wantAdvice(t *testing.T, what string, got, want advice) {
	t.Helper()
	if waits := got.wake != nil; waits == (got.ask || got.lease != nil) {
		t.Errorf("%s: got %+v, want something to wait for if there is nothing to do", what, got)
	}
	got.wake = nil
	if got != want {
		t.Errorf("%s: got %+v, want %+v", what, got, want)
	}
}

var (
	park     = advice{}
	askAll   = advice{ask: true, how: strategy{waits: true}}
	askFirst = advice{ask: true, how: strategy{waits: true, queueNodeFirst: true}}
	answered = askAll // to a call
)

func pause(d time.Duration) func(int) time.Duration {
	return func(int) time.Duration { return d }
}

// newTurns are lines with the policy of a Locker.
func newTurns() *waitlines { return &waitlines{policy: &defaultQueuePolicy} }

// refusedBy is the failure of an attempt that a queue node has refused.
func refusedBy(queueNode int, left time.Duration) *failure {
	f := failedWith(queueReply{heard: true, refused: true, left: left})
	f.queueNode, f.queued, f.listens = queueNode, true, true
	return f
}

// deaf is a failure after which the process cannot be called.
func deaf(f *failure) *failure {
	f.listens = false
	return f
}

// failedWith is the failure of an attempt in which a queue node said something.
func failedWith(q queueReply) *failure {
	e := &QuorumError{}
	return &failure{err: e, verdict: e, queue: q}
}

// The head of a line alone asks the nodes, and only while its process does not have the
// resource.
//
// Source: ALGORITHM section 10, "only its head goes to the network".
func TestHeadAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns()
		line := joinAll(turns, "r", 3)
		wantAdvice(t, "the head", turns.look(line[0]), askAll)
		wantAdvice(t, "the second", turns.look(line[1]), park)
		turns.failed(line[0], failedWith(queueReply{}), pause(50*time.Millisecond))
		wantAdvice(t, "the head after a failure", turns.look(line[0]), advice{wait: 50 * time.Millisecond})
		time.Sleep(20 * time.Millisecond)
		wantAdvice(t, "the head a little later", turns.look(line[0]), advice{wait: 30 * time.Millisecond})
		time.Sleep(30 * time.Millisecond)
		wantAdvice(t, "the head when it is time", turns.look(line[0]), askAll)
		turns.look(line[2])

		// The next one goes on from there.
		turns.failed(line[0], failedWith(queueReply{}), pause(50*time.Millisecond))
		turns.leave(line[0])
		if !line[1].told() || line[2].told() {
			t.Error("when the head has left: want the second told, and none else")
		}
		wantAdvice(t, "the second, at the head", turns.look(line[1]), advice{wait: 50 * time.Millisecond})
		time.Sleep(50 * time.Millisecond)
		wantAdvice(t, "the second when it is time", turns.look(line[1]), askAll)

		// It gets the resource. The third has to wait for that.
		g := &grant{resource: "r"}
		turns.held(g, line[1])
		wantAdvice(t, "the third", turns.look(line[2]), park)
		if _, ours := turns.last(line[2]); !ours {
			t.Error("the third: got that another process has the resource, want this process")
		}
		for line[2].told() {
			wantAdvice(t, "the third, told to look", turns.look(line[2]), park)
		}
		time.Sleep(time.Hour)
		wantAdvice(t, "the third, an hour later", turns.look(line[2]), park)
		turns.freed(g)
		if !line[2].told() {
			t.Error("when the resource is free: got the third not told, want it told")
		}
		// Others may have been called: it must not overtake them.
		wantAdvice(t, "the third, at the head", turns.look(line[2]), askFirst)
		turns.leave(line[2])
		if len(turns.lines) != 0 {
			t.Errorf("%d lines are left", len(turns.lines))
		}
	})
}

// A resource that is free again is asked for at once, however long the pause was to be.
func TestFreedEndsThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns()
		g := &grant{resource: "r"}
		c := turns.stand("r")
		turns.failed(c, failedWith(queueReply{}), pause(time.Minute))
		turns.held(g, nil) // by TryLock
		wantAdvice(t, "while the process has it", turns.look(c), park)
		turns.freed(g)
		wantAdvice(t, "when it has not", turns.look(c), askFirst)

		// Also if an attempt has failed meanwhile.
		turns.held(g, nil)
		turns.failed(c, failedWith(queueReply{}), pause(time.Minute))
		turns.freed(g)
		wantAdvice(t, "after another attempt", turns.look(c), askAll)
	})
}

// A promise to be called makes the pause long, but no longer than what is in the way.
//
// Source: ALGORITHM section 10, "A waiting process asks again after".
func TestPatience(t *testing.T) {
	for left, want := range map[time.Duration]time.Duration{
		-time.Millisecond:      time.Second, // without an end
		0:                      time.Millisecond,
		200 * time.Millisecond: 201 * time.Millisecond,
		time.Second:            time.Second,
		time.Hour:              time.Second,
	} {
		least, most := time.Duration(1<<62), time.Duration(0)
		for range 500 {
			d := defaultQueuePolicy.patience(left)
			least, most = min(least, d), max(most, d)
		}
		if least < want*4/5 || most > want*6/5+1 {
			t.Errorf("with %v left: got from %v to %v, want %v by a fifth", left, least, most, want)
		}
		if least > want || most < want {
			t.Errorf("with %v left: got from %v to %v, want it spread about %v", left, least, most, want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns()
		c := turns.stand("r")
		turns.failed(c, refusedBy(0, time.Hour), pause(time.Millisecond))
		if got := turns.look(c); got.ask || got.wait < 800*time.Millisecond || got.wait > 1200*time.Millisecond {
			t.Errorf("in the queue: got %+v, want about a second", got)
		}
		turns.failed(c, deaf(refusedBy(0, time.Hour)), pause(time.Millisecond))
		wantAdvice(t, "that does not hear", turns.look(c), advice{wait: time.Millisecond})
		turns.failed(c, refusedBy(0, time.Millisecond), pause(5*time.Second)) // as with nodes in quarantine
		wantAdvice(t, "in the queue, with a reason to wait longer", turns.look(c), advice{wait: 5 * time.Second})
	})
}

// A process that may keep a holder's renewals from the queue node asks again soon, once, then after
// 120 to 200 ms, and then waits to be called as others do.
//
// Source: ALGORITHM section 10, "elsewhere".
func TestPauseWhereAQuorumIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns()
		c := turns.stand("r")
		elsewhere := failedWith(queueReply{heard: true})
		elsewhere.elsewhere, elsewhere.queued = true, true
		soon, later, called := [2]time.Duration{1, 1}, [2]time.Duration{120, 200}, [2]time.Duration{800, 1200}
		for i, step := range []struct {
			failure *failure
			hears   bool
			want    [2]time.Duration // ms
		}{
			{elsewhere, true, soon}, {elsewhere, true, later}, {elsewhere, true, called}, {elsewhere, true, called},
			{refusedBy(0, -1), true, called}, {elsewhere, true, soon}, {elsewhere, true, later},
			{elsewhere, false, later}, {elsewhere, false, later}, {failedWith(queueReply{}), true, soon}, {elsewhere, false, soon},
		} {
			step.failure.listens = step.hears
			turns.failed(c, step.failure, pause(time.Millisecond))
			if got := turns.look(c); got.ask || got.wait < step.want[0]*time.Millisecond || got.wait > step.want[1]*time.Millisecond {
				t.Errorf("step %d: got %+v, want a pause of %d to %d ms", i, got, step.want[0], step.want[1])
			}
		}
	})
}

// A call of the queue node ends the pause of the head. It is kept while an attempt is under way,
// and it is for the caller that is the head by then.
//
// Source: ALGORITHM section 10, "A call can come while an attempt is under way".
func TestCall(t *testing.T) {
	soon := pause(time.Minute)
	t.Run("without a caller", func(t *testing.T) {
		turns := newTurns()
		turns.call(lineKey{resource: "r"})
		if len(turns.lines) != 0 {
			t.Errorf("lines: got %d, want none", len(turns.lines))
		}
		g := &grant{resource: "r"}
		turns.held(g, nil)
		turns.call(lineKey{resource: "r"})
		c := turns.stand("r")
		wantAdvice(t, "a caller", turns.look(c), park)
		turns.call(lineKey{resource: "r"})
		turns.call(lineKey{resource: "other"})
		if c.told() {
			t.Error("where the process has the resource: got a caller told, want it to wait")
		}
		turns.freed(g)
		wantAdvice(t, "the head", turns.look(c), askFirst)
	})
	t.Run("while the head pauses", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			turns := newTurns()
			line := joinAll(turns, "r", 2)
			turns.look(line[1])
			turns.failed(line[0], refusedBy(0, -1), soon)
			turns.look(line[0])
			turns.call(lineKey{resource: "r"})
			turns.call(lineKey{resource: "r"})
			if !line[0].told() || line[0].told() || line[1].told() {
				t.Error("want the head told, once, and none else")
			}
			wantAdvice(t, "the head", turns.look(line[0]), answered)
			turns.failed(line[0], refusedBy(0, -1), soon)
			if got := turns.look(line[0]); got.ask || got.wait == 0 {
				t.Errorf("the head after it: got %+v, want a pause", got)
			}
		})
	})
	t.Run("while an attempt is under way", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			turns := newTurns()
			c := turns.stand("r")
			wantAdvice(t, "the head", turns.look(c), askAll)
			turns.call(lineKey{resource: "r"})
			turns.failed(c, refusedBy(0, -1), soon)
			wantAdvice(t, "the head after it", turns.look(c), answered)
		})
	})
	t.Run("and the head leaves", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			turns := newTurns()
			line := joinAll(turns, "r", 2)
			turns.failed(line[0], refusedBy(3, -1), soon)
			turns.queued(lineKey{resource: "r"}, 3)
			turns.call(lineKey{resource: "r"})
			if _, queuedAt := turns.leave(line[0]); queuedAt != -1 {
				t.Errorf("got that the process leaves the queue of node %d, want it to stay", queuedAt)
			}
			wantAdvice(t, "the next", turns.look(line[1]), answered)
			turns.call(lineKey{resource: "r"})
			if _, queuedAt := turns.leave(line[1]); queuedAt != 3 {
				t.Errorf("when the last has left: got %d, want the queue of node 3 left", queuedAt)
			}
			wantAdvice(t, "one who comes later", turns.look(turns.stand("r")), askAll)
		})
	})
	t.Run("and the head gives up during the attempt that answers it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			turns := newTurns()
			line := joinAll(turns, "r", 2)
			turns.failed(line[0], refusedBy(0, -1), soon)
			turns.call(lineKey{resource: "r"})
			wantAdvice(t, "the head", turns.look(line[0]), answered)
			turns.leave(line[0])
			wantAdvice(t, "the next", turns.look(line[1]), askAll) // and it does not wait for another call
		})
	})
	t.Run("and the process gets the resource without it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			turns := newTurns()
			line := joinAll(turns, "r", 2)
			turns.look(line[0])
			turns.call(lineKey{resource: "r"})
			g := &grant{resource: "r"}
			turns.held(g, line[0])
			turns.freed(g)
			turns.failed(line[1], failedWith(queueReply{}), soon)
			wantAdvice(t, "the next, after a failure", turns.look(line[1]), advice{wait: time.Minute})
		})
	})
}

// An attempt asks all nodes at once, but the queue node first where other processes are known to
// wait, or where it has just refused. In between it asks all at once again, in case the queue node is wrong.
//
// Source: ALGORITHM section 10, "Free lock" and "Contended".
func TestApproach(t *testing.T) {
	now := pause(0)
	t.Run("one who keeps asking", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			turns := newTurns()
			c := turns.stand("r")
			for round := range 3 {
				wantAdvice(t, "at first, and after a time", turns.look(c), askAll)
				turns.failed(c, deaf(refusedBy(0, -1)), now)
				for range 7 {
					wantAdvice(t, "refused", turns.look(c), askFirst)
					turns.failed(c, deaf(refusedBy(0, -1)), now)
					time.Sleep(99 * time.Millisecond)
				}
				wantAdvice(t, "refused for long", turns.look(c), askFirst)
				turns.failed(c, deaf(refusedBy(0, -1)), now)
				time.Sleep(defaultQueuePolicy.askAllEvery - 7*99*time.Millisecond)
				if round == 0 && defaultQueuePolicy.askAllEvery != 700*time.Millisecond {
					t.Errorf("defaultQueuePolicy.askAllEvery: got %v, want 700ms", defaultQueuePolicy.askAllEvery)
				}
			}
		})
	})
	t.Run("a caller that has not heard of the queue node", func(t *testing.T) {
		turns := newTurns()
		c := turns.stand("r")
		for range 3 {
			wantAdvice(t, "the head", turns.look(c), askAll)
			turns.failed(c, failedWith(queueReply{}), now)
		}
	})
	t.Run("a caller that the queue node has granted, and the others refused", func(t *testing.T) {
		turns := newTurns()
		c := turns.stand("r")
		wantAdvice(t, "at first", turns.look(c), askAll)
		turns.failed(c, failedWith(queueReply{heard: true}), now)
		wantAdvice(t, "after it", turns.look(c), askFirst)
	})
	t.Run("one who is in the queue", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			turns := newTurns()
			c := turns.stand("r")
			for _, want := range []advice{askAll, askFirst, askFirst, askFirst, askFirst} {
				wantAdvice(t, "at the end of a key", turns.look(c), want)
				turns.failed(c, refusedBy(0, 200*time.Millisecond), now)
				time.Sleep(300 * time.Millisecond)
			}
			foreign := refusedBy(0, 50*time.Millisecond)
			foreign.queue.foreign = true
			turns.look(c)
			for _, want := range []advice{askFirst, askFirst, askAll, askFirst} {
				turns.failed(c, foreign, now)
				time.Sleep(300 * time.Millisecond)
				wantAdvice(t, "behind a key of another library", turns.look(c), want)
			}
			turns.call(lineKey{resource: "r"})
			wantAdvice(t, "called", turns.look(c), answered)
		})
	})
	t.Run("where others wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			turns := newTurns()
			turns.hear("r", queueReply{heard: true, others: true}, time.Second)
			c := turns.stand("r")
			wantAdvice(t, "at first", turns.look(c), advice{rest: true})
			turns.rested(c, 0, false)
			time.Sleep(3 * time.Millisecond)
			wait := askFirst
			wait.how.patient = true
			wantAdvice(t, "the first attempt", turns.look(c), wait)
			turns.failed(c, failedWith(queueReply{}), now) // the queue node was too slow
			wait.how.queueNodeFirst = false
			wantAdvice(t, "the second", turns.look(c), wait)
			turns.failed(c, deaf(refusedBy(0, -1)), now)
			wait.how.queueNodeFirst = true
			wantAdvice(t, "refused", turns.look(c), wait)
			turns.call(lineKey{resource: "r"})
			wantAdvice(t, "called", turns.look(c), answered) // which is patience enough
			turns.failed(c, failedWith(queueReply{}), now)
			time.Sleep(time.Second)
			wantAdvice(t, "when it is forgotten", turns.look(c), askAll)
		})
	})
}

// A process that knows that others wait joins the queue without an attempt. It asks again when it has the
// turn, or by its timer, which is later with many processes before it.
//
// Source: ALGORITHM section 10, "How a process waits".
func TestRest(t *testing.T) {
	rested := func(t *testing.T, listening bool) (*waitlines, *caller) {
		turns := newTurns()
		turns.hear("r", queueReply{heard: true, others: true}, time.Minute)
		c := turns.stand("r")
		wantAdvice(t, "at first", turns.look(c), advice{rest: true})
		turns.rested(c, 0, listening)
		if !turns.inQueue(c) {
			t.Error("got that the process is in no queue")
		}
		return turns, c
	}
	wantWait := func(t *testing.T, turns *waitlines, c *caller, least, most time.Duration) {
		t.Helper()
		if got := turns.look(c); got.ask || got.rest || got.wait < least || got.wait > most {
			t.Errorf("got %+v, want a pause of %v to %v", got, least, most)
		}
	}
	line := lineKey{resource: "r"}
	for _, test := range []struct {
		name        string
		place       int
		listening   bool
		least, most time.Duration
	}{
		{"first", 0, true, 250 * time.Millisecond, 250 * time.Millisecond},
		{"third", 2, true, 252 * time.Millisecond, 252 * time.Millisecond},
		{"of many", 1000, true, 350 * time.Millisecond, 350 * time.Millisecond},
		{"one that polls", 0, false, 1, 2*time.Millisecond + time.Microsecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				turns, c := rested(t, test.listening)
				turns.placed(line, test.place, false)
				wantWait(t, turns, c, test.least, test.most)
			})
		})
	}
	t.Run("the reply says that it has the turn", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			turns, c := rested(t, true)
			turns.placed(line, 0, true)
			wantAdvice(t, "then", turns.look(c), answered)
		})
	})
	t.Run("at the end of a key", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			turns, c := rested(t, true)
			turns.placed(line, 0, true)
			turns.look(c)
			turns.failed(c, refusedBy(0, 20*time.Millisecond), pause(time.Microsecond))
			turns.placed(line, 7, false)
			wantWait(t, turns, c, 28*time.Millisecond, 28*time.Millisecond)
		})
	})
	t.Run("the reply comes late", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			turns, c := rested(t, true)
			turns.call(line)
			wantAdvice(t, "called", turns.look(c), answered)
			turns.placed(line, 3, false) // and means nothing to an attempt under way
			turns.leave(c)
			turns.placed(line, 3, false)
		})
	})
}

// What gates say of other processes is kept for a TTL, and not for ever.
func TestCrowds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns()
		say := func(resource string, q queueReply) {
			turns.hear(resource, q, time.Second)
		}
		want := func(what, resource string, want bool) {
			t.Helper()
			if got := turns.crowded(resource); got != want {
				t.Errorf("%s: got %v, want %v", what, got, want)
			}
		}
		want("nothing was heard", "r", false)
		say("r", queueReply{others: true})
		want("a queue node that was not heard", "r", false)
		say("r", queueReply{heard: true, others: true})
		want("others wait", "r", true)
		want("others wait for another resource", "s", false)
		say("r", queueReply{})
		want("a queue node that was not heard since", "r", true)
		time.Sleep(time.Second - 1)
		want("nearly a TTL later", "r", true)
		time.Sleep(time.Nanosecond)
		want("a TTL later", "r", false)
		say("r", queueReply{heard: true, others: true})
		say("r", queueReply{heard: true})
		want("no process waits any more", "r", false)

		for round := range 20 {
			for i := range 1000 {
				say(fmt.Sprint(round, " ", i), queueReply{heard: true, others: true})
			}
			time.Sleep(2 * time.Second)
		}
		if got := len(turns.known.all); got > 2500 {
			t.Errorf("resources remembered: got %d of 1000 at a time, want the old ones forgotten", got)
		}
	})
}

// The place in the queue of a queue node belongs to the process. The process gives it up when its last
// caller leaves, and by the release of a grant that has another queue node.
//
// Source: ALGORITHM section 10; section 13, I11.
func TestQueuePlace(t *testing.T) {
	const queueNode = 2
	queued := func(n int) (*waitlines, []*caller) {
		turns := newTurns()
		line := joinAll(turns, "r", n)
		turns.queued(lineKey{resource: "r"}, queueNode)
		return turns, line
	}
	wantLeft := func(t *testing.T, what string, got, want int) {
		t.Helper()
		if got != want {
			t.Errorf("%s: got the queue of node %d left, want %d", what, got, want)
		}
	}
	t.Run("callers leave", func(t *testing.T) {
		turns, line := queued(3)
		for i, want := range []int{-1, -1, queueNode} {
			_, got := turns.leave(line[[]int{1, 0, 2}[i]])
			wantLeft(t, "leaving", got, want)
		}
		_, got := turns.leave(turns.stand("r"))
		wantLeft(t, "in a new line", got, -1)
	})
	t.Run("another queue node", func(t *testing.T) {
		turns, line := queued(1)
		turns.queued(lineKey{resource: "r"}, 4)
		_, got := turns.leave(line[0])
		wantLeft(t, "leaving", got, 4)
	})
	for ofGrant, want := range map[int]int{queueNode: -1, queueNode + 1: queueNode} {
		turns, line := queued(2)
		g := &grant{resource: "r", queueNode: ofGrant}
		wantLeft(t, "the resource is granted", turns.held(g, line[0]), want)
		turns.freed(g)
		_, got := turns.leave(line[1])
		wantLeft(t, "leaving after it", got, -1)
	}
}

// A line is kept for the grant that the process has, or for callers, and for nothing else.
func TestHeldAndFreed(t *testing.T) {
	turns := newTurns()
	wantLines := func(what string, want int) {
		t.Helper()
		if got := len(turns.lines); got != want {
			t.Fatalf("%s: got %d lines, want %d", what, got, want)
		}
	}
	g, other := &grant{resource: "r"}, &grant{resource: "r"}
	turns.freed(g)
	wantLines("freed and never held", 0)
	turns.held(g, nil)
	wantLines("held", 1)
	turns.freed(other)
	wantLines("another one freed", 1)
	c := turns.stand("r")
	wantAdvice(t, "a caller", turns.look(c), park)
	turns.leave(c)
	wantLines("held, the caller gone", 1)
	turns.freed(g)
	turns.freed(g)
	wantLines("freed", 0)

	// A lease that is lost is still to be noted when the next one is there.
	c = turns.stand("r")
	turns.held(g, nil)
	turns.held(other, c)
	turns.freed(g)
	c = turns.stand("r")
	wantAdvice(t, "with the next lease", turns.look(c), park)
	turns.freed(other)
	wantAdvice(t, "without it", turns.look(c), askFirst)
	turns.leave(c)
	wantLines("at the end", 0)
}

// A pause is a random part of a limit that doubles up to a bound.
//
// Source: distlock, "Retry on Failure".
func TestRetryDelay(t *testing.T) {
	limits := map[int]time.Duration{
		0: 2 * time.Millisecond, 1: 2 * time.Millisecond, 2: 4 * time.Millisecond, 3: 8 * time.Millisecond, 5: 32 * time.Millisecond,
		6: 64 * time.Millisecond, 7: 100 * time.Millisecond, 9: 100 * time.Millisecond, 10: 100 * time.Millisecond,
		64: 100 * time.Millisecond, 1 << 30: 100 * time.Millisecond,
	}
	for failed, limit := range limits {
		least, most := time.Duration(1<<62), time.Duration(0)
		for range 500 {
			d := defaultQueuePolicy.retryDelay(failed)
			least, most = min(least, d), max(most, d)
		}
		if least <= 0 || most > limit+time.Microsecond {
			t.Errorf("after %d failures: got from %v to %v, want above 0 and up to %v", failed, least, most, limit)
		}
		// By chance alone this fails once in 10^62 runs.
		if least > limit/4*3 || most < limit/4 {
			t.Errorf("after %d failures: got from %v to %v, want it spread over %v", failed, least, most, limit)
		}
	}
}

// until ends by whichever comes first, and says which.
func TestUntil(t *testing.T) {
	closed := make(chan struct{})
	close(closed)
	reason := errors.New("shutting down")
	cancelled := func(cause error) func(context.Context) context.Context {
		return func(ctx context.Context) context.Context {
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(time.Second, func() { cancel(cause) })
			return ctx
		}
	}
	for _, test := range []struct {
		name           string
		ctx            func(context.Context) context.Context
		closing, ready chan struct{} // to be closed after a second if they are made here
		closes         int           // 1: closing, 2: ready
		d              time.Duration
		after          time.Duration
		want           []error
	}{
		{name: "ready before", ready: closed},
		{name: "ready before with a pause", ready: closed, d: time.Hour},
		{name: "ready meanwhile", ready: make(chan struct{}), closes: 2, d: time.Hour, after: time.Second},
		{name: "ready meanwhile without a pause", ready: make(chan struct{}), closes: 2, after: time.Second},
		{name: "the pause is over", d: 100 * time.Millisecond, after: 100 * time.Millisecond},
		{name: "the context is cancelled", ctx: cancelled(nil), d: time.Hour, after: time.Second, want: []error{context.Canceled}},
		{name: "the context is cancelled without a pause", ctx: cancelled(nil), after: time.Second, want: []error{context.Canceled}},
		{name: "the context has a cause", ctx: cancelled(reason), d: time.Hour, after: time.Second, want: []error{context.Canceled, reason}},
		{name: "the context has a deadline", ctx: func(ctx context.Context) context.Context {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			t.Cleanup(cancel)
			return ctx
		}, after: 2 * time.Second, want: []error{context.DeadlineExceeded}},
		{name: "the Locker is closed", closing: make(chan struct{}), closes: 1, d: time.Hour, after: time.Second, want: []error{ErrClosed}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if test.ctx != nil {
					ctx = test.ctx(ctx)
				}
				closing, ready := test.closing, test.ready
				switch test.closes { // a bubble does not wait for channels made outside
				case 1:
					closing = make(chan struct{})
					time.AfterFunc(time.Second, func() { close(closing) })
				case 2:
					ready = make(chan struct{})
					time.AfterFunc(time.Second, func() { close(ready) })
				}
				start := time.Now()
				err := until(ctx, closing, ready, test.d)
				if got := time.Since(start); got != test.after {
					t.Errorf("it took %v, want %v", got, test.after)
				}
				if len(test.want) == 0 && err != nil {
					t.Errorf("got %v, want no error", err)
				}
				for _, want := range test.want {
					if !errors.Is(err, want) {
						t.Errorf("got %v, want it to match %v", err, want)
					}
				}
			})
		})
	}
}

// A process pauses after its share of time if it has met a client of another library, or may meet one
// without a sign of it.
//
// Source: ALGORITHM section 10, "Other libraries".
func TestOtherLibrary(t *testing.T) {
	// taken has the process take leases of a length, one after the other, and returns the time from the first
	// to the first pause; 0 if there is none for a minute.
	taken := func(m *memories, lease time.Duration, now time.Time) time.Duration {
		for start := now; now.Sub(start) < time.Minute; {
			if d := m.pause("r", now); d > 0 {
				if d != otherGap {
					t.Errorf("got a pause of %v, want %v", d, otherGap)
				}
				if left := m.pause("r", now.Add(d/2)); left != d-d/2 {
					t.Errorf("in the middle of a pause of %v: got %v more", d, left)
				}
				if again := m.pause("r", now.Add(d)); again != 0 {
					t.Errorf("after a pause: got another one of %v", again)
				}
				return now.Sub(start)
			}
			now = now.Add(lease)
			m.freed("r", now)
		}
		return 0
	}
	whole := func(d, lease time.Duration) time.Duration { return (d + lease - 1) / lease * lease } // leases
	for _, lease := range []time.Duration{time.Millisecond, 30 * time.Millisecond, 2 * time.Second} {
		ours, shared := &memories{}, &memories{emptyPrefix: true}
		now := time.Now()
		if got := taken(ours, lease, now); got != 0 || len(ours.all) != 0 {
			t.Errorf("leases of %v, no other library known: got a pause after %v, want none", lease, got)
		}
		// The first lease begins after a gap, and the share counts from the end of that lease.
		if got, want := taken(shared, lease, now), whole(time.Second, lease)+lease; got != want {
			t.Errorf("leases of %v, empty prefix: got a pause after %v, want %v", lease, got, want)
		}
		now = now.Add(time.Hour)
		for _, m := range []*memories{ours, shared} {
			m.meet("r", now)
			for range 2 { // and again after the pause
				if got, want := taken(m, lease, now), whole(otherShare, lease); got != want {
					t.Errorf("leases of %v, another library met: got a pause after %v, want %v", lease, got, want)
				}
				now = now.Add(time.Second)
			}
		}
		now = now.Add(otherMemory)
		if got := taken(ours, lease, now); got != 0 {
			t.Errorf("leases of %v, another library long ago: got a pause after %v, want none", lease, got)
		}
	}
	// What is old is forgotten.
	m := &memories{emptyPrefix: true}
	for i := range 1000 {
		m.freed(string(rune('a'+i)), time.Now().Add(time.Duration(i)*otherMemory))
	}
	if len(m.all) > 100 {
		t.Errorf("got %d resources remembered, want the late ones", len(m.all))
	}
}
