package locktest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/door"
	"github.com/d0720281/redlock/internal/inside"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/virtual"
)

// The words of scenarios, a table for each kind of subject.

var sentinels = map[string]error{
	"taken": redlock.ErrTaken, "noquorum": redlock.ErrNoQuorum, "quarantine": redlock.ErrQuarantine, "notacquired": redlock.ErrNotAcquired,
	"masters": redlock.ErrMasterSetup, "membership": reason.Membership, "otherserver": reason.OtherServer, "sameserver": reason.SameServer, "version": reason.Version, "closed": redlock.ErrClosed, "config": redlock.ErrConfig,
	"reentry": redlock.ErrReentry, "upgrade": reason.Upgrade, "detached": redlock.ErrDetached,
	"lost": redlock.ErrLost, "expired": reason.Expired, "suspended": reason.Suspended, "quorumlost": reason.QuorumLost,
	"broken": redlock.ErrBroken, "maxhold": redlock.ErrMaxHold, "notheld": redlock.ErrNotHeld, "released": redlock.ErrReleased,
	"canceled": context.Canceled, "deadline": context.DeadlineExceeded,
}

// durations are those of a lease with the default TTL.
var durations = map[string]time.Duration{
	"ttl": TTL, "validity": Validity, "drift": Drift, "lead": Lead, "quarantine": Quarantine, "timeout": MasterTimeout, "reconnect": Reconnect,
}

// looks are the words of waits and checks, from which no time is counted.
var looks = []string{"sleep", "left", "holding", "waits", "got", "failed", "has", "queued", "remembers", "lines", "count", "requests", "marker", "note", "stood", "stepped", "voting", "verdict", "off", "quarantine", "ended", "served", "err", "cause", "why",
	"fence", "token", "mode", "owner", "validity"}

// alone are the steps without a subject.
var alone = map[string]verb[*play]{
	"lockers": {-1, func(p *play, _ *play, w []string) error { p.open(w); return nil }},
	"sleep":   {1, func(_ *play, _ *play, w []string) error { time.Sleep(duration(w[0])); return nil }},
	"holding": {-1, func(p *play, _ *play, w []string) error { // the nodes that have the key of "r", or none
		var want []int
		if !slices.Equal(w, []string{"none"}) {
			want, _ = p.nodes(append(w, "have it"))
		}
		if got := p.Holding("r"); !slices.Equal(got, want) {
			throw("got the nodes %v", got)
		}
		return nil
	}},
	"new": {0, func(p *play, _ *play, _ []string) error { p.vouched.Do(func() {}); return nil }}, // the nodes have no votes yet
	"served": {-1, func(p *play, _ *play, w []string) error { // A B C = 1: so many of these calls have a lease
		served, n := 0, len(w)-2
		for _, name := range w[:n] {
			if c := known(p.calls, name); !c.Waits() && c.Err == nil {
				served++
			}
			p.calls[name].seen = true
		}
		holds("served", served, w[n], number(w[n+1]))
		return nil
	}},
	"vouch": {0, func(p *play, _ *play, _ []string) error { p.Vouch(); p.VouchAgain(); return nil }}, // all nodes have their votes, as after Bootstrap
	"left": {1, func(p *play, _ *play, w []string) error { // nothing: no key on any node, but for markers and fencing counters
		for _, n := range p.Nodes {
			holds("left on "+n.Addr(), strings.Join(Left(n), " "), "=", strings.TrimPrefix(w[0], "nothing"))
		}
		return nil
	}},
}

