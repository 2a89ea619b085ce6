package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/internal/wire"
)

// noProcess is the name of a process that does not wait.
const noProcess = wire.NoProcess

// Tests of the queue node's part in lua/queue.lua, and of its choice.

// waiters has a queue node's records of the processes that wait for a resource.
type waiters struct {
	queue []string          // in order
	seen  map[string]string // how many ms before theTime each process last asked
	turn  string
}

// lives is how long the queue node still keeps that, in ms: -1 for ever, -2 that it has nothing.
type lives struct{ queue, seen, turn int64 }

// atQueueNode sends a request to the queue node, and returns what it has left there.
func (n *node) atQueueNode(t *testing.T, o wire.Op, args ...any) (Reply, waiters, lives) {
	t.Helper()
	n.pinned = true
	tx := n.TxPipeline()
	if n.mini {
		tx = n.Pipeline()
	}
	done := n.eval(t, tx, o, args...)
	queue := tx.ZRange(t.Context(), n.key+wire.QueueSuffix, 0, -1)
	seen := tx.HGetAll(t.Context(), n.key+wire.SeenSuffix)
	turn := tx.Get(t.Context(), n.key+wire.TurnSuffix)
	var left [3]*redis.Cmd
	for i, suffix := range []string{wire.QueueSuffix, wire.SeenSuffix, wire.TurnSuffix} {
		left[i] = tx.Do(t.Context(), "PTTL", n.key+suffix)
	}
	_, _ = tx.Exec(t.Context()) // the turn may be missing
	w := waiters{queue: queue.Val(), seen: seen.Val(), turn: turn.Val()}
	for who, at := range w.seen {
		ms, err := strconv.ParseInt(strings.TrimSuffix(at, "~"), 10, 64)
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

func (n *node) acquireAtQueueNode(t *testing.T, id, who string) (Reply, waiters, lives) {
	t.Helper()
	return n.atQueueNode(t, wire.Acquire, id, hour, 0, 0, who)
}

func (n *node) releaseAtQueueNode(t *testing.T, id, who string) (Reply, waiters, lives) {
	t.Helper()
	return n.atQueueNode(t, wire.Release, id, 64, 64, who)
}

// rest sends the rollback of an attempt of a process that goes on waiting.
func (n *node) rest(t *testing.T, id, given, who string) (Reply, waiters, lives) {
	t.Helper()
	return n.atQueueNode(t, wire.Rest, id, given, who)
}

// wait puts processes into the queue, in this order, that asked so many ms ago.
func (n *node) wait(t *testing.T, ago int64, who ...string) {
	t.Helper()
	for _, w := range who {
		behind := n.ZCard(t.Context(), n.key+wire.QueueSuffix).Val()
		if err := n.ZAdd(t.Context(), n.key+wire.QueueSuffix, redis.Z{Score: float64(behind), Member: w}).Err(); err != nil {
			t.Fatal(err)
		}
		if err := n.HSet(t.Context(), n.key+wire.SeenSuffix, w, theTime/1000-ago).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// listener subscribes to some channels.
func (n *node) listener(t *testing.T, channels ...string) *redis.PubSub {
	t.Helper()
	sub := n.Subscribe(t.Context(), channels...)
	t.Cleanup(func() {
		_ = sub.Close()
		redistest.Eventually(t, 10*time.Second, func() bool {
			hear, err := n.PubSubNumSub(context.Background(), channels...).Result()
			return err == nil && !slices.ContainsFunc(slices.Collect(maps.Values(hear)), func(k int64) bool { return k > 0 })
		}, "the listener has gone, for the next test")
	})
	for range channels {
		if _, err := sub.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return sub
}

// wantTold checks what has been published, and to which channels. A message to last, which is
// one of the listener's channels, marks the end.
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

// want checks which process has the turn and which wait. When a process last asked is known of each, but for
// the one that has the turn.
func (w waiters) want(t *testing.T, turn string, queue ...string) {
	t.Helper()
	if !slices.Equal(w.queue, queue) || w.turn != turn {
		t.Errorf("got the queue %q and the turn of %q, want %q and %q", w.queue, w.turn, queue, turn)
	}
	in := slices.Sorted(maps.Keys(w.seen))
	isTurn := func(who string) bool { return who == turn }
	in, queue = slices.DeleteFunc(in, isTurn), slices.DeleteFunc(slices.Sorted(slices.Values(queue)), isTurn)
	if !slices.Equal(in, queue) {
		t.Errorf("when they last asked is known of %q, want it of %q", in, queue)
	}
}

// testQueueNode goes through the replies of the queue node to acquires and releases.
//
// Source: ALGORITHM section 10.
func testQueueNode(t *testing.T, base *node) {
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

	t.Run("a free lock without waiters has no queue", func(t *testing.T) {
		for _, who := range []string{in1, noProcess} {
			n := base.fresh(t)
			n.Del(t.Context(), n.counterKey)
			rep, w, _ := n.acquireAtQueueNode(t, "a", who)
			rep.want(t, wire.Granted, theTime, 0)
			w.want(t, "")
			rep, w, _ = n.acquireAtQueueNode(t, "a", who)
			rep.want(t, wire.Mine, theTime, 0)
			w.want(t, "")
			rep, w, _ = n.atQueueNode(t, wire.Release, "a", theTime, theTime, who)
			rep.want(t, wire.Released, 0, 0)
			w.want(t, "")
			if left := n.Exists(t.Context(), n.key, n.key+wire.QueueSuffix, n.key+wire.SeenSuffix, n.key+wire.TurnSuffix).Val(); left != 0 {
				t.Errorf("keys: got %d, want none but the counter", left)
			}
		}
	})
	t.Run("an acquire joins no queue", func(t *testing.T) {
		n := held(t)
		n.wait(t, 7, in1, in2)
		for who, others := range map[string]int64{in3: 2, noProcess: 2, in2: 1} {
			rep, w, l := n.acquireAtQueueNode(t, "a", who)
			wantLeft(t, "the key", rep.Extra, hour)
			rep.want(t, wire.Busy, others, rep.Extra)
			w.want(t, "", in1, in2)
			if w.seen[in2] != "7" || l.queue != -1 || l.seen != -1 {
				t.Errorf("%s: got the time %s and the lives %v, want all as it was", who, w.seen[in2], l)
			}
		}
		n.wantKeys(t, "b|64", "")
	})
	t.Run("a process that rests joins the queue, once", func(t *testing.T) {
		n := held(t)
		for i, step := range []struct {
			who, given string
			place      int64
			queue      []string
		}{
			{in2, "0", 0, []string{in2}},
			{in1, "64", 1, []string{in2, in1}}, // in the order of their rests
			{in3, "0", 2, []string{in2, in1, in3}},
			{in2, "0", 0, []string{in2, in1, in3}}, // a place is kept
			{noProcess, "0", 0, []string{in2, in1, in3}},
		} {
			n.later = int64(i)
			rep, w, l := n.rest(t, fmt.Sprint("a", i), step.given, step.who)
			rep.want(t, wire.Gone, 0, step.place)
			w.want(t, "", step.queue...)
			wantLeft(t, "the queue", l.queue, 10_000)
			wantLeft(t, "the times", l.seen, 10_000)
			if want := fmt.Sprint(-i); step.who != noProcess && w.seen[step.who] != want {
				t.Errorf("%s asked at %s, want %s", step.who, w.seen[step.who], want)
			}
		}
		n.wantKeys(t, "b|64", "")
	})
	t.Run("a rest drops the key of the attempt, and no other", func(t *testing.T) {
		n := held(t)
		rep, _, _ := n.rest(t, "a", "64", in1)
		rep.want(t, wire.Gone, 0, 0)
		n.wantKeys(t, "b|64", "")
		rep, w, _ := n.rest(t, "b", "64", in2)
		rep.want(t, wire.Released, 0, 1)
		w.want(t, "=", in1, in2)
		n.wantKeys(t, "", "")
	})
	for _, test := range []struct {
		name  string
		given string // counter that the queue node gave to the resting attempt
		turn  string // the process that was called before
		held  string // the attempt that has the key
		calls bool   // calls in1, the head of the queue
		notes bool   // leaves the note
	}{
		{"that was refused calls the head", "0", "", "", true, false},
		{"that was refused calls the head though it had the key", "0", "", "a", true, false},
		{"calls no process while another attempt has the key", "0", "", "b", false, false},
		{"calls no process if one has been called", "0", in3, "", false, false},
		{"calls the head where an end was missed", "0", noProcess, "", true, false},
		{"calls no process while the note stands", "0", "=", "", false, false},
		{"that was granted leaves the note", "64", "", "a", false, true},
		{"that was granted leaves the note if the key is gone", "64", "", "", false, true},
		{"that was granted leaves no note where another attempt has the key", "64", "", "b", false, false},
		{"that was granted calls the head where an end was missed", "64", noProcess, "a", true, false},
		{"calls no process if an end was missed and another attempt has the key", "64", noProcess, "b", false, false},
	} {
		t.Run("a rest "+test.name, func(t *testing.T) {
			n := base.fresh(t)
			if test.held != "" {
				n.set(t, n.key, test.held+"|64", hour)
			}
			if test.turn != "" {
				n.set(t, n.key+wire.TurnSuffix, test.turn, minute)
			}
			n.wait(t, 0, in1)
			sub := n.listener(t, in1, in2, in3)
			_, w, l := n.rest(t, "a", test.given, in2)
			switch {
			case test.calls:
				w.want(t, in1, in1, in2)
				wantLeft(t, "the turn", l.turn, 250)
				n.wantTold(t, sub, in3, in1)
			case test.notes:
				w.want(t, "=", in1, in2)
				wantLeft(t, "the note", l.turn, 150)
				n.wantTold(t, sub, in3)
			default:
				w.want(t, test.turn, in1, in2)
				n.wantTold(t, sub, in3)
			}
		})
	}
	t.Run("a process that rests alone learns by the reply that it has the turn", func(t *testing.T) {
		n := base.fresh(t)
		sub := n.listener(t, in1)
		rep, w, _ := n.rest(t, "a", "0", in1)
		rep.want(t, wire.Gone, 1, 0)
		w.want(t, in1, in1)
		rep, w, _ = n.rest(t, "a", "0", in1) // it did not know
		rep.want(t, wire.Gone, 1, 0)
		w.want(t, in1, in1)
		rep, _, _ = n.rest(t, "a", "0", in2)
		rep.want(t, wire.Gone, 0, 1)
		n.set(t, n.key, "b|64", hour)
		rep, _, _ = n.rest(t, "a", "0", in1) // it cannot use the turn
		rep.want(t, wire.Gone, 0, 0)
		n.wantTold(t, sub, in1)
	})
	t.Run("an end of another attempt takes the note away", func(t *testing.T) {
		n := base.fresh(t)
		n.wait(t, 0, in1)
		n.set(t, n.key+wire.TurnSuffix, "=", 100)
		sub := n.listener(t, in1)
		_, w, _ := n.releaseAtQueueNode(t, "b", noProcess)
		w.want(t, in1, in1)
		n.wantTold(t, sub, in1, in1)
	})
	t.Run("while the note stands any process is granted", func(t *testing.T) {
		n := base.fresh(t)
		n.wait(t, 0, in1)
		n.set(t, n.key+wire.TurnSuffix, "=", 100)
		rep, w, _ := n.acquireAtQueueNode(t, "a", in2)
		rep.want(t, wire.Granted, theTime, 1)
		w.want(t, "=", in1)
	})
	for _, test := range []struct {
		ago    int64
		called bool
	}{{0, true}, {299, true}, {300, false}} {
		t.Run(fmt.Sprintf("a head that polled %d ms ago", test.ago), func(t *testing.T) {
			n := base.fresh(t)
			n.wait(t, 0, in1, in2)
			n.HSet(t.Context(), n.key+wire.SeenSuffix, in1, fmt.Sprint(theTime/1000-test.ago, "~"))
			n.listener(t, in2)
			rep, w, l := n.acquireAtQueueNode(t, "b", in3)
			wantLeft(t, "the turn", l.turn, 250)
			rep.want(t, wire.Queued, rep.Counter, 250)
			if test.called { // and it is not told
				w.want(t, in1, in1, in2)
			} else {
				w.want(t, in2, in2)
			}
		})
	}
	t.Run("a process that polls says so by its rest", func(t *testing.T) {
		n := held(t)
		n.polls = true
		n.rest(t, "a", "0", in1)
		if got, want := n.HGet(t.Context(), n.key+wire.SeenSuffix, in1).Val(), fmt.Sprint(theTime/1000, "~"); got != want {
			t.Errorf("when it last asked: got %q, want %q", got, want)
		}
	})
	t.Run("a key that never expires is waited for, too", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.key, "b|64", 0)
		rep, w, _ := n.acquireAtQueueNode(t, "a", in1)
		rep.want(t, wire.Busy, 0, -1)
		w.want(t, "")
	})
	t.Run("another library's client will not call, so its key is not waited for long", func(t *testing.T) {
		for _, ttl := range []int64{hour, 0} {
			n := base.fresh(t)
			n.set(t, n.key, "bm8gYmFy", ttl)
			rep, w, _ := n.acquireAtQueueNode(t, "a", in1)
			rep.want(t, wire.Busy, 0, 50)
			w.want(t, "")
		}
		const short = 40 // ms
		for {
			n, began := base.fresh(t), time.Now()
			n.set(t, n.key, "bm8gYmFy", short)
			rep, _, _ := n.acquireAtQueueNode(t, "a", in1)
			if time.Since(began) >= short*time.Millisecond {
				n.Del(t.Context(), n.key)
				continue // the key may have ended before: once more
			}
			if rep.Code != wire.Busy || rep.Extra < 0 || rep.Extra > short {
				t.Errorf("a key that ends before: got code %d and %d ms, want %d and at most %d", rep.Code, rep.Extra, wire.Busy, short)
			}
			break
		}
	})
	t.Run("a caller without a process is never queued", func(t *testing.T) {
		n := held(t)
		rep, w, l := n.acquireAtQueueNode(t, "a", noProcess)
		rep.want(t, wire.Busy, 0, rep.Extra)
		w.want(t, "")
		if l != (lives{-2, -2, -2}) {
			t.Errorf("lives: got %v, want no keys", l)
		}
		n.set(t, n.key+wire.TurnSuffix, in1, minute)
		rep, w, _ = n.acquireAtQueueNode(t, "a", noProcess)
		rep.want(t, wire.Queued, 0, rep.Extra)
		w.want(t, in1)
	})
	t.Run("the queue lives for 3 s from the last rest", func(t *testing.T) {
		n := held(t)
		n.wait(t, 0, in1, in2) // without an expiry
		for _, who := range []string{noProcess, in1} {
			_, _, l := n.rest(t, "a", "0", who)
			if who == noProcess && (l.queue != -1 || l.seen != -1) {
				t.Errorf("without a process: got %v, want no expiry", l)
			}
			if who != noProcess && (l.queue <= 2_000 || l.queue > 3_000 || l.seen <= 2_000 || l.seen > 3_000) {
				t.Errorf("got %v, want 3 s", l)
			}
		}
	})
	t.Run("the head of the queue is granted and leaves, and the others are counted", func(t *testing.T) {
		n := base.fresh(t)
		n.wait(t, 0, in2, in1, in3)
		rep, w, _ := n.acquireAtQueueNode(t, "a", in2)
		rep.want(t, wire.Granted, theTime, 2)
		w.want(t, "", in1, in3)
		n.wantKeys(t, value("a", theTime), strconv.FormatInt(theTime, 10))
	})
	for who, others := range map[string]int64{noProcess: 3, "in4": 3, in2: 2} {
		t.Run("no process overtakes the queue of a free key, not "+who, func(t *testing.T) {
			n := base.fresh(t)
			n.wait(t, 0, in1, in2, in3)
			sub := n.listener(t, in1, in2, in3)
			rep, w, _ := n.acquireAtQueueNode(t, "a", who)
			rep.want(t, wire.Queued, others, 250)
			w.want(t, in1, in1, in2, in3)
			n.wantTold(t, sub, in3, in1)
		})
	}
	t.Run("a queue of the dead keeps no process waiting", func(t *testing.T) {
		n := base.fresh(t)
		n.wait(t, 0, in1, in2, in3) // they do not listen
		rep, w, _ := n.acquireAtQueueNode(t, "a", noProcess)
		rep.want(t, wire.Granted, theTime, 0)
		w.want(t, "")
	})
	t.Run("a process that has been called is granted, and its turn ends", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.key+wire.TurnSuffix, in1, minute)
		n.wait(t, 0, in2)
		rep, w, _ := n.acquireAtQueueNode(t, "a", in1)
		rep.want(t, wire.Granted, theTime, 1)
		w.want(t, "", in2)
	})
	t.Run("the turn of another is a veto, though the key is free", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.counterKey, "64", minute)
		n.set(t, n.key+wire.TurnSuffix, in1, minute)
		for _, who := range []string{in2, in2, in3, noProcess} {
			rep, _, _ := n.acquireAtQueueNode(t, "a", who)
			wantLeft(t, "the turn", rep.Extra, 250)
			rep.want(t, wire.Queued, 0, rep.Extra)
			if rep.Refusal(n.keys()) == nil || rep.HasKey() {
				t.Error("it counts as a vote")
			}
		}
		_, w, _ := n.acquireAtQueueNode(t, "a", noProcess)
		w.want(t, in1)
		n.wantKeys(t, "", "64")
	})
	t.Run("the turn of another is a veto where the key is held", func(t *testing.T) {
		n := held(t)
		n.set(t, n.key+wire.TurnSuffix, in1, minute)
		rep, w, _ := n.acquireAtQueueNode(t, "a", in2)
		wantLeft(t, "the turn", rep.Extra, minute)
		rep.want(t, wire.Queued, 0, rep.Extra)
		w.want(t, in1)
	})
	t.Run("a release that was missed is no veto", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.key+wire.TurnSuffix, noProcess, minute)
		rep, w, _ := n.acquireAtQueueNode(t, "a", in1)
		rep.want(t, wire.Granted, theTime, 0)
		w.want(t, noProcess)
		rep, _, _ = n.acquireAtQueueNode(t, "b", in2)
		rep.want(t, wire.Busy, 0, rep.Extra)
	})
	t.Run("the turn of a life that the library does not give is cut", func(t *testing.T) {
		for i, ask := range []func(n *node) (Reply, waiters, lives){
			func(n *node) (Reply, waiters, lives) { return n.acquireAtQueueNode(t, "a", in2) },
			func(n *node) (Reply, waiters, lives) { return n.releaseAtQueueNode(t, "a", in2) },
			func(n *node) (Reply, waiters, lives) { return n.rest(t, "a", "0", in2) },
		} {
			n := base.fresh(t)
			n.set(t, n.key+wire.TurnSuffix, in1, []int64{0, hour, minute}[i])
			_, w, l := ask(n)
			if w.turn != in1 || l.turn <= 0 || l.turn > 250 {
				t.Errorf("got the turn of %q for %d ms, want that of %s for up to 250", w.turn, l.turn, in1)
			}
			n.Del(t.Context(), n.key, n.key+wire.QueueSuffix, n.key+wire.SeenSuffix, n.key+wire.TurnSuffix)
		}
	})
	t.Run("a node that is no queue node has no veto, and leaves the queue alone", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.key+wire.TurnSuffix, in1, minute)
		n.wait(t, 0, in2)
		rep, w, _ := n.atQueueNode(t, wire.Acquire, "a", hour, 0, 0)
		rep.want(t, wire.Granted, theTime, 0)
		w.want(t, in1, in2)
		rep, w, _ = n.atQueueNode(t, wire.Acquire, "c", hour, 0, 0)
		rep.want(t, wire.Busy, 0, rep.Extra)
		w.want(t, in1, in2)
		rep, w, _ = n.atQueueNode(t, wire.Release, "a", theTime, theTime)
		rep.want(t, wire.Released, 0, 0)
		w.want(t, in1, in2)
	})
	t.Run("a queue node in quarantine keeps the queue, without a vote", func(t *testing.T) {
		n := base.fresh(t)
		n.guarded, n.run, n.longest = true, wire.UnknownRun, second/1000
		n.wait(t, 0, in1, in2)
		n.listener(t, in1, in2)
		rep, w, _ := n.acquireAtQueueNode(t, "a", in1)
		rep.want(t, wire.SetVoteless, 0, 1120)
		w.want(t, "", in2)
		rep, w, _ = n.acquireAtQueueNode(t, "c", in1)
		rep.want(t, wire.Busy, 1, rep.Extra)
		w.want(t, "", in2)
		n.set(t, n.key+wire.TurnSuffix, in2, minute)
		rep, _, _ = n.acquireAtQueueNode(t, "c", in1)
		rep.want(t, wire.Queued, 1, rep.Extra)
	})
	t.Run("a request that is late, or of a caller behind, changes no queue", func(t *testing.T) {
		n := held(t)
		n.wait(t, 7, in2)
		rep, w, _ := n.atQueueNode(t, wire.Acquire, "a", hour, theTime-1, 0, in1)
		rep.want(t, wire.Late, 0, 0)
		w.want(t, "", in2)
		rep, w, _ = n.atQueueNode(t, wire.Acquire, "a", hour, theTime-1, 0, in2)
		rep.want(t, wire.Late, 0, 0)
		if w.seen[in2] != "7" {
			t.Errorf("in2 asked %s ms ago, want 7", w.seen[in2])
		}
	})

	t.Run("a release calls the head", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.key, "a|64", hour)
		n.wait(t, 0, in2, in1, in3)
		sub := n.listener(t, in1, in2, in3)
		rep, w, l := n.releaseAtQueueNode(t, "a", noProcess)
		rep.want(t, wire.Released, 3, 0)
		w.want(t, in2, in2, in1, in3)
		wantLeft(t, "the turn", l.turn, 250)
		if l.turn <= 200 { // atQueueNode looks at once
			t.Errorf("time left of the turn: got %d ms, want 250", l.turn)
		}
		n.wantTold(t, sub, in3, in2)
		n.wantKeys(t, "", "")
	})
	t.Run("a release passes over any number of dead processes", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.key, "a|64", hour)
		for i := range 60 {
			n.wait(t, int64(i%2)*hour, fmt.Sprint("dead", i)) // no message reaches it, or it was not seen for long
		}
		n.wait(t, 0, in1)
		sub := n.listener(t, in1)
		_, w, _ := n.releaseAtQueueNode(t, "a", noProcess)
		w.want(t, in1, in1)
		n.wantTold(t, sub, in1, in1)
	})
	t.Run("a release of what was not held here calls the head", func(t *testing.T) {
		n := base.fresh(t)
		n.wait(t, 0, in1)
		sub := n.listener(t, in1)
		rep, w, _ := n.releaseAtQueueNode(t, "a", noProcess)
		rep.want(t, wire.Gone, 1, 0)
		w.want(t, in1, in1)
		n.wantTold(t, sub, in1, in1)
	})
	t.Run("no process is called while an attempt has the key", func(t *testing.T) {
		n := held(t)
		n.wait(t, 0, in1, in2)
		sub := n.listener(t, in1, in2)
		rep, w, l := n.releaseAtQueueNode(t, "a", in2) // in2 loses its place all the same
		rep.want(t, wire.Gone, 2, 0)
		w.want(t, noProcess, in1) // but the missed end is recorded
		wantLeft(t, "the mark", l.turn, 250)
		n.set(t, n.key+wire.TurnSuffix, in1, 200)
		rep, w, _ = n.releaseAtQueueNode(t, "a", noProcess)
		rep.want(t, wire.Gone, 2, 0)
		w.want(t, in1, in1)
		n.wantTold(t, sub, in1)
		n.wantKeys(t, "b|64", "")
	})
	t.Run("the rollback of an attempt leaves the mark, too", func(t *testing.T) {
		n := held(t)
		rep, w, _ := n.atQueueNode(t, wire.Release, "a", 0, 0, in2)
		rep.want(t, wire.Gone, 1, 0)
		w.want(t, noProcess)
	})
	t.Run("a release that was missed is forgotten when the head is called", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.key, "a|64", hour)
		n.set(t, n.key+wire.TurnSuffix, noProcess, minute)
		sub := n.listener(t, in1)
		_, w, _ := n.releaseAtQueueNode(t, "a", noProcess)
		w.want(t, "")
		n.set(t, n.key+wire.TurnSuffix, noProcess, minute)
		n.wait(t, 0, in1)
		_, w, l := n.releaseAtQueueNode(t, "a", noProcess)
		w.want(t, in1, in1)
		wantLeft(t, "the turn", l.turn, 250)
		n.wantTold(t, sub, in1, in1)
	})
	t.Run("a process that releases leaves the queue", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.key, "a|64", hour)
		n.wait(t, 0, in1, in2)
		sub := n.listener(t, in1, in2)
		rep, w, _ := n.releaseAtQueueNode(t, "a", in1)
		rep.want(t, wire.Released, 1, 0)
		w.want(t, in2, in2)
		n.wantTold(t, sub, in2, in2)
	})
	t.Run("when a process gives up its turn, the next one is called", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.key+wire.TurnSuffix, in1, minute)
		n.wait(t, 0, in2)
		sub := n.listener(t, in1, in2)
		rep, w, l := n.releaseAtQueueNode(t, "none", in1)
		rep.want(t, wire.Gone, 1, 0)
		w.want(t, in2, in2)
		wantLeft(t, "the turn", l.turn, 250)
		n.wantTold(t, sub, in2, in2)
	})
	t.Run("a process that has been called is told again", func(t *testing.T) {
		n := base.fresh(t)
		n.set(t, n.key, "a|64", hour)
		n.set(t, n.key+wire.TurnSuffix, in1, 100)
		n.wait(t, 0, in2)
		sub := n.listener(t, in1, in2)
		rep, w, l := n.releaseAtQueueNode(t, "a", noProcess)
		rep.want(t, wire.Released, 1, 0)
		w.want(t, in1, in2)
		wantLeft(t, "the turn", l.turn, 100)
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
			_, w, _ := n.releaseAtQueueNode(t, "a", noProcess)
			if test.called {
				w.want(t, in1, in1, in2, in3)
				n.wantTold(t, sub, in3, in1)
			} else {
				w.want(t, in2, in2, in3)
				n.wantTold(t, sub, in3, in2)
			}
		})
	}
	t.Run("a head of which nothing more is known is skipped", func(t *testing.T) {
		n := base.fresh(t)
		n.wait(t, 0, in1, in2)
		n.HDel(t.Context(), n.key+wire.SeenSuffix, in1)
		sub := n.listener(t, in1, in2)
		_, w, _ := n.releaseAtQueueNode(t, "a", noProcess)
		w.want(t, in2, in2)
		n.wantTold(t, sub, in2, in2)
	})
	t.Run("at most 256 are skipped in one look", func(t *testing.T) {
		n := base.fresh(t)
		for i := range 300 {
			n.wait(t, 4000, fmt.Sprintf("gone%03d", i))
		}
		n.wait(t, 0, in1)
		sub := n.listener(t, in1)
		_, w, l := n.releaseAtQueueNode(t, "a", noProcess)
		if len(w.queue) != 45 || w.turn != "" || l.turn != -2 {
			t.Errorf("got %d in the queue and the turn of %q, want 45 and no turn", len(w.queue), w.turn)
		}
		n.wantTold(t, sub, in1)
		_, w, _ = n.releaseAtQueueNode(t, "a", noProcess)
		w.want(t, in1, in1)
		n.wantTold(t, sub, in1, in1)
	})
	t.Run("queue keys of another type are no hindrance", func(t *testing.T) {
		for _, suffix := range []string{wire.QueueSuffix, wire.SeenSuffix, wire.TurnSuffix} {
			n := base.fresh(t)
			if err := n.RPush(t.Context(), n.key+suffix, "x").Err(); err != nil {
				t.Fatal(err)
			}
			n.acquire(t, "a", 0).wantOneOf(t, "a grant", wire.Granted)
			for i, who := range []string{in1, noProcess} {
				rep := n.send(t, wire.Acquire, "b", hour, 0, 0, who)
				rep.wantOneOf(t, "no error", wire.Busy)
				if rep.Err != nil {
					t.Errorf("%s, acquire %d: got %v, want no error", suffix, i, rep.Err)
				}
			}
			rep := n.send(t, wire.Rest, "b", 0, in2)
			rep.want(t, wire.Gone, 0, 0)
			rep = n.send(t, wire.Release, "a", 0, 0, in1)
			rep.wantOneOf(t, "no error", wire.Released)
			rep = n.send(t, wire.Acquire, "b", hour, 0, 0, in1)
			if rep.Err != nil || rep.Code != wire.Granted {
				t.Errorf("%s: got code %d, %v; want it granted", suffix, rep.Code, rep.Err)
			}
			n.Del(t.Context(), n.key, n.key+wire.QueueSuffix, n.key+wire.SeenSuffix, n.key+wire.TurnSuffix)
		}
	})
}

// A queue node that is out of memory releases the lock, and calls the processes that it can.
func TestQueueNodeOutOfMemory(t *testing.T) {
	master := redistest.Masters(t, 1, "--maxmemory-policy", "noeviction")[0]
	base := node{Client: redistest.Client(t, master.Addr()), seen: make(map[wire.Op]map[wire.Code]bool)}
	n := base.fresh(t)
	n.set(t, n.key, "a|64", hour)
	n.pinned = true
	n.wait(t, 0, "in1", "in2")
	sub := n.listener(t, "in1", "in2")
	if err := n.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	n.send(t, wire.Acquire, "b", hour, 0, 0, "in3").wantOneOf(t, "OOM", wire.Busy)
	n.send(t, wire.Release, "a", 64, 64, noProcess).want(t, wire.Released, 2, 0)
	n.wantTold(t, sub, "in1", "in1")
	n.wantKeys(t, "", "")
}
