package line

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock/internal/wire"
)

const anyOf = "r" + wire.OneOf

// A caller that wants any of several resources rests first, asks for the one to which it is called, and for any if
// the queue node does not answer its rests.
//
// Source: ALGORITHM section 10, "Any of several".
func TestAnyOfSeveral(t *testing.T) {
	restFirst := Advice{Step: Rest, How: Strategy{Waits: true}}
	for _, test := range []struct {
		name   string
		before func(*lines, *caller) // after the rest
		want   func(Advice) bool
	}{
		{"waits for the answer", func(*lines, *caller) {}, func(a Advice) bool { return a.Step == Wait && a.For == 250*time.Millisecond }},
		{"is answered", func(l *lines, c *caller) { l.Hear(c.Key(), wire.Word{Joined: true, Left: -1}, time.Second, 0) },
			func(a Advice) bool { return a.Step == Wait && a.For == 250*time.Millisecond }},
		{"is called by the answer", func(l *lines, c *caller) {
			l.Hear(c.Key(), wire.Word{Joined: true, Turn: true, Number: 7}, time.Second, 0)
		}, func(a Advice) bool {
			return a.Step == Ask && a.How.OneOf == 7 && a.How.Patient
		}},
		{"is called by a message", func(l *lines, c *caller) { l.Call(c.Key(), 7) },
			func(a Advice) bool { return a.Step == Ask && a.How.OneOf == 7 }},
		{"gets no answer", func(*lines, *caller) { time.Sleep(250 * time.Millisecond) },
			func(a Advice) bool { return a.Step == Ask && a.How.OneOf == 0 }},
		{"asks once for the reason", func(l *lines, c *caller) {
			l.Hear(c.Key(), wire.Word{Joined: true, Left: -1}, time.Second, 0)
			time.Sleep(2 * time.Second)
		}, func(a Advice) bool { return a.Step == Ask && a.How.OneOf == 0 }},
		{"rests again when it knows the reason", func(l *lines, c *caller) {
			l.Hear(c.Key(), wire.Word{Joined: true, Left: -1}, time.Second, 0)
			time.Sleep(2 * time.Second)
			l.Look(c)
			l.Failed(c, refusedBy(time.Hour), pause(time.Millisecond))
			time.Sleep(2 * time.Second)
		}, func(a Advice) bool { return a.Step == Rest }},
		{"waits for the first end of a key", func(l *lines, c *caller) {
			l.Hear(c.Key(), wire.Word{Joined: true, Left: 200 * time.Millisecond}, time.Second, 0)
			time.Sleep(201 * time.Millisecond)
		}, func(a Advice) bool { return a.Step == Rest }},
		{"is called during its attempt", func(l *lines, c *caller) {
			l.Call(c.Key(), 7)
			l.Look(c)
			l.Call(c.Key(), 8)
			l.Failed(c, refusedBy(time.Hour), pause(time.Millisecond))
		}, func(a Advice) bool { return a.Step == Ask && a.How.OneOf == 8 }},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLines()
				c := l.JoinAny(anyOf, struct{}{})
				wantAdvice(t, "first", l.Look(c), restFirst)
				l.Rested(c, 0, true)
				test.before(l, c)
				if got := l.Look(c); !test.want(got) {
					t.Errorf("got %+v", got)
				}
			})
		})
	}
}

// Each caller has a line, up to a bound; a lease goes to the caller that came first; and what is over is forgotten.
func TestLinesOfSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLines()
		a, b := &holder{}, &holder{}
		l.HeldAny(anyOf, a)
		l.HeldAny(anyOf, b)
		var callers []*caller
		for range mostSlots + 2 {
			callers = append(callers, l.JoinAny(anyOf, struct{}{}))
		}
		first := func(c *caller) bool { return c.line.first == c }
		if slices.ContainsFunc(callers[:mostSlots], func(c *caller) bool { return !first(c) }) || first(callers[mostSlots]) {
			t.Errorf("want a line for each of the first %d callers alone", mostSlots)
		}
		if callers[mostSlots].line != callers[0].line || callers[mostSlots+1].line != callers[1].line {
			t.Error("want the later callers behind those that came first")
		}
		for i, most := range map[int]time.Duration{0: 1, 4: 3, mostSlots - 1: 9} { // ms: while the process has some
			if got := l.Look(callers[i]); got.Step != Wait || got.For != most*time.Millisecond {
				t.Errorf("caller %d: got %+v, want it to wait for %d ms", i, got, most)
			}
		}
		wantAdvice(t, "a caller behind another one", l.Look(callers[mostSlots]), park)
		time.Sleep(time.Millisecond)
		if got := l.Look(callers[4]); got.For != 2*time.Millisecond {
			t.Errorf("a millisecond later: got %+v, want it to wait for two more", got)
		}
		for _, c := range callers[:3] {
			l.Queued(c.Key(), 3)
		}
		for others, want := range map[int]bool{3: false, 4: true} { // a word that counts the lines of this process
			if l.Hear(Key{Resource: anyOf}, wire.Word{Heard: true, Others: others}, 1, 0); l.Crowded(Key{Resource: anyOf}) != want {
				t.Errorf("%d processes wait, of which 3 are this one: got others: %v, want %v", others, !want, want)
			}
			time.Sleep(time.Nanosecond)
			if l.Hear(callers[0].Key(), wire.Word{Heard: true, Others: others - 3}, 1, 0); l.Crowded(Key{Resource: anyOf}) != want {
				t.Errorf("%d other processes wait: got %v, want %v", others-3, !want, want)
			}
			time.Sleep(time.Nanosecond)
		}
		l.Freed(Key{Resource: anyOf}, a)
		if !told(callers[0]) || l.Look(callers[0]).Step != Rest {
			t.Error("a lease that no caller took over: want the first caller to rest")
		}
		l.Look(callers[2])
		take := func(Offer[struct{}]) bool { return true }
		for _, want := range []*caller{callers[0], callers[2], callers[4]} {
			leaves := map[*caller]int{callers[0]: Nowhere, callers[2]: 3, callers[4]: Nowhere}[want] // a line with another caller stays
			if heir, queuedAt := l.HandOver(Key{Resource: anyOf}, b, Nowhere, take); heir != want || !l.Served(heir) || queuedAt != leaves {
				t.Errorf("got the heir %v, and the queue of node %d left; want %v, %d", heir, queuedAt, want, leaves)
			}
			if want == callers[0] {
				l.Look(callers[mostSlots]) // is the head of its line now, but came later than the next ones
			}
		}
		for _, c := range callers {
			l.Leave(c)
		}
		l.Freed(Key{Resource: anyOf}, b)
		if l.Count() != 0 || len(l.several) != 0 || l.Waiting() != 0 {
			t.Errorf("got %d lines, %d queues and %d callers left, want none", l.Count(), len(l.several), l.Waiting())
		}
	})
}
