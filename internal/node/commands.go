package node

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/resp"
	"github.com/d0720281/redlock/internal/wire"
)

// This file knows which commands the library needs of a server, and asks at each connection whether
// the server has them and lets the user run them: before the first lease, and not when its renewal
// fails.

// Need says what a command is for.
type Need uint8

// The needs. Without one of ForLocks a server is not asked at all. What needs another one is left
// out, or works worse.
const (
	ForLocks Need = iota
	ForIdentity
	ForQueue
	ForReaders
)

func (n Need) String() string {
	return [...]string{"locks", "the identity of the server", "the queue", "readers"}[n]
}

// Command is a command that the library sends, and the consequence of its absence.
type Command struct {
	Name    string
	Need    Need
	Without string // what fails without it
	inProbe bool   // lua/probe.lua tries it
}

// Commands are the commands that the library needs, in the order in which docs/operations.md has
// their rights.
var Commands = []Command{
	{"EVAL", ForLocks, "no request can be sent", false},
	{"EVALSHA", ForLocks, "no second request can be sent", false},
	{"INFO", ForIdentity, "the library notices neither a restart with old data nor a server that is listed twice", false},
	{"TIME", ForLocks, "no connection is made", false},
	{"HMGET", ForLocks, "the marker of the restart guard cannot be read", true},
	{"HSET", ForLocks, "the marker of the restart guard cannot be written", true},
	{"GETRANGE", ForLocks, "keys cannot be read", true},
	{"SET", ForLocks, "no lease is granted", true},
	{"PTTL", ForLocks, "lives of keys cannot be read", true},
	{"PEXPIRE", ForLocks, "no lease is renewed", true},
	{"DEL", ForLocks, "no lease is released", true},
	{"EXISTS", ForQueue, "each request takes the long way", true},
	{"ZADD", ForQueue, "processes wait in no order, and poll; readers are refused", true},
	{"ZREM", ForQueue, "processes that have left the queue are called; readers are refused", true},
	{"ZCARD", ForQueue, "processes that wait are not counted; readers are refused", true},
	{"ZRANK", ForQueue, "a process does not know its place", true},
	{"HGET", ForQueue, "no waiting process is called", true},
	{"HDEL", ForQueue, "processes that are dead are called", true},
	{"PUBLISH", ForQueue, "no waiting process is called", false},
	{"SUBSCRIBE", ForQueue, "waiting processes poll", false},
	{"PING", ForQueue, "the loss of a subscription is not noticed", false},
	{"ZSCORE", ForReaders, "readers are refused, a caller of LockAny that was called in vain is called after the others, and no lease is adopted", true},
	{"ZREMRANGEBYSCORE", ForReaders, "readers are refused", true},
	{"ZRANGE", ForQueue, "no waiting process is called, and readers and writers wait in no order", true},
}

// noScript is the hash of no script: a server that has EVALSHA replies NOSCRIPT.
var noScript = strings.Repeat("0", 40)

// probeTask returns the task that asks for the commands.
func (n *Node) probeTask() *task {
	probe := scriptTask(&wire.Probe, false, []string{n.guard.marker}, text(n.guard.marker+wire.FenceSuffix))
	return &task{replies: 2, write: func(n *Node, l *link, median int64, b []byte) []byte {
		b = appendWords(b, "evalsha", noScript, "1", n.guard.marker) // some proxies want a key
		return probe.write(n, l, median, b)
	}}
}

// readProbe reads the replies of probeTask. err is a refusal without which no lock is possible, and
// lacks has what works worse.
func readProbe(replies []any) (lacks []string, err error) {
	byHash, ok := replies[0].(resp.Error)
	if ok && lastingAtFirst(byHash) != nil {
		return nil, lacking("EVALSHA", byHash)
	}
	refused, ok := replies[1].(resp.Error)
	if ok {
		if lastingAtFirst(refused) != nil {
			return nil, lacking("EVAL", refused)
		}
		return nil, nil // a passing state
	}
	said, ok := replies[1].([]any)
	at := 0
	for _, c := range Commands {
		if !c.inProbe {
			continue
		}
		if !ok || at >= len(said) {
			return nil, ErrBadReply
		}
		text, _ := said[at].(string)
		at++
		switch why := resp.NewError(withoutPlace(text)); {
		case lastingAtFirst(why) == nil:
		case c.Need == ForLocks:
			return nil, lacking(c.Name, why)
		default:
			lacks = append(lacks, c.Name+": "+c.Without)
		}
	}
	return lacks, nil
}

// lacking is the error of a server that refuses a command for good. A refusal of the user names the
// command or the key itself.
func lacking(name string, why error) error {
	if IsPermission(why) {
		return nodeFailure(why)
	}
	return &Marked{lastingAtFirst(why), fmt.Errorf("%w (locks need %s: see \"Commands\" in docs/operations.md)", why, name)}
}

// sentinelSays matches the first refusal of a Sentinel: of the commands of [logIn] it knows neither.
var sentinelSays = regexp.MustCompile(`(?i)unknown command .(select|time)\b`)

// hinted adds a hint to the error of a handshake that a person has to correct.
func hinted(err error) error {
	switch {
	case lasting(err) != reason.Unsupported:
		return err
	case strings.Contains(err.Error(), "DB index"):
		return &Marked{reason.Unsupported, fmt.Errorf("%w (the address names a database that the server does not have)", err)}
	case sentinelSays.MatchString(err.Error()):
		const hint = "(a Sentinel says so, and is no master: see \"Commands\" in docs/operations.md)"
		return &Marked{reason.Unsupported, fmt.Errorf("%w %s", err, hint)}
	}
	return &Marked{reason.Unsupported, fmt.Errorf("%w (see \"Commands\" in docs/operations.md)", err)}
}
