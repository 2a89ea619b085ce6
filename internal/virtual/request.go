package virtual

import (
	"strconv"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/d0720281/redlock/internal/wire"
)

// Call is a request of the library's script that arrived at a node.
type Call struct {
	At     time.Time
	Op     string // acquire, raise, extend, release or rest
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

// ForgetCalls empties the list of Calls.
func (n *Node) ForgetCalls() { n.set(func() { n.calls = nil }) }

// Ran returns how many times the script that carries requests has run as Go code, and how
// many times as Lua.
func (n *Node) Ran() (native, lua int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ranNative, n.ranLua
}

// script tells the scripts of the library apart.
type script int

const (
	foreign  script = iota
	requests        // lua/common.lua to lua/run.lua: requests about locks
	marking         // lua/begin.lua to lua/marker.lua: the marker of the node
	looking         // lua/begin.lua to lua/inspect.lua: a look at a lock
)

// The hashes of the library's scripts. A test may make a Locker send others.
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

// arrived is called by the server before each command, including those of scripts. For
// these it must not take mu, as the server's own mutex is held then.
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

// scriptLocked handles a script that came by its source or its hash. It reports whether it
// has answered; if not, the server's interpreter runs the script.
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
				p.WriteRaw(":" + strconv.FormatInt(v, 10) + "\r\n") // WriteInt has no more than an int
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

// runLocked runs a script of the library in Go. The arguments begin with the number of
// keys.
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

// request is one request in a call of the script.
type request struct {
	op, key  string
	process  string // at the queue node, else empty
	guarded  bool   // it sets the key
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

// kinds has the requests by their numbers in lua/begin.lua.
var kinds = map[string]struct {
	op      string
	guarded bool
}{
	"1": {"acquire", true},
	"2": {"raise", false},
	"3": {"extend", true},
	"4": {"release", false},
	"5": {"rest", false},

	"6":  {"acquire shared", true},
	"7":  {"raise shared", false},
	"8":  {"extend shared", true},
	"9":  {"release shared", false},
	"10": {"rest shared", false},

	"11": {"acquire permits", true},
	"14": {"release permits", false},
	"15": {"rest permits", false},
}

// parse splits the arguments of the script, which begin with the number of keys, as
// lua/begin.lua explains them.
func parse(args []string) (list []request, common []string) {
	keys := args[1 : 1+number(args[0])]
	args = args[1+len(keys):]
	keys = keys[1:]                   // the marker
	common, args = args[:3], args[3:] // before all
	for len(keys) > 0 {
		k, count := kinds[args[0]], number(args[1])
		r := request{op: k.op, guarded: k.guarded, process: args[2]}
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
