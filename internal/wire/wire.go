// Package wire has the protocol between clients and nodes: the scripts, the numbers of their
// functions and replies, and the names of keys.
//
// Source: ALGORITHM section 2.
package wire

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Op is the number of a function of [Requests], see lua/run.lua.
type Op int

// The functions.
const (
	Acquire Op = 1 + iota
	Raise
	Extend
	Release
	Rest // at the queue node
)

// Shared returns the number of the function that does for a reader what o does for a writer.
func (o Op) Shared() Op { return o + Rest }

// OfPermits returns the number of the function that does for permits what o does for a lock: o is
// Acquire, Release or Rest.
func (o Op) OfPermits() Op { return o + 2*Rest }

func (o Op) String() string {
	switch o {
	case Acquire:
		return "acquire"
	case Raise:
		return "raise"
	case Extend:
		return "extend"
	case Release:
		return "release"
	case Rest:
		return "rest"
	}
	return "none"
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
	Stale       Code = 6
	BadType     Code = 7
	Queued      Code = 8
	Unseeded    Code = 9

	Raised Code = 10
	Unheld Code = 11
	Ahead  Code = 12
	Chosen Code = 13

	Kept           Code = 20
	KeptVoteless   Code = 21
	Filled         Code = 22
	FilledVoteless Code = 23
	Taken          Code = 24
	TakenAway      Code = 25

	Released Code = 30
	Gone     Code = 31
)

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
	SlotsSuffix   = "~slots"
)

// Readers stands in a lock key where the key of a writer has an attempt id, and Sign is the value of
// the key then: readers have the resource. lua/readers.lua describes it.
const (
	Readers = "~readers"
	Sign    = Readers + "|0"
)

// OfReaders follows the name of a process at a queue node, and the key in a message to that process,
// if the process waits as a reader.
const OfReaders = "~readers"

// MaxPermits is the largest number of permits of a semaphore: an acquire looks at the key of each.
const MaxPermits = 1000

// Permits says how many permits an attempt wants: Count of the Of permits of a semaphore. The zero Permits stands for a
// lock.
type Permits struct{ Count, Of uint16 }

// Suffix follows the name of a process at a queue node, and the key in a message to that process, if the
// process waits for permits.
func (p Permits) Suffix() string {
	return "~" + strconv.Itoa(int(p.Count)) + "/" + strconv.Itoa(int(p.Of))
}

// CutPermits returns the key of a message without the suffix of permits, and the permits. They are zero
// if the key has no such suffix.
func CutPermits(key string) (string, Permits) {
	m := permitsSuffix.FindStringSubmatchIndex(key)
	if m == nil {
		return key, Permits{}
	}
	count, _ := strconv.Atoi(key[m[2]:m[3]])
	of, _ := strconv.Atoi(key[m[4]:m[5]])
	return key[:m[0]], Permits{uint16(count), uint16(of)} // of four digits at most
}

var permitsSuffix = regexp.MustCompile(`~([1-9][0-9]{0,3})/([1-9][0-9]{0,3})$`)

// Base returns the name of a semaphore on the nodes, in the place of a resource.
func Base(semaphore string) string { return semaphore + SlotsSuffix }

// Slot returns the resource of a slot of a semaphore.
func Slot(base string, slot int) string { return base + "~" + strconv.Itoa(slot) }

// CutSlot returns the semaphore and the slot of a resource or a key. It returns 0 and the resource for a
// resource that is no slot.
func CutSlot(resource string) (semaphore string, slot int) {
	if i := strings.LastIndexByte(resource, '~'); i >= 0 && strings.HasSuffix(resource[:i], SlotsSuffix) {
		if n, err := strconv.Atoi(resource[i+1:]); err == nil && n > 0 && strconv.Itoa(n) == resource[i+1:] {
			return strings.TrimSuffix(resource[:i], SlotsSuffix), n
		}
	}
	return resource, 0
}

// OwnerMark stands before the label of a lease's owner, in the id of an attempt.
const OwnerMark = ";"

// MaxLabel is the largest length of a label, in bytes.
const MaxLabel = 64

// IsLabel reports whether a text can be the label of an owner: it has 1 to MaxLabel bytes of
// printable characters and spaces, and no "|", which ends the id.
func IsLabel(text string) bool {
	unusable := func(r rune) bool { return r == '|' || !unicode.IsPrint(r) }
	return text != "" && len(text) <= MaxLabel && utf8.ValidString(text) && !strings.ContainsFunc(text, unusable)
}

// Same is sent instead of the counter of a lease that is the counter of the grant.
const Same = "="

// NoProcess is sent to a queue node instead of the name of a process by a process that does not wait.
const NoProcess = "-"

// Abrupt is the extra of a Busy of the queue node if the key in the way is that of another library, and has
// at least so many ms left: lua/acquire.lua.
const Abrupt = 50

// BrokenMark is the beginning of a placeholder, by which lua/break.lua replaces the value of a
// lock key. No id of an attempt begins with it.
const BrokenMark = "~broken:"

// Unowned stands in a placeholder for the id of the attempt, where no attempt had set the key. As it is no
// id, no release drops that placeholder.
const Unowned = "~unowned"

// BrokenChannel is the name, after the prefix of all keys, of the channel for messages that a lock
// was broken.
const BrokenChannel = "~broken"

// Placeholder returns the value that replaces the value of the lock key of an attempt.
func Placeholder(id string) string { return BrokenMark + id + "|0" }

// Reserved returns the suffix of a key that is one of the library's own, or "" for any other key. For the key of
// a slot it stands for the number, too.
// The prefix of a Locker and a resource can make such a suffix together: under "p:a~" the key of
// "fence" is the counter of "a" under "p:".
func Reserved(key string) (suffix string) {
	for _, suffix := range []string{FenceSuffix, GuardSuffix, QueueSuffix, SeenSuffix, TurnSuffix, ReadersSuffix, SlotsSuffix} {
		if strings.HasSuffix(key, suffix) {
			return suffix
		}
	}
	if i := strings.LastIndexByte(key, '~'); i >= 0 && strings.Trim(key[i+1:], "0123456789/") == "" && strings.HasSuffix(key[:i], SlotsSuffix) {
		return SlotsSuffix + "~<number>"
	}
	return ""
}

// UnknownRun stands for the identity of a server that does not tell its identity.
const UnknownRun = "?"

// BetweenGroups stands between the lists of two groups of masters in the lists of a marker.
const BetweenGroups = " / "

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
	//go:embed lua/raise.lua
	RaiseLua string
	//go:embed lua/extend.lua
	ExtendLua string
	//go:embed lua/release.lua
	ReleaseLua string
	//go:embed lua/shared.lua
	SharedLua string
	//go:embed lua/permits.lua
	PermitsLua string
	//go:embed lua/run.lua
	RunLua string
	//go:embed lua/marker.lua
	MarkerLua string
	//go:embed lua/inspect.lua
	InspectLua string
	//go:embed lua/break.lua
	BreakLua string
)

// The scripts.
var (
	Requests = script(CommonLua, BeginLua, GuardLua, ReadersLua, QueueLua, AcquireLua, RaiseLua, ExtendLua, ReleaseLua, SharedLua, PermitsLua, RunLua) // the messages of attempts
	Marker   = script(BeginLua, GuardLua, MarkerLua)                                                                                                   // about the node itself
	Inspect  = script(BeginLua, GuardLua, ReadersLua, InspectLua)                                                                                      // about a lock, for people
	Break    = script(BreakLua)
)
