package masters_test

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
)

func TestProxyPasses(t *testing.T) {
	p, x := proxied(t)
	c := redistest.Client(t, x.Addr())
	value := make([]byte, 1<<20) // many chunks
	ok(t, c.Set(t.Context(), "k", value, 0).Err())
	got, err := c.Get(t.Context(), "k").Bytes()
	ok(t, err)
	if string(got) != string(value) {
		t.Errorf("got %d bytes back, want the %d sent", len(got), len(value))
	}
	redistest.Eventually(t, 10*time.Second, func() bool { // the proxy counts what it has handed on
		s := x.Stats()
		return s.Connections == 1 && s.Requests >= 2 && s.RequestBytes >= 1<<20 && s.ReplyBytes >= 1<<20 && s.Lost == 0
	}, "the figures are those of two requests with a long value")
	w := dial(t, x.Addr())
	ok(t, p.Kill())
	w.wantBroken()
}

// The server must not notice that its client was behind a proxy and left.
func TestProxyHandsOnTheEndOfAConnection(t *testing.T) {
	p, x := proxied(t)
	w := dial(t, x.Addr())
	w.send("PING")
	w.want("+PONG")
	w.hangUp()
	c := redistest.Client(t, p.Addr())
	redistest.Eventually(t, patient, func() bool {
		info, err := c.InfoMap(t.Context(), "clients").Result()
		return err == nil && info["Clients"]["connected_clients"] == "1"
	}, "the server has only the inspecting client left")
}

func TestProxyBlackholeDeliversAtHeal(t *testing.T) {
	p, x := proxied(t)
	stays := dial(t, x.Addr())
	stays.send("PING")
	stays.want("+PONG")
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
	ok(t, x.Set(masters.Pass))
	stays.want("+OK")
	wantKey(t, p.Addr(), "leaves", "v")
}

func TestProxyBlackholeHoldsReplies(t *testing.T) {
	p, x := proxied(t)
	w := dial(t, x.Addr())
	w.send("CLIENT SETNAME far")
	w.want("+OK")
	w.send("BLPOP list 0")
	redistest.Eventually(t, patient, func() bool {
		info, err := redistest.Client(t, p.Addr()).InfoMap(t.Context(), "clients").Result()
		return err == nil && info["Clients"]["blocked_clients"] == "1"
	}, "the client is blocked")
	ok(t, x.Set(masters.Blackhole))
	ask(t, p.Addr(), "RPUSH list v")
	w.wantSilence()
	ok(t, x.Set(masters.Pass))
	w.want("*2")
}

func TestProxyLosesReplies(t *testing.T) {
	p, x := proxied(t)
	w := dial(t, x.Addr())
	ok(t, x.Set(masters.LoseReplies))
	w.send("SET k v")
	wantKey(t, p.Addr(), "k", "v") // the write takes effect
	w.wantSilence()                // the connection stays open
	redistest.Eventually(t, patient, func() bool { return x.Stats().Lost == 1 }, "one chunk lost")
	ok(t, x.Set(masters.Pass))
	w.send("GET k")
	w.want("$1") // not the lost +OK
}

func TestProxyLosesRequests(t *testing.T) {
	p, x := proxied(t)
	w := dial(t, x.Addr())
	ok(t, x.Set(masters.LoseRequests))
	w.send("SET k v")
	w.wantSilence()
	ok(t, x.Set(masters.Pass))
	w.send("PING")
	w.want("+PONG")
	if got := ask(t, p.Addr(), "GET k"); got != "$-1" {
		t.Errorf("got %q, want no key", got)
	}
}

func TestProxyLosesTheNextReplies(t *testing.T) {
	p, x := proxied(t)
	w := dial(t, x.Addr())
	x.LoseNextReply(2)
	for i := range 2 {
		w.send("INCR n")
		wantKey(t, p.Addr(), "n", fmt.Sprint(i+1))
		w.wantSilence()
	}
	w.send("INCR n")
	w.want(":3")
}

func TestProxyRefuses(t *testing.T) {
	_, x := proxied(t)
	w := dial(t, x.Addr())
	w.send("PING")
	w.want("+PONG")
	for range 5 {
		ok(t, x.Set(masters.Refuse))
		wantRefused(t, x.Addr())
		wantReset(t, w)
		ok(t, x.Set(masters.Refuse))
		ok(t, x.Set(masters.Pass))
		w = dial(t, x.Addr())
		w.send("PING")
		w.want("+PONG")
	}
}

func TestProxyThatCannotGetItsPortBack(t *testing.T) {
	_, x := proxied(t)
	ok(t, x.Set(masters.Refuse))
	squatter, err := net.Listen("tcp", x.Addr())
	ok(t, err)
	if err := x.Set(masters.Pass); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("got %v, want EADDRINUSE", err)
	}
	ok(t, squatter.Close())
	ok(t, x.Set(masters.Pass))
	if got := ask(t, x.Addr(), "PING"); got != "+PONG" {
		t.Errorf("got %q, want +PONG", got)
	}
}

