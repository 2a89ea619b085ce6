package node

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
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
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/internal/resp"
	"github.com/d0720281/redlock/internal/wire"
)

const secret = "secret"

const (
	hour    = int64(time.Hour / time.Millisecond)
	minute  = hour / 60
	second  = int64(time.Second / time.Microsecond) // of a node's clock
	theTime = 1760000000 * second                   // the time of a pinned clock

	theSkew  = 5150 * second / 1000 // largest difference of a clock, us
	theAhead = theSkew + second     // how far a counter may be ahead of a clock

	theSettings = "1000 5150000 1000 1000 1.02 0" // as lua/begin.lua has them
)

// node is one real master, and the keys of a subtest's own resource.
type node struct {
	*redis.Client
	key, counterKey string
	seen            map[wire.Op]map[wire.Code]bool // by request
	mini            bool                           // a fake, which cannot run a script in a transaction
	pinned          bool                           // TIME returns theTime,
	polls           bool                           // processes that rest cannot be called
	later           int64                          // plus so many ms
	micros          int64                          // the node's time, from the last script
	left            time.Duration                  // without a vote, from the last script
	alone           bool                           // the caller does not know the other clocks,
	off             int64                          // or they are so many us ahead of this one
	wish            int64                          // where the caller wants a missing counter to start

	shared  bool // the requests are those of a reader
	guarded bool // the caller sends the marker, and takes the server to be run
	run     string
	longest int64 // largest TTL that the caller expects, ms
	asked   int64 // largest TTL that it asks for, ms; 0 for the same
	trusted int
}

// keys returns what the requests of an attempt have in common.
func (n *node) keys() *Key {
	k := &Key{ID: "a", Lock: n.key, TTL: hour}
	k.Init(1)
	return k
}

func (n *node) markerKey() string { return n.key + wire.GuardSuffix }

var (
	allOps  = []wire.Op{wire.Acquire, wire.Adopt, wire.Raise, wire.Extend, wire.Release}
	sources = map[wire.Op]string{wire.Acquire: wire.AcquireLua, wire.Adopt: wire.AdoptLua, wire.Raise: wire.RaiseLua, wire.Extend: wire.ExtendLua, wire.Release: wire.ReleaseLua}
)

// fresh returns the node with unused keys.
func (n node) fresh(t *testing.T) *node {
	n.key = "{" + t.Name() + "}"
	n.counterKey = n.key + wire.FenceSuffix
	return &n
}

// pinTime is prepended to a script to stop the node's clock.
const pinTime = `local real = redis
local redis = {pcall = real.pcall, call = function(name, ...)
  if name == 'TIME' then return {'%d', '%d'} end
  return real.call(name, ...)
end}
`

func (n *node) send(t *testing.T, o wire.Op, args ...any) Reply {
	t.Helper()
	return n.parse(t, o, n.eval(t, n, o, args...))
}

// eval sends a request, optionally as part of a transaction.
func (n *node) eval(t *testing.T, via redis.Scripter, o wire.Op, args ...any) *redis.Cmd {
	source := wire.Requests.Source
	if n.pinned {
		source = fmt.Sprintf(pinTime, theTime/second+n.later/1000, n.later%1000*1000) + source
	}
	run := ""
	if n.guarded {
		run = n.run
	}
	return via.Eval(t.Context(), source, []string{n.markerKey(), n.key}, append(n.common(run), argsOf(t, n.requestOf(t, o, args))...)...)
}

