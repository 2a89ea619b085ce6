package redlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/d0720281/redlock/internal/lockorder"
	"github.com/d0720281/redlock/internal/node"
)

// Observer has callbacks for what happens in a Locker, for metrics and logs. Every callback is
// optional. One goroutine calls them, one at a time and in order: a slow callback delays the
// next event and the return of Close, never a lock. A callback must not call Close, nor
// runtime.Goexit, which would end all events. A panic of a callback is recovered, and logged
// once for each callback (see [WithLogger]); the next event follows. Events have neither tokens
// nor credentials.
type Observer struct {
	Acquired      func(Event) // a lease was granted, handed over or adopted; Elapsed is the time since the call
	NotAcquired   func(Event) // an attempt failed; Err says why; Lock may go on trying
	GaveUp        func(Event) // a Lock or TryLock ended without a lease; Err says why; Elapsed is the time since the call
	Extended      func(Event) // a renewal or Extend was successful
	ExtendFailed  func(Event) // a renewal or Extend failed; the lease stands until its validity ends
	Downgraded    func(Event) // an exclusive lease became that of a reader; Elapsed is how long it was held
	PermitsDiffer func(Event) // another client has more permits for a semaphore; told once for each semaphore
	Lost          func(Event) // a lease ended without having been released; Err says why; Elapsed is how long it was held
	Released      func(Event) // a lease was released or handed over, or detached if Err is ErrDetached; Elapsed is how long it was held
	MasterAsked   func(Event) // a batch of requests was sent to a master; Elapsed is the time to the answer; Err says why there is none
	MasterDown    func(Event) // a master stopped answering; it is probed until it answers; Err says why
	MasterUp      func(Event) // a master that was down answers again
	MasterForgot  func(Event) // a master has lost a key: it restarted empty, was flushed, or its clock jumped
	Quarantined   func(Event) // a master has no vote for Elapsed: it is new, restarted, lost data, or its clock was moved
	ClockStepped  func(Event) // the wall clock of a master was moved by Elapsed, negative for back; the master is in quarantine
	StoodStill    func(Event) // the local clock had stood still for Elapsed; the leases were shortened by that
	Warning       func(Event) // something about a master makes locks less safe than they should be; Err says what
	Dropped       func(n int) // n events were dropped because the callbacks were too slow
}

// Event is the argument of a callback of [Observer]. Fields that do not apply are zero.
type Event struct {
	Time     time.Time
	Resource string
	Mode     Mode // of the lease or of the call
	Slot     int  // of a permit, from 1
	Fence    int64
	Master   string        // address
	Elapsed  time.Duration // see Observer
	Validity time.Duration // what is left of the lease
	Err      error

	HandedOver bool // of Acquired: another caller of this process handed the lease over, and no master was asked
}

// maxEvents is how many events wait for slow callbacks before further ones are dropped.
const maxEvents = 1 << 14

// events queues events for the observer and the log.
type events struct {
	observer Observer
	conf     *config
	told     sync.Map // the nodes of which the log has said that a Lock waits for their quarantine
	differ   sync.Map // the semaphores for which another client has more permits
	wake     chan struct{}
	counts   counts

	mu      lockorder.Mutex[lockorder.Events]
	queue   []notice // guarded by mu
	dropped int      // guarded by mu
	closed  bool     // guarded by mu
}

type notice struct {
	call  func(Event)
	event Event
}

func newEvents(c *config) *events {
	return &events{observer: c.joined(c.observers), conf: c, wake: make(chan struct{}, 1)}
}

// log queues a warning for the operator.
func (e *events) log(text string, attrs ...any) {
	e.add(func(Event) { e.conf.warn(text, attrs...) }, Event{})
}

// inform queues a message that something is well again.
func (e *events) inform(text string, attrs ...any) {
	e.add(func(Event) { e.conf.inform(text, attrs...) }, Event{})
}

// add queues an event. It never waits.
func (e *events) add(call func(Event), ev Event) {
	if call == nil {
		return
	}
	ev.Time = time.Now()
	e.mu.Lock()
	if len(e.queue) < maxEvents {
		e.queue = append(e.queue, notice{call, ev})
	} else {
		e.dropped++
		e.counts.dropped.Add(1)
	}
	e.mu.Unlock()
	e.poke()
}

