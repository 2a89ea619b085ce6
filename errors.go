package redlock

import (
	"errors"

	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/reason"
)

// Sentinels to branch on with errors.Is. [Reason] has a finer word for an error, and a
// [*QuorumError] or [*MasterError], found with errors.As, has the details.
var (
	// ErrNotAcquired is matched by the error of every Lock, TryLock or Do that ended without a
	// lease, except for wrong arguments, re-entry and a Locker that was closed before.
	ErrNotAcquired = errors.New("redlock: not acquired")

	// ErrTaken reports that other processes are in the way: another holder has the resource, a
	// waiting process has its turn, or several attempts split the votes. Without them, enough
	// masters could have voted. It comes with ErrNotAcquired and is no reason for an alarm.
	// [QuorumError.HeldByQuorum] reports whether the masters that refused prevent a quorum by
	// themselves. [QuorumError.Holder] returns the holder's label, and how long its keys live.
	ErrTaken = errors.New("redlock: taken by another holder")

	// ErrNoQuorum reports that too few masters gave a usable answer in time. Raise an alarm: the
	// masters, or the network to them, are in trouble.
	ErrNoQuorum = errors.New("redlock: no quorum")

	// ErrQuarantine reports that masters have no vote yet: they are new, restarted, or have lost
	// data. It comes with ErrNoQuorum if there is a quorum as soon as they vote. [MasterError] has
	// how long each of them has to wait. Bootstrap of package admin ends the wait for new masters.
	ErrQuarantine = errors.New("redlock: masters in quarantine")

	// ErrMasterSetup reports that a master cannot take part until a person corrects that. If too many
	// masters cannot, or one refuses the list of masters or the version, [Locker.Lock] gives up. [Reason] returns why:
	//
	//   - "same_server": two addresses lead to one server, by another name or database number,
	//     which would vote twice. To find that, the library needs INFO.
	//   - "other_server": an address leads this client to one server, and other clients to another one, which
	//     they use: a name with two addresses, or a server that was replaced before the former one had
	//     ended. The votes of both would count as that of one master. The client that comes second goes without the vote of its
	//     server until no client has heard the other one for a quarantine, 10.3 s by default. The
	//     error has the run ids of both servers. To find that, the library needs INFO.
	//   - "version": the clients of a master have another version of the protocol. This client takes no lease
	//     until two quarantines after the last of them asked for votes there. The error says which side
	//     to upgrade.
	//   - "membership": other clients use a conflicting list of masters. A quorum
	//     of that list and a quorum of this one can have no master in common, so two clients could
	//     hold a resource at once. If one master that this client reaches has such a list in use, it takes no lease until two
	//     quarantines, 20.6 s by default, after a client with the other list last asked there for votes. To change a
	//     list, add a master, give that list to all clients, and then remove a master. The library
	//     compares the addresses as they are written.
	//   - "cluster_node": the server is a node of a Redis Cluster.
	//   - "not_master": the server is a replica. Lock goes on waiting, as a replica may become a
	//     master.
	//   - "permission": the master refused the credentials, or its access control list lacks a
	//     command or key. docs/operations.md has the ACL line.
	//   - "unsupported": the server lacks a command or a database that the library needs, or refuses
	//     the request in words of its own that tell of no passing state. docs/operations.md has the
	//     commands.
	//   - "tls": the server's certificate is not trusted, or this client's is refused, or one end
	//     speaks no TLS.
	//   - "wrong_type": the key of the resource holds data that is no lock. Change the resource or
	//     the key prefix.
	ErrMasterSetup = reason.Masters

	// ErrLost reports that the lease is over, although it was not released. The protected work must
	// stop. [Reason] returns why:
	//
	//   - "expired": the validity ran out, because no renewal was successful in time or the lease
	//     had none. If the last renewal failed, errors.As finds its [*QuorumError].
	//   - "suspended": the validity ran out while this machine stood still, as the masters' clocks
	//     showed afterwards.
	//   - "quorum_lost": before the validity ran out, the masters reported that a quorum no longer
	//     has the key.
	//   - "membership", "version": a master that answered after the lease was granted refuses the list of masters, or the
	//     version of the library, see [ErrMasterSetup].
	//   - "broken" and "max_hold" have sentinels of their own.
	ErrLost = reason.Lost

	// ErrBroken reports that Break of package admin has taken the lease away. It comes with ErrLost
	// for a lease that ended so, and with ErrNotHeld from [Locker.Adopt].
	ErrBroken = reason.Broken

	// ErrMaxHold comes with ErrLost when the bound of [WithMaxHold] was reached.
	ErrMaxHold = reason.MaxHold

	// ErrNotHeld is matched by the error of Unlock, Extend and Detach if the lease is over, for
	// whatever reason, and by that of [Locker.Adopt] if the masters do not have the lease.
	ErrNotHeld = errors.New("redlock: not held")

	// ErrReleased is the cause of a lease that Unlock or Close ended.
	ErrReleased = errors.New("redlock: lease released")

	// ErrDetached is the cause of a lease that [Lease.Detach] ended here. It comes with ErrLost, and with the
	// ErrNotHeld of Unlock, if another process has adopted the lease without that.
	ErrDetached = errors.New("redlock: lease detached")

	// ErrReentry reports that the context of Lock or TryLock already holds the resource, and that
	// [WithReentry] was not given. Waiting would never end. If [Reason] returns "upgrade", the
	// context has the resource as a reader: two readers that both wanted to write would wait for
	// each other for ever. Unlock the reader's lease before Lock, and read again what the work
	// depends on. Work that goes on after the lease needs a context that does not descend from
	// that of the lease. The result of [context.WithoutCancel] still descends from it.
	ErrReentry = reason.Reentry

	// ErrClosed reports that the Locker is closed. It comes with ErrNotAcquired if a call was
	// waiting when the Locker was closed.
	ErrClosed = node.ErrClosed

	// ErrConfig is matched by every error about an argument or option. The call sent nothing to a
	// master, except for [Locker.Adopt], which compares its fencing token with the masters' clocks.
	ErrConfig = reason.Config
)

// errUndecided stands for the answer of a node that had not answered when the others decided. Like all answers of nodes it
// matches no sentinel, so that one node that has the key of another holder does not make an error match ErrTaken.
var errUndecided = errors.New("no answer by the time it was decided")

// notHeld returns the error of a call on a hold whose lease ended for cause.
func notHeld(op, resource string, cause error) error {
	return reason.Errorf("%s %q: %w: %w", op, resource, ErrNotHeld, cause)
}

// Causes with which the context of a lost lease ends, beside those of package term.
var (
	errLostQuorum  = reason.Errorf("%w: %w", ErrLost, reason.QuorumLost)
	errLostAdopted = reason.Errorf("%w: %w: %w", ErrLost, ErrDetached, node.ErrAdopted)
	errClosedHeld  = reason.Errorf("%w: %w", ErrReleased, ErrClosed)
)
