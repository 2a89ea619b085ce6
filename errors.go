package redlock

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/d0720281/redlock/internal/node"
)

// Sentinels to branch on with errors.Is. What has happened to whom is in
// [*QuorumError] and [*NodeError], for errors.As.
var (
	// ErrNotAcquired is matched by every error of a Lock, TryLock or Do that
	// ended without a lease, apart from bad arguments, re-entry and a Locker that
	// was closed before.
	ErrNotAcquired = errors.New("redlock: not acquired")

	// ErrTaken says that somebody else has the resource: without the nodes that
	// hold it for another there was no quorum, with them there would have been.
	// It comes with ErrNotAcquired and is no alarm.
	ErrTaken = errors.New("redlock: taken by another holder")

	// ErrNoQuorum says that too few nodes answered in time, or with a usable
	// answer. It is an alarm: the masters, or the way to them, are in trouble.
	ErrNoQuorum = errors.New("redlock: no quorum")

	// ErrQuarantine says that masters have no vote yet: they are new, restarted, or have
	// lost data. It comes with ErrNoQuorum where only they are missing for a quorum.
	// NodeError has how long each will need; [Locker.Bootstrap] is the way out for new
	// ones.
	ErrQuarantine = errors.New("redlock: masters in quarantine")

	// ErrSameServer says that an address leads to a server that another one leads to
	// as well, by another name or database number: it would vote twice. A list in
	// which that is found when its masters are first reached grants nothing from then
	// on. It takes INFO to be found.
	ErrSameServer = node.ErrSameServer

	// ErrMembership says that other clients use another list of masters, of which a quorum
	// can have no master in common with a quorum of this one's: two masters are exchanged, or
	// more than one is added or removed. Both could hold a resource at once. So a node on
	// which the other list is in use gives this client no vote, until 20.6 s (two quarantines,
	// which follow from [WithMaxTTL]) after the last client with that list asked for votes
	// there. To change the list add a master, give that list to all clients, and then remove
	// one. Lists are compared by addresses as they are written. NodeError.Err has the other list.
	ErrMembership = node.ErrMembership

	// ErrNotMaster says that a node is a replica, or belongs to a cluster. It is asked
	// nothing until that has changed.
	ErrNotMaster = node.ErrNotMaster

	// ErrLost says that the lease is over although nobody released it. The
	// work it protects must stop.
	ErrLost = errors.New("redlock: lease lost")

	// ErrExpired comes with ErrLost when the validity ran out: no renewal had
	// been successful in time, or none was asked for.
	ErrExpired = errors.New("redlock: validity ran out")

	// ErrSuspended comes with ErrLost and ErrExpired when the validity ran out while
	// this machine stood still, as the masters' clocks showed afterwards.
	ErrSuspended = errors.New("redlock: local clock had stood still")

	// ErrQuorumLost comes with ErrLost when the nodes reported that a quorum
	// of them is free for others, while validity was still left.
	ErrQuorumLost = errors.New("redlock: key gone from too many nodes")

	// ErrBroken says that [Locker.Break] has taken the lease away. It comes with ErrLost and
	// ErrQuorumLost where that ended a lease, and with ErrNotHeld from [Locker.Adopt].
	ErrBroken = errors.New("redlock: lock was broken")

	// ErrMaxHold comes with ErrLost when the bound of [WithMaxHold] was reached.
	ErrMaxHold = errors.New("redlock: maximum hold reached")

	// ErrNotHeld is matched when Unlock, Extend or Detach finds that this handle has
	// no lease any more, whatever ended it, and when [Locker.Adopt] finds that the
	// nodes do not have it.
	ErrNotHeld = errors.New("redlock: not held")

	// ErrReleased is the cause of a lease that Unlock or Close ended.
	ErrReleased = errors.New("redlock: lease released")

	// ErrDetached is the cause of a lease that [Lease.Detach] ended here.
	ErrDetached = errors.New("redlock: lease detached")

	// ErrReentry says that Lock was called for a resource which the context
	// already holds, without [WithReentry]. Waiting would never end.
	ErrReentry = errors.New("redlock: resource already held by this context")

	// ErrClosed says that the Locker is closed. It comes with ErrNotAcquired when
	// that ended a call which was waiting.
	ErrClosed = node.ErrClosed

	// ErrConfig is matched by every complaint about an argument or option. No
	// node was asked, but by [Locker.Adopt], which compares the fencing token that it
	// is given with the nodes' clocks.
	ErrConfig = errors.New("redlock: invalid configuration")

	// ErrWrongType says that the key of a resource holds data that is no lock.
	// Waiting does not help: change the resource, or the key prefix.
	ErrWrongType = node.ErrWrongType

	// ErrPermission says that a node refused the credentials, or that its
	// access control list lacks a command or key. The README has the line.
	ErrPermission = node.ErrPermission
)

// Outcomes of one node. They are found in NodeError.Err by reading it, not by
// errors.Is, so that one busy node does not make an error match ErrTaken.
var (
	errNodeTimeout = node.ErrTimeout
	errGone        = node.ErrGone
	errHeldByOther = node.ErrHeldByOther
	errTakenAway   = node.ErrTakenAway
	errTwice       = &node.Marked{Sentinel: ErrSameServer, Err: errors.New("its server has voted under another address")}
	errUndecided   = errors.New("no answer by the time it was decided")
	errNotAsked    = errors.New("not asked: it was taken at the node that keeps the queue")
)

