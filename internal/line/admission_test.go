package line

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Attempts beyond the limit are admitted in the order in which they came. The limit follows the time to
// the answers: it grows while attempts wait and answers come fast, and falls once for all answers to
// requests that were sent at the same time.
//
// Source: ALGORITHM section 10, "Admission".
func TestAdmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = time.Second
		const fast, fair, slow = timeout / 8, timeout / 4, timeout
		var a Admission
		admitted := make(chan int, 10)
		enter := func(number int, afterwards error) {
			go func() {
				if err := a.Enter(func(let <-chan struct{}) error { <-let; return afterwards }); err == nil {
					admitted <- number
				}
			}()
			synctest.Wait()
		}
		want := func(what string, limit, asking, waiting int) {
			t.Helper()
			synctest.Wait()
			if n, w := a.Count(); max(a.limit, leastAsking) != limit || n != asking || w != waiting {
				t.Errorf("%s: got limit %d, %d that ask, %d that wait; want %d, %d, %d", what, max(a.limit, leastAsking), n, w, limit, asking, waiting)
			}
		}
		for range leastAsking {
			if err := a.Enter(func(<-chan struct{}) error { return errors.New("has to wait") }); err != nil {
				t.Fatal(err)
			}
		}
		a.Leave(fast, timeout)
		want("a fast answer, and no attempt waits", leastAsking, leastAsking-1, 0)
		enter(0, nil)
		for i := range 4 {
			enter(i+1, nil)
		}
		want("four too many", leastAsking, leastAsking, 4)
		a.Leave(fair, timeout)
		want("an answer", leastAsking, leastAsking, 3)
		a.Leave(fast, timeout)
		want("a fast answer", leastAsking+1, leastAsking+1, 1)
		go func() { _ = a.Enter(func(<-chan struct{}) error { return errors.New("given up at once") }) }()
		synctest.Wait()
		enter(5, errors.New("given up when it was admitted"))
		enter(6, nil)
		a.Leave(timeout/2, timeout)
		a.Leave(timeout/2, timeout)
		want("one that was admitted gives up", leastAsking+1, leastAsking+1, 0)
		for i := range 6 {
			if got := <-admitted; i < 2 && got != i {
				t.Errorf("got attempt %d admitted, want %d", got, i)
			}
		}

		a.limit, a.asking = mostAsking, mostAsking
		enter(7, nil)
		a.Leave(fast, timeout)
		want("the limit has its bound", mostAsking, mostAsking, 0)
		a.Leave(slow, timeout)
		a.Leave(slow, timeout)
		want("two slow answers at a time", mostAsking*3/4, mostAsking-2, 0)
		time.Sleep(slow + 1)
		a.limit, a.asking = leastAsking+1, 1
		a.Leave(slow, timeout)
		want("a slow answer later", leastAsking, 0, 0)
	})
}
