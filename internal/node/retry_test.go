package node

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/resp"
	"github.com/d0720281/redlock/internal/wire"
)

// heard records replies.
type heard struct{ replies []Reply }

func (h *heard) Receive(_ *Request, rep Reply) { h.replies = append(h.replies, rep) }

// releaseFor queues a release, at an instant, for an attempt at a lock with a TTL of 10 s.
func releaseFor(n *Node, at clock.Instant) (*Request, *heard) {
	k := &Key{ID: "id", Lock: "r", TTL: 10_000}
	k.Live(10*time.Second + 102*time.Millisecond)
	k.Init(len(n.set.nodes))
	h := new(heard)
	return &Request{Op: wire.Release, Key: k, Timeout: 250 * time.Millisecond, To: h, queued: at}, h
}

// A node drops the releases to repeat for a dead master when the keys have expired, even if
// the master never comes back.
//
// Source: ALGORITHM section 5, "then dropped (the key is gone by then)".
func TestReleasesOfADeadMasterAreForgotten(t *testing.T) {
	n := idle(t, 1).nodes[0]
	const queued = clock.Instant(time.Hour)
	var out outcomes
	sent, _ := releaseFor(n, queued)
	unsent, answer := releaseFor(n, queued)
	sent.Key.traffic[0].sent = true
	n.queue.add(sent)
	n.queue.add(unsent)
	n.goDownLocked(ErrTimeout, queued, &out)
	out.tell(n, queued)
	if len(n.retries.list) != 1 || n.retries.list[0].Request != sent {
		t.Fatalf("got %d releases to repeat, want only the release whose attempt had reached the master", len(n.retries.list))
	}
	if len(answer.replies) != 1 || !errors.Is(answer.replies[0].Err, ErrUnsent) {
		t.Errorf("got %+v, want it known that the master has no key of the attempt", answer.replies)
	}
	last := queued.Add(sent.Timeout + time.Duration(sent.Key.life.Load()))
	n.pruneLocked(last-1, new(outcomes))
	if len(n.retries.list) != 1 {
		t.Error("forgotten before the key has expired")
	}
	n.pruneLocked(last, new(outcomes))
	if len(n.retries.list) != 0 {
		t.Error("kept after the key has expired")
	}
}

// If a lost message of its attempt can still arrive, a confirmed release is sent again after
// that time. Only then is it done.
//
// Source: ALGORITHM section 5, "notAfter".
func TestReleaseIsRepeatedAfterALostMessage(t *testing.T) {
	n := idle(t, 1).nodes[0]
	now := clock.Instant(time.Hour)
	r, _ := releaseFor(n, now)
	tr := &r.Key.traffic[0]
	tr.sent, tr.deadBy = true, now.Add(100*time.Millisecond)
	n.settleLocked(r, nil, now)
	if len(n.retries.list) != 1 || n.workAtLocked() != tr.deadBy {
		t.Fatalf("got %d releases to repeat, due at %d; want one, due at %d", len(n.retries.list), n.workAtLocked(), tr.deadBy)
	}
	var out outcomes
	batch := func(now clock.Instant) []*Request {
		l := &link{knows: make(map[*wire.Script]bool), heard: now}
		if f := n.flightLocked(now, l, &out); f != nil {
			return f.batch
		}
		return nil
	}
	if b := batch(tr.deadBy - 1); len(b) != 0 {
		t.Errorf("got %d requests before that, want none", len(b))
	}
	if b := batch(tr.deadBy); len(b) != 1 || b[0] != r {
		t.Errorf("got %d requests then, want the release", len(b))
	}
	// The clock of a master without recent replies is known badly: a lost message may arrive,
	// and set the key, long after the release.
	late, _ := releaseFor(n, now)
	lateTraffic := &late.Key.traffic[0]
	lateTraffic.sent, lateTraffic.deadBy = true, now.Add(time.Minute)
	n.settleLocked(late, nil, now)
	n.pruneLocked(lateTraffic.deadBy.Add(10*time.Second), new(outcomes))
	if i := slices.IndexFunc(n.retries.list, func(b retry) bool { return b.Request == late }); i < 0 {
		t.Error("forgotten while a key that arrived late can be there")
	}
	n.retries.drop(late)
	n.settleLocked(r, nil, tr.deadBy)
	if len(n.retries.list) != 0 {
		t.Error("still to be repeated, although nothing can arrive any more")
	}
	// A release that failed is repeated until it is confirmed.
	n.settleLocked(r, resp.Error("MISCONF no"), tr.deadBy)
	n.settleLocked(r, resp.Error("MISCONF no"), tr.deadBy)
	if len(n.retries.list) != 1 {
		t.Errorf("got %d releases to repeat, want one", len(n.retries.list))
	}
}

