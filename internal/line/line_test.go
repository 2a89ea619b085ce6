package line

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock/internal/wire"
)

// lines are lines whose holders know their queue node.
type lines struct{ *Lines[*holder, struct{}] }

type caller = Caller[*holder, struct{}]

type holder struct{ queueNode int }

// newLines are lines with the policy of a Locker.
func newLines() *lines { return &lines{New[*holder, struct{}](&DefaultPolicy, false)} }

// stand puts a caller at the end of the line for a resource.
func (t *lines) stand(resource string) *caller { return t.Join(Key{Resource: resource}, struct{}{}) }

func (t *lines) held(h *holder, c *caller) (queuedAt int) {
	return t.Held(Key{Resource: "r"}, h, c, h.queueNode)
}

func (t *lines) freed(h *holder) { t.Freed(Key{Resource: "r"}, h) }

func (t *lines) hear(resource string, w wire.Word, ttl time.Duration) {
	t.Hear(Key{Resource: resource}, w, ttl, 0)
}

// placed is the word of a queue node that has the rest of the process.
func (t *lines) placed(before int, turn bool) {
	key := Key{Resource: "r"}
	attempts := 0
	if l := t.lines[key]; l != nil {
		attempts = l.attempts
	}
	t.Hear(key, wire.Word{Joined: true, Before: before, Turn: turn, Left: -1}, 0, attempts)
}

// atHeadNow reports whether it is the caller's turn.
func atHeadNow(c *caller) bool { return c.line.first == c }

