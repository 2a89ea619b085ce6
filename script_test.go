package redlock

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock/internal/redistest"
)

const (
	hour    = int64(time.Hour / time.Millisecond)
	minute  = hour / 60
	second  = int64(time.Second / time.Microsecond) // of a node's clock
	theTime = 1760000000 * second                   // what pinned shows
)

// node is one real master, and the keys of the resource that a subtest has for
// itself.
type node struct {
	*redis.Client
	key, counterKey string
	seen            map[op]map[code]bool // by each script
	pinned          bool                 // TIME shows theTime,
	later           int64                // and so many ms more
	micros          int64                // the node's time, as the last script told it
	left            time.Duration        // without a vote, as the last script told it

	guarded bool // by the marker, for a caller who takes the server to be run
	run     string
	longest int64 // largest TTL, ms
	trusted int
}

func (n *node) markerKey() string { return n.key + guardSuffix }

var (
	allOps  = []op{opAcquire, opRaise, opExtend, opRelease}
	sources = map[op]string{opAcquire: acquireLua, opRaise: raiseLua, opExtend: extendLua, opRelease: releaseLua}
)

// fresh is the node with keys that nobody has used.
func (n node) fresh(t *testing.T) *node {
	n.key = "{" + t.Name() + "}"
	n.counterKey = n.key + fenceSuffix
	return &n
}

// pinTime goes in front of a script for which the node's clock stands still.
const pinTime = `local real = redis
local redis = {pcall = real.pcall, call = function(name, ...)
  if name == 'TIME' then return {'%d', '%d'} end
  return real.call(name, ...)
end}
`

func (n *node) send(t *testing.T, o op, args ...any) reply {
	t.Helper()
	return n.parse(t, o, n.eval(t, n, o, args...))
}

// eval sends a request, perhaps as part of a transaction.
func (n *node) eval(t *testing.T, via redis.Scripter, o op, args ...any) *redis.Cmd {
	source := script
	if n.pinned {
		source = fmt.Sprintf(pinTime, theTime/second+n.later/1000, n.later%1000*1000) + source
	}
	run := ""
	if n.guarded {
		run = n.run
	}
	args = append([]any{10 * hour, fenceBlock, run, n.longest, "1.02", n.trusted, int(o)}, args...)
	return via.Eval(t.Context(), source, []string{n.markerKey(), n.key, n.counterKey}, args...)
}

func (n *node) parse(t *testing.T, o op, cmd *redis.Cmd) reply {
	t.Helper()
	switch o {
	case opAcquireAtGate:
		o = opAcquire
	case opReleaseAtGate:
		o = opRelease
	}
	values, err := cmd.Slice()
	if err != nil {
		return reply{err: err}
	}
	h, replies, err := parseReplies(values, 1, nil)
	if err != nil {
		t.Fatalf("%s: got %v: %v", o, values, err)
	}
	n.micros, n.left = h.micros, h.left
	if rep := replies[0]; rep.err == nil {
		if n.seen[o] == nil {
			n.seen[o] = make(map[code]bool)
		}
		n.seen[o][rep.code] = true
	}
	return replies[0]
}

// acquire, raise, extend and release send what each Lua file lists, with a TTL of
// an hour and a counter TTL of ten.
func (n *node) acquire(t *testing.T, id string, notAfter, hint int64) reply {
	t.Helper()
	return n.send(t, opAcquire, id, hour, notAfter, hint)
}

func (n *node) raise(t *testing.T, id string, given, target int64) reply {
	t.Helper()
	return n.send(t, opRaise, id, given, target)
}

func (n *node) extend(t *testing.T, id string, notAfter, given, target int64) reply {
	t.Helper()
	return n.send(t, opExtend, id, hour, notAfter, given, target)
}

func (n *node) release(t *testing.T, id string, given, target int64) reply {
	t.Helper()
	return n.send(t, opRelease, id, given, target)
}

// want checks all of a reply but the node's time.
func (r reply) want(t *testing.T, c code, counter, extra int64) {
	t.Helper()
	if r.err != nil {
		t.Fatalf("got %v, want code %d", r.err, c)
	}
	if r.code != c || r.counter != counter || r.extra != extra {
		t.Fatalf("got code %d, counter %d, extra %d; want %d, %d, %d", r.code, r.counter, r.extra, c, counter, extra)
	}
}

func (n *node) set(t *testing.T, key, value string, ttlMillis int64) {
	t.Helper()
	if err := n.Set(t.Context(), key, value, time.Duration(ttlMillis)*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
}

// wantKeys checks both keys; "" is one that is missing.
func (n *node) wantKeys(t *testing.T, value, counter string) {
	t.Helper()
	for _, k := range [][2]string{{n.key, value}, {n.counterKey, counter}} {
		got, err := n.Get(t.Context(), k[0]).Result()
		if err != nil && !errors.Is(err, redis.Nil) || got != k[1] {
			t.Fatalf("%s: got %q, %v; want %q", k[0], got, err, k[1])
		}
	}
}

// wantTTL checks that a key was given ttl, in ms, less than a minute ago.
func (n *node) wantTTL(t *testing.T, key string, ttl int64) {
	t.Helper()
	got, err := n.Do(t.Context(), "PTTL", key).Int64()
	if err != nil || got > ttl || got <= ttl-minute {
		t.Fatalf("time left of %s: got %d ms, %v; want %d or a little less", key, got, err, ttl)
	}
}

// now is the node's clock in microseconds.
func (n *node) now(t *testing.T) int64 {
	t.Helper()
	now, err := n.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	return now.UnixMicro()
}

func text(id string, counter int64) string { return id + "|" + strconv.FormatInt(counter, 10) }

// Each reply of each script is as the head of its file says, on a real server.
//
// Source: ALGORITHM sections 2 to 6.
func TestScripts(t *testing.T) {
	master := redistest.Masters(t, 1)[0]
	base := node{Client: redistest.Client(t, master.Addr()), seen: make(map[op]map[code]bool)}
	for name, test := range map[string]func(*testing.T, *node){
		"acquire": testAcquire,
		"seed":    testSeed,
		"late":    testLate,
		"badtype": testBadType,
		"raise":   testRaise,
		"extend":  testExtend,
		"release": testRelease,
		"foreign": testForeign,
		"guard":   testGuard,
		"gate":    testGate,
	} {
		t.Run(name, func(t *testing.T) { test(t, &base) })
	}
	t.Run("every code was seen", func(t *testing.T) {
		seen := make(map[code]bool)
		for _, codes := range base.seen {
			maps.Copy(seen, codes)
		}
		want := codesOfGo(t)
		if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, want) {
			t.Errorf("got the codes %v, script.go has %v", got, want)
		}
	})
	t.Run("every code of a file was seen from it", func(t *testing.T) {
		for _, o := range allOps {
			got := slices.Sorted(maps.Keys(base.seen[o]))
			if want := codesOfBody(sources[o]); !slices.Equal(got, want) {
				t.Errorf("%s.lua: got %v, it can give %v", o, got, want)
			}
		}
	})
}

