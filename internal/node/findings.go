package node

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/d0720281/redlock/internal/reason"
)

// This file judges what a node said of itself when the library connected to it.
//
// Source: ALGORITHM section 8, "Start-up audit".

// Level is how much a Finding matters. Package admin has the same levels.
type Level int

// The levels, from best to worst.
const (
	OK Level = iota
	Notice
	Unknown
	Caution
	Failure
)

// Finding is one thing that was looked at.
type Finding struct {
	Check string
	Level Level
	Text  string
	Hint  string // how to correct it, or ""
}

// Err returns the finding as an error.
func (f Finding) Err() error {
	if f.Hint == "" {
		return fmt.Errorf("%s: %s", f.Check, f.Text)
	}
	return fmt.Errorf("%s: %s (%s)", f.Check, f.Text, f.Hint)
}

// News returns the findings that deserve a warning and were not found before.
func (s *Set) News(before, now *Audit) (fresh []Finding) {
	var old []Finding
	if before != nil {
		old = s.Findings(before)
	}
	for _, f := range s.Findings(now) {
		same := func(b Finding) bool { return b.Check == f.Check && b.Text == f.Text }
		if f.Check == "guard" && now.MarkerErr == nil || f.Check == "max-ttl" && f.Level == Caution || f.Check == "server" {
			continue // there is an event for quarantine, and a warning of its own for the others
		}
		if f.Level >= Unknown && !slices.ContainsFunc(old, same) {
			fresh = append(fresh, f)
		}
	}
	return fresh
}

// Findings returns the findings about a node, good and bad, for use with locks.
func (s *Set) Findings(a *Audit) []Finding {
	var all []Finding
	add := func(l Level, check, text, hint string) {
		all = append(all, Finding{Check: check, Level: l, Text: text, Hint: hint})
	}
	if a.InfoErr != nil {
		add(Unknown, "info", fmt.Sprintf("INFO is refused (%v): role, eviction policy and identity are not known", a.InfoErr),
			"allow INFO, see the ACL line in docs/operations.md")
	}
	switch i := a.Info; {
	case a.InfoErr != nil:
	case i.RunID == "":
		add(Unknown, "identity", "run id is not told: a restart with an old copy of the data, or another server at this address, is not noticed",
			"use a server that tells run_id in INFO")
	default:
		add(OK, "identity", "run id "+i.RunID, "")
	}
	if a.InfoErr == nil {
		all = append(all, memoryFinding(a.Info), diskFinding(a.Info, s.conf.Trusted))
	}
	switch {
	case a.MarkerErr == ErrGuardOff:
		add(Notice, "guard", "the restart guard is off", "leave out WithoutRestartGuard")
	case errors.Is(a.MarkerErr, reason.Version):
		add(Failure, "guard", a.MarkerErr.Error(), "see docs/operations.md, Changes")
	case a.MarkerErr != nil:
		add(Failure, "guard", fmt.Sprintf("no vote: the marker cannot be read or written: %v", a.MarkerErr), "allow the script's commands, see the ACL line in docs/operations.md")
	case a.Marker.Left > 0:
		add(Failure, "guard", fmt.Sprintf("no vote for %v: it is new, or may have lost keys", tenths(a.Marker.Left)), s.QuarantineHint(a.Marker.Left))
	default:
		add(OK, "guard", "has a vote", "")
	}
	if len(a.Lacks) > 0 {
		add(Caution, "commands", "refused "+strings.Join(a.Lacks, "; "), "allow them, see the ACL line in docs/operations.md")
	}
	if a.MarkerErr == nil {
		all = append(all, s.maxTTLFindings(a.Marker.MaxTTL)...)
		all = append(all, listFinding(a.Marker))
		for _, c := range a.Marker.Contested {
			add(Failure, "server", c.Error(), "make sure that the address leads all clients to one server, and end the other server before this one takes its place")
		}
	}
	return all
}

// CountFinding is about the number of nodes, and the quorum that they need.
//
// Source: ALGORITHM section 1, "N".
func (s *Set) CountFinding() Finding {
	n := len(s.nodes)
	f := Finding{Check: "count", Level: OK, Text: fmt.Sprintf("%d masters grant locks with %d of them down", n, n-s.conf.Quorum)}
	switch {
	case n == 1:
		f.Level, f.Text = Notice, "no lock survives the loss of the one master"
		f.Hint = "use three masters that fail apart"
	case n%2 == 0:
		f.Level = Notice
		f.Text += fmt.Sprintf(", as %d do", n-1)
		f.Hint = "use an odd number of masters"
	}
	return f
}

