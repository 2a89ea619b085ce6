package redlock

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/node"
)

// eventsOf returns the events of an observer, for one node.
func eventsOf(o ...Observer) *events {
	return newEvents(&config{rules: algorithm(), observers: o, logger: slog.Default})
}

// nodeAt returns a node that does not run.
func nodeAt(addr string) *node.Node {
	conf := node.Config{Drift: DefaultDrift, MaxTTL: DefaultMaxTTL, Clock: clock.NewLease(RuntimeClock())}
	return node.NewSet(conf, []redis.Options{{Addr: addr}}).Nodes()[0]
}

// Events are delivered in the order in which they happened.
func TestEventsKeepTheirOrder(t *testing.T) {
	var got []string
	say := func(what string) func(Event) { return func(e Event) { got = append(got, what+" "+e.Master) } }
	e := eventsOf(Observer{MasterDown: say("down"), MasterUp: say("up")})
	for _, addr := range []string{"a", "b", "c"} {
		e.Down(nodeAt(addr), nil)
		e.Up(nodeAt(addr))
	}
	e.close()
	e.run()
	if want := []string{"down a", "up a", "down b", "up b", "down c", "up c"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A callback that blocks delays the events behind it, and nothing else.
func TestSlowCallbackDoesNotBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		block, done := make(chan struct{}), make(chan struct{})
		e := eventsOf(Observer{MasterUp: func(e Event) { got = append(got, e.Master); <-block }})
		go func() { defer close(done); e.run() }()
		e.Up(nodeAt("a"))
		synctest.Wait() // the callback has the event and blocks
		for _, addr := range []string{"b", "c", "d"} {
			e.Up(nodeAt(addr))
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

// Events that do not fit are counted, and the count is delivered once, after those that fit.
func TestDroppedEvents(t *testing.T) {
	told, dropped := 0, []int(nil)
	e := eventsOf(Observer{
		MasterUp: func(Event) { told++ },
		Dropped:  func(n int) { dropped = append(dropped, n, told) },
	})
	for range maxEvents + 5 {
		e.Up(nodeAt("a"))
	}
	e.close()
	e.run()
	if told != maxEvents || !slices.Equal(dropped, []int{5, maxEvents}) {
		t.Errorf("got %d events, and %v for the number dropped and told before; want %d, [5 %d]", told, dropped, maxEvents, maxEvents)
	}
}

// As many events as fit are delivered, and none is reported missing.
func TestFullQueueDropsNothing(t *testing.T) {
	told := 0
	e := eventsOf(Observer{MasterUp: func(Event) { told++ }, Dropped: func(n int) { t.Errorf("%d dropped", n) }})
	for range maxEvents {
		e.Up(nodeAt("a"))
	}
	e.close()
	e.run()
	if told != maxEvents {
		t.Errorf("got %d events, want %d", told, maxEvents)
	}
}

// An observer is optional, and so is each of its callbacks.
func TestObserverIsOptional(t *testing.T) {
	g := &grant{pool: &pool{conf: &config{rules: algorithm(), clock: clock.NewLease(RuntimeClock())}}, target: 64}
	all := func(e *events) {
		now := time.Now()
		le := &Lease{grant: g, since: now}
		e.acquired(le, now)
		e.notAcquired(lineKey{resource: "r"}, now, ErrTaken)
		e.extended(g)
		e.extendFailed(g, ErrNoQuorum)
		e.lost(g, ErrLost)
		e.released(le)
		e.Down(nodeAt("a"), errNodeTimeout)
		e.Up(nodeAt("a"))
		e.nodeForgot(g, "a")
		e.Quarantined(nodeAt("a"), time.Second)
		e.gaveUp(lineKey{resource: "r"}, now, ErrTaken)
		e.Asked(nodeAt("a"), time.Second, nil)
	}
	all(eventsOf())
	e := eventsOf(Observer{})
	for range maxEvents/9 + 1 {
		all(e)
	}
	if len(e.queue) != 0 || e.dropped != 0 {
		t.Errorf("%d events without a callback are queued, %d dropped", len(e.queue), e.dropped)
	}
	e.close()
	e.run()

	// Dropped may be missing while other callbacks are set.
	e = eventsOf(Observer{MasterUp: func(Event) {}})
	for range maxEvents + 1 {
		e.Up(nodeAt("a"))
	}
	e.close()
	e.run()
}

// Each kind of event goes to its own callback, with all that is known.
func TestEventFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := make(map[string]Event)
		keep := func(name string) func(Event) { return func(e Event) { got[name] = e } }
		acquired := func(e Event) {
			if e.HandedOver {
				got["handed over"] = e
			} else {
				got["acquired"] = e
			}
		}
		e := eventsOf(Observer{
			Acquired: acquired, NotAcquired: keep("not acquired"), GaveUp: keep("gave up"), Extended: keep("extended"), ExtendFailed: keep("extend failed"),
			Lost: keep("lost"), Released: keep("released"), MasterAsked: keep("asked"), MasterDown: keep("down"), MasterUp: keep("up"), MasterForgot: keep("forgot"),
		})
		g := &grant{pool: &pool{conf: &config{rules: algorithm(), clock: clock.NewLease(RuntimeClock())}}, resource: "r", target: 1064}
		g.limits.deadline.Store(int64(5 * time.Second))
		began := time.Now()
		time.Sleep(2 * time.Second)
		now, oops := time.Now(), errors.New("oops")
		le := &Lease{grant: g, fence: 1001, since: began}
		e.acquired(le, began)
		e.notAcquired(lineKey{resource: "r"}, began, oops)
		e.gaveUp(lineKey{resource: "r"}, began, oops)
		e.Asked(nodeAt("a"), time.Minute, oops)
		next := *le
		next.turn, next.fence = 1, 1002
		e.acquired(&next, now)
		e.extended(g)
		e.extendFailed(g, oops)
		g.handles = append(g.handles, le)
		e.lost(g, oops)
		e.released(le)
		e.Down(nodeAt("a"), oops)
		e.Up(nodeAt("a"))
		e.nodeForgot(g, "a")
		time.Sleep(time.Second) // the time is that of the event, not of the delivery
		e.close()
		e.run()
		for name, want := range map[string]Event{
			"acquired":      {Resource: "r", Mode: Exclusive, Fence: 1001, Elapsed: 2 * time.Second, Validity: 3 * time.Second},
			"handed over":   {Resource: "r", Mode: Exclusive, Fence: 1002, Validity: 3 * time.Second, HandedOver: true},
			"gave up":       {Resource: "r", Mode: Exclusive, Elapsed: 2 * time.Second, Err: oops},
			"asked":         {Master: "a", Elapsed: time.Minute, Err: oops},
			"not acquired":  {Resource: "r", Mode: Exclusive, Elapsed: 2 * time.Second, Err: oops},
			"extended":      {Resource: "r", Mode: Exclusive, Fence: 1001, Validity: 3 * time.Second},
			"extend failed": {Resource: "r", Mode: Exclusive, Fence: 1001, Validity: 3 * time.Second, Err: oops},
			"lost":          {Resource: "r", Mode: Exclusive, Fence: 1001, Elapsed: 2 * time.Second, Validity: 3 * time.Second, Err: oops},
			"released":      {Resource: "r", Mode: Exclusive, Fence: 1001, Elapsed: 2 * time.Second},
			"down":          {Master: "a", Err: oops},
			"up":            {Master: "a"},
			"forgot":        {Resource: "r", Mode: Exclusive, Fence: 1001, Master: "a"},
		} {
			want.Time = now
			if got[name] != want {
				t.Errorf("%s: got %+v, want %+v", name, got[name], want)
			}
		}
	})
}

