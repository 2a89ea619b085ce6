package redlock_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/locktest"
)

// Do takes the lease, and gives it back when the function returns or panics.
func ExampleLocker_Do() {
	addrs, stop := exampleMasters()
	defer stop()
	locker, err := redlock.New(addrs, patient)
	if err != nil {
		log.Panic(err)
	}
	defer locker.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err = locker.Do(ctx, "report:2026-11", func(ctx context.Context, lease *redlock.Lease) error {
		// ctx ends with the caller's context or with the lease, whichever is first.
		fmt.Println("writing", lease.Resource())
		return ctx.Err()
	}, redlock.WithTTL(5*time.Second))
	switch {
	case errors.Is(err, redlock.ErrNotAcquired):
		fmt.Println("not written:", err)
	case errors.Is(err, redlock.ErrLost):
		fmt.Println("written, but perhaps not by us alone:", err)
	case err != nil:
		fmt.Println(err)
	}
	// Output: writing report:2026-11
}

// Code that is handed ctx alone finds the lease that protects it.
func ExampleLeaseFrom() {
	locker, stop := exampleLocker()
	defer stop()
	write := func(ctx context.Context) error { // some calls below Do
		lease, ok := redlock.LeaseFrom(ctx)
		if !ok {
			return errors.New("write is for the holder of a lease")
		}
		fmt.Println("writes", lease.Resource(), "with a token:", lease.Fence() > 0)
		return lease.Err()
	}
	ctx := context.Background()
	fmt.Println(write(ctx))
	fmt.Println(locker.Do(ctx, "stock:7", func(ctx context.Context, _ *redlock.Lease) error { return write(ctx) }))
	// Output:
	// write is for the holder of a lease
	// writes stock:7 with a token: true
	// <nil>
}

// One attempt, and how to handle its failure.
func ExampleLocker_TryLock() {
	locker, stop := exampleLocker()
	defer stop()

	ctx := context.Background()
	for range 2 {
		_, err := locker.TryLock(ctx, "cron:nightly") // released by Close
		var verdict *redlock.QuorumError
		switch {
		case err == nil:
			fmt.Println("ours")
		case errors.Is(err, redlock.ErrTaken):
			fmt.Println("another process does it already")
		case errors.Is(err, redlock.ErrNoQuorum):
			fmt.Println("alarm: masters in trouble")
			if errors.As(err, &verdict) {
				for _, n := range verdict.Masters {
					fmt.Println(n.Master, n.Err)
				}
			}
		default: // ctx has ended, the Locker is closed, or an argument is wrong
			fmt.Println(err)
		}
	}
	// Output:
	// ours
	// another process does it already
}

// A store that checks fencing tokens is safe from a holder that was paused past the end of its
// lease. The write is computed from a read, so the read presents the token, too: from then on the
// store refuses the first holder, before anything new is written.
func ExampleLease_Fence() {
	locker, stop := exampleLocker()
	defer stop()

	ctx := context.Background()
	store := fencedStore{stock: 10}

	slow, err := locker.Lock(ctx, "stock", redlock.WithTTL(2*time.Second), redlock.WithoutRenewal())
	if err != nil {
		log.Panic(err)
	}
	before, err := store.read(slow.Fence())
	if err != nil {
		log.Panic(err)
	}
	// Here the first holder is paused; its lease ends, and another gets the resource.
	next, err := locker.Lock(ctx, "stock")
	if err != nil {
		log.Panic(err)
	}
	stock, err := store.read(next.Fence())
	if err != nil {
		log.Panic(err)
	}
	fmt.Println("first holder:", store.write(before-1, slow.Fence()))
	fmt.Println("second holder:", store.write(stock-1, next.Fence()))
	fmt.Println("stock:", store.stock)
	// Output:
	// first holder: a later holder has read or written
	// second holder: <nil>
	// stock: 9
}

// fencedStore remembers the largest token that it has seen. A table of a database does the same
// with one more column:
//
//	UPDATE stock SET fence = $1 WHERE item = $2 AND fence <= $1 RETURNING amount
//	UPDATE stock SET fence = $1, amount = $3 WHERE item = $2 AND fence <= $1
type fencedStore struct {
	mu      sync.Mutex
	stock   int
	largest int64
}