// requestOf returns a request. For an acquire the arguments are attempt id, TTL, latest time and
// where a missing counter starts; for an extend id, TTL, latest time, and the counters of grant and
// lease; for the others id and counters. Behind them is the process, at the queue node.
func (n *node) requestOf(t *testing.T, o wire.Op, args []any) *Request {
	t.Helper()
	texts := make([]string, len(args))
	for i, arg := range args {
		texts[i] = fmt.Sprint(arg)
	}
	next := func() (s string) {
		if len(texts) > 0 {
			s, texts = texts[0], texts[1:]
		}
		return s
	}
	count := func() int64 {
		v, err := strconv.ParseInt(next(), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	r := &Request{Op: o, Key: &Key{ID: next()}, Shared: n.shared}
	if r.guarded() {
		r.Key.TTL, r.notAfter = count(), count()
	}
	switch o {
	case wire.Acquire, wire.Adopt:
		r.Target = count()
	case wire.Rest:
		r.Counter, r.Target = count(), wire.Listens
		if n.polls {
			r.Target = 0
		}
	default:
		r.Counter, r.Target = count(), count()
	}
	r.Process = next()
	return r
}

// common returns the first arguments of every script.
func (n *node) common(run string) []any {
	median := time.Now().UnixMicro() + n.off
	switch {
	case n.alone:
		median = 0
	case n.pinned:
		median = theTime + n.later*1000 + n.off
	}
	return []any{run, median, fmt.Sprintf("%d %d %d %d 1.02 %d", 10*hour, theSkew, n.longest, cmp.Or(n.asked, n.longest), n.trusted)}
}

func (n *node) parse(t *testing.T, o wire.Op, cmd *redis.Cmd) Reply {
	t.Helper()
	if o == wire.Rest {
		o = wire.Release
	}
	values, err := cmd.Slice()
	if err != nil {
		return Reply{Err: err}
	}
	h, replies, err := parseReplies(values, 1)
	if err != nil {
		t.Fatalf("%s: got %v: %v", o, values, err)
	}
	n.micros, n.left = h.micros, h.left
	if rep := replies[0]; rep.Err == nil {
		if n.seen[o] == nil {
			n.seen[o] = make(map[wire.Code]bool)
		}
		n.seen[o][rep.Code] = true
	}
	return replies[0]
}

// acquire, raise, extend and release send the arguments that each Lua file lists, with a TTL
// of an hour and a counter TTL of ten hours.
func (n *node) acquire(t *testing.T, id string, notAfter int64) Reply {
	t.Helper()
	return n.send(t, wire.Acquire, id, hour, notAfter, n.wish)
}

func (n *node) raise(t *testing.T, id string, given, target int64) Reply {
	t.Helper()
	return n.send(t, wire.Raise, id, given, target)
}

func (n *node) extend(t *testing.T, id string, notAfter, given, target int64) Reply {
	t.Helper()
	return n.send(t, wire.Extend, id, hour, notAfter, given, target)
}

func (n *node) release(t *testing.T, id string, given, target int64) Reply {
	t.Helper()
	return n.send(t, wire.Release, id, given, target)
}

// want checks a Reply, except for the node's time.
func (r Reply) want(t *testing.T, c wire.Code, counter, extra int64) {
	t.Helper()
	if r.Err != nil {
		t.Fatalf("got %v, want code %d", r.Err, c)
	}
	if r.Code != c || r.Counter != counter || r.Extra != extra {
		t.Fatalf("got code %d, counter %d, extra %d; want %d, %d, %d", r.Code, r.Counter, r.Extra, c, counter, extra)
	}
}

func (n *node) set(t *testing.T, key, value string, ttlMillis int64) {
	t.Helper()
	if err := n.Set(t.Context(), key, value, time.Duration(ttlMillis)*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
}

// wantKeys checks both keys; "" means that a key is missing.
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

// parseReplies reads the reply to a batch of k requests, given as the values that go-redis
// returns.
func parseReplies(values []any, k int) (heading, []Reply, error) {
	h, replies, refused, err := readBatch(resp.NewReader(bytes.NewReader(encode(nil, values))), k, nil)
	return h, replies, cmp.Or(err, refused)
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
func argsOf(t *testing.T, r *Request) (list []any) {
	t.Helper()
	in := resp.NewReader(bytes.NewReader(r.append(r.appendGroup(nil, 1))))
	for {
		v, err := in.Value()
		if err == io.EOF {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, v)
	}
}

func value(id string, counter int64) string { return id + "|" + strconv.FormatInt(counter, 10) }

// scriptTests send requests, and check the replies and the keys.
var scriptTests = map[string]func(*testing.T, *node){
	"acquire":    testAcquire,
	"seed":       testSeed,
	"ahead":      testAhead,
	"late":       testLate,
	"badtype":    testBadType,
	"adopt":      testAdopt,
	"raise":      testRaise,
	"extend":     testExtend,
	"release":    testRelease,
	"foreign":    testForeign,
	"guard":      testGuard,
	"queue node": testQueueNode,
	"several":    testSeveral,
	"readers":    testReaders,
}

// On a real server each request replies as the head of its Lua file says.
//
// Source: ALGORITHM sections 2 to 6.
func TestScripts(t *testing.T) {
	master := redistest.Masters(t, 1)[0]
	base := node{Client: redistest.Client(t, master.Addr()), seen: make(map[wire.Op]map[wire.Code]bool)}
	for name, test := range scriptTests {
		t.Run(name, func(t *testing.T) { test(t, &base) })
	}
	t.Run("every code was seen", func(t *testing.T) {
		seen := make(map[wire.Code]bool)
		for _, codes := range base.seen {
			maps.Copy(seen, codes)
		}
		want := codesOfGo(t)
		if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, want) {
			t.Errorf("got the codes %v, wire.go has %v", got, want)
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

// On the fakes of other tests each request replies as on a real server.
func TestScriptsOnMiniredis(t *testing.T) {
	mini := redistest.Minis(t, 1)[0]
	base := node{Client: redistest.Client(t, mini.Addr()), mini: true, seen: make(map[wire.Op]map[wire.Code]bool)}
	for name, test := range scriptTests {
		if name != "guard" { // such a fake has no run id
			t.Run(name, func(t *testing.T) { test(t, &base) })
		}
	}
}

// testReaders goes through what readers and writers do to a key.
//
// Source: ALGORITHM section 12.
func testReaders(t *testing.T, base *node) {
	one := func(t *testing.T) (w, r *node) {
		w = base.fresh(t)
		w.pinned = true
		readers := *w
		readers.shared = true
		return w, &readers
	}
	readers := func(n *node) string { return n.key + wire.ReadersSuffix }
	wantReaders := func(t *testing.T, n *node, want map[string]int64) {
		t.Helper()
		got := make(map[string]int64)
		for _, z := range n.ZRangeWithScores(t.Context(), readers(n), 0, -1).Val() {
			got[z.Member.(string)] = int64(z.Score)
		}
		if !maps.Equal(got, want) {
			t.Errorf("got readers %v, want %v", got, want)
		}
	}
	wantBusy := func(t *testing.T, rep Reply, readers int64) { // its time runs on
		t.Helper()
		if rep.Code != wire.Busy || rep.Counter != readers || rep.Extra > hour || rep.Extra < hour-minute {
			t.Errorf("got %+v, want that it is busy, counter %d, for an hour", rep, readers)
		}
	}
	const ends = theTime/1000 + hour
	t.Run("readers share, and a writer does not", func(t *testing.T) {
		w, r := one(t)
		r.acquire(t, "a", 0).want(t, wire.Granted, theTime, 0)
		r.acquire(t, "b", 0).want(t, wire.Granted, theTime, 1)
		r.acquire(t, "b", 0).want(t, wire.Mine, theTime, 1)
		wantBusy(t, w.acquire(t, "c", 0), 1)
		w.extend(t, "c", 0, 0, 64).want(t, wire.Taken, 0, 0)
		w.release(t, "c", 0, 64).want(t, wire.Gone, 0, 0)
		w.wantKeys(t, wire.Sign, fmt.Sprint(theTime))
		wantReaders(t, r, map[string]int64{"a": ends, "b": ends})
		w.wantTTL(t, readers(w), hour+1000)
		r.release(t, "a", theTime, theTime).want(t, wire.Released, 0, 0)
		r.release(t, "a", theTime, theTime).want(t, wire.Gone, 0, 0)
		w.wantKeys(t, wire.Sign, fmt.Sprint(theTime))
		r.release(t, "b", theTime, theTime).want(t, wire.Released, 0, 0)
		w.wantKeys(t, "", fmt.Sprint(theTime))
		wantReaders(t, r, map[string]int64{})
		w.acquire(t, "c", 0).want(t, wire.Granted, theTime+64, 0)
		wantBusy(t, r.acquire(t, "d", 0), 0)
	})
	t.Run("each reader has a life of its own", func(t *testing.T) {
		w, r := one(t)
		r.send(t, wire.Acquire, "short", 1000, 0, 0).want(t, wire.Granted, theTime, 0)
		r.send(t, wire.Acquire, "long", 9000, 0, 0).want(t, wire.Granted, theTime, 1)
		r.send(t, wire.Extend, "short", 500, 0, theTime, theTime).want(t, wire.Kept, 0, 0)
		wantReaders(t, r, map[string]int64{"short": theTime/1000 + 1000, "long": theTime/1000 + 9000})
		r.later, w.later = 1000, 1000
		w.acquire(t, "w", 0).wantOneOf(t, "busy alone", wire.Busy)
		wantReaders(t, r, map[string]int64{"long": theTime/1000 + 9000})
		r.send(t, wire.Extend, "short", 500, 0, theTime, theTime).want(t, wire.Filled, 0, 0)
		r.later, w.later = 9000, 9000
		w.acquire(t, "w", 0).want(t, wire.Granted, theTime+64, 0) // the sign was left behind
		wantReaders(t, r, map[string]int64{})
	})
	t.Run("what is left of a key that is gone does not count", func(t *testing.T) {
		_, r := one(t)
		r.acquire(t, "a", 0).want(t, wire.Granted, theTime, 0)
		r.Del(t.Context(), r.key)
		r.raise(t, "a", theTime, theTime+5).want(t, wire.Unheld, 0, 0)
		r.acquire(t, "b", 0).want(t, wire.Granted, theTime, 0)
		wantReaders(t, r, map[string]int64{"b": ends})
		r.extend(t, "a", 0, theTime, theTime).want(t, wire.Filled, 0, 0)
		wantReaders(t, r, map[string]int64{"a": ends, "b": ends})
	})
	t.Run("a reader raises where it is one", func(t *testing.T) {
		_, r := one(t)
		r.acquire(t, "a", 0).want(t, wire.Granted, theTime, 0)
		r.raise(t, "a", theTime, theTime+5).want(t, wire.Raised, 0, 0)
		r.wantKeys(t, wire.Sign, fmt.Sprint(theTime+5))
		r.raise(t, "b", theTime, theTime+9).want(t, wire.Unheld, 0, 0)
		r.raise(t, "a", theTime, theTime+theAhead+1).want(t, wire.Ahead, 0, theAhead/1000+1)
		r.later = hour
		r.raise(t, "a", theTime, theTime+9).want(t, wire.Unheld, 0, 0)
	})
	t.Run("a writer becomes a reader in one step", func(t *testing.T) {
		w, r := one(t)
		w.acquire(t, "a", 0).want(t, wire.Granted, theTime, 0)
		r.send(t, wire.Extend, "a", 1000, 0, theTime, theTime).want(t, wire.Kept, 0, 0)
		w.wantKeys(t, wire.Sign, fmt.Sprint(theTime))
		w.wantTTL(t, w.key, hour)
		r.acquire(t, "b", 0).want(t, wire.Granted, theTime, 1)
		w.extend(t, "a", 0, theTime, theTime).want(t, wire.Taken, 0, 0) // of before, and late
		r.release(t, "b", theTime, theTime).want(t, wire.Released, 0, 0)
		r.release(t, "a", theTime, theTime).want(t, wire.Released, 0, 0)
		w.acquire(t, "c", 0).want(t, wire.Granted, theTime+64, 0)
		r.release(t, "c", theTime+64, theTime+64).want(t, wire.Released, 0, 0) // downgraded, but not here
		w.wantKeys(t, "", fmt.Sprint(theTime+64))
	})
	t.Run("readers at the head of the queue have the turn together", func(t *testing.T) {
		w, r := one(t)
		const r1, r2, r3, r4 = "in1~readers", "in2~readers", "in3~readers", "in4~readers"
		turn := func() string { return w.Get(t.Context(), w.key+wire.TurnSuffix).Val() }
		wantQueue := func(turnOf string, names ...string) {
			t.Helper()
			if got := w.ZRange(t.Context(), w.key+wire.QueueSuffix, 0, -1).Val(); !slices.Equal(got, names) || turn() != turnOf {
				t.Errorf("got the queue %q and the turn of %q, want %q and %q", got, turn(), names, turnOf)
			}
		}
		told := func(sub *redis.PubSub) (list []string) {
			t.Helper()
			if err := w.Publish(t.Context(), "in4", "the end").Err(); err != nil {
				t.Fatal(err)
			}
			for {
				switch m, err := sub.ReceiveMessage(t.Context()); {
				case err != nil:
					t.Fatal(err)
				case m.Payload == "the end":
					return list
				case m.Payload != w.key && m.Payload != w.key+wire.OfReaders:
					t.Fatalf("told: got %q", m.Payload)
				default:
					list = append(list, m.Channel)
				}
			}
		}
		ask := func(n *node, id, who string) Reply { return n.send(t, wire.Acquire, id, hour, 0, 0, who) }
		w.set(t, w.key, "a|64", hour)
		w.wait(t, 0, r1, r2, "in3", r3)
		sub := w.listener(t, "in1", "in2", "in3", "in4")
		w.send(t, wire.Release, "a", 64, 64, noProcess).want(t, wire.Released, 4, 0)
		if got := told(sub); !slices.Equal(got, []string{"in1", "in2"}) {
			t.Errorf("told: got %q, want the two readers", got)
		}
		wantQueue(wire.OfReaders, r1, r2, "in3", r3)
		for _, other := range []Reply{ask(w, "w", "in3"), ask(r, "c", r3), ask(r, "d", r4)} {
			if other.Code != wire.Queued {
				t.Errorf("a process behind the readers: got code %d, want %d", other.Code, wire.Queued)
			}
		}
		ask(r, "b", r2).want(t, wire.Granted, theTime, 1) // a writer waits
		wantQueue(wire.OfReaders, r1, "in3", r3)
		r.send(t, wire.Release, "b", theTime, theTime, noProcess).want(t, wire.Released, 1, 0)
		if got := told(sub); len(got) != 0 { // the other reader has been told
			t.Errorf("told: got %q, want no process", got)
		}
		w.send(t, wire.Release, "x", 0, 0, noProcess).want(t, wire.Gone, 3, 0) // an attempt that the reader may have met
		if got := told(sub); !slices.Equal(got, []string{"in1"}) {
			t.Errorf("told: got %q, want the reader", got)
		}
		ask(r, "a", r1).want(t, wire.Granted, theTime, 1)
		wantQueue("", "in3", r3) // and the turn is over
		r.send(t, wire.Release, "a", theTime, theTime, noProcess).want(t, wire.Released, 1, 0)
		if got := told(sub); !slices.Equal(got, []string{"in3"}) {
			t.Errorf("told: got %q, want the writer", got)
		}
		wantQueue("in3", "in3", r3)
	})
	t.Run("a reader hears of the turn by the reply to its rest", func(t *testing.T) {
		w, r := one(t)
		const r1, r2 = "in1~readers", "in2~readers"
		w.wait(t, 0, r1)
		r.send(t, wire.Rest, "x", 0, r2).want(t, wire.Gone, 1, 0) // the other one cannot be called, and does not poll
		if got := w.Get(t.Context(), w.key+wire.TurnSuffix).Val(); got != wire.OfReaders {
			t.Errorf("got the turn of %q, want that of the readers", got)
		}
		w.wait(t, 0, "in3")
		r.send(t, wire.Rest, "y", 0, "in4~readers").want(t, wire.Gone, 0, 2)
	})
	t.Run("what a broken key and other types come to", func(t *testing.T) {
		w, r := one(t)
		r.set(t, r.key, wire.Placeholder(wire.Readers), hour)
		r.acquire(t, "a", 0).wantOneOf(t, "busy alone", wire.Busy)
		r.extend(t, "a", 0, theTime, theTime).want(t, wire.TakenAway, 0, 0)
		r.release(t, "a", theTime, theTime).want(t, wire.Gone, 0, 0)
		w.wantKeys(t, wire.Placeholder(wire.Readers), "")
		r.Del(t.Context(), r.key)
		r.set(t, readers(r), "no set", hour)
		r.acquire(t, "a", 0).want(t, wire.BadType, 0, 3)
		r.wantKeys(t, "", "")
		w.set(t, w.key, wire.Sign, hour)
		wantBusy(t, w.acquire(t, "a", 0), 1)
	})
	t.Run("a version that knows no readers takes the sign for another holder", func(t *testing.T) {
		w, r := one(t)
		r.acquire(t, "a", 0).want(t, wire.Granted, theTime, 0)
		older := strings.ReplaceAll(wire.Requests.Source, "~readers|0", "no sign")
		req := w.requestOf(t, wire.Acquire, []any{"b", hour, 0, 0})
		rep := w.parse(t, wire.Acquire, w.Eval(t.Context(), older, []string{w.markerKey(), w.key}, append(w.common(""), argsOf(t, req)...)...))
		if rep.Code != wire.Busy {
			t.Errorf("got %+v, want %d", rep, wire.Busy)
		}
		w.wantKeys(t, wire.Sign, fmt.Sprint(theTime))
	})
}

// testAdopt goes through what an adoption may meet, and what the former attempt's messages do after it.
//
// Source: ALGORITHM section 6, "Adopt".
func testAdopt(t *testing.T, base *node) {
	adopt := func(t *testing.T, n *node, id, former string) Reply {
		t.Helper()
		return n.send(t, wire.Adopt, id, second/1000, 0, theTime, former)
	}
	one := func(t *testing.T) *node {
		n := base.fresh(t)
		n.pinned, n.wish = true, theTime
		return n
	}
	for name, test := range map[string]struct {
		held, counter string
		want          wire.Code
		given         int64
		after         string // of the key; "" = as before
		void          bool
	}{
		"as seen":                  {"a|640", "640", wire.Granted, 704, "b|704", true},
		"as seen, counter known":   {value("a", theTime), fmt.Sprint(theTime), wire.Granted, theTime + wire.Block, value("b", theTime+wire.Block), true},
		"own":                      {value("b", theTime), "", wire.Mine, theTime, "", false},
		"missing":                  {"", "640", wire.Gone, 0, "", true},
		"another's":                {"c|640", "", wire.Taken, 0, "", true},
		"filled since":             {"a|0", "", wire.Taken, 0, "", true},
		"broken":                   {wire.Placeholder("a"), "", wire.TakenAway, 0, "", false},
		"a counter from far ahead": {"a|640", fmt.Sprint(theTime + 2*theSkew + 2*second), wire.Ahead, 0, "", false},
		"a counter of letters":     {"a|640", "x", wire.BadType, 0, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			n := one(t)
			former := "a|640"
			if strings.HasPrefix(test.held, "a|") && test.held != "a|0" {
				former = test.held
			}
			if test.held != "" {
				n.set(t, n.key, test.held, hour)
			}
			if test.counter != "" {
				n.set(t, n.counterKey, test.counter, hour)
			}
			if rep := adopt(t, n, "b", former); rep.Err != nil || rep.Code != test.want || rep.Counter != test.given {
				t.Fatalf("got %+v, want %d, %d", rep, test.want, test.given)
			}
			if got := n.Get(t.Context(), n.key).Val(); got != cmp.Or(test.after, test.held) {
				t.Errorf("got %q, want %q", got, cmp.Or(test.after, test.held))
			}
			if test.after != "" {
				n.wantTTL(t, n.key, hour) // its life did not get shorter
			}
			if void := n.ZScore(t.Context(), n.key+wire.AdoptedSuffix, "a").Err() == nil; void != test.void {
				t.Errorf("got the former id void: %v, want %v", void, test.void)
			}
		})
	}
	t.Run("late, and without a vote", func(t *testing.T) {
		n := one(t)
		n.set(t, n.key, "a|640", second/1000)
		n.send(t, wire.Adopt, "b", hour, theTime-1, theTime, "a|640").want(t, wire.Late, 0, 0)
		if n.mini {
			t.Skip("such a fake has no run id")
		}
		own := ParseInfo(n.Info(t.Context()).Val()).Identity()
		n.HSet(t.Context(), n.markerKey(), "run", own, "born", theTime/1000, "maxttl", second/1000)
		n.guarded, n.run, n.longest = true, "old", second/1000
		adopt(t, n, "b", "a|640").want(t, wire.Stale, 0, 0)
		n.run = own
		adopt(t, n, "b", "a|640").wantOneOf(t, "no vote", wire.SetVoteless)
		n.wantKeys(t, "b|0", "")
		adopt(t, n, "b", "a|640").wantOneOf(t, "no vote", wire.SetVoteless)
	})
	t.Run("a clock that is not known to be right", func(t *testing.T) {
		n := one(t)
		n.alone = true
		n.set(t, n.key, "a|640", hour)
		adopt(t, n, "b", "a|640").want(t, wire.Unseeded, 0, 0)
		n.wantKeys(t, "b|0", "")
	})
	t.Run("what the former attempt sends changes nothing", func(t *testing.T) {
		n := one(t)
		n.set(t, n.key, "a|640", hour)
		n.set(t, n.counterKey, "640", hour)
		adopt(t, n, "b", "a|640")
		n.wait(t, 0, "in1")
		unchanged := func(t *testing.T) {
			t.Helper()
			state := n.dump(t)
			n.extend(t, "a", 0, 640, 640).want(t, wire.Adopted, 0, 0)
			n.send(t, wire.Release, "a", 640, 640, noProcess).want(t, wire.Adopted, 0, 0)
			adopt(t, n, "c", "a|640").want(t, wire.Adopted, 0, 0)
			if now := n.dump(t); now != state {
				t.Errorf("got %s, want %s as before", now, state)
			}
		}
		unchanged(t)
		n.send(t, wire.Release, "b", 704, 704, noProcess).want(t, wire.Released, 1, 0)
		unchanged(t)
		n.send(t, wire.Rest, "x", 0, "in1")
		n.acquire(t, "x", 0)
		unchanged(t)
	})
	t.Run("a version that knows no adoption harms no adopter", func(t *testing.T) {
		n := one(t)
		n.set(t, n.key, "a|640", hour)
		adopt(t, n, "b", "a|640")
		older := strings.ReplaceAll(wire.Requests.Source, "adopted(key, value) then return 26", "false then return 26")
		if older == wire.Requests.Source {
			t.Fatal("the script does not ask whether an id is void: this test looks for that in the wrong way")
		}
		for op, want := range map[wire.Op]wire.Code{wire.Extend: wire.Taken, wire.Release: wire.Gone} {
			args := []any{"a", 640, 640}
			if op == wire.Extend {
				args = []any{"a", hour, 0, 640, 640}
			}
			state := n.dump(t)
			rep := n.parse(t, op, n.Eval(t.Context(), older, []string{n.markerKey(), n.key}, append(n.common(""), argsOf(t, n.requestOf(t, op, args))...)...))
			if rep.Code != want || n.dump(t) != state {
				t.Errorf("%s: got %+v, want code %d and nothing changed", op, rep, want)
			}
		}
	})
	t.Run("void ids are forgotten", func(t *testing.T) {
		n := one(t)
		n.longest = second / 1000
		n.set(t, n.key, "a|640", 1)
		time.Sleep(2 * time.Millisecond)
		adopt(t, n, "b", "a|640").want(t, wire.Gone, 0, 0)
		n.later += 1700
		adopt(t, n, "c", "x|640").want(t, wire.Gone, 0, 0)
		if got := n.ZRange(t.Context(), n.key+wire.AdoptedSuffix, 0, -1).Val(); !slices.Equal(got, []string{"x"}) {
			t.Errorf("got the void ids %q, want the last one", got)
		}
	})
}

// dump returns all keys of the resource.
func (n *node) dump(t *testing.T) string {
	t.Helper()
	keys := n.Keys(t.Context(), strings.NewReplacer("[", "\\[", "]", "\\]").Replace(n.key)+"*").Val()
	slices.Sort(keys)
	var b strings.Builder
	for _, key := range keys {
		fmt.Fprintf(&b, "%s %s\n", key, hex.EncodeToString([]byte(n.Dump(t.Context(), key).Val())))
	}
	return b.String()
}

// testGuard goes through the table of the restart guard: the state of the marker, and its
// effect on votes.
//
// Source: ALGORITHM section 8.
func testGuard(t *testing.T, base *node) {
	own := ParseInfo(base.Info(t.Context()).Val()).Identity()
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
		delete(got, "made") // Bootstrap alone uses it
		want := map[string]string{"run": run, "born": strconv.FormatInt(theTime/1000-age, 10), "maxttl": strconv.FormatInt(longest, 10)}
		if !maps.Equal(got, want) {
			t.Errorf("marker: got %v, want %v", got, want)
		}
	}
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

	t.Run("a new node holds the place and has no vote", func(t *testing.T) {
		n := guarded(t, own)
		n.acquire(t, "a", 0).want(t, wire.SetVoteless, 0, whole)
		n.wantKeys(t, "a|0", "")
		wantMarker(t, n, own, 0, 1000)
		n.acquire(t, "a", 0).want(t, wire.SetVoteless, 0, whole)
		n.acquire(t, "b", 0).wantOneOf(t, "busy alone", wire.Busy)
		n.extend(t, "a", 0, 0, 64).want(t, wire.KeptVoteless, 0, whole)
		n.extend(t, "b", 0, 0, 64).want(t, wire.Taken, 0, 0)
		n.release(t, "a", 0, 64).want(t, wire.Released, 0, 0)
		n.extend(t, "a", 0, 0, 64).want(t, wire.FilledVoteless, 0, whole)
		if n.left != ms(whole) {
			t.Errorf("heading: got %v left, want %v", n.left, ms(whole))
		}
	})
	t.Run("it has a vote when the quarantine is over, to the millisecond", func(t *testing.T) {
		n := guarded(t, own)
		mark(t, n, own, whole-1, 1000)
		n.acquire(t, "a", 0).want(t, wire.SetVoteless, 0, 1)
		n.release(t, "a", 0, 0).want(t, wire.Released, 0, 0)
		mark(t, n, own, whole, 1000)
		n.acquire(t, "a", 0).want(t, wire.Granted, theTime, 0)
		n.acquire(t, "a", 0).want(t, wire.Mine, theTime, 0)
		n.extend(t, "a", 0, theTime, theTime).want(t, wire.Kept, 0, 0)
		if n.left != 0 {
			t.Errorf("heading: got %v left, want none", n.left)
		}
	})
	t.Run("a grant from before the quarantine is no vote in it", func(t *testing.T) {
		n := guarded(t, own)
		n.set(t, n.key, "a|64", hour)
		n.set(t, n.counterKey, "64", hour)
		mark(t, n, "another", 10*whole, 1000)
		n.acquire(t, "a", 0).want(t, wire.SetVoteless, 0, whole)
		n.extend(t, "a", 0, 64, 64).want(t, wire.KeptVoteless, 0, whole)
		n.wantKeys(t, "a|64", "64")
		wantMarker(t, n, own, 0, 1000)
	})
	t.Run("a marker of another server is a restart, unless the disk is trusted", func(t *testing.T) {
		n := guarded(t, own)
		n.trusted = 1
		mark(t, n, "another", 10*whole, 1000)
		n.acquire(t, "a", 0).want(t, wire.Granted, theTime, 0)
		wantMarker(t, n, own, 10*whole, 1000)
	})
	t.Run("a trusted disk that is empty is not trusted", func(t *testing.T) {
		n := guarded(t, own)
		n.trusted = 1
		n.acquire(t, "a", 0).want(t, wire.SetVoteless, 0, whole)
	})
	t.Run("a caller that is behind changes nothing", func(t *testing.T) {
		n := guarded(t, "the run before")
		mark(t, n, own, 10*whole, 1000)
		n.set(t, n.key, "a|64", hour)
		n.acquire(t, "b", 0).want(t, wire.Stale, 0, 0)
		n.extend(t, "a", 0, 64, 64).want(t, wire.Stale, 0, 0)
		wantMarker(t, n, own, 10*whole, 1000)
		n.wantKeys(t, "a|64", "")
		n.release(t, "a", 64, 64).want(t, wire.Released, 0, 0)
	})
	t.Run("a caller that is behind is told so by the marker script, too", func(t *testing.T) {
		for _, what := range []string{wire.Look, wire.Join, wire.Vouch, wire.Mark} {
			n := guarded(t, own)
			n.Del(t.Context(), n.markerKey())
			head := []any{"the run before", theTime, theSettings}
			var left []any
			for range 2 {
				reply, err := n.Eval(t.Context(), wire.Marker.Source, []string{n.markerKey()}, append(head, what, "list", "", "")...).Slice()
				if err != nil || len(reply) != 7 {
					t.Fatalf("%s: got %v, %v; want seven values", what, reply, err)
				}
				left = append(left, reply[1])
			}
			// Without a marker a look learns the node's run id by itself.
			if want := map[string]int64{wire.Look: whole, wire.Join: whole, wire.Vouch: -1, wire.Mark: -1}[what]; left[0] != want || left[1] != int64(-1) {
				t.Errorf("%s: got %v left without a marker and with one, want %d and -1", what, left, want)
			}
		}
	})
	t.Run("groups of masters", func(t *testing.T) {
		n := guarded(t, own)
		mark(t, n, own, 0, 1000)
		for _, step := range []struct {
			at      int64 // ms after the first
			list    string
			since   string // ms after the first, "" for none
			against string
		}{
			{0, "a b c", "", ""}, // one group never needs it
			{5000, "a b c", "", ""},
			{10_000, "a b c / d e f", "10000", ""},
			{10_000 + whole - 1, "a b c / d e f", "10000", ""},
			{10_000 + whole, "a b c d / d e f", fmt.Sprint(10_000 + whole), ""},
			{10_000 + whole + 1, "a b c / g h i", fmt.Sprint(10_000 + whole), "a b c d / d e f"},
			{10_000 + whole + 2, "a b c", fmt.Sprint(10_000 + whole), "a b c d / d e f"},
			{10_000 + 2*whole - 1, "a b c / d e f", fmt.Sprint(10_000 + 2*whole - 1), ""}, // in use, and idle for a quarantine
			{20_000, "a b c", "20000", ""},                                                // it was in a set of groups once
		} {
			now := int64(theTime/1000) + step.at
			script := strings.Replace(wire.Marker.Source, "local t = call('TIME')", fmt.Sprintf("local t = {%d, %d}", now/1000, now%1000*1000), 1)
			args := []any{own, now * 1000, theSettings, wire.Join, step.list, "", ""}
			reply, err := n.Eval(t.Context(), script, []string{n.markerKey()}, args...).Slice()
			if err != nil || len(reply) != 7 {
				t.Fatalf("%+v: got %v, %v; want seven values", step, reply, err)
			}
			since := n.HGet(t.Context(), n.markerKey(), "since").Val()
			if since != "" {
				ms, _ := strconv.ParseInt(since, 10, 64)
				since = fmt.Sprint(ms - theTime/1000)
			}
			if since != step.since || reply[6] != step.against {
				t.Errorf("%+v: got since %q, against %q", step, since, reply[6])
			}
		}
	})
	t.Run("a list of masters in use", func(t *testing.T) {
		n := guarded(t, own)
		mark(t, n, own, theTime/1000, 1000)
		now := int64(theTime / 1000)
		do := func(what, list string) (left int64, others, against string) {
			t.Helper()
			script := strings.Replace(wire.Marker.Source, "local t = call('TIME')", fmt.Sprintf("local t = {%d, %d}", now/1000, now%1000*1000), 1)
			args := []any{own, now * 1000, theSettings, what, list, "", ""}
			reply, err := n.Eval(t.Context(), script, []string{n.markerKey()}, args...).Slice()
			if err != nil || len(reply) != 7 {
				t.Fatalf("%s: got %v, %v; want seven values", what, reply, err)
			}
			return reply[1].(int64), reply[5].(string), reply[6].(string)
		}
		for _, step := range []struct {
			after                 int64 // ms
			what, list            string
			left                  int64
			others, against, kept string // the lists in use after it, without times
		}{
			{0, wire.Look, "a b c", 0, "", "", ""},
			{0, wire.Join, "a b c", 0, "", "", "a b c"},
			// The label of the last client to join goes with the list, and decides nothing.
			{0, wire.Join, "a b c\tx y", 0, "", "", "a b c\tx y"},
			{0, wire.Look, "a b c\tz", 0, "", "", "a b c\tx y"},
			{0, wire.Look, "a b d\tz", 0, "a b c\tx y", "a b c\tx y", "a b c\tx y"},
			{0, wire.Join, "a b d\tx y", 0, "a b c\tx y", "a b c\tx y", "a b c\tx y"},
			{0, wire.Look, "a b c d\tz", 0, "a b c\tx y", "", "a b c\tx y"},
			{0, wire.Join, "a b c\tz", 0, "", "", "a b c\tz"},
			{0, wire.Join, "a b c", 0, "", "", "a b c"},
			{0, wire.Look, "a b d", 0, "a b c", "a b c", "a b c"},
			{0, wire.Join, "a b d", 0, "a b c", "a b c", "a b c"},
			{0, wire.Join, "a b c d", 0, "a b c", "", "a b c,a b c d"},
			{0, wire.Join, "a b d", 0, "a b c\na b c d", "a b c", "a b c,a b c d"},
			{0, wire.Join, "a b c d e", 0, "a b c\na b c d", "a b c", "a b c,a b c d"},
			{0, wire.Join, "a", 0, "a b c\na b c d", "a b c d", "a b c,a b c d"},
			{0, wire.Join, "x y z", 0, "a b c\na b c d", "", "a b c,a b c d,x y z"},
			{0, wire.Vouch, "p q", 0, "a b c\na b c d\nx y z", "", "a b c,a b c d,x y z"},
			// The last client with the first list has gone.
			{2*whole - 1000, wire.Join, "a b c d", 0, "a b c\nx y z", "", "a b c,x y z,a b c d"},
			{999, wire.Join, "a b d", 0, "a b c\nx y z\na b c d", "a b c", "a b c,x y z,a b c d"},
			{1, wire.Join, "a b d", 0, "a b c d", "", "a b c d,a b d"},
			{0, wire.Join, "a b c", 0, "a b c d\na b d", "a b d", "a b c d,a b d"},
			// A clock that was stepped back makes no list last longer.
			{-3600000, wire.Join, "a b c d", 0, "a b d", "", "a b d,a b c d"},
			{2*whole - 1, wire.Look, "p q", 0, "a b d\na b c d", "", "a b d,a b c d"},
			{1, wire.Look, "p q", 0, "", "", "a b d,a b c d"},
		} {
			now += step.after
			left, others, against := do(step.what, step.list)
			var kept []string
			for line := range strings.Lines(n.HGet(t.Context(), n.markerKey(), "lists").Val()) {
				_, list, _ := strings.Cut(strings.TrimSpace(line), " ")
				kept = append(kept, list)
			}
			if left != step.left || others != step.others || against != step.against || strings.Join(kept, ",") != step.kept {
				t.Errorf("%+v: got %d left, others %q, against %q, kept %q", step, left, others, against, kept)
			}
		}
		// In quarantine any list joins, and lists in conflict have no vote after it.
		n.Del(t.Context(), n.markerKey())
		for i, list := range []string{"a b c", "a b d"} {
			if left, _, against := do(wire.Join, list); left == 0 || (against == "") != (i == 0) {
				t.Errorf("join of %q in quarantine: got %d ms left, against %q", list, left, against)
			}
		}
		now += whole + 1
		for _, list := range []string{"a b c", "a b d", "a b c", "a b d"} {
			now += whole / 4 // renewed in time
			if left, _, against := do(wire.Join, list); left != 0 || against == "" {
				t.Errorf("join of %q after a quarantine in which both did: got %d ms left, against %q; want a conflict", list, left, against)
			}
		}
	})
	t.Run("a caller without the run id goes by the marker alone", func(t *testing.T) {
		n := guarded(t, wire.UnknownRun)
		n.acquire(t, "a", 0).want(t, wire.SetVoteless, 0, whole)
		wantMarker(t, n, own, 0, 1000)
		mark(t, n, "another", 10*whole, 1000)
		n.release(t, "a", 0, 0)
		n.acquire(t, "a", 0).want(t, wire.Granted, theTime, 0)
	})
	t.Run("the largest TTL of any caller counts", func(t *testing.T) {
		n := guarded(t, own)
		mark(t, n, own, whole, 1000)
		n.longest = 2000
		n.acquire(t, "a", 0).want(t, wire.SetVoteless, 0, 1020)
		wantMarker(t, n, own, whole, 2000)
		n.longest = 500
		n.acquire(t, "a", 0).want(t, wire.SetVoteless, 0, 1020)
		n.HDel(t.Context(), n.markerKey(), "used", "recent")
		wantMarker(t, n, own, whole, 2000)
	})
	t.Run("a caller that expects a larger TTL waits for longer, and the others do not", func(t *testing.T) {
		n := guarded(t, own)
		mark(t, n, own, whole, 1000)
		n.longest, n.asked = 2000, 1000
		n.acquire(t, "a", 0).want(t, wire.SetVoteless, 0, 1020)
		wantMarker(t, n, own, whole, 1000)
		n.release(t, "a", 0, 0)
		n.longest, n.asked = 1000, 1000
		n.acquire(t, "a", 0).wantOneOf(t, "a grant", wire.Granted)
	})
	t.Run("a caller that asks for no lease writes down no TTL", func(t *testing.T) {
		n := guarded(t, own)
		for _, known := range []int64{0, 500, 1000} {
			mark(t, n, own, 10*whole, known)
			args := []any{own, theTime, "1000 5150000 86400000 0 1.02 0", wire.Look, "a b c", "", ""}
			if err := n.Eval(t.Context(), wire.Marker.Source, []string{n.markerKey()}, args...).Err(); err != nil {
				t.Fatal(err)
			}
			wantMarker(t, n, own, 10*whole, known)
		}
	})
	t.Run("a larger TTL is forgotten when no lease of it can be left", func(t *testing.T) {
		const long, eighth = 4000*102/100 + 100, (4000*102/100 + 100) / 8
		n := guarded(t, own)
		mark(t, n, own, 100*whole, 1000)
		asks := func(ttl, longest int64) {
			t.Helper()
			n.longest, n.asked = max(ttl, 1000), ttl
			n.acquire(t, "a", 0)
			n.release(t, "a", 0, 0)
			if got := n.HGet(t.Context(), n.markerKey(), "maxttl").Val(); got != fmt.Sprint(longest) {
				t.Errorf("%d ms later, a TTL of %d: got %s for the largest, want %d", n.later, ttl, got, longest)
			}
		}
		asks(4000, 4000)
		asks(1000, 4000) // from now on a smaller one would do
		n.later += eighth
		asks(4000, 4000) // as far as an eighth
		n.later++
		asks(4000, 4000) // anew
		n.later += long
		asks(700, 4000)
		n.later += long / 4
		asks(700, 4000)
		n.off = long*1000/16 + 1
		n.later++
		asks(700, 4000) // the clock disagrees
		n.off = 0
		asks(700, 1000) // the largest since then
		n.later += 10 * long
		asks(4000, 4000)
		asks(700, 4000)
		n.off = long*1000/16 + 1
		asks(4000, 4000) // whenever that is, as the clock disagrees
		n.off = 0
		n.later += 10 * long
		asks(700, 4000)
		n.later += 10 * long
		asks(700, 700)
	})
	t.Run("a clock put back makes no quarantine longer than whole", func(t *testing.T) {
		n := guarded(t, own)
		mark(t, n, own, -hour, 1000)
		n.acquire(t, "a", 0).want(t, wire.SetVoteless, 0, whole)
		wantMarker(t, n, own, 0, 1000)
	})
	t.Run("a quarantine begins when the clock is known to be right", func(t *testing.T) {
		for name, off := range map[string]int64{"not known": 0, "ahead": theSkew + 1, "behind": -theSkew - 1} {
			n := guarded(t, own)
			n.Del(t.Context(), n.key, n.counterKey, n.markerKey())
			n.off, n.alone = off, off == 0
			for range 2 {
				n.acquire(t, "a", 0).want(t, wire.SetVoteless, 0, whole)
				if born := n.HGet(t.Context(), n.markerKey(), "born").Val(); born != "?" {
					t.Errorf("%s: got born %q, want that it is open", name, born)
				}
				n.later += 10 * whole // the node's clock does not count
			}
			n.off, n.alone = 0, false
			n.acquire(t, "a", 0).want(t, wire.SetVoteless, 0, whole)
			n.later += whole - 1
			n.acquire(t, "a", 0).want(t, wire.SetVoteless, 0, 1)
			n.later++
			n.release(t, "a", 0, 0)
			n.acquire(t, "a", 0).wantOneOf(t, "a grant", wire.Granted)
		}
	})
	t.Run("a quarantine begins anew when the clock is wrong in it", func(t *testing.T) {
		n := guarded(t, own)
		mark(t, n, own, whole-1, 1000)
		n.alone = true // then the clock tells nothing
		n.acquire(t, "a", 0).want(t, wire.SetVoteless, 0, 1)
		n.alone, n.off = false, theSkew+1
		n.acquire(t, "a", 0).want(t, wire.SetVoteless, 0, whole)
		n.off, n.later = 0, 10*whole
		n.acquire(t, "a", 0).want(t, wire.SetVoteless, 0, whole)
		// A node keeps its vote after a quarantine: it is up to the clients to refuse it.
		n = guarded(t, own)
		n.Del(t.Context(), n.key)
		mark(t, n, own, whole, 1000)
		n.off = theSkew + 1
		n.acquire(t, "a", 0).wantOneOf(t, "no quarantine", wire.Unseeded)
	})
	t.Run("half a marker is none", func(t *testing.T) {
		for _, field := range []string{"run", "born", "maxttl"} {
			n := guarded(t, own)
			mark(t, n, own, 10*whole, 1000)
			n.HDel(t.Context(), n.markerKey(), field)
			n.acquire(t, "a", 0).want(t, wire.SetVoteless, 0, whole)
			n.Del(t.Context(), n.key, n.markerKey())
		}
	})
	t.Run("a marker of the wrong type is no vote", func(t *testing.T) {
		n := guarded(t, own)
		n.set(t, n.markerKey(), "x", 0)
		for name, rep := range map[string]Reply{"acquire": n.acquire(t, "a", 0), "extend": n.extend(t, "a", 0, 0, 64)} {
			if !Says(rep.Err, "WRONGTYPE") {
				t.Errorf("%s: got code %d, %v; want WRONGTYPE", name, rep.Code, rep.Err)
			}
		}
		n.release(t, "a", 0, 0).want(t, wire.Gone, 0, 0)
		n.wantKeys(t, "", "")
	})
}

func testAcquire(t *testing.T, base *node) {
	t.Run("a free lock is granted", func(t *testing.T) {
		n := base.fresh(t)
		before := n.now(t)
		rep := n.acquire(t, "a", 0)
		after := n.now(t)
		if n.micros < before || n.micros > after {
			t.Errorf("node time: got %d, want from %d to %d", n.micros, before, after)
		}
		rep.want(t, wire.Granted, rep.Counter, 0)
		n.wantKeys(t, value("a", rep.Counter), strconv.FormatInt(rep.Counter, 10))
		n.wantTTL(t, n.key, hour)
		n.wantTTL(t, n.counterKey, 10*hour+1)
	})
	t.Run("sent again it is mine, with the same counter", func(t *testing.T) {
		n := base.fresh(t)
		first := n.acquire(t, "a", 0)
		for range 2 {
			n.acquire(t, "a", 0).want(t, wire.Mine, first.Counter, 0)
		}
		n.wantKeys(t, value("a", first.Counter), strconv.FormatInt(first.Counter, 10))
	})
	t.Run("each grant moves the counter by a block and renews its life", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.counterKey, "1000", hour)
		for i := range int64(3) {
			c := 1000 + 64*(i+1)
			n.acquire(t, "a"+value("", i), 0).want(t, wire.Granted, c, 0)
			n.wantTTL(t, n.counterKey, 10*hour)
			n.release(t, "a"+value("", i), c, c).want(t, wire.Released, 0, 0)
		}
	})
	t.Run("a counter without expiry gets an expiry", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.counterKey, "1000", 0)
		n.acquire(t, "a", 0).want(t, wire.Granted, 1064, 0)
		n.wantTTL(t, n.counterKey, 10*hour)
	})
	t.Run("numbers above 1e15 keep all digits", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.counterKey, "1760000000000000", 0)
		n.acquire(t, "a", 0).want(t, wire.Granted, 1760000000000064, 0)
		n.wantKeys(t, "a|1760000000000064", "1760000000000064")
		n.acquire(t, "a", 0).want(t, wire.Mine, 1760000000000064, 0)
		n.release(t, "a", 1760000000000064, 1760000000000065).want(t, wire.Released, 0, 0)
		n.wantKeys(t, "", "1760000000000065")
		n.acquire(t, "b", 0).want(t, wire.Granted, 1760000000000129, 0)
		n.wantKeys(t, "b|1760000000000129", "1760000000000129")
	})
	t.Run("another's key is busy, with what it has left", func(t *testing.T) {
		n := base.fresh(t)
		first := n.acquire(t, "a", 0)
		rep := n.acquire(t, "b", 0)
		if rep.Extra > hour || rep.Extra <= hour-minute {
			t.Errorf("time left: got %d ms, want %d or a little less", rep.Extra, hour)
		}
		rep.want(t, wire.Busy, 0, rep.Extra)
		n.wantKeys(t, value("a", first.Counter), strconv.FormatInt(first.Counter, 10))
	})
	t.Run("another's key is busy, with the label of its owner", func(t *testing.T) {
		for value, owner := range map[string]string{
			"b;web 1 (nightly)|64": "web 1 (nightly)", "b;w;x|0": "w;x", wire.Placeholder("b;w"): "w",
			"b|64": "", "b;|64": "", "b;w": "", "b;w|": "", "b;w|x": "", "b;w|1|2": "", "b;\x1b[2J|64": "",
		} {
			n := base.fresh(t)
			n.set(t, n.key, value, hour)
			for _, who := range []string{"", wire.NoProcess} {
				rep := n.send(t, wire.Acquire, "a", hour, 0, 0, who)
				if who == "" && (rep.Extra > hour || rep.Extra <= hour-minute) {
					t.Errorf("%q: time left: got %d ms, want %d or a little less", value, rep.Extra, hour)
				}
				rep.want(t, wire.Busy, 0, rep.Extra)
				if rep.Owner != owner {
					t.Errorf("%q: got owner %q, want %q", value, rep.Owner, owner)
				}
			}
			n.wantKeys(t, value, "")
		}
	})
	t.Run("another's key that never expires is busy with -1", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.key, "b|64", 0)
		n.acquire(t, "a", 0).want(t, wire.Busy, 0, -1)
		n.wantKeys(t, "b|64", "")
	})
	t.Run("the attempt's own key without a counter is set voteless", func(t *testing.T) {
		for _, value := range []string{"a|0", "a|", "a|x", "a|-1"} {
			n := base.fresh(t)
			n.set(t, n.key, value, hour)
			rep := n.acquire(t, "a", 0)
			rep.want(t, wire.SetVoteless, 0, 0)
			if rep.Refusal(n.keys()) == nil {
				t.Errorf("%q counts as a vote", value)
			}
			n.wantKeys(t, value, "")
		}
	})
}

