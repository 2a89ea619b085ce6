package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
)

const initHelp = `Give the masters of a new deployment their votes at once, instead of after a quarantine.

Call it only if no lock that was ever taken on these masters can still be held: that is what you declare. redlock shows what it would do. It does it with --yes, or on a terminal when you have typed yes.

Call it once, in the tool that sets the deployment up, with the list of masters, the --prefix and the --max-ttl that all clients have. Never call it when a service starts: a master that has just restarted empty looks new, and if it gets its vote while a lock is held, a second holder can get the lock. After a master was added or replaced, wait instead.

All masters must answer. If all masters or some of them are in use already, nothing is changed.

Exit code: 0 if all masters have votes now; 64 if nothing was done for want of a yes; 69 if nothing was done.`

// initWithin bounds how long init asks the masters.
const initWithin = 5 * time.Second

// initCommand is the init command.
type initCommand struct {
	asking
	yes bool
}

func newInit() *cobra.Command {
	var i initCommand
	cmd := &cobra.Command{Use: "init [flags]", Short: "Vouch for the masters of a new deployment", Long: initHelp, Args: noArgs}
	cmd.Flags().BoolVar(&i.yes, "yes", false, "declare that no lock is held on these masters, and do it")
	return i.command(cmd, func(ctx context.Context, _ []string) error { return i.run(ctx) })
}

func (i *initCommand) run(ctx context.Context) error {
	asked, cancel := context.WithTimeout(ctx, initWithin)
	defer cancel()
	report, found := admin.Check(asked, i.locker)
	if found == nil {
		fmt.Fprintln(i.out, "Nothing to do: all masters have a vote already.")
		return nil
	}
	allNeeded(found)
	reached := slices.ContainsFunc(report.Masters, func(m admin.Master) bool { return m.Err == nil })
	if report.Voting > 0 || slices.ContainsFunc(report.Masters, func(m admin.Master) bool { return m.Err != nil || m.Quarantine == 0 }) {
		return i.failed(found, reached) // also for a master that is in use, and refuses the list
	}
	var masters []string
	var longest time.Duration // of their quarantines
	for _, m := range report.Masters {
		masters, longest = append(masters, m.Master), max(longest, m.Quarantine)
	}
	if !i.yes {
		if err := i.confirm(ctx, masters, longest); err != nil {
			return err
		}
	}
	ctx, cancel = context.WithTimeout(ctx, initWithin)
	defer cancel()
	if err := admin.Bootstrap(ctx, i.locker); err != nil {
		return i.failed(err, reached)
	}
	i.say("Masters that have a vote now, for locks whose keys begin with %q: %s", i.prefix, strings.Join(masters, ", "))
	i.say("You have declared that no lock is held on them, and that they have forgotten none.")
	return nil
}

// failed returns the error of init, if there is one.
func (i *initCommand) failed(err error, reached bool) error {
	if err == nil {
		return nil
	}
	text := "not all masters were vouched for"
	if !reached {
		text = "no master can be asked"
	}
	err = i.withoutQuorum(err)
	return exitf(exitCode(err), "%s: %w", text, err)
}

// allNeeded has the error of [admin.Check] say that init needs all masters, and not a quorum.
func allNeeded(found error) {
	if e := (*redlock.QuorumError)(nil); errors.As(found, &e) {
		e.Need = e.Total
	}
}

// confirm says what init would do. The error is nil if the user has typed yes on a terminal.
func (i *initCommand) confirm(ctx context.Context, masters []string, longest time.Duration) error {
	i.say("redlock init gives these masters their votes at once, for locks whose keys begin with %q:", i.prefix)
	fmt.Fprintf(i.out, "  %s\n", strings.Join(masters, "\n  "))
	i.say("You declare that no lock is held on them, and that they have forgotten none.")
	i.say("If a process still holds a lock, a second process can get that lock.")
	i.say("Without redlock init they have their votes in %v.", longest.Round(100*time.Millisecond))
	if term.IsTerminal(int(os.Stdin.Fd())) && terminalOf(i.out) != nil {
		fmt.Fprint(i.out, "Type yes to declare that: ")
		answer := make(chan string, 1)
		go func() { // it ends with the process
			line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
			answer <- strings.TrimSpace(line)
		}()
		select {
		case typed := <-answer:
			if typed == "yes" {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return usagef("nothing was done: add --yes to declare that, and do it")
}
