package redlock

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/d0720281/redlock/internal/attempt"
	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/wire"
)

// Sentinels to branch on with errors.Is. [Reason] has a finer word for an error, and a
// [*QuorumError] or [*MasterError], found with errors.As, has the details.
var (
	// ErrNotAcquired is matched by the error of every Lock, TryLock or Do that ended without a
	// lease, except for wrong arguments, re-entry and a Locker that was closed before.
	ErrNotAcquired = errors.New("redlock: not acquired")

	// ErrTaken reports that other processes are in the way: another holder has the resource, a
	// waiting process has its turn, or several attempts split the votes. Without them, enough
	// masters could have voted. It comes with ErrNotAcquired and is no reason for an alarm.
	// [QuorumError.HeldByQuorum] reports whether the masters that refused prevent a quorum by
	// themselves. [QuorumError.Holder] returns the holder's label, and how long its keys live.
	ErrTaken = errors.New("redlock: taken by another holder")

	// ErrNoQuorum reports that too few masters gave a usable answer in time. Raise an alarm: the
	// masters, or the network to them, are in trouble.
	ErrNoQuorum = errors.New("redlock: no quorum")

	// ErrQuarantine reports that masters have no vote yet: they are new, restarted, or have lost
	// data. It comes with ErrNoQuorum if there is a quorum as soon as they vote. [MasterError] has
	// how long each of them has to wait. Bootstrap of package admin ends the wait for new masters.
	ErrQuarantine = errors.New("redlock: masters in quarantine")

	// ErrMasterSetup reports that a master cannot take part until a person corrects that. If too many
	// masters cannot, or one refuses the list of masters or the version, [Locker.Lock] gives up. [Reason] returns why:
	//
	//   - "same_server": two addresses lead to one server, by another name or database number,
	//     which would vote twice. To find that, the library needs INFO.
	//   - "other_server": an address leads this client to one server, and other clients to another one, which
	//     they use: a name with two addresses, or a server that was replaced before the former one had
	//     ended. The votes of both would count as that of one master. The client that comes second goes without the vote of its
	//     server until no client has heard the other one for a quarantine, 10.3 s by default. The
	//     error has the run ids of both servers. To find that, the library needs INFO.
	//   - "version": the clients of a master have another version of the protocol. This client takes no lease
	//     until two quarantines after the last of them asked for votes there. The error says which side
	//     to upgrade.
	//   - "membership": other clients use a conflicting list of masters. A quorum
	//     of that list and a quorum of this one can have no master in common, so two clients could
	//     hold a resource at once. If one master that this client reaches has such a list in use, it takes no lease until two
	//     quarantines, 20.6 s by default, after a client with the other list last asked there for votes. To change a
	//     list, add a master, give that list to all clients, and then remove a master. The library
	//     compares the addresses as they are written.
	//   - "cluster_node": the server is a node of a Redis Cluster.
	//   - "not_master": the server is a replica. Lock goes on waiting, as a replica may become a
	//     master.
	//   - "permission": the master refused the credentials, or its access control list lacks a
	//     command or key. docs/operations.md has the ACL line.
	//   - "unsupported": the server lacks a command or a database that the library needs, or refuses
	//     the request in words of its own that tell of no passing state. docs/operations.md has the
	//     commands.
	//   - "tls": the server's certificate is not trusted, or this client's is refused, or one end
	//     speaks no TLS.
	//   - "wrong_type": the key of the resource holds data that is no lock. Change the resource or
	//     the key prefix.
	ErrMasterSetup = reason.Masters

	// ErrLost reports that the lease is over, although it was not released. The protected work must
	// stop. [Reason] returns why:
	//
	//   - "expired": the validity ran out, because no renewal was successful in time or the lease
	//     had none. If the last renewal failed, errors.As finds its [*QuorumError].
	//   - "suspended": the validity ran out while this machine stood still, as the masters' clocks
	//     showed afterwards.
	//   - "quorum_lost": before the validity ran out, the masters reported that a quorum no longer
	//     has the key.
	//   - "membership", "version": a master that answered after the lease was granted refuses the list of masters, or the
	//     version of the library, see [ErrMasterSetup].
	//   - "broken" and "max_hold" have sentinels of their own.
	ErrLost = reason.Lost

	// ErrBroken reports that Break of package admin has taken the lease away. It comes with ErrLost
	// for a lease that ended so, and with ErrNotHeld from [Locker.Adopt].
	ErrBroken = reason.Broken

	// ErrMaxHold comes with ErrLost when the bound of [WithMaxHold] was reached.
	ErrMaxHold = reason.MaxHold

	// ErrNotHeld is matched by the error of Unlock, Extend and Detach if the lease is over, for
	// whatever reason, and by that of [Locker.Adopt] if the masters do not have the lease.
	ErrNotHeld = errors.New("redlock: not held")

	// ErrReleased is the cause of a lease that Unlock or Close ended.
	ErrReleased = errors.New("redlock: lease released")

	// ErrDetached is the cause of a lease that [Lease.Detach] ended here. It comes with ErrLost, and with the
	// ErrNotHeld of Unlock, if another process has adopted the lease without that.
	ErrDetached = errors.New("redlock: lease detached")

	// ErrReentry reports that the context of Lock or TryLock already holds the resource, and that
	// [WithReentry] was not given. Waiting would never end. If [Reason] returns "upgrade", the
	// context has the resource as a reader: two readers that both wanted to write would wait for
	// each other for ever. Unlock the reader's lease before Lock, and read again what the work
	// depends on. Work that goes on after the lease needs a context that does not descend from
	// that of the lease. The result of [context.WithoutCancel] still descends from it.
	ErrReentry = reason.Reentry

	// ErrClosed reports that the Locker is closed. It comes with ErrNotAcquired if a call was
	// waiting when the Locker was closed.
	ErrClosed = node.ErrClosed

	// ErrConfig is matched by every error about an argument or option. The call sent nothing to a
	// master, except for [Locker.Adopt], which compares its fencing token with the masters' clocks.
	ErrConfig = reason.Config
)

