package redlock

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/line"
	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/rules"
	"github.com/d0720281/redlock/internal/term"
)

// eventsOf returns the events of observers, with a log that discards them.
func eventsOf(o ...Observer) *events {
	e := newEvents(&config{rules: rules.New(), observers: o, logger: func() *slog.Logger { return slog.New(slog.DiscardHandler) }})
	e.start()
	return e
}

// only is an observer of one kind of events.
func only(k EventKind, f func(Event)) Observer {
	return func(e Event) {
		if e.Kind == k {
			f(e)
		}
	}
}

// nodeAt returns a node that does not run.
func nodeAt(addr string) *node.Node {
	conf := node.Config{Drift: DefaultDrift, MaxTTL: DefaultMaxTTL, Clock: clock.NewLease(clock.Runtime())}
	return node.NewSet(conf, []redis.Options{{Addr: addr}}).Nodes()[0]
}

// Events are delivered in the order in which they happened, to all observers in their order.
func TestEventsKeepTheirOrder(t *testing.T) {
	var got []string
	to := func(name string) Observer {
		return func(e Event) { got = append(got, fmt.Sprint(e.Kind, " ", e.Master, " to ", name)) }
	}
	e := eventsOf(to("1"), to("2"))
	for _, addr := range []string{"a", "b"} {
		e.Down(nodeAt(addr), nil)
		e.Up(nodeAt(addr))
	}
	e.close()
	e.run()
	want := []string{
		"master_down a to 1", "master_down a to 2", "master_up a to 1", "master_up a to 2",
		"master_down b to 1", "master_down b to 2", "master_up b to 1", "master_up b to 2",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// An observer that blocks delays the events behind it, and nothing else.
func TestSlowObserverDoesNotBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		block, done := make(chan struct{}), make(chan struct{})
		e := eventsOf(func(e Event) { got = append(got, e.Master); <-block })
		go func() { defer close(done); e.run() }()
		e.Up(nodeAt("a"))
		synctest.Wait() // the observer has the event and blocks
		for _, addr := range []string{"b", "c", "d"} {
			e.Up(nodeAt(addr))
		}
		synctest.Wait()
		if !slices.Equal(got, []string{"a"}) {
			t.Errorf("got %q while the observer blocks, want a alone", got)
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

// As many events as fit are delivered, and none is reported missing. Events that do not fit are counted,
// and the count is delivered once, after those that fit.
func TestDroppedEvents(t *testing.T) {
	for _, more := range []int{0, 5} {
		told, dropped := 0, []int(nil)
		e := eventsOf(
			only(EventMasterUp, func(Event) { told++ }),
			only(EventDropped, func(e Event) { dropped = append(dropped, e.Count, told) }),
		)
		for range maxEvents + more {
			e.Up(nodeAt("a"))
		}
		e.close()
		e.run()
		var want []int
		if more > 0 {
			want = []int{more, maxEvents}
		}
		if told != maxEvents || !slices.Equal(dropped, want) {
			t.Errorf("got %d events, and %v for the number dropped and delivered before; want %d, %v", told, dropped, maxEvents, want)
		}
		if got := e.counts[EventDropped].Load(); got != uint64(more) {
			t.Errorf("counted as dropped: got %d, want %d", got, more)
		}
	}
}

// allEvents has one event of each kind happen.
func allEvents(e *events, g *grant) {
	now, a := time.Now(), nodeAt("a")
	le := &hold{grant: g, since: now}
	e.acquired(le, now)
	e.attemptFailed(line.Key{Resource: "r"}, now, ErrTaken, nil)
	e.attemptFailed(line.Key{Resource: "r"}, now, ErrNoQuorum, nil)
	e.notAcquired(line.Key{Resource: "r"}, now, ErrTaken)
	e.round(EventExtended, g, nil)
	e.round(EventExtendFailed, g, ErrNoQuorum)
	e.downgraded(le)
	e.lost(g, ErrLost)
	e.left(EventAbandoned, le, nil)
	e.left(EventReleased, le, nil)
	e.Asked(a, time.Second, nil)
	e.Down(a, node.ErrTimeout)
	e.Up(a)
	e.keyLost(g, "a")
	e.Quarantined(a, time.Second)
	e.Stepped(a, time.Second)
	e.StoodStill(time.Second)
	e.Warning(a, errors.New("oops"))
}

// Without an observer, and with a log that leaves out level Debug, events that happen often are counted and
// not even put together. That of each kind is counted once, and an observer gets each once.
func TestEventsThatNobodyWants(t *testing.T) {
	g := &grant{pool: &pool{conf: &config{rules: rules.New(), clock: clock.NewLease(clock.Runtime())}}, target: 64}
	quiet := eventsOf()
	allEvents(quiet, g)
	for _, n := range quiet.queue {
		if n.line == nil && kinds[n.event.Kind].level <= slog.LevelDebug {
			t.Errorf("%v: got it queued, want it left out", n.event.Kind)
		}
	}
	got := make(map[EventKind]int)
	e := eventsOf(func(e Event) { got[e.Kind]++ })
	allEvents(e, g)
	e.close()
	e.run()
	for k := range eventKinds {
		want := 1
		if k == EventDropped {
			want = 0
		}
		if got[k] != want || e.counts[k].Load() != uint64(want) || quiet.counts[k].Load() != uint64(want) {
			t.Errorf("%v: got it delivered %d times, counted %d and %d times, want %d", k, got[k], e.counts[k].Load(), quiet.counts[k].Load(), want)
		}
	}
}

// An event has all that is known.
func TestEventFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []Event
		e := eventsOf(func(e Event) { got = append(got, e) })
		g := &grant{pool: &pool{conf: &config{rules: rules.New(), clock: clock.NewLease(clock.Runtime())}}, resource: "r", target: 1064}
		g.term.Init(&g.Options, rules.New())
		g.term.Extend(instant(5*time.Second), 0)
		began := time.Now()
		time.Sleep(2 * time.Second)
		now, oops := time.Now(), errors.New("oops")
		le := &hold{grant: g, fence: 1001, since: began}
		e.acquired(le, began)
		e.acquired(&hold{grant: g, fence: 1002, since: began, turn: 1}, now)
		e.attemptFailed(line.Key{Resource: "r"}, began, oops, nil)
		e.attemptFailed(line.Key{Resource: "r", Shared: true}, began, ErrTaken, nil)
		e.notAcquired(line.Key{Resource: "r"}, began, oops)
		e.round(EventExtended, g, nil)
		e.round(EventExtendFailed, g, oops)
		g.holds = append(g.holds, le)
		e.lost(g, oops)
		e.left(EventAbandoned, le, nil)
		e.left(EventReleased, le, ErrDetached)
		e.Asked(nodeAt("a"), time.Minute, oops)
		e.Down(nodeAt("a"), oops)
		e.Up(nodeAt("a"))
		e.keyLost(g, "a")
		e.Stepped(nodeAt("a"), -time.Minute)
		e.StoodStill(time.Hour)
		time.Sleep(time.Second) // the time is that of the event, not of the delivery
		e.close()
		e.run()
		const excl = ModeExclusive
		want := []Event{
			{Kind: EventAcquired, Resource: "r", Mode: excl, Fence: 1001, Elapsed: 2 * time.Second, Validity: 3 * time.Second},
			{Kind: EventAcquired, Resource: "r", Mode: excl, Fence: 1002, Validity: 3 * time.Second, HandedOver: true},
			{Kind: EventAttemptFailed, Resource: "r", Mode: excl, Elapsed: 2 * time.Second, Err: oops},
			{Kind: EventTaken, Resource: "r", Mode: ModeShared, Elapsed: 2 * time.Second, Err: ErrTaken},
			{Kind: EventNotAcquired, Resource: "r", Mode: excl, Elapsed: 2 * time.Second, Err: oops},
			{Kind: EventExtended, Resource: "r", Mode: excl, Fence: 1001, Validity: 3 * time.Second},
			{Kind: EventExtendFailed, Resource: "r", Mode: excl, Fence: 1001, Validity: 3 * time.Second, Err: oops},
			{Kind: EventLost, Resource: "r", Mode: excl, Fence: 1001, Elapsed: 2 * time.Second, Validity: 3 * time.Second, Err: oops},
			{Kind: EventAbandoned, Resource: "r", Mode: excl, Fence: 1001, Elapsed: 2 * time.Second},
			{Kind: EventReleased, Resource: "r", Mode: excl, Fence: 1001, Elapsed: 2 * time.Second, Err: ErrDetached},
			{Kind: EventExchange, Master: "a", Elapsed: time.Minute, Err: oops},
			{Kind: EventMasterDown, Master: "a", Err: oops},
			{Kind: EventMasterUp, Master: "a"},
			{Kind: EventKeyLost, Resource: "r", Mode: excl, Fence: 1001, Master: "a"},
			{Kind: EventMasterClockStepped, Master: "a", Elapsed: -time.Minute},
			{Kind: EventLocalClockStopped, Elapsed: time.Hour},
		}
		for i := range want {
			want[i].Time = now
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

// Each kind of event has a name, and a line of the log at its level.
func TestLogOfEvents(t *testing.T) {
	for _, test := range []struct {
		event Event
		want  string
	}{
		{Event{Kind: EventAcquired, Resource: "r", Mode: ModeExclusive, Fence: 7, Elapsed: time.Second, Validity: time.Minute},
			`level=DEBUG msg="redlock: acquired" resource=r mode=exclusive fence=7 waited=1s validity=1m0s`},
		{Event{Kind: EventTaken, Resource: "r", Mode: ModeShared, Err: ErrTaken}, `level=DEBUG msg="redlock: taken by another holder" resource=r mode=shared waited=0s error=`},
		{Event{Kind: EventAttemptFailed, Resource: "r", Err: ErrNoQuorum}, `level=DEBUG msg="redlock: attempt failed" resource=r`},
		{Event{Kind: EventNotAcquired, Resource: "r", Err: ErrNoQuorum}, `level=DEBUG msg="redlock: not acquired" resource=r`},
		{Event{Kind: EventExtended, Resource: "r", Fence: 7}, `level=DEBUG msg="redlock: extended" resource=r`},
		{Event{Kind: EventExtendFailed, Resource: "r", Err: ErrNoQuorum}, `level=DEBUG msg="redlock: extension failed" resource=r mode="" error="redlock: no quorum"`},
		{Event{Kind: EventDowngraded, Resource: "r"}, `level=DEBUG msg="redlock: downgraded" resource=r`},
		{Event{Kind: EventLost, Resource: "r", Fence: 7, Elapsed: time.Second, Validity: -12800, Err: term.ErrExpired}, `level=WARN msg="redlock: lease lost" resource=r mode="" fence=7 held=1s error=`},
		{Event{Kind: EventAbandoned, Resource: "r", Fence: 7, Elapsed: time.Second}, `level=WARN msg="redlock: a lease was dropped without Unlock, and is renewed until Close" resource=r mode="" fence=7 held=1s`},
		{Event{Kind: EventReleased, Resource: "r"}, `level=DEBUG msg="redlock: released" resource=r`},
		{Event{Kind: EventExchange, Master: "a"}, ""},
		{Event{Kind: EventMasterDown, Master: "a", Err: node.ErrTimeout}, `level=WARN msg="redlock: master is down" master=a error=`},
		{Event{Kind: EventMasterUp, Master: "a"}, `level=INFO msg="redlock: master is up again" master=a`},
		{Event{Kind: EventKeyLost, Master: "a", Resource: "r"}, `level=WARN msg="redlock: master has lost a key" resource=r mode="" master=a`},
		{Event{Kind: EventQuarantined, Master: "a", Elapsed: time.Second}, `level=WARN msg="redlock: master has no vote for a time" master=a for=1s`},
		{Event{Kind: EventMasterClockStepped, Master: "a", Elapsed: -time.Second}, `level=WARN msg="redlock: clock of a master was stepped, it has no vote for a time" master=a by=-1s`},
		{Event{Kind: EventLocalClockStopped, Elapsed: time.Second}, `level=WARN msg="redlock: the local clock had stood still, leases are shortened by that" for=1s`},
		{Event{Kind: EventWarning, Master: "a", Err: errors.New("oops")}, `level=WARN msg="redlock: oops" master=a`},
		{Event{Kind: EventDropped, Count: 3}, `level=WARN msg="redlock: events were dropped, as an observer is too slow" count=3`},
	} {
		t.Run(test.event.Kind.String(), func(t *testing.T) {
			var out bytes.Buffer
			logger := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
			newEvents(&config{logger: func() *slog.Logger { return logger }}).write(test.event)
			if _, got, _ := strings.Cut(strings.TrimSpace(out.String()), " "); !strings.HasPrefix(got, test.want) || test.want == "" && got != "" {
				t.Errorf("got %q, want it to begin with %q", got, test.want)
			}
		})
	}
	names := make(map[string]bool)
	for k := range eventKinds {
		if name := k.String(); name == "" || names[name] {
			t.Errorf("kind %d: got the name %q, want one of its own", int(k), name)
		}
		names[k.String()] = true
	}
}

// Of warnings of one kind with one reason the first is logged, a second later how many came with it, and then one
// in 10 s. Another reason, or another master, has a line of its own. Nothing is left out if the log ends.
func TestLogOfManyWarnings(t *testing.T) {
	var out bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&out, nil))
	e := newEvents(&config{logger: func() *slog.Logger { return logger }})
	began := time.Now()
	want := func(lines ...string) {
		t.Helper()
		got := strings.FieldsFunc(out.String(), func(r rune) bool { return r == '\n' })
		if !slices.EqualFunc(got, lines, strings.Contains) {
			t.Errorf("got\n%s\nwant lines with %q", &out, lines)
		}
		out.Reset()
	}
	lost := func(after time.Duration, n int) {
		for i := range n {
			e.write(Event{Kind: EventLost, Time: began.Add(after), Resource: fmt.Sprint(after, "-", i), Err: term.ErrExpired})
		}
	}
	ends := func(after, next time.Duration) {
		t.Helper()
		if got := e.summarize(began.Add(after), false); next != 0 && !got.Equal(began.Add(next)) || next == 0 && !got.IsZero() {
			t.Errorf("after %v: got %v as the next moment, want %v", after, got.Sub(began), next)
		}
	}
	lost(0, 100)
	e.write(Event{Kind: EventLost, Time: began, Resource: "r", Err: errLostQuorum})
	e.write(Event{Kind: EventMasterDown, Time: began, Master: "a", Err: ErrNoQuorum})
	e.write(Event{Kind: EventMasterDown, Time: began, Master: "b", Err: ErrNoQuorum})
	ends(0, time.Second)
	want("resource=0s-0 ", "resource=r", "master=a", "master=b")
	ends(time.Second, 10*time.Second)
	want("resource=0s-99 mode=\"\" held=0s error=\"redlock: lease lost: validity ran out\" more=98")
	lost(2*time.Second, 1)
	ends(10*time.Second, 20*time.Second)
	want("resource=2s-0")
	lost(11*time.Second, 3)
	ends(20*time.Second, 30*time.Second)
	want("resource=11s-2 mode=\"\" held=0s error=\"redlock: lease lost: validity ran out\" more=2")
	ends(30*time.Second, 0)
	lost(31*time.Second, 3)
	e.summarize(began.Add(31*time.Second), true)
	want("resource=31s-0", "more=1")
	for i := range 50 { // a master that comes and goes
		at := began.Add(time.Minute + time.Duration(i)*time.Millisecond)
		e.write(Event{Kind: EventMasterDown, Time: at, Master: "c", Err: ErrNoQuorum})
		e.write(Event{Kind: EventMasterUp, Time: at.Add(time.Microsecond), Master: "c"})
	}
	ends(62*time.Second, 70*time.Second)
	want("WARN", "INFO", "is up again\" master=c more=97")
	e.write(Event{Kind: EventMasterDown, Time: began.Add(63 * time.Second), Master: "c", Err: ErrNoQuorum})
	e.write(Event{Kind: EventMasterUp, Time: began.Add(64 * time.Second), Master: "c"})
	e.write(Event{Kind: EventMasterDown, Time: began.Add(65 * time.Second), Master: "c", Err: node.ErrTimeout}) // stays down
	want("level=WARN msg=\"redlock: master is down\" master=c error=\"timeout: no answer within the master timeout\" more=2")
	e.summarize(began.Add(80*time.Second), false)
	want() // not that the master is up again
}