func (e *events) poke() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// close makes run return after it has passed on all events.
func (e *events) close() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.poke()
}

// run is the goroutine that calls the observer.
func (e *events) run() {
	for range e.wake {
		e.mu.Lock()
		batch, dropped, closed := e.queue, e.dropped, e.closed
		e.queue, e.dropped = nil, 0
		e.mu.Unlock()
		for _, n := range batch {
			n.call(n.event)
		}
		if dropped > 0 && e.observer.Dropped != nil {
			e.observer.Dropped(dropped)
		}
		if closed {
			return
		}
	}
}

// joined returns an Observer that calls several observers, one after the other. A panic of one
// does not keep the event from the next.
func (c *config) joined(list []Observer) Observer {
	return Observer{
		Acquired:      tellAll(c, "Observer.Acquired", list, func(o Observer) func(Event) { return o.Acquired }),
		NotAcquired:   tellAll(c, "Observer.NotAcquired", list, func(o Observer) func(Event) { return o.NotAcquired }),
		GaveUp:        tellAll(c, "Observer.GaveUp", list, func(o Observer) func(Event) { return o.GaveUp }),
		Extended:      tellAll(c, "Observer.Extended", list, func(o Observer) func(Event) { return o.Extended }),
		ExtendFailed:  tellAll(c, "Observer.ExtendFailed", list, func(o Observer) func(Event) { return o.ExtendFailed }),
		Downgraded:    tellAll(c, "Observer.Downgraded", list, func(o Observer) func(Event) { return o.Downgraded }),
		PermitsDiffer: tellAll(c, "Observer.PermitsDiffer", list, func(o Observer) func(Event) { return o.PermitsDiffer }),
		Lost:          tellAll(c, "Observer.Lost", list, func(o Observer) func(Event) { return o.Lost }),
		Released:      tellAll(c, "Observer.Released", list, func(o Observer) func(Event) { return o.Released }),
		MasterAsked:   tellAll(c, "Observer.MasterAsked", list, func(o Observer) func(Event) { return o.MasterAsked }),
		MasterDown:    tellAll(c, "Observer.MasterDown", list, func(o Observer) func(Event) { return o.MasterDown }),
		MasterUp:      tellAll(c, "Observer.MasterUp", list, func(o Observer) func(Event) { return o.MasterUp }),
		MasterForgot:  tellAll(c, "Observer.MasterForgot", list, func(o Observer) func(Event) { return o.MasterForgot }),
		Quarantined:   tellAll(c, "Observer.Quarantined", list, func(o Observer) func(Event) { return o.Quarantined }),
		ClockStepped:  tellAll(c, "Observer.ClockStepped", list, func(o Observer) func(Event) { return o.ClockStepped }),
		StoodStill:    tellAll(c, "Observer.StoodStill", list, func(o Observer) func(Event) { return o.StoodStill }),
		Warning:       tellAll(c, "Observer.Warning", list, func(o Observer) func(Event) { return o.Warning }),
		Dropped:       tellAll(c, "Observer.Dropped", list, func(o Observer) func(int) { return o.Dropped }),
	}
}

// tellAll returns one callback that calls all callbacks of a kind, or nil if there are none.
func tellAll[E any](c *config, name string, list []Observer, kind func(Observer) func(E)) func(E) {
	var calls []func(E)
	for _, o := range list {
		if call := kind(o); call != nil {
			calls = append(calls, call)
		}
	}
	if len(calls) == 0 {
		return nil
	}
	return func(e E) {
		for _, call := range calls {
			c.guarded(name, func() { call(e) })
		}
	}
}

// eventLocked returns an event about a lease.
func (g *grant) eventLocked() Event {
	resource, slot := g.named()
	return Event{Resource: resource, Slot: slot, Mode: g.modeLocked(), Fence: g.presentFenceLocked()}
}

// event returns an event about a lease and its own fencing token. Late answers may still change the grant,
// so it reads nothing that they change.
func (le *Lease) event() Event {
	resource, slot := le.grant.named()
	return Event{Resource: resource, Slot: slot, Mode: le.grant.modeLocked(), Fence: le.fence}
}