// open makes Lockers.
func (p *play) open(words []string) {
	var opts []redlock.Option
	bubble, warm, with := p.Bubble, true, slices.Index(append(words, "with"), "with")
	var lost, db, behind []int
	clock := NewJumpClock
	for _, word := range words[min(with+1, len(words)):] {
		switch key, list, _ := strings.Cut(word, "="); {
		case key == "on": // a list of some of the masters
			bubble = p.Part(p.numbers(list)...)
		case key == "to": // the nodes to which the names of the first ones lead
			if behind = p.numbers(list); bubble == p.Bubble {
				bubble = p.Part(p.numbers("0,1,2,3,4"[:2*len(behind)-1])...)
			}
		case key == "without": // nodes that it does not reach
			lost = p.numbers(list)
		case key == "db":
			db = p.numbers(list)
		case word == "oneclock": // they are on one machine
			c := NewJumpClock()
			clock = func() *JumpClock { return c }
		case word == "cold": // not warmed up
			warm = false
		default:
			opts = append(opts, option(word))
		}
	}
	p.Vouch()
	for _, name := range words[:with] {
		l := &locker{Uplink: &Uplink{DB: db}, clock: clock(), log: new(Records)}
		for _, n := range lost {
			l.Lose(p.Nodes[n].Addr())
		}
		for _, n := range behind {
			l.Behind = append(l.Behind, p.Nodes[n])
		}
		own := append([]redlock.Option{redlock.WithLogger(slog.New(l.log)), inside.WithClock(l.clock), On(l.tell, redlock.EventMasterClockStepped, redlock.EventLocalClockStopped)}, opts...)
		if l.Locker = ColdLockerBy(bubble, l.Uplink, own...); warm {
			bubble.Warm(l.Locker)
		}
		if p.lockers[name] != nil {
			throw("%q is in use", name)
		}
		if p.lockers[name] = l; p.first == nil {
			p.first = l
		}
	}
	if with == 0 {
		throw("no Locker is named")
	}
}

// takes are the calls that return a lease.
var takes = map[string]func(*redlock.Locker, context.Context, string, ...redlock.LockOption) (*redlock.Lease, error){
	"try": (*redlock.Locker).TryLock, "lock": (*redlock.Locker).Lock,
}

// options are those of locks and Lockers, by name.
var options = map[string]func(value string) redlock.Option{
	"shared":         func(string) redlock.Option { return redlock.Shared() },
	"reentry":        func(string) redlock.Option { return redlock.WithReentry() },
	"manual":         func(string) redlock.Option { return redlock.WithoutRenewal() },
	"unguarded":      func(string) redlock.Option { return redlock.WithoutRestartGuard() },
	"ttl":            func(value string) redlock.Option { return redlock.WithTTL(duration(value)) },
	"maxttl":         func(value string) redlock.Option { return redlock.WithMaxTTL(duration(value)) },
	"mastertimeout":  func(value string) redlock.Option { return redlock.WithMasterTimeout(duration(value)) },
	"maxhold":        func(value string) redlock.Option { return redlock.WithMaxHold(duration(value)) },
	"minhold":        func(value string) redlock.Option { return redlock.WithMinHold(duration(value)) },
	"grace":          func(value string) redlock.Option { return redlock.WithGrace(duration(value)) },
	"quarantinewait": func(value string) redlock.Option { return redlock.WithQuarantineWait(duration(value)) },
	"owner":          func(value string) redlock.Option { return redlock.WithOwner(value) },
}

// option returns the option of a word: shared, ttl=1s.
func option(word string) redlock.Option {
	name, value, _ := strings.Cut(word, "=")
	return known(options, name)(value)
}

// ofCall are the steps of a call in a goroutine.
var ofCall = map[string]verb[*call]{
	"waits": {0, func(_ *play, c *call, _ []string) error {
		if c.seen = true; !c.Waits() {
			throw("%s has returned", c.name)
		}
		return nil
	}},
	"got": {0, func(p *play, c *call, _ []string) error {
		if err := c.end(); err != nil {
			throw("%s: got %v, want no error", c.name, err)
		}
		p.leases[c.name] = c.Lease
		return nil
	}},
	"failed": {0, func(_ *play, c *call, _ []string) error { return c.end() }},
	"ended":  {0, func(_ *play, c *call, _ []string) error { _ = c.end(); return nil }}, // with a lease or an error
	"cancel": {0, func(_ *play, c *call, _ []string) error { c.cancel(); return nil }},
}

// end waits for the end of a call.
func (c *call) end() error {
	select {
	case <-c.Done:
	case <-time.After(20 * time.Second):
		throw("%s has not returned for 20 s", c.name)
	}
	c.seen = true
	return c.Err
}

// tell records an event about clocks.
func (l *locker) tell(e redlock.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
}

