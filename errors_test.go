package redlock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// sentinels is every exported one.
var sentinels = []error{
	ErrNotAcquired, ErrTaken, ErrNoQuorum, ErrLost, ErrExpired, ErrQuorumLost, ErrMaxHold, ErrNotHeld, ErrReleased,
	ErrReentry, ErrClosed, ErrConfig, ErrWrongType, ErrPermission,
}

// wantMatches checks that err matches the sentinels given and no other.
func wantMatches(t *testing.T, err error, want ...error) {
	t.Helper()
	for _, s := range append(slices.Clone(sentinels), context.Canceled, context.DeadlineExceeded) {
		if got, want := errors.Is(err, s), slices.Contains(want, s); got != want {
			t.Errorf("%q matches %q: got %v, want %v", err, s, got, want)
		}
	}
}

// wantOneLine checks what an error says.
func wantOneLine(t *testing.T, err error, words ...string) {
	t.Helper()
	s := err.Error()
	if !strings.HasPrefix(s, "redlock: ") || strings.ContainsAny(s, "\r\n") {
		t.Errorf("got %q, want one line that begins with the package's name", s)
	}
	for _, w := range words {
		if !strings.Contains(s, w) {
			t.Errorf("%q does not say %q", s, w)
		}
	}
}

func TestSentinels(t *testing.T) {
	for _, s := range sentinels {
		wantOneLine(t, s)
		wantMatches(t, s, s) // none stands for another
	}
	for _, test := range []struct {
		err  error
		want []error
	}{
		{errLostExpired, []error{ErrLost, ErrExpired}},
		{errLostQuorum, []error{ErrLost, ErrQuorumLost}},
		{errLostMaxHold, []error{ErrLost, ErrMaxHold}},
		{errClosedHeld, []error{ErrReleased, ErrClosed}},
		{configErrorf("x is %d", 3), []error{ErrConfig}},
		{notHeld("unlock", "r", ErrReleased), []error{ErrNotHeld, ErrReleased}},
		{notHeld("extend", "r", errLostExpired), []error{ErrNotHeld, ErrLost, ErrExpired}},
		{notHeld("extend", "r", errClosedHeld), []error{ErrNotHeld, ErrReleased, ErrClosed}},
	} {
		wantMatches(t, test.err, test.want...)
	}
}

// nodesSaying is one node error for each of what the nodes said.
func nodesSaying(errs ...error) []*NodeError {
	var nodes []*NodeError
	for i, err := range errs {
		nodes = append(nodes, &NodeError{Node: fmt.Sprintf("10.0.0.%d:6379", i+1), Op: "acquire", Err: err})
	}
	return nodes
}

func TestQuorumErrorMatches(t *testing.T) {
	wrong := &keyError{key: "redlock:r", err: ErrWrongType}
	denied := nodeFailure(serverError("NOPERM this user has no permissions"))
	for _, test := range []struct {
		name    string
		reasons []error
		nodes   []*NodeError
		want    []error
	}{
		{"taken", []error{ErrNotAcquired, ErrTaken}, nodesSaying(errHeldByOther, errHeldByOther), []error{ErrNotAcquired, ErrTaken}},
		{"no quorum", []error{ErrNotAcquired, ErrNoQuorum}, nodesSaying(errNodeTimeout, errNodeTimeout), []error{ErrNotAcquired, ErrNoQuorum}},
		{"one busy node is no taken lock", []error{ErrNotAcquired, ErrNoQuorum}, nodesSaying(errHeldByOther, errNodeTimeout), []error{ErrNotAcquired, ErrNoQuorum}},
		{"all busy nodes are none by themselves", []error{ErrNotAcquired, context.Canceled}, nodesSaying(errHeldByOther, errHeldByOther, errHeldByOther),
			[]error{ErrNotAcquired, context.Canceled}},
		{"the context ended", []error{ErrNotAcquired, context.DeadlineExceeded}, nil, []error{ErrNotAcquired, context.DeadlineExceeded}},
		{"a node's wrong type", []error{ErrNotAcquired, ErrNoQuorum}, nodesSaying(wrong), []error{ErrNotAcquired, ErrNoQuorum, ErrWrongType}},
		{"a node's permission", []error{ErrNotAcquired, ErrNoQuorum}, nodesSaying(errLate, denied), []error{ErrNotAcquired, ErrNoQuorum, ErrPermission}},
		{"what nodes say of themselves", []error{ErrNoQuorum}, nodesSaying(errLate, errNotCounted, errGone, errUnraised, errBadReply, errPlanted, errUnsent),
			[]error{ErrNoQuorum}},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := error(&QuorumError{Op: "lock", Resource: "r", Need: 2, Nodes: test.nodes, of: 3, reasons: test.reasons})
			wantMatches(t, err, test.want...)
			wantMatches(t, fmt.Errorf("billing: %w", err), test.want...)
			wantOneLine(t, err)

			var q *QuorumError
			if !errors.As(fmt.Errorf("billing: %w", err), &q) || q != err {
				t.Errorf("got %v as a QuorumError, want the error itself", q)
			}
			var n *NodeError
			if got, want := errors.As(err, &n), len(test.nodes) > 0; got != want || want && n != test.nodes[0] {
				t.Errorf("got %v, %v as a NodeError, want the first", n, got)
			}
		})
	}
	t.Run("what the network said", func(t *testing.T) {
		err := &QuorumError{reasons: []error{ErrNoQuorum}, Nodes: nodesSaying(errNodeTimeout, io.ErrUnexpectedEOF)}
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%v does not match a node's own error", err)
		}
	})
}