// testGuard goes through the table of the restart guard: what the marker says, and what that
// does to votes.
//
// Source: ALGORITHM section 8.
func testGuard(t *testing.T, base *node) {
	own := parseInfo(base.Info(t.Context()).Val()).identity()
	const whole = 1020 + 100 // ms, for a largest TTL of a second
	guarded := func(t *testing.T, run string) *node {
		n := base.fresh(t)
		n.guarded, n.run, n.longest, n.pinned = true, run, second/1000, true
		return n
	}
	mark := func(t *testing.T, n *node, run string, age, longest int64) {
		t.Helper()
		err := n.HSet(t.Context(), n.markerKey(), "run", run, "born", theTime/1000-age, "maxttl", longest).Err()
		if err != nil {
			t.Fatal(err)
		}
	}
	wantMarker := func(t *testing.T, n *node, run string, age, longest int64) {
		t.Helper()
		got := n.HGetAll(t.Context(), n.markerKey()).Val()
		want := map[string]string{"run": run, "born": strconv.FormatInt(theTime/1000-age, 10), "maxttl": strconv.FormatInt(longest, 10)}
		if !maps.Equal(got, want) {
			t.Errorf("marker: got %v, want %v", got, want)
		}
	}
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

	t.Run("a new node holds the place and has no vote", func(t *testing.T) {
		n := guarded(t, own)
		n.acquire(t, "a", 0, 0).want(t, codePlanted, 0, whole)
		n.wantKeys(t, "a|0", "")
		wantMarker(t, n, own, 0, 1000)
		n.acquire(t, "a", 0, 0).want(t, codePlanted, 0, whole)
		n.acquire(t, "b", 0, 0).wantOneOf(t, "busy alone", codeBusy)
		n.extend(t, "a", 0, 0, 64).want(t, codeKeptVoteless, 0, whole)
		n.extend(t, "b", 0, 0, 64).want(t, codeTaken, 0, 0)
		n.release(t, "a", 0, 64).want(t, codeReleased, 0, 0)
		n.extend(t, "a", 0, 0, 64).want(t, codeFilledVoteless, 0, whole)
		if n.left != ms(whole) {
			t.Errorf("heading: got %v left, want %v", n.left, ms(whole))
		}
	})
	t.Run("it has a vote when the quarantine is over, to the millisecond", func(t *testing.T) {
		n := guarded(t, own)
		mark(t, n, own, whole-1, 1000)
		n.acquire(t, "a", 0, 0).want(t, codePlanted, 0, 1)
		n.release(t, "a", 0, 0).want(t, codeReleased, 0, 0)
		mark(t, n, own, whole, 1000)
		n.acquire(t, "a", 0, 0).want(t, codeGranted, theTime, 0)
		n.acquire(t, "a", 0, 0).want(t, codeMine, theTime, 0)
		n.extend(t, "a", 0, theTime, theTime).want(t, codeKept, 0, 0)
		if n.left != 0 {
			t.Errorf("heading: got %v left, want none", n.left)
		}
	})
	t.Run("a grant from before the quarantine is no vote in it", func(t *testing.T) {
		n := guarded(t, own)
		n.set(t, n.key, "a|64", hour)
		n.set(t, n.counterKey, "64", hour)
		mark(t, n, "another", 10*whole, 1000)
		n.acquire(t, "a", 0, 0).want(t, codePlanted, 0, whole)
		n.extend(t, "a", 0, 64, 64).want(t, codeKeptVoteless, 0, whole)
		n.wantKeys(t, "a|64", "64")
		wantMarker(t, n, own, 0, 1000)
	})
	t.Run("a marker of another server is a restart, unless the disk is trusted", func(t *testing.T) {
		n := guarded(t, own)
		n.trusted = 1
		mark(t, n, "another", 10*whole, 1000)
		n.acquire(t, "a", 0, 0).want(t, codeGranted, theTime, 0)
		wantMarker(t, n, own, 10*whole, 1000)
	})
	t.Run("a trusted disk that is empty is not trusted", func(t *testing.T) {
		n := guarded(t, own)
		n.trusted = 1
		n.acquire(t, "a", 0, 0).want(t, codePlanted, 0, whole)
	})
	t.Run("a caller that is behind changes nothing", func(t *testing.T) {
		n := guarded(t, "the run before")
		mark(t, n, own, 10*whole, 1000)
		n.set(t, n.key, "a|64", hour)
		n.acquire(t, "b", 0, 0).want(t, codeStale, 0, 0)
		n.extend(t, "a", 0, 64, 64).want(t, codeStale, 0, 0)
		wantMarker(t, n, own, 10*whole, 1000)
		n.wantKeys(t, "a|64", "")
		n.release(t, "a", 64, 64).want(t, codeReleased, 0, 0)
	})
	t.Run("a caller that is behind is told so by the marker script, too", func(t *testing.T) {
		for _, what := range []string{markerLook, markerVouch, markerMark} {
			n := guarded(t, own)
			n.Del(t.Context(), n.markerKey())
			g := guarding{args: [6]any{hour, fenceBlock, "the run before", 1000, "1.02", 0}}
			var left []any
			for range 2 {
				reply, err := n.Eval(t.Context(), markerScript, []string{n.markerKey()}, append(g.args[:], what, "list", "", "")...).Slice()
				if err != nil || len(reply) != 6 {
					t.Fatalf("%s: got %v, %v; want six values", what, reply, err)
				}
				left = append(left, reply[1])
			}
			// Without a marker a look learns by itself who the node is.
			if want := map[string]int64{markerLook: whole, markerVouch: -1, markerMark: -1}[what]; left[0] != want || left[1] != int64(-1) {
				t.Errorf("%s: got %v left without a marker and with one, want %d and -1", what, left, want)
			}
		}
	})
	t.Run("a caller without the run id goes by the marker alone", func(t *testing.T) {
		n := guarded(t, unknownRun)
		n.acquire(t, "a", 0, 0).want(t, codePlanted, 0, whole)
		wantMarker(t, n, own, 0, 1000)
		mark(t, n, "another", 10*whole, 1000)
		n.release(t, "a", 0, 0)
		n.acquire(t, "a", 0, 0).want(t, codeGranted, theTime, 0)
	})
	t.Run("the largest TTL of any caller counts", func(t *testing.T) {
		n := guarded(t, own)
		mark(t, n, own, whole, 1000)
		n.longest = 2000
		n.acquire(t, "a", 0, 0).want(t, codePlanted, 0, 1020)
		wantMarker(t, n, own, whole, 2000)
		n.longest = 500
		n.acquire(t, "a", 0, 0).want(t, codePlanted, 0, 1020)
		wantMarker(t, n, own, whole, 2000)
	})
	t.Run("a clock put back makes no quarantine longer than whole", func(t *testing.T) {
		n := guarded(t, own)
		mark(t, n, own, -hour, 1000)
		n.acquire(t, "a", 0, 0).want(t, codePlanted, 0, whole)
		wantMarker(t, n, own, 0, 1000)
	})
	t.Run("half a marker is none", func(t *testing.T) {
		for _, field := range []string{"run", "born", "maxttl"} {
			n := guarded(t, own)
			mark(t, n, own, 10*whole, 1000)
			n.HDel(t.Context(), n.markerKey(), field)
			n.acquire(t, "a", 0, 0).want(t, codePlanted, 0, whole)
			n.Del(t.Context(), n.key, n.markerKey())
		}
	})
	t.Run("a marker of the wrong type is no vote", func(t *testing.T) {
		n := guarded(t, own)
		n.set(t, n.markerKey(), "x", 0)
		for name, rep := range map[string]reply{"acquire": n.acquire(t, "a", 0, 0), "extend": n.extend(t, "a", 0, 0, 64)} {
			if !says(rep.err, "WRONGTYPE") {
				t.Errorf("%s: got code %d, %v; want WRONGTYPE", name, rep.code, rep.err)
			}
		}
		n.release(t, "a", 0, 0).want(t, codeGone, 0, 0)
		n.wantKeys(t, "", "")
	})
}

