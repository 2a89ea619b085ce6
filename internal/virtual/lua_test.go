package virtual_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/internal/virtual"
	"github.com/d0720281/redlock/internal/wire"
)

// Scripts do on a miniredis what they do on a server of Redis.
func TestScriptsAsOnRedis(outer *testing.T) {
	t := redistest.Timed(outer)
	fake := redistest.Client(t, redistest.Minis(t, 1)[0].Addr())
	real := redistest.Client(t, redistest.Masters(t, 1)[0].Addr())
	scripts := []string{
		"return 9007199254740992", // 2^53
		"return -9007199254740992",
		"return 3.99",
		"return -3.99",
		"return '3.99'",
		"return ''",
		"return true",
		"return false",
		"return nil",
		"",
		"return {}",
		"return {1, 'a', {2, {true, false}}, 3}",
		"return {1, nil, 3}",
		"return {err = 'MY error', 1}",
		"return {ok = 'fine'}",
		"return {1, {ok = 'fine'}}",
		"return redis.error_reply('MY error')",
		"return redis.status_reply('fine')",

		"return {KEYS[1], KEYS[2], ARGV[1], ARGV[2]}",
		"return {#KEYS, #ARGV}",
		"local t = redis.call('TIME') return {#t, type(t[1]), type(t[2])}",
		"return redis.call('SET', KEYS[1], ARGV[1])",
		"return redis.call('SET', KEYS[1], ARGV[1]).ok",
		"redis.call('SET', KEYS[1], 'x') return redis.call('SET', KEYS[1], 'y', 'NX')",
		"redis.call('SET', KEYS[1], 'x') return {type(redis.call('SET', KEYS[1], 'y', 'NX'))}",
		"return {type(redis.call('GET', KEYS[1])), redis.call('DEL', KEYS[1]), redis.call('GETRANGE', KEYS[1], 0, 255)}",
		"redis.call('HSET', KEYS[1], 'a', 1, 'b', '') return redis.call('HMGET', KEYS[1], 'a', 'b', 'c')",
		"redis.call('HSET', KEYS[1], 'a', 1) return {type(redis.call('HMGET', KEYS[1], 'c')[1])}",
		"redis.call('ZADD', KEYS[1], 1760000000000000, 'm') return tonumber(redis.call('ZSCORE', KEYS[1], 'm'))",
		"redis.call('SET', KEYS[1], 1e15 + 0.5) return redis.call('GET', KEYS[1])",
		"redis.call('SET', KEYS[1], 2 ^ 53) return redis.call('GET', KEYS[1])",
		"redis.call('SET', KEYS[1], 1e17) return redis.call('GET', KEYS[1])",
		"redis.call('SET', KEYS[1], 0.1) return redis.call('GET', KEYS[1])",
		"redis.call('SET', KEYS[1], 250) return redis.call('GET', KEYS[1])",
		"return redis.call('PUBLISH', 'nobody', 'x')",

		"local all = {} for i = 1, 3 do for _, p in ipairs({'(%d)(.)', '()b', '%d', 'x'}) do all[#all + 1] = {string.match('a' .. i .. 'b', p)} end end return all",
		"return {string.match('a1b2', '%d'), string.match('a1b2', '%d', 3), string.match('a1b2', '%d', 3), string.match('a1b2', '%d'), string.match(12, 2)}",
		"local function bad() return string.match('a', '[') end return {tostring(pcall(bad)), tostring(pcall(bad))}",

		"return redis.call('SET', KEYS[1], true)",
		"return redis.call('SET', KEYS[1])",
		"return redis.call()",
		"return redis.call('NOTHING')",
		"local e = redis.pcall('EVAL', 'return 1', 0) return {type(e), type(e.err)}",
		"local e = redis.pcall('SCRIPT', 'FLUSH') return {type(e), type(e.err)}",
		"redis.call('RPUSH', KEYS[1], 'x') return redis.pcall('GETRANGE', KEYS[1], 0, 255)",
		"redis.call('RPUSH', KEYS[1], 'x') local e = redis.pcall('GETRANGE', KEYS[1], 0, 255) return {type(e), e.err}",
		"local e = redis.pcall('INCRBY', KEYS[1], 'x') return {type(e), e.err}",
		"error('mine')",
		"local ok, e = pcall(function() error('mine', 0) end) return {tostring(ok), type(e), e}",
		"return nil + 1",
		"created = 1",
		"function created() end",
		"return missing",
		"return pcall(function() created = 1 end) and 1 or 0",
		"return 1 +",
	}
	if !redistest.IsRedisBefore(t, 7, 0) { // where the errors of commands are texts
		scripts = append(scripts,
			"return redis.call('RPUSH', KEYS[1], 'x') + redis.call('GETRANGE', KEYS[1], 0, 255)",
			"redis.call('RPUSH', KEYS[1], 'x') local ok, e = pcall(redis.call, 'GETRANGE', KEYS[1], 0, 255) return {tostring(ok), type(e), tostring(e)}",
			"error({err = 'MY error'})",
			"local ok, e = pcall(error, {err = 'MY error'}) return {tostring(ok), type(e), tostring(e)}",
		)
	}
	for _, script := range scripts {
		if got, want := outcome(t, fake, script), outcome(t, real, script); got != want {
			t.Errorf("%s: got %s, want %s", script, got, want)
		}
	}
}

