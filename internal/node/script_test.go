package node

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/internal/resp"
	"github.com/d0720281/redlock/internal/wire"
)

var sources = map[wire.Op]string{wire.Acquire: wire.AcquireLua, wire.Adopt: wire.AdoptLua, wire.Raise: wire.RaiseLua, wire.Extend: wire.ExtendLua, wire.Release: wire.ReleaseLua}

const mostCodes wire.Code = 64 // they are below

// parseReplies reads the reply to a batch of k requests, given as the values that go-redis
// returns.
func parseReplies(values []any, k int) (int64, []Reply, error) {
	micros, replies, refused, err := readBatch(resp.NewReader(bytes.NewReader(encode(nil, values))), k, nil)
	return micros, replies, cmp.Or(err, refused)
}

// encode appends values in the protocol's form.
func encode(b []byte, v any) []byte {
	switch v := v.(type) {
	case []any:
		b = fmt.Appendf(b, "*%d\r\n", len(v))
		for _, one := range v {
			b = encode(b, one)
		}
	case string:
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(v), v)
	case int64:
		b = fmt.Appendf(b, ":%d\r\n", v)
	case resp.Error:
		b = fmt.Appendf(b, "-%s\r\n", string(v))
	default:
		b = append(b, "$-1\r\n"...)
	}
	return b
}

// argsOf returns the arguments of a request in a group of its own.
func argsOf(r *Request) []any { return valuesOf(r.append(r.appendGroup(nil, 1))) }

func valuesOf(sent []byte) (list []any) {
	in := resp.NewReader(bytes.NewReader(sent))
	for {
		v, err := in.Value()
		if err == io.EOF {
			return list
		}
		list = append(list, must(v, err))
	}
}

// The head of each Lua file lists the replies that its body gives, and these are what wire.go takes for replies.
func TestScriptHeads(t *testing.T) {
	codes := func(text, pattern string) []wire.Code {
		found := make(map[wire.Code]bool)
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			c, _ := strconv.Atoi(m[1]) // always digits
			found[wire.Code(c)] = true
		}
		return slices.Sorted(maps.Keys(found))
	}
	for o, source := range sources {
		head := regexp.MustCompile(`^(--.*\n)*`).FindString(source)
		listed, given := codes(head, `(?m)(?:^--   |, )(\d+) +[a-z]+ ?`), codes(source, `\breturn (?:false, )?(\d+)\b`)
		var taken []wire.Code
		for code := range mostCodes {
			if code.Answers(o) {
				taken = append(taken, code)
			}
		}
		if !slices.Equal(listed, given) || !slices.Equal(taken, given) {
			t.Errorf("%s: its head lists %v, its body gives %v, wire.go takes %v", o, listed, given, taken)
		}
		if !strings.HasPrefix(source, "-- "+o.String()+": ") {
			t.Errorf("%s: it begins with %q", o, source[:20])
		}
		r := &Request{Op: o, Key: new(Key)}
		if got, want := len(argsOf(r)), r.groupArgs()+requestArgs; got != want {
			t.Errorf("%s: %d arguments are sent, and %d are announced", o, got, want)
		}
	}
}

// No script converts a number to text by Lua's own conversion.
//
// Source: ALGORITHM section 2, "never tostring".
func TestScriptsWriteNumbersByFormat(t *testing.T) {
	files, err := filepath.Glob("../wire/lua/*.lua")
	if err != nil || len(files) < 14 {
		t.Fatalf("got %q, %v, want the scripts", files, err)
	}
	number := regexp.MustCompile(`\.\. *(?:now|left|ttl|counter|target|moment|millis|micros|longest|whole|n)\b|\b(?:now|left|ttl|counter|target|moment|millis|micros|longest|n) *\.\.`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			code, _, _ := strings.Cut(line, "--")
			if strings.Contains(code, "tostring") && !strings.Contains(code, "code.err or tostring(code)") || number.MatchString(code) {
				t.Errorf("%s: %q loses digits above 1e15", file, strings.TrimSpace(line))
			}
		}
	}
	// common.lua reads the time, or time() does: run.lua passes the reading on.
	if n := strings.Count(wire.Requests.Source, "'TIME'"); n != 2 || !strings.Contains(wire.RunLua, "micros = clock") {
		t.Errorf("TIME is read in %d places, want two, of which a call uses one", n)
	}
}

