package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/d0720281/redlock"
)

// Exit codes.
const (
	exitOK          = 0
	exitFailed      = 1   // something went wrong, or was found to be wrong
	exitUsage       = 2   // bad flags or arguments: nothing was done
	exitInterrupted = 130 // as shells report a process that Ctrl-C ended
)

// errInterrupted is matched by the error of a command that a signal cut short.
var errInterrupted = errors.New("interrupted")

// usageError is a complaint about flags or arguments.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// execute runs the command line and returns the exit code.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return finish(root.ExecuteContext(ctx), stderr)
}

// finish tells, on one line, what a command ended with, and returns the exit code.
func finish(err error, stderr io.Writer) int {
	if err == nil {
		return exitOK
	}
	fmt.Fprintln(stderr, "redlock:", strings.ReplaceAll(strings.TrimPrefix(err.Error(), "redlock: "), "\n", "; "))
	switch {
	case errors.As(err, new(usageError)), errors.Is(err, redlock.ErrConfig):
		return exitUsage
	case errors.Is(err, errInterrupted):
		return exitInterrupted
	}
	return exitFailed
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:               "redlock",
		Short:             "Quorum locks over independent Redis masters",
		Args:              noArgs,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w (see %s --help)", err, cmd.CommandPath())
	})
	root.AddCommand(newDemo())
	return root
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%q is no command or argument of %s (see %[2]s --help)", args[0], cmd.CommandPath())
	}
	return nil
}
