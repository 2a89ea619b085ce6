package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/sharded"
)

const doctorHelp = `Ask all masters about themselves, and say what should be corrected.

If a master does not tell something, that is unknown, and not ok. Nothing is changed on the
masters, except that a master that is seen for the first time gets its marker.

A master that restarted is in quarantine from the first time that a client reaches it. So run
redlock doctor --wait behind each start of a master: it asks until all masters, or those that
are given as MASTER, have a vote. A service that starts the next day does not wait then.

With --locks redlock also shows the locks that are held and their owners, as redlock list does. If a
majority of the masters restarts at once, these owners can lose their locks.

Exit code: 0 if there is nothing worse than a notice or an unknown, 1 if there is, and 69 if
no quorum of masters has a vote. With MASTERs only the findings about these count: 0 or 1.`

const doctorExamples = `  redlock doctor
  redlock doctor 10.0.0.1:6379 --wait 1m   # behind the start of that master`

// doctor is the doctor command.
type doctor struct {
	connection
	output
	wait  time.Duration
	locks bool
}

func newDoctor() *cobra.Command {
	var d doctor
	cmd := &cobra.Command{
		Use:                   "doctor [MASTER...] [flags]",
		Short:                 "Say what is wrong with the masters",
		Long:                  doctorHelp,
		Example:               doctorExamples,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     cobra.NoFileCompletions,
		RunE:                  func(cmd *cobra.Command, args []string) error { return d.run(cmd, args) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.Var((*duration)(&d.wait), "wait", "wait at most that long until the masters have votes")
	f.BoolVar(&d.locks, "locks", false, "show the locks that are held, too, with their owners")
	d.output.register(f)
	d.connection.register(f)
	return cmd
}

func (d *doctor) run(cmd *cobra.Command, only []string) (err error) {
	if err := d.output.open(cmd); err != nil {
		return err
	}
	locker, err := d.connection.open(redlock.WithLogger(nil))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locker.Close()) }()
	ctx, stop := interruptible(cmd)
	defer stop()
	if err := known(mastersIn(locker), only); err != nil {
		return err
	}
	report, found := d.check(ctx, locker, only)
	if ctx.Err() != nil {
		return errInterrupted
	}
	shown := healthOf(report)
	var locks []admin.Inspection
	var missing error
	if d.locks {
		locks, missing = lookForLocks(ctx, locker)
		shown.Locks = reportsOf(locks)
	}
	if ctx.Err() != nil {
		return errInterrupted
	}
	if asJSON, err := d.json(shown); err != nil {
		return err
	} else if !asJSON {
		d.show(report)
		d.showLocks(locks)
	}
	switch {
	case len(only) == 0 && errors.Is(found, redlock.ErrNoQuorum):
		return exitError{exitNoQuorum, missing}
	case len(only) == 0 && found != nil || worst(report, only) >= admin.LevelWarning:
		return exitError{exitFailed, missing}
	case missing != nil:
		return withoutQuorum(missing)
	}
	return nil
}

// known returns an error if some of the addresses are not those of masters.
func known(masters []redlock.MasterStats, addrs []string) error {
	for _, a := range addrs {
		if !slices.ContainsFunc(masters, func(n redlock.MasterStats) bool { return n.Master == a }) {
			return usagef("%q is none of the masters (see redlock doctor --help)", a)
		}
	}
	return nil
}

// check asks all masters. With --wait it asks until those that count have votes.
func (d *doctor) check(ctx context.Context, locker *sharded.Locker, only []string) ([]admin.Report, error) {
	const often = time.Second
	for end := time.Now().Add(d.wait); ; {
		report, found := check(ctx, locker)
		left := time.Until(end)
		pause := min(left, often, votesIn(report, only))
		if pause <= 0 {
			return report, found
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return report, found
		}
	}
}

// votesIn returns when to ask again whether the masters that count have votes; 0 if they have.
func votesIn(r []admin.Report, only []string) (pause time.Duration) {
	const unknown = 200 * time.Millisecond // a master that is starting
	for n := range mastersOf(r, only) {
		switch {
		case n.Err != nil:
			pause = max(pause, unknown)
		case n.Quarantine > 0:
			pause = max(pause, n.Quarantine)
		}
	}
	return pause
}

