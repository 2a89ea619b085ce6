package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/internal/virtual"
	"github.com/d0720281/redlock/jobs"
	"github.com/d0720281/redlock/semaphore"
)

func newLocker(t *testing.T, l *redlock.Locker, minHold time.Duration, opts ...redlock.LockOption) *jobs.Locker {
	t.Helper()
	j, err := jobs.New(l, append(opts, redlock.WithMinHold(minHold))...)
	locktest.Must(t, err)
	return j
}

// A lock is held while the job runs, and for at least the minimum hold.
func TestVirtualHold(t *testing.T) {
	const minHold, ttl = 5 * time.Second, time.Second
	for _, test := range []struct {
		name       string
		runs, held time.Duration
	}{
		{"a fast job", time.Millisecond, minHold},
		{"a job a little shorter than the minimum", minHold - 1, minHold},
		{"a job as long as the minimum", minHold, minHold},
		{"a job that takes many TTLs", time.Minute, time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
				here := newLocker(t, b.Locker(), minHold, redlock.WithTTL(ttl))
				there := newLocker(t, b.Locker(), minHold, redlock.WithTTL(ttl))
				lock, err := here.Lock(t.Context(), "r")
				locktest.Must(t, err)
				start := time.Now()
				time.Sleep(test.runs)
				ended, cancel := context.WithCancel(t.Context())
				cancel() // as while the scheduler is shut down
				locktest.Must(t, lock.Unlock(ended))
				locktest.WantSince(t, "Unlock", start, test.runs)
				if left := test.held - test.runs; left > 0 {
					time.Sleep(left - 1)
					if _, err := there.Lock(t.Context(), "r"); !errors.Is(err, redlock.ErrTaken) {
						t.Errorf("Lock elsewhere before the hold is over: got %v, want ErrTaken", err)
					}
					b.WantHolding("r", 0, 1, 2)
					time.Sleep(time.Nanosecond)
				}
				b.WantHolding("r")
				if _, err := there.Lock(t.Context(), "r"); err != nil {
					t.Errorf("Lock elsewhere after the hold: got %v, want a lock", err)
				}
			})
		})
	}
}

// Of several machines that begin at the same moment, exactly one runs the job.
func TestVirtualAtOneMoment(t *testing.T) {
	redistest.TakesSeconds(t)
	for _, machines := range []int{2, 3, 7} {
		for seed := range uint64(20) {
			locktest.InBubble(t, 5, func(t *testing.T, b *locktest.Bubble) {
				var all []*jobs.Locker
				for range machines {
					l := b.WarmLocker()
					all = append(all, newLocker(t, l, 5*time.Second))
				}
				random := rand.New(rand.NewPCG(seed, 0))
				b.All(func(n *virtual.Node) {
					n.Latency(time.Duration(random.IntN(2000))*time.Microsecond, time.Duration(random.IntN(2000))*time.Microsecond)
				})
				var mu sync.Mutex
				var running sync.WaitGroup
				got := 0
				for _, j := range all {
					after := time.Duration(random.IntN(1500)) * time.Microsecond
					running.Go(func() {
						time.Sleep(after)
						lock, err := j.Lock(t.Context(), "r")
						if err != nil {
							locktest.WantMatch(t, "Lock", err, []error{redlock.ErrTaken})
							return
						}
						mu.Lock()
						got++
						mu.Unlock()
						_ = lock.Unlock(t.Context())
					})
				}
				running.Wait()
				if got != 1 {
					t.Errorf("%d machines, seed %d: got %d runs, want 1", machines, seed, got)
				}
			})
		}
	}
}

