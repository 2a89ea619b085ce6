package node

import (
	"fmt"
	"math"
	"strconv"
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

// guard has the first arguments of every script, for the restart guard and the counters.
type guard struct {
	on      bool
	marker  string // the key
	run     string // identity of the server at the other end of the connection
	durable bool   // the server said at the last connection that it writes to disk before it answers
	trusted bool   // a restart loses no data
	list    string // of masters, see Members, and the label of this client

	// Of the six settings of lua/begin.lua, those before the TTL that is asked for, and those behind it.
	settings, behind, behindTrusted string
}

// headArgs is how many arguments append writes.
const headArgs = 3

func newGuard(c *Config, list string) guard {
	if c.Label != "" {
		list += wire.BeforeLabel + c.Label
	}
	behind := " " + strconv.FormatFloat(stretch(c.Drift), 'f', -1, 64)
	return guard{
		on:       c.Guard,
		marker:   c.Prefix + wire.GuardSuffix,
		list:     list,
		settings: fmt.Sprintf("%d %d %d ", Millis(c.counterTTL()), c.maxSkew().Microseconds(), Millis(c.MaxTTL)),
		behind:   behind + " 0", behindTrusted: behind + " 1",
	}
}

// append appends the arguments that lua/begin.lua calls "before all". needed says that a request
// depends on the guard. asked is the largest TTL that the requests ask for, or 0.
func (g *guard) append(b []byte, median int64, needed bool, asked int64) []byte {
	run := g.run
	if !g.on || !needed {
		run = ""
	}
	b = resp.AppendString(b, run)
	b = resp.AppendInt(b, median)
	behind := g.behind
	if g.trusted {
		behind = g.behindTrusted
	}
	return resp.AppendJoined(b, g.settings, "", asked, behind)
}

// Millis rounds up, so that a node never keeps a key for less than the caller asked for.
func Millis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// Marker is the content of a node's marker.
type Marker struct {
	Left   time.Duration // without a vote
	MaxTTL time.Duration // the largest of any client

	Lists    []Other   // of masters, used by other clients
	Conflict *Conflict // with one of them, because of which this client gets no vote; nil for none

	run, made string // as the node has them, for vouching
}

// markerTask returns the task of an operation on the marker: look, join, vouch or mark.
func (n *Node) markerTask(what string, seen Marker) *task {
	return n.markerTaskFor(what, seen, noTTL)
}

// markerTaskFor is markerTask in front of requests that ask for a TTL of so many ms at most.
func (n *Node) markerTaskFor(what string, seen Marker, asked int64) *task {
	return scriptTask(&wire.Marker, []string{n.guard.marker}, asked, text(what), text(n.guard.list), text(seen.run), text(seen.made))
}

// readMarker reads the reply, and takes the node's clock and quarantine from it.
func (n *Node) readMarker(reply any, sent clockwatch.Moment, received clock.Instant, out *outcomes) (Marker, error) {
	var micros, left, longest int64
	var run, made, lists, other string
	rest, err := scan(reply, &micros, &left, &longest, &run, &made, &lists, &other)
	switch {
	case err != nil:
		return Marker{}, err
	case len(rest) > 0 || !clockwatch.Plausible(micros):
		return Marker{}, ErrBadReply
	}
	n.observeLocked(micros, sent, received, out)
	if left < 0 {
		return Marker{}, ErrStale
	}
	m := Marker{Left: time.Duration(left) * time.Millisecond, MaxTTL: time.Duration(longest) * time.Millisecond, run: run, made: made}
	for line := range strings.Lines(lists) {
		m.Lists = append(m.Lists, otherIn(line))
	}
	if other == "" {
		n.refuseLocked(nil)
	} else {
		m.Conflict = &Conflict{otherIn(other)}
		n.refuseLocked(m.Conflict)
	}
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
	if was == clock.Start || now.Sub(was) > n.conf.quarantine() {
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
	case left <= 0 && !n.guard.trusted && now.Sub(former) < n.conf.quarantine():
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
	if !n.conf.Guard {
		return
	}
	n.mu.Lock()
	n.standLocked(func(s *Standing) { s.lose(ErrForgot) })
	n.mu.Unlock()
	n.poke()
}

// distrustLocked takes the node's vote for this client, for the time of a quarantine, because of what happened.
func (n *Node) distrustLocked(h happening, out *outcomes) {
	left := n.conf.quarantine()
	n.standLocked(func(s *Standing) { s.distrust(h, n.now().Add(left)) })
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
