package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/d0720281/redlock"
)

const doctorHelp = `Ask all masters about themselves, and say what should be corrected.

If a master does not tell something, that is unknown, and not ok. Nothing is changed on the
masters, except that a master that is seen for the first time gets its marker.

Exit code: 0 if there is nothing worse than a notice or an unknown, 1 if there is, and 69 if
no quorum of masters has a vote.`

// doctor is the doctor command.
type doctor struct {
	connection
	output
}

func newDoctor() *cobra.Command {
	var d doctor
	cmd := &cobra.Command{
		Use:                   "doctor [flags]",
		Short:                 "Say what is wrong with the masters",
		Long:                  doctorHelp,
		Args:                  noArgs,
		DisableFlagsInUseLine: true,
		RunE:                  func(cmd *cobra.Command, _ []string) error { return d.run(cmd) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	d.output.register(f)
	d.connection.register(f)
	return cmd
}

func (d *doctor) run(cmd *cobra.Command) (err error) {
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
	report, found := locker.Check(ctx)
	if ctx.Err() != nil {
		return errInterrupted
	}
	if shown, err := d.json(healthOf(report)); err != nil {
		return err
	} else if !shown {
		d.show(report)
	}
	switch {
	case errors.Is(found, redlock.ErrNoQuorum):
		return exitError{code: exitNoQuorum}
	case found != nil || worst(report) >= redlock.LevelWarning:
		return exitError{code: exitFailed}
	}
	return nil
}

func worst(r redlock.Report) (worst redlock.Level) {
	for _, g := range r.Groups {
		for _, n := range g.Nodes {
			for _, f := range n.Findings {
				worst = max(worst, f.Level)
			}
		}
	}
	return worst
}

func (d *doctor) show(r redlock.Report) {
	for i, g := range r.Groups {
		if len(r.Groups) > 1 {
			fmt.Fprintf(d.out, "Group %d\n", i+1)
		}
		d.showGroup(g)
	}
}

func (d *doctor) showGroup(r redlock.GroupReport) {
	for _, n := range r.Nodes {
		fmt.Fprintln(d.out, strings.TrimSpace(n.Node+" "+n.Version))
		for _, f := range n.Findings {
			level := fmt.Sprintf("%-8s", f.Level)
			switch {
			case f.Level == redlock.LevelOK:
				level = d.style.good(level)
			case f.Level >= redlock.LevelWarning:
				level = d.style.bad(level)
			}
			fmt.Fprintf(d.out, "  %s %-12s %s\n", level, f.Check, f.Text)
			if f.Hint != "" {
				fmt.Fprintf(d.out, "  %-21s -> %s\n", "", f.Hint)
			}
		}
	}
	line := fmt.Sprintf("%d of %d masters have a vote; a quorum is %d", r.Voting, len(r.Nodes), r.Quorum)
	if r.Voting < r.Quorum {
		line = d.style.bad(line)
	}
	fmt.Fprintln(d.out, line)
}

// health is the report in JSON.
type health struct {
	Worst  string        `json:"worst"`
	Groups []groupHealth `json:"groups"`
}

type groupHealth struct {
	Quorum  int            `json:"quorum"`
	Voting  int            `json:"voting"`
	Masters []masterHealth `json:"masters"`
}

type masterHealth struct {
	Node            string          `json:"node"`
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

func healthOf(r redlock.Report) health {
	h := health{Worst: worst(r).String()}
	for _, g := range r.Groups {
		h.Groups = append(h.Groups, groupHealthOf(g))
	}
	return h
}

func groupHealthOf(r redlock.GroupReport) groupHealth {
	h := groupHealth{Quorum: r.Quorum, Voting: r.Voting}
	for _, n := range r.Nodes {
		m := masterHealth{
			Node: n.Node, Version: n.Version, RoundTripMicros: n.RoundTrip.Microseconds(),
			ClockMillis: n.Clock.Round(time.Millisecond).Milliseconds(), QuarantineMilli: n.Quarantine.Milliseconds(),
		}
		if n.Err != nil {
			m.Error = oneLine(n.Err)
		}
		for _, f := range n.Findings {
			m.Findings = append(m.Findings, findingReport{f.Check, f.Level.String(), f.Text, f.Hint})
		}
		h.Masters = append(h.Masters, m)
	}
	return h
}