// The loss of a lease ends the context of the job, is an error of Run, and is logged.
func TestVirtualLosesItsLease(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		var log locktest.Records
		l := b.Locker(redlock.WithLogger(slog.New(&log)))
		failure := errors.New("not finished")
		err := newLocker(t, l, time.Second).Run(t.Context(), "r", func(ctx context.Context, lease *redlock.Lease) error {
			b.All((*virtual.Node).Blackhole)
			locktest.WantDone(t, ctx, []error{redlock.ErrLost, reason.Expired})
			if lease.Validity() <= 0 {
				t.Error("got no validity when the context ended, want some")
			}
			return failure
		})
		locktest.WantMatch(t, "Run", err, []error{failure, redlock.ErrLost})

		b.All((*virtual.Node).Heal)
		time.Sleep(time.Minute)
		lock, err := newLocker(t, l, time.Hour).Lock(t.Context(), "r")
		locktest.Must(t, err)
		b.All((*virtual.Node).Blackhole)
		time.Sleep(time.Minute)
		locktest.WantMatch(t, "Unlock", lock.Unlock(t.Context()), []error{redlock.ErrLost, redlock.ErrNotHeld})
		b.All((*virtual.Node).Heal)
		time.Sleep(time.Minute)
		lock, err = newLocker(t, l, 0).Lock(t.Context(), "s")
		locktest.Must(t, err)
		for _, n := range b.Nodes {
			n.Put(redlock.DefaultKeyPrefix+"s", "", 0) // the library does not notice before Unlock
		}
		locktest.WantMatch(t, "Unlock", lock.Unlock(t.Context()), []error{redlock.ErrNotHeld}, redlock.ErrLost)
		time.Sleep(time.Minute)
		lock, err = newLocker(t, l, 0).Lock(t.Context(), "t")
		locktest.Must(t, err)
		locktest.Must(t, lock.Unlock(t.Context()))
		locktest.WantMatch(t, "a second Unlock", lock.Unlock(t.Context()), []error{redlock.ErrReleased})
		if got := len(log.With("ran on")); got != 3 {
			t.Errorf("got %d lines in the log about jobs that ran on, want 3", got)
		}
	})
}

// A run that another machine has is not logged. A run that is left out because of the masters is
// logged once per job, until the job can be locked again.
func TestVirtualLeftOut(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		var log locktest.Records
		l := b.Locker(redlock.WithLogger(slog.New(&log)))
		j := newLocker(t, l, 0)
		ran := 0
		runner := newLocker(t, l, 0)
		run := func() error {
			return runner.Run(t.Context(), "r", func(context.Context, *redlock.Lease) error { ran++; return nil })
		}
		left := func(want int) {
			t.Helper()
			if got := len(log.With("left out")); got != want {
				t.Errorf("got %d lines in the log about runs that are left out, want %d", got, want)
			}
		}
		other, err := newLocker(t, b.Locker(), 0).Lock(t.Context(), "r")
		locktest.Must(t, err)
		synctest.Wait() // for the third node, which would still grant
		for range 3 {
			locktest.Must(t, run())
			start := time.Now()
			_, err := j.Lock(t.Context(), "r")
			locktest.WantMatch(t, "Lock", err, []error{redlock.ErrTaken})
			locktest.WantSince(t, "Lock", start, 0) // all masters have refused
		}
		left(0)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := j.Lock(ended, "r"); !errors.Is(err, context.Canceled) {
			t.Errorf("Lock: got %v, want context.Canceled", err)
		}
		left(0)

		b.Each((*virtual.Node).Kill, 0, 1)
		_, _ = j.Lock(t.Context(), "r") // the third node may answer before the others are known to be down
		time.Sleep(time.Second)
		for range 3 {
			_, err := j.Lock(t.Context(), "r")
			locktest.WantMatch(t, "Lock", err, []error{redlock.ErrNoQuorum})
			locktest.WantMatch(t, "Run", run(), []error{redlock.ErrNoQuorum})
		}
		left(2) // one for each Locker
		if _, err := j.Lock(t.Context(), "another"); err == nil {
			t.Error("Lock: got no error, want ErrNoQuorum")
		}
		left(3)
		short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond) // less than the tries take
		defer cancel()
		if _, err := j.Lock(short, "a third"); !errors.Is(err, redlock.ErrNoQuorum) {
			t.Errorf("Lock for 20 ms: got %v, want ErrNoQuorum", err)
		}
		left(4)
		b.All((*virtual.Node).Heal)
		time.Sleep(time.Second)
		if _, err := j.Lock(t.Context(), "r"); !errors.Is(err, redlock.ErrTaken) {
			t.Errorf("Lock: got %v, want ErrTaken", err)
		}
		locktest.Must(t, other.Unlock(t.Context()))
		synctest.Wait()
		if err := run(); err != nil || ran != 1 {
			t.Errorf("a job that is free: got %v and %d runs, want no error and 1", err, ran)
		}
		b.Each((*virtual.Node).Kill, 0, 1)
		if _, err := j.Lock(t.Context(), "r"); err == nil {
			t.Error("Lock: got no error, want ErrNoQuorum")
		}
		left(5)
	})
}

