package redlock

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Events are told in the order they happened.
func TestEventsKeepTheirOrder(t *testing.T) {
	var got []string
	say := func(what string) func(Event) { return func(e Event) { got = append(got, what+" "+e.Node) } }
	e := newEvents(&Observer{NodeDown: say("down"), NodeUp: say("up")}, slog.Default)
	for _, node := range []string{"a", "b", "c"} {
		e.nodeDown(node, nil)
		e.nodeUp(node)
	}
	e.close()
	e.run()
	if want := []string{"down a", "up a", "down b", "up b", "down c", "up c"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A callback that blocks holds up the events behind it, and nothing else.
func TestSlowCallbackDoesNotBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		block, done := make(chan struct{}), make(chan struct{})
		e := newEvents(&Observer{NodeUp: func(e Event) { got = append(got, e.Node); <-block }}, slog.Default)
		go func() { defer close(done); e.run() }()
		e.nodeUp("a")
		synctest.Wait() // the callback has the event and blocks
		for _, node := range []string{"b", "c", "d"} {
			e.nodeUp(node)
		}
		synctest.Wait()
		if !slices.Equal(got, []string{"a"}) {
			t.Errorf("got %q while the callback blocks, want a alone", got)
		}
		e.close()
		synctest.Wait()
		select {
		case <-done:
			t.Error("it ended while events were left")
		default:
		}
		close(block)
		<-done
		if want := []string{"a", "b", "c", "d"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// Events that do not fit are counted, and the count is told once, after those that
// did.
func TestDroppedEvents(t *testing.T) {
	told, dropped := 0, []int(nil)
	e := newEvents(&Observer{
		NodeUp:  func(Event) { told++ },
		Dropped: func(n int) { dropped = append(dropped, n, told) },
	}, slog.Default)
	for range maxEvents + 5 {
		e.nodeUp("a")
	}
	e.close()
	e.run()
	if told != maxEvents || !slices.Equal(dropped, []int{5, maxEvents}) {
		t.Errorf("got %d events, and %v for the number dropped and told before; want %d, [5 %d]", told, dropped, maxEvents, maxEvents)
	}
}

// As many as fit are told, and none is reported missing.
func TestFullQueueDropsNothing(t *testing.T) {
	told := 0
	e := newEvents(&Observer{NodeUp: func(Event) { told++ }, Dropped: func(n int) { t.Errorf("%d dropped", n) }}, slog.Default)
	for range maxEvents {
		e.nodeUp("a")
	}
	e.close()
	e.run()
	if told != maxEvents {
		t.Errorf("got %d events, want %d", told, maxEvents)
	}
}

// Neither an observer nor any of its callbacks has to be there.
func TestObserverIsOptional(t *testing.T) {
	g := &grant{pool: &pool{conf: &config{clock: newLeaseClock(RuntimeClock())}}, target: 64}
	all := func(e *events) {
		now := time.Now()
		le := &Lease{grant: g, since: now}
		e.acquired(le, now)
		e.notAcquired("r", now, ErrTaken)
		e.extended(g)
		e.extendFailed(g, ErrNoQuorum)
		e.lost(g, ErrLost)
		e.released(le)
		e.nodeDown("a", errNodeTimeout)
		e.nodeUp("a")
		e.nodeForgot(g, "a")
		e.nodeQuarantined("a", time.Second)
	}
	all(newEvents(nil, slog.Default))
	e := newEvents(&Observer{}, slog.Default)
	for range maxEvents/9 + 1 {
		all(e)
	}
	if len(e.queue) != 0 || e.dropped != 0 {
		t.Errorf("%d events for nobody are queued, %d dropped", len(e.queue), e.dropped)
	}
	e.close()
	e.run()

	// Dropped may be missing where others are not.
	e = newEvents(&Observer{NodeUp: func(Event) {}}, slog.Default)
	for range maxEvents + 1 {
		e.nodeUp("a")
	}
	e.close()
	e.run()
}

// Each thing that happens goes to its own callback, with what is known of it.
func TestEventFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := make(map[string]Event)
		keep := func(name string) func(Event) { return func(e Event) { got[name] = e } }
		e := newEvents(&Observer{
			Acquired: keep("acquired"), NotAcquired: keep("not acquired"), Extended: keep("extended"), ExtendFailed: keep("extend failed"),
			Lost: keep("lost"), Released: keep("released"), NodeDown: keep("down"), NodeUp: keep("up"), NodeForgot: keep("forgot"),
		}, slog.Default)
		g := &grant{pool: &pool{conf: &config{clock: newLeaseClock(RuntimeClock())}}, resource: "r", target: 1064}
		g.deadline.Store(int64(5 * time.Second))
		began := time.Now()
		time.Sleep(2 * time.Second)
		now, oops := time.Now(), errors.New("oops")
		le := &Lease{grant: g, fence: 1001, since: began}
		e.acquired(le, began)
		e.notAcquired("r", began, oops)
		e.extended(g)
		e.extendFailed(g, oops)
		e.lost(g, oops)
		e.released(le)
		e.nodeDown("a", oops)
		e.nodeUp("a")
		e.nodeForgot(g, "a")
		time.Sleep(time.Second) // the time is that of the event, not of the telling
		e.close()
		e.run()
		for name, want := range map[string]Event{
			"acquired":      {Resource: "r", Fence: 1001, Elapsed: 2 * time.Second, Validity: 3 * time.Second},
			"not acquired":  {Resource: "r", Elapsed: 2 * time.Second, Err: oops},
			"extended":      {Resource: "r", Fence: 1001, Validity: 3 * time.Second},
			"extend failed": {Resource: "r", Fence: 1001, Validity: 3 * time.Second, Err: oops},
			"lost":          {Resource: "r", Fence: 1001, Validity: 3 * time.Second, Err: oops},
			"released":      {Resource: "r", Fence: 1001, Elapsed: 2 * time.Second},
			"down":          {Node: "a", Err: oops},
			"up":            {Node: "a"},
			"forgot":        {Resource: "r", Fence: 1001, Node: "a"},
		} {
			want.Time = now
			if got[name] != want {
				t.Errorf("%s: got %+v, want %+v", name, got[name], want)
			}
		}
	})
}