// stepped returns the nodes whose clocks stepped.
func (l *locker) stepped() (nodes []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if e.Kind == redlock.EventMasterClockStepped {
			nodes = append(nodes, e.Master)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// told checks how long the events of a kind say that it was.
func (l *locker) told(kind redlock.EventKind, want []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	want = slices.DeleteFunc(slices.Clone(want), func(w string) bool { return w == "none" })
	for _, e := range l.events {
		if e.Kind != kind {
			continue
		}
		if len(want) == 0 {
			throw("got %v of %v more", kind, e.Elapsed)
		}
		holds(kind.String(), e.Elapsed, "~", duration(want[0]))
		want = want[1:]
	}
	if len(want) > 0 {
		throw("got no %v of %v", kind, want)
	}
}

// nearly is how much of a step of a clock the time between two readings can hide: half a per cent of that time, which is a few seconds.
const nearly = 60 * time.Millisecond

// ofLease are the steps of a lease.
var ofLease = map[string]verb[*redlock.Lease]{
	"unlock":    {0, func(p *play, of *redlock.Lease, _ []string) error { return of.Unlock(p.ctx) }},
	"extend":    {0, func(p *play, of *redlock.Lease, _ []string) error { return of.Extend(p.ctx) }},
	"downgrade": {0, func(p *play, of *redlock.Lease, _ []string) error { return of.Downgrade(p.ctx) }},
	"detach":    {0, func(_ *play, of *redlock.Lease, _ []string) error { _, err := of.Detach(); return err }},
	"err":       {0, func(_ *play, of *redlock.Lease, _ []string) error { return of.Err() }},
	"excludes": {-1, func(p *play, of *redlock.Lease, w []string) error { // b [T]: as long as the lease is valid, or for T, b or a new Locker is not granted "r"
		for end := time.Now().Add(duration(append(w, "1m")[1])); of.Validity() > 0 && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			l, anew := p.lockers[w[0]], w[0] == "anew"
			if anew {
				l = &locker{Locker: p.Locker(redlock.WithLogger(nil))}
			}
			if other, err := l.TryLock(p.ctx, "r"); err == nil {
				both := fmt.Sprintf("two holders: the lease is valid for %v, the other one for %v", of.Validity(), other.Validity())
				_ = other.Unlock(p.ctx)
				throw("%s", both)
			}
			if anew {
				Must(p.T, l.Close())
				time.Sleep(500 * time.Millisecond)
			}
		}
		return nil
	}},
	"cause": {0, func(_ *play, of *redlock.Lease, _ []string) error { // waits for the end of the context
		select {
		case <-of.Context().Done():
		case <-time.After(10 * time.Minute):
			throw("the context goes on")
		}
		return context.Cause(of.Context())
	}},
}

// values are those of a lease that are compared, strings, times or numbers.
var values = map[string]func(l *redlock.Lease) any{
	"fence":    func(l *redlock.Lease) any { return l.Fence() },
	"token":    func(l *redlock.Lease) any { return l.Token() },
	"mode":     func(l *redlock.Lease) any { return string(l.Mode()) },
	"owner":    func(l *redlock.Lease) any { return l.Owner() },
	"validity": func(l *redlock.Lease) any { return max(0, l.Validity()) },
}

// ofLocker are the steps of a Locker.
var ofLocker = map[string]verb[*locker]{
	"close":     {0, func(_ *play, of *locker, _ []string) error { return of.Close() }},
	"check":     {0, func(p *play, of *locker, _ []string) error { _, err := admin.Check(p.ctx, of.Locker); return err }},
	"why":       {0, func(_ *play, of *locker, _ []string) error { return inside.Of(of.Locker).WhyWaiting("r") }},
	"bootstrap": {0, func(p *play, of *locker, _ []string) error { return admin.Bootstrap(p.ctx, of.Locker) }},
	"verdict": {-1, func(p *play, of *locker, w []string) error { // BROKEN [6s [L]]: of Inspect, when "r" is free, and whose token is there
		in, err := admin.Inspect(p.ctx, of.Locker, "r")
		holds("verdict", in.Verdict.String(), "=", w[0])
		if len(w) > 1 {
			holds("free in", in.FreeIn(), "=", duration(w[1]))
			holds("token", in.Token, "=", known(p.leases, w[2]).Token())
		}
		return err
	}},
	"lines": {1, func(_ *play, of *locker, w []string) error { // of callers, that the Locker keeps
		holds("lines", door.Look(of.Locker).Lines(), "=", number(w[0]))
		return nil
	}},
	"uses": {1, func(p *play, of *locker, w []string) error { // a resource: locks and unlocks it
		ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
		defer cancel()
		lease, err := of.Lock(ctx, w[0])
		if err == nil {
			err = lease.Unlock(ctx)
		}
		return err
	}},
	"loses": {1, func(p *play, of *locker, w []string) error { of.Lose(p.Nodes[number(w[0])].Addr()); return nil }}, // the node of that number
	"leads": {2, func(p *play, of *locker, w []string) error { // the name of a node to another node
		n := number(w[0])
		of.Lead(n, p.Nodes[n].Addr(), p.Nodes[number(w[1])])
		return nil
	}},
	"reaches": {1, func(p *play, of *locker, w []string) error { of.Reach(p.Nodes[number(w[0])].Addr()); return nil }},
	"stands":  {1, func(_ *play, of *locker, w []string) error { of.clock.Stand(duration(w[0])); return nil }}, // its clock, for so long
	"stood": {-1, func(_ *play, of *locker, w []string) error { // it has told of these standstills, or none, and of no step of a node
		holds("steps", len(of.stepped()), "=", 0)
		of.told(redlock.EventLocalClockStopped, w)
		return nil
	}},
	"stepped": {-1, func(p *play, of *locker, w []string) error { // by T, the clocks of these nodes, and of no standstill; none
		var want, times []string
		for _, n := range w[min(1, len(w)):] {
			want, times = append(want, p.Nodes[number(n)].Addr()), append(times, w[0])
		}
		holds("nodes", strings.Join(of.stepped(), " "), "=", strings.Join(want, " "))
		of.told(redlock.EventMasterClockStepped, times)
		of.told(redlock.EventLocalClockStopped, nil)
		return nil
	}},
	"off": {3, func(p *play, of *locker, w []string) error { // the clock of a node, by Check
		report, _ := admin.Check(p.ctx, of.Locker)
		holds("the clock is off", report.Masters[number(w[0])].Clock, w[1], duration(w[2]))
		return nil
	}},
	"quarantine": {3, func(p *play, of *locker, w []string) error { // of a node, by Check
		report, _ := admin.Check(p.ctx, of.Locker)
		holds("quarantine", report.Masters[number(w[0])].Quarantine, w[1], duration(w[2]))
		return nil
	}},
	"voting": {2, func(p *play, of *locker, w []string) error { // nodes with a vote, by Check
		report, _ := admin.Check(p.ctx, of.Locker)
		holds("nodes with a vote", report.Voting, w[0], number(w[1]))
		return nil
	}},
	"dies":    {0, func(_ *play, of *locker, _ []string) error { of.Dead.Store(true); return nil }}, // no data passes any more
	"returns": {0, func(_ *play, of *locker, _ []string) error { of.Dead.Store(false); return nil }},
}

// ofNode are the steps of a node.
var ofNode = map[string]verb[*virtual.Node]{
	"kill":      suffer((*virtual.Node).Kill),
	"restart":   suffer((*virtual.Node).Restart),
	"empty":     suffer((*virtual.Node).RestartEmpty), // it restarts without its data
	"hang":      suffer((*virtual.Node).Hang),
	"resume":    suffer((*virtual.Node).Resume),
	"heal":      suffer((*virtual.Node).Heal),
	"blackhole": suffer((*virtual.Node).Blackhole),
	"breakoff":  suffer((*virtual.Node).BreakOff), // the subscriptions end
	"noreply":   suffer((*virtual.Node).LoseReplies),
	"steal":     suffer(Steal), // another client has the key
	"flush":     suffer(func(n *virtual.Node) { n.Inside(func(r *miniredis.Miniredis, _ time.Time) { r.FlushAll() }) }),
	"as":        {1, func(p *play, n *virtual.Node, w []string) error { n.RunAs(p.Nodes[number(w[0])].RunID()); return nil }}, // it is the server of another node
	"forge": {1, func(_ *play, n *virtual.Node, w []string) error { // the message that the lock of a resource is broken
		n.Inside(func(r *miniredis.Miniredis, _ time.Time) {
			r.Publish(redlock.DefaultKeyPrefix+"~broken", redlock.DefaultKeyPrefix+w[0])
		})
		return nil
	}},
	"rate": {1, func(_ *play, n *virtual.Node, w []string) error { // of its clock, from now on, in seconds: 1004ms
		n.RunClock(duration(w[0]).Seconds(), 0)
		return nil
	}},
	"erase": suffer(Erase),                                                                                       // the key of "r" is gone, as after DEL
	"clock": {1, func(_ *play, n *virtual.Node, w []string) error { n.RunClock(1, duration(w[0])); return nil }}, // is moved by
	"latency": {-1, func(_ *play, n *virtual.Node, w []string) error { // of requests, and of replies if that is another one
		n.Latency(duration(append(w, "no time")[0]), duration(append(w, "no time")[len(w)-1]))
		return nil
	}},
	"calls": {1, func(_ *play, n *virtual.Node, w []string) error { // another process for "r", whose turn lasts so long
		n.Put(redlock.DefaultKeyPrefix+"r~turn", "another", duration(w[0]))
		return nil
	}},
	"queued": {2, func(_ *play, n *virtual.Node, w []string) error { // so many processes wait for "r": = 2
		n.Inside(func(r *miniredis.Miniredis, _ time.Time) {
			all, _ := r.SortedSet(redlock.DefaultKeyPrefix + "r~queue")
			holds("queued", len(all), w[0], number(w[1]))
		})
		return nil
	}},
	"remembers": {1, func(_ *play, n *virtual.Node, w []string) error { // nothing, of the processes that waited for "r"
		holds("remembers", n.Queued(redlock.DefaultKeyPrefix+"r"), "=", strings.TrimPrefix(w[0], "nothing"))
		return nil
	}},
	"count": suffer((*virtual.Node).ForgetCalls), // the requests from now on
	"requests": {3, func(_ *play, n *virtual.Node, w []string) error { // for "r": acquire <= 30
		holds(w[0], n.Seen(w[0], "r"), w[1], number(w[2]))
		return nil
	}},
	"marker": {-1, func(p *play, n *virtual.Node, w []string) error { // a field of the node's marker: born = 0, lists has b:6379; = NAME, as noted
		got, want := field(n, w[0]), strings.Join(w[2:], " ")
		if noted, found := p.notes[want]; found {
			want = noted
		}
		if w[1] == "has" || w[1] == "lacks" {
			holds(got+" has "+want, fmt.Sprint(strings.Contains(got, want)), "=", fmt.Sprint(w[1] == "has"))
		} else {
			holds(w[0], got, w[1], want)
		}
		return nil
	}},
	"note": {2, func(p *play, n *virtual.Node, w []string) error { p.notes[w[1]] = field(n, w[0]); return nil }}, // a field, under a name
	"mark": {-1, func(_ *play, n *virtual.Node, w []string) error { // sets a field; now+1h is a time
		for i, word := range w {
			if at, found := strings.CutPrefix(word, "now"); found {
				w[i] = fmt.Sprint(time.Now().Add(duration(at)).UnixMilli())
			}
		}
		n.Inside(func(r *miniredis.Miniredis, _ time.Time) {
			r.HSet(redlock.DefaultKeyPrefix+"~guard", w[0], strings.NewReplacer(`\n`, "\n", `\t`, "\t").Replace(strings.Join(w[1:], " ")))
		})
		return nil
	}},
	"has": {1, func(_ *play, n *virtual.Node, w []string) error { holds("key", n.Value("r"), "=", w[0]); return nil }},
}

// field returns a field of the node's marker.
func field(n *virtual.Node, name string) (value string) {
	n.Inside(func(r *miniredis.Miniredis, _ time.Time) { value = r.HGet(redlock.DefaultKeyPrefix+"~guard", name) })
	return value
}

func suffer(do func(*virtual.Node)) verb[*virtual.Node] {
	return verb[*virtual.Node]{0, func(_ *play, n *virtual.Node, _ []string) error { do(n); return nil }}
}