// testSeed tests where a missing counter starts, and how far it may be ahead.
//
// Source: ALGORITHM section 4.
func testSeed(t *testing.T, base *node) {
	pinned := func(t *testing.T) *node {
		n := base.fresh(t)
		n.pinned = true
		return n
	}
	for name, off := range map[string]int64{
		"the clocks agree":            0,
		"this clock is behind":        theSkew / 2,
		"this clock is ahead":         -theSkew / 2,
		"this clock is just so ahead": -theSkew,
	} {
		t.Run(name, func(t *testing.T) {
			n := pinned(t)
			n.off = off
			want := theTime + off
			n.acquire(t, "a", 0).want(t, wire.Granted, want, 0)
			if n.micros != theTime {
				t.Errorf("node time: got %d, want %d", n.micros, theTime)
			}
			n.wantKeys(t, value("a", want), strconv.FormatInt(want, 10))
			n.wantTTL(t, n.counterKey, 10*hour+max(0, (want-theTime+999)/1000))
		})
	}
	for name, test := range map[string]struct{ wish, want int64 }{ // relative to the median
		"a wish at the median":                       {0, 0},
		"a wish just ahead":                          {1, 1},
		"a wish of one second ahead":                 {second, second},
		"a wish more than a second ahead is ignored": {second + 1, 0},
		"a wish far ahead is ignored":                {3600 * second, 0},
		"a wish behind is ignored":                   {-1, 0},
		"a negative wish is ignored":                 {-2 * theTime, 0},
	} {
		for _, off := range []int64{0, second, -second} {
			t.Run(fmt.Sprintf("%s, the median %d us ahead", name, off), func(t *testing.T) {
				n := pinned(t)
				n.off, n.wish = off, theTime+off+test.wish
				n.acquire(t, "a", 0).want(t, wire.Granted, theTime+off+test.want, 0)
			})
		}
	}
	for name, off := range map[string]int64{"ahead": -theSkew - 1, "behind": theSkew + 1, "a day ahead": -24 * hour * 1000} {
		t.Run("a clock that is too far "+name+" starts none", func(t *testing.T) {
			n := pinned(t)
			n.off = off
			by := -off / 1000
			if off > 0 {
				by = -(off + 999) / 1000
			}
			for range 2 { // a repetition is no vote either
				rep := n.acquire(t, "a", 0)
				if rep.Code == wire.SetVoteless {
					rep.want(t, wire.SetVoteless, 0, 0)
				} else {
					rep.want(t, wire.Unseeded, 0, by)
				}
				if rep.Refusal(n.keys()) == nil || !rep.HasKey() {
					t.Error("it counts as a vote, or does not hold the place")
				}
				n.wantKeys(t, "a|0", "")
			}
			n.acquire(t, "b", 0).wantOneOf(t, "busy alone", wire.Busy)
			n.release(t, "a", 0, 0).want(t, wire.Released, 0, 0)
			n.set(t, n.counterKey, "1000", hour) // an existing counter is raised
			n.acquire(t, "c", 0).want(t, wire.Granted, 1064, 0)
		})
	}
	t.Run("a caller that does not know the clocks starts none", func(t *testing.T) {
		n := pinned(t)
		n.alone = true
		n.acquire(t, "a", 0).want(t, wire.Unseeded, 0, 0)
		n.wantKeys(t, "a|0", "")
	})
	t.Run("the clocks do not touch a counter that is there", func(t *testing.T) {
		n := pinned(t)
		n.set(t, n.counterKey, "5", 0)
		n.acquire(t, "a", 0).want(t, wire.Granted, 69, 0)
	})
	t.Run("with the node's own clock", func(t *testing.T) {
		n := base.fresh(t)
		before := time.Now().UnixMicro()
		rep := n.acquire(t, "a", 0)
		if least, most := before, time.Now().UnixMicro(); rep.Code != wire.Granted || rep.Counter < least || rep.Counter > most {
			t.Errorf("got code %d, counter %d; want a grant and %d to %d", rep.Code, rep.Counter, least, most)
		}
	})
}

