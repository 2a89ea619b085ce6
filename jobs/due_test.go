package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/virtual"
	"github.com/d0720281/redlock/jobs"
	"github.com/d0720281/redlock/semaphore"
)

// A due time that was run is refused within the window, although the process that ran it was closed. After
// the window it is too late, and no master is asked.
func TestVirtualLate(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		var log locktest.Records
		l := b.Locker()
		here, there := newLockerWith(t, l), newLockerWith(t, b.WarmLocker(redlock.WithLogger(slog.New(&log))))
		if got := here.Window(); got != 5*time.Second {
			t.Errorf("Window: got %v, want 5s", got)
		}
		due := time.Now()
		lock, err := here.LockAt(t.Context(), "r", due)
		locktest.Must(t, err)
		locktest.Must(t, lock.Unlock(t.Context()))
		locktest.Must(t, l.Close())
		for _, late := range []time.Duration{0, time.Second, 5 * time.Second} {
			time.Sleep(time.Until(due.Add(late)))
			_, err := there.LockAt(t.Context(), "r", due)
			locktest.WantMatch(t, "LockAt "+late.String()+" late", err, []error{redlock.ErrTaken}, jobs.ErrLate)
		}
		time.Sleep(time.Millisecond)
		for _, n := range b.Nodes {
			n.ForgetCalls()
		}
		for range 3 {
			_, err = there.LockAt(t.Context(), "r", due)
			locktest.WantMatch(t, "LockAt after the window", err, []error{redlock.ErrNotAcquired, jobs.ErrLate}, redlock.ErrTaken)
		}
		if _, err = there.LockAt(t.Context(), "r", time.Time{}.Add(1)); !strings.Contains(err.Error(), "due at 0001-01-01T00:00:00.000000001Z, and the clock of this machine has 2000-01-01T00:00:05.001") {
			t.Errorf("a due time in the year 1: got %v, want both times", err)
		}
		if _, err = there.LockAt(t.Context(), strings.Repeat("r", 600), due); !errors.Is(err, redlock.ErrConfig) || strings.Contains(err.Error(), "\n") {
			t.Errorf("a name that is too long: got %v, want one line", err)
		}
		b.WantCalls("acquire", 0)
		if got := len(log.With("left out")); got != 2 {
			t.Errorf("got %d lines in the log about runs that are left out, want one for each of two jobs", got)
		}
		next, err := there.LockAt(t.Context(), "r", due.Add(2*time.Second))
		locktest.Must(t, err)
		locktest.Must(t, next.Unlock(t.Context()))
	})
}

// A machine that stops after it has asked for the record, and wakes after the window, gives the record back.
func TestVirtualLateMeanwhile(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		j, due, looks := newLockerWith(t, b.WarmLocker()), time.Now(), 0
		j.SetClock(func() time.Time {
			if looks++; looks > 2 { // before the wait for the due time, before the request, after it
				return time.Now().Add(6 * time.Second)
			}
			return time.Now()
		})
		_, err := j.LockAt(t.Context(), "r", due)
		locktest.WantMatch(t, "LockAt", err, []error{jobs.ErrLate})
		lock, err := newLockerWith(t, b.WarmLocker()).LockAt(t.Context(), "r", due)
		locktest.Must(t, err)
		locktest.Must(t, lock.Unlock(t.Context()))
	})
}

// RunAt waits for the due time, for a window at most.
func TestVirtualEarly(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		j, begin := newLockerWith(t, l), time.Now()
		due := begin.Add(5 * time.Second)
		ended, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := j.LockAt(ended, "r", due)
		locktest.WantMatch(t, "LockAt for a second", err, []error{context.DeadlineExceeded})
		locktest.WantSince(t, "LockAt for a second", begin, time.Second)
		lock, err := j.LockAt(t.Context(), "r", due)
		locktest.Must(t, err)
		if lock.Owner() == "" || time.Now().Before(due) || time.Now().After(due.Add(time.Second)) {
			t.Errorf("got the lock at %v, want it at %v", time.Now(), due)
		}
		locktest.Must(t, lock.Unlock(t.Context()))
		time.AfterFunc(time.Second, func() { _ = l.Close() })
		_, err = j.LockAt(t.Context(), "r", time.Now().Add(3*time.Second))
		locktest.WantMatch(t, "LockAt while the Locker is closed", err, []error{redlock.ErrClosed})
	})
}

