package redlock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/term"
)

// sentinels has every exported sentinel.
var sentinels = []error{
	ErrNotAcquired, ErrTaken, ErrNoQuorum, ErrQuarantine, ErrMasterSetup, ErrLost, ErrBroken, ErrMaxHold,
	ErrNotHeld, ErrReleased, ErrDetached, ErrReentry, ErrClosed, ErrConfig,
}

// finer has the errors behind them. Each matches the sentinel in front of it.
var finer = []error{
	reason.SameServer, reason.OtherServer, reason.Version, reason.Membership, reason.NotMaster, reason.ClusterNode, reason.Permission, reason.WrongType,
	reason.Expired, reason.Suspended, reason.QuorumLost, reason.Upgrade,
}

// The list has all sentinels.
func TestAllSentinels(t *testing.T) {
	src, err := os.ReadFile("errors.go")
	must(t, err)
	if got := len(regexp.MustCompile(`(?m)^\tErr\w+ += `).FindAll(src, -1)); got != len(sentinels) {
		t.Errorf("got %d exported errors in errors.go, want %d as listed", got, len(sentinels))
	}
}

// wantMatches checks that err matches the sentinels given, and what these match, and no other.
func wantMatches(t *testing.T, err error, want ...error) {
	t.Helper()
	for _, s := range slices.Concat(sentinels, finer, []error{context.Canceled, context.DeadlineExceeded}) {
		if got, want := errors.Is(err, s), slices.ContainsFunc(want, func(w error) bool { return errors.Is(w, s) }); got != want {
			t.Errorf("%q matches %q: got %v, want %v", err, s, got, want)
		}
	}
}

// wantOneLine checks the text of an error.
func wantOneLine(t *testing.T, err error, words ...string) {
	t.Helper()
	s := err.Error()
	if !strings.HasPrefix(s, "redlock: ") || strings.ContainsAny(s, "\r\n") {
		t.Errorf("got %q, want a single line that begins with the package's name", s)
	}
	for _, w := range words {
		if !strings.Contains(s, w) {
			t.Errorf("%q does not say %q", s, w)
		}
	}
}

func TestSentinels(t *testing.T) {
	for _, s := range slices.Concat(sentinels, finer) {
		wantOneLine(t, s)
		wantMatches(t, s, s)
	}
	for _, s := range sentinels {
		for _, other := range slices.Concat(sentinels, finer) {
			if s != other && errors.Is(s, other) {
				t.Errorf("%v matches %v, want no sentinel to match another", s, other)
			}
		}
	}
	for _, s := range finer {
		if !slices.ContainsFunc(sentinels, func(of error) bool { return errors.Is(s, of) }) {
			t.Errorf("%v matches no sentinel, want one to branch on", s)
		}
	}
	for _, test := range []struct {
		err  error
		want []error
	}{
		{term.ErrExpired, []error{ErrLost, reason.Expired}},
		{errLostQuorum, []error{ErrLost, reason.QuorumLost}},
		{term.ErrMaxHold, []error{ErrLost, ErrMaxHold}},
		{errClosedHeld, []error{ErrReleased, ErrClosed}},
		{reason.Configf("x is %d", 3), []error{ErrConfig}},
		{notHeld("unlock", "r", ErrReleased), []error{ErrNotHeld, ErrReleased}},
		{notHeld("extend", "r", term.ErrExpired), []error{ErrNotHeld, ErrLost, reason.Expired}},
		{notHeld("extend", "r", errClosedHeld), []error{ErrNotHeld, ErrReleased, ErrClosed}},
	} {
		wantMatches(t, test.err, test.want...)
	}
}

// nodesSaying returns a node error for each answer of a node.
func nodesSaying(errs ...error) []*MasterError {
	var nodes []*MasterError
	for i, err := range errs {
		nodes = append(nodes, &MasterError{Master: fmt.Sprintf("10.0.0.%d:6379", i+1), Op: "acquire", Err: err})
	}
	return nodes
}