// QuarantineHint returns the hint about nodes that have no vote for so long. It names redlock init
// only if no lock can be held: all nodes say that they have no vote, and they have granted nothing
// to this Locker.
func (s *Set) QuarantineHint(left time.Duration) string {
	hint := fmt.Sprintf("wait %v", tenths(left))
	if s.conf.Granted != nil && s.conf.Granted() || slices.ContainsFunc(s.nodes, func(n *Node) bool { return !n.voteless() }) {
		return hint
	}
	return hint + "; only if no lock was ever taken on these masters: redlock init, by hand or when they are set up"
}

// voteless reports whether the node has told its marker, and is in quarantine.
func (n *Node) voteless() bool {
	a := n.audit.Load()
	return a != nil && a.MarkerErr == nil && n.Standing().SaidIn(n.now()) > 0
}

// tenths rounds up.
func tenths(d time.Duration) time.Duration {
	const tenth = 100 * time.Millisecond
	return (d + tenth - 1).Truncate(tenth)
}

// usualMaxTTL is the value of WithMaxTTL by default: from a client that has less or as much, no node waits for long.
const usualMaxTTL = 10 * time.Second

// maxTTLFindings compares the largest TTL of any client's lease with what this client expects.
//
// Source: ALGORITHM section 8, "MaxTTL".
func (s *Set) maxTTLFindings(used time.Duration) (list []Finding) {
	switch own := s.conf.MaxTTL; {
	case used > own:
		list = append(list, s.largerTTL(used))
	case used > 0 && own > max(used, usualMaxTTL):
		list = append(list, Finding{Check: "max-ttl", Level: Notice, Hint: "give all clients the same value, no larger than the largest TTL",
			Text: fmt.Sprintf("this client has WithMaxTTL(%v), the masters know TTLs of up to %v: it waits for a new master for %v", own, used, tenths(s.conf.quarantine()))})
	}
	return list
}

func (s *Set) largerTTL(used time.Duration) Finding {
	return Finding{Check: "max-ttl", Level: Caution, Hint: "give all clients the same value",
		Text: fmt.Sprintf("another client has a TTL of %v, this one has WithMaxTTL(%v)", used, s.conf.MaxTTL)}
}

// listFinding compares the lists of masters of other clients with this one.
//
// Source: ALGORITHM section 8, "Membership".
func listFinding(m Marker) Finding {
	f := Finding{Check: "masters", Level: OK, Text: "no client has another list of masters"}
	switch {
	case m.Conflict != nil:
		f.Level, f.Text = Failure, m.Conflict.Error()
		f.Hint = "give all clients the same list; to change a list add a master first, and remove one when all clients have that list"
	case len(m.Lists) > 0:
		f.Level, f.Text = Caution, m.Lists[0].String()
		f.Hint = "give all clients the same list, with the same addresses, before the next change of it"
	}
	return f
}

func memoryFinding(s Info) Finding {
	f := Finding{Check: "eviction", Level: OK, Text: "no key is evicted"}
	switch {
	case s.Policy == "" || s.Memory == "":
		f.Level, f.Text, f.Hint = Unknown, "maxmemory or maxmemory_policy is not told", "make sure that the policy is noeviction"
	case s.Policy != "noeviction" && s.Memory != "0":
		f.Level, f.Text = Caution, "with maxmemory-policy "+s.Policy+" lock keys can be evicted"
		f.Hint = "set maxmemory-policy noeviction"
	}
	return f
}

func diskFinding(s Info, trusted bool) Finding {
	f := Finding{Check: "persistence", Level: OK, Text: "has an append-only file"}
	switch {
	case trusted && s.AOF == "1" && s.Disk.Err != nil:
		f.Level, f.Text = Unknown, fmt.Sprintf("when the append-only file is written to disk is not told (%v): WithTrustedDisk has no effect here", s.Disk.Err)
		f.Hint = "allow +config|get to the user, or leave out WithTrustedDisk"
	case trusted && s.AOF == "1" && (s.Disk.Fsync != "always" || s.Disk.OnRewrite != "no"):
		f.Level = Caution
		f.Text = fmt.Sprintf("with appendfsync %s and no-appendfsync-on-rewrite %s a restart can lose writes: WithTrustedDisk has no effect here", s.Disk.Fsync, s.Disk.OnRewrite)
		f.Hint = "set appendfsync always and no-appendfsync-on-rewrite no"
	case s.AOF == "1":
	case trusted && s.AOF == "":
		f.Level, f.Text, f.Hint = Unknown, "whether there is an append-only file is not told: WithTrustedDisk has no effect here", "leave out WithTrustedDisk"
	case trusted:
		f.Level, f.Text, f.Hint = Caution, "there is no append-only file: WithTrustedDisk has no effect here", "set appendonly yes and appendfsync always"
	case s.AOF == "":
		f.Level, f.Text = Unknown, "whether there is an append-only file is not told"
	default:
		f.Text = "no append-only file: without WithTrustedDisk none is needed"
	}
	return f
}
