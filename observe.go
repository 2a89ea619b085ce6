package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/d0720281/redlock/internal/line"
	"github.com/d0720281/redlock/internal/lockorder"
	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/reason"
)

// This file has what a Locker shows of its work: events, counters, traces and snapshots. log.go has
// the log.

// Observer is called for each event of a Locker, for metrics and logs. One goroutine calls all observers, one
// event at a time and in order: a slow observer delays the next event and the return of Close, never a lock. Up
// to 16,384 events wait; [EventDropped] counts those beyond. An observer must not call Close, nor
// runtime.Goexit, which would end all events. The library recovers a panic of an observer, and logs the first
// one. Events have neither tokens nor credentials.
type Observer func(Event)

// Event is something that happened in a Locker. [EventKind.Fields] has the fields of each kind; the others are zero.
type Event struct {
	Kind     EventKind
	Time     time.Time
	Resource string
	Mode     Mode // of the lease or of the call
	Fence    int64
	Master   string        // address
	Elapsed  time.Duration // since the call, or how long the lease was held; for a master or a clock see EventKind
	Validity time.Duration // what is left of the lease
	Err      error         // why
	Count    int

	HandedOver bool // by another caller of this process: no master was asked

	again bool // of a failed attempt: the one before it in its line failed for the same reason and holder
}

// EventKind is the kind of an [Event]. More kinds may be added.
type EventKind int

// The kinds of events.
const (
	EventAcquired           EventKind = iota // a lease was granted, handed over or adopted
	EventTaken                               // an attempt failed because another holder has the resource; Lock may go on trying
	EventAttemptFailed                       // an attempt failed for another reason; Lock may go on trying
	EventNotAcquired                         // a Lock or TryLock ended without a lease
	EventExtended                            // a renewal or Extend was successful
	EventExtendFailed                        // a renewal or Extend failed; the lease stands until its validity ends
	EventDowngraded                          // an exclusive lease became that of a reader
	EventLost                                // a lease ended without having been released
	EventAbandoned                           // the program dropped a Lease without Unlock, which is renewed until Close or its maximum hold
	EventReleased                            // a lease was released or handed over, or detached if Err is ErrDetached
	EventExchange                            // a batch of requests was sent to a master; Elapsed is the time to the answer; Err is why there is none
	EventMasterDown                          // a master stopped answering; it is probed until it answers
	EventMasterUp                            // a master that was down answers again
	EventKeyLost                             // a master has lost a key: it restarted empty, was flushed, or its clock jumped
	EventQuarantined                         // a master has no vote for Elapsed: it is new, restarted, lost data, or its clock was moved
	EventMasterClockStepped                  // the wall clock of a master was moved by Elapsed, negative for back; the master is in quarantine
	EventLocalClockStopped                   // the local clock had stood still for Elapsed; the leases were shortened by that
	EventWarning                             // a master makes locks less safe, or waiting slower, than they should be
	EventDropped                             // Count events were dropped, because the observers were too slow
	eventKinds
)

