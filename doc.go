// Package redlock grants leases on named resources by a quorum of independent Redis masters,
// following the Redlock algorithm.
//
//	locker, err := redlock.New([]string{"10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379"})
//	...
//	err = locker.Do(ctx, "stock:7", func(ctx context.Context, lease *redlock.Lease) error {
//		return sell(ctx, lease.Fence())
//	})
//
// A lease keeps other holders out until its validity ends, and no longer. A process can be paused
// past that end without noticing. Where a wrong write is unacceptable, the store must also check the
// fencing token of the lease, at the write and at the read that the write is computed from: see
// [Lease.Fence].
//
// # One lock
//
//   - [New] and [NewFromOptions] make a [Locker], one per process. [Locker.Close] ends all its leases.
//   - [Locker.Do] calls a function under a lease, [Locker.Lock] waits for a lease, and [Locker.TryLock]
//     makes one attempt. [Shared] is for readers. A [LockOption], as [WithTTL], is for one call or for all.
//   - [Lease.Context] and [Lease.Within] end when the lease can no longer be trusted. [LeaseFrom] returns
//     the lease that protects a context.
//   - [Lease.Validity], [Lease.Err] and [Lease.Extend] are for critical steps. The library renews a lease
//     until [Lease.Unlock]. [Lease.Downgrade] makes a writer a reader.
//   - [Lease.Detach] and [Locker.Adopt] pass a lease to another process by its [Handle].
//   - [WithObserver], [WithLogger], [WithTracer] and [Locker.Stats] show what a Locker does.
//
// # Guarantees
//
// No two leases of a resource are valid at the same moment, unless both are readers'
// ([Shared]), as long as
//
//   - no clock, of a client or of a master, gains or loses more than half the factor of [WithDrift]
//     over one TTL;
//   - each master keeps its keys until they expire, or the library detects that it did not;
//   - all clients have the same masters, the same key prefix and the same value of [WithMaxTTL],
//     and no client has [WithoutRestartGuard]. Masters tell their clients what does not agree, see
//     [ErrMasterSetup]. Clients that reach no master in common are not told.
//
// A master that restarted, was flushed or was replaced has no vote during its quarantine: 10.3 s by
// default. A master whose clock was stepped, or that lacks a key which a renewal looks for, has no vote
// from the moment a client notices. The library does not see each loss: a master may evict or delete a key
// which no renewal looks for. A lease that all of five masters hold survives two such losses; a lease that
// only two of three masters hold survives none.
//
// The fencing tokens of exclusive leases on a resource are unique, and a lease whose acquisition
// began after another had succeeded has the larger one. While the counters on the masters survive,
// this needs no clocks. After a loss of counters, the clocks of the masters must not all have gone
// back by about half a quarantine.
//
// Callers of one process are served in the order of their calls, and processes in the order in which they
// reach the master that keeps the queue of the resource. A process that does not know of the queue may
// overtake it once, and a lost message may change the order. An attempt that was given up blocks a
// master for the TTL at most, and normally for one round trip. A free resource is granted when a quorum
// answers in time.
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
// error as one word. [*QuorumError], found with errors.As, has the answer of each master.
//
// # Packages on top
//
//   - several locks several resources at once, semaphore limits how many permits are held, election makes
//     one of several processes the leader, and jobs runs each run of a scheduled job on one machine.
//   - fence checks fencing tokens in SQL databases and in Redis.
//   - admin is for operators: Check, Bootstrap, Inspect, List and Break.
//   - redlocktest has masters inside a test process, which a test can kill, hang, empty and cut off.
//   - redlockprom, redlockotel and redlockdebug show what a Locker does.
//
// The specification, with its sources, is https://github.com/d0720281/redlock/blob/main/ALGORITHM.md. The
// comments call "Distributed Locks with Redis" distlock:
// https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/.
package redlock