// A run that is due while masters are in quarantine waits for them, on one machine of all. It does not wait
// for a quarantine that is longer than it may be.
func TestVirtualWaitsForQuarantines(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		var all []*jobs.Locker
		for range 3 {
			all = append(all, newLocker(t, b.WarmLocker(), time.Minute))
		}
		impatient := newLocker(t, b.WarmLocker(), time.Minute, redlock.WithQuarantineWait(0))
		b.All((*virtual.Node).RestartEmpty)
		time.Sleep(time.Hour)
		start := time.Now()
		_, err := impatient.Lock(t.Context(), "r")
		locktest.WantMatch(t, "Lock", err, []error{redlock.ErrQuarantine})
		locktest.WantWithin(t, "Lock", start, time.Second)
		var running sync.WaitGroup
		var ran atomic.Int32
		for _, j := range all {
			running.Go(func() {
				err := j.Run(t.Context(), "r", func(context.Context, *redlock.Lease) error { ran.Add(1); return nil })
				if err != nil {
					t.Errorf("Run: got %v, want no error", err)
				}
			})
		}
		running.Wait()
		if ran.Load() != 1 {
			t.Errorf("got %d runs, want 1", ran.Load())
		}
		locktest.WantWithin(t, "Run", start, 12*time.Second)
	})
}

// A job that is left out is logged once, although some runs find another holder's key on the one master
// that answers: that is no sign that the masters are well.
func TestVirtualLeftOutOnce(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		var log locktest.Records
		l := b.WarmLocker(redlock.WithLogger(slog.New(&log)))
		j := newLocker(t, l, 0)
		b.Nodes[0].Kill()
		b.Nodes[1].Hang()
		time.Sleep(time.Second)
		taken := 0
		for i := range 20 {
			if i%2 == 1 { // the master that hangs is not known to
				b.Nodes[1].Resume()
				time.Sleep(5 * time.Second)
				b.Nodes[2].Put(redlock.DefaultKeyPrefix+"r", "another|1", 5*time.Second)
				b.Nodes[1].Hang()
			}
			_, err := j.Lock(t.Context(), "r")
			if errors.Is(err, redlock.ErrTaken) {
				taken++
				var refused *redlock.QuorumError
				if !errors.As(err, &refused) || refused.HeldByQuorum() {
					t.Errorf("got %v, want it held by no quorum", err)
				}
			}
			time.Sleep(time.Second)
		}
		if taken == 0 {
			t.Error("got no call that found the lock taken, want some")
		}
		if got := len(log.With("left out")); got != 1 {
			t.Errorf("got %d lines in the log about runs that are left out, want 1", got)
		}
	})
}

// A short failure of the masters does not leave a run out.
func TestVirtualTriesAgain(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		j := newLocker(t, b.WarmLocker(), 0)
		b.Each((*virtual.Node).Kill, 0, 1)
		go func() {
			time.Sleep(10 * time.Millisecond)
			b.Each((*virtual.Node).Heal, 0, 1)
		}()
		if _, err := j.Lock(t.Context(), "r"); err != nil {
			t.Errorf("Lock: got %v, want a lock", err)
		}
	})
}

