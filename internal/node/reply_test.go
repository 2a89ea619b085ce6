package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/resp"
	"github.com/d0720281/redlock/internal/wire"
)

// serverError is an error reply.
type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}

var _ redis.Error = serverError("")

// Errors of a server that a caller can act on match a sentinel. The texts are those of real
// servers. Inside scripts each version of Redis has its own.
func TestNodeFailure(t *testing.T) {
	for text, denied := range map[string]bool{
		"NOAUTH Authentication required.":                                                     true,
		"WRONGPASS invalid username-password pair or user is disabled.":                       true,
		"OOM command not allowed when used memory > 'maxmemory'.":                             false,
		"READONLY You can't write against a read only replica.":                               false,
		"ERR unknown command 'evalsha'":                                                       false,
		"ERR user_script:9: attempt to index a nil value script: 0a, on @user_script:9.":      false,
		"ERR The command lacks ACL failure in script: ":                                       false,
		"WRONGTYPE Operation against a key holding the wrong kind of value":                   false,
		"NOPERM this user has no permissions to run the 'evalsha' command or its subcommand":  true, // Redis 6
		"NOPERM this user has no permissions to access one of the keys used as arguments":     true,
		"NOPERM this user has no permissions to access one of the channels used as arguments": true,
		"NOPERM this user has no permissions to run the 'evalsha' command":                    true, // Redis 7.0
		"NOPERM User u has no permissions to run the 'evalsha' command":                       true, // Redis from 7.2 on, Valkey
		"NOPERM No permissions to access a key":                                               true,
		"NOPERM No permissions to access a channel":                                           true,

		// A password without a user name, where the user default has none.
		"ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?": true,

		// Redis 6: the script ends with the error, or goes on.
		"ERR Error running script (call to f_0a): @user_script:9: @user_script: 9: The user executing the script can't run this command or subcommand": true,
		"@user_script: 9: The user executing the script can't run this command or subcommand":                                                          true,
		"@user_script: 9: The user executing the script can't access at least one of the keys mentioned in the command arguments":                      true,
		"ERR Error running script (call to f_0a): @user_script:9: @user_script: 9: -OOM command not allowed when used memory > 'maxmemory'.":           false,
		"@user_script: 9: Unknown Redis command called from Lua script":                                                                                false,
		"ERR Error running script (call to f_0a): @user_script:9: WRONGTYPE Operation against a key holding the wrong kind of value":                   false,

		// Redis 7.0.
		"ERR The user executing the script can't run this command or subcommand script: 0a, on @user_script:27.":                                    true,
		"ERR The user executing the script can't run this command or subcommand":                                                                    true,
		"ERR The user executing the script can't access at least one of the keys mentioned in the command arguments script: 0a, on @user_script:1.": true,
		"ERR The user executing the script can't publish to the channel mentioned in the command":                                                   true,
		"ERR Unknown Redis command called from script script: 0a, on @user_script:1.":                                                               false,

		// Redis from 7.2 on, Valkey; Valkey 9 does not give the hash.
		"ERR ACL failure in script: User u has no permissions to run the 'set' command script: 0a, on @user_script:1.": true,
		"ERR ACL failure in script: User u has no permissions to run the 'set' command script: on @user_script:1.":     true,
		"ERR ACL failure in script: User u has no permissions to run the 'set' command":                                true,
		"ERR ACL failure in script: No permissions to access a key":                                                    true,
		"ERR ACL failure in script: No permissions to access a channel":                                                true,
		"ERR Unknown command called from script":                                                                       false,
	} {
		err := nodeFailure(serverError(text))
		if got := errors.Is(err, reason.Permission); got != denied {
			t.Errorf("%q is about permission: got %v, want %v", text, got, denied)
		}
		if !errors.Is(err, serverError(text)) || err.Error() != text {
			t.Errorf("got %v, want the server's words %q", err, text)
		}
	}
	if err := nodeFailure(nil); err != nil {
		t.Errorf("no failure: got %v", err)
	}
	for _, text := range []string{"dial: NOAUTH NOPERM No permission", "NOPERM No permissions to access a key", "ERR ACL failure in script: x"} {
		if local := errors.New(text); nodeFailure(local) != local {
			t.Errorf("%q: an error of the connection was taken for the server's", text)
		}
	}
}