// outcome runs a script on a server without data. Of an error it returns the first word: each server
// has texts of its own.
func outcome(t testing.TB, c *redis.Client, script string) string {
	t.Helper()
	if err := c.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	reply, err := c.Eval(t.Context(), script, []string{"k", "l"}, "a", "b").Result()
	if err != nil && err != redis.Nil {
		word, _, _ := strings.Cut(err.Error(), " ")
		return "error " + word
	}
	return fmt.Sprintf("%T %[1]v", reply)
}

// A script is known by its hash until a SCRIPT FLUSH, and the interpreter keeps nothing from a call.
func TestScriptCommands(outer *testing.T) {
	t := redistest.Timed(outer)
	script := wire.NewScript("return {#KEYS, #ARGV}")
	steps := func(c *redis.Client) (list []string) {
		do := func(args ...any) {
			v, err := c.Do(t.Context(), args...).Result()
			list = append(list, fmt.Sprint(args, " got ", v, err))
		}
		do("EVALSHA", script.Hash, 0)
		do("EVAL", script.Source, 1, "k", "a", "b")
		do("EVALSHA", script.Hash, 0)
		do("EVALSHA", script.Hash, 0, "a")
		do("SCRIPT", "EXISTS", script.Hash, "another")
		do("SCRIPT", "FLUSH")
		do("SCRIPT", "EXISTS", script.Hash)
		do("EVALSHA", script.Hash, 0)
		do("script", "load", script.Source)
		do("EVALSHA", script.Hash, 2, "k", "l")
		do("EVAL", script.Source)
		do("EVAL", script.Source, 1)
		do("EVAL", script.Source, -1)
		do("EVAL", script.Source, "many")
		return list
	}
	fake := redistest.Client(t, redistest.Minis(t, 1)[0].Addr())
	real := redistest.Client(t, redistest.Masters(t, 1)[0].Addr())
	want := steps(real)
	for i, got := range steps(fake) {
		if got != want[i] {
			t.Errorf("got %s, want %s", got, want[i])
		}
	}
}

// While a script runs, the server executes no other command.
func TestScriptsAreAtomic(outer *testing.T) {
	t := redistest.Timed(outer)
	c := redistest.Client(t, redistest.Minis(t, 1)[0].Addr())
	const script = "for i = 1, 1000 do redis.call('INCR', 'a') redis.call('INCR', 'b') end"
	done := make(chan error, 1)
	go func() {
		var err error
		for range 50 {
			err = c.Eval(t.Context(), script, nil).Err()
		}
		done <- err
	}()
	for {
		select {
		case err := <-done:
			if err != redis.Nil {
				t.Errorf("got %v, want no reply", err)
			}
			return
		default:
		}
		if v, err := c.MGet(t.Context(), "a", "b").Result(); err != nil || v[0] != v[1] {
			t.Fatalf("between two commands of a script: got %v, %v; want two counters that are the same", v, err)
		}
	}
}

