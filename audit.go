package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file looks at what a node says of itself, each time it is connected to and before
// anything is asked of it. All of it comes from INFO; what a node does not tell is
// unknown, and said to be.
//
// Source: ALGORITHM section 8, "Start-up audit".

// serverInfo is what INFO tells. What it does not have is empty.
type serverInfo struct {
	runID   string // new with each start of the process
	replID  string // new with each promotion to master
	version string
	role    string
	cluster string // "1" for a node of a cluster
	policy  string // maxmemory_policy
	memory  string // maxmemory, bytes; "0" for no limit
	aof     string // "1" for an append-only file
}

// parseInfo reads the reply of INFO. Other servers than Redis have other names for some.
func parseInfo(text string) serverInfo {
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok {
			fields[name] = value
		}
	}
	version := fields["redis_version"]
	if v := fields["valkey_version"]; v != "" {
		version = "valkey " + v
	}
	return serverInfo{
		runID:   fields["run_id"],
		replID:  fields["master_replid"],
		version: version,
		role:    fields["role"],
		cluster: fields["cluster_enabled"],
		policy:  fields["maxmemory_policy"],
		memory:  fields["maxmemory"],
		aof:     fields["aof_enabled"],
	}
}

// identity tells this server, as a master, from every other: a replica that was promoted is
// another one, even if it had been that master before. It is empty if it is not known.
// lua/guard.lua puts it together in the same way.
func (s serverInfo) identity() string {
	if s.runID == "" {
		return ""
	}
	return s.runID + ":" + s.replID
}

// usable is the error of a server that must not be asked at all: its vote would be none,
// or not its own.
func (s serverInfo) usable() error {
	switch {
	case s.role != "" && s.role != "master":
		return &sentinelError{ErrNotMaster, fmt.Errorf("its role is %s", s.role)}
	case s.cluster == "1":
		return &sentinelError{ErrNotMaster, errors.New("it is a node of a cluster")}
	}
	return nil
}

// inspection is what was found out about a node.
type inspection struct {
	info      serverInfo
	infoErr   error // why nothing is known of it
	marker    marker
	markerErr error // errGuardOff without the guard
	roundTrip time.Duration
	void      error // why this client does not count its vote, whatever the node says
}

// inspect asks a node about itself. Its error is one of the connection; what the node
// refuses to tell is noted.
func (n *lane) inspect(ctx context.Context, conn redis.Cmdable) (*inspection, error) {
	i := &inspection{markerErr: errGuardOff}
	// TIME goes first because on a new connection the errors of the handshake are its own.
	if err := conn.Time(ctx).Err(); err != nil {
		return nil, nodeFailure(err)
	}
	switch text, err := conn.Info(ctx).Result(); {
	case err == nil:
		i.info = parseInfo(text)
	case says(err, "NOPERM"), says(err, "ERR unknown command"):
		i.infoErr = nodeFailure(err)
	default:
		return nil, nodeFailure(err)
	}
	if err := i.info.usable(); err != nil {
		return i, err
	}
	if err := n.roster.enroll(n.index, i.info.runID); err != nil {
		return i, err
	}
	if n.client == nil { // a connection leads to one server for as long as it lives
		n.identify(i.info)
	}
	sent := n.now()
	if n.guarding.on() {
		i.marker, i.markerErr = n.markerOn(ctx, conn, markerLook, marker{})
	}
	if i.markerErr != nil && i.markerErr != errGuardOff && !survives(i.markerErr) {
		return nil, i.markerErr
	}
	if i.markerErr != nil { // the node's clock is needed all the same
		if err := n.readClock(ctx, conn); err != nil {
			return nil, err
		}
	}
	i.roundTrip = n.now().sub(sent)
	i.void, _ = n.voteless(n.now())
	return i, nil
}

// identify remembers which server the lane is connected to. Samples of another one's clock
// tell nothing about this one's.
func (n *lane) identify(info serverInfo) {
	run := info.identity()
	if run == "" {
		run = unknownRun
	}
	if broken.keepsRunID && n.run != "" {
		run = n.run
	}
	if run != n.run && !(n.conf.trusted && n.run != "") { // or what was trusted is that clock, too
		n.view.forget()
		n.view.suspect = false
		n.watch.forget(n.index)
		n.sample.Store(nil)
	}
	n.run = run
	if !n.conf.guard {
		run = ""
	}
	n.guarding.identify(run, n.conf.trusted && info.aof == "1")
}

// audited tells what is new about a node since it was last inspected.
func (n *lane) audited(i *inspection) {
	old := n.inspected.Swap(i)
	var before []Finding
	if old != nil {
		before = n.conf.findings(old, n.guarding.list)
	}
	for _, f := range n.conf.findings(i, n.guarding.list) {
		same := func(b Finding) bool { return b.Check == f.Check && b.Text == f.Text }
		if f.Check == "guard" && i.markerErr == nil {
			continue // there is an event for quarantine
		}
		if f.Level >= LevelUnknown && !slices.ContainsFunc(before, same) {
			n.events.warning(n.addr, f.err())
		}
	}
}