// While some masters still grant, perhaps no client holds the lock, and Lock tries again. If all
// masters refuse, it does not.
func TestVirtualTriesAgainWhileSomeGrant(t *testing.T) {
	for refuse, want := range map[int]error{2: nil, 3: redlock.ErrTaken} {
		locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
			j := newLocker(t, b.WarmLocker(), 0)
			for _, n := range b.Nodes[:refuse] {
				n.Latency(time.Millisecond, 0) // so that the others have granted before
				n.Put(redlock.DefaultKeyPrefix+"r", "another|1", 50*time.Millisecond)
			}
			if _, err := j.Lock(t.Context(), "r"); !errors.Is(err, want) {
				t.Errorf("%d of 3 masters refuse for 50 ms: got %v, want %v", refuse, err, want)
			}
		})
	}
}

// Run runs a job on one machine, once within the minimum hold. A panic of the job reaches the
// caller of Run, and leaves no lock.
func TestVirtualRun(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		here, there := newLocker(t, b.Locker(), 5*time.Second), newLocker(t, b.Locker(), 5*time.Second)
		ran := 0
		job := func(ctx context.Context, _ *redlock.Lease) error {
			ran++
			return there.Run(ctx, "r", func(context.Context, *redlock.Lease) error {
				t.Error("it runs on two machines")
				return nil
			})
		}
		run := func(l *jobs.Locker) {
			t.Helper()
			if err := l.Run(t.Context(), "r", job); err != nil {
				t.Errorf("Run: got %v, want no error", err)
			}
		}
		run(here)
		time.Sleep(time.Second)
		run(there)
		if ran != 1 {
			t.Errorf("got %d runs within the minimum hold, want 1", ran)
		}
		time.Sleep(5 * time.Second)

		failure := errors.New("not finished")
		if err := there.Run(t.Context(), "r", func(context.Context, *redlock.Lease) error { ran++; return failure }); err != failure {
			t.Errorf("Run: got %v, want the error of the job as it is", err)
		}
		if ran != 2 {
			t.Errorf("got %d runs, want 2", ran)
		}
		time.Sleep(6 * time.Second) // not at the moment at which the minimum hold ends

		once := newLocker(t, b.Locker(), 0)
		func() {
			defer func() {
				if got := recover(); got != "oh" {
					t.Errorf("got panic %v, want that of the job", got)
				}
			}()
			_ = once.Run(t.Context(), "r", func(context.Context, *redlock.Lease) error { panic("oh") })
		}()
		b.WantHolding("r")
	})
}

// Close does not wait for the minimum hold.
func TestVirtualClosed(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.Locker()
		j := newLocker(t, l, time.Hour)
		lock, err := j.Lock(t.Context(), "r")
		locktest.Must(t, err)
		locktest.Must(t, errors.Join(lock.Unlock(t.Context()), l.Close()))
		b.WantHolding("r")
		_, err = j.Lock(t.Context(), "r")
		locktest.WantMatch(t, "Lock after Close", err, []error{redlock.ErrClosed})
		time.Sleep(2 * time.Hour)
	})
}

