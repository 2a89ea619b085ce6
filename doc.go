// Package redlock grants leases on named resources by a quorum of independent
// Redis masters, following the Redlock algorithm.
//
// A lease keeps others out until its validity ends and no longer, and only while
// clocks run at nearly the same rate and masters keep their keys. A process can be
// paused past that end without noticing it. What must never be written twice needs
// the fencing token, checked by the store at the write, and at the read that the write is
// computed from: see [Lease.Fence].
//
// # Guarantees
//
// No two leases of a resource are valid at one moment, as long as
//
//   - over one TTL no clock, of a client or of a master, runs off by more than half the
//     factor of [WithDrift];
//   - masters keep keys until they expire, or are known not to. One that restarted, was
//     flushed or was replaced shows that by a marker (the restart guard), and has no vote
//     for a little longer than the largest TTL: 10.3 s by default. The same goes for one
//     whose clock was stepped, or that lacks a key which a renewal looks for, from the
//     moment a client notices. Until then, and after an eviction or a DEL that no renewal
//     sees, it may vote: a lease that all of five masters hold stands two such losses,
//     one that a bare majority of three holds stands none;
//   - all clients have the same list of masters, the same key prefix and the same value of
//     [WithMaxTTL], and none has [WithoutRestartGuard].
//
// Fencing tokens of a resource are unique, and larger for every lease whose
// acquisition began after an earlier one had succeeded. That needs no clock while the
// counters on the masters survive. A counter lives for ten times the largest TTL after
// the last grant or renewal; where it is gone it starts anew from the median of the
// masters' clocks, and the promise then needs that these do not go back together by
// about half a quarantine. A master whose clock is more than half a quarantine, 5.15 s by
// default, from the median of all grants nothing.
//
// A free resource is granted when a quorum answers in time. An attempt that was given
// up blocks a master for at most the TTL, normally for one round trip.
//
// Who waits is served in the order they came: within a process always, among processes
// as they came to the one master that keeps the queue of the resource. A process that does
// not know of the queue may overtake it once, and so may others for which a message was lost.
//
// It is not promised that a holder stops by itself.
//
// # Operation
//
// Masters that nobody has used yet look like some that lost their data: the first Lock
// waits for them, [Locker.TryLock] fails with [ErrQuarantine]. [Locker.Bootstrap] vouches
// for a new deployment; it belongs in the tool that sets one up, never in a service. While
// one of three masters is in quarantine a second must not restart, or leases end.
// [Locker.Check] tells what each master says of itself and what should be mended. A
// warning about a master goes to the log ([WithLogger]) and to the [Observer].
//
// A lease goes to another process by [Lease.Detach] and [Locker.Adopt]. [Locker.Inspect] shows
// who holds a resource, and [Locker.Break] takes it away from one who does not let go.
//
// # Choosing a TTL
//
// The TTL bounds how long a holder that died blocks the resource; it does not bound
// the work, since a lease is renewed every third of its TTL until Unlock. The default
// of 10 s loses 102 ms to drift (1 % and 2 ms), is handed out with 5 s left or more,
// and ends the holder's context 200 ms before its validity. Short TTLs pay with node
// timeouts: a node has a tenth of the TTL to answer, and 250 ms at most. A master that
// restarted waits for the largest TTL in use, so keep [WithMaxTTL] small.
//
// # Errors
//
// Branch with errors.Is: [ErrTaken] is somebody else's lease, [ErrNoQuorum] is masters
// in trouble (that only have to wait, with [ErrQuarantine]), and both come with
// [ErrNotAcquired]; [ErrLost] means that the work has to stop. Read what each master said
// from [*QuorumError] by errors.As. Whatever an Unlock returns, the lease is over.
//
// # Concurrency
//
// A [Locker] and a [Lease] are safe for concurrent use. Make one Locker per process: it
// has one connection, and one goroutine, for each master, one goroutine that watches
// all leases, and one for the log and the callbacks of an [Observer]; where it has to wait
// for other processes, or renews a lease, one more of both for each master that keeps a queue. They
// start with the first call, wait or renewal, and end with [Locker.Close].
//
// # Tests
//
// Package [github.com/d0720281/redlock/redlocktest] has masters inside a test process, for
// the tests of programs that use this package: they can be killed, hung, emptied and cut
// off, in virtual time.
//
// # Sources
//
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
