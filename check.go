package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Level says how much a [Finding] matters.
type Level int

// The levels, from best to worst.
const (
	LevelOK      Level = iota // as it should be
	LevelNotice               // worth knowing
	LevelUnknown              // the node does not tell
	LevelWarning              // safe only with luck, or with less than was asked for
	LevelFailure              // the node has no vote, or not yet
)

func (l Level) String() string {
	if l < LevelOK || l > LevelFailure {
		return fmt.Sprintf("Level(%d)", int(l))
	}
	return [...]string{"ok", "notice", "unknown", "warning", "failure"}[l]
}

// Finding is one thing that was looked at.
type Finding struct {
	Check string // stable name: reach, info, identity, eviction, persistence, guard, max-ttl, masters or clock
	Level Level
	Text  string
	Hint  string // what to do about it, or ""
}

func (f Finding) err() error {
	if f.Hint == "" {
		return fmt.Errorf("%s: %s", f.Check, f.Text)
	}
	return fmt.Errorf("%s: %s (%s)", f.Check, f.Text, f.Hint)
}

// Report is what [Locker.Check] found.
type Report struct {
	Quorum int // nodes that have to agree: N/2+1
	Voting int // nodes that can, at this moment
	Nodes  []NodeReport
}

// NodeReport is what a node said of itself. What it does not tell is zero.
type NodeReport struct {
	Node       string        // address, without credentials
	Err        error         // why it has no vote and was not asked more; nil if it was
	Version    string        // of the server
	RunID      string        // of the server, new with each start of its process
	RoundTrip  time.Duration // of one small script
	Clock      time.Duration // how far its clock is from the median of all nodes
	Quarantine time.Duration // how long it has no vote yet
	MaxTTL     time.Duration // the largest of any client
	Findings   []Finding
}

// Check asks all masters about themselves, once more, and says what it found. A Locker
// looks at the same things each time it connects to a master, and tells its [Observer]
// and its log; Check is for those who want to see it all at once.
//
// The error is a [*QuorumError] with the nodes that have no vote, nil if all have one. It
// matches [ErrNoQuorum] if the others make no quorum, [ErrQuarantine] if some only
// have to wait, and [ErrSameServer], [ErrNotMaster] or [ErrPermission] where a node is
// or says such a thing. Warnings are in the report alone. The report is complete in any
// case but for bad arguments, [ErrClosed], and ctx ending, which leaves out what had not
// answered by then.
//
// A master seen for the first time gets its marker, as it does by locking.
//
// Source: ALGORITHM section 8, "Start-up audit".
func (l *Locker) Check(ctx context.Context) (Report, error) {
	r := Report{Quorum: quorum(len(l.pool.lanes))}
	if ctx == nil {
		return r, configErrorf("Check: ctx is nil")
	}
	if !l.calls.enter() {
		return r, ErrClosed
	}
	defer l.calls.leave()
	l.pool.start()
	found, errs := onEach(ctx, l.pool, func(ctx context.Context, lane *lane) (*inspection, error) {
		i, err := lane.inspect(ctx, lane.conn)
		if err == nil {
			lane.audited(i)
		}
		return i, err
	})
	failed := &QuorumError{Op: "check", Need: r.Quorum, of: len(errs)}
	waiting := false
	for i, err := range errs {
		node, why := l.report(i, found[i], err)
		r.Nodes = append(r.Nodes, node)
		if why == nil {
			r.Voting++
			continue
		}
		waiting = waiting || node.Quarantine > 0
		failed.Nodes = append(failed.Nodes, &NodeError{Node: node.Node, Op: "check", Err: why, Quarantine: node.Quarantine})
	}
	if len(failed.Nodes) == 0 {
		return r, nil
	}
	failed.Granted = r.Voting
	wrong := l.pool.roster.misconfiguration()
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

// report puts together what is known of a node. why is the reason that it has no vote.
func (l *Locker) report(index int, i *inspection, err error) (r NodeReport, why error) {
	lane := l.pool.lanes[index]
	r = NodeReport{Node: lane.addr, Err: err}
	if err != nil {
		r.Findings = []Finding{{Check: "reach", Level: LevelFailure, Text: err.Error(), Hint: hintFor(err)}}
		return r, err
	}
	r.Version, r.RunID, r.RoundTrip = i.info.version, i.info.runID, i.roundTrip
	r.Quarantine, r.MaxTTL = i.marker.left, i.marker.maxTTL
	r.Findings = append([]Finding{{Check: "reach", Text: fmt.Sprintf("answers in %v", i.roundTrip.Round(time.Microsecond))}},
		l.conf.findings(i, l.pool.list)...)
	clock := Finding{Check: "clock", Level: LevelUnknown, Text: "too few nodes are known to compare it with"}
	if s := l.pool.watch.skew(index); s.known {
		r.Clock = s.far
		clock.Level, clock.Text = LevelOK, fmt.Sprintf("%v from the median of all nodes", s.far.Round(time.Millisecond))
		if s.over(s.far, maxSkew(l.conf.maxTTL, l.conf.drift)) {
			clock.Level, clock.Hint = LevelFailure, "set the clock"
			why = errors.New(clock.Text)
		}
	}
	r.Findings = append(r.Findings, clock)
	switch {
	case i.markerErr != nil && i.markerErr != errGuardOff:
		why = i.markerErr
	case r.Quarantine > 0:
		why = quarantined(r.Quarantine)
	case i.void != nil:
		why = i.void
	}
	return r, why
}

// hintFor says what can be done about a node that was not reached.
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
