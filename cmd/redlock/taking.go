package main

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/inside"
	"github.com/d0720281/redlock/internal/wire"
	"github.com/d0720281/redlock/jobs"
	"github.com/d0720281/redlock/semaphore"
	"github.com/d0720281/redlock/several"
)

// taking is how redlock run and redlock acquire take a lock, several locks, a share of a lock, or
// permits.
type taking struct {
	keys     []string
	ttl      time.Duration
	wait     time.Duration
	nonblock bool
	votes    time.Duration // how long an attempt waits for masters in quarantine
	due      time.Time     // of the run, zero without --every and --due
	shared   bool
	permits  int // of a semaphore; 0: no semaphore
	take     int
	quiet    bool
	verbose  bool   // of redlock run
	owner    string // label of the holder

	changed func(flag string) bool // the user has given it
	got     chan struct{}          // closed with the lease; nil if no logger tells of waiting
}

func (t *taking) register(f *pflag.FlagSet) {
	t.changed = f.Changed
	f.VarP((*duration)(&t.wait), "wait", "w", "wait at most that long for the lock; 0 is -n")
	f.BoolVarP(&t.nonblock, "nonblock", "n", false, "do not wait for another holder")
	f.Var((*duration)(&t.votes), "quarantine-wait", "with -n, wait at most that long for masters in quarantine; by default two quarantines, 20.6s")
	f.StringVar(&t.owner, "owner", "", "`label` of the holder, which redlock status shows; by default host:pid:command")
	f.BoolVarP(&t.quiet, "quiet", "q", false, "do not say what redlock waits for")
}

// registerTTL adds the flag for the TTL, and sets its default.
func (t *taking) registerTTL(f *pflag.FlagSet, usage string) {
	t.changed, t.ttl = f.Changed, redlock.DefaultTTL
	f.Var((*duration)(&t.ttl), "ttl", usage)
}

// ownedBy returns the option for the label of the holder: by default the host, a process and its
// command.
func (t *taking) ownedBy(pid int, command string) redlock.Option {
	if t.owner != "" {
		return redlock.WithOwner(t.owner)
	}
	host, _ := os.Hostname() // "" on an error
	return redlock.WithOwner(wire.LabelOf(host, pid, command))
}

// check checks the flags. maxTTL is the largest TTL of any client.
func (t *taking) check(maxTTL time.Duration) error {
	if !t.changed("ttl") {
		t.ttl = min(t.ttl, maxTTL)
	}
	switch {
	case t.nonblock && t.wait > 0:
		return usagef("--nonblock and --wait contradict each other")
	case t.changed("quarantine-wait") && !t.once():
		return usagef("--quarantine-wait is for -n: without -n, --wait bounds the wait for masters in quarantine, too")
	case t.ttl > maxTTL:
		return exitf(exitConfig, "--ttl %v: must be at most %v, the value of --max-ttl, which all clients of the masters need to have in common", t.ttl, maxTTL)
	}
	return nil
}

// once reports whether redlock does not wait for another holder.
func (t *taking) once() bool {
	return t.nonblock || !t.due.IsZero() || t.wait == 0 && t.changed("wait")
}

// connectTries is the number of attempts of a command that does not wait: connecting may take as
// many master timeouts.
const connectTries = 4

// connecting makes an attempt, and more of them while a Locker that is new gets its connections.
func connecting[L any](attempt func() (L, error)) (lease L, err error) {
	for range connectTries {
		lease, err = attempt()
		if !errors.Is(err, redlock.ErrNoQuorum) || errors.Is(err, redlock.ErrQuarantine) {
			break
		}
	}
	return lease, err
}

// held is a lease on what was taken. One lock has the lease of the library itself: package several
// would release the keys of a lost lease at the end of its validity, and not when the command is
// dead.
type held interface {
	Context() context.Context
	Validity() time.Duration
	Unlock(ctx context.Context) error
	Parts() []*redlock.Lease
}

// single is a lease on one lock.
type single struct{ *redlock.Lease }

func (s single) Parts() []*redlock.Lease { return []*redlock.Lease{s.Lease} }

// dueRun is a lease on the lock of a run that is due.
type dueRun struct{ *jobs.Lock }

func (d dueRun) Parts() []*redlock.Lease { return []*redlock.Lease{d.Lease} }

// get takes what the flags ask for. On a terminal, and with -v, it names the holder for which it
// waits.
func (t *taking) get(ctx context.Context, locker *redlock.Locker, stderr io.Writer) (lease held, err error) {
	defer func() {
		if err == nil && t.got != nil {
			close(t.got)
		}
	}()
	if (t.verbose || terminalOf(stderr) != nil) && !t.quiet && !t.once() {
		defer t.nameHolder(stderr, inside.Of(locker).WhyWaiting)()
	}
	if t.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, t.wait)
		defer cancel()
	}
	var opts []redlock.LockOption
	if t.shared {
		opts = append(opts, redlock.Shared())
	}
	if !t.once() {
		return t.attempt(ctx, locker, opts)
	}
	votes := t.votes
	if settings, err := inside.Of(locker).Settings(); err == nil && !t.changed("quarantine-wait") {
		votes = 2 * settings.Quarantine
	}
	opts = append(opts, redlock.WithQuarantineWait(votes))
	return connecting(func() (held, error) { return t.attempt(ctx, locker, opts) })
}

func (t *taking) attempt(ctx context.Context, locker *redlock.Locker, opts []redlock.LockOption) (held, error) {
	switch {
	case !t.due.IsZero():
		j, err := jobs.New(locker, opts...)
		if err != nil {
			return nil, err
		}
		lock, err := j.Lock(ctx, t.keys[0], jobs.At(t.due))
		return orNone(dueRun{lock}, err)
	case t.permits > 0:
		s, err := semaphore.New(locker, t.keys[0], t.permits, opts...)
		if err != nil {
			return nil, err
		}
		acquire := s.Acquire
		if t.once() {
			acquire = s.TryAcquire
		}
		return orNone(acquire(ctx, t.take))
	case len(t.keys) > 1:
		lock := several.Lock
		if t.once() {
			lock = several.TryLock
		}
		return orNone(lock(ctx, locker, several.Names{Write: t.keys}, opts...))
	}
	lock := locker.Lock
	if t.once() {
		lock = locker.TryLock
	}
	le, err := lock(ctx, t.keys[0], opts...)
	return orNone(single{le}, err)
}

// orNone returns no lease if there is an error: the pointer of that lease is nil.
func orNone[L held](lease L, err error) (held, error) {
	if err != nil {
		return nil, err
	}
	return lease, nil
}
