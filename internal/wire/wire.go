// Package wire has the protocol between clients and nodes: the scripts, the numbers of their
// functions and replies, and the names of keys.
//
// Source: ALGORITHM section 2.
package wire

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"strconv"
	"strings"
)

// Op is the number of a function of [Requests], see lua/run.lua.
type Op uint8

// The functions.
const (
	Acquire Op = 1 + iota
	Raise
	Extend
	Release
	Rest // at the queue node

	Adopt Op = 11
)

// SetsKey reports whether the function, or its like for a reader, sets a key. Such a request has a life of the
// key and a latest time of execution.
func (o Op) SetsKey() bool {
	kind := (o-1)%Rest + 1
	return o == Adopt || kind == Acquire || kind == Extend
}

// Wants reports whether the function takes a key that the attempt does not have yet.
func (o Op) Wants() bool { return o == Acquire || o == Adopt }

// Shared returns the number of the function that does for a reader what o does for a writer.
func (o Op) Shared() Op { return o + Rest }

func (o Op) String() string {
	return [...]string{Acquire: "acquire", "raise", "extend", "release", "rest", Adopt: "adopt"}[o]
}

// Code is the first number of a reply. The Lua files say what each means.
type Code int64

// The codes.
const (
	Granted     Code = 1
	Mine        Code = 2
	Busy        Code = 3
	SetVoteless Code = 4
	Late        Code = 5
	Unseeded    Code = 6
	BadType     Code = 7
	Queued      Code = 8

	Raised Code = 10
	Unheld Code = 11
	Ahead  Code = 12

	Kept           Code = 20
	KeptVoteless   Code = 21
	Filled         Code = 22
	FilledVoteless Code = 23
	Taken          Code = 24
	TakenAway      Code = 25
	Adopted        Code = 26

	Released Code = 30
	Gone     Code = 31
)

// Answers reports whether the code can be the reply to a request of kind o.
func (c Code) Answers(o Op) bool {
	switch o {
	case Acquire:
		return c >= Granted && c <= Queued || c == Ahead
	case Adopt:
		return c >= Granted && c <= BadType && c != Busy || c == Ahead || c >= Taken && c <= Adopted || c == Gone
	case Raise:
		return c >= Raised && c <= Ahead
	case Extend:
		return c >= Kept && c <= Adopted || c == Late || c == BadType
	case Release, Rest:
		return c == Released || c == Gone || c == Adopted && o == Release
	}
	return false
}

// Block is the number of fencing tokens that one grant reserves, as lua/begin.lua has it.
//
// Source: ALGORITHM section 1, "B".
const Block = 64

// The suffixes of the library's own keys. They follow the lock key, or the prefix of all keys for
// the marker. The key of no resource may end in one of them.
const (
	FenceSuffix = "~fence"
	GuardSuffix = "~guard"
	QueueSuffix = "~queue"
	SeenSuffix  = "~seen"
	TurnSuffix  = "~turn"

	ReadersSuffix = "~readers"
	AdoptedSuffix = "~adopted"
)

// Readers stands in a lock key where the key of a writer has an attempt id, and Sign is the value
// of the key then: readers have the resource. lua/readers.lua describes it.
const (
	Readers = "~readers"
	Sign    = Readers + "|0"
)

// OfReaders follows the name of a process at a queue node, and the key in a message to that
// process, if the process waits as a reader.
const OfReaders = "~readers"

// Same is sent instead of the counter of a lease that is the counter of the grant.
const Same = "="

// ByHandle is the Target of a release by a process that has the Handle of the lease alone.
const ByHandle = -1

// NoProcess is sent to a queue node instead of the name of a process by a process that does not
// wait.
const NoProcess = "-"

// The second argument of a rest is a sum: Listens if the process listens on its channel, and PerResource for each
// of several resources of which it wants any.
const (
	Listens     = 1
	PerResource = 2
)

// Abrupt is the extra of a Busy of the queue node if the key in the way is that of another library,
// and has at least so many ms left: lua/acquire.lua.
const Abrupt = 50

// BrokenMark is the beginning of a placeholder, by which lua/break.lua replaces the value of a
// lock key. No id of an attempt begins with it.
const BrokenMark = "~broken:"

// Unowned stands in a placeholder for the id of the attempt, where no attempt had set the key. As
// it is no id, no release drops that placeholder. It also is the token of a key whose value has none.
const Unowned = "~unowned"