func (s *fencedStore) read(fence int64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stock, s.checkLocked(fence)
}

func (s *fencedStore) write(stock int, fence int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.checkLocked(fence)
	if err == nil {
		s.stock = stock
	}
	return err
}

func (s *fencedStore) checkLocked(fence int64) error {
	if fence < s.largest { // equal: the same holder again
		return errors.New("a later holder has read or written")
	}
	s.largest = fence
	return nil
}

// Each kind of event has fields of its own; those behind "or" are those of some events.
func ExampleEventKind_Fields() {
	for _, kind := range []redlock.EventKind{
		redlock.EventAcquired, redlock.EventTaken, redlock.EventAttemptFailed, redlock.EventNotAcquired, redlock.EventExtended,
		redlock.EventExtendFailed, redlock.EventDowngraded, redlock.EventLost, redlock.EventAbandoned, redlock.EventReleased,
		redlock.EventExchange, redlock.EventMasterDown, redlock.EventMasterUp, redlock.EventKeyLost, redlock.EventQuarantined,
		redlock.EventMasterClockStepped, redlock.EventLocalClockStopped, redlock.EventWarning, redlock.EventDropped,
	} {
		each, some := kind.Fields()
		fmt.Println(kind, each, "or", some)
	}
	// Output:
	// acquired [Resource Mode Fence Elapsed Validity] or [HandedOver]
	// taken [Resource Mode Elapsed Err] or []
	// attempt_failed [Resource Mode Elapsed Err] or []
	// not_acquired [Resource Mode Elapsed Err] or []
	// extended [Resource Mode Fence Validity] or []
	// extend_failed [Resource Mode Fence Validity Err] or []
	// downgraded [Resource Mode Fence Elapsed Validity] or []
	// lost [Resource Mode Fence Elapsed Validity Err] or []
	// abandoned [Resource Mode Fence Elapsed] or []
	// released [Resource Mode Fence Elapsed] or [Err]
	// exchange [Master Elapsed] or [Err]
	// master_down [Master Err] or []
	// master_up [Master] or []
	// key_lost [Resource Mode Fence Master] or []
	// quarantined [Master Elapsed] or []
	// master_clock_stepped [Master Elapsed] or []
	// local_clock_stopped [Elapsed] or []
	// warning [Master Err] or []
	// dropped [Count] or []
}

// The options of New: the first ones are the same for all clients of the masters.
func ExampleOption() {
	fmt.Println(redlock.DefaultMaxTTL, redlock.DefaultDrift, redlock.MinDrift, redlock.MaxDrift, redlock.DefaultKeyPrefix)
	all := []redlock.Option{redlock.WithMaxTTL(time.Minute), redlock.WithKeyPrefix("shop:")}
	durable := append(all, redlock.WithTrustedDisk())     // masters that write each change to their disk first
	inTests := append(all, redlock.WithoutRestartGuard()) // unsafe: masters that lose their data vote at once
	tracer := redlock.Tracer(func(ctx context.Context, op, resource string) func(*redlock.Lease, error) {
		return func(_ *redlock.Lease, err error) { fmt.Println(op, resource, redlock.Reason(err)) }
	})
	for _, opts := range [][]redlock.Option{durable, inTests} {
		own := []redlock.Option{redlock.WithDrift(0.02), redlock.WithMasterTimeout(time.Second), redlock.WithTracer(tracer)}
		locker, err := redlock.New([]string{"127.0.0.1:1"}, append(opts, own...)...) // no server runs there
		if err != nil {
			log.Panic(err)
		}
		_, _ = locker.TryLock(context.Background(), "r")
		if err := locker.Close(); err != nil {
			log.Panic(err)
		}
	}
	// Output:
	// 10s 0.01 0.001 0.25 redlock:
	// TryLock r no_quorum
	// TryLock r no_quorum
}

