package node

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/resp"
	"github.com/d0720281/redlock/internal/wire"
)

// This file has what all clients must agree on beside their list of masters: which server is behind each address, the
// largest TTL, and the version of the protocol. A client tells it to each node when it joins, and a node tells it what
// other clients have said. lua/marker.lua decides what a node takes.
//
// Source: ALGORITHM section 8, "Agreement".

// server is what a node knows of the server behind its address.
type server struct {
	id  string // the beginning of its run id, or wire.UnknownRun
	was string // those of the servers before it, if the restarts have lost nothing
}

// serversSeen returns the servers that this client has reached, as lua/marker.lua has them. A server whose connection
// has ended counts from when it was last heard: it may have voted before that.
func (s *Set) serversSeen(now clock.Instant) string {
	var b strings.Builder
	for i, n := range s.nodes {
		if v := n.server.Load(); v != nil && v.id != wire.UnknownRun {
			was := v.was
			if was == "" {
				was = "-"
			}
			var age time.Duration
			if !n.linked.Load() {
				age = max(now.Sub(clock.Instant(n.heard.Load())), 0)
			}
			fmt.Fprintf(&b, "%s %s %d %s\n", s.named[i], v.id, age.Milliseconds(), was)
		}
	}
	return b.String()
}

// seeLocked notes which server is behind the address of the node, when it has told all of itself. The other nodes hear of it
// in front of the next request for their votes.
func (n *Node) seeLocked(was string) {
	id, _, _ := strings.Cut(n.guard.run, ":")
	if former := n.server.Load(); former == nil || former.id != id {
		n.server.Store(&server{id, was})
		n.set.view.Add(1)
		n.introduced.Store(int64(n.now()))
	}
}

// isEarly reports whether an attempt or a round has begun before this client knew the server. Other nodes may have
// voted in it without a word about this server, so that its own vote does not count.
func (n *Node) isEarly(r *Request) bool {
	switch {
	case !n.guard.on:
		return false
	case r.Op.Wants():
		return r.Key.began.Load() < n.introduced.Load()
	}
	return r.guarded() && int64(r.queued) < n.introduced.Load()
}

// IsUnheard reports whether some other node may know of another server at this node's address than this client: for nearly
// a quarantine it has not said that it has taken the present one. What a node that is down or refuses this client has
// said does not count.
func (n *Node) IsUnheard(now clock.Instant) bool {
	if !n.guard.on {
		return false
	}
	since := max(clock.Instant(n.introduced.Load()), now.Add(n.conf.Timeout-n.set.Quarantine(now)))
	return slices.ContainsFunc(n.set.nodes, func(v *Node) bool {
		st := v.Standing()
		return v != n && st.Down == nil && st.refused == nil && clock.Instant(v.taken.Load()) < since
	})
}

// Contested is the error of a master whose address leads other clients to another server. The votes of both would
// count as that of one master.
type Contested struct {
	Addr   string // as the nodes keep it
	Mine   string // the beginning of the run id of the server that this client sees
	Theirs string // of the server that is in use
	Client string // label of a client that uses it; "" if it has none

	index int           // of the master
	left  time.Duration // for which it counts, unless a client uses the other server again
}

func (c *Contested) Error() string {
	client := "other clients"
	if c.Client != "" {
		client = "client " + c.Client
	}
	return fmt.Sprintf("no vote: %s leads this client to the server with run id %s..., and %s to the server with run id %s...", c.Addr, c.Mine, client, c.Theirs)
}

// Unwrap makes the error match [reason.OtherServer].
func (c *Contested) Unwrap() error { return reason.OtherServer }

// contestedIn reads what a node says of the servers that other clients use.
func (s *Set) contestedIn(text string) (list []*Contested) {
	for line := range strings.Lines(text) {
		claim, label, _ := strings.Cut(strings.TrimSuffix(line, "\n"), wire.BeforeLabel)
		words := strings.Fields(claim)
		if len(words) != 3 {
			continue
		}
		for i, member := range s.named {
			if v := s.nodes[i].server.Load(); member == words[0] && v != nil && v.id != words[1] { // which it reached since it asked
				millis, _ := strconv.ParseUint(words[2], 10, 40) // 0 if it is no number
				c := &Contested{Addr: member, Mine: v.id, Theirs: wire.Excerpt(words[1], maxValue), index: i, left: time.Duration(millis) * time.Millisecond}
				if wire.IsLabel(label) {
					c.Client = label
				}
				list = append(list, c)
			}
		}
	}
	return list
}

// contest is what one node has said of the server of another one.
type contest struct {
	why   *Contested
	until clock.Instant
}

// tellContested passes on what this node has said of the other nodes' servers. They hear of it before the votes that
// came with it count.
func (n *Node) tellContested(list []*Contested, now clock.Instant, out *outcomes) {
	by := make([]*Contested, len(n.set.nodes))
	for _, c := range list {
		by[c.index] = c
	}
	for i, other := range n.set.nodes {
		if c := by[i]; c != nil {
			until := now.Add(min(c.left, n.set.Quarantine(now)))
			out.first(func() { other.contest(n.index, contest{c, until}, now) })
		} else if other.Standing().contested != nil {
			out.first(func() { other.contest(n.index, contest{}, now) })
		}
	}
}