// An error about an argument names the function that was called, as it does in the log, and comes before any master
// is asked.
func TestErrorsNameTheFunction(t *testing.T) {
	var log locktest.Records
	l := locktest.Open(t, []string{"127.0.0.1:1"}, redlock.WithLogger(slog.New(&log)))
	j := newLockerWith(t, l)
	run := func(context.Context, *redlock.Lease) error { return nil }
	withPermit := func(context.Context, *semaphore.Lease) error { return nil }
	var none context.Context
	for name, call := range map[string]func(ctx context.Context, job string) error{
		"Lock": func(ctx context.Context, job string) error { _, err := j.Lock(ctx, job); return err },
		"LockAt": func(ctx context.Context, job string) error {
			_, err := j.LockAt(ctx, job, time.Now())
			return err
		},
		"Run":   func(ctx context.Context, job string) error { return j.Run(ctx, job, run) },
		"RunAt": func(ctx context.Context, job string) error { return j.RunAt(ctx, job, time.Now(), run) },
		"RunWithPermit": func(ctx context.Context, job string) error {
			return j.RunWithPermit(ctx, job, 1, withPermit)
		},
		"RunWithPermitAt": func(ctx context.Context, job string) error {
			return j.RunWithPermitAt(ctx, job, time.Now(), 1, withPermit)
		},
	} {
		for what, err := range map[string]error{
			"no name":     call(t.Context(), ""),
			"a long name": call(t.Context(), strings.Repeat(name[:1], 600)),
			"a queue":     call(t.Context(), name+"~queue"),
			"no context":  call(none, "r"),
		} {
			locktest.WantMatch(t, name+" with "+what, err, []error{redlock.ErrConfig})
			if want := "redlock: invalid configuration: jobs: " + name + ": "; !strings.HasPrefix(fmt.Sprint(err), want) || strings.Contains(fmt.Sprint(err), "CheckResource") {
				t.Errorf("%s with %s: got %v, want %q in front", name, what, err, want)
			}
		}
	}
	for _, line := range log.With("left out") {
		if text := fmt.Sprint(line); !strings.Contains(text, "configuration: jobs: ") {
			t.Errorf("got the line %s, want the same error", text)
		}
	}
	if n := l.Stats().Masters[0]; n.State != redlock.MasterUntried {
		t.Errorf("got a node that is %v, want it not asked", n.State)
	}
}

func TestBadDueTimes(t *testing.T) {
	var log locktest.Records
	l := locktest.Open(t, []string{"127.0.0.1:1"}, redlock.WithLogger(slog.New(&log)))
	j := newLockerWith(t, l)
	at := func(ctx context.Context, job string, due time.Time) error {
		_, err := j.LockAt(ctx, job, due)
		return err
	}
	var none context.Context
	soon := time.Now().Add(4 * time.Second)
	for name, err := range map[string]error{
		"no due time":            at(t.Context(), "r", time.Time{}),
		"one far ahead":          at(t.Context(), "r", time.Now().Add(time.Minute)),
		"no context":             at(none, "r", time.Now()),
		"a name of the library":  at(t.Context(), "r~queue", time.Now()),
		"a name that is so long": at(t.Context(), strings.Repeat("r", redlock.MaxResourceLength-5), time.Now()),
		"no job":                 j.RunAt(t.Context(), "r", time.Now(), nil),
		"no job with a permit":   j.RunWithPermitAt(t.Context(), "r", time.Now(), 1, nil),
		"no permits":             j.RunWithPermitAt(t.Context(), "r with permits", soon, 0, func(context.Context, *semaphore.Lease) error { return nil }),
	} {
		locktest.WantMatch(t, name, err, []error{redlock.ErrConfig}, redlock.ErrNotAcquired)
	}
	if got := len(log.With("left out")); got != 4 {
		t.Errorf("got %d lines in the log, want one for each job: schedulers drop the error", got)
	}
	if !time.Now().Before(soon) {
		t.Error("got an error after the due time, want it at once")
	}
	if n := l.Stats().Masters[0]; n.State != redlock.MasterUntried {
		t.Errorf("got a node that is %v, want it not asked", n.State)
	}
}

