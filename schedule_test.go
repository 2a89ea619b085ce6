package redlock_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
)

// unlocker is a scheduler's type of a lock, as gocron has it.
type unlocker interface{ Unlock(context.Context) error }

// runner is a scheduler's type of a job, as robfig/cron has it.
type runner interface{ Run() }

type runFunc func()

func (f runFunc) Run() { f() }

func jobLocker(t *testing.T, l *redlock.Locker, minHold time.Duration, opts ...redlock.LockOption) *redlock.JobLocker[unlocker] {
	t.Helper()
	j, err := redlock.NewJobLocker[unlocker](l, minHold, opts...)
	if err != nil {
		t.Fatalf("NewJobLocker: got %v, want no error", err)
	}
	return j
}

// A lock is held for as long as the job runs, and for the minimum hold at least.
func TestVirtualJobHold(t *testing.T) {
	const minHold, ttl = 5 * time.Second, time.Second
	for _, test := range []struct {
		name       string
		runs, held time.Duration
	}{
		{"a fast job", time.Millisecond, minHold},
		{"a job shorter than the minimum by little", minHold - 1, minHold},
		{"a job as long as the minimum", minHold, minHold},
		{"a job longer than the TTL many times", time.Minute, time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, b *bubble) {
				here := jobLocker(t, b.locker(), minHold, redlock.WithTTL(ttl))
				there := jobLocker(t, b.locker(), minHold, redlock.WithTTL(ttl))
				lock, err := here.Lock(t.Context(), "r")
				if err != nil {
					t.Fatalf("Lock: got %v, want a lock", err)
				}
				start := time.Now()
				time.Sleep(test.runs)
				ended, cancel := context.WithCancel(t.Context())
				cancel() // as where the scheduler is being shut down
				if err := lock.Unlock(ended); err != nil {
					t.Errorf("Unlock: got %v, want no error", err)
				}
				wantSince(t, "Unlock", start, test.runs)
				if left := test.held - test.runs; left > 0 {
					time.Sleep(left - 1)
					if _, err := there.Lock(t.Context(), "r"); !errors.Is(err, redlock.ErrTaken) {
						t.Errorf("Lock elsewhere before the hold is over: got %v, want ErrTaken", err)
					}
					b.wantHolding("r", 0, 1, 2)
					time.Sleep(time.Nanosecond)
				}
				b.wantHolding("r")
				if _, err := there.Lock(t.Context(), "r"); err != nil {
					t.Errorf("Lock elsewhere after the hold: got %v, want a lock", err)
				}
			})
		})
	}
}