// QuorumError says how a round over the nodes ended. It matches, by errors.Is,
// the sentinels that apply, the error of the context if that ended the call, and
// whatever its node errors match.
type QuorumError struct {
	Op       string       // "lock", "extend", "unlock", "adopt", "break" or "inspect"; "bootstrap" or "check"
	Resource string       // as given by the caller; "" for the last two
	Granted  int          // nodes that said yes
	Need     int          // nodes that had to: N/2+1
	Nodes    []*NodeError // one for each node that did not say yes

	of      int     // nodes in all
	reasons []error // sentinels, and the context's error
}

// newQuorumError is the error of a round over nodes, of which need make a quorum.
func newQuorumError(op, resource string, need, of int, reasons ...error) *QuorumError {
	return &QuorumError{Op: op, Resource: resource, Need: need, of: of, reasons: reasons}
}

// quorumError is that of a round over all nodes.
func (p *pool) quorumError(op, resource string, granted int, reasons ...error) *QuorumError {
	e := newQuorumError(op, resource, p.need, len(p.nodes), reasons...)
	e.Granted = granted
	return e
}

// nodeError is what one node said to op, or that it did not within the timeout. A node that was
// not heard, but has said before that it is in quarantine, is said to be so.
func (p *pool) nodeError(i int, op string, err error, timeout time.Duration) *NodeError {
	n := p.nodes[i]
	if err == nil {
		err = errUndecided
	}
	if left := n.Standing().SaidIn(p.now()); err == errUndecided && left > 0 {
		err = node.Quarantine(left)
	}
	if err == errNodeTimeout {
		err = timeoutError(timeout)
	}
	left, _ := err.(node.Quarantine)
	return &NodeError{Node: n.Addr(), Op: op, Err: err, Quarantine: time.Duration(left)}
}

func timeoutError(d time.Duration) error {
	return fmt.Errorf("%w of %v (see WithNodeTimeout)", errNodeTimeout, d)
}

func inQuarantine(err error) bool {
	_, is := err.(node.Quarantine)
	return is
}

// Error puts the reason first and each node's answer after it, on one line.
func (e *QuorumError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "redlock: %s", e.Op)
	if e.Resource != "" {
		fmt.Fprintf(&b, " %q", e.Resource)
	}
	for i, r := range e.reasons {
		b.WriteString([]string{": ", ", "}[min(i, 1)])
		b.WriteString(strings.TrimPrefix(r.Error(), "redlock: "))
	}
	fmt.Fprintf(&b, ": %d of %d nodes needed said yes", e.Granted, e.Need)
	for _, n := range e.Nodes {
		fmt.Fprintf(&b, "; %s: %s", n.Node, strings.TrimPrefix(n.Err.Error(), "redlock: "))
	}
	return strings.ReplaceAll(b.String(), "\n", " ") // a context's cause may have several lines
}

// Unwrap gives the reasons and then the node errors.
func (e *QuorumError) Unwrap() []error {
	all := make([]error, 0, len(e.reasons)+len(e.Nodes))
	all = append(all, e.reasons...)
	for _, n := range e.Nodes {
		all = append(all, n)
	}
	return all
}

// Permanent reports whether waiting cannot help: so many masters refuse the type of the key,
// the user or the list of masters, or are one server, that the others make no quorum.
// [Locker.Lock] gives up then.
func (e *QuorumError) Permanent() bool {
	hopeless := 0
	for _, n := range e.Nodes {
		if errors.Is(n, ErrWrongType) || errors.Is(n, ErrPermission) || errors.Is(n, ErrSameServer) || errors.Is(n, ErrMembership) {
			hopeless++
		}
	}
	return decide(e.of, e.Need, 0, hopeless) == impossible
}

// because is the same error with one more reason, for a call that waited
// through several rounds and was ended by something else.
func (e *QuorumError) because(reason error) *QuorumError {
	more := *e
	more.reasons = append(append([]error(nil), e.reasons...), reason)
	return &more
}

// NodeError is what one node answered, or that it did not.
type NodeError struct {
	Node string // address, without credentials
	Op   string // "acquire", "raise", "extend" or "release"; "look", "vouch" or "break"; "check"
	Err  error

	Quarantine time.Duration // how long the node has no vote yet, where that is the reason
}

// Error names the node and what it said.
func (e *NodeError) Error() string {
	return fmt.Sprintf("redlock: %s on %s: %v", e.Op, e.Node, e.Err)
}

// Unwrap gives the node's own error.
func (e *NodeError) Unwrap() error { return e.Err }

func configErrorf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrConfig, fmt.Sprintf(format, args...))
}

// notHeld is the error of a call on a handle whose lease was ended by cause.
func notHeld(op, resource string, cause error) error {
	return fmt.Errorf("redlock: %s %q: %w: %w", op, resource, ErrNotHeld, cause)
}

// lostBecause is the cause that a lost lease's context ends with.
func lostBecause(reason error) error { return fmt.Errorf("%w: %w", ErrLost, reason) }

var (
	errLostExpired = lostBecause(ErrExpired)
	errLostStill   = fmt.Errorf("%w: %w", errLostExpired, ErrSuspended)
	errLostQuorum  = lostBecause(ErrQuorumLost)
	errLostBroken  = fmt.Errorf("%w: %w", errLostQuorum, ErrBroken)
	errLostMaxHold = lostBecause(ErrMaxHold)
	errClosedHeld  = fmt.Errorf("%w: %w", ErrReleased, ErrClosed)
)