// wantTurn checks that the callers stand in this order, with the first at the head
// and none else, whichever way the line is followed.
func wantTurn(t *testing.T, callers ...*caller) {
	t.Helper()
	for i, c := range callers {
		if got, want := atHeadNow(c), i == 0; got != want {
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

func joinAll(all *lines, resource string, n int) []*caller {
	callers := make([]*caller, n)
	for i := range callers {
		callers[i] = all.stand(resource)
	}
	return callers
}

// Callers of one resource get their turn in the order they came: the lines behave as plain lists do while callers come
// and go, and no line is left over.
//
// Source: ALGORITHM section 10, "FIFO per resource".
func TestTurns(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		all := newLines()
		lists := map[string][]*caller{}
		for range 300 {
			resource := string(rune('a' + rng.IntN(3)))
			list := lists[resource]
			switch {
			case len(list) == 0 || rng.IntN(2) == 0:
				list = append(list, all.stand(resource))
			default:
				i := rng.IntN(len(list))
				all.Leave(list[i])
				list = slices.Delete(list, i, i+1)
			}
			if lists[resource] = list; len(list) == 0 {
				delete(lists, resource)
			}
			for resource, l := range lists {
				wantTurn(t, l...)
				if n := len(l); all.Waits(Key{Resource: resource}, n) || !all.Waits(Key{Resource: resource}, n-1) || all.Waits(Key{Resource: "none"}, 0) {
					t.Fatalf("seed %d: want more than %d callers in line, and no more than %d", seed, n-1, n)
				}
			}
			if len(all.lines) != len(lists) {
				t.Fatalf("seed %d: %d lines, want %d", seed, len(all.lines), len(lists))
			}
		}
	}
}

// What the head's last attempt ended with is there for all that stand in its line.
func TestLastVerdict(t *testing.T) {
	for _, key := range []Key{{Resource: "r"}, {Resource: "r", Shared: true}, {Resource: "r" + wire.OneOf, Slot: 1}} {
		all := newLines()
		join := func() *caller {
			if key.Slot > 0 {
				return all.JoinAny(key.Resource, struct{}{})
			}
			return all.Join(key, struct{}{})
		}
		want := func(what string, c *caller, want error) {
			t.Helper()
			held, why := all.WhyNot("r")
			if got := all.Standing(c); held || why != want || got.Why != want || got.Behind {
				t.Errorf("%v, %s: got held: %v, %v and %+v, want %v", key, what, held, why, got, want)
			}
		}
		fail := func(c *caller, why error) { all.Failed(c, Failure{Why: why}, DefaultPolicy.RetryDelay) }
		c := join()
		want("before an attempt", c, nil)
		first, second := errors.New("first"), errors.New("second")
		fail(c, first)
		fail(c, second)
		want("after two", c, second)
		all.Leave(c)
		want("in a new line", join(), nil)
	}
	all := newLines()
	all.held(&holder{}, nil)
	c := all.stand("r")
	all.Look(c)
	if held, _ := all.WhyNot("r"); !held || !all.Standing(c).Behind {
		t.Error("while the process has the resource: want it told")
	}
	all.Failed(c, failedWith(wire.Word{}), pause(0))
	if got := all.Standing(c); got.Behind || got.Why == nil {
		t.Errorf("after a failure: got %+v, want the reason alone", got)
	}
}

// told reports whether a caller has been told to look again, which it then does.
func told(c *caller) bool {
	select {
	case <-c.wake:
		return true
	default:
		return false
	}
}

// wantAdvice checks what a caller is told to do.
func wantAdvice(t *testing.T, what string, got, want Advice) {
	t.Helper()
	if waits := got.Wake != nil; waits == (got.Step == Ask || got.Step == Take) {
		t.Errorf("%s: got %+v, want something to wait for if there is nothing to do", what, got)
	}
	got.Wake, got.How.Number = nil, 0
	if got != want {
		t.Errorf("%s: got %+v, want %+v", what, got, want)
	}
}

var (
	park     = Advice{}
	askAll   = Advice{Step: Ask, How: Strategy{Waits: true}}
	rest     = Advice{Step: Rest, How: Strategy{Waits: true}}
	answered = askAll // to a call
)

func pause(d time.Duration) func(int) time.Duration {
	return func(int) time.Duration { return d }
}

var errFailed = errors.New("no lease")

// refusedBy is the failure of an attempt that the queue node has refused, of a process in its queue.
func refusedBy(left time.Duration) Failure {
	f := failedWith(wire.Word{Heard: true, Refused: true, Left: left})
	f.Queued, f.Listens = true, true
	return f
}

// deaf is a failure after which the process cannot be called.
func deaf(f Failure) Failure {
	f.Listens = false
	return f
}

// failedWith is the failure of an attempt in which a queue node said something.
func failedWith(w wire.Word) Failure { return Failure{Why: errFailed, Word: w} }

// The head of a line alone asks the nodes, and only while its process does not have the
// resource.
//
// Source: ALGORITHM section 10, "only its head goes to the network".
func TestHeadAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newLines()
		line := joinAll(all, "r", 3)
		wantAdvice(t, "the head", all.Look(line[0]), askAll)
		wantAdvice(t, "the second", all.Look(line[1]), park)
		all.Failed(line[0], failedWith(wire.Word{}), pause(50*time.Millisecond))
		wantAdvice(t, "the head after a failure", all.Look(line[0]), Advice{For: 50 * time.Millisecond})
		time.Sleep(20 * time.Millisecond)
		wantAdvice(t, "the head a little later", all.Look(line[0]), Advice{For: 30 * time.Millisecond})
		time.Sleep(30 * time.Millisecond)
		wantAdvice(t, "the head when it is time", all.Look(line[0]), askAll)
		all.Look(line[2])

		// The next one goes on from there.
		all.Failed(line[0], failedWith(wire.Word{}), pause(50*time.Millisecond))
		all.Leave(line[0])
		if !told(line[1]) || told(line[2]) {
			t.Error("when the head has left: want the second told, and none else")
		}
		wantAdvice(t, "the second, at the head", all.Look(line[1]), Advice{For: 50 * time.Millisecond})
		time.Sleep(50 * time.Millisecond)
		wantAdvice(t, "the second when it is time", all.Look(line[1]), askAll)

		// It gets the resource. The third has to wait for that.
		g := &holder{}
		all.held(g, line[1])
		wantAdvice(t, "the third", all.Look(line[2]), park)
		if !all.Standing(line[2]).Behind {
			t.Error("the third: got that another process has the resource, want this process")
		}
		for told(line[2]) {
			wantAdvice(t, "the third, told to look", all.Look(line[2]), park)
		}
		time.Sleep(time.Hour)
		wantAdvice(t, "the third, an hour later", all.Look(line[2]), park)
		all.freed(g)
		if !told(line[2]) {
			t.Error("when the resource is free: got the third not told, want it told")
		}
		// Others may have been called: it must not overtake them.
		wantAdvice(t, "the third, at the head", all.Look(line[2]), rest)
		all.Leave(line[2])
		if len(all.lines) != 0 {
			t.Errorf("%d lines are left", len(all.lines))
		}
	})
}

// A promise to be called makes the pause long, but no longer than what is in the way.
//
// Source: ALGORITHM section 10, "A waiting process rests again after".
func TestPatience(t *testing.T) {
	for left, want := range map[time.Duration]time.Duration{
		-time.Millisecond:       time.Second, // without an end
		0:                       time.Millisecond,
		200 * time.Millisecond:  201 * time.Millisecond,
		1399 * time.Millisecond: 1400 * time.Millisecond,
		1400 * time.Millisecond: time.Second,
		time.Hour:               time.Second,
	} {
		if soon := DefaultPolicy.endsSoon(left); soon != (want != time.Second) {
			t.Errorf("with %v left: got that it ends soon: %v", left, soon)
		}
		least, most := time.Duration(1<<62), time.Duration(0)
		for range 500 {
			d := DefaultPolicy.patience(left)
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
		all := newLines()
		c := all.stand("r")
		all.Failed(c, refusedBy(time.Hour), pause(time.Millisecond))
		if got := all.Look(c); got.Step == Ask || got.For < 800*time.Millisecond || got.For > 1200*time.Millisecond {
			t.Errorf("in the queue: got %+v, want about a second", got)
		}
		all.Failed(c, deaf(refusedBy(time.Hour)), pause(time.Millisecond))
		wantAdvice(t, "that does not hear", all.Look(c), Advice{For: time.Millisecond})
		all.Failed(c, refusedBy(time.Millisecond), pause(5*time.Second)) // as with nodes in quarantine
		wantAdvice(t, "in the queue, with a reason to wait longer", all.Look(c), Advice{For: 5 * time.Second})
	})
}