// testAhead tests counters that no grant can have set.
//
// Source: ALGORITHM section 4.
func testAhead(t *testing.T, base *node) {
	const most = theTime + theAhead
	pinned := func(t *testing.T) *node {
		n := base.fresh(t)
		n.pinned = true
		return n
	}
	at := func(c int64) string { return strconv.FormatInt(c, 10) }
	t.Run("the largest counter is granted, and lives until the clock has passed it", func(t *testing.T) {
		n := pinned(t)
		n.set(t, n.counterKey, at(most-wire.Block), 0)
		n.acquire(t, "a", 0).want(t, wire.Granted, most, 0)
		n.wantTTL(t, n.counterKey, 10*hour+theAhead/1000)
		n.acquire(t, "a", 0).want(t, wire.Mine, most, 0)
	})
	for _, c := range []int64{most - wire.Block + 1, 8999999999999999, 9007199254740993, 9223372036854775807} {
		t.Run(fmt.Sprintf("%d is not counted on", c), func(t *testing.T) {
			n := pinned(t)
			n.set(t, n.counterKey, at(c), hour)
			rep := n.acquire(t, "a", 0)
			if by := (c + wire.Block - theTime + 999) / 1000; c < 9e15 {
				rep.want(t, wire.Ahead, 0, by)
			}
			err := rep.Refusal(n.keys())
			var ahead Ahead
			if !errors.As(err, &ahead) || !strings.Contains(err.Error(), strconv.Quote(n.counterKey)) || errors.Is(err, reason.WrongType) {
				t.Errorf("got %v, want a counter that is ahead, and the key %q", err, n.counterKey)
			}
			n.wantKeys(t, "", at(c))
			n.wantTTL(t, n.counterKey, hour)
			n.set(t, n.key, "b|64", hour)
			n.acquire(t, "a", 0).wantOneOf(t, "busy before that", wire.Busy)
		})
	}
	t.Run("a grant with such a counter is no vote when it is asked for again", func(t *testing.T) {
		n := pinned(t)
		n.set(t, n.key, value("a", most+1), hour)
		n.acquire(t, "a", 0).want(t, wire.Ahead, 0, theAhead/1000+1)
	})
	t.Run("no counter is raised to such a counter", func(t *testing.T) {
		n := pinned(t)
		n.set(t, n.key, "a|64", hour)
		n.set(t, n.counterKey, "64", hour)
		n.raise(t, "a", 64, most+1).want(t, wire.Ahead, 0, theAhead/1000+1)
		n.extend(t, "a", 0, 64, most+1).want(t, wire.Kept, 0, 0)
		n.wantKeys(t, "a|64", "64")
		n.wantTTL(t, n.counterKey, hour)
		n.release(t, "a", 64, most+1).want(t, wire.Released, 0, 0)
		n.wantKeys(t, "", "64")
	})
	t.Run("what is raised lives until the clock has passed it", func(t *testing.T) {
		raise := map[string]func(n *node){
			"raise":   func(n *node) { n.raise(t, "a", 64, most).want(t, wire.Raised, 0, 0) },
			"extend":  func(n *node) { n.extend(t, "a", 0, 64, most).want(t, wire.Kept, 0, 0) },
			"release": func(n *node) { n.release(t, "a", 64, most).want(t, wire.Released, 0, 0) },
		}
		for name, do := range raise {
			n := pinned(t)
			n.set(t, n.key, "a|64", hour)
			n.set(t, n.counterKey, "64", hour)
			do(n)
			if got := n.Get(t.Context(), n.counterKey).Val(); got != at(most) {
				t.Errorf("%s: got the counter %s, want %d", name, got, int64(most))
			}
			n.wantTTL(t, n.counterKey, 10*hour+theAhead/1000)
		}
	})
	t.Run("a counter that is ahead is not kept alive", func(t *testing.T) {
		for _, given := range []int64{64, most + 1} {
			n := pinned(t)
			n.set(t, n.key, value("a", given), minute)
			n.set(t, n.counterKey, at(most+1), hour)
			n.extend(t, "a", 0, given, given).want(t, wire.Kept, 0, 0)
			n.wantTTL(t, n.key, hour)
			n.wantTTL(t, n.counterKey, hour)
		}
	})
	t.Run("the largest counter is kept until the clock has passed it", func(t *testing.T) {
		n := pinned(t)
		n.set(t, n.key, value("a", most), minute)
		n.set(t, n.counterKey, at(most), hour)
		n.extend(t, "a", 0, most, most).want(t, wire.Kept, 0, 0)
		n.wantTTL(t, n.key, hour)
		n.wantTTL(t, n.counterKey, 10*hour+theAhead/1000)
	})
}

