// Package jobs runs each run of a scheduled job on one machine of several.
//
// The job runs on one machine at a time, but only during the validity of its lease, and by the
// clock of that machine. A run that was paused can go on after its lease has ended, beside a run
// on another machine. The store has to refuse the writes of the first one by the fencing token,
// see [redlock.Lease.Fence].
//
// [Locker.Run] fits every scheduler. A scheduler that takes locks itself gets them from
// [Locker.Lock], by an adapter of a few lines: the examples have one for gocron and one for
// robfig/cron. The package imports no scheduler, so that it adds no dependency.
package jobs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/semaphore"
)

const (
	longestTry   = 500 * time.Millisecond // for the lock of one run
	firstPause   = 2 * time.Millisecond   // at most, before the second try
	longestPause = 100 * time.Millisecond // between two tries

	quarantines = 2 // that the lock of one run waits for: a master may lose its data once more meanwhile
)

// Locker takes the locks of jobs. Call [New] to make one. A Locker is safe for concurrent use.
type Locker struct {
	locker  *redlock.Locker
	minHold time.Duration
	opts    []redlock.LockOption

	mu     sync.Mutex
	failed map[string]bool // guarded by mu; jobs whose last run was left out for an error
}

// New returns a Locker that takes leases of locker with opts. The lease of a job is renewed while
// the job runs, however long that takes.
//
// The lease is held for at least minHold, from 0: clocks of machines differ, and a machine that
// begins the same run a moment later must still find the lock taken. So minHold must be longer
// than the clocks differ, and shorter than the time between two runs. [redlock.Locker.Close] ends
// the lease earlier. If the process crashes, the lock stays for the rest of its TTL.
//
// A run that is due while masters are in quarantine waits for them, for two quarantines at most,
// which is 20.6 s by default, or for the value of [redlock.WithQuarantineWait] in opts. Without
// that, masters that all restarted during the day would keep the job from running on any machine at
// night: their quarantine counts from the first question.
//
// New sends nothing to any master. It returns an error that matches [redlock.ErrConfig] if
// locker is nil; if [redlock.Locker.Lock] would refuse opts; if minHold is negative, not less
// than [redlock.WithMaxHold], or, with [redlock.WithoutRenewal], not less than half of the TTL;
// and with [redlock.WithReentry] or [redlock.Shared], which would let a job run twice.
func New(locker *redlock.Locker, minHold time.Duration, opts ...redlock.LockOption) (*Locker, error) {
	if locker == nil {
		return nil, configError("New: the Locker is nil")
	}
	settings, err := locker.Settings()
	if err == nil {
		wait := redlock.WithQuarantineWait(quarantines * settings.Quarantine)
		opts = slices.Concat([]redlock.LockOption{wait}, opts, []redlock.LockOption{redlock.WithMinHold(minHold)})
		settings, err = locker.Settings(opts...)
	}
	switch {
	case err != nil:
		return nil, err
	case settings.Reentry || settings.Shared:
		return nil, configError("New: WithReentry and Shared would let a job run twice")
	}
	return &Locker{locker: locker, minHold: minHold, opts: opts, failed: make(map[string]bool)}, nil
}

func configError(text string) error {
	return fmt.Errorf("%w: jobs: %s", redlock.ErrConfig, text)
}