// A process that may keep a holder's renewals from the queue node asks again soon, once, then after
// 120 to 200 ms, and then waits to be called as others do, or until the keys that refused end.
//
// Source: ALGORITHM section 10, "elsewhere".
func TestPauseWhereAQuorumIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newLines()
		c := all.stand("r")
		elsewhere := failedWith(wire.Word{Heard: true})
		elsewhere.Elsewhere, elsewhere.Queued = true, true
		ends := elsewhere
		ends.KeysLeft = 300 * time.Millisecond
		soon, later, called, end := [2]time.Duration{1, 1}, [2]time.Duration{120, 200}, [2]time.Duration{800, 1200}, [2]time.Duration{301, 301}
		for i, step := range []struct {
			failure Failure
			hears   bool
			want    [2]time.Duration // ms
		}{
			{elsewhere, true, soon}, {elsewhere, true, later}, {elsewhere, true, called}, {elsewhere, true, called}, {ends, true, end},
			{refusedBy(-1), true, called}, {ends, true, soon}, {ends, true, later},
			{elsewhere, false, later}, {elsewhere, false, later}, {failedWith(wire.Word{}), true, soon}, {elsewhere, false, soon},
		} {
			step.failure.Listens = step.hears
			all.Failed(c, step.failure, pause(time.Millisecond))
			if got := all.Look(c); got.Step == Ask || got.For < step.want[0]*time.Millisecond || got.For > step.want[1]*time.Millisecond {
				t.Errorf("step %d: got %+v, want a pause of %d to %d ms", i, got, step.want[0], step.want[1])
			}
		}
	})
}

// A call of the queue node ends the pause of the head. It is kept while an attempt is under way,
// and it is for the caller that is the head by then.
//
// Source: ALGORITHM section 10, "Called".
func TestCall(t *testing.T) {
	soon := pause(time.Minute)
	t.Run("without a caller", func(t *testing.T) {
		all := newLines()
		all.Call(Key{Resource: "r"}, 0)
		if len(all.lines) != 0 {
			t.Errorf("lines: got %d, want none", len(all.lines))
		}
		g := &holder{}
		all.held(g, nil)
		all.Call(Key{Resource: "r"}, 0)
		c := all.stand("r")
		wantAdvice(t, "a caller", all.Look(c), park)
		all.Call(Key{Resource: "r"}, 0)
		all.Call(Key{Resource: "other"}, 0)
		if told(c) {
			t.Error("where the process has the resource: got a caller told, want it to wait")
		}
		all.freed(g)
		wantAdvice(t, "the head", all.Look(c), rest)
	})
	t.Run("while the head pauses", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			all := newLines()
			line := joinAll(all, "r", 2)
			all.Look(line[1])
			all.Failed(line[0], refusedBy(-1), soon)
			all.Look(line[0])
			all.Call(Key{Resource: "r"}, 0)
			all.Call(Key{Resource: "r"}, 0)
			if !told(line[0]) || told(line[0]) || told(line[1]) {
				t.Error("want the head told, once, and none else")
			}
			wantAdvice(t, "the head", all.Look(line[0]), answered)
			all.Failed(line[0], refusedBy(-1), soon)
			if got := all.Look(line[0]); got.Step == Ask || got.For == 0 {
				t.Errorf("the head after it: got %+v, want a pause", got)
			}
		})
	})
	t.Run("while an attempt is under way", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			all := newLines()
			c := all.stand("r")
			wantAdvice(t, "the head", all.Look(c), askAll)
			all.Call(Key{Resource: "r"}, 0)
			all.Failed(c, refusedBy(-1), soon)
			wantAdvice(t, "the head after it", all.Look(c), answered)
		})
	})
	t.Run("and the head gives up during the attempt that answers it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			all := newLines()
			line := joinAll(all, "r", 2)
			all.Failed(line[0], refusedBy(-1), soon)
			all.Call(Key{Resource: "r"}, 0)
			wantAdvice(t, "the head", all.Look(line[0]), answered)
			all.Leave(line[0])
			wantAdvice(t, "the next", all.Look(line[1]), askAll) // and it does not wait for another call
		})
	})
}