// Close ends the context of a run, and keeps its lock until the run is over, for 10 s at most.
func TestVirtualClosedDuringARun(t *testing.T) {
	for name, run := range map[string]func(j *jobs.Locker, work func(context.Context) error) error{
		"Run": func(j *jobs.Locker, work func(context.Context) error) error {
			return j.Run(context.Background(), "r", func(ctx context.Context, _ *redlock.Lease) error { return work(ctx) })
		},
		"Lock": func(j *jobs.Locker, work func(context.Context) error) error {
			lock, err := j.Lock(context.Background(), "r")
			if errors.Is(err, redlock.ErrTaken) {
				return nil
			} else if err != nil {
				return err
			}
			return errors.Join(work(lock.Context()), lock.Unlock(context.Background()))
		},
		"RunWithPermit": func(j *jobs.Locker, work func(context.Context) error) error {
			return j.RunWithPermit(context.Background(), "r", 1, func(ctx context.Context, _ *semaphore.Lease) error { return work(ctx) })
		},
	} {
		for _, winds := range []time.Duration{5 * time.Second, time.Minute} { // from the end of its context to the end of the work
			keeps := min(winds, 10*time.Second)
			t.Run(fmt.Sprint(name, " ", winds), func(t *testing.T) {
				locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
					var log locktest.Records
					l, start := b.Locker(redlock.WithLogger(slog.New(&log))), time.Now()
					j, other := newLocker(t, l, 0), newLocker(t, b.WarmLocker(), 0)
					done := make(chan error, 1)
					go func() {
						done <- run(j, func(ctx context.Context) error {
							<-ctx.Done()
							locktest.WantMatch(t, "cause of the run's context", context.Cause(ctx), []error{redlock.ErrReleased, redlock.ErrClosed})
							time.Sleep(winds)
							return nil
						})
					}()
					synctest.Wait()
					time.AfterFunc(keeps-time.Millisecond, func() {
						_ = run(other, func(context.Context) error {
							t.Error("the job ran on two machines")
							return nil
						})
					})
					locktest.Must(t, l.Close())
					locktest.WantWithin(t, "Close", start, keeps+time.Second)
					ran := false
					locktest.Must(t, run(other, func(context.Context) error { ran = true; return nil }))
					if !ran {
						t.Error("the job did not run elsewhere after Close")
					}
					if err := <-done; keeps < winds {
						locktest.WantMatch(t, "Run", err, []error{redlock.ErrReleased, redlock.ErrClosed})
					} else if err != nil {
						t.Errorf("Run: got %v, want no error", err)
					}
					if got := len(log.With("ran on")) > 0; got != (keeps < winds) {
						t.Errorf("a line in the log about a job that ran on: got %t, want %t", got, keeps < winds)
					}
				})
			})
		}
	}
}

// Close ends a Lock that would try again.
func TestVirtualClosedBetweenTries(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		b.All((*virtual.Node).Kill)
		j, closed := newLocker(t, l, 0), time.Now().Add(250*time.Millisecond)
		time.AfterFunc(time.Until(closed), func() { _ = l.Close() })
		_, err := j.Lock(t.Context(), "r")
		locktest.WantMatch(t, "Lock", err, []error{redlock.ErrNoQuorum})
		locktest.WantSince(t, "the end of Lock", closed, 0)
	})
}

func TestBadArguments(t *testing.T) {
	l := locktest.Open(t, []string{"127.0.0.1:1"})
	reentrant := locktest.Open(t, []string{"127.0.0.1:1"}, redlock.WithReentry())
	prefixed := locktest.Open(t, []string{"127.0.0.1:1"}, redlock.WithKeyPrefix("a~"))
	locker := func(l *redlock.Locker, minHold time.Duration, opts ...redlock.LockOption) error {
		if minHold != 0 {
			opts = append(opts, redlock.WithMinHold(minHold))
		}
		_, err := jobs.New(l, opts...)
		return err
	}
	lock := func(l *redlock.Locker, name string) error {
		_, err := newLocker(t, l, 0).Lock(t.Context(), name)
		return err
	}
	do := func(ctx context.Context, name string) error {
		return newLocker(t, l, 0).Run(ctx, name, func(context.Context, *redlock.Lease) error {
			t.Errorf("the job %q ran", name)
			return nil
		})
	}
	var none context.Context
	for name, err := range map[string]error{
		"no Locker":                         locker(nil, 0),
		"a negative minimum":                locker(l, -1),
		"a minimum as long as the longest":  locker(l, time.Minute, redlock.WithMaxHold(time.Minute)),
		"a minimum that outlasts the lease": locker(l, 5*time.Second, redlock.WithoutRenewal()),
		"re-entry":                          locker(l, 0, redlock.WithReentry()),
		"shared":                            locker(l, 0, redlock.Shared()),
		"re-entry for all":                  locker(reentrant, 0),
		"a TTL that is too long":            locker(l, 0, redlock.WithTTL(time.Hour)),
		"a nil option":                      locker(l, 0, nil),
		"Lock without a context":            func() error { _, err := newLocker(t, l, 0).Lock(none, "r"); return err }(),
		"Lock without a name":               lock(l, ""),
		"Lock with a name of the library":   lock(l, "r~queue"),
		"Lock with one with the prefix":     lock(prefixed, "turn"),
		"Run without a context":             do(none, "r"),
		"Run without a name":                do(t.Context(), ""),
		"Run with a name of the library":    do(t.Context(), "r~queue"),
		"Run without a job":                 newLocker(t, l, 0).Run(t.Context(), "r", nil),
	} {
		locktest.WantMatch(t, name, err, []error{redlock.ErrConfig}, redlock.ErrNotAcquired)
	}
	for _, l := range []*redlock.Locker{l, reentrant, prefixed} {
		if n := l.Stats().Masters[0]; n.State != redlock.MasterUntried {
			t.Errorf("got a node that is %v, want it not asked", n.State)
		}
	}
}

