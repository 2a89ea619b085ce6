package redlock

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock/internal/redistest"
)

// This file tests what the gate does in lua/queue.lua, and which node it is.

// waiters is what a gate has of those who wait for a resource.
type waiters struct {
	queue []string          // in order
	seen  map[string]string // how many ms before theTime each last asked
	turn  string
}

// lives is how long the gate still keeps that, in ms: -1 for ever, -2 that it has none.
type lives struct{ queue, seen, turn int64 }

// atGate sends a request to the gate, and looks at once at what that has left there.
func (n *node) atGate(t *testing.T, o op, args ...any) (reply, waiters, lives) {
	t.Helper()
	n.pinned = true
	tx := n.TxPipeline()
	done := n.eval(t, tx, o, args...)
	queue := tx.ZRange(t.Context(), n.key+queueSuffix, 0, -1)
	seen := tx.HGetAll(t.Context(), n.key+seenSuffix)
	turn := tx.Get(t.Context(), n.key+turnSuffix)
	var left [3]*redis.Cmd
	for i, suffix := range []string{queueSuffix, seenSuffix, turnSuffix} {
		left[i] = tx.Do(t.Context(), "PTTL", n.key+suffix)
	}
	_, _ = tx.Exec(t.Context()) // the turn may be missing
	w := waiters{queue: queue.Val(), seen: seen.Val(), turn: turn.Val()}
	for who, at := range w.seen {
		ms, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			t.Fatalf("when %s last asked: got %q, want a number", who, at)
		}
		w.seen[who] = fmt.Sprint(theTime/1000 - ms)
	}
	l := lives{}
	for i, into := range []*int64{&l.queue, &l.seen, &l.turn} {
		*into, _ = left[i].Int64()
	}
	return n.parse(t, o, done), w, l
}

func (n *node) acquireAtGate(t *testing.T, id, who string) (reply, waiters, lives) {
	t.Helper()
	return n.atGate(t, opAcquireAtGate, id, hour, 0, 0, who)
}

func (n *node) releaseAtGate(t *testing.T, id, who string) (reply, waiters, lives) {
	t.Helper()
	return n.atGate(t, opReleaseAtGate, id, 64, 64, who)
}