// In an outage the head makes no attempt, not even if it is called. It looks when its pause is over,
// and again each OutageLook, and otherwise waits for a change.
//
// Source: ALGORITHM section 10, "An outage is an event".
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newLines()
		c := all.stand("r")
		out := failedWith(wire.Word{})
		out.Outage = true
		all.Failed(c, out, pause(time.Millisecond))
		wantAdvice(t, "after a failure", all.Look(c), Advice{For: DefaultPolicy.QueuedDelay})
		all.Call(Key{Resource: "r"}, 0)
		wantAdvice(t, "called", all.Look(c), Advice{For: DefaultPolicy.QueuedDelay})
		time.Sleep(DefaultPolicy.QueuedDelay - 1)
		wantAdvice(t, "just before the end of the pause", all.Look(c), Advice{For: 1})
		time.Sleep(time.Nanosecond)
		look := Advice{For: 10 * time.Second}
		wantAdvice(t, "at the end of the pause", all.Look(c), look)
		time.Sleep(time.Hour)
		all.Call(Key{Resource: "r"}, 0)
		wantAdvice(t, "an hour later, called", all.Look(c), look)
		all.Changed(true, func(string) int { return Nowhere })
		wantAdvice(t, "after a change", all.Look(c), answered)
	})
}

// When a node can be asked that could not before, a head asks at once unless it is in the queue of
// the present queue node. In an outage it asks wherever it is, but only if that would tell anything new.
//
// Source: ALGORITHM section 10, "An outage is an event".
func TestChanged(t *testing.T) {
	const queueNode, former = 2, 1
	for _, test := range []struct {
		name                string
		queuedAt            int
		outage, news, wakes bool
	}{
		{"in no queue", Nowhere, false, false, true},
		{"in the queue of another node", former, false, false, true},
		{"in the queue of the queue node", queueNode, false, false, false},
		{"in the queue of the queue node, with news", queueNode, false, true, false},
		{"an outage, in no queue", Nowhere, true, false, false},
		{"an outage, in the queue of another node", former, true, false, false},
		{"an outage, in the queue of the queue node", queueNode, true, false, false},
		{"an outage, in no queue, with news", Nowhere, true, true, true},
		{"an outage, in the queue of the queue node, with news", queueNode, true, true, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := newLines()
				line := joinAll(all, "r", 2)
				f := failedWith(wire.Word{})
				f.Outage = test.outage
				all.Failed(line[0], f, pause(time.Minute))
				all.Queued(Key{Resource: "r"}, test.queuedAt)
				all.Look(line[0])
				all.Look(line[1])
				all.Changed(test.news, func(string) int { return queueNode })
				want := Advice{For: time.Minute}
				if test.wakes {
					want = askAll
				}
				if got := told(line[0]); got != test.wakes || told(line[1]) {
					t.Errorf("got the head told: %v, want %v, and none else", got, test.wakes)
				}
				wantAdvice(t, "the head", all.Look(line[0]), want)
			})
		})
	}
	t.Run("while the process has the resource", func(t *testing.T) {
		all := newLines()
		all.held(&holder{}, nil)
		c := all.stand("r")
		all.Look(c)
		if all.Changed(true, func(string) int { return queueNode }); told(c) {
			t.Error("got the head told, want it to wait")
		}
	})
}

// An attempt asks all nodes at once. Where the queue node knows which process is next, the queue node alone is asked, by a
// rest. In between all are asked again, in case its key is that of an attempt which is over.
//
// Source: ALGORITHM section 10, "Contended".
func TestApproach(t *testing.T) {
	now := pause(0)
	t.Run("a process that polls", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			all := newLines()
			c := all.stand("r")
			wantAdvice(t, "at first", all.Look(c), askAll)
			all.Failed(c, deaf(refusedBy(-1)), now)
			for n := 2; n < 40; n++ {
				want := rest
				if n == 17 || n == 33 {
					want = askAll
				}
				time.Sleep(100 * time.Millisecond)
				wantAdvice(t, "refused", all.Look(c), want)
				if want == rest {
					all.Rested(c, 0, false)
					wantAdvice(t, "before the answer", all.Look(c), Advice{For: DefaultPolicy.RestDelay})
					all.Hear(c.Key(), wire.Word{Joined: true, Left: -1}, 0, c.line.attempts)
				} else {
					all.Failed(c, deaf(refusedBy(-1)), now)
				}
			}
		})
	})
	t.Run("a process in the queue", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			all := newLines()
			c := all.stand("r")
			wantAdvice(t, "at first", all.Look(c), askAll)
			for _, left := range []time.Duration{200 * time.Millisecond, time.Hour, 50 * time.Millisecond} {
				want := rest
				if left == time.Hour {
					want = askAll
				}
				all.Failed(c, refusedBy(left), now)
				time.Sleep(1200 * time.Millisecond)
				wantAdvice(t, "after an end", all.Look(c), want)
			}
			all.Call(Key{Resource: "r"}, 0)
			wantAdvice(t, "called", all.Look(c), answered)
		})
	})
	t.Run("where others wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			all := newLines()
			all.hear("r", wire.Word{Heard: true, Others: 1}, time.Second)
			c := all.stand("r")
			wantAdvice(t, "at first", all.Look(c), rest)
			all.Rested(c, 0, false)
			time.Sleep(DefaultPolicy.RestDelay) // the queue node was too slow
			wait := askAll
			wait.How.Patient = true
			wantAdvice(t, "the first attempt", all.Look(c), wait)
			all.Failed(c, failedWith(wire.Word{}), now)
			wantAdvice(t, "the second", all.Look(c), wait)
			all.Failed(c, deaf(refusedBy(-1)), now)
			wantAdvice(t, "refused", all.Look(c), rest)
			all.Call(Key{Resource: "r"}, 0)
			wantAdvice(t, "called", all.Look(c), answered) // which is patience enough
			all.Failed(c, failedWith(wire.Word{}), now)
			time.Sleep(time.Second)
			wantAdvice(t, "when it is forgotten", all.Look(c), askAll)
		})
	})
}

