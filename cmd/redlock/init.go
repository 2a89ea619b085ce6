package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/d0720281/redlock"
)

const initHelp = `Give the masters of a new deployment their votes at once, instead of after a quarantine.

Call it only if no lock that was ever taken on these masters can still be held. Call it once,
in the tool that sets the deployment up, with the list of masters, the --prefix and the
--max-ttl that all clients have. Never call it when a service starts: a master that has just
restarted empty looks new, and if it gets its vote while a lock is held, a second holder can
get the lock. After a master was added or replaced, wait instead.

All masters must answer. If all masters or some of them are in use already, nothing is
changed. With several groups of masters that holds for each group by itself.

Exit code: 0 if all masters have votes now; 69 if nothing was done, or not in all groups; 78 if the masters
or options cannot work.`

// initCommand is the init command.
type initCommand struct{ connection }

func newInit() *cobra.Command {
	var b initCommand
	cmd := &cobra.Command{
		Use:                   "init [flags]",
		Short:                 "Vouch for the masters of a new deployment",
		Long:                  initHelp,
		Args:                  noArgs,
		DisableFlagsInUseLine: true,
		RunE:                  func(cmd *cobra.Command, _ []string) error { return b.run(cmd) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	b.connection.register(f)
	return cmd
}

func (b *initCommand) run(cmd *cobra.Command) (err error) {
	locker, err := b.connection.open(redlock.WithLogger(nil))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locker.Close()) }()
	ctx, stop := interruptible(cmd)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	report, _ := check(ctx, locker)
	var names []string
	for _, g := range report {
		if g.Voting == len(g.Masters) {
			continue
		}
		for _, n := range g.Masters {
			names = append(names, n.Master)
		}
	}
	if len(names) == 0 {
		fmt.Fprintln(cmd.OutOrStdout(), "Nothing to do: all masters have a vote already.")
		return nil
	}
	err = bootstrap(ctx, locker)
	switch {
	case errors.Is(err, redlock.ErrQuarantine) || isNoQuorum(err):
		err = withoutQuorum(err)
		return exitf(exitCode(err), "not all masters were vouched for: %w", err)
	case err != nil:
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s have a vote now, for locks whose keys begin with %q.\nYou have vouched that no lock is held on them, and that they have forgotten none.\n",
		strings.Join(names, ", "), b.prefix)
	return nil
}