// mastersOf iterates over the reports of those masters, or of all if none are given.
func mastersOf(r []admin.Report, only []string) iter.Seq[admin.Master] {
	return func(yield func(admin.Master) bool) {
		for _, g := range r {
			for _, n := range g.Masters {
				if (len(only) == 0 || slices.Contains(only, n.Master)) && !yield(n) {
					return
				}
			}
		}
	}
}

// worst returns the worst level of the masters that count, and of their groups if all do.
func worst(r []admin.Report, only []string) (worst admin.Level) {
	for n := range mastersOf(r, only) {
		worst = max(worst, worstOf(n.Findings))
	}
	for _, g := range r {
		if len(only) == 0 {
			worst = max(worst, worstOf(g.Findings))
		}
	}
	return worst
}

func worstOf(findings []admin.Finding) (worst admin.Level) {
	for _, f := range findings {
		worst = max(worst, f.Level)
	}
	return worst
}

func (d *doctor) show(r []admin.Report) {
	for i, g := range r {
		if len(r) > 1 {
			fmt.Fprintf(d.out, "Group %d\n", i+1)
		}
		d.showGroup(g)
	}
}

func (d *doctor) showGroup(r admin.Report) {
	for _, n := range r.Masters {
		fmt.Fprintln(d.out, strings.TrimSpace(n.Master+" "+n.Version))
		d.showFindings(n.Findings)
	}
	fmt.Fprintln(d.out, "all masters")
	d.showFindings(r.Findings)
	line := fmt.Sprintf("%d of %d masters have a vote; a quorum is %d", r.Voting, len(r.Masters), r.Quorum)
	if r.Voting < r.Quorum {
		line = d.style.bad(line)
	}
	fmt.Fprintln(d.out, line)
}

func (d *doctor) showFindings(findings []admin.Finding) {
	for _, f := range findings {
		level := fmt.Sprintf("%-8s", f.Level)
		switch {
		case f.Level == admin.LevelOK:
			level = d.style.good(level)
		case f.Level >= admin.LevelWarning:
			level = d.style.bad(level)
		}
		fmt.Fprintf(d.out, "  %s %-12s %s\n", level, f.Check, f.Text)
		if f.Hint != "" {
			fmt.Fprintf(d.out, "  %-21s -> %s\n", "", f.Hint)
		}
	}
}

// health is the report in JSON.
type health struct {
	Worst  string        `json:"worst"`
	Groups []groupHealth `json:"groups"`
	Locks  []lockReport  `json:"locks,omitzero"` // with --locks, also if there are none
}

type groupHealth struct {
	Quorum  int            `json:"quorum"`
	Voting  int            `json:"voting"`
	Masters []masterHealth `json:"masters"`
	// Findings are about the group as a whole.
	Findings []findingReport `json:"findings"`
}

type masterHealth struct {
	Master          string          `json:"master"`
	Version         string          `json:"version,omitempty"`
	RoundTripMicros int64           `json:"round_trip_us,omitempty"`
	ClockMillis     int64           `json:"clock_ms"`
	QuarantineMilli int64           `json:"quarantine_ms,omitempty"`
	Error           string          `json:"error,omitempty"`
	Findings        []findingReport `json:"findings"`
}

type findingReport struct {
	Check string `json:"check"`
	Level string `json:"level"`
	Text  string `json:"text"`
	Hint  string `json:"hint,omitempty"`
}

func healthOf(r []admin.Report) health {
	h := health{Worst: worst(r, nil).String()}
	for _, g := range r {
		h.Groups = append(h.Groups, groupHealthOf(g))
	}
	return h
}

func groupHealthOf(r admin.Report) groupHealth {
	h := groupHealth{Quorum: r.Quorum, Voting: r.Voting, Findings: findingReports(r.Findings)}
	for _, n := range r.Masters {
		m := masterHealth{
			Master: n.Master, Version: n.Version, RoundTripMicros: n.RoundTrip.Microseconds(),
			ClockMillis: n.Clock.Round(time.Millisecond).Milliseconds(), QuarantineMilli: n.Quarantine.Milliseconds(),
		}
		if n.Err != nil {
			m.Error = oneLine(n.Err)
		}
		m.Findings = findingReports(n.Findings)
		h.Masters = append(h.Masters, m)
	}
	return h
}

func findingReports(findings []admin.Finding) (all []findingReport) {
	for _, f := range findings {
		all = append(all, findingReport{f.Check, f.Level.String(), f.Text, f.Hint})
	}
	return all
}
