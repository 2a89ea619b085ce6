package redlock

import (
	_ "embed"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// op is one of the four messages of the algorithm.
type op uint8

const (
	opAcquire op = iota
	opRaise
	opExtend
	opRelease
	opCount
)

func (o op) String() string { return scripts[o].name }

var (
	//go:embed lua/acquire.lua
	acquireLua string
	//go:embed lua/raise.lua
	raiseLua string
	//go:embed lua/extend.lua
	extendLua string
	//go:embed lua/release.lua
	releaseLua string

	scripts = [opCount]script{
		opAcquire: newScript("acquire", acquireLua),
		opRaise:   newScript("raise", raiseLua),
		opExtend:  newScript("extend", extendLua),
		opRelease: newScript("release", releaseLua),
	}
)

// script is one Lua file, with what is said of it on the wire made ready once.
type script struct {
	name         string
	source, hash any // strings
}

func newScript(name, source string) script {
	return script{name: name, source: source, hash: redis.NewScript(source).Hash()}
}

// code is the first number of a reply. The Lua files say what each means.
type code int64

const (
	codeGranted code = 1
	codeMine    code = 2
	codeBusy    code = 3
	codePlanted code = 4
	codeLate    code = 5
	codeBadType code = 7

	codeRaised code = 10
	codeUnheld code = 11

	codeKept   code = 20
	codeFilled code = 22
	codeTaken  code = 24

	codeReleased code = 30
	codeGone     code = 31
)

// reply is what a lane reports of one request. Either err is set or the four
// numbers are what the script said.
type reply struct {
	code    code
	counter int64
	micros  int64 // the node's time; 0 = not told
	extra   int64
	err     error
}

// parseReply reads the reply of any script.
func parseReply(nums []int64, err error) reply {
	switch {
	case err != nil:
		return reply{err: err}
	case len(nums) != 4:
		return reply{err: errBadReply}
	}
	return reply{code: code(nums[0]), counter: nums[1], micros: nums[2], extra: nums[3]}
}

// refusal says in words why a reply is no vote, for a [NodeError]; nil for a
// reply that is one.
func (r reply) refusal(key, counterKey string) error {
	if r.err != nil {
		return r.err
	}
	switch r.code {
	case codeGranted, codeMine:
		if r.counter > 0 {
			return nil
		}
		return errPlanted
	case codeRaised, codeKept, codeReleased:
		return nil
	case codeBusy, codeTaken:
		return errHeldByOther
	case codePlanted:
		return errPlanted
	case codeLate:
		return errLate
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

// nodeFailure gives an error of the client library a sentinel where a caller can
// act on it.
func nodeFailure(err error) error {
	if err == nil || !isReply(err) {
		return err
	}
	msg := err.Error()
	for _, prefix := range []string{"NOPERM", "NOAUTH", "WRONGPASS"} {
		if strings.HasPrefix(msg, prefix) {
			return &sentinelError{ErrPermission, err}
		}
	}
	// What a command inside a script is refused with has no code of its own.
	if strings.Contains(msg, "The user executing the script can't") {
		return &sentinelError{ErrPermission, err}
	}
	return err
}

// sentinelError is an error that also matches a sentinel, without its text.
type sentinelError struct{ sentinel, err error }

func (e *sentinelError) Error() string   { return e.err.Error() }
func (e *sentinelError) Unwrap() []error { return []error{e.err, e.sentinel} }

// isReply tells an error that came in a complete reply from one of the connection.
func isReply(err error) bool {
	var r redis.Error
	return errors.As(err, &r) || errors.Is(err, errBadReply)
}

// isNoScript reports that the node does not know the script's hash: it was
// restarted, or its script cache flushed. Nothing was carried out.
func isNoScript(err error) bool { return err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") }

// isUnwritable reports that the node is no master (any more), or not yet ready
// to be one. The client library drops the connection on some of these, so that
// a name which now stands for another node is looked up again.
func isUnwritable(err error) bool {
	return err != nil && (redis.HasErrorPrefix(err, "READONLY") || redis.HasErrorPrefix(err, "MASTERDOWN"))
}
