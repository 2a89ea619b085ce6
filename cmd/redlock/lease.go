package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/sharded"
)

// The commands acquire, extend and release, for scripts that hold a lock during more than one
// command, and for programs that are no children of redlock run.

// tokenEnv is where extend and release look if no token is given.
const tokenEnv = "REDLOCK_TOKEN"

const tokenHelp = `
The token identifies the holder of the lock, to redlock and to the masters. A process that has
the token, and access to the masters, can extend and release the lock. The token is no password,
but do not log it. Without TOKEN it is taken from $REDLOCK_TOKEN, and does not appear in the
list of processes.`

const acquireHelp = `Take the lock KEY, print its token, and exit. The lock stays, and belongs to the token.

Nothing renews the lock: it ends when the TTL is over, unless it was extended or released by its
token before. If work needs the lock for an unknown time, use redlock run: it renews the lock,
and kills the command if it cannot. A TTL longer than 10s needs a --max-ttl that all clients of
the masters have in common.

Without -w and -n redlock waits for as long as it takes.

Exit code: 0 if the lock was taken, 75 if another process holds it, 69 if there is no quorum of
masters, 130 if a signal ended the waiting, 64 for wrong usage, and 78 for masters or options
that cannot work.`

const acquireExample = `  token=$(redlock acquire deploy --ttl 10s -n) || exit
  redlock extend deploy "$token" || exit
  redlock release deploy "$token"`

const extendHelp = `Extend the lock KEY that was taken by redlock acquire, by its TTL from now on.

The life of the lock never gets shorter. A lock that has ended is not taken anew, even if it is
free.
` + tokenHelp + `

Exit code: 0 if the lock was extended, 76 if it is not held by that token any more, 69 if too
few masters answered: it may still be held then; 64 for wrong usage.`

const releaseHelp = `Release the lock KEY that was taken by redlock acquire.
` + tokenHelp + `

Exit code: 0 if the lock was released, 76 if it was not held by that token any more, 69 if too
few masters answered: it ends by itself when its TTL is over; 64 for wrong usage.`

// leaseCommand is one of the commands acquire, extend and release.
type leaseCommand struct {
	connection
	output
	owner    ownerFlag // of acquire
	ttl      time.Duration
	wait     time.Duration
	nonblock bool
	votes    quarantineFlag
}

func newAcquire() *cobra.Command {
	c := leaseCommand{ttl: redlock.DefaultTTL}
	cmd := &cobra.Command{
		Use:                   "acquire KEY [flags]",
		Short:                 "Take a lock and print its token",
		Long:                  acquireHelp,
		Example:               acquireExample,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) != 1:
				return usagef("which lock? give a KEY (see redlock acquire --help)")
			case c.nonblock && c.wait > 0:
				return usagef("--nonblock and --wait contradict each other")
			}
			return c.acquire(cmd, args[0])
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	c.registerTTL(f)
	f.VarP((*duration)(&c.wait), "wait", "w", "wait at most that long for the lock; 0 is -n")
	f.BoolVarP(&c.nonblock, "nonblock", "n", false, "do not wait for another holder")
	c.votes.register(f)
	c.owner.register(f)
	c.output.register(f)
	c.connection.register(f)
	return cmd
}

func newExtend() *cobra.Command {
	c := leaseCommand{ttl: redlock.DefaultTTL}
	cmd := byToken("extend", "Extend a lock by its token", extendHelp, c.extend)
	cmd.Example = `  redlock extend deploy "$token" --ttl 10s`
	f := cmd.Flags()
	c.registerTTL(f)
	c.output.register(f)
	c.connection.register(f)
	return cmd
}

func newRelease() *cobra.Command {
	c := leaseCommand{ttl: redlock.DefaultTTL}
	cmd := byToken("release", "Release a lock by its token", releaseHelp, c.release)
	cmd.Example = `  redlock release deploy "$token"`
	c.connection.register(cmd.Flags())
	return cmd
}

// byToken makes a command for a lock that was acquired before.
func byToken(name, short, long string, run func(cmd *cobra.Command, key, token string) error) *cobra.Command {
	cmd := &cobra.Command{
		Use:                   name + " KEY [TOKEN] [flags]",
		Short:                 short,
		Long:                  long,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				args = append(args, os.Getenv(tokenEnv))
			}
			if len(args) != 2 || args[1] == "" {
				return usagef("which lock? give its KEY and the TOKEN that redlock acquire printed (see redlock %s --help)", name)
			}
			return run(cmd, args[0], args[1])
		},
	}
	cmd.Flags().SortFlags = false
	return cmd
}

func (c *leaseCommand) registerTTL(f *pflag.FlagSet) {
	f.Var((*duration)(&c.ttl), "ttl", "how long the lock lives from now on")
}

