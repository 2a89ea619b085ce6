package main

import (
	"context"
	"errors"
	"sync"

	"github.com/spf13/cobra"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/sharded"
)

// asking is what the commands that ask the masters have in common.
type asking struct {
	connection
	output
	locker *sharded.Locker
}

// command completes a command: it gets the flags for the masters, and its run a Locker without a
// log. The context of run ends with the first signal. options has what the flags add to the Locker.
func (a *asking) command(cmd *cobra.Command, run func(ctx context.Context, args []string) error, options ...func() ([]redlock.Option, error)) *cobra.Command {
	cmd.DisableFlagsInUseLine = true
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	cmd.Flags().SortFlags = false
	a.connection.register(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if err := a.output.open(cmd); err != nil {
			return err
		}
		opts := []redlock.Option{redlock.WithLogger(nil)}
		for _, more := range options {
			add, err := more()
			if err != nil {
				return err
			}
			opts = append(opts, add...)
		}
		if a.locker, err = a.connection.open(opts...); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, a.locker.Close()) }()
		ctx, stop := interruptible(cmd)
		defer stop()
		err = run(ctx, args)
		switch {
		case err == nil || errors.As(err, new(exitError)):
			return err
		case ctx.Err() != nil:
			return errInterrupted
		case errors.Is(err, redlock.ErrConfig):
			return exitError{exitUsage, err} // only arguments have not been checked before
		case isNoQuorum(err):
			return a.withoutQuorum(err)
		}
		return err
	}
	return cmd
}

// wants returns a check that there is an argument, and at most so many.
func wants(most int, complaint string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 || len(args) > most {
			return usagef("%s (see %s --help)", complaint, cmd.CommandPath())
		}
		return nil
	}
}

const anyNumber = 1 << 20

// The functions of package admin are for one group of masters. These are for all.

// check asks the masters of all groups about themselves, and returns a report for each group.
func (a *asking) check(ctx context.Context) ([]admin.Report, error) {
	groups := a.locker.Groups()
	reports, errs := make([]admin.Report, len(groups)), make([]error, len(groups))
	var asked sync.WaitGroup
	for i, g := range groups {
		asked.Go(func() { reports[i], errs[i] = admin.Check(ctx, g) })
	}
	asked.Wait()
	return reports, errors.Join(errs...)
}

// inspect asks the group of a key what its masters have of the lock.
func (a *asking) inspect(ctx context.Context, key string) (lock, error) {
	in, err := admin.Inspect(ctx, a.locker.GroupOf(key), key)
	return lockOf(in), err
}

// list returns all locks, and why some may be missing. It ends at an error that is not for want of
// a quorum.
func (a *asking) list(ctx context.Context) (found []lock, missing error) {
	found = []lock{}
	for _, g := range a.locker.Groups() {
		for in, err := range admin.List(ctx, g) {
			if err != nil {
				missing = err
			}
			if missing != nil && !errors.Is(missing, redlock.ErrNoQuorum) {
				return found, missing
			}
			if in.Resource != "" {
				found = append(found, lockOf(in))
			}
		}
	}
	return found, missing
}