// The message has the reasons first, then each node with its address, on one line.
func TestQuorumErrorText(t *testing.T) {
	err := &QuorumError{
		Op: "lock", Resource: "or\"der\n7", Granted: 1, Need: 2, of: 3, reasons: []error{ErrNotAcquired, ErrNoQuorum},
		Nodes: nodesSaying(errNodeTimeout, &keyError{"a:or\nder", io.EOF}),
	}
	wantOneLine(t, &QuorumError{Op: "lock", reasons: []error{ErrTaken}})
	got, want := err.Error(), `redlock: lock "or\"der\n7": not acquired, no quorum: 1 of 2 nodes needed said yes`+
		`; 10.0.0.1:6379: no answer within the node timeout`+
		`; 10.0.0.2:6379: EOF (key "a:or\nder")`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestNodeError(t *testing.T) {
	err := &NodeError{Node: "10.0.0.1:6379", Op: "extend", Err: io.EOF}
	wantOneLine(t, err, "extend on 10.0.0.1:6379", "EOF")
	if !errors.Is(err, io.EOF) {
		t.Errorf("%v does not match what the node said", err)
	}
	wantMatches(t, err)
}

// A reason is added to a copy; the error that others may hold stays as it was.
func TestBecause(t *testing.T) {
	reasons := append(make([]error, 0, 8), ErrNotAcquired, ErrTaken) // with room, as append would use it
	first := &QuorumError{Op: "lock", Resource: "r", Granted: 1, Need: 2, of: 3, reasons: reasons, Nodes: nodesSaying(errHeldByOther)}
	cancelled, closed := first.because(context.Canceled), first.because(ErrClosed)
	wantMatches(t, first, ErrNotAcquired, ErrTaken)
	wantMatches(t, cancelled, ErrNotAcquired, ErrTaken, context.Canceled)
	wantMatches(t, closed, ErrNotAcquired, ErrTaken, ErrClosed)
	wantOneLine(t, cancelled, "not acquired, taken by another holder, context canceled", "10.0.0.1:6379")
	if cancelled.Op != "lock" || cancelled.Resource != "r" || cancelled.Granted != 1 || cancelled.Need != 2 || cancelled.of != 3 {
		t.Errorf("got %+v, want the rest as it was", cancelled)
	}
}

// Waiting is given up when the nodes that will never agree leave no quorum.
func TestPermanent(t *testing.T) {
	wrong, denied := error(&keyError{"k", ErrWrongType}), error(&sentinelError{ErrPermission, io.EOF})
	for _, test := range []struct {
		of   int
		said []error
		want bool
	}{
		{1, []error{wrong}, true},
		{1, []error{errHeldByOther}, false},
		{2, []error{denied}, true},
		{3, []error{wrong}, false},
		{3, []error{wrong, errHeldByOther, errNodeTimeout}, false},
		{3, []error{errHeldByOther, errNodeTimeout, errLate}, false},
		{3, []error{wrong, denied}, true},
		{3, []error{denied, errNodeTimeout, denied}, true},
		{4, []error{wrong}, false},
		{4, []error{wrong, wrong}, true},
		{5, []error{wrong, denied}, false},
		{5, []error{wrong, denied, wrong}, true},
		{5, nil, false},
	} {
		e := &QuorumError{of: test.of, Nodes: nodesSaying(test.said...)}
		if got := e.permanent(); got != test.want {
			t.Errorf("%v of %d nodes: got %v, want %v", test.said, test.of, got, test.want)
		}
	}
}

// serverError is an error that came in a reply.
type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}

var _ redis.Error = serverError("")

