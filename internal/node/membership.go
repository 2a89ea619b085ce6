package node

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/wire"
)

// This file makes sure that all clients use compatible lists of masters. Two clients exclude each
// other only if every quorum of one list has a master in common with every quorum of the other.
// So a client tells each node its list before it asks for votes there. If the list conflicts with
// another list in use, the node gives the client no vote. lua/marker.lua decides that.
//
// Source: ALGORITHM section 8, "Membership".

// Conflict is the error of a node on which a conflicting list of masters is in use: some quorum of
// that list has no master in common with some quorum of this client's list.
type Conflict struct{ Other }

func (c *Conflict) Error() string {
	return fmt.Sprintf("no vote: %v, and a quorum of that may have no master in common with one of this client's", c.Other)
}

// Unwrap makes the error match [reason.Membership].
func (c *Conflict) Unwrap() error { return reason.Membership }

// Conflict returns why the node refuses the list of masters or the version of this client, or nil if it does not or is down.
func (n *Node) Conflict() error {
	st := n.standing.Load()
	if st.refused == nil || st.Down != nil {
		return nil
	}
	if errors.Is(st.refused, reason.Membership) || errors.Is(st.refused, reason.Version) {
		return st.refused
	}
	return nil
}

// Other is the lists of masters of another client.
type Other struct {
	Lists  string // for people, printable
	Client string // label of the client that joined with them last; "" if it has none
}

// maxLists is how many bytes are shown of the lists of another client.
const maxLists = 2000

// otherIn reads the lists of another client as the nodes keep them. A text that is no label is left
// out.
func otherIn(line string) Other {
	lists, label, _ := strings.Cut(strings.TrimSuffix(line, "\n"), wire.BeforeLabel)
	o := Other{Lists: wire.Excerpt(strings.Join(strings.Fields(lists), ", "), maxLists)}
	if wire.IsLabel(label) {
		o.Client = label
	}
	return o
}

func (o Other) String() string {
	if o.Client == "" {
		return "other clients have the list of masters " + o.Lists
	}
	return fmt.Sprintf("client %s has the list of masters %s", o.Client, o.Lists)
}

// Members is a list of masters as the nodes keep it.
func Members(masters []redis.Options) string {
	return strings.Join(slices.Sorted(slices.Values(membersOf(masters))), " ")
}

func membersOf(masters []redis.Options) []string {
	list := make([]string, len(masters))
	for i := range masters {
		list[i] = member(&masters[i])
	}
	return list
}

// member returns the address of a master and its database, in the same form for all clients.
func member(o *redis.Options) string {
	name := strings.Join(strings.Fields(o.Addr), "%20")
	if addr, err := netip.ParseAddrPort(o.Addr); err == nil {
		name = addr.String()
	} else if o.Network != "unix" {
		name = strings.ToLower(name)
	}
	if o.DB != 0 { // which has keys and a marker of its own
		name += "/" + strconv.Itoa(o.DB)
	}
	return name
}

// joinEvery returns how long a join is good for. A node keeps a list in use for two quarantines, four times half a quarantine
// or longer: a node that was emptied hears of the list before it votes again. A node keeps a server in use for one
// quarantine from the join, which has to outlast the lease.
func (n *Node) joinEvery(shortest, longest int64, now clock.Instant) time.Duration {
	const ms = time.Millisecond
	return min(QuarantineFor(time.Duration(shortest)*ms, n.conf.Drift)/2, n.set.Quarantine(now)-time.Duration(longest)*ms)
}

// joinLocked puts what the client stands for at the start of a flight that asks for votes, unless the node has
// taken it not long ago, and has given a proof of that.
func (n *Node) joinLocked(f *flight, l *link, now clock.Instant) {
	shortest, longest := ttls(f.batch)
	if !n.guard.on || longest == 0 {
		return
	}
	view, known, quarantine := n.set.view.Load(), n.askLocked(l, longest, now), n.set.Quarantine(now)
	if known && l.proof != "" && l.view == view && l.quarantine >= quarantine && now.Sub(l.joined) < n.joinEvery(shortest, longest, now) {
		return
	}
	l.joined, l.view, l.told, l.quarantine = now, view, max(l.told, longest), quarantine
	f.join = n.markerTask(wire.Join, Marker{})
}

// joinedLocked takes the reply to a join, before the votes of the flight are counted.
func (n *Node) joinedLocked(l *link, f *flight, reply any, now clock.Instant, out *outcomes) error {
	m, err := n.readMarker(reply, f.sent, now, out)
	l.proof = m.proof
	if err == nil {
		n.taken.Store(int64(f.began))
	}
	if len(m.Contested) > 0 {
		l.proof = "" // the node has not taken all that this client stands for
	}
	switch {
	case Says(err, "NOSCRIPT"): // the join goes again, and with it the batch
		l.knows[&wire.Marker] = false
	case err != nil:
		n.refuseLocked(err)
	}
	return err
}

// refuseLocked keeps why the node gives this client no vote; nil if it does.
func (n *Node) refuseLocked(err error) {
	if n.standing.Load().refused != err {
		n.standLocked(func(s *Standing) { s.refused = err })
	}
}
