package redlock

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/d0720281/redlock/internal/node"
)

// This file judges what a master said of itself when the library connected to it.
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
			"allow INFO, see the ACL line in the README")
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
		add(LevelFailure, "guard", fmt.Sprintf("no vote: the marker cannot be read or written: %v", a.MarkerErr), "allow the script's commands, see the ACL line in the README")
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

const bootstrapHint = "wait; or, for a new set of masters that no client has used yet, call Bootstrap once"

// listFinding compares the lists of masters of other clients with this one.
//
// Source: ALGORITHM section 8, "Membership".
func listFinding(m node.Marker) Finding {
	f := Finding{Check: "masters", Level: LevelOK, Text: "no client has another list of masters"}
	switch {
	case m.Conflict != nil:
		f.Level, f.Text = LevelFailure, m.Conflict.Error()
		f.Hint = "give all clients the same list; to change it add a master first, and remove one when all clients have that list"
	case len(m.Lists) > 0:
		f.Level, f.Text = LevelWarning, "other clients have the list of masters "+strings.Join(m.Lists[0], ", ")
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
		f.Level, f.Text = LevelNotice, "locks do not survive a restart, after which this node has no vote for a time"
		f.Hint = "set appendonly yes"
	}
	return f
}