func TestProxyLatency(t *testing.T) {
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

	// A shorter delay does not let later chunks overtake.
	x.Latency(100*time.Millisecond, 0)
	before := x.Stats().Requests
	w.send("ECHO slow")
	redistest.Eventually(t, patient, func() bool { return x.Stats().Requests > before }, "the slow request is in the proxy")
	time.Sleep(10 * time.Millisecond) // a request is counted a moment before it gets its delay
	x.Latency(0, 0)
	w.send("ECHO fast")
	for _, s := range []string{"$4", "slow", "$4", "fast"} {
		w.want(s)
	}
}

func TestProxyDeliversAHeldRequestAfterItsClientLeft(t *testing.T) {
	p, x := proxied(t)
	x.HoldNextRequest([]byte("SET"), 2*time.Second)
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
	if took := time.Since(start); took < 2*time.Second {
		t.Errorf("delivered after %v, want 2 s or more", took)
	}
}

func TestProxyDisarms(t *testing.T) {
	_, x := proxied(t)
	x.HoldNextRequest(nil, time.Hour)
	x.HoldNextRequest(nil, 0)
	x.LoseNextReply(1)
	x.LoseNextReply(0)
	if got := ask(t, x.Addr(), "PING"); got != "+PONG" {
		t.Errorf("got %q, want +PONG", got)
	}
}

func TestProxyResetsAll(t *testing.T) {
	p, x := proxied(t)
	var wires []*wire
	for range 3 {
		w := dial(t, x.Addr())
		w.send("PING")
		w.want("+PONG")
		wires = append(wires, w)
	}
	x.ResetAll()
	for _, w := range wires {
		wantReset(t, w)
	}
	if got := ask(t, x.Addr(), "PING"); got != "+PONG" {
		t.Errorf("got %q, want +PONG", got)
	}
	c := redistest.Client(t, p.Addr())
	redistest.Eventually(t, patient, func() bool {
		info, err := c.InfoMap(t.Context(), "clients").Result()
		return err == nil && info["Clients"]["connected_clients"] == "1"
	}, "the server has only the inspecting client left")
}

func TestProxyRetargets(t *testing.T) {
	list := redistest.Masters(t, 2)
	x := redistest.Proxied(t, list[:1])[0]
	for i, p := range list {
		ask(t, p.Addr(), fmt.Sprintf("SET name %d", i))
	}
	w := dial(t, x.Addr())
	w.send("GET name")
	w.want("$1")
	w.want("0")
	ok(t, x.Retarget(list[1].Addr()))
	wantReset(t, w)
	wantKey(t, x.Addr(), "name", "1")
}

func TestProxyBeforeADeadServer(t *testing.T) {
	p, x := proxied(t)
	ok(t, p.Kill())
	// The reset may come while the client is still connecting.
	conn, err := net.Dial("tcp", x.Addr())
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
		conn.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want a reset", err)
	}
	ok(t, p.Restart())
	if got := ask(t, x.Addr(), "PING"); got != "+PONG" {
		t.Errorf("got %q, want +PONG", got)
	}
}

func TestClosedProxy(t *testing.T) {
	_, x := proxied(t)
	w := dial(t, x.Addr())
	w.send("PING")
	w.want("+PONG")
	ok(t, x.Set(masters.Blackhole))
	x.HoldNextRequest(nil, time.Hour)
	w.send("PING")
	x.Close()
	x.Close()
	wantReset(t, w)
	wantRefused(t, x.Addr())
	x.ResetAll()
	if err := x.Set(masters.Pass); !errors.Is(err, masters.ErrClosed) {
		t.Errorf("Set: got %v, want ErrClosed", err)
	}
	if err := x.Retarget("127.0.0.1:1"); !errors.Is(err, masters.ErrClosed) {
		t.Errorf("Retarget: got %v, want ErrClosed", err)
	}
}

// Several goroutines inject every fault under traffic. The proxy passes afterwards.
func TestProxyUnderConcurrentUse(t *testing.T) {
	p, x := proxied(t)
	wait := underTraffic(x.Addr(), func() {
		for _, f := range []masters.Fault{
			masters.Blackhole, masters.LoseReplies, masters.Refuse, masters.LoseRequests, masters.Pass,
		} {
			if err := x.Set(f); err != nil {
				t.Error(err)
			}
			x.Latency(time.Millisecond, 0)
			x.HoldNextRequest([]byte("EVAL"), 5*time.Millisecond)
			x.LoseNextReply(1)
			time.Sleep(time.Millisecond) // each fault meets some traffic
			x.ResetAll()
			x.Latency(0, 0)
			if err := x.Retarget(p.Addr()); err != nil {
				t.Error(err)
			}
		}
	})
	ok(t, x.Set(masters.Pass))
	x.LoseNextReply(0)
	x.HoldNextRequest(nil, 0)
	wait()
	if got := ask(t, x.Addr(), "PING"); got != "+PONG" {
		t.Errorf("got %q, want +PONG", got)
	}
}

func TestFaultString(t *testing.T) {
	seen := map[string]bool{}
	for f := masters.Pass; f <= masters.Refuse+1; f++ {
		if s := f.String(); s == "" || seen[s] {
			t.Errorf("fault %d: got name %q, want a name of its own", int(f), s)
		} else {
			seen[s] = true
		}
	}
}

func wantReset(t testing.TB, w *wire) {
	t.Helper()
	if got, err := w.recv(patient); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("got %q, %v; want a reset", got, err)
	}
}
