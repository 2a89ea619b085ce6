package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/wire"
)

// Level says how much a [Finding] matters.
type Level int

// The levels, from best to worst.
const (
	LevelOK      Level = iota // as it should be
	LevelNotice               // worth knowing
	LevelUnknown              // the master does not tell
	LevelWarning              // locks are less safe than they should be, or an option has no effect
	LevelFailure              // the master has no vote, or not yet
)

func (l Level) String() string {
	if l < LevelOK || l > LevelFailure {
		return fmt.Sprintf("Level(%d)", int(l))
	}
	return [...]string{"ok", "notice", "unknown", "warning", "failure"}[l]
}

// Finding is the result of one check, of a master or of a group of masters.
type Finding struct {
	Check string // stable name: reach, info, identity, eviction, persistence, guard, max-ttl, masters or clock; of a group: count
	Level Level
	Text  string
	Hint  string // how to correct it, or ""
}

func (f Finding) err() error {
	if f.Hint == "" {
		return fmt.Errorf("%s: %s", f.Check, f.Text)
	}
	return fmt.Errorf("%s: %s (%s)", f.Check, f.Text, f.Hint)
}

// Report is the result of [Locker.Check].
type Report struct {
	Groups []GroupReport // one, or those of [NewSharded] in their order
}

// GroupReport is the part of a [Report] about one group of masters.
type GroupReport struct {
	Quorum  int // masters that have to agree: N/2+1
	Voting  int // masters that have a vote at this moment
	Masters []MasterReport

	// Findings are about the group as a whole.
	Findings []Finding
}

// MasterReport has what a master reports about itself. A field that the master does not tell is zero.
type MasterReport struct {
	Master     string        // address, without credentials
	Err        error         // why the master was not asked about itself; nil if it was
	Version    string        // of the server: "7.0.15" of Redis, "valkey 8.1.1" of Valkey
	RunID      string        // of the server; new with each start of its process
	RoundTrip  time.Duration // of one small script
	Clock      time.Duration // difference of its clock from the median of all masters' clocks
	Quarantine time.Duration // how long the master has no vote yet
	MaxTTL     time.Duration // the largest WithMaxTTL of any client
	Findings   []Finding
}

// Check asks all masters about themselves, and reports what is wrong with them. A Locker checks
// the same each time it connects to a master, and tells its [Observer] and its log. Check
// reports all of it at once.
//
// If all masters have a vote, the error is nil. Otherwise it is a [*QuorumError] with the
// masters that have none. With [NewSharded] the errors of all groups are joined, and errors.As
// finds the first. It matches [ErrNoQuorum] if the others make no quorum,
// [ErrQuarantine] if some masters only have to wait, and [ErrSameServer], [ErrMembership],
// [ErrNotMaster] or [ErrPermission] if such an error was found. Warnings are in the report
// alone.
//
// The report has all masters, unless an argument is wrong or the Locker is closed ([ErrClosed]).
// If ctx ends, it lacks the answers that had not come by then.
//
// A master that is seen for the first time gets its marker, as by Lock.
//
// Source: [ALGORITHM section 8], "Start-up audit".
//
// [ALGORITHM section 8]: https://github.com/d0720281/redlock/blob/main/ALGORITHM.md#8-restart-guard
func (l *Locker) Check(ctx context.Context) (Report, error) {
	r := Report{Groups: make([]GroupReport, len(l.groups))}
	for i, p := range l.groups {
		r.Groups[i].Quorum = p.need
		r.Groups[i].Findings = []Finding{countFinding(len(p.nodes), p.need)}
	}
	if ctx == nil {
		return r, configErrorf("Check: ctx is nil")
	}
	if !l.calls.enter() {
		return r, ErrClosed
	}
	defer l.calls.leave()
	l.start()
	return r, l.eachGroup(func(p *pool) error { return p.check(ctx, &r.Groups[p.group]) })
}