// A rest that was not confirmed drops the key when it is repeated, but names no process: the
// process may not wait any more. Over a new connection it is sent unchanged, before all later
// requests.
//
// Source: ALGORITHM section 10, "rest".
func TestRestIsRepeatedWithoutAName(t *testing.T) {
	n := idle(t, 1).nodes[0]
	now := clock.Instant(time.Hour)
	l := &link{knows: make(map[*wire.Script]bool), heard: now}
	var out outcomes
	sent := func(want *Request, who string) {
		t.Helper()
		f := n.flightLocked(now, l, &out)
		if f == nil || !slices.Contains(f.batch, want) {
			t.Fatalf("got %+v sent, want the rest", f)
		}
		n.flights = append(n.flights, f)
		if got, want := fmt.Sprint(argsOf(want)), fmt.Sprintf("[5 1 %s id|64 0]", who); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	rest, _ := releaseFor(n, now)
	rest.Op, rest.Process, rest.Counter = wire.Rest, "in1", 64
	rest.Key.traffic[0].sent = true
	n.queue.add(rest)
	sent(rest, "in1")
	for _, f := range n.flights { // the connection ends
		n.queue.putBack(f.batch)
	}
	n.flights = nil
	later, _ := releaseFor(n, now)
	later.Key.traffic[0].sent = true
	n.queue.add(later)
	sent(rest, "in1")
	n.flights = nil
	n.settleLocked(rest, ErrTimeout, now)
	now = now.Add(time.Second)
	sent(rest, wire.NoProcess)
}

// The release of an attempt of which no request was sent is dropped, but not at the queue node: the
// process may be in the queue there, or have its turn.
//
// Source: ALGORITHM section 10, "release".
func TestReleaseOfAnUnsentAttempt(t *testing.T) {
	for _, process := range []string{"", wire.NoProcess, "inbox"} {
		n := idle(t, 1).nodes[0]
		now := clock.Instant(time.Hour)
		var out outcomes
		r, answer := releaseFor(n, now)
		r.Process = process
		n.queue.add(r)
		f := n.flightLocked(now, &link{knows: make(map[*wire.Script]bool), heard: now}, &out)
		out.tell(n, now)
		sent, queueNode := f != nil && len(f.batch) == 1, process != ""
		if sent != queueNode {
			t.Errorf("by process %q: got it sent: %v, want %v", process, sent, queueNode)
		}
		if dropped := len(answer.replies) == 1 && answer.replies[0].Err == ErrUnsent; dropped == queueNode {
			t.Errorf("by process %q: got %+v", process, answer.replies)
		}
	}
}

// Releases are sent before renewals, and renewals before acquires.
//
// Source: ALGORITHM section 5.
func TestOrderOfRequests(t *testing.T) {
	n := idle(t, 1).nodes[0]
	now := clock.Instant(time.Hour)
	var want []wire.Op
	for range maxBatch {
		r, _ := releaseFor(n, now)
		r.Op = wire.Acquire
		n.queue.add(r)
	}
	for _, o := range []wire.Op{wire.Extend, wire.Release, wire.Raise, wire.Release, wire.Extend} {
		r, _ := releaseFor(n, now)
		r.Op, r.Key.traffic[0].sent = o, true
		n.queue.add(r)
	}
	want = []wire.Op{wire.Release, wire.Release, wire.Raise, wire.Extend, wire.Extend, wire.Acquire}
	var out outcomes
	f := n.flightLocked(now, &link{knows: make(map[*wire.Script]bool), heard: now}, &out)
	if len(f.batch) != maxBatch || n.queue.len() != len(want)-1 {
		t.Fatalf("got %d requests, and %d left", len(f.batch), n.queue.len())
	}
	for i, o := range want {
		if f.batch[i].Op != o {
			t.Errorf("request %d: got %v, want %v", i, f.batch[i].Op, o)
		}
	}
}

// The requests of a list that have arguments in common are neighbours, and those of a process for one
// key stay in order: a process that gives up while its rest is unsent must not join the queue last.
//
// Source: ALGORITHM section 5, "Order of requests".
func TestOrderWithinAList(t *testing.T) {
	n := idle(t, 1).nodes[0]
	for _, c := range []struct{ sent, want string }{
		{"rest:a release:a", "rest:a release:a"},
		{"release:a rest:a", "release:a rest:a"},
		{"rest:a release:a rest:a release:a", "rest:a release:a rest:a release:a"},
		{"rest:a release:b rest:c release:d", "release:b release:d rest:a rest:c"},
		{"rest:a release:b release:a rest:c rest:b", "release:b rest:a rest:c rest:b release:a"},
		{"rest:a acquire:a release:a acquire:b rest:c", "rest:a rest:c release:a acquire:a acquire:b"},
		{"rest:a extend:a release:a raise:a release:b", "release:b rest:a release:a raise:a extend:a"}, // raises and extends name no process
		{"rest:a rest:a release:b release:a release:a", "release:b rest:a rest:a release:a release:a"},
	} {
		var batch []*Request
		for _, word := range strings.Fields(c.sent) {
			op, key, _ := strings.Cut(word, ":")
			r, _ := releaseFor(n, 0)
			for r.Op = wire.Acquire; r.Op.String() != op; {
				r.Op++
			}
			if r.Key.Lock = key; r.Op != wire.Extend && r.Op != wire.Raise {
				r.Process = "in1"
			}
			batch = append(batch, r)
		}
		slices.SortStableFunc(batch, func(a, b *Request) int { return listOf(a.Op) - listOf(b.Op) }) // as the queue gives them
		n.queue.regroup(batch)
		var got []string
		for _, r := range batch {
			got = append(got, r.Op.String()+":"+r.Key.Lock)
		}
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("%s: got %s, want %s", c.sent, got, c.want)
		}
	}
}