// Where an event takes time to put together, the method first looks for a callback.

func (e *events) acquired(le *Lease, began time.Time) {
	e.counts.acquired.Add(1)
	if call := e.observer.Acquired; call != nil {
		ev := le.event()
		ev.Elapsed, ev.Validity, ev.HandedOver = time.Since(began), le.grant.validity(), le.turn > 0
		e.add(call, ev)
	}
}

func (e *events) notAcquired(line lineKey, began time.Time, err error) {
	e.counts.refused(err)
	e.add(e.observer.NotAcquired, Event{Resource: line.name(), Mode: line.mode(), Elapsed: time.Since(began), Err: err})
}

func (e *events) gaveUp(line lineKey, began time.Time, err error) {
	e.add(e.observer.GaveUp, Event{Resource: line.name(), Mode: line.mode(), Elapsed: time.Since(began), Err: err})
}

func (e *events) extended(g *grant) {
	e.counts.extended.Add(1)
	if call := e.observer.Extended; call != nil {
		ev := g.eventLocked()
		ev.Validity = g.validity()
		e.add(call, ev)
	}
}

func (e *events) extendFailed(g *grant, err error) {
	e.counts.extendFailed.Add(1)
	if call := e.observer.ExtendFailed; call != nil {
		ev := g.eventLocked()
		ev.Validity, ev.Err = g.validity(), err
		e.add(call, ev)
	}
}

func (e *events) lost(g *grant, err error) {
	e.counts.lost.Add(1)
	if call := e.observer.Lost; call != nil {
		ev := g.eventLocked()
		ev.Validity, ev.Err = g.validity(), err
		if len(g.handles) > 0 {
			ev.Elapsed = time.Since(g.handles[0].since)
		}
		e.add(call, ev)
	}
}

func (e *events) released(le *Lease) { e.givenBack(le, nil) }

func (e *events) detached(le *Lease) { e.givenBack(le, ErrDetached) }

func (e *events) givenBack(le *Lease, err error) {
	e.counts.released.Add(1)
	if call := e.observer.Released; call != nil {
		ev := le.event()
		ev.Elapsed, ev.Err = time.Since(le.since), err
		e.add(call, ev)
	}
}

func (e *events) downgraded(le *Lease) {
	if call := e.observer.Downgraded; call != nil {
		e.add(call, Event{Resource: le.Resource(), Mode: Shared, Fence: le.fence, Elapsed: time.Since(le.since), Validity: le.grant.validity()})
	}
}

// The exported methods implement node.Events.

// Asked implements [node.Events].
func (e *events) Asked(n *node.Node, took time.Duration, err error) {
	if call := e.observer.MasterAsked; call != nil {
		e.add(call, Event{Master: n.Addr(), Elapsed: took, Err: err})
	}
}

// Down implements [node.Events].
func (e *events) Down(n *node.Node, err error) {
	e.counts.nodeDown.Add(1)
	e.add(e.observer.MasterDown, Event{Master: n.Addr(), Err: err})
}

// Up implements [node.Events].
func (e *events) Up(n *node.Node) { e.add(e.observer.MasterUp, Event{Master: n.Addr()}) }

// Audited implements [node.Events].
func (e *events) Audited(n *node.Node, before, now *node.Audit) {
	for _, f := range e.conf.newFindings(before, now) {
		e.Warning(n, f.err())
	}
}

func (e *events) nodeForgot(g *grant, addr string) {
	e.counts.nodeForgot.Add(1)
	ev := g.eventLocked()
	ev.Master = addr
	e.add(e.observer.MasterForgot, ev)
}

// permitsDiffer reports, once for each semaphore, that another client has more permits for it.
func (e *events) permitsDiffer(line lineKey) {
	if _, told := e.differ.LoadOrStore(line.resource, true); told {
		return
	}
	err := errorf("semaphore %q has %d permits here, and more for another client: as many as that may be held", line.name(), line.permits.Of)
	e.add(e.observer.PermitsDiffer, Event{Resource: line.name(), Mode: Permit, Err: err})
	e.log(err.Error())
}

