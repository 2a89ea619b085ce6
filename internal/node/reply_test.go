package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

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
			l := &link{conn: conn, in: resp.NewReader(strings.NewReader(fmt.Sprintf("*5\r\n:0\r\n:0\r\n:%d\r\n:64\r\n:0\r\n", code)))}
			n.link, n.flights = l, []*flight{{batch: []*Request{r}}}
			var out outcomes
			_, err := n.receive(l, nil, &out)
			if want := code.Answers(op); want != (err == nil) || !want && (err != ErrBadReply || len(answer.replies) > 0) {
				t.Errorf("code %d to %v: got %v and %d replies, want it taken: %v", code, op, err, len(answer.replies), want)
			}
		}
	}
}
