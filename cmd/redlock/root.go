package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
)

// execute runs the command line and returns the exit code.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return finish(root.ExecuteContext(ctx), stderr)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "redlock",
		Short:         "Quorum locks over independent Redis masters",
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       moduleVersion(),

		SuggestionsMinimumDistance: 2,
	}
	root.SetVersionTemplate("redlock {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w (see %s --help)", err, cmd.CommandPath())
	})
	root.AddCommand(newRun(), newAcquire(), newExtend(), newRelease(), newStatus(), newList(), newWatch(), newBreak(), newDoctor(), newInit(), newDemo())
	return root
}

// interruptible returns a context that ends with the first Ctrl-C or SIGTERM. The second
// signal ends the process at once.
func interruptible(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean " + near[0] + "? "
	}
	return usagef("%q is no command or argument of %s (%[3]ssee %[2]s --help)", args[0], cmd.CommandPath(), hint)
}

// moduleVersion returns the version of the module from which the command was built.
func moduleVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
