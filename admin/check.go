package admin

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/resp"
	"github.com/d0720281/redlock/internal/wire"
)

// Level is how much a [Finding] matters.
type Level int

// The levels, from best to worst.
const (
	LevelOK      = Level(node.OK)      // as it should be
	LevelNotice  = Level(node.Notice)  // worth knowing
	LevelUnknown = Level(node.Unknown) // the master does not answer the question
	LevelWarning = Level(node.Caution) // locks are less safe than they should be, or an option has no effect
	LevelFailure = Level(node.Failure) // the master has no vote, or not yet
)

// String returns "ok", "notice", "unknown", "warning" or "failure".
func (l Level) String() string {
	if l < LevelOK || l > LevelFailure {
		return fmt.Sprintf("Level(%d)", int(l))
	}
	return [...]string{"ok", "notice", "unknown", "warning", "failure"}[l]
}

// MarshalText returns the text of String.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// Finding is one thing that [Check] has looked at.
type Finding struct {
	Check string `json:"check"` // stable name: reach, info, identity, eviction, persistence, guard, commands, max-ttl, server, masters, write or clock; of all masters: count; certificate is of the command alone
	Level Level  `json:"level"`
	Text  string `json:"text"`
	Hint  string `json:"hint,omitempty"` // how to correct it, or ""
}

func finding(f node.Finding) Finding { return Finding{f.Check, Level(f.Level), f.Text, f.Hint} }

// Report is the result of [Check].
type Report struct {
	Quorum  int // masters that have to agree: N/2+1
	Voting  int // masters that have a vote at this moment
	Masters []Master

	// Findings are about the masters as a whole.
	Findings []Finding
}

// Master is what a master reports about itself. A field that the master does not report is zero.
type Master struct {
	Master     string        // address, without credentials
	Err        error         // why the master was not asked about itself; nil if it was
	Version    string        // of the server: "7.0.15" of Redis, "valkey 8.1.1" of Valkey
	RunID      string        // of the server; new with each start of its process
	RoundTrip  time.Duration // of one small script
	Clock      time.Duration // difference of its clock from the median of all masters' clocks
	Quarantine time.Duration // how long the master has no vote yet
	MaxTTL     time.Duration // the largest TTL that a client has asked for, of which a lease can be left; 0 if no client has asked
	Findings   []Finding
}

// Check asks all masters about themselves, and reports what is wrong with them. A Locker checks the
// same each time it connects to a master, and logs what is new. A master that is seen for the first
// time gets its marker, as by Lock, and its quarantine begins. Check writes a key of its own on each
// master, which lives for a second and is no lock: a master that refuses that has no vote. It may be
// out of memory, or its disk may be full.
//
// If all masters have a vote for this client, the error is nil. Otherwise it is a [*redlock.QuorumError] with the
// masters that have none. It matches [redlock.ErrNoQuorum] if the others make no quorum, or if one refuses the list
// of masters or the version, [redlock.ErrQuarantine] if some masters only have to wait, and [redlock.ErrMasterSetup] if a master cannot
// take part. Warnings are in the report alone.
//
// The report has all masters, unless an argument is wrong or the Locker is closed. If ctx ends, it
// lacks the answers that had not come by then. Source: ALGORITHM section 8, "Start-up audit".
func Check(ctx context.Context, l *redlock.Locker) (Report, error) {
	r, err := enter(ctx, l, "Check")
	if err != nil {
		return Report{}, err
	}
	defer r.Leave()
	report := Report{Quorum: r.Quorum, Findings: []Finding{finding(r.Nodes.CountFinding())}}
	found, errs := each(ctx, r, func(ctx context.Context, n *node.Node) (*node.Audit, error) { return n.Audit(ctx) })
	r.beginQuarantines(ctx, found)
	key := r.Prefix + ownKey + rand.Text() + wire.GuardSuffix
	_, unwritten := each(ctx, r, func(ctx context.Context, n *node.Node) (struct{}, error) {
		if found[n.Index()] == nil {
			return struct{}{}, errs[n.Index()]
		}
		return struct{}{}, n.Write(ctx, key, writtenFor)
	})
	failed := r.quorumError("check", "", r.Quorum)
	waiting := false
	for i, n := range r.Nodes.Nodes() {
		one, why := r.report(n, found[i], errs[i], unwritten[i])
		report.Masters = append(report.Masters, one)
		if why == nil {
			report.Voting++
			continue
		}
		waiting = waiting || one.Quarantine > 0
		failed.Masters = append(failed.Masters, &redlock.MasterError{Master: one.Master, Op: "check", Err: why, Quarantine: one.Quarantine})
	}
	if len(failed.Masters) == 0 {
		return report, nil
	}
	failed.Granted = report.Voting
	wrong := cmp.Or(r.Nodes.Misconfigured(), r.Nodes.Refused())
	if report.Voting < r.Quorum || wrong != nil { // a wrong list grants nothing
		failed.Reasons = append(failed.Reasons, redlock.ErrNoQuorum)
	}
	if wrong != nil {
		failed.Reasons = append(failed.Reasons, wrong)
	}
	if waiting {
		failed.Reasons = append(failed.Reasons, redlock.ErrQuarantine)
	}
	return report, withContext(ctx, failed)
}

