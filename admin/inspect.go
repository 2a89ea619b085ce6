package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/wire"
)

// Verdict is the conclusion from the masters' answers about a resource.
type Verdict int

// The verdicts. The masters answer one after the other. So while a lock is just being taken or
// given back, the verdict can be VerdictMinority or VerdictSplit.
const (
	VerdictUnknown     Verdict = iota // too few masters answered to tell
	VerdictFree                       // no master that answered has a key, and a quorum has a vote
	VerdictHeld                       // a quorum has the key of one holder
	VerdictSplit                      // masters have keys of several holders, none of which has a quorum
	VerdictMinority                   // masters have the key of one holder, but are no quorum
	VerdictQuarantined                // no holder has a quorum, and too few masters have a vote to grant the resource
	VerdictBroken                     // Break took the lock away, and the resource cannot be granted yet: see [Inspection.FreeIn]
	VerdictShared                     // readers have the resource: a quorum has the key of at least one of them
)

// String returns the verdict in capitals: "HELD".
func (v Verdict) String() string {
	if v < VerdictUnknown || v > VerdictShared {
		return fmt.Sprintf("Verdict(%d)", int(v))
	}
	return [...]string{"UNKNOWN", "FREE", "HELD", "SPLIT", "MINORITY", "QUARANTINED", "BROKEN", "SHARED"}[v]
}

// MarshalText returns the text of String.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// Inspection is the result of [Inspect].
type Inspection struct {
	Resource string
	Verdict  Verdict
	Quorum   int           // masters that have to agree: N/2+1
	Token    string        // of the one holder, if the verdict is HELD, MINORITY or BROKEN; printable
	Owner    string        // its label; "" if it has none: see redlock.WithOwner
	HeldFor  time.Duration // since its call, or since it adopted the lease, by the clocks of the masters in the middle; 0 if that is not known
	Readers  []Reader      // those that a quorum has, if the verdict is SHARED; of more than 64, those whose keys end first
	Fence    int64         // fencing token that came with the grant of the holder, whose own is larger after a hand-over; 0 if not certain or not HELD
	Waiting  int           // processes that wait for the resource, by the master that has most of them in its queue; a process that died counts until the queue has come to it
	Masters  []MasterLock
}

// String returns all fields on one line. The name of a resource that another program has locked, and
// the values of its keys, can be any bytes: what is not printable is escaped.
func (in Inspection) String() string {
	type fields Inspection
	return wire.Printable(fmt.Sprintf("%+v", fields(in)))
}

// MarshalJSON implements [json.Marshaler]. What is not printable is escaped.
func (in Inspection) MarshalJSON() ([]byte, error) {
	type fields Inspection
	text, err := json.Marshal(fields(in))
	return wire.PrintableJSON(text), err
}

// Reader is a holder of a shared lease, see [redlock.Shared].
type Reader struct {
	Token   string
	Owner   string        // its label; "" if it has none
	HeldFor time.Duration // since its call; 0 if that is not known
	TTL     time.Duration // until its key expires: on a master, or in an [Inspection] on a quorum
}

// MasterLock is the state of a lock on one master. A field that the master does not report is zero.
type MasterLock struct {
	Master     string        // address, without credentials
	Err        error         // why the master did not answer; nil if it did
	Token      string        // of the holder, or of the former holder if Broken; "" if there is no key; printable
	Owner      string        // its label; "" if it has none
	Fence      int64         // largest fencing token of the resource that the master knows of, of whichever holder
	TTL        time.Duration // until the key expires; negative for a key that never expires
	Quarantine time.Duration // how long the master has no vote yet
	NoVote     error         // why the vote of the master would not count, as in quarantine; nil if it would
	RoundTrip  time.Duration // of the question
	Readers    []Reader      // that have the key, of more than 64 those whose keys end first; Token is "" then
	ReaderKeys int           // number of readers that have the key
	Waiting    int           // processes in the master's queue for the resource
	Broken     bool          // by [Break]: the key is a placeholder without a holder, and TTL is that of the placeholder
}

// Inspect asks all masters which holder has a resource, and how many processes wait for it. It does
// not change the lock. A master that is seen for the first time gets its marker, as by Lock.
//
// If the verdict is [VerdictUnknown], the error is a [*redlock.QuorumError] that names the masters
// that did not answer, and matches [redlock.ErrNoQuorum]. The [Inspection] then has the other
// answers. If an argument is wrong, the error matches [redlock.ErrConfig]. Source: ALGORITHM section 2.
func Inspect(ctx context.Context, l *redlock.Locker, resource string) (Inspection, error) {
	r, err := enter(ctx, l, "Inspect", resource)
	if err != nil {
		return Inspection{Resource: resource}, err
	}
	defer r.Leave()
	in, _, err := r.inspect(ctx, resource)
	return in, err
}