// What a server refuses gets a sentinel where a caller can do something about it.
func TestNodeFailure(t *testing.T) {
	for text, denied := range map[string]bool{
		"NOPERM this user has no permissions to run the 'evalsha' command":                                       true,
		"NOAUTH Authentication required.":                                                                        true,
		"WRONGPASS invalid username-password pair or user is disabled.":                                          true,
		"ERR The user executing the script can't run this command or subcommand script: 0a, on @user_script:27.": true,
		"ERR -NOPERM The user executing the script can't access at least one of the keys":                        true,
		"OOM command not allowed when used memory > 'maxmemory'.":                                                false,
		"READONLY You can't write against a read only replica.":                                                  false,
		"ERR unknown command 'evalsha'":                                                                          false,
		"ERR Error running script (call to f_0a): @user_script:9: -NOPERM no":                                    true,
	} {
		err := nodeFailure(serverError(text))
		if got := errors.Is(err, ErrPermission); got != denied {
			t.Errorf("%q is about permission: got %v, want %v", text, got, denied)
		}
		if !errors.Is(err, serverError(text)) || err.Error() != text {
			t.Errorf("got %v, want the server's words %q", err, text)
		}
	}
	if err := nodeFailure(nil); err != nil {
		t.Errorf("no failure: got %v", err)
	}
	if local := errors.New("dial: NOAUTH NOPERM No permission"); nodeFailure(local) != local {
		t.Error("an error of the connection was taken for the server's")
	}
}

func TestKindsOfFailure(t *testing.T) {
	for _, test := range []struct {
		err                                    error
		reply, noScript, unwritable, timesOver bool
	}{
		{err: serverError("NOSCRIPT No matching script."), reply: true, noScript: true},
		{err: serverError("READONLY You can't write."), reply: true, unwritable: true},
		{err: serverError("MASTERDOWN Link with MASTER is down"), reply: true, unwritable: true},
		{err: serverError("ERR what NOSCRIPT READONLY"), reply: true},
		{err: errBadReply, reply: true},
		{err: errors.New("NOSCRIPT READONLY")},
		// How the client tells that it gave up a connection, because of a reply.
		{err: fmt.Errorf("redis: Conn is in a bad state: %w", serverError("READONLY You can't write."))},
		{err: serverError("ERR Error running script (call to f_0a): @user_script:9: -READONLY You can't write."), reply: true, unwritable: true},
		{err: io.EOF},
		{err: context.DeadlineExceeded, timesOver: true},
		{err: fmt.Errorf("read: %w", context.DeadlineExceeded), timesOver: true},
		{err: context.Canceled},
		{err: nil},
	} {
		if isReply(test.err) != test.reply || says(test.err, "NOSCRIPT") != test.noScript || isUnwritable(test.err) != test.unwritable || isTimeout(test.err) != test.timesOver {
			t.Errorf("%v: reply %v, no script %v, unwritable %v, time-out %v; want %+v",
				test.err, isReply(test.err), says(test.err, "NOSCRIPT"), isUnwritable(test.err), isTimeout(test.err), test)
		}
	}
}

// Every code is a vote or has its own words, and so has a reply that is no reply.
//
// Source: ALGORITHM section 3, point 3.
func TestRefusal(t *testing.T) {
	for _, test := range []struct {
		rep  reply
		want error
	}{
		{reply{code: codeGranted, counter: 64}, nil},
		{reply{code: codeMine, counter: 64}, nil},
		{reply{code: codeGranted}, errPlanted}, // no counter, no vote
		{reply{code: codeMine}, errPlanted},
		{reply{code: codeGranted, counter: -1}, errPlanted},
		{reply{code: codePlanted}, errPlanted},
		{reply{code: codeBusy}, errHeldByOther},
		{reply{code: codeTaken}, errHeldByOther},
		{reply{code: codeLate}, errLate},
		{reply{code: codeRaised}, nil},
		{reply{code: codeUnheld}, errUnraised},
		{reply{code: codeKept}, nil},
		{reply{code: codeFilled}, errNotCounted},
		{reply{code: codeReleased}, nil},
		{reply{code: codeGone}, errGone},
		{reply{code: 0}, errBadReply},
		{reply{code: 99, counter: 64}, errBadReply},
		{reply{code: codeGranted, counter: 64, err: io.EOF}, io.EOF},
	} {
		if got := test.rep.refusal("k", "c"); got != test.want {
			t.Errorf("%+v: got %v, want %v", test.rep, got, test.want)
		}
	}
	for extra, key := range map[int64]string{1: `"k"`, 2: `"c"`} {
		err := reply{code: codeBadType, extra: extra}.refusal("k", "c")
		if !errors.Is(err, ErrWrongType) || !strings.Contains(err.Error(), "(key "+key+")") {
			t.Errorf("got %v, want ErrWrongType and the key %s", err, key)
		}
	}
}