// The options of a lock are those of one call, or of all if New gets them.
func ExampleLockOption() {
	fmt.Println(redlock.MinTTL, redlock.MaxResourceLength, redlock.MaxOwnerLength)
	locker, stop := exampleLocker(redlock.WithGrace(100 * time.Millisecond)) // of all leases
	defer stop()
	nightly := []redlock.LockOption{
		redlock.WithTTL(5 * time.Second),
		redlock.WithMinHold(time.Second),             // machines whose clocks differ by less do not both run it
		redlock.WithQuarantineWait(30 * time.Second), // also after all masters restarted
		redlock.WithOwner("nightly"),
	}
	lease, err := locker.TryLock(context.Background(), "report", nightly...)
	if err != nil {
		log.Panic(err)
	}
	ctx, cancel := lease.Within(context.Background())
	defer cancel()
	fmt.Println(lease.Owner(), lease.Mode() == redlock.ModeExclusive, ctx.Err())
	// Output:
	// 50ms 512 64
	// nightly true <nil>
}

// A lease that one process took is released by another.
func ExampleLocker_Adopt() {
	addrs, stop := exampleMasters()
	defer stop()
	ctx := context.Background()

	// The first process gets the lease, passes on its data, and ends.
	first, err := redlock.New(addrs, patient)
	if err != nil {
		log.Panic(err)
	}
	lease, err := first.Lock(ctx, "upgrade", redlock.WithTTL(10*time.Second))
	if err != nil {
		log.Panic(err)
	}
	left := lease.Validity() // the second process has this time to take the lease over
	handle, err := lease.Detach()
	if err != nil {
		log.Panic(err) // the lease was lost before
	}
	first.Close() // releases all leases except detached ones
	fmt.Println(left > 5*time.Second, context.Cause(lease.Context()))
	text := handle.String() // in a file, a variable of the environment, an argument

	if err := handle.UnmarshalText([]byte(text)); err != nil {
		log.Panic(err)
	}
	second, err := redlock.New(addrs, patient)
	if err != nil {
		log.Panic(err)
	}
	defer second.Close()
	_, err = second.TryLock(ctx, "upgrade")
	fmt.Println("still taken:", errors.Is(err, redlock.ErrTaken))
	lease, err = second.Adopt(ctx, handle)
	switch {
	case errors.Is(err, redlock.ErrNotHeld):
		log.Panic("too late: ", err)
	case err != nil:
		log.Panic(err) // too few masters answered: the program may try again
	}
	fmt.Println("a larger fencing token:", lease.Fence() > handle.Fence())
	fmt.Println("released:", lease.Unlock(ctx))
	// Output:
	// true redlock: lease detached
	// still taken: true
	// a larger fencing token: true
	// released: <nil>
}

// A lease that lasts over several processes, none of which keeps it alive: each extends it by its Handle.
func ExampleLocker_Extend() {
	locker, stop := exampleLocker()
	defer stop()
	ctx := context.Background()

	lease, err := locker.Lock(ctx, "upgrade", redlock.WithTTL(5*time.Second))
	if err != nil {
		log.Panic(err)
	}
	handle, err := lease.Detach() // each process goes on from here
	if err != nil {
		log.Panic(err)
	}
	left, err := locker.Extend(ctx, handle, redlock.WithTTL(10*time.Second))
	fmt.Println(left > 5*time.Second, err)
	fmt.Println(locker.Unlock(ctx, handle))
	// Output:
	// true <nil>
	// <nil>
}

var (
	exampleMasters = locktest.ExampleMasters // three masters inside this process, which have their votes
	exampleLocker  = locktest.ExampleLocker  // a Locker for such masters
	newMasters     = locktest.NewMasters     // the same without votes

	patient = redlock.WithMasterTimeout(time.Second) // examples run on busy machines, too
)

// Masters with TLS, and a user whose password changes.
func ExampleNewFromOptions() {
	var masters []*redis.Options
	for _, addr := range []string{"10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379"} {
		masters = append(masters, &redis.Options{
			Addr:      addr,
			TLSConfig: &tls.Config{MinVersion: tls.VersionTLS13},
			CredentialsProviderContext: func(context.Context) (user, password string, err error) {
				return "redlock", "secret", nil // called for each connection
			},
		})
	}
	locker, err := redlock.NewFromOptions(masters)
	if err != nil {
		log.Panic(err)
	}
	defer locker.Close()
}