func testAcquire(t *testing.T, base *node) {
	t.Run("a free lock is granted", func(t *testing.T) {
		n := base.fresh(t)
		before := n.now(t)
		rep := n.acquire(t, "a", 0, 0)
		after := n.now(t)
		if n.micros < before || n.micros > after {
			t.Errorf("node time: got %d, want from %d to %d", n.micros, before, after)
		}
		rep.want(t, codeGranted, n.micros, 0) // a missing counter starts at the node's clock
		n.wantKeys(t, text("a", rep.counter), strconv.FormatInt(rep.counter, 10))
		n.wantTTL(t, n.key, hour)
		n.wantTTL(t, n.counterKey, 10*hour)
	})
	t.Run("sent again it is mine, with the same counter", func(t *testing.T) {
		n := base.fresh(t)
		first := n.acquire(t, "a", 0, 0)
		for range 2 {
			n.acquire(t, "a", 0, 0).want(t, codeMine, first.counter, 0)
		}
		n.wantKeys(t, text("a", first.counter), strconv.FormatInt(first.counter, 10))
	})
	t.Run("each grant moves the counter by a block and renews its life", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.counterKey, "1000", hour)
		for i := range int64(3) {
			c := 1000 + 64*(i+1)
			n.acquire(t, "a"+text("", i), 0, 0).want(t, codeGranted, c, 0)
			n.wantTTL(t, n.counterKey, 10*hour)
			n.release(t, "a"+text("", i), c, c).want(t, codeReleased, 0, 0)
		}
	})
	t.Run("a counter without expiry gets one", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.counterKey, "1000", 0)
		n.acquire(t, "a", 0, 0).want(t, codeGranted, 1064, 0)
		n.wantTTL(t, n.counterKey, 10*hour)
	})
	t.Run("numbers above 1e15 keep all digits", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.counterKey, "1760000000000000", 0)
		n.acquire(t, "a", 0, 0).want(t, codeGranted, 1760000000000064, 0)
		n.wantKeys(t, "a|1760000000000064", "1760000000000064")
		n.acquire(t, "a", 0, 0).want(t, codeMine, 1760000000000064, 0)
		n.release(t, "a", 1760000000000064, 1760000000000065).want(t, codeReleased, 0, 0)
		n.wantKeys(t, "", "1760000000000065")
		n.acquire(t, "b", 0, 0).want(t, codeGranted, 1760000000000129, 0)
		n.wantKeys(t, "b|1760000000000129", "1760000000000129")
	})
	t.Run("another's key is busy, with what it has left", func(t *testing.T) {
		n := base.fresh(t)
		first := n.acquire(t, "a", 0, 0)
		rep := n.acquire(t, "b", 0, 0)
		if rep.extra > hour || rep.extra <= hour-minute {
			t.Errorf("time left: got %d ms, want %d or a little less", rep.extra, hour)
		}
		rep.want(t, codeBusy, 0, rep.extra)
		n.wantKeys(t, text("a", first.counter), strconv.FormatInt(first.counter, 10))
	})
	t.Run("another's key that never expires is busy with -1", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.key, "b|64", 0)
		n.acquire(t, "a", 0, 0).want(t, codeBusy, 0, -1)
		n.wantKeys(t, "b|64", "")
	})
	t.Run("the attempt's own key without a counter is planted, and no vote", func(t *testing.T) {
		for _, value := range []string{"a|0", "a|", "a|x", "a|-1"} {
			n := base.fresh(t)
			n.set(t, n.key, value, hour)
			rep := n.acquire(t, "a", 0, 0)
			rep.want(t, codePlanted, 0, 0)
			if rep.refusal(n.key, n.counterKey) == nil {
				t.Errorf("%q counts as a vote", value)
			}
			n.wantKeys(t, value, "")
		}
	})
}

