package locktest

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/resp"
	"github.com/d0720281/redlock/internal/wire"
)

const (
	// A hostile client or master writes Mark wherever it can: sequences that control a
	// terminal, ends of lines, characters that reverse the direction of text, and bytes that are not
	// UTF-8.
	Mark = "\x1b]0;pwned\x07\rFORGED\nFORGED\u202e\u009b31m\xff\x00"

	// Secret is the password of the masters.
	Secret = "s3cr3tMarker"
)

// Leaks returns what a text that was printed must not have: a character of Mark, or Secret. Line
// feeds and tabs are the printer's own, unless they are those of Mark.
func Leaks(text string) string {
	for i, r := range text {
		switch {
		case r == '\n' && !strings.HasPrefix(text[i+1:], "FORGED"), r == '\t':
		case !unicode.IsPrint(r), r == utf8.RuneError && text[i] != "\ufffd"[0]:
			return fmt.Sprintf("%q in ...%.200q", r, text[max(0, i-80):])
		}
	}
	if i := strings.Index(text, Secret); i >= 0 {
		return fmt.Sprintf("the password in ...%.200q", text[max(0, i-80):])
	}
	return ""
}

// HostileMaster is a server that writes Mark wherever it can.
type HostileMaster struct {
	net.Listener
	index int
	lie   atomic.Pointer[Lie]
	told  atomic.Int64
}

// Lie says which step a hostile master refuses, and how.
type Lie struct {
	Step  string // "auth", "time", "info", "config", "marker", "probe", "requests", "inspect", "scan", "break", "publish" or "subscribe"; "" for nothing
	Reply string // the error, or another reply in the protocol

	Role     string // in INFO; "master" if it is ""
	Conflict bool   // with the list of masters of another client
	Busy     bool   // requests are refused because of another holder, and not with an error
	Readers  bool   // which readers are
	Lacks    bool   // all commands, says the probe
}

// Lies returns lies of all kinds.
func Lies() map[string]Lie {
	line := strings.ReplaceAll(Mark, "\n", "")
	lies := map[string]Lie{
		"no lie":                 {},
		"a role":                 {Role: Mark},
		"a conflicting list":     {Conflict: true, Busy: true},
		"the label of a holder":  {Busy: true},
		"the labels of readers":  {Busy: true, Readers: true},
		"no command":             {Lacks: true},
		"no protocol":            {Step: "time", Reply: line + "\r\n"},
		"no protocol in scripts": {Step: "requests", Reply: "$" + line + "\r\n"},
	}
	for _, step := range []string{"auth", "time", "info", "config", "marker", "probe", "requests", "inspect", "scan", "break", "publish", "subscribe"} {
		for name, text := range map[string]string{
			"an error":       "ERR your password " + Secret + " is wrong" + strings.Repeat(line, 30),
			"arguments":      "ERR unknown command 'AUTH', with args beginning with: 'default' '" + Secret + "' ",
			"no permission":  "NOPERM " + line,
			"a redirection":  "MOVED 1 " + line,
			"no more master": "READONLY " + line,
		} {
			lies[name+" to "+step] = Lie{Step: step, Reply: "-" + text + "\r\n"}
		}
	}
	return lies
}

// Hostile starts n hostile masters, which end with the test.
func Hostile(t testing.TB, n int) (list []*HostileMaster, addrs []string) {
	t.Helper()
	for i := range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		Must(t, err)
		t.Cleanup(func() { _ = listener.Close() })
		h := &HostileMaster{Listener: listener, index: i}
		h.Tell(Lie{})
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				go h.serve(conn)
			}
		}()
		list, addrs = append(list, h), append(addrs, listener.Addr().String())
	}
	return list, addrs
}

// Tell makes the master lie in another way.
func (h *HostileMaster) Tell(l Lie) {
	h.lie.Store(&l)
	h.told.Store(0)
}

// Told returns how often the step of the lie was answered since Tell.
func (h *HostileMaster) Told() int64 { return h.told.Load() }

func (h *HostileMaster) serve(conn net.Conn) {
	defer conn.Close()
	in := resp.NewReader(conn)
	for {
		v, err := in.Value()
		if err != nil {
			return
		}
		var args []string
		list, _ := v.([]any)
		for _, arg := range list {
			text, _ := arg.(string)
			args = append(args, text)
		}
		if len(args) == 0 {
			return
		}
		if _, err := conn.Write([]byte(h.reply(args))); err != nil {
			return
		}
	}
}

// stepOf returns the step that a command belongs to.
func stepOf(args []string) string {
	switch verb := strings.ToLower(args[0]); verb {
	case "hello", "auth", "select", "client":
		return "auth"
	case "eval", "evalsha":
		for step, script := range map[string]*wire.Script{"marker": &wire.Marker, "probe": &wire.Probe, "requests": &wire.Requests, "inspect": &wire.Inspect, "break": &wire.Break} {
			if args[1] == script.Source || args[1] == script.Hash {
				return step
			}
		}
		return ""
	default:
		return verb
	}
}