// A process that knows that others wait joins the queue without an attempt. It asks again when it has the
// turn, or by its timer, which is later with many processes before it.
//
// Source: ALGORITHM section 10, "How a process waits".
func TestRest(t *testing.T) {
	rested := func(t *testing.T, listening bool) (*lines, *caller) {
		all := newLines()
		all.hear("r", wire.Word{Heard: true, Others: 1}, time.Minute)
		c := all.stand("r")
		wantAdvice(t, "at first", all.Look(c), Advice{Step: Rest, How: Strategy{Waits: true}})
		all.Rested(c, 0, listening)
		if !all.Standing(c).Queued {
			t.Error("got that the process is in no queue")
		}
		return all, c
	}
	wantWait := func(t *testing.T, all *lines, c *caller, least, most time.Duration) {
		t.Helper()
		if got := all.Look(c); got.Step != Wait || got.For < least || got.For > most {
			t.Errorf("got %+v, want a pause of %v to %v", got, least, most)
		}
	}
	line := Key{Resource: "r"}
	for _, test := range []struct {
		name        string
		place       int
		left        time.Duration
		listening   bool
		least, most time.Duration
		next        Step
	}{
		{"first", 0, 20 * time.Millisecond, true, 21 * time.Millisecond, 21 * time.Millisecond, Rest},
		{"third", 2, 20 * time.Millisecond, true, 23 * time.Millisecond, 23 * time.Millisecond, Rest},
		{"of many", 1000, 20 * time.Millisecond, true, 121 * time.Millisecond, 121 * time.Millisecond, Rest},
		{"of many, and the end is not known", 1000, -1, true, 350 * time.Millisecond, 350 * time.Millisecond, Ask},
		{"a process that polls", 0, 20 * time.Millisecond, false, 1, 2*time.Millisecond + time.Microsecond, Rest},
		{"no queue", -1, -1, true, 1, 2*time.Millisecond + time.Microsecond, Ask},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all, c := rested(t, test.listening)
				all.Hear(line, wire.Word{Joined: true, Before: test.place, Left: test.left}, 0, c.line.attempts)
				wantWait(t, all, c, test.least, test.most)
				time.Sleep(test.most)
				if got := all.Look(c); got.Step != test.next {
					t.Errorf("then: got %+v, want step %d", got, test.next)
				}
			})
		})
	}
	t.Run("the end comes sooner than the refusal said", func(t *testing.T) { // of several keys, that of another one
		synctest.Test(t, func(t *testing.T) {
			all, c := rested(t, true)
			all.Call(line, 0)
			all.Look(c)
			all.Failed(c, refusedBy(time.Second), pause(time.Microsecond))
			wantWait(t, all, c, time.Second, time.Second+time.Millisecond)
			all.Hear(line, wire.Word{Joined: true, Left: 30 * time.Millisecond}, 0, c.line.attempts)
			if !told(c) {
				t.Error("got the caller not told, want it told")
			}
			wantWait(t, all, c, 31*time.Millisecond, 31*time.Millisecond)
		})
	})
	t.Run("the reply says that it has the turn", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			all, c := rested(t, true)
			all.placed(0, true)
			wantAdvice(t, "then", all.Look(c), answered)
		})
	})
	t.Run("at the end of a key", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			all, c := rested(t, true)
			all.placed(0, true)
			all.Look(c)
			all.Failed(c, refusedBy(20*time.Millisecond), pause(time.Microsecond))
			all.placed(7, false)
			wantWait(t, all, c, 28*time.Millisecond, 28*time.Millisecond)
		})
	})
	for before, want := range map[int]time.Duration{3: 300 * time.Millisecond, 4: time.Minute + 4*time.Millisecond} {
		t.Run(fmt.Sprintf("%d before it may be stopped", before), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all, c := rested(t, true)
				all.Failed(c, refusedBy(-1), pause(time.Minute))
				all.placed(before, false)
				wantWait(t, all, c, want, want)
			})
		})
	}
	t.Run("a process before it does not come", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			all, c := rested(t, true)
			all.Failed(c, refusedBy(-1), pause(time.Minute))
			for n := 3; n < 40; n++ { // attempts and rests
				all.placed(1, false)
				time.Sleep(time.Second)
				want := Rest
				if n == 17 || n == 33 {
					want = Ask
				}
				next := all.Look(c)
				if next.Step != want {
					t.Errorf("step %d: got %+v, want step %d", n, next, want)
				}
				if next.Step == Rest {
					all.Rested(c, 0, true)
				} else {
					all.Failed(c, refusedBy(-1), pause(time.Minute))
				}
			}
		})
	})
	t.Run("the reply comes after a further attempt", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			all, c := rested(t, true)
			all.Call(line, 0)
			wantAdvice(t, "called", all.Look(c), answered)
			all.Failed(c, refusedBy(-1), pause(time.Minute))
			all.Hear(line, wire.Word{Joined: true, Turn: true}, 0, 0) // the turn that it had
			if got := all.Look(c); got.Step != Wait || got.For == 0 {
				t.Errorf("got %+v, want a pause", got)
			}
			all.Hear(line, wire.Word{Joined: true, Turn: true}, 0, 1)
			wantAdvice(t, "the turn that it has", all.Look(c), answered)
		})
	})
	t.Run("the reply comes late", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			all, c := rested(t, true)
			all.Call(line, 0)
			wantAdvice(t, "called", all.Look(c), answered)
			all.placed(3, false) // and means nothing to an attempt under way
			all.Failed(c, refusedBy(-1), pause(time.Minute))
			wantWait(t, all, c, time.Minute, time.Minute)
			all.Leave(c)
			all.placed(3, false) // nor to a process that has left
		})
	})
}

