package virtual

import (
	"bufio"
	"bytes"
	"io"
	"strconv"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	lua "github.com/yuin/gopher-lua"
)

// interpreter runs scripts on one server. It is kept from call to call, as that of Redis is.
// miniredis makes an interpreter for each call, which takes most of the time of the call, and
// returns no more than an int for a number.
type interpreter struct {
	redis *miniredis.Miniredis // locked while a script runs
	srv   *server.Server
	state *lua.LState
	peer  *server.Peer // sends the commands of scripts
	reply bytes.Buffer // the reply to such a command
	ok    *lua.LTable  // the reply OK, which no script changes

	match   *lua.LFunction // string.match
	matched map[[2]string][]lua.LValue
}

// prelude makes of Lua what Redis makes of it: redis has more functions, pcall returns the text of
// an error of a command, and there are no new globals.
const prelude = `
local protected = pcall
local function plain(ok, value, ...)
  if not ok and type(value) == 'table' and value.err then value = value.err end
  return ok, value, ...
end
pcall = function(...) return plain(protected(...)) end
redis.error_reply = function(text) return {err = text} end
redis.status_reply = function(text) return {ok = text} end
setmetatable(_G, {
  __newindex = function(_, name) error('Script attempted to create global variable ' .. name, 2) end,
  __index = function(_, name) error('Script attempted to access nonexistent global variable ' .. name, 2) end,
})`

func newInterpreter(r *miniredis.Miniredis) *interpreter {
	i := &interpreter{redis: r, srv: r.Server(), state: lua.NewState(lua.Options{SkipOpenLibs: true})}
	i.peer = server.NewPeer(bufio.NewWriter(&i.reply))
	i.peer.Ctx = insideScript(i.srv)
	for _, open := range []lua.LGFunction{lua.OpenBase, lua.OpenTable, lua.OpenString, lua.OpenMath} {
		i.state.Push(i.state.NewFunction(open))
		i.state.Call(0, 0)
	}
	i.state.SetGlobal("redis", i.state.SetFuncs(i.state.NewTable(), map[string]lua.LGFunction{
		"call":  func(l *lua.LState) int { return i.command(l, true) },
		"pcall": func(l *lua.LState) int { return i.command(l, false) },
	}))
	text := i.state.GetGlobal("string").(*lua.LTable)
	i.match, i.matched = text.RawGetString("match").(*lua.LFunction), make(map[[2]string][]lua.LValue)
	text.RawSetString("match", i.state.NewFunction(i.remember))
	if err := i.state.DoString(prelude); err != nil {
		panic("virtual: " + err.Error()) // this cannot fail
	}
	i.ok = i.table("ok", "OK")
	return i
}

// remember is string.match, with its recent results: to compile the pattern again at each call takes
// longer than most of the commands.
func (i *interpreter) remember(l *lua.LState) int {
	if l.GetTop() != 2 {
		return i.match.GFunction(l)
	}
	call := [2]string{l.CheckString(1), l.CheckString(2)}
	results, ok := i.matched[call]
	if !ok {
		for n := i.match.GFunction(l); n > 0; n-- {
			results = append(results, l.Get(-n))
		}
		if len(i.matched) == 1000 {
			clear(i.matched)
		}
		i.matched[call] = results
	}
	for _, result := range results {
		l.Push(result)
	}
	return len(results)
}

// insideScript returns the context that miniredis gives to the commands of its own scripts. A
// command with that context takes the server to be locked.
func insideScript(srv *server.Server) (ctx any) {
	srv.SetPreHook(func(p *server.Peer, _ string, _ ...string) bool {
		ctx = p.Ctx // of EVAL, then of PING
		return false
	})
	srv.Dispatch(server.NewPeer(bufio.NewWriter(io.Discard)), []string{"EVAL", "redis.call('PING')", "0"})
	return ctx
}

// run returns what a script returns.
func (i *interpreter) run(script *lua.FunctionProto, keys, argv []string) lua.LValue {
	i.redis.Lock()
	defer i.redis.Unlock()
	i.state.G.Global.RawSetString("KEYS", i.list(keys))
	i.state.G.Global.RawSetString("ARGV", i.list(argv))
	i.state.Push(i.state.NewFunctionFromProto(script))
	if err := i.state.PCall(0, 1, nil); err != nil {
		failure := err.(*lua.ApiError).Object
		if _, ok := failure.(*lua.LTable); ok { // of a command
			return failure
		}
		return i.table("err", "ERR "+failure.String())
	}
	defer i.state.Pop(1)
	return i.state.Get(-1)
}

// command is redis.call, which raises the error of a command, and redis.pcall, which returns it.
func (i *interpreter) command(l *lua.LState, raises bool) int {
	args := make([]string, l.GetTop())
	for k := range args {
		switch arg := l.Get(k + 1).(type) {
		case lua.LString:
			args[k] = string(arg)
		case lua.LNumber:
			args[k] = strconv.FormatFloat(float64(arg), 'g', 17, 64)
		default:
			l.RaiseError("Lua redis lib command arguments must be strings or integers")
		}
	}
	i.reply.Reset()
	i.srv.Dispatch(i.peer, args)
	i.peer.Flush()
	reply, _ := i.read(i.reply.Bytes())
	if t, ok := reply.(*lua.LTable); ok && raises && t.RawGetString("err") != lua.LNil {
		l.Error(t, 1)
	}
	l.Push(reply)
	return 1
}

// read turns the first reply in some bytes into a value of Lua, and returns the bytes behind it.
func (i *interpreter) read(b []byte) (reply lua.LValue, rest []byte) {
	line, rest, _ := bytes.Cut(b, []byte("\r\n"))
	kind, text := line[0], string(line[1:])
	switch n, _ := strconv.ParseInt(text, 10, 64); kind {
	case '+':
		if text == "OK" {
			return i.ok, rest
		}
		return i.table("ok", text), rest
	case '-':
		return i.table("err", text), rest
	case ':':
		return lua.LNumber(n), rest
	case '$':
		if n >= 0 {
			return lua.LString(rest[:n]), rest[n+2:]
		}
	case '*':
		if n >= 0 {
			list := i.state.CreateTable(int(n), 0)
			for range n {
				reply, rest = i.read(rest)
				list.Append(reply)
			}
			return list, rest
		}
	}
	return lua.LFalse, rest
}

// write sends what a script returned.
func write(p *server.Peer, v lua.LValue) {
	switch v := v.(type) {
	case lua.LNumber:
		p.WriteRaw(":" + strconv.FormatInt(int64(v), 10) + "\r\n") // WriteInt has no more than an int
	case lua.LString:
		p.WriteBulk(string(v))
	case *lua.LTable:
		if text := v.RawGetString("err"); text != lua.LNil {
			p.WriteError(text.String())
		} else if text := v.RawGetString("ok"); text != lua.LNil {
			p.WriteInline(text.String())
		} else {
			n := 0
			for v.RawGetInt(n+1) != lua.LNil {
				n++
			}
			p.WriteLen(n)
			for k := range n {
				write(p, v.RawGetInt(k+1))
			}
		}
	default:
		if v == lua.LTrue {
			p.WriteInt(1)
		} else {
			p.WriteNull()
		}
	}
}

// table returns a table with one field.
func (i *interpreter) table(field, text string) *lua.LTable {
	t := i.state.NewTable()
	t.RawSetString(field, lua.LString(text))
	return t
}

// list returns a table with some texts.
func (i *interpreter) list(texts []string) *lua.LTable {
	t := i.state.CreateTable(len(texts), 0)
	for _, text := range texts {
		t.Append(lua.LString(text))
	}
	return t
}