// Quarantined implements [node.Events].
func (e *events) Quarantined(n *node.Node, left time.Duration) {
	e.told.Delete(n)
	e.counts.quarantined.Add(1)
	e.add(e.observer.Quarantined, Event{Master: n.Addr(), Elapsed: left})
}

// Stepped implements [node.Events].
func (e *events) Stepped(n *node.Node, by time.Duration) {
	e.counts.clockStepped.Add(1)
	e.add(e.observer.ClockStepped, Event{Master: n.Addr(), Elapsed: by})
	e.log("clock of a master was stepped, it has no vote for a time", "master", n.Addr(), "by", by.Round(time.Millisecond))
}

// StoodStill implements [node.Events].
func (e *events) StoodStill(d time.Duration) {
	e.counts.stoodStill.Add(1)
	e.add(e.observer.StoodStill, Event{Elapsed: d})
	e.log("the local clock had stood still, leases are shortened by that", "for", d.Round(time.Millisecond))
}

// Warning implements [node.Events].
func (e *events) Warning(n *node.Node, err error) {
	e.counts.warnings.Add(1)
	e.add(e.observer.Warning, Event{Master: n.Addr(), Err: err})
	e.log(err.Error(), "master", n.Addr())
}

// waiting logs that calls wait for nodes to have their votes again, once for each quarantine. The key
// "reason" marks what calls wait for, here and in outage.note.
func (e *events) waiting(voteless map[*node.Node]time.Duration) {
	var texts []string
	longest, hint := time.Duration(0), bootstrapHint
	for n, left := range voteless {
		if _, told := e.told.LoadOrStore(n, true); told {
			continue
		}
		texts = append(texts, fmt.Sprintf("%s: %v", n.Addr(), node.Quarantine(left)))
		longest = max(longest, left)
		if n.Standing().SaidIn(e.conf.clock.Instant()) == 0 { // only this client does not trust the node: Bootstrap cannot vouch for it
			hint = "wait"
		}
	}
	if len(texts) > 0 {
		slices.Sort(texts)
		e.log("masters in quarantine have no vote yet; calls wait for them", "reason", Reason(ErrQuarantine), "masters", texts, "seconds", math.Ceil(longest.Seconds()), "hint", hint)
	}
}

// LogObserver returns an Observer that logs events. Acquisitions, renewals, releases, and
// attempts that failed because another holder has the resource, have level Debug. A master that
// is up again has level Info. Attempts that failed for lack of a quorum, renewals that failed,
// lost leases, and failures of masters have level Warn. While masters are down, Lock makes many
// attempts. Of those that fail for the same [Reason], one is logged in 10 s, with the number of those
// before it that were not, until the resource is better: it was granted, or a quorum of the masters has
// the key of another holder. If l is nil, each event goes to the [slog.Default] of that time.
//
// Warning, ClockStepped and StoodStill are not logged, because they go to the logger of
// [WithLogger].
func LogObserver(l *slog.Logger) Observer {
	log := func(level slog.Level, text string, attrs ...any) {
		to := l
		if to == nil {
			to = slog.Default()
		}
		to.Log(context.Background(), level, "redlock: "+text, attrs...)
	}
	var outages outageLog
	return Observer{
		Acquired: func(e Event) {
			outages.better(e.Resource)
			log(slog.LevelDebug, "acquired", "resource", e.Resource, "mode", e.Mode, "fence", e.Fence, "waited", e.Elapsed, "validity", e.Validity)
		},
		NotAcquired: func(e Event) {
			attrs := []any{"resource", e.Resource, "waited", e.Elapsed, "error", e.Err}
			if !errors.Is(e.Err, ErrNoQuorum) {
				if q := (*QuorumError)(nil); errors.As(e.Err, &q) && q.HeldByQuorum() {
					outages.better(e.Resource)
				}
				log(slog.LevelDebug, "not acquired", attrs...)
				return
			}
			if more, due := outages.due(e); due {
				if more > 0 {
					attrs = append(attrs, "more", more)
				}
				log(slog.LevelWarn, "not acquired", attrs...)
			}
		},
		Extended: func(e Event) {
			log(slog.LevelDebug, "extended", "resource", e.Resource, "fence", e.Fence, "validity", e.Validity)
		},
		ExtendFailed: func(e Event) {
			log(slog.LevelWarn, "extension failed", "resource", e.Resource, "fence", e.Fence, "validity", e.Validity, "error", e.Err)
		},
		Downgraded: func(e Event) {
			log(slog.LevelDebug, "downgraded", "resource", e.Resource, "fence", e.Fence, "validity", e.Validity)
		},
		Lost: func(e Event) {
			log(slog.LevelWarn, "lease lost", "resource", e.Resource, "fence", e.Fence, "error", e.Err)
		},
		Released: func(e Event) {
			log(slog.LevelDebug, "released", "resource", e.Resource, "fence", e.Fence, "held", e.Elapsed)
		},
		MasterDown: func(e Event) { log(slog.LevelWarn, "master is down", "master", e.Master, "error", e.Err) },
		MasterUp:   func(e Event) { log(slog.LevelInfo, "master is up again", "master", e.Master) },
		MasterForgot: func(e Event) {
			log(slog.LevelWarn, "master has lost a key", "master", e.Master, "resource", e.Resource)
		},
		Quarantined: func(e Event) {
			log(slog.LevelWarn, "master has no vote for a time", "master", e.Master, "for", e.Elapsed)
		},
		Dropped: func(n int) { log(slog.LevelWarn, "events were dropped", "count", n) },
	}
}

