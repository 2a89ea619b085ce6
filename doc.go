// Package redlock grants leases on named resources by a quorum of independent Redis masters,
// following the Redlock algorithm.
//
//	locker, err := redlock.New([]string{"10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379"})
//	...
//	err = locker.Do(ctx, "stock:7", func(ctx context.Context, lease *redlock.Lease) error {
//		return sell(ctx, lease.Fence())
//	})
//
// [Locker.Lock] waits for a lease, [Locker.TryLock] makes one attempt, and [Locker.Do] calls a
// function under a lease. The library renews a lease until the holder unlocks it. The context of a
// lease ends when the lease can no longer be trusted.
//
// A lease keeps other holders out until its validity ends, and no longer. A process can be paused
// past that end without noticing. Where a wrong write is unacceptable, the store must also check
// the fencing token of the lease, at the write and at the read that the write is computed from: see
// [Lease.Fence].
//
// # Guarantees
//
// No two leases of a resource are valid at the same moment, unless both are readers' ([Shared]), as
// long as
//
//   - no clock, of a client or of a master, gains or loses more than half the factor of [WithDrift]
//     over one TTL;
//   - each master keeps its keys until they expire, or the library detects that it did not;
//   - all clients have the same masters, the same key prefix and the same value of [WithMaxTTL], and
//     no client has [WithoutRestartGuard]. A master tells its clients of a conflicting list, of
//     another server at an address, of a larger TTL and of another version of the protocol, see
//     [ErrMasterSetup]. Clients that reach no master in common are not told.
//
// The library detects that a master restarted, was flushed or was replaced. Such a master has no
// vote during its quarantine, which is a little longer than the largest TTL: 10.3 s by default. A
// master whose clock was stepped, or that lacks a key which a renewal looks for, has no vote from
// the moment a client notices. Some losses cannot be seen: a master may evict or delete a key which
// no renewal looks for. A lease that all of five masters hold survives two such losses; a lease
// that only two of three masters hold survives none.
//
// The fencing tokens of exclusive leases on a resource are unique, and a lease whose acquisition
// began after another had succeeded has the larger one. While the counters on the masters survive,
// this needs no clocks. After a loss of counters, the clocks of the masters must not all have gone
// back by about half a quarantine.
//
// A free resource is granted when a quorum answers in time. An attempt that was given up blocks a
// master for the TTL at most, and normally for one round trip.
//
// Callers of one process are served in the order of their calls. Processes are served in the order
// in which they reach the master that keeps the queue of the resource. A process that does not know
// of the queue may overtake it once, and a lost message may change the order.
//
// The library does not guarantee that a holder stops by itself.
//
// # First start
//
// Masters that were never used look like masters that have lost their data: the first Lock waits
// for them, and TryLock fails with [ErrQuarantine]. Bootstrap of package admin ends that wait for a
// new deployment. Check of that package reports what is wrong with each master.
//
// # Errors
//
// Test errors with errors.Is. A call that got no lease returns [ErrNotAcquired], with [ErrTaken]
// (wait) or [ErrNoQuorum] (raise an alarm). A lease that ends without having been released is lost:
// the cause of its context is [ErrLost], and the protected work must stop. [Reason] returns an
// error as one word, for logs and metrics. [*QuorumError], found with errors.As, has the answer of
// each master.
//
// # Packages on top
//
//   - several locks several resources at once, semaphore limits how many permits are held.
//   - election makes one of several processes the leader. jobs runs each run of a scheduled job on
//     one of several machines.
//   - admin is for operators: Check, Bootstrap, Inspect, List and Break.
//   - redlocktest has masters inside a test process, which a test can kill, hang, empty and cut
//     off.
//   - redlockprom, redlockotel and redlockdebug show what a Locker does.
//
// # Sources
//
// The specification is https://github.com/d0720281/redlock/blob/main/ALGORITHM.md. It follows
// "Distributed Locks with Redis" (distlock in the comments of this package):
// https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/. Also read M. Kleppmann,
// "How to do distributed locking", 2016, and S. Sanfilippo, "Is Redlock safe?", 2016; C. Gray and
// D. Cheriton, "Leases", SOSP 1989; M. Burrows, "The Chubby lock service", OSDI 2006, for
// lock-delay ([WithGrace]) and sequencers ([Lease.Fence]).
package redlock
