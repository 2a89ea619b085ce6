// Package jobs makes each run of a scheduled job on one machine of several.
//
// # Promise
//
// [Locker.RunAt] is given the time at which a run is due. Over all machines each due time is run at
// most once, also where a machine was suspended or stopped, or has a clock that is behind. It is not
// left out while a machine is awake that can reach the masters. The rule has one number, the
// [Locker.Window], which is 5 s by default:
//
//   - A run begins within the window after its due time, by the clock of the machine. After that it
//     is refused with [ErrLate].
//   - The masters keep a record of each due time that was run, for about twice the window, also after
//     the process has died. So the clocks of two machines may differ by nearly a window: by 4.8 s.
//
// The job also runs on one machine at a time, by a lock of its own, but only during the validity of
// its lease. A run that was paused can go on after its lease has ended, beside the run of the next
// due time. The store has to refuse the writes of the first one by the fencing token, see
// [redlock.Lease.Fence].
//
// # Limits
//
// A due time is left out if the former run is still under way, and if a machine dies or is stopped
// after it has begun the run. It can be run twice if a quorum of the masters loses its data within
// twice the window after the first run: with [redlock.WithQuarantineWait] of 0 it is left out
// instead.
//
// # Schedulers
//
// [Locker.RunAt] fits every scheduler. A scheduler that does not tell which run is due has a [Schedule], from
// which [Due] finds it. A scheduler that takes locks itself gets them from [Locker.LockAt], by an
// adapter of a few lines: the examples have one for gocron and one for robfig/cron. The package
// imports no scheduler, so that it adds no dependency.
package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/door"
	"github.com/d0720281/redlock/internal/inside"
	"github.com/d0720281/redlock/semaphore"
)

const (
	longestTry   = 500 * time.Millisecond // for the lock of one run
	firstPause   = 2 * time.Millisecond   // at most, before the second try
	longestPause = 100 * time.Millisecond // between two tries

	quarantines = 2 // that the lock of one run waits for: a master may lose its data once more meanwhile
)

// ErrLate is matched by the error of a run that did not begin within [Locker.Window] after its due
// time. Another machine may have made the run. [redlock.Reason] returns "too_late".
var ErrLate error = tooLate{}

type tooLate struct{}

func (tooLate) Error() string  { return "too late for the run" }
func (tooLate) Reason() string { return "too_late" }

// Locker takes the locks of jobs. Call [New] to make one: methods of a nil or zero Locker panic. A Locker is safe for concurrent use.
type Locker struct {
	locker   *redlock.Locker
	settings door.Settings // of the locks of jobs
	opts     []redlock.LockOption
	now      func() time.Time // the wall clock

	mu     sync.Mutex
	failed map[string]bool // guarded by mu; jobs whose last run was left out for an error
}

// New returns a Locker that takes leases of locker with opts. The lease of a job is renewed while
// the job runs, however long that takes. [redlock.Locker.Close] waits for 10 s for a run. If the
// process crashes, the lock of the job stays for the rest of its TTL, and due times are left out
// until then. With [redlock.WithoutRenewal] or [redlock.WithMaxHold] a run that takes longer than
// the lease loses it. [redlock.WithMinHold] counts for [Locker.Run], [Locker.Lock] and
// [Locker.RunWithPermit] alone.
//
// A run that is due while masters are in quarantine waits for them, for two quarantines at most,
// which is 20.6 s by default, or for the value of [redlock.WithQuarantineWait] in opts. Without
// that, masters that all restarted during the day would keep the job from running on any machine at
// night: their quarantine counts from the first question. That wait does not make a run late.
//
// New sends nothing to any master. It returns an error that matches [redlock.ErrConfig] if
// locker is nil; if [redlock.Locker.Lock] would refuse opts; and with [redlock.WithReentry] or
// [redlock.Shared], which would let a job run twice.
func New(locker *redlock.Locker, opts ...redlock.LockOption) (*Locker, error) {
	if !door.Made(locker) {
		return nil, configError("New: the Locker is nil, or was not made by New")
	}
	settings, err := inside.Of(locker).Settings(opts...)
	if err == nil {
		wait := redlock.WithQuarantineWait(quarantines * settings.Quarantine)
		opts = slices.Concat([]redlock.LockOption{wait}, opts)
		settings, err = inside.Of(locker).Settings(opts...)
	}
	switch {
	case err != nil:
		return nil, named("New", err)
	case settings.Reentry || settings.Shared:
		return nil, configError("New: WithReentry and Shared would let a job run twice")
	}
	return &Locker{locker: locker, settings: settings, opts: opts, now: time.Now, failed: make(map[string]bool)}, nil
}

