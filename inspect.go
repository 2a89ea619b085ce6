package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/wire"
)

// Verdict is the conclusion from the masters' answers about a resource.
type Verdict int

// The verdicts. The masters answer one after the other. So while a lock is just being taken or
// given back, the verdict can be VerdictMinority or VerdictSplit.
const (
	VerdictUnknown     Verdict = iota // too few masters answered to tell
	VerdictFree                       // no master that answered has a key, and a quorum could grant the resource
	VerdictHeld                       // a quorum has the key of one holder
	VerdictSplit                      // masters have keys of several holders, none of which has a quorum
	VerdictMinority                   // masters have the key of one holder, but are no quorum
	VerdictQuarantined                // no holder has a quorum, and too few masters have a vote to grant the resource
	VerdictBroken                     // [Locker.Break] took the lock away, and the resource cannot be granted yet: see [Inspection.FreeIn]
	VerdictShared                     // readers have the resource: a quorum has the key of at least one of them
)

func (v Verdict) String() string {
	if v < VerdictUnknown || v > VerdictShared {
		return fmt.Sprintf("Verdict(%d)", int(v))
	}
	return [...]string{"UNKNOWN", "FREE", "HELD", "SPLIT", "MINORITY", "QUARANTINED", "BROKEN", "SHARED"}[v]
}

// Inspection is the result of [Locker.Inspect].
type Inspection struct {
	Resource string
	Slot     int // of a permit, from 1: Resource is the name of its semaphore then
	Verdict  Verdict
	Quorum   int      // masters that have to agree: N/2+1
	Token    string   // of the one holder, if the verdict is HELD, MINORITY or BROKEN
	Owner    string   // its label; "" if it has none: see WithOwner
	Readers  []Reader // those that a quorum has, if the verdict is SHARED; of more than 64, those whose keys end first
	Fence    int64    // fencing token that came with the grant of the holder, whose own is larger after a hand-over; 0 if not certain or not HELD
	Masters  []MasterLock
}

// Reader is a holder of a shared lease, see [Locker.RLock].
type Reader struct {
	Token string
	Owner string        // its label; "" if it has none
	TTL   time.Duration // until its key expires: on a master, or in an [Inspection] on a quorum
}

// MasterLock is the state of a lock on one master. A field that the master does not tell is zero.
type MasterLock struct {
	Master     string        // address, without credentials
	Err        error         // why the master did not answer; nil if it did
	Token      string        // of the holder, or of the former holder if Broken; "" if there is no key
	Owner      string        // its label; "" if it has none
	Fence      int64         // largest fencing token of the resource that the master knows of, of whichever holder
	TTL        time.Duration // until the key expires; negative for a key that never expires
	Quarantine time.Duration // how long the master has no vote yet
	Void       error         // why the vote of the master would not count, as in quarantine; nil if it would
	RoundTrip  time.Duration // of the question
	Readers    []Reader      // that have the key, of more than 64 those whose keys end first; Token is "" then
	Sharing    int           // number of readers that have the key
	Broken     bool          // by [Locker.Break]: the key is a placeholder without a holder, and TTL is that of the placeholder

	value   string  // of the key
	given   int64   // fencing counter that came with the key
	counter int64   // fencing counter at the moment of the answer
	keepsTo instant // at least until then the node keeps the key as it is
}

// Inspect asks all masters which holder has a resource. It does not change the lock. The result
// can be out of date by the time Inspect returns: use it for people and for monitoring, never in
// place of a lock.
//
// If the verdict is [VerdictUnknown], the error is a [*QuorumError] that names the masters that
// did not answer, and matches [ErrNoQuorum]. The Inspection then has the other answers. If an
// argument is wrong, the error matches [ErrConfig]. If the Locker is closed, it is [ErrClosed].
//
// A master that is seen for the first time gets its marker, as by Lock.
//
// Source: [ALGORITHM section 2].
//
// [ALGORITHM section 2]: https://github.com/d0720281/redlock/blob/main/ALGORITHM.md#2-state-on-a-node
func (l *Locker) Inspect(ctx context.Context, resource string) (Inspection, error) {
	in := Inspection{Resource: resource, Quorum: l.groupOf(resource).need}
	if err := l.conf.checkCall(ctx, "Inspect", resource); err != nil {
		return in, err
	}
	if !l.calls.enter() {
		return in, ErrClosed
	}
	defer l.calls.leave()
	return l.look(ctx, resource)
}