// What gates say of other processes is kept for a TTL, and not for ever.
func TestCrowds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newLines()
		say := func(resource string, q wire.Word) {
			all.hear(resource, q, time.Second)
		}
		want := func(what, resource string, want bool) {
			t.Helper()
			if got := all.Crowded(Key{Resource: resource}); got != want {
				t.Errorf("%s: got %v, want %v", what, got, want)
			}
		}
		want("nothing was heard", "r", false)
		say("r", wire.Word{Others: 1})
		want("a queue node that was not heard", "r", false)
		say("r", wire.Word{Heard: true, Others: 1})
		want("others wait", "r", true)
		want("others wait for another resource", "s", false)
		say("r", wire.Word{})
		want("a queue node that was not heard since", "r", true)
		time.Sleep(time.Second - 1)
		want("nearly a TTL later", "r", true)
		time.Sleep(time.Nanosecond)
		want("a TTL later", "r", false)
		say("r", wire.Word{Heard: true, Others: 1})
		say("r", wire.Word{Heard: true})
		want("none waited yet when this process came", "r", true)

		// The release of a TryLock counts the holder. Where that is this process, no other one need wait.
		own := &holder{}
		ended := func(others int) { say("r", wire.Word{Heard: true, Ended: true, Others: others}) }
		ended(0)
		want("no process waits any more", "r", false)
		ended(1)
		want("another process has the resource", "r", true)
		all.held(own, nil)
		ended(1)
		want("this process has it", "r", false)
		ended(2)
		want("and another process waits", "r", true)
		ended(0)
		all.freed(own)
		want("at the end", "r", false)

		for round := range 20 {
			for i := range 1000 {
				say(fmt.Sprint(round, " ", i), wire.Word{Heard: true, Others: 1})
			}
			time.Sleep(2 * time.Second)
		}
		if got := len(all.known.crowds) + len(all.known.libraries); got > 2500 {
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
	queued := func(n int) (*lines, []*caller) {
		all := newLines()
		line := joinAll(all, "r", n)
		all.Queued(Key{Resource: "r"}, queueNode)
		return all, line
	}
	wantLeft := func(t *testing.T, what string, got, want int) {
		t.Helper()
		if got != want {
			t.Errorf("%s: got the queue of node %d left, want %d", what, got, want)
		}
	}
	t.Run("callers leave", func(t *testing.T) {
		all, line := queued(3)
		for i, want := range []int{-1, -1, queueNode} {
			_, got := all.Leave(line[[]int{1, 0, 2}[i]])
			wantLeft(t, "leaving", got, want)
		}
		_, got := all.Leave(all.stand("r"))
		wantLeft(t, "in a new line", got, -1)
	})
	for ofGrant, want := range map[int]int{queueNode: -1, queueNode + 1: queueNode} {
		all, line := queued(2)
		g := &holder{queueNode: ofGrant}
		wantLeft(t, "the resource is granted", all.held(g, line[0]), want)
		all.freed(g)
		_, got := all.Leave(line[1])
		wantLeft(t, "leaving after it", got, -1)

		all, line = queued(2)
		g = &holder{}
		all.lines[Key{Resource: "r"}].holder = g
		all.Look(line[0])
		_, got = all.HandOver(Key{Resource: "r"}, g, ofGrant, func(Offer[struct{}]) bool { return true })
		wantLeft(t, "a lease is handed over", got, want)

		readers := Key{Resource: "r", Shared: true}
		head, next := all.Join(readers, struct{}{}), all.Join(readers, struct{}{})
		for _, c := range []*caller{head, next} { // the last caller alone takes the process out of the queue
			all.Queued(readers, queueNode)
			got := all.Admit(c, ofGrant, nil)
			if c == head {
				wantLeft(t, "a reader has a lease, and another waits", got, -1)
			} else {
				wantLeft(t, "the last reader has a lease", got, want)
			}
		}
	}
}