func testLate(t *testing.T, base *node) {
	send := map[string]func(*testing.T, *node, int64) Reply{
		"acquire": func(t *testing.T, n *node, notAfter int64) Reply { return n.acquire(t, "a", notAfter) },
		"extend":  func(t *testing.T, n *node, notAfter int64) Reply { return n.extend(t, "a", notAfter, 64, 128) },
	}
	for name, send := range send {
		t.Run(name+" on a free lock leaves nothing", func(t *testing.T) {
			n := base.fresh(t)
			send(t, n, 1).want(t, wire.Late, 0, 0)
			n.wantKeys(t, "", "")
		})
		t.Run(name+" on its own lock changes nothing", func(t *testing.T) {
			n := base.fresh(t)
			n.set(t, n.key, "a|64", 30*minute)
			n.set(t, n.counterKey, "64", 30*minute)
			rep := send(t, n, n.now(t)-1)
			rep.want(t, wire.Late, 0, 0)
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
			send(t, n, theTime-1).want(t, wire.Late, 0, 0)
			n.wantKeys(t, "", "")
		})
		t.Run(name+" at its time is not", func(t *testing.T) {
			n := base.fresh(t)
			n.pinned = true
			if rep := send(t, n, theTime); rep.Err != nil || rep.Code == wire.Late {
				t.Errorf("got code %d, %v", rep.Code, rep.Err)
			}
		})
		t.Run(name+" well before its time is not", func(t *testing.T) {
			n := base.fresh(t)
			if rep := send(t, n, n.now(t)+3600*second); rep.Err != nil || rep.Code == wire.Late {
				t.Errorf("got code %d, %v", rep.Code, rep.Err)
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
	// wantList checks that a list is unchanged.
	wantList := func(t *testing.T, n *node, key string) {
		t.Helper()
		got, err := n.LRange(t.Context(), key, 0, -1).Result()
		if err != nil || !slices.Equal(got, []string{"x"}) {
			t.Fatalf("%s: got %q, %v; want the list that was there", key, got, err)
		}
	}
	wantSentinel := func(t *testing.T, n *node, rep Reply, key string) {
		t.Helper()
		err := rep.Refusal(n.keys())
		if !errors.Is(err, reason.WrongType) || !strings.Contains(err.Error(), strconv.Quote(key)) {
			t.Errorf("got %v, want reason.WrongType and the key %q", err, key)
		}
	}
	t.Run("a list for a key", func(t *testing.T) {
		n := base.fresh(t)
		list(t, n, n.key)
		rep := n.acquire(t, "a", 0)
		rep.want(t, wire.BadType, 0, 1)
		wantSentinel(t, n, rep, n.key)
		rep = n.extend(t, "a", 0, 64, 64)
		rep.want(t, wire.BadType, 0, 1)
		wantSentinel(t, n, rep, n.key)
		n.raise(t, "a", 64, 128).want(t, wire.Unheld, 0, 0)
		n.release(t, "a", 64, 64).want(t, wire.Gone, 0, 0)
		wantList(t, n, n.key)
		if got := n.Exists(t.Context(), n.counterKey).Val(); got != 0 {
			t.Error("a counter was left")
		}
	})
	t.Run("a list for a counter", func(t *testing.T) {
		n := base.fresh(t)
		list(t, n, n.counterKey)
		rep := n.acquire(t, "a", 0)
		rep.want(t, wire.BadType, 0, 2)
		wantSentinel(t, n, rep, n.counterKey)
		if got := n.Exists(t.Context(), n.key).Val(); got != 0 {
			t.Error("a key was left")
		}
		// An attempt that has the key can keep it and give it back.
		n.set(t, n.key, "a|64", minute)
		n.extend(t, "a", 0, 64, 128).want(t, wire.Kept, 0, 0)
		n.release(t, "a", 64, 128).want(t, wire.Released, 0, 0)
		wantList(t, n, n.counterKey)
	})
	for _, value := range []string{"abc", "", "12x", "1 2", "1.5", "-64"} {
		t.Run(fmt.Sprintf("a counter that is %q", value), func(t *testing.T) {
			n := base.fresh(t)
			n.set(t, n.counterKey, value, 0)
			rep := n.acquire(t, "a", 0)
			rep.want(t, wire.BadType, 0, 2)
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
		for range 2 { // a repetition does the same
			rep := n.raise(t, "a", 64, 1760000000000064)
			rep.want(t, wire.Raised, 0, 0)
			n.wantKeys(t, "a|64", "1760000000000064")
			n.wantTTL(t, n.counterKey, 10*hour)
			n.wantTTL(t, n.key, 30*minute)
		}
	})
	t.Run("a higher counter is left alone", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.key, "a|64", 30*minute)
		n.set(t, n.counterKey, "1000", 0)
		n.raise(t, "a", 64, 128).want(t, wire.Raised, 0, 0)
		n.wantKeys(t, "a|64", "1000")
	})
	t.Run("a missing counter is set, where the key is held", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.key, "a|64", 30*minute)
		n.raise(t, "a", 64, 128).want(t, wire.Raised, 0, 0)
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
			n.raise(t, "a", 64, 1000).want(t, wire.Unheld, 0, 0)
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
		for range 2 { // a repetition does the same
			before := n.now(t)
			rep := n.extend(t, "a", 0, 64, 64)
			rep.want(t, wire.Kept, 0, 0)
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
		n.extend(t, "a", 0, 64, 64).want(t, wire.Kept, 0, 0)
		n.wantTTL(t, n.key, 2*hour)
	})
	t.Run("a missing key is filled", func(t *testing.T) {
		n := base.fresh(t)
		n.extend(t, "a", 0, 64, 128).want(t, wire.Filled, 0, 0)
		n.wantKeys(t, "a|0", "") // and no counter is made
		n.wantTTL(t, n.key, hour)
		n.extend(t, "a", 0, 0, 128).want(t, wire.Kept, 0, 0) // a repetition finds the key
		n.wantKeys(t, "a|0", "")
		n.release(t, "a", 0, 128).want(t, wire.Released, 0, 0)
		n.wantKeys(t, "", "")
	})
	t.Run("a missing counter is not created", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.key, "a|64", minute)
		n.extend(t, "a", 0, 64, 128).want(t, wire.Kept, 0, 0)
		n.wantKeys(t, "a|64", "")
	})
	t.Run("a filled key leaves a counter alone", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.counterKey, "64", hour)
		n.extend(t, "a", 0, 0, 128).want(t, wire.Filled, 0, 0)
		n.extend(t, "a", 0, 0, 128).want(t, wire.Kept, 0, 0)
		n.wantKeys(t, "a|0", "64")
		n.wantTTL(t, n.counterKey, hour)
	})
	for _, test := range []struct {
		name, value   string
		given, target int64
		want          string // for a counter that was at 64
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
			n.extend(t, "a", 0, test.given, test.target).want(t, wire.Kept, 0, 0)
			n.wantKeys(t, test.value, test.want)
			n.wantTTL(t, n.key, hour)
		})
	}
	for value, want := range map[string]wire.Code{
		"b|64": wire.Taken, wire.Placeholder("a"): wire.TakenAway, wire.Placeholder("b"): wire.Taken, wire.BrokenMark + "a|64": wire.Taken,
	} {
		t.Run(value+" is taken", func(t *testing.T) {
			n := base.fresh(t)
			n.set(t, n.key, value, 30*minute)
			n.set(t, n.counterKey, "64", hour)
			n.extend(t, "a", 0, 64, 128).want(t, want, 0, 0)
			n.wantKeys(t, value, "64")
			n.wantTTL(t, n.key, 30*minute)
			n.wantTTL(t, n.counterKey, hour)
		})
	}
}

