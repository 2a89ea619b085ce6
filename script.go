package redlock

import (
	_ "embed"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// op is one of the four messages of the algorithm. Its value is the number of its
// function in lua/run.lua, but for the two of them that say more to the gate.
type op int

const (
	opAcquire op = 1 + iota
	opRaise
	opExtend
	opRelease
)

const (
	opAcquireAtGate op = 5
	opReleaseAtGate op = 6
)

func (o op) String() string {
	return [...]string{opAcquire: "acquire", opRaise: "raise", opExtend: "extend", opRelease: "release"}[o]
}

var (
	//go:embed lua/begin.lua
	beginLua string
	//go:embed lua/guard.lua
	guardLua string
	//go:embed lua/queue.lua
	queueLua string
	//go:embed lua/acquire.lua
	acquireLua string
	//go:embed lua/raise.lua
	raiseLua string
	//go:embed lua/extend.lua
	extendLua string
	//go:embed lua/release.lua
	releaseLua string
	//go:embed lua/run.lua
	runLua string
	//go:embed lua/marker.lua
	markerLua string

	// script is the one script that carries the four messages.
	script = strings.Join([]string{beginLua, guardLua, queueLua, acquireLua, raiseLua, extendLua, releaseLua, runLua}, "\n")

	// markerScript is about the node itself, and rarely needed: see marker.go.
	markerScript = strings.Join([]string{beginLua, guardLua, markerLua}, "\n")

	// What comes first in a command that calls it, by hash and by source; boxed once.
	evalsha, eval = callsOf(script)
)

func callsOf(script string) (byHash, bySource [2]any) {
	return [2]any{"evalsha", redis.NewScript(script).Hash()}, [2]any{"eval", script}
}

// code is the first number of a reply. The Lua files say what each means.
type code int64

const (
	codeGranted code = 1
	codeMine    code = 2
	codeBusy    code = 3
	codePlanted code = 4
	codeLate    code = 5
	codeStale   code = 6
	codeBadType code = 7
	codeQueued  code = 8

	codeRaised code = 10
	codeUnheld code = 11

	codeKept           code = 20
	codeKeptVoteless   code = 21
	codeFilled         code = 22
	codeFilledVoteless code = 23
	codeTaken          code = 24

	codeReleased code = 30
	codeGone     code = 31
)

// reply is what a lane reports of one request. Either err is set or the three
// numbers are what the script said.
type reply struct {
	code    code
	counter int64
	extra   int64
	err     error
	void    error  // why the node has no vote as this client sees it, whatever the node says
	server  string // identity of the server that said it, "" if that is not known
}

// numbersPerReply is what the script says of one request.
const numbersPerReply = 3

// heading is what the script says of the node, before what it says of the requests.
type heading struct {
	micros int64         // the node's time; 0 if nothing needed it
	left   time.Duration // how long the node has no vote yet
}

const numbersInHeading = 2

// parseReplies reads the reply of the script to a batch of n requests: the heading, and a
// reply each.
func parseReplies(values []any, n int, replies []reply) (h heading, _ []reply, err error) {
	if len(values) != numbersInHeading+numbersPerReply*n {
		return h, nil, errBadReply
	}
	micros, ok0 := values[0].(int64)
	left, ok1 := values[1].(int64)
	if !ok0 || !ok1 {
		return h, nil, errBadReply
	}
	for v := values[numbersInHeading:]; len(v) > 0; v = v[numbersPerReply:] {
		replies = append(replies, parseReply(v))
	}
	return heading{micros: micros, left: time.Duration(left) * time.Millisecond}, replies, nil
}

func parseReply(v []any) reply {
	if text, ok := v[0].(string); ok {
		return reply{err: replyError(text)}
	}
	number, ok0 := v[0].(int64)
	counter, ok1 := v[1].(int64)
	extra, ok2 := v[2].(int64)
	if !ok0 || !ok1 || !ok2 {
		return reply{err: errBadReply}
	}
	return reply{code: code(number), counter: counter, extra: extra}
}

// replyError is what a command inside the script was refused with.
type replyError string

func (e replyError) Error() string { return string(e) }

// RedisError marks it as something that a node said.
func (e replyError) RedisError() {}

// hasKey reports whether a reply to an acquire says that the key is there for us.
func (r reply) hasKey() bool {
	return r.err == nil && (r.code == codeGranted || r.code == codeMine || r.code == codePlanted)
}

// refusal says in words why a reply is no vote, for a [NodeError]; nil for a
// reply that is one.
func (r reply) refusal(key, counterKey string) error {
	if r.err != nil {
		return r.err
	}
	if broken.votelessCount {
		r.void = nil
		switch r.code {
		case codePlanted, codeKeptVoteless, codeFilledVoteless:
			return nil
		}
	}
	switch r.code {
	case codeGranted, codeMine:
		if r.counter <= 0 {
			return errPlanted
		}
		return r.void
	case codeKept:
		return r.void
	case codeRaised, codeReleased:
		return nil
	case codeBusy, codeTaken:
		return errHeldByOther
	case codeQueued:
		return errQueued
	case codePlanted, codeKeptVoteless, codeFilledVoteless:
		if r.extra > 0 {
			return quarantined(time.Duration(r.extra) * time.Millisecond)
		}
		return errPlanted
	case codeLate:
		return errLate
	case codeStale:
		return errStale
	case codeFilled:
		return errNotCounted
	case codeUnheld:
		return errUnraised
	case codeGone:
		return errGone
	case codeBadType:
		if r.extra == 2 {
			key = counterKey
		}
		return &keyError{key: key, err: ErrWrongType}
	}
	return errBadReply
}

// nodeFailure gives an error of a node a sentinel where a caller can act on it.
func nodeFailure(err error) error {
	for _, denial := range []string{"NOPERM", "NOAUTH", "WRONGPASS",
		"The user executing the script can't", "ERR The user executing the script can't",
		"ERR -NOPERM"} {
		if says(err, denial) {
			return &sentinelError{ErrPermission, err}
		}
	}
	return err
}

// sentinelError is an error that also matches a sentinel, without its text.
type sentinelError struct{ sentinel, err error }

func (e *sentinelError) Error() string   { return e.err.Error() }
func (e *sentinelError) Unwrap() []error { return []error{e.err, e.sentinel} }

// isReply tells an error that came in a complete reply from one of the connection.
func isReply(err error) bool {
	_, ok := err.(redis.Error) // itself: the client wraps one in the error of a connection that it gave up for it
	return ok || errors.Is(err, errBadReply)
}

// says reports whether err is what a node said, and begins like that. Of a command in
// a script older servers also say where it stands, before a minus and the rest.
func says(err error, prefix string) bool {
	if err == nil || !isReply(err) {
		return false
	}
	text := err.Error()
	return strings.HasPrefix(text, prefix) || strings.Contains(text, ": -"+prefix)
}

// isUnwritable reports that the node is no master (any more). Its connection is given
// up, so that a name which now stands for another node is looked up again.
func isUnwritable(err error) bool { return says(err, "READONLY") || says(err, "MASTERDOWN") }