// Answers of one node, beside those of attempt.go. They appear in MasterError.Err. No sentinel matches them, so that one
// node that has the key of another holder does not make an error match ErrTaken.
var (
	errGone        = node.ErrGone
	errHeldByOther = node.ErrHeldByOther
	errTakenAway   = node.ErrTakenAway
	errAdopted     = node.ErrAdopted
	errUndecided   = errors.New("no answer by the time it was decided")
)

// QuorumError is the result of a round over the masters that failed. By errors.Is it matches its
// Reasons, and the errors that its MasterErrors match.
type QuorumError struct {
	Op       string         // "lock", "extend", "unlock", "adopt", "break" or "inspect"; "bootstrap", "check" or "list"
	Resource string         // as given by the caller; "" for the last three
	Granted  int            // masters that agreed
	Need     int            // masters that had to agree: N/2+1, all for "bootstrap", N-N/2 for "list"
	Total    int            // masters in all
	Masters  []*MasterError // one for each master that did not agree
	Reasons  []error        // the sentinels that apply, and the error of the context if that ended the call
}

// timeoutError returns the error of a node timeout, with its value.
func timeoutError(d time.Duration) error {
	return fmt.Errorf("%w of %v (see WithMasterTimeout)", node.ErrTimeout, d)
}

// why returns the sentinels for votes that made no quorum. The resource is taken if, without the
// other holder, masters with a vote could have made a quorum. Otherwise waiting helps if masters in
// quarantine could have made it.
func (e *QuorumError) why() []error {
	refused, voteless, failed := 0, 0, 0
	for _, n := range e.Masters {
		held := n.held()
		switch {
		case n.Quarantine > 0:
			voteless++
		case !held && n.Err != errUndecided && n.Err != attempt.ErrNotAsked:
			failed++
		}
		if held {
			refused++
		}
	}
	switch {
	case refused > 0 && attempt.Decide(e.Total, e.Need, 0, failed+voteless) != attempt.Impossible:
		return []error{ErrTaken}
	case voteless > 0 && attempt.Decide(e.Total, e.Need, 0, failed) != attempt.Impossible:
		return []error{ErrNoQuorum, ErrQuarantine}
	}
	return []error{ErrNoQuorum}
}