// check checks the masters of a group.
func (p *pool) check(ctx context.Context, r *GroupReport) error {
	found, errs := onEach(ctx, p, func(ctx context.Context, n *node.Node) (*node.Audit, error) {
		return n.Audit(ctx)
	})
	failed := p.quorumError("check", "", 0)
	waiting := false
	for i, err := range errs {
		one, why := p.report(i, found[i], err)
		r.Masters = append(r.Masters, one)
		if why == nil {
			r.Voting++
			continue
		}
		waiting = waiting || one.Quarantine > 0
		failed.Masters = append(failed.Masters, &MasterError{Master: one.Master, Op: "check", Err: why, Quarantine: one.Quarantine})
	}
	if len(failed.Masters) == 0 {
		return nil
	}
	failed.Granted = r.Voting
	wrong := p.set.Misconfigured()
	if r.Voting < r.Quorum || wrong != nil { // a wrong list grants nothing
		failed.reasons = append(failed.reasons, ErrNoQuorum)
	}
	if wrong != nil {
		failed.reasons = append(failed.reasons, wrong)
	}
	if waiting {
		failed.reasons = append(failed.reasons, ErrQuarantine)
	}
	if ctx.Err() != nil {
		failed.reasons = append(failed.reasons, contextError(ctx))
	}
	return failed
}

// report returns the report of a node. why is the reason why it has no vote, nil if it has one.
func (p *pool) report(index int, a *node.Audit, err error) (r MasterReport, why error) {
	n := p.nodes[index]
	r = MasterReport{Master: n.Addr(), Err: err}
	if err != nil {
		r.Findings = []Finding{{Check: "reach", Level: LevelFailure, Text: err.Error(), Hint: hintFor(err)}}
		return r, err
	}
	r.Version, r.RunID, r.RoundTrip = a.Info.Version, a.Info.RunID, a.RoundTrip
	r.Quarantine, r.MaxTTL = a.Marker.Left, a.Marker.MaxTTL
	r.Findings = append([]Finding{{Check: "reach", Text: fmt.Sprintf("answers in %v", a.RoundTrip.Round(time.Microsecond))}},
		p.conf.findings(a)...)
	clock := Finding{Check: "clock", Level: LevelUnknown, Text: "too few masters are known to compare it with"}
	if far, tooFar, known := n.Skew(); known {
		r.Clock = far
		clock.Level, clock.Text = LevelOK, fmt.Sprintf("%v from the median of all masters", far.Round(time.Millisecond))
		if tooFar {
			clock.Level, clock.Hint = LevelFailure, "set the clock"
			why = errors.New(clock.Text)
		}
	}
	r.Findings = append(r.Findings, clock)
	switch {
	case a.MarkerErr != nil && a.MarkerErr != node.ErrGuardOff:
		why = a.MarkerErr
	case r.Quarantine > 0:
		why = node.Quarantine(r.Quarantine)
	case a.Marker.Conflict != nil:
		why = a.Marker.Conflict
	case a.Void != nil:
		why = a.Void
	}
	return r, why
}

// hintFor returns how to correct the error of a node that could not be asked.
func hintFor(err error) string {
	switch {
	case errors.Is(err, ErrSameServer):
		return "list each master once, with one database number"
	case errors.Is(err, ErrNotMaster):
		return "list masters that are independent of each other"
	case errors.Is(err, ErrPermission):
		return "see the ACL line in docs/operations.md"
	}
	return ""
}

// Bootstrap gives the masters of a new deployment their votes at once. A master that is seen
// for the first time may have lost its data, so it has no vote for a little longer than the
// value of [WithMaxTTL]. Bootstrap ends that wait. Call it once, in the tool that sets the
// deployment up, and never at the start of a service. At that time a master that restarted
// empty looks like a new one. If it gets its vote while a lease is held, a second holder can be
// granted the resource.
//
// If a master does not answer, nothing is done, and the error is a [*QuorumError] that matches
// [ErrNoQuorum]. A master that is lost between the two rounds of Bootstrap waits out its
// quarantine. If all masters are in use already, Bootstrap does nothing and returns nil. If some
// are in use and others in quarantine, these others were added or have lost data, and only
// waiting is safe: Bootstrap does nothing, and the error matches [ErrQuarantine]. With
// [WithoutRestartGuard] the error matches [ErrConfig]. With [NewSharded] all of this holds for
// each group by itself.
//
// Source: [ALGORITHM section 8], "First start of a deployment".
//
// [ALGORITHM section 8]: https://github.com/d0720281/redlock/blob/main/ALGORITHM.md#8-restart-guard
func (l *Locker) Bootstrap(ctx context.Context) error {
	switch {
	case ctx == nil:
		return configErrorf("Bootstrap: ctx is nil")
	case !l.conf.guard:
		return configErrorf("Bootstrap: WithoutRestartGuard leaves nothing to vouch for")
	}
	if !l.calls.enter() {
		return ErrClosed
	}
	defer l.calls.leave()
	l.start()
	return l.eachGroup(func(p *pool) error { return p.bootstrap(ctx) })
}

