package redlock

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"
)

// This file is for schedulers that run on several machines, where each run of a job is
// wanted once. It knows none of them: what they want of a lock is given as a type
// parameter.

// maxJobTry is how long to try for the lock of a job.
const maxJobTry = 500 * time.Millisecond

// jobs takes the locks of jobs. What a job does not get it is not to run.
type jobs struct {
	locker  *Locker
	minHold time.Duration
	opts    []LockOption

	mu     sync.Mutex
	failed map[string]bool // guarded by mu; jobs for whose last run there was no quorum
}

func newJobs(name string, l *Locker, minHold time.Duration, opts []LockOption) (*jobs, error) {
	if l == nil {
		return nil, configErrorf("%s: the Locker is nil", name)
	}
	lc, err := l.conf.forCall(opts)
	if err != nil {
		return nil, err
	}
	err = firstBroken([]rule{
		{minHold >= 0, name + ": the minimum hold is negative"},
		{lc.maxHold == 0 || minHold < lc.maxHold, name + ": the minimum hold must be less than WithMaxHold"},
		{!lc.manual || minHold < lc.minValidity(), name + ": without renewal the minimum hold must be less than half of the TTL"},
		{!lc.reentry, name + ": WithReentry would let a job run twice"},
	})
	if err != nil {
		return nil, err
	}
	return &jobs{locker: l, minHold: minHold, opts: opts, failed: make(map[string]bool)}, nil
}

// lock takes the lock of a job, or says why not. Where masters do not answer for a moment, or
// some still grant, so that nobody is known to have the lock, it tries again, but never for
// so long that the run of another machine could be over.
func (j *jobs) lock(ctx context.Context, name string) (*JobLock, error) {
	began, limit := time.Now(), maxJobTry
	if j.minHold > 0 {
		limit = min(limit, j.minHold/2)
	}
	for tries := 1; ; tries++ {
		lease, err := j.locker.TryLock(ctx, name, j.opts...)
		if err == nil {
			j.noteFailure(name, nil)
			return &JobLock{Lease: lease, jobs: j}, nil
		}
		delay := defaultQueuePolicy.retryDelay(tries)
		if !worthwhile(err) || time.Since(began)+delay > limit || until(ctx, j.locker.pool.closing, nil, delay) != nil {
			if ctx == nil || ctx.Err() == nil {
				j.noteFailure(name, err)
			}
			return nil, err
		}
	}
}

// worthwhile reports whether another try at once could have another end: nobody is known to
// have the lock.
func worthwhile(err error) bool {
	var verdict *QuorumError
	switch {
	case !errors.As(err, &verdict) || verdict.Permanent() || errors.Is(err, ErrQuarantine) || errors.Is(err, ErrClosed):
		return false
	case errors.Is(err, ErrTaken):
		return verdict.Granted > 0
	}
	return errors.Is(err, ErrNoQuorum)
}

// noteFailure has the operator told of jobs that run nowhere, at the first run that is left
// out and not at each. That another machine has the lock is as it should be.
func (j *jobs) noteFailure(name string, err error) {
	bad := err != nil && !errors.Is(err, ErrTaken)
	j.mu.Lock()
	news := bad && !j.failed[name]
	if bad {
		j.failed[name] = true
	} else {
		delete(j.failed, name)
	}
	j.mu.Unlock()
	if news {
		j.locker.conf.warn("runs of a job are left out", "job", name, "error", err)
	}
}

// JobLock is the lock of a job that runs, from [JobLocker.Lock].
type JobLock struct {
	*Lease
	jobs *jobs
}

// Unlock ends the lock, as [Lease.Unlock] does, but not before the minimum hold is over: until
// then the lease is held and renewed in the background, and Unlock returns at once. Whether
// ctx has ended makes no difference. If the lease was lost before, the job was not
// alone: the error matches [ErrLost], and as schedulers drop it, it is logged as well.
func (j *JobLock) Unlock(ctx context.Context) error {
	if left := j.jobs.minHold - time.Since(j.since); left > 0 && j.Err() == nil {
		time.AfterFunc(left, func() { _, _ = j.locker.unlock(j.Lease) })
		return nil
	}
	err := j.Lease.Unlock(ctx)
	if errors.Is(err, ErrLost) {
		j.locker.conf.warn("a job ran on after its lease was lost", "job", j.Resource(), "error", err)
	}
	return err
}

// JobLocker locks jobs by name for a scheduler that runs on several machines. L is the
// scheduler's type of a lock. For gocron:
//
//	locks, err := redlock.NewJobLocker[gocron.Lock](locker, 5*time.Second)
//	...
//	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locks))
//
// A JobLocker is safe for concurrent use.
type JobLocker[L interface{ Unlock(context.Context) error }] struct{ jobs *jobs }

