package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/d0720281/redlock/internal/node"
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

// Finding is the result of one check of a master.
type Finding struct {
	Check string // stable name: reach, info, identity, eviction, persistence, guard, max-ttl, masters or clock
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
	Quorum int // masters that have to agree: N/2+1
	Voting int // masters that have a vote at this moment
	Nodes  []NodeReport
}

// NodeReport is what a master said of itself. A field that the master does not tell is zero.
type NodeReport struct {
	Node       string        // address, without credentials
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
// masters that have none. It matches [ErrNoQuorum] if the others make no quorum,
// [ErrQuarantine] if some masters only have to wait, and [ErrSameServer], [ErrMembership],
// [ErrNotMaster] or [ErrPermission] if such an error was found. Warnings are in the report
// alone.
//
// The report has all masters, unless an argument is wrong or the Locker is closed ([ErrClosed]).
// If ctx ends, it lacks the answers that had not come by then.
//
// A master that is seen for the first time gets its marker, as by Lock.
//
// Source: ALGORITHM section 8, "Start-up audit".
func (l *Locker) Check(ctx context.Context) (Report, error) {
	r := Report{Quorum: l.pool.need}
	if ctx == nil {
		return r, configErrorf("Check: ctx is nil")
	}
	if !l.calls.enter() {
		return r, ErrClosed
	}
	defer l.calls.leave()
	l.pool.start()
	found, errs := onEach(ctx, l.pool, func(ctx context.Context, n *node.Node) (*node.Audit, error) {
		return n.Audit(ctx)
	})
	failed := l.pool.quorumError("check", "", 0)
	waiting := false
	for i, err := range errs {
		one, why := l.report(i, found[i], err)
		r.Nodes = append(r.Nodes, one)
		if why == nil {
			r.Voting++
			continue
		}
		waiting = waiting || one.Quarantine > 0
		failed.Nodes = append(failed.Nodes, &NodeError{Node: one.Node, Op: "check", Err: why, Quarantine: one.Quarantine})
	}
	if len(failed.Nodes) == 0 {
		return r, nil
	}
	failed.Granted = r.Voting
	wrong := l.pool.set.Misconfigured()
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
	return r, failed
}

// report returns the report of a node. why is the reason why it has no vote, nil if it has one.
func (l *Locker) report(index int, a *node.Audit, err error) (r NodeReport, why error) {
	n := l.pool.nodes[index]
	r = NodeReport{Node: n.Addr(), Err: err}
	if err != nil {
		r.Findings = []Finding{{Check: "reach", Level: LevelFailure, Text: err.Error(), Hint: hintFor(err)}}
		return r, err
	}
	r.Version, r.RunID, r.RoundTrip = a.Info.Version, a.Info.RunID, a.RoundTrip
	r.Quarantine, r.MaxTTL = a.Marker.Left, a.Marker.MaxTTL
	r.Findings = append([]Finding{{Check: "reach", Text: fmt.Sprintf("answers in %v", a.RoundTrip.Round(time.Microsecond))}},
		l.conf.findings(a)...)
	clock := Finding{Check: "clock", Level: LevelUnknown, Text: "too few nodes are known to compare it with"}
	if far, tooFar, known := n.Skew(); known {
		r.Clock = far
		clock.Level, clock.Text = LevelOK, fmt.Sprintf("%v from the median of all nodes", far.Round(time.Millisecond))
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
		return "see the ACL line in the README"
	}
	return ""
}