// Break changes the key that it saw, and leaves any other key alone.
//
// Source: ALGORITHM section 5, "Break".
func TestBreakScript(t *testing.T) {
	base := node{Client: redistest.Client(t, redistest.Masters(t, 1)[0].Addr())}
	const nobodys = wire.BrokenMark + "a|0"
	for _, test := range []struct {
		name, value  string
		life         int64 // ms, 0 = for ever
		done         int64
		left         string // of the value
		lives, after int64
	}{
		{"the key that was seen", "a|64", 30 * minute, 1, nobodys, 30 * minute, 30 * minute},
		{"a key that never ends", "a|64", 0, 1, nobodys, hour, hour},
		{"another attempt's key", "b|64", 30 * minute, 0, "b|64", 0, 30 * minute},
		{"another count of the same", "a|0", 30 * minute, 0, "a|0", 0, 30 * minute},
		{"a placeholder", nobodys, 30 * minute, 1, nobodys, 30 * minute, 30 * minute},
		{"a placeholder that never ends", nobodys, 0, 1, nobodys, hour, hour},
		{"another attempt's placeholder", wire.BrokenMark + "b|0", 30 * minute, 0, wire.BrokenMark + "b|0", 0, 30 * minute},
		{"no key", "", 0, 0, "", 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := base.fresh(t)
			if test.value != "" {
				n.set(t, n.key, test.value, test.life)
			}
			reply, err := n.Eval(t.Context(), wire.Break.Source, []string{n.key}, "a|64", wire.Placeholder("a"), hour).Int64Slice()
			if err != nil || len(reply) != 2 || reply[0] != test.done || reply[1] > test.lives || reply[1] < test.lives-minute {
				t.Errorf("got %v, %v; want %d and %d ms or a little less", reply, err, test.done, test.lives)
			}
			n.wantKeys(t, test.left, "")
			if test.after > 0 {
				n.wantTTL(t, n.key, test.after)
			}
		})
	}
}