// Of several machines that begin at the same moment one runs the job, and not none.
func TestVirtualJobsAtOneMoment(t *testing.T) {
	for _, machines := range []int{2, 3, 7} {
		for seed := range uint64(20) {
			inBubble(t, 5, func(t *testing.T, b *bubble) {
				b.all(goNative)
				var all []*redlock.JobLocker[unlocker]
				for range machines {
					l := b.warmLocker()
					all = append(all, jobLocker(t, l, 5*time.Second))
				}
				random := rand.New(rand.NewPCG(seed, 0))
				b.all(func(n *bubbleNode) {
					n.latency(time.Duration(random.IntN(2000))*time.Microsecond, time.Duration(random.IntN(2000))*time.Microsecond)
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
							wantMatch(t, "Lock", err, []error{redlock.ErrTaken})
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

// A job that is wrapped is told of the loss of its lease, and so are its caller and the log.
func TestVirtualJobLosesItsLease(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		var log records
		l := b.locker(redlock.WithLogger(slog.New(&log)))
		failure := errors.New("not finished")
		job, err := l.Job("r", time.Second, func(ctx context.Context, lease *redlock.Lease) error {
			b.all((*bubbleNode).blackhole)
			wantDone(t, ctx, []error{redlock.ErrLost, redlock.ErrExpired})
			if lease.Validity() <= 0 {
				t.Error("got no validity left when the context ended, want some")
			}
			return failure
		})
		if err != nil {
			t.Fatal(err)
		}
		wantMatch(t, "Job", job(t.Context()), []error{failure, redlock.ErrLost})

		b.all((*bubbleNode).heal)
		time.Sleep(time.Minute)
		lock, err := jobLocker(t, l, time.Hour).Lock(t.Context(), "r")
		if err != nil {
			t.Fatal(err)
		}
		b.all((*bubbleNode).blackhole)
		time.Sleep(time.Minute)
		wantMatch(t, "Unlock", lock.Unlock(t.Context()), []error{redlock.ErrLost, redlock.ErrNotHeld})
		if got := len(log.With("ran on")); got != 2 {
			t.Errorf("got %d lines in the log about jobs that ran on, want 2", got)
		}
	})
}

// A run that another machine has is no news. Masters in trouble are, once for each job until
// it was better.
func TestVirtualJobsLeftOut(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		var log records
		l := b.locker(redlock.WithLogger(slog.New(&log)))
		j := jobLocker(t, l, 0)
		ran := 0
		wrapped, err := l.Job("r", 0, func(context.Context, *redlock.Lease) error { ran++; return nil })
		if err != nil {
			t.Fatal(err)
		}
		left := func(want int) {
			t.Helper()
			if got := len(log.With("left out")); got != want {
				t.Errorf("got %d lines in the log about runs that are left out, want %d", got, want)
			}
		}
		other, err := jobLocker(t, b.locker(), 0).Lock(t.Context(), "r")
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // for the node that was not needed: it would still grant
		for range 3 {
			if err := wrapped(t.Context()); err != nil {
				t.Errorf("a job that runs elsewhere: got %v, want no error", err)
			}
			start := time.Now()
			_, err := j.Lock(t.Context(), "r")
			wantMatch(t, "Lock", err, []error{redlock.ErrTaken})
			wantSince(t, "Lock", start, 0) // all masters have refused
		}
		left(0)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := j.Lock(ended, "r"); !errors.Is(err, context.Canceled) {
			t.Errorf("Lock: got %v, want context.Canceled", err)
		}
		left(0)

		b.each((*bubbleNode).kill, 0, 1)
		_, _ = j.Lock(t.Context(), "r") // the one that is left may answer before it is known that the others are down
		time.Sleep(time.Second)
		for range 3 {
			_, err := j.Lock(t.Context(), "r")
			wantMatch(t, "Lock", err, []error{redlock.ErrNoQuorum})
			wantMatch(t, "Job", wrapped(t.Context()), []error{redlock.ErrNoQuorum})
		}
		left(2) // one for each of the two
		if _, err := j.Lock(t.Context(), "another"); err == nil {
			t.Error("Lock: got no error, want ErrNoQuorum")
		}
		left(3)
		b.all((*bubbleNode).heal)
		time.Sleep(time.Second)
		if _, err := j.Lock(t.Context(), "r"); !errors.Is(err, redlock.ErrTaken) {
			t.Errorf("Lock: got %v, want ErrTaken", err)
		}
		if err := other.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if err := wrapped(t.Context()); err != nil || ran != 1 {
			t.Errorf("a job that is free: got %v and %d runs, want no error and 1", err, ran)
		}
		b.each((*bubbleNode).kill, 0, 1)
		if _, err := j.Lock(t.Context(), "r"); err == nil {
			t.Error("Lock: got no error, want ErrNoQuorum")
		}
		left(4)
	})
}

// A hiccup of the masters is no reason to leave a run out.
func TestVirtualJobTriesAgain(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		j := jobLocker(t, b.warmLocker(), 0)
		b.each((*bubbleNode).kill, 0, 1)
		go func() {
			time.Sleep(10 * time.Millisecond)
			b.each((*bubbleNode).heal, 0, 1)
		}()
		if _, err := j.Lock(t.Context(), "r"); err != nil {
			t.Errorf("Lock: got %v, want a lock", err)
		}
	})
}

// contextRunner is a job that wants to know when to stop.
type contextRunner struct {
	runFunc
	withContext func(context.Context)
}

func (c contextRunner) RunContext(ctx context.Context) { c.withContext(ctx) }

func TestVirtualJobWrapper(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		wrapper := func(minHold time.Duration) func(runner) runner {
			w, err := redlock.JobWrapper[runner](b.locker(), "r", minHold)
			if err != nil {
				t.Fatalf("JobWrapper: got %v, want no error", err)
			}
			return w
		}
		here, there := wrapper(5*time.Second), wrapper(5*time.Second)
		ran := 0
		job := runFunc(func() { ran++; there(runFunc(func() { t.Error("it runs at two places") })).Run() })
		here(job).Run()
		time.Sleep(time.Second)
		there(job).Run()
		if ran != 1 {
			t.Errorf("got %d runs within the minimum hold, want 1", ran)
		}
		time.Sleep(5 * time.Second)

		here(contextRunner{job, func(ctx context.Context) {
			ran++
			b.all((*bubbleNode).blackhole)
			wantDone(t, ctx, []error{redlock.ErrLost})
			b.all((*bubbleNode).heal)
		}}).Run()
		if ran != 2 {
			t.Errorf("got %d runs, want 2, the second by RunContext", ran)
		}
		time.Sleep(time.Minute)

		once := wrapper(0)
		func() {
			defer func() {
				if got := recover(); got != "oh" {
					t.Errorf("got panic %v, want that of the job", got)
				}
			}()
			once(runFunc(func() { panic("oh") })).Run()
		}()
		b.wantHolding("r")
	})
}