func testSeed(t *testing.T, base *node) {
	for _, test := range []struct {
		name       string
		hint, want int64 // from theTime
	}{
		{"no hint", -theTime, 0},
		{"a hint at the node's time", 0, 0},
		{"a hint just ahead", 1, 1},
		{"a hint one second ahead", second, second},
		{"a hint more than a second ahead is ignored", second + 1, 0},
		{"a hint far ahead is ignored", 3600 * second, 0},
		{"a hint behind is ignored", -1, 0},
		{"a negative hint is ignored", -2 * theTime, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := base.fresh(t)
			n.pinned = true
			rep := n.acquire(t, "a", 0, theTime+test.hint)
			rep.want(t, codeGranted, theTime+test.want, 0)
			if n.micros != theTime {
				t.Errorf("node time: got %d, want %d", n.micros, theTime)
			}
			n.wantKeys(t, text("a", theTime+test.want), strconv.FormatInt(theTime+test.want, 10))
			n.wantTTL(t, n.counterKey, 10*hour)
		})
	}
	t.Run("a hint does not touch a counter that is there", func(t *testing.T) {
		n := base.fresh(t)
		n.pinned = true
		n.set(t, n.counterKey, "5", 0)
		n.acquire(t, "a", 0, theTime+1).want(t, codeGranted, 69, 0)
	})
	t.Run("with the node's own clock", func(t *testing.T) {
		n := base.fresh(t)
		hint := n.now(t) + second/2
		rep := n.acquire(t, "a", 0, hint)
		want := n.micros
		if want <= hint && hint <= want+second {
			want = hint
		}
		rep.want(t, codeGranted, want, 0)
	})
}

func testLate(t *testing.T, base *node) {
	send := map[string]func(*testing.T, *node, int64) reply{
		"acquire": func(t *testing.T, n *node, notAfter int64) reply { return n.acquire(t, "a", notAfter, 0) },
		"extend":  func(t *testing.T, n *node, notAfter int64) reply { return n.extend(t, "a", notAfter, 64, 128) },
	}
	for name, send := range send {
		t.Run(name+" on a free lock leaves nothing", func(t *testing.T) {
			n := base.fresh(t)
			send(t, n, 1).want(t, codeLate, 0, 0)
			n.wantKeys(t, "", "")
		})
		t.Run(name+" on its own lock changes nothing", func(t *testing.T) {
			n := base.fresh(t)
			n.set(t, n.key, "a|64", 30*minute)
			n.set(t, n.counterKey, "64", 30*minute)
			rep := send(t, n, n.now(t)-1)
			rep.want(t, codeLate, 0, 0)
			if n.micros <= 0 {
				t.Errorf("node time: got %d", n.micros)
			}
			n.wantKeys(t, "a|64", "64")
			n.wantTTL(t, n.key, 30*minute)
			n.wantTTL(t, n.counterKey, 30*minute)
		})
		t.Run(name+" one microsecond after its time is late", func(t *testing.T) {
			n := base.fresh(t)
			n.pinned = true
			send(t, n, theTime-1).want(t, codeLate, 0, 0)
			n.wantKeys(t, "", "")
		})
		t.Run(name+" at its time is not", func(t *testing.T) {
			n := base.fresh(t)
			n.pinned = true
			if rep := send(t, n, theTime); rep.err != nil || rep.code == codeLate {
				t.Errorf("got code %d, %v", rep.code, rep.err)
			}
		})
		t.Run(name+" well before its time is not", func(t *testing.T) {
			n := base.fresh(t)
			if rep := send(t, n, n.now(t)+3600*second); rep.err != nil || rep.code == codeLate {
				t.Errorf("got code %d, %v", rep.code, rep.err)
			}
		})
	}
}

func testBadType(t *testing.T, base *node) {
	list := func(t *testing.T, n *node, key string) {
		t.Helper()
		if err := n.RPush(t.Context(), key, "x").Err(); err != nil {
			t.Fatal(err)
		}
	}
	// wantList checks that a list has been left as it was.
	wantList := func(t *testing.T, n *node, key string) {
		t.Helper()
		got, err := n.LRange(t.Context(), key, 0, -1).Result()
		if err != nil || !slices.Equal(got, []string{"x"}) {
			t.Fatalf("%s: got %q, %v; want the list that was there", key, got, err)
		}
	}
	wantSentinel := func(t *testing.T, n *node, rep reply, key string) {
		t.Helper()
		err := rep.refusal(n.key, n.counterKey)
		if !errors.Is(err, ErrWrongType) || !strings.Contains(err.Error(), strconv.Quote(key)) {
			t.Errorf("got %v, want ErrWrongType and the key %q", err, key)
		}
	}
	t.Run("a list for a key", func(t *testing.T) {
		n := base.fresh(t)
		list(t, n, n.key)
		rep := n.acquire(t, "a", 0, 0)
		rep.want(t, codeBadType, 0, 1)
		wantSentinel(t, n, rep, n.key)
		rep = n.extend(t, "a", 0, 64, 64)
		rep.want(t, codeBadType, 0, 1)
		wantSentinel(t, n, rep, n.key)
		n.raise(t, "a", 64, 128).want(t, codeUnheld, 0, 0)
		n.release(t, "a", 64, 64).want(t, codeGone, 0, 0)
		wantList(t, n, n.key)
		if got := n.Exists(t.Context(), n.counterKey).Val(); got != 0 {
			t.Error("a counter was left")
		}
	})
	t.Run("a list for a counter", func(t *testing.T) {
		n := base.fresh(t)
		list(t, n, n.counterKey)
		rep := n.acquire(t, "a", 0, 0)
		rep.want(t, codeBadType, 0, 2)
		wantSentinel(t, n, rep, n.counterKey)
		if got := n.Exists(t.Context(), n.key).Val(); got != 0 {
			t.Error("a key was left")
		}
		// What has the key already can keep it and give it back.
		n.set(t, n.key, "a|64", minute)
		n.extend(t, "a", 0, 64, 128).want(t, codeKept, 0, 0)
		n.release(t, "a", 64, 128).want(t, codeReleased, 0, 0)
		wantList(t, n, n.counterKey)
	})
	for _, value := range []string{"abc", "", "12x", "1 2"} {
		t.Run(fmt.Sprintf("a counter that is %q", value), func(t *testing.T) {
			n := base.fresh(t)
			n.set(t, n.counterKey, value, 0)
			rep := n.acquire(t, "a", 0, 0)
			rep.want(t, codeBadType, 0, 2)
			wantSentinel(t, n, rep, n.counterKey)
			n.wantKeys(t, "", value)
		})
	}
}