// beginQuarantines asks the markers of nodes in quarantine once more. The time counts down only on a node
// whose clock is known to be right: at the first question to it the clocks of the others may have been
// unknown.
func (r room) beginQuarantines(ctx context.Context, found []*node.Audit) {
	_, _ = each(ctx, r, func(ctx context.Context, n *node.Node) (struct{}, error) {
		a := found[n.Index()]
		if a == nil || a.Marker.Left == 0 {
			return struct{}{}, nil
		}
		marker, err := n.OnMarker(ctx, wire.Look, node.Marker{})
		if err == nil {
			a.Marker = marker
		}
		return struct{}{}, err
	})
}

// report returns the report of a node. why is the reason why it has no vote, nil if it has one.
func (r room) report(n *node.Node, a *node.Audit, err, unwritten error) (m Master, why error) {
	m = Master{Master: n.Addr(), Err: err}
	if err != nil {
		m.Findings = []Finding{{Check: "reach", Level: LevelFailure, Text: err.Error(), Hint: hintFor(err, n.Options().TLSConfig != nil)}}
		return m, err
	}
	m.Version, m.RunID, m.RoundTrip = a.Info.Version, a.Info.RunID, a.RoundTrip
	m.Quarantine, m.MaxTTL = a.Marker.Left, a.Marker.MaxTTL
	m.Findings = []Finding{{Check: "reach", Text: fmt.Sprintf("answers in %v", a.RoundTrip.Round(time.Microsecond))}}
	for _, f := range r.Nodes.Findings(a) {
		m.Findings = append(m.Findings, finding(f))
	}
	write := writeFinding(a.Info, unwritten)
	m.Findings = append(m.Findings, write)
	clock := Finding{Check: "clock", Level: LevelUnknown, Text: "too few masters are known to compare it with"}
	if far, tooFar, known := n.Skew(); known {
		m.Clock = far
		clock.Level, clock.Text = LevelOK, fmt.Sprintf("%v from the median of all masters", far.Round(time.Millisecond))
		if tooFar {
			clock.Level, clock.Hint = LevelFailure, "set the clock"
			why = errors.New(clock.Text)
			for i, f := range m.Findings {
				if f.Check == "guard" && m.Quarantine > 0 {
					m.Findings[i].Hint = "set the clock: the time does not count down before"
				}
			}
		}
	}
	m.Findings = append(m.Findings, clock)
	switch {
	case a.MarkerErr != nil && a.MarkerErr != node.ErrGuardOff:
		why = a.MarkerErr
	case m.Quarantine > 0:
		why = node.Quarantine(m.Quarantine)
	case a.Marker.Conflict != nil:
		why = a.Marker.Conflict
	case a.Void != nil:
		why = a.Void
	case write.Level == LevelFailure && why == nil:
		why = unwritten
	}
	return m, why
}

