package virtual_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock/internal/virtual"
	"github.com/d0720281/redlock/internal/wire"
)

// The common case of common.lua is a short cut: without it, the other files do the same. One node
// runs the script as it is, the other node without the short cut. Random requests get the same
// replies from both, and leave the same keys, lives and messages.
//
// Source: the head of lua/common.lua.
func TestScriptsCommonCase(t *testing.T) {
	t.Parallel()
	replace := func(old, new string) string {
		changed := strings.Replace(wire.Requests.Source, old, new, 1)
		if changed == wire.Requests.Source {
			t.Fatalf("common.lua has no %q", old)
		}
		return changed
	}
	short := replace("if isCommon then return reply end", "if isCommon then reply[n + 1] = 'common' return reply end")
	long := replace("local isCommon, oldest, counterTTL, skew = true,", "local isCommon, oldest, counterTTL, skew = false,")
	synctest.Test(t, func(t *testing.T) {
		sides := []*side{newSide(t, short), newSide(t, long)}
		g := &generator{rand.New(rand.NewPCG(1, 2))}
		common := make(map[wire.Code]int) // replies of the short cut
		messages := 0
		steps := 8000
		if testing.Short() {
			steps = 2000
		}
		for step := range steps {
			time.Sleep(g.pause())
			disturb := g.disturbance()
			for _, s := range sides {
				disturb(s.Node)
			}
			keys, args := g.call(sides[0].Node)
			var got [2]string
			for i, s := range sides {
				reply, err := s.client.EvalSha(t.Context(), s.hash, keys, args...).Slice()
				if err != nil {
					t.Fatalf("step %d, %v: got %v, want no error", step, args, err)
				}
				if end := len(reply) - 1; reply[end] == "common" {
					reply = reply[:end]
					for at := 1; at < end; at += 3 {
						common[wire.Code(reply[at].(int64))]++
					}
				}
				heard := s.heard()
				messages += len(heard)
				got[i] = fmt.Sprint(reply, heard, s.state())
			}
			if got[0] != got[1] {
				t.Fatalf("step %d, %v: got %s, want %s as without the short cut", step, args, got[0], got[1])
			}
		}
		for _, code := range []wire.Code{wire.Granted, wire.Kept, wire.Released} {
			if common[code] < steps/400 {
				t.Errorf("replies of the short cut with code %d: got %d, want at least %d, or little was compared", code, common[code], steps/400)
			}
		}
		if messages < steps/40 {
			t.Errorf("got %d messages, want at least %d", messages, steps/40)
		}
	})
}

// side is a node that is compared with another node.
type side struct {
	*virtual.Node
	client *redis.Client
	hash   string // of its script
	told   chan string
}

func newSide(t *testing.T, script string) *side {
	s := &side{told: make(chan string, 100)}
	s.Node, s.client = newNode(t)
	var err error
	if s.hash, err = s.client.ScriptLoad(t.Context(), script).Result(); err != nil {
		t.Fatal(err)
	}
	var sub *miniredis.Subscriber
	s.Inside(func(r *miniredis.Miniredis, _ time.Time) { sub = r.NewSubscriber() })
	sub.Subscribe("p")
	sub.Subscribe("q")
	go func() {
		for m := range sub.Messages() {
			s.told <- m.Channel + ":" + m.Message
		}
	}()
	t.Cleanup(sub.Close)
	return s
}

// heard returns the messages since the last call.
func (s *side) heard() (list []string) {
	synctest.Wait()
	for len(s.told) > 0 {
		list = append(list, <-s.told)
	}
	return list
}

// state returns what the node has.
func (s *side) state() (text string) {
	s.Inside(func(r *miniredis.Miniredis, _ time.Time) {
		text = r.Dump()
		for _, key := range r.Keys() {
			text += fmt.Sprint(key, " for ", r.TTL(key), "\n")
		}
	})
	return text
}

// generator makes calls of the script about one lock, and what happens between them.
type generator struct{ *rand.Rand }

func pick[T any](g *generator, list ...T) T { return list[g.IntN(len(list))] }

const (
	skew = int64(101_000) // us
	far  = skew + 1e6     // how far a counter can be ahead of a clock, us
)

// pause returns the time between two calls. In some pauses a waiting process loses its place, or the
// queue is forgotten.
func (g *generator) pause() time.Duration {
	if g.IntN(20) == 0 {
		return pick(g, 3*time.Second, 10*time.Second)
	}
	return time.Duration(g.IntN(60)) * time.Millisecond
}

