package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/address"
	"github.com/d0720281/redlock/internal/wire"
)

const doctorHelp = `Ask all masters about themselves, and say what should be corrected.

With TLS it warns of certificates that end within 14 days. If a master does not tell something, that is unknown, and not ok. redlock writes a key of its own on each master, as a lock does: it is no lock, and lives for a second. A master that refuses that grants no lock, because its memory or its disk is full. Nothing else is changed on the masters, except that a master that is seen for the first time gets its marker.

A master that restarted is in quarantine from the first time that a client reaches it. So run redlock doctor --wait 1m behind each start of a master: it asks until all masters, or those that are given as MASTER, have a vote. A service that starts the next day does not wait then.

If no lock can be had, the first line says why. Without -v redlock shows what is not well, and counts what is. With --locks it also shows the locks that are held and their owners, as redlock list does. If a majority of the masters restarts at once, these owners can lose their locks.

Exit code: 0 if there is nothing worse than a notice or an unknown, 1 if there is, 69 if no quorum of masters has a vote, and 78 if that is for TLS, a password, rights or the list of masters. With MASTERs, or a master in $REDLOCK_SELF, only the findings about these count: 0 or 1. With --ignore-warnings 1 is for failures alone: a probe that asks whether a master has a vote needs that.`

const doctorExamples = `  redlock doctor
  redlock doctor 10.0.0.1:6379 --wait 1m   # behind the start of that master`

// doctor is the doctor command.
type doctor struct {
	asking
	only    []string // the masters that count; all if there are none
	wait    time.Duration
	locks   bool
	verbose bool
	lenient bool
}

// selfEnv has the master that counts without MASTERs: a probe of Kubernetes has no variables in its command.
const selfEnv = "REDLOCK_SELF"

func newDoctor() *cobra.Command {
	var d doctor
	cmd := &cobra.Command{Use: "doctor [MASTER...] [flags]", Short: "Say what is wrong with the masters", Long: doctorHelp, Example: doctorExamples}
	f := cmd.Flags()
	f.Var((*duration)(&d.wait), "wait", "wait at most that long until the masters have votes")
	f.BoolVar(&d.locks, "locks", false, "show the locks that are held, too, with their owners")
	f.BoolVar(&d.lenient, "ignore-warnings", false, "show warnings, and do not count them for the exit code")
	f.BoolVarP(&d.verbose, "verbose", "v", false, "show what is well, too")
	d.output.register(f)
	return d.command(cmd, d.run)
}