// kinds has the name of each kind and its fields, those of each event and those of some, and how the log
// shows it: the level, the text, and the name of Elapsed.
var kinds = [eventKinds]struct {
	name    string
	each    string
	some    string
	level   slog.Level
	text    string
	elapsed string
}{
	EventAcquired:           {"acquired", "Resource Mode Fence Elapsed Validity", "HandedOver", slog.LevelDebug, "acquired", "waited"},
	EventTaken:              {"taken", "Resource Mode Elapsed Err", "", slog.LevelDebug, "taken by another holder", "waited"},
	EventAttemptFailed:      {"attempt_failed", "Resource Mode Elapsed Err", "", slog.LevelDebug, "attempt failed", "waited"},
	EventNotAcquired:        {"not_acquired", "Resource Mode Elapsed Err", "", slog.LevelDebug, "not acquired", "waited"},
	EventExtended:           {"extended", "Resource Mode Fence Validity", "", slog.LevelDebug, "extended", ""},
	EventExtendFailed:       {"extend_failed", "Resource Mode Fence Validity Err", "", slog.LevelDebug, "extension failed", ""}, // see outage
	EventDowngraded:         {"downgraded", "Resource Mode Fence Elapsed Validity", "", slog.LevelDebug, "downgraded", "held"},
	EventLost:               {"lost", "Resource Mode Fence Elapsed Validity Err", "", slog.LevelWarn, "lease lost", "held"},
	EventAbandoned:          {"abandoned", "Resource Mode Fence Elapsed", "", slog.LevelWarn, "a lease was dropped without Unlock, and is renewed until Close", "held"},
	EventReleased:           {"released", "Resource Mode Fence Elapsed", "Err", slog.LevelDebug, "released", "held"},
	EventExchange:           {"exchange", "Master Elapsed", "Err", slog.LevelDebug - 4, "exchange", "took"},
	EventMasterDown:         {"master_down", "Master Err", "", slog.LevelWarn, "master is down", ""},
	EventMasterUp:           {"master_up", "Master", "", slog.LevelInfo, "master is up again", ""},
	EventKeyLost:            {"key_lost", "Resource Mode Fence Master", "", slog.LevelWarn, "master has lost a key", ""},
	EventQuarantined:        {"quarantined", "Master Elapsed", "", slog.LevelWarn, "master has no vote for a time", "for"},
	EventMasterClockStepped: {"master_clock_stepped", "Master Elapsed", "", slog.LevelWarn, "clock of a master was stepped, it has no vote for a time", "by"},
	EventLocalClockStopped:  {"local_clock_stopped", "Elapsed", "", slog.LevelWarn, "the local clock had stood still, leases are shortened by that", "for"},
	EventWarning:            {"warning", "Master Err", "", slog.LevelWarn, "", ""},
	EventDropped:            {"dropped", "Count", "", slog.LevelWarn, "events were dropped, as an observer is too slow", ""},
}

// Fields returns the names of the fields that each [Event] of the kind has beside Kind and Time, and of those
// that some have. It returns none for a kind that the library does not have.
func (k EventKind) Fields() (each, some []string) {
	if k < 0 || k >= eventKinds {
		return nil, nil
	}
	return strings.Fields(kinds[k].each), strings.Fields(kinds[k].some)
}

// String returns the kind in lower case, with "_" between words: "master_down".
func (k EventKind) String() string {
	if k < 0 || k >= eventKinds {
		return fmt.Sprintf("EventKind(%d)", int(k))
	}
	return kinds[k].name
}

// maxEvents is how many events wait for slow observers before further ones are dropped.
const maxEvents = 1 << 14

// events counts events, and passes them on to the observers and to the log.
type events struct {
	conf    *config
	counts  [eventKinds]atomic.Uint64
	verbose bool // events that are not for the log alone are wanted; set before the first one
	wake    lockorder.Signal

	voteless sync.Map     // the nodes of which the log has said that calls wait for their quarantine, with the instant from which it says so again
	waitsTo  atomic.Int64 // instant to which, as the log has said, calls wait for a quarantine; 0: none
	lists    sync.Map     // the lists of masters of other clients that the log has

	mu      lockorder.Mutex[lockorder.Events]
	queue   []notice // guarded by mu
	dropped int      // guarded by mu
	closed  bool     // guarded by mu

	// Of the goroutine.
	logged   map[string]*warning // what was logged of late, by kind, master and reason
	panicked bool                // an observer panicked, and the log has it
}

// notice is an event, or a line for the log alone.
type notice struct {
	event Event
	line  func(*slog.Logger)
}

func newEvents(c *config) *events {
	return &events{conf: c, wake: lockorder.NewSignal(), logged: make(map[string]*warning)}
}

// log queues a line of the log.
func (e *events) log(level slog.Level, text string, attrs ...any) {
	e.add(notice{line: func(l *slog.Logger) { l.Log(context.Background(), level, reason.Prefix+text, attrs...) }})
}

// wants counts an event, and reports whether to put it together.
func (e *events) wants(k EventKind) bool {
	e.counts[k].Add(1)
	return e.verbose || kinds[k].level > slog.LevelDebug
}

// send queues an event that is wanted.
func (e *events) send(ev Event) {
	ev.Time = time.Now()
	e.add(notice{event: ev})
}

// add never waits.
func (e *events) add(n notice) {
	e.mu.Lock()
	if len(e.queue) < maxEvents {
		e.queue = append(e.queue, n)
	} else {
		e.dropped++
		e.counts[EventDropped].Add(1)
	}
	e.mu.Unlock()
	e.wake.Set()
}

// close makes run return after it has passed on all events.
func (e *events) close() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.wake.Set()
}

