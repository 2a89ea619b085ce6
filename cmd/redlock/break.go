package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
)

const breakHelp = `Take the lock KEY away from its holder. Without --yes redlock only shows the holder.

Use it against a holder that lives and does not let go. The lock of a holder that has died ends
by itself. On each master the holder's key is replaced by a placeholder, with the life that the
key had left. So the holder cannot renew its lock, and loses it before another holder can have
it; a redlock run then kills its command. A holder that lives is told, and gives the lock back
when it has ended. Otherwise the lock is BROKEN until the placeholders expire, and then free. The
placeholder of a key that never expires lives for --max-ttl.

Exit code: 0 if the lock was taken away or was free, 64 without --yes or for wrong usage, and 69
if the lock could not be taken away on a quorum of masters: then the holder may go on.`

// breakCommand is the break command: it takes a lock away.
type breakCommand struct {
	connection
	output
	yes bool
}

func newBreak() *cobra.Command {
	var b breakCommand
	cmd := &cobra.Command{
		Use:                   "break KEY --yes [flags]",
		Short:                 "Take a lock away from its holder",
		Long:                  breakHelp,
		Example:               "  redlock break deploy --yes",
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("which lock? give a KEY (see redlock break --help)")
			}
			return b.run(cmd, args[0])
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVar(&b.yes, "yes", false, "do it")
	b.output.register(f)
	b.connection.register(f)
	return cmd
}

func (b *breakCommand) run(cmd *cobra.Command, key string) (err error) {
	if err := b.output.open(cmd); err != nil {
		return err
	}
	locker, err := b.connection.open(redlock.WithLogger(nil))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locker.Close()) }()
	ctx, stop := interruptible(cmd)
	defer stop()
	do := admin.Inspect
	if b.yes {
		do = admin.Break
	}
	in, err := do(ctx, locker.Of(key), key)
	switch {
	case ctx.Err() != nil:
		return errInterrupted
	case errors.Is(err, redlock.ErrConfig):
		return usageError{err}
	case err != nil && !errors.Is(err, redlock.ErrNoQuorum):
		return err
	}
	broken := brokenReport{lockReport: reportOf(in)}
	for _, n := range in.Masters {
		if n.Broken {
			broken.Broken++
		}
	}
	broken.FreeMillis = freeMillis(in)
	shown, jsonErr := b.json(broken)
	if jsonErr != nil {
		return jsonErr
	}
	if !shown {
		b.showLock(in)
	}
	switch {
	case !b.yes:
		return usagef("nothing was done: add --yes to take the lock away from its holder")
	case err != nil:
		return withoutQuorum(err)
	case shown:
	case broken.Broken == 0:
		fmt.Fprintln(b.out, "Nothing to take away.")
	default:
		fmt.Fprintf(b.out, "Taken away on %d of %d masters. Free in %v at the latest.\n",
			broken.Broken, len(in.Masters), in.FreeIn().Round(time.Millisecond))
	}
	return nil
}

// brokenReport describes a broken lock in JSON.
type brokenReport struct {
	lockReport
	Broken     int   `json:"broken"`     // masters on which it was broken
	FreeMillis int64 `json:"free_in_ms"` // at the latest, as far as the masters answered; negative: never by itself
}