// Where no time is pinned, the script goes by the server's.
func TestScriptsByTheServersClock(outer *testing.T) {
	t := redistest.Timed(outer)
	n := &stage{Client: redistest.Client(t, redistest.Masters(t, 1)[0].Addr()), source: wire.Requests.Source}
	now := func() int64 {
		now, err := n.Time(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		return now.UnixMicro()
	}
	before := now()
	values, err := n.Eval(t.Context(), wire.Requests.Source, []string{"k~guard", "k"}, "", before, theSettings, int(wire.Acquire), 1, "", hour, before+hour*1000, "a", 0).Slice()
	if err != nil {
		t.Fatal(err)
	}
	if micros, replies, err := parseReplies(values, 1); err != nil || replies[0].Code != wire.Granted || replies[0].Counter != before || micros < before || micros > now() {
		t.Errorf("got %v, %+v, %v; want a grant at about %d", micros, replies, err, before)
	}
}

// theSettings are those of a caller, as lua/begin.lua has them.
const theSettings = "1000 5150000 1120 0"

// A node that is out of memory grants nothing, but keeps and gives back its keys, and calls the processes that it can.
//
// Source: ALGORITHM section 5 ("never skipped").
func TestScriptsOutOfMemory(outer *testing.T) {
	t := redistest.Timed(outer)
	n := &stage{Client: redistest.Client(t, redistest.Masters(t, 1, "--maxmemory-policy", "noeviction")[0].Addr()), source: wire.Requests.Source}
	n.begin("with k=a|64 30m ~fence=64 1h ~q=a|64 1h ~q~queue=(in1,in2) ~q~seen=(in1:t,in2:t)", "hears in1 in2")
	n.do("CONFIG", "SET", "maxmemory", "1")
	for _, test := range []struct{ request, want string }{
		{"acquire a key=~free", "error OOM .*"},
		{"extend a|0 64 key=~free", "error OOM .*"},
		{"acquire b", "error OOM .*|busy 0 .*"}, // versions of the server differ
		{"extend a|64 128", "kept"},
		{"release a|64 192", "released"},
		{"acquire b key=~q as=in3", "error OOM .*|busy 2 .*"},
		{"release a|64 key=~q as=-", "released 2, told in1:~q"},
	} {
		if got := n.request(test.request) + n.told(); !regexp.MustCompile("^(" + test.want + ")$").MatchString(got) {
			t.Errorf("%s: got %q, want %q", test.request, got, test.want)
		}
	}
	keys := n.keys()
	if counter, _, _ := strings.Cut(keys["~fence"], " "); len(counter) < 2 || counter < "64" && len(counter) < 3 || keys["k"]+keys["~q"]+keys["~free"] != "" {
		t.Errorf("got the keys %q, want the counter, no less than before, and no lock key", keys)
	}
}

// A server that does not know a script's hash says so, and does nothing.
func TestNoScript(outer *testing.T) {
	t := redistest.Timed(outer)
	master := redistest.Masters(t, 1)[0]
	c := redistest.Client(t, master.Addr())
	byHash, bySource := [2]string{"EVALSHA", wire.Requests.Hash}, [2]string{"EVAL", wire.Requests.Source}
	call := func(by [2]string) error {
		return c.Do(t.Context(), by[0], by[1], 2, "no marker", "k", "", 0, theSettings, int(wire.Acquire), 1, "", 1000, 0, "a", 0).Err()
	}
	if err := call(byHash); !Says(err, "NOSCRIPT") || !IsReply(err) {
		t.Errorf("got %v, want NOSCRIPT", err)
	}
	if n := c.Exists(t.Context(), "k", "k"+wire.FenceSuffix).Val(); n != 0 {
		t.Errorf("got %d keys, want none", n)
	}
	if err := call(bySource); err != nil {
		t.Errorf("by source: got %v", err)
	}
	if err := call(byHash); err != nil {
		t.Errorf("by hash, now that it is known: got %v", err)
	}
}

// A reply that the script cannot give is an error.
func TestParseReplies(t *testing.T) {
	for _, values := range [][]any{
		nil,
		{int64(1)},
		{theTime, int64(1), int64(64)},
		{theTime, int64(1), int64(64), int64(0), int64(0)},
		{"1760000000000000", int64(1), int64(64), int64(0)},
		{theTime, int64(0), int64(1), int64(64), int64(0)},
		{int64(1), int64(1), int64(64), int64(0)}, // a time in 1970
		{int64(math.MaxInt64), int64(1), int64(64), int64(0)},
		{int64(-1), int64(1), int64(64), int64(0)},
		{theTime, nil, int64(64), int64(0)},
		{theTime, int64(1), "64", int64(0)},
		{theTime, int64(1), int64(64), nil},
		{theTime, int64(3), int64(0), "64"},
		{theTime, int64(3), int64(0), "web 1"},
	} {
		if _, _, err := parseReplies(values, 1); !errors.Is(err, ErrBadReply) {
			t.Errorf("%v: got %v, want ErrBadReply", values, err)
		}
	}
	micros, replies, err := parseReplies([]any{theTime, int64(3), int64(0), int64(-1), "OOM no", int64(0), int64(0)}, 2)
	if want := []Reply{{Code: wire.Busy, Extra: -1}, {Err: resp.Error("OOM no")}}; err != nil || micros != theTime || !reflect.DeepEqual(replies, want) {
		t.Errorf("got %v, %v, %v; want theTime, %v", micros, replies, err, want)
	}
}

// A server's refusal of a command inside a script is an error. It says nothing about the
// keys: a lock of the wrong type ends all waiting, and a release that found nothing is not
// repeated.
func TestRefusalsInsideScripts(outer *testing.T) {
	t := redistest.Timed(outer)
	admin := redistest.Client(t, redistest.Masters(t, 1)[0].Addr())
	all := []string{"acquire a", "raise a|64 128", "extend a|64 128", "release a|64 128"}
	for i, test := range []struct {
		rules    []any
		requests []string
	}{
		{[]any{"~*", "+@all", "-getrange"}, all},
		{[]any{"~*", "+@all", "-eval"}, all},
		{[]any{"~*", "-@all", "+eval", "+time"}, all},
		{[]any{"~other:*", "+@all"}, all},
		{[]any{"~*", "+@all", "-set"}, []string{"acquire b key=~free"}},
		{[]any{"~*", "+@all", "-del"}, []string{"release a|64", "release a|64; acquire b key=~free; extend a|64"}},
		{[]any{"~*", "+@all", "-pttl"}, []string{"extend a|64"}},
		{[]any{"~*", "+@all", "-pexpire"}, []string{"extend a|64"}},
	} {
		opt := *admin.Options()
		opt.Username, opt.Password = fmt.Sprint("user", i), "secret"
		if err := admin.Do(t.Context(), append([]any{"ACL", "SETUSER", opt.Username, "reset", "on", ">secret"}, test.rules...)...).Err(); err != nil {
			t.Fatal(err)
		}
		c := redis.NewClient(&opt)
		defer c.Close()
		for _, request := range test.requests {
			(&stage{Client: admin}).begin("with k=a|64 1m ~fence=64 1m")
			_, _, replies := (&stage{Client: c, source: wire.Requests.Source}).call(request)
			if err := nodeFailure(replies[0].Err); !errors.Is(err, reason.Permission) {
				t.Errorf("%s, %v: got code %d, %v; want reason.Permission", request, test.rules, replies[0].Code, err)
			}
			for _, rep := range replies[1:] { // of the same call
				if rep.Code != wire.Granted && rep.Code != wire.Kept {
					t.Errorf("%s, %v: got %+v, want the other requests carried out", request, test.rules, rep)
				}
			}
		}
	}

	opt := *admin.Options()
	opt.Username, opt.Password = "default", "secret"
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "default", ">x").Err(); err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(&opt)
	defer c.Close()
	if err := nodeFailure(c.Ping(t.Context()).Err()); !errors.Is(err, reason.Permission) {
		t.Errorf("wrong password: got %v, want reason.Permission", err)
	}

	// A replica that lost its master and may not serve its data, and then one that may.
	n := &stage{Client: redistest.Client(t, redistest.Masters(t, 1)[0].Addr()), source: wire.Requests.Source}
	n.do("REPLICAOF", "127.0.0.1", "1")
	for serves, requests := range map[string][]string{"no": all, "yes": {"acquire a"}} {
		n.do("CONFIG", "SET", "replica-serve-stale-data", serves)
		for _, request := range requests {
			if _, _, replies := n.call(request); !isUnwritable(replies[0].Err) {
				t.Errorf("%s, serves: %s: got %+v, want an error that says it is no master", request, serves, replies)
			}
		}
	}
}

func TestMain(m *testing.M) { os.Exit(redistest.Again(m).Run()) }
