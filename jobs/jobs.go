// Package jobs makes each run of a scheduled job on one machine of several.
//
// # Promise
//
// [Locker.Run] with [At] is given the time at which a run is due. Over all machines each due time is
// run at most once, also where a machine was suspended or stopped, or has a clock that is behind. No
// due time is left out while a machine is awake that can reach the masters. The rule has one number,
// the window: half of [redlock.WithMaxTTL], 5 s by default.
//
//   - A run begins within the window after its due time, by the clock of the machine. After that the
//     machine refuses the run with [ErrLate].
//   - The masters keep a record of each due time that was run for a whole MaxTTL, also after the process
//     has died. So the clocks of two machines may differ by nearly a window: by 4.8 s.
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
// Run fits every scheduler. A scheduler that does not tell which run is due has a [Schedule], from
// which [Due] finds it. A scheduler that takes locks itself gets them from [Locker.Lock], by an
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

// ErrLate is matched by the error of a run that did not begin within half of [redlock.WithMaxTTL]
// after its due time. Another machine may have made the run. [redlock.Reason] returns "too_late".
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
// the lease loses it. [redlock.WithMinHold] has no effect on a run with a due time.
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

// window is how long after its due time a run may begin. The masters keep the record of a run for twice as
// long from when the run begins. The other half, less what clocks run apart in that time, is for the
// difference between the clocks of two machines.
func (l *Locker) window() time.Duration { return l.settings.MaxTTL / 2 }

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
// Due looks back for ten years. It returns the zero Time, which Run refuses, if nothing was due, if s
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

// Option says how [Locker.Run] and [Locker.Lock] make a run: [At] and [Permits]. Of two options of a kind
// the last one counts.
type Option interface{ apply(*call) }

type option func(*call)

func (o option) apply(c *call) { o(c) }

// At makes the run that is due at a time: no other machine makes a run of the job for the same time, to the
// millisecond. Every machine gives every due time.
//
// The call waits for the due time if the machine's clock is not there yet, for a window at most. The
// resource of the record is the name of the job with "@" and the due time in milliseconds behind it.
// The error matches [ErrLate] if the run is more than the window late, and [redlock.ErrConfig] if due is
// zero, or is more than the window ahead of the machine's clock.
func At(due time.Time) Option { return option(func(c *call) { c.due, c.timed = due, true }) }

// Permits lets up to n machines run the job at a time, from 1 to [semaphore.MaxPermits]. With [At] each due time is
// run at most n times. All machines must give the same number. The lease of a run is that of one permit
// of the [semaphore.Semaphore] that has the name of the job.
func Permits(n int) Option { return option(func(c *call) { c.permits, c.limited = n, true }) }

// call is a call of Run or Lock under way.
type call struct {
	*Locker
	name, job string // of the method, and of the job

	timed   bool // by At
	due     time.Time
	limited bool // by Permits
	permits int
}

// take takes the lock of a run.
func (l *Locker) take(ctx context.Context, name, job string, opts []Option) (*Lock, error) {
	c := &call{Locker: l.made(), name: name, job: job}
	lease, err := c.lock(ctx, opts)
	if l.note(ctx, job, err); err != nil {
		return nil, err
	}
	_, over := lease.Within(ctx)
	return &Lock{Lease: lease, of: l, job: job, over: over}, nil
}

func (c *call) lock(ctx context.Context, opts []Option) (*redlock.Lease, error) {
	for _, opt := range opts {
		if opt == nil {
			return nil, configError(c.name + ": an option is nil")
		}
		opt.apply(c)
	}
	if c.timed {
		return c.lockAt(ctx)
	}
	return c.lockNow(ctx)
}