// NewJobLocker makes a JobLocker. The lock of a job is renewed while the job runs, however
// long, and held for at least minHold after it was taken, from 0: machines' clocks differ,
// and one that comes to the same run a moment later must still find it taken. So minHold
// should be more than the clocks differ, and less than the time between two runs.
// [Locker.Close] ends it early; after a crash the lock stays for the rest of its TTL.
//
// An L that wants more of a lock than [JobLock] has, a minHold that is negative, not less than
// [WithMaxHold], or not less than half of the TTL with [WithoutRenewal], and [WithReentry], give
// an error that matches [ErrConfig].
func NewJobLocker[L interface{ Unlock(context.Context) error }](l *Locker, minHold time.Duration, opts ...LockOption) (*JobLocker[L], error) {
	if _, ok := any((*JobLock)(nil)).(L); !ok {
		return nil, configErrorf("NewJobLocker: a *JobLock is no %v", reflect.TypeFor[L]())
	}
	jobs, err := newJobs("NewJobLocker", l, minHold, opts)
	if err != nil {
		return nil, err
	}
	return &JobLocker[L]{jobs}, nil
}

// Lock takes the lock of a job, the resource of that name; the L it returns is a [*JobLock].
// It does not wait for another holder. While the masters do not answer, or some of them still
// grant, it tries again for half a second, or half of the minimum hold if that is less.
//
// The errors are those of [Locker.TryLock], and say that the run is to be left out. With
// [ErrTaken] that is as it should be. Anything else is logged, at the first run of
// the job that is left out for it.
//
// What runs is not told of the loss of its lease, as schedulers give jobs a context of their
// own: wrap what has to know by [Locker.Job] instead.
func (j *JobLocker[L]) Lock(ctx context.Context, job string) (L, error) {
	lock, err := j.jobs.lock(ctx, job)
	if err != nil {
		return *new(L), err
	}
	return any(lock).(L), nil
}

// JobWrapper makes a wrapper for a job that is a value with a method Run, which runs it only
// on the machine that gets the lock of that name, as NewJobLocker says. J is the scheduler's
// type of a job. For robfig/cron:
//
//	once, err := redlock.JobWrapper[cron.Job](locker, "nightly", 5*time.Second)
//	...
//	c.Schedule(schedule, cron.NewChain(once).Then(job))
//
// Each job needs a wrapper of its own: of several with one name one runs at a time. If the
// job also has a method RunContext(context.Context), that is called instead of Run, with a
// context that ends with the lease. Errors are those of [NewJobLocker], and of a name that cannot
// be a resource.
func JobWrapper[J interface{ Run() }](l *Locker, name string, minHold time.Duration, opts ...LockOption) (func(J) J, error) {
	if _, ok := any(jobFunc(nil)).(J); !ok {
		return nil, configErrorf("JobWrapper: a value that has Run alone is no %v", reflect.TypeFor[J]())
	}
	jobs, err := newJobs("JobWrapper", l, minHold, opts)
	if err != nil {
		return nil, err
	}
	if err := l.conf.checkResource("JobWrapper", name); err != nil {
		return nil, err
	}
	return func(job J) J {
		return any(jobFunc(func() {
			_ = jobs.run(context.Background(), name, func(ctx context.Context, _ *Lease) error { // what happened is logged
				if j, ok := any(job).(interface{ RunContext(context.Context) }); ok {
					j.RunContext(ctx)
				} else {
					job.Run()
				}
				return nil
			})
		})).(J)
	}, nil
}

type jobFunc func()

func (f jobFunc) Run() { f() }

// Job makes a function for a scheduler of any kind, which calls run only on the machine that
// gets the lock of that name, as [NewJobLocker] says, and else does nothing. The context of run
// ends with that of the call or with the lease, whichever is first.
//
// The function returns what run does, joined with an error that matches [ErrLost] if the
// lease was lost meanwhile. If another machine has the lock it returns nil; if nobody got
// it, or ctx ended, the error of [Locker.TryLock]. Arguments that cannot work give an error
// that matches [ErrConfig].
func (l *Locker) Job(name string, minHold time.Duration, run func(ctx context.Context, lease *Lease) error, opts ...LockOption) (func(ctx context.Context) error, error) {
	if run == nil {
		return nil, configErrorf("Job: run is nil")
	}
	jobs, err := newJobs("Job", l, minHold, opts)
	if err != nil {
		return nil, err
	}
	if err := l.conf.checkResource("Job", name); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return jobs.run(ctx, name, run) }, nil
}

// run runs a job if it gets the lock.
func (j *jobs) run(ctx context.Context, name string, run func(context.Context, *Lease) error) (err error) {
	lock, err := j.lock(ctx, name)
	switch {
	case errors.Is(err, ErrTaken):
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