// Close does not wait for the minimum hold.
func TestVirtualJobClosed(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		l := b.locker()
		j := jobLocker(t, l, time.Hour)
		lock, err := j.Lock(t.Context(), "r")
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(lock.Unlock(t.Context()), l.Close()); err != nil {
			t.Errorf("got %v, want no error", err)
		}
		b.wantHolding("r")
		_, err = j.Lock(t.Context(), "r")
		wantMatch(t, "Lock after Close", err, []error{redlock.ErrClosed})
		time.Sleep(2 * time.Hour)
	})
}

func TestJobBadArguments(t *testing.T) {
	l := open(t, []string{"127.0.0.1:1"})
	run := func(context.Context, *redlock.Lease) error { return nil }
	locker := func(l *redlock.Locker, minHold time.Duration, opts ...redlock.LockOption) error {
		_, err := redlock.NewJobLocker[unlocker](l, minHold, opts...)
		return err
	}
	wrapper := func(l *redlock.Locker, name string, opts ...redlock.LockOption) error {
		_, err := redlock.JobWrapper[runner](l, name, 0, opts...)
		return err
	}
	job := func(name string, run func(context.Context, *redlock.Lease) error, opts ...redlock.LockOption) error {
		_, err := l.Job(name, 0, run, opts...)
		return err
	}
	type tooMuch interface {
		unlocker
		Refresh() error
	}
	_, noLock := redlock.NewJobLocker[tooMuch](l, 0)
	_, noJob := redlock.JobWrapper[interface {
		runner
		Name() string
	}](l, "r", 0)
	for name, err := range map[string]error{
		"no Locker":                            locker(nil, 0),
		"a negative minimum":                   locker(l, -1),
		"a minimum as long as the longest":     locker(l, time.Minute, redlock.WithMaxHold(time.Minute)),
		"a minimum that outlasts the lease":    locker(l, 5*time.Second, redlock.WithoutRenewal()),
		"re-entry":                             locker(l, 0, redlock.WithReentry()),
		"a TTL that is too long":               locker(l, 0, redlock.WithTTL(time.Hour)),
		"a lock that cannot be":                noLock,
		"a job that cannot be":                 noJob,
		"a wrapper without a Locker":           wrapper(nil, "r"),
		"a wrapper without a name":             wrapper(l, ""),
		"a wrapper with re-entry":              wrapper(l, "r", redlock.WithReentry()),
		"a job without a name":                 job("", run),
		"a job that is nil":                    job("r", nil),
		"a job with a TTL that is too long":    job("r", run, redlock.WithTTL(time.Hour)),
		"a job with a name of the library's":   job("r~queue", run),
		"a wrapper with a name of the library": wrapper(l, "r~queue"),
	} {
		wantMatch(t, name, err, []error{redlock.ErrConfig})
	}
	for name, err := range map[string]error{
		"a minimum below the longest":   locker(l, time.Minute-1, redlock.WithMaxHold(time.Minute)),
		"a minimum well within the TTL": locker(l, 5*time.Second-1, redlock.WithoutRenewal()),
	} {
		if err != nil {
			t.Errorf("%s: got %v, want no error", name, err)
		}
	}
}