// A run that is due while the former one is under way is left out on this machine. Its record is given back:
// a machine that calls within the window, after the former run, makes it.
func TestVirtualFormerRun(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		here, there := newLockerWith(t, b.WarmLocker()), newLockerWith(t, b.WarmLocker())
		first := time.Now()
		second := first.Add(2 * time.Second)
		lock, err := here.LockAt(t.Context(), "r", first)
		locktest.Must(t, err)
		time.Sleep(time.Until(second))
		_, err = there.LockAt(t.Context(), "r", second)
		locktest.WantMatch(t, "LockAt during the former run", err, []error{redlock.ErrTaken})
		locktest.Must(t, there.RunAt(t.Context(), "r", second, func(context.Context, *redlock.Lease) error {
			t.Error("two runs at a time")
			return nil
		}))
		time.Sleep(2 * time.Second)
		locktest.Must(t, lock.Unlock(t.Context()))
		ran := 0
		for range 2 {
			locktest.Must(t, there.RunAt(t.Context(), "r", second, func(context.Context, *redlock.Lease) error { ran++; return nil }))
		}
		if ran != 1 {
			t.Errorf("got %d runs after the former one, want 1", ran)
		}
	})
}

// A run that is due while masters are in quarantine waits for them, on one machine of all, and is not late
// then. A machine that is stopped meanwhile for more than the window is late.
func TestVirtualDueInQuarantine(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		var all []*jobs.Locker
		for range 3 {
			all = append(all, newLockerWith(t, b.WarmLocker()))
		}
		impatient, stopped := newLockerWith(t, b.WarmLocker(), redlock.WithQuarantineWait(0)), newLockerWith(t, b.WarmLocker())
		b.All((*virtual.Node).RestartEmpty)
		time.Sleep(time.Hour)
		due := time.Now()
		_, err := impatient.LockAt(t.Context(), "r", due)
		locktest.WantMatch(t, "LockAt without patience", err, []error{redlock.ErrQuarantine})
		short, cancel := context.WithTimeout(t.Context(), 9*time.Second)
		defer cancel()
		_, err = stopped.LockAt(short, "r", due)
		locktest.WantMatch(t, "LockAt with a deadline", err, []error{redlock.ErrQuarantine})
		locktest.WantWithin(t, "LockAt with a deadline", due, time.Second)
		stopped.SetClock(func() time.Time {
			if time.Since(due) < 2*time.Second {
				return time.Now()
			}
			return time.Now().Add(6 * time.Second)
		})
		var running sync.WaitGroup
		var ran atomic.Int32
		run := func(context.Context, *redlock.Lease) error { ran.Add(1); return nil }
		for _, j := range all {
			running.Go(func() { locktest.Must(t, j.RunAt(t.Context(), "r", due, run)) })
		}
		running.Go(func() {
			err := stopped.RunAt(t.Context(), "alone", due, func(context.Context, *redlock.Lease) error {
				t.Error("a run that is too late was made")
				return nil
			})
			locktest.WantMatch(t, "RunAt on a machine that was stopped", err, []error{jobs.ErrLate})
		})
		running.Wait()
		synctest.Wait()
		if ran.Load() != 1 {
			t.Errorf("got %d runs, want 1", ran.Load())
		}
		if took := time.Since(due); took < 10*time.Second || took > 12*time.Second {
			t.Errorf("the runs took %v, want the quarantine", took)
		}
	})
}