func TestQuorumErrorMatches(t *testing.T) {
	wrong := &node.KeyError{Key: "redlock:r", Err: reason.WrongType}
	denied := &node.Marked{Sentinel: reason.Permission, Err: errors.New("NOPERM this user has no permissions")}
	for _, test := range []struct {
		name    string
		reasons []error
		nodes   []*MasterError
		want    []error
	}{
		{"taken", []error{ErrNotAcquired, ErrTaken}, nodesSaying(node.ErrHeldByOther, node.ErrHeldByOther), []error{ErrNotAcquired, ErrTaken}},
		{"no quorum", []error{ErrNotAcquired, ErrNoQuorum}, nodesSaying(node.ErrTimeout, node.ErrTimeout), []error{ErrNotAcquired, ErrNoQuorum}},
		{"one busy node is no taken lock", []error{ErrNotAcquired, ErrNoQuorum}, nodesSaying(node.ErrHeldByOther, node.ErrTimeout), []error{ErrNotAcquired, ErrNoQuorum}},
		{"all busy nodes are none by themselves", []error{ErrNotAcquired, context.Canceled}, nodesSaying(node.ErrHeldByOther, node.ErrHeldByOther, node.ErrHeldByOther),
			[]error{ErrNotAcquired, context.Canceled}},
		{"the context ended", []error{ErrNotAcquired, context.DeadlineExceeded}, nil, []error{ErrNotAcquired, context.DeadlineExceeded}},
		{"a node's wrong type", []error{ErrNotAcquired, ErrNoQuorum}, nodesSaying(wrong), []error{ErrNotAcquired, ErrNoQuorum, reason.WrongType}},
		{"a node's permission", []error{ErrNotAcquired, ErrNoQuorum}, nodesSaying(node.ErrLate, denied), []error{ErrNotAcquired, ErrNoQuorum, reason.Permission}},
		{"what nodes say of themselves", []error{ErrNoQuorum}, nodesSaying(node.ErrLate, node.ErrNotCounted, node.ErrGone, node.ErrUnraised, node.ErrBadReply, node.ErrSetVoteless, node.ErrUnsent),
			[]error{ErrNoQuorum}},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := error(&QuorumError{Op: "lock", Resource: "r", Need: 2, Masters: test.nodes, Total: 3, Reasons: test.reasons})
			wantMatches(t, err, test.want...)
			wantMatches(t, fmt.Errorf("billing: %w", err), test.want...)
			wantOneLine(t, err)

			var q *QuorumError
			if !errors.As(fmt.Errorf("billing: %w", err), &q) || q != err {
				t.Errorf("got %v as a QuorumError, want the error itself", q)
			}
			var n *MasterError
			if got, want := errors.As(err, &n), len(test.nodes) > 0; got != want || want && n != test.nodes[0] {
				t.Errorf("got %v, %v as a MasterError, want the first", n, got)
			}
		})
	}
	t.Run("what the network said", func(t *testing.T) {
		err := &QuorumError{Reasons: []error{ErrNoQuorum}, Masters: nodesSaying(node.ErrTimeout, io.ErrUnexpectedEOF)}
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%v does not match a node's own error", err)
		}
	})
}