// A request wakes the node's goroutine if it is the first in the queue, or if it fills a batch, which begins
// an exchange although others are under way.
//
// Source: ALGORITHM section 5, "Exchanges under way".
func TestRequestsThatWake(t *testing.T) {
	n := idle(t, 1).nodes[0]
	now := clock.Instant(time.Hour)
	for i := range maxBatch {
		r, _ := releaseFor(n, now)
		if err := n.Send(r, now); err != nil {
			t.Fatal(err)
		}
		woken := false
		select {
		case <-n.wake:
			woken = true
		default:
		}
		if want := i == 0 || i == maxBatch-1; woken != want {
			t.Errorf("request %d of %d: got the goroutine woken: %v, want %v", i+1, maxBatch, woken, want)
		}
	}
}

// The list of releases to repeat finds each one by its place, and looks through the others only when
// something may be due.
func TestRetries(t *testing.T) {
	const timeout = 250 * time.Millisecond
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var s retries
		plain := map[*Request]retry{}
		now := clock.Instant(time.Hour)
		for range 500 {
			now = now.Add(time.Duration(rng.IntN(40)) * time.Millisecond)
			switch rng.IntN(3) {
			case 0:
				r := retry{Request: new(Request), at: now.Add(time.Duration(rng.IntN(100)) * time.Millisecond), until: now.Add(time.Duration(rng.IntN(2000)) * time.Millisecond), wait: firstPause}
				s.add(r)
				plain[r.Request] = r
			case 1:
				for r := range plain {
					s.drop(r)
					s.drop(r)
					delete(plain, r)
					break
				}
			default:
				due := clock.Never
				for _, r := range plain {
					due = min(due, r.at)
				}
				if s.due() > due {
					t.Fatalf("seed %d: got it due at %d, want at most %d", seed, s.due(), due)
				}
				for _, r := range s.take(nil, now, timeout, nil) {
					if now < plain[r].at {
						t.Fatalf("seed %d: got a release %v before it is due", seed, plain[r].at.Sub(now))
					}
					p := plain[r]
					p.wait = longerPause(p.wait)
					p.at = now.Add(timeout + p.wait)
					plain[r] = p
				}
				for _, r := range plain {
					if r.at <= now {
						t.Fatalf("seed %d: a release that was due %v ago was not taken", seed, now.Sub(r.at))
					}
				}
			}
			for _, r := range s.prune(now) {
				if now < plain[r].until {
					t.Fatalf("seed %d: got a release ended %v before its key", seed, plain[r].until.Sub(now))
				}
				delete(plain, r)
			}
			for r, p := range plain {
				if now >= p.until.Add(pruneEvery) {
					t.Fatalf("seed %d: a release is kept %v after its key", seed, now.Sub(p.until))
				}
				if r.retry == 0 || s.list[r.retry-1].Request != r {
					t.Fatalf("seed %d: a release does not know its place", seed)
				}
			}
			if len(s.list) != len(plain) {
				t.Fatalf("seed %d: got %d releases, want %d", seed, len(s.list), len(plain))
			}
		}
	}
}