// attempt asks once for the lock of a resource, or for one of its permits.
func (c *call) attempt(ctx context.Context, resource string, opts []redlock.LockOption) (*redlock.Lease, error) {
	if !c.limited {
		lease, err := c.locker.TryLock(ctx, resource, opts...)
		return lease, named(c.name, err)
	}
	permits, err := semaphore.New(c.locker, resource, c.permits, opts...)
	if err != nil {
		return nil, named(c.name, err)
	}
	lease, err := permits.TryAcquire(ctx, 1)
	if err != nil {
		return nil, named(c.name, err)
	}
	return lease.Parts()[0], nil
}

// check returns the error that attempt would have for a resource that cannot be locked.
func (c *call) check(resource string) error {
	if !c.limited {
		return inside.Of(c.locker).CheckResource("jobs: "+c.name, resource)
	}
	_, err := semaphore.New(c.locker, resource, c.permits, c.opts...)
	return named(c.name, err)
}

// lockAt takes the record of a run, and then the lock of the job. Only then does it leave the record to the
// masters: without the lock it gives the record back. If the process dies in between, the record stays, and
// the run is left out.
func (c *call) lockAt(ctx context.Context) (*redlock.Lease, error) {
	if ctx == nil {
		return nil, configError(c.name + ": ctx is nil")
	}
	due := c.due.Round(0) // the monotonic clock stands still while the machine is suspended
	early, record := due.Sub(c.now()), c.job+"@"+strconv.FormatInt(due.UnixMilli(), 10)
	switch err := cmp.Or(c.check(c.job), c.check(record)); {
	case err != nil:
		return nil, err
	case due.IsZero() || early > c.window():
		return nil, configError(c.name + ": due at " + due.Format(time.RFC3339Nano) + ": is zero, or further ahead of the machine's clock than " + c.window().String())
	case early > 0:
		c.sleep(ctx, early) // the first request finds out whether ctx or the Locker has ended
	}
	keep := slices.Concat(c.opts, []redlock.LockOption{
		redlock.WithTTL(c.settings.MaxTTL), redlock.WithoutRenewal(), redlock.WithMaxHold(math.MaxInt64), redlock.WithMinHold(0)})
	var wait, waited, voteless time.Duration // voteless: of wait, for which no machine can get the record
	recorded, err := c.try(ctx, longestTry, func() (*redlock.Lease, error) {
		for {
			if err := c.late(due, waited); err != nil {
				return nil, err
			}
			began := time.Now()
			lease, err := c.attempt(ctx, record, append(keep, redlock.WithQuarantineWait(wait)))
			waited += min(time.Since(began), voteless)
			var verdict *redlock.QuorumError
			switch refused := errors.As(err, &verdict) && c.settings.QuarantineWait > 0; {
			case err == nil:
				if err := c.late(due, waited); err != nil { // the record of an earlier run can be over by now
					_ = lease.Unlock(ctx)
					return nil, err
				}
				return lease, nil
			case refused && errors.Is(err, redlock.ErrQuarantine) && verdict.VotesIn() > 0 && c.mayWait(ctx, waited, verdict.VotesIn()):
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
		return nil, err
	}
	lease, err := c.try(ctx, longestTry, func() (*redlock.Lease, error) {
		return c.attempt(ctx, c.job, append(slices.Clip(c.opts), redlock.WithMinHold(0)))
	})
	if err != nil {
		_ = recorded.Unlock(ctx)
		return nil, err
	}
	if _, err := recorded.Detach(); err != nil { // another machine may have the record by now
		_ = lease.Unlock(ctx)
		return nil, fmt.Errorf("jobs: %w: the record of the run: %w", redlock.ErrNotAcquired, err)
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
	if now := l.now().Round(0); now.Sub(due)-waited > l.window() { // which is the largest Duration after centuries
		return fmt.Errorf("jobs: %w: %w: due at %s, and the clock of this machine has %s: more than %v later",
			redlock.ErrNotAcquired, ErrLate, due.Format(time.RFC3339Nano), now.Format(time.RFC3339Nano), l.window())
	}
	return nil
}

// Run calls run on one machine of those that call Run for the job: with [At], for a due time, and otherwise
// while no machine has the lock of the job. The name of the job is a resource, see
// [redlock.Locker.Lock].
//
// The runs of a schedule need [At]: without, a machine that comes late makes a run once more, or has the
// lock when the next run is due, so that all machines leave that one out.
//
// Run does nothing, and returns nil, if another machine has made the run or has the lock: the errors of
// [Locker.Lock] that match [redlock.ErrTaken]. If this machine did not get the run for another reason, Run
// returns the error of Lock. A nil run gives an error that matches [redlock.ErrConfig].
//
// The context of run ends with ctx, with the lease or by [redlock.Locker.Close], whichever is first.
// When run returns or panics, the lock ends as by [Lock.Unlock]. Run returns the error of run,
// joined with the error of Unlock, which matches [redlock.ErrNotHeld] if the lease was
// lost before run returned, and [redlock.ErrNoQuorum] if no quorum confirmed the release.
func (l *Locker) Run(ctx context.Context, job string, run func(ctx context.Context, lease *redlock.Lease) error, opts ...Option) (err error) {
	if l.made(); run == nil {
		return configError("Run: run is nil")
	}
	lock, err := l.take(ctx, "Run", job, opts)
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

// Lock takes the lock of a job for a run, for a scheduler that calls the job itself and Unlock then. With
// the lock the run counts as made. Such a scheduler gives the job a context of its own, which does not end
// when the lease is lost: use [Locker.Run] for a job that has to know. [redlock.Locker.Close] keeps the
// lock until Unlock, for 10 s at most.
//
// Lock does not wait for another holder. It waits for masters in quarantine, see [New]. While
// masters do not answer, or some of them still grant, it tries again for half a second, or without [At] for
// half of the minimum hold if that is shorter.
//
// The errors are those of [redlock.Locker.TryLock] and of the options. After an error this call has made no
// run. An error that matches [redlock.ErrTaken] is no alarm. After any other error another machine can still
// make the run. That error is logged, see [redlock.WithLogger]: once per job, until a run of the job gets its
// lock again, or a quorum of the masters has it for another machine.
func (l *Locker) Lock(ctx context.Context, job string, opts ...Option) (*Lock, error) {
	return l.take(ctx, "Lock", job, opts)
}

// lockNow takes the lock of the job.
func (c *call) lockNow(ctx context.Context) (*redlock.Lease, error) {
	limit := longestTry
	if hold := c.settings.MinHold; hold > 0 {
		limit = min(limit, hold/2) // or the run of another machine could be over
	}
	return c.try(ctx, limit, func() (*redlock.Lease, error) { return c.attempt(ctx, c.job, c.opts) })
}

// try calls get until it returns a lease, another try makes no sense, or the tries have taken limit.
func (c *call) try(ctx context.Context, limit time.Duration, get func() (*redlock.Lease, error)) (*redlock.Lease, error) {
	began := time.Now()
	for tries := 1; ; tries++ {
		start := time.Now()
		lease, err := get()
		if err == nil {
			return lease, nil
		}
		if took := time.Since(start); took > longestTry { // it waited for masters in quarantine
			began = began.Add(took)
		}
		if d := pause(tries); !worthwhile(err) || time.Since(began)+d > limit || !c.sleep(ctx, d) {
			return nil, err
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

// Lock is the lock of one run of a job, from [Locker.Lock].
type Lock struct {
	*redlock.Lease
	of   *Locker
	job  string
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
	return l.of.ended(l.job, l.Lease.Unlock(ctx))
}

// ended logs the error of the Unlock of a job, if the job may not have been alone, and returns it.
func (l *Locker) ended(job string, err error) error {
	own := errors.Is(err, redlock.ErrReleased) && !errors.Is(err, redlock.ErrClosed) || errors.Is(err, redlock.ErrDetached)
	if errors.Is(err, redlock.ErrLost) || errors.Is(err, redlock.ErrNotHeld) && !own {
		inside.Of(l.locker).Logger().Warn("redlock: a job ran on after its lease was lost", "job", job, "error", err)
	}
	return err
}