func (d *doctor) run(ctx context.Context, only []string) error {
	if self := os.Getenv(selfEnv); self != "" && len(only) == 0 {
		only = []string{self}
	}
	for i, addr := range only {
		if o, err := address.Parse([]string{addr}); err == nil { // a URL, too
			addr = o[0].Addr
		}
		if d.asked[addr] == nil {
			return usagef("%s is none of the masters (see redlock doctor --help)", nameOf(only, i))
		}
		d.only = append(d.only, addr)
	}
	report, found := d.untilVotes(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	d.lookAtCertificates(ctx, report)
	shown := health{Worst: d.worst(report)}
	code := exitNoQuorum
	if verdict := (*redlock.QuorumError)(nil); redlock.Reason(found) == sameServer || errors.As(found, &verdict) && verdict.Permanent() {
		code = exitConfig
	}
	if hints := d.correct(report); len(report.Masters)-hints < report.Quorum {
		code = exitConfig
	}
	undecided := d.lookAtClocks(ctx, report)
	shown.of(report)
	if shown.NoLock != "" && undecided != "" {
		shown.NoLock = undecided
	}
	var missing error
	if d.locks {
		if shown.Locks, missing = d.list(ctx, all); ctx.Err() != nil {
			return ctx.Err()
		}
	}
	bad := admin.LevelWarning
	if d.lenient {
		bad = admin.LevelFailure
	}
	err := d.show(shown, func() {
		d.showHealth(shown)
		if d.showLocks("key", shown.Locks); d.locks && len(shown.Locks) == 0 && missing == nil {
			fmt.Fprintln(d.out, "no locks")
		}
	})
	switch {
	case err != nil:
		return err
	case len(only) == 0 && errors.Is(found, redlock.ErrNoQuorum):
		return exitError{code, missing}
	case len(only) == 0 && found != nil || d.worst(report) >= bad:
		return exitError{exitFailed, missing}
	}
	return missing
}

// correct adds hints to the findings about masters that were asked in the wrong way, and counts
// these masters.
func (d *doctor) correct(r admin.Report) int {
	errs := make(map[string]error)
	for _, n := range r.Masters {
		errs[n.Master] = n.Err // of most masters nil
	}
	hints := d.mistakes(errs)
	for _, n := range r.Masters {
		if hint := hints[n.Master]; hint != "" {
			n.Findings[0].Hint = hint // of reach, the only finding
		}
	}
	return len(hints)
}

// A certificate is told that ends within endsSoon. Each server has certificatesWithin to show its own.
const (
	endsSoon           = 14 * 24 * time.Hour
	certificatesWithin = 2 * time.Second
)

// lookAtCertificates adds a warning for each master that answers and whose certificates, or those of
// this client, end soon.
func (d *doctor) lookAtCertificates(ctx context.Context, report admin.Report) {
	ctx, cancel := context.WithTimeout(ctx, certificatesWithin)
	defer cancel()
	var looking sync.WaitGroup
	for i := range report.Masters {
		n := &report.Masters[i]
		o := d.asked[n.Master]
		if n.Err != nil || o == nil || o.TLSConfig == nil {
			continue
		}
		looking.Go(func() {
			for _, c := range certificates(ctx, o) {
				if left := time.Until(c.NotAfter); left < endsSoon {
					n.Findings = append(n.Findings, admin.Finding{
						Check: "certificate", Level: admin.LevelWarning,
						Text: fmt.Sprintf("the certificate of %s ends in %.1f days, at %s", c.Subject, left.Hours()/24, c.NotAfter.UTC().Format(time.RFC3339)),
						Hint: "renew it: without it the masters cannot be reached",
					})
				}
			}
		})
	}
	looking.Wait()
}

// lookAtClocks returns what is to be said of clocks of which no master can tell which one is right, because a quorum, and
// no more, is known, and they differ; "" of others. The findings then tell how far each is from this machine's clock.
func (d *doctor) lookAtClocks(ctx context.Context, report admin.Report) string {
	var clocks []*admin.Finding
	var apart []string
	for _, n := range report.Masters {
		for i := range n.Findings {
			switch f := &n.Findings[i]; {
			case f.Check != "clock" || f.Level == admin.LevelUnknown:
			case f.Level != admin.LevelFailure:
				return ""
			default:
				here := "not known"
				client := redis.NewClient(d.asked[n.Master])
				began := time.Now()
				if at, err := client.Time(ctx).Result(); err == nil {
					here = at.Sub(began.Add(time.Since(began) / 2)).Round(10 * time.Millisecond).String()
				}
				_ = client.Close()
				clocks, apart = append(clocks, f), append(apart, n.Master+" is "+here+" from this machine's clock")
			}
		}
	}
	if len(clocks) < 2 {
		return ""
	}
	for i, f := range clocks {
		f.Text = "no master can tell which clock is right: " + apart[i]
		f.Hint = "set the one that is wrong; this machine's may be, too"
	}
	return "the clocks differ, and no master can tell which is right: " + strings.Join(apart, ", ")
}

// certificates returns those that a server shows, and those of this client; none of a server that does
// not show them in time.
func certificates(ctx context.Context, o *redis.Options) (all []*x509.Certificate) {
	for _, c := range o.TLSConfig.Certificates {
		if leaf, err := x509.ParseCertificate(c.Certificate[0]); err == nil {
			all = append(all, leaf)
		}
	}
	dialer := tls.Dialer{Config: o.TLSConfig}
	conn, err := dialer.DialContext(ctx, cmp.Or(o.Network, "tcp"), o.Addr)
	if err != nil {
		return all
	}
	defer func() { _ = conn.Close() }()
	for _, c := range conn.(*tls.Conn).ConnectionState().PeerCertificates {
		if !slices.ContainsFunc(all, c.Equal) {
			all = append(all, c)
		}
	}
	return all
}

// untilVotes asks all masters. With --wait it asks until those that count have votes.
func (d *doctor) untilVotes(ctx context.Context) (admin.Report, error) {
	const often = time.Second
	for end := time.Now().Add(d.wait); ; {
		report, found := admin.Check(ctx, d.locker)
		pause := min(time.Until(end), often, d.votesIn(report))
		if pause <= 0 || !sleep(ctx, pause) {
			return report, found
		}
	}
}

// votesIn returns when to ask again whether the masters that count have votes; 0 if they have.
func (d *doctor) votesIn(r admin.Report) (pause time.Duration) {
	const unknown = 200 * time.Millisecond // a master that is starting
	for _, n := range d.counted(r) {
		pause = max(pause, n.Quarantine)
		if n.Err != nil {
			pause = max(pause, unknown)
		}
	}
	return pause
}

// counted returns the reports of the masters that count.
func (d *doctor) counted(r admin.Report) (masters []admin.Master) {
	for _, n := range r.Masters {
		if len(d.only) == 0 || slices.Contains(d.only, n.Master) {
			masters = append(masters, n)
		}
	}
	return masters
}

// worst returns the worst level of the masters that count, and of the whole if all do.
func (d *doctor) worst(r admin.Report) (worst admin.Level) {
	note := func(findings []admin.Finding) {
		for _, f := range findings {
			worst = max(worst, f.Level)
		}
	}
	for _, n := range d.counted(r) {
		note(n.Findings)
	}
	if len(d.only) == 0 {
		note(r.Findings)
	}
	return worst
}

func (d *doctor) showHealth(g health) {
	if g.NoLock != "" {
		width, _ := sizeOf(terminalOf(d.out))
		fmt.Fprintln(d.out, d.bad(wrapped("no lock can be had: ", wire.Printable(g.NoLock), width)))
	}
	for i, n := range g.Masters {
		about, findings := wire.Printable(strings.TrimSpace(n.Master+" "+n.Version)), d.textOf(n.Findings)
		if i+1 < len(g.Masters) && strings.Count(findings, "\n") > 1 && findings == d.textOf(g.Masters[i+1].Findings) {
			findings = ",\n" // said once, of both
		}
		fmt.Fprint(d.out, about, findings)
	}
	fmt.Fprint(d.out, "all masters", d.textOf(g.Findings))
	line := fmt.Sprintf("%d of %d masters have a vote; a quorum is %d", g.Voting, len(g.Masters), g.Quorum)
	if g.Voting < g.Quorum {
		line = d.bad(line)
	}
	fmt.Fprintln(d.out, line)
}

// textOf returns how many findings about something are ok, and below that those that are not. With
// -v it has all.
func (d *doctor) textOf(findings []admin.Finding) string {
	var b strings.Builder
	well := 0
	for _, f := range findings {
		if f.Level == admin.LevelOK {
			well++
		}
	}
	if well > 0 && !d.verbose {
		b.WriteString(": " + d.good(counted(well, "check")+" ok"))
	}
	b.WriteString("\n")
	width, _ := sizeOf(terminalOf(d.out))
	for _, f := range findings {
		level := fmt.Sprintf("%-8s", f.Level)
		switch {
		case f.Level == admin.LevelOK && !d.verbose:
			continue
		case f.Level == admin.LevelOK:
			level = d.good(level)
		case f.Level >= admin.LevelWarning:
			level = d.bad(level)
		}
		fmt.Fprintln(&b, wrapped(fmt.Sprintf("  %s %-12s ", level, f.Check), wire.Printable(f.Text), width))
		if f.Hint != "" {
			fmt.Fprintln(&b, wrapped(strings.Repeat(" ", 24)+"-> ", wire.Printable(f.Hint), width))
		}
	}
	return b.String()
}

// whyNoLock returns why no lock can be had; "" if one can.
func whyNoLock(r admin.Report) string {
	failures := make(map[string][]string) // masters, by what is wrong with them
	why := ""
	for _, n := range r.Masters {
		for _, f := range n.Findings {
			if f.Level != admin.LevelFailure {
				continue
			}
			if failures[f.Text] = append(failures[f.Text], n.Master); len(failures[f.Text]) > len(failures[why]) {
				why = f.Text
			}
			if f.Check == "masters" || redlock.Reason(n.Err) == sameServer { // one master is enough
				return n.Master + ": " + f.Text
			}
		}
	}
	if r.Voting >= r.Quorum {
		return ""
	}
	return strings.Join(failures[why], ", ") + ": " + why
}

// health is the report in JSON.
type health struct {
	Worst   admin.Level    `json:"worst"`
	Quorum  int            `json:"quorum"`
	Voting  int            `json:"voting"`
	NoLock  string         `json:"no_lock,omitempty"` // why no lock can be had
	Masters []masterHealth `json:"masters"`
	// Findings are about the masters as a whole.
	Findings []admin.Finding `json:"findings"`
	Locks    []lock          `json:"locks,omitzero"` // with --locks, also if there are none
}

type masterHealth struct {
	Master          string          `json:"master"`
	Version         string          `json:"version,omitempty"`
	RoundTripMicros int64           `json:"round_trip_us,omitempty"`
	ClockMillis     int64           `json:"clock_ms"`
	QuarantineMilli int64           `json:"quarantine_ms,omitempty"`
	Error           string          `json:"error,omitempty"`
	Findings        []admin.Finding `json:"findings"`
}

// of takes what a report says.
func (h *health) of(r admin.Report) {
	h.Quorum, h.Voting, h.NoLock, h.Findings = r.Quorum, r.Voting, whyNoLock(r), r.Findings
	for _, n := range r.Masters {
		m := masterHealth{
			Master: n.Master, Version: n.Version, RoundTripMicros: n.RoundTrip.Microseconds(),
			ClockMillis: n.Clock.Round(time.Millisecond).Milliseconds(), QuarantineMilli: n.Quarantine.Milliseconds(), Findings: n.Findings,
		}
		if n.Err != nil {
			m.Error = oneLine(n.Err)
		}
		h.Masters = append(h.Masters, m)
	}
}