// A quorum in quarantine is waited for once more if it loses its data meanwhile, but not for ever.
func TestVirtualDueInQuarantines(t *testing.T) {
	for _, restarts := range []int{2, 3} {
		locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
			j := newLockerWith(t, b.WarmLocker())
			b.All((*virtual.Node).RestartEmpty)
			time.Sleep(time.Hour)
			for i := 1; i < restarts; i++ {
				time.AfterFunc(time.Duration(i)*9*time.Second, func() { b.All((*virtual.Node).Kill) })
				time.AfterFunc(time.Duration(i)*9*time.Second+30*time.Millisecond, func() { b.All((*virtual.Node).RestartEmpty) })
			}
			lock, err := j.LockAt(t.Context(), "r", time.Now())
			switch {
			case restarts == 2:
				locktest.Must(t, err)
				locktest.Must(t, lock.Unlock(t.Context()))
			case !errors.Is(err, redlock.ErrQuarantine):
				t.Errorf("%d restarts: got %v, want ErrQuarantine", restarts, err)
			}
		})
	}
}

// Due finds the due time for which a scheduler calls.
func TestDue(t *testing.T) {
	at := func(text string) time.Time {
		t.Helper()
		is, err := time.Parse(time.DateTime, text)
		locktest.Must(t, err)
		return is
	}
	for _, test := range []struct {
		schedule  jobs.Schedule
		now, want string
	}{
		{jobs.Every(time.Minute), "2026-11-27 03:00:00", "2026-11-27 03:00:00"},
		{jobs.Every(time.Minute), "2026-11-27 02:59:59.899", "2026-11-27 02:59:00"},
		{jobs.Every(time.Minute), "2026-11-27 02:59:59.9", "2026-11-27 03:00:00"},
		{jobs.Every(24 * time.Hour), "2026-11-27 09:00:00", "2026-11-27 00:00:00"},
		{relative(time.Second), "2026-11-27 03:00:00.7", "2026-11-27 03:00:00"}, // each full second, on every machine
		{daily{at("2020-02-29 03:00:00")}, "2020-02-29 09:00:00", "2020-02-29 03:00:00"},
	} {
		if got := jobs.Due(test.schedule, at(test.now)); !got.Equal(at(test.want)) {
			t.Errorf("%v at %s: got %v, want %s", test.schedule, test.now, got, test.want)
		}
	}
	fine := counted{jobs.Every(1), new(int)}
	if got, want := jobs.Due(fine, at("2026-11-27 03:00:00")), at("2026-11-27 03:00:00.1"); !got.Equal(want) || *fine.asked > 10_000 {
		t.Errorf("an interval of 1 ns: got %v after %d calls of Next, want %v after few", got, *fine.asked, want)
	}
	for _, schedule := range []jobs.Schedule{never{}, jobs.Every(0), jobs.Every(-time.Second), stuck{}, relative(2 * time.Second), relative(5 * time.Minute)} {
		if got := jobs.Due(schedule, time.Now()); !got.IsZero() {
			t.Errorf("%#v, a schedule without due times: got %v, want none", schedule, got)
		}
	}
}

// counted counts how often it is asked.
type counted struct {
	jobs.Schedule
	asked *int
}

func (c counted) Next(t time.Time) time.Time {
	*c.asked++
	return c.Schedule.Next(t)
}

// relative is the schedule of "@every" in cron: it counts from when it is asked.
type relative time.Duration

func (r relative) Next(t time.Time) time.Time {
	return t.Add(time.Duration(r)).Truncate(time.Second)
}

type never struct{}

func (never) Next(time.Time) time.Time { return time.Time{} }

type stuck struct{}

func (stuck) Next(after time.Time) time.Time { return after }