// Run calls run if this machine gets the lock of the job, and does nothing if another machine
// has the lock. The name of the job is the resource, see [redlock.Locker.CheckResource]. The
// context of run ends with ctx or with the lease, whichever is first. When run returns or
// panics, the lock ends as by [Lock.Unlock].
//
// Run returns the error of run, joined with the error of [redlock.Lease.Unlock]: it matches
// [redlock.ErrNotHeld] if the lease was lost before run returned, and [redlock.ErrNoQuorum] if no
// quorum confirmed the release. Run returns nil if the error of [Locker.Lock] matches
// [redlock.ErrTaken]: another machine has the lock, or several split the votes for as long as Lock
// tries. Otherwise, if this machine did not get the lock, Run returns the error of Lock. A nil run
// gives an error that matches [redlock.ErrConfig].
//
// An error that keeps a job from running on any machine is logged, see [Locker.Lock]; so is a lost
// lease.
func (l *Locker) Run(ctx context.Context, job string, run func(ctx context.Context, lease *redlock.Lease) error) (err error) {
	if run == nil {
		return configError("Run: run is nil")
	}
	lock, err := l.Lock(ctx, job)
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

// Lock takes the lock of a job for one run. The name of the job is the resource. Lock does not wait
// for another holder. It waits for masters in quarantine, see [New]. While masters do not answer,
// or some of them still grant, it tries again for half a second, or for half of the minimum hold if
// that is shorter.
//
// The errors are those of [redlock.Locker.TryLock]. After an error the run has to be left out. An
// error that matches [redlock.ErrTaken] is no alarm. Any other error is logged, see
// [redlock.WithLogger]: once per job, until a run of the job gets its lock again, or a quorum of
// the masters has it for another machine.
//
// A scheduler gives the job a context of its own, which does not end when the lease is lost. Use
// [Locker.Run] for a job that has to know.
func (l *Locker) Lock(ctx context.Context, job string) (*Lock, error) {
	lease, err := try(ctx, l, job, func() (*redlock.Lease, error) { return l.locker.TryLock(ctx, job, l.opts...) })
	if err != nil {
		return nil, err
	}
	return &Lock{Lease: lease, of: l}, nil
}

// RunWithPermit is [Locker.Run] for a job that may run on several machines at a time: on at most
// permits of them, from 1 to [semaphore.MaxPermits]. All machines must give the same number. The
// run gets one permit of the [semaphore.Semaphore] that has the name of the job.
func (l *Locker) RunWithPermit(ctx context.Context, job string, permits int, run func(ctx context.Context, lease *semaphore.Lease) error) (err error) {
	if run == nil {
		return configError("RunWithPermit: run is nil")
	}
	permitsOf, err := semaphore.New(l.locker, job, permits, l.opts...)
	if err != nil {
		return err
	}
	lease, err := try(ctx, l, job, func() (*semaphore.Lease, error) { return permitsOf.TryAcquire(ctx, 1) })
	switch {
	case errors.Is(err, redlock.ErrTaken):
		return nil
	case err != nil:
		return err
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

// try calls get until it returns a lease or another try makes no sense.
func try[L any](ctx context.Context, l *Locker, job string, get func() (L, error)) (none L, err error) {
	began, limit := time.Now(), longestTry
	if l.minHold > 0 {
		limit = min(limit, l.minHold/2) // or the run of another machine could be over
	}
	for tries := 1; ; tries++ {
		start := time.Now()
		lease, err := get()
		if err == nil {
			l.note(job, nil)
			return lease, nil
		}
		if took := time.Since(start); took > longestTry { // it waited for masters in quarantine
			began = began.Add(took)
		}
		d := pause(tries)
		if !worthwhile(err) || time.Since(began)+d > limit || !l.sleep(ctx, d) {
			if ctx == nil || ctx.Err() == nil || !errors.Is(err, ctx.Err()) { // the attempt was not cut short
				l.note(job, err)
			}
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
	case <-l.locker.Done():
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
// each. A lock that another machine has is no news. That a quorum has it for another machine ends
// the trouble. If fewer masters say so, the others may still be down.
func (l *Locker) note(job string, err error) {
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
		l.locker.Logger().Warn("redlock: runs of a job are left out", "job", job, "error", err)
	}
}

// Lock is the lock of one run of a job, from [Locker.Lock].
type Lock struct {
	*redlock.Lease
	of *Locker
}

// Unlock ends the lock, as [redlock.Lease.Unlock] does. Before the end of the minimum hold it
// returns nil at once, and the resource stays taken until then: see [redlock.WithMinHold]. Whether
// ctx has ended makes no difference. If the lease was lost, the job may not have been alone: the
// error matches [redlock.ErrLost]. As schedulers drop this error, it is logged, too.
func (l *Lock) Unlock(ctx context.Context) error {
	return l.of.ended(l.Resource(), l.Lease.Unlock(ctx))
}

// ended logs the error of the Unlock of a job, if the job may not have been alone, and returns it.
func (l *Locker) ended(job string, err error) error {
	if errors.Is(err, redlock.ErrLost) {
		l.locker.Logger().Warn("redlock: a job ran on after its lease was lost", "job", job, "error", err)
	}
	return err
}