// The message is one line: first the reasons, then the answers, those that are alike together. %+v has them all.
func TestQuorumErrorText(t *testing.T) {
	refused := func(addr string) error {
		return &net.OpError{Op: "dial", Net: "tcp", Addr: &net.UnixAddr{Name: addr}, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	held := node.HeldByOther{Owner: "ci-3:4711:make", For: 192 * time.Second, Left: 9 * time.Second}
	for _, test := range []struct {
		granted int
		said    []error
		reasons []error
		want    string
	}{
		{0, []error{refused("a"), refused("b"), refused("c")}, []error{ErrNotAcquired, ErrNoQuorum},
			`no quorum: granted by 0 of 3 masters (2 needed); 3 masters: connection refused`},
		{0, []error{refused("a"), errUndecided, refused("c")}, []error{ErrNotAcquired, ErrNoQuorum},
			`no quorum: granted by 0 of 3 masters (2 needed); 10.0.0.1:6379, 10.0.0.3:6379: connection refused`},
		{0, []error{timeoutError(time.Second), node.ErrNoConnection, os.ErrDeadlineExceeded}, []error{ErrNoQuorum},
			`no quorum: granted by 0 of 3 masters (2 needed); 3 masters: timeout`},
		{1, []error{node.ErrTimeout, &node.KeyError{Key: "a:or\nder", Err: io.EOF}}, []error{ErrNotAcquired, ErrNoQuorum},
			`no quorum: granted by 1 of 3 masters (2 needed); 10.0.0.1:6379: timeout; 10.0.0.2:6379: EOF (key "a:or\nder")`},
		{0, []error{held, node.HeldByOther{Owner: held.Owner, Left: 9200 * time.Millisecond}, held}, []error{ErrNotAcquired, ErrTaken},
			`taken by another holder (ci-3:4711:make, held for 3m12s): granted by 0 of 3 masters (2 needed); 3 masters: held by ci-3:4711:make for 9.2s more`},
		{0, []error{node.Quarantine(2 * time.Second), fmt.Errorf("%w; %w", held, node.Quarantine(2*time.Second))}, []error{ErrNoQuorum, ErrQuarantine},
			`no quorum, masters in quarantine: granted by 0 of 3 masters (2 needed); 10.0.0.1:6379: in quarantine for 2.0s more; ` +
				`10.0.0.2:6379: held by ci-3:4711:make, in quarantine for 2.0s more`},
		{0, nil, []error{ErrNotAcquired}, `not acquired: granted by 0 of 3 masters (2 needed)`},
	} {
		err := &QuorumError{Op: "lock", Resource: "or\"der\n7", Granted: test.granted, Need: 2, Total: 3, Reasons: test.reasons, Masters: nodesSaying(test.said...)}
		for _, n := range err.Masters { // as pool.nodeError makes them
			var left node.Quarantine
			var holder node.HeldByOther
			errors.As(n.Err, &left)
			errors.As(n.Err, &holder)
			n.Quarantine, n.Owner, n.HeldFor, n.ExpiresIn = time.Duration(left), holder.Owner, holder.For, holder.Left
		}
		want := `redlock: lock "or\"der\n7": ` + test.want
		for _, verb := range []string{"%v", "%s"} {
			if got := fmt.Sprintf(verb, err); got != want {
				t.Errorf("%s: got  %s\nwant %s", verb, got, want)
			}
		}
		whole := fmt.Sprintf("%+v", err)
		for i, n := range err.Masters {
			if n.Err != errUndecided && !strings.Contains(whole, fmt.Sprintf("\n\t%s: %v", n.Master, test.said[i])) {
				t.Errorf("%%+v: got %s, want the error of %s in it", whole, n.Master)
			}
		}
	}
}

// An outage is over when a quorum has answered. More masters than can be missing are fewer than a quorum where
// the number of masters is even.
func TestQuorumAnswered(t *testing.T) {
	for _, test := range []struct {
		granted        int
		said           []error
		held, answered bool
	}{
		{0, []error{node.ErrHeldByOther, node.ErrHeldByOther, io.EOF, io.EOF}, true, false},
		{1, []error{node.ErrHeldByOther, node.ErrHeldByOther, io.EOF}, true, true},
		{2, []error{node.ErrHeldByOther, io.EOF}, false, true},
		{2, []error{io.EOF, io.EOF}, false, false},
	} {
		e := &QuorumError{Need: 3, Total: 4, Granted: test.granted, Masters: nodesSaying(test.said...)}
		if e.HeldByQuorum() != test.held || e.quorumAnswered() != test.answered {
			t.Errorf("%d of 4 granted, others %v: got held %t, answered %t; want %t, %t", test.granted, test.said, e.HeldByQuorum(), e.quorumAnswered(), test.held, test.answered)
		}
	}
}

func TestQuorumErrorWhy(t *testing.T) {
	held, waits := error(node.ErrHeldByOther), error(node.Quarantine(time.Second))
	both := fmt.Errorf("%w; %w", held, waits)
	taken, down, quarantine := []error{ErrTaken}, []error{ErrNoQuorum}, []error{ErrNoQuorum, ErrQuarantine}
	for _, test := range []struct {
		said []error
		want []error
		held bool
	}{
		{[]error{held, held, held}, taken, true},
		{[]error{held, errUndecided, errUndecided}, taken, false},
		{[]error{node.ErrQueued, node.ErrQueued, node.ErrQueued}, taken, false},
		{[]error{held, node.ErrTimeout, node.ErrTimeout}, down, false},
		{[]error{held, held, node.ErrTimeout}, taken, true},
		{[]error{both, both, both}, quarantine, false},
		{[]error{both, waits, held}, quarantine, false},
		{[]error{both, held, held}, taken, true},
		{[]error{both, errUndecided, errUndecided}, taken, false},
		{[]error{both, waits, node.ErrTimeout}, quarantine, false},
		{[]error{waits, node.ErrTimeout, node.ErrTimeout}, down, false},
		{[]error{both, node.ErrTimeout, node.ErrTimeout}, down, false},
	} {
		e := &QuorumError{Need: 2, Total: 3, Masters: nodesSaying(test.said...)}
		for _, n := range e.Masters {
			if errors.As(n.Err, new(node.Quarantine)) {
				n.Quarantine = time.Second
			}
		}
		if got := e.why(); !slices.Equal(got, test.want) || e.HeldByQuorum() != test.held {
			t.Errorf("%v: got %v and held by a quorum %v, want %v and %v", test.said, got, e.HeldByQuorum(), test.want, test.held)
		}
	}
}

func TestMasterError(t *testing.T) {
	err := &MasterError{Master: "10.0.0.1:6379", Op: "extend", Err: io.EOF}
	wantOneLine(t, err, "extend on 10.0.0.1:6379", "EOF")
	if !errors.Is(err, io.EOF) {
		t.Errorf("%v does not match what the node said", err)
	}
	wantMatches(t, err)
}

// Adding a reason makes a copy; the error, which others may hold, stays as it was.
func TestBecause(t *testing.T) {
	reasons := append(make([]error, 0, 8), ErrNotAcquired, ErrTaken) // with room that append could use
	first := &QuorumError{Op: "lock", Resource: "r", Granted: 1, Need: 2, Total: 3, Reasons: reasons, Masters: nodesSaying(node.ErrHeldByOther)}
	cancelled, closed := first.because(context.Canceled), first.because(ErrClosed)
	wantMatches(t, first, ErrNotAcquired, ErrTaken)
	wantMatches(t, cancelled, ErrNotAcquired, ErrTaken, context.Canceled)
	wantMatches(t, closed, ErrNotAcquired, ErrTaken, ErrClosed)
	wantOneLine(t, cancelled, "taken by another holder, context canceled", "10.0.0.1:6379")
	if cancelled.Op != "lock" || cancelled.Resource != "r" || cancelled.Granted != 1 || cancelled.Need != 2 || cancelled.Total != 3 {
		t.Errorf("got %+v, want the rest as it was", cancelled)
	}
}

// Waiting ends if nodes that will never agree leave no quorum.
func TestPermanent(t *testing.T) {
	wrong, denied := error(&node.KeyError{Key: "k", Err: reason.WrongType}), error(&node.Marked{Sentinel: reason.Permission, Err: io.EOF})
	for _, test := range []struct {
		of   int
		said []error
		want bool
	}{
		{1, []error{wrong}, true},
		{1, []error{node.ErrHeldByOther}, false},
		{2, []error{denied}, true},
		{3, []error{wrong}, false},
		{3, []error{wrong, node.ErrHeldByOther, node.ErrTimeout}, false},
		{3, []error{node.ErrHeldByOther, node.ErrTimeout, node.ErrLate}, false},
		{3, []error{wrong, denied}, true},
		{3, []error{denied, node.ErrTimeout, denied}, true},
		{3, []error{&node.Contested{}, node.ErrTimeout}, false},
		{3, []error{&node.Contested{}, &node.Contested{}}, true},
		{3, []error{&node.Version{}}, true},
		{4, []error{wrong}, false},
		{4, []error{wrong, wrong}, true},
		{5, []error{wrong, denied}, false},
		{5, []error{wrong, denied, wrong}, true},
		{5, nil, false},
	} {
		e := &QuorumError{Need: quorum(test.of), Total: test.of, Masters: nodesSaying(test.said...)}
		if got := e.Permanent(); got != test.want {
			t.Errorf("%v of %d nodes: got %v, want %v", test.said, test.of, got, test.want)
		}
	}
}

// Each error has one reason. The reason of a node is not taken for the reason of a round.
func TestReason(t *testing.T) {
	from := func(err error) []*MasterError { return []*MasterError{{Master: "a", Op: "acquire", Err: err}} }
	verdict := func(granted int, nodes []*MasterError, reasons ...error) error {
		return &QuorumError{Op: "lock", Resource: "r", Granted: granted, Need: 2, Masters: nodes, Total: 3, Reasons: reasons}
	}
	dial := &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded} // matches context.DeadlineExceeded, too
	for _, test := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{errors.New("x"), "other"},
		{verdict(0, from(node.ErrHeldByOther), ErrNotAcquired, ErrTaken), "taken"},
		{verdict(1, from(node.ErrHeldByOther), ErrNotAcquired, ErrTaken), "split_vote"},
		{verdict(1, from(dial), ErrNotAcquired, ErrNoQuorum), "no_quorum"},
		{verdict(1, from(reason.Permission), ErrNotAcquired, ErrNoQuorum), "no_quorum"},
		{verdict(0, append(from(reason.Permission), from(reason.Permission)...), ErrNotAcquired, ErrNoQuorum), "permission"},
		{verdict(0, append(from(reason.NotMaster), from(reason.NotMaster)...), ErrNotAcquired, ErrNoQuorum), "not_master"},
		{verdict(0, append(from(reason.Membership), from(reason.WrongType)...), ErrNotAcquired, ErrNoQuorum), "membership"},
		{verdict(0, append(from(&node.Contested{}), from(&node.Contested{})...), ErrNotAcquired, ErrNoQuorum), "other_server"},
		{verdict(1, from(&node.Contested{}), ErrNotAcquired, ErrNoQuorum), "no_quorum"},
		{verdict(0, append(from(&node.Version{}), from(reason.NotMaster)...), ErrNotAcquired, ErrNoQuorum), "version"},
		{verdict(1, from(node.Quarantine(time.Second)), ErrNotAcquired, ErrNoQuorum, ErrQuarantine), "quarantine"},
		{ownReason("Too long a\xff word"), "other"},
		{verdict(0, nil, ErrNotAcquired, context.Canceled), "canceled"},
		{verdict(0, nil, ErrNotAcquired, ErrTaken, context.DeadlineExceeded), "taken"},
		{verdict(0, nil, ErrNotAcquired, ErrTaken, ErrClosed), "closed"},
		{fmt.Errorf("redlock: lock %q: %w, %w in this process: %w", "r", ErrNotAcquired, ErrTaken, context.Canceled), "taken"},
		{endedBy(canceled(nil)), "canceled"},
		{endedBy(canceled(errors.New("because"))), "canceled"},
		{term.ErrExpired, "expired"},
		{term.ErrStoodStill, "suspended"},
		{&ranOut{term.ErrExpired, &QuorumError{Op: "extend", Reasons: []error{ErrNoQuorum}}}, "expired"},
		{errLostQuorum, "quorum_lost"},
		{term.ErrMaxHold, "max_hold"},
		{errClosedHeld, "closed"},
		{notHeld("unlock", "r", ErrReleased), "released"},
		{notHeld("extend", "r", term.ErrExpired), "expired"},
		{notHeld("unlock", "r", verdict(0, nil, node.ErrGone)), "key_missing"},
		{notHeld("extend", "r", ErrDetached), "detached"},
		{&QuorumError{Op: "adopt", Resource: "r", Need: 2, Total: 3, Reasons: []error{ErrNotHeld}}, "not_held"},
		{&QuorumError{Op: "adopt", Resource: "r", Need: 2, Total: 3, Reasons: []error{ErrNotHeld, errors.New("another holder had the resource in between")}}, "not_held"},
		{notHeld("adopt", "r", errLostQuorum), "quorum_lost"},
		{fmt.Errorf("%w yet", ownReason("not_leader")), "not_leader"},
		{fmt.Errorf("%w: %w", ownReason("not_leader"), verdict(0, nil, ErrNotAcquired, ErrTaken)), "taken"},
		{fmt.Errorf("%w: %w", ownReason("not_leader"), term.ErrExpired), "expired"},
		{fmt.Errorf("%w: %w", ErrLost, ownReason("not_leader")), "not_leader"},
		{fmt.Errorf("%w: %w", ownReason(""), ErrLost), "lost"},
		{ownReason(""), "other"},
		{fmt.Errorf("%w: %w", ErrNotAcquired, io.ErrNoProgress), "not_acquired"},
		{reason.Configf("x"), "config"},
		{fmt.Errorf("%w: %w", ErrNotAcquired, reason.SameServer), "same_server"},
		{from(dial)[0], "timeout"},
		{from(fmt.Errorf("%w of 1s", node.ErrTimeout))[0], "timeout"},
		{from(node.ErrHeldByOther)[0], "taken"},
		{from(node.Quarantine(time.Second))[0], "quarantine"},
		{from(&net.OpError{Op: "dial", Err: errors.New("connection refused")})[0], "connection"},
		{from(fmt.Errorf("read: %w", io.EOF))[0], "connection"},
		{from(errors.New("ERR unknown"))[0], "other"},
	} {
		if got := Reason(test.err); got != test.want {
			t.Errorf("%v: got %q, want %q", test.err, got, test.want)
		}
	}
	words := make(map[string]error)
	for _, s := range slices.Concat(sentinels, finer) {
		word := Reason(s)
		if other := words[word]; word == "other" || other != nil {
			t.Errorf("%v: got %q, want a word of its own; it is that of %v", s, word, other)
		}
		words[word] = s
	}
}

// ownReason is an error of another package.
type ownReason string

func (ownReason) Error() string    { return "error with a reason of its own" }
func (r ownReason) Reason() string { return string(r) }

func canceled(cause error) context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	return ctx
}