// The error of a command in a script has the same text from every server with that wording:
// Redis before 7.0 prefixes the place, and appends line ends.
func TestErrorOfACommandInAScript(t *testing.T) {
	for text, want := range map[string]string{
		"OOM command not allowed when used memory > 'maxmemory'.":                              "OOM command not allowed when used memory > 'maxmemory'.",
		"@user_script: 9: -OOM command not allowed when used memory > 'maxmemory'.\r\n":        "OOM command not allowed when used memory > 'maxmemory'.",
		"WRONGTYPE Operation against a key holding the wrong kind of value":                    "WRONGTYPE Operation against a key holding the wrong kind of value",
		"@user_script: 9: The user executing the script can't run this command or subcommand":  "The user executing the script can't run this command or subcommand",
		"ERR ACL failure in script: User @user_script: 9: has no permissions":                  "ERR ACL failure in script: User @user_script: 9: has no permissions",
		"OOM no memory script: f7d1ca4b2c7a0303bb2225aba14bdfe84ba201ed, on @user_script:190.": "OOM no memory",
	} {
		if _, err := scan(resp.Error(text)); err.Error() != want {
			t.Errorf("%q of a whole script: got %q, want %q", text, err, want)
		}
		if got := withoutPlace(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
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
		{err: ErrBadReply, reply: true},
		{err: errors.New("NOSCRIPT READONLY")},
		// go-redis says that it closed a connection because of a reply.
		{err: fmt.Errorf("redis: Conn is in a bad state: %w", serverError("READONLY You can't write."))},
		{err: serverError("ERR Error running script (call to f_0a): @user_script:9: @user_script: 9: -READONLY You can't write."), reply: true, unwritable: true},
		{err: resp.Error("@user_script: 9: -READONLY You can't write."), reply: true, unwritable: true},
		{err: serverError("READONLY You can't write against a read only replica. script: 0a, on @user_script:9."), reply: true, unwritable: true},
		{err: serverError("ERR what: -READONLY You can't write."), reply: true},
		{err: io.EOF},
		{err: context.DeadlineExceeded, timesOver: true},
		{err: fmt.Errorf("read: %w", context.DeadlineExceeded), timesOver: true},
		{err: context.Canceled},
		{err: nil},
	} {
		if IsReply(test.err) != test.reply || Says(test.err, "NOSCRIPT") != test.noScript || isUnwritable(test.err) != test.unwritable || IsTimeout(test.err) != test.timesOver {
			t.Errorf("%v: reply %v, no script %v, unwritable %v, time-out %v; want %+v",
				test.err, IsReply(test.err), Says(test.err, "NOSCRIPT"), isUnwritable(test.err), IsTimeout(test.err), test)
		}
	}
}

// Every code is a vote or has a text of its own, and so has an invalid reply.
//
// Source: ALGORITHM section 3, point 3.
func TestRefusal(t *testing.T) {
	key := &Key{Lock: "k"}
	for _, test := range []struct {
		rep  Reply
		want error
	}{
		{Reply{Code: wire.Granted, Counter: 64}, nil},
		{Reply{Code: wire.Mine, Counter: 64}, nil},
		{Reply{Code: wire.Granted}, ErrSetVoteless}, // no counter, no vote
		{Reply{Code: wire.Mine}, ErrSetVoteless},
		{Reply{Code: wire.Granted, Counter: -1}, ErrSetVoteless},
		{Reply{Code: wire.SetVoteless}, ErrSetVoteless},
		{Reply{Code: wire.Busy}, HeldByOther{}},
		{Reply{Code: wire.Busy, Extra: 50, Owner: "web-1"}, HeldByOther{Owner: "web-1"}},
		{Reply{Code: wire.Busy, Extra: 2000}, HeldByOther{Left: 2 * time.Second}},
		{Reply{Code: wire.Busy, Extra: -1}, HeldByOther{Left: -time.Millisecond}},
		{Reply{Code: wire.Taken}, HeldByOther{}},
		{Reply{Code: wire.Late}, ErrLate},
		{Reply{Code: wire.Raised}, nil},
		{Reply{Code: wire.Unheld}, ErrUnraised},
		{Reply{Code: wire.Kept}, nil},
		{Reply{Code: wire.Filled}, ErrNotCounted},
		{Reply{Code: wire.Released}, nil},
		{Reply{Code: wire.Gone}, ErrGone},
		{Reply{Code: 0}, ErrBadReply},
		{Reply{Code: 99, Counter: 64}, ErrBadReply},
		{Reply{Code: wire.Granted, Counter: 64, Err: io.EOF}, io.EOF},
	} {
		if got := test.rep.Refusal(key); got != test.want {
			t.Errorf("%+v: got %v, want %v", test.rep, got, test.want)
		}
	}
	for extra, name := range map[int64]string{1: `"k"`, 2: `"k~fence"`} {
		err := Reply{Code: wire.BadType, Extra: extra}.Refusal(key)
		if !errors.Is(err, reason.WrongType) || !strings.Contains(err.Error(), "(key "+name+")") {
			t.Errorf("got %v, want reason.WrongType and the key %s", err, name)
		}
	}
}

// A reply that cannot be the reply to its request ends the connection, whatever it would mean elsewhere: the
// yes to a release is no vote.
//
// Source: ALGORITHM section 5, "Replies are bounded".
func TestReplyThatDoesNotFitItsRequest(t *testing.T) {
	for _, op := range []wire.Op{wire.Acquire, wire.Adopt, wire.Raise, wire.Extend, wire.Release, wire.Rest} {
		for code := range wire.Code(40) {
			n := idle(t, 1).nodes[0]
			r, answer := releaseFor(n, 0)
			r.Op, r.Key.traffic[0].sent = op, true
			conn, _ := net.Pipe()
			l := &link{conn: conn, in: resp.NewReader(strings.NewReader(fmt.Sprintf("*4\r\n:0\r\n:%d\r\n:64\r\n:0\r\n", code)))}
			n.link, n.flights = l, []*flight{{batch: []*Request{r}}}
			var out outcomes
			_, err := n.receive(l, nil, &out)
			if want := code.Answers(op); want != (err == nil) || !want && (err != ErrBadReply || len(answer.replies) > 0) {
				t.Errorf("code %d to %v: got %v and %d replies, want it taken: %v", code, op, err, len(answer.replies), want)
			}
		}
	}
}

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
