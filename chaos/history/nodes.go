package history

import (
	"cmp"
	"fmt"
	"sort"
	"strings"
	"time"
)

// excused reports whether a fault of the node explains that it lacks keys or its vote at
// that time.
func (h *History) excused(node int, from, to time.Duration) bool {
	for _, f := range h.Faults {
		if f.Node == node && f.At <= to && f.Voteless >= from {
			return true
		}
	}
	return false
}

// hurt reports whether the node had a fault at that time.
func (h *History) hurt(node int, from, to time.Duration) bool {
	for _, f := range h.Faults {
		if f.Node == node && f.At <= to && f.Healed >= from {
			return true
		}
	}
	return false
}

// since returns a moment since which the node has been in the quarantine in which a look
// found it: the last earlier look in this quarantine at which the node cannot have had the
// key with the token yet. If the node had a fault since, the moment is not known: the node
// measures its quarantine by its own clock, which a fault may have stepped.
func (h *History) since(round int, node int, resource string, first *Acquisition) (from time.Duration, known bool) {
	l := h.Rounds[round][node]
	for i := round - 1; i >= 0 && len(h.Rounds[i]) == len(h.Rounds[round]); i-- {
		e := h.Rounds[i][node]
		k, looked := e.Keys[resource]
		if !e.Up || e.Left == 0 || e.Born != l.Born || h.hurt(node, e.At, l.Done) {
			return 0, false
		}
		if e.Done < first.Call || looked && !k.of(first.Token) {
			return e.At, true
		}
	}
	return 0, false
}

// nodes compares the looks at the nodes with the leases of one resource. held is in the
// order of the grants.
//
// I3: while a lease is valid more than N - q nodes have its key, or at least no vote for
// another client. I4: no lease has a vote that a node gave in quarantine. I5: the counters
// of a quorum are not behind the token of the lease.
func (h *History) nodes(resource string, held []*Acquisition, r Rules) (found []Violation) {
	need := r.Nodes - (r.Nodes/2 + 1) + 1
	first := make(map[string]*Acquisition) // by token: a lease that is handed over keeps its votes
	for _, a := range held {
		if f := first[a.Token]; f == nil || a.Call < f.Call {
			first[a.Token] = a
		}
	}
	for n, round := range h.Rounds {
		if len(round) != r.Nodes {
			continue
		}
		from, to := round[0].At, round[0].Done
		looked := true
		for _, l := range round {
			from, to = min(from, l.At), max(to, l.Done)
			if _, ok := l.Keys[resource]; l.Up && !ok {
				looked = false
			}
		}
		// The holder throughout the round: the last to be granted the resource before it.
		i := sort.Search(len(held), func(i int) bool { return held[i].Return >= from }) - 1
		if !looked || i < 0 || held[i].End() <= to { // at one instant of virtual time much can happen
			continue
		}
		if held[i].adopting > 0 && held[i].adopting <= to { // the nodes may have the key of an attempt that fails
			continue
		}
		a := held[i]
		keeps, counts := 0, 0
		for _, l := range round {
			k := l.Keys[resource]
			unable := !l.Up || l.Left > 0 || h.excused(l.Node, from, to)
			if unable || k.of(a.Token) {
				keeps++
			}
			// A counter that was lost after the grant starts anew with the next grant.
			if unable || k.Counter >= a.Fence || h.excused(l.Node, first[a.Token].Call, to) {
				counts++
			}
			if l.Up && l.Left > 0 && k.ID == a.Token && k.C > 0 {
				if since, known := h.since(n, l.Node, resource, first[a.Token]); known {
					found = append(found, Violation{"I4", l.At, resource, fmt.Sprintf(
						"node %d gave %s a vote, fence %d, and has been in quarantine since %v or longer", l.Node, a.Client, a.Fence, since)})
				}
			}
		}
		if keeps < need {
			found = append(found, Violation{"I3", to, resource, fmt.Sprintf(
				"%s holds it with fence %d from %v to %v, and only %d of the %d nodes that must keep its key do:%s", a.Client, a.Fence, a.Return, a.End(), keeps, need, h.states(round, a))})
		}
		if counts < r.Nodes/2+1 {
			found = append(found, Violation{"I5", to, resource, fmt.Sprintf(
				"%s holds it with fence %d, and only %d nodes have counted so far", a.Client, a.Fence, counts)})
		}
	}
	return found
}

