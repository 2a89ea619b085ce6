package locktest

import (
	"context"
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
	"masters": redlock.ErrMasterSetup, "membership": reason.Membership, "closed": redlock.ErrClosed, "config": redlock.ErrConfig,
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
var looks = []string{"sleep", "left", "holding", "waits", "got", "failed", "has", "queued", "remembers", "lines", "count", "requests", "marker", "err", "cause", "why",
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
	"vouch": {0, func(p *play, _ *play, _ []string) error { p.VouchAgain(); return nil }}, // all nodes have their votes, as after Bootstrap
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
	for _, word := range words[min(with+1, len(words)):] {
		switch nodes, on := strings.CutPrefix(word, "on="); {
		case on: // a list of some of the masters
			list, _ := p.nodes([]string{nodes, "only"})
			bubble = p.Part(list...)
		case word == "cold": // not warmed up
			warm = false
		default:
			opts = append(opts, option(word))
		}
	}
	p.Vouch()
	for _, name := range words[:with] {
		l := &locker{Uplink: new(Uplink), clock: NewJumpClock(), log: new(Records)}
		own := append([]redlock.Option{redlock.WithLogger(slog.New(l.log)), inside.WithClock(l.clock)}, opts...)
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

// ofLease are the steps of a lease.
var ofLease = map[string]verb[*redlock.Lease]{
	"unlock":    {0, func(p *play, of *redlock.Lease, _ []string) error { return of.Unlock(p.ctx) }},
	"extend":    {0, func(p *play, of *redlock.Lease, _ []string) error { return of.Extend(p.ctx) }},
	"downgrade": {0, func(p *play, of *redlock.Lease, _ []string) error { return of.Downgrade(p.ctx) }},
	"detach":    {0, func(_ *play, of *redlock.Lease, _ []string) error { _, err := of.Detach(); return err }},
	"err":       {0, func(_ *play, of *redlock.Lease, _ []string) error { return of.Err() }},
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
	"close": {0, func(_ *play, of *locker, _ []string) error { return of.Close() }},
	"check": {0, func(p *play, of *locker, _ []string) error { _, err := admin.Check(p.ctx, of.Locker); return err }},
	"why":   {0, func(_ *play, of *locker, _ []string) error { return inside.Of(of.Locker).WhyWaiting("r") }},
	"break": {0, func(p *play, of *locker, _ []string) error { _, err := admin.Break(p.ctx, of.Locker, "r"); return err }},
	"lines": {1, func(_ *play, of *locker, w []string) error { // of callers, that the Locker keeps
		holds("lines", door.Look(of.Locker).Lines(), "=", number(w[0]))
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
	"steal":     suffer(Steal),                                                                                       // another client has the key
	"erase":     suffer(Erase),                                                                                       // the key of "r" is gone, as after DEL
	"clock":     {1, func(_ *play, n *virtual.Node, w []string) error { n.RunClock(1, duration(w[0])); return nil }}, // is moved by
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
	"marker": {3, func(_ *play, n *virtual.Node, w []string) error { // a field of the node's marker: born = 0
		n.Inside(func(r *miniredis.Miniredis, _ time.Time) {
			holds(w[0], r.HGet(redlock.DefaultKeyPrefix+"~guard", w[0]), w[1], w[2])
		})
		return nil
	}},
	"has": {1, func(_ *play, n *virtual.Node, w []string) error { holds("key", n.Value("r"), "=", w[0]); return nil }},
}

func suffer(do func(*virtual.Node)) verb[*virtual.Node] {
	return verb[*virtual.Node]{0, func(_ *play, n *virtual.Node, _ []string) error { do(n); return nil }}
}