// The key that Check writes is one of its own: with the ending of the markers it is that of no resource.
const (
	ownKey     = "~doctor:" // after the prefix of all keys
	writtenFor = time.Second
)

// nearlyFull is from how many per cent of maxmemory on a server is about to refuse requests.
const nearlyFull = 90

// writeFinding is about the server's refusal to write a key, or about what the server says of itself
// before it refuses.
func writeFinding(i node.Info, refused error) Finding {
	f := Finding{Check: "write", Text: "a key can be written"}
	used, _ := strconv.ParseFloat(i.Used, 64)
	limit, _ := strconv.ParseFloat(i.Memory, 64) // 0 if there is none, or if it is not told
	switch {
	case refused != nil && (!node.IsReply(refused) || errors.Is(refused, reason.Permission)):
		f.Level, f.Text = LevelUnknown, fmt.Sprintf("whether a key can be written is not known: %v", refused)
	case refused != nil:
		f.Level, f.Text, f.Hint = LevelFailure, "no key can be written: "+refused.Error(), writeHint(refused)
	case limit > 0 && i.Policy == "noeviction" && used >= limit*nearlyFull/100:
		f.Level, f.Text = LevelWarning, fmt.Sprintf("%.0f%% of maxmemory is used: at 100%% no lock is granted", 100*used/limit)
		f.Hint = "raise maxmemory, or look for what fills it"
	case i.Append == "err" && i.AOF != "0":
		f.Level, f.Text, f.Hint = LevelWarning, "the last write of the append-only file has failed", appendHint
	case i.Save == "err":
		f.Level, f.Text, f.Hint = LevelWarning, "the last snapshot has failed: with stop-writes-on-bgsave-error no lock is granted", snapshotHint
	case i.Replicas == "0":
		f.Level, f.Text, f.Hint = LevelWarning, "min-replicas-to-write is set, and no replica is in time", replicasHint
	}
	return f
}

const (
	snapshotHint = "look at the disk and at the log of the server; masters of locks need no snapshots: CONFIG SET save \"\""
	appendHint   = "look at the disk and at the log of the server; without WithTrustedDisk no append-only file is needed: CONFIG SET appendonly no"
	replicasHint = "masters of locks need no replicas: set min-replicas-to-write 0, or start the replicas"
)

// writeHint returns what to do about a server that refuses to write.
func writeHint(refused error) string {
	switch {
	case node.Says(refused, "OOM"):
		return "maxmemory is reached: raise it, or delete what fills it"
	case node.Says(refused, "MISCONF Errors writing to the AOF file"):
		return appendHint
	case node.Says(refused, "MISCONF"):
		return snapshotHint
	case node.Says(refused, "NOREPLICAS"):
		return replicasHint
	case node.Says(refused, "READONLY"):
		return "list masters that are independent of each other"
	}
	return ""
}

// hintFor returns how to correct the error of a node that could not be asked, or what it may be.
func hintFor(err error, withTLS bool) string {
	var hangUp *node.HangUp
	var plain tls.RecordHeaderError
	switch {
	case errors.Is(err, reason.SameServer):
		return "list each master once, with one database number"
	case errors.Is(err, reason.NotMaster):
		return "list masters that are independent of each other"
	case strings.HasPrefix(err.Error(), "DENIED "):
		return "give the default user a password, or set protected-mode no"
	case errors.Is(err, reason.Permission):
		return "see the ACL line in docs/operations.md"
	case node.Says(err, "ERR max number of clients"):
		return "raise maxclients, or look in CLIENT LIST for the clients with many connections"
	case node.Says(err, "BUSY "):
		return "a script of a client runs for too long: SCRIPT KILL ends it, or SHUTDOWN NOSAVE if it has written"
	case errors.As(err, &plain):
		return "the port may have no TLS: then give its address without TLS, or the TLS port"
	case errors.Is(err, reason.TLS):
		return "compare the certificates: the authority and the names of the server's, and whether the server wants a certificate of the client"
	case errors.As(err, &hangUp) && withTLS:
		return "the server may be full (maxclients), refuse this client's certificate or TLS version, or be a proxy that does not know the command"
	case errors.As(err, &hangUp):
		return "the server may be full (maxclients), expect TLS (rediss://), or be a proxy that does not know the command"
	case errors.Is(err, resp.ErrProtocol):
		return "the port may be that of another server, or expect TLS (rediss://)"
	}
	return ""
}