// bootstrap vouches for the masters of a group.
func (p *pool) bootstrap(ctx context.Context) error {
	markers, waiting := p.onMarkers(ctx, wire.Look, make([]node.Marker, len(p.nodes)))
	if waiting != nil && waiting.Granted == 0 && errors.Is(waiting, ErrQuarantine) {
		_, waiting = p.onMarkers(ctx, wire.Vouch, markers)
	}
	if waiting == nil {
		return nil
	}
	return waiting
}

// onMarkers does the same operation on the markers of all nodes, and returns the new markers.
// seen has the markers as an earlier call returned them. The error is nil if all nodes have a
// vote. If all have answered, it matches ErrQuarantine.
func (p *pool) onMarkers(ctx context.Context, what string, seen []node.Marker) ([]node.Marker, *QuorumError) {
	n := len(p.nodes)
	e := newQuorumError("bootstrap", "", n, n, ErrQuarantine)
	markers, errs := onEach(ctx, p, func(ctx context.Context, n *node.Node) (node.Marker, error) {
		return n.OnMarker(ctx, what, seen[n.Index()])
	})
	for i, err := range errs {
		left := markers[i].Left
		switch {
		case err != nil:
			e.reasons = []error{ErrNoQuorum}
		case left == 0:
			e.Granted++
			continue
		default:
			err = node.Quarantine(left)
		}
		e.Masters = append(e.Masters, &MasterError{Master: p.nodes[i].Addr(), Op: what, Err: err, Quarantine: left})
	}
	if e.Granted == n {
		return markers, nil
	}
	if ctx.Err() != nil {
		e.reasons = append(e.reasons, contextError(ctx))
	}
	return markers, e
}

// What follows judges what a master said of itself when the library connected to it.
//
// Source: ALGORITHM section 8, "Start-up audit".

// newFindings returns the findings that deserve a warning and were not found before.
func (c *config) newFindings(before, now *node.Audit) (fresh []Finding) {
	var old []Finding
	if before != nil {
		old = c.findings(before)
	}
	for _, f := range c.findings(now) {
		same := func(b Finding) bool { return b.Check == f.Check && b.Text == f.Text }
		if f.Check == "guard" && now.MarkerErr == nil {
			continue // there is an event for quarantine
		}
		if f.Level >= LevelUnknown && !slices.ContainsFunc(old, same) {
			fresh = append(fresh, f)
		}
	}
	return fresh
}

// findings returns the findings about a node, good and bad, for use with locks.
func (c *config) findings(a *node.Audit) []Finding {
	var all []Finding
	add := func(l Level, check, text, hint string) {
		all = append(all, Finding{Check: check, Level: l, Text: text, Hint: hint})
	}
	if a.InfoErr != nil {
		add(LevelUnknown, "info", fmt.Sprintf("INFO is refused (%v): role, eviction policy and identity are not known", a.InfoErr),
			"allow INFO, see the ACL line in docs/operations.md")
	}
	switch s := a.Info; {
	case a.InfoErr != nil:
	case s.RunID == "":
		add(LevelUnknown, "identity", "run id is not told: a restart with an old copy of the data, or another server at this address, is not noticed",
			"use a server that tells run_id in INFO")
	default:
		add(LevelOK, "identity", "run id "+s.RunID, "")
	}
	if a.InfoErr == nil {
		all = append(all, memoryFinding(a.Info), diskFinding(a.Info, c.trusted))
	}
	switch {
	case a.MarkerErr == node.ErrGuardOff:
		add(LevelNotice, "guard", "the restart guard is off", "leave out WithoutRestartGuard")
	case a.MarkerErr != nil:
		add(LevelFailure, "guard", fmt.Sprintf("no vote: the marker cannot be read or written: %v", a.MarkerErr), "allow the script's commands, see the ACL line in docs/operations.md")
	case a.Marker.Left > 0:
		add(LevelFailure, "guard", fmt.Sprintf("no vote for %v: it is new, or has lost data", a.Marker.Left.Round(100*time.Millisecond)), bootstrapHint)
	default:
		add(LevelOK, "guard", "has a vote", "")
	}
	if a.MarkerErr == nil {
		if m := a.Marker.MaxTTL; m > c.maxTTL {
			add(LevelWarning, "max-ttl", fmt.Sprintf("another client has WithMaxTTL(%v), this one %v", m, c.maxTTL), "give all clients the same value")
		}
		all = append(all, listFinding(a.Marker))
	}
	return all
}