// held reports whether the master refused because of another holder, or of a process whose turn it
// is.
func (e *MasterError) held() bool {
	return errors.Is(e.Err, errHeldByOther) || errors.Is(e.Err, node.ErrQueued)
}

// Error returns one line: the reasons, how many masters agreed, and the answers of the others. It
// names masters with the same answer together, and leaves out a master that had not answered when
// the others decided.
func (e *QuorumError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "redlock: %s", e.Op)
	if e.Resource != "" {
		fmt.Fprintf(&b, " %q", e.Resource)
	}
	separator := ": "
	for _, r := range e.Reasons {
		if r == ErrNotAcquired && len(e.Reasons) > 1 {
			continue // the other reasons say it
		}
		b.WriteString(separator + strings.TrimPrefix(r.Error(), reason.Prefix))
		if owner, _ := e.Holder(); r == ErrTaken && owner != "" {
			fmt.Fprintf(&b, " (%s)", owner)
		}
		separator = ", "
	}
	fmt.Fprintf(&b, ": %s by %d of %d masters (%d needed)", cmp.Or(did[e.Op], "answered"), e.Granted, e.Total, e.Need)
	for _, answer := range e.inShort() {
		b.WriteString("; " + answer)
	}
	return wire.Printable(strings.ReplaceAll(b.String(), "\n", " ")) // a context's cause may have several lines
}

// did has what the masters that said yes did.
var did = map[string]string{"lock": "granted", "extend": "extended", "unlock": "released", "break": "broken"}

// Format implements [fmt.Formatter]: %+v adds a line for each master, with its whole error.
func (e *QuorumError) Format(f fmt.State, verb rune) {
	text := e.Error()
	if verb == 'v' && f.Flag('+') {
		_, _ = fmt.Fprint(f, strings.Join(append([]string{text}, e.answers()...), "\n\t"))
		return
	}
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), text)
}

// MarshalJSON implements [json.Marshaler]. What is not printable is escaped: the resource can be the
// name of another program's key.
func (e *QuorumError) MarshalJSON() ([]byte, error) {
	type fields QuorumError
	text, err := json.Marshal((*fields)(e))
	return wire.PrintableJSON(text), err
}

// answers returns what each master said, as text, without the masters that Error leaves out.
func (e *QuorumError) answers() (list []string) {
	for _, n := range e.decided() {
		list = append(list, wire.Printable(n.Master+": "+strings.TrimPrefix(n.Err.Error(), reason.Prefix)))
	}
	return list
}

// decided returns the masters that Error does not leave out.
func (e *QuorumError) decided() []*MasterError {
	some := slices.DeleteFunc(slices.Clone(e.Masters), func(n *MasterError) bool { return n.Err == errUndecided })
	if len(some) == 0 {
		return e.Masters
	}
	return some
}

// inShort returns answers that are alike once, with the masters that gave them.
func (e *QuorumError) inShort() (list []string) {
	var texts []string
	masters := make(map[string][]string) // by what they said
	longest := make(map[string]time.Duration)
	for _, n := range e.decided() {
		text, left := n.inShort()
		if masters[text] == nil {
			texts = append(texts, text)
		}
		masters[text] = append(masters[text], n.Master)
		longest[text] = max(longest[text], left)
	}
	for _, text := range texts {
		of := strings.Join(masters[text], ", ")
		if len(masters[text]) == e.Total && e.Total > 1 {
			of = fmt.Sprintf("%d masters", e.Total)
		}
		if left := longest[text]; left > 0 {
			text += fmt.Sprintf(" for %.1fs", left.Seconds())
		}
		list = append(list, of+": "+text)
	}
	return list
}