// contest notes what the node at an index has said of this node's server: nothing, if why is nil.
func (n *Node) contest(index int, c contest, now clock.Instant) {
	n.mu.Lock()
	if n.contests == nil {
		n.contests = make([]contest, len(n.set.nodes))
	}
	n.contests[index] = c
	var worst contest
	for _, c := range n.contests {
		if c.why != nil && now < c.until && c.until >= worst.until {
			worst = c
		}
	}
	n.standLocked(func(s *Standing) {
		s.contested, s.contestedTo = nil, worst.until
		if worst.why != nil {
			s.contested = worst.why
		}
	})
	counts := n.Contested(now) != nil
	news := counts && !n.told
	n.told = counts
	n.mu.Unlock()
	if news {
		n.conf.Events.Warning(n, worst.why)
	}
}

// Contested returns why the vote of this node does not count: other clients use another server. It is nil if they do not,
// or if the server has no vote for any client yet: by the end of its quarantine that is over after an honest restart.
func (n *Node) Contested(now clock.Instant) error {
	if st := n.Standing(); st.contested != nil && now < st.contestedTo && st.VotesIn(now) == 0 {
		return st.contested
	}
	return nil
}

// hearsay is the largest TTL that this client has asked for, or that other clients have, as some node has told it.
type hearsay struct {
	length, ttl time.Duration // of a quarantine for it, and the TTL
	at          clock.Instant // when a lease with it was last asked for, or a little before that: a message takes its time
}

// counts reports whether leases with this TTL can be left.
func (h *hearsay) counts(now clock.Instant) bool {
	return h != nil && h.ttl > 0 && now.Sub(h.at) < 2*h.length
}

// line returns the claim as lua/marker.lua has it, or "" if it does not count.
func (h *hearsay) line(now clock.Instant, way time.Duration, source string) string {
	if !h.counts(now) {
		return ""
	}
	return fmt.Sprintf("%d %d %d %s\n", Millis(h.length), Millis(h.ttl), (now.Sub(h.at) + way).Milliseconds(), source)
}

// Quarantine returns for how long a node that has lost keys has no vote: for the largest TTL of any client, as far
// as this one knows.
func (s *Set) Quarantine(now clock.Instant) time.Duration {
	if h := s.heard.Load(); h.counts(now) {
		return max(s.conf.quarantine(), h.length)
	}
	return s.conf.quarantine()
}

// askLocked notes the largest TTL that a batch asks the node for, in ms. It reports whether the node knows of it.
func (n *Node) askLocked(l *link, ttl int64, now clock.Instant) (known bool) {
	own := &n.asked
	if !own.counts(now) {
		l.told, own.ttl = 0, 0 // the node has forgotten it, too
	}
	if ttl >= Millis(own.ttl) {
		asked := time.Duration(ttl) * time.Millisecond
		if own.ttl != asked {
			n.guard.settings = n.conf.settings(asked)
		}
		*own = hearsay{QuarantineFor(asked, n.conf.Drift), asked, now}
	}
	return ttl <= l.told
}

// appendTTLs appends the TTLs that this client knows of, as lua/marker.lua has them. A TTL of other clients goes with its
// age, rounded up by the time that a message may take, so that clients do not keep it in use for each other.
func (n *Node) appendTTLs(b []byte, now clock.Instant) []byte {
	text := n.asked.line(now, 0, "own") + n.set.heard.Load().line(now, n.conf.Timeout, "heard")
	return resp.AppendString(b, text)
}

// hear takes the largest TTL in use that a node tells, and returns it. A TTL that is larger than the MaxTTL of this client, and
// than any that it knew, is worth a warning.
func (s *Set) hear(n *Node, text string, now clock.Instant, out *outcomes) time.Duration {
	var numbers [3]time.Duration
	for i, word := range strings.Fields(text) {
		v, err := strconv.ParseInt(word, 10, 64)
		if err != nil || v < 0 || v > maxMillis || i >= len(numbers) {
			return 0
		}
		numbers[i] = time.Duration(v) * time.Millisecond
	}
	told := &hearsay{length: numbers[0], ttl: numbers[1], at: now.Add(-numbers[2] - s.conf.Timeout)}
	if !told.counts(now) {
		return told.ttl
	}
	for {
		known := s.heard.Load()
		larger := !known.counts(now) || told.length > known.length
		if !larger && (told.length < known.length || told.at <= known.at) {
			return told.ttl
		}
		if s.heard.CompareAndSwap(known, told) {
			if larger && told.length > s.conf.quarantine() {
				out.after(func() { s.conf.Events.Warning(n, s.largerTTL(told.ttl).Err()) })
			}
			return told.ttl
		}
	}
}

// maxMillis is the largest time that a node can tell of, in ms: a thousand days.
const maxMillis = 1000 * 24 * 3600 * 1000

// Version is the error of a node whose clients have another version of the protocol.
type Version struct{ Theirs string }

func (v *Version) Error() string {
	advice := "upgrade this client"
	if theirs, err := strconv.Atoi(v.Theirs); err == nil && theirs < wire.Protocol {
		advice = "upgrade those clients"
	}
	return fmt.Sprintf("no vote: clients with version %s of the protocol are in use, this client has version %d: %s", v.Theirs, wire.Protocol, advice)
}

// Unwrap makes the error match [reason.Version].
func (v *Version) Unwrap() error { return reason.Version }

// otherVersion returns which version of the protocol a node names as that of its clients.
func otherVersion(err error) (version string, is bool) {
	if !Says(err, "PROTOCOL ") {
		return "", false
	}
	_, version, _ = strings.Cut(withoutPlace(err.Error()), " ")
	return wire.Excerpt(version, maxValue), true
}