// made returns the Locker, and panics if New has not made it.
func (l *Locker) made() *Locker {
	if l == nil || l.locker == nil {
		panic("jobs: the Locker was not made by New")
	}
	return l
}

func configError(text string) error {
	return fmt.Errorf("%w: jobs: %s", redlock.ErrConfig, text)
}

// named returns err as it is, but an ErrConfig with the name of the function that was called.
func named(name string, err error) error {
	if !errors.Is(err, redlock.ErrConfig) {
		return err
	}
	text := strings.TrimPrefix(err.Error(), redlock.ErrConfig.Error()+": ")
	return configError(name + ": " + strings.TrimPrefix(text, "TryLock: "))
}

// Window returns how long after its due time a run may begin: half of [redlock.WithMaxTTL], which is
// 5 s by default. All machines must have the same.
//
// The masters keep the record of a run for a whole MaxTTL from when it begins, whatever becomes of
// the process. A machine that comes later than the window refuses the run by its own clock. The other
// half, less what clocks run apart in that time, is for the difference between the clocks of two
// machines.
func (l *Locker) Window() time.Duration { return l.made().settings.MaxTTL / 2 }

// Schedule has the due times of a job. All machines must have the same: a time of day needs the same
// time zone everywhere. A Schedule of robfig/cron is one, except that of an interval ("@every"): it
// counts from the start of the process. That of "@every 1s" is due at each full second, and is one.
type Schedule interface {
	Next(after time.Time) time.Time // the first due time after that; zero for none
}

// Every is the Schedule of a positive interval, in step on all machines: the due times are the multiples
// of the interval since the year 1, UTC, as [time.Time.Truncate] counts them. The scheduler must
// call at these times. Any other interval has no due times.
type Every time.Duration

// Next implements [Schedule].
func (e Every) Next(after time.Time) time.Time {
	if e <= 0 {
		return time.Time{}
	}
	return after.Truncate(time.Duration(e)).Add(time.Duration(e))
}

// Due returns the last due time of a schedule that is not after now, for a scheduler that calls when
// a run is due, but does not tell which one. A due time up to 100 ms after now counts, because the
// clock may have been set back after the scheduler set its timer.
//
// now is in the time zone in which the scheduler counts: a Schedule of robfig/cron takes a time of day in
// the zone of the time that it is given.
//
// Due looks back for ten years. It returns the zero Time, which RunAt refuses, if nothing was due, if s
// is nil, or if a time that Next returns is not after the one that Next was given. It also does so if
// the times depend on when Next is called, as those of "@every 5m" in cron: two machines would have
// different ones. Those of "@every 1s" do not. [Every] is the schedule of an interval.
func Due(s Schedule, now time.Time) (due time.Time) {
	now = now.Add(100 * time.Millisecond).Round(0)
	var before time.Time // from which Next led to due
	for back := time.Microsecond; s != nil && due.IsZero() && back < math.MaxInt64/16; back *= 2 {
		last := now.Add(-back)
		for next := s.Next(last); !next.IsZero() && !next.After(now); next = s.Next(next) {
			if !next.After(last) {
				return time.Time{}
			}
			before, due, last = last, next, next
		}
	}
	if due.IsZero() {
		return due
	}
	delay := due.Sub(before)
	later := before.Add(delay / 2)
	if next := s.Next(later); !next.Equal(due) && (next.Sub(later)-delay).Abs() <= time.Second { // it counts from when it is asked
		return time.Time{}
	}
	return due
}