// wait puts processes into the queue, in this order, who asked so many ms ago.
func (n *node) wait(t *testing.T, ago int64, who ...string) {
	t.Helper()
	for _, w := range who {
		behind := n.ZCard(t.Context(), n.key+queueSuffix).Val()
		if err := n.ZAdd(t.Context(), n.key+queueSuffix, redis.Z{Score: float64(behind), Member: w}).Err(); err != nil {
			t.Fatal(err)
		}
		if err := n.HSet(t.Context(), n.key+seenSuffix, w, theTime/1000-ago).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// listener hears what is published to some channels.
func (n *node) listener(t *testing.T, channels ...string) *redis.PubSub {
	t.Helper()
	sub := n.Subscribe(t.Context(), channels...)
	t.Cleanup(func() { _ = sub.Close() })
	for range channels {
		if _, err := sub.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return sub
}

// wantTold checks what has been published, and to whom. At least one of the listener's
// channels is told the end of it.
func (n *node) wantTold(t *testing.T, sub *redis.PubSub, last string, want ...string) {
	t.Helper()
	if err := n.Publish(t.Context(), last, "the end").Err(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for {
		msg, err := sub.ReceiveTimeout(t.Context(), 10*time.Second)
		if err != nil {
			t.Fatalf("after %q: got %v, want another message", got, err)
		}
		m, ok := msg.(*redis.Message)
		switch {
		case !ok:
			t.Fatalf("got %v, want a message", msg)
		case m.Payload == "the end":
			if !slices.Equal(got, want) {
				t.Errorf("told: got %q, want %q", got, want)
			}
			return
		case m.Payload != n.key:
			t.Errorf("told: got %q, want the key %q", m.Payload, n.key)
		}
		got = append(got, m.Channel)
	}
}

func (w waiters) want(t *testing.T, turn string, queue ...string) {
	t.Helper()
	if !slices.Equal(w.queue, queue) || w.turn != turn {
		t.Errorf("got the queue %q and the turn of %q, want %q and %q", w.queue, w.turn, queue, turn)
	}
	in := slices.Sorted(maps.Keys(w.seen))
	slices.Sort(queue)
	if !slices.Equal(in, queue) {
		t.Errorf("when they last asked is known of %q, want it of %q", in, queue)
	}
}

// testGate goes through what the gate says to those who ask and those who have done.
//
// Source: ALGORITHM section 10.
func testGate(t *testing.T, base *node) {
	const in1, in2, in3 = "in1", "in2", "in3"
	held := func(t *testing.T) *node { // by b
		n := base.fresh(t)
		n.set(t, n.key, "b|64", hour)
		return n
	}
	wantLeft := func(t *testing.T, what string, got, most int64) {
		t.Helper()
		if got <= 0 || got > most {
			t.Errorf("time left of %s: got %d ms, want up to %d", what, got, most)
		}
	}

	t.Run("a free lock that nobody waits for has no queue", func(t *testing.T) {
		for _, who := range []string{in1, nobody} {
			n := base.fresh(t)
			n.Del(t.Context(), n.counterKey)
			rep, w, _ := n.acquireAtGate(t, "a", who)
			rep.want(t, codeGranted, theTime, 0)
			w.want(t, "")
			rep, w, _ = n.acquireAtGate(t, "a", who)
			rep.want(t, codeMine, theTime, 0)
			w.want(t, "")
			rep, w, _ = n.atGate(t, opReleaseAtGate, "a", theTime, theTime, who)
			rep.want(t, codeReleased, 0, 0)
			w.want(t, "")
			if left := n.Exists(t.Context(), n.key, n.key+queueSuffix, n.key+seenSuffix, n.key+turnSuffix).Val(); left != 0 {
				t.Errorf("keys: got %d, want none but the counter", left)
			}
		}
	})
	t.Run("who finds it busy joins the queue, once", func(t *testing.T) {
		n := held(t)
		for i, step := range []struct {
			who   string
			count int64
			queue []string
		}{
			{in2, 1, []string{in2}},
			{in1, 2, []string{in2, in1}}, // in the order they came
			{in3, 3, []string{in2, in1, in3}},
			{in2, 3, []string{in2, in1, in3}}, // and a place is kept
			{nobody, 3, []string{in2, in1, in3}},
		} {
			n.later = int64(i)
			rep, w, l := n.acquireAtGate(t, fmt.Sprint("a", i), step.who)
			wantLeft(t, "the key", rep.extra, hour)
			rep.want(t, codeBusy, step.count, rep.extra)
			w.want(t, "", step.queue...)
			wantLeft(t, "the queue", l.queue, 10_000)
			wantLeft(t, "the times", l.seen, 10_000)
			if want := fmt.Sprint(-i); step.who != nobody && w.seen[step.who] != want {
				t.Errorf("%s asked at %s, want %s", step.who, w.seen[step.who], want)
			}
		}
		n.wantKeys(t, "b|64", "")
	})
	t.Run("a key that never expires is waited for, too", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.key, "b|64", 0)
		rep, w, _ := n.acquireAtGate(t, "a", in1)
		rep.want(t, codeBusy, 1, -1)
		w.want(t, "", in1)
	})
	t.Run("another library's client will not call, so its key is not waited for long", func(t *testing.T) {
		for _, ttl := range []int64{hour, 0} {
			n := base.fresh(t)
			n.set(t, n.key, "bm8gYmFy", ttl)
			rep, w, _ := n.acquireAtGate(t, "a", in1)
			rep.want(t, codeBusy, 1, 50)
			w.want(t, "", in1)
		}
		n := base.fresh(t)
		n.set(t, n.key, "bm8gYmFy", 40)
		rep, _, _ := n.acquireAtGate(t, "a", in1)
		if rep.code != codeBusy || rep.extra < 0 || rep.extra > 40 {
			t.Errorf("a key that ends before: got code %d and %d ms, want %d and at most 40", rep.code, rep.extra, codeBusy)
		}
	})
	t.Run("nobody is never queued", func(t *testing.T) {
		n := held(t)
		rep, w, l := n.acquireAtGate(t, "a", nobody)
		rep.want(t, codeBusy, 0, rep.extra)
		w.want(t, "")
		if l != (lives{-2, -2, -2}) {
			t.Errorf("lives: got %v, want no keys", l)
		}
		n.set(t, n.key+turnSuffix, in1, minute)
		rep, w, _ = n.acquireAtGate(t, "a", nobody)
		rep.want(t, codeQueued, 0, rep.extra)
		w.want(t, in1)
	})
	t.Run("the queue lives for 10 s from the last who asked", func(t *testing.T) {
		n := held(t)
		n.wait(t, 0, in1, in2) // without an end
		for _, who := range []string{nobody, in1} {
			_, _, l := n.acquireAtGate(t, "a", who)
			if who == nobody && (l.queue != -1 || l.seen != -1) {
				t.Errorf("for nobody: got %v, want no end", l)
			}
			if who != nobody && (l.queue <= 9_000 || l.queue > 10_000 || l.seen <= 9_000 || l.seen > 10_000) {
				t.Errorf("got %v, want 10 s", l)
			}
		}
	})
	t.Run("who is granted leaves the queue, and the others are counted", func(t *testing.T) {
		n := base.fresh(t)
		n.wait(t, 0, in1, in2, in3)
		rep, w, _ := n.acquireAtGate(t, "a", in2)
		rep.want(t, codeGranted, theTime, 2)
		w.want(t, "", in1, in3)
		n.wantKeys(t, text("a", theTime), strconv.FormatInt(theTime, 10))
	})
	t.Run("somebody who is not in the queue is granted, too", func(t *testing.T) {
		for _, who := range []string{nobody, "in4"} {
			n := base.fresh(t)
			n.wait(t, 0, in1, in2, in3)
			rep, w, _ := n.acquireAtGate(t, "a", who)
			rep.want(t, codeGranted, theTime, 3)
			w.want(t, "", in1, in2, in3)
			n.Del(t.Context(), n.key, n.counterKey, n.key+queueSuffix, n.key+seenSuffix)
		}
	})
	t.Run("who has been called is let in, and its turn ends", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.key+turnSuffix, in1, minute)
		n.wait(t, 0, in2)
		rep, w, _ := n.acquireAtGate(t, "a", in1)
		rep.want(t, codeGranted, theTime, 1)
		w.want(t, "", in2)
	})
	t.Run("the turn of another is a veto, though the key is free", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.counterKey, "64", minute)
		n.set(t, n.key+turnSuffix, in1, minute)
		for _, who := range []string{in2, in2, in3, nobody} {
			rep, _, _ := n.acquireAtGate(t, "a", who)
			wantLeft(t, "the turn", rep.extra, minute)
			want := map[string]int64{in2: 1, in3: 2, nobody: 2}[who]
			rep.want(t, codeQueued, want, rep.extra)
			if rep.refusal(n.key, n.counterKey) == nil || rep.hasKey() {
				t.Error("it counts as a vote")
			}
		}
		_, w, _ := n.acquireAtGate(t, "a", nobody)
		w.want(t, in1, in2, in3)
		n.wantKeys(t, "", "64")
	})
	t.Run("the turn of another is a veto where the key is held", func(t *testing.T) {
		n := held(t)
		n.set(t, n.key+turnSuffix, in1, minute)
		rep, w, _ := n.acquireAtGate(t, "a", in2)
		wantLeft(t, "the turn", rep.extra, minute)
		rep.want(t, codeQueued, 1, rep.extra)
		w.want(t, in1, in2)
	})
	t.Run("a node that is no gate has no veto, and leaves the queue alone", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.key+turnSuffix, in1, minute)
		n.wait(t, 0, in2)
		rep, w, _ := n.atGate(t, opAcquire, "a", hour, 0, 0)
		rep.want(t, codeGranted, theTime, 0)
		w.want(t, in1, in2)
		rep, w, _ = n.atGate(t, opAcquire, "c", hour, 0, 0)
		rep.want(t, codeBusy, 0, rep.extra)
		w.want(t, in1, in2)
		rep, w, _ = n.atGate(t, opRelease, "a", theTime, theTime)
		rep.want(t, codeReleased, 0, 0)
		w.want(t, in1, in2)
	})
	t.Run("a gate in quarantine keeps the queue, without a vote", func(t *testing.T) {
		n := base.fresh(t)
		n.guarded, n.run, n.longest = true, unknownRun, second/1000
		n.wait(t, 0, in1, in2)
		rep, w, _ := n.acquireAtGate(t, "a", in1)
		rep.want(t, codePlanted, 0, 1120)
		w.want(t, "", in2)
		rep, w, _ = n.acquireAtGate(t, "c", in1)
		rep.want(t, codeBusy, 2, rep.extra)
		w.want(t, "", in2, in1)
		n.set(t, n.key+turnSuffix, in2, minute)
		rep, _, _ = n.acquireAtGate(t, "c", in1)
		rep.want(t, codeQueued, 2, rep.extra)
	})
	t.Run("a request that is late, or of a caller behind, changes no queue", func(t *testing.T) {
		n := held(t)
		n.wait(t, 7, in2)
		rep, w, _ := n.atGate(t, opAcquireAtGate, "a", hour, theTime-1, 0, in1)
		rep.want(t, codeLate, 0, 0)
		w.want(t, "", in2)
		rep, w, _ = n.atGate(t, opAcquireAtGate, "a", hour, theTime-1, 0, in2)
		rep.want(t, codeLate, 0, 0)
		if w.seen[in2] != "7" {
			t.Errorf("in2 asked %s ms ago, want 7", w.seen[in2])
		}
	})

	t.Run("a release calls the head", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.key, "a|64", hour)
		n.wait(t, 0, in2, in1, in3)
		sub := n.listener(t, in1, in2, in3)
		rep, w, l := n.releaseAtGate(t, "a", nobody)
		rep.want(t, codeReleased, 0, 0)
		w.want(t, in2, in1, in3)
		wantLeft(t, "the turn", l.turn, 250)
		if l.turn <= 200 { // it has been looked at at once
			t.Errorf("time left of the turn: got %d ms, want 250", l.turn)
		}
		n.wantTold(t, sub, in3, in2)
		n.wantKeys(t, "", "")
	})
	t.Run("a release of what was not held here calls the head", func(t *testing.T) {
		n := base.fresh(t)
		n.wait(t, 0, in1)
		sub := n.listener(t, in1)
		rep, w, _ := n.releaseAtGate(t, "a", nobody)
		rep.want(t, codeGone, 0, 0)
		w.want(t, in1)
		n.wantTold(t, sub, in1, in1)
	})
	t.Run("nobody is called while somebody has the key", func(t *testing.T) {
		n := held(t)
		n.wait(t, 0, in1, in2)
		sub := n.listener(t, in1, in2)
		rep, w, _ := n.releaseAtGate(t, "a", in2) // whose place is given up all the same
		rep.want(t, codeGone, 0, 0)
		w.want(t, "", in1)
		n.set(t, n.key+turnSuffix, in1, minute)
		rep, w, _ = n.releaseAtGate(t, "a", nobody)
		rep.want(t, codeGone, 0, 0)
		w.want(t, in1, in1)
		n.wantTold(t, sub, in1)
		n.wantKeys(t, "b|64", "")
	})
	t.Run("who has done leaves the queue", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.key, "a|64", hour)
		n.wait(t, 0, in1, in2)
		sub := n.listener(t, in1, in2)
		rep, w, _ := n.releaseAtGate(t, "a", in1)
		rep.want(t, codeReleased, 0, 0)
		w.want(t, in2)
		n.wantTold(t, sub, in2, in2)
	})
	t.Run("who gives up its turn has the next one called", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.key+turnSuffix, in1, minute)
		n.wait(t, 0, in2)
		sub := n.listener(t, in1, in2)
		rep, w, l := n.releaseAtGate(t, "none", in1)
		rep.want(t, codeGone, 0, 0)
		w.want(t, in2)
		wantLeft(t, "the turn", l.turn, 250)
		n.wantTold(t, sub, in2, in2)
	})
	t.Run("a process that has been called is told again", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.key, "a|64", hour)
		n.set(t, n.key+turnSuffix, in1, minute)
		n.wait(t, 0, in2)
		sub := n.listener(t, in1, in2)
		rep, w, l := n.releaseAtGate(t, "a", nobody)
		rep.want(t, codeReleased, 0, 0)
		w.want(t, in1, in2)
		if l.turn <= 1000 {
			t.Errorf("time left of the turn: got %d ms, want what it had", l.turn)
		}
		n.wantTold(t, sub, in1, in1)
	})
	for _, test := range []struct {
		name   string
		ago    int64
		listen bool
		called bool
	}{
		{"asked 2999 ms ago", 2999, true, true},
		{"has not asked for 3 s", 3000, true, false},
		{"does not listen", 0, false, false},
	} {
		t.Run("a head that "+test.name, func(t *testing.T) {
			n := base.fresh(t)
			n.wait(t, test.ago, in1)
			n.wait(t, 0, in2, in3)
			hears := []string{in2, in3}
			if test.listen {
				hears = append(hears, in1)
			}
			sub := n.listener(t, hears...)
			_, w, _ := n.releaseAtGate(t, "a", nobody)
			if test.called {
				w.want(t, in1, in2, in3)
				n.wantTold(t, sub, in3, in1)
			} else {
				w.want(t, in2, in3)
				n.wantTold(t, sub, in3, in2)
			}
		})
	}
	t.Run("a head of which nothing more is known is skipped", func(t *testing.T) {
		n := base.fresh(t)
		n.wait(t, 0, in1, in2)
		n.HDel(t.Context(), n.key+seenSuffix, in1)
		sub := n.listener(t, in1, in2)
		_, w, _ := n.releaseAtGate(t, "a", nobody)
		w.want(t, in2)
		n.wantTold(t, sub, in2, in2)
	})
	t.Run("at most 16 are skipped", func(t *testing.T) {
		n := base.fresh(t)
		for i := range 32 {
			n.wait(t, 0, fmt.Sprintf("gone%02d", i))
		}
		n.wait(t, 0, in1)
		sub := n.listener(t, in1)
		_, w, l := n.releaseAtGate(t, "a", nobody)
		if len(w.queue) != 17 || w.turn != "" || l.turn != -2 {
			t.Errorf("got %d in the queue and the turn of %q, want 17 and nobody's", len(w.queue), w.turn)
		}
		n.wantTold(t, sub, in1)
		_, w, _ = n.releaseAtGate(t, "a", nobody)
		w.want(t, "", in1)
		_, w, _ = n.releaseAtGate(t, "a", nobody)
		w.want(t, in1)
		n.wantTold(t, sub, in1, in1)
	})
	t.Run("the sixteenth is called", func(t *testing.T) {
		n := base.fresh(t)
		for i := range 15 {
			n.wait(t, 0, fmt.Sprintf("gone%02d", i))
		}
		n.wait(t, 0, in1)
		sub := n.listener(t, in1)
		_, w, _ := n.releaseAtGate(t, "a", nobody)
		w.want(t, in1)
		n.wantTold(t, sub, in1, in1)
	})
	t.Run("queue keys of another type are no hindrance", func(t *testing.T) {
		for _, suffix := range []string{queueSuffix, seenSuffix, turnSuffix} {
			n := base.fresh(t)
			if err := n.RPush(t.Context(), n.key+suffix, "x").Err(); err != nil {
				t.Fatal(err)
			}
			n.acquire(t, "a", 0, 0).wantOneOf(t, "a grant", codeGranted)
			for i, who := range []string{in1, nobody} {
				rep := n.send(t, opAcquireAtGate, "b", hour, 0, 0, who)
				rep.wantOneOf(t, "no error", codeBusy)
				if rep.err != nil {
					t.Errorf("%s, acquire %d: got %v, want no error", suffix, i, rep.err)
				}
			}
			rep := n.send(t, opReleaseAtGate, "a", 0, 0, in1)
			rep.want(t, codeReleased, 0, 0)
			rep = n.send(t, opAcquireAtGate, "b", hour, 0, 0, in1)
			if rep.err != nil || rep.code != codeGranted {
				t.Errorf("%s: got code %d, %v; want it granted", suffix, rep.code, rep.err)
			}
			n.Del(t.Context(), n.key, n.key+queueSuffix, n.key+seenSuffix, n.key+turnSuffix)
		}
	})
}

// The fakes of the other tests keep the queue as a real server does.
func TestGateOnMiniredis(t *testing.T) {
	mini := redistest.Minis(t, 1)[0]
	testGate(t, &node{Client: redistest.Client(t, mini.Addr()), seen: make(map[op]map[code]bool)})
}

// A gate that is out of memory lets go, and calls whom it can.
func TestGateOutOfMemory(t *testing.T) {
	master := redistest.Masters(t, 1, "--maxmemory-policy", "noeviction")[0]
	base := node{Client: redistest.Client(t, master.Addr()), seen: make(map[op]map[code]bool)}
	n := base.fresh(t)
	n.set(t, n.key, "a|64", hour)
	n.pinned = true
	n.wait(t, 0, "in1", "in2")
	sub := n.listener(t, "in1", "in2")
	if err := n.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	n.send(t, opAcquireAtGate, "b", hour, 0, 0, "in3").wantOneOf(t, "OOM", codeBusy)
	n.send(t, opReleaseAtGate, "a", 64, 64, nobody).want(t, codeReleased, 0, 0)
	n.wantTold(t, sub, "in1", "in1")
	n.wantKeys(t, "", "")
}