func (h *HostileMaster) reply(args []string) string {
	lie := h.lie.Load()
	step := stepOf(args)
	if step == lie.Step {
		h.told.Add(1)
		return lie.Reply
	}
	if strings.EqualFold(args[0], "hello") {
		return "*2\r\n+server\r\n+redis\r\n"
	}
	bulk := func(text string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text) }
	number := func(n int64) string { return fmt.Sprintf(":%d\r\n", n) }
	array := func(parts ...string) string { return fmt.Sprintf("*%d\r\n", len(parts)) + strings.Join(parts, "") }
	now := time.Now().UnixMicro()
	oneLine := strings.NewReplacer("\n", "", "\r", "").Replace(Mark)
	switch step {
	case "time":
		return array(bulk(fmt.Sprint(now/1e6)), bulk(fmt.Sprint(now%1e6)))
	case "info":
		role := lie.Role
		if role == "" {
			role = "master"
		}
		return bulk(fmt.Sprintf("redis_version:%[1]s\r\nrun_id:%[2]d%[1]s\r\nmaster_replid:%[1]s\r\nrole:%[3]s\r\nmaxmemory:%[1]s\r\nmaxmemory_policy:%[1]s\r\naof_enabled:1\r\n",
			oneLine, h.index, strings.ReplaceAll(role, "\n", "")))
	case "config":
		return array(bulk("appendfsync"), bulk(Mark), bulk("no-appendfsync-on-rewrite"), bulk(Mark))
	case "marker":
		lists := "10.0.0.1:1 10.0.0.2:1" + Mark + " " + strings.Repeat("x", 5000) + wire.BeforeLabel + Mark
		conflict, contested := "", ""
		if lie.Conflict {
			conflict = lists
			for line := range strings.Lines(args[9]) { // the servers that the client sees
				contested += strings.Fields(line)[0] + " " + strings.Join(strings.Fields(Mark), "") + " 60000" + wire.BeforeLabel + Mark + "\n"
			}
		}
		return array(number(now), number(0), bulk("10300 10000 0"), bulk(Mark), bulk(Mark), bulk(Mark), bulk(lists), bulk(conflict), bulk(contested), bulk(Mark))
	case "probe":
		said := ""
		if lie.Lacks {
			said = "ERR unknown command " + Mark
		}
		return array(slices.Repeat([]string{bulk(said)}, strings.Count(wire.ProbeLua, "{'"))...)
	case "requests":
		parts := []string{number(now)}
		for _, op := range opsOf(args) {
			switch acquires := op == wire.Acquire || op == wire.Acquire.Shared(); {
			case !lie.Busy:
				parts = append(parts, bulk("ERR "+Mark), number(0), number(0))
			case acquires:
				parts = append(parts, number(int64(wire.Busy)), number(0), bulk("60000 "+Mark))
			default:
				parts = append(parts, number(int64(wire.Released)), number(0), number(0))
			}
		}
		return array(parts...)
	case "inspect":
		if lie.Readers {
			return array(number(now), number(0), bulk(wire.Sign), number(60_000), bulk(Mark), number(0), number(2), bulk(Mark), number(60_000), bulk(Mark+"2"), number(60_000))
		}
		return array(number(now), number(0), bulk(Mark+";"+Mark+"|64"), number(60_000), bulk(Mark), number(0))
	case "break":
		return array(number(1), number(60_000))
	case "scan":
		return array(bulk("0"), array(bulk(redlock.DefaultKeyPrefix+Mark), bulk(redlock.DefaultKeyPrefix+"a\u009bb"), bulk(redlock.DefaultKeyPrefix+"r")))
	case "publish":
		return number(0)
	case "subscribe":
		return array(bulk("subscribe"), bulk(args[1]), number(1)) + array(bulk("message"), bulk(args[1]), bulk(Mark)) + array(bulk("message"), bulk(redlock.DefaultKeyPrefix+wire.BrokenChannel), bulk(Mark))
	case "ping":
		return "+PONG\r\n"
	}
	return "+OK\r\n"
}

// opsOf returns the functions of the requests in a batch. lua/begin.lua describes the arguments.
func opsOf(args []string) (ops []wire.Op) {
	const head = 3
	for args = args[3+atoi(args[2])+head:]; len(args) > 0; {
		op, k, common := wire.Op(atoi(args[0])), atoi(args[1]), 3
		if op.SetsKey() {
			common = 5
		}
		for range k {
			ops = append(ops, op)
		}
		args = args[common+2*k:]
	}
	return ops
}

func atoi(s string) (n int) {
	_, _ = fmt.Sscan(s, &n)
	return n
}