func testRaise(t *testing.T, base *node) {
	t.Run("a lower counter is raised, and its life renewed", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.key, "a|64", 30*minute)
		n.set(t, n.counterKey, "64", hour)
		for range 2 { // sent again it does the same
			rep := n.raise(t, "a", 64, 1760000000000064)
			rep.want(t, codeRaised, 0, 0)
			n.wantKeys(t, "a|64", "1760000000000064")
			n.wantTTL(t, n.counterKey, 10*hour)
			n.wantTTL(t, n.key, 30*minute)
		}
	})
	t.Run("a higher counter is left alone", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.key, "a|64", 30*minute)
		n.set(t, n.counterKey, "1000", 0)
		n.raise(t, "a", 64, 128).want(t, codeRaised, 0, 0)
		n.wantKeys(t, "a|64", "1000")
	})
	t.Run("a missing counter is set, where the key is held", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.key, "a|64", 30*minute)
		n.raise(t, "a", 64, 128).want(t, codeRaised, 0, 0)
		n.wantKeys(t, "a|64", "128")
	})
	for name, value := range map[string]string{
		"no key":                         "",
		"another's key":                  "b|64",
		"the same id with another count": "a|128",
		"the same id without a count":    "a|0",
		"an id that begins alike":        "ab|64",
		"a count that begins alike":      "a|640",
		"a foreign value":                "a",
	} {
		t.Run(name+" is not held", func(t *testing.T) {
			n := base.fresh(t)
			if value != "" {
				n.set(t, n.key, value, 30*minute)
			}
			n.set(t, n.counterKey, "64", hour)
			n.raise(t, "a", 64, 1000).want(t, codeUnheld, 0, 0)
			n.wantKeys(t, value, "64")
			n.wantTTL(t, n.counterKey, hour)
		})
	}
}

func testExtend(t *testing.T, base *node) {
	t.Run("an own key is kept and lives for the TTL", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.key, "a|64", 30*minute)
		n.set(t, n.counterKey, "64", hour)
		for range 2 { // sent again it does the same
			before := n.now(t)
			rep := n.extend(t, "a", 0, 64, 64)
			rep.want(t, codeKept, 0, 0)
			if after := n.now(t); n.micros < before || n.micros > after {
				t.Errorf("node time: got %d, want from %d to %d", n.micros, before, after)
			}
			n.wantKeys(t, "a|64", "64")
			n.wantTTL(t, n.key, hour)
			n.wantTTL(t, n.counterKey, 10*hour)
		}
	})
	t.Run("a longer life is not shortened", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.key, "a|64", 2*hour)
		n.extend(t, "a", 0, 64, 64).want(t, codeKept, 0, 0)
		n.wantTTL(t, n.key, 2*hour)
	})
	t.Run("a missing key is filled", func(t *testing.T) {
		n := base.fresh(t)
		n.extend(t, "a", 0, 64, 128).want(t, codeFilled, 0, 0)
		n.wantKeys(t, "a|0", "") // and no counter made
		n.wantTTL(t, n.key, hour)
		n.extend(t, "a", 0, 0, 128).want(t, codeKept, 0, 0) // sent again, it is there
		n.wantKeys(t, "a|0", "")
		n.release(t, "a", 0, 128).want(t, codeReleased, 0, 0)
		n.wantKeys(t, "", "")
	})
	t.Run("a missing counter is not created", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.key, "a|64", minute)
		n.extend(t, "a", 0, 64, 128).want(t, codeKept, 0, 0)
		n.wantKeys(t, "a|64", "")
	})
	t.Run("a filled key leaves a counter alone", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.counterKey, "64", hour)
		n.extend(t, "a", 0, 0, 128).want(t, codeFilled, 0, 0)
		n.extend(t, "a", 0, 0, 128).want(t, codeKept, 0, 0)
		n.wantKeys(t, "a|0", "64")
		n.wantTTL(t, n.counterKey, hour)
	})
	for _, test := range []struct {
		name, value   string
		given, target int64
		want          string // of a counter that was at 64
	}{
		{"a lower counter is raised by the exact grant", "a|64", 64, 1760000000000064, "1760000000000064"},
		{"a higher counter is left alone", "a|32", 32, 48, "64"},
		{"another count of the same id raises nothing", "a|128", 64, 1000, "64"},
		{"an unknown count raises nothing", "a|64", 0, 1000, "64"},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := base.fresh(t)
			n.set(t, n.key, test.value, minute)
			n.set(t, n.counterKey, "64", hour)
			n.extend(t, "a", 0, test.given, test.target).want(t, codeKept, 0, 0)
			n.wantKeys(t, test.value, test.want)
			n.wantTTL(t, n.key, hour)
		})
	}
	t.Run("another's key is taken", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.key, "b|64", 30*minute)
		n.set(t, n.counterKey, "64", hour)
		n.extend(t, "a", 0, 64, 128).want(t, codeTaken, 0, 0)
		n.wantKeys(t, "b|64", "64")
		n.wantTTL(t, n.key, 30*minute)
		n.wantTTL(t, n.counterKey, hour)
	})
}

func testRelease(t *testing.T, base *node) {
	t.Run("an own key is deleted, once", func(t *testing.T) {
		n := base.fresh(t)
		c := n.acquire(t, "a", 0, 0).counter
		rep := n.release(t, "a", c, c)
		rep.want(t, codeReleased, 0, 0)
		if n.micros != 0 {
			t.Errorf("node time: got %d, want none", n.micros)
		}
		n.wantKeys(t, "", strconv.FormatInt(c, 10))
		n.release(t, "a", c, c).want(t, codeGone, 0, 0) // sent again
		n.wantKeys(t, "", strconv.FormatInt(c, 10))
	})
	t.Run("an own key is deleted by its id alone", func(t *testing.T) {
		n := base.fresh(t)
		for value, given := range map[string]int64{"a|64": 0, "a|128": 64, "a|0": 0, "a|": 0} {
			n.set(t, n.key, value, minute)
			n.release(t, "a", given, 0).want(t, codeReleased, 0, 0)
			n.wantKeys(t, "", "")
		}
	})
	for _, test := range []struct {
		name, value   string
		given, target int64
		counter, want string
	}{
		{"a lower counter is raised by the exact grant", "a|64", 64, 1760000000000128, "64", "1760000000000128"},
		{"a higher counter is left alone", "a|64", 64, 128, "1000", "1000"},
		{"an equal counter is left alone", "a|64", 64, 128, "128", "128"},
		{"a missing counter is not created", "a|64", 64, 128, "", ""},
		{"another count of the same id raises nothing", "a|128", 64, 1000, "64", "64"},
		{"an unknown count raises nothing", "a|64", 0, 1000, "64", "64"},
		{"a filled key raises nothing", "a|0", 0, 1000, "64", "64"},
		{"without a lease nothing is raised", "a|64", 64, 0, "32", "32"},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := base.fresh(t)
			n.set(t, n.key, test.value, minute)
			if test.counter != "" {
				n.set(t, n.counterKey, test.counter, hour)
			}
			n.release(t, "a", test.given, test.target).want(t, codeReleased, 0, 0)
			n.wantKeys(t, "", test.want)
			switch {
			case test.want != test.counter:
				n.wantTTL(t, n.counterKey, 10*hour)
			case test.counter != "":
				n.wantTTL(t, n.counterKey, hour)
			}
		})
	}
	t.Run("a counter that is no number does not keep the key", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.key, "a|64", minute)
		n.set(t, n.counterKey, "abc", hour)
		n.release(t, "a", 64, 128).want(t, codeReleased, 0, 0)
		if got := n.Exists(t.Context(), n.key).Val(); got != 0 {
			t.Error("the key is there still")
		}
	})
}