// inShort returns what the master said without times and addresses, and for how long that holds at
// most.
func (e *MasterError) inShort() (text string, left time.Duration) {
	var code syscall.Errno
	var hungUp *node.HangUp
	switch {
	case errors.Is(e.Err, errHeldByOther):
		text, left = "held by another", e.ExpiresIn
		if e.Owner != "" {
			text = "held by " + e.Owner
		}
		if e.Quarantine > 0 {
			text, left = text+", in quarantine", e.Quarantine
		}
		return text, left
	case e.Quarantine > 0:
		return "in quarantine", e.Quarantine
	case errors.Is(e.Err, node.ErrTimeout), errors.Is(e.Err, node.ErrNoConnection), node.IsTimeout(e.Err):
		return "timeout", 0
	case errors.As(e.Err, &hungUp):
		return hungUp.Error(), 0
	case errors.As(e.Err, &code):
		return code.Error(), 0
	}
	return strings.TrimPrefix(e.Err.Error(), reason.Prefix), 0
}

// Unwrap returns the reasons and then the MasterErrors.
func (e *QuorumError) Unwrap() []error {
	all := make([]error, 0, len(e.Reasons)+len(e.Masters))
	all = append(all, e.Reasons...)
	for _, n := range e.Masters {
		all = append(all, n)
	}
	return all
}

// Holder returns the label of the holder that has the resource, or "" if it has none (see
// [WithOwner]), and how long its keys live at most, unless the holder renews them. left is 0 if no
// master reported that, and negative if a key never expires. If the masters named several holders,
// the result is the label that most of them named.
func (e *QuorumError) Holder() (owner string, left time.Duration) {
	named := make(map[string]int)
	for _, n := range e.Masters {
		if errors.Is(n.Err, errHeldByOther) {
			named[n.Owner]++
		}
	}
	for label, masters := range named {
		if masters > named[owner] || masters == named[owner] && label < owner {
			owner = label
		}
	}
	for _, n := range e.Masters {
		switch {
		case !errors.Is(n.Err, errHeldByOther) || n.Owner != owner:
		case n.ExpiresIn < 0:
			return owner, n.ExpiresIn
		default:
			left = max(left, n.ExpiresIn)
		}
	}
	return owner, left
}

// HeldByQuorum reports whether the masters that have the resource for other holders, or for attempts
// of other callers, prevent a quorum by themselves. Then enough masters work. A master without a
// vote does not count. An error can match [ErrTaken] although HeldByQuorum returns false, if some
// masters had not answered when the others decided.
func (e *QuorumError) HeldByQuorum() bool {
	return e.tooMany((*MasterError).hasAnother)
}

// quorumAnswered reports whether a quorum of the masters has granted the resource or has it for other
// holders or attempts.
func (e *QuorumError) quorumAnswered() bool {
	n := e.Granted
	for _, m := range e.Masters {
		if m.hasAnother() {
			n++
		}
	}
	return n >= e.Need
}

// Permanent reports whether waiting cannot help: one master refuses the list of masters or the version
// of the library, or so many masters can never vote that the others make no quorum. A master can never
// vote if it refuses the type of the key, the user or a command, if no TLS connection with it is
// possible, if it is one server with another master, if other clients have another server at its
// address, or if it is a node of a Redis Cluster. [Locker.Lock] then gives up. A replica does not
// count, as it may become a master.
func (e *QuorumError) Permanent() bool {
	return e.any(reason.Membership) || e.any(reason.Version) || e.tooMany((*MasterError).hopeless)
}

// any reports whether a master answered with an error.
func (e *QuorumError) any(why error) bool {
	return slices.ContainsFunc(e.Masters, func(m *MasterError) bool { return errors.Is(m.Err, why) })
}

// tooMany reports whether the masters for which is returns true leave no quorum to the others.
func (e *QuorumError) tooMany(is func(*MasterError) bool) bool {
	n := 0
	for _, m := range e.Masters {
		if is(m) {
			n++
		}
	}
	return attempt.Decide(e.Total, e.Need, 0, n) == attempt.Impossible
}

// hasAnother reports whether a master with a vote has the resource for another holder or attempt.
func (e *MasterError) hasAnother() bool {
	return errors.Is(e.Err, errHeldByOther) && e.Quarantine == 0
}

// excluded reports whether the master cannot take part until a person corrects that.
func (e *MasterError) excluded() bool { return errors.Is(e, ErrMasterSetup) }