// disturbance returns what happens to a node beside the calls, mostly nothing.
func (g *generator) disturbance() func(n *virtual.Node) {
	life := time.Duration(20+g.IntN(200)) * time.Millisecond
	now := time.Now()
	counter := strconv.FormatInt(now.UnixMicro()+far-pick[int64](g, 0, wire.Block)+pick[int64](g, -1, 0, 1, 1e6), 10)
	put := func(key, value string, life time.Duration) func(*virtual.Node) {
		return func(n *virtual.Node) { n.Put(key, value, life) }
	}
	switch g.IntN(150) {
	case 0:
		return put("k~guard", "", 0) // it has lost its data
	case 2, 3:
		return put("k~fence", "", 0)
	case 4, 5:
		return put("k~fence", counter, time.Second)
	case 6, 10:
		return func(n *virtual.Node) {
			n.Put("k", "a|"+counter, life)
			n.Put("k~fence", counter, time.Second)
		}
	case 7:
		return put("k", "another library's", life)
	case 8:
		return put("k", wire.Placeholder(pick(g, "a", "b;web 1", wire.Readers)), life)
	case 9:
		return prove(now.Add(-life)) // counters that are older do not count
	case 12, 13, 14:
		return prove(time.Unix(0, 0))
	case 15:
		return put("k~guard", "no hash", 0)
	case 11:
		return put("k~turn", pick(g, "-", "p", "q"), 0) // by an operator
	}
	return func(*virtual.Node) {}
}

// prove has a node give its vote to clients that have joined. Counters that are older do not count.
func prove(oldest time.Time) func(*virtual.Node) {
	return func(n *virtual.Node) {
		n.Put("k~guard", "", 0)
		n.Inside(func(r *miniredis.Miniredis, _ time.Time) {
			r.HSet("k~guard", "proof", fmt.Sprintf("a:1:%d", oldest.UnixMilli()))
		})
	}
}

// present returns what a client sends that has joined: the proof that the node has, or that it joins in front of the call.
func present(n *virtual.Node) (proof string) {
	n.Inside(func(r *miniredis.Miniredis, _ time.Time) {
		if r.Type("k~guard") == "hash" {
			proof = r.HGet("k~guard", "proof")
		}
	})
	return cmp.Or(proof, wire.Joining)
}

// call returns the keys and the arguments of a call, as lua/begin.lua has them.
func (g *generator) call(n *virtual.Node) (keys []string, args []any) {
	now := time.Now().UnixMicro()
	proof, median := pick(g, present(n), present(n), "?"), pick(g, now, now, now+skew/2, now-skew/3)
	if g.IntN(20) == 0 {
		median = pick(g, 0, now+skew+1, now-skew-1000)
	}
	if g.IntN(20) == 0 {
		proof = ""
	}
	keys = []string{"k~guard"}
	args = []any{proof, median, fmt.Sprintf("2000 %d %d 0", skew, pick(g, 100, 100, 100, 120))}
	for range pick(g, 1, 1, 1, 2, 3) { // groups
		op, process := pick(g, wire.Acquire, wire.Extend, wire.Extend, wire.Release), pick(g, "", "", "", "-", "p", "q", "r") // r never listens
		if g.IntN(20) == 0 {
			op = pick(g, wire.Raise, wire.Rest)
		}
		if op == wire.Rest && process == "" {
			process = "-"
		}
		kind := op
		if g.IntN(20) == 0 {
			kind = op.Shared()
			if len(process) > 0 && process != "-" {
				process += wire.OfReaders
			}
		}
		few := pick(g, 1, 1, 1, 2)
		args = append(args, int(kind), few, process)
		if op == wire.Acquire || op == wire.Extend {
			args = append(args, 50+g.IntN(400), pick(g, 0, 0, 0, now-5, now+5))
		}
		for range few {
			keys = append(keys, "k")
			if op == wire.Acquire {
				args = append(args, g.id(), median+pick[int64](g, -700_000, 0, 700_000))
			} else {
				args = append(args, g.grant(op, n.Get("k"), n.Get("k~fence"))...)
			}
		}
	}
	return keys, args
}

func (g *generator) id() string { return pick(g, "a", "b;web 1") }

// grant returns the arguments of a request about a grant. The node has held and counter.
func (g *generator) grant(op wire.Op, held, counter string) []any {
	value := g.id() + "|" + pick(g, "0", "64", "0"+counter)
	if strings.Contains(held, "|") && g.IntN(4) > 0 {
		value = held
	}
	if op != wire.Raise && !strings.HasSuffix(value, "|0") && g.IntN(4) > 0 {
		return []any{value, wire.Same}
	}
	now, _ := strconv.ParseInt(counter, 10, 64)
	return []any{value, pick(g, 0, now, now+g.Int64N(100), time.Now().UnixMicro()+far+g.Int64N(3)-1)}
}