// testForeign sends all scripts to keys that they do not own.
//
// Source: ALGORITHM section 13, I9.
func testForeign(t *testing.T, base *node) {
	for name, value := range map[string]string{
		"another attempt's":              "b|64",
		"an id that begins alike":        "ab|1",
		"an id that ends alike":          "ba|64",
		"the id alone":                   "a",
		"a value without a bar":          "vKx0Fm3sQm9yT1pQ",
		"the id behind a bar":            "|a|64",
		"a bar alone":                    "|",
		"an empty value":                 "",
		"the id in capitals":             "A|64",
		"the id behind a space":          " a|64",
		"the id with a zero byte behind": "a\x00|64",
	} {
		for _, ttl := range []int64{0, 30 * minute} {
			t.Run(fmt.Sprintf("%s, life %d ms", name, ttl), func(t *testing.T) {
				n := base.fresh(t)
				n.set(t, n.key, value, ttl)
				n.set(t, n.counterKey, "64", 0)
				rep := n.acquire(t, "a", 0, 0)
				rep.want(t, codeBusy, 0, rep.extra)
				n.raise(t, "a", 64, 1000).want(t, codeUnheld, 0, 0)
				n.extend(t, "a", 0, 64, 1000).want(t, codeTaken, 0, 0)
				n.release(t, "a", 64, 1000).want(t, codeGone, 0, 0)
				n.wantKeys(t, value, "64")
				if got := n.Exists(t.Context(), n.key).Val(); got != 1 {
					t.Error("the key is gone")
				}
				if ttl > 0 {
					n.wantTTL(t, n.key, ttl)
				}
				for key, never := range map[string]bool{n.key: ttl == 0, n.counterKey: true} {
					if left, err := n.Do(t.Context(), "PTTL", key).Int64(); err != nil || never && left != -1 {
						t.Errorf("%s: got %d ms left, %v; want no expiry", key, left, err)
					}
				}
			})
		}
	}
}

// A node that is out of memory grants nothing, but keeps and gives back what it has.
//
// Source: ALGORITHM section 5 ("never skipped").
func TestScriptsOutOfMemory(t *testing.T) {
	master := redistest.Masters(t, 1, "--maxmemory-policy", "noeviction")[0]
	base := node{Client: redistest.Client(t, master.Addr()), seen: make(map[op]map[code]bool)}
	n := base.fresh(t)
	n.set(t, n.key, "a|64", 30*minute)
	n.set(t, n.counterKey, "64", hour)
	free := *n
	free.key, free.counterKey = n.key+"free", n.key+"free"+fenceSuffix
	if err := n.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	for name, rep := range map[string]reply{"acquire": free.acquire(t, "a", 0, 0), "extend": free.extend(t, "a", 0, 0, 64)} {
		if !redis.HasErrorPrefix(rep.err, "OOM") {
			t.Errorf("%s: got code %d, %v; want an error that begins with OOM", name, rep.code, rep.err)
		}
	}
	free.wantKeys(t, "", "")

	n.acquire(t, "b", 0, 0).wantOneOf(t, "OOM", codeBusy)
	n.wantKeys(t, "a|64", "64")
	n.extend(t, "a", 0, 64, 128).want(t, codeKept, 0, 0)
	n.wantTTL(t, n.key, hour)
	n.release(t, "a", 64, 192).want(t, codeReleased, 0, 0)
	if got := n.Exists(t.Context(), n.key).Val(); got != 0 {
		t.Error("the key is there still")
	}
	if c, err := n.Get(t.Context(), n.counterKey).Int64(); err != nil || c < 64 {
		t.Errorf("counter: got %d, %v; want no less than before", c, err)
	}
}

// wantOneOf checks for an error with a prefix, or a code.
func (r reply) wantOneOf(t *testing.T, prefix string, c code) {
	t.Helper()
	if r.err != nil && !redis.HasErrorPrefix(r.err, prefix) || r.err == nil && r.code != c {
		t.Errorf("got code %d, %v; want %s or code %d", r.code, r.err, prefix, c)
	}
}