// What a node has refused before it did anything is not released, but a lease takes its process out of the
// queue. What a proxy has refused is released at once, and not before the next second where the node refuses
// everything.
//
// Source: ALGORITHM section 5, "Refusals".
func TestReleaseOfWhatWasRefused(t *testing.T) {
	for _, test := range []struct {
		name    string
		denied  denial
		process string
		target  int64
		refuses bool // everything, for a second
		sent    bool
		retries int
	}{
		{"undone", undone, "", 0, false, false, 0},
		{"undone, an attempt at the queue node", undone, "inbox", 0, false, false, 0},
		{"undone, a lease at the queue node", undone, "inbox", 64, false, true, 0},
		{"taken", taken, "", 0, false, false, 0},
		{"taken, at the queue node", taken, "inbox", 0, false, true, 0},
		{"doubtful", doubtful, "", 0, false, true, 0},
		{"doubtful, and the node refuses everything", doubtful, "", 0, true, false, 1},
	} {
		n := idle(t, 1).nodes[0]
		now := clock.Instant(time.Hour)
		if test.refuses {
			n.refusal.note(ErrTimeout, now-clock.Instant(refusedFor))
			n.refusal.note(ErrTimeout, now)
		}
		r, _ := releaseFor(n, now)
		r.Process, r.Target = test.process, test.target
		r.Key.traffic[0].sent, r.Key.traffic[0].denied = true, test.denied
		_ = n.Send(r, now)
		f := n.flightLocked(now, &link{knows: make(map[*wire.Script]bool), heard: now}, new(outcomes))
		if sent := f != nil && len(f.batch) == 1; sent != test.sent || len(n.retries.list) != test.retries {
			t.Errorf("%s: got it sent: %v, and %d releases to repeat; want %v, %d", test.name, sent, len(n.retries.list), test.sent, test.retries)
		}
	}
	for lost, want := range map[clock.Instant]denial{0: taken, clock.Instant(time.Hour): notDenied} { // an acquire before, which may arrive yet
		n := idle(t, 1).nodes[0]
		r, _ := releaseFor(n, clock.Instant(time.Hour))
		r.Op, r.Key.traffic[0].deadBy = wire.Acquire, lost
		n.takeLocked(new(link), &flight{batch: []*Request{r}}, []Reply{{Code: wire.Busy}}, false, clock.Instant(time.Hour), new(outcomes))
		if got := r.Key.traffic[0].denied; got != want {
			t.Errorf("BUSY, another acquire lost until %v: got %d, want %d", lost, got, want)
		}
	}
}
