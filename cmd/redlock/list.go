package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/sharded"
)

const listHelp = `List the locks under the key prefix: those of which some master has a key.

The words are those of redlock status. redlock looks for the keys on all masters, by SCAN, in
small steps that delay no lock. The output can be out of date when it is shown.

Exit code: 0, or 69 if too few masters answered, so that locks may be missing.`

// list is the list command.
type list struct {
	connection
	output
}

func newList() *cobra.Command {
	var l list
	cmd := &cobra.Command{
		Use:                   "list [flags]",
		Short:                 "List all locks and their holders",
		Long:                  listHelp,
		Args:                  noArgs,
		DisableFlagsInUseLine: true,
		RunE:                  func(cmd *cobra.Command, _ []string) error { return l.run(cmd) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	l.output.register(f)
	l.connection.register(f)
	return cmd
}

func (l *list) run(cmd *cobra.Command) (err error) {
	if err := l.output.open(cmd); err != nil {
		return err
	}
	locker, err := l.connection.open(redlock.WithLogger(nil))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locker.Close()) }()
	ctx, stop := interruptible(cmd)
	defer stop()
	found, missing := lookForLocks(ctx, locker)
	switch {
	case ctx.Err() != nil:
		return errInterrupted
	case missing != nil && !errors.Is(missing, redlock.ErrNoQuorum):
		return missing
	}
	shown, err := l.json(reportsOf(found))
	if err != nil {
		return err
	}
	if !shown {
		l.showLocks(found)
	}
	if missing != nil {
		return withoutQuorum(missing)
	}
	return nil
}

// lookForLocks returns all locks, and why some may be missing. It ends at an error that is not for want of a
// quorum.
func lookForLocks(ctx context.Context, locker *sharded.Locker) (found []admin.Inspection, missing error) {
	for in, err := range listAll(ctx, locker) {
		if err != nil {
			missing = err
			if !errors.Is(err, redlock.ErrNoQuorum) {
				return found, missing
			}
		}
		if in.Resource != "" {
			found = append(found, in)
		}
	}
	return found, missing
}

func reportsOf(list []admin.Inspection) []lockReport {
	all := []lockReport{}
	for _, in := range list {
		all = append(all, reportOf(in))
	}
	return all
}

// showLocks writes a table of locks, if there are any.
func (o *output) showLocks(list []admin.Inspection) {
	var rows []table.Row
	for _, in := range list {
		rows = append(rows, rowOfLock(in))
	}
	if len(rows) > 0 {
		o.table(table.Row{"key", "verdict", "token", "fence", "expires in", "owner"}, rows)
	}
}

func rowOfLock(in admin.Inspection) table.Row {
	fence, ttl := "", "never"
	if in.Fence != 0 {
		fence = fmt.Sprint(in.Fence)
	}
	if left := in.FreeIn(); left >= 0 {
		ttl = left.Round(time.Millisecond).String()
	}
	token := shortToken(in.Token)
	if in.Verdict == admin.VerdictShared {
		token = readersOf(len(in.Readers))
	}
	return table.Row{in.Resource, in.Verdict.String(), token, fence, ttl, in.Owner}
}