// Of several machines that begin at the same moment, as many run the job as it has permits, also after a
// run that was short.
func TestVirtualRunWithPermit(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		const machines, permits = 5, 2
		var ran atomic.Int64
		var g sync.WaitGroup
		for range machines {
			j := newLocker(t, b.WarmLocker(), time.Second)
			g.Go(func() {
				err := j.RunWithPermit(t.Context(), "r", permits, func(ctx context.Context, lease *semaphore.Lease) error {
					if r := lease.Parts()[0].Resource(); r != "r~1" && r != "r~2" {
						t.Errorf("got the lock of %q", r)
					}
					ran.Add(1)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		g.Wait()
		if ran.Load() != permits {
			t.Errorf("%d machines ran the job, want %d", ran.Load(), permits)
		}
		time.Sleep(2 * time.Second)
		j := newLocker(t, b.Locker(), 0)
		oops := errors.New("oops")
		err := j.RunWithPermit(t.Context(), "r", permits, func(context.Context, *semaphore.Lease) error { return oops })
		if !errors.Is(err, oops) {
			t.Errorf("got %v", err)
		}
		for name, err := range map[string]error{
			"nil run":    j.RunWithPermit(t.Context(), "r", permits, nil),
			"no permits": j.RunWithPermit(t.Context(), "r", 0, func(context.Context, *semaphore.Lease) error { return nil }),
		} {
			if !errors.Is(err, redlock.ErrConfig) {
				t.Errorf("%s: got %v", name, err)
			}
		}
	})
}

// Each option of the leases means for a job what it means for a lock, or New refuses it.
func TestVirtualOptions(t *testing.T) {
	for name, test := range map[string]struct {
		resource string
		take     func(*testing.T, *jobs.Locker, *locktest.Held) error
	}{
		"Lock": {"r", func(t *testing.T, j *jobs.Locker, h *locktest.Held) error {
			lock, err := j.Lock(t.Context(), "r")
			if err == nil {
				h.Lease, h.Work, h.End = lock, lock.Context(), func() { _ = lock.Unlock(t.Context()) }
			}
			return err
		}},
		"Run": {"r", func(t *testing.T, j *jobs.Locker, h *locktest.Held) error {
			return h.Run(t, func(work func(context.Context, locktest.HeldLease) error) error {
				return j.Run(t.Context(), "r", func(ctx context.Context, lease *redlock.Lease) error { return work(ctx, lease) })
			})
		}},
		"RunWithPermit": {"r~1", func(t *testing.T, j *jobs.Locker, h *locktest.Held) error {
			return h.Run(t, func(work func(context.Context, locktest.HeldLease) error) error {
				return j.RunWithPermit(t.Context(), "r", 1, func(ctx context.Context, lease *semaphore.Lease) error { return work(ctx, lease) })
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.EachOption(t, 3, locktest.Entry{
				Resource: test.resource, Refuses: []string{"WithReentry", "Shared"},
				Take: func(b *locktest.Bubble, opts ...redlock.LockOption) (h locktest.Held, err error) {
					h.Locker = b.Locker()
					j, err := jobs.New(h.Locker, opts...)
					if err != nil {
						return h, err
					}
					err = test.take(b.T, j, &h)
					return h, err
				},
			})
		})
	}
}

// TestMain fails the run if a goroutine is left when all tests are over.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
