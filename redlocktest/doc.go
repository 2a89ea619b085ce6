// Package redlocktest has Redis masters for the tests of programs that use package redlock:
// inside the test process, and to be killed, emptied, hung, cut off, and healed again.
// Their clocks can be moved. They need no Redis, no port and no container.
//
//	func TestMailerStopsWhenTheLockIsLost(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			masters := redlocktest.Start(t, 3)
//			m := &mailer{locker: masters.Locker()}
//			go m.run(t.Context())
//
//			time.Sleep(time.Minute)
//			if !m.sending.Load() {
//				t.Fatal("the mailer does not send, although nothing is wrong with the masters")
//			}
//			for _, master := range masters.Masters()[:2] { // a majority
//				master.Hang()
//			}
//			time.Sleep(redlock.DefaultTTL) // after that another mailer may send
//			if m.sending.Load() {
//				t.Error("the mailer goes on, although its lease is over")
//			}
//		})
//	}
//
// In a testing/synctest bubble, as here, time stands still while anything runs and jumps to
// the next timer when nothing does. So a minute costs nothing, and a test can tell a moment
// exactly. Call [Start] inside the bubble. A program that makes its own Locker takes
// [Cluster.Options]. Outside of a bubble the same works in real time.
//
// # What is fake about it
//
// A master is no Redis, but github.com/alicebob/miniredis/v2 behind pipes. It carries out
// what the library asks of a master: commands, scripts, expiry by its clock. It has no
// persistence (what survives a restart is what was there, and WithTrustedDisk has no effect), no eviction, no memory limit,
// no users, no TLS, no replicas and no cluster. It reports the version of Redis 7.0.15.
// Nothing in a bubble takes time but what [Master.Latency] and the faults add, so how long
// something takes in a bubble says nothing about speed. All clients see the same faults: one
// client that is cut off while another is not cannot be shown. These masters test what a
// program does with its locks; that the locks themselves hold is shown by the tests of the
// library, on real servers.
//
// A mock of a Locker that returns a zero [redlock.Lease] is of no use: methods of a zero Lease panic. Return leases of
// a Locker on these masters.
package redlocktest
