package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/d0720281/redlock/internal/address"
)

// execute runs the command line and returns the exit code.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(withDash(root, args))
	out := &checkedWriter{to: stdout}
	root.SetOut(out)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	switch {
	case errors.Is(out.err, syscall.EPIPE) && (isSilent(err) || errors.Is(err, errInterrupted) || errors.Is(err, syscall.EPIPE)):
		err = exitError{code: exitSignalled + int(syscall.SIGPIPE)} // as of a program that the signal ends
	case isSilent(err) && out.err != nil: // the report was not written
		err = exitError{max(exitCode(err), exitFailed), out.err}
	}
	return finish(err, stderr)
}

func newRoot() *cobra.Command {
	version := "(devel)"
	if built, ok := debug.ReadBuildInfo(); ok {
		version = cmp.Or(built.Main.Version, version)
	}
	root := &cobra.Command{
		Use:           "redlock",
		Short:         "Quorum locks over independent Redis masters",
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version,

		SuggestionsMinimumDistance: 2,
	}
	root.SetVersionTemplate("redlock {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		text, _, _ := strings.Cut(err.Error(), " in -") // what follows may be the value, as in -asecret
		if before, _, ofGo := strings.Cut(text, ": strconv."); ofGo {
			text = before + ": must be a whole number"
		}
		if strings.Contains(text, "@") {
			text = "unknown flag, or a wrong value"
		}
		return usagef("%s (see %s --help)", text, cmd.CommandPath())
	})
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		err := fromEnvironment(cmd.Flags())
		cmd.Flags().Visit(func(f *pflag.Flag) {
			if f.Value.Type() == "string" && f.Value.String() == "" && f.Name != "prefix" {
				err = usagef("--%s: its value is empty, as from a variable that is not set", f.Name)
			}
		})
		return err
	}
	root.SetHelpFunc(help)
	root.AddCommand(newRun(), newAcquire(), newExtend(), newRelease(), newStatus(), newList(), newWatch(), newTop(), newBreak(), newDoctor(), newInit(), newDemo(), newVersion(version), newMan(), newMastersTopic())
	addCompletion(root)
	root.InitDefaultHelpCmd()
	help, _, _ := root.Find([]string{"help"})
	help.Args = func(_ *cobra.Command, args []string) error {
		if cmd, rest, _ := root.Find(args); cmd == root {
			return noArgs(root, rest)
		}
		return nil
	}
	return root
}

// withDash returns the command line with the -- that redlock run needs between KEY and command, if
// it has none: flock, consul lock and etcdctl lock need none either. The flags of redlock run end
// at the command then, as the flags behind it are those of the command.
func withDash(root *cobra.Command, args []string) []string {
	cmd, rest, err := root.Find(args)
	if err != nil || cmd.Name() != runName || slices.Contains(rest, "--") {
		return args
	}
	scratch := newRun().Flags() // what it parses changes nothing
	scratch.SetInterspersed(false)
	for range 2 { // up to KEY, and from there up to the command
		if err := scratch.Parse(rest); err != nil || scratch.NArg() == 0 {
			return args // the error is found again
		}
		rest = scratch.Args()[1:]
	}
	at := len(args) - len(rest) - 1
	return slices.Insert(slices.Clone(args), at, "--")
}

// interruptible returns a context that ends with the first Ctrl-C, SIGTERM, SIGQUIT or SIGHUP, or if
// nothing reads the output any more. The second signal ends the process at once; a broken output does not.
func interruptible(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	surviveOutput()
	ending := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT}
	if !signal.Ignored(syscall.SIGHUP) { // as by nohup
		ending = append(ending, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), ending...)
	ctx, end := context.WithCancel(ctx)
	broken := make(chan os.Signal, 1)
	for _, sig := range brokenOutput {
		signal.Notify(broken, sig)
	}
	go func() {
		for {
			select {
			case sig := <-broken:
				if isBroken(sig) { // and not the connection to a master
					end()
				}
			case <-ctx.Done():
				signal.Stop(broken)
				stop()
				return
			}
		}
	}()
	return ctx, end
}

// sleep returns true after a time, and false when ctx ends.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	if near := cmd.SuggestionsFor(args[0]); args[0] != "" && len(near) > 0 {
		hint = "did you mean " + near[0] + "? "
	}
	return usagef("%s is no command or argument of %s (%[3]ssee %[2]s --help)", nameOf(args, 0), cmd.CommandPath(), hint)
}

// nameOf quotes an argument, unless it may be the address of a master with a password.
func nameOf(args []string, i int) string {
	_, err := address.Parse(args[i : i+1])
	if strings.Contains(args[i], "://") || strings.ContainsAny(args[i], "@:=") && err != nil {
		return fmt.Sprintf("argument %d", i+1)
	}
	return strconv.Quote(args[i])
}
