package virtual

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/d0720281/redlock/internal/wire"
)

// Call is a request that arrived at a node in a call of the library's script.
type Call struct {
	At     time.Time
	Op     string // acquire, raise, extend, release or rest, with " shared" behind it for a reader
	Key    string
	ID     string // of the attempt
	Before string // value of the key before the command
}

// Calls returns the requests that have arrived.
func (n *Node) Calls() []Call {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]Call(nil), n.calls...)
}

// CallsOf returns the requests of one kind that have arrived for a resource behind the default
// prefix.
func (n *Node) CallsOf(op, resource string) []Call {
	return slices.DeleteFunc(n.Calls(), func(c Call) bool { return c.Op != op || c.Key != prefix+resource })
}

// Seen counts what CallsOf returns.
func (n *Node) Seen(op, resource string) int { return len(n.CallsOf(op, resource)) }

// ForgetCalls empties the list of Calls.
func (n *Node) ForgetCalls() { n.set(func() { n.calls = nil }) }

// requests is the script whose calls are recorded. A test may make a Locker send another script.
var requests = wire.Requests

// recordLocked records the requests in a call of the script, whose arguments lua/begin.lua
// explains. Here the number of keys is before them.
func (n *Node) recordLocked(args []string) {
	keys, args := args[1:1+number(args[0])], args[1+number(args[0]):]
	keys, args = keys[1:], args[3:] // behind the marker, and behind what is before all
	for len(keys) > 0 {
		op, count := wire.Op(number(args[0])), number(args[1])
		name := op.String()
		if op > wire.Rest && op != wire.Adopt {
			name = (op - wire.Rest).String() + " shared"
		}
		args = args[3:]
		if op.SetsKey() {
			args = args[2:]
		}
		for range count {
			id, _, _ := strings.Cut(args[0], "|")
			c := Call{At: time.Now(), Op: name, Key: keys[0], ID: id}
			c.Before, _ = n.redis.Get(c.Key)
			n.calls = append(n.calls, c)
			keys, args = keys[1:], args[2:]
		}
	}
}

func number(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}