// codesOfGo is the constants of type code in script.go.
func codesOfGo(t *testing.T) []code {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "script.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var codes []code
	ast.Inspect(file, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok {
			if id, ok := v.Type.(*ast.Ident); ok && id.Name == "code" {
				c, err := strconv.Atoi(v.Values[0].(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				codes = append(codes, code(c))
			}
		}
		return true
	})
	slices.Sort(codes)
	if len(codes) == 0 {
		t.Fatal("no codes found: this test looks for them in the wrong way")
	}
	return codes
}

// codesOfBody is the codes that a Lua file can reply.
func codesOfBody(source string) []code {
	return codesIn(source, `\breturn (\d+)\b`)
}

// codesOfHead is the codes that the comment at the top of a Lua file lists.
func codesOfHead(source string) []code {
	var head []string
	for line := range strings.Lines(source) {
		if !strings.HasPrefix(line, "--") {
			break
		}
		head = append(head, line)
	}
	return codesIn(strings.Join(head, ""), `(?m)(?:^--   |, )(\d+) +[a-z]+ ?`)
}

func codesIn(s, pattern string) []code {
	found := make(map[code]bool)
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(s, -1) {
		c, _ := strconv.Atoi(m[1]) // it is digits
		found[code(c)] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// The head of each Lua file lists the replies that its body gives, and the library
// sends the arguments that it lists.
func TestScriptHeads(t *testing.T) {
	all := make(map[code]bool)
	for _, o := range allOps {
		t.Run(o.String(), func(t *testing.T) {
			source := sources[o]
			head, body := codesOfHead(source), codesOfBody(source)
			if !slices.Equal(head, body) || len(body) == 0 {
				t.Errorf("its head lists %v, its body gives %v", head, body)
			}
			for _, c := range body {
				all[c] = true
			}
			if !strings.HasPrefix(source, "-- "+o.String()+": ") {
				t.Errorf("it begins with %q", source[:20])
			}
			last := 0
			for _, m := range regexp.MustCompile(`at \+ (\d+)`).FindAllStringSubmatch(source, -1) {
				i, _ := strconv.Atoi(m[1])
				last = max(last, i)
			}
			r := &request{op: o, grant: &grant{}}
			if o == opAcquire || o == opRelease {
				r.who = nobody // at the gate they take one more
			}
			if got := len(r.appendArgs(nil)); got != 1+last {
				t.Errorf("%d arguments are sent, it has %d", got, 1+last)
			}
		})
	}
	if got, want := slices.Sorted(maps.Keys(all)), codesOfGo(t); !slices.Equal(got, want) {
		t.Errorf("the files give %v, script.go has %v", got, want)
	}
}

// No script turns a number into text by the language's own conversion.
//
// Source: ALGORITHM section 2, "never tostring".
func TestScriptsWriteNumbersByFormat(t *testing.T) {
	for _, o := range allOps {
		if strings.Contains(sources[o], "tostring") {
			t.Errorf("%s.lua: tostring loses digits above 1e15", o)
		}
	}
	if n := strings.Count(script, "'TIME'"); n != 1 {
		t.Errorf("TIME is read in %d places, want one", n)
	}
}

// What the library sends is in the order that the Lua files read it: an attempt goes
// through all four.
func TestRequestsOnARealServer(t *testing.T) {
	master := redistest.Masters(t, 1)[0]
	base := node{Client: redistest.Client(t, master.Addr()), seen: make(map[op]map[code]bool)}
	n := base.fresh(t)
	g := &grant{id: "a", key: n.key, counterKey: n.counterKey, ttlMillis: hour}
	send := func(r request) reply {
		t.Helper()
		r.grant = g
		args := r.appendArgs(nil)
		return n.send(t, r.op, args[1:]...)
	}
	send(request{op: opAcquire, notAfter: 1}).want(t, codeLate, 0, 0)
	hint := n.now(t) + second/2
	granted := send(request{op: opAcquire, target: hint, notAfter: hint + 3600*second})
	if granted.counter != hint && granted.counter != n.micros {
		t.Errorf("counter: got %d, want the hint %d", granted.counter, hint)
	}
	c := granted.counter
	granted.want(t, codeGranted, c, 0)
	n.wantKeys(t, text("a", c), strconv.FormatInt(c, 10))
	n.wantTTL(t, n.key, hour)
	n.wantTTL(t, n.counterKey, 10*hour)
	send(request{op: opRaise, counter: c, target: c + 1}).want(t, codeRaised, 0, 0)
	n.wantKeys(t, text("a", c), strconv.FormatInt(c+1, 10))
	send(request{op: opExtend, counter: c, target: c + 2, notAfter: 1}).want(t, codeLate, 0, 0)
	g.ttlMillis = 2 * hour
	send(request{op: opExtend, counter: c, target: c + 2}).want(t, codeKept, 0, 0)
	n.wantKeys(t, text("a", c), strconv.FormatInt(c+2, 10))
	n.wantTTL(t, n.key, 2*hour)
	n.wantTTL(t, n.counterKey, 10*hour)
	send(request{op: opRelease, counter: c, target: c + 3}).want(t, codeReleased, 0, 0)
	n.wantKeys(t, "", strconv.FormatInt(c+3, 10))
	n.wantTTL(t, n.counterKey, 10*hour)
}

// By hash a server that does not know the script says so, and has done nothing.
func TestNoScript(t *testing.T) {
	master := redistest.Masters(t, 1)[0]
	c := redistest.Client(t, master.Addr())
	call := func(by [2]any) error {
		return c.Do(t.Context(), by[0], by[1], 3, "no marker", "k", "c", 1000, fenceBlock, "", 1000, "1.02", 0, int(opAcquire), "a", 1000, 0, 0).Err()
	}
	if err := call(evalsha); !says(err, "NOSCRIPT") || !isReply(err) {
		t.Errorf("got %v, want NOSCRIPT", err)
	}
	if n := c.Exists(t.Context(), "k", "c").Val(); n != 0 {
		t.Errorf("got %d keys, want none", n)
	}
	if err := call(eval); err != nil {
		t.Errorf("by source: got %v", err)
	}
	if err := call(evalsha); err != nil {
		t.Errorf("by hash, now that it is known: got %v", err)
	}
}

// A batch carries out its requests in order, each for itself: what one is refused with
// touches no other.
func TestBatch(t *testing.T) {
	master := redistest.Masters(t, 1)[0]
	c := redistest.Client(t, master.Addr())
	if err := c.LPush(t.Context(), "list", "x").Err(); err != nil {
		t.Fatal(err)
	}
	if err := c.Do(t.Context(), "ACL", "SETUSER", "default", "-del").Err(); err != nil {
		t.Fatal(err)
	}
	requests := []struct {
		key  string
		r    request
		want code // 0: an error
	}{
		{"a", request{op: opAcquire}, codeGranted},
		{"list", request{op: opAcquire}, codeBadType},
		{"a", request{op: opExtend}, codeKept},
		{"a", request{op: opRelease}, 0}, // the user may not delete
		{"b", request{op: opAcquire, notAfter: 1}, codeLate},
		{"c", request{op: opRaise}, codeUnheld},
		{"c", request{op: opRelease}, codeGone},
		{"a", request{op: opAcquire}, codeMine},
	}
	call := []any{eval[0], eval[1], 1 + 2*len(requests), "no marker"}
	for _, q := range requests {
		call = append(call, q.key, q.key+fenceSuffix)
	}
	call = append(call, 1000, fenceBlock, "", 1000, "1.02", 0)
	for i := range requests {
		q := &requests[i]
		q.r.grant = &grant{id: "id", ttlMillis: minute}
		call = q.r.appendArgs(call)
	}
	values, err := c.Do(t.Context(), call...).Slice()
	if err != nil {
		t.Fatal(err)
	}
	h, replies, err := parseReplies(values, len(requests), nil)
	if err != nil || h.micros == 0 {
		t.Fatalf("got node time %d, %v", h.micros, err)
	}
	for i, q := range requests {
		rep := replies[i]
		if q.want == 0 && !errors.Is(nodeFailure(rep.err), ErrPermission) || q.want != 0 && (rep.err != nil || rep.code != q.want) {
			t.Errorf("%d, %s of %q: got code %d, %v; want %d", i, q.r.op, q.key, rep.code, rep.err, q.want)
		}
	}
}

// A reply that the script cannot have given is an error.
func TestParseReplies(t *testing.T) {
	for _, values := range [][]any{
		nil,
		{int64(1)},
		{int64(1), int64(0), int64(1), int64(64)},
		{int64(1), int64(0), int64(1), int64(64), int64(0), int64(0)},
		{"1", int64(0), int64(1), int64(64), int64(0)},
		{int64(1), "0", int64(1), int64(64), int64(0)},
	} {
		if _, _, err := parseReplies(values, 1, nil); !errors.Is(err, errBadReply) {
			t.Errorf("%v: got %v, want errBadReply", values, err)
		}
	}
	for _, values := range [][]any{
		{int64(7), int64(0), nil, int64(64), int64(0)},
		{int64(7), int64(0), int64(1), "64", int64(0)},
		{int64(7), int64(0), int64(1), int64(64), nil},
	} {
		if _, replies, err := parseReplies(values, 1, nil); err != nil || !errors.Is(replies[0].err, errBadReply) {
			t.Errorf("%v: got %v, %v, want a reply with errBadReply", values, replies, err)
		}
	}
	h, replies, err := parseReplies([]any{int64(7), int64(9), int64(3), int64(0), int64(-1), "OOM no", int64(0), int64(0)}, 2, nil)
	if want := []reply{{code: codeBusy, extra: -1}, {err: replyError("OOM no")}}; err != nil || h != (heading{7, 9 * time.Millisecond}) || !slices.Equal(replies, want) {
		t.Errorf("got %v, %v, %v; want 7 us and 9 ms, %v", h, replies, err, want)
	}
}

// A server's refusal of a command inside a script is an error, and not taken for
// something about the keys: a lock of the wrong type ends all waiting, and a release
// that found nothing is not repeated.
func TestRefusalsInsideScripts(t *testing.T) {
	send := map[op]func(*testing.T, *node) reply{
		opAcquire: func(t *testing.T, n *node) reply { return n.acquire(t, "a", 0, 0) },
		opRaise:   func(t *testing.T, n *node) reply { return n.raise(t, "a", 64, 128) },
		opExtend:  func(t *testing.T, n *node) reply { return n.extend(t, "a", 0, 64, 128) },
		opRelease: func(t *testing.T, n *node) reply { return n.release(t, "a", 64, 128) },
	}
	master := redistest.Masters(t, 1)[0]
	admin := redistest.Client(t, master.Addr())
	as := func(t *testing.T, user string, rules ...any) node {
		t.Helper()
		args := append([]any{"ACL", "SETUSER", user, "reset", "on", ">" + secret}, rules...)
		if err := admin.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
		opt := *admin.Options()
		opt.Username, opt.Password = user, secret
		c := redis.NewClient(&opt)
		t.Cleanup(func() { c.Close() })
		return node{Client: c, seen: make(map[op]map[code]bool)}
	}
	for name, rules := range map[string][]any{
		"no GET":     {"~*", "+@all", "-get"},
		"no eval":    {"~*", "+@all", "-eval"},
		"no command": {"~*", "-@all", "+eval", "+time"},
		"no key":     {"~other:*", "+@all"},
	} {
		user := as(t, strings.ReplaceAll(name, " ", "-"), rules...)
		for o, send := range send {
			t.Run(fmt.Sprintf("%s, %s", name, op(o)), func(t *testing.T) {
				n := user.fresh(t)
				if err := admin.Set(t.Context(), n.key, "a|64", 0).Err(); err != nil {
					t.Fatal(err)
				}
				rep := send(t, n)
				if err := nodeFailure(rep.err); !errors.Is(err, ErrPermission) {
					t.Errorf("got code %d, %v; want ErrPermission", rep.code, err)
				}
			})
		}
	}
	t.Run("no SET, acquire", func(t *testing.T) {
		user := as(t, "no-SET", "~*", "+@all", "-set")
		if rep := user.fresh(t).acquire(t, "a", 0, 0); !errors.Is(nodeFailure(rep.err), ErrPermission) {
			t.Errorf("got code %d, %v; want ErrPermission", rep.code, rep.err)
		}
	})
	t.Run("no DEL, release", func(t *testing.T) {
		n := as(t, "no-DEL", "~*", "+@all", "-del").fresh(t)
		n.set(t, n.key, "a|64", 0)
		if rep := n.release(t, "a", 64, 64); !errors.Is(nodeFailure(rep.err), ErrPermission) {
			t.Errorf("got code %d, %v; want ErrPermission", rep.code, rep.err)
		}
	})
	t.Run("wrong password", func(t *testing.T) {
		opt := *admin.Options()
		opt.Username, opt.Password = "default", secret
		if err := admin.Do(t.Context(), "ACL", "SETUSER", "default", ">x").Err(); err != nil {
			t.Fatal(err)
		}
		c := redis.NewClient(&opt)
		defer c.Close()
		if err := nodeFailure(c.Ping(t.Context()).Err()); !errors.Is(err, ErrPermission) {
			t.Errorf("got %v, want ErrPermission", err)
		}
	})

	// A replica that lost its master, and may not serve what it has.
	replica := redistest.Masters(t, 1)[0]
	c := redistest.Client(t, replica.Addr())
	for _, args := range [][]any{{"REPLICAOF", "127.0.0.1", "1"}, {"CONFIG", "SET", "replica-serve-stale-data", "no"}} {
		if err := c.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	stale := node{Client: c, seen: make(map[op]map[code]bool)}
	for o, send := range send {
		t.Run(fmt.Sprintf("stale replica, %s", op(o)), func(t *testing.T) {
			if rep := send(t, stale.fresh(t)); !isUnwritable(rep.err) {
				t.Errorf("got code %d, %v; want an error that says it is no master", rep.code, rep.err)
			}
		})
	}
	if err := c.ConfigSet(t.Context(), "replica-serve-stale-data", "yes").Err(); err != nil {
		t.Fatal(err)
	}
	t.Run("read-only replica, acquire", func(t *testing.T) {
		if rep := stale.fresh(t).acquire(t, "a", 0, 0); !isUnwritable(rep.err) {
			t.Errorf("got code %d, %v; want an error that says it is no master", rep.code, rep.err)
		}
	})
}
