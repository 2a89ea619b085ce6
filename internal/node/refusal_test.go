package node

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/resp"
)

// What servers, providers and proxies say: whether waiting helps, and what was done of an acquire if the
// error is the reply to the whole call, and if it is that of one command in the script.
func TestRefusals(t *testing.T) {
	for _, test := range []struct {
		text        string
		lasting     error
		whole, part denial
	}{
		{"OOM command not allowed when used memory > 'maxmemory'.", nil, undone, undone},
		{"ERR Error running script (call to f_0a): @user_script:9: @user_script: 9: -OOM command not allowed when used memory > 'maxmemory'.", nil, undone, undone},
		{"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.", nil, undone, undone},
		{"NOREPLICAS Not enough good replicas to write.", nil, undone, undone},
		{"READONLY You can't write against a read only replica.", nil, undone, undone},
		{"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", nil, undone, undone},
		{"LOADING Redis is loading the dataset in memory", nil, undone, undone},
		{"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", nil, undone, undone},
		{"ERR max number of clients reached", nil, undone, doubtful},
		{"ERR max daily request limit exceeded. Limit: 10000, Usage: 10000.", nil, undone, doubtful},
		{"ERR max request size exceeded. Limit: 1048576 bytes", nil, undone, doubtful},
		{"THROTTLED too many requests", nil, undone, doubtful},
		{"ERR handle response, backend conn reset", nil, doubtful, doubtful},
		{"ERR Connection timed out", nil, doubtful, doubtful},
		{"ERR internal error", nil, doubtful, doubtful},
		{"ERR server is shutting down", nil, doubtful, doubtful},
		{"ERR proxy failed to reach the shard", nil, doubtful, doubtful},
		{"upstream failure", nil, doubtful, doubtful},
		{"no upstream host", nil, doubtful, doubtful},
		{"UNAVAILABLE", nil, doubtful, doubtful},
		{"ERR unknown", nil, doubtful, doubtful},
		{"ERR handle response, EOF", nil, doubtful, doubtful},
		{"ERR upstream request timeout exceeded", nil, doubtful, doubtful},
		{"ERR Read time limit exceeded", nil, doubtful, doubtful},
		{"ERR Maximum number of clients reached", nil, undone, doubtful},
		{"ERR rate limit exceeded: command not allowed", nil, undone, doubtful},
		{"ERR operation not permitted during failover", nil, doubtful, doubtful},
		{"ERR Script killed by user with SCRIPT KILL", nil, doubtful, doubtful},

		{"NOPERM User u has no permissions to run the 'set' command", reason.Permission, undone, doubtful},
		{"ERR ACL failure in script: No permissions to access a key", reason.Permission, undone, doubtful},
		{"NOAUTH Authentication required.", reason.Permission, undone, doubtful},
		{"DENIED Redis is running in protected mode because protected mode is enabled", reason.Permission, undone, doubtful},
		{"MOVED 866 10.0.0.1:7000", reason.ClusterNode, undone, doubtful},
		{"WRONGTYPE Operation against a key holding the wrong kind of value", reason.WrongType, undone, doubtful},
		{"ERR unknown command 'EVAL', with args beginning with: 'x'", reason.Unsupported, undone, doubtful},
		{"ERR Unknown Redis command called from script script: 0a, on @user_script:1.", reason.Unsupported, undone, doubtful},
		{"@user_script: 9: Unknown Redis command called from Lua script", reason.Unsupported, undone, doubtful},
		{"ERR command eval not support for your account", reason.Unsupported, undone, doubtful},
		{"ERR 'EVAL' command is not allowed", reason.Unsupported, undone, doubtful},
		{"ERR unsupported command", reason.Unsupported, undone, doubtful},
		{"ERR DB index is out of range", reason.Unsupported, undone, doubtful},
		{"ERR SELECT is not allowed in cluster mode", reason.Unsupported, undone, doubtful},
		{"ERR invalid password", reason.Unsupported, undone, doubtful},
		{"ERR Client sent AUTH, but no password is set", reason.Unsupported, undone, doubtful},
		{"user_script:12: attempt to compare nil with number", reason.Unsupported, doubtful, doubtful},
	} {
		err := resp.Error(test.text)
		if got := lasting(err); got != test.lasting {
			t.Errorf("%q: got %v, want %v", test.text, got, test.lasting)
		}
		if whole, part := denialBy(err, true), denialBy(err, false); whole != test.whole || part != test.part {
			t.Errorf("%q: got %v for the whole call and %v for a command, want %v and %v", test.text, whole, part, test.whole, test.part)
		}
		if got := nodeFailure(err); test.lasting != nil && !errors.Is(got, test.lasting) || !errors.Is(got, err) || errors.Is(got, reason.Masters) != (test.lasting != nil) {
			t.Errorf("%q: got %v of the node", test.text, got)
		}
	}
}

// TLS cannot work until a person corrects it, or it can after the next try.
func TestRefusalsByTLS(t *testing.T) {
	alert := func(n tls.AlertError) error { return &net.OpError{Op: "remote error", Err: errors.New(n.Error())} }
	for _, test := range []struct {
		err     error
		lasting bool
	}{
		{&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, true},
		{x509.HostnameError{Certificate: &x509.Certificate{}, Host: "h"}, true},
		{fmt.Errorf("dial: %w", x509.CertificateInvalidError{Reason: x509.Expired}), true},
		{tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, true},
		{alert(116), true},   // certificate required
		{alert(48), true},    // unknown authority
		{alert(80), false},   // internal error
		{alert(0x5a), false}, // the peer gave up
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, false},
		{io.EOF, false},
		{&net.DNSError{Err: "no such host", IsNotFound: true}, false},
	} {
		if got := errors.Is(nodeFailure(test.err), reason.TLS); got != test.lasting {
			t.Errorf("%v: lasting %v, want %v", test.err, got, test.lasting)
		}
	}
}

// A node that refuses is asked as often as it likes for a second, and then once in a while. Any other
// answer ends that.
func TestRefusingIsAskedSeldom(t *testing.T) {
	var s refusing
	why := resp.Error("OOM")
	start := clock.Instant(time.Hour)
	asked := func(from, to time.Duration) (n int) {
		for at := from; at < to; at += time.Millisecond {
			if now := start.Add(at); s.known(now) == nil {
				n++
				s.note(why, now)
			}
		}
		return n
	}
	if got := asked(0, time.Second); got != 1000 {
		t.Errorf("got %d requests in the first second, want all 1000", got)
	}
	if got := asked(time.Second, 2*time.Second); got != 17 {
		t.Errorf("got %d requests in the second after, want 17", got)
	}
	if got := s.known(start.Add(2 * time.Second)); got != why {
		t.Errorf("got %v, want the last answer", got)
	}
	if s.known(start.Add(4*time.Second)) != nil {
		t.Error("got an answer of two seconds ago, want that the node is asked")
	}
	s.note(why, start.Add(4*time.Second))
	s.note(nil, start.Add(4*time.Second))
	if got := asked(4*time.Second, 4100*time.Millisecond); got != 100 {
		t.Errorf("got %d requests after another answer, want all 100", got)
	}
}
