package redlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/d0720281/redlock/internal/lockorder"
	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/wire"
)

// This file has the log of a Locker: its events, of warnings that are alike the first and how many
// followed, and the beginning and the end of an outage.

const (
	logEvery = 10 * time.Second // how often warnings of one kind with one reason are logged
	logBurst = time.Second      // for how long those that come together with the first are counted
	logLater = 2 * time.Second  // a quarantine that ends so much later than the log has said is no other line
)

// warning is a warning that was logged, and those like it since then, which are counted.
type warning struct {
	first time.Time
	until time.Time // when those that were counted are logged
	last  Event
	more  int
}

// write logs an event. Of warnings that are alike, and of lines about a master that is up again, it
// logs the first, and counts the others for [events.summarize]. It does not log a lost key of a
// master whose quarantine it has just logged, nor an attempt that found out nothing new.
func (e *events) write(ev Event) {
	if ev.again {
		return
	}
	if ev.Kind == EventKeyLost && e.logged[(Event{Kind: EventQuarantined, Master: ev.Master}).like()] != nil {
		return
	}
	alike := kinds[ev.Kind].level >= slog.LevelWarn && ev.Kind != EventWarning || ev.Kind == EventMasterUp
	if !alike { // each of these is another one
		e.writeLine(ev, 0)
		return
	}
	key, more := ev.like(), 0
	for other, w := range e.logged {
		if other != key && w.more > 0 && ev.replaces(w.last) {
			more += w.more
			w.more = 0
		}
	}
	if w := e.logged[key]; w != nil {
		w.last = ev
		w.more += more + 1
		return
	}
	e.logged[key] = &warning{first: ev.Time, until: ev.Time.Add(logBurst)}
	e.writeLine(ev, more)
}

// like returns what the events have in common of which the log has one line.
func (ev Event) like() string { return ev.Kind.String() + " " + ev.Master + " " + Reason(ev.Err) }

// replaces reports whether an event makes an earlier one untrue: a master is down or up.
func (ev Event) replaces(earlier Event) bool {
	isState := func(k EventKind) bool { return k == EventMasterDown || k == EventMasterUp }
	return isState(ev.Kind) && isState(earlier.Kind) && ev.Master == earlier.Master
}

// summarize logs the last one of the warnings that were counted long enough, or of all if the log
// ends, with the number of those before it that were not logged. It returns when to do so next;
// zero if no warning is counted.
func (e *events) summarize(now time.Time, ends bool) (next time.Time) {
	for _, key := range slices.SortedFunc(maps.Keys(e.logged), func(a, b string) int { return e.logged[a].last.Time.Compare(e.logged[b].last.Time) }) {
		w := e.logged[key]
		if ends || !now.Before(w.until) {
			whole := w.first.Add(logEvery)
			switch {
			case w.more > 0:
				e.call(func() { e.writeLine(w.last, w.more-1) })
			case !w.until.Before(whole):
				delete(e.logged, key)
				continue
			}
			if w.until.Before(whole) {
				w.until = whole
			} else {
				w.until = now.Add(logEvery)
			}
			w.more = 0
		}
		if next.IsZero() || w.until.Before(next) {
			next = w.until
		}
	}
	return next
}

// writeLine logs an event, and how many more like it there were.
func (e *events) writeLine(ev Event, more int) {
	kind := kinds[ev.Kind]
	text := kind.text
	if text == "" {
		text = ev.Err.Error()
	}
	e.conf.logger().Log(context.Background(), kind.level, reason.Prefix+text, ev.attrs(more)...)
}

// attrs returns what the log shows of an event, and of more like it.
func (ev Event) attrs(more int) (list []any) {
	add := func(has bool, name string, value any) {
		if has {
			list = append(list, name, value)
		}
	}
	kind := kinds[ev.Kind]
	add(ev.Resource != "", "resource", ev.Resource)
	add(ev.Resource != "", "mode", ev.Mode)
	add(ev.Fence > 0, "fence", ev.Fence)
	add(ev.Master != "", "master", ev.Master)
	add(kind.elapsed != "", kind.elapsed, ev.Elapsed.Round(time.Microsecond))
	add(ev.Validity > 0, "validity", ev.Validity.Round(time.Microsecond))
	add(ev.Count > 0, "count", ev.Count)
	add(ev.Err != nil && kind.text != "", "error", ev.Err)
	add(more > 0, "more", more)
	return list
}

