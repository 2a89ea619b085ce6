// Package redlock grants leases on named resources by a quorum of independent
// Redis masters, following the Redlock algorithm.
//
// A lease keeps other clients out until its validity ends, and no longer. This needs
// clocks that run at nearly the same rate, and masters that keep their keys. A process
// can be paused past the end of the validity without noticing it. Where a wrong write is
// unacceptable, the store must also check the fencing token of the lease, at the write
// and at the read that the write is computed from: see [Lease.Fence].
//
// # Guarantees
//
// No two leases of a resource are valid at the same moment, as long as
//
//   - no clock, of a client or of a master, gains or loses more than half the factor of
//     [WithDrift] over one TTL;
//   - each master keeps its keys until they expire, or the library detects that it did not;
//   - all clients have the same list of masters, the same key prefix and the same value of
//     [WithMaxTTL], and no client has [WithoutRestartGuard].
//
// The library detects by a marker that a master restarted, was flushed or was replaced (the
// restart guard). Such a master has no vote for a little longer than the largest TTL, 10.3 s
// by default. A master whose clock was stepped, or that lacks a key which a renewal looks
// for, has no vote for the same time, from the moment a client notices. Until that moment
// it may vote; so may a master that evicted or deleted a key which no renewal looks for. A
// lease that all of five masters hold survives two such losses; a lease that only two of
// three masters hold survives none.
//
// Leases of readers ([Locker.RLock]) may be valid together, but none of them beside an exclusive
// lease. Of a [Semaphore] at most as many permits are held as it has, and each slot by one holder.
//
// The fencing tokens of exclusive leases on a resource are unique, and a lease whose acquisition began after
// another had succeeded has the larger one. While the counters on the masters survive,
// this needs no clocks. A counter lives for ten times the largest TTL after the last grant
// or renewal. A counter that is gone starts again from the median of the masters' clocks;
// the guarantee then needs that these clocks do not go back together by about half a
// quarantine. A master whose clock is more than half a quarantine from the median of all
// masters' clocks, 5.15 s by default, grants nothing.
//
// A free resource is granted when a quorum answers in time. An attempt that was given up
// blocks a master for the TTL at most, and normally for one round trip.
//
// Callers that wait inside a process are served in the order in which they came. Processes
// are served in the order in which they came to the one master that keeps the queue of the
// resource. A process that does not know of the queue may overtake it once. Processes may
// also overtake each other when a message was lost.
//
// The library does not guarantee that a holder stops by itself.
//
// # Operation
//
// Masters that were never used look like masters that have lost their data: the first
// [Locker.Lock] waits for them, and [Locker.TryLock] fails with [ErrQuarantine].
// [Locker.Bootstrap] saves that wait for a new deployment. Call it in the tool that sets the
// deployment up, never in a service. While one of three masters is in quarantine, no other
// one must restart, or leases end. [Locker.Check] says what is wrong with each master. The
// log ([WithLogger]) and the [Observer] are told of it, too.
//
// [NewSharded] makes a Locker for several groups of masters, for more locks a second than one
// quorum grants.
//
// [Locker.RLock] makes a lease that readers share. [Locker.LockAll] makes one lease on several resources,
// without deadlocks. [Locker.Semaphore] limits how many permits are held. [WithOwner] labels leases with
// their owner, for people.
//
// [Lease.Detach] and [Locker.Adopt] pass a lease to another process. [Locker.Inspect] shows
// who holds a resource. [Locker.Break] takes the resource away from a holder that does not
// let go. Packages [github.com/d0720281/redlock/election] and
// [github.com/d0720281/redlock/jobs] have leader election and scheduled jobs.
//
// # Choosing a TTL
//
// The TTL bounds how long a holder that died blocks the resource. It does not bound the
// work, because a lease is renewed every third of its TTL until it is unlocked. A master that
// restarted waits for the largest TTL of any client, so keep [WithMaxTTL] small. With a
// short TTL the master timeout is short, too: a tenth of the TTL, and 250 ms at most.
//
// With the default of 10 s, a lease loses 102 ms to drift (1 % and 2 ms) and is valid for
// at least 5 s when the call returns. A lease that was granted after 1 ms is valid for
// 9.897 s. Its first renewal begins after 3.3 s at most, so that more than 6 s are left to
// try again. If all renewals fail, its context ends 200 ms before its validity, after
// 9.697 s.
//
// # Options
//
// A [LockOption] changes one call; given to [New] it holds for all calls. Any other
// [Option] is given to New alone.
//
//   - Lifetime, for one call or for all: [WithTTL], [WithoutRenewal], [WithMaxHold],
//     [WithMinHold], [WithGrace], [WithQuarantineWait]. Nested calls: [WithReentry]. For people: [WithOwner].
//   - Time: [WithMasterTimeout], [WithMaxTTL], [WithDrift], [WithClock].
//   - Masters: [WithKeyPrefix], [WithTrustedDisk], [WithoutRestartGuard].
//   - Metrics, logs and traces: [WithObserver], [WithLogger], [WithTracer].
//
// A value that is out of bounds is refused with [ErrConfig]; the library never replaces it
// by another. Drift and WithGrace together must leave more than half of the TTL.
// WithTrustedDisk and WithoutRestartGuard exclude each other, as do WithMaxHold and
// WithoutRenewal. WithClock refuses nil.
//
// # Errors
//
// Test errors with errors.Is. A call that got no lease returns [ErrNotAcquired]; give up, or
// queue the work. With it comes the reason:
//
//   - [ErrTaken]: another holder has the resource. Wait; it is no reason for an alarm.
//   - [ErrNoQuorum]: too few masters gave a usable answer in time. Raise an alarm.
//   - [ErrQuarantine], with ErrNoQuorum: masters have no vote yet. Wait, as Lock does;
//     [MasterError] says for how long.
//   - [ErrSameServer], [ErrNotMaster], [ErrClusterNode], [ErrMembership]: two addresses are one server, a
//     master is a replica or in a cluster, or other clients have a list of masters that
//     conflicts with this one. Correct the list.
//   - [ErrWrongType]: the key holds data of another program. Change the resource or the
//     key prefix.
//   - [ErrPermission]: a master refused the user, a command or a key. Correct the user's
//     rights; docs/operations.md has the ACL line.
//
// Four errors come without ErrNotAcquired:
//
//   - [ErrConfig]: an argument or option cannot work. Correct the program.
//   - [ErrReentry]: the context of the call holds the resource already, so that waiting would
//     never end. Pass the lease on, or give WithReentry.
//   - [ErrUpgrade]: the context of the call holds the resource as a reader. Unlock that lease
//     before.
//   - [ErrClosed]: the Locker was closed before the call.
//
// A lease that ends without having been released is lost: its context ends with [ErrLost]
// as its cause, and the protected work must stop. With it comes the reason:
//
//   - [ErrExpired]: the validity ran out. Look for long pauses of the process, and for masters
//     that do not answer.
//   - [ErrSuspended], with ErrExpired: the validity ran out while this machine stood still.
//     Only the fencing token helps.
//   - [ErrQuorumLost]: the key is gone from too many masters. Look for restarts, flushes and
//     evictions.
//   - [ErrBroken], with ErrQuorumLost: [Locker.Break] took the lease away. Ask its caller.
//   - [ErrMaxHold]: the bound of WithMaxHold was reached. Do less under one lease, or raise
//     the bound.
//
// Unlock, Extend and Detach return [ErrNotHeld] for a lease that is over, with the reason;
// Adopt returns it for a lease that the masters do not have. Whatever Unlock returns, the
// lease is over. The context of a lease ends with [ErrReleased] after Unlock or
// [Locker.Close], and with [ErrDetached] after Detach. Package election has ErrNotLeader.
//
// [*QuorumError], found with errors.As, has the answer of each master. [Reason] gives an
// error in one word, for the labels of metrics.
//
// # Concurrency
//
// A [Locker] and a [Lease] are safe for concurrent use. Make one Locker per process: it
// has one connection and one goroutine for each master, one goroutine that watches all
// leases, and one for the log and the callbacks of an Observer. Where it waits for
// other processes, or renews a lease, it has one more connection and one more goroutine for
// each master that keeps a queue. They start with the first call, wait or renewal, and end
// with Close.
//
// # Tests
//
// Package [github.com/d0720281/redlock/redlocktest] has masters inside a test process, for
// the tests of programs that use this package. A test can kill, hang, empty and cut off
// these masters, in virtual time.
//
// # More
//
// Package [github.com/d0720281/redlock/election] makes one of several processes the leader.
// Package [github.com/d0720281/redlock/jobs] runs each run of a scheduled job on one of several
// machines. Both use the exported API of this package alone.
//
// # Sources
//
//   - ALGORITHM.md of this repository, the specification, which has the sources of its rules:
//     https://github.com/d0720281/redlock/blob/main/ALGORITHM.md
//   - Distributed Locks with Redis (distlock in the comments of this package):
//     https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/
//   - M. Kleppmann, How to do distributed locking, 2016:
//     https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html
//   - S. Sanfilippo, Is Redlock safe?, 2016: http://antirez.com/news/101
//   - C. Gray and D. Cheriton, Leases: an efficient fault-tolerant mechanism for
//     distributed file cache consistency, SOSP 1989
//   - M. Burrows, The Chubby lock service for loosely-coupled distributed systems,
//     OSDI 2006: lock-delay and sequencers, here [WithGrace] and [Lease.Fence]
package redlock
