package line

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Attempts beyond the limit are admitted in the order in which they came. The limit follows the time to the answers, of renewals, too:
// it grows while attempts wait and answers come fast, and falls once for all answers to requests that were sent at the same time.
// Renewals take the room of attempts, and hold them while they come late.
//
// Source: ALGORITHM section 10, "Admission".
func TestAdmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout, network = time.Second, 200 * time.Millisecond
		const fast, fair, slow = network + 200*time.Millisecond, network + 400*time.Millisecond, network + 401*time.Millisecond
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
			if n, w := a.Count(); a.limit != limit || n != asking || w != waiting {
				t.Errorf("%s: got limit %d, %d that ask, %d that wait; want %d, %d, %d", what, a.limit, n, w, limit, asking, waiting)
			}
		}
		for range firstLimit {
			if err := a.Enter(func(<-chan struct{}) error { return errors.New("has to wait") }); err != nil {
				t.Fatal(err)
			}
		}
		a.Leave(network, timeout)
		want("a fast answer, and no attempt waits", firstLimit, firstLimit-1, 0)
		a.Renew()
		for i := range 4 {
			enter(i, nil)
		}
		want("four too many, as a renewal takes room", firstLimit, firstLimit, 4)
		a.Leave(fair, timeout)
		want("an answer", firstLimit, firstLimit, 3)
		a.Leave(fast, timeout)
		want("a fast answer", firstLimit+1, firstLimit+1, 1)
		a.Leave(0, timeout)
		want("an attempt that has asked no node", firstLimit+1, firstLimit+1, 0)
		go func() { _ = a.Enter(func(<-chan struct{}) error { return errors.New("given up at once") }) }()
		synctest.Wait()
		enter(4, errors.New("given up when it was admitted"))
		enter(5, nil)
		a.Leave(fair, timeout)
		a.Leave(fair, timeout)
		want("an attempt that was admitted gives up", firstLimit+1, firstLimit, 0)
		for i := range 5 {
			if got := <-admitted; i == 0 && got != 0 || i == 3 && got != 3 {
				t.Errorf("got attempt %d admitted in place %d", got, i)
			}
		}

		a.limit, a.asking = mostLimit, mostLimit
		enter(6, nil)
		a.Leave(fast, timeout)
		want("the limit has its bound", mostLimit, mostLimit, 0)
		a.Leave(slow, timeout)
		a.Leave(slow, timeout)
		want("two slow answers at a time", mostLimit/2, mostLimit-2, 0)
		time.Sleep(slow + 1)
		a.limit, a.asking = leastLimit+1, 2
		a.Leave(slow, timeout)
		want("a slow answer later", leastLimit, 1, 0)

		a.Hold(time.Second)
		enter(7, nil)
		want("renewals come late", leastLimit, 1, 1)
		a.Leave(fair, timeout)
		want("nothing is under way", leastLimit, 1, 0)
		time.Sleep(time.Second + 1)
		enter(8, nil)
		want("renewals come in time", leastLimit, 2, 0)
	})
}
