package redlock

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// atHeadNow reports whether it is the caller's turn.
func (c *caller) atHeadNow() bool {
	select {
	case <-c.turn:
		return true
	default:
		return false
	}
}

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

func joinAll(turns *turns, resource string, n int) []*caller {
	callers := make([]*caller, n)
	for i := range callers {
		callers[i] = turns.join(resource)
	}
	return callers
}

// Callers of one resource get their turn in the order they came.
//
// Source: ALGORITHM section 10, "FIFO per resource".
func TestTurns(t *testing.T) {
	t.Run("first come, first served", func(t *testing.T) {
		var turns turns
		for line := joinAll(&turns, "r", 5); len(line) > 0; line = line[1:] {
			wantTurn(t, line...)
			turns.leave(line[0])
		}
		if len(turns.lines) != 0 {
			t.Errorf("%d lines are left", len(turns.lines))
		}
	})
	for name, at := range map[string]int{"the head": 0, "the second": 1, "one in the middle": 2, "the last": 4} {
		t.Run(name+" leaves", func(t *testing.T) {
			var turns turns
			line := joinAll(&turns, "r", 5)
			gone := line[at]
			turns.leave(gone)
			line = slices.Delete(line, at, at+1)
			wantTurn(t, line...)
			if at > 0 && gone.atHeadNow() {
				t.Error("the one who left got a turn")
			}
			late := turns.join("r")
			wantTurn(t, append(line, late)...)
		})
	}
	t.Run("all but the head leave", func(t *testing.T) {
		var turns turns
		line := joinAll(&turns, "r", 3)
		turns.leave(line[1])
		turns.leave(line[2])
		wantTurn(t, line[0])
		wantTurn(t, line[0], turns.join("r"))
	})
	t.Run("another resource has a line of its own", func(t *testing.T) {
		var turns turns
		a, b := joinAll(&turns, "a", 2), joinAll(&turns, "b", 2)
		turns.leave(a[0])
		wantTurn(t, a[1])
		wantTurn(t, b...)
	})
	t.Run("who comes when the line has emptied is at the head", func(t *testing.T) {
		var turns turns
		turns.leave(turns.join("r"))
		wantTurn(t, turns.join("r"))
	})
}

// The lines behave as plain lists do, whoever comes and goes, and none is left over.
func TestTurnsAgainstPlainLists(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var turns turns
		lists := map[string][]*caller{}
		for range 300 {
			resource := string(rune('a' + rng.IntN(3)))
			list := lists[resource]
			switch {
			case len(list) == 0 || rng.IntN(2) == 0:
				list = append(list, turns.join(resource))
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

// A release in this process wakes the head that pauses, and nobody else.
//
// Source: ALGORITHM section 10.
func TestPoke(t *testing.T) {
	const pause = time.Minute
	synctest.Test(t, func(t *testing.T) {
		var turns turns
		turns.poke("r") // nobody is there
		line := joinAll(&turns, "r", 3)
		turns.poke("r") // nobody pauses

		var woken []int
		done := make(chan struct{})
		for i, c := range line {
			go func() {
				defer func() { done <- struct{}{} }()
				if err := until(t.Context(), nil, c.turn, 0); err != nil {
					t.Error(err)
				}
				turns.failed(c, &QuorumError{Op: "lock"})
				start := time.Now()
				if err := until(t.Context(), nil, c.line.poked, pause); err != nil {
					t.Error(err)
				}
				if time.Since(start) < pause {
					woken = append(woken, i)
				}
			}()
		}
		synctest.Wait()
		turns.poke("another")
		synctest.Wait()
		if len(woken) != 0 {
			t.Fatalf("callers %v were woken by another resource", woken)
		}
		turns.poke("r")
		turns.poke("r") // one token is enough
		<-done
		if !slices.Equal(woken, []int{0}) {
			t.Fatalf("got %v woken, want the head alone", woken)
		}
		turns.leave(line[0])
		synctest.Wait() // the second goes to the nodes, is told of the second poke, or pauses

		turns.leave(line[1])
		turns.leave(line[2])
		<-done
		<-done
		if len(turns.lines) != 0 {
			t.Errorf("%d lines are left", len(turns.lines))
		}
		turns.poke("r") // nobody is there any more
	})
}

// A poke while the head asks the nodes is kept for its next pause.
func TestPokeIsKept(t *testing.T) {
	var turns turns
	head := turns.join("r")
	turns.failed(head, &QuorumError{})
	turns.poke("r")
	turns.poke("r")
	for want := 1; want >= 0; want-- {
		if got := len(head.line.poked); got != want {
			t.Fatalf("got %d tokens, want %d", got, want)
		}
		if want == 1 {
			<-head.line.poked
		}
	}
}

// What the head's last attempt ended with is there for all who stand in its line.
func TestLastVerdict(t *testing.T) {
	var turns turns
	line := joinAll(&turns, "r", 2)
	if got := turns.last(line[1]); got != nil {
		t.Errorf("before an attempt: got %v, want none", got)
	}
	first, second := &QuorumError{Op: "first"}, &QuorumError{Op: "second"}
	turns.failed(line[0], first)
	turns.failed(line[0], second)
	turns.leave(line[0])
	if got := turns.last(line[1]); got != second {
		t.Errorf("got %v, want the last one", got)
	}
	turns.leave(line[1])
	if got := turns.last(turns.join("r")); got != nil {
		t.Errorf("in a new line: got %v, want none", got)
	}
}

// A pause is a random part of a limit that doubles up to a bound.
//
// Source: distlock, "Retry on Failure".
func TestRetryDelay(t *testing.T) {
	limits := map[int]time.Duration{
		0: 2 * time.Millisecond, 1: 2 * time.Millisecond, 2: 4 * time.Millisecond, 3: 8 * time.Millisecond, 5: 32 * time.Millisecond,
		6: 64 * time.Millisecond, 7: 100 * time.Millisecond, 9: 100 * time.Millisecond, 10: 100 * time.Millisecond,
		64: 100 * time.Millisecond, 1 << 40: 100 * time.Millisecond,
	}
	for failed, limit := range limits {
		least, most := time.Duration(1<<62), time.Duration(0)
		for range 500 {
			d := retryDelay(failed)
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
