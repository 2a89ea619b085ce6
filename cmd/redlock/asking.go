package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
)

// asking is what the commands that ask the masters have in common.
type asking struct {
	connection
	output
	locker *redlock.Locker
}

// command completes a command: it gets the flags for the masters, and its run a Locker without a
// log. The context of run ends with the first signal. options has what the flags add to the Locker.
func (a *asking) command(cmd *cobra.Command, run func(ctx context.Context, args []string) error, options ...func() ([]redlock.Option, error)) *cobra.Command {
	cmd.Long += " It is also 64 for wrong usage, 78 for masters or options that cannot work, and 1 if the output cannot be written."
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

// inspect asks the masters what they have of the lock of a key.
func (a *asking) inspect(ctx context.Context, key string) (lock, error) {
	in, err := admin.Inspect(ctx, a.locker, key)
	return a.settled(ctx, in, err)
}

// How often a command looks again at a lock that a quorum of masters has told about, but of which no
// holder has a quorum: with a master down that is so for a moment each time the lock changes hands.
const (
	moreLooks  = 3
	lookPause  = 20 * time.Millisecond
	looksAtOne = 64 // locks at a time
)

// settled looks again at such a lock. If its keys differ from look to look and no holder is found, the
// lock is changing hands, which is no error.
func (a *asking) settled(ctx context.Context, in admin.Inspection, err error) (lock, error) {
	changing := false
	for look := 0; isUnsettled(in, err) && look < moreLooks && sleep(ctx, lookPause); look++ {
		before := keysIn(in)
		in, err = admin.Inspect(ctx, a.locker, in.Resource)
		changing = changing || keysIn(in) != before
	}
	l := lockOf(in)
	if l.Changing = changing && isUnsettled(in, err); l.Changing {
		err = nil
	}
	return l, err
}

func isUnsettled(in admin.Inspection, err error) bool {
	answers := 0
	for _, m := range in.Masters {
		if m.Err == nil {
			answers++
		}
	}
	return errors.Is(err, redlock.ErrNoQuorum) && in.Quorum > 0 && answers >= in.Quorum
}

// keysIn returns the holders that each master knows.
func keysIn(in admin.Inspection) string {
	var b strings.Builder
	for _, m := range in.Masters {
		fmt.Fprintf(&b, "%q", m.Token)
		for _, r := range m.Readers {
			fmt.Fprintf(&b, " %q", r.Token)
		}
	}
	return b.String()
}

// list returns all locks whose KEYs match, and why some may be missing. It ends at an error that is not
// for want of a quorum.
func (a *asking) list(ctx context.Context, match func(key string) bool) (found []lock, missing error) {
	var unsettled []admin.Inspection
	found = []lock{}
	for in, err := range admin.ListMatching(ctx, a.locker, match) {
		if isUnsettled(in, err) {
			unsettled = append(unsettled, in)
			continue
		}
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
	if len(unsettled) == 0 {
		return found, missing
	}
	var mu sync.Mutex
	var looking errgroup.Group
	looking.SetLimit(looksAtOne)
	for _, in := range unsettled {
		looking.Go(func() error {
			l, err := a.settled(ctx, in, redlock.ErrNoQuorum)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				missing = err
			}
			if l.Verdict != admin.VerdictFree {
				found = append(found, l)
			}
			return nil
		})
	}
	_ = looking.Wait()
	slices.SortStableFunc(found, func(a, b lock) int { return strings.Compare(a.Key, b.Key) })
	return found, missing
}