func testRelease(t *testing.T, base *node) {
	t.Run("an own key is deleted, once", func(t *testing.T) {
		n := base.fresh(t)
		c := n.acquire(t, "a", 0).Counter
		rep := n.release(t, "a", c, c)
		rep.want(t, wire.Released, 0, 0)
		if n.micros != 0 {
			t.Errorf("node time: got %d, want none", n.micros)
		}
		n.wantKeys(t, "", strconv.FormatInt(c, 10))
		n.release(t, "a", c, c).want(t, wire.Gone, 0, 0) // a repetition
		n.wantKeys(t, "", strconv.FormatInt(c, 10))
	})
	t.Run("an own key is deleted by its id alone", func(t *testing.T) {
		n := base.fresh(t)
		for value, given := range map[string]int64{"a|64": 0, "a|128": 64, "a|0": 0, "a|": 0} {
			n.set(t, n.key, value, minute)
			n.release(t, "a", given, 0).want(t, wire.Released, 0, 0)
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
			n.release(t, "a", test.given, test.target).want(t, wire.Released, 0, 0)
			n.wantKeys(t, "", test.want)
			switch {
			case test.counter != "" && test.value == value("a", test.given) && test.given != 0 && test.target != 0:
				n.wantTTL(t, n.counterKey, 10*hour) // the counter was in use
			case test.counter != "":
				n.wantTTL(t, n.counterKey, hour)
			}
		})
	}
	t.Run("the placeholder in place of an own key is deleted, and no other", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.counterKey, "64", hour)
		for value, want := range map[string]wire.Code{
			wire.Placeholder("a"): wire.Released, wire.Placeholder("b"): wire.Gone, wire.Placeholder("aa"): wire.Gone,
			wire.BrokenMark + "a|64": wire.Gone, wire.BrokenMark + "a": wire.Gone,
		} {
			n.set(t, n.key, value, minute)
			n.release(t, "a", 64, 128).want(t, want, 0, 0)
			if want == wire.Released {
				value = ""
			}
			n.wantKeys(t, value, "64")
		}
	})
	t.Run("no attempt can lock a placeholder", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.key, wire.Placeholder("a"), hour)
		for _, id := range []string{"a", "b"} {
			rep := n.acquire(t, id, 0)
			if rep.Code != wire.Busy || rep.Extra <= hour-minute || rep.Extra > hour {
				t.Errorf("acquire of %s: got %+v, want busy for what is left", id, rep)
			}
		}
		n.raise(t, "a", 0, 128).want(t, wire.Unheld, 0, 0)
		n.wantKeys(t, wire.Placeholder("a"), "")
	})
	t.Run("a counter that is no number does not keep the key", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.key, "a|64", minute)
		n.set(t, n.counterKey, "abc", hour)
		n.release(t, "a", 64, 128).want(t, wire.Released, 0, 0)
		if got := n.Exists(t.Context(), n.key).Val(); got != 0 {
			t.Error("the key is there still")
		}
	})
}

// testForeign sends all requests to keys that are not ours.
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
				rep := n.acquire(t, "a", 0)
				rep.want(t, wire.Busy, 0, rep.Extra)
				n.raise(t, "a", 64, 1000).want(t, wire.Unheld, 0, 0)
				n.extend(t, "a", 0, 64, 1000).want(t, wire.Taken, 0, 0)
				n.release(t, "a", 64, 1000).want(t, wire.Gone, 0, 0)
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

// A node that is out of memory grants nothing, but keeps and gives back its keys.
//
// Source: ALGORITHM section 5 ("never skipped").
func TestScriptsOutOfMemory(t *testing.T) {
	master := redistest.Masters(t, 1, "--maxmemory-policy", "noeviction")[0]
	base := node{Client: redistest.Client(t, master.Addr()), seen: make(map[wire.Op]map[wire.Code]bool)}
	n := base.fresh(t)
	n.set(t, n.key, "a|64", 30*minute)
	n.set(t, n.counterKey, "64", hour)
	free := *n
	free.key, free.counterKey = n.key+"free", n.key+"free"+wire.FenceSuffix
	if err := n.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	for name, rep := range map[string]Reply{"acquire": free.acquire(t, "a", 0), "extend": free.extend(t, "a", 0, 0, 64)} {
		if !redis.HasErrorPrefix(rep.Err, "OOM") {
			t.Errorf("%s: got code %d, %v; want an error that begins with OOM", name, rep.Code, rep.Err)
		}
	}
	free.wantKeys(t, "", "")

	n.acquire(t, "b", 0).wantOneOf(t, "OOM", wire.Busy)
	n.wantKeys(t, "a|64", "64")
	n.extend(t, "a", 0, 64, 128).want(t, wire.Kept, 0, 0)
	n.wantTTL(t, n.key, hour)
	n.release(t, "a", 64, 192).want(t, wire.Released, 0, 0)
	if got := n.Exists(t.Context(), n.key).Val(); got != 0 {
		t.Error("the key is there still")
	}
	if c, err := n.Get(t.Context(), n.counterKey).Int64(); err != nil || c < 64 {
		t.Errorf("counter: got %d, %v; want no less than before", c, err)
	}
}

// wantOneOf checks for an error with a prefix, or a code.
func (r Reply) wantOneOf(t *testing.T, prefix string, c wire.Code) {
	t.Helper()
	if r.Err != nil && !redis.HasErrorPrefix(r.Err, prefix) || r.Err == nil && r.Code != c {
		t.Errorf("got code %d, %v; want %s or code %d", r.Code, r.Err, prefix, c)
	}
}

