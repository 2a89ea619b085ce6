package redlock

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/d0720281/redlock/internal/attempt"
	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/wire"
)

// This file has how many votes decide, and what is said of a round whose votes did not make a quorum.

// quorum returns the number of votes that decides among n nodes. Two quorums always share a
// node; that node keeps two holders apart.
//
// Source: distlock, step 3 ("N/2+1"); ALGORITHM section 1.
func quorum(n int) int { return n/2 + 1 }

// exclusive reports whether a lease that has its key on held of n nodes still keeps every other
// holder out, because the other nodes are too few for a quorum of need.
//
// Source: ALGORITHM section 6, "Lost now".
func exclusive(n, need, held int) bool { return held > n-need }

// fenceBlock is the number of fencing tokens that one grant reserves. The counter is the last
// token of the block. The first lease of the grant has the first token, and each hand-over
// inside the process takes the next one.
//
// Source: ALGORITHM section 1, "B", and section 4.
const fenceBlock = wire.Block

// firstFence returns the first token of the block that ends at counter.
func firstFence(counter int64) int64 { return counter - fenceBlock + 1 }

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
		case !held && n.Err != errUndecided:
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
	return errors.Is(e.Err, node.ErrHeldByOther) || errors.Is(e.Err, node.ErrQueued)
}

// Error returns one line: the reasons, how many masters agreed, and the answers of the others. It names masters
// with the same answer together, and leaves out a master that had not answered when the others decided.
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
		if about := e.aboutHolder(); r == ErrTaken && about != "" {
			fmt.Fprintf(&b, " (%s)", about)
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
			text += fmt.Sprintf(" for %.1fs more", left.Seconds())
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
	case errors.Is(e.Err, node.ErrHeldByOther):
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
	case errors.Is(e.Err, node.ErrLookup):
		return "timeout of the name server", 0
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

// Holder returns the label of the holder that has the resource, or "" if it has none (see [WithOwner]), and how
// long its keys live unless the holder renews them: 0 if no master reported that, negative for ever. If the
// masters named several holders, the label is that of the holder that most of them named.
func (e *QuorumError) Holder() (owner string, left time.Duration) {
	named := make(map[string]int)
	for _, n := range e.Masters {
		if errors.Is(n.Err, node.ErrHeldByOther) {
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
		case !errors.Is(n.Err, node.ErrHeldByOther) || n.Owner != owner:
		case n.ExpiresIn < 0:
			return owner, n.ExpiresIn
		default:
			left = max(left, n.ExpiresIn)
		}
	}
	return owner, left
}

// HeldFor returns about how long the process that Holder names has had the resource: since its call, or since it adopted the
// lease, by the clocks of the masters in the middle. It is 0 if that is not known.
func (e *QuorumError) HeldFor() time.Duration {
	owner, _ := e.Holder()
	var since []time.Duration
	for _, n := range e.Masters {
		if errors.Is(n.Err, node.ErrHeldByOther) && n.Owner == owner && n.HeldFor > 0 {
			since = append(since, n.HeldFor)
		}
	}
	return node.Middle(since)
}

// aboutHolder returns the label of the holder and how long it has had the resource, as far as they are known.
func (e *QuorumError) aboutHolder() string {
	owner, _ := e.Holder()
	held := ""
	if d := e.HeldFor(); d > 0 {
		held = "held for " + wire.Age(d)
	}
	return strings.Trim(owner+", "+held, ", ")
}

// HeldByQuorum reports whether the masters that have the resource for other holders, or for attempts of other
// callers, prevent a quorum by themselves. A master without a vote does not count. An error can match
// [ErrTaken] although HeldByQuorum returns false, if some masters had not answered when the others decided.
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

// Permanent reports whether waiting cannot help, so that [Locker.Lock] gives up: one master refuses the list of
// masters or the version of the library, or so many have another reason of [ErrMasterSetup] that the others
// make no quorum. A replica does not count, as it may become a master.
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
	return errors.Is(e.Err, node.ErrHeldByOther) && e.Quarantine == 0
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
// quarantine are what is missing, and otherwise 0.
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
	HeldFor    time.Duration // since the holder's call, by the master's clock, if that is the reason and it is known; otherwise 0
	ExpiresIn  time.Duration // how long the holder's key lives, if that is the reason and it is known; negative for ever
}

// Error returns the operation, the address of the master and its error.
func (e *MasterError) Error() string {
	return wire.Printable(fmt.Sprintf("redlock: %s on %s: %v", e.Op, e.Master, e.Err))
}

// Unwrap returns Err.
func (e *MasterError) Unwrap() error { return e.Err }

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