// start decides which events are wanted, before the first one.
func (e *events) start() {
	e.verbose = len(e.conf.observers) > 0
	e.call(func() {
		e.verbose = e.verbose || e.conf.logger().Enabled(context.Background(), slog.LevelDebug)
	})
}

// run is the goroutine that calls the observers and writes the log.
func (e *events) run() {
	summary := time.NewTimer(0)
	defer summary.Stop()
	for {
		select {
		case <-e.wake:
		case <-summary.C:
		}
		e.mu.Lock()
		batch, dropped, closed := e.queue, e.dropped, e.closed
		e.queue, e.dropped = nil, 0
		e.mu.Unlock()
		for _, n := range batch {
			e.deliver(n)
		}
		if dropped > 0 {
			e.deliver(notice{event: Event{Kind: EventDropped, Time: time.Now(), Count: dropped}})
		}
		next := e.summarize(time.Now(), closed)
		if closed {
			return
		}
		if !next.IsZero() {
			summary.Reset(time.Until(next))
		}
	}
}

// deliver passes one event or line on.
func (e *events) deliver(n notice) {
	if n.line != nil {
		e.call(func() { n.line(e.conf.logger()) })
		return
	}
	for _, observer := range e.conf.observers {
		e.call(func() { observer(n.event) })
	}
	e.call(func() { e.write(n.event) })
}

// call calls an observer or the logger. It is the one place where the library recovers a panic:
// foreign code in a goroutine of the library must not end the process. The log gets the first
// panic.
func (e *events) call(f func()) {
	defer func() {
		if p := recover(); p != nil && !e.panicked {
			e.panicked = true
			stack := string(debug.Stack())
			e.call(func() {
				e.conf.logger().Warn("redlock: an observer panicked; further panics are not logged", "panic", fmt.Sprint(p), "stack", stack)
			})
		}
	}()
	f()
}

// eventLocked returns an event about a lease.
func (g *grant) eventLocked(k EventKind) Event {
	return Event{Kind: k, Resource: g.resource, Mode: g.modeLocked(), Fence: g.presentFenceLocked(), Validity: g.validity()}
}

// event returns an event about a lease and its own fencing token. Late answers may still change the
// grant, so it reads nothing that they change.
func (le *hold) event(k EventKind) Event {
	return Event{Kind: k, Resource: le.grant.resource, Mode: le.grant.modeLocked(), Fence: le.fence}
}

func (e *events) acquired(le *hold, began time.Time) {
	if e.wants(EventAcquired) {
		ev := le.event(EventAcquired)
		ev.Elapsed, ev.Validity, ev.HandedOver = time.Since(began), le.grant.validity(), le.turn > 0
		e.send(ev)
	}
}

// attemptFailed reports an attempt that failed, and notAcquired a call. before is why the attempt before it failed; nil
// if there was none.
func (e *events) attemptFailed(key line.Key, began time.Time, err, before error) {
	kind := EventAttemptFailed
	if errors.Is(err, ErrTaken) {
		kind = EventTaken
	}
	e.failed(kind, key, began, err, before)
}

func (e *events) notAcquired(key line.Key, began time.Time, err error) {
	e.failed(EventNotAcquired, key, began, err, nil)
}

func (e *events) failed(k EventKind, key line.Key, began time.Time, err, before error) {
	if e.wants(k) {
		again := before != nil && holderIn(err) == holderIn(before) && Reason(err) == Reason(before)
		e.send(Event{Kind: k, Resource: key.Resource, Mode: modeOf(key.Shared), Elapsed: time.Since(began), Err: err, again: again})
	}
}

// holderIn returns the label of the holder that the error of an attempt names.
func holderIn(err error) (owner string) {
	if e, ok := err.(*QuorumError); ok { // as conclude made it
		owner, _ = e.Holder()
	}
	return owner
}

// round reports a round of renewal.
func (e *events) round(k EventKind, g *grant, err error) {
	if e.wants(k) {
		ev := g.eventLocked(k)
		ev.Err = err
		e.send(ev)
	}
}

func (e *events) lost(g *grant, err error) {
	if e.wants(EventLost) {
		ev := g.eventLocked(EventLost)
		ev.Err = err
		if len(g.holds) > 0 {
			ev.Elapsed = time.Since(g.holds[0].since)
		}
		e.send(ev)
	}
}