// look is Inspect for a resource or a slot.
func (l *Locker) look(ctx context.Context, resource string) (Inspection, error) {
	l.start()
	p := l.groupOf(resource)
	in := p.inspect(ctx, resource)
	if in.Verdict != VerdictUnknown {
		return in, nil
	}
	failed := in.errorOf("inspect", func(n *MasterLock) error { return n.Err })
	failed.reasons = []error{ErrNoQuorum}
	if ctx.Err() != nil {
		failed.reasons = append(failed.reasons, contextError(ctx))
	}
	return in, failed
}

// inspect asks all nodes for what they have of a resource.
func (p *pool) inspect(ctx context.Context, resource string) Inspection {
	in := Inspection{Quorum: p.need}
	in.Resource, in.Slot = wire.CutSlot(resource)
	key := p.conf.keyPrefix + resource
	found, errs := onEach(ctx, p, func(ctx context.Context, n *node.Node) (MasterLock, error) {
		held, err := n.Look(ctx, key)
		return p.lockOn(held), err
	})
	for i, err := range errs {
		n := found[i]
		n.Master, n.Err = p.nodes[i].Addr(), err
		in.Masters = append(in.Masters, n)
	}
	in.judge()
	return in
}

// errorOf returns an error that lists the nodes for which wrong returns an error. The caller
// sets its reasons.
func (in *Inspection) errorOf(op string, wrong func(*MasterLock) error) *QuorumError {
	e := newQuorumError(op, in.Resource, in.Quorum, len(in.Masters))
	for i := range in.Masters {
		if err := wrong(&in.Masters[i]); err != nil {
			e.Masters = append(e.Masters, &MasterError{Master: in.Masters[i].Master, Op: "look", Err: err})
		}
	}
	e.Granted = len(in.Masters) - len(e.Masters)
	return e
}

// lockOn returns what a node has of a lock. It leaves out a fencing counter that is further
// ahead of the node's clock than a counter can be.
func (p *pool) lockOn(held node.Held) (found MasterLock) {
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
	if token == wire.Readers || token == wire.Unowned {
		token = ""
	}
	found.Token, found.Owner = token, ownerOf(token)
	found.Sharing = held.Sharing
	for _, r := range held.Readers {
		found.Readers = append(found.Readers, Reader{r.ID, ownerOf(r.ID), r.TTL})
	}
	found.TTL, found.value, found.given = held.TTL, held.Value, believed(given)
	if found.keepsTo = never; found.TTL >= 0 {
		found.keepsTo = held.Asked.Add(found.TTL - driftAllowance(found.TTL, p.conf.drift))
	}
	return found
}

// has reports whether the node has the key of a holder. A placeholder is no such key.
func (n *MasterLock) has(token string) bool {
	return n.Err == nil && !n.Broken && token != "" && n.Token == token
}

// taken reports whether the node has a key: of a holder, of readers, or a placeholder.
func (n *MasterLock) taken() bool { return n.Token != "" || n.Sharing > 0 || n.Broken }

// parseCounter returns 0 for a string that cannot be a fencing counter.
func parseCounter(s string) int64 {
	c, err := strconv.ParseInt(s, 10, 64)
	if err != nil || c < fenceBlock {
		return 0
	}
	return c
}

// judge sets the verdict, and with it the token and the fencing token.
func (in *Inspection) judge() {
	holders, broken, tokens := make(map[string]int), make(map[string]int), make(map[string]bool)
	readers := make(map[string][]Reader)
	unknown, voting, placeholders := 0, 0, 0
	for _, n := range in.Masters {
		switch {
		case n.Err != nil:
			unknown++
			continue
		case n.Void == nil:
			voting++
		}
		for _, r := range n.Readers {
			readers[r.Token] = append(readers[r.Token], r)
		}
		switch {
		case !n.taken():
			continue
		case n.Broken:
			broken[n.Token]++
			placeholders++
		default:
			holders[n.Token]++
		}
		tokens[n.Token] = true
	}
	shared := 0
	for _, its := range readers {
		shared = max(shared, len(its))
	}
	delete(holders, "") // the sign of readers is the key of none of them
	most, of := mostOf(holders), mostOf(broken)
	blocked := placeholders > len(in.Masters)-in.Quorum
	in.Verdict = verdictOf(in.Quorum, max(holders[most], shared), len(tokens), unknown, voting, blocked)
	if in.Verdict == VerdictHeld && holders[most] < in.Quorum {
		in.Verdict = VerdictShared
		in.Readers = heldBy(readers, in.Quorum)
	}
	switch in.Verdict {
	case VerdictHeld:
		in.Token = most
	case VerdictMinority:
		in.Token = cmp.Or(most, of)
	case VerdictBroken:
		in.Token = of
	}
	in.Owner = ownerOf(in.Token)
	if in.Verdict == VerdictHeld {
		if counter := in.counterOf(most); counter > 0 {
			in.Fence = firstFence(counter)
		}
	}
}