// waiting logs that calls wait for nodes to have their votes again: once for quarantines that end at
// about the same time, and again if one lasts longer than the node had said, as its clock does not
// agree with the others. The key "reason" marks what calls wait for, here and in noteAttempt.
func (e *events) waiting(s *node.Set, voteless map[*node.Node]time.Duration) (logged bool) {
	var texts []string
	longest, distrusted := time.Duration(0), false
	now := e.conf.clock.Instant()
	for n, left := range voteless {
		again := now.Add(left + logEvery)
		before, told := e.voteless.LoadOrStore(n, again)
		if told && (now < before.(instant) || !e.voteless.CompareAndSwap(n, before, again)) {
			continue
		}
		texts = append(texts, fmt.Sprintf("%s: %v", n.Addr(), node.Quarantine(left)))
		longest = max(longest, left)
		distrusted = distrusted || n.Standing().SaidIn(now) == 0 // only this client does not trust the node: Bootstrap cannot vouch for it
	}
	until := now.Add(longest)
	for told := e.waitsTo.Load(); ; told = e.waitsTo.Load() {
		if len(texts) == 0 || told != 0 && until <= instant(told).Add(logLater) {
			return false
		}
		if e.waitsTo.CompareAndSwap(told, int64(until)) { // no other call logs the same at this moment
			break
		}
	}
	slices.Sort(texts)
	hint := "wait"
	if !distrusted {
		hint = s.QuarantineHint(longest)
	}
	e.log(slog.LevelWarn, "masters in quarantine have no vote yet; calls wait for them", "reason", Reason(ErrQuarantine), "masters", texts, "seconds", math.Ceil(longest.Seconds()), "hint", hint)
	return true
}

// outageNotice is how long attempts must have found no quorum before the log says so.
const outageNotice = time.Second

// outage logs once when a kind of work stops finding a quorum, and once when a quorum votes for it
// again. A Locker has one of its calls, and one of its renewals.
type outage struct {
	text  string
	after time.Duration // how long no quorum is found before the log says so

	failing atomic.Bool // since is set; written under mu, and read without it where a quorum votes: the usual case
	mu      lockorder.Mutex[lockorder.Outage]
	since   instant // of the first failure; 0: a quorum voted since; guarded by mu
	logged  instant // when the log said so last; 0: never; guarded by mu
	open    bool    // the log has its beginning and not its end; guarded by mu
}

func (o *outage) setLocked(since instant) {
	o.since = since
	o.failing.Store(since != 0)
}

// failed logs the outage that a verdict shows, with attributes, if the log does not have it and had
// none just now.
func (o *outage) failed(p *pool, e *QuorumError, attrs func(now instant) []any) {
	now := p.now()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since == 0 {
		o.setLocked(now)
	}
	if o.open || now.Sub(o.since) < o.after || o.logged != 0 && now.Sub(o.logged) < logEvery {
		return
	}
	o.open, o.logged = true, now
	p.events.log(slog.LevelWarn, o.text, append(attrs(now), "masters", e.answers())...)
}

// begins notes that the log has just told of an outage in another way.
func (o *outage) begins(now instant) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since == 0 {
		o.setLocked(now)
	}
	o.open = true
}

// forget ends an outage of which the log has nothing.
func (o *outage) forget() {
	if !o.failing.Load() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.open {
		o.setLocked(0)
	}
}