// findings is the audit: what an inspection says about a node that has to serve locks.
func (c *config) findings(i *inspection, list string) []Finding {
	var all []Finding
	add := func(l Level, check, text, hint string) {
		all = append(all, Finding{Check: check, Level: l, Text: text, Hint: hint})
	}
	if i.infoErr != nil {
		add(LevelUnknown, "info", fmt.Sprintf("INFO is refused (%v): role, eviction policy and identity are not known", i.infoErr),
			"allow INFO, see the ACL line in the README")
	}
	switch s := i.info; {
	case i.infoErr != nil:
	case s.runID == "":
		add(LevelUnknown, "identity", "run id is not told: a restart with an old copy of the data, or another server at this address, is not noticed",
			"use a server that tells run_id in INFO")
	default:
		add(LevelOK, "identity", "run id "+s.runID, "")
	}
	if i.infoErr == nil {
		all = append(all, i.info.memoryFinding(), i.info.diskFinding(c.trusted))
	}
	switch {
	case i.markerErr == errGuardOff:
		add(LevelNotice, "guard", "the restart guard is off", "leave out WithoutRestartGuard")
	case i.markerErr != nil:
		add(LevelFailure, "guard", fmt.Sprintf("no vote: the marker cannot be read or written: %v", i.markerErr), "allow the script's commands, see the ACL line in the README")
	case i.marker.left > 0:
		add(LevelFailure, "guard", fmt.Sprintf("no vote for %v: it is new, or has lost data", i.marker.left.Round(100*time.Millisecond)), bootstrapHint)
	default:
		add(LevelOK, "guard", "has a vote", "")
	}
	if i.markerErr == nil {
		if m := i.marker.maxTTL; m > c.maxTTL {
			add(LevelWarning, "max-ttl", fmt.Sprintf("another client has WithMaxTTL(%v), this one %v", m, c.maxTTL), "give all clients the same value")
		}
		all = append(all, listFinding(i.marker.list, list))
	}
	return all
}

const bootstrapHint = "wait; or, for a new set of masters that nobody has used yet, call Bootstrap once"

// listFinding compares this client's list of masters with that of the last one before it,
// by their fingerprints.
func listFinding(last, own string) Finding {
	f := Finding{Check: "masters", Level: LevelOK, Text: "other clients have the same list of masters"}
	theirs, _, _ := strings.Cut(last, ":")
	number, _, _ := strings.Cut(own, ":")
	switch {
	case last == own:
	case last == "":
		f.Text = "no other client was here yet"
	case theirs != number:
		f.Level = LevelWarning
		f.Text = fmt.Sprintf("another client has %s masters, this one %s", theirs, number)
		f.Hint = "give all clients the same list; change one master at a time, and end the last client with the old list before the next"
	default:
		f.Level = LevelNotice
		f.Text = "another client has other masters, or other names for the same"
		f.Hint = "give all clients the same list, with the same addresses"
	}
	return f
}

func (s serverInfo) memoryFinding() Finding {
	f := Finding{Check: "eviction", Level: LevelOK, Text: "no key is evicted"}
	switch {
	case s.policy == "" || s.memory == "":
		f.Level, f.Text, f.Hint = LevelUnknown, "maxmemory or maxmemory_policy is not told", "make sure that the policy is noeviction"
	case s.policy != "noeviction" && s.memory != "0":
		f.Level, f.Text = LevelWarning, "with maxmemory-policy "+s.policy+" lock keys can be evicted"
		f.Hint = "set maxmemory-policy noeviction"
	}
	return f
}

func (s serverInfo) diskFinding(trusted bool) Finding {
	f := Finding{Check: "persistence", Level: LevelOK, Text: "has an append-only file"}
	switch {
	case s.aof == "1":
	case trusted && s.aof == "":
		f.Level, f.Text, f.Hint = LevelUnknown, "whether there is an append-only file is not told: WithTrustedDisk has no effect here", "leave out WithTrustedDisk"
	case trusted:
		f.Level, f.Text, f.Hint = LevelWarning, "there is no append-only file: WithTrustedDisk has no effect here", "set appendonly yes and appendfsync always"
	case s.aof == "":
		f.Level, f.Text = LevelUnknown, "whether there is an append-only file is not told"
	default:
		f.Level, f.Text = LevelNotice, "locks do not survive a restart, after which this node has no vote for a time"
		f.Hint = "set appendonly yes"
	}
	return f
}

// roster is which server each lane is connected to, so that none votes twice.
type roster struct {
	addrs []string

	mu    sync.Mutex
	runs  []string // guarded by mu; "" = not known, or no longer there
	known []bool   // guarded by mu; the lane had a server of its own at some time
	twins []error  // guarded by mu; found before that

	misconfigured atomic.Pointer[error] // the first of twins
}

func newRoster(addrs []string) *roster {
	n := len(addrs)
	return &roster{addrs: addrs, runs: make([]string, n), known: make([]bool, n), twins: make([]error, n)}
}

// enroll notes which server a lane has reached. A server that another lane has reached
// before is refused: it would vote twice.
func (r *roster) enroll(index int, run string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.sumUpLocked()
	r.runs[index], r.twins[index] = "", nil
	if run == "" {
		return nil // it does not tell, so nothing is known against it
	}
	if first := slices.Index(r.runs, run); first >= 0 {
		err := &sentinelError{ErrSameServer, fmt.Errorf("it is the same server as %s", strconv.Quote(r.addrs[first]))}
		if !r.known[index] {
			r.twins[index] = fmt.Errorf("%w: %s and %s", ErrSameServer, r.addrs[index], r.addrs[first])
		}
		return err
	}
	r.runs[index], r.known[index] = run, true
	return nil
}

// lost notes that a lane does not reach the server that it shared with another.
func (r *roster) lost(index int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.twins[index] = nil
	r.sumUpLocked()
}

func (r *roster) sumUpLocked() {
	var first *error
	for _, err := range r.twins {
		if err != nil {
			first = &err
			break
		}
	}
	r.misconfigured.Store(first)
}

// misconfiguration is the error of a list of masters that cannot make a quorum: nil unless
// two of them turned out to be one when they were first reached. If that happens
// later, to a name that now stands for another server, the node has no vote, which
// is no reason to stop the others.
func (r *roster) misconfiguration() error {
	if err := r.misconfigured.Load(); err != nil {
		return *err
	}
	return nil
}