// heldBy returns the readers that a quorum of nodes has, in the order of their ends.
func heldBy(readers map[string][]Reader, quorum int) (list []Reader) {
	for _, its := range readers {
		if len(its) >= quorum {
			slices.SortFunc(its, func(a, b Reader) int { return cmp.Compare(b.TTL, a.TTL) })
			list = append(list, its[quorum-1])
		}
	}
	slices.SortFunc(list, func(a, b Reader) int {
		return cmp.Or(cmp.Compare(a.TTL, b.TTL), cmp.Compare(a.Token, b.Token))
	})
	return list
}

// mostOf returns the token that most nodes have.
func mostOf(tokens map[string]int) (most string) {
	for token, k := range tokens {
		if k > tokens[most] || k == tokens[most] && token < most {
			most = token
		}
	}
	return most
}

// verdictOf returns the verdict. most is the largest number of nodes that have the key of one
// holder. holders counts the present holders, and the former ones that have placeholders.
// unknown counts the nodes that did not answer, and voting the nodes with a vote. blocked says
// that the placeholders alone leave no quorum to any holder.
func verdictOf(quorum, most, holders, unknown, voting int, blocked bool) Verdict {
	switch {
	case most >= quorum:
		return VerdictHeld
	case most+unknown >= quorum: // a holder may have a quorum
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

// counterOf returns the fencing counter of a holder's lease, or 0 if the answers do not tell it.
// The counter came with the key on one of the holder's nodes, and a quorum counts at least as
// much. A larger counter came with a vote that was too late, and fewer nodes count as much. The
// other nodes may count anything, and each counter may have come from one of them.
//
// Source: ALGORITHM section 4.
func (in *Inspection) counterOf(token string) int64 {
	var its []MasterLock
	for _, n := range in.Masters {
		if n.has(token) && n.given > 0 {
			its = append(its, n)
		}
	}
	others := len(in.Masters) - len(its)
	slices.SortFunc(its, func(a, b MasterLock) int { return cmp.Compare(b.given, a.given) })
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

// Break takes a lock away from its holder. There is no time in which two holders have the
// resource: on each master Break replaces the key that it has just seen by a placeholder, which
// has no holder and lives as long as the key would have. So the holder cannot renew its lease
// any more, and loses it with [ErrBroken]. A holder of this Locker loses it at once. A holder
// that has renewed its lease before hears of the Break by a message. Any other holder learns of
// it at its next renewal or Extend, or loses the lease when its validity ends. Until the lease
// is lost, no other holder gets the resource.
//
// A holder that has learned of the Break removes the placeholders when it unlocks the lease. If
// it does not unlock, the library removes them after the time of [WithGrace] and another 200 ms,
// or a fifth of the TTL if that is less. So the next holder has the resource within half a
// second of the end of the lease, and the round trips. If the holder has died, is cut off, has a
// lease without renewal and does not call Extend, or has adopted the lease (see [Locker.Adopt]),
// the resource is free when the placeholders expire.
//
// Break is for people, against a holder that lives and does not let go. The keys of a holder
// that has died expire by themselves.
//
// Break takes a resource from all readers at once, also from those that came after the look. No other
// holder gets it before the keys of the readers would have ended.
//
// A key that never expires is not of this library; its placeholder lives for the value of
// [WithMaxTTL]. A key that is no string is left alone, and the error of that master matches
// [ErrWrongType]. A master without a key is not changed. Callers that wait for the resource go
// on waiting.
//
// The result has the state before the Break, except for the TTL of the masters that are Broken: that
// is the time for which they keep their placeholders. [Inspection.FreeIn] returns when the
// resource is free at the latest.
//
// If there was or may have been a holder, and fewer than a quorum of the masters are broken,
// that holder may go on. The error is then a [*QuorumError] with the answers of the other
// masters, and matches [ErrNoQuorum]. The placeholders stay, and Break can be called again: it
// counts the masters that have placeholders already. If an argument is wrong, the error matches
// [ErrConfig]. If the Locker is closed, it is [ErrClosed].
//
// Source: [ALGORITHM section 5].
//
// [ALGORITHM section 5]: https://github.com/d0720281/redlock/blob/main/ALGORITHM.md#5-release-and-rollback
func (l *Locker) Break(ctx context.Context, resource string) (Inspection, error) {
	in := Inspection{Resource: resource, Quorum: l.groupOf(resource).need}
	if err := l.conf.checkCall(ctx, "Break", resource); err != nil {
		return in, err
	}
	if !l.calls.enter() {
		return in, ErrClosed
	}
	defer l.calls.leave()
	return l.take(ctx, resource)
}

// take is Break for a resource or a slot.
func (l *Locker) take(ctx context.Context, resource string) (Inspection, error) {
	l.start()
	p := l.groupOf(resource)
	in := p.inspect(ctx, resource)
	nodes := slices.Clone(in.Masters) // a node task can outlive the call
	left, errs := onEach(ctx, p, func(ctx context.Context, n *node.Node) (time.Duration, error) {
		seen := &nodes[n.Index()]
		if seen.Err != nil || !seen.taken() {
			return 0, seen.Err
		}
		life, done, err := n.Break(ctx, l.conf.keyPrefix+resource, seen.value, l.conf.placeholder(seen))
		if err == nil && !done {
			err = errChanged
		}
		return life, err
	})
	broken := 0
	for i := range in.Masters {
		n := &in.Masters[i]
		if n.Broken = errs[i] == nil && n.taken(); n.Broken {
			n.TTL = left[i]
			broken++
		}
	}
	if broken > 0 {
		p.tellBroken(ctx, resource, in.Masters)
	}
	if broken >= in.Quorum || in.Verdict != VerdictHeld && in.Verdict != VerdictShared && in.Verdict != VerdictUnknown {
		return in, nil
	}
	failed := p.quorumError("break", resource, broken, ErrNoQuorum)
	for i, n := range in.Masters {
		err := errs[i]
		if err == nil && !n.Broken {
			err = errGone
		}
		if err != nil {
			failed.Masters = append(failed.Masters, &MasterError{Master: n.Master, Op: "break", Err: err})
		}
	}
	if ctx.Err() != nil {
		failed.reasons = append(failed.reasons, contextError(ctx))
	}
	return in, failed
}

// tellBroken tells the holders of the resource that it was broken: a holder of this Locker at
// once, the others by a message to all subscribers of each node. A holder that misses the
// message learns of the Break at its next renewal.
func (p *pool) tellBroken(ctx context.Context, resource string, nodes []MasterLock) {
	for _, g := range p.renewer.all() {
		if g.resource == resource {
			g.brokenOn(nodes)
		}
	}
	_, _ = onEach(ctx, p, func(ctx context.Context, n *node.Node) (struct{}, error) {
		return struct{}{}, n.TellBroken(ctx, p.conf.keyPrefix+resource)
	})
}

// placeholder returns the value that replaces a key. It has the id of the attempt that set the
// key, by which the former holder can remove it. If no Locker has set the key, no process removes
// the placeholder.
//
// Source: ALGORITHM section 5.
func (c *config) placeholder(seen *MasterLock) string {
	switch {
	case seen.Broken:
		return seen.value
	case seen.value == wire.Sign:
		return wire.Placeholder(wire.Readers)
	case isToken(seen.Token):
		return wire.Placeholder(seen.Token)
	}
	return wire.Placeholder(wire.Unowned)
}

var errChanged = errors.New("the key has changed since it was read")

// FreeIn returns the longest TTL of the keys: after that time no master that answered has a key
// any more, if none is set or renewed. It is negative if some key never expires.
func (in *Inspection) FreeIn() time.Duration {
	var longest time.Duration
	for _, n := range in.Masters {
		if n.taken() && n.TTL < 0 {
			return n.TTL
		}
		longest = max(longest, n.TTL)
	}
	return longest
}
