package virtual

import (
	"strconv"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/d0720281/redlock/internal/wire"
)

// Call is a request that arrived at a node in the library's script.
type Call struct {
	At     time.Time
	Op     string // acquire, raise, extend, release or rest
	Key    string
	ID     string // of the attempt
	Before string // value of the key before the command
}

// Calls is the requests that have arrived.
func (n *Node) Calls() []Call {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]Call(nil), n.calls...)
}

// ForgetCalls has Calls begin anew.
func (n *Node) ForgetCalls() { n.set(func() { n.calls = nil }) }

// Ran is how many times the script that carries requests has run as Go code, and how many
// as Lua.
func (n *Node) Ran() (native, lua int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ranNative, n.ranLua
}

// script is what a node makes of a script.
type script int

const (
	foreign  script = iota
	requests        // lua/begin.lua to lua/run.lua: it carries requests
	marking         // lua/begin.lua to lua/marker.lua: it is about the node itself
	looking         // lua/begin.lua to lua/inspect.lua: it is about a lock
)

// The scripts as they should be: a test may have a Locker send others.
var requestsHash, markerHash, inspectHash = wire.Requests.Hash, wire.Marker.Hash, wire.Inspect.Hash

func scriptOf(hash string) script {
	switch hash {
	case requestsHash:
		return requests
	case markerHash:
		return marking
	case inspectHash:
		return looking
	}
	return foreign
}

// arrived is called by the server before each command, those of scripts included: it
// must not take mu for them, as the server's own is held then.
func (n *Node) arrived(p *server.Peer, cmd string, args ...string) bool {
	switch cmd {
	case "INFO":
		p.WriteBulk("# Server\r\nredis_version:7.0.15\r\nrun_id:" + n.RunID() + "\r\nrole:master\r\nmaster_replid:" + replID + "\r\n" +
			"maxmemory:0\r\nmaxmemory_policy:noeviction\r\naof_enabled:0\r\ncluster_enabled:0\r\n")
		return true
	case "EVAL", "EVALSHA":
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.scriptLocked(p, cmd == "EVAL", args)
	}
	return false
}

// scriptLocked is for a script that came by its source or its hash. It reports whether
// that was answered: if not, the server's interpreter runs it.
func (n *Node) scriptLocked(p *server.Peer, bySource bool, args []string) bool {
	hash := args[0]
	if bySource {
		hash = wire.NewScript(args[0]).Hash
		n.known[hash] = scriptOf(hash)
	}
	what, known := n.known[hash]
	args = args[1:]
	if what == requests {
		n.recordLocked(args)
	}
	switch {
	case n.answer != "":
		p.WriteError(n.answer)
	case !known:
		p.WriteError("NOSCRIPT No matching script. Please use EVAL.")
	case what == foreign:
		return false
	case !n.native:
		if what == requests {
			n.ranLua++
		}
		return false
	default:
		if what == requests {
			n.ranNative++
		}
		reply := n.runLocked(what, args)
		p.WriteLen(len(reply))
		for _, v := range reply {
			switch v := v.(type) {
			case int64:
				p.WriteInt(int(v))
			case string:
				p.WriteBulk(v)
			default:
				p.WriteNull()
			}
		}
	}
	return true
}

func (n *Node) recordLocked(args []string) {
	list, _ := parse(args)
	for _, r := range list {
		c := Call{At: time.Now(), Op: r.op, Key: r.key, ID: r.id()}
		c.Before, _ = n.redis.Get(c.Key)
		n.calls = append(n.calls, c)
	}
}

// runLocked runs a script of the library in Go. The arguments are those from the number
// of keys on.
func (n *Node) runLocked(what script, args []string) []any {
	s := store{redis: n.redis, own: n.Identity(), now: n.clockLocked().UnixMicro(), marker: args[1]}
	switch what {
	case marking:
		s.common = args[2:5]
		return s.mark(args[5:])
	case looking:
		s.common = args[4:]
		return s.look(args[2], args[3])
	}
	list, common := parse(args)
	s.common = common
	return s.run(list)
}

// request is one of those that came in one call of the script.
type request struct {
	op, key  string
	process  string // at the queue node, else empty
	ttl      string
	notAfter int64
	argv     []string // two
}

func (r request) atQueueNode() bool { return r.process != "" }
func (r request) counter() string   { return r.key + wire.FenceSuffix }

// id returns the attempt's id.
func (r request) id() string {
	id, _, _ := r.grant()
	return id
}

// grant takes the arguments of a request about a grant apart.
func (r request) grant() (id, given, target string) {
	id, given, _ = strings.Cut(r.argv[0], "|")
	target = r.argv[1]
	if target == wire.Same {
		target = given
	}
	return id, given, target
}

// kinds is the functions of the script by their number, as lua/begin.lua has them.
var kinds = map[string]struct {
	op      string
	guarded bool
}{
	"1": {"acquire", true},
	"2": {"raise", false},
	"3": {"extend", true},
	"4": {"release", false},
	"5": {"rest", false},
}

// parse takes the arguments of the script apart, from the number of keys on, as
// lua/begin.lua explains them.
func parse(args []string) (list []request, common []string) {
	keys := args[1 : 1+number(args[0])]
	args = args[1+len(keys):]
	keys = keys[1:]                   // the marker
	common, args = args[:3], args[3:] // before all
	for len(keys) > 0 {
		k, count := kinds[args[0]], number(args[1])
		r := request{op: k.op, process: args[2]}
		args = args[3:]
		if k.guarded {
			r.ttl, r.notAfter = args[0], number(args[1])
			args = args[2:]
		}
		for range count {
			r.key, r.argv = keys[0], args[:2]
			list = append(list, r)
			keys, args = keys[1:], args[2:]
		}
	}
	return list, common
}

func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}