// Lock waits as long as its context does. Its error says why there was no lease.
func ExampleLocker_Lock() {
	locker, stop := exampleLocker()
	defer stop()
	holder, err := locker.Lock(context.Background(), "stock:item-1")
	if err != nil {
		log.Panic(err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err = locker.Lock(ctx, "stock:item-1")
	fmt.Println("not acquired:", errors.Is(err, redlock.ErrNotAcquired))
	fmt.Println("another holder has it:", errors.Is(err, redlock.ErrTaken))
	fmt.Println("the time was over:", errors.Is(err, context.DeadlineExceeded))

	if err := holder.Unlock(context.Background()); err != nil {
		log.Panic(err)
	}
	_, err = locker.Lock(context.Background(), "stock:item-1") // released by Close
	fmt.Println("after Unlock:", err)
	// Output:
	// not acquired: true
	// another holder has it: true
	// the time was over: true
	// after Unlock: <nil>
}

// The context of a lease ends before the lease, and its cause is the reason.
func ExampleLease_Context() {
	locker, stop := exampleLocker()
	defer stop()
	lease, err := locker.Lock(context.Background(), "report", redlock.WithTTL(2*time.Second), redlock.WithoutRenewal())
	if err != nil {
		log.Panic(err)
	}
	<-lease.Context().Done()
	why := context.Cause(lease.Context())
	fmt.Println("lost:", errors.Is(why, redlock.ErrLost))
	fmt.Println("why:", redlock.Reason(why))
	// Output:
	// lost: true
	// why: expired
}

// Extend lengthens the lease before a step that must not be interrupted.
func ExampleLease_Extend() {
	locker, stop := exampleLocker()
	defer stop()
	ctx := context.Background()
	lease, err := locker.Lock(ctx, "migration")
	if err != nil {
		log.Panic(err)
	}
	if err := lease.Extend(ctx); err != nil {
		log.Panic(err) // do not begin
	}
	fmt.Println("time enough:", lease.Validity() > 5*time.Second)
	fmt.Println(lease.Unlock(ctx))
	fmt.Println("afterwards:", errors.Is(lease.Extend(ctx), redlock.ErrNotHeld))
	// Output:
	// time enough: true
	// <nil>
	// afterwards: true
}

// A function that locks is called by a holder of the lock.
func ExampleWithReentry() {
	locker, stop := exampleLocker()
	defer stop()
	ctx := context.Background()
	lease, err := locker.Lock(ctx, "account:7")
	if err != nil {
		log.Panic(err)
	}
	_, err = locker.Lock(lease.Context(), "account:7") // it would wait for itself
	fmt.Println("refused:", errors.Is(err, redlock.ErrReentry))

	again, err := locker.Lock(lease.Context(), "account:7", redlock.WithReentry())
	if err != nil {
		log.Panic(err)
	}
	fmt.Println("the same lease:", again.Token() == lease.Token())
	fmt.Println(again.Unlock(ctx), lease.Unlock(ctx)) // the second Unlock releases
	// Output:
	// refused: true
	// the same lease: true
	// <nil> <nil>
}

// Work that hangs does not hold the resource for ever.
func ExampleWithMaxHold() {
	locker, stop := exampleLocker()
	defer stop()
	err := locker.Do(context.Background(), "report", func(ctx context.Context, _ *redlock.Lease) error {
		<-ctx.Done() // hangs
		return nil
	}, redlock.WithTTL(2*time.Second), redlock.WithMaxHold(2*time.Second))
	fmt.Println(errors.Is(err, redlock.ErrLost), errors.Is(err, redlock.ErrMaxHold))
	// Output: true true
}

// Applications that share masters have different prefixes, and do not exclude each other.
func ExampleWithKeyPrefix() {
	addrs, stop := newMasters()
	defer stop()
	for _, prefix := range []string{"shop:", "mail:"} {
		locker, err := redlock.New(addrs, patient, redlock.WithKeyPrefix(prefix))
		if err != nil {
			log.Panic(err)
		}
		defer locker.Close()
		if err := admin.Bootstrap(context.Background(), locker); err != nil {
			log.Panic(err)
		}
		_, err = locker.TryLock(context.Background(), "nightly") // released by Close
		fmt.Println(prefix, err)
	}
	// Output:
	// shop: <nil>
	// mail: <nil>
}

// Messages for operators go to a log that the program chooses.
func ExampleWithLogger() {
	var warnings bytes.Buffer
	addrs, stop := newMasters() // no client has used them yet
	defer stop()
	locker, err := redlock.New(addrs, patient, redlock.WithLogger(slog.New(slog.NewTextHandler(&warnings, nil))))
	if err != nil {
		log.Panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err = locker.Lock(ctx, "stock:item-1")
	fmt.Println("masters in quarantine:", errors.Is(err, redlock.ErrQuarantine))
	if err := locker.Close(); err != nil { // returns when everything has been logged
		log.Panic(err)
	}
	fmt.Println("and the log says so:", bytes.Contains(warnings.Bytes(), []byte("masters in quarantine")))
	// Output:
	// masters in quarantine: true
	// and the log says so: true
}

// QuorumError has the answer of each master.
func ExampleQuorumError() {
	locker, err := redlock.New([]string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}) // no server runs there
	if err != nil {
		log.Panic(err)
	}
	defer locker.Close()
	_, err = locker.TryLock(context.Background(), "stock:item-1")
	var verdict *redlock.QuorumError
	if errors.As(err, &verdict) {
		fmt.Printf("%s of %s: %d of the %d needed\n", verdict.Op, verdict.Resource, verdict.Granted, verdict.Need)
		fail := func(m *redlock.MasterError) { fmt.Println(m.Master, m.Err != nil) }
		for _, m := range verdict.Masters {
			fail(m)
		}
	}
	// Output:
	// lock of stock:item-1: 0 of the 2 needed
	// 127.0.0.1:1 true
	// 127.0.0.1:2 true
	// 127.0.0.1:3 true
}

// A program branches on the error of a call, or on the cause of a context. A word of the error is for labels and logs.
func ExampleReason() {
	what := func(err error) string {
		var verdict *redlock.QuorumError
		answered := errors.As(err, &verdict)
		switch {
		case errors.Is(err, redlock.ErrReleased), errors.Is(err, redlock.ErrClosed):
			return "end"
		case errors.Is(err, redlock.ErrLost): // or redlock.ErrBroken and redlock.ErrDetached alone
			return "undo the work"
		case errors.Is(err, redlock.ErrConfig), errors.Is(err, redlock.ErrReentry):
			return "mend the program"
		case answered && verdict.Permanent(): // redlock.ErrMasterSetup
			return "mend the masters"
		case errors.Is(err, redlock.ErrTaken): // for sure if verdict.HeldByQuorum()
			return "come back"
		case errors.Is(err, redlock.ErrQuarantine):
			return "come back after " + verdict.VotesIn().String()
		}
		return "raise an alarm"
	}
	locker, stop := exampleLocker()
	lease, err := locker.TryLock(context.Background(), "stock:item-1") // released by Close
	fmt.Printf("%q\n", redlock.Reason(err))
	_, err = locker.TryLock(context.Background(), "stock:item-1")
	fmt.Println(redlock.Reason(err)+":", what(err))
	_, err = locker.TryLock(context.Background(), "")
	fmt.Println(redlock.Reason(err)+":", what(err))
	stop()
	_, err = locker.TryLock(context.Background(), "stock:item-1")
	fmt.Println(redlock.Reason(err)+":", what(err))
	cause := context.Cause(lease.Context())
	fmt.Println(redlock.Reason(cause)+":", what(cause))
	// Output:
	// ""
	// taken: come back
	// config: mend the program
	// closed: end
	// closed: end
}

// Events go to metrics, and with all details to a log.
func ExampleObserver() {
	addrs, stop := exampleMasters()
	defer stop()
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})) // leases come and go at level Debug
	acquired := 0
	var count redlock.Observer = func(e redlock.Event) {
		switch e.Kind {
		case redlock.EventAcquired:
			acquired++
		case redlock.EventLost:
			fmt.Println("lost", e.Resource, redlock.Reason(e.Err))
		}
	}
	locker, err := redlock.New(addrs, patient, redlock.WithLogger(logger), redlock.WithObserver(count))
	if err != nil {
		log.Panic(err)
	}
	if _, err := locker.Lock(context.Background(), "stock:item-1"); err != nil {
		log.Panic(err)
	}
	if err := locker.Close(); err != nil { // returns when all events have been delivered
		log.Print(err)
	}
	fmt.Println("acquired:", acquired)
	// Output: acquired: 1
}