// inspect asks all nodes for what they have of a resource.
func (r room) inspect(ctx context.Context, resource string) (Inspection, []node.Held, error) {
	in := Inspection{Resource: resource, Quorum: r.Quorum}
	found, errs := each(ctx, r, func(ctx context.Context, n *node.Node) (node.Held, error) {
		return n.Look(ctx, r.Prefix+resource)
	})
	failed := r.quorumError("inspect", resource, r.Quorum, redlock.ErrNoQuorum)
	wrong := cmp.Or(r.Nodes.Misconfigured(), r.Nodes.Refused()) // a wrong list grants nothing
	for i, n := range r.Nodes.Nodes() {
		found[i].Err = errs[i]
		if errs[i] == nil { // and the clocks of the others were perhaps not known when the node answered
			found[i].Void = cmp.Or(found[i].Void, n.TooFarNow(), found[i].Unfit, wrong)
		}
		in.Masters = append(in.Masters, masterLock(n.Addr(), &found[i]))
		in.Waiting = max(in.Waiting, found[i].Waiting)
		if errs[i] != nil {
			failed.Masters = append(failed.Masters, &redlock.MasterError{Master: n.Addr(), Op: "look", Err: errs[i]})
		} else {
			failed.Granted++
		}
	}
	in.judge(found)
	if in.Verdict != VerdictUnknown {
		return in, found, nil
	}
	if failed.Granted >= failed.Need {
		failed.Reasons = append(failed.Reasons, errMayHave)
	}
	return in, found, withContext(ctx, failed)
}

// errMayHave is why the answers of a quorum do not tell whether there is a holder.
var errMayHave = errors.New("masters that did not answer may have the key, too")

// masterLock returns what a node has of a lock, for people.
func masterLock(addr string, h *node.Held) MasterLock {
	m := MasterLock{
		Master: addr, Err: h.Err, Token: wire.Printable(h.Token), Owner: wire.OwnerOf(h.Token), TTL: h.TTL, Quarantine: h.Quarantine, NoVote: h.Void,
		RoundTrip: h.RoundTrip, ReaderKeys: h.Sharing, Waiting: h.Waiting, Broken: h.Broken,
	}
	if h.Counter > 0 {
		m.Fence = firstFence(h.Counter)
	}
	for _, r := range h.Readers {
		m.Readers = append(m.Readers, Reader{wire.Printable(r.Token), wire.OwnerOf(r.Token), r.For, r.TTL})
	}
	return m
}

// firstFence returns the first token of the block that ends at a counter.
//
// Source: ALGORITHM section 4.
func firstFence(counter int64) int64 { return counter - wire.Block + 1 }

// judge sets the verdict, and with it the token and the fencing token.
func (in *Inspection) judge(nodes []node.Held) {
	holders, broken, tokens := make(map[string]int), make(map[string]int), make(map[string]bool)
	readers := make(map[string][]Reader)
	unknown, voting, placeholders := 0, 0, 0
	for i := range nodes {
		h := &nodes[i]
		switch {
		case h.Err != nil:
			unknown++
			continue
		case h.Void == nil:
			voting++
		}
		for _, r := range in.Masters[i].Readers {
			readers[r.Token] = append(readers[r.Token], r)
		}
		switch {
		case !h.Taken():
			continue
		case h.Broken:
			broken[h.Token]++
			placeholders++
		default:
			holders[h.Token]++
		}
		tokens[h.Token] = true
	}
	shared := 0
	for _, its := range readers {
		shared = max(shared, len(its))
	}
	delete(holders, "") // the sign of readers is the key of none of them
	most, of := mostOf(holders), mostOf(broken)
	blocked := placeholders > len(nodes)-in.Quorum
	in.Verdict = verdictOf(in.Quorum, max(holders[most], shared), len(tokens), unknown, voting, blocked)
	if in.Verdict == VerdictHeld && holders[most] < in.Quorum {
		in.Verdict = VerdictShared
		in.Readers = heldBy(readers, in.Quorum)
	}
	switch in.Verdict {
	case VerdictHeld:
		in.Token = wire.Printable(most)
		if counter := node.CounterOf(nodes, in.Quorum, most); counter > 0 {
			in.Fence = firstFence(counter)
		}
	case VerdictMinority:
		in.Token = wire.Printable(cmp.Or(most, of))
	case VerdictBroken:
		in.Token = wire.Printable(of)
	}
	in.Owner = wire.OwnerOf(in.Token)
	var since []time.Duration
	for i := range nodes {
		if h := &nodes[i]; in.Verdict == VerdictHeld && h.Has(most) && h.For > 0 {
			since = append(since, h.For)
		}
	}
	in.HeldFor = node.Middle(since)
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
// unknown counts the nodes that did not answer, and voting the nodes with a vote. blocked means
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

// taken reports whether the master has a key: of a holder, of readers, or a placeholder.
func (m *MasterLock) taken() bool { return m.Token != "" || m.ReaderKeys > 0 || m.Broken }

// FreeIn returns the longest TTL of the keys: after that time no master that answered has a key
// any more, if none is set or renewed. It is negative if some key never expires.
func (in *Inspection) FreeIn() time.Duration {
	var longest time.Duration
	for _, m := range in.Masters {
		if m.taken() && m.TTL < 0 {
			return m.TTL
		}
		longest = max(longest, m.TTL)
	}
	return longest
}
