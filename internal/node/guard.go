package node

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/clockwatch"
	"github.com/d0720281/redlock/internal/resp"
	"github.com/d0720281/redlock/internal/wire"
)

// The client's side of the restart guard: the marker of a node, and the arguments of every script
// for it. The guard itself is in lua/guard.lua.

// QuarantineFor returns how long a node that may have lost keys has no vote: until every key
// it may have lost has expired.
//
// Source: distlock, "Performance, Crash Recovery and fsync"; ALGORITHM section 1.
func QuarantineFor(maxTTL time.Duration, drift float64) time.Duration {
	return time.Duration(math.Ceil(float64(maxTTL)*stretch(drift))) + 100*time.Millisecond
}

// stretch is the quarantine as a multiple of the largest TTL, without the constant 100 ms.
func stretch(drift float64) float64 { return 1 + 2*drift }

func (c *Config) quarantine() time.Duration { return QuarantineFor(c.MaxTTL, c.Drift) }

// MaxSkew is how far a node's clock may be from the median of all.
//
// Source: ALGORITHM section 1, "MaxSkew".
func MaxSkew(maxTTL time.Duration, drift float64) time.Duration {
	return QuarantineFor(maxTTL, drift) / 2
}

func (c *Config) maxSkew() time.Duration { return MaxSkew(c.MaxTTL, c.Drift) }

// maxAhead returns how far a fencing counter may be ahead of a node's clock: the clocks may
// differ, and a counter starts a little ahead of them.
//
// Source: ALGORITHM section 1, "MaxAhead".
func (c *Config) maxAhead() time.Duration { return c.maxSkew() + time.Second }

// MaxAhead returns how far a fencing counter may be ahead of a node's clock.
func (s *Set) MaxAhead() time.Duration { return s.conf.maxAhead() }

// counterTTL returns the life of an idle fencing counter.
//
// Source: ALGORITHM section 1, "CounterTTL".
func (c *Config) counterTTL() time.Duration { return 10 * c.MaxTTL }

// guard is what a node's scripts are sent about the restart guard and the counters.
type guard struct {
	on      bool
	marker  string // the key
	run     string // identity of the server at the other end of the connection
	durable bool   // the server said at the last connection that it writes to disk before it answers
	trusted bool   // a restart loses no data
	list    string // of masters, see Members, and the label of this client

	settings string // of lua/begin.lua, those before the length of a quarantine
}

// headArgs is how many arguments appendHead appends.
const headArgs = 3

func newGuard(c *Config, list string) guard {
	if c.Label != "" {
		list += wire.BeforeLabel + c.Label
	}
	return guard{on: c.Guard, marker: c.Prefix + wire.GuardSuffix, list: list, settings: c.settings(c.MaxTTL)}
}

// settings returns those of lua/begin.lua before the length of a quarantine. MaxSkew is that of the largest TTL that
// the node knows this client to ask for, because the node counts on it after a restart.
//
// Source: ALGORITHM section 4, "A counter that came back".
func (c *Config) settings(asked time.Duration) string {
	return fmt.Sprintf("%d %d ", Millis(c.counterTTL()), MaxSkew(asked, c.Drift).Microseconds())
}

// appendHead appends the arguments that lua/begin.lua calls "before all".
func (n *Node) appendHead(b []byte, proof string, median int64) []byte {
	b = resp.AppendString(b, proof)
	b = resp.AppendInt(b, median)
	trusted := " 0"
	if n.guard.trusted {
		trusted = " 1"
	}
	return resp.AppendJoined(b, n.guard.settings, "", Millis(n.set.Quarantine(n.now())), trusted)
}

// Millis rounds up, so that a node never keeps a key for less than the caller asked for.
func Millis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// Marker is the content of a node's marker.
type Marker struct {
	Left   time.Duration // without a vote
	MaxTTL time.Duration // the largest of the clients in use; 0 for no client

	Lists     []Other      // of masters, used by other clients
	Conflict  *Conflict    // with one of them, because of which this client gets no vote; nil for none
	Contested []*Contested // masters behind whose addresses other clients see other servers

	run, made string // as the node has them, for vouching
	was       string // see server
	proof     string // that this client has joined, and that nothing has changed since; "" if it has to join
}

// markerTask returns the task of an operation on the marker: look, join, vouch or mark.
func (n *Node) markerTask(what string, seen Marker) *task {
	t := scriptTask(&wire.Marker, true, []string{n.guard.marker}, text(what), text(n.guard.list),
		func(b []byte) []byte { return resp.AppendString(b, n.set.serversSeen(n.now())) },
		func(b []byte) []byte { return n.appendTTLs(b, n.now()) },
		text(seen.run), text(seen.made))
	return t
}