// Several observers get all events, in their order. An event whose callback is missing in one of
// them goes only to the others. No field is left out.
func TestObserversAreJoined(t *testing.T) {
	var told []string
	whole := func(who string) (o Observer) {
		v := reflect.ValueOf(&o).Elem()
		for i := range v.NumField() {
			f := v.Field(i)
			f.Set(reflect.MakeFunc(f.Type(), func([]reflect.Value) []reflect.Value {
				told = append(told, v.Type().Field(i).Name+" to "+who)
				return nil
			}))
		}
		return o
	}
	for name, test := range map[string]struct {
		of   []Observer
		want []string // the observers that get the event
	}{
		"one":            {[]Observer{whole("a")}, []string{"a"}},
		"two":            {[]Observer{whole("a"), whole("b")}, []string{"a", "b"}},
		"none and three": {[]Observer{{}, whole("a"), {}, whole("b"), whole("c")}, []string{"a", "b", "c"}},
	} {
		t.Run(name, func(t *testing.T) {
			var opts []Option
			for _, o := range test.of {
				opts = append(opts, WithObserver(o))
			}
			for range 2 { // options can be reused
				c, err := newConfig(opts)
				if err != nil {
					t.Fatal(err)
				}
				v := reflect.ValueOf(c.joined(c.observers))
				for i := range v.NumField() {
					told = nil
					v.Field(i).Call([]reflect.Value{reflect.Zero(v.Field(i).Type().In(0))})
					var want []string
					for _, who := range test.want {
						want = append(want, v.Type().Field(i).Name+" to "+who)
					}
					if !slices.Equal(told, want) {
						t.Errorf("got %q, want %q", told, want)
					}
				}
			}
		})
	}
}

// Several observers get every event, in order. Without a callback for it an event is not even
// computed.
func TestJoined(t *testing.T) {
	var got []string
	all := func(name string) (o Observer) {
		v := reflect.ValueOf(&o).Elem()
		for i := range v.NumField() {
			field := v.Type().Field(i).Name
			switch f := v.Field(i).Addr().Interface().(type) {
			case *func(Event):
				*f = func(e Event) { got = append(got, name+" "+field+" "+e.Master) }
			case *func(int):
				*f = func(n int) { got = append(got, fmt.Sprint(name, " ", field, " ", n)) }
			}
		}
		return o
	}
	both := reflect.ValueOf(new(config).joined([]Observer{all("a"), {}, all("b")}))
	for i := range both.NumField() {
		field := both.Type().Field(i).Name
		if both.Field(i).IsNil() {
			t.Errorf("%s: got no callback", field)
			continue
		}
		got = nil
		arg, told := reflect.ValueOf(Event{Master: "n"}), "n"
		if field == "Dropped" {
			arg, told = reflect.ValueOf(3), "3"
		}
		both.Field(i).Call([]reflect.Value{arg})
		if want := []string{"a " + field + " " + told, "b " + field + " " + told}; !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", field, got, want)
		}
	}
	none := reflect.ValueOf(new(config).joined([]Observer{{}, {}}))
	for i := range none.NumField() {
		if !none.Field(i).IsNil() {
			t.Errorf("%s of none: got a callback, want nil", none.Type().Field(i).Name)
		}
	}
}
