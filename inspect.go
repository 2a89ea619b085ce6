package redlock

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/wire"
)

// Verdict is what the nodes' answers about a resource come to.
type Verdict int

// The verdicts. They are about the moment of the answers, which come one after the other:
// a lock that is just being taken or given back can look like one that is on too few nodes.
const (
	VerdictUnknown     Verdict = iota // too few nodes answered to tell
	VerdictFree                       // no node that answered has a key, and a quorum could grant it
	VerdictHeld                       // a quorum has the key of one holder
	VerdictSplit                      // nodes have keys of several holders, and nobody a quorum
	VerdictMinority                   // nodes have the key of one holder, but no quorum of them
	VerdictQuarantined                // nobody has a quorum of keys, and too few nodes have a vote to grant one
	VerdictBroken                     // [Locker.Break] took it away: nobody can be granted it yet, see [Inspection.FreeIn]
)

func (v Verdict) String() string {
	if v < VerdictUnknown || v > VerdictBroken {
		return fmt.Sprintf("Verdict(%d)", int(v))
	}
	return [...]string{"UNKNOWN", "FREE", "HELD", "SPLIT", "MINORITY", "QUARANTINED", "BROKEN"}[v]
}

// Inspection is what [Locker.Inspect] found.
type Inspection struct {
	Resource string
	Verdict  Verdict
	Quorum   int    // nodes that have to agree: N/2+1
	Token    string // of the one holder that the verdict HELD, MINORITY or BROKEN is about
	Fence    int64  // smallest fencing token that the holder of a quorum may have, as a lease that was handed over has a later one; 0 if that is not certain
	Nodes    []NodeLock
}

// NodeLock is what a node has of a lock. What it does not tell is zero.
type NodeLock struct {
	Node       string        // address, without credentials
	Err        error         // why nothing is known of it; nil if it answered
	Token      string        // of the holder, or of the one from whom the key was taken away; "" if there is no key
	Fence      int64         // largest fencing token of the resource that the node knows of, whoever has it
	TTL        time.Duration // until the key expires; negative for a key that never does
	Quarantine time.Duration // how long the node has no vote yet
	Void       error         // why its vote would not count, nil if it would; not nil in quarantine
	RoundTrip  time.Duration // of the question
	Broken     bool          // by [Locker.Break]: the key is a placeholder, and nobody's; the TTL is its

	value          string  // of the key, as it is there
	given, counter int64   // fencing counters: that came with the key, and of now
	keepsTo        instant // at least until then the node keeps the key as it is
}

// Inspect asks all nodes who holds a resource, and changes nothing about it. It is for
// people and for monitoring: by the time it returns the answer can be another one, so
// nothing may be decided by it that a lock is needed for.
//
// If the verdict is [VerdictUnknown] the error is a [*QuorumError] with the nodes that did
// not answer, and matches [ErrNoQuorum]; what is known is in the result all the same. Bad
// arguments give [ErrConfig], a closed Locker [ErrClosed].
//
// A master seen for the first time gets its marker, as it does by locking.
//
// Source: ALGORITHM section 2.
func (l *Locker) Inspect(ctx context.Context, resource string) (Inspection, error) {
	in := Inspection{Resource: resource, Quorum: l.pool.need}
	if err := l.conf.checkCall(ctx, "Inspect", resource); err != nil {
		return in, err
	}
	if !l.calls.enter() {
		return in, ErrClosed
	}
	defer l.calls.leave()
	l.pool.start()
	in = l.pool.inspect(ctx, resource)
	if in.Verdict != VerdictUnknown {
		return in, nil
	}
	failed := in.errorOf("inspect", func(n *NodeLock) error { return n.Err })
	failed.reasons = []error{ErrNoQuorum}
	if ctx.Err() != nil {
		failed.reasons = append(failed.reasons, contextError(ctx))
	}
	return in, failed
}

// inspect has all nodes look.
func (p *pool) inspect(ctx context.Context, resource string) Inspection {
	in := Inspection{Resource: resource, Quorum: p.need}
	key := p.conf.keyPrefix + resource
	found, errs := onEach(ctx, p, func(ctx context.Context, n *node.Node) (NodeLock, error) {
		held, err := n.Look(ctx, key)
		return p.lockOn(held), err
	})
	for i, err := range errs {
		n := found[i]
		n.Node, n.Err = p.nodes[i].Addr(), err
		in.Nodes = append(in.Nodes, n)
	}
	in.judge()
	return in
}

// errorOf is an error that lists the nodes of which something is wrong. Why it is one is
// for the caller to say.
func (in *Inspection) errorOf(op string, wrong func(*NodeLock) error) *QuorumError {
	e := newQuorumError(op, in.Resource, in.Quorum, len(in.Nodes))
	for i := range in.Nodes {
		if err := wrong(&in.Nodes[i]); err != nil {
			e.Nodes = append(e.Nodes, &NodeError{Node: in.Nodes[i].Node, Op: "look", Err: err})
		}
	}
	e.Granted = len(in.Nodes) - len(e.Nodes)
	return e
}