// codesOfGo returns the constants of type Code in wire.go.
func codesOfGo(t *testing.T) []wire.Code {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../wire/wire.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var codes []wire.Code
	ast.Inspect(file, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok {
			if id, ok := v.Type.(*ast.Ident); ok && id.Name == "Code" {
				c, err := strconv.Atoi(v.Values[0].(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				codes = append(codes, wire.Code(c))
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

// codesOfBody returns the codes that a Lua file can reply.
func codesOfBody(source string) []wire.Code {
	return codesIn(source, `\breturn (?:false, )?(\d+)\b`)
}

// codesOfHead returns the codes that the comment at the top of a Lua file lists.
func codesOfHead(source string) []wire.Code {
	var head []string
	for line := range strings.Lines(source) {
		if !strings.HasPrefix(line, "--") {
			break
		}
		head = append(head, line)
	}
	return codesIn(strings.Join(head, ""), `(?m)(?:^--   |, )(\d+) +[a-z]+ ?`)
}

func codesIn(s, pattern string) []wire.Code {
	found := make(map[wire.Code]bool)
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(s, -1) {
		c, _ := strconv.Atoi(m[1]) // always digits
		found[wire.Code(c)] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// The head of each Lua file lists the replies that its body gives.
func TestScriptHeads(t *testing.T) {
	all := make(map[wire.Code]bool)
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
			r := &Request{Op: o, Key: new(Key)}
			if got, want := len(argsOf(t, r)), r.groupArgs()+requestArgs; got != want {
				t.Errorf("%d arguments are sent, and %d are announced", got, want)
			}
		})
	}
	if got, want := slices.Sorted(maps.Keys(all)), codesOfGo(t); !slices.Equal(got, want) {
		t.Errorf("the files give %v, wire.go has %v", got, want)
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

// The library sends arguments in the order in which the Lua files read them: an attempt goes
// through all four requests.
func TestRequestsOnARealServer(t *testing.T) {
	master := redistest.Masters(t, 1)[0]
	base := node{Client: redistest.Client(t, master.Addr()), seen: make(map[wire.Op]map[wire.Code]bool)}
	n := base.fresh(t)
	key := n.keys()
	send := func(r Request) Reply {
		t.Helper()
		r.Key = key
		return n.parse(t, r.Op, n.Eval(t.Context(), wire.Requests.Source, []string{n.markerKey(), n.key}, append(n.common(""), argsOf(t, &r)...)...))
	}
	send(Request{Op: wire.Acquire, notAfter: 1}).want(t, wire.Late, 0, 0)
	granted := send(Request{Op: wire.Acquire, notAfter: n.now(t) + 3600*second})
	c := granted.Counter
	granted.want(t, wire.Granted, c, 0)
	n.wantKeys(t, value("a", c), strconv.FormatInt(c, 10))
	n.wantTTL(t, n.key, hour)
	n.wantTTL(t, n.counterKey, 10*hour+1)
	send(Request{Op: wire.Raise, Counter: c, Target: c + 1}).want(t, wire.Raised, 0, 0)
	n.wantKeys(t, value("a", c), strconv.FormatInt(c+1, 10))
	send(Request{Op: wire.Extend, Counter: c, Target: c + 2, notAfter: 1}).want(t, wire.Late, 0, 0)
	key.TTL = 2 * hour
	send(Request{Op: wire.Extend, Counter: c, Target: c + 2}).want(t, wire.Kept, 0, 0)
	n.wantKeys(t, value("a", c), strconv.FormatInt(c+2, 10))
	n.wantTTL(t, n.key, 2*hour)
	n.wantTTL(t, n.counterKey, 10*hour+1)
	send(Request{Op: wire.Release, Counter: c, Target: c + 3}).want(t, wire.Released, 0, 0)
	n.wantKeys(t, "", strconv.FormatInt(c+3, 10))
	n.wantTTL(t, n.counterKey, 10*hour+1)
}

// A server that does not know a script's hash says so, and does nothing.
func TestNoScript(t *testing.T) {
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

// A batch executes its requests in order, independently: the refusal of one does not affect
// the others.
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
		r    Request
		want wire.Code // 0: an error
	}{
		{"a", Request{Op: wire.Acquire}, wire.Granted},
		{"list", Request{Op: wire.Acquire}, wire.BadType},
		{"a", Request{Op: wire.Extend}, wire.Kept},
		{"a", Request{Op: wire.Release}, 0}, // the user has no permission to delete
		{"b", Request{Op: wire.Acquire, notAfter: 1}, wire.Late},
		{"c", Request{Op: wire.Raise}, wire.Unheld},
		{"c", Request{Op: wire.Release}, wire.Gone},
		{"a", Request{Op: wire.Acquire}, wire.Mine},
	}
	call := []any{"EVAL", wire.Requests.Source, 1 + len(requests), "no marker"}
	for _, q := range requests {
		call = append(call, q.key)
	}
	call = append(call, "", time.Now().UnixMicro(), theSettings)
	for i := range requests {
		q := &requests[i]
		q.r.Key = &Key{ID: "id", TTL: minute}
		call = append(call, argsOf(t, &q.r)...)
	}
	values, err := c.Do(t.Context(), call...).Slice()
	if err != nil {
		t.Fatal(err)
	}
	h, replies, err := parseReplies(values, len(requests))
	if err != nil || h.micros == 0 {
		t.Fatalf("got node time %d, %v", h.micros, err)
	}
	for i, q := range requests {
		rep := replies[i]
		if q.want == 0 && !errors.Is(nodeFailure(rep.Err), reason.Permission) || q.want != 0 && (rep.Err != nil || rep.Code != q.want) {
			t.Errorf("%d, %s of %q: got code %d, %v; want %d", i, q.r.Op, q.key, rep.Code, rep.Err, q.want)
		}
	}
}

// A reply that the script cannot give is an error.
func TestParseReplies(t *testing.T) {
	for _, values := range [][]any{
		nil,
		{int64(1)},
		{theTime, int64(0), int64(1), int64(64)},
		{theTime, int64(0), int64(1), int64(64), int64(0), int64(0)},
		{"1760000000000000", int64(0), int64(1), int64(64), int64(0)},
		{theTime, "0", int64(1), int64(64), int64(0)},
		{int64(1), int64(0), int64(1), int64(64), int64(0)}, // a time in 1970
		{int64(math.MaxInt64), int64(0), int64(1), int64(64), int64(0)},
		{int64(-1), int64(0), int64(1), int64(64), int64(0)},
		{theTime, int64(0), nil, int64(64), int64(0)},
		{theTime, int64(0), int64(1), "64", int64(0)},
		{theTime, int64(0), int64(1), int64(64), nil},
		{theTime, int64(0), int64(3), int64(0), "64"},
		{theTime, int64(0), int64(3), int64(0), "web 1"},
	} {
		if _, _, err := parseReplies(values, 1); !errors.Is(err, ErrBadReply) {
			t.Errorf("%v: got %v, want ErrBadReply", values, err)
		}
	}
	h, replies, err := parseReplies([]any{theTime, int64(9), int64(3), int64(0), int64(-1), "OOM no", int64(0), int64(0)}, 2)
	if want := []Reply{{Code: wire.Busy, Extra: -1}, {Err: resp.Error("OOM no")}}; err != nil || h != (heading{theTime, 9 * time.Millisecond}) || !reflect.DeepEqual(replies, want) {
		t.Errorf("got %v, %v, %v; want theTime and 9 ms, %v", h, replies, err, want)
	}
}

// A server's refusal of a command inside a script is an error. It says nothing about the
// keys: a lock of the wrong type ends all waiting, and a release that found nothing is not
// repeated.
func TestRefusalsInsideScripts(t *testing.T) {
	send := map[wire.Op]func(*testing.T, *node) Reply{
		wire.Acquire: func(t *testing.T, n *node) Reply { return n.acquire(t, "a", 0) },
		wire.Raise:   func(t *testing.T, n *node) Reply { return n.raise(t, "a", 64, 128) },
		wire.Extend:  func(t *testing.T, n *node) Reply { return n.extend(t, "a", 0, 64, 128) },
		wire.Release: func(t *testing.T, n *node) Reply { return n.release(t, "a", 64, 128) },
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
		return node{Client: c, seen: make(map[wire.Op]map[wire.Code]bool)}
	}
	for name, rules := range map[string][]any{
		"no GETRANGE": {"~*", "+@all", "-getrange"},
		"no eval":     {"~*", "+@all", "-eval"},
		"no command":  {"~*", "-@all", "+eval", "+time"},
		"no key":      {"~other:*", "+@all"},
	} {
		user := as(t, strings.ReplaceAll(name, " ", "-"), rules...)
		for o, send := range send {
			t.Run(fmt.Sprintf("%s, %s", name, o), func(t *testing.T) {
				n := user.fresh(t)
				if err := admin.Set(t.Context(), n.key, "a|64", 0).Err(); err != nil {
					t.Fatal(err)
				}
				rep := send(t, n)
				if err := nodeFailure(rep.Err); !errors.Is(err, reason.Permission) {
					t.Errorf("got code %d, %v; want reason.Permission", rep.Code, err)
				}
			})
		}
	}
	t.Run("no SET, acquire", func(t *testing.T) {
		user := as(t, "no-SET", "~*", "+@all", "-set")
		if rep := user.fresh(t).acquire(t, "a", 0); !errors.Is(nodeFailure(rep.Err), reason.Permission) {
			t.Errorf("got code %d, %v; want reason.Permission", rep.Code, rep.Err)
		}
	})
	t.Run("no DEL, release", func(t *testing.T) {
		n := as(t, "no-DEL", "~*", "+@all", "-del").fresh(t)
		n.set(t, n.key, "a|64", 0)
		if rep := n.release(t, "a", 64, 64); !errors.Is(nodeFailure(rep.Err), reason.Permission) {
			t.Errorf("got code %d, %v; want reason.Permission", rep.Code, rep.Err)
		}
	})
	for _, missing := range []string{"PTTL", "PEXPIRE"} {
		t.Run("no "+missing+", extend", func(t *testing.T) {
			n := as(t, "no-"+missing, "~*", "+@all", "-"+strings.ToLower(missing)).fresh(t)
			n.set(t, n.key, "a|64", minute)
			n.set(t, n.counterKey, "64", minute)
			if rep := n.extend(t, "a", 0, 64, 64); !errors.Is(nodeFailure(rep.Err), reason.Permission) {
				t.Errorf("got code %d, %v; want reason.Permission", rep.Code, rep.Err)
			}
		})
	}
	t.Run("wrong password", func(t *testing.T) {
		opt := *admin.Options()
		opt.Username, opt.Password = "default", secret
		if err := admin.Do(t.Context(), "ACL", "SETUSER", "default", ">x").Err(); err != nil {
			t.Fatal(err)
		}
		c := redis.NewClient(&opt)
		defer c.Close()
		if err := nodeFailure(c.Ping(t.Context()).Err()); !errors.Is(err, reason.Permission) {
			t.Errorf("got %v, want reason.Permission", err)
		}
	})

	// A replica that lost its master, and may not serve its data.
	replica := redistest.Masters(t, 1)[0]
	c := redistest.Client(t, replica.Addr())
	for _, args := range [][]any{{"REPLICAOF", "127.0.0.1", "1"}, {"CONFIG", "SET", "replica-serve-stale-data", "no"}} {
		if err := c.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	stale := node{Client: c, seen: make(map[wire.Op]map[wire.Code]bool)}
	for o, send := range send {
		t.Run(fmt.Sprintf("stale replica, %s", o), func(t *testing.T) {
			if rep := send(t, stale.fresh(t)); !isUnwritable(rep.Err) {
				t.Errorf("got code %d, %v; want an error that says it is no master", rep.Code, rep.Err)
			}
		})
	}
	if err := c.ConfigSet(t.Context(), "replica-serve-stale-data", "yes").Err(); err != nil {
		t.Fatal(err)
	}
	t.Run("read-only replica, acquire", func(t *testing.T) {
		if rep := stale.fresh(t).acquire(t, "a", 0); !isUnwritable(rep.Err) {
			t.Errorf("got code %d, %v; want an error that says it is no master", rep.Code, rep.Err)
		}
	})
}