// A lease is contested if an attempt of the line had failed before the process got the resource. It
// stays so while it is handed over; the next lease of the process does not inherit that.
//
// Source: ALGORITHM section 10, "Hand-over inside the process".
func TestContested(t *testing.T) {
	for _, failed := range []bool{false, true} {
		all := newLines()
		line := joinAll(all, "r", 6)
		for _, c := range line {
			all.Look(c)
		}
		late := false // the head came after the grant
		want := func(what string, h *holder, accept, want bool) {
			t.Helper()
			offered := false
			if heir, _ := all.HandOver(Key{Resource: "r"}, &holder{}, Nowhere, nil); heir != nil {
				t.Errorf("%s: got an heir of a lease that the process does not have", what)
			}
			all.HandOver(Key{Resource: "r"}, h, Nowhere, func(o Offer[struct{}]) bool {
				if offered = true; o.Contested != want || o.Waited == late {
					t.Errorf("an attempt had failed: %v: %s: got contested: %v, waited: %v; want %v, %v", failed, what, o.Contested, o.Waited, want, !late)
				}
				return accept
			})
			if !offered {
				t.Errorf("an attempt had failed: %v: %s: got no offer, want one", failed, what)
			}
		}
		if failed {
			all.Failed(line[0], failedWith(wire.Word{}), pause(0))
		}
		g, next, last := &holder{}, &holder{}, &holder{}
		all.held(g, line[0])
		want("granted", g, true, failed)
		want("handed over once", g, true, failed)
		want("handed over twice", g, false, failed)
		all.held(next, line[3]) // before the end of the former lease is noted
		want("the next lease", next, false, false)
		all.freed(next)
		all.held(last, line[4])
		want("the lease after it", last, false, false)
		all.Join(Key{Resource: "r", Shared: true}, struct{}{})
		want("readers of the process wait", last, false, true)
		all.Leave(line[5])
		all.Look(all.stand("r"))
		late = true
		want("a caller that came after the grant", last, true, true)
	}
}

