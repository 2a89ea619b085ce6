package masters_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
)

// A long value comes through; the server and the client learn when the other end has left.
func TestProxyPasses(outer *testing.T) {
	t := redistest.Timed(outer)
	p, x := proxied(t)
	w := dial(t, x.Addr())
	w.send("PING")
	w.want("+PONG")
	w.hangUp()
	wantAlone(t, p)
	c := redistest.Client(t, x.Addr())
	value := make([]byte, 1<<20) // many chunks
	ok(t, c.Set(t.Context(), "k", value, 0).Err())
	got, err := c.Get(t.Context(), "k").Bytes()
	ok(t, err)
	if string(got) != string(value) {
		t.Errorf("got %d bytes back, want the %d sent", len(got), len(value))
	}
	w = dial(t, x.Addr())
	ok(t, p.Kill())
	w.wantBroken()
}

// wantAlone waits until the server has no client but the one that asks.
func wantAlone(t testing.TB, p *masters.Process) {
	t.Helper()
	c := redistest.Client(t, p.Addr())
	redistest.Eventually(t, patient, func() bool {
		info, err := c.InfoMap(t.Context(), "clients").Result()
		return err == nil && info["Clients"]["connected_clients"] == "1"
	}, "the server has only the inspecting client left")
}

func TestProxyBlackholeDeliversAtHeal(outer *testing.T) {
	t := redistest.Timed(outer)
	p, x := proxied(t)
	stays, blocked := dial(t, x.Addr()), dial(t, x.Addr())
	stays.send("PING")
	stays.want("+PONG")
	blocked.send("BLPOP list 0")
	redistest.Eventually(t, patient, func() bool {
		info, err := redistest.Client(t, p.Addr()).InfoMap(t.Context(), "clients").Result()
		return err == nil && info["Clients"]["blocked_clients"] == "1"
	}, "the client is blocked")
	ok(t, x.Set(masters.Blackhole))
	stays.send("SET stays v")
	leaves := dial(t, x.Addr()) // connecting works
	leaves.send("SET leaves v")
	stays.wantSilence()
	leaves.wantSilence()
	leaves.hangUp()
	if got := ask(t, p.Addr(), "EXISTS stays leaves"); got != ":0" {
		t.Errorf("got %q keys in the black hole, want :0", got)
	}
	ask(t, p.Addr(), "RPUSH list v")
	blocked.wantSilence() // replies are held, too
	ok(t, x.Set(masters.Pass))
	stays.want("+OK")
	blocked.want("*2")
	wantKey(t, p.Addr(), "leaves", "v")
}

// What is lost does not come later, and the connection stays open.
func TestProxyLoses(outer *testing.T) {
	t := redistest.Timed(outer)
	for name, test := range map[string]struct {
		lose   func(*masters.Proxy) error
		counts string // the value that the server has after the lost INCR
	}{
		"replies":       {func(x *masters.Proxy) error { return x.Set(masters.LoseReplies) }, "1"},
		"the next one":  {func(x *masters.Proxy) error { x.LoseNextReply(); return nil }, "1"},
		"requests":      {func(x *masters.Proxy) error { return x.Set(masters.LoseRequests) }, "0"},
		"what was sent": {func(x *masters.Proxy) error { x.Latency(time.Second, 0); return nil }, "0"},
	} {
		t.Run(name, func(t *redistest.T) {
			p, x := proxied(t)
			ask(t, p.Addr(), "SET n 0")
			w := dial(t, x.Addr())
			ok(t, test.lose(x))
			w.send("INCR n")
			if name == "what was sent" { // the fault comes while the request is under way
				time.Sleep(50 * time.Millisecond)
				ok(t, x.Set(masters.LoseRequests))
				x.Latency(0, 0)
			}
			redistest.Eventually(t, patient, func() bool { return x.Stats().Lost == 1 }, "one chunk lost")
			w.wantSilence()
			if got := ask(t, p.Addr(), "GET n"); got != test.counts {
				t.Errorf("got %s on the server, want %s", got, test.counts)
			}
			ok(t, x.Set(masters.Pass))
			w.send("PING")
			w.want("+PONG")
		})
	}
}

func TestProxyRefuses(outer *testing.T) {
	t := redistest.Timed(outer)
	_, x := proxied(t)
	for range 3 {
		w := dial(t, x.Addr())
		w.send("PING")
		w.want("+PONG")
		ok(t, x.Set(masters.Refuse))
		wantRefused(t, x.Addr())
		wantReset(t, w)
		ok(t, x.Set(masters.Refuse))
		ok(t, x.Set(masters.Pass))
	}
}

func TestProxyLatency(outer *testing.T) {
	t := redistest.Timed(outer)
	_, x := proxied(t)
	x.Latency(25*time.Millisecond, 25*time.Millisecond)
	w := dial(t, x.Addr())
	start := time.Now()
	w.send("PING")
	w.want("+PONG")
	if took := time.Since(start); took < 50*time.Millisecond {
		t.Errorf("PING took %v, want 50 ms or more", took)
	}

	// Requests sent one by one are under way together and stay in order. One after
	// another they would take 10 s.
	start = time.Now()
	for i := range 200 {
		w.send("ECHO %d", i)
		time.Sleep(100 * time.Microsecond) // most are a chunk each
	}
	for i := range 200 {
		s := fmt.Sprint(i)
		w.want(fmt.Sprintf("$%d", len(s)))
		w.want(s)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("200 requests took %v: the latency adds up", took)
	}
}

func TestProxyDeliversAHeldRequestAfterItsClientLeft(outer *testing.T) {
	t := redistest.Timed(outer)
	p, x := proxied(t)
	x.HoldNextRequest([]byte("SET"), time.Second)
	w := dial(t, x.Addr())
	w.send("PING")
	w.want("+PONG") // does not match
	start := time.Now()
	w.send("SET k late")
	w.wantSilence()
	w.hangUp()
	if got := x.Stats().Held; got != 1 {
		t.Errorf("got %d chunks held, want 1", got)
	}

	// Others pass, also with a match.
	if got := ask(t, x.Addr(), "SET k early"); got != "+OK" {
		t.Errorf("got %q, want +OK", got)
	}
	wantKey(t, p.Addr(), "k", "late")
	if took := time.Since(start); took < time.Second {
		t.Errorf("delivered after %v, want 1 s or more", took)
	}
}

// Both sides of a connection see the reset. New connections go to the present server.
func TestProxyResets(outer *testing.T) {
	t := redistest.Timed(outer)
	list := redistest.Masters(t, 2)
	x := redistest.Proxied(t, list[:1])[0]
	for i, p := range list {
		ask(t, p.Addr(), fmt.Sprintf("SET name %d", i))
	}
	for i, reset := range []func() error{
		func() error { x.ResetAll(); return nil },
		func() error { return x.Retarget(list[1].Addr()) },
	} {
		w := dial(t, x.Addr())
		w.send("PING")
		w.want("+PONG")
		ok(t, reset())
		wantReset(t, w)
		if i == 0 {
			wantAlone(t, list[0])
		}
		wantKey(t, x.Addr(), "name", fmt.Sprint(i))
	}
}

func wantReset(t testing.TB, w *wire) {
	t.Helper()
	if got, err := w.recv(patient); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("got %q, %v; want a reset", got, err)
	}
}