// RunAt makes the run of a job that is due at a time, on one machine. Every machine calls RunAt for
// every due time, with the same name and the same time, to the millisecond. The name of the job is a
// resource, see [redlock.Locker.Lock], and so is the name with "@" and the due time in
// milliseconds behind it: the record of the run.
//
// RunAt waits for the due time if the machine's clock is not there yet, for a window at most. It
// calls run if no machine has made the run, and the former run is over. It does nothing, and returns
// nil, if another machine has the run, or if the former run is still under way: the errors of
// [Locker.LockAt] that match [redlock.ErrTaken]. Otherwise, if this machine did not get the run,
// RunAt returns the error of LockAt.
//
// The context of run ends with ctx, with the lease or by [redlock.Locker.Close], whichever is first.
// When run returns or panics, the lock ends as by [Lock.Unlock]. RunAt returns the error of run,
// joined with the error of [redlock.Lease.Unlock]: it matches [redlock.ErrNotHeld] if the lease was
// lost before run returned, and [redlock.ErrNoQuorum] if no quorum confirmed the release. A nil run
// gives an error that matches [redlock.ErrConfig].
//
// An error that keeps a job from running is logged, see [Locker.Lock]; so is a lost lease.
func (l *Locker) RunAt(ctx context.Context, job string, due time.Time, run func(ctx context.Context, lease *redlock.Lease) error) error {
	return l.run(ctx, "RunAt", run, func() (*Lock, error) { return l.lockAt(ctx, "RunAt", job, due) })
}

// LockAt takes the lock of a job for the run that is due at a time, as [Locker.RunAt] does, for a
// scheduler that calls the job itself and Unlock then. With the lock the run counts as made.
//
// The errors are those of [Locker.Lock]. The error also matches [ErrLate] if the run is more than
// the window late, and [redlock.ErrConfig] if due is zero, or is more than the window ahead of the
// machine's clock. After an error no run has been made by this call. If the error does not match
// ErrTaken, another machine can still make the run.
func (l *Locker) LockAt(ctx context.Context, job string, due time.Time) (*Lock, error) {
	return l.lockAt(ctx, "LockAt", job, due)
}

func (l *Locker) lockAt(ctx context.Context, name, job string, due time.Time) (*Lock, error) {
	l.made()
	lease, err := at(ctx, l, name, job, due, func(record string, opts []redlock.LockOption) (*redlock.Lease, error) {
		return l.locker.TryLock(ctx, record, opts...)
	}, func(opts []redlock.LockOption) (*redlock.Lease, error) { return l.locker.TryLock(ctx, job, opts...) })
	return l.lock(ctx, lease, err)
}

// RunWithPermitAt is [Locker.RunAt] for a job that may run on several machines at a time: each due
// time is run at most permits times, see [Locker.RunWithPermit].
func (l *Locker) RunWithPermitAt(ctx context.Context, job string, due time.Time, permits int, run func(ctx context.Context, lease *semaphore.Lease) error) error {
	acquire := func(of string, opts []redlock.LockOption) (*semaphore.Lease, error) {
		permitsOf, err := semaphore.New(l.locker, of, permits, opts...)
		if err != nil {
			return nil, err
		}
		return permitsOf.TryAcquire(ctx, 1)
	}
	const name = "RunWithPermitAt"
	return l.runWithPermit(ctx, name, job, run, func() (*semaphore.Lease, error) {
		if _, err := semaphore.New(l.locker, job, permits, l.opts...); err != nil { // before the wait for the due time
			return nil, named(name, err)
		}
		return at(ctx, l, name, job, due, func(record string, opts []redlock.LockOption) (*redlock.Lease, error) {
			lease, err := acquire(record, opts)
			if err != nil {
				return nil, err
			}
			return lease.Parts()[0], nil
		}, func(opts []redlock.LockOption) (*semaphore.Lease, error) { return acquire(job, opts) })
	})
}