// states returns what the nodes of a round have for a lease, as text.
func (h *History) states(round []Look, a *Acquisition) (text string) {
	for _, l := range round {
		k := l.Keys[a.Resource]
		what := "no key"
		switch {
		case !l.Up:
			what = "does not answer"
		case k.of(a.Token):
			what = fmt.Sprint("its key, ", k.C)
		case k.ID != "":
			what = "another key"
		}
		if h.excused(l.Node, l.At, l.Done) {
			what += " (fault)"
		}
		if l.Left > 0 {
			what += fmt.Sprintf(" (no vote for %v)", l.Left)
		}
		text += fmt.Sprintf(" node %d at %v: %s;", l.Node, l.At, what)
	}
	return text
}

// counters is the other half of I5: an existing counter does not fall.
func (h *History) counters() (found []Violation) {
	type place struct {
		node     int
		resource string
	}
	last := make(map[place]Look)
	for _, round := range h.Rounds {
		for _, l := range round {
			if !l.Up {
				continue
			}
			for resource, k := range l.Keys {
				if k.Counter == 0 {
					continue
				}
				at := place{l.Node, resource}
				before, ok := last[at]
				if ok && before.Run == l.Run && k.Counter < before.Keys[resource].Counter && !h.excused(l.Node, before.At, l.Done) {
					found = append(found, Violation{"I5", l.At, resource, fmt.Sprintf("counter of node %d fell from %d to %d", l.Node, before.Keys[resource].Counter, k.Counter)})
				}
				last[at] = l
			}
		}
	}
	return found
}

// leftovers is I6, and the part of I11 about nodes: long enough after the last fault there
// are no keys except those of held leases.
func (h *History) leftovers(r Rules) (found []Violation) {
	calls := make(map[string][]*Acquisition) // by resource; a call for permits may make attempts at each permit of the semaphore
	for _, a := range h.Done {
		name := cmp.Or(a.Semaphore, a.Resource)
		calls[name] = append(calls[name], a)
	}
	for _, round := range h.Rounds {
		for _, l := range round {
			if !l.Up || l.At < h.Healed+r.Settled {
				continue
			}
			for resource, k := range l.Keys {
				ids := k.Readers
				if len(ids) == 0 && k.ID != "" {
					ids = []string{k.ID}
				}
				name := resource
				if calls[name] == nil {
					name, _, _ = strings.Cut(resource, "~")
				}
				for _, id := range ids {
					if !heldAt(calls[name], id, l.At, r) {
						found = append(found, Violation{"I6", l.At, resource, fmt.Sprintf("node %d has a key %q of no lease", l.Node, id)})
					}
				}
			}
			for _, key := range l.Rest {
				found = append(found, Violation{"I11", l.At, "", fmt.Sprintf("node %d has a key %q", l.Node, key)})
			}
			for _, conn := range l.Conns {
				found = append(found, Violation{"I11", l.At, "", fmt.Sprintf("node %d has a connection %q", l.Node, conn)})
			}
		}
	}
	return found
}

// heldAt reports whether the key may exist: of a lease that is held or ended a short while
// ago, or of a call that is under way.
func heldAt(list []*Acquisition, id string, at time.Duration, r Rules) bool {
	for i := len(list) - 1; i >= 0; i-- {
		a := list[i]
		if a.Call > at {
			continue
		}
		switch {
		case a.Token == id:
			return a.Freed == 0 && at < a.Until+r.TTL || at < max(a.Freed, a.Return+a.Keep)+r.Settled
		case a.Return == 0, a.Return+r.Settled > at:
			return true // perhaps of an attempt of this call
		}
		if len(list)-i > 200 {
			return false
		}
	}
	return false
}