// A line is kept for the grant that the process has, or for callers, and for nothing else.
func TestHeldAndFreed(t *testing.T) {
	all := newLines()
	wantLines := func(what string, want int) {
		t.Helper()
		callers := 0
		for _, l := range all.lines {
			for c := l.first; c != nil; c = c.next {
				callers++
			}
		}
		if got := len(all.lines); got != want || all.Waiting() != callers {
			t.Fatalf("%s: got %d lines and %d callers, want %d and %d", what, got, all.Waiting(), want, callers)
		}
	}
	g, other := &holder{}, &holder{}
	all.freed(g)
	wantLines("freed and never held", 0)
	all.held(g, nil)
	wantLines("held", 1)
	all.freed(other)
	wantLines("another one freed", 1)
	c := all.stand("r")
	wantAdvice(t, "a caller", all.Look(c), park)
	all.Leave(c)
	wantLines("held, the caller gone", 1)
	all.freed(g)
	all.freed(g)
	wantLines("freed", 0)

	// A lease that is lost is still to be noted when the next one is there.
	c = all.stand("r")
	all.held(g, nil)
	all.held(other, c)
	c = all.stand("r")
	wantAdvice(t, "with the next lease", all.Look(c), park)
	if all.freed(g); told(c) {
		t.Error("at the end of the lease before: got the caller told, want it to wait")
	}
	wantLines("with the next lease", 1)
	all.Failed(c, failedWith(wire.Word{}), pause(time.Minute)) // an attempt that began before the lease
	all.freed(other)
	wantAdvice(t, "without it, and without the pause", all.Look(c), askAll)
	all.Leave(c)
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
			d := DefaultPolicy.RetryDelay(failed)
			least, most = min(least, d), max(most, d)
		}
		if least <= 0 || most > limit+time.Microsecond {
			t.Errorf("after %d failures: got from %v to %v, want above 0 and up to %v", failed, least, most, limit)
		}
		denied := min(2*time.Millisecond<<min(max(failed-1, 0), 20), 450*time.Millisecond)
		if d := DefaultPolicy.DeniedPause(failed); d < denied*9/10-1 || d > denied {
			t.Errorf("denied %d times: got %v, want %v or up to a tenth less", failed, d, denied)
		}
		// By chance alone this fails once in 10^62 runs.
		if least > limit/4*3 || most < limit/4 {
			t.Errorf("after %d failures: got from %v to %v, want it spread over %v", failed, least, most, limit)
		}
	}
	if got := (&Policy{FirstDelay: 1, MostDelay: 1}).RetryDelay(1); got != time.Microsecond {
		t.Errorf("the shortest pause: got %v, want 1µs", got)
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
		holds := func(string) bool { return true }
		ours, shared := &memories{holds: holds}, &memories{emptyPrefix: true, holds: holds}
		now := time.Now()
		if got := taken(ours, lease, now); got != 0 || len(ours.libraries) != 0 {
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
}

// A reader's lease is shared with the readers that were in line when its attempt began and that fit. The
// search for them costs no more than a part of the line for each that it finds.
//
// Source: ALGORITHM section 12, "In one process".
func TestAdmit(t *testing.T) {
	const readers = 1000
	key := Key{Resource: "r", Shared: true}
	for _, test := range []struct {
		name         string
		fits         func(i int) bool
		served, asks int
	}{
		{"all fit", func(int) bool { return true }, readers, readers},
		{"each second one fits", func(i int) bool { return i%2 == 0 }, readers / 2, readers},
		{"none fits", func(int) bool { return false }, 0, mostMisfits},
		{"the last one fits", func(i int) bool { return i == readers-1 }, 0, mostMisfits},
	} {
		all := New[*holder, int](&DefaultPolicy, false)
		line := []*Caller[*holder, int]{all.Join(key, -1)}
		for i := range readers {
			line = append(line, all.Join(key, i))
		}
		all.Look(line[0])
		late := all.Join(key, 0) // fits, and came later
		asks := 0
		all.Admit(line[0], Nowhere, func(i *int) bool { asks++; return test.fits(*i) })
		served := 0
		for _, c := range line[1:] {
			if c.served {
				served++
			}
		}
		if served != test.served || asks != test.asks || late.served || all.Waiting() != readers+1-served {
			t.Errorf("%s: got %d served, %d asked, the late one served: %v, %d left; want %d, %d, false, %d",
				test.name, served, asks, late.served, all.Waiting(), test.served, test.asks, readers+1-test.served)
		}
		if next := all.Look(late); test.served == readers && next.Step != Ask {
			t.Errorf("%s: the late one is told %+v, want it to ask all nodes", test.name, next)
		}
	}
}

// What is too old to matter is forgotten, while the process goes on with another resource.
func TestMemoriesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := &lines{New[*holder, struct{}](&DefaultPolicy, true)}
		want := func(what string, most int) {
			t.Helper()
			if got := len(all.known.crowds) + len(all.known.libraries); got > most {
				t.Errorf("%s: got %d resources remembered, want at most %d", what, got, most)
			}
		}
		const used = 10_000
		for i := range used {
			h, key := &holder{}, Key{Resource: fmt.Sprint(i)}
			all.Held(key, h, nil, 0)
			all.Freed(key, h)
			if i%10 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		want("resources that were used once, 500 in 50 ms", 2000)
		for i := range used {
			all.hear(fmt.Sprint("crowded ", i), wire.Word{Heard: true, Others: 1, Foreign: i%2 == 0}, time.Second)
		}
		time.Sleep(2 * otherMemory)
		for range used {
			all.Crowded(Key{Resource: "r"})
		}
		want("a burst of long ago", 0)

		looked := 0
		if sweep(map[int]int{1: 1, 2: 2, 3: 3}, func(int, int) bool { looked++; return true }); looked != 2 {
			t.Errorf("got %d entries looked at by a call, want 2", looked)
		}

		// A client of another library is remembered for a minute, and while leases may still follow each other.
		start := time.Now()
		for at, want := range map[time.Duration][2]int{otherMemory - 1: {1, 1}, otherMemory: {0, 1}, otherMemory + otherGap - 1: {0, 1}, otherMemory + otherGap: {0, 0}} {
			for i, freed := range []time.Duration{0, otherMemory} {
				m := memories{holds: func(string) bool { return false }}
				m.meet("r", start)
				m.freed("r", start.Add(freed))
				if m.tidy(start.Add(at)); len(m.libraries) != want[i] {
					t.Errorf("%v after it was met, freed at %v: got %d remembered, want %d", at, freed, len(m.libraries), want[i])
				}
			}
		}
	})
}