// at takes the record of a run, by claim, and then the lock of the job, by take. Only then does it leave
// the record to the masters: without the lock it gives the record back. If the process dies in between,
// the record stays, and the run is left out.
func at[L interface{ Unlock(context.Context) error }](ctx context.Context, l *Locker, name, job string, due time.Time,
	claim func(record string, opts []redlock.LockOption) (*redlock.Lease, error), take func(opts []redlock.LockOption) (L, error)) (none L, err error) {
	defer func() {
		if errors.Is(err, redlock.ErrConfig) { // no machine makes the run, and schedulers drop the error
			l.note(ctx, job, err)
		}
	}()
	if ctx == nil {
		return none, configError(name + ": ctx is nil")
	}
	due = due.Round(0) // the monotonic clock stands still while the machine is suspended
	early, record := due.Sub(l.now()), job+"@"+strconv.FormatInt(due.UnixMilli(), 10)
	of := inside.Of(l.locker)
	switch err := cmp.Or(of.CheckResource("jobs: "+name, job), of.CheckResource("jobs: "+name, record)); {
	case err != nil:
		return none, err
	case due.IsZero() || early > l.Window():
		return none, configError(name + ": due at " + due.Format(time.RFC3339Nano) + ": is zero, or further ahead of the machine's clock than " + l.Window().String())
	case early > 0:
		l.sleep(ctx, early) // the first request finds out whether ctx or the Locker has ended
	}
	keep := slices.Concat(l.opts, []redlock.LockOption{
		redlock.WithTTL(l.settings.MaxTTL), redlock.WithoutRenewal(), redlock.WithMaxHold(math.MaxInt64), redlock.WithMinHold(0)})
	var wait, waited, voteless time.Duration // voteless: of wait, for which no machine can get the record
	recorded, err := try(ctx, l, job, longestTry, func() (*redlock.Lease, error) {
		for {
			if err := l.late(due, waited); err != nil {
				return nil, err
			}
			began := time.Now()
			lease, err := claim(record, append(keep, redlock.WithQuarantineWait(wait)))
			waited += min(time.Since(began), voteless)
			var verdict *redlock.QuorumError
			switch refused := errors.As(err, &verdict) && l.settings.QuarantineWait > 0; {
			case err == nil:
				if err := l.late(due, waited); err != nil { // the record of an earlier run can be over by now
					_ = lease.Unlock(ctx)
					return nil, err
				}
				return lease, nil
			case refused && errors.Is(err, redlock.ErrQuarantine) && verdict.VotesIn() > 0 && l.mayWait(ctx, waited, verdict.VotesIn()):
				voteless = verdict.VotesIn()
			case refused && errors.Is(err, redlock.ErrTaken) && wait == 0 && slices.ContainsFunc(verdict.Masters, quarantined):
				voteless = 0 // TryLock looks again whether it was a holder that refused it
			default:
				wait, voteless = 0, 0 // the next try looks first how long the masters have no vote
				return nil, err
			}
			wait = voteless + time.Second
		}
	})
	if err != nil {
		return none, err
	}
	lease, err := try(ctx, l, job, longestTry, func() (L, error) { return take(append(slices.Clip(l.opts), redlock.WithMinHold(0))) })
	if err != nil {
		_ = recorded.Unlock(ctx)
		return none, err
	}
	if _, err := recorded.Detach(); err != nil { // another machine may have the record by now
		_ = lease.Unlock(ctx)
		l.note(ctx, job, err)
		return none, fmt.Errorf("jobs: %w: the record of the run: %w", redlock.ErrNotAcquired, err)
	}
	return lease, nil
}

// mayWait reports whether a call that has waited for masters in quarantine may wait on for so long.
func (l *Locker) mayWait(ctx context.Context, waited, more time.Duration) bool {
	end, limited := ctx.Deadline()
	return waited+more <= l.settings.QuarantineWait && !(limited && time.Until(end) < more)
}

func quarantined(m *redlock.MasterError) bool { return m.Quarantine > 0 }

// late returns an error if it is too late for the run that is due at a time. That the run waited for masters
// in quarantine does not count.
func (l *Locker) late(due time.Time, waited time.Duration) error {
	if now := l.now().Round(0); now.Sub(due)-waited > l.Window() { // which is the largest Duration after centuries
		return fmt.Errorf("jobs: %w: %w: due at %s, and the clock of this machine has %s: more than %v later",
			redlock.ErrNotAcquired, ErrLate, due.Format(time.RFC3339Nano), now.Format(time.RFC3339Nano), l.Window())
	}
	return nil
}

// Run is [Locker.RunAt] for work that has no due time: it calls run if no machine has the lock of
// the job. The runs of a schedule need RunAt: with Run a machine that comes late makes a run once
// more, or has the lock when the next run is due, so that all machines leave that one out.
func (l *Locker) Run(ctx context.Context, job string, run func(ctx context.Context, lease *redlock.Lease) error) error {
	return l.run(ctx, "Run", run, func() (*Lock, error) { return l.lockNow(ctx, "Run", job) })
}