// A snapshot of the Locker's state, without asking a master.
func ExampleLocker_Stats() {
	locker, stop := exampleLocker()
	defer stop()
	if _, err := locker.Lock(context.Background(), "stock:item-1"); err != nil {
		log.Panic(err)
	}
	s := locker.Stats()
	show := func(lease redlock.LeaseStats) { fmt.Println(lease.Resource, lease.TTL, lease.Validity > 5*time.Second) }
	for _, lease := range s.Leases {
		show(lease)
	}
	states := make(map[redlock.MasterState][]redlock.MasterStats)
	for _, master := range s.Masters {
		states[master.State] = append(states[master.State], master)
	}
	fmt.Println(len(states[redlock.MasterUp])+len(states[redlock.MasterUntried]), "up or new,", len(states[redlock.MasterDown]), "down")
	fmt.Println(s.Counts[redlock.EventAcquired], "acquired,", s.Counts[redlock.EventLost], "lost")
	// Output:
	// stock:item-1 10s true
	// 3 up or new, 0 down
	// 1 acquired, 0 lost
}

// A label tells people which process has the lock.
func ExampleWithOwner() {
	locker, stop := exampleLocker()
	defer stop()
	ctx := context.Background()
	lease, err := locker.Lock(ctx, "report:2026-11", redlock.WithOwner("web-3 4711 nightly"))
	if err != nil {
		log.Panic(err)
	}
	_, err = locker.TryLock(ctx, "report:2026-11")
	var refused *redlock.QuorumError
	if errors.As(err, &refused) {
		owner, left := refused.Holder()
		fmt.Println("held by", owner, left > 0, refused.HeldFor() < time.Minute)
	}
	if err := lease.Unlock(ctx); err != nil {
		log.Panic(err)
	}
	// Output: held by web-3 4711 nightly true true
}

