package virtual

import (
	"errors"
	"strconv"
	"strings"
	"sync"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"

	"github.com/d0720281/redlock/internal/wire"
)

// scripts answers EVAL, EVALSHA and SCRIPT of one server in place of miniredis. A transaction must
// have no scripts: they would run before its other commands.
type scripts struct {
	*interpreter

	mu    sync.Mutex
	known map[string]*lua.FunctionProto // by hash
}

func newScripts(r *miniredis.Miniredis) *scripts {
	return &scripts{interpreter: newInterpreter(r), known: make(map[string]*lua.FunctionProto)}
}

// RunScripts makes a miniredis that is no Node run scripts as a Node does.
func RunScripts(r *miniredis.Miniredis) {
	s := newScripts(r)
	s.srv.SetPreHook(s.answer)
}

// answer answers a command about scripts, and INFO with a section. It reports whether it did: a command that is not
// well-formed, or is sent by a script, is left to miniredis, which refuses it.
func (s *scripts) answer(p *server.Peer, cmd string, args ...string) bool {
	if cmd == "SCRIPT" && len(args) > 0 {
		cmd, args = "SCRIPT "+strings.ToUpper(args[0]), args[1:]
	}
	switch {
	case p == s.peer:
		return false
	case (cmd == "EVAL" || cmd == "EVALSHA") && len(args) > 1:
		keys, err := strconv.Atoi(args[1])
		if err != nil || keys < 0 || keys > len(args)-2 {
			return false
		}
		script := s.find(args[0])
		if cmd == "EVAL" {
			_, script, err = s.load(args[0])
		}
		switch {
		case err != nil:
			p.WriteError(err.Error())
		case script == nil:
			p.WriteError("NOSCRIPT No matching script. Please use EVAL.")
		default:
			write(p, s.run(script, args[2:2+keys], args[2+keys:]))
		}
	case cmd == "INFO" && len(args) == 1:
		p.WriteBulk("") // Redis has an empty text for a section that it does not know, miniredis an error
	case cmd == "SCRIPT LOAD" && len(args) == 1:
		if hash, _, err := s.load(args[0]); err != nil {
			p.WriteError(err.Error())
		} else {
			p.WriteBulk(hash)
		}
	case cmd == "SCRIPT EXISTS":
		p.WriteLen(len(args))
		for _, hash := range args {
			if s.find(hash) != nil {
				p.WriteInt(1)
			} else {
				p.WriteInt(0)
			}
		}
	case cmd == "SCRIPT FLUSH":
		s.forget()
		p.WriteOK()
	default:
		return false
	}
	return true
}

// compiled has each script of this process as a *lua.FunctionProto, by its hash.
var compiled sync.Map

// load makes a script known.
func (s *scripts) load(source string) (hash string, script *lua.FunctionProto, err error) {
	hash = wire.NewScript(source).Hash
	if known, ok := compiled.Load(hash); ok {
		script = known.(*lua.FunctionProto)
	} else if script, err = compile(source); err != nil {
		return "", nil, err
	}
	compiled.Store(hash, script)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[hash] = script
	return hash, script, nil
}

func compile(source string) (script *lua.FunctionProto, err error) {
	chunk, err := parse.Parse(strings.NewReader(source), "user_script")
	if err == nil {
		script, err = lua.Compile(chunk, "user_script")
	}
	if err != nil {
		return nil, errors.New("ERR Error compiling script (new function): " + err.Error())
	}
	script.IsVarArg &^= lua.VarArgNeedsArg // a table named arg at each call, which no script uses
	return script, nil
}

// find returns a script that is known, or nil.
func (s *scripts) find(hash string) *lua.FunctionProto {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[hash]
}

// forget makes all scripts unknown.
func (s *scripts) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.known)
}