// openFor makes a Locker for leases with that TTL.
func (c *leaseCommand) openFor(cmd *cobra.Command, opts ...redlock.Option) (*sharded.Locker, error) {
	if ttl := cmd.Flags().Lookup("ttl"); ttl == nil || !ttl.Changed {
		c.ttl = min(c.ttl, c.maxTTL)
	}
	if c.ttl > c.maxTTL {
		return nil, exitf(exitConfig, "--ttl %v: must be at most %v, the value of --max-ttl, which all clients of the masters need to have in common",
			c.ttl, c.maxTTL)
	}
	return c.connection.open(append([]redlock.Option{redlock.WithTTL(c.ttl), redlock.WithoutRenewal(), redlock.WithLogger(nil)}, opts...)...)
}

func (c *leaseCommand) acquire(cmd *cobra.Command, key string) (err error) {
	if err := c.output.open(cmd); err != nil {
		return err
	}
	once := c.nonblock || cmd.Flags().Changed("wait") && c.wait == 0
	locker, err := c.openFor(cmd, redlock.WithLogger(waiting(cmd.ErrOrStderr())), c.owner.option(os.Getppid(), "acquire")) // the script lives on
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locker.Close()) }()
	ctx, stop := interruptible(cmd)
	defer stop()
	lockCtx := ctx
	if c.wait > 0 {
		var cancel context.CancelFunc
		lockCtx, cancel = context.WithTimeout(ctx, c.wait)
		defer cancel()
	}
	lock := func() (*redlock.Lease, error) { return locker.Lock(lockCtx, key) }
	if once {
		lock = func() (*redlock.Lease, error) {
			return connecting(func() (*redlock.Lease, error) { return locker.TryLock(lockCtx, key, c.votes.option(locker)) })
		}
	}
	lease, err := lock()
	switch {
	case ctx.Err() != nil:
		return errInterrupted // Close releases a lock that was acquired meanwhile
	case errors.Is(err, redlock.ErrConfig):
		return usageError{err}
	case isNoQuorum(err):
		return withoutQuorum(err)
	case errors.Is(err, redlock.ErrNotAcquired):
		return exitError{code: exitConflict}
	case err != nil:
		return err
	}
	// Without its token the lock would be of no use: if the token cannot be written, Close releases the lock.
	if shown, err := c.tell(lease); err != nil {
		return err
	} else if !shown {
		if _, err := fmt.Fprintln(c.out, lease.Token()); err != nil {
			return err
		}
	}
	return c.leave(lease)
}

// leave detaches the lease: the lock stays on the masters, and belongs to the token.
func (c *leaseCommand) leave(lease *redlock.Lease) error {
	if err := lease.Detach(); err != nil {
		return exitError{exitLost, err}
	}
	return nil
}

// tell prints a lease in JSON, if the flags ask for it.
func (c *leaseCommand) tell(lease *redlock.Lease) (shown bool, err error) {
	left := lease.Validity()
	return c.json(leaseReport{
		Key: lease.Resource(), Token: lease.Token(), Fence: lease.Fence(), TTLMillis: c.ttl.Milliseconds(),
		ValidMillis: left.Milliseconds(), ValidUntil: time.Now().Add(left),
	})
}

// leaseReport is a lease in JSON.
type leaseReport struct {
	Key         string    `json:"key"`
	Token       string    `json:"token"`
	Fence       int64     `json:"fence,omitempty"` // may be unknown after an extend with masters down
	TTLMillis   int64     `json:"ttl_ms"`
	ValidMillis int64     `json:"valid_ms"`
	ValidUntil  time.Time `json:"valid_until"` // by this machine's clock, no other process can hold the lock before
}

func (c *leaseCommand) extend(cmd *cobra.Command, key, token string) (err error) {
	if err := c.output.open(cmd); err != nil {
		return err
	}
	return c.adopted(cmd, key, token, func(lease *redlock.Lease) error {
		if _, err := c.tell(lease); err != nil {
			return errors.Join(err, c.leave(lease))
		}
		return c.leave(lease)
	})
}

func (c *leaseCommand) release(cmd *cobra.Command, key, token string) error {
	return c.adopted(cmd, key, token, func(lease *redlock.Lease) error {
		err := lease.Unlock(context.Background())
		switch {
		case errors.Is(err, redlock.ErrNotHeld):
			return exitError{exitLost, err}
		case err != nil:
			return withoutQuorum(err)
		}
		return nil
	})
}

// adopted calls do with the lease of a token.
func (c *leaseCommand) adopted(cmd *cobra.Command, key, token string, do func(*redlock.Lease) error) (err error) {
	locker, err := c.openFor(cmd)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locker.Close()) }()
	ctx, stop := interruptible(cmd)
	defer stop()
	var lease *redlock.Lease
	for range connectTries { // a master that was slow the first time may be in time the next
		lease, err = locker.Adopt(ctx, key, token, 0)
		if !errors.Is(err, redlock.ErrNoQuorum) {
			break
		}
	}
	switch {
	case err == nil:
		return do(lease)
	case ctx.Err() != nil:
		return errInterrupted
	case errors.Is(err, redlock.ErrConfig):
		return usageError{err}
	case errors.Is(err, redlock.ErrNotHeld):
		return exitf(exitLost, "%s is not held by that token any more: %s", key, oneLine(err))
	case isNoQuorum(err):
		return withoutQuorum(err)
	}
	return err
}