// BrokenChannel is the name, after the prefix of all keys, of the channel for messages that a lock
// was broken.
const BrokenChannel = "~broken"

// Placeholder returns the value that replaces the value of the lock key of an attempt.
func Placeholder(id string) string { return BrokenMark + id + "|0" }

// Reserved returns the suffix of a key that is one of the library's own, or "" for any other key.
// The prefix of a Locker and a resource can make such a suffix together: under "p:a~" the key of
// "fence" is the counter of "a" under "p:".
func Reserved(key string) (suffix string) {
	for _, suffix := range []string{FenceSuffix, GuardSuffix, QueueSuffix, SeenSuffix, TurnSuffix, ReadersSuffix, AdoptedSuffix} {
		if strings.HasSuffix(key, suffix) {
			return suffix
		}
	}
	return ""
}

// QueueOf returns the name of the queue of a resource or of a lock key: the name itself, or, without the
// number, a name that ends in '~' and a number. See queueOf in lua/begin.lua.
func QueueOf(name string) string {
	queue, _ := CutNumber(name)
	return queue
}

// CutNumber returns what names the queue of a resource, and the number of a resource that is one of several;
// the largest int if the number is larger.
func CutNumber(name string) (queue string, number int) {
	queue = strings.TrimRight(name, "0123456789")
	if len(queue) == len(name) || !strings.HasSuffix(queue, OneOf) {
		return name, 0
	}
	number, _ = strconv.Atoi(name[len(queue):])
	return queue, number
}

// MaxOneOf is the largest number of resources of which a caller waits for any one.
const MaxOneOf = 1000

// OneOf stands before the number of a resource that is one of several. None is the number that stands for
// none of them: a request with that key is about their queue alone.
const (
	OneOf = "~"
	None  = "0"
)

// Protocol is the version of the protocol: that of the scripts, and of what the keys hold. A node takes no client while
// clients with another version are in use.
//
// Source: ALGORITHM section 8, "Version".
const Protocol = 1

// Joining is sent in place of the proof of a node by a client that joins in front of its call.
const Joining = "?"

// UnknownRun stands for the identity of a server that does not tell its identity.
const UnknownRun = "?"

// BeforeLabel stands between the lists in a marker and the label of the client that joined with
// them last.
const BeforeLabel = "\t"

// The operations on a marker. lua/marker.lua describes them.
const (
	Look  = "look"
	Join  = "join"
	Vouch = "vouch"
	Mark  = "mark"
)

// Script is a Lua script, with the hash by which a server that has run the script knows it.
type Script struct{ Source, Hash string }

func script(files ...string) Script { return NewScript(strings.Join(files, "\n")) }

// NewScript returns the Script of a source.
func NewScript(source string) Script {
	sum := sha1.Sum([]byte(source))
	return Script{Source: source, Hash: hex.EncodeToString(sum[:])}
}

// The sources, for tests that read them.
var (
	//go:embed lua/common.lua
	CommonLua string
	//go:embed lua/begin.lua
	BeginLua string
	//go:embed lua/guard.lua
	GuardLua string
	//go:embed lua/readers.lua
	ReadersLua string
	//go:embed lua/queue.lua
	QueueLua string
	//go:embed lua/acquire.lua
	AcquireLua string
	//go:embed lua/adopt.lua
	AdoptLua string
	//go:embed lua/raise.lua
	RaiseLua string
	//go:embed lua/extend.lua
	ExtendLua string
	//go:embed lua/release.lua
	ReleaseLua string
	//go:embed lua/shared.lua
	SharedLua string
	//go:embed lua/run.lua
	RunLua string
	//go:embed lua/marker.lua
	MarkerLua string
	//go:embed lua/probe.lua
	ProbeLua string
	//go:embed lua/inspect.lua
	InspectLua string
	//go:embed lua/break.lua
	BreakLua string
)

// The scripts.
var (
	Requests = script(CommonLua, BeginLua, ReadersLua, QueueLua, AcquireLua, AdoptLua, RaiseLua, ExtendLua, ReleaseLua, SharedLua, RunLua) // the messages of attempts
	Marker   = script(BeginLua, GuardLua, MarkerLua)                                                                                       // about the node itself
	Inspect  = script(BeginLua, GuardLua, ReadersLua, InspectLua)                                                                          // about a lock, for people
	Break    = script(BreakLua)
	Probe    = script(ProbeLua) // whether the server has the commands
)