// The last step takes longer than the TTL, and must not depend on renewals.
func ExampleLease_ExtendFor() {
	locker, stop := exampleLocker(redlock.WithTTL(3 * time.Second)) // the largest TTL of all clients is 10 s
	defer stop()
	ctx := context.Background()
	lease, err := locker.Lock(ctx, "report:2026-11", redlock.WithoutRenewal())
	if err != nil {
		log.Panic(err)
	}
	if err := lease.ExtendFor(ctx, redlock.DefaultTTL); err != nil {
		log.Panic(err)
	}
	fmt.Println(lease.Validity() > redlock.DefaultTTL/2)
	if err := lease.Unlock(ctx); err != nil {
		log.Panic(err)
	}
	// Output: true
}

// Reports read the price list together. Only one process at a time changes it.
func ExampleShared() {
	locker, stop := exampleLocker()
	defer stop()
	ctx := context.Background()
	one, err := locker.Lock(ctx, "prices", redlock.Shared())
	if err != nil {
		log.Panic(err)
	}
	two, err := locker.Lock(ctx, "prices", redlock.Shared())
	if err != nil {
		log.Panic(err)
	}
	_, err = locker.TryLock(ctx, "prices")
	fmt.Println("a writer beside readers:", errors.Is(err, redlock.ErrTaken))
	for _, lease := range []*redlock.Lease{one, two} {
		if err := lease.Unlock(ctx); err != nil {
			log.Panic(err)
		}
	}
	// Output:
	// a writer beside readers: true
}

// A process changes the price list, and then reads it together with others. No other process changes it
// in between.
func ExampleLease_Downgrade() {
	locker, stop := exampleLocker()
	defer stop()
	ctx := context.Background()
	lease, err := locker.Lock(ctx, "prices")
	if err != nil {
		log.Panic(err)
	}
	if err := lease.Downgrade(ctx); err != nil { // the lease may not write any more, even if this fails
		log.Print(err)
	}
	other, err := locker.TryLock(ctx, "prices", redlock.Shared())
	fmt.Println(lease.Mode() == redlock.ModeShared, "with another reader:", err == nil)
	for _, lease := range []*redlock.Lease{lease, other} {
		if err := lease.Unlock(ctx); err != nil {
			log.Panic(err)
		}
	}
	// Output:
	// true with another reader: true
}