// readMarker reads the reply, and takes the node's clock and quarantine from it.
func (n *Node) readMarker(reply any, sent clockwatch.Moment, received clock.Instant, out *outcomes) (Marker, error) {
	var micros, left int64
	var longest, run, was, made, lists, other, contested, proof string
	rest, err := scan(reply, &micros, &left, &longest, &run, &was, &made, &lists, &other, &contested, &proof)
	switch version, isOther := otherVersion(err); {
	case isOther:
		n.refuseLocked(&Version{version})
		return Marker{}, n.Standing().refused
	case err != nil:
		return Marker{}, err
	case len(rest) > 0 || !clockwatch.Plausible(micros):
		return Marker{}, ErrBadReply
	}
	n.observeLocked(micros, sent, received, out)
	if left < 0 {
		return Marker{}, ErrStale
	}
	m := Marker{Left: time.Duration(left) * time.Millisecond, run: run, was: was, made: made, proof: proof}
	m.MaxTTL = n.set.hear(n, longest, received, out)
	for line := range strings.Lines(lists) {
		m.Lists = append(m.Lists, otherIn(line))
	}
	if other == "" {
		n.refuseLocked(nil)
	} else {
		m.Conflict = &Conflict{otherIn(other)}
		n.refuseLocked(m.Conflict)
	}
	m.Contested = n.set.contestedIn(contested)
	n.tellContested(m.Contested, received, out)
	n.noteQuarantineLocked(m.Left, received, out)
	return m, nil
}

// noteQuarantineLocked keeps until when the node has no vote, as the node says. It reports each
// quarantine once. A reply with some time left can arrive after that time, and further replies
// can follow. Only a reply long after the end of a quarantine is taken for another quarantine.
func (n *Node) noteQuarantineLocked(left time.Duration, now clock.Instant, out *outcomes) {
	was := n.standing.Load().votesAt
	n.compareTrustLocked(left, was == clock.Start, now, out)
	if left <= 0 {
		if was != clock.Start {
			n.standLocked(func(s *Standing) { s.votesAt = clock.Start })
		}
		return
	}
	n.standLocked(func(s *Standing) { s.votesAt = now.Add(left) })
	if was == clock.Start || now.Sub(was) > n.set.Quarantine(now) {
		out.after(func() { n.conf.Events.Quarantined(n, left) })
	}
}

// compareTrustLocked warns once after a restart, if the node's quarantine shows that another client decided
// about it by another option. voted says that the former server had its vote.
//
// Source: ALGORITHM section 8, "TrustDisk".
func (n *Node) compareTrustLocked(left time.Duration, voted bool, now clock.Instant, out *outcomes) {
	former := n.former
	n.former = clock.Start
	var why error
	switch {
	case former == clock.Start || !voted || !n.guard.on:
	case left > 0 && n.guard.trusted:
		why = errVotelessOnDisk
	case left <= 0 && !n.guard.trusted && now.Sub(former) < n.set.Quarantine(now):
		why = errTrustedByOther
	}
	if why != nil {
		out.after(func() { n.conf.Events.Warning(n, why) })
	}
}

// Forgot is called if the node has lost a key that it had to keep. It puts the node in quarantine
// for all clients. Without the guard the node keeps its vote.
//
// Source: ALGORITHM section 8, last row of the table.
func (n *Node) Forgot() {
	if !n.guard.on {
		return
	}
	n.mu.Lock()
	n.standLocked(func(s *Standing) { s.lose(ErrForgot) })
	n.mu.Unlock()
	n.wake.Set()
}

// distrustLocked takes the node's vote for this client, for the time of a quarantine, because of what happened.
func (n *Node) distrustLocked(h happening, out *outcomes) {
	now := n.now()
	left := n.set.Quarantine(now)
	n.standLocked(func(s *Standing) { s.distrust(h, now.Add(left)) })
	out.after(func() { n.conf.Events.Quarantined(n, left) })
}

// markTask returns the task that begins the node's quarantine, for all clients.
func (n *Node) markTask() *task {
	t := n.markerTask(wire.Mark, Marker{})
	t.resent = true // not resent by itself: see trust
	t.done = func(a answers) {
		if a.err != nil {
			return // the node is told over the next connection
		}
		n.locked(func(out *outcomes) {
			_, err := n.readMarker(a.values[0], a.sent, a.received, out)
			if err == nil {
				n.enterLocked(marked)
				return
			}
			out.after(func() { n.conf.Events.Warning(n, fmt.Errorf("evidence of lost keys could not be noted: %w", err)) })
			n.distrustLocked(unmarkable, out)
		})
	}
	return t
}