func (l *Locker) run(ctx context.Context, name string, run func(ctx context.Context, lease *redlock.Lease) error, take func() (*Lock, error)) (err error) {
	if run == nil {
		return configError(name + ": run is nil")
	}
	lock, err := take()
	switch {
	case errors.Is(err, redlock.ErrTaken):
		return nil
	case err != nil:
		return err
	}
	defer func() {
		if unlockErr := lock.Unlock(ctx); unlockErr != nil {
			err = errors.Join(err, unlockErr)
		}
	}()
	runCtx, cancel := lock.Within(ctx)
	defer cancel()
	return run(runCtx, lock.Lease)
}

// Lock takes the lock of a job, without a due time: see [Locker.Run]. The name of the job is the
// resource. Lock does not wait for another holder. It waits for masters in quarantine, see [New].
// While masters do not answer, or some of them still grant, it tries again for half a second, or for
// half of the minimum hold if that is shorter.
//
// The errors are those of [redlock.Locker.TryLock]. An error that matches [redlock.ErrTaken] is no
// alarm. Any other error is logged, see [redlock.WithLogger]: once per job, until a run of the job
// gets its lock again, or a quorum of the masters has it for another machine.
//
// A scheduler gives the job a context of its own, which does not end when the lease is lost. Use
// [Locker.RunAt] for a job that has to know. [redlock.Locker.Close] keeps the lock until Unlock, for
// 10 s at most.
func (l *Locker) Lock(ctx context.Context, job string) (*Lock, error) {
	return l.lockNow(ctx, "Lock", job)
}

func (l *Locker) lockNow(ctx context.Context, name, job string) (*Lock, error) {
	l.made()
	lease, err := try(ctx, l, job, l.limit(), func() (*redlock.Lease, error) {
		lease, err := l.locker.TryLock(ctx, job, l.opts...)
		return lease, named(name, err)
	})
	return l.lock(ctx, lease, err)
}

func (l *Locker) lock(ctx context.Context, lease *redlock.Lease, err error) (*Lock, error) {
	if err != nil {
		return nil, err
	}
	_, over := lease.Within(ctx)
	return &Lock{Lease: lease, of: l, over: over}, nil
}

// limit returns how long to try for a lock without a due time.
func (l *Locker) limit() time.Duration {
	if hold := l.settings.MinHold; hold > 0 {
		return min(longestTry, hold/2) // or the run of another machine could be over
	}
	return longestTry
}

// RunWithPermit is [Locker.Run] for a job that may run on several machines at a time: on at most
// permits of them, from 1 to [semaphore.MaxPermits]. All machines must give the same number. The
// run gets one permit of the [semaphore.Semaphore] that has the name of the job.
func (l *Locker) RunWithPermit(ctx context.Context, job string, permits int, run func(ctx context.Context, lease *semaphore.Lease) error) error {
	const name = "RunWithPermit"
	return l.runWithPermit(ctx, name, job, run, func() (*semaphore.Lease, error) {
		permitsOf, err := semaphore.New(l.locker, job, permits, l.opts...)
		if err != nil {
			return nil, named(name, err)
		}
		return try(ctx, l, job, l.limit(), func() (*semaphore.Lease, error) {
			lease, err := permitsOf.TryAcquire(ctx, 1)
			return lease, named(name, err)
		})
	})
}

func (l *Locker) runWithPermit(ctx context.Context, name, job string, run func(ctx context.Context, lease *semaphore.Lease) error, take func() (*semaphore.Lease, error)) (err error) {
	l.made()
	if run == nil {
		return configError(name + ": run is nil")
	}
	lease, err := take()
	switch {
	case errors.Is(err, redlock.ErrTaken):
		return nil
	case err != nil:
		l.note(ctx, job, err)
		return err
	}
	for _, part := range lease.Parts() { // Close waits for work under these
		_, over := part.Within(ctx)
		defer over()
	}
	defer func() {
		if unlockErr := l.ended(job, lease.Unlock(ctx)); unlockErr != nil {
			err = errors.Join(err, unlockErr)
		}
	}()
	runCtx, cancel := lease.Within(ctx)
	defer cancel()
	return run(runCtx, lease)
}