// lockOn is what a node has of a lock. A fencing counter that cannot be is left out: nothing
// may go on from it.
func (p *pool) lockOn(held node.Held) (found NodeLock) {
	most := held.Micros + p.set.MaxAhead().Microseconds()
	believed := func(text string) int64 {
		if c := parseCounter(text); c <= most {
			return c
		}
		return 0
	}
	found.Quarantine, found.Void, found.RoundTrip = held.Quarantine, held.Void, held.RoundTrip
	if found.counter = believed(held.Counter); found.counter > 0 {
		found.Fence = firstFence(found.counter)
	}
	if !held.Exists {
		return found
	}
	token, given, _ := strings.Cut(held.Value, "|") // another library's value has no counter
	if of, is := strings.CutPrefix(token, wire.BrokenMark); is {
		token, given, found.Broken = of, "", true
	}
	found.Token, found.TTL, found.value, found.given = token, held.TTL, held.Value, believed(given)
	if found.keepsTo = never; found.TTL >= 0 {
		found.keepsTo = held.Asked.Add(found.TTL - driftAllowance(found.TTL, p.conf.drift))
	}
	return found
}

// has reports whether the node has the key of a holder, which a placeholder is not.
func (n *NodeLock) has(token string) bool {
	return n.Err == nil && !n.Broken && token != "" && n.Token == token
}

// parseCounter is 0 for what cannot be one.
func parseCounter(s string) int64 {
	c, err := strconv.ParseInt(s, 10, 64)
	if err != nil || c < fenceBlock {
		return 0
	}
	return c
}

// judge comes to the verdict.
func (in *Inspection) judge() {
	holders, broken, tokens := make(map[string]int), make(map[string]int), make(map[string]bool)
	unknown, voting, placeholders := 0, 0, 0
	for _, n := range in.Nodes {
		switch {
		case n.Err != nil:
			unknown++
			continue
		case n.Void == nil:
			voting++
		}
		switch {
		case n.Token == "":
			continue
		case n.Broken:
			broken[n.Token]++
			placeholders++
		default:
			holders[n.Token]++
		}
		tokens[n.Token] = true
	}
	most, of := mostOf(holders), mostOf(broken)
	blocked := placeholders > len(in.Nodes)-in.Quorum
	in.Verdict = verdictOf(in.Quorum, holders[most], len(tokens), unknown, voting, blocked)
	switch in.Verdict {
	case VerdictHeld:
		in.Token = most
	case VerdictMinority:
		in.Token = cmp.Or(most, of)
	case VerdictBroken:
		in.Token = of
	}
	if in.Verdict == VerdictHeld {
		if counter := in.counterOf(most); counter > 0 {
			in.Fence = firstFence(counter)
		}
	}
}

// mostOf is the token that most nodes have.
func mostOf(tokens map[string]int) (most string) {
	for token, k := range tokens {
		if k > tokens[most] || k == tokens[most] && token < most {
			most = token
		}
	}
	return most
}

// verdictOf is the verdict for so many nodes that have the key of one holder, holders in
// all and those who were, nodes that did not answer, and nodes with a vote. blocked says that
// placeholders alone leave no quorum to anybody.
func verdictOf(quorum, most, holders, unknown, voting int, blocked bool) Verdict {
	switch {
	case most >= quorum:
		return VerdictHeld
	case most+unknown >= quorum: // somebody may hold it
		return VerdictUnknown
	case blocked:
		return VerdictBroken
	case voting < quorum:
		return VerdictQuarantined
	case holders > 1:
		return VerdictSplit
	case holders == 1:
		return VerdictMinority
	}
	return VerdictFree
}

// counterOf is the fencing counter of a holder's lease, or 0 if it cannot be told. That
// came with the key on one of its nodes, and a quorum counts at least as much; a larger one
// came with a vote that was too late, and fewer nodes count that much. A node that is not
// known to have the key as it was granted may count anything, and have given any of them.
//
// Source: ALGORITHM section 4.
func (in *Inspection) counterOf(token string) int64 {
	var its []NodeLock
	for _, n := range in.Nodes {
		if n.has(token) && n.given > 0 {
			its = append(its, n)
		}
	}
	others := len(in.Nodes) - len(its)
	slices.SortFunc(its, func(a, b NodeLock) int { return cmp.Compare(b.given, a.given) })
	for _, candidate := range its {
		same, more := 0, 0
		for _, n := range its {
			if n.counter >= candidate.given {
				same++
			}
			if n.counter > candidate.given {
				more++
			}
		}
		switch {
		case others > 0 && more+others >= in.Quorum, same < in.Quorum && same+others >= in.Quorum:
			return 0
		case same >= in.Quorum:
			return candidate.given
		}
	}
	return 0
}