// countFinding is about the number of masters, and the quorum that they need.
//
// Source: ALGORITHM section 1, "N".
func countFinding(n, need int) Finding {
	f := Finding{Check: "count", Level: LevelOK, Text: fmt.Sprintf("%d masters grant locks with %d of them down", n, n-need)}
	switch {
	case n == 1:
		f.Level, f.Text = LevelNotice, "no lock survives the loss of the one master"
		f.Hint = "use three masters that fail apart"
	case n%2 == 0:
		f.Level = LevelNotice
		f.Text += fmt.Sprintf(", as %d do", n-1)
		f.Hint = "use an odd number of masters"
	}
	return f
}

const bootstrapHint = "wait; or, if no lock was ever taken on these masters, run redlock init once, by hand or when they are set up: a service must not"

// listFinding compares the lists of masters of other clients with this one.
//
// Source: ALGORITHM section 8, "Membership".
func listFinding(m node.Marker) Finding {
	f := Finding{Check: "masters", Level: LevelOK, Text: "no client has another list of masters"}
	switch {
	case m.Conflict != nil:
		f.Level, f.Text = LevelFailure, m.Conflict.Error()
		f.Hint = "give all clients the same list, and the same groups; to change a list add a master first, and remove one when all clients have that list"
	case len(m.Lists) > 0:
		f.Level, f.Text = LevelWarning, "other clients have the list of masters "+m.Lists[0]
		f.Hint = "give all clients the same list, with the same addresses, before the next change of it"
	}
	return f
}

func memoryFinding(s node.Info) Finding {
	f := Finding{Check: "eviction", Level: LevelOK, Text: "no key is evicted"}
	switch {
	case s.Policy == "" || s.Memory == "":
		f.Level, f.Text, f.Hint = LevelUnknown, "maxmemory or maxmemory_policy is not told", "make sure that the policy is noeviction"
	case s.Policy != "noeviction" && s.Memory != "0":
		f.Level, f.Text = LevelWarning, "with maxmemory-policy "+s.Policy+" lock keys can be evicted"
		f.Hint = "set maxmemory-policy noeviction"
	}
	return f
}

func diskFinding(s node.Info, trusted bool) Finding {
	f := Finding{Check: "persistence", Level: LevelOK, Text: "has an append-only file"}
	switch {
	case trusted && s.AOF == "1" && s.Disk.Err != nil:
		f.Level, f.Text = LevelUnknown, fmt.Sprintf("when the append-only file is written to disk is not told (%v): WithTrustedDisk has no effect here", s.Disk.Err)
		f.Hint = "allow +config|get to the user, or leave out WithTrustedDisk"
	case trusted && s.AOF == "1" && (s.Disk.Fsync != "always" || s.Disk.OnRewrite != "no"):
		f.Level = LevelWarning
		f.Text = fmt.Sprintf("with appendfsync %s and no-appendfsync-on-rewrite %s a restart can lose writes: WithTrustedDisk has no effect here", s.Disk.Fsync, s.Disk.OnRewrite)
		f.Hint = "set appendfsync always and no-appendfsync-on-rewrite no"
	case s.AOF == "1":
	case trusted && s.AOF == "":
		f.Level, f.Text, f.Hint = LevelUnknown, "whether there is an append-only file is not told: WithTrustedDisk has no effect here", "leave out WithTrustedDisk"
	case trusted:
		f.Level, f.Text, f.Hint = LevelWarning, "there is no append-only file: WithTrustedDisk has no effect here", "set appendonly yes and appendfsync always"
	case s.AOF == "":
		f.Level, f.Text = LevelUnknown, "whether there is an append-only file is not told"
	default:
		f.Level, f.Text = LevelNotice, "locks do not survive a restart, after which this master has no vote for a time"
		f.Hint = "set appendonly yes"
	}
	return f
}
