package jobs_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/internal/virtual"
	"github.com/d0720281/redlock/jobs"
)

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
		_, err := j.Lock(t.Context(), "r", jobs.At(due))
		locktest.WantMatch(t, "Lock", err, []error{jobs.ErrLate})
		if word := redlock.Reason(err); word != "too_late" {
			t.Errorf("Lock: got the reason %q, want too_late", word)
		}
		j = newLockerWith(t, b.WarmLocker())
		lock, err := j.Lock(t.Context(), "r", jobs.At(due))
		locktest.Must(t, err)
		locktest.Must(t, lock.Unlock(t.Context()))
		if _, err = j.Lock(t.Context(), "r", jobs.At(time.Time{}.Add(1))); !strings.Contains(fmt.Sprint(err), "due at 0001-01-01T00:00:00.000000001Z, and the clock of this machine has 2000-01-01T00:00:") {
			t.Errorf("a due time in the year 1: got %v, want both times", err)
		}
	})
}

// An error about an argument names the function that was called, as it does in the log, and comes before any master
// is asked.
func TestErrorsNameTheFunction(outer *testing.T) {
	t := redistest.Timed(outer)
	var log locktest.Records
	l := locktest.Open(t, []string{"127.0.0.1:1"}, redlock.WithLogger(slog.New(&log)))
	j := newLockerWith(t, l)
	run := func(context.Context, *redlock.Lease) error { return nil }
	var none context.Context
	for name, call := range map[string]func(ctx context.Context, job string, opts ...jobs.Option) error{
		"Lock": func(ctx context.Context, job string, opts ...jobs.Option) error {
			_, err := j.Lock(ctx, job, opts...)
			return err
		},
		"Run": func(ctx context.Context, job string, opts ...jobs.Option) error { return j.Run(ctx, job, run, opts...) },
	} {
		soon := time.Now().Add(4 * time.Second)
		for with, opts := range map[string][]jobs.Option{
			"": nil, "At": {jobs.At(soon)}, "Permits": {jobs.Permits(1)}, "both": {jobs.Permits(1), jobs.At(soon)},
		} {
			for what, err := range map[string]error{
				"no name":       call(t.Context(), "", opts...),
				"a long name":   call(t.Context(), strings.Repeat(name[:1], 600), opts...),
				"a queue":       call(t.Context(), name+"~queue", opts...),
				"no context":    call(none, "r", opts...),
				"a nil option":  call(t.Context(), "r", append(opts, nil)...),
				"no permits":    call(t.Context(), "r", append(opts, jobs.Permits(0))...),
				"no due time":   call(t.Context(), "r", append(opts, jobs.At(time.Time{}))...),
				"one far ahead": call(t.Context(), "r", append(opts, jobs.At(time.Now().Add(time.Minute)))...),
				"a long record": call(t.Context(), strings.Repeat(name[:1], redlock.MaxResourceLength-9), append(opts, jobs.At(soon))...),
			} {
				locktest.WantMatch(t, name+" "+with+" with "+what, err, []error{redlock.ErrConfig}, redlock.ErrNotAcquired)
				if want := "redlock: invalid configuration: jobs: " + name + ": "; !strings.HasPrefix(fmt.Sprint(err), want) || strings.ContainsAny(fmt.Sprint(err), "\n") || strings.Contains(fmt.Sprint(err), "CheckResource") {
					t.Errorf("%s %s with %s: got %v, want %q in front", name, with, what, err, want)
				}
			}
		}
		if !time.Now().Before(soon) {
			t.Errorf("%s: got errors after the due time, want them at once", name)
		}
	}
	if got := len(log.With("left out")); got != 8 {
		t.Errorf("got %d lines in the log, want one for each of the eight jobs: schedulers drop the error", got)
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

// A machine that is stopped for more than the window while it waits for masters in quarantine is late.
func TestVirtualStoppedInQuarantine(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		stopped := newLockerWith(t, b.WarmLocker())
		b.All((*virtual.Node).RestartEmpty)
		time.Sleep(time.Hour)
		due := time.Now()
		stopped.SetClock(func() time.Time {
			if time.Since(due) < 2*time.Second {
				return time.Now()
			}
			return time.Now().Add(6 * time.Second)
		})
		err := stopped.Run(t.Context(), "alone", func(context.Context, *redlock.Lease) error {
			t.Error("a run that is too late was made")
			return nil
		}, jobs.At(due))
		locktest.WantMatch(t, "Run on a machine that was stopped", err, []error{jobs.ErrLate})
	})
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