// left reports that a holder has released, detached or dropped a lease. err is ErrDetached or nil.
func (e *events) left(k EventKind, le *hold, err error) {
	if e.wants(k) {
		ev := le.event(k)
		ev.Elapsed, ev.Err = time.Since(le.since), err
		e.send(ev)
	}
}

func (e *events) downgraded(le *hold) {
	if e.wants(EventDowngraded) {
		ev := le.event(EventDowngraded)
		ev.Elapsed, ev.Validity = time.Since(le.since), le.grant.validity()
		e.send(ev)
	}
}

func (e *events) keyLost(g *grant, addr string) {
	if e.wants(EventKeyLost) {
		ev := g.eventLocked(EventKeyLost)
		ev.Master, ev.Validity = addr, 0
		e.send(ev)
	}
}

// about reports an event about a node.
func (e *events) about(k EventKind, n *node.Node, elapsed time.Duration, err error) {
	if e.wants(k) {
		e.send(Event{Kind: k, Master: n.Addr(), Elapsed: elapsed, Err: err})
	}
}

// The exported methods implement [node.Events].

// Asked implements [node.Events].
func (e *events) Asked(n *node.Node, took time.Duration, err error) {
	e.about(EventExchange, n, took, err)
}

// Down implements [node.Events].
func (e *events) Down(n *node.Node, err error) { e.about(EventMasterDown, n, 0, err) }

// Up implements [node.Events].
func (e *events) Up(n *node.Node) { e.about(EventMasterUp, n, 0, nil) }

// Audited implements [node.Events].
func (e *events) Audited(n *node.Node, before, now *node.Audit) {
	for _, f := range n.Set().News(before, now) {
		if f.Check == "masters" && f.Level < node.Failure {
			e.otherList(now.Marker.Lists[0].Lists, f)
			continue
		}
		e.Warning(n, f.Err())
	}
}

// otherList logs that another client has another list of masters, which may stand beside this client's, as
// during a change of the list: once, and not for each master that says so.
func (e *events) otherList(lists string, f node.Finding) {
	if _, told := e.lists.LoadOrStore(lists, nil); !told {
		e.log(slog.LevelInfo, f.Err().Error())
	}
}

// Quarantined implements [node.Events].
func (e *events) Quarantined(n *node.Node, left time.Duration) {
	e.voteless.Delete(n)
	e.about(EventQuarantined, n, left, nil)
}

// Stepped implements [node.Events].
func (e *events) Stepped(n *node.Node, by time.Duration) {
	e.about(EventMasterClockStepped, n, by, nil)
}

// StoodStill implements [node.Events].
func (e *events) StoodStill(d time.Duration) {
	if e.wants(EventLocalClockStopped) {
		e.send(Event{Kind: EventLocalClockStopped, Elapsed: d})
	}
}

// Starved implements [node.Events].
func (e *events) Starved(waited time.Duration) {
	e.log(slog.LevelWarn, "replies waited in this process: it lacks processor time, and the masters are not to blame", "for", waited.Round(time.Millisecond))
}

// Warning implements [node.Events].
func (e *events) Warning(n *node.Node, err error) { e.about(EventWarning, n, 0, err) }

// Tracer is called at the start of each Lock, TryLock, Extend, Unlock and Downgrade, whose name is op; that of
// ExtendFor is "Extend", and that of the wait for a permit of package semaphore "LockAny". The function that it
// returns is called at the end of that call; lease is nil for a call that got none. A [Locker.Do] is a Lock and
// an Unlock. Calls with wrong arguments are not traced. A Tracer may return nil.
//
// Both functions run in the call's own goroutine, and add to its time. A panic goes to the caller. If end
// panics, or ends the goroutine, after Lock, LockAny or TryLock, the lease is released. After Extend or
// Downgrade it stands.
type Tracer func(ctx context.Context, op, resource string) (end func(lease *Lease, err error))

// WithTracer sets the [Tracer]. By default there is none. Package
// github.com/d0720281/redlock/redlockotel has one for OpenTelemetry.
func WithTracer(t Tracer) Option { return option(func(c *config) { c.tracer = t }) }

// trace begins the trace of a call. The caller calls end when the call is over.
func (c *config) trace(ctx context.Context, op, resource string) (end func(*Lease, error)) {
	if c.tracer != nil {
		lockorder.MustBeFree()
		if end = c.tracer(ctx, op, resource); end != nil {
			return end
		}
	}
	return func(*Lease, error) {}
}