// hopeless is excluded without what may end by itself: a replica may become a master.
func (e *MasterError) hopeless() bool {
	return e.excluded() && (!errors.Is(e, reason.NotMaster) || errors.Is(e, reason.ClusterNode))
}

// denies reports whether the master answers with an error.
func (e *MasterError) denies() bool { return e.excluded() || node.IsReply(e.Err) }

// VotesIn returns after how long a quorum of the masters has its votes at the earliest, if masters in
// quarantine are what is missing, and otherwise 0. A master that failed for another reason may have
// its vote at any moment.
func (e *QuorumError) VotesIn() time.Duration {
	ready := e.Total - len(e.Masters)
	var waits []time.Duration
	for _, n := range e.Masters {
		if n.Quarantine > 0 {
			waits = append(waits, n.Quarantine)
		} else {
			ready++
		}
	}
	if missing := e.Need - ready; missing > 0 && missing <= len(waits) {
		slices.Sort(waits)
		return waits[missing-1]
	}
	return 0
}

// because returns the same error with one more reason, for a call that waited through several
// rounds and ended for that reason.
func (e *QuorumError) because(why error) *QuorumError {
	more := *e
	more.Reasons = append(append([]error(nil), e.Reasons...), why)
	return &more
}

// MasterError is the answer of one master that did not agree, or why there is none.
type MasterError struct {
	Master string // address, without credentials
	Op     string // "acquire", "adopt", "raise", "extend" or "release"; "lock" if no attempt was made, since a master refuses the list of masters; "look", "vouch" or "break"; "check" or "list"
	Err    error

	Quarantine time.Duration // how long the master has no vote yet, if that is the reason
	Owner      string        // label of the holder that the master has, if that is the reason: see WithOwner
	ExpiresIn  time.Duration // how long the holder's key lives, if that is the reason and it is known; negative for ever
}

// Error returns the operation, the address of the master and its error.
func (e *MasterError) Error() string {
	return wire.Printable(fmt.Sprintf("redlock: %s on %s: %v", e.Op, e.Master, e.Err))
}

// Unwrap returns Err.
func (e *MasterError) Unwrap() error { return e.Err }

// notHeld returns the error of a call on a hold whose lease ended for cause.
func notHeld(op, resource string, cause error) error {
	return reason.Errorf("%s %q: %w: %w", op, resource, ErrNotHeld, cause)
}

// ranOut is the cause of a lease whose last renewal failed. It matches what the cause alone matches: an expired
// lease is no call that found no quorum.
type ranOut struct {
	error
	last *QuorumError
}

func (e *ranOut) Error() string {
	return wire.Printable(fmt.Sprintf("%v; last renewal: %s", e.error, strings.Join(e.last.inShort(), "; ")))
}
func (e *ranOut) Unwrap() error { return e.error }

// As has errors.As find the verdict on the last renewal.
func (e *ranOut) As(target any) bool {
	verdict, is := target.(**QuorumError)
	if is {
		*verdict = e.last
	}
	return is
}

// Causes with which the context of a lost lease ends, beside those of package term.
var (
	errLostQuorum  = reason.Errorf("%w: %w", ErrLost, reason.QuorumLost)
	errLostAdopted = reason.Errorf("%w: %w: %w", ErrLost, ErrDetached, errAdopted)
	errClosedHeld  = reason.Errorf("%w: %w", ErrReleased, ErrClosed)
)