// Bootstrap gives the masters of a new deployment their votes at once. A master that is seen for
// the first time may have lost its data, so it has no vote for a little longer than the value of
// [redlock.WithMaxTTL]. Bootstrap ends that wait.
//
// Call it once, in the tool that sets the deployment up, and never at the start of a service: a
// master that restarted empty looks like a new one then. If it gets its vote while a lease is held,
// a second holder can be granted the resource. The call also vouches that the servers which were at the
// addresses of the masters before have ended.
//
// If a master does not answer, Bootstrap does nothing, and the error is a [*redlock.QuorumError]
// that matches [redlock.ErrNoQuorum]. A master that is lost between the two rounds of Bootstrap
// waits out its quarantine. If all masters are in use already, Bootstrap does nothing and returns
// nil. If a master refuses the list of masters, Bootstrap does nothing, and the error matches
// [redlock.ErrMasterSetup]. If some are in use and others in quarantine, these others were added or have lost data, and
// only waiting is safe: Bootstrap does nothing, and the error matches [redlock.ErrQuarantine]. With
// [redlock.WithoutRestartGuard] the error matches [redlock.ErrConfig]. Source: ALGORITHM section 8, "First start of a deployment".
func Bootstrap(ctx context.Context, l *redlock.Locker) error {
	r, err := enter(ctx, l, "Bootstrap")
	if err != nil {
		return err
	}
	defer r.Leave()
	if !r.Guard {
		return configError("Bootstrap", "WithoutRestartGuard leaves nothing to vouch for")
	}
	markers, waiting := r.onMarkers(ctx, wire.Look, make([]node.Marker, len(r.Nodes.Nodes())))
	if waiting != nil && waiting.Granted == 0 && errors.Is(waiting, redlock.ErrQuarantine) {
		_, waiting = r.onMarkers(ctx, wire.Vouch, markers)
	}
	if waiting == nil {
		return nil
	}
	return waiting
}

// onMarkers does the same operation on the markers of all nodes, and returns the new markers.
// seen has the markers as an earlier call returned them. The error is nil if all nodes have a
// vote. If all have answered, it matches ErrQuarantine.
func (r room) onMarkers(ctx context.Context, what string, seen []node.Marker) ([]node.Marker, *redlock.QuorumError) {
	nodes := r.Nodes.Nodes()
	e := r.quorumError("bootstrap", "", len(nodes), redlock.ErrQuarantine)
	markers, errs := each(ctx, r, func(ctx context.Context, n *node.Node) (node.Marker, error) {
		return n.OnMarker(ctx, what, seen[n.Index()])
	})
	for i, err := range errs {
		left := markers[i].Left
		switch {
		case err != nil:
			if !errors.Is(e, redlock.ErrMasterSetup) {
				e.Reasons = []error{redlock.ErrNoQuorum}
			}
		case markers[i].Conflict != nil:
			err = markers[i].Conflict
			e.Reasons = []error{redlock.ErrMasterSetup}
		case left == 0:
			e.Granted++
			continue
		default:
			err = node.Quarantine(left)
		}
		e.Masters = append(e.Masters, &redlock.MasterError{Master: nodes[i].Addr(), Op: what, Err: err, Quarantine: left})
	}
	if e.Granted == len(nodes) {
		return markers, nil
	}
	return markers, withContext(ctx, e)
}