// Stats is a snapshot of a Locker, see [Locker.Stats].
type Stats struct {
	Leases  []LeaseStats  // the leases that are held, in the order of resource and fencing token
	Masters []MasterStats // in the order they were given to New
	Waiting int           // calls of Lock and Do, and waits for permits, that have no lease yet

	// Counts has how often each kind of event happened since New, with an [Observer] or without.
	// The numbers never fall. That of EventDropped is the number of events that were dropped.
	Counts map[EventKind]uint64
}

// LeaseStats is one lease that is held.
type LeaseStats struct {
	Resource string
	Mode     Mode
	Token    string        // as on the masters; use Fence instead in logs and metrics
	Fence    int64         // of the present holder
	Since    time.Time     // when the present holder got the lease
	TTL      time.Duration // of each grant and renewal
	Validity time.Duration // as by [Lease.Validity]
	Renewals int           // successful renewals since the masters granted the lease, Extend included
	Holds    int           // holds not yet unlocked; more than 1 by [WithReentry], or as readers of the process share the lease
}

// MasterState is whether the Locker sends requests to a master.
type MasterState int

// The states of a master.
const (
	MasterUntried MasterState = iota // there was no request yet
	MasterUp                         // the master was reached, and gets requests
	MasterDown                       // the master gets no requests until it can be reached again
)

// String returns "untried", "up" or "down".
func (s MasterState) String() string {
	if s < MasterUntried || s > MasterDown {
		return fmt.Sprintf("MasterState(%d)", int(s))
	}
	return [...]string{"untried", "up", "down"}[s]
}

// MasterStats is the state of one master, as of the last exchange with it. A Locker notices that a
// master hangs or is gone at its next request.
type MasterStats struct {
	Master     string // address, without credentials
	State      MasterState
	Err        error         // why the master was last down; stays when it is up again; nil if it never was down
	ErrTime    time.Time     // when the master last went down; zero if it never did
	Quarantine time.Duration // how long the master has no vote, as far as the Locker knows
	Skewed     bool          // the clock of the master is too far from the others: it grants nothing
	RoundTrip  time.Duration // of the last exchange; 0 before the first
}

// Stats returns a snapshot for metrics and debugging. It asks no master, takes a few microseconds and a little
// time for each lease, and can be called at any time, even after Close: each master is down then, with
// [ErrClosed]. The parts of the snapshot are read one after the other: do not use it in place of a lease.
func (l *Locker) Stats() Stats {
	l.made()
	s := Stats{Counts: make(map[EventKind]uint64, eventKinds)}
	for k := range eventKinds {
		s.Counts[k] = l.events.counts[k].Load()
	}
	p := l.pool
	s.Waiting = p.lines.Waiting()
	for _, g := range p.renewer.all() {
		if ls, held := g.stats(); held {
			s.Leases = append(s.Leases, ls)
		}
	}
	for _, n := range p.nodes {
		s.Masters = append(s.Masters, p.statsOf(n))
	}
	slices.SortFunc(s.Leases, func(a, b LeaseStats) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Fence, b.Fence))
	})
	return s
}

func (g *grant) stats() (s LeaseStats, held bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	left := g.validity()
	if !g.term.Stands() || left <= 0 || len(g.holds) == 0 {
		return s, false
	}
	return LeaseStats{
		Resource: g.resource,
		Mode:     g.modeLocked(),
		Token:    g.keys.ID,
		Fence:    g.presentFenceLocked(),
		Since:    g.holds[0].since,
		TTL:      g.TTL,
		Validity: left,
		Renewals: g.renewal.count,
		Holds:    len(g.holds),
	}, true
}

func (p *pool) statsOf(n *node.Node) MasterStats {
	standing, now := n.Standing(), p.now()
	s := MasterStats{
		Master: n.Addr(), Skewed: standing.Skewed(), RoundTrip: n.RoundTrip(), Quarantine: standing.VotesIn(now),
		Err: standing.Failure, ErrTime: standing.FailedAt,
	}
	switch {
	case standing.Down != nil:
		s.State, s.Err = MasterDown, standing.Down
	case standing.Reached:
		s.State = MasterUp
	}
	return s
}