// outageLog limits the log of attempts that find no quorum.
type outageLog struct {
	mu   sync.Mutex             // several Lockers may have the Observer
	last map[string]*outageLine // by the reason; guarded by mu
}

// outageLine records the last line that was logged for a reason.
type outageLine struct {
	resource string
	at       time.Time
	more     int // attempts since then
}

// outageEvery is how often attempts that fail for the same reason are logged.
const outageEvery = 10 * time.Second

// due reports whether to log an attempt, and how many for the same reason were not logged before it.
func (o *outageLog) due(e Event) (more int, due bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	reason := Reason(e.Err)
	line := o.last[reason]
	switch {
	case line == nil:
	case e.Time.Sub(line.at) < outageEvery:
		line.more++
		return 0, false
	default:
		more = line.more
	}
	if o.last == nil {
		o.last = make(map[string]*outageLine)
	}
	o.last[reason] = &outageLine{resource: e.Resource, at: e.Time}
	return more, true
}

// better forgets what was logged for a resource that a quorum has granted, or has for another holder.
func (o *outageLog) better(resource string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.last, func(_ string, line *outageLine) bool { return line.resource == resource })
}

// Tracer is called at the start of each Lock, RLock, Extend, Unlock and the like, whose name is op. The
// function that it returns is called at the end of that call. Both run in the call's own
// goroutine, and add to the time of the call. A [Locker.Do] is a Lock and an Unlock. A Tracer
// is for spans: unlike an [Observer], it also sees the start of a call. Calls with wrong
// arguments are not traced.
//
// lease is nil for a Lock or TryLock that got none. A Tracer may return nil. A panic of the
// Tracer or of end is recovered and logged once (see [WithLogger]), and does not change the
// result of the call. If end exits the goroutine by runtime.Goexit, the lease of the call is
// released, because no caller gets it.
type Tracer func(ctx context.Context, op, resource string) (end func(lease *Lease, err error))

// WithTracer sets the [Tracer]. By default there is none. Package
// github.com/d0720281/redlock/redlockotel has one for OpenTelemetry.
func WithTracer(t Tracer) Option { return option(func(c *config) { c.tracer = t }) }

// trace begins the trace of a call. The caller calls end when the call is over.
func (c *config) trace(ctx context.Context, op, resource string) (end func(*Lease, error)) {
	if c.tracer == nil {
		return untraced
	}
	var its func(*Lease, error)
	c.guarded("Tracer", func() { its = c.tracer(ctx, op, resource) })
	if its == nil {
		return untraced
	}
	return func(le *Lease, err error) { c.guarded("end of Tracer", func() { its(le, err) }) }
}

func untraced(*Lease, error) {}