// try calls get until it returns a lease, another try makes no sense, or the tries have taken limit.
func try[L any](ctx context.Context, l *Locker, job string, limit time.Duration, get func() (L, error)) (none L, err error) {
	began := time.Now()
	for tries := 1; ; tries++ {
		start := time.Now()
		lease, err := get()
		if err == nil {
			l.note(ctx, job, nil)
			return lease, nil
		}
		if took := time.Since(start); took > longestTry { // it waited for masters in quarantine
			began = began.Add(took)
		}
		d := pause(tries)
		if !worthwhile(err) || time.Since(began)+d > limit || !l.sleep(ctx, d) {
			l.note(ctx, job, err)
			return none, err
		}
	}
}

// pause is how long to wait after a number of tries: a random part of a bound that doubles, so
// that machines that collided part ways.
func pause(tries int) time.Duration {
	bound := longestPause
	if tries < 10 {
		bound = min(firstPause<<(tries-1), longestPause)
	}
	return rand.N(bound) + time.Microsecond
}

// sleep reports false if ctx or the Locker ended before the time was over.
func (l *Locker) sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-inside.Of(l.locker).Done():
	}
	return false
}

// worthwhile reports whether another try at once may succeed: it is not known that another
// machine has the lock.
func worthwhile(err error) bool {
	var verdict *redlock.QuorumError
	switch {
	case !errors.As(err, &verdict) || verdict.Permanent() || errors.Is(err, redlock.ErrQuarantine) || errors.Is(err, redlock.ErrClosed):
		return false
	case errors.Is(err, redlock.ErrTaken):
		return verdict.Granted > 0
	}
	return errors.Is(err, redlock.ErrNoQuorum)
}

// note tells the operator of a job that runs nowhere: at the first run that is left out, not at
// each. A lock that another machine has is no news, nor that ctx cut the attempt short. That a quorum
// has the lock for another machine ends the trouble. If fewer masters say so, the others may still be
// down.
func (l *Locker) note(ctx context.Context, job string, err error) {
	if ctx != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return
	}
	bad := err != nil && !errors.Is(err, redlock.ErrTaken)
	var refused *redlock.QuorumError
	l.mu.Lock()
	news := bad && !l.failed[job]
	switch {
	case bad:
		l.failed[job] = true
	case err == nil || errors.As(err, &refused) && refused.HeldByQuorum():
		delete(l.failed, job)
	}
	l.mu.Unlock()
	if news {
		inside.Of(l.locker).Logger().Warn("redlock: runs of a job are left out", "job", job, "error", err)
	}
}

// Lock is the lock of one run of a job, from [Locker.LockAt] or [Locker.Lock].
type Lock struct {
	*redlock.Lease
	of   *Locker
	over func() // of the run: Close waits for that
}

// Unlock ends the lock, as [redlock.Lease.Unlock] does. Before the end of the minimum hold it
// returns nil at once, and the resource stays taken until then: see [redlock.WithMinHold]. Whether
// ctx has ended makes no difference. If the lease was lost, or the job ran on for more than 10 s after
// [redlock.Locker.Close], the job may not have been alone: the error matches [redlock.ErrNotHeld]. As
// schedulers drop this error, it is logged, too.
func (l *Lock) Unlock(ctx context.Context) error {
	if l == nil || l.of == nil {
		panic("jobs: no call has returned this Lock: look at the error of the call before the Lock")
	}
	if ctx != nil {
		defer l.over()
	}
	return l.of.ended(l.Resource(), l.Lease.Unlock(ctx))
}

// ended logs the error of the Unlock of a job, if the job may not have been alone, and returns it.
func (l *Locker) ended(job string, err error) error {
	own := errors.Is(err, redlock.ErrReleased) && !errors.Is(err, redlock.ErrClosed) || errors.Is(err, redlock.ErrDetached)
	if errors.Is(err, redlock.ErrLost) || errors.Is(err, redlock.ErrNotHeld) && !own {
		inside.Of(l.locker).Logger().Warn("redlock: a job ran on after its lease was lost", "job", job, "error", err)
	}
	return err
}