// Reason returns an error as one word of a short list, for the labels of metrics and the fields of
// logs. It returns "" for nil, and "other" for an error without a word. No word contains the name
// of a resource or a master.
//
//	taken, split_vote               another holder has the resource; or some masters granted it, but too few
//	no_quorum, quarantine           too few masters answered usably; the missing ones have no vote yet
//	canceled, deadline              the context ended before anything was known
//	expired, suspended, quorum_lost, broken, max_hold, released
//	                                what ended a lease
//	detached                        the lease goes on elsewhere
//	timeout, connection, late, key_missing
//	                                of one master: no answer in time; no connection; an answer too late; it had lost the key
//	permission, unsupported, tls, membership, wrong_type, not_master, cluster_node, same_server, other_server, version
//	                                what a person has to correct, see ErrMasterSetup
//	stale                           of one master: another server answers at its address
//	config, reentry, upgrade, closed
//	masters, not_held, lost, not_acquired
//	                                of an error that has no other reason; not_held also of an Adopt that found no lease
//
// An error that matches several words has the word to act on: the answers of masters go before the
// end of the context, and what a person has to correct goes before no_quorum. An error type of
// another package can add a word, of a to z, 0 to 9 and "_", by a method Reason() string, which goes
// before the last line of the list: package election adds not_leader and no_leader, jobs too_late. More words may be added.
func Reason(err error) string {
	if err == nil {
		return ""
	}
	var verdict *QuorumError
	if !errors.Is(err, reason.Expired) && errors.As(err, &verdict) { // what single nodes answered is not the result of the round
		err = errors.Join(verdict.Reasons...)
		if verdict.tooMany((*MasterError).excluded) {
			err = errors.Join(err, verdict.Masters[slices.IndexFunc(verdict.Masters, (*MasterError).excluded)])
		}
	}
	for _, w := range reasonWords {
		if !errors.Is(err, w.err) {
			continue
		}
		if w.err == ErrTaken && verdict != nil && verdict.Granted > 0 {
			return "split_vote"
		}
		return w.word
	}
	var own interface{ Reason() string }
	if errors.As(err, &own) {
		if word := own.Reason(); isWord(word) {
			return word
		}
	}
	for _, w := range vagueWords {
		if errors.Is(err, w.err) {
			return w.word
		}
	}
	var waits node.Quarantine
	var broken net.Error
	switch {
	case errors.As(err, &waits):
		return "quarantine"
	case node.IsTimeout(err):
		return "timeout"
	case errors.As(err, &broken), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection"
	}
	return "other"
}

// isWord reports whether the word of another package's error can be a label of metrics.
func isWord(text string) bool {
	return text != "" && len(text) <= 64 && strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

type reasonWord struct {
	err  error
	word string
}

// reasonWords has the words in the order in which they are looked for.
var reasonWords = []reasonWord{
	{ErrClosed, "closed"},
	{ErrConfig, "config"},
	{reason.Upgrade, "upgrade"},
	{ErrReentry, "reentry"},
	{reason.Suspended, "suspended"},
	{ErrMaxHold, "max_hold"},
	{ErrBroken, "broken"},
	{errLostAdopted, "detached"},
	{reason.QuorumLost, "quorum_lost"},
	{reason.Expired, "expired"},
	{ErrReleased, "released"},
	{reason.SameServer, "same_server"},
	{reason.OtherServer, "other_server"},
	{reason.Version, "version"},
	{reason.ClusterNode, "cluster_node"},
	{reason.NotMaster, "not_master"},
	{reason.Permission, "permission"},
	{reason.Membership, "membership"},
	{reason.Unsupported, "unsupported"},
	{reason.TLS, "tls"},
	{reason.WrongType, "wrong_type"},
	{ErrTaken, "taken"},
	{ErrQuarantine, "quarantine"},
	{ErrNoQuorum, "no_quorum"},
	{errHeldByOther, "taken"},
	{errTakenAway, "broken"},
	{node.ErrQueued, "taken"},
	{node.ErrTimeout, "timeout"},
	{node.ErrNoConnection, "timeout"},
	{node.ErrLate, "late"},
	{node.ErrNotCounted, "key_missing"},
	{errGone, "key_missing"},
	{node.ErrForgot, "quarantine"},
	{node.ErrStepped, "quarantine"},
	{node.ErrStale, "stale"},
	{ErrDetached, "detached"},
	{context.Canceled, "canceled"},
	{context.DeadlineExceeded, "deadline"},
}

// vagueWords has the words of errors that match none of reasonWords.
var vagueWords = []reasonWord{
	{ErrMasterSetup, "masters"},
	{ErrNotHeld, "not_held"},
	{ErrLost, "lost"},
	{ErrNotAcquired, "not_acquired"},
}