// over ends the outage: a quorum voted. It returns since when the outage lasted, if the log has its
// beginning, and 0 otherwise.
func (o *outage) over() (since instant) {
	if !o.failing.Load() {
		return 0
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open {
		since = o.since
	}
	o.setLocked(0)
	o.open = false
	return since
}

// quorumVotes ends the outages of some kinds, and logs that if the log has the beginning of one.
func (p *pool) quorumVotes(outages ...*outage) {
	var first instant
	for _, o := range outages {
		if since := o.over(); since != 0 && (first == 0 || since < first) {
			first = since
		}
	}
	now := p.now()
	last := instant(p.votedAt.Load()) // calls and renewals find out one after the other
	if first != 0 && (last == 0 || last < first || now.Sub(last) >= logEvery) {
		p.votedAt.Store(int64(now))
		p.events.log(slog.LevelInfo, "a quorum of the masters votes", "after", now.Sub(first).Round(time.Millisecond))
	}
}

// noteAttempt takes the result of an attempt. Without the outage of calls, a Lock without a
// deadline would wait in silence, for example for an address that is wrong. events.waiting logs
// quarantines.
func (p *pool) noteAttempt(f *failure) {
	switch o := &p.callsOut; {
	case f == nil:
		p.quorumVotes(o, &p.renewalsOut)
	case f.verdict != nil && f.verdict.quorumAnswered():
		p.quorumVotes(o)
	case errors.Is(f.err, ErrTaken): // masters may be down all the same
		if p.quorumUp() {
			o.forget()
		}
	case f.verdict == nil || !errors.Is(f.err, ErrNoQuorum) || errors.Is(f.err, ErrQuarantine):
	default:
		o.failed(p, f.verdict, noQuorum)
	}
}

// noQuorum is what the log has of an outage of calls.
func noQuorum(instant) []any { return []any{"reason", Reason(ErrNoQuorum)} }

// noteRenewal takes the result of a round of renewal; failed is nil if a quorum extended the lease.
// The log has it at once: the holders must hurry.
func (p *pool) noteRenewal(failed *QuorumError) {
	if failed == nil {
		p.quorumVotes(&p.renewalsOut)
		return
	}
	p.renewalsOut.failed(p, failed, func(now instant) []any {
		n, first, last := p.renewer.ends(now)
		return []any{"leases", n, "first_ends_in", first.Round(time.Millisecond), "last_ends_in", last.Round(time.Millisecond)}
	})
}

// The log has that a call waits for a holder after firstWait, and then of its line again after waitsAgain.
const (
	firstWait  = 10 * time.Second
	waitsAgain = time.Minute
)

// waitsLong is called when the head of a line has waited for a while. A lease of the process itself may be that of the
// call's own request, which would wait for ever.
func (p *pool) waitsLong(resource string, c *caller) {
	waited := time.Since(c.Call.began)
	if waited < firstWait {
		return
	}
	s := p.lines.Standing(c)
	last := p.lastVerdict(s)
	if last == nil || !errors.Is(last, ErrTaken) || !p.lines.Tell(c, waitsAgain) {
		return
	}
	holder, left := last.Holder()
	level, text := slog.LevelInfo, "a call waits for another holder"
	if p.holds(resource) {
		level, text = slog.LevelWarn, "a call waits for a lease of its own process"
	}
	p.events.log(level, text, "resource", resource, "waited", waited.Round(time.Second), "holder", holder, "held", last.HeldFor().Round(time.Second), "key_ends_in", left, "processes_before", s.Before)
}

// holds reports whether the process has a lease of a resource.
func (p *pool) holds(resource string) bool {
	return slices.ContainsFunc(p.renewer.all(), func(g *grant) bool { return g.resource == resource && g.validity() > 0 })
}

// outlasts is called when a caller has waited for a while, perhaps without an attempt: while no
// quorum is up none is made. That is an outage, whatever the last attempt has met.
func (p *pool) outlasts() {
	if p.quorumUp() {
		return
	}
	e := p.quorumError("lock", "", 0)
	for i, n := range p.nodes {
		if n.Standing().Down != nil {
			e.Masters = append(e.Masters, p.nodeError(i, wire.Acquire.String(), nil, 0))
		}
	}
	p.callsOut.failed(p, e, noQuorum)
}
