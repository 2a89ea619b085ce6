package redlock

import (
	"errors"

	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/reason"
)

// Sentinels to branch on with errors.Is. [Reason] has a finer word for an error, and a
// [*QuorumError] or [*MasterError], found with errors.As, has the details.
var (
	// ErrNotAcquired is matched by the error of every Lock, TryLock or Do that ended without a lease, except for
	// wrong arguments, re-entry and a Locker that was closed before.
	ErrNotAcquired = errors.New("redlock: not acquired")

	// ErrTaken reports that other processes are in the way: another holder has the resource, a waiting process has
	// its turn, or several attempts split the votes. It comes with ErrNotAcquired and is no reason for an alarm.
	// See [QuorumError.HeldByQuorum] and [QuorumError.Holder].
	ErrTaken = errors.New("redlock: taken by another holder")

	// ErrNoQuorum reports that too few masters gave a usable answer in time. Raise an alarm: the masters, or the
	// network to them, are in trouble.
	ErrNoQuorum = errors.New("redlock: no quorum")

	// ErrQuarantine reports that masters have no vote yet: they are new, restarted, or have lost data. It comes
	// with ErrNoQuorum if there is a quorum as soon as they vote: see [QuorumError.VotesIn]. Bootstrap of package
	// admin ends the wait for new masters.
	ErrQuarantine = errors.New("redlock: masters in quarantine")

	// ErrMasterSetup reports that a master cannot take part until a person corrects that. [QuorumError.Permanent]
	// reports whether [Locker.Lock] gives up for it. docs/failures.md says what ends each; [Reason] returns why:
	//
	//   - "same_server": two addresses lead to one server, which would vote twice. To find that, and the next one,
	//     the library needs INFO.
	//   - "other_server": an address leads other clients to another server, which they use. The client that comes
	//     second goes without the vote of its server.
	//   - "version": the clients of a master have another version of the protocol. The error says which side to
	//     upgrade.
	//   - "membership": other clients use a list of masters of which a quorum and a quorum of this list can have no
	//     master in common. To change a list, add a master, give that list to all clients, and then remove a
	//     master. Addresses are compared as they are written.
	//   - "cluster_node": the server is a node of a Redis Cluster.
	//   - "not_master": the server is a replica, which may become a master.
	//   - "permission": the master refused the credentials, or its access control list lacks a command or key.
	//   - "unsupported": the server lacks a command or a database that the library needs, or rejects the request
	//     with an error that the library does not know to be temporary.
	//   - "tls": the server's certificate is not trusted, or this client's is refused, or one end speaks no TLS.
	//   - "wrong_type": the key of the resource holds data that is no lock.
	ErrMasterSetup = reason.Masters

	// ErrLost reports that the lease is over, although it was not released. The protected work must stop. [Reason]
	// returns why:
	//
	//   - "expired": the validity ran out, because no renewal was successful in time or the lease had none. If the
	//     last renewal failed, errors.As finds its [*QuorumError].
	//   - "suspended": the validity ran out while this machine stood still.
	//   - "quorum_lost": before the validity ran out, the masters reported that a quorum no longer has the key.
	//   - "membership", "version": a master has refused the list of masters or the version since, see
	//     [ErrMasterSetup].
	//   - "broken" and "max_hold" have sentinels of their own.
	ErrLost = reason.Lost

	// ErrBroken reports that Break of package admin has taken the lease away. It comes with ErrLost, and with
	// ErrNotHeld from [Locker.Adopt].
	ErrBroken = reason.Broken

	// ErrMaxHold comes with ErrLost when the bound of [WithMaxHold] was reached.
	ErrMaxHold = reason.MaxHold

	// ErrNotHeld is matched by the error of Unlock, Extend and Detach if the lease is over, and by that of
	// [Locker.Adopt] if the masters do not have the lease.
	ErrNotHeld = errors.New("redlock: not held")

	// ErrReleased is the cause of a lease that Unlock or Close ended.
	ErrReleased = errors.New("redlock: lease released")

	// ErrDetached is the cause of a lease that [Lease.Detach] ended here. It comes with ErrLost, and with the
	// ErrNotHeld of Unlock, if another process has adopted a lease that was not detached.
	ErrDetached = errors.New("redlock: lease detached")

	// ErrReentry reports that the context of Lock or TryLock already holds the resource, and that [WithReentry] was
	// not given. Waiting would never end. [Reason] returns "upgrade" if the context has the resource as a reader:
	// unlock that lease before Lock, and read again what the work depends on. Work that goes on after the lease
	// needs a context that does not descend from that of the lease. The result of [context.WithoutCancel] still
	// descends from it.
	ErrReentry = reason.Reentry

	// ErrClosed reports that the Locker is closed. It comes with ErrNotAcquired if a call was waiting.
	ErrClosed = node.ErrClosed

	// ErrConfig is matched by every error about an argument or option. The call sent nothing to a master, except
	// for [Locker.Adopt], which compares its fencing token with the masters' clocks.
	ErrConfig = reason.Config
)

// errUndecided stands for the answer of a node that had not answered when the others decided. Like all answers of nodes it
// matches no sentinel, so that one node that has the key of another holder does not make an error match ErrTaken.
var errUndecided = errors.New("no answer by the time it was decided")

// errOwnLease says of a call that waited in vain that a lease of its own process was in the way. It matches no sentinel.
var errOwnLease = errors.New("by a lease of this process")

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