// newNode returns a node, for the rest of a bubble, and a client of it.
func newNode(t testing.TB) (*virtual.Node, *redis.Client) {
	n := virtual.New("10.0.0.1:6379")
	c := redis.NewClient(&redis.Options{Addr: n.Addr(), Dialer: n.Dial, Protocol: 2, DisableIdentity: true, MaxRetries: -1})
	t.Cleanup(func() {
		_ = c.Close()
		n.Close()
		time.Sleep(10 * time.Second) // for pending dials
	})
	return n, c
}

func TestScriptsByTheNodesClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, c := newNode(t)
		clock := func() time.Duration {
			v, err := c.Eval(t.Context(), "redis.call('SET', 'k', 'x', 'NX', 'PX', 1000) local t = redis.call('TIME') return t[1] * 1000000 + t[2]", nil).Int64()
			if err != nil {
				t.Fatal(err)
			}
			return time.Until(time.UnixMicro(v))
		}
		if got := clock(); got != 0 {
			t.Errorf("at first: got %v ahead, want 0", got)
		}
		n.RunClock(2, time.Hour)
		if got := clock(); got != time.Hour {
			t.Errorf("after a step: got %v ahead, want 1 h", got)
		}
		time.Sleep(400 * time.Millisecond)
		if got := clock(); got != time.Hour+400*time.Millisecond {
			t.Errorf("after 400 ms at twice the speed: got %v ahead, want 1 h and 400 ms", got)
		}
		n.Inside(func(r *miniredis.Miniredis, _ time.Time) {
			if got := r.TTL("k"); got != 200*time.Millisecond {
				t.Errorf("life of the key: got %v, want 200 ms", got)
			}
		})
	})
}

// A node knows a script until it is restarted, answers every script with an error on demand, and
// records what arrives in calls of the library's script.
func TestScriptsOfNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, c := newNode(t)
		args := []any{"", 0, "2000 0 202 0", int(wire.Acquire), 1, "", 100, 0, "a;web 1", 0, int(wire.Rest.Shared()), 2, "p", "a|64", "0", "b|0", "0"}
		call := func() error {
			return c.EvalSha(t.Context(), wire.Requests.Hash, []string{"k~guard", "k", "k", "l"}, args...).Err()
		}
		want := func(what string, err error, of string, calls int) {
			t.Helper()
			if got := fmt.Sprint(err); !strings.HasPrefix(got, of) {
				t.Errorf("%s: got %s, want %s", what, got, of)
			}
			if got := len(n.Calls()); got != calls {
				t.Errorf("%s: got %d requests recorded, want %d", what, got, calls)
			}
		}
		want("at first", call(), "NOSCRIPT", 0)
		if err := c.ScriptLoad(t.Context(), wire.Requests.Source).Err(); err != nil {
			t.Fatal(err)
		}
		n.Put("k", "b|64", 0)
		want("when it is known", call(), "<nil>", 3)
		n.Refuse("LOADING")
		want("refused", call(), "LOADING", 6)
		n.Refuse("")
		n.ForgetCalls()
		want("again", call(), "<nil>", 3)
		for i, want := range []virtual.Call{
			{Op: "acquire", Key: "k", ID: "a;web 1", Before: "b|64"},
			{Op: "rest shared", Key: "k", ID: "a", Before: "b|64"},
			{Op: "rest shared", Key: "l", ID: "b"},
		} {
			want.At = time.Now()
			if got := n.Calls()[i]; got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		}
		n.Restart()
		_ = call() // the connection is broken
		want("after a restart", call(), "NOSCRIPT", 3)
	})
}

func TestMain(m *testing.M) { os.Exit(redistest.Again(m).Run()) }
